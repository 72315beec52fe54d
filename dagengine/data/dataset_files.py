"""Data sets in memory, from files whose columns are named by arguments, and back into files."""

from __future__ import annotations

import csv
import io
import itertools
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any, TextIO

from pydantic import BaseModel

from dagengine.data.cases import read_cases, valid_cases
from dagengine.data.column_mapping import FIELD_OF
from dagengine.data.golden import GOLDEN_TYPES
from dagengine.data.row_readers import table_of
from dagengine.data.written_lines import finite
from dagengine.errors import InputError, MissingExtraError, did_you_mean
from dagengine.system.safe_files import write_whole
from dagengine.test_case import ConversationalTestCase, LLMTestCase

# Where cells are split when nothing else is said, as deepeval writes its files: of JSONL, of CSV.
CONTEXTS: dict[str, str] = {"context": "|", "retrieval_context": "|"}
DELIMITERS = {**CONTEXTS, **dict.fromkeys(("tools_called", "expected_tools"), ";")}
_TYPES = ("json", "csv", "jsonl")
_SURROGATE = re.compile("[\ud800-\udfff]")


# Names of such arguments that deepeval writes in its own way.
_WRITTEN = {
    "addtional_metadata_key_name": "additional_metadata_key_name",
    "comments_key_name": "comments_col_name",
    "name_key_name": "name_col_name",
    "custom_column_key_values_col_name": "additional_metadata_col_name",
    "custom_column_key_values_key_name": "additional_metadata_key_name",
}


def named_columns(ending: str, given: Mapping[str, Any], goldens: bool) -> dict[str, str]:
    """Column to field, from arguments called `<field><ending>`; raises TypeError for others.

    Raises InputError for an `encoding_type` that is not UTF-8.
    """
    accepted = [f"{name}{ending}" for name in _field_names(goldens)]
    columns: dict[str, str] = {}
    for argument, column in given.items():
        name = argument if argument in accepted else _WRITTEN.get(argument, argument)
        if name == "encoding_type":
            if (column or "utf-8").lower().replace("_", "-") not in ("utf-8", "utf8", "utf-8-sig"):
                raise InputError(f"files are read as UTF-8, not as {column!r}: convert the file")
            continue
        if name not in accepted:
            hint = did_you_mean(name, accepted) or f"it is a field and {ending}, as {accepted[0]}"
            raise TypeError(f"there is no argument {name!r}; {hint}")
        if column:
            columns[column] = name.removesuffix(ending)
    return columns


def _field_names(goldens: bool) -> list[str]:
    kinds: Iterable[type[BaseModel]] = (LLMTestCase, ConversationalTestCase)
    return [name for kind in (GOLDEN_TYPES if goldens else kinds) for name in kind.model_fields]


def load_named(
    source: Any, columns: Mapping[str, str], delimiters: Mapping[str, str], *, goldens: bool
) -> list[Any]:
    """Every row of a source as a case, or as a golden.

    `columns` says which column is which field. Fields that it does not name are read from the
    columns with their names, if there are any. Other columns are ignored. `delimiters` are by
    field. Raises InputError for a row that is not a case, and for a column of `columns` that no row
    has.
    """
    header = dict[str, None]()
    for _, row in table_of(source).read():
        if isinstance(row, Mapping):
            header |= dict.fromkeys(map(str, row))
    fields = set(_field_names(goldens)).difference(columns.values())
    own = {name: FIELD_OF[name] for name in header if FIELD_OF.get(name) in fields}
    every = {**own, **columns}
    split = {
        column: delimiters[field]
        for column, field in every.items()
        if field in delimiters and column in header
    }
    cases = read_cases(source, map=every, delimiters=split, goldens=goldens, others=False)
    cases.check()
    return list(valid_cases(cases))


def hugging_face(dataset: Any, split: str | None) -> Any:
    """A split of a Hugging Face data set, given by its name or as an object.

    Raises MissingExtraError for a name without the package `datasets`, InputError for several
    splits of which none is picked.
    """
    if isinstance(dataset, str):
        try:
            from datasets import load_dataset
        except ImportError:
            raise MissingExtraError(
                "to load a data set by name, install the package `datasets`: pip install datasets"
            ) from None
        dataset = load_dataset(dataset)
    if not isinstance(dataset, Mapping):
        return dataset
    if split not in dataset:
        names = ", ".join(map(repr, dataset))
        raise InputError(f"the data set has the splits {names}; choose one with split=…")
    return dataset[split]


def save_rows(
    goldens: Iterable[BaseModel],
    cases: Iterable[BaseModel],
    file_type: str,
    directory: str | Path,
    file_name: str | None,
) -> Path:
    """Write goldens, and cases as goldens, into a new file of a folder; returns its path.

    Raises InputError for another type of file, and if there is nothing to write.
    """
    if file_type not in _TYPES:
        raise InputError(f"a data set is saved as {', '.join(_TYPES)}, not as {file_type!r:.40}")
    fields = _field_names(goldens=True)
    rows: list[dict[str, Any]] = []
    for golden in (*goldens, *cases):
        # Its own fields come first, then those that all kinds share: so people read a row.
        values = finite(golden.model_dump(mode="json", exclude_none=True))
        names = dict.fromkeys([*type(golden).__annotations__, *values])
        rows.append({name: values[name] for name in names if name in values and name in fields})
    if not rows:
        raise InputError("No goldens found: the data set has no goldens to save")
    if file_type == "csv":
        _require_cells(rows)
    name = file_name or f"{datetime.now():%Y%m%d_%H%M%S}"
    path = Path(directory, f"{name}.{file_type}")
    text = io.StringIO(newline="")
    _write(rows, file_type, text)
    write_whole(path, text.getvalue())
    return path


def _require_cells(rows: Sequence[Mapping[str, Any]]) -> None:
    """Raise InputError for a text that is another one in CSV: it has no empty texts, no escapes."""
    for number, row in enumerate(rows):
        for column, text in row.items():
            if text == "" or (isinstance(text, str) and _SURROGATE.search(text)):
                what = "half a character" if text else "an empty text, which is the same as none"
                raise InputError(
                    f"CSV cannot hold case {row.get('name') or number}: its {column!r} is {what} "
                    'there; save it as .jsonl (file_type="jsonl")'
                )


def _write(rows: list[dict[str, Any]], file_type: str, file: TextIO) -> None:
    if file_type == "json":
        json.dump(rows, file, ensure_ascii=False, indent=2)
    elif file_type == "jsonl":
        file.writelines(f"{json.dumps(row, ensure_ascii=False)}\n" for row in rows)
    else:
        writer = csv.DictWriter(file, list(dict.fromkeys(itertools.chain.from_iterable(rows))))
        writer.writeheader()
        for row in rows:
            # A cell is a text: lists and objects are JSON in it.
            for name, cell in row.items():
                if isinstance(cell, list | dict):
                    row[name] = json.dumps(cell, ensure_ascii=False)
            writer.writerow(row)
