"""llama.cpp's own OpenAI-compatible server on a model of random weights, made on the spot.

Its judgements are noise. Its protocol is real: constrained decoding, log probabilities, answers
cut short, errors, several calls at once. It needs the `llama` extra, and no download:

    pytest.importorskip("xllamacpp")
    with llama_server(tmp_path) as base_url:
        client = AsyncOpenAI(base_url=base_url, api_key="any")
"""

import importlib
import os
import re
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

# The optional packages come through import_module, so that importing this module does not need
# them and the type checkers see the same thing whether or not they are installed.

SECONDS_TO_START = 120.0
SLOTS = 8
CONTEXT = 4096
ANSWER_LIMIT = 256
"""Tokens the server generates at most, if the request does not say."""

WIDTH, LAYERS, HEADS, INNER = 64, 2, 4, 128
STEADY = 0
"""A dimension with the same value after every layer: its output weights set a token's bias."""
HALF = WIDTH // 2
"""Embeddings fill the dimensions before it, layers write to the others: what is read there comes
from the whole prompt, not from the last token alone, which is the same before every verdict."""

VERDICTS = ["true", "false", "yes", "no"]
WORDS = [*VERDICTS, "Yes", "No", " the", " answer", " text", "verdict", "reason"]
START, END = "<start>", "<end>"
BIASES = dict.fromkeys(VERDICTS, 2.5) | {'"': 1.6, "}": 0.4, "]": 0.4, END: 1.8, START: -3.0}
CHAT_TEMPLATE = (
    "{% for m in messages %}<start>{{ m['role'] }}: {{ m['content'] }}<end>{% endfor %}"
    "{% if add_generation_prompt %}<start>assistant: {% endif %}"
)


def write_random_model(path: Path, seed: int = 0) -> None:
    """Write a llama model of random weights, under a megabyte, the same for the same seed.

    The verdict words are single tokens and likely ones, with probabilities that vary with the
    prompt; the end of a string is likely too, so that most answers are short.
    """
    gguf = importlib.import_module("gguf")
    tokens, merges = _vocabulary()
    writer = gguf.GGUFWriter(path, "llama")
    _add_settings(writer, len(tokens))
    _add_tokenizer(writer, gguf.TokenType, tokens, merges)
    for name, weights in _weights(tokens, seed).items():
        writer.add_tensor(name, weights)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def _byte_letters() -> list[str]:
    """The letter GPT-2 tokenizers write for each byte: the unprintable ones start at 256."""
    printable = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    spare = iter(range(256, 512))
    return [chr(byte if byte in printable else next(spare)) for byte in range(256)]


def _vocabulary() -> tuple[list[str], list[str]]:
    """Every byte, every beginning of WORDS with the merges that build it, then the controls."""
    letters = _byte_letters()
    tokens = dict.fromkeys(letters)
    merges: dict[str, None] = {}
    for word in WORDS:
        spelled = [letters[byte] for byte in word.encode()]
        for end in range(1, len(spelled)):
            head = "".join(spelled[:end])
            merges[f"{head} {spelled[end]}"] = None
            tokens[head + spelled[end]] = None
    return [*tokens, START, END], list(merges)


def _add_settings(writer: Any, vocabulary_size: int) -> None:
    writer.add_name("random")
    writer.add_vocab_size(vocabulary_size)
    writer.add_context_length(CONTEXT)
    writer.add_embedding_length(WIDTH)
    writer.add_block_count(LAYERS)
    writer.add_feed_forward_length(INNER)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(HEADS)
    writer.add_rope_dimension_count(WIDTH // HEADS)
    writer.add_layer_norm_rms_eps(1e-5)


def _add_tokenizer(writer: Any, kinds: Any, tokens: list[str], merges: list[str]) -> None:
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("gpt-2")
    writer.add_token_list(tokens)
    controls = (START, END)
    writer.add_token_types([kinds.CONTROL if t in controls else kinds.NORMAL for t in tokens])
    writer.add_token_merges(merges)
    writer.add_bos_token_id(tokens.index(START))
    writer.add_eos_token_id(tokens.index(END))
    writer.add_add_bos_token(False)
    writer.add_chat_template(CHAT_TEMPLATE)


def _weights(tokens: list[str], seed: int) -> dict[str, Any]:
    np = importlib.import_module("numpy")
    random = np.random.default_rng(seed)

    def noise(rows: int, columns: int, scale: float) -> Any:
        return random.normal(0.0, scale, (rows, columns)).astype(np.float32)

    embedding = noise(len(tokens), WIDTH, 0.35)
    embedding[:, STEADY] = 3.0
    embedding[:, HALF:] = 0.0
    output = noise(len(tokens), WIDTH, 0.35)
    verdicts = [tokens.index(word) for word in VERDICTS]
    output[verdicts, :HALF] = 0.0
    output[verdicts, HALF:] *= 0.7  # so that none of them is ever out of the question
    output[:, STEADY] = [_bias(token) for token in tokens]
    ones = np.ones(WIDTH, np.float32)
    weights = {"token_embd.weight": embedding, "output.weight": output, "output_norm.weight": ones}
    for layer in range(LAYERS):
        weights |= {f"blk.{layer}.{name}": part for name, part in _layer(noise, ones).items()}
    return weights


def _bias(token: str) -> float:
    printable_ascii = all("!" <= letter <= "~" or letter == "Ġ" for letter in token)
    return BIASES.get(token, 0.0 if printable_ascii else -1.5)


def _layer(noise: Any, ones: Any) -> dict[str, Any]:
    readers = {f"attn_{name}.weight": noise(WIDTH, WIDTH, 0.3) for name in ("q", "k")}
    readers["attn_v.weight"] = noise(WIDTH, WIDTH, 0.15)
    readers |= {f"ffn_{name}.weight": noise(INNER, WIDTH, 0.08) for name in ("gate", "up")}
    writers = {
        "attn_output.weight": noise(WIDTH, WIDTH, 0.15),
        "ffn_down.weight": noise(WIDTH, INNER, 0.08),
    }
    for weights in readers.values():
        weights[:, STEADY] = 0.0
    for weights in writers.values():
        weights[:HALF] = 0.0
    return readers | writers | {"attn_norm.weight": ones, "ffn_norm.weight": ones}


@contextmanager
def llama_server(directory: Path) -> Iterator[str]:
    """Serve a random model, kept in `directory` with the server's log; gives the base URL."""
    model, log = directory / "random.gguf", directory / "llama.log"
    write_random_model(model)
    command = [sys.executable, __file__, str(model)]
    with (
        log.open("wb") as output,
        subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=output, stderr=subprocess.STDOUT
        ) as process,
    ):
        try:
            address = _address(process, log)
            _check_health(address)
            yield f"{address}/v1"
        finally:
            process.kill()  # it has nothing to save


def _address(process: subprocess.Popen[bytes], log: Path) -> str:
    """Wait for the server to say where it listens."""
    deadline = time.monotonic() + SECONDS_TO_START
    while time.monotonic() < deadline:
        ended = process.poll() is not None
        said = log.read_text(errors="replace")
        if ready := re.search(r"^READY (\S+)$", said, re.MULTILINE):
            return ready[1]
        if ended:
            raise RuntimeError(
                f"the llama server ended with status {process.returncode}:\n{said[-2000:]}"
            )
        time.sleep(0.02)
    raise RuntimeError(f"the llama server was not up in {SECONDS_TO_START} s; see {log}")


def _check_health(address: str) -> None:
    with urllib.request.urlopen(f"{address}/health", timeout=SECONDS_TO_START) as answer:
        if answer.status != 200:
            raise RuntimeError(f"the llama server is not healthy: status {answer.status}")


def _serve(model: str) -> None:
    """Serve until standard input closes, which it does when the parent ends in whatever way."""
    xllamacpp = importlib.import_module("xllamacpp")
    settings = xllamacpp.CommonParams()
    settings.model.path = model
    settings.model_alias = {"random"}
    settings.hostnames = ["127.0.0.1"]
    settings.port = 0
    settings.n_parallel = SLOTS
    settings.n_ctx = SLOTS * CONTEXT
    settings.n_predict = ANSWER_LIMIT
    settings.cpuparams.n_threads = settings.cpuparams_batch.n_threads = 1
    server = xllamacpp.Server(settings)  # returns once the model is loaded
    print(f"\nREADY {server.listening_address}", flush=True)
    while os.read(0, 4096):
        pass


if __name__ == "__main__":
    _serve(sys.argv[1])
