"""Rows to cases and goldens: which column is which field, and what a cell means.

Of an unknown table a mapping is guessed, to be pasted: it is tried on the rows before it is shown.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import lru_cache
from itertools import chain, starmap
from operator import attrgetter
from typing import Any

from pydantic import BaseModel, ValidationError

from dagengine.case_errors import field_like, likeness, sentences
from dagengine.data.golden import GOLDEN_TYPES, ConversationalGolden, Golden
from dagengine.data.row_readers import Record, name_of
from dagengine.data.strict_json import FlawError, read_json, read_written
from dagengine.data.tool_presets import PRESETS, preset_called, text_of, turns_of
from dagengine.data.written_lines import finite, without_nulls
from dagengine.errors import InputError, near_hint
from dagengine.system.terminal_text import few, plain, text_if
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
_TEXT_LISTS = frozenset({"context", "retrieval_context", "tags"})
_TEXTS = ("input", "actual_output", "expected_output")
# Fields that hold an object, whose keys columns may be mapped to.
_OBJECTS = frozenset({"additional_metadata"})
_PARSED = _TOOLS | _TEXT_LISTS | _OBJECTS | {"turns", "contestants"}
# Fields that take no text at all: one that is blank says nothing.
_COUNTS = frozenset({"input_token_count", "output_token_count"})
_WORDLESS = _COUNTS | {"token_cost", "completion_time", "spans"}
# Columns that are turns where a row has no input.
_CHATS = frozenset({"messages", "conversations", "conversation"})
# Characters of a column's name, and unknown columns, that are shown; columns whose fields are kept.
_NAME, _COLUMNS, _NAMES = 80, 12, 1024
# Rows that a guess is made of (it is tried on all), and characters of its options.
_LOOKED_AT, _LONGEST = 50, 4000
# Fields that a guess maps columns to, of a case with one answer and of a conversation.
_LISTS = ("retrieval_context", "context")
_SINGLE, _TALK = (*_TEXTS, *_LISTS, "name"), ("turns", "name")
_ANSWERED = {"input", "actual_output"}  # with both a row is no conversation
_LEAST = "\0"  # a column of empty inputs, which makes a case of every row
# Every name of a field, its own and those of other spellings, to the field.
FIELD_OF = {
    str(name): field
    for kind in (*CASE_TYPES, *GOLDEN_TYPES)
    for field, about in kind.model_fields.items()
    for name in (field, *getattr(about.validation_alias, "choices", ()))
}


@dataclass(slots=True)
class Converter:
    """Turns records into cases: which column is which field, and what a cell means.

    `map` is what the caller says of columns. Without `others` only mapped columns are read. A
    `typed` source has lists of its own, so that a text in it is one text. In `plain` rows names of
    columns are texts already, and all numbers are finite.
    """

    map: dict[str, str | None]
    delimiters: dict[str, str]
    goldens: bool = False
    others: bool = True
    preset: str | None = None
    typed: bool = True
    plain: bool = False
    columns: dict[str, str | None] = field(init=False)  # fields by column, also of the preset
    values: dict[str, Callable[[Any], Any]] = field(init=False)  # how the preset reads cells
    outer: frozenset[str] = field(init=False)
    target_of: Callable[[str], tuple[str, str]] = field(init=False)

    def __post_init__(self) -> None:
        preset = preset_called(self.preset)
        # What the caller maps goes before the preset, which then does not read its cells either.
        self.columns = {**preset.columns, **self.map}
        self.values = {name: read for name, read in preset.values.items() if name not in self.map}
        # Columns of which a part is mapped: `a` and `a.b` if `a.b.c` is.
        self.outer = frozenset(
            name[:at] for name in self.columns for at in range(1, len(name)) if name[at] == "."
        )
        self.target_of = lru_cache(_NAMES)(self._target)  # else most of the time goes there
        kinds = GOLDEN_TYPES if self.goldens else CASE_TYPES
        names = sorted({name for kind in kinds for name in kind.model_fields})
        for column, target in self.columns.items():
            if target and _split(target)[0] not in names:
                hint = _suggest(target, names, column, pair(target, column))
                raise InputError(f"column {column!r}: {target!r} is not a field of a case{hint}")

    def check_columns(self, records: Sequence[Record]) -> None:
        """Raise InputError when a mapped or delimited column is in none of the records."""
        rows = [record.value for record in records if isinstance(record.value, Mapping)]
        columns = list(dict.fromkeys(chain.from_iterable(map(self._flat, rows))))
        for column in dict.fromkeys([*self.map, *self.delimiters]):
            target = self.map.get(column, "")
            if rows and target is not None and column not in columns:
                hint = _suggest(column, columns, target, pair(target, column))
                raise InputError(
                    f"no row has a column {column!r}{hint}; there are: {', '.join(columns)}"
                )

    def __call__(self, record: Record) -> Item:
        position, value = record
        if isinstance(value, (*CASE_TYPES, *GOLDEN_TYPES, InvalidCase)):
            return value  # type: ignore[return-value]
        if not isinstance(value, Mapping):
            return InvalidCase(position, record.problem or no_case(value))
        try:
            fields = self._fields(value)
        except InputError as error:
            return InvalidCase(position, str(error))
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
            empty = {self.columns.get(key, key) for key, cell in value.items() if cell is None}
            return InvalidCase(position, _explain(error, empty))

    def _fields(self, row: Mapping[Any, Any]) -> dict[str, Any]:
        fields: dict[str, Any] = {}
        keyed: list[tuple[str, str, Any]] = []  # for a key of an object: field, key, value
        flat = self._flat(row)
        chats = self._chats(flat)
        for column, value in flat.items():
            name, key = self.target_of(column)
            if value is None and column in self.delimiters:
                value = []  # an empty cell of a list
            elif value is not None and column in self.values:
                value = self.values[column](value)
            if not name or value is None:
                continue
            if column in chats:
                name = "turns"
            if key:
                keyed.append((name, key, value))
            elif name in fields:
                raise InputError(f"two columns map to the field {name!r}; ignore one")
            else:
                fields |= self._as_fields(column, name, value)
        # Last, as `additional_metadata` may be a column itself, behind those of its keys. Then they
        # are added to what it has, and a key that is in both is nobody's to choose.
        for name, key, value in keyed:
            entries = fields.get(name, {})
            if not isinstance(entries, dict) or key in entries:
                raise InputError(f"two columns map to the field '{name}.{key}'; ignore one")
            fields[name] = {**entries, key: value}
        return fields

    def _chats(self, flat: Mapping[str, Any]) -> set[str]:
        """The unmapped columns that are turns; none in a row with another for input or turns."""
        chats = _CHATS & flat.keys()
        if chats and {"input", "turns"} & {self.target_of(column)[0] for column in flat}:
            return set()
        return {column for column in chats if self.target_of(column)[0] == column}

    def _target(self, column: str) -> tuple[str, str]:
        """The field of a column, and the key inside of it; an empty one if it is left out."""
        owner, _, part = column.partition(".")
        target: str | None = FIELD_OF.get(column, column) if self.others else None
        if part and owner in self.outer:
            target = self.columns.get(owner, f"additional_metadata.{part}")
        return _split(self.columns.get(column, target) or "")

    def _as_fields(self, column: str, field: str, value: Any) -> dict[str, Any]:
        """A value in the form of its field: a text, a parsed list or object, turns."""
        if isinstance(value, str):
            if field in _WORDLESS and not value.strip():
                return {}
            if field in _PARSED or column in self.delimiters:
                value = self._parse(column, field, value)
        if field in _TEXTS:
            value = text_of(value)
        elif field == "name" and type(value) in (int, float):
            value = str(value).removesuffix(".0")  # a column with gaps has made 3.0 of 3
        elif field == "turns" != column and (talk := turns_of(value)):
            return talk  # of another column: messages as another tool has them
        elif field == "turns" and isinstance(value, list):
            value = [without_nulls(turn) if isinstance(turn, Mapping) else turn for turn in value]
        return {field: value}

    def _flat(self, row: Mapping[Any, Any]) -> Mapping[str, Any]:
        """The row, with what is mapped inside of its columns as columns."""
        if self.plain and not self.outer:
            return row
        flat: dict[str, Any] = {}
        waiting = [(name_of(key), value) for key, value in row.items()]
        for column, value in waiting:  # grows while it is read
            inner = open_cell(value) if column in self.outer else None
            parts = dict(enumerate(inner)) if isinstance(inner, list) else inner
            if isinstance(parts, Mapping):
                waiting += [(f"{column}.{key}", part) for key, part in parts.items()]
            elif column in flat:
                raise InputError(f"two columns have the same name, {column!r:.80}")
            else:
                flat[column] = finite(value) if isinstance(value, float | list | dict) else value
        return flat

    def _parse(self, column: str, field: str, cell: str) -> Any:
        if not cell.strip():
            return None if field in _OBJECTS else []
        # A source that has lists of its own has a text for one item.
        is_item = self.typed and field in _TEXT_LISTS and cell.lstrip()[0] not in "[{"
        delimiter = self.delimiters.get(column, "" if is_item else None)
        try:
            value = read_written(cell)
        except FlawError as flaw:
            value = None
            if delimiter is None:
                items, whole = pair(column, ";"), pair(column, "")
                raise InputError(
                    f"column {column!r} is text, but its field needs a list or object: write JSON "
                    f'(["a", "b"]), or say what separates its items (--delimiter {items}; '
                    f"--delimiter {whole} if a cell is one item); {flaw}"
                ) from None
        if delimiter is None or isinstance(value, list):  # JSON, as `save_as` writes it
            return [value] if isinstance(value, str) else value
        parts = [part.strip() for part in cell.split(delimiter)] if delimiter else [cell]
        return [{"name": part} for part in parts] if field in _TOOLS else parts

    def options(self) -> str:
        """The mapping of columns, as options of the command."""
        options = [f"--map {self.preset}"] if self.preset else []
        for column, target in self.map.items():
            if FIELD_OF.get(column) != (target or ""):
                options.append(f"--map {pair(column, target or '')}")
        options += map("--delimiter {}".format, starmap(pair, self.delimiters.items()))
        return " ".join(options)


def open_cell(cell: Any) -> Any:
    """A cell whose text is a list or an object of JSON as that; anything else as it is."""
    if isinstance(cell, str) and cell.lstrip()[:1] in ("{", "["):
        with suppress(FlawError):
            return read_json(cell)
    return cell


def _split(field: str) -> tuple[str, str]:
    """A field, and the key inside it: `additional_metadata.label` is a key of an object."""
    name, _, key = field.partition(".")
    return (name, key) if name in _OBJECTS else (field, "")


def no_case(value: Any) -> str:
    """Advice about a value that is no test case."""
    if isinstance(value, type):
        return f"{value.__name__} is a class; create a test case: {value.__name__}(...)"
    name = type(value).__name__
    if hasattr(value, "spec"):
        return f"{name} is a metric, not a test case; test cases come first, metrics second"
    return f"{name} is neither a test case nor a mapping of fields"


def _suggest(wrong: str, names: Sequence[str], partner: str, swapped: str) -> str:
    """Say what was meant by a wrong name: its partner in `--map field=column`, or one like it."""
    if partner in names:
        return f"; the column comes first: --map {swapped}"
    return near_hint(wrong, names)


def _explain(error: ValidationError, empty: Collection[str | None]) -> str:
    """Explain the mistakes of one row: each field, and once all unknown columns.

    `empty` are the fields without a value.
    """
    model = next(k for k in (*CASE_TYPES, *GOLDEN_TYPES) if k.__name__ == error.title)
    absent = {f"the field {field!r} is missing" for field in empty}
    columns: list[str] = []

    def unknown(column: str, model: type[BaseModel]) -> str:
        columns.append(column)
        return ""

    reasons = list(filter(None, sentences(error, model, unknown)))
    for index, complaint in enumerate(reasons):
        reasons[index] += text_if(complaint in absent, ": its cell is empty")
    if not columns:
        return "; ".join(reasons)
    # Each column that is no field, with the field of this meaning if it is written nearly so.
    names = list(model.model_fields)
    described = [
        f"{column!r:.{_NAME}}{near_hint(column, [field_like(column, names)])}" for column in columns
    ]
    plural = text_if(len(described) > 1, "s")
    reasons.append(f"unknown field{plural} {few(described, _COLUMNS)}")
    own_first = ", ".join(dict.fromkeys([*model.__annotations__, *names]))
    return f"{'; '.join(reasons)}\n  {model.__name__} has: {own_first}"


def pair(column: str, value: str) -> str:
    """A value of `--map` or `--delimiter` as a shell takes it."""
    return shlex.quote(f"{column}={value}")


def suggest_mapping(convert: Converter, records: Sequence[Record]) -> str:
    """Words to put behind an error: a mapping by which all rows are cases; empty for none."""
    rows: list[Any] = [record.value for record in records]
    if not convert.others or not all(isinstance(row, Mapping) for row in rows):
        return ""
    columns = list(dict.fromkeys(name_of(name) for row in rows for name in row))
    if {*columns} <= {*convert.columns, *FIELD_OF} and any(_are_cases(convert, records)):
        return ""
    trials = list(_trials(convert, rows[:_LOOKED_AT], columns))
    for trial in trials:
        line = trial.options()
        can_be_pasted = [plain(line)] == line[:_LONGEST].splitlines()
        if can_be_pasted and all(_are_cases(trial, records)):
            return f"\n  a guess (COLUMN= ignores a column): {line}"
    # A chat may be refused for what is in its messages.
    has_chats = not convert.goldens and all(map(_has_chat, rows))
    return "" if trials or has_chats else (
        "\n  no column looks like the `input`, the question or task of a case: map the one that "
        "has it, or add it"
    )  # fmt: skip


def _are_cases(convert: Converter, records: Sequence[Record]) -> Iterator[bool]:
    return (not isinstance(convert(record), InvalidCase) for record in records)


def _has_chat(row: Mapping[Any, Any]) -> bool:
    """Return whether a column has the name of turns and a list of messages."""
    for name, cell in row.items():
        chat = open_cell(cell) if _rank(name_of(name), "turns") else None
        if isinstance(chat, list) and chat and all(isinstance(item, Mapping) for item in chat):
            return True
    return False


def _trials(convert: Converter, rows: Sequence[Any], columns: Sequence[str]) -> Iterator[Converter]:
    """Converters that map or ignore every column; none if no column can be the input."""
    signed = [name for name, preset in PRESETS.items() if preset.signs & {*columns}]
    for preset in [convert.preset] if convert.preset else [*signed, None]:
        if trial := _map_columns(replace(convert, preset=preset), rows, _names(rows), columns):
            yield trial


def _map_columns(
    convert: Converter, rows: Sequence[Any], names: Sequence[str], columns: Sequence[str]
) -> Converter | None:
    """Map what fits a field, and ignore the rest; None if no column can be the input."""
    trial = _map_fields(convert, rows, names, _SINGLE)
    fields = set(map(trial.columns.get, names))
    talk = _map_fields(convert, rows, names, _TALK)
    if "turns" in map(talk.columns.get, names) and not (convert.goldens or fields >= _ANSWERED):
        trial = talk
    elif "input" not in fields:
        return None
    used = {*trial.columns}
    used |= {name.partition(".")[0] for name in used}
    for column, name in FIELD_OF.items():  # columns called like a field that is never guessed stay
        is_guessed = name in (*_SINGLE, *_TALK)
        if column not in names or (not is_guessed and _fits(convert, rows, column, name, {})):
            used.add(column)
    rest = [column for column in columns if column not in used]
    return replace(trial, map=trial.map | dict.fromkeys(rest))


def _names(rows: Sequence[Any]) -> list[str]:
    """The columns of rows that are not empty, and what is inside of objects, as in `--map`."""
    names: dict[str, None] = {}
    waiting = [(name_of(key), value) for row in rows for key, value in row.items()]
    for name, value in waiting:  # grows while it is read
        if value is not None:
            names[name] = None
        parts = open_cell(value)
        is_metadata = FIELD_OF.get(name) == "additional_metadata"
        if isinstance(parts, Mapping) and name.count(".") < 3 and not is_metadata:
            waiting += [(f"{name}.{key}", inner) for key, inner in parts.items()]
    return list(names)


def _rank(name: str, field: str) -> tuple[int, int] | None:
    return (-1, 0) if FIELD_OF.get(name) == field else likeness(name, field)


def _map_fields(
    convert: Converter, rows: Sequence[Any], names: Sequence[str], fields: Sequence[str]
) -> Converter:
    """Map the columns that fit fields; those that are the most alike go first."""
    settled = convert.columns.keys() | convert.outer
    ranked = sorted(
        (rank, number, target)
        for number, name in enumerate(names)
        for target in fields
        if not {name, name.partition(".")[0]} & settled and (rank := _rank(name, target))
    )
    for _, number, target in ranked:
        name = names[number]
        marks: list[dict[str, str]] = [{}]  # delimiters to try
        if target in _LISTS:
            marks += ({name: "|"}, {name: ""})
        for mark in marks:
            taken = set(map(convert.columns.get, names))
            if target in taken or name in convert.columns:
                break
            if _fits(convert, rows, name, target, mark):
                mapping, delimiters = convert.map | {name: target}, convert.delimiters | mark
                convert = replace(convert, map=mapping, delimiters=delimiters)
    return convert


def _fits(
    convert: Converter, rows: Sequence[Any], name: str, field: str, mark: Mapping[str, str]
) -> bool:
    """Return whether a column can be a field of all rows; names must tell the rows apart."""
    least = {} if field in ("input", "turns") else {_LEAST: "input"}
    mapping: dict[str, str | None] = {name: field, **least}
    try:
        trial = replace(convert, map=mapping, delimiters={**mark}, preset=None, others=False)
    except InputError:  # a field of goldens, or of cases only
        return False
    cases = [trial(Record("", {**row, **dict.fromkeys(least, "")})) for row in rows]
    if any(isinstance(case, InvalidCase) for case in cases):
        return False
    values = list(filter(None, map(attrgetter(field), cases)))
    if field in _LISTS:
        return bool(values) and (mark.get(name) != "|" or any(value[1:] for value in values))
    if field == "name":
        return name == field or len({*values}) == len(cases)
    return field not in _TEXTS or not all(map(_is_data, values))


def _is_data(text: str) -> bool:
    """Return whether a text is blank, a number or an object of JSON: no question, no answer."""
    try:
        return not isinstance(read_json(text), str)
    except FlawError:
        return not text.strip()
