"""Data sets in memory, and the published snippets that use one.

The documents stand outside the project: see test_seeds.
"""

from __future__ import annotations

import contextlib
import csv
import json
from pathlib import Path
from typing import Any

import pytest
from programs.snippets import lines_of, run, snippet
from servers.openai_server import OpenAIServer, valid_reply

from dagengine.dataset import EvaluationDataset, Golden
from dagengine.errors import InputError
from dagengine.test_case import LLMTestCase, ToolCall

ROWS: list[dict[str, Any]] = [
    {"query": "a", "actual_output": "b", "expected_output": "c", "id": 1,
     "context": ["d", "e"], "retrieval_context": ["f"]},
    {"query": "g", "actual_output": "h", "expected_output": "i", "id": 2,
     "context": ["j"], "retrieval_context": ["k", "l"]},
]  # fmt: skip


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """`example.json` and `example.csv` in the current folder."""
    (tmp_path / "example.json").write_text(json.dumps(ROWS))
    with (tmp_path / "example.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, ROWS[0])
        writer.writeheader()
        for row in ROWS:
            writer.writerow({k: ";".join(v) if isinstance(v, list) else v for k, v in row.items()})
    monkeypatch.chdir(tmp_path)
    return tmp_path


EXPECTED = [
    LLMTestCase.model_validate({"input" if k == "query" else k: v for k, v in row.items()})
    for row in ({k: v for k, v in row.items() if k != "id"} for row in ROWS)
]


# -- as published --------------------------------------------------------------------------


IMPORT = "from deepeval.dataset import EvaluationDataset"


def test_a_data_set_of_test_cases_is_made_as_published() -> None:
    made = snippet(
        "003",
        "from deepeval.test_case import LLMTestCase",
        "dataset = EvaluationDataset(test_cases=test_cases)",
    )
    first, last = "dataset.test_cases.append(test_case)", "dataset.add_test_case(test_case)"
    names = run(made)
    run(snippet("003", first, last), {**names, "test_case": EXPECTED[0]})
    assert len(list(names["dataset"])) == 4


def test_a_data_set_of_goldens_is_made_as_published(capsys: pytest.CaptureFixture[str]) -> None:
    code = snippet(
        "003", "from deepeval.dataset import EvaluationDataset, Golden", "print(dataset.goldens)"
    )
    names = run(code, {"goldens": [Golden(input="a")]})  # the page leaves the list to the reader
    assert names["dataset"].goldens == [Golden(input="a")]
    assert "Golden(" in capsys.readouterr().out


@pytest.mark.parametrize("form", ["json", "csv"])
def test_data_sets_are_loaded_as_published(files: Path, form: str) -> None:
    lines = lines_of("003")
    call = lines.index(f"dataset.add_test_cases_from_{form}_file(")
    start = max(n for n in range(call) if lines[n] == IMPORT)
    end = lines.index(")", lines.index(f"dataset.add_goldens_from_{form}_file("))
    dataset = run("\n".join(lines[start : end + 1]))["dataset"]
    assert dataset.test_cases == EXPECTED
    assert [golden.input for golden in dataset.goldens] == ["a", "g"]
    # What is not named is read from the columns of the fields' own names.
    assert [golden.expected_output for golden in dataset.goldens] == [
        case.expected_output for case in EXPECTED
    ]


@pytest.mark.filterwarnings("ignore:Hallucination. a score of 1 means no faults:UserWarning")
def test_a_data_set_is_evaluated_as_published(monkeypatch: pytest.MonkeyPatch) -> None:
    code = snippet(
        "003",
        "from deepeval import evaluate",
        "evaluate(dataset, [hallucination_metric, answer_relevancy_metric])",
    )
    assert "test_cases=[...]" in code
    with OpenAIServer(valid_reply) as server:
        monkeypatch.setenv("OPENAI_BASE_URL", server.base_url)
        monkeypatch.setenv("OPENAI_API_KEY", "test")
        run(code.replace("test_cases=[...]", "test_cases=cases"), {"cases": EXPECTED})
        assert len(server.requests) > 0


@pytest.mark.filterwarnings("ignore:Hallucination. a score of 1 means no faults:UserWarning")
def test_a_data_set_parametrizes_a_test_as_published(monkeypatch: pytest.MonkeyPatch) -> None:
    ends: list[Any] = []

    def register(function: Any) -> Any:
        ends.append(function)
        return function

    monkeypatch.setattr("atexit.register", register)
    monkeypatch.delenv("PYTEST_XDIST_TESTRUNUID", raising=False)  # as in a run of one process
    code = snippet("003", "import deepeval", '    print("Test finished!")')
    names = run("import pytest\n" + code)  # as published, this import is missing
    (mark,) = names["test_customer_chatbot"].pytestmark
    assert list(mark.args[1]) == [...]
    assert [function.__name__ for function in ends] == ["function_to_be_called_after_test_run"]
    with OpenAIServer(valid_reply) as server:
        monkeypatch.setenv("OPENAI_BASE_URL", server.base_url)
        monkeypatch.setenv("OPENAI_API_KEY", "test")
        # Whether it passes depends on the server's answers, which are made up.
        with contextlib.suppress(AssertionError):
            names["test_customer_chatbot"](EXPECTED[0])
        assert len(server.requests) > 0


# -- beyond --------------------------------------------------------------------------------


def test_tools_are_named_in_csv_and_written_out_in_json(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("q,tools\na,x;y\n")
    (tmp_path / "a.json").write_text('[{"q": "a", "tools": [{"name": "x"}, {"name": "y"}]}]')
    dataset = EvaluationDataset()
    dataset.add_goldens_from_csv_file(
        tmp_path / "a.csv", input_col_name="q", expected_tools_col_name="tools"
    )
    dataset.add_goldens_from_json_file(
        tmp_path / "a.json", input_key_name="q", expected_tools_key_name="tools"
    )
    first, second = dataset.goldens
    assert first == second
    assert isinstance(first, Golden)
    assert first.expected_tools == [ToolCall(name="x"), ToolCall(name="y")]


def test_a_column_that_is_not_there_is_an_error_with_a_suggestion(files: Path) -> None:
    with pytest.raises(InputError, match=r"no row has a column 'quer' .did you mean 'query'"):
        EvaluationDataset().add_test_cases_from_csv_file("example.csv", input_col_name="quer")


def test_a_row_without_an_input_names_its_place(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text('[{"q": "a"}, {"p": "b"}]')
    with pytest.raises(InputError, match=r"a\.json row 1: the field 'input' is missing"):
        EvaluationDataset().add_goldens_from_json_file(tmp_path / "a.json", input_key_name="q")


def test_a_data_set_is_a_sequence_of_its_test_cases() -> None:
    dataset = EvaluationDataset(EXPECTED)
    dataset.add_golden(Golden(input="x"))
    assert (dataset[1], len(dataset), list(dataset)) == (EXPECTED[1], 2, EXPECTED)
    assert repr(dataset) == "EvaluationDataset(2 test cases, 1 goldens)"


def test_names_of_columns_as_deepeval_writes_them_are_understood(tmp_path: Path) -> None:
    table = tmp_path / "goldens.csv"
    table.write_text('q,note,called,extra\na,b,c,"{""d"": ""e""}"\n', encoding="utf-8")
    dataset = EvaluationDataset()
    dataset.add_goldens_from_csv_file(
        str(table),
        input_col_name="q",
        comments_key_name="note",
        name_key_name="called",
        custom_column_key_values_col_name="extra",
    )
    [golden] = dataset.goldens
    assert (golden.comments, golden.name, golden.metadata) == ("b", "c", {"d": "e"})
    rows = tmp_path / "cases.json"
    rows.write_text('[{"input": "a", "extra": {"d": "e"}}]', encoding="utf-8")
    dataset.add_test_cases_from_json_file(
        str(rows), addtional_metadata_key_name="extra", encoding_type="utf-8"
    )
    assert dataset.test_cases[0].metadata == {"d": "e"}
    with pytest.raises(InputError, match="files are read as UTF-8, not as 'latin-1'"):
        dataset.add_test_cases_from_json_file(str(rows), encoding_type="latin-1")
    with pytest.raises(TypeError, match="there is no argument 'colour_key_name'"):
        dataset.add_test_cases_from_json_file(str(rows), colour_key_name="extra")


@pytest.mark.parametrize("name", ["pull", "push", "queue", "evals_iterator"])
def test_what_a_service_does_elsewhere_says_what_to_do(name: str) -> None:
    with pytest.raises(AttributeError, match=f"{name}.*; "):
        getattr(EvaluationDataset(), name)
