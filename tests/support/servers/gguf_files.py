"""Model files that llama.cpp never sees: headers as people may have them, without weights."""

import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Any

_TEXT, _WHOLE, _TRUTH, _LIST = 8, 4, 7, 9
CHAT: dict[str, Any] = {
    "general.architecture": "llama",
    "general.name": "Tiny",
    "llama.context_length": 4096,
    "llama.embedding_length": 64,
    "llama.block_count": 2,
    "llama.attention.head_count": 4,
    "tokenizer.ggml.tokens": ["a", "b", "c"],
    "tokenizer.chat_template": "{{ messages }}",
}


def write_header(path: Path, changes: Mapping[str, Any] = CHAT, *, tensors: int = 1) -> Path:
    """Write the header of a chat model, with some settings changed; None leaves one out."""
    settings = {name: value for name, value in {**CHAT, **changes}.items() if value is not None}
    content = b"GGUF" + struct.pack("<IQQ", 3, tensors, len(settings))
    for name, value in settings.items():
        content += _text(name) + _value(value)
    path.write_bytes(content)
    return path


def _text(text: str) -> bytes:
    return struct.pack("<Q", len(text.encode())) + text.encode()


def _value(value: Any) -> bytes:
    if isinstance(value, str):
        return struct.pack("<I", _TEXT) + _text(value)
    if isinstance(value, bool):
        return struct.pack("<I?", _TRUTH, value)
    if isinstance(value, int):
        return struct.pack("<II", _WHOLE, value)
    numbers = isinstance(value[0], int)
    head = struct.pack("<IIQ", _LIST, _WHOLE if numbers else _TEXT, len(value))
    return head + b"".join(struct.pack("<I", item) if numbers else _text(item) for item in value)
