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
from dagengine.prompts.answer_types import VerdictList, items_by_key
from dagengine.prompts.bounds import without_bounds
from dagengine.prompts.json_values import (
    DoubledKeyError,
    lists_in,
    numbered_objects,
    objects_in,
    require_single_keys,
    shallow_value,
)
from dagengine.prompts.thoughts import is_thinking, without_thoughts
from dagengine.question import Answer, Question, schema_of
from dagengine.system.threads import in_daemon_thread

T = TypeVar("T", bound=BaseModel)

LONGEST: Final = 1_000_000
"""Characters of an answer; a longer one is not read."""
# What takes longer to read than an event loop may stand still for.
_LONG: Final = 4_000
_SHOWN, _COMPLAINTS = 80, 10
_WORD: Final = re.compile(r"\w+")
_DEEPEST: Final = 4  # levels that an answer may lie below the object around it


def is_long(text: str) -> bool:
    """Return whether a text is read in a worker thread rather than in the event loop."""
    return len(text) > _LONG


async def read_aside(question: Question[T], text: str) -> T:
    """`read_answer`, in a worker thread where the text is long, so that deadlines are kept."""
    if not is_long(text):
        return read_answer(question, text)
    require_readable(text)  # before it waits for a thread
    return await in_daemon_thread(partial(read_answer, question, text))


def read_answer(question: Question[T], text: str) -> T:
    """The answer that `text` holds; raises UnparseableError with the text when it holds none.

    A question with a parser is read by it. Otherwise the text is JSON, possibly after
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
        # It takes the last of two equal keys. So the verdict of a judge that corrects itself within
        # one object would be whichever stands last.
        require_single_keys(text)
    except ValidationError as error:
        # Not JSON, or not only: the answer may be somewhere in the text.
        values = _candidates(text, question.answer_type)
        if len(values) != 1:
            several = f"the answer holds {len(values)} different JSON values; " if values else ""
            raise UnparseableError(several + complaint(error), raw=text) from None
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
        # An echoed prompt repeats the schema, and then its examples, too: neither is an answer.
        values, schema = objects_in(answer), schema_of(answer_type)
        plain = without_bounds(schema)
        objects = [value for value in values if without_bounds(value) != plain]
        if objects != values:
            examples = schema.get("examples", ())
            objects = [value for value in objects if value not in examples]
        fields = answer_type.model_fields
        if set(fields) != {"output"} or get_origin(fields["output"].annotation) is not list:
            return objects
        # A list is asked for, in the field `output`: other objects are items of it.
        whole = [value for value in objects if "output" in value]
        return whole or [{"output": value} for value in lists_in(answer)]
    except RecursionError:
        raise UnparseableError("the answer is nested too deeply", raw=text) from None
    except DoubledKeyError as error:
        raise UnparseableError(str(error), raw=text) from None
    except ValueError:
        raise UnparseableError("the answer holds a number that is too long", raw=text) from None


def require_last_word(question: Question[Any], answer: Answer[Any]) -> None:
    """Raise DoubtfulAnswerError for an answer whose JSON is followed by prose with a verdict in it.

    "Wait, that is wrong: false." after `{"verdict": true}` may be what the model means.
    """
    raw, end = answer.raw, answer.raw.rfind("}") + 1
    if question.parser is not None or not end:
        return
    words = _verdict_words(question.answer_type)
    following = without_thoughts(raw)[end : end + _LONG]
    tail = {word.casefold() for word in _WORD.findall(following)}
    spoken = [word for word in words if tail.issuperset(_WORD.findall(word.casefold()))]
    if spoken:
        raise DoubtfulAnswerError(
            f"the JSON is followed by words that speak of {spoken[0]!r}: it is not clear which "
            "verdict is meant",
            raw,
            answer.usage.counts,
            answer,
        )


def _verdict_words(answer_type: type[BaseModel]) -> list[str]:
    """The words for the verdicts that an answer of one verdict may have; none of any other type."""
    words = list[str]()
    for field in schema_of(answer_type).get("properties", {}).values():
        if field.get("type") == "boolean":
            words += ["true", "false", "yes", "no"]
        words += map(str, field.get("enum", ()))
    return words


def read_part(question: Question[T], text: str) -> T | None:
    """The usable part of an answer that does not fit as a whole; None if there is none.

    Only a list of verdicts (`list_type`) has parts. The result is of the question's type with
    fewer verdicts than it asks for: whoever reads it asks for the missing numbers one by one.
    Verdicts with a number that no item has are left out.
    """
    shape: type[BaseModel] = question.answer_type
    if not issubclass(shape, VerdictList) or shape.count == 1:
        return None
    items = readable_items(shape, text)
    return cast("T", shape.model_construct(verdicts=list(items.values()))) if items else None


def is_enough(part: VerdictList, *, again: bool) -> bool:
    """Whether a part of a list answer is taken without asking for the list again.

    It is, if it has most of the verdicts: asking for single ones costs less than for all. With all
    of them there was one too many, so that they may be about other items. Then the list is asked
    for once `again`.
    """
    return part.count < 2 * len(part.verdicts) and (again or len(part.verdicts) < part.count)


def readable_items(shape: type[VerdictList], text: str) -> dict[int, BaseModel]:
    """The verdicts in a list answer that can be used, by their number from 1 on.

    An item counts when it is complete, valid, and the only one with its number, also in an answer
    that was cut off. Items without numbers do not count: it is not known which of them is
    missing. Nor do those of a list that counts from 0: its 1 may be the second item. Raises
    nothing: a text that holds no list, several different ones or none that can be read gives none.
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
    """The items of the one list among the values; of a broken list those that are whole."""
    lists = [value["verdicts"] for value in values if "verdicts" in value]
    if len(lists) > 1:
        return []
    if not lists and any("number" in value for value in values):
        return values
    verdicts = lists[0] if lists else None
    if isinstance(verdicts, list):
        return verdicts
    return items_by_key(verdicts.items() if isinstance(verdicts, dict) else numbered_objects(text))


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
                answer = question.answer_type.model_validate(inner), is_draft
                if answer not in fitting:
                    fitting.append(answer)
        if len(fitting) != 1 or fitting[0][1]:
            raise
        return fitting[0][0]


def _objects_below(value: dict[str, Any]) -> Iterator[tuple[dict[str, Any], bool]]:
    """The objects inside of an object, also those written as text, as far as answers may lie.

    Each with whether it is a draft: the thoughts beside another field.
    """
    level: list[tuple[Any, bool]] = [(value, False)]
    for depth in range(_DEEPEST + 1):
        below = list[tuple[Any, bool]]()
        for item, is_draft in level[:_COMPLAINTS]:
            if isinstance(item, str) and item.lstrip().startswith("{"):
                with suppress(ValueError):
                    item = shallow_value(item)
            if isinstance(item, dict):
                if depth:
                    yield item, is_draft
                beside = len(item) > 1
                below += [(v, is_draft or (beside and is_thinking(k))) for k, v in item.items()]
            elif isinstance(item, list):
                below += [(inner, is_draft) for inner in item]
        level = below


def valid_answer(question: Question[T], fields: Any, raw: str) -> T:
    """`fields` as an answer, or UnparseableError saying which of them does not fit."""
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
            except (ValueError, RecursionError):  # a number of too many digits, too deep a list
                text = f"a {type(value).__name__} that cannot be shown"
            quotation = f" (given: {text})"
        parts.append(f"{path or 'the answer'}: {item['msg']}{quotation}")
    hidden = len(errors) - len(parts)
    if hidden > 0:
        parts.append(f"and {hidden} more")
    return "; ".join(parts)
