"""The answer in a completion, or why there is none: a refusal, a limit, thoughts, a loop."""

from __future__ import annotations

from typing import Any, Final, NamedTuple, TypeVar

from pydantic import BaseModel, ValidationError

from dagengine.errors import JudgeError, RefusedError, RunawayError, UnparseableError
from dagengine.judges.wire.completions import Completion, reply_text, usage_of
from dagengine.judges.wire.dialects.response_shapes import End, end_of, only_json, refusal_in
from dagengine.judges.wire.logprobs import tokens_of
from dagengine.prompts.json_in_text import DoubledKeyError, require_single_keys
from dagengine.prompts.parsing import LONGEST, read_aside
from dagengine.question import Answer, Question, Usage

T = TypeVar("T", bound=BaseModel)

ROUNDS: Final = 3
"""How often something is in a row at the end of a text that repeats itself."""
_LEAST = 40  # characters: a row of dots or a large number is no loop
_LOOKED_AT = 20_000  # characters at the end of a text
_SHOWN = 40  # characters of what is repeated
_MORE_TOKENS = "allow more with Options(max_tokens=…) of the node or --max-tokens, or ask for less"
_NO_THOUGHTS = (
    "switch thinking off, for instance with OpenAIJudge(…, parameters={'reasoning_effort': "
    "'none'}), or allow more tokens with Options(max_tokens=…) or --max-tokens"
)
_ELSEWHERE = (
    "the answer is empty: the model's text is in `reasoning_content`, among its thoughts; "
    f"{_NO_THOUGHTS}"
)
_NO_LOOP = (
    "try a temperature above 0 (Options(temperature=0.3)), a larger model, or an answer with fewer "
    "items and texts (Options(max_items=…, max_characters=…))"
)
_NO_BLANKS = (
    "start the server so that its grammar allows no blanks (vLLM: --structured-outputs-config "
    "'{\"disable_any_whitespace\": true}'), or use another model"
)


async def read_reply(
    question: Question[T],
    completion: Completion,
    mode: str,
    limit: int | None,
    usage: Usage | None = None,
) -> Answer[T]:
    """The answer in a completion; raises RefusedError, UnparseableError or ProviderError.

    `limit` is what was asked for as the most tokens of the answer. `usage` is what it used, if the
    completion does not say it itself.
    """
    choice, message = completion.choices[0], completion.choices[0].message
    usage = usage or usage_of(completion)
    try:
        raw = reply_text(completion)
        cut = end_of(choice.finish_reason) is End.CUT
        thoughts = message.thoughts if cut else ""
        asked_for = question.parser is not None and question.options.max_tokens is not None
        if thoughts or (cut and not asked_for and not _is_complete(question, raw)):
            raise _runaway(raw, thoughts, limit)
        if not raw.strip() and message.thoughts:
            raw = only_json(message.thoughts)
            if not raw:
                raise UnparseableError(_ELSEWHERE, message.thoughts)
        try:
            value = await read_aside(question, raw)
        except UnparseableError as error:
            raise _unread_error(error, raw, limit) from None
    except JudgeError as error:
        error.tokens = usage.counts
        raise
    return Answer(value, raw, tokens_of(completion, question, raw), usage, mode)


def _is_complete(question: Question[Any], raw: str) -> bool:
    """Return whether an answer was cut in the blanks after it only, so that nothing is missing."""
    if question.parser is not None or not raw[-1:].isspace():
        return False
    try:
        question.answer_type.model_validate_json(raw)
        require_single_keys(raw)
    except (ValidationError, DoubledKeyError):
        return False
    return True


def _unread_error(error: JudgeError, raw: str, limit: int | None) -> JudgeError:
    """The error of a text that is not an answer: of a loop or a refusal, if it is one."""
    if len(raw) <= LONGEST and loop_in(raw) is not None:
        return _runaway(raw, "", limit, cut=False)
    return RefusedError(f"the model refused: {raw.strip()}") if refusal_in(raw) else error


def _runaway(raw: str, thoughts: str, limit: int | None, *, cut: bool = True) -> RunawayError:
    """The error of an answer without an end, with what to do.

    `thoughts` are those of a model that said nothing, `limit` the tokens that it might use (None:
    what the server allows). An answer that was not `cut` ends in a loop.
    """
    at_limit = "at the token limit" if limit is None else f"at the token limit of {limit:,}"
    where = f"cut off {at_limit}"
    if thoughts or (cut and not raw):
        message = f"the answer was {where} before the model stopped thinking; {_NO_THOUGHTS}"
        return RunawayError(message, raw or thoughts, cause="thinking")
    loop = loop_in(raw)
    if loop is None:
        return RunawayError(f"the answer was {where}; {_MORE_TOKENS}", raw)
    end = f", and was {where}" if cut else ""
    length, unit = len(raw) - loop.start, loop.unit
    if not loop.unit.strip():
        repetition, hint = f"its last {length:,} characters are blank", _NO_BLANKS
    else:
        times = f"{length // len(unit):,} times from character {loop.start:,} on"
        repetition, hint = f"{unit[:_SHOWN]!r} {times}", _NO_LOOP
    return RunawayError(f"the answer repeats itself: {repetition}{end}; {hint}", raw, cause="loop")


class Loop(NamedTuple):
    """What a text repeats until its end, and from which character on."""

    start: int
    unit: str


def loop_in(text: str) -> Loop | None:
    """The loop at the end of a text; None if it ends otherwise.

    A loop is one unit at least three times in a row, the last time perhaps in part after that, and
    40 characters in all. Of several readings the one that begins first counts, with its shortest
    unit. Takes time in proportion to the length; of a longer text the last 20,000 characters count.
    """
    tail = text[-_LOOKED_AT:]
    # The end repeats a unit of n characters as far back as the text equals itself n earlier.
    equal = _equal_starts(tail[::-1])
    longest, size = 0, 0
    for unit, length in enumerate(equal):
        if unit and unit + length >= max(ROUNDS * unit, _LEAST) and unit + length > longest:
            longest, size = unit + length, unit
    if not longest:
        return None
    start = len(tail) - longest
    return Loop(len(text) - longest, tail[start : start + size])


def _equal_starts(text: str) -> list[int]:
    """For every offset, the characters from there on that equal those from the start (Z function).

    Gusfield, Algorithms on Strings, Trees and Sequences, 1997, section 1.3.
    """
    equal = [0] * len(text)
    begin = end = 0
    for offset in range(1, len(text)):
        length = min(end - offset, equal[offset - begin]) if offset < end else 0
        while offset + length < len(text) and text[length] == text[offset + length]:
            length += 1
        equal[offset] = length
        if offset + length > end:
            begin, end = offset, offset + length
    return equal
