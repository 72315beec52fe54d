"""`dagengine migrate`: programs of elsewhere with our names."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from dagengine.cli.commands import app
from dagengine.cli.migrate import migrate_source
from dagengine.compat import names as elsewhere

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
from dagengine import assert_test
from deepeval import confident_evaluate
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
    found = migrate_source(BEFORE)
    assert found.source == AFTER
    assert [number for number, _ in found.notes] == [3, 12, 14]
    assert "there is no service" in found.notes[0][1]
    assert "Up to 4.1.10, where 0 was best: write threshold=0.7." in found.notes[1][1]
    assert migrate_source(AFTER).source == AFTER


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
    found = migrate_source(source)
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
    found = migrate_source(
        "from deepeval.metrics.faithfulness import FaithfulnessTemplate\n"
        "from deepeval.metrics.bias.template import BiasTemplate\n"
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
    found = migrate_source(
        "from deepeval.metrics import OfTomorrowMetric\n"
        "case.actual_output = app(case.input)\n"
        "self.actual = 1\n"
    )
    assert [number for number, _ in found.notes] == [1, 2]
    assert "ask it with GEval or a tree" in found.notes[0][1]
    assert "case.model_copy(update={'actual_output': …})" in found.notes[1][1]


def test_metrics_of_ragas_keep_the_names_that_the_program_calls_them_by() -> None:
    found = migrate_source(
        "from ragas import evaluate, SingleTurnSample\n"
        "from ragas.metrics import Faithfulness, FactualCorrectness, LLMContextRecall as Recall\n"
        "metric = FactualCorrectness(llm=judge, mode='recall')\n"
    )
    assert found.source == (
        "from dagengine import evaluate\n"
        "from ragas import SingleTurnSample\n"
        "from dagengine.metrics import FaithfulnessMetric as Faithfulness, FactualCorrectness, "
        "ContextualRecallMetric as Recall\n"
        "metric = FactualCorrectness(llm=judge, mode='recall')\n"
    )
    assert [(number, note.partition(":")[0]) for number, note in found.notes] == [
        (1, "SingleTurnSample"),
        (3, "FactualCorrectness"),
    ]
    exec(found.source.splitlines()[2], {})


def test_metrics_that_are_objects_in_ragas_are_no_modules_of_ours() -> None:
    program = "from ragas.metrics import faithfulness, context_recall, answer_correctness\n"
    found = migrate_source(f"{program}AspectCritic(name='harm', definition='Is it harmful?')\n")
    assert found.source.startswith(program)
    assert [note.partition(":")[::2] for _, note in found.notes] == [
        ("answer_correctness", " claims are compared by FactualCorrectness()"),
        ("context_recall", " a metric is made: ContextualRecallMetric(…)"),
        ("faithfulness", " a metric is made: FaithfulnessMetric(…)"),
        ("definition", " a criterion has its name before its words: "
                       "CriteriaMetric({name: definition})"),
    ]  # fmt: skip


def test_a_file_is_changed_only_when_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    path = Path("program.py")
    path.write_text(BEFORE, encoding="utf-8")
    done = CliRunner().invoke(app, ["migrate", "program.py"])
    assert done.exit_code == 3, done.output
    assert "-import deepeval\n" in done.output
    assert "+import dagengine\n" in done.output
    assert "program.py:12: HallucinationMetric" in done.output
    assert path.read_text(encoding="utf-8") == BEFORE
    done = CliRunner().invoke(app, ["migrate", "program.py", "--write"])
    assert "program.py: written" in done.output
    assert path.read_text(encoding="utf-8") == AFTER


DATED = """\
from deepeval.metrics import BiasMetric, GEval, HallucinationMetric
strict = BiasMetric(0.1, model="m")
loose = HallucinationMetric(threshold=limit)
rated = GEval(name="a", rubric=[])
"""


@pytest.mark.parametrize(
    ("version", "lines"),
    [
        ("4.3.1", []),
        ("4.2.0", []),
        ("4.1.10", ["write threshold=0.9", "write threshold=1 - limit"]),
        ("3.3.6", ["write threshold=0.9", "write threshold=1 - limit", "was divided by 10"]),
        ("4.2", []),
        ("4.2.0rc1", []),
    ],
)
def test_thresholds_turn_round_only_for_versions_in_which_zero_was_best(
    version: str, lines: list[str], tmp_path: Path
) -> None:
    path = tmp_path / "program.py"
    path.write_text(DATED, encoding="utf-8")
    done = CliRunner().invoke(app, ["migrate", str(path), "--deepeval", version])
    notes = [line for line in done.output.splitlines() if line.startswith(f"{path}:")]
    assert len(notes) == len(lines), done.output
    for note, line in zip(notes, lines, strict=True):
        assert line in note
    assert done.exit_code == (3 if lines else 0)


def test_without_a_version_both_directions_are_said(tmp_path: Path) -> None:
    found = migrate_source(DATED)
    assert found.undated
    assert ["4.1.10" in note and "4.2.0" in note for _, note in found.notes[:2]] == [True, True]
    path = tmp_path / "program.py"
    path.write_text(DATED, encoding="utf-8")
    done = CliRunner().invoke(app, ["migrate", str(path), "--deepeval", "latest"])
    assert done.exit_code == 2
    assert "no version" in done.output


def test_the_installed_version_counts(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    place = tmp_path / "deepeval-4.1.2.dist-info"
    place.mkdir()
    (place / "METADATA").write_text("Name: deepeval\nVersion: 4.1.2\n", encoding="utf-8")
    monkeypatch.syspath_prepend(str(tmp_path))
    path = tmp_path / "program.py"
    path.write_text(DATED, encoding="utf-8")
    done = CliRunner().invoke(app, ["migrate", str(path)])
    assert "0 was in deepeval 4.1.2: write threshold=0.9" in done.output


def test_an_import_that_cannot_work_is_never_written() -> None:
    """Every name of the table, from every module that it might be imported from."""
    lines = [
        f"from {module} import {name}"
        for module in elsewhere.HOMES
        for name in {
            **elsewhere.NAMES[module.partition(".")[0]],
            **elsewhere.RENAMED.get(module.partition(".")[0], {}),
        }
    ]
    lines += [f"from {module} import anything" for module in elsewhere.MODULES]
    found = migrate_source("\n".join(lines))
    written = [line for line in found.source.splitlines() if line.startswith("from dagengine")]
    assert len(written) > 20
    exec("\n".join(written), {})
    left = [line for line in found.source.splitlines() if not line.startswith("from dagengine")]
    assert len(left) == len(found.notes)
    assert set(left) <= set(lines)


def test_an_import_of_both_kinds_is_parted_where_it_stands() -> None:
    found = migrate_source(
        "def load():\n"
        "    from deepeval.metrics import (  # some\n"
        "        BiasMetric as B,\n"
        "        TextToImageMetric,\n"
        "    )  # all\n"
        "    return B\n"
        "if load: from deepeval.errors import DeepEvalError as E, SpeechAuthError\r\n"
        "from deepeval.test_run \\\n"
        "    import MetricData\n"
    )
    assert found.source == (
        "def load():\n"
        "    from dagengine.metrics import BiasMetric as B\n"
        "    from deepeval.metrics import TextToImageMetric  # all\n"
        "    return B\n"
        "if load: from dagengine.errors import DagengineError as E; "
        "from deepeval.errors import SpeechAuthError\r\n"
        "from dagengine.results \\\n"
        "    import MetricResult as MetricData\n"
    )


def test_calls_and_texts_that_need_a_decision_are_noted() -> None:
    found = migrate_source(
        "import deepeval\n"
        "import deepeval.tracing\n"
        "evaluate(goldens=[], observed_callback=run, hyperparameters={})\n"
        "load_evaluators([EvaluatorType.QA, 'score_string', 'criteria'])\n"
        "LLMTestCase(input='What is on [DEEPEVAL:IMAGE:1]?', flaky=True)\n"
        "deepeval.login()\n"
        "plot(goldens=1, display=2)\n"
    )
    assert [(number, note.partition(":")[0]) for number, note in found.notes] == [
        (2, "deepeval.tracing"),
        (3, "goldens"),
        (3, "observed_callback"),
        (4, "qa"),
        (4, "score_string"),
        (5, "a picture in a text"),
        (5, "flaky"),
        (6, "login"),
    ]


def test_line_ends_of_a_file_stay_as_they_are(tmp_path: Path) -> None:
    path = tmp_path / "program.py"
    path.write_bytes(b"import deepeval\r\nprint(deepeval)\r\n")
    done = CliRunner().invoke(app, ["migrate", str(path), "--write"])
    assert done.exit_code == 0, done.output
    assert path.read_bytes() == b"import dagengine\r\nprint(dagengine)\r\n"


def test_what_is_no_python_is_refused_with_its_line(tmp_path: Path) -> None:
    path = tmp_path / "program.py"
    path.write_text("from deepeval import (\n", encoding="utf-8")
    done = CliRunner().invoke(app, ["migrate", str(path)])
    assert done.exit_code != 0
    assert "line 1: not valid Python" in str(done.exception)


def test_an_argument_that_its_metric_takes_here_needs_no_decision() -> None:
    source = "ToolUseMetric(available_tools=tools)\nToolCorrectnessMetric(available_tools=tools)\n"
    assert [number for number, _ in migrate_source(source).notes] == [2]
