"""Published snippets, and what plays the models and libraries that they use.

They stand in documents outside the project; the tests find them through the environment
variable DAGENGINE_SEEDS (by default a folder beside the checkout) and skip without them.
"""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

import pytest
from folders.places import SEEDS
from folders.seed_blocks import ours
from graphs.contract import valid_for
from servers.openai_server import Json, Reply, asked_schema


def lines_of(document: str) -> list[str]:
    """The lines of a document, by its number."""
    path = next(iter(sorted(SEEDS.glob(f"{document}_*.txt"))), None)
    if path is None:
        pytest.skip(f"no seed documents in {SEEDS} (set DAGENGINE_SEEDS)")
    return path.read_text(encoding="utf-8").splitlines()


def snippet(document: str, first: str, last: str, nth: int = 0) -> str:
    """The lines of a document from the nth that equals `first` to the next that equals `last`."""
    lines = lines_of(document)
    start = [place for place, line in enumerate(lines) if line == first][nth]
    return "\n".join(lines[start : lines.index(last, start) + 1])


def run(code: str, names: dict[str, Any] | None = None) -> dict[str, Any]:
    """Execute a snippet with only its import lines changed; its names join those of `names`."""
    names = {"__name__": "published"} if names is None else names
    exec(compile(ours(code), "snippet", "exec", dont_inherit=True), names)
    return names


def refused(code: str) -> str:
    """A snippet that is no Python as published."""
    with pytest.raises(SyntaxError):
        compile(code, "snippet", "exec", dont_inherit=True)
    return code


def any_reply(body: Json) -> Reply:
    """A valid answer to whatever is asked; to a prompt of the caller's own, a reason and a Y."""
    schema = asked_schema(body)
    return Reply("fine\nY" if schema is None else json.dumps(valid_for(schema, schema, 0)))


def completed(prompt: str) -> str:
    """What a model of the caller's says: an example of the schema in its prompt, or a joke."""
    _, marker, schema = prompt.partition("follows this schema:\n")
    return json.dumps(valid_for(json.loads(schema), json.loads(schema), 0)) if marker else "a joke"


class Chat:
    """A chat model as its libraries have it."""

    def __init__(self, **settings: Any) -> None:
        self.settings = settings

    def invoke(self, prompt: str) -> Any:
        return SimpleNamespace(content=completed(prompt))

    async def ainvoke(self, prompt: str) -> Any:
        return self.invoke(prompt)


class Tensors(dict[str, Any]):
    """What a tokenizer makes of prompts, and what a model makes of that."""

    def to(self, device: str) -> Tensors:
        return self


class Transformer:
    """A model and a tokenizer in one."""

    @classmethod
    def from_pretrained(cls, name: str) -> Transformer:
        return cls()

    def to(self, device: str) -> Transformer:
        return self

    def __call__(self, prompts: list[str], return_tensors: str) -> Tensors:
        return Tensors(prompts=prompts)

    def generate(self, prompts: list[str], **settings: Any) -> list[str]:
        return [completed(prompt) for prompt in prompts]

    def batch_decode(self, tokens: list[str]) -> list[str]:
        return tokens
