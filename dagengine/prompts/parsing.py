"""From the text that a model wrote to a valid answer."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import suppress
from functools import partial
from itertools import islice
from typing import Any, Final, TypeVar, cast, get_origin

from pydantic import BaseModel, ValidationError

from dagengine.errors import DoubtfulAnswerError, UnparseableError
from dagengine.prompts.answer_bounds import without_bounds
from dagengine.prompts.answer_types import VerdictList, items_by_key
from dagengine.prompts.json_in_text import (
    DoubledKeyError,
    lists_in,
    numbered_objects,
    objects_in,
    require_single_keys,
    shallow_value,
)
from dagengine.prompts.thinking import is_thinking, without_thoughts
from dagengine.question import Answer, Question, schema_of
from dagengine.system.threads import in_daemon_thread

T = TypeVar("T", bound=BaseModel)

LONGEST: Final = 1_000_000
"""Characters of an answer; a longer one is not read."""
_LONG: Final = 4_000  # characters: a longer text takes too long to read in an event loop
_SHOWN: Final = 80  # characters of a value in a complaint
_COMPLAINTS: Final = 10
_WORD: Final = re.compile(r"\w+")
_DEEPEST: Final = 4  # levels that an answer may lie below the object around it
_WIDEST: Final = 10  # values of one level that are looked at


def is_long(text: str) -> bool:
    """Return whether a text is read in a worker thread rather than in the event loop."""
    return len(text) > _LONG


async def read_aside(question: Question[T], text: str) -> T:
    """`read_answer`, of a long text in a worker thread, so that other tasks keep deadlines."""
    if not is_long(text):
        return read_answer(question, text)
    require_readable(text)  # before it waits for a thread
    return await in_daemon_thread(partial(read_answer, question, text))


def read_answer(question: Question[T], text: str) -> T:
    """The answer in `text`; raises UnparseableError, with the text, if there is none.

    If the question has a parser, that reads the text. Otherwise the text is JSON, possibly after
    thoughts, in a code fence, with prose around it, or inside of another object. If a list is asked
    for, it may also come without the object around it. A text of more than `LONGEST` characters is
    not read.
    """
    require_readable(text)
    if question.parser is not None:
        return valid_answer(question, dict(question.parser(without_thoughts(text))), text)
    if not text.strip():
        raise UnparseableError(
            "the answer is empty: the model said nothing; see whether it is made for chats, and "
            "whether its thoughts take all the tokens that it may use",
            raw=text,
        )
    try:
        value = question.answer_type.model_validate_json(text)
        # Of two equal keys pydantic takes the last. If a judge corrects itself within one object,
        # it is not known which verdict it means.
        require_single_keys(text)
    except ValidationError as error:
        # Not JSON, or not only: the answer may be somewhere in the text.
        values = _candidates(text, question.answer_type)
        if len(values) != 1:
            count = f"the answer holds {len(values)} different JSON values; " if values else ""
            raise UnparseableError(count + complaint(error), raw=text) from None
        return _fitting(question, without_surrogates(values[0]), text)
    except DoubledKeyError as error:
        raise UnparseableError(str(error), raw=text) from None
    return value


def require_readable(text: str) -> None:
    """Raise UnparseableError, without most of the text, when it is too long to be read."""
    if len(text) > LONGEST:
        raise UnparseableError(
            f"the answer has {len(text):,} characters, and at most {LONGEST:,} are read",
            raw=text[:_LONG],
        )


def _candidates(text: str, answer_type: type[BaseModel]) -> list[dict[str, Any]]:
    """The different JSON values in a text that may be the answer; raises UnparseableError."""
    answer = without_thoughts(text)
    try:
        values, schema = objects_in(answer), schema_of(answer_type)
        # An echoed prompt repeats the schema. If it does, it may repeat the examples of the schema,
        # too. Neither is an answer.
        unbounded = without_bounds(schema)
        objects = [value for value in values if without_bounds(value) != unbounded]
        if objects != values:
            examples = schema.get("examples", ())
            objects = [value for value in objects if value not in examples]
        fields = answer_type.model_fields
        if set(fields) != {"output"} or get_origin(fields["output"].annotation) is not list:
            return objects
        # A list is asked for, in the field `output`. An object without it is an item of the list.
        wrapped = [value for value in objects if "output" in value]
        return wrapped or [{"output": value} for value in lists_in(answer)]
    except RecursionError:
        raise UnparseableError("the answer is nested too deeply", raw=text) from None
    except DoubledKeyError as error:
        raise UnparseableError(str(error), raw=text) from None
    except ValueError:
        raise UnparseableError("the answer holds a number that is too long", raw=text) from None


def _fitting(question: Question[T], value: dict[str, Any], raw: str) -> T:
    """A JSON object as an answer, or the one object inside of it that fits.

    Models repeat the schema around their answer, or call a tool that is not there.
    """
    try:
        return valid_answer(question, value, raw)
    except UnparseableError:
        fitting = list[tuple[T, bool]]()
        for inner, is_draft in _objects_below(value):
            with suppress(ValidationError):
                candidate = (question.answer_type.model_validate(inner), is_draft)
                if candidate not in fitting:
                    fitting.append(candidate)
        if len(fitting) != 1 or fitting[0][1]:  # none, several, or only a draft
            raise
        return fitting[0][0]


def _objects_below(value: dict[str, Any]) -> Iterator[tuple[dict[str, Any], bool]]:
    """The objects inside of an object, also those written as text, with whether each is a draft.

    A draft is inside of a field of thoughts that has other fields beside it.
    """
    level: list[tuple[Any, bool]] = [(value, False)]
    for depth in range(_DEEPEST + 1):
        below = list[tuple[Any, bool]]()
        for item, is_draft in level[:_WIDEST]:
            if isinstance(item, str) and item.lstrip().startswith("{"):
                with suppress(ValueError):
                    item = shallow_value(item)
            if isinstance(item, dict):
                if depth:
                    yield item, is_draft
                for name, inner in item.items():
                    below.append((inner, is_draft or (len(item) > 1 and is_thinking(name))))
            elif isinstance(item, list):
                below += [(inner, is_draft) for inner in item]
        level = below


def read_part(question: Question[T], text: str) -> T | None:
    """The usable part of an answer that does not fit as a whole; None if there is none.

    Only a list of verdicts (`list_type`) has parts. The result is of the question's type, but may
    have fewer verdicts: the caller asks for the missing ones one by one. Verdicts with a number
    that no item has are left out.
    """
    shape: type[BaseModel] = question.answer_type
    if not issubclass(shape, VerdictList) or shape.count == 1:
        return None
    items = readable_items(shape, text)
    return cast("T", shape.model_construct(verdicts=list(items.values()))) if items else None


def is_enough(part: VerdictList, *, again: bool) -> bool:
    """Return whether to take a part of a list answer, and not to ask for the list once more.

    More than half of the verdicts are enough: to ask for the missing ones costs less than for all.
    If none is missing, the answer had one too many, and they may be about other items. So all are
    enough only if the list was asked for `again` already.
    """
    return part.count < 2 * len(part.verdicts) and (again or len(part.verdicts) < part.count)


def readable_items(shape: type[VerdictList], text: str) -> dict[int, BaseModel]:
    """The verdicts in a list answer that can be used, by their number from 1 on.

    An item counts if it is complete, valid, and the only one with its number, also in an answer
    that was cut off. Items without numbers do not count: it is not known which of them is
    missing. Nor do those of a list that counts from 0: its 1 may be the second item. Raises
    nothing: a text without a list that can be read, or with several different ones, gives none.
    """
    try:
        require_readable(text)
        items = _item_values(without_thoughts(text), _candidates(text, shape))
    except (UnparseableError, ValueError, RecursionError):
        return {}
    if any(isinstance(value, Mapping) and value.get("number") == 0 for value in items):
        return {}
    valid: list[Any] = []
    for value in items:
        with suppress(ValidationError):
            valid.append(shape.item.model_validate(value))
    times = Counter(item.number for item in valid)
    return {item.number: item for item in valid if times[item.number] == 1}


def _item_values(text: str, values: list[dict[str, Any]]) -> list[Any]:
    """The items of the one list of verdicts in `values`; of a broken one those whole in `text`."""
    lists = [value["verdicts"] for value in values if "verdicts" in value]
    if len(lists) > 1:
        return []
    if not lists and any("number" in value for value in values):
        return values
    verdicts = lists[0] if lists else None
    if isinstance(verdicts, list):
        return verdicts
    return items_by_key(verdicts.items() if isinstance(verdicts, dict) else numbered_objects(text))


def require_last_word(question: Question[Any], answer: Answer[Any]) -> None:
    """Raise DoubtfulAnswerError for an answer whose JSON is followed by prose with a verdict in it.

    "Wait, that is wrong: false." after `{"verdict": true}` may be what the model means.
    """
    raw, end = answer.raw, answer.raw.rfind("}") + 1
    if question.parser is not None or not end:
        return
    prose = without_thoughts(raw)[end : end + _LONG]
    words = {word.casefold() for word in _WORD.findall(prose)}
    for verdict in _verdict_words(question.answer_type):
        own = _WORD.findall(verdict.casefold())
        # A verdict without a word, as "+", is looked for as it is.
        if words.issuperset(own) if own else verdict in prose:
            message = (
                f"the JSON is followed by words that speak of {verdict!r}: it is not clear which "
                "verdict is meant"
            )
            raise DoubtfulAnswerError(message, raw, answer.usage.counts, answer)


def _verdict_words(answer_type: type[BaseModel]) -> list[str]:
    """Words for the verdicts of an answer; none if its type is not that of one verdict."""
    words = list[str]()
    for field in schema_of(answer_type).get("properties", {}).values():
        if field.get("type") == "boolean":
            words += ["true", "false", "yes", "no"]
        words += map(str, field.get("enum", ()))
    return words


def valid_answer(question: Question[T], fields: Any, raw: str) -> T:
    """`fields` as an answer; raises UnparseableError, which says which of them do not fit."""
    try:
        return question.answer_type.model_validate(fields)
    except ValidationError as error:
        raise UnparseableError(complaint(error), raw=raw) from None


def without_surrogates(value: Any) -> Any:
    """A JSON value without lone surrogates, which have no UTF-8 form; pairs become one sign."""
    if isinstance(value, str):
        return value.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    if isinstance(value, list):
        return list(map(without_surrogates, value))
    if isinstance(value, Mapping):
        return {without_surrogates(key): without_surrogates(item) for key, item in value.items()}
    return value


def complaint(error: ValidationError) -> str:
    """The faults of an answer, in one line."""
    errors = error.errors(include_url=False, include_context=False)
    parts: list[str] = []
    for item in islice(errors, _COMPLAINTS):
        path = ".".join(str(step)[:_SHOWN] for step in item["loc"])
        quotation = ""
        if item["type"] != "missing":
            value = item.get("input")
            try:
                text = repr(value)[:_SHOWN]
            except (ValueError, RecursionError):  # a number with too many digits, too deep a list
                text = f"a {type(value).__name__} that cannot be shown"
            quotation = f" (given: {text})"
        parts.append(f"{path or 'the answer'}: {item['msg']}{quotation}")
    hidden = len(errors) - len(parts)
    if hidden > 0:
        parts.append(f"and {hidden} more")
    return "; ".join(parts)
