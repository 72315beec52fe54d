"""Requests for answers: what is the same for many questions is made once."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final

from pydantic import BaseModel

from dagengine.judges.wire.dialects.demands import Demands
from dagengine.prompts.instructions import KEPT_CHARACTERS, shared_end
from dagengine.prompts.parsing import without_surrogates
from dagengine.question import Message, Question, Warmth

Body = dict[str, Any]
Write = Callable[[list[Message]], Body]
# Stands where the messages of a question go, to find the place.
_PROBE: Final[list[Message]] = [
    {"role": "system", "content": "dagengine: the instructions"},
    {"role": "user", "content": "dagengine: the evidence"},
]
_ALL: Final = Demands()
TEXT: Final = "TEXT"
"""The way of asking for plain text, beside `MODES`."""


@dataclass(slots=True, eq=False)
class RequestForm:
    """How questions of one kind are asked: everything in a request but its messages.

    `write` makes the whole body around a list of messages; it may change them. `route` gives what
    a request says of where the beginning of its prompt is warm. `mode` is the way of asking for
    structure, or `TEXT`. `limit` are the most tokens of an answer, `demands` what is asked of the
    server at most, and `fields` the fields of those that are.
    """

    write: Write
    route: Callable[[Warmth], Body]
    mode: str = TEXT
    limit: int | None = None
    demands: Demands = _ALL
    fields: frozenset[str] = frozenset()
    _around: tuple[str, str] | None = field(init=False)

    def __post_init__(self) -> None:
        self._around = _around(self.write)

    def body(self, question: Question[Any]) -> Body:
        """The body of a question's request, to be written as JSON."""
        return {**self.write(list(question.messages)), **self._more(question)}

    def _more(self, question: Question[Any]) -> Body:
        """Part of a request that says where the question's beginning is warm."""
        return {} if question.warmth is None else self.route(question.warmth)

    def encode(self, question: Question[Any]) -> bytes:
        """The body as the openai client writes it, byte for byte."""
        if self._around is None:
            return encode(self.body(question))
        head, tail = self._around
        for name, value in self._more(question).items():
            tail = f'{tail[:-1]},"{name}":{_JSON.encode(value)}}}'
        try:
            return f"{head}{question.prompt}{tail}".encode()
        except UnicodeEncodeError:
            return encode(self.body(question))


def with_cache_mark(question: Question[Any]) -> list[Any]:
    """The messages for Anthropic, with a mark where the material that others begin with ends.

    The provider keeps what is before the mark. It has nothing to gain from a short beginning.
    https://platform.claude.com/docs/en/build-with-claude/prompt-caching
    """
    messages: list[Any] = list(question.messages)
    end = shared_end(question, KEPT_CHARACTERS)
    if end:
        content = messages[1]["content"]
        shared = {"type": "text", "text": content[:end], "cache_control": {"type": "ephemeral"}}
        messages[1] = {"role": "user", "content": [shared, {"type": "text", "text": content[end:]}]}
    return messages


def encode(body: Body) -> bytes:
    """A body as the openai client writes it, byte for byte."""
    try:
        return _JSON.encode(body).encode()
    except UnicodeEncodeError:  # what was judged, or answered, has no UTF-8 form
        return _JSON.encode(without_surrogates(body)).encode()


def _around(write: Write) -> tuple[str, str] | None:
    """The text before and after the messages; None if they are changed."""
    body = write(list(_PROBE))
    parts = _JSON.encode(body).split(_JSON.encode(_PROBE))
    return (parts[0], parts[1]) if body.get("messages") == _PROBE and len(parts) == 2 else None


def _plain(value: Any) -> Any:
    """The substitute for a value that JSON does not know, as in the openai client."""
    if isinstance(value, datetime):
        return value.isoformat()
    if isinstance(value, BaseModel):
        return value.model_dump(exclude_unset=True, mode="json", by_alias=True)
    raise TypeError(
        f"a request cannot contain a {type(value).__name__}, which is not JSON: {value!r:.80}"
    )


_JSON = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), allow_nan=False, default=_plain)
