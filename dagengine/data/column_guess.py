"""The mapping of an unknown table, to be pasted: it is tried on the rows before it is shown."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

from dagengine.case_errors import likeness
from dagengine.data.converter import FIELD_OF, Converter
from dagengine.data.presets import PRESETS
from dagengine.data.readers import Record, name_of
from dagengine.data.strict_json import FlawError, read_json
from dagengine.errors import InputError
from dagengine.terminal import plain
from dagengine.test_case import InvalidCase

# Rows that a guess is made of (it is tried on all), and characters of its options.
_LOOKED_AT, _LONGEST = 50, 4000
_LISTS = ("retrieval_context", "context")
_TEXTS = ("input", "actual_output", "expected_output")
_ANSWERED = {"input", "actual_output"}
_SINGLE, _TALK = (*_TEXTS, *_LISTS, "name"), ("turns", "name")
_LEAST = "\0"  # a column that makes a case of every row
Chosen = dict[str, tuple[str, str | None]]
"""The fields of columns, and the delimiters of their items."""


def guess(convert: Converter, records: Sequence[Record]) -> str:
    """What to add to an error about rows: a mapping with which all are cases; empty for none."""
    rows: list[Any] = [record.value for record in records]
    if not convert.others or not all(isinstance(row, Mapping) for row in rows):
        return ""
    columns = list(dict.fromkeys(name_of(name) for row in rows for name in row))
    if {*columns} <= {*convert.columns, *FIELD_OF} and not _fails(convert, records, all):
        return ""
    trials = list(_trials(convert, rows[:_LOOKED_AT], columns))
    for trial in trials:
        line = trial.options()
        is_whole = plain(line) == line and "\n" not in line and len(line) < _LONGEST
        if is_whole and not _fails(trial, records, any):
            return f"\n  a guess (`--map COLUMN=` ignores a column): {line}"
    return "" if trials else (
        "\n  no column looks like the `input`, the question or task of a case: map the one that "
        "has it, or add it"
    )  # fmt: skip


def _fails(
    convert: Converter, records: Sequence[Record], which: Callable[[Iterable[bool]], bool]
) -> bool:
    """Return whether any, or all, of the records are no cases."""
    return which(isinstance(convert(record), InvalidCase) for record in records)


def _trials(convert: Converter, rows: Sequence[Any], columns: Sequence[str]) -> Iterator[Converter]:
    """Converters that map or ignore every column; none if no column can be the input."""
    signed = [name for name, preset in PRESETS.items() if preset.signs & {*columns}]
    for preset in [convert.preset] if convert.preset else [*signed, None]:
        if trial := _map_columns(replace(convert, preset=preset), rows, columns):
            yield trial


def _map_columns(
    convert: Converter, rows: Sequence[Any], columns: Sequence[str]
) -> Converter | None:
    """Map what fits a field, and ignore the rest; None if no column can be the input."""
    names = _names(rows)
    chosen, talk = (_choose(convert, rows, names, fields) for fields in (_SINGLE, _TALK))
    fields = {convert.columns.get(name) for name in names} | {*dict(chosen.values())}
    if "turns" in dict(talk.values()) and not convert.goldens | (fields >= _ANSWERED):
        chosen, fields = talk, {"input"}
    if "input" not in fields:
        return None
    used = {*chosen, *convert.columns}
    used |= {name.partition(".")[0] for name in used}
    mapping: dict[str, str | None] = {
        name: field for name, (field, _) in chosen.items() if FIELD_OF.get(name) != field
    }
    mapping |= {
        column: None
        for column in columns
        if column not in used and not _is_own(convert, rows, column, column in names)
    }
    marks = {name: mark for name, (_, mark) in chosen.items() if mark is not None}
    return replace(convert, map=convert.map | mapping, delimiters=convert.delimiters | marks)


def _is_own(convert: Converter, rows: Sequence[Any], column: str, is_filled: bool) -> bool:
    """Return whether a column is the field of its name, and no field that is guessed."""
    field = FIELD_OF.get(column)
    if field is None or not is_filled:
        return field is not None
    return field not in (*_SINGLE, *_TALK) and _fits(convert, rows, column, field)


def _names(rows: Sequence[Any]) -> list[str]:
    """The columns of rows that are not empty, and what is inside of objects, as in `--map`."""
    names: dict[str, None] = {}
    waiting = [(name_of(key), value) for row in rows for key, value in row.items()]
    for name, value in waiting:  # grows while it is read
        if value is not None:
            names[name] = None
        if isinstance(value, str) and value.startswith("{"):
            with suppress(FlawError):
                value = read_json(value)
        is_metadata = FIELD_OF.get(name) == "additional_metadata"
        if isinstance(value, Mapping) and name.count(".") < 3 and not is_metadata:
            waiting += [(f"{name}.{key}", inner) for key, inner in value.items()]
    return list(names)


def _choose(
    convert: Converter, rows: Sequence[Any], names: Sequence[str], fields: Sequence[str]
) -> Chosen:
    """The columns that fit fields; those that are the most alike go first."""
    settled = convert.columns.keys() | convert.outer
    ranked = sorted(
        (rank, number, field)
        for number, name in enumerate(names)
        for field in fields
        if not {name, name.partition(".")[0]} & settled
        and (rank := (-1, 0) if FIELD_OF.get(name) == field else likeness(name, field))
    )
    chosen: Chosen = {}
    taken = {convert.columns.get(name) for name in names}
    for _, number, field in ranked:
        name = names[number]
        if field in taken or name in chosen:
            continue
        marks = (None, "|", "") if field in _LISTS else (None,)
        fit = next(
            ((field, mark) for mark in marks if _fits(convert, rows, name, field, mark)), None
        )
        if fit:
            chosen[name] = fit
            taken.add(field)
    return chosen


def _fits(
    convert: Converter, rows: Sequence[Any], name: str, field: str, mark: str | None = None
) -> bool:
    """Return whether a column can be a field of all rows; names must tell the rows apart."""
    least = {} if field in ("input", "turns") else {_LEAST: "input"}
    marks = {} if mark is None else {name: mark}
    try:
        trial = replace(
            convert, map={name: field, **least}, delimiters=marks, preset=None, others=False
        )
    except InputError:  # a field of goldens, or of cases only
        return False
    cases = [trial(Record("", {**row, **dict.fromkeys(least, "")})) for row in rows]
    if any(isinstance(case, InvalidCase) for case in cases):
        return False
    values = list(filter(None, (getattr(case, field) for case in cases)))
    if field in _LISTS:
        return bool(values) and (mark != "|" or any(len(value) > 1 for value in values))
    if field == "name":
        return name == field or len({*values}) == len(cases)
    return field not in _TEXTS or not all(map(_is_data, values))


def _is_data(text: str) -> bool:
    """Return whether a text is blank, a number or an object of JSON: no question, no answer."""
    try:
        return not isinstance(read_json(text), str)
    except FlawError:
        return not text.strip()
