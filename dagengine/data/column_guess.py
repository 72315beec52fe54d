"""The mapping of an unknown table, to be pasted: it is tried on the rows before it is shown."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from dagengine.case_errors import likeness
from dagengine.data.converter import FIELD_OF, Converter, open_cell
from dagengine.data.presets import PRESETS
from dagengine.data.readers import Record, name_of
from dagengine.data.strict_json import FlawError, read_json
from dagengine.errors import InputError
from dagengine.system.terminal import plain
from dagengine.test_case import InvalidCase

# Rows that a guess is made of (it is tried on all), and characters of its options.
_LOOKED_AT, _LONGEST = 50, 4000
_LISTS = ("retrieval_context", "context")
_TEXTS = ("input", "actual_output", "expected_output")
_ANSWERED = {"input", "actual_output"}
_SINGLE, _TALK = (*_TEXTS, *_LISTS, "name"), ("turns", "name")
_LEAST = "\0"  # a column that makes a case of every row


def guess(convert: Converter, records: Sequence[Record]) -> str:
    """Words for an error about rows: a mapping with which all are cases; empty for none."""
    rows: list[Any] = [record.value for record in records]
    if not convert.others or not all(isinstance(row, Mapping) for row in rows):
        return ""
    columns = list(dict.fromkeys(name_of(name) for row in rows for name in row))
    if {*columns} <= {*convert.columns, *FIELD_OF} and any(_are_cases(convert, records)):
        return ""
    trials = list(_trials(convert, rows[:_LOOKED_AT], columns))
    for trial in trials:
        line = trial.options()
        is_whole = [plain(line)] == line[:_LONGEST].splitlines()
        if is_whole and all(_are_cases(trial, records)):
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
    chats = [open_cell(cell) for name, cell in row.items() if _rank(name_of(name), "turns")]
    lists = [chat for chat in chats if isinstance(chat, list) and chat]
    return any(all(isinstance(item, Mapping) for item in chat) for chat in lists)


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
    single, talk = (_map_fields(convert, rows, names, fields) for fields in (_SINGLE, _TALK))
    fields, turns = ({trial.columns.get(name) for name in names} for trial in (single, talk))
    is_talk = "turns" in turns and not convert.goldens | (fields >= _ANSWERED)
    if not is_talk and "input" not in fields:
        return None
    trial = talk if is_talk else single
    used = {*trial.columns}
    used |= {name.partition(".")[0] for name in used}
    for column, field in FIELD_OF.items():  # their own names are fields, if they fit
        is_guessed = field in (*_SINGLE, *_TALK)
        if column not in names or not (is_guessed or not _fits(convert, rows, column, field)):
            used.add(column)
    rest: dict[str, str | None] = {column: None for column in columns if column not in used}
    return replace(trial, map=trial.map | rest)


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
        (rank, number, field)
        for number, name in enumerate(names)
        for field in fields
        if not {name, name.partition(".")[0]} & settled and (rank := _rank(name, field))
    )
    for _, number, field in ranked:
        name = names[number]
        for mark in (None, "|", "") if field in _LISTS else (None,):
            taken = {convert.columns.get(column) for column in names}
            if field in taken or name in convert.columns:
                break
            if _fits(convert, rows, name, field, mark):
                mapping = convert.map | {name: field}
                marks = convert.delimiters | ({} if mark is None else {name: mark})
                convert = replace(convert, map=mapping, delimiters=marks)
    return convert


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
