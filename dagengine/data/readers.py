"""Rows of a data set as dicts with their place, from every kind of source, lazily.

Files are read by their suffix: `.csv`, `.tsv`, `.parquet`, `.json` (one array, read whole);
everything else is JSON lines. Places in text files are physical line numbers; rows of other
sources count from 0, as their own indexing does.
"""

from __future__ import annotations

import csv
import shlex
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from dagengine.data.parquet import BATCH, count_parquet_rows, parquet_rows
from dagengine.data.strict_json import FlawError, read_array, read_json
from dagengine.errors import InputError

# Rows of a file that are looked at before a run starts.
CHECKED = 1000
_UTF_8 = "save the file as UTF-8"
_ENCODING = f"is {{}}, not UTF-8: {_UTF_8}"
# How files begin that are none of these, or have the wrong name; and what to do about them.
_OTHERS = {
    b"\x1f\x8b": "is compressed: unpack it, or hand it on through a pipe (<(zcat FILE))",
    b"PK\x03\x04": "is an archive or a spreadsheet: save its table as CSV",
    b"\xff\xfe": _ENCODING.format("UTF-16"),
    b"\xfe\xff": _ENCODING.format("UTF-16"),
    b"PAR1": "is a Parquet file: call it .parquet",
}
_SPREADSHEETS = frozenset((".xlsx", ".xlsm", ".xls", ".ods", ".numbers"))
# A command that anybody has who reads this.
_COMMAS = (
    'python3 -c "import csv, sys; csv.writer(sys.stdout).writerows(csv.reader(sys.stdin, '
    "delimiter='{other}'))\" < {path} > {new}"
)
_HINT = "write one JSON object per line (JSON lines); one JSON array belongs in a .json file"


class Record(NamedTuple):
    """One row: where it stands, and its columns, or why they cannot be read."""

    place: str
    value: Any = None
    problem: str | None = None


@dataclass(frozen=True, slots=True)
class Table:
    """A source of records.

    `checked` is how many rows may be looked at beforehand: none of a source that can be read
    only once, all (None) of a list. `count` gives the number of rows without reading them as
    cases (None: unknown).
    """

    read: Callable[[], Iterator[Record]]
    checked: int | None
    count: Callable[[], int | None]
    name: str = ""


def table_of(source: Any, word: str = "case") -> Table:
    """The records of a file, a data set object, a data frame or an iterable.

    `word` is what the places of an iterable call its items.
    Raises InputError for a file that is not there and for anything else.
    """
    if isinstance(source, str | Path):
        return _file(Path(source))
    if hasattr(source, "with_format") and hasattr(source, "iter"):

        def dataset_rows() -> Iterator[Any]:  # as Arrow has them, which costs the least
            for batch in source.with_format("arrow").iter(batch_size=BATCH):
                yield from batch.to_pylist()

        return Table(lambda: _numbered(dataset_rows()), CHECKED, lambda: _length(source))
    if hasattr(source, "iloc") and hasattr(source, "columns"):
        return Table(lambda: _numbered(_frame_rows(source)), CHECKED, lambda: len(source))
    if isinstance(source, Iterable) and not isinstance(source, Mapping):
        checked = None if isinstance(source, Sequence) else 0
        return Table(lambda: _numbered(source, word), checked, lambda: _length(source))
    raise InputError(
        f"cannot read cases from {source!r:.80}: give a file, a list or an (async) iterable of "
        "test cases or dicts, a data frame, or one split of a Hugging Face data set"
    )


def _length(source: Any) -> int | None:
    return len(source) if hasattr(type(source), "__len__") else None


def _numbered(rows: Iterable[Any], word: str = "row") -> Iterator[Record]:
    return (Record(f"{word} {number}", row) for number, row in enumerate(rows))


def _file(path: Path) -> Table:
    if not path.exists():
        hint = "; of a pipe the name is /dev/stdin" if str(path) == "-" else ""
        raise InputError(f"there is no file {path}{hint}")
    if path.is_dir():
        raise InputError(f"{path} is a folder; choose a file in it")
    readers: dict[str, tuple[Callable[[], Iterator[Record]], Callable[[], int | None]]] = {
        ".csv": (lambda: _cells(path, ","), lambda: sum(1 for _ in _cells(path, ","))),
        ".tsv": (lambda: _cells(path, "\t"), lambda: sum(1 for _ in _cells(path, "\t"))),
        ".json": (lambda: _array(path), lambda: sum(1 for _ in _array(path))),
        ".parquet": (
            lambda: _unless_flawed(path, parquet_rows(path)),
            lambda: count_parquet_rows(path),
        ),
    }
    lines = (lambda: _lines(path), lambda: sum(1 for _ in filled_lines(path)))
    read, count = readers.get(path.suffix.lower(), lines)
    if not path.is_file():  # a pipe can be read only once
        return Table(read, 0, lambda: None, str(path))
    if path.suffix.lower() != ".parquet":  # its reader says what is wrong
        # The name or the first bytes tell what is no text, before a decoder says something vague.
        if path.suffix.lower() in _SPREADSHEETS:
            raise InputError(
                f"{path} is a spreadsheet: save its table as CSV (File, Save as, CSV UTF-8) and "
                f"give that file, {path.with_suffix('.csv')}"
            )
        with path.open("rb") as file:
            start = file.read(4)
        for begins, what in _OTHERS.items():
            if start.startswith(begins):
                raise InputError(f"{path} {what}")
    return Table(read, CHECKED, count, str(path))


def _unless_flawed(path: Path, items: Iterable[Any]) -> Iterator[Record]:
    """Records of rows, some of which are a FlawError."""
    for number, item in enumerate(items):
        place = f"{path} row {number}"
        flawed = isinstance(item, FlawError)
        yield Record(place, problem=str(item)) if flawed else Record(place, item)


def filled_lines(path: Path) -> Iterator[tuple[str, bytes]]:
    """The lines of a file that are not blank, each after its place."""
    with path.open("rb") as file:
        for number, line in enumerate(file, 1):
            if not line.isspace():
                yield f"{path} line {number}", line


def _lines(path: Path) -> Iterator[Record]:
    for place, line in filled_lines(path):
        try:
            yield Record(place, read_json(line.decode("utf-8-sig")))
        except UnicodeDecodeError as error:
            yield Record(place, problem=f"not UTF-8 (byte {error.start + 1} of the line); {_UTF_8}")
        except FlawError as error:
            problem = str(error)
            # A line that is not JSON is often a part of a longer text.
            hint = f"; {_HINT}" if problem.startswith("not JSON") else ""
            yield Record(place, problem=f"{problem}{hint}")


def _array(path: Path) -> Iterator[Record]:
    """The objects of one JSON array. The whole file is in memory: only lines can stream."""
    text = ""
    try:
        text = path.read_text(encoding="utf-8-sig")
        items = read_array(text)
    except (FlawError, UnicodeDecodeError) as error:
        hint = "; spans are read by --map otel" if '"resourceSpans"' in text else ""
        raise InputError(f"{path} is not one JSON array: {error}{hint}") from None
    return _unless_flawed(path, items)


def _cells(path: Path, delimiter: str) -> Iterator[Record]:
    """Rows of a CSV file with a header; an empty cell is None."""
    csv.field_size_limit(sys.maxsize)  # the library's own limit is shorter than a document
    # Bytes that are not UTF-8 become lone surrogates, which are found below, so that they cost one
    # row. A strict decoder would fail inside of a buffer, and nobody would know in which row.
    with path.open(encoding="utf-8-sig", errors="surrogateescape", newline="") as file:
        reader = csv.reader(file, delimiter=delimiter)
        header = next(reader, [])
        if len(set(header)) != len(header):
            raise InputError(f"{path} line 1: two columns have the same name")
        separators = ",;\t|".replace(delimiter, "")  # a quoted name may contain the file's own
        if len(header) == 1 and (separator := next((c for c in separators if c in header[0]), "")):
            raise InputError(
                f"{path} line 1: one column, {header[0]!r:.80}; {delimiter!r} separates cells of "
                f"{path.suffix}, not {separator!r}{_other_cells(path, separator)}"
            )
        while True:
            place = f"{path} line {reader.line_num + 1}"
            try:
                row = next(reader, None)
            except csv.Error as error:
                yield Record(place, problem=f"not {path.suffix}: {error}")
                continue
            if row is None:
                return
            if not row:  # a blank line
                continue
            cells = (cell for cell in row if not cell.isascii())
            if len(row) != len(header):
                problem = f"{len(row)} cells, but the header names {len(header)} columns"
                yield Record(place, problem=problem)
            elif any("\udc80" <= char <= "\udcff" for cell in cells for char in cell):
                yield Record(place, problem=f"not UTF-8; {_UTF_8}")
            else:
                yield Record(
                    place, {key: cell or None for key, cell in zip(header, row, strict=True)}
                )


def _other_cells(path: Path, other: str) -> str:
    """What to do with a file whose cells something else separates."""
    if other == "\t":
        return "; call the file .tsv"
    if path.suffix.lower() != ".csv":
        return "; call the file .csv" if other == "," else ""
    new = path.with_stem(f"{path.stem}-commas")
    command = _COMMAS.format(other=other, path=shlex.quote(str(path)), new=shlex.quote(str(new)))
    return f"; save it with commas, or convert it:\n  {command}"


def _frame_rows(frame: Any) -> Iterator[dict[str, Any]]:
    """Rows of a data frame; what it counts as missing is absent."""
    for start in range(0, len(frame), BATCH):
        part = frame.iloc[start : start + BATCH]
        plain = part.astype(object)
        for row in plain.where(part.notna(), None).to_dict("records"):
            yield {
                key: (value.tolist() if hasattr(value, "tolist") else value)
                for key, value in row.items()
            }
