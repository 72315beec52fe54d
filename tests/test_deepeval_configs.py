"""Settings of a run by the names that deepeval gives them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from servers.openai_server import OpenAIServer

from dagengine import AsyncConfig, CacheConfig, DisplayConfig, ErrorConfig, Limits, evaluate
from dagengine.deepeval_configs import NAMES, STORE, translate_settings
from dagengine.errors import InputError, MetricFailedError
from dagengine.judges import OpenAIJudge, ScriptedJudge
from dagengine.metrics import DAGMetric
from dagengine.metrics.dag import DAG, BinaryJudgementNode
from dagengine.models import DeepEvalBaseLLM
from dagengine.question import Usage
from dagengine.record import load_run
from dagengine.test_case import LLMTestCase

CASES = [LLMTestCase(input="a", actual_output="b"), LLMTestCase(input="c")]


def metric() -> DAGMetric:
    good = BinaryJudgementNode("Good?", evaluation_params=["actual_output"], label="good")
    good.add_verdict(True, score=10)
    good.add_verdict(False, score=0)
    return DAGMetric("Good", DAG(good))


def judged(cases: Any = CASES[:1], **settings: Any) -> Any:
    judge = ScriptedJudge({"good": True}, name="toy")
    given: dict[str, Any] = {"model": judge, "show": False, **settings}
    return evaluate(cases, [metric()], **given)


SAME: list[tuple[dict[str, Any], dict[str, Any]]] = [
    ({"async_config": AsyncConfig(max_concurrent=3)}, {"limits": Limits(max_in_flight=3)}),
    ({"max_concurrent": 3}, {"limits": Limits(max_in_flight=3)}),
    ({"run_async": False}, {"limits": Limits(max_in_flight=1)}),
    ({"throttle_value": 2}, {"limits": Limits(requests_per_minute=30.0)}),
    ({"use_cache": True}, {"store": STORE}),
    ({"cache_config": CacheConfig(use_cache=True), "store": "mine.db"}, {"store": "mine.db"}),
    ({"cache_config": CacheConfig()}, {}),
    ({"run_async": True, "ignore_errors": True, "write_cache": False}, {}),
]


@pytest.mark.parametrize(("theirs", "ours"), SAME)
def test_their_settings_are_settings_of_ours(theirs: dict[str, Any], ours: dict[str, Any]) -> None:
    assert translate_settings(theirs).settings == ours


@pytest.mark.parametrize(
    ("given", "show"),
    [
        ({"show_indicator": False}, "table"),
        ({"print_results": False}, "progress"),
        ({"display_config": DisplayConfig(show_indicator=False, print_results=False)}, False),
        ({}, True),
    ],
)
def test_bar_and_table_are_shown_as_told(given: dict[str, Any], show: Any) -> None:
    assert translate_settings(given).show == show


REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"max_concurrent": 3, "limits": Limits()}, r"limits=Limits\(max_in_flight=…\)"),
    ({"write_cache": True}, "reads and writes a store"),
    ({"cache_config": CacheConfig(False, True)}, "reads and writes a store"),
    ({"run_async": True, "async_config": AsyncConfig()}, "run_async is given twice"),
    ({"async_config": 20}, "async_config must be a AsyncConfig, got 20"),
]


@pytest.mark.parametrize(("given", "message"), REFUSED)
def test_what_ours_cannot_mean_is_refused(given: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        judged(**given)


def test_a_configuration_refuses_numbers_that_make_no_sense() -> None:
    with pytest.raises(ValueError, match="max_concurrent must be at least 1"):
        AsyncConfig(max_concurrent=0)
    with pytest.raises(ValueError, match="throttle_value must be at least 0"):
        AsyncConfig(throttle_value=-1)


def test_a_misspelt_name_is_still_refused() -> None:
    with pytest.raises(TypeError, match="no argument 'max_concurent'"):
        judged(max_concurent=3)
    assert "max_concurrent" in NAMES


def test_the_table_is_printed_without_the_bar(capsys: pytest.CaptureFixture[str]) -> None:
    judged(show=True, show_indicator=False)
    assert "Good" in capsys.readouterr().out
    judged(show=True, print_results=False)
    assert "Good" not in capsys.readouterr().out


def test_steps_are_printed_of_copies(capsys: pytest.CaptureFixture[str]) -> None:
    own, said = metric(), {"verbose_mode": True}
    given: dict[str, Any] = {"model": ScriptedJudge({"good": True}), "show": False, **said}
    evaluate(CASES[:1], [own], **given)
    assert "good" in capsys.readouterr().out
    assert own.verbose_mode is False


def test_a_cache_is_kept_between_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert judged(use_cache=True).totals.calls == 1
    assert judged(use_cache=True).totals.calls == 0


def test_errors_are_raised_after_the_run_when_they_are_not_to_be_ignored() -> None:
    assert judged(CASES, ignore_errors=True).scores("Good") == [1.0, None]
    with pytest.raises(MetricFailedError, match="case 1") as caught:
        judged(CASES, error_config=ErrorConfig())
    result: Any = caught.value.result
    assert result.scores("Good") == [1.0, None]
    skipping = ErrorConfig(ignore_errors=False, skip_on_missing_params=True)
    assert judged(CASES, error_config=skipping).scores("Good") == [1.0, None]


def test_rows_are_test_results_with_the_data_of_their_metrics() -> None:
    done = judged(CASES)
    good, bad = done.test_results
    assert (good.name, good.success, bad.success) == ("case 0", True, False)
    (data,) = good.metrics_data
    assert (data.name, data.score, data.threshold, data.error) == ("Good", 1.0, 0.5, None)
    assert "actual_output" in (bad.metrics_data[0].error or "")


def test_a_metric_tells_what_its_last_measure_cost() -> None:
    own = metric()
    assert own.evaluation_cost is None
    with OpenAIServer() as server:
        own.model = OpenAIJudge("gpt-4o", base_url=server.base_url)
        own.measure(CASES[0])
    assert (own.evaluation_cost or 0.0) > 0.0
    own.model = ScriptedJudge({"good": True})  # without a price
    own.measure(CASES[0])
    assert own.evaluation_cost is None


class Mine(DeepEvalBaseLLM):
    """A model of the caller's that may say what a call took."""

    def __init__(self, took: Any) -> None:
        self.took = took

    def generate(self, prompt: str) -> Any:
        text = '{"reason": "so", "verdict": true}'
        return text if self.took is None else (text, self.took)

    def get_model_name(self) -> str:
        return "gpt-4o"


@pytest.mark.parametrize(
    ("took", "cost"),
    [(0.25, 0.25), (0, 0.0), (Usage(1_000_000, 0), 2.5), (None, None), ("free", None)],
)
def test_a_judge_of_ones_own_costs_what_it_says_and_otherwise_nobody_knows(
    took: Any, cost: float | None
) -> None:
    own = metric()
    own.model = Mine(took)
    own.measure(CASES[0])
    assert own.evaluation_cost == cost
    done = judged(CASES[:1], model=own.model)
    assert done.totals.cost == cost


def test_what_a_caller_says_of_a_run_stands_in_its_record(tmp_path: Path) -> None:
    more = {"model": "gpt-4o", "temperature": 0.5, "k": 3}
    judged(identifier="My Latest Run", hyperparameters=more, out=tmp_path / "run")
    run = load_run(tmp_path / "run")
    assert run.manifest.settings == {"identifier": "My Latest Run", "hyperparameters": more}
    assert "My Latest Run" in (tmp_path / "run" / "report.html").read_text(encoding="utf-8")
    with pytest.raises(InputError, match="hyperparameters maps names to texts and numbers"):
        judged(hyperparameters={"prompt": object()})
    with pytest.raises(InputError, match="identifier is a text, got 3"):
        judged(identifier=3)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"results_folder": "r"}, r"results_folder is called out here: evaluate\(…, out='r'\)"),
        ({"file_output_dir": "r"}, r"file_output_dir is called out here"),
        ({"display_option": "failing"}, r"display_option='failing' is not known; .*failed\(\)"),
        ({"inspect_after_run": True}, "inspect_after_run is not supported"),
    ],
)
def test_what_a_display_cannot_do_is_refused_with_what_does_it(
    given: dict[str, Any], message: str
) -> None:
    with pytest.raises(InputError, match=message):
        DisplayConfig(**given)


def test_a_display_of_everything_is_the_one_there_is() -> None:
    shown = DisplayConfig(display_option="all", show_indicator=False, print_results=False)
    assert judged(display_config=shown).success
