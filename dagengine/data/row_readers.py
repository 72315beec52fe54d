"""Rows of a data set as dicts with their place, from every kind of source, lazily.

Files are read by their suffix: `.csv`, `.tsv`, `.parquet`, `.json` (one array, read whole);
everything else is JSON lines. All but `.parquet` may be packed (`.csv.gz`). Places in text files
are physical line numbers; rows of other sources count from 0, as their own indexing does. The name
and the first bytes of a file that is no table tell what it is, and the error says what to do.
"""

from __future__ import annotations

import csv
import gzip
import io
import itertools
import json
import os
import re
import shlex
import sys
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from operator import itemgetter
from pathlib import Path
from typing import IO, Any, NamedTuple, cast

from dagengine.data.parquet import BATCH, batch_rows, count_rows, parquet_rows, require_unlike
from dagengine.data.strict_json import FlawError, item_or_flaw, read_json, read_marked
from dagengine.errors import InputError
from dagengine.system.terminal_text import text_if

# Rows of a file that are looked at before a run starts.
CHECKED = 1000
_UTF_8 = "save the file as UTF-8"
_FOREIGN = re.compile("[\udc80-\udcff]")  # bytes that are not UTF-8, as Python keeps them
# A blank, then all of a quoted cell, or its part in front of a delimiter; `"A" or "B"` is a text.
_LATE_QUOTE = re.compile(r'\s+"(?!")(?:[^"]|"")+(?:"\s*)?')
_HINT = "write one JSON object per line (JSON lines); one JSON array belongs in a .json file"
_LOOKED_AT = 1 << 16  # bytes at the beginning of a file
_CODE = '\n  {{cat}} {{path}} | python3 -c "import json, sys; {}" > {{stem}}-rows.json'
_RECODE = (
    "not UTF-8: save the file as UTF-8\n"
    "  {{cat}} {{path}} | iconv -f {} -t UTF-8 > {{stem}}-utf8{{suffix}}"
)
_YAML = "YAML: write it as JSON" + _CODE.format(
    "import yaml; json.dump(yaml.safe_load(sys.stdin), sys.stdout, default=str)"
)
_OBJECT = "one object o, no array; its rows are {rows}\n  {cat} {path} | {code} > {stem}-rows.json"
_TAKE = "import json, sys; o = json.load(sys.stdin); json.dump({}, sys.stdout)"
_CASE, _DEEPEST = frozenset({"input", "turns"}), 5  # columns of cases; keys on the way to rows
_COMMAS = (
    'save it with commas, or convert it:\n  {{cat}} {{path}} | {}python3 -c "import csv, sys; '
    "csv.writer(sys.stdout).writerows(csv.reader(sys.stdin, delimiter='{{other}}'))\" > "
    "{{stem}}-commas.csv"
)
_COLUMN = "a table of one column, {what!r:.80}; {other!r} separates no cells of {suffix}: "
_FORMAT = "of another format, {what}: write its rows as JSON lines, CSV or Parquet"
_SPREADSHEET = (
    "a spreadsheet: save its table as CSV (File, Save as, CSV UTF-8) and give that file, {stem}.csv"
)
_NO_JSON = rb"(?!.*^\s*[{\[])"
# How files begin that are none of ours, or have the wrong name: suffixes (of JSON lines it is
# "lines", none: any), what a file begins with, and what it is, in which groups of the pattern are.
_KINDS = (
    (".xlsx .xlsm .xlsb .xls .ods .numbers", rb"", _SPREADSHEET),
    ("", rb"\x1f\x8b", "compressed: unpack it, or call it {path}.gz"),
    ("", rb"BZh", "compressed by bzip2: bunzip2 -k {path}"),
    ("", rb"\xfd7zXZ", "compressed by xz: unxz -k {path}"),
    ("", rb"\x28\xb5\x2f\xfd", "compressed by Zstandard: zstd -d {path}"),
    ("", rb"PK\x03\x04|\xd0\xcf\x11\xe0", "an archive: unzip it; a spreadsheet: save as CSV"),
    ("", rb".{257}ustar", "an archive: tar -xf {path}"),
    ("", rb"PAR1", "a Parquet file: call it .parquet"),
    ("", rb"SQLite format", "a database: sqlite3 -csv -header {path} 'SELECT * FROM TABLE'"),
    ("", rb"[\x89\x93%{\\]*(?P<what>ARROW|FEA|Obj|ORC|HDF|NUMPY|PDF|PNG|rtf)\W?", _FORMAT),
    ("", rb"\xff\xff\xff\xff", _FORMAT.format(what="a stream of Arrow")),
    ("", rb"\x80[\x02-\x05]|\xff\xd8\xff", "a pickle or a picture: write rows as JSON lines"),
    ("", rb"version https://git-lfs", "a pointer of Git LFS: git lfs pull -I {path}"),
    ("", rb"/annex/objects", "a pointer of git-annex: git annex get {path}"),
    ("", rb"\xff\xfe\0\0|\0\0\xfe\xff|(?:.\0\0\0){4}", f"UTF-32, {_RECODE.format('UTF-32')}"),
    ("", rb"\xff\xfe|\xfe\xff|(?:[^\0]\0){8}", f"UTF-16, {_RECODE.format('UTF-16')}"),
    ("", rb"(?:\0[^\0]){8}", f"UTF-16, {_RECODE.format('UTF-16BE')}"),
    ("", rb"\s*<", "HTML or XML: a page in the place of a file, or a table: save it as CSV"),
    (".csv .tsv", rb'\s*\{\s*"', "JSON, not a table: call it {stem}.jsonl"),
    (".csv .tsv", rb'\s*\[\s*[{"]', "JSON, not a table: call it {stem}.json"),
    (
        ".csv .tsv",
        rb"\s*(?P<what>sep=(?P<other>[^\r\n]))",
        "a table whose first line, {what!r}, is for a spreadsheet: "
        + _COMMAS.format("tail -n +2 | "),
    ),
    (".csv", rb"\s*(?P<what>[^,\r\n]*(?P<other>\t)[^,\r\n]*)\r?$", _COLUMN + "call the file .tsv"),
    (".tsv", rb"\s*(?P<what>[^\t\r\n]*(?P<other>,)[^\t\r\n]*)\r?$", _COLUMN + "call the file .csv"),
    (
        ".csv .tsv",
        rb"\s*(?P<what>[^,\t\r\n]*(?P<other>[;|])[^,\t\r\n]*)\r?$",
        _COLUMN + _COMMAS.format(""),
    ),
    (".yaml .yml", rb"", _YAML),
    ("lines .json", _NO_JSON + rb"(?:---\s|\s*- \S|[\w .-]+:\s)", _YAML),
    ("lines .json", _NO_JSON + rb"\w[^\n]*\t", "a table, not JSON: call it {stem}.tsv"),
    ("lines .json", _NO_JSON + rb"\w[^\n]*[,;]", "a table, not JSON: call it {stem}.csv"),
    ("lines", rb"\s*\[\s*(?:$|\{(?![^\n]*\]\s*\n\s*\S))", "one JSON array: call it {stem}.json"),
    ("lines", rb"\s*\{\s*\n", "one JSON object over several lines: write one in each line"),
    (".json", rb'\s*\{.*"resourceSpans"', "not one JSON array; spans are read by --map otel"),
    (
        ".json",
        rb"\s*\{[^\n]*\}\s*\n\s*\{",
        "JSON lines, and is not one JSON array: call it {stem}.jsonl",
    ),
)


class Record(NamedTuple):
    """One row: where it stands, and its columns, or a FlawError that says why there are none."""

    place: str
    value: Any

    @property
    def problem(self) -> str:
        """The reason why the row cannot be read; empty for one that can."""
        return str(self.value) if isinstance(self.value, FlawError) else ""

    def cells(self, need: str = "not a row of columns") -> Mapping[str, Any]:
        """Return its cells by column; raises InputError, with what it `need`s, if it has none."""
        if not isinstance(self.value, Mapping):
            raise InputError(f"{self.place}: {self.problem or need}")
        return self.value


@dataclass(frozen=True, slots=True)
class Table:
    """A source of records.

    `checkable` is how many rows may be looked at beforehand: none of a source that can be read
    only once, all (None) of a list. `count` gives the number of rows without reading them as cases
    (None: unknown). `typed` rows have lists, so a text is no list; in `plain` rows the names of
    columns are texts and numbers are finite.
    """

    read: Callable[[], Iterator[Record]]
    checkable: int | None
    count: Callable[[], int | None]
    name: str = ""
    typed: bool = True
    plain: bool = False


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
                yield from batch_rows(batch)

        return Table(lambda: _number_rows(dataset_rows()), CHECKED, lambda: _length(source))
    if hasattr(source, "iloc") and hasattr(source, "columns"):
        names = list(map(name_of, source.columns))
        require_unlike("the data frame", names)
        rows = partial(_frame_rows, source, names)
        return Table(lambda: _number_rows(rows()), CHECKED, lambda: len(source), typed=False)
    if isinstance(source, Iterable) and not isinstance(source, Mapping):
        checkable = None if isinstance(source, Sequence) else 0
        return Table(lambda: _number_rows(source, word), checkable, lambda: _length(source))
    raise InputError(
        f"cannot read cases from {source!r:.80}: give a file, a list or an (async) iterable of "
        "test cases or dicts, a data frame, or one split of a Hugging Face data set"
    )


def _length(source: Any) -> int | None:
    return len(source) if hasattr(type(source), "__len__") else None


def _number_rows(rows: Iterable[Any], word: str = "row") -> Iterator[Record]:
    return (Record(f"{word} {number}", row) for number, row in enumerate(rows))


def require_file(path: Path) -> None:
    """Raise InputError for what is not there, and for a folder."""
    if not path.exists():
        hint = text_if(str(path) == "-", "; of a pipe the name is /dev/stdin")
        raise InputError(f"there is no file {path}{hint}")
    if path.is_dir():
        raise InputError(f"{path} is a folder; choose a file in it")


def _file(path: Path) -> Table:
    require_file(path)
    suffix = suffix_of(path)
    readers: dict[str, Callable[[], Iterator[Record]]] = {
        ".csv": partial(_cells, path, ","),
        ".tsv": partial(_cells, path, "\t"),
        ".json": partial(_array, path),
        ".parquet": lambda: _number_rows(parquet_rows(path), f"{path} row"),
    }

    def count() -> int:
        if suffix == ".parquet":
            return count_rows(path)
        return sum(1 for _ in (readers[suffix]() if suffix in readers else filled_lines(path)))

    is_file = path.is_file()  # a pipe can be read only once
    if is_file:
        require_rows(path)
    return Table(
        readers.get(suffix, partial(_lines, path)),
        CHECKED if is_file else 0,
        count if is_file else lambda: None,
        str(path),
        typed=suffix not in (".csv", ".tsv", ".parquet"),
        plain=suffix != ".parquet",
    )


def table_by(reader: Callable[[Path], Iterable[Any]], path: Path, name: str) -> Table:
    """The records that the reader of a package makes of a file; raises InputError if it fails."""

    def rows() -> Iterator[Any]:
        try:
            yield from reader(path)
        except Exception as error:  # its code may do anything
            raise InputError(
                f"the reader {name!r} cannot read {path}: {type(error).__name__}: {error}"
            ) from error

    if not path.exists():
        raise InputError(f"there is no file {path}")
    checkable = CHECKED * path.is_file()  # a pipe can be read only once
    return Table(lambda: _number_rows(rows(), f"{path} row"), checkable, lambda: None, str(path))


def filled_lines(path: Path) -> Iterator[tuple[str, bytes]]:
    """The lines of a file that are not blank, each after its place."""
    with open_content(path) as file:
        for number, line in enumerate(file, 1):
            if not line.isspace():
                yield f"{path} line {number}", line


def _lines(path: Path) -> Iterator[Record]:
    for position, line in filled_lines(path):
        try:
            value = read_json(line.decode("utf-8-sig"))
        except UnicodeDecodeError as error:
            value = FlawError(f"not UTF-8 (byte {error.start + 1} of the line); {_UTF_8}")
        except FlawError as error:
            # A line that is not JSON is often a part of a longer text.
            value = FlawError(f"{error}; {_HINT}") if str(error).startswith("not JSON") else error
        yield Record(position, value)


def _array(path: Path) -> Iterator[Record]:
    """The objects of one JSON array. The whole file is in memory: only lines can stream."""
    try:
        with open_content(path) as file:
            value = read_marked(file.read().decode("utf-8-sig"))
    except UnicodeDecodeError as error:
        raise InputError(f"{path} is not UTF-8 (byte {error.start + 1}); {_UTF_8}") from None
    except FlawError as error:
        value = error
    if isinstance(value, dict) and (rows := _rows_inside(value)):
        code = shlex.join(["python3", "-c", _TAKE.format(rows)])
        raise _foreign(path, _OBJECT, rows=rows, code=code)
    if not isinstance(value, list):
        raise InputError(f"{path} is not one JSON array: {value!s:.200}")
    return _number_rows(map(item_or_flaw, value), f"{path} row")


def _rows_inside(value: Mapping[str, Any]) -> str:
    """Python for the rows of one object `o`, as people and pandas write them; empty for none."""
    if value.keys() >= {"columns", "data"}:
        return '[dict(zip(o["columns"], row)) for row in o["data"]]'
    sides = [[*s.values()] if isinstance(s, dict) and "0" in s else s for s in value.values()]
    if sides and all(isinstance(s, list) and s and dict not in map(type, s) for s in sides):
        return "[dict(zip(o, r)) for r in zip(*(getattr(s,'values',s.copy)() for s in o.values()))]"
    if not _CASE.isdisjoint(value):
        return "[o]"
    lists = [*_ways_to_rows(value)]
    if _are_objects(sides):
        lists.append((True, '[{"name": name, **row} for name, row in o.items()]'))
    return min(lists, key=itemgetter(0), default=(True, ""))[1]  # the first, or one of cases


def _ways_to_rows(value: Mapping[str, Any]) -> Iterator[tuple[bool, str]]:
    """The lists of objects inside of an object `o`: whether they are no cases, and Python."""
    parts: list[tuple[str, Any]] = [("o", value)]
    for way, part in parts:  # grows while it is read
        if isinstance(part, dict) and way.count("[") < _DEEPEST:
            parts += [(f"{way}[{json.dumps(key)}]", inner) for key, inner in part.items()]
        elif _are_objects(part):
            yield _CASE.isdisjoint(part[0]), way


def _are_objects(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and all(isinstance(row, dict) for row in value)


def _cells(path: Path, delimiter: str) -> Iterator[Record]:
    """Rows of a CSV file with a header; an empty cell is None. Blank rows are skipped.

    Raises InputError for a header that names no columns, and for a quote that nothing closes: what
    comes after it is in no row.
    """
    csv.field_size_limit(sys.maxsize)  # the library's own limit is shorter than a document
    # Bytes that are not UTF-8 become lone surrogates, which are found below, so that they cost one
    # row. A strict decoder would fail inside of a buffer, and nobody would know in which row.
    with open_content(path) as content:
        file = io.TextIOWrapper(content, "utf-8-sig", errors="surrogateescape", newline="")
        lines: list[str] = []  # of the row that is read

        def row_lines() -> Iterator[str]:
            for line in file:
                lines.append(line)
                yield line

        reader = csv.reader(row_lines(), delimiter=delimiter, strict=True)
        header: list[str] | None = None
        damaged = False
        while True:
            lines.clear()
            source = f"{path} line {reader.line_num + 1}"
            try:
                row = next(reader, None)
            except csv.Error as error:
                _require_ended(path, lines, reader.line_num - len(lines) + 1, delimiter)
                damaged, line = True, f"{path} line {reader.line_num}"
                problem = f'a quote inside of a quoted cell must be doubled (""): {error}'
                if header is None:
                    raise InputError(f"{line}: {problem}") from None
                yield Record(line, FlawError(problem))
                continue
            if row is None:
                return
            # A spreadsheet writes empty rows, and empty cells up to its widest row.
            if not any(row) and len(row) != 1:
                continue
            if header is None:
                header = _header(path, source, row)
                continue
            value = _by_column(header, row, "".join(lines), damaged)
            damaged = damaged and isinstance(value, FlawError)
            yield Record(source, value)


def _by_column(header: Sequence[str], row: Sequence[str], text: str, damaged: bool) -> Any:
    """The cells of a row by column, or its flaw; `damaged` if a row before it has a wrong quote."""
    cells = row if any(row[len(header) :]) else row[: len(header)]
    if ' "' in text and any(_LATE_QUOTE.fullmatch(cell) and cell in text for cell in cells):
        # It would be a part of the text, and a delimiter behind it would end the cell.
        return FlawError("a quote that opens a cell must be its first character: remove the blanks")
    if len(cells) != len(header):
        return FlawError(f"{len(cells)} cells, but the header names {len(header)} columns")
    if damaged and text.count('"') % 2:
        return FlawError("it may be the rest of a row with an invalid quote")
    if _FOREIGN.search(text):
        return FlawError(f"not UTF-8; {_UTF_8}")
    if header[1:] and cells[1:] == header[1:] and cells[0].lstrip("\ufeff") == header[0]:
        return FlawError("the header again: remove this line")
    return dict(zip(header, [cell or None for cell in cells], strict=True))


def _require_ended(path: Path, lines: Sequence[str], first: int, delimiter: str) -> None:
    """Raise InputError, with its line, for a quote that swallows lines: nothing ends its cell.

    Line `first` of the file is the first of the `lines`.
    """
    text = "".join(lines)
    cells = re.finditer(rf'(?:^|[\r\n{delimiter}])("[^"]*+(?:""[^"]*+)*+("?))', text)
    for cell in cells:
        closed = cell[2] and text[cell.end() :][:1] in ("", "\r", "\n", delimiter)
        if not closed and (not cell[2] or re.search(r"[\r\n]", cell[1])):
            opening = cell.start(1) + 1
            line = first + sum(end < opening for end in itertools.accumulate(map(len, lines)))
            raise InputError(
                f"{path} line {line}: a quote opens a cell here and nothing closes it, so all that "
                'follows would be in this cell: close it, or double it if it is text ("")'
            )


def _header(path: Path, place: str, cells: Sequence[str]) -> list[str]:
    """The names of the columns; empty ones at the end are no columns."""
    header = list(cells)
    while len(header) > 1 and not header[-1].strip():
        header.pop()
    if _FOREIGN.search("".join(header)):
        raise InputError(
            f"{place}: the header is not UTF-8; {_UTF_8}: iconv -f WINDOWS-1252 -t UTF-8 "
            f"{shlex.quote(str(path))} > {shlex.quote(str(path.with_stem(f'{path.stem}-utf8')))}"
        )
    require_unlike(place, header)
    return header


def name_of(column: Any) -> str:
    """The name of a column that may be a number, or of several levels: `('a', 'b')` is `a.b`."""
    if not isinstance(column, tuple):
        return str(column)
    return ".".join(str(level) for level in column if level != "")


def _frame_rows(frame: Any, names: Sequence[str]) -> Iterator[dict[str, Any]]:
    """Rows of a data frame; what it counts as missing is absent."""
    for start in range(0, len(frame), BATCH):
        part = frame.iloc[start : start + BATCH]
        plain = part.astype(object)
        for row in plain.where(part.notna(), None).itertuples(index=False, name=None):
            yield {
                name: (value.tolist() if hasattr(value, "tolist") else value)
                for name, value in zip(names, row, strict=True)
            }


def suffix_of(path: Path) -> str:
    """The suffix that says how a file is read, in small letters: of `a.csv.gz` it is `.csv`."""
    suffix = path.suffix.lower()
    return Path(path.stem).suffix.lower() if suffix == ".gz" else suffix


@contextmanager
def open_content(path: Path) -> Iterator[IO[bytes]]:
    """The bytes of a file, unpacked if it is called `.gz`; raises InputError for damaged ones."""
    try:
        with path.open("rb") as file:
            packed, size = path.suffix.lower() == ".gz", os.fstat(file.fileno()).st_size
            yield cast("IO[bytes]", gzip.GzipFile(fileobj=file)) if packed else file
            if os.fstat(file.fileno()).st_size < size:
                raise InputError(f"{path} became shorter while it was read: rows are missing")
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise InputError(f"{path} is not a whole gzip file: {error}") from None
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror or error}") from error


def require_rows(path: Path) -> None:
    """Raise InputError for a file that is no table, or whose name is that of another format."""
    suffix = suffix_of(path)
    if path.suffix.lower() == ".parquet":  # its reader says what is wrong
        return
    with open_content(path) as file:
        start = file.read(_LOOKED_AT).removeprefix(b"\xef\xbb\xbf")
    own = suffix if suffix in " ".join(kind[0] for kind in _KINDS).split() else "lines"
    for suffixes, begin, kind in _KINDS:
        match = re.match(begin, start, re.DOTALL | re.MULTILINE)
        if match and (not suffixes or own in suffixes.split()):
            groups = match.groupdict().items()
            raise _foreign(path, kind, **{n: part.decode(errors="replace") for n, part in groups})


def _foreign(path: Path, kind: str, **words: str) -> InputError:
    """The error for a file of another kind, with `words` that it is described by."""
    packed = path.suffix.lower() == ".gz"
    stem = shlex.quote(str((path.with_suffix("") if packed else path).with_suffix("")))
    words |= {"path": shlex.quote(str(path)), "stem": stem, "suffix": suffix_of(path)}
    text = kind.format(**words, cat="zcat" if packed else "cat")
    named = re.sub(r"(call .*\.(?:csv|tsv|jsonl?))$", r"\1" + ".gz" * packed, text)
    return InputError(f"{path} is {named}")
