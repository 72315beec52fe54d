"""From the text that a model wrote to a valid answer."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from typing import Any, TypeVar, get_origin

import json_repair
from pydantic import BaseModel, ValidationError

from dagengine.errors import UnparseableError
from dagengine.question import Question

T = TypeVar("T", bound=BaseModel)

V = TypeVar("V", dict[str, Any], list[Any])

_BEFORE_LIST = re.compile(r"(?:^|:)[ \t]*(?=\[)", re.MULTILINE)
_THINKING = re.compile(r"^\s*<(think|thinking|reasoning)>.*?</\1>", re.DOTALL | re.IGNORECASE)


def read_answer(question: Question[T], text: str) -> T:
    """The answer that `text` holds; raises UnparseableError with the text when it holds none.

    A question with a parser is read by it. Otherwise the text is JSON, possibly after a
    think-block, in a code fence, or with prose around it; where a list is asked for it may
    also stand alone, without the object around it.
    """
    if question.parser is not None:
        return validated(question, dict(question.parser(text)), text)
    try:
        return question.answer_type.model_validate_json(text)
    except ValidationError as error:
        try:
            found = _candidates(_THINKING.sub("", text), question.answer_type)
        except RecursionError:
            raise UnparseableError("the answer is nested too deeply", raw=text) from None
        if len(found) != 1:
            several = f"the answer holds {len(found)} different JSON values; " if found else ""
            raise UnparseableError(several + complaint(error), raw=text) from None
    return validated(question, found[0], text)


def _candidates(text: str, answer_type: type[BaseModel]) -> list[dict[str, Any]]:
    """The different JSON values in a text that may be meant as the answer."""
    objects = _objects(text)
    if not _asks_for_list(answer_type):
        return objects
    # Other objects are items of the list.
    whole = [value for value in objects if "output" in value]
    return whole or [{"output": value} for value in _lists(text)]


def _objects(text: str) -> list[dict[str, Any]]:
    """The different JSON objects in a text, with prose or fences around them."""
    return _values(text, (found.start() for found in re.finditer(r"\{", text)), dict, ("{", "}"))


def _lists(text: str) -> list[list[Any]]:
    """The different JSON lists in a text, each at the start of a line or after a colon.

    Brackets inside a sentence are remarks and references.
    """
    return _values(text, (found.end() for found in _BEFORE_LIST.finditer(text)), list, ("[", "]"))


def _values(text: str, starts: Iterable[int], kind: type[V], brackets: tuple[str, str]) -> list[V]:
    """The different JSON values of one kind that begin at such places, one after the other.

    Small mistakes (quotes, commas) are repaired, but a value that was cut off is none: the
    last thing in it may have been cut, too.
    """
    decoder, found, broken, place = json.JSONDecoder(), list[V](), list[int](), 0
    for start in starts:
        if start < place:
            continue  # inside the value before
        try:
            value, place = decoder.raw_decode(text, start)
        except json.JSONDecodeError:
            broken.append(start)
        else:
            found += [value] if value not in found else []
    opening, closing = brackets
    if not found and broken and text.count(opening) <= text.count(closing):
        piece = text[broken[0] : text.rfind(closing) + 1]
        repaired = json_repair.loads(piece, skip_json_loads=True)
        found = [repaired] if isinstance(repaired, kind) and repaired else []
    return found


def _asks_for_list(answer_type: type[BaseModel]) -> bool:
    """Whether an answer is a list in the field `output` and nothing else."""
    fields = answer_type.model_fields
    return set(fields) == {"output"} and get_origin(fields["output"].annotation) is list


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
