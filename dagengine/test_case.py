"""What is being judged: one answer, one conversation, or several contestants.

Test cases are immutable values. Unknown fields are errors, so a misspelt column of a
data set is found before a token is spent.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Literal, Self

from pydantic import (
    AliasChoices,
    AliasGenerator,
    BaseModel,
    ConfigDict,
    Field,
    ValidationError,
    model_validator,
)
from pydantic.alias_generators import to_camel

from dagengine.case_errors import CaseError as CaseError
from dagengine.errors import InputError
from dagengine.system.terminal_text import text_if
from dagengine.unknown import AnsweringEnum, absent_attributes, answer_absent


class LLMTestCaseParams(StrEnum, metaclass=AnsweringEnum):
    """The fields of a test case that a node may read."""

    INPUT = "input"
    ACTUAL_OUTPUT = "actual_output"
    EXPECTED_OUTPUT = "expected_output"
    CONTEXT = "context"
    RETRIEVAL_CONTEXT = "retrieval_context"
    TOOLS_CALLED = "tools_called"
    EXPECTED_TOOLS = "expected_tools"
    METADATA = "additional_metadata"
    TAGS = "tags"
    SPANS = "spans"
    TOOLS = "tools"
    RETRIEVALS = "retrievals"


SingleTurnParams = LLMTestCaseParams


class MultiTurnParams(StrEnum, metaclass=AnsweringEnum):
    """The fields of a conversation, and of its turns, that a node may read."""

    ROLE = "role"
    CONTENT = "content"
    RETRIEVAL_CONTEXT = "retrieval_context"
    TOOLS_CALLED = "tools_called"
    METADATA = "additional_metadata"
    TAGS = "tags"
    CONTEXT = "context"
    SCENARIO = "scenario"
    EXPECTED_OUTCOME = "expected_outcome"
    USER_DESCRIPTION = "user_description"
    CHATBOT_ROLE = "chatbot_role"


TurnParams = MultiTurnParams


class ToolCallType(StrEnum):
    """The kinds of tool that deepeval tells apart."""

    FUNCTION = "FUNCTION"
    MCP = "MCP"


class ToolCallParams(StrEnum):
    """What of a tool call is compared besides its name."""

    INPUT_PARAMETERS = "input_parameters"
    OUTPUT = "output"


if TYPE_CHECKING:
    from pydantic._internal._model_construction import ModelMetaclass
else:
    ModelMetaclass = type(BaseModel)  # which pydantic does not name

# How deepeval writes pictures and documents into texts.
_PICTURES = ("[DEEPEVAL:IMAGE:", "[DEEPEVAL:PDF:")


def either_metadata() -> Any:
    """The field `additional_metadata`, under any name that tools give it."""
    names = AliasChoices(
        "additional_metadata", "additionalMetadata", "metadata", "custom_column_key_values"
    )
    return Field(default=None, validation_alias=names)


# Fields may be given in camel case, as files of other tools have them; `by_alias=True` dumps so.
EITHER_CASE = AliasGenerator(
    validation_alias=lambda name: AliasChoices(name, to_camel(name)), serialization_alias=to_camel
)


class WithMetadata:
    """What has metadata shows it under the shorter name, too."""

    additional_metadata: dict[str, Any] | None

    @property
    def metadata(self) -> dict[str, Any] | None:
        """The same as `additional_metadata`."""
        return self.additional_metadata


class _CheckedType(ModelMetaclass):
    """The type of values, whose missing attributes are answered in words, too."""

    if not TYPE_CHECKING:

        def __getattr__(cls, name: str) -> Any:
            with suppress(AttributeError):
                return super().__getattr__(name)
            return absent_attributes()(cls, name)


class CheckedValue(BaseModel, metaclass=_CheckedType):
    """A value whose constructor says what is wrong with its fields: CaseError."""

    model_config = ConfigDict(frozen=True, extra="forbid", alias_generator=EITHER_CASE)

    if not TYPE_CHECKING:  # type checkers know the fields

        def __init__(self, /, *values: Any, **fields: Any) -> None:
            __tracebackhide__ = True
            if values:
                kind, own = type(self).__name__, type(self).__pydantic_fields__.items()
                example = ", ".join(f"{name}=…" for name, field in own if field.is_required())
                raise TypeError(f"{kind} takes its fields by name: {kind}({example})")
            try:
                # What pydantic's own constructor does, without a second call of a function.
                self.__pydantic_validator__.validate_python(fields, self_instance=self)
            except ValidationError as error:
                raise CaseError.of(error, type(self)) from None

        # Otherwise reading rows would call this constructor for each.
        __init__.__pydantic_base_init__ = True

        def __getattr__(self, name: str) -> Any:
            with suppress(AttributeError):
                return super().__getattr__(name)
            return absent_attributes()(self, name)


class ToolCall(CheckedValue):
    """A tool that an agent called, or should have called; `error` says why a call failed."""

    name: str
    type: str | None = Field(default=None, description="the kind of tool, for instance MCP")
    description: str | None = None
    reasoning: str | None = None
    input_parameters: dict[str, Any] | None = None
    output: Any = None
    error: str | None = None
    # The span of a trace that the call was read from; no prompt and no record of the case shows it.
    span_id: str | None = Field(default=None, exclude=True, repr=False)

    def __hash__(self) -> int:
        return hash(self.name)  # parameters may hold anything; calls of one tool are few

    def __repr__(self) -> str:
        """The fields of the call that are set."""
        parts = list[str]()
        for name, value in self:
            # In JSON's quotes: those of `repr` depend on the quotes inside.
            if isinstance(value, str):
                parts.append(f"{name}={json.dumps(value, ensure_ascii=False)}")
            elif value is not None:
                parts.append(f"{name}={value!r}")
        return f"{type(self).__name__}({', '.join(parts)})"


class Span(CheckedValue):
    """One step of a trace: a call of a model or a tool, a retrieval, an agent, a chain.

    `kind` is `llm`, `tool`, `retriever`, `agent`, `chain` or another word of the conventions, in
    small letters. `input` and `output` are texts, or the arguments and the result of a tool.
    `documents` are the texts that a retriever returned. `error` says why the step failed. `seconds`
    is its duration. Prompts show what was said and done, neither ids nor figures: equal steps of
    two traces are one question.
    """

    span_id: str
    trace_id: str | None = None
    parent_id: str | None = None
    kind: str = "span"
    name: str = ""
    input: Any = None
    output: Any = None
    documents: list[str] | None = None
    error: str | None = None
    call_id: str | None = None
    seconds: float | None = None
    input_token_count: int | None = None
    output_token_count: int | None = None

    def __hash__(self) -> int:
        return hash(self.span_id)


# What prompts show of a span.
SHOWN_OF_SPAN = frozenset({"kind", "name", "input", "output", "documents", "error"})
# Names under which the spans of some kinds are read; `spans` are all of them.
SPANS_OF_KIND = {"tools": "tool", "retrievals": "retriever"}


def _refuse_pictures(field: str, texts: list[Any]) -> None:
    """Raise ValueError if one of the texts holds what deepeval puts in the place of a picture."""
    for text in texts:
        if isinstance(text, str) and "[DEEPEVAL:" in text and any(map(text.count, _PICTURES)):
            raise ValueError(
                f"'{field}' holds a picture, {text!r:.60}: texts are judged, no pictures. Leave "
                "such cases to the program that has them, or describe the picture in words"
            )


class TextOnly(CheckedValue, WithMetadata):
    """A value whose fields are texts: what stands for a picture in one is refused."""

    @property
    def multimodal(self) -> bool:
        """Return False: no picture is a part of it."""
        return False

    @model_validator(mode="before")
    @classmethod
    def _no_pictures(cls, fields: Any) -> Any:
        if isinstance(fields, dict):
            if "multimodal" in fields:
                fields = dict(fields)
                if fields.pop("multimodal"):
                    raise ValueError("multimodal=True: texts are judged, no pictures")
            for name, value in fields.items():
                if isinstance(value, str) and "[DEEPEVAL:" in value:
                    _refuse_pictures(name, [value])
                elif isinstance(value, list) and value and isinstance(value[0], str):
                    _refuse_pictures(name, value)
        return fields


class _Case(TextOnly):
    name: str | None = Field(default=None, description="the name of this case in reports")
    additional_metadata: dict[str, Any] | None = either_metadata()
    comments: str | None = None
    tags: list[str] | None = None

    def content_hash(self) -> str:
        """SHA-256 (hex) of the case's content, equal in every process."""
        content = self.model_dump(exclude_none=True)
        text = json.dumps(content, ensure_ascii=False, sort_keys=True, default=str)
        # Real text may hold lone surrogates, which have no UTF-8 form.
        return hashlib.sha256(text.encode(errors="surrogatepass")).hexdigest()


class LLMTestCase(_Case):
    """One test case: an input and the output of the application under test.

    `input` is the question, `actual_output` the answer of the application, `expected_output` a good
    answer. `context` is the ground truth of the data set; `retrieval_context` are the passages that
    the application retrieved, in its order. `token_cost` is in US dollars, `completion_time` in
    seconds. `spans` are the steps of the trace that the case was read from, by their beginning;
    `tools` and `retrievals` are those of them that called a tool, and that retrieved. Raises
    CaseError for unknown fields and wrong types.
    """

    input: str
    actual_output: str | None = None
    expected_output: str | None = None
    context: list[str] | None = None
    retrieval_context: list[str] | None = None
    tools_called: list[ToolCall] | None = None
    expected_tools: list[ToolCall] | None = None
    token_cost: float | None = None
    input_token_count: int | None = None
    output_token_count: int | None = None
    completion_time: float | None = None
    spans: list[Span] | None = None

    @property
    def tools(self) -> list[Span] | None:
        """The spans that called a tool; None without spans."""
        return self._of_kind("tools")

    @property
    def retrievals(self) -> list[Span] | None:
        """The spans that retrieved passages; None without spans."""
        return self._of_kind("retrievals")

    def _of_kind(self, name: str) -> list[Span] | None:
        if self.spans is None:
            return None
        return [span for span in self.spans if span.kind == SPANS_OF_KIND[name]]


class Turn(TextOnly):
    """One message of a conversation."""

    role: Literal["user", "assistant"]
    content: str
    user_id: str | None = None
    retrieval_context: list[str] | None = None
    tools_called: list[ToolCall] | None = None
    additional_metadata: dict[str, Any] | None = either_metadata()


class ConversationalTestCase(_Case):
    """A test case that is a conversation of at least one turn.

    Raises CaseError without a turn, for unknown fields and wrong types.
    """

    turns: list[Turn]
    chatbot_role: str | None = None
    scenario: str | None = None
    expected_outcome: str | None = None
    user_description: str | None = None
    context: list[str] | None = None

    @model_validator(mode="after")
    def _has_turns(self) -> Self:
        if not self.turns:
            raise ValueError("'turns' must not be empty: a conversation has one turn at least")
        return self


class Contestant(CheckedValue):
    """A contestant of an `ArenaTestCase`, with its test case and its hyperparameters."""

    name: str
    test_case: LLMTestCase
    hyperparameters: dict[str, Any] | None = None


class ArenaTestCase(_Case):
    """A test case with several contestants that answered the same input, by name.

    They may be given as a list of `Contestant`, of two at least. Raises CaseError when two have
    one name, and when their inputs or expected outputs differ.
    """

    contestants: dict[str, LLMTestCase]

    @model_validator(mode="before")
    @classmethod
    def _by_name(cls, fields: Any) -> Any:
        listed = fields.get("contestants") if isinstance(fields, dict) else None
        if not isinstance(listed, list | tuple):
            return fields
        if len(listed) < 2:
            raise ValueError("An arena test case must have at least two contestants.")
        contestants = map(Contestant.model_validate, listed)
        by_name = {contestant.name: contestant.test_case for contestant in contestants}
        if len(by_name) < len(listed):
            raise ValueError("All contestant names must be unique.")
        return {**fields, "contestants": by_name}

    @model_validator(mode="after")
    def _one_task(self) -> Self:
        for field in ("input", "expected_output"):
            if len({getattr(case, field) for case in self.contestants.values()}) > 1:
                raise ValueError(f"All contestants must have the same '{field}'.")
        return self


@dataclass(frozen=True, slots=True)
class InvalidCase:
    """A row of a data set that is not a test case: where it stands, and what is wrong.

    With `nothing_to_judge` the row is in order and its case is skipped, as of a trace that kept no
    texts: `test_case` is what there is of it.
    """

    name: str
    message: str
    nothing_to_judge: bool = False
    test_case: TestCase | None = None

    def __str__(self) -> str:
        return f"{self.name}: {self.message}"


TestCase = LLMTestCase | ConversationalTestCase | ArenaTestCase
CASE_TYPES: tuple[type[_Case], ...] = (LLMTestCase, ConversationalTestCase, ArenaTestCase)


def known_fields() -> tuple[str, ...]:
    """Names of all fields that some kind of test case has, sorted."""
    names = {name for kind in CASE_TYPES for name in kind.model_fields}
    return tuple(sorted(names | SPANS_OF_KIND.keys()))


def has_field(kind: type[BaseModel], path: str) -> bool:
    """Return whether cases of a kind have the first segment of a dotted `path`."""
    name = path.partition(".")[0]
    return name in kind.model_fields or (name in SPANS_OF_KIND and "spans" in kind.model_fields)


def field_name(param: str | LLMTestCaseParams) -> str:
    """The plain field path of `param` (an enum member or a string such as `"input"`).

    Raises InputError for anything else, for instance a node.
    """
    if isinstance(param, LLMTestCaseParams):
        return str(param.value)
    if not isinstance(param, str):
        raise InputError(
            f"{param!r:.80} is not a field of a test case: evaluation_params takes names such as "
            "'input'; what a node reads of other nodes is in inputs="
        )
    return param


def is_known_field(path: str) -> bool:
    """Return whether some kind of test case has the first segment of a dotted `path`."""
    return path.split(".", 1)[0] in known_fields()


_NUMBERS = re.compile(r"(-?[0-9]{1,9})(?::(-?[0-9]{1,9}))?")  # an index, or a window


def read_field(case: TestCase, path: str) -> Any:
    """The value at a dotted `path` of the case, or None when any part is absent.

    A segment may name a field, a key of a mapping or an index of a list:
    `contestants.A.actual_output`, `turns.0.content`, `additional_metadata.labels.topic`. For a
    list, `0:3` is the items from 0 to 3, both included, if the last one is there. What is below 0
    counts from the end: `-3:-1` is the last three items, or as many as there are. A name is read
    from every item that has it, each with its place: `turns.0:3.tools_called`.
    """
    value: Any = case
    remaining = path
    while remaining and value is not None:
        value, remaining = _step(value, remaining)
    return value


def _step(value: Any, path: str) -> tuple[Any, str]:
    """Follow the first segment of `path`; returns what is there and the path that is left."""
    segment, _, remaining = path.partition(".")
    if isinstance(value, BaseModel) and (
        segment in type(value).__pydantic_fields__
        or (segment in SPANS_OF_KIND and isinstance(value, LLMTestCase))
    ):
        return getattr(value, segment), remaining
    if isinstance(value, dict):
        # Names of contestants may contain dots ("GPT-4.1"): the longest key that fits wins.
        fitting = [key for key in value if f"{path}.".startswith(f"{key}.")]
        key = max(fitting, key=lambda key: len(str(key)), default=None)
        return (None, "") if key is None else (value[key], path[len(str(key)) + 1 :])
    if isinstance(value, list):
        return _in_list(value, segment, remaining, path)
    return None, ""


def _in_list(items: list[Any], segment: str, rest: str, path: str) -> tuple[Any, str]:
    """An item, some items, or what the items have; and the path that is left."""
    numbers = _NUMBERS.fullmatch(segment)
    if numbers is None:
        return _in_each(items, range(len(items)), path), ""
    count, begin_number = len(items), int(numbers[1])
    begin = begin_number + count if begin_number < 0 else begin_number
    if numbers[2] is None:
        return (items[begin_number], rest) if 0 <= begin_number < count else (None, "")
    end_number = int(numbers[2])
    end = end_number + count if end_number < 0 else end_number
    indices = range(max(begin, 0), end + 1)
    if not indices or indices[-1] >= count:
        return None, ""
    if rest and not _NUMBERS.fullmatch(rest.partition(".")[0]):
        return _in_each(items, indices, rest), ""
    return items[indices.start : indices.stop], rest


def _in_each(items: list[Any], indices: Iterable[int], path: str) -> list[dict[str, Any]] | None:
    """The values of the items with these indices at a path, each with its index."""
    having = list[dict[str, Any]]()
    for index in indices:
        value = read_field(items[index], path)
        # With its place: items without it are left out, and the others still known by number.
        if value is not None:
            having.append({"place": index, path: value})
    return having or None


def too_short(case: TestCase, path: str) -> str:
    """The length of a list that is too short for `path`, in words; "" if none is."""
    value: Any = case
    remaining = path
    while remaining and value is not None:
        whole, name = value, path[: len(path) - len(remaining)].rstrip(".")
        numbers = _NUMBERS.fullmatch(remaining.partition(".")[0])
        value, remaining = _step(value, remaining)
        if value is None and numbers and isinstance(whole, list):
            owner, unit = ("the conversation", "turn") if name == "turns" else (f"`{name}`", "item")
            return f"{owner} has {len(whole)} {unit}{text_if(len(whole) != 1, 's')}"
    return ""


def case_label(case: TestCase, index: int) -> str:
    """The name of a case in messages, or its index in the data set."""
    return case.name or f"case {index}"


answer_absent(__name__)
