"""One question about a text, and the answer yes, for what is tried without a graph."""

from __future__ import annotations

from typing import Any, Final

from dagengine.prompts import Evidence, messages_for
from dagengine.prompts.answer_types import judgement_type
from dagengine.question import Answer, Options, Question, Usage

SHAPE: Final = judgement_type(None)


def ask_about(text: object, **options: Any) -> Question[Any]:
    """A question whose name is the text; `options` are those of its sampling."""
    messages = messages_for("ok?", [Evidence("text", str(text))])
    return Question(messages, SHAPE, Options(**options), name=str(text))


def yes(usage: Usage = Usage()) -> Answer[Any]:  # noqa: B008 - a frozen value
    """The answer to it."""
    return Answer(SHAPE.model_validate({"reason": "r", "verdict": True}), "{}", usage=usage)
