"""The types of answers: what a judge may say, and near misses of it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from itertools import islice
from operator import attrgetter
from typing import Annotated, Any, ClassVar, Literal

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    GetJsonSchemaHandler,
    create_model,
    model_validator,
)
from pydantic.json_schema import SkipJsonSchema
from pydantic_core import CoreSchema

from dagengine.prompts.answer_bounds import Usually
from dagengine.prompts.evidence import as_text
from dagengine.prompts.quotes import QuoteMode, quoted_type


class _Strict(BaseModel):
    model_config = ConfigDict(extra="ignore", frozen=True)


# Judges of one's own may tell questions apart by the names of the types, which are those of
# deepeval. The titles are in the schemas, and so in the keys of stored answers.
class Reasoned(BaseModel):
    """A verdict with its reason. It counts without one, too: some prompts want reasons of faults
    only.
    """

    @model_validator(mode="before")
    @classmethod
    def _without_reason(cls, answer: Any) -> Any:
        if isinstance(answer, dict) and "verdict" in answer and answer.get("reason") is None:
            return {**answer, "reason": ""}
        return answer


class _Judgement(_Strict, Reasoned):
    model_config = ConfigDict(title="Judgement")


class _Item(_Strict):
    model_config = ConfigDict(title="Item")


class _Output(_Strict):
    model_config = ConfigDict(title="Output")


# These lengths are in the keys of stored answers; `answer_bounds` says what is sent in their place.
Reason = Annotated[str, Usually(2_000)]


# A list or an object where a text was asked for, as readers of the text would see it.
Text = Annotated[
    str,
    BeforeValidator(lambda value: as_text(value) if isinstance(value, list | dict) else value),
    Usually(20_000),
]


_AROUND = r"[\s\"'`*_.,!:;()\[\]]"


# Never more than one look at a character: an answer may hold any number of blanks.
_TRIM = re.compile(rf"^{_AROUND}++|(?<!{_AROUND}){_AROUND}++$")


_DIGITS = re.compile(r"[0-9]{1,9}")


_TRUE, _FALSE = ("true", "yes", "y", "1"), ("false", "no", "n", "0")
_BOOLS = {**dict.fromkeys(_TRUE, True), **dict.fromkeys(_FALSE, False)}


# What prompts of deepeval call a verdict between yes and no, by the version; and how judges say
# that a criterion is met.
_SYNONYMS = {
    "borderline": "idk",
    **dict.fromkeys(_TRUE, "met"),
    **dict.fromkeys((*_FALSE, "not met"), "unmet"),
}


def _plain(text: str) -> str:
    return _TRIM.sub("", text).casefold()


def _to_bool(value: Any) -> Any:
    if isinstance(value, str):
        return _BOOLS.get(_plain(value), value)
    if type(value) is int and value in (0, 1):
        return bool(value)
    return value


_TRUE_OR_FALSE: Any = Annotated[bool, Field(strict=True), BeforeValidator(_to_bool)]


def nearest(value: Any, verdicts: Iterable[str]) -> Any:
    """The one verdict that `value` is a near miss of ("yes." for "Yes"), else `value`."""
    options = tuple(verdicts)
    if not isinstance(value, str | bool) or value in options:
        return value
    plain = _plain(str(value))
    for word in filter(None, (plain, _SYNONYMS.get(plain))):
        fitting = [option for option in options if _plain(option) == word]
        if fitting:
            return fitting[0] if len(fitting) == 1 else value
    return value


@cache
def judgement_type(verdicts: tuple[str, ...] | None) -> type[BaseModel]:
    """Answer type of a judgement: reason, then verdict (None: true or false)."""
    name = "BinaryJudgementVerdict"
    kind: Any = _TRUE_OR_FALSE
    if verdicts is not None:
        name = "NonBinaryJudgementVerdict"
        kind = Annotated[Literal[verdicts], BeforeValidator(lambda value: nearest(value, verdicts))]
    return create_model(name, __base__=_Judgement, reason=(Reason, ...), verdict=(kind, ...))


def _no_bool(value: Any) -> Any:
    if isinstance(value, bool):
        raise ValueError("a whole number is asked for, not true or false")
    return value


@cache
def rating_type(low: int, high: int) -> type[BaseModel]:
    """Answer type of a rating: reason, then a whole number in [low, high]."""
    kind = Annotated[int, Field(ge=low, le=high), BeforeValidator(_no_bool)]
    return create_model("Rating", __base__=_Strict, reason=(Reason, ...), score=(kind, ...))


@cache
def labelled_type(labels: tuple[str, ...], parsed: bool = False) -> type[BaseModel]:
    """Answer type of a rating by labels: reason, then a label.

    What a parser read (`parsed`) may also be another word: the token's alternatives may hold
    the labels all the same.
    """
    kind: Any = str if parsed else Literal[labels]
    fitted: Any = Annotated[kind, BeforeValidator(lambda value: nearest(value, labels))]
    return create_model("Rating", __base__=_Strict, reason=(Reason, ...), score=(fitted, ...))


class VerdictList(_Strict):
    """Base of all types of `list_type`: `verdicts` of the type `item`, one per item of a list."""

    item: ClassVar[type[BaseModel]]
    count: ClassVar[int]
    verdicts: list[Any]


@dataclass(frozen=True, slots=True)
class _ByNumber:
    """Asks for the items of a list as an object with one key per number.

    A schema cannot say of a list that every number is in it once; of keys it can.
    """

    count: int

    def __get_pydantic_json_schema__(
        self, core_schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> dict[str, Any]:
        item = handler(core_schema)["items"]
        keys = list(map(str, range(1, self.count + 1)))
        return {"type": "object", "properties": dict.fromkeys(keys, item), "required": keys}


@cache
def list_type(
    verdicts: tuple[str, ...], count: int, quote: QuoteMode | None = None
) -> type[VerdictList]:
    """Answer type of one verdict per item, which may `quote`: an object with keys "1" to `count`.

    Readers see a list of items, each with its `number`. An answer may also be a list: of numbered
    verdicts, each number once, or of `count` verdicts without numbers, in their order.
    `parsing.read_part` reads what can be used of an answer that does not fit.
    """
    number: Any = Annotated[SkipJsonSchema[int], Field(ge=1, le=count)]
    judgement = judgement_type(verdicts)
    base = judgement if quote is None else quoted_type(judgement, quote)
    item = create_model("Item", __base__=(base, _Item), number=(number, ...))

    def all_there(answers: list[Any]) -> list[Any]:
        numbers = sorted(map(attrgetter("number"), answers))
        if numbers != list(range(1, count + 1)):
            raise ValueError(f"every number from 1 to {count} is needed once, got {numbers}")
        return answers

    items: Any = Annotated[
        list[item],  # type: ignore[valid-type]
        Field(min_length=count, max_length=count),
        BeforeValidator(lambda answers: _with_numbers(answers, count)),
        AfterValidator(all_there),
        _ByNumber(count),
    ]
    verdicts_type = create_model("Verdicts", __base__=VerdictList, verdicts=(items, ...))
    verdicts_type.item, verdicts_type.count = item, count
    return verdicts_type


def _with_numbers(verdicts: Any, count: int) -> Any:
    """Items with their numbers: by their keys, or by their places where none has a number.

    Raises ValueError for an object with other keys than the numbers.
    """
    if isinstance(verdicts, Mapping):
        items = items_by_key(verdicts.items())
        numbers = sorted(item["number"] for item in items if isinstance(item, dict))
        if numbers != list(range(1, count + 1)):
            keys = ", ".join(f"{str(key)!r:.20}" for key in islice(verdicts, count + 1)) or "none"
            raise ValueError(f"every key from '1' to '{count}' is needed once, got {keys}")
        return items
    if not isinstance(verdicts, list) or len(verdicts) != count:
        return verdicts
    if any(not isinstance(item, dict) or item.get("number") is not None for item in verdicts):
        return verdicts
    return [{**item, "number": number} for number, item in enumerate(verdicts, 1)]


def items_by_key(members: Iterable[tuple[Any, Any]]) -> list[Any]:
    """The items of an object as a list; the number in each key ("2", "claim 2") is its item's.

    It is -1 for a key with no number or several.
    """
    items: list[Any] = []
    for key, item in members:
        numbers = _DIGITS.findall(str(key))
        number = int(numbers[0]) if len(numbers) == 1 else -1
        items.append({**item, "number": number} if isinstance(item, Mapping) else item)
    return items


def output_of(answer: BaseModel) -> Any:
    """The output of a task step: the field `output`, or the whole answer of an own type."""
    return getattr(answer, "output", answer)


@cache
def output_type(kind: Any) -> type[BaseModel]:
    """Answer type of a task step: `kind` itself if it is a model, else one field `output`."""
    if isinstance(kind, type) and issubclass(kind, BaseModel):
        return kind
    shape: Any = {str: Text}.get(kind, kind)
    return create_model("TaskNodeOutput", __base__=_Output, output=(shape, ...))
