"""The mapping of an unknown table, to be pasted: it is tried on the rows before it is shown."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

from dagengine.case_errors import likeness
from dagengine.data.converter import FIELD_OF, Converter, pair
from dagengine.data.golden import GOLDEN_TYPES
from dagengine.data.presets import PRESETS
from dagengine.data.readers import Record, name_of
from dagengine.data.strict_json import FlawError, read_json
from dagengine.terminal import plain
from dagengine.test_case import CASE_TYPES, InvalidCase

# Rows that a guess is made of (it is tried on all), and characters of its options.
_LOOKED_AT, _LONGEST = 50, 4000
_LISTS = ("retrieval_context", "context")
_TEXTS = ("input", "actual_output", "expected_output")
_LEAST = "\0"  # a column that makes a case of every row


def guess(convert: Converter, records: Sequence[Record]) -> str:
    """What to add to an error about rows: a mapping with which all are cases; empty for none."""
    rows: list[Any] = [record.value for record in records]
    if not convert.others or not all(isinstance(row, Mapping) for row in rows):
        return ""
    columns = list(dict.fromkeys(name_of(name) for row in rows for name in row))
    is_known = all(column in convert.columns or column in FIELD_OF for column in columns)
    if is_known and any(not isinstance(convert(record), InvalidCase) for record in records):
        return ""
    signed = [name for name, preset in PRESETS.items() if preset.signs & {*columns}]
    presets = [convert.preset] if convert.preset else [*signed, None]
    trials = [
        _mapped(replace(convert, preset=name), rows[:_LOOKED_AT], columns) for name in presets
    ]
    for trial in filter(None, trials):
        options = [f"--map {trial.preset}"] if trial.preset else []
        options += [f"--map {pair(column, field or '')}" for column, field in trial.map.items()]
        options += [f"--delimiter {pair(*item)}" for item in trial.delimiters.items()]
        line = " ".join(options)
        is_whole = plain(line) == line and "\n" not in line and len(line) < _LONGEST
        if is_whole and not any(isinstance(trial(record), InvalidCase) for record in records):
            return f"\n  a guess (`--map COLUMN=` ignores a column): {line}"
    return "" if trials[-1] else (
        "\n  no column looks like the `input`, the question or task of a case: map the one that "
        "has it, or add it"
    )  # fmt: skip


def _mapped(convert: Converter, rows: Sequence[Any], columns: Sequence[str]) -> Converter | None:
    """A converter that maps or ignores every column; None if none can be the input."""
    names = _names(rows)
    chosen = _chosen(convert, rows, names, (*_TEXTS, *_LISTS, "name"))
    fields = {convert.columns.get(name) for name in names} | {name for name, _ in chosen.values()}
    if not convert.goldens and not fields >= {"input", "actual_output"}:
        talk = _chosen(convert, rows, names, ("turns", "name"))
        if "turns" in [field for field, _ in talk.values()]:
            chosen, fields = talk, {"turns", "input"}
    if "input" not in fields:
        return None
    mapping: dict[str, str | None] = {
        name: field for name, (field, _) in chosen.items() if FIELD_OF.get(name) != field
    }
    kinds = GOLDEN_TYPES if convert.goldens else CASE_TYPES
    others = {name for kind in kinds for name in kind.model_fields} - {*_TEXTS, *_LISTS, "name"}
    for column in columns:
        inner = f"{column}."
        is_used = any(
            name == column or name.startswith(inner) for name in (*chosen, *convert.columns)
        )
        own = FIELD_OF.get(column)
        is_empty = own is not None and column not in names
        is_own = own in others - ({"turns"} - fields) and _fits(convert, rows, column, str(own))
        if not is_used and not is_empty and not is_own:
            mapping[column] = None
    ordered = {name: mapping[name] for name in (*names, *columns) if name in mapping}
    delimiters = {name: mark for name, (_, mark) in chosen.items() if mark is not None}
    return replace(convert, map=convert.map | ordered, delimiters=convert.delimiters | delimiters)


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


def _chosen(
    convert: Converter, rows: Sequence[Any], names: Sequence[str], fields: Sequence[str]
) -> dict[str, tuple[str, str | None]]:
    """The fields of columns, and delimiters: the most alike first, of those that fit."""
    ranked = sorted(
        (rank, number, field)
        for number, name in enumerate(names)
        for field in fields
        if not {name, name.partition(".")[0]} & (convert.columns.keys() | convert.outer)
        and (rank := (-1, 0) if FIELD_OF.get(name) == field else likeness(name, field))
    )
    chosen: dict[str, tuple[str, str | None]] = {}
    taken = {convert.columns.get(name) for name in names}
    for _, number, field in ranked:
        name, marks = names[number], (None, "|", "") if field in _LISTS else (None,)
        if field not in taken and name not in chosen:
            fit = [mark for mark in marks if _fits(convert, rows, name, field, mark)]
            chosen |= {name: (field, fit[0])} if fit else {}
            taken |= {field} if fit else set()
    return chosen


def _fits(
    convert: Converter, rows: Sequence[Any], name: str, field: str, mark: str | None = None
) -> bool:
    """Whether a column can be a field of all rows; names must tell the rows apart."""
    least = {} if field in ("input", "turns") else {_LEAST: "input"}
    trial = Converter(
        {name: field, **least}, {} if mark is None else {name: mark}, convert.goldens,
        others=False, typed=convert.typed,
    )  # fmt: skip
    cases = [trial(Record("", {**row, **dict.fromkeys(least, "")})) for row in rows]
    if any(isinstance(case, InvalidCase) for case in cases):
        return False
    values = [value for case in cases if (value := getattr(case, field)) is not None]
    if field in _LISTS:
        return any(values) and (mark != "|" or any(len(value) > 1 for value in values))
    if field == "name":
        return name == field or len({*values}) == len(cases)
    return field not in _TEXTS or not all(map(_is_data, values))


def _is_data(text: str) -> bool:
    """Whether a text is blank, a number or an object of JSON: nobody asked or answered that."""
    try:
        return not isinstance(read_json(text), str)
    except FlawError:
        return not text.strip()
