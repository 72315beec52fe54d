"""What is wrong with the fields of a case, in words: for constructors and for rows of files."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from types import NoneType, UnionType
from typing import Any, Literal, Self, Union, get_args, get_origin

from pydantic import AliasChoices, BaseModel, ValidationError
from pydantic_core import InitErrorDetails, PydanticCustomError

from dagengine.errors import InputError, nearest
from dagengine.unknown import answer_argument

_SHOWN = 60  # characters of a wrong value
_PLAIN: dict[Any, str] = {
    str: "a string",
    int: "a whole number",
    float: "a number",
    bool: "True or False",
    dict: "a mapping",
    list: "a list",
}
_OF_TYPE = ("_type", "_parsing", "literal_error", "int_from_float")
# Words in the names of fields elsewhere, in the singular, and the field that they speak of: the
# surest first.
_WORDS: Mapping[str, str] = {
    "name": "name id key title case",
    "expected_output": "expected_output expected reference ground_truth gold golden ideal target "
    "truth best correct right highlight",
    "retrieval_context": "retrieval_context retrieved_context context passage chunk document",
    "context": "knowledge evidence fact reference_context source_document",
    "input": "input user_input question prompt query instruction problem request "
    "task user_message message goal article",
    "actual_output": "actual_output response output completion prediction generation reply "
    "model_answer model_output model_response generated_answer answer summary chosen",
    "turns": "message conversation dialogue dialog chat",
}
# Names that end so are never texts; with the second kind of word a text is not what was asked for.
_NO_TEXTS = {"id", "hash", "type", "model", "name", "key", "url", "date", "time"}
_NEUTRAL = {"text", "content", "value"}
_WRONG = {"incorrect", "wrong", "rejected", "distractor", "negative"}
Unknown = Callable[[str, type[BaseModel]], str]


class CaseError(ValidationError, InputError, TypeError):
    """Raised by the constructors of cases, their parts and goldens for fields that do not fit.

    It says what each field must be. As a ValidationError it also has pydantic's `errors()`.
    """

    said: str = ""

    @classmethod
    def of(cls, error: ValidationError, model: type[BaseModel]) -> Self:
        """The same mistakes, in words."""
        details = list(map(_again, _mistakes(error)))
        case_error = cls.from_exception_data(error.title, details)
        case_error.said = f"{model.__name__}: {'; '.join(sentences(error, model))}"
        return case_error

    def __str__(self) -> str:
        return self.said

    def __reduce__(self) -> tuple[Any, ...]:
        details = list(map(_again, _mistakes(self)))
        return type(self).from_exception_data, (self.title, details), {"said": self.said}


def sentences(
    error: ValidationError, model: type[BaseModel], unknown: Unknown | None = None
) -> list[str]:
    """One sentence per mistake; `unknown` words what a field is that `model` does not have."""
    return [_sentence(item, model, unknown or _unknown) for item in _mistakes(error)]


def _mistakes(error: ValidationError) -> list[Any]:
    return error.errors(include_url=False)


def _again(item: Mapping[str, Any]) -> InitErrorDetails:
    # Any kind of mistake can be written so, also one of a caller's own validators.
    kind = PydanticCustomError(item["type"], item["msg"], item.get("ctx"))
    return {"type": kind, "loc": item["loc"], "input": item["input"]}


def _sentence(item: Mapping[str, Any], model: type[BaseModel], unknown: Unknown) -> str:
    raised = item.get("ctx", {}).get("error")
    kind = item["type"]
    message = str(raised) if isinstance(raised, Exception) else str(item["msg"])
    if not item["loc"]:
        return message
    name, *steps = item["loc"]
    path = ".".join(map(str, item["loc"]))
    if kind == "extra_forbidden":
        return f"unknown field {path!r:.200}" if steps else unknown(path, model)
    if kind == "missing":
        return f"the field {path!r} is missing"
    value, wrong_type = _short_repr(item["input"]), kind.endswith(_OF_TYPE)
    expected = _type_words(str(name), model) if wrong_type else ""
    if expected and not steps:
        return f"{name!r} must be {expected}, got {value}"
    if expected and len(steps) == 1 and isinstance(steps[0], int):
        return f"{name!r} must be {expected}; {path} is {value}"
    return f"{path}: {message}, got {value}"


def likeness(name: str, field: str) -> tuple[int, int] | None:
    """The rank of a foreign name for a field, the least for the most alike; None: not alike.

    The whole name goes before a word that says what kind of text it is (`gold answer`), that before
    the last word (`model answer`), and that before the object that it is in (`outputs.topic`).
    """
    words_of_field, expected = _WORDS.get(field, field).split(), _WORDS["expected_output"].split()
    *outer, inner = re.sub(r"([a-z])([A-Z])", r"\1_\2", name).lower().split(".")
    whole = "_".join(map(_singular, re.findall(r"[a-z]+|[0-9]+", inner)))
    if whole in words_of_field:
        return bool(outer), words_of_field.index(whole)
    parts = map(_singular, re.findall(r"[a-z]{2,}", ".".join((*outer, inner))))
    words = [word for word in parts if word not in _NEUTRAL]
    *_, final = "", *words
    kinds = {*words} & {*expected}
    if field == "name":
        return (2, words_of_field.index(final)) if final in words_of_field else None
    if final in _NO_TEXTS or _WRONG & {*words} or (kinds and field != "expected_output"):
        return None
    if kinds:
        return 1, min(map(expected.index, kinds))
    if final in words_of_field:
        return 2, words_of_field.index(final)
    if (field, whole) == ("expected_output", "answer"):
        return 9, 0  # where another one is the output
    return (4, 0) if outer and {*words} & {*words_of_field} else None


def _singular(word: str) -> str:
    return word[:-1] if word.endswith("s") and len(word) > 3 else word


def field_like(name: str, fields: Sequence[str]) -> str:
    """The one of these fields that a name elsewhere may stand for; empty for none."""
    near = nearest(name, fields)
    ranks = {field: rank for field in fields if (rank := likeness(name, field)) is not None}
    return min(ranks, key=lambda field: ranks[field], default=near)


def _unknown(name: str, model: type[BaseModel]) -> str:
    field = field_like(name, list(model.model_fields))
    near = answer_argument(name) or (f"did you mean {field!r}?" if field else "")
    hint = near or f"it has: {', '.join(model.model_fields)}"
    return f"unknown field {name!r:.80} ({hint})"


def _type_words(name: str, model: type[BaseModel]) -> str:
    """The type of a field in words; empty for types that have none."""
    for field_name, field in model.model_fields.items():
        alias = field.validation_alias
        names = alias.choices if isinstance(alias, AliasChoices) else [alias]
        if name == field_name or name in names:
            return _words(field.annotation)
    return ""


def _words(kind: Any) -> str:
    if isinstance(kind, type) and issubclass(kind, BaseModel):
        return f"a `{kind.__name__}`"
    if get_origin(kind) in (Union, UnionType):
        members = [_words(member) for member in get_args(kind) if member is not NoneType]
        return f"None or {members[0]}" if len(members) == 1 and members[0] else ""
    if get_origin(kind) is Literal:
        return " or ".join(map(repr, get_args(kind)))
    if get_origin(kind) in (list, dict) and (of := _items(get_args(kind)[-1])):
        return f"{_PLAIN[get_origin(kind)]} of {of}"
    return _PLAIN.get(get_origin(kind) or kind, "")


def _items(kind: Any) -> str:
    if isinstance(kind, type) and issubclass(kind, BaseModel):
        return f"`{kind.__name__}`"
    return {str: "strings", int: "whole numbers", float: "numbers"}.get(kind, "")


def _short_repr(value: Any) -> str:
    try:
        text = repr(value)
    except Exception:  # noqa: BLE001 - the value's own code
        return f"a {type(value).__name__} that cannot be shown"
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"
