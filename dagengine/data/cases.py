"""Test cases and goldens from any source: `read_cases`.

A row that is no test case becomes an `InvalidCase` in its place, so one bad line near the
end of a long file costs one row of the results and not the run. The first rows are checked
before anything is asked (`Cases.check`).
"""

from __future__ import annotations

import itertools
from collections.abc import AsyncIterable, AsyncIterator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, overload

from pydantic import BaseModel, ValidationError

from dagengine.data.golden import GOLDEN_TYPES, ConversationalGolden, Golden
from dagengine.data.presets import PRESETS, Preset, text_of
from dagengine.data.records import Record, Table, table_of
from dagengine.data.strict_json import FlawError, python_list, read_json
from dagengine.errors import InputError, did_you_mean
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


class Cases:
    """Test cases read lazily: iterate as often as the source allows."""

    def __init__(self, table: Table, convert: _Converter) -> None:
        self._table = table
        self._convert = convert

    @property
    def name(self) -> str:
        """The file that they are read from; empty for what is in memory."""
        return self._table.name

    def __iter__(self) -> Iterator[Item]:
        return map(self._convert, self._table.read())

    def count(self) -> int | None:
        """The number of rows, valid or not; None when only reading them would tell."""
        return self._table.count()

    def check(self) -> list[Item]:
        """The first 1000 rows (of a list: all), none of which is invalid.

        A source that can be read only once is left alone. Raises InputError for the first
        invalid row, for an empty file and for a mapped column that no row has.
        """
        if self._table.checked == 0:
            return []
        records = list(itertools.islice(self._table.read(), self._table.checked))
        if not records and self._table.name:
            raise InputError(f"{self._table.name} holds no test case")
        self._convert.check_columns(records)
        return [_valid(self._convert(record)) for record in records]


class AsyncCases:
    """Test cases of an async source, read once, as they come."""

    def __init__(self, source: AsyncIterable[Any], convert: _Converter) -> None:
        self._source = source
        self._rows: AsyncIterator[Any] | None = None
        self._convert = convert
        self._number = itertools.count()

    def __aiter__(self) -> AsyncCases:
        return self

    async def __anext__(self) -> Item:
        if self._rows is None:
            self._rows = aiter(self._source)
        row = await anext(self._rows)
        return self._convert(Record(f"case {next(self._number)}", row))

    async def aclose(self) -> None:
        """Let an async generator clean up."""
        close = getattr(self._rows, "aclose", None)
        if close is not None:
            await close()


@overload
def read_cases(
    source: str | Path | Iterable[Any],
    *,
    map: Mapping[str, str | None] | None = ...,
    delimiters: Mapping[str, str] | None = ...,
    goldens: bool = ...,
    others: bool = ...,
    preset: str | None = ...,
) -> Cases: ...
@overload
def read_cases(
    source: AsyncIterable[Any],
    *,
    map: Mapping[str, str | None] | None = ...,
    delimiters: Mapping[str, str] | None = ...,
    goldens: bool = ...,
    others: bool = ...,
    preset: str | None = ...,
) -> AsyncCases: ...
def read_cases(
    source: Any,
    *,
    map: Mapping[str, str | None] | None = None,
    delimiters: Mapping[str, str] | None = None,
    goldens: bool = False,
    others: bool = True,
    preset: str | None = None,
) -> Cases | AsyncCases:
    """Test cases of a JSONL, JSON, CSV, TSV or Parquet file, or of an object in memory.

    `source` is a path, a pandas DataFrame, one split of a Hugging Face data set, or an
    iterable (also an async one) of test cases or dicts. Rows with `turns` are conversations,
    rows with `contestants` arena cases. Columns are named like the fields of a test case, or
    renamed by `map={"question": "input"}` (`{"label": "additional_metadata.label"}` for a key of
    an object); `map={"notes": None}` leaves a column out. Where text stands for a list it is JSON,
    or split at the column's delimiter (`delimiters={"context": ";"}`). With `goldens` rows are
    read as goldens; without `others` only the columns in `map` count. A `preset` (`"ragas"`,
    `"promptfoo"`, `"openai"`) knows the columns of that tool's files.

    Raises InputError for a source that cannot be read, a mapping to no field, and a preset that
    there is not.
    """
    if isinstance(source, Cases | AsyncCases):
        return source
    if isinstance(source, (*CASE_TYPES, *GOLDEN_TYPES)):
        raise InputError(f"test_cases must be a list of test cases, got {source!r:.80}")
    if isinstance(source, type) or hasattr(source, "spec"):
        raise InputError(f"test_cases must be a list of test cases: {_no_case(source)}")
    renamed = {column: field or None for column, field in (map or {}).items()}
    if preset is not None and preset not in PRESETS:
        raise InputError(f"there is no preset {preset!r:.40}; there are {', '.join(PRESETS)}")
    known = Preset({}) if preset is None else PRESETS[preset]
    every = {**known.columns, **renamed}
    convert = _Converter(
        every, dict(delimiters or {}), goldens, others, frozenset(renamed), known.opened
    )
    if isinstance(source, AsyncIterable):
        return AsyncCases(source, convert)
    return Cases(table_of(source), convert)


def strict(cases: Cases) -> Iterator[TestCase | Golden | ConversationalGolden]:
    """All cases; raises InputError at the first invalid row."""
    return (_valid(case) for case in cases)


def _valid(item: Item) -> Any:
    if isinstance(item, InvalidCase):
        raise InputError(str(item))
    return item


_TEXTS = frozenset({"input", "actual_output", "expected_output"})
# Fields that hold an object, whose keys columns may be mapped to.
_OBJECTS = frozenset({"additional_metadata"})


@dataclass(frozen=True, slots=True)
class _Converter:
    """Turns records into cases: which column is which field, and what a cell means."""

    map: dict[str, str | None]
    delimiters: dict[str, str]
    goldens: bool
    others: bool
    required: frozenset[str] = frozenset()
    opened: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        kinds = GOLDEN_TYPES if self.goldens else CASE_TYPES
        known = sorted({name for kind in kinds for name in kind.model_fields})
        for column, field in self.map.items():
            if field and _split(field)[0] not in known:
                hint = _like(field, known)
                raise InputError(f"column {column!r}: {field!r} is no field of a case{hint}")

    def check_columns(self, records: Sequence[Record]) -> None:
        """Raise InputError when a mapped or delimited column is in none of the records."""
        rows = [record.value for record in records if isinstance(record.value, Mapping)]
        found = [self._flat(row) for row in rows]
        columns = list(dict.fromkeys(str(key) for row in found for key in row))
        for column in dict.fromkeys(
            [*(c for c in self.map if c in self.required), *self.delimiters]
        ):
            if found and self.map.get(column, "") is not None and column not in columns:
                raise InputError(
                    f"no row has a column {column!r}{_like(column, columns)}; "
                    f"there are: {', '.join(columns)}"
                )

    def __call__(self, record: Record) -> Item:
        place, value, problem = record
        if isinstance(value, Mapping):
            return self._case(place, value)
        if isinstance(value, (*CASE_TYPES, *GOLDEN_TYPES, InvalidCase)):
            return value  # type: ignore[return-value]
        return InvalidCase(place, problem or _no_case(value))

    def _case(self, place: str, row: Mapping[str, Any]) -> Item:
        try:
            fields = self._fields(row)
            return _kind(fields, self.goldens).model_validate(fields)  # type: ignore[return-value]
        except _CellError as error:
            return InvalidCase(place, str(error))
        except ValidationError as error:
            return InvalidCase(place, _explain(error))

    def _fields(self, row: Mapping[str, Any]) -> dict[str, Any]:
        fields: dict[str, Any] = {}
        inside: list[tuple[str, str, Any]] = []
        for column, value in self._flat(row).items():
            field = self.map.get(column, self._unnamed(column))
            if value is None and column in self.delimiters:
                value = []  # an empty cell of a list
            if not field or value is None:
                continue
            name, key = _split(field)
            if key:
                inside.append((name, key, value))
                continue
            if field in fields:
                raise _CellError(f"two columns give the field {field!r}; leave one out")
            if self.opened and isinstance(value, list) and field in _TEXTS:
                value = text_of(value)
            if isinstance(value, str) and (field in _PARSED or column in self.delimiters):
                value = self._parsed(column, field, value)
            fields[field] = value
        for name, key, value in inside:
            _put(fields, name, key, value)
        return fields

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

    def _unnamed(self, column: str) -> str | None:
        """The field of a column that nothing names: its own name, or a key of the metadata."""
        name, _, key = column.partition(".")
        if name in self.opened and key:
            return f"additional_metadata.{key}"
        return column if self.others else None

    def _parsed(self, column: str, field: str, cell: str) -> Any:
        delimiter = self.delimiters.get(column)
        if not cell.strip():
            return None if field in _OBJECTS else []
        if delimiter is not None and not _is_json_list(cell):
            parts = [part.strip() for part in cell.split(delimiter)]
            return [{"name": part} for part in parts] if field in _TOOLS else parts
        try:
            return read_json(cell)
        except FlawError as flaw:
            if (written := python_list(cell)) is not None:
                return written
            raise _CellError(
                f"column {column!r} is text where a list or object belongs: write JSON "
                f'(["a", "b"]), or say what separates its items (a delimiter); {flaw}'
            ) from None


def _is_json_list(cell: str) -> bool:
    """Whether a cell with a delimiter is a list already, as `save_as` writes it."""
    try:
        return cell.lstrip().startswith("[") and isinstance(read_json(cell), list)
    except FlawError:
        return False


def _split(field: str) -> tuple[str, str]:
    """A field, and the key inside it: `additional_metadata.label` is a key of an object."""
    name, _, key = field.partition(".")
    return (name, key) if name in _OBJECTS else (field, "")


def _put(fields: dict[str, Any], name: str, key: str, value: Any) -> None:
    """Put a value under a key of a field that holds an object."""
    found = fields.get(name, {})
    if not isinstance(found, dict) or key in found:
        raise _CellError(f"two columns give the field '{name}.{key}'; leave one out")
    fields[name] = {**found, key: value}


def _no_case(value: Any) -> str:
    """What to do about something in the place of a test case."""
    if isinstance(value, type):
        return f"{value.__name__} is a class; make a case of it: {value.__name__}(...)"
    name = type(value).__name__
    if hasattr(value, "spec"):
        return f"{name} is a metric, not a test case; test cases come first, metrics second"
    return f"{name} is neither a test case nor a mapping of fields"


class _CellError(Exception):
    """What is wrong with the cells of a row."""


def _kind(fields: Mapping[str, Any], goldens: bool) -> type[BaseModel]:
    if goldens:
        return ConversationalGolden if "scenario" in fields else Golden
    if "turns" in fields:
        return ConversationalTestCase
    return ArenaTestCase if "contestants" in fields else LLMTestCase


def _like(name: str, known: Sequence[str]) -> str:
    near = did_you_mean(name, known)
    return f" ({near})" if near else ""


def _explain(error: ValidationError) -> str:
    """What is wrong with one row, field by field."""
    model = next(k for k in (*CASE_TYPES, *GOLDEN_TYPES) if k.__name__ == error.title)
    parts: list[str] = []
    for item in error.errors(include_url=False):
        place = ".".join(str(step) for step in item["loc"])
        if item["type"] == "extra_forbidden" and len(item["loc"]) == 1:
            parts.append(_unknown(place, model))
        elif item["type"] == "extra_forbidden":
            parts.append(f"unknown field {place!r:.200}")
        elif item["type"] == "missing":
            parts.append(f"the field {place!r} is missing")
        else:
            parts.append(f"{place or 'the row'}: {item['msg']}")
    return "; ".join(parts)


def _unknown(column: str, model: type[BaseModel]) -> str:
    known = list(model.model_fields)
    return (
        f"unknown field {column!r:.80}{_like(column, known)} ({model.__name__} has: "
        f"{', '.join(known)}; rename a column with --map {column:.80}=FIELD or leave it out "
        f"with --map {column:.80}=)"
    )
