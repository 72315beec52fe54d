"""Rows that cannot be read: each costs itself, in a sentence, and no other row."""

from __future__ import annotations

import csv
import gzip
import json
import random
import shlex
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dagengine import evaluate
from dagengine.attacking.attack_texts import read_attacks
from dagengine.data.cases import read_cases
from dagengine.data.parquet import ParquetWriter
from dagengine.data.result_files import RowWriter, read_rows
from dagengine.data.written_lines import value_of
from dagengine.errors import InputError
from dagengine.metrics import DAGMetric, ExactMatchMetric
from dagengine.metrics.dag import DAG, CodeNode
from dagengine.reliability.human_labels import HumanLabels
from dagengine.reliability.verdict_cases import read_verdicts
from dagengine.test_case import InvalidCase, LLMTestCase

LONG = "7" * 5000
GOOD = b'{"input": "a", "actual_output": "a", "expected_output": "a"}'
# What stands in a line, and what is said of it.
BAD_LINES = {
    b'{"input": %s}' % LONG.encode(): "an integer of 5000 digits is too long",
    b'{"input": "a", "additional_metadata": {"n": [-%s]}}' % LONG.encode(): "5000 digits",
    b"[" * 100_000 + b"]" * 100_000: "nested too deeply",
    b'{"input": ' + b'{"a": ' * 100_000: "nested too deeply",
    b'{"input": "Gr\xfc\xdfe"}': "not UTF-8 (byte 14 of the line)",
    b'{"input": "\xed\xa0\x80"}': "not UTF-8",
    b'{"input": "a\x00b"}': "not JSON: Invalid control character",
    b"\x00" * 1000: "not JSON",
    b'{"input": NaN}': "NaN is not a JSON value; write null",
    b'{"input": "a", "token_cost": -Infinity}': "-Infinity is not a JSON value",
    b'{"input": "a", "input": "b"}': "the key 'input' is there twice",
    b'{"input": "a", "additional_metadata": {"k": 1, "l": {"k": 1, "k": 2}}}': "the key 'k' is",
    b'{"input": "a"': "not JSON: Expecting ',' delimiter at column 14",
    b'{"input": "a"}{"input": "b"}': "not JSON: Extra data",
    b'\xff\xfe{\x00"\x00': "not UTF-8",
    b'"input"': "str is neither",
    b"3": "int is neither",
    b"{}": "the field 'input' is missing",
    b"x" * 10**7: "not JSON",
}


def messages(path: Path) -> list[str]:
    return [case.message for case in read_cases(path) if isinstance(case, InvalidCase)]


@pytest.mark.parametrize("line", BAD_LINES, ids=list(BAD_LINES.values()))
def test_a_bad_line_is_one_invalid_case_that_says_why(tmp_path: Path, line: bytes) -> None:
    path = tmp_path / "a.jsonl"
    path.write_bytes(b"\n".join([GOOD, line, GOOD]))
    cases = read_cases(path)
    before, bad, after = cases
    assert before == after == LLMTestCase(input="a", actual_output="a", expected_output="a")
    assert isinstance(bad, InvalidCase)
    assert BAD_LINES[line] in bad.message
    assert len(bad.message) < 1000
    assert bad.name == f"{path} line 2"
    assert cases.count() == 3


def test_rows_after_a_bad_one_are_judged(tmp_path: Path) -> None:
    path, bad = tmp_path / "a.jsonl", list(BAD_LINES)[:4]
    path.write_bytes(b"\n".join([GOOD] * 1000 + bad + [GOOD]))
    result = evaluate(str(path), [ExactMatchMetric()], show=False)
    assert [row.metrics[0].outcome for row in result[1000:]] == ["invalid_case"] * 4 + ["ok"]


def test_the_items_of_a_json_array_are_bad_one_by_one(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    flawed = [b'{"input": %s}' % LONG.encode(), b'{"input": NaN}', b'{"input": "a", "input": "b"}']
    path.write_bytes(b"[%s]" % b", ".join([GOOD, *flawed, b"[NaN]", GOOD]))
    assert len(list(read_cases(path))) == 6
    told = messages(path)
    assert [words for words in ("5000 digits", "NaN is not", "there twice") if words in str(told)]
    assert len(told) == 4


@pytest.mark.parametrize(
    "text", ["[" * 100_000, "NaN", LONG, '["a", ', '{"a": 1, "a": 2}', "\\ud800["]
)
def test_an_array_that_is_none_is_an_input_error(tmp_path: Path, text: str) -> None:
    path = tmp_path / "a.json"
    path.write_text(text)
    with pytest.raises(InputError, match=r"a\.json is not one JSON array: "):
        list(read_cases(path))


def test_cells_of_csv_are_read_as_strictly(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    cells = [f"[{LONG}]", "[NaN]", '[{""a"": 1, ""a"": 2}]', "[" * 100_000, "no list", '[""b""]']
    path.write_text("input,context\n" + "".join(f'a,"{cell}"\n' for cell in cells))
    told = messages(path)
    assert len(told) == 5
    for words, message in zip(
        ("5000 digits", "NaN", "is there twice", "too deeply"), told, strict=False
    ):
        assert words in message
        assert message.startswith("column 'context' is text, but its field needs a list or object")


def test_cells_of_parquet_are_read_as_strictly(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    writer = ParquetWriter(path, [("input", "string"), ("context", "string")])
    for cell in (f"[{LONG}]", "[NaN]", '["b"]'):
        writer.write({"input": "a", "context": cell})
    writer.close()
    assert len(list(read_cases(path))) == 3
    assert ["digits" in message for message in messages(path)] == [True, False]


def test_text_that_is_no_utf8_in_parquet_costs_its_row_only(tmp_path: Path) -> None:
    arrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    raw = arrow.array([b"a", b"\xff\xfe", b"c"], arrow.binary())
    table = arrow.table({"input": arrow.Array.from_buffers(arrow.string(), 3, raw.buffers())})
    parquet.write_table(table, tmp_path / "a.parquet")
    first, bad, last = read_cases(tmp_path / "a.parquet")
    assert (first, last) == (LLMTestCase(input="a"), LLMTestCase(input="c"))
    assert isinstance(bad, InvalidCase)
    assert "cannot be read" in bad.message


def test_a_map_of_parquet_is_an_object_and_a_key_twice_costs_its_row_only(tmp_path: Path) -> None:
    arrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    maps = arrow.array([[("k", 1)], [("k", 2), ("k", 3)]], arrow.map_("string", "int64"))
    table = arrow.table({"input": ["a", "b"], "additional_metadata": maps})
    parquet.write_table(table, tmp_path / "a.parquet")
    first, bad = read_cases(tmp_path / "a.parquet")
    assert first == LLMTestCase(input="a", additional_metadata={"k": 1})
    assert "duplicate key was 'k'" in str(bad)


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("/dev/null", "/dev/null has no test cases"),
        ("/proc/self/mem", "/proc/self/mem cannot be read: Input/output error"),
    ],
)
def test_a_source_that_gives_nothing_is_named(name: str, words: str) -> None:
    if not Path(name).exists():
        pytest.skip(f"there is no {name}")
    with pytest.raises(InputError, match=words):
        list(read_cases(name))


@pytest.mark.parametrize("name", ["a.jsonl", "a.csv", "a.tsv"])
def test_a_file_that_is_cut_while_it_is_read_has_rows_missing(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    line = GOOD if name == "a.jsonl" else b"a" * 100
    path.write_bytes(b"input\n" * (line != GOOD) + (line + b"\n") * 10_000)
    rows = iter(read_cases(path))
    next(rows)
    with path.open("r+b") as file:
        file.truncate(6 * (line != GOOD) + 5_000 * (len(line) + 1))
    with pytest.raises(InputError, match="became shorter while it was read"):
        list(rows)


def mutated(data: bytes, pick: random.Random) -> bytes:
    """The bytes with some of them replaced, removed, doubled or moved; line ends stay."""
    found = bytearray(data)
    for _ in range(pick.randint(1, 8)):
        place = pick.randrange(len(found))
        if found[place] == 0x0A:
            continue
        piece = pick.choice([b'"', b"{", b"[", b"\\", b"\xff", b"\x00", b"NaN", b"9" * 4400, b""])
        found[place : place + pick.randint(0, 2)] = piece.replace(b"\n", b"")
    return bytes(found)


@pytest.mark.parametrize("seed", range(40))
def test_every_row_in_is_a_row_out_whatever_bytes_a_line_holds(tmp_path: Path, seed: int) -> None:
    pick, path = random.Random(seed), tmp_path / "a.jsonl"
    row: dict[str, Any] = {
        "input": "a: é",
        "context": ["b"],
        "additional_metadata": {"n": [1.5, {"k": None}]},
    }
    whole = json.dumps(row).encode()
    damaged = [mutated(whole, pick).replace(b"\n", b" ") or b"x" for _ in range(20)]
    path.write_bytes(
        b"\n".join(line for pair in zip([whole] * 20, damaged, strict=True) for line in pair)
    )
    found = list(read_cases(path))
    assert len(found) == 40
    assert found[::2] == [LLMTestCase(**row)] * 20
    assert all(isinstance(case, LLMTestCase | InvalidCase) for case in found)


def rows_or_input_error(path: Path) -> list[Any]:
    try:
        return list(read_cases(path))
    except InputError as error:
        return [] if path.name in str(error) else [error]


@pytest.mark.parametrize("suffix", [".csv", ".tsv", ".json", ".parquet", ".jsonl"])
def test_damaged_files_of_every_kind_give_rows_or_an_input_error(
    tmp_path: Path, suffix: str
) -> None:
    whole, path = tmp_path / f"whole{suffix}", tmp_path / f"a{suffix}"
    if suffix == ".parquet":
        writer = ParquetWriter(whole, [("input", "string"), ("context", "string")])
        for number in range(50):
            writer.write({"input": f"é {number}", "context": '["a"]'})
        writer.close()
    else:
        mark = "\t" if suffix == ".tsv" else ","
        rows = [f'"é {n}"{mark}"[""a""]"' for n in range(50)]
        items = [{"input": f"é {n}", "context": ["a"]} for n in range(50)]
        table = "\n".join([f"input{mark}context", *rows])
        whole.write_text(json.dumps(items) if suffix.startswith(".js") else table, "utf-8")
    for seed in range(60):
        path.write_bytes(mutated(whole.read_bytes(), random.Random(seed)))
        assert all(isinstance(c, LLMTestCase | InvalidCase) for c in rows_or_input_error(path))


def test_what_a_node_made_is_always_written_and_read_back(tmp_path: Path) -> None:
    made = CodeNode(lambda _: 10**5000, evaluation_params=["input"], name="made")
    score = CodeNode(lambda _: 1.0, inputs=[made], name="score")
    result = evaluate([LLMTestCase(input="a")], [DAGMetric("M", DAG(score))], show=False)
    with RowWriter(tmp_path / "a.jsonl") as rows:
        rows.add(result.rows[0])
    (row,) = read_rows(tmp_path / "a.jsonl")
    assert row.metrics[0].score == 1.0
    assert "int without a text form" in str(row.metrics[0].steps[0].output)


def test_the_limits_of_python_stay_as_they_are(tmp_path: Path) -> None:
    before = sys.get_int_max_str_digits(), sys.getrecursionlimit()
    (tmp_path / "a.jsonl").write_bytes(next(iter(BAD_LINES)))
    list(read_cases(tmp_path / "a.jsonl"))
    assert (sys.get_int_max_str_digits(), sys.getrecursionlimit()) == before


def test_a_row_that_this_python_could_read_may_still_be_nested_too_deeply(tmp_path: Path) -> None:
    nested = "[" * 600 + "]" * 600
    assert json.loads(nested)
    (tmp_path / "a.jsonl").write_text(f'{{"input": "a", "additional_metadata": {{"b": {nested}}}}}')
    (tmp_path / "a.json").write_text(f"[{nested}]")
    assert "nested too deeply" in messages(tmp_path / "a.jsonl")[0]
    with pytest.raises(ValueError, match="nested too deeply"):
        value_of(nested.encode())
    with pytest.raises(InputError, match="nested too deeply"):
        list(read_cases(tmp_path / "a.json"))


def test_an_unknown_column_with_a_long_name_is_named_in_short(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text(json.dumps({"input": "a", "x" * 10**6: 1}))
    (message,) = messages(path)
    assert "unknown field 'xxx" in message
    assert len(message) < 1000


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (
            ExactMatchMetric(),
            "ExactMatchMetric is a metric, not a test case; test cases come first",
        ),
        (LLMTestCase, r"LLMTestCase is a class; create a test case: LLMTestCase\("),
        (object(), "object is neither a test case nor a mapping"),
    ],
)
def test_what_is_no_case_is_told_what_it_is(given: Any, words: str) -> None:
    with pytest.raises(InputError, match=words):
        read_cases([given]).check()
    if type(given) is not object:
        with pytest.raises(InputError, match=words):
            read_cases(given)


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("a.jsonl", gzip.compress(GOOD, mtime=0), "is compressed: unpack it"),
        ("a.csv", gzip.compress(GOOD, mtime=0), "is compressed: unpack it"),
        ("a.xlsx", b"PK\x03\x04...", r"is a spreadsheet: save its table as CSV .*a\.csv"),
        ("a.zip", b"PK\x03\x04...", "is an archive: unzip it"),
        ("a.csv", b"name\tinput\na\tb\n", "call the file .tsv"),
        ("a.csv", "input\na\n".encode("utf-16"), "is UTF-16, not UTF-8: save the file as UTF-8"),
        ("a.jsonl", b"PAR1...", "call it .parquet"),
        ("a.csv", b"name;input\na;b\n", "one column, 'name;input'; ';' separates no cells of .csv"),
        ("a.tsv", b"input;name\na;b\n", "'input;name'; ';' separates no cells of .tsv"),
        ("a.tsv", b"input,name\na,b\n", "call the file .csv"),
        (
            "a.csv",
            b"name,input\na,\n",
            "line 2: the field 'input' is missing: its cell is empty",
        ),
        ("a.csv", "input\nGr\xfc\xdfe\n".encode("latin-1"), "not UTF-8; save the file as UTF-8"),
        ("a.csv", "Gr\xf6\xdfe,input\na,b\n".encode("cp1252"), "header is not UTF-8.*iconv -f WIN"),
        ("a.csv", "input\na\n".encode("utf-32"), r"is UTF-32, not UTF-8(?s:.*)iconv -f UTF-32"),
        ("a.jsonl", GOOD.decode().encode("utf-16-le"), "is UTF-16, not UTF-8"),
        ("a.jsonl", GOOD.decode().encode("utf-16-be"), "iconv -f UTF-16BE"),
        ("a.csv.bz2", b"BZh91AY&SY", "bunzip2 -k"),
        ("a.jsonl.zst", b"\x28\xb5\x2f\xfd.", "zstd -d"),
        ("a.jsonl.xz", b"\xfd7zXZ\x00.", "unxz"),
        ("a.tar.gz", gzip.compress(b"x" * 257 + b"ustar", mtime=0), "is an archive: tar -xf"),
        ("a.csv", b"SQLite format 3\x00", "is a database: sqlite3"),
        ("a.jsonl", b"\x80\x04\x95", "a pickle"),
        ("a.csv", b"%PDF-1.7", "of another format, PDF"),
        ("a.jsonl", b"version https://git-lfs.github.com/spec/v1\noid", "git lfs pull -I"),
        ("a.csv", b"<!DOCTYPE html>\n<table>", "is HTML or XML: .*save it as CSV"),
        ("a.csv", b'{"input": "a"}\n', r"is JSON, not a table: call it .*a\.jsonl"),
        ("a.csv", b'[{"input": "a"}]', r"is JSON, not a table: call it .*a\.json"),
        ("a.json", GOOD + b"\n" + GOOD, r"is JSON lines.*call it .*a\.jsonl"),
        ("a.jsonl", b'[\n{"input": "a"}\n]', r"is one JSON array: call it .*a\.json"),
        ("a.jsonl", b'{\n "input": "a"\n}', "is one JSON object over several lines"),
        ("a.json", b'{"version": 1, "data": [{"input": "a"}]}', r'its rows are o\["data"\]'),
        ("a.json", b'{"error": "not found"}', r"not one JSON array: \{'error'"),
        ("a.json", b'{"data": []}', r"not one JSON array: \{'data': \[\]"),
        ("a.json", b'{"data": [{"input": "a"}, 3]}', "not one JSON array"),
        ("a.json", b"12", "is not one JSON array: 12"),
        ("a.json", '["Gr\xfc\xdfe"]'.encode("cp1252"), r"not UTF-8 \(byte 5\); save the file"),
        ("a.jsonl", b'{"input": "a\tb"}\n', "Invalid control character at column 13"),
        ("a.arrow", b"\xff\xff\xff\xff\x10", "of another format, a stream of Arrow"),
        ("a.gz", gzip.compress(b"input,name\na,\n", mtime=0), r"call it .*a\.csv\.gz$"),
        ("a.json", b'{"input": {"0": "a"}}', "'values',s.copy"),
        ("a.json", b'{"columns": ["input"], "data": [["a"]]}', r'zip\(o\["columns"\], row\)'),
        ("a.yaml", b"- input: a\n", "is YAML: write it as JSON"),
        ("a.jsonl", b"tests:\n  - input: a\n", "is YAML"),
        ("a.txt", b"name,input\na,b\n", r"is a table, not JSON: call it .*a\.csv"),
        ("a.csv", b"sep=;\nname;input\na;b\n", r"'sep=;', is for a spreadsheet(?s:.*)tail -n \+2"),
        ("a.csv.gz", gzip.compress(b"input\na\n", mtime=0)[:-9], "is not a whole gzip file"),
        ("a.csv", b"input,input\na,b\n", "two columns have the same name, 'input'"),
    ],
)
def test_a_file_of_another_kind_is_told_what_to_do(
    tmp_path: Path, name: str, content: bytes, words: str
) -> None:
    path = tmp_path / name
    path.write_bytes(content)
    with pytest.raises(InputError, match=words):
        read_cases(path).check()


UNIX = pytest.mark.skipif(sys.platform == "win32", reason="the command is for a shell of Unix")


@UNIX
@pytest.mark.parametrize(
    ("name", "content", "made"),
    [
        ("a.json", b'{"data": [{"input": "a"}, {"input": "b"}]}', "a-rows.json"),
        (
            "a.json",
            b'{"m": [{"k": 1}], "a": {"b$": [{"input": "a"}, {"input": "b"}]}}',
            "a-rows.json",
        ),
        (
            "a.json",
            b'{"schema": {"fields": [{}, {}, {}]}, "data": [{"input": "a"}, {"input": "b"}]}',
            "a-rows.json",
        ),
        ("a.json", b'{"input": {"0": "a", "1": "b"}}', "a-rows.json"),
        ("a.json", b'{"columns": ["input"], "data": [["a"], ["b"]]}', "a-rows.json"),
        ("a.json", b'{"input": ["a", "b"]}', "a-rows.json"),
        ("a.yaml", b"- input: a\n- input: b\n", "a-rows.json"),
        ("a.csv", b"sep=;\ninput;name\na;\nb;\n", "a-commas.csv"),
        ("a.csv.gz", gzip.compress(b"input;name\na;\nb;\n", mtime=0), "a-commas.csv"),
        ("a.csv.gz", gzip.compress(b"sep=;\ninput;name\na;\nb;\n", mtime=0), "a-commas.csv"),
        ("a.tsv", b"input|name\r\na|\r\nb|\r\n", "a-commas.csv"),
        ("a.csv", "input\na\nb\n".encode("utf-16"), "a-utf8.csv"),
        ("a.jsonl", '{"input": "a"}\n{"input": "b"}'.encode("utf-32-le"), "a-utf8.jsonl"),
    ],
)
def test_the_command_that_is_shown_makes_a_file_that_is_read(
    tmp_path: Path, name: str, content: bytes, made: str
) -> None:
    pytest.importorskip("pandas")
    pytest.importorskip("yaml")
    (tmp_path / name).write_bytes(content)
    with pytest.raises(InputError) as error:
        read_cases(tmp_path / name).check()
    command = str(error.value).splitlines()[-1].replace("python3", shlex.quote(sys.executable))
    subprocess.run(command, shell=True, check=True)
    assert list(read_cases(tmp_path / made)) == [LLMTestCase(input="a"), LLMTestCase(input="b")]


def strict_csv(text: str) -> tuple[list[list[str]], tuple[str, int] | None]:
    """Rows of RFC 4180, read letter by letter, and the first flaw with its line."""
    rows, row, cell = list[list[str]](), list[str](), ""
    line, state, opened = 1, "start", 0
    for char in [*text, ""]:
        if state == "quoted" and char not in ('"', ""):
            cell, line = cell + char, line + (char == "\n")
        elif state == "quoted":
            if not char:
                return rows, ("open", opened)
            state = "after"
        elif char == '"' and state in ("start", "after"):
            cell += '"' if state == "after" else ""
            state, opened = "quoted", line if state == "start" else opened
        elif char in (",", "\n", ""):
            if char or row or cell or state != "start":
                row.append(cell)
            if char != ",":
                rows.append(row if row != [""] or state == "after" else [])
                row = []
            cell, state, line = "", "start", line + (char == "\n")
        elif state == "after":
            return rows, ("doubled", line)
        else:
            cell, state = cell + char, "plain"
    return rows, None


@settings(
    max_examples=300, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(st.text(st.sampled_from('ab,"\n'), max_size=40))
def test_a_table_is_read_as_it_stands_or_refused_with_the_line(tmp_path: Path, body: str) -> None:
    path = tmp_path / "a.csv"
    path.write_text(f"input,name\n{body}")
    rows, flaw = strict_csv(path.read_text())
    if flaw is not None and flaw[0] == "open":
        with pytest.raises(InputError, match=f"line {flaw[1]}: a quote opens a cell here"):
            list(read_cases(path))
        return
    filled = [row for row in rows[1:] if row and (len(row) == 1 or any(row))]
    try:
        cases = list(read_cases(path))
    except InputError:  # without any row, or a quote is open behind an invalid row
        assert flaw is not None or not filled
        return
    if flaw is not None:
        first = next(c for c in cases if isinstance(c, InvalidCase) and "doubled" in c.message)
        assert flaw[0] == "doubled"
        assert first.name == f"{path} line {flaw[1]}"
        return
    for row in filled:
        while len(row) > 2 and not row[-1]:
            row.pop()
    right = [
        LLMTestCase(input=row[0], name=row[1] or None) if len(row) == 2 and row[0] else None
        for row in filled
    ]
    assert [None if isinstance(case, InvalidCase) else case for case in cases] == right


@pytest.mark.parametrize(
    ("rows", "line"),
    [
        ('q1,a\nq2,"Quote starts here\nq3,b\nq4,c\n', 3),
        ('q1,"two\nlines"\nq2,"he said ""no""\n', 4),
        ('q1,"two\nlines","open\nq2,b\n', 3),
        ('q1,"open\nq2,b\nq3,"closed"\n', 2),
        ('q1,"open\rq2,b\rq3,"closed"\r', 2),
        ('q1,"two\nlines","a\nb "c" d"\n', 3),
        ('"open', 2),
    ],
)
@pytest.mark.parametrize("suffix", [".csv", ".csv.gz", ".tsv"])
def test_a_quote_that_nothing_closes_is_refused_with_its_line(
    tmp_path: Path, rows: str, line: int, suffix: str
) -> None:
    path = tmp_path / f"a{suffix}"
    names = [LLMTestCase(input="q", name=name) for name in ("q1", "q2")]
    readers: dict[str, Callable[[], Any]] = {
        "input,name": lambda: list(read_cases(path)),
        "case,label": lambda: HumanLabels(names, path).by_case,
        "text,family": lambda: read_attacks(path),
        "case,verdict": lambda: read_verdicts(path),
    }
    for header, read in readers.items():
        table = f"{header}\n{rows}".replace(",", "\t" if suffix == ".tsv" else ",").encode()
        path.write_bytes(gzip.compress(table) if suffix.endswith("gz") else table)
        with pytest.raises(InputError, match=f"line {line}: a quote opens a cell here"):
            read()


@pytest.mark.parametrize("row", ['"The word "yes" is right"', '"5" screen"'])
def test_a_quote_inside_of_a_cell_is_an_invalid_row_and_not_another_text(
    tmp_path: Path, row: str
) -> None:
    path = tmp_path / "a.csv"
    path.write_text(f'input\n{row}\n"a ""b"""\n5" screen\n')
    bad, doubled, plain = read_cases(path)
    assert "line 2: a quote inside of a quoted cell must be doubled" in str(bad)
    assert [doubled, plain] == [LLMTestCase(input='a "b"'), LLMTestCase(input='5" screen')]


@pytest.mark.parametrize(
    ("row", "words"),
    [
        ('q1, "Yes, I do"', "must be its first character"),
        ('q1,  "Yes"', "must be its first character"),
        ("name,input", "the header again"),
        ("\ufeffname,input", "the header again"),
    ],
)
def test_a_row_that_writers_of_tables_do_not_write_is_invalid(
    tmp_path: Path, row: str, words: str
) -> None:
    path = tmp_path / "a.csv"
    path.write_text(
        f'name,input\n{row}\nq2," ""Yes"", she said"\nq3, 5" screen\nq4, "A" or "B"\n'
        'q5," ""Yes"""\n'
    )
    bad, *good = read_cases(path)
    assert words in str(bad)
    assert [isinstance(case, LLMTestCase) and case.input for case in good] == [
        ' "Yes", she said',
        ' 5" screen',
        ' "A" or "B"',
        ' "Yes"',
    ]


def test_rows_behind_an_invalid_quote_are_not_made_of_its_rest(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text('name,input\nq1,"He said "yes" and\nno, never"\nq2,b\n')
    bad, rest, good = read_cases(path)
    assert isinstance(bad, InvalidCase)
    assert "rest of a row" in str(rest)
    assert good == LLMTestCase(name="q2", input="b")


def test_what_a_spreadsheet_leaves_around_a_table_is_no_row(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text("\n,,,\ninput,name,,\na,b,,\n,,,\nc,d,,,,\ne,,,extra\n")
    first, second, third = read_cases(path)
    assert [first, second] == [LLMTestCase(input="a", name="b"), LLMTestCase(input="c", name="d")]
    assert "line 7: 4 cells, but the header names 2 columns" in str(third)


@pytest.mark.parametrize(
    ("cell", "items"),
    [
        ("['Paris is it.' 'France is in Europe.']", ["Paris is it.", "France is in Europe."]),
        ("['a'\n \"b's\"]", ["a", "b's"]),
        ("['a', 'b']", ["a", "b"]),
        ('"a, b"', ["a, b"]),
        ("['a' 'b', 'c']", "no comma between some of its items"),
        ("['it''s']", "no comma between some of its items"),
        ("['a' ... 'b']", "needs a list or object"),
        ("{'a', 'b'}", "needs a list or object"),
        ("a;b", "--delimiter 'context=;'; --delimiter context= if a cell is one item"),
    ],
)
def test_a_list_that_python_or_numpy_wrote_is_its_items_or_refused(
    tmp_path: Path, cell: str, items: Any
) -> None:
    path = tmp_path / "a.csv"
    with path.open("w", newline="") as file:
        csv.writer(file).writerows([("input", "context"), ("q", cell)])
    (case,) = read_cases(path)
    if isinstance(items, list):
        assert case == LLMTestCase(input="q", context=items)
    else:
        assert items in str(case)
        assert isinstance(case, InvalidCase)


def test_a_number_that_json_has_no_form_for_is_null_in_a_record(tmp_path: Path) -> None:
    arrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    nan = float("nan")
    rows = [{"input": "a", "actual_output": "a", "expected_output": "a", "metadata": {"k": nan}}]
    parquet.write_table(arrow.Table.from_pylist(rows), tmp_path / "a.parquet")
    (case,) = read_cases(tmp_path / "a.parquet")
    assert isinstance(case, LLMTestCase)
    assert case.metadata == {"k": None}
    more = {"k": [nan, {"l": float("inf")}]}
    mine = LLMTestCase.model_validate(rows[0] | {"metadata": more})
    evaluate([mine], [ExactMatchMetric()], show=False, out=tmp_path / "out")
    (line,) = (tmp_path / "out" / "cases.jsonl").read_text().splitlines()
    assert json.loads(line, parse_constant=pytest.fail)["additional_metadata"] == {
        "k": [None, {"l": None}]
    }
    (tmp_path / "a.jsonl").write_text('{"input": "a", "token_cost": 1e999}')
    assert "1e999 is not a JSON value" in messages(tmp_path / "a.jsonl")[0]


def test_columns_of_a_data_frame_may_be_numbers_and_pairs_but_not_twins() -> None:
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame([["q", "a"]], columns=[0, 1])
    assert list(read_cases(frame, map={"0": "input", "1": "actual_output"})) == [
        LLMTestCase(input="q", actual_output="a")
    ]
    pairs = pandas.DataFrame([["q", "n"]], columns=[("inputs", "question"), ("name", "")])
    pairs.columns = pandas.MultiIndex.from_tuples(pairs.columns)
    assert list(read_cases(pairs, map={"inputs.question": "input"})) == [
        LLMTestCase(input="q", name="n")
    ]
    with pytest.raises(InputError, match="the data frame: two columns have the same name, 'input'"):
        read_cases(pandas.DataFrame([["q", "r"]], columns=["input", "input"]))
    with pytest.raises(InputError, match="unknown field '3'"):
        read_cases([{"input": "q", 3: "x"}]).check()
    (twins,) = read_cases([{"1": "q", 1: "r"}], map={"1": "input"})
    assert "two columns have the same name, '1'" in str(twins)


def test_a_parquet_file_with_a_column_twice_is_refused(tmp_path: Path) -> None:
    arrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    table = arrow.Table.from_arrays([arrow.array(["a"]), arrow.array(["b"])], ["input", "input"])
    parquet.write_table(table, tmp_path / "a.parquet")
    with pytest.raises(InputError, match="two columns have the same name"):
        read_cases(tmp_path / "a.parquet").check()


@pytest.mark.parametrize("suffix", [".csv.gz", ".jsonl.gz", ".json.gz", ".tsv.gz"])
def test_a_packed_file_is_read_by_its_inner_suffix(tmp_path: Path, suffix: str) -> None:
    texts = {
        ".csv.gz": "input,name\na,7\n",
        ".tsv.gz": "input\tname\na\t7\n",
        ".jsonl.gz": '{"input": "a", "name": 7}\n',
        ".json.gz": '[{"input": "a", "name": 7.0}]',
    }
    path = tmp_path / f"a{suffix}"
    path.write_bytes(gzip.compress(texts[suffix].encode()))
    cases = read_cases(path)
    assert list(cases) == cases.check() == [LLMTestCase(input="a", name="7")]
    assert cases.count() == 1


@UNIX
def test_the_command_that_is_shown_makes_commas_of_semicolons(tmp_path: Path) -> None:
    path = tmp_path / "my cases.csv"
    path.write_text('name;input\na;"b, or ""c"""\n')
    with pytest.raises(InputError) as error:
        read_cases(path).check()
    command = str(error.value).splitlines()[-1].replace("python3", shlex.quote(sys.executable))
    subprocess.run(command, shell=True, check=True)
    expected = LLMTestCase(name="a", input='b, or "c"')
    assert list(read_cases(tmp_path / "my cases-commas.csv")) == [expected]


@pytest.mark.parametrize(("suffix", "name"), [(".csv", "what, then?"), (".tsv", "what\tthen?")])
def test_the_quoted_name_of_the_only_column_may_contain_the_delimiter(
    tmp_path: Path, suffix: str, name: str
) -> None:
    path = (tmp_path / "a").with_suffix(suffix)
    path.write_text(f'"{name}"\nHi\n')
    assert list(read_cases(path, map={name: "input"})) == [LLMTestCase(input="Hi")]
