"""`dagengine migrate`: programs of elsewhere with our names."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from dagengine.cli.commands import app
from dagengine.cli.migrate import migrated

BEFORE = '''\
"""A program."""
import deepeval
from deepeval import assert_test, confident_evaluate
from deepeval.evaluate.configs import AsyncConfig
from deepeval.metrics import (
    HallucinationMetric,
)
from deepeval.models.base_model import DeepEvalBaseLLM
from langchain.evaluation import load_evaluator
from deepeval_helpers import thing

metric = HallucinationMetric(threshold=0.3)  # deepeval counts faults
text = "deepeval stays in a text"
é = deepeval.evaluate; dataset.pull(alias="x")
'''
AFTER = '''\
"""A program."""
import dagengine
from dagengine import assert_test, confident_evaluate
from dagengine import AsyncConfig
from dagengine.metrics import (
    HallucinationMetric,
)
from dagengine.models import DeepEvalBaseLLM
from dagengine.metrics.criteria import load_evaluator
from deepeval_helpers import thing

metric = HallucinationMetric(threshold=0.3)  # deepeval counts faults
text = "deepeval stays in a text"
é = dagengine.evaluate; dataset.pull(alias="x")
'''


def test_imports_and_the_name_of_the_package_change_and_nothing_else() -> None:
    found = migrated(BEFORE)
    assert found.source == AFTER
    assert [number for number, _ in found.notes] == [3, 12, 14]
    assert "there is no service" in found.notes[0][1]
    assert "write 1 - threshold" in found.notes[1][1]
    assert migrated(AFTER).source == AFTER


def test_what_has_no_counterpart_is_left_alone_and_named() -> None:
    source = (
        "import deepeval\n"
        "from deepeval.tracing import observe\n"
        "from deepeval.benchmarks import MMLU\n"
        "dataset.pull('mine')\n"
        "for golden in dataset.evals_iterator(metrics=[]):\n"
        "    deepeval.evaluate([], metric_collection='mine')\n"
        "@deepeval.log_hyperparameters(model='m')\n"
        "def hyper(): ...\n"
        "words.pull()\n"
    )
    found = migrated(source)
    lines = found.source.splitlines()
    assert lines[0] == "import dagengine"
    assert lines[1:3] == source.splitlines()[1:3]
    assert [(number, note.partition(":")[0]) for number, note in found.notes] == [
        (2, "deepeval.tracing"),
        (3, "deepeval.benchmarks"),
        (4, "pull"),
        (5, "evals_iterator"),
        (6, "metric_collection"),
        (7, "log_hyperparameters"),
    ]


def test_names_are_found_in_modules_of_the_same_path_and_under_ours() -> None:
    found = migrated(
        "from deepeval.metrics.faithfulness import FaithfulnessTemplate\n"
        "from deepeval.errors import MissingTestCaseParamsError, DeepEvalError\n"
        "from deepeval.evaluate.types import EvaluationResult, TestResult\n"
        "from deepeval.test_run import MetricData\n"
        "import deepeval\n"
        "case = deepeval.test_case.LLMTestCase(input='a')\n"
    )
    assert found.notes == []
    names: dict[str, object] = {}
    exec(found.source, names)
    assert {"DeepEvalError", "TestResult", "MetricData", "case"} <= set(names)


def test_what_a_case_is_filled_with_later_and_absent_metrics_are_noted() -> None:
    found = migrated(
        "from deepeval.metrics import PlanQualityMetric\n"
        "case.actual_output = app(case.input)\n"
        "self.actual = 1\n"
    )
    assert [number for number, _ in found.notes] == [1, 2]
    assert "ask it with GEval or a tree" in found.notes[0][1]
    assert "case.model_copy(update={'actual_output': …})" in found.notes[1][1]


def test_metrics_of_ragas_keep_the_names_that_the_program_calls_them_by() -> None:
    found = migrated(
        "from ragas import evaluate, SingleTurnSample\n"
        "from ragas.metrics import Faithfulness, FactualCorrectness, LLMContextRecall as Recall\n"
        "metric = FactualCorrectness(llm=judge, mode='recall')\n"
    )
    assert found.source == (
        "from dagengine import evaluate, SingleTurnSample\n"
        "from dagengine.metrics import FaithfulnessMetric as Faithfulness, FactualCorrectness, "
        "ContextualRecallMetric as Recall\n"
        "metric = FactualCorrectness(llm=judge, mode='recall')\n"
    )
    assert [(number, note.partition(":")[0]) for number, note in found.notes] == [
        (1, "SingleTurnSample"),
        (3, "FactualCorrectness"),
    ]
    exec(found.source.splitlines()[1], {})


def test_a_file_is_changed_only_when_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    path = Path("program.py")
    path.write_text(BEFORE, encoding="utf-8")
    done = CliRunner().invoke(app, ["migrate", "program.py"])
    assert done.exit_code == 0, done.output
    assert "-import deepeval\n" in done.output
    assert "+import dagengine\n" in done.output
    assert "program.py:12: HallucinationMetric" in done.output
    assert path.read_text(encoding="utf-8") == BEFORE
    done = CliRunner().invoke(app, ["migrate", "program.py", "--write"])
    assert "program.py: written" in done.output
    assert path.read_text(encoding="utf-8") == AFTER


def test_what_is_no_python_is_refused_with_its_line(tmp_path: Path) -> None:
    path = tmp_path / "program.py"
    path.write_text("from deepeval import (\n", encoding="utf-8")
    done = CliRunner().invoke(app, ["migrate", str(path)])
    assert done.exit_code != 0
    assert "line 1: not valid Python" in str(done.exception)
