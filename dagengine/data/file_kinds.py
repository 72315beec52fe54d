"""What a file is, told by its name and first bytes, and what to do with one that is no table."""

from __future__ import annotations

import gzip
import re
import shlex
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, cast

from dagengine.errors import InputError

_LOOKED_AT = 1 << 16  # bytes at the beginning of a file
_CODE = '\n  {{cat}} {{path}} | python3 -c "import json, sys; {}" > {{stem}}-rows.json'
_RECODE = (
    "not UTF-8: save the file as UTF-8\n"
    "  {{cat}} {{path}} | iconv -f {} -t UTF-8 > {{stem}}-utf8{{suffix}}"
)
_YAML = "YAML: write it as JSON" + _CODE.format(
    "import yaml; json.dump(yaml.safe_load(sys.stdin), sys.stdout, default=str)"
)
_PANDAS = "one object of columns, not of rows" + _CODE.format(
    "import pandas; pandas.read_json(sys.stdin, orient='ORIENT').to_json(sys.stdout, "
    "orient='records')"
)
_ROWS = "one object; its rows are at '{what}'" + _CODE.format(
    "json.dump(json.load(sys.stdin)['{what}'], sys.stdout)"
)
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
    ("", rb"PK\x03\x04|\xd0\xcf\x11\xe0", "an archive or a spreadsheet: save its table as CSV"),
    ("", rb".{257}ustar", "an archive: tar -xf {path}"),
    ("", rb"PAR1", "a Parquet file: call it .parquet"),
    ("", rb"SQLite format", "a database: sqlite3 -csv -header {path} 'SELECT * FROM TABLE'"),
    ("", rb"[\x89\x93%{\\]*(?P<what>ARROW|FEA|Obj|ORC|HDF|NUMPY|PDF|PNG|rtf)\W?", _FORMAT),
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
    (".json", rb'\s*\{\s*"columns"\s*:\s*\[', _PANDAS.replace("ORIENT", "split")),
    (
        ".json",
        rb'\s*\{\s*"[^"]*"\s*:\s*(?:\{\s*"0"|\[[^]{]*\],\s*"[^"]*"\s*:\s*\[)',
        _PANDAS.replace("ORIENT", "columns"),
    ),
    (".json", rb'\s*\{.*?"(?!turns|tools|expected_t)(?P<what>\w+)"\s*:\s*\[\s*\{', _ROWS),
)


def suffix_of(path: Path) -> str:
    """The suffix that says how a file is read, in small letters: of `a.csv.gz` it is `.csv`."""
    suffix = path.suffix.lower()
    return Path(path.stem).suffix.lower() if suffix == ".gz" else suffix


@contextmanager
def open_content(path: Path) -> Iterator[IO[bytes]]:
    """The bytes of a file, unpacked if it is called `.gz`; raises InputError for damaged ones."""
    try:
        with path.open("rb") as file:
            packed = path.suffix.lower() == ".gz"
            yield cast("IO[bytes]", gzip.GzipFile(fileobj=file)) if packed else file
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise InputError(f"{path} is not a whole gzip file: {error}") from None


def require_rows(path: Path) -> None:
    """Raise InputError for a file that is no table or list of rows, or has the name of another."""
    suffix, packed = suffix_of(path), path.suffix.lower() == ".gz"
    if path.suffix.lower() == ".parquet":  # its reader says what is wrong
        return
    with open_content(path) as file:
        start = file.read(_LOOKED_AT).removeprefix(b"\xef\xbb\xbf")
    stem = (path.with_suffix("") if packed else path).with_suffix("")
    words = {"path": shlex.quote(str(path)), "stem": shlex.quote(str(stem)), "suffix": suffix}
    words["cat"] = "zcat" if packed else "cat"
    own = suffix if suffix in " ".join(kind[0] for kind in _KINDS).split() else "lines"
    for suffixes, begin, kind in _KINDS:
        match = re.match(begin, start, re.DOTALL | re.MULTILINE)
        if match and (not suffixes or own in suffixes.split()):
            words |= {
                name: part.decode(errors="replace") for name, part in match.groupdict().items()
            }
            raise InputError(f"{path} is {kind.format(**words)}")
