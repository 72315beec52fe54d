"""From the text that a model wrote to a valid answer."""

from __future__ import annotations

import json
import re
from typing import Any, TypeVar

import json_repair
from pydantic import BaseModel, ValidationError

from dagengine.errors import UnparseableError
from dagengine.question import Question

T = TypeVar("T", bound=BaseModel)

_THINKING = re.compile(r"^\s*<(think|thinking|reasoning)>.*?</\1>", re.DOTALL | re.IGNORECASE)


def read_answer(question: Question[T], text: str) -> T:
    """The answer that `text` holds; raises UnparseableError with the text when it holds none.

    A question with a parser is read by it. Otherwise the text is JSON, possibly after a
    think-block, in a code fence, or with prose around it.
    """
    if question.parser is not None:
        return validated(question, dict(question.parser(text)), text)
    try:
        return question.answer_type.model_validate_json(text)
    except ValidationError as error:
        found = _objects(_THINKING.sub("", text))
        if len(found) != 1:
            several = f"the answer holds {len(found)} different JSON objects; " if found else ""
            raise UnparseableError(several + complaint(error), raw=text) from None
    return validated(question, found[0], text)


def _objects(text: str) -> list[dict[str, Any]]:
    """The different JSON objects in a text, with prose or fences around them.

    Small mistakes (quotes, commas) are repaired, but an object that was cut off is none:
    its last value may have been cut, too.
    """
    decoder, found, place = json.JSONDecoder(), list[dict[str, Any]](), 0
    while (place := text.find("{", place)) >= 0:
        try:
            value, place = decoder.raw_decode(text, place)
        except json.JSONDecodeError:
            place += 1
        else:
            found += [value] if value not in found else []
    if not found and text.count("{") <= text.count("}"):
        repaired = json_repair.loads(text, skip_json_loads=True)
        found = [repaired] if isinstance(repaired, dict) and repaired else []
    return found


def validated(question: Question[T], fields: Any, raw: str) -> T:
    """`fields` as an answer, or UnparseableError saying which of them does not fit."""
    try:
        return question.answer_type.model_validate(fields)
    except ValidationError as error:
        raise UnparseableError(complaint(error), raw=raw) from None


def complaint(error: ValidationError) -> str:
    """What is wrong with an answer, in one line."""
    parts: list[str] = []
    for item in error.errors(include_url=False):
        place = ".".join(str(step) for step in item["loc"])
        given = repr(item.get("input"))
        shown = f" (given: {given[:80]})" if item["type"] != "missing" else ""
        parts.append(f"{place or 'the answer'}: {item['msg']}{shown}")
    return "; ".join(parts)
