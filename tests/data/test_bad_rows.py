"""Rows that cannot be read: each costs itself, in a sentence, and no other row."""

from __future__ import annotations

import gzip
import json
import random
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from dagengine import evaluate
from dagengine.data.cases import read_cases
from dagengine.data.json_lines import value_of
from dagengine.data.parquet import ParquetWriter
from dagengine.data.result_rows import RowWriter, read_rows
from dagengine.errors import InputError
from dagengine.metrics import DAGMetric, ExactMatchMetric
from dagengine.metrics.dag import DAG, CodeNode
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
        ("a.zip", b"PK\x03\x04...", "is an archive"),
        ("a.csv", b"name\tinput\na\tb\n", "call the file .tsv"),
        ("a.csv", "input\na\n".encode("utf-16"), "is UTF-16, not UTF-8: save the file as UTF-8"),
        ("a.jsonl", b"PAR1...", "call it .parquet"),
        ("a.csv", b"name;input\na;b\n", "one column, 'name;input'; ',' separates .*, not ';'"),
        (
            "a.csv",
            b"name,input\na,\n",
            "line 2: the field 'input' is missing: its cell is empty",
        ),
        ("a.csv", "input\nGr\xfc\xdfe\n".encode("latin-1"), "not UTF-8; save the file as UTF-8"),
    ],
)
def test_a_file_of_another_kind_is_told_what_to_do(
    tmp_path: Path, name: str, content: bytes, words: str
) -> None:
    path = tmp_path / name
    path.write_bytes(content)
    with pytest.raises(InputError, match=words):
        read_cases(path).check()


@pytest.mark.skipif(sys.platform == "win32", reason="the command is for a shell of Unix")
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
