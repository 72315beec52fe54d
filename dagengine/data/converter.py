"""Rows to cases and goldens: which column is which field, and what a cell means."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel, ValidationError

from dagengine.case_errors import field_like, sentences
from dagengine.data.golden import GOLDEN_TYPES, ConversationalGolden, Golden
from dagengine.data.presets import text_of
from dagengine.data.readers import Record
from dagengine.data.strict_json import FlawError, python_list, read_json
from dagengine.errors import InputError, did_you_mean
from dagengine.terminal import few
from dagengine.test_case import (
    CASE_TYPES,
    ArenaTestCase,
    ConversationalTestCase,
    InvalidCase,
    LLMTestCase,
    TestCase,
)

Item = TestCase | Golden | ConversationalGolden | InvalidCase

_TOOLS = frozenset({"tools_called", "expected_tools"})
_PARSED = _TOOLS | {"context", "retrieval_context", "tags", "turns", "contestants"}
_PARSED |= {"additional_metadata", "metadata"}
_TEXTS = frozenset({"input", "actual_output", "expected_output"})
# Fields that hold an object, whose keys columns may be mapped to.
_OBJECTS = frozenset({"additional_metadata"})
# Characters of a column's name, unknown columns, and characters of their mapping that are shown.
_NAME, _COLUMNS, _MAPPING = 80, 12, 1500


@dataclass(frozen=True, slots=True)
class Converter:
    """Turns records into cases: which column is which field, and what a cell means."""

    map: dict[str, str | None]
    delimiters: dict[str, str]
    goldens: bool
    others: bool
    required: frozenset[str] = frozenset()
    opened: tuple[str, ...] = ()
    values: Mapping[str, Callable[[Any], Any]] | None = None

    def __post_init__(self) -> None:
        kinds = GOLDEN_TYPES if self.goldens else CASE_TYPES
        names = sorted({name for kind in kinds for name in kind.model_fields})
        for column, field in self.map.items():
            # The usual slip is the order of the two: `--map field=column`.
            if field and _split(field)[0] not in names:
                swapped = f"; the column comes first: --map {_pair(field, column)}"
                hint = swapped if column in names else _like(field, names)
                raise InputError(f"column {column!r}: {field!r} is not a field of a case{hint}")

    def check_columns(self, records: Sequence[Record]) -> None:
        """Raise InputError when a mapped or delimited column is in none of the records."""
        rows = [record.value for record in records if isinstance(record.value, Mapping)]
        flattened = [self._flat(row) for row in rows]
        columns = list(dict.fromkeys(str(key) for row in flattened for key in row))
        for column in dict.fromkeys(
            [*(c for c in self.map if c in self.required), *self.delimiters]
        ):
            field = self.map.get(column, "")
            if flattened and field is not None and column not in columns:
                swapped = f"; the column comes first: --map {_pair(field, column)}"
                hint = swapped if field in columns else _like(column, columns)
                raise InputError(
                    f"no row has a column {column!r}{hint}; there are: {', '.join(columns)}"
                )

    def __call__(self, record: Record) -> Item:
        place, value, problem = record
        if isinstance(value, (*CASE_TYPES, *GOLDEN_TYPES, InvalidCase)):
            return value  # type: ignore[return-value]
        if not isinstance(value, Mapping):
            return InvalidCase(place, problem or no_case(value))
        try:
            fields = self._fields(value)
        except _CellError as error:
            return InvalidCase(place, str(error))
        kind: type[BaseModel]
        if self.goldens:
            kind = ConversationalGolden if "scenario" in fields else Golden
        elif "turns" in fields:
            kind = ConversationalTestCase
        else:
            kind = ArenaTestCase if "contestants" in fields else LLMTestCase
        try:
            return kind.model_validate(fields)
        except ValidationError as error:
            empty = {self.map.get(key, key) for key, cell in value.items() if cell is None}
            return InvalidCase(place, _explain(error, empty, fields))

    def _fields(self, row: Mapping[str, Any]) -> dict[str, Any]:
        fields: dict[str, Any] = {}
        inside: list[tuple[str, str, Any]] = []
        for column, cell in self._flat(row).items():
            # What the cell means by the preset; an empty cell of a list is an empty list.
            read = (self.values or {}).get(column)
            try:
                value = cell if read is None or cell is None else read(cell)
            except InputError as error:
                raise _CellError(f"column {column!r}: {error}") from None
            if value is None and column in self.delimiters:
                value = []
            # A column that nothing names is the field of its own name, or a key of the metadata.
            owner, _, part = column.partition(".")
            unnamed = column if self.others else None
            if owner in self.opened and part:
                unnamed = f"additional_metadata.{part}"
            field = self.map.get(column, unnamed)
            if not field or value is None:
                continue
            name, key = _split(field)
            if key:
                inside.append((name, key, value))
            elif field in fields:
                raise _CellError(f"two columns map to the field {field!r}; ignore one")
            else:
                fields[field] = self._as_field(column, field, value)
        # Last, as `additional_metadata` may be a column itself, behind those of its keys. Then they
        # are added to what it has, and a key that is in both is nobody's to choose.
        for name, key, value in inside:
            entries = fields.get(name, {})
            if not isinstance(entries, dict) or key in entries:
                raise _CellError(f"two columns map to the field '{name}.{key}'; ignore one")
            fields[name] = {**entries, key: value}
        return fields

    def _as_field(self, column: str, field: str, value: Any) -> Any:
        """A value in the form of its field: a text, a parsed list or object, turns."""
        if self.opened and isinstance(value, list) and field in _TEXTS:
            value = text_of(value)
        if isinstance(value, str) and (field in _PARSED or column in self.delimiters):
            value = self._parsed(column, field, value)
        if field != "turns" or not isinstance(value, list):
            return value
        # What is null says nothing, as in the columns of a row.
        return [
            {name: inner for name, inner in turn.items() if inner is not None}
            if isinstance(turn, Mapping)
            else turn
            for turn in value
        ]

    def _flat(self, row: Mapping[str, Any]) -> Mapping[str, Any]:
        """The row, with the keys of opened objects as columns."""
        if not any(isinstance(row.get(name), Mapping) for name in self.opened):
            return row
        flat: dict[str, Any] = {}
        for column, value in row.items():
            if column in self.opened and isinstance(value, Mapping):
                flat |= {f"{column}.{key}": inner for key, inner in value.items()}
            else:
                flat[column] = value
        return flat

    def _parsed(self, column: str, field: str, cell: str) -> Any:
        delimiter = self.delimiters.get(column)
        if not cell.strip():
            return None if field in _OBJECTS else []
        is_list = False
        if delimiter is not None and cell.lstrip().startswith("["):
            with suppress(FlawError):  # it may be a list already, as `save_as` writes it
                is_list = isinstance(read_json(cell), list)
        if delimiter is not None and not is_list:
            parts = [part.strip() for part in cell.split(delimiter)]
            return [{"name": part} for part in parts] if field in _TOOLS else parts
        try:
            return read_json(cell)
        except FlawError as flaw:
            if (written := python_list(cell)) is not None:
                return written
            raise _CellError(
                f"column {column!r} is text, but its field needs a list or object: write JSON "
                f'(["a", "b"]), or say what separates its items (a delimiter); {flaw}'
            ) from None


def _split(field: str) -> tuple[str, str]:
    """A field, and the key inside it: `additional_metadata.label` is a key of an object."""
    name, _, key = field.partition(".")
    return (name, key) if name in _OBJECTS else (field, "")


def no_case(value: Any) -> str:
    """What to do about something in the place of a test case."""
    if isinstance(value, type):
        return f"{value.__name__} is a class; create a test case: {value.__name__}(...)"
    name = type(value).__name__
    if hasattr(value, "spec"):
        return f"{name} is a metric, not a test case; test cases come first, metrics second"
    return f"{name} is neither a test case nor a mapping of fields"


class _CellError(Exception):
    """What is wrong with the cells of a row."""


def _like(name: str, known: Sequence[str]) -> str:
    near = did_you_mean(name, known)
    return f" ({near})" if near else ""


def _explain(
    error: ValidationError, empty: Collection[str | None], fields: Mapping[str, Any]
) -> str:
    """What is wrong with one row: each field, and once what to do about unknown columns.

    `empty` are the fields without a value, `fields` those of the row.
    """
    model = next(k for k in (*CASE_TYPES, *GOLDEN_TYPES) if k.__name__ == error.title)
    absent = {f"the field {field!r} is missing" for field in empty}
    columns: list[str] = []

    def unknown(column: str, model: type[BaseModel]) -> str:
        columns.append(column)
        return ""

    complaints = [complaint for complaint in sentences(error, model, unknown) if complaint]
    reasons = [
        f"{complaint}: its cell is empty" if complaint in absent else complaint
        for complaint in complaints
    ]
    if not columns:
        return "; ".join(reasons)
    # Each column that is no field, with the field of this meaning if it is written nearly so.
    names = list(model.model_fields)
    described = [
        f"{column!r:.{_NAME}}{_like(column, [field_like(column, names)])}" for column in columns
    ]
    plural = "s" * (len(described) > 1)
    reasons.append(f"unknown field{plural} {few(described, _COLUMNS)}")
    return "\n  ".join(["; ".join(reasons), *_ways_out(columns, model, fields)])


def _ways_out(
    columns: Sequence[str], model: type[BaseModel], fields: Mapping[str, Any]
) -> tuple[str, str]:
    """The fields that there are, and a mapping of the columns to be pasted."""
    own = list(model.__annotations__)
    inherited = [name for name in model.model_fields if name not in own]
    free = [name for name in (*own, *inherited) if name not in fields]
    guesses: list[tuple[str, str]] = []
    for column in columns:
        field = field_like(column, free)
        free = [name for name in free if name != field]
        guesses.append((column, field))
    short = [(column, field) for column, field in guesses if len(column) <= _NAME]
    mapping = _options(short)
    if len(mapping) > _MAPPING:
        mapping = _options([(column, field) for column, field in short if field])
    return (
        f"{model.__name__} has: {', '.join((*own, *inherited))}",
        f"a guess (`--map COLUMN=` ignores a column): {mapping}",
    )


def _options(guesses: Sequence[tuple[str, str]]) -> str:
    return " ".join(f"--map {_pair(column, field)}" for column, field in guesses)


def _pair(column: str, field: str) -> str:
    """A value of `--map` as a shell takes it."""
    return shlex.quote(f"{column}={field}")
