"""Files of other tools: the names of their columns, and thresholds that mean the other way."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from dagengine import read_cases
from dagengine.cli.commands import app
from dagengine.data.tool_presets import PRESETS
from dagengine.errors import InputError
from dagengine.metrics import BiasMetric, HallucinationMetric, ToxicityMetric
from dagengine.test_case import InvalidCase, LLMTestCase

METRICS = """
from dagengine.metrics import ExactMatchMetric
metric = ExactMatchMetric()
"""


def test_the_columns_of_a_tool_are_fields() -> None:
    row = {"user_input": "q", "response": "a", "reference": "r", "retrieved_contexts": ["c"]}
    (case,) = read_cases([row], preset="ragas")
    assert case == LLMTestCase(
        input="q", actual_output="a", expected_output="r", retrieval_context=["c"]
    )
    (case,) = read_cases([{"question": "q", "ideal": "r", "mine": "a"}], preset="openai",
                         map={"mine": "actual_output"})  # fmt: skip
    assert case == LLMTestCase(input="q", actual_output="a", expected_output="r")


def test_rows_of_health_bench_bring_their_rubrics() -> None:
    rubrics = [{"criterion": "Says to call for help.", "points": 7, "tags": ["axis:accuracy"]}]
    row = {
        "prompt_id": "p1", "prompt": [{"role": "user", "content": "It hurts."}],
        "rubrics": rubrics, "example_tags": ["theme:emergency"], "completion": "Call for help.",
        "ideal_completions_data": {"ideal_completion": "Call now.", "ideal_completions_group": "g"},
        "canary": "c",
    }  # fmt: skip
    (case,) = read_cases([row], preset="healthbench")
    assert isinstance(case, LLMTestCase)
    assert (case.name, case.input, case.actual_output) == ("p1", "It hurts.", "Call for help.")
    assert (case.expected_output, case.tags) == ("Call now.", ["theme:emergency"])
    metadata = {"ideal_completions_group": "g", "rubrics": rubrics}
    assert case.additional_metadata == metadata
    (bare,) = read_cases([{**row, "ideal_completions_data": None}], preset="healthbench")
    assert isinstance(bare, LLMTestCase)
    assert bare.additional_metadata == {"rubrics": rubrics}


def test_rows_of_openais_evaluations_hold_item_and_sample() -> None:
    rows: list[dict[str, Any]] = [
        {
            "item": {"question": "q", "correct_label": "r", "level": 3},
            "sample": {"output_text": "a", "model": "gpt-4o"},
        },
        {
            "object": "eval.run.output_item", "id": "1", "run_id": "2", "eval_id": "3",
            "status": "fail", "created_at": 4, "datasource_item_id": 5, "results": [{"name": "g"}],
            "datasource_item": {"input": "q", "ground_truth": "r"},
            "sample": {"output": [{"role": "assistant", "content": "a"}], "finish_reason": "stop"},
        },
        {"input": [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "q"}],
         "ideal": "r"},
    ]  # fmt: skip
    nested, listed, chat = (read_cases([row], preset="openai").check()[0] for row in rows)
    seen = []
    for case in (nested, listed):
        assert isinstance(case, LLMTestCase)
        assert (case.input, case.actual_output, case.expected_output) == ("q", "a", "r")
        seen.append(case.additional_metadata)
    assert seen == [{"level": 3, "model": "gpt-4o"}, {"finish_reason": "stop"}]
    assert chat == LLMTestCase(input="Be brief.\n\nq", expected_output="r")
    parts = [{"role": "user", "content": [{"type": "input_text", "text": "q"}]}]
    (in_parts,) = read_cases([{"item": {"input": parts}}], preset="openai")
    assert in_parts == LLMTestCase(input="q")
    (own,) = read_cases([{"item": {"ticket": "q"}}], preset="openai", map={"item.ticket": "input"})
    assert own == LLMTestCase(input="q")


def test_rows_of_promptfoos_results_hold_vars_and_a_response() -> None:
    row: dict[str, Any] = {
        "vars": {"question": "q", "language": "en"},
        "prompt": {"raw": "Answer: q", "label": "p"},
        "response": {"output": "a"},
    }
    row |= {"success": True, "score": 1, "latencyMs": 3, "gradingResult": {"pass": True}}
    row |= {"testIdx": 0, "promptIdx": 0, "namedScores": {}, "cost": 0.1, "id": "x"}
    (case,) = read_cases([row], preset="promptfoo")
    assert case == LLMTestCase(input="q", actual_output="a", additional_metadata={"language": "en"})
    tests = [{"question": "q", "__expected": "r", "__description": "first", "__threshold": "0.5"}]
    (case,) = read_cases(tests, preset="promptfoo")
    assert case == LLMTestCase(name="first", input="q", expected_output="r")


@pytest.mark.parametrize(
    ("cell", "reference"),
    [
        ("Paris", "Paris"),
        ("Note: Paris", "Note: Paris"),
        ("python", "python"),
        ("equals: Paris", "Paris"),
        ("similar(0.8): Paris: a city", "Paris: a city"),
        ("factuality:Paris", "Paris"),
    ],
)
def test_a_reference_of_promptfoo_is_the_text_that_an_assertion_compares_with(
    cell: str, reference: str
) -> None:
    (case,) = read_cases([{"question": "q", "__expected": cell}], preset="promptfoo")
    assert case == LLMTestCase(input="q", expected_output=reference)


@pytest.mark.parametrize(
    ("column", "cell", "said"),
    [
        ("__expected", "contains: Paris", "'contains: Paris' is an assertion, not a reference"),
        ("__expected", "not-equals: Paris", "is an assertion"),
        ("__expected", "is-json", "is an assertion"),
        ("__expected", "latency(100)", "is an assertion"),
        ("__expected", "llm-rubric: polite", "is an assertion"),
        ("__prefix", "Be brief. ", "stands around the prompt"),
        ("__expected2", "Paris", "unknown field '__expected2'"),
    ],
)
def test_what_is_no_reference_in_a_table_of_promptfoo_is_refused(
    column: str, cell: str, said: str
) -> None:
    (case,) = read_cases([{"question": "q", column: cell}], preset="promptfoo")
    assert isinstance(case, InvalidCase)
    assert said in case.message
    as_text = {column: "expected_output"}
    (case,) = read_cases([{"question": "q", column: cell}], preset="promptfoo", map=as_text)
    assert case == LLMTestCase(input="q", expected_output=cell)


def test_samples_of_ragas_may_name_what_was_found_by_ids() -> None:
    row = {"user_input": "q", "retrieved_context_ids": ["a"], "rubrics": {"score1": "bad"}}
    (case,) = read_cases([row], preset="ragas")
    metadata = {"retrieved_context_ids": ["a"], "rubrics": {"score1": "bad"}}
    assert case == LLMTestCase(input="q", additional_metadata=metadata)
    (several,) = read_cases([{"user_input": "q", "multi_responses": ["a", "b"]}], preset="ragas")
    assert isinstance(several, InvalidCase)


def test_lists_in_a_table_that_pandas_wrote_are_lists(tmp_path: Path) -> None:
    path = tmp_path / "testset.csv"
    path.write_text(
        "user_input,reference_contexts,reference,synthesizer_name\n"
        "q,\"['Ada''s', 'b']\",r,single_hop\n".replace("''", "", 1),
        encoding="utf-8",
    )
    (case,) = read_cases(path, preset="ragas")
    assert isinstance(case, LLMTestCase)
    assert case.context == ["Adas", "b"]
    assert case.additional_metadata == {"synthesizer_name": "single_hop"}


def test_every_preset_names_fields() -> None:
    for name, (columns, *_) in PRESETS.items():
        fields = {field.partition(".")[0] for field in columns.values() if field}
        assert fields <= set(LLMTestCase.model_fields)
        assert read_cases([{"input": "i"}], preset=name).check() == [LLMTestCase(input="i")]
    with pytest.raises(InputError, match=r"no preset 'ragaz': write .* ragas, promptfoo"):
        read_cases([], preset="ragaz")


def test_a_run_knows_the_columns_of_a_tool(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("metrics.py").write_text(METRICS, encoding="utf-8")
    Path("old.csv").write_text("question,answer,ground_truth\nq,a,a\n", encoding="utf-8")
    words = ["run", "metrics.py", "--data", "old.csv", "--map", "ragas", "--assert"]
    done = CliRunner().invoke(app, words)
    assert done.exit_code == 0, done.output
    done = CliRunner().invoke(app, [*words, "--map", "openai"])
    assert done.exit_code == 2
    assert "names two tools" in done.output


@pytest.mark.parametrize("kind", [HallucinationMetric, BiasMetric, ToxicityMetric])
def test_a_threshold_that_looks_like_a_share_of_faults_is_warned_of(kind: Any) -> None:
    words = "threshold=0.3 lets most answers pass; .* threshold=0.7"
    with pytest.warns(UserWarning, match=words) as warned:
        kind(threshold=0.3)
    assert warned[0].filename == __file__, "of the line that makes the metric"
    for fine in (0.5, 0.7, None):
        kind(threshold=fine)
    kind()
