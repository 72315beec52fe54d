"""Answers without an end: cut off at a limit, thoughts that leave no room, loops."""

from __future__ import annotations

from typing import Any

from pydantic import ValidationError

from dagengine.errors import RunawayError, UnparseableError
from dagengine.prompts.json_values import DoubledKeyError, require_single_keys
from dagengine.prompts.loops import loop_in
from dagengine.question import Question

_SHOWN = 40  # characters of what is repeated
MORE_TOKENS = "allow more with Options(max_tokens=…) of the node or --max-tokens, or ask for less"
_NO_THOUGHTS = (
    "switch thinking off, for instance with OpenAIJudge(…, parameters={'reasoning_effort': "
    "'none'}), or allow more tokens with Options(max_tokens=…) or --max-tokens"
)
_NO_LOOP = (
    "try a temperature above 0 (Options(temperature=0.3)), a larger model, or an answer with fewer "
    "items and texts (Options(max_items=…, max_characters=…))"
)
_NO_BLANKS = (
    "start the server so that its grammar allows no blanks (vLLM: --structured-outputs-config "
    "'{\"disable_any_whitespace\": true}'), or use another model"
)


def is_complete(question: Question[Any], raw: str) -> bool:
    """Whether a cut answer was only cut in the blanks after it, so that nothing is missing."""
    if question.parser is not None or not raw[-1:].isspace():
        return False
    try:
        question.answer_type.model_validate_json(raw)
        require_single_keys(raw)
    except (ValidationError, DoubledKeyError):
        return False
    return True


def elsewhere(thoughts: str, tokens: tuple[int, int]) -> UnparseableError:
    """What is wrong with an answer that is empty beside thoughts, and what to do."""
    return UnparseableError(
        "the answer is empty: the model's text is in `reasoning_content`, among its thoughts; "
        f"{_NO_THOUGHTS}",
        thoughts,
        tokens,
    )


def runaway(
    raw: str, thoughts: str, tokens: tuple[int, int], limit: int | None, *, cut: bool = True
) -> RunawayError:
    """What is wrong with an answer without an end, and what to do.

    `thoughts` are those of a model that said nothing, `limit` the tokens that it might use (None:
    what the server allows). An answer that was not `cut` ends in a loop.
    """
    place = "at the token limit" if limit is None else f"at the token limit of {limit:,}"
    where = f"cut off {place}"
    if thoughts or (cut and not raw):
        message = f"the answer was {where} before the model stopped thinking; {_NO_THOUGHTS}"
        return RunawayError(message, raw or thoughts, tokens, "thinking")
    loop = loop_in(raw)
    if loop is None:
        return RunawayError(f"the answer was {where}; {MORE_TOKENS}", raw, tokens, "cut")
    end = f", and was {where}" if cut else ""
    length, unit = len(raw) - loop.start, loop.unit
    if loop.is_blank:
        what, hint = f"its last {length:,} characters are blank", _NO_BLANKS
    else:
        times = f"{length // len(unit):,} times from character {loop.start:,} on"
        what, hint = f"{unit[:_SHOWN]!r} {times}", _NO_LOOP
    return RunawayError(f"the answer repeats itself: {what}{end}; {hint}", raw, tokens, "loop")
