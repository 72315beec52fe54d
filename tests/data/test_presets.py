"""Files of other tools: the names of their columns, and thresholds that mean the other way."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from dagengine import read_cases
from dagengine.cli.commands import app
from dagengine.data.presets import PRESETS
from dagengine.errors import InputError
from dagengine.metrics import BiasMetric, HallucinationMetric, ToxicityMetric
from dagengine.test_case import LLMTestCase

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


def test_every_preset_names_fields() -> None:
    for name, columns in PRESETS.items():
        assert set(columns.values()) <= set(LLMTestCase.model_fields)
        assert read_cases([{"input": "i"}], preset=name).check() == [LLMTestCase(input="i")]
    with pytest.raises(InputError, match="no preset 'ragaz'; there are ragas, promptfoo"):
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
    with pytest.warns(UserWarning, match="threshold=0.3 lets most answers pass; .* is 0.7 here"):
        kind(threshold=0.3)
    for fine in (0.5, 0.7, None):
        kind(threshold=fine)
    kind()
