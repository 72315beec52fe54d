"""Cases from every kind of source: equal cases, lazily, with the place of what is wrong."""

from __future__ import annotations

import csv
import json
import shlex
import string
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dagengine.data import Cases, ConversationalGolden, Golden, read_cases
from dagengine.data.cases import valid_cases
from dagengine.errors import InputError, MissingExtraError
from dagengine.test_case import (
    ArenaTestCase,
    ConversationalTestCase,
    InvalidCase,
    LLMTestCase,
    ToolCall,
    Turn,
)

QUICK = settings(max_examples=30)


def lines(path: Path, *rows: str) -> Path:
    path.write_text("\n".join(rows), encoding="utf-8")
    return path


def only(source: Any, **options: Any) -> Any:
    (case,) = read_cases(source, **options)
    return case


# -- round trips ---------------------------------------------------------------------------

# An empty cell of a CSV file is an absent one, and Parquet holds no lone surrogates.
words = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), min_size=1)
lists = st.none() | st.lists(words, min_size=1, max_size=3)
tools = st.builds(
    ToolCall,
    name=words,
    input_parameters=st.none() | st.dictionaries(words, st.integers(-9, 9), min_size=1, max_size=2),
)
answers = st.builds(
    LLMTestCase,
    input=words,
    actual_output=st.none() | words,
    context=lists,
    tools_called=st.none() | st.lists(tools, min_size=1, max_size=2),
    additional_metadata=st.none() | st.dictionaries(words, words, min_size=1, max_size=2),
    token_cost=st.none() | st.floats(0, 9),
    name=st.none() | words,
)
turns = st.builds(Turn, role=st.sampled_from(["user", "assistant"]), content=words)
talks = st.builds(
    ConversationalTestCase, turns=st.lists(turns, min_size=1, max_size=3), scenario=words
)
arenas = st.builds(
    lambda question, outputs: ArenaTestCase(
        contestants={
            name: LLMTestCase(input=question, actual_output=output)
            for name, output in outputs.items()
        }
    ),
    words,
    st.dictionaries(words, words, min_size=2, max_size=3),
)
some_cases = st.lists(answers | talks | arenas, min_size=1, max_size=5)


def plain(case: Any) -> dict[str, Any]:
    return dict(case.model_dump(exclude_none=True))


def cells(case: Any) -> dict[str, str]:
    """A case as cells of text: what is no text is JSON."""
    return {
        key: value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
        for key, value in plain(case).items()
    }


@QUICK
@given(some_cases)
def test_cases_survive_json_lines_and_a_json_array(tmp_path: Path, cases: list[Any]) -> None:
    rows = [json.dumps(plain(case), ensure_ascii=False) for case in cases]
    # Only the line feed ends a line; other separators of Unicode may stand inside text.
    (tmp_path / "a.jsonl").write_bytes("\n".join(rows).encode())
    (tmp_path / "a.json").write_bytes(("[" + ",".join(rows) + "]").encode())
    assert list(read_cases(tmp_path / "a.jsonl")) == cases
    assert list(read_cases(tmp_path / "a.json")) == cases


@QUICK
@given(some_cases, st.sampled_from([(".csv", ","), (".tsv", "\t")]))
def test_cases_survive_csv(tmp_path: Path, cases: list[Any], form: tuple[str, str]) -> None:
    path, rows = tmp_path / f"a{form[0]}", [cells(case) for case in cases]
    columns = sorted({key for row in rows for key in row})
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, columns, delimiter=form[1])
        writer.writeheader()
        writer.writerows(rows)
    assert list(read_cases(path)) == cases


@QUICK
@given(some_cases)
def test_cases_survive_parquet(tmp_path: Path, cases: list[Any]) -> None:
    arrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    rows = [cells(case) for case in cases]
    columns = sorted({key for row in rows for key in row})
    table = arrow.Table.from_pydict({key: [row.get(key) for row in rows] for key in columns})
    parquet.write_table(table, tmp_path / "a.parquet")
    source = read_cases(tmp_path / "a.parquet")
    assert list(source) == cases
    assert source.count() == len(cases)


def test_lists_and_turns_of_parquet_need_no_json(tmp_path: Path) -> None:
    arrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    rows = [
        {"turns": [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "ho"}]},
        {"input": "a", "context": ["b", "c"]},
    ]
    parquet.write_table(arrow.Table.from_pylist(rows, arrow.schema([
        ("input", arrow.string()),
        ("context", arrow.list_(arrow.string())),
        ("turns", arrow.list_(arrow.struct([("role", "string"), ("content", "string")]))),
    ])), tmp_path / "a.parquet")  # fmt: skip
    talk, answer = read_cases(tmp_path / "a.parquet")
    assert isinstance(talk, ConversationalTestCase)
    assert answer == LLMTestCase(input="a", context=["b", "c"])


def test_parquet_without_its_library_names_the_extra(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(__import__("sys").modules, "pyarrow.parquet", None)
    with pytest.raises(MissingExtraError, match=r"dagengine\[parquet\]"):
        list(read_cases(lines(tmp_path / "a.parquet", "x")))


def test_a_file_that_is_only_called_parquet_is_refused(tmp_path: Path) -> None:
    pytest.importorskip("pyarrow")
    with pytest.raises(InputError, match="is not a Parquet file"):
        read_cases(lines(tmp_path / "a.parquet", "x")).check()


# -- objects in memory ---------------------------------------------------------------------


def test_dicts_and_cases_may_be_mixed() -> None:
    case = LLMTestCase(input="b")
    turns = [{"role": "user", "content": "c"}]
    found = read_cases([{"input": "a", "context": None}, case, {"turns": turns}])
    talk = ConversationalTestCase.model_validate({"turns": turns})
    assert list(found) == [LLMTestCase(input="a"), case, talk]


def test_a_data_frame_is_read_with_what_is_missing_left_out() -> None:
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame(
        {"q": ["a", "b"], "token_cost": [0.5, float("nan")], "context": [["x"], None]}
    )
    found = read_cases(frame, map={"q": "input"})
    first = LLMTestCase(input="a", token_cost=0.5, context=["x"])
    assert list(found) == [first, LLMTestCase(input="b")]
    assert isinstance(found, Cases)
    assert found.count() == 2


@pytest.mark.parametrize("blank", ["", "  ", None])
@pytest.mark.parametrize("ending", ["csv", "jsonl", "parquet"])
def test_a_column_without_values_leaves_its_field_out(
    tmp_path: Path, ending: str, blank: str | None
) -> None:
    path = tmp_path / f"cases.{ending}"
    optional = (*("token_cost", "input_token_count", "completion_time", "spans"), "tools_called")
    rows = [{"input": "a"} | dict.fromkeys(optional, blank) for _ in "ab"]
    if ending == "csv":
        head, cells = ",".join(rows[0]), "a" + f",{blank or ''}" * len(optional)
        path.write_text(f"{head}\n{cells}\n{cells}\n")
    elif ending == "jsonl":
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    else:
        arrow = pytest.importorskip("pyarrow")
        pytest.importorskip("pyarrow.parquet").write_table(arrow.Table.from_pylist(rows), path)
    for case in read_cases(path):
        assert isinstance(case, LLMTestCase)
        assert not case.model_dump(exclude_none=True, exclude={"input", "tools_called"})
        assert not case.tools_called


class _Batch:
    def __init__(self, rows: list[dict[str, Any]]) -> None:
        self.to_pylist = lambda maps_as_pydicts: rows


class _DataSet:
    """What is used of a Hugging Face data set."""

    def __init__(self, rows: list[dict[str, Any]]) -> None:
        self.rows, self.formats, self.batches = rows, list[str](), 0

    def __len__(self) -> int:
        return len(self.rows)

    def with_format(self, form: str) -> _DataSet:
        self.formats.append(form)
        return self

    def __iter__(self) -> Iterator[dict[str, Any]]:
        raise AssertionError("row by row it is ten times slower")

    def iter(self, batch_size: int) -> Iterator[_Batch]:
        for start in range(0, len(self.rows), batch_size):
            self.batches += 1
            yield _Batch(self.rows[start : start + batch_size])


def test_a_hugging_face_data_set_is_read_batch_by_batch_as_arrow() -> None:
    source = _DataSet([{"question": f"q{n}", "id": n} for n in range(10_000)])
    found = read_cases(source, map={"question": "input", "id": None})
    assert list(islice(found, 2)) == [LLMTestCase(input="q0"), LLMTestCase(input="q1")]
    assert (source.formats, source.batches) == (["arrow"], 1)
    assert isinstance(found, Cases)
    assert found.count() == 10_000


def test_a_real_hugging_face_data_set_is_read() -> None:
    datasets = pytest.importorskip("datasets")
    source = datasets.Dataset.from_dict({"input": ["a", "b"], "context": [["x"], None]})
    found = list(read_cases(source))
    assert found == [LLMTestCase(input="a", context=["x"]), LLMTestCase(input="b")]


def test_an_iterable_is_read_only_as_far_as_it_is_used() -> None:
    read: list[int] = []

    def rows() -> Iterator[dict[str, str]]:
        for number in range(100):
            read.append(number)
            yield {"input": str(number)}

    found = read_cases(rows())
    assert isinstance(found, Cases)
    assert found.check() == []  # a second look would lose rows
    assert len(list(islice(found, 3))) == 3
    assert read == [0, 1, 2]


@pytest.mark.parametrize("source", [7, {"input": "a"}, LLMTestCase(input="a"), Golden(input="a")])
def test_what_holds_no_cases_is_refused(source: Any) -> None:
    with pytest.raises(InputError, match=r"list of test cases|cannot read cases"):
        read_cases(source)


# -- columns -------------------------------------------------------------------------------


def test_lists_of_a_csv_file_are_json_or_split_at_their_delimiter(tmp_path: Path) -> None:
    path = lines(
        tmp_path / "a.csv", "q,context,tags,expected_tools", 'a,x; y,"[""b;c""]",search;book'
    )
    case = only(path, map={"q": "input"}, delimiters={"context": ";", "expected_tools": ";"})
    assert case.context == ["x", "y"]
    assert case.tags == ["b;c"]
    assert case.expected_tools == [ToolCall(name="search"), ToolCall(name="book")]


def test_text_where_a_list_belongs_is_an_error_that_says_what_to_do(tmp_path: Path) -> None:
    path = lines(tmp_path / "a.csv", "input,context", "a,x and y")
    assert "a.csv line 2: column 'context'" in str(only(path))
    assert "delimiter" in str(only(path))


def test_an_unknown_column_is_an_error_with_a_suggestion_and_a_way_out(tmp_path: Path) -> None:
    path = lines(tmp_path / "a.csv", "input,actual_ouput,notes", "a,b,c")
    with pytest.raises(InputError) as error:
        read_cases(path).check()
    said = str(error.value)
    for words in ("line 2", "'actual_ouput' (did you mean 'actual_output'?)", "--map notes="):
        assert words in said
    renamed = only(path, map={"actual_ouput": "actual_output", "notes": ""})
    assert renamed == LLMTestCase(input="a", actual_output="b")


def test_a_first_table_is_told_its_fields_once_and_how_to_read_it(tmp_path: Path) -> None:
    header = "Case ID,question,model answer,gold answer,passages,my notes,question 2"
    path = lines(tmp_path / "a.csv", header, 'one,q,a,g,"[""p""]",n,r')
    with pytest.raises(InputError) as error:
        read_cases(path).check()
    problem, known, guess = str(error.value).splitlines()
    assert "the field 'input' is missing; unknown fields 'Case ID', 'question'" in problem
    assert known.count("expected_output") == 1
    options = shlex.split(guess.partition("column): ")[2])
    mapping = dict(pair.split("=") for pair in options if pair != "--map")
    assert only(path, map=mapping) == LLMTestCase(
        name="one", input="q", actual_output="a", expected_output="g", retrieval_context=["p"]
    )
    assert len(str(error.value)) < 800


def test_a_table_of_many_columns_is_told_in_short(tmp_path: Path) -> None:
    columns = [f"column {number}" for number in range(500)]
    said = str(only(lines(tmp_path / "a.csv", ",".join(columns), ",".join("x" * 500))))
    assert "and 488 more" in said
    assert len(said) < 1000


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"map": {"questoin": "input"}}, "no row has a column 'questoin' .did you mean 'question'"),
        ({"delimiters": {"contxt": ";"}}, "no row has a column 'contxt'"),
        ({"map": {"input": "question"}}, "'question' is not a field .*: --map question=input"),
        ({"map": {"name": "context"}}, "no row has a column 'name'; .*: --map context=name"),
        ({"map": {"question": "inptu"}}, "'inptu' is not a field of a case .did you mean 'input'"),
        (
            {"map": {"question": "input", "context": "input"}},
            "two columns map to the field 'input'",
        ),
    ],
)
def test_a_mapping_that_cannot_be_meant_is_refused_beforehand(
    tmp_path: Path, options: dict[str, Any], words: str
) -> None:
    path = lines(tmp_path / "a.csv", "question,context", "a,b")
    with pytest.raises(InputError, match=words):
        read_cases(path, **options).check()


def test_goldens_are_read_from_the_same_files(tmp_path: Path) -> None:
    path = lines(tmp_path / "a.jsonl", '{"input": "a"}', '{"scenario": "b", "turns": null}')
    found = list(read_cases(path, goldens=True))
    assert found == [Golden(input="a"), ConversationalGolden(scenario="b")]


# -- places of what is wrong ---------------------------------------------------------------


def test_a_bad_line_is_one_invalid_case_and_the_others_are_read(tmp_path: Path) -> None:
    rows = ['{"input": "a"}', "", "{broken", '{"input": 1}', "[1]", '{"input": "b"}']
    found = list(read_cases(lines(tmp_path / "a.jsonl", *rows)))
    bad = [case for case in found if isinstance(case, InvalidCase)]
    assert [case.name.rpartition(" ")[2] for case in bad] == ["3", "4", "5"]
    assert "not JSON" in bad[0].message
    assert "'input' must be a string, got 1" in bad[1].message
    assert "list is neither" in bad[2].message
    assert len(found) == 5


def test_csv_places_are_physical_lines(tmp_path: Path) -> None:
    rows = ["input,name", '"one', 'two",n', "", "short", '"a,b",n,more']
    first, *bad = read_cases(lines(tmp_path / "a.csv", *rows))
    assert first == LLMTestCase(input="one\ntwo", name="n")
    assert [str(case).partition("a.csv ")[2] for case in bad] == [
        "line 5: 1 cells, but the header names 2 columns",
        "line 6: 3 cells, but the header names 2 columns",
    ]


def test_long_cells_and_bytes_that_are_no_text_cost_their_row_only(tmp_path: Path) -> None:
    path, long = tmp_path / "a.csv", "x" * 200_000
    path.write_bytes(b"\xef\xbb\xbfinput\n" + long.encode() + b"\nGr\xfc\xdfe\nlast\n")
    first, second, third = read_cases(path)
    assert first == LLMTestCase(input=long)
    assert str(second) == f"{path} line 3: not UTF-8; save the file as UTF-8"
    assert third == LLMTestCase(input="last")


def test_lone_surrogates_and_a_mark_of_the_byte_order_are_read(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_bytes(b'\xef\xbb\xbf{"input": "a"}\n{"input": "\\ud800"}')
    assert [case.message for case in read_cases(path) if isinstance(case, InvalidCase)] == []
    assert list(valid_cases(read_cases(path))) == [
        LLMTestCase(input="a"),
        LLMTestCase(input="\ud800"),
    ]


@pytest.mark.parametrize(
    ("name", "text", "words"),
    [
        ("a.json", '{"input": "a"}', r"one object o, no array; its rows are \[o\]"),
        ("a.json", '{"input": "a"}\n{"input": "b"}', "is not one JSON array"),
        ("a.jsonl", " \n", "has no test cases"),
        ("a.csv", "input\n", "has no test cases"),
        ("a.csv", "input,input\na,b", "same name"),
        ("a.jsonl", '[{"input": "a"}]', "is one JSON array: call it .*a.json"),
    ],
)
def test_a_file_without_cases_is_refused_beforehand(
    tmp_path: Path, name: str, text: str, words: str
) -> None:
    with pytest.raises(InputError, match=words):
        read_cases(lines(tmp_path / name, text)).check()


def test_loading_a_whole_file_stops_at_its_first_bad_line(tmp_path: Path) -> None:
    good = ['{"input": "a"}'] * 1500
    assert len(list(valid_cases(read_cases(lines(tmp_path / "a.jsonl", *good))))) == 1500
    with pytest.raises(InputError, match="line 1501: the field 'input' is missing"):
        list(valid_cases(read_cases(lines(tmp_path / "a.jsonl", *good, "{}"))))


@given(st.text(string.printable, max_size=40))
@QUICK
def test_any_text_gives_cases_or_messages_and_never_raises(tmp_path: Path, text: str) -> None:
    for name in ("a.jsonl", "a.csv"):
        (tmp_path / name).write_text(text, encoding="utf-8")
        try:
            found = list(read_cases(tmp_path / name))
        except InputError:
            continue
        assert all(isinstance(case, LLMTestCase | InvalidCase) for case in found)


def test_a_column_goes_under_a_key_of_an_object(tmp_path: Path) -> None:
    file = tmp_path / "cases.csv"
    file.write_text('input,label,additional_metadata\nq,yes,"{""topic"": 1}"\n')
    (case,) = read_cases(file, map={"label": "additional_metadata.label"})
    assert isinstance(case, LLMTestCase)
    assert case.additional_metadata == {"topic": 1, "label": "yes"}
    with pytest.raises(InputError, match="not a field of a case"):
        read_cases(file, map={"label": "metadata.label"})
