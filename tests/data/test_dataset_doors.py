"""Data sets made of goldens, loaded under any names, and saved."""

from __future__ import annotations

import csv
import json
import sys
from pathlib import Path
from types import ModuleType
from typing import Any, Literal

import pytest
from pydantic import ValidationError

from dagengine import read_cases
from dagengine.dataset import ConversationalGolden, EvaluationDataset, Golden
from dagengine.errors import InputError, MissingExtraError
from dagengine.test_case import ConversationalTestCase, LLMTestCase, ToolCall, Turn

TURNS = [Turn(role="user", content="A flight?"), Turn(role="assistant", content="Here, | two.")]
GOLDENS = [
    Golden(
        input="q; with; signs",
        expected_output="a",
        context=["one; still one", "two"],
        retrieval_context=[],
        expected_tools=[ToolCall(name="search", type="MCP", input_parameters={"n": 1})],
        additional_metadata={"topic": "x"},
        source_file="f.txt",
        name="first",
    ),
    Golden(input="second", comments="hm", context=[], retrieval_context=[], expected_tools=[]),
]
TALKS = [
    ConversationalGolden(scenario="Book a flight", turns=TURNS, context=["Flights"], name="talk")
]


@pytest.mark.parametrize("goldens", [GOLDENS, TALKS], ids=["goldens", "conversations"])
@pytest.mark.parametrize("form", ["json", "csv", "jsonl"])
def test_goldens_are_saved_and_loaded_again_as_they_were(
    form: Literal["json", "csv", "jsonl"], goldens: list[Any], tmp_path: Path
) -> None:
    path = EvaluationDataset(goldens).save_as(form, tmp_path / "new", "mine")
    assert path == str(tmp_path / "new" / f"mine.{form}")
    loaded = EvaluationDataset()
    getattr(loaded, f"add_goldens_from_{form}_file")(path)
    assert loaded.goldens == goldens
    assert list(read_cases(path, goldens=True)) == goldens


def test_a_saved_table_starts_with_the_fields_of_a_golden(tmp_path: Path) -> None:
    path = EvaluationDataset(GOLDENS).save_as("csv", tmp_path)
    with Path(path).open(encoding="utf-8", newline="") as file:
        header, first, _ = csv.reader(file)
    assert header[:2] == ["input", "expected_output"]
    assert first[0] == "q; with; signs"


def test_test_cases_are_saved_as_goldens_when_asked(tmp_path: Path) -> None:
    dataset = EvaluationDataset([LLMTestCase(input="i", actual_output="o", token_cost=0.1)])
    with pytest.raises(InputError, match="No goldens found"):
        dataset.save_as("json", tmp_path)
    path = dataset.save_as("json", tmp_path, include_test_cases=True)
    assert json.loads(Path(path).read_text(encoding="utf-8")) == [
        {"input": "i", "actual_output": "o", "token_cost": 0.1}
    ]
    other: Any = "xml"
    with pytest.raises(InputError, match="saved as json, csv, jsonl, not as 'xml'"):
        dataset.save_as(other, tmp_path, include_test_cases=True)


def test_goldens_given_first_are_filed_as_goldens() -> None:
    case = LLMTestCase(input="i")
    dataset = EvaluationDataset([GOLDENS[0], case], goldens=GOLDENS[1:])
    assert (dataset.goldens, dataset.test_cases) == (GOLDENS, [case])


def test_an_empty_cell_of_a_list_is_an_empty_list(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text("q,context,expected_tools,note\na,,,x\nb,c|d;e,t;u,y\n", encoding="utf-8")
    dataset = EvaluationDataset()
    dataset.add_test_cases_from_csv_file(path, input_col_name="q", tools_called_col_name=None)
    assert [case.context for case in dataset] == [[], ["c", "d;e"]]
    tools = [ToolCall(name="t"), ToolCall(name="u")]
    assert [case.expected_tools for case in dataset] == [[], tools]


def test_a_delimiter_is_used_for_the_column_that_is_named(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text("input,facts\na,c|d;e\n", encoding="utf-8")
    dataset = EvaluationDataset()
    dataset.add_goldens_from_csv_file(path, context_col_name="facts", context_col_delimiter=";")
    assert dataset.goldens == [Golden(input="a", context=["c|d", "e"])]


def test_contexts_of_a_jsonl_file_may_be_texts(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    rows = [{"input": "a", "context": "b|c;d", "tools_called": None}, {"input": "e", "context": []}]
    path.write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    dataset = EvaluationDataset()
    dataset.add_goldens_from_jsonl_file(path)
    dataset.add_goldens_from_jsonl_file(path, context_col_delimiter=";")
    contexts = [golden.context for golden in dataset.goldens]
    assert contexts == [["b", "c;d"], [], ["b|c", "d"], []]


@pytest.mark.parametrize("text", ["", "half \ud83d"])
def test_what_csv_cannot_hold_is_refused_before_a_file_is_written(
    tmp_path: Path, text: str
) -> None:
    goldens = [Golden(input="a"), Golden(name="second", input="b", actual_output=text)]
    with pytest.raises(
        InputError, match=r"case second: its 'actual_output' is .* save it as .jsonl"
    ):
        EvaluationDataset(goldens=goldens).save_as("csv", tmp_path)
    assert list(tmp_path.iterdir()) == []
    path = EvaluationDataset(goldens=goldens).save_as("jsonl", tmp_path)
    assert list(read_cases(path, goldens=True)) == goldens


def test_fields_in_another_spelling_are_not_passed_over(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    row = {"input": "q", "expectedOutput": "r", "retrievalContext": ["c"], "metadata": {"k": 1}}
    path.write_text(json.dumps([{**row, "colour": "red"}]), encoding="utf-8")
    dataset = EvaluationDataset()
    dataset.add_goldens_from_json_file(path)
    assert dataset.goldens == [
        Golden(
            input="q", expected_output="r", retrieval_context=["c"], additional_metadata={"k": 1}
        )
    ]
    (twice,) = read_cases([{**row, "expected_output": "s"}])
    assert "two columns map to the field 'expected_output'" in str(twice)


def test_what_is_null_in_a_turn_says_nothing(tmp_path: Path) -> None:
    turn = {"role": "user", "content": "Hi", "user_id": None, "of_another_tool": None}
    path = tmp_path / "a.json"
    path.write_text(json.dumps([{"scenario": "s", "turns": [turn]}]), encoding="utf-8")
    dataset = EvaluationDataset()
    dataset.add_goldens_from_json_file(path)
    turns = [Turn(role="user", content="Hi")]
    assert dataset.goldens == [ConversationalGolden(scenario="s", turns=turns)]


def test_an_argument_that_names_no_field_is_refused(tmp_path: Path) -> None:
    with pytest.raises(TypeError, match="'contxt_key_name'; did you mean 'context_key_name'"):
        EvaluationDataset().add_test_cases_from_json_file(tmp_path / "a", contxt_key_name="c")


class Split(list[dict[str, Any]]):
    """One split of a data set as its library has it."""

    column_names = ("question", "answer", "input_ids")


ROWS = Split([{"question": "q", "answer": "a", "input_ids": 3}])


@pytest.mark.parametrize("given", ["a/name", {"train": ROWS, "test": Split()}, ROWS])
def test_a_hugging_face_data_set_is_loaded_by_name_and_as_an_object(
    given: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    library: Any = ModuleType("datasets")
    library.load_dataset = {"a/name": {"train": ROWS}}.__getitem__
    monkeypatch.setitem(sys.modules, "datasets", library)
    dataset = EvaluationDataset()
    names = {"input_field_name": "question", "actual_output_field_name": "answer"}
    dataset.add_test_cases_from_hf_dataset(given, **names)
    dataset.add_goldens_from_hf_dataset(given, input_field_name="question")
    assert list(dataset) == [LLMTestCase(input="q", actual_output="a")]
    assert dataset.goldens == [Golden(input="q")]


def test_a_data_set_by_name_needs_its_package_and_a_split(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "datasets", None)
    with pytest.raises(MissingExtraError, match="pip install datasets"):
        EvaluationDataset().add_goldens_from_hf_dataset("a/name", input_field_name="question")
    with pytest.raises(InputError, match="has the splits 'test'; choose one"):
        EvaluationDataset().add_goldens_from_hf_dataset({"test": ROWS})


def test_what_only_a_service_has_is_refused_with_the_way_to_go() -> None:
    with pytest.raises(AttributeError, match="stays on your machine; a data set"):
        getattr(EvaluationDataset(), "pull")(alias="My data")  # noqa: B009
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        getattr(EvaluationDataset(), "nonsense")  # noqa: B009


@pytest.mark.parametrize(
    "make",
    [
        lambda **more: LLMTestCase(input="i", **more),
        lambda **more: Golden(input="i", **more),
        lambda **more: Turn(role="user", content="c", **more),
        lambda **more: ConversationalTestCase(turns=TURNS, **more),
    ],
)
def test_metadata_goes_by_either_name(make: Any) -> None:
    short, long = make(metadata={"a": 1}), make(additional_metadata={"a": 1})
    assert short == long
    assert short.metadata == short.additional_metadata == {"a": 1}
    with pytest.raises(ValidationError, match="metadata"):
        make(metadata={"a": 1}, additional_metadata={"a": 1})
    assert list(read_cases([{"input": "i", "metadata": '{"a": 1}'}])) == [
        LLMTestCase(input="i", additional_metadata={"a": 1})
    ]
