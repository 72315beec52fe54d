"""What a model file in the format GGUF says of itself, read without loading the model.

A file is a header (sizes, settings by name, the place of each tensor) and the tensors. The format:
https://github.com/ggml-org/ggml/blob/master/docs/gguf.md
"""

from __future__ import annotations

import hashlib
import mmap
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Final

from dagengine.errors import InputError

_MAGIC: Final = b"GGUF"
# The struct codes of numbers by their type in the file.
_NUMBERS: Final = {
    0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d",
}  # fmt: skip
_TEXT, _ARRAY = 8, 9
_VERSIONS = (2, 3)
# What is hashed of a file: so many blocks, evenly spread. Retraining changes all weights.
_BLOCKS, _BLOCK = 1_024, 4_096
# Bytes of a number in the memory of a context.
_HALF_PRECISION = 2
_NOT_CHAT = {
    "adapter": "an adapter (LoRA), which changes a model but is none",
    "mmproj": "the image encoder of a model, not the model",
}


@dataclass(frozen=True)
class ModelFile:
    """A chat model in a file; `settings` are those of its header that are no lists."""

    path: Path
    settings: Mapping[str, Any]

    @property
    def name(self) -> str:
        """Name that the model gives itself."""
        return " ".join(str(self.settings.get("general.name") or "model").split())

    @property
    def trained_window(self) -> int | None:
        """The tokens of prompt and answer that the model was trained for."""
        return self._of_architecture("context_length")

    @property
    def bytes_per_token(self) -> int:
        """The memory that each token of a context takes, at most."""
        width = self._of_architecture("embedding_length") or 0
        heads = self._of_architecture("attention.head_count") or 1
        pairs = self._of_architecture("attention.head_count_kv") or heads
        size = width // heads
        key = self._of_architecture("attention.key_length") or size
        value = self._of_architecture("attention.value_length") or size
        layers = self._of_architecture("block_count") or 1
        return layers * pairs * (key + value) * _HALF_PRECISION

    @cached_property
    def digest(self) -> str:
        """Digest of the model, wherever the file is: 16 hexadecimal digits.

        From sizes and a thousand blocks of each file, so that large files take no longer. Raises
        InputError when one of several files is not there.
        """
        digest = hashlib.sha256()
        later = range(2, self.settings.get("split.count", 1) + 1)  # large models come in several
        names = [self.path.name.replace("-00001-of-", f"-{number:05}-of-") for number in later]
        for path in (self.path, *map(self.path.with_name, names)):
            try:
                size = path.stat().st_size
                digest.update(str(size).encode())
                with path.open("rb") as file:
                    for block in range(_BLOCKS):
                        file.seek(size * block // _BLOCKS)
                        digest.update(file.read(_BLOCK))
            except OSError as error:
                raise InputError(f"the model file {path} cannot be read: {error}") from None
        return digest.hexdigest()[:16]

    def _of_architecture(self, setting: str) -> int | None:
        """A number; the largest one where each layer has its own."""
        value = self.settings.get(f"{self.settings.get('general.architecture')}.{setting}")
        return value if isinstance(value, int) else None


def read_model_file(path: str | Path) -> ModelFile:
    """The chat model in a file; raises InputError for a file that has none."""
    source = Path(path).expanduser()
    if not source.is_file():
        lack = "a folder" if source.is_dir() else "not there"
        raise InputError(f"the model file {source} is {lack}: gguf: takes the path of a .gguf file")
    try:
        with source.open("rb") as file:
            if file.read(len(_MAGIC)) != _MAGIC:
                raise InputError(
                    f"{source} is not a GGUF file: it does not begin with the letters GGUF; "
                    "download the model in the format GGUF"
                )
            with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
                version, tensors, count = struct.unpack_from("<IQQ", content, len(_MAGIC))
                if version not in _VERSIONS:
                    raise struct.error
                at = len(_MAGIC) + struct.calcsize("<IQQ")
                # The tensors come after the settings, and are not read.
                settings: dict[str, Any] = {}
                for _ in range(count):
                    name, at = _text(content, at)
                    (kind,) = struct.unpack_from("<I", content, at)
                    settings[name], at = _value(content, at + 4, kind)
    except OSError as error:
        raise InputError(f"the model file {source} cannot be read: {error}") from None
    except (struct.error, OverflowError, KeyError):
        raise InputError(
            f"the model file {source} is incomplete, damaged or of an unknown version: its header "
            "cannot be read; download it again"
        ) from None
    problem = _problem(tensors, settings)
    if problem is not None:
        raise InputError(f"the model file {source} cannot judge: {problem}")
    return ModelFile(source, settings)


def _problem(tensors: int, settings: Mapping[str, Any]) -> str | None:
    """Why a file with this header does not answer chats."""
    kind, architecture = settings.get("general.type"), settings.get("general.architecture")
    if settings.get("split.no"):
        return "it is a later part of a model in several files; name the first one (…-00001-of-…)"
    if kind in _NOT_CHAT:
        return f"it is {_NOT_CHAT[kind]}; name the file of a chat model"
    if not tensors and settings.get("split.count", 0) < 2:
        return "it has a vocabulary but no weights; name the file of a chat model"
    pooling = settings.get(f"{architecture}.pooling_type", 0)
    if pooling or settings.get(f"{architecture}.attention.causal") is False:
        return "it is an embedding model, which writes no text; name the file of a chat model"
    if not settings.get("tokenizer.chat_template"):
        return (
            "it has no chat template, so it continues texts but was not trained to answer; name "
            "the file of an instruct or chat model"
        )
    return None


def _value(content: mmap.mmap, at: int, kind: int) -> tuple[Any, int]:
    """A value of a kind, and where the next thing begins.

    Of a list of numbers it is the largest, of any other list None.
    """
    if kind == _TEXT:
        return _text(content, at)
    if kind != _ARRAY:
        form = f"<{_NUMBERS[kind]}"
        return struct.unpack_from(form, content, at)[0], at + struct.calcsize(form)
    kind, count = struct.unpack_from("<IQ", content, at)
    at += struct.calcsize("<IQ")
    if kind in _NUMBERS:
        form = f"<{count}{_NUMBERS[kind]}"
        return max(struct.unpack_from(form, content, at), default=0), at + struct.calcsize(form)
    for _ in range(count):
        if kind == _TEXT:
            at += 8 + struct.unpack_from("<Q", content, at)[0]
        else:
            _, at = _value(content, at, kind)
    return None, at


def _text(content: mmap.mmap, at: int) -> tuple[str, int]:
    """A text, and where the next thing begins."""
    (length,) = struct.unpack_from("<Q", content, at)
    text = content[at + 8 : at + 8 + length]
    if len(text) < length:
        raise struct.error
    return text.decode(errors="replace"), at + 8 + length
