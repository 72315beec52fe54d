"""Metrics as people use them: attributes, own measures, reasons, verbose mode."""

from __future__ import annotations

import asyncio
from typing import Any

import anyio
import pytest

from dagengine import assert_test, evaluate
from dagengine.errors import GraphError, MetricFailedError, ProviderError
from dagengine.judges import ScriptedJudge
from dagengine.metrics import BaseMetric, DAGMetric, ExactMatchMetric
from dagengine.metrics.dag import DAG, BinaryJudgementNode, DeepAcyclicGraph
from dagengine.question import Question
from dagengine.results import OutcomeKind
from dagengine.test_case import LLMTestCase

CASE = LLMTestCase(input="a question", actual_output="an answer")


def dag(yes: int = 10, no: int = 2) -> DAG:
    return DAG(
        root_node=BinaryJudgementNode(
            "Good?", [], ["actual_output"], then={True: yes, False: no}, name="good"
        )
    )


def said(verdict: Any) -> ScriptedJudge:
    return ScriptedJudge(lambda q: {"verdict": verdict, "reason": f"because {verdict}"})


def test_the_constructor_and_the_attributes_are_those_people_know() -> None:
    metric = DAGMetric("Format", dag(), model=said(True))
    flags = (metric.include_reason, metric.strict_mode, metric.async_mode)
    assert flags == (True, False, True)
    assert metric.threshold == 0.5
    assert metric.verbose_mode is False
    assert metric.__name__ == "Format"
    assert vars(metric).get("score") is None

    assert metric.measure(CASE) == 1.0
    assert (metric.score, metric.success, metric.is_successful()) == (1.0, True, True)
    assert metric.reason == "good → True: because True"
    assert metric.error is None
    assert DeepAcyclicGraph is DAG


def test_positional_arguments_stand_in_the_documented_order() -> None:
    metric = DAGMetric("m", dag(), 0.9, said(True), False, True, False, False)
    assert (metric.include_reason, metric.strict_mode, metric.async_mode) == (False, True, False)
    assert metric.measure(CASE) == 1.0
    assert metric.reason is None


def test_strict_mode_is_all_or_nothing_and_keeps_the_raw_score() -> None:
    metric = DAGMetric("m", dag(yes=9), threshold=0.1, strict_mode=True, model=said(True))
    assert metric.measure(CASE) == 0.0
    assert metric.threshold == 1.0
    assert metric.success is False
    assert metric.result is not None
    assert metric.result.raw_score == 0.9


def test_without_a_threshold_there_is_a_score_and_no_success() -> None:
    metric = DAGMetric("m", dag(), threshold=None, model=said(False))
    assert metric.measure(CASE) == 0.2
    assert metric.success is None


def test_a_threshold_that_is_just_met_passes() -> None:
    metric = DAGMetric("m", dag(no=5), model=said(False))
    metric.measure(CASE)
    assert metric.success is True


def test_a_failure_raises_a_typed_error_and_the_next_case_is_unaffected() -> None:
    answers: list[Any] = [ProviderError("HTTP 400: no", transient=False), True]
    metric = DAGMetric("Format", dag(), model=ScriptedJudge(lambda q: answers.pop(0)))
    with pytest.raises(MetricFailedError, match=r"metric 'Format', node 'good': provider_error"):
        metric.measure(CASE)
    assert metric.error is not None
    assert (metric.score, metric.is_successful()) == (None, False)
    assert metric.measure(CASE) == 1.0
    assert metric.error is None
    assert metric.is_successful()


def test_without_a_threshold_nothing_passes_or_fails_also_after_a_failure() -> None:
    failing = ScriptedJudge(lambda q: ProviderError("HTTP 400: no", transient=False))
    metric = DAGMetric("Format", dag(), model=failing, threshold=None)
    with pytest.raises(MetricFailedError):
        metric.measure(CASE)
    assert metric.is_successful() is None


def test_a_wrong_graph_raises_before_anything_is_asked() -> None:
    with pytest.raises(GraphError, match="score-range"):
        DAGMetric("m", dag(yes=11), model=said(True)).measure(CASE)


def test_measure_works_inside_a_running_event_loop_of_either_kind() -> None:
    async def inside() -> float:
        return DAGMetric("m", dag(), model=said(True)).measure(CASE)

    assert asyncio.run(inside()) == 1.0
    assert anyio.run(inside, backend="trio") == 1.0


@pytest.mark.anyio
async def test_concurrent_measures_of_one_object_return_their_own_scores() -> None:
    async def answer(question: Question[Any]) -> Any:
        good = "good text" in question.messages[1]["content"]
        for _ in range(1 if good else 7):
            await anyio.lowlevel.checkpoint()
        return good

    metric = DAGMetric("m", dag(), model=ScriptedJudge(answer))
    scores: dict[str, float] = {}

    async def one(text: str) -> None:
        scores[text] = await metric.a_measure(LLMTestCase(input="x", actual_output=text))

    async with anyio.create_task_group() as group:
        for text in ("good text", "bad text", "another good text"):
            group.start_soon(one, text)
    assert scores == {"good text": 1.0, "bad text": 0.2, "another good text": 1.0}


def test_evaluate_leaves_metric_objects_untouched() -> None:
    metric = DAGMetric("m", dag(), model=said(True))
    before = dict(vars(metric))
    evaluate([CASE, CASE], [metric], show=False)
    assert vars(metric) == before


def test_the_judge_may_write_the_reason_in_one_last_call() -> None:
    prompts: list[str] = []

    def answer(question: Question[Any]) -> Any:
        prompts.append(question.messages[1]["content"])
        return "In short: good." if "reason" in question.name else True

    metric = DAGMetric("m", dag(), model=ScriptedJudge(answer), judged_reason=True)
    metric.measure(CASE)
    assert metric.reason == "In short: good."
    assert len(prompts) == 2
    assert "good → True" in prompts[1]


def test_a_reason_that_cannot_be_written_does_not_cost_the_score() -> None:
    def answer(question: Question[Any]) -> Any:
        return ProviderError("no", transient=False) if "reason" in question.name else True

    metric = DAGMetric("m", dag(), model=ScriptedJudge(answer), judged_reason=True)
    assert metric.measure(CASE) == 1.0
    assert metric.reason is not None
    assert "good → True" in metric.reason
    assert "no reason written by the judge" in metric.reason


def test_verbose_mode_shows_every_step(capsys: pytest.CaptureFixture[str]) -> None:
    DAGMetric("m", dag(), model=said(True), verbose_mode=True).measure(CASE)
    shown = capsys.readouterr().out
    assert "binary judgement" in shown
    assert "because True" in shown


class Short(BaseMetric):
    """A metric of one's own in the usual way: no call of the base constructor."""

    def __init__(self, threshold: float = 0.5) -> None:
        self.threshold = threshold

    def measure(self, test_case: LLMTestCase) -> float:
        try:
            text = test_case.actual_output
            if text is None:
                raise ValueError("no actual output")
            self.score = 1.0 if len(text) < 20 else 0.0
            self.reason = f"{len(text)} characters"
            self.success = self.score >= self.threshold
            return self.score
        except ValueError as error:
            self.error = str(error)
            raise

    async def a_measure(self, test_case: LLMTestCase) -> float:
        return self.measure(test_case)

    def is_successful(self) -> bool:
        if self.error is not None:
            self.success = False
        return bool(self.success)

    @property
    def __name__(self) -> str:  # pyright: ignore[reportIncompatibleVariableOverride]
        return "Short answer"


def test_a_metric_of_ones_own_runs_alone_and_in_evaluate() -> None:
    metric = Short()
    assert metric.measure(CASE) == 1.0
    assert metric.is_successful()
    cases = [CASE, LLMTestCase(input="x", actual_output="y" * 40), LLMTestCase(input="x"), CASE]
    done = evaluate(cases, [metric], show=False)
    assert done.scores("Short answer") == [1.0, 0.0, None, 1.0]
    results = [row.metrics[0] for row in done.rows]
    assert [result.success for result in results] == [True, False, None, True]
    assert results[1].reason == "40 characters"
    assert results[2].outcome == OutcomeKind.CODE_ERROR
    assert "no actual output" in str(results[2].failure)


def test_an_error_of_an_earlier_measure_does_not_stick_to_later_cases() -> None:
    metric = Short()
    with pytest.raises(ValueError, match="no actual output"):
        metric.measure(LLMTestCase(input="x"))
    assert metric.error is not None
    assert evaluate([CASE], [metric], show=False).scores("Short answer") == [1.0]


def test_a_metric_may_decide_its_success_itself() -> None:
    class LowerIsBetter(BaseMetric):
        def measure(self, test_case: LLMTestCase) -> float:
            self.score = 0.1
            self.success = self.score <= self.threshold
            return self.score

        def is_successful(self) -> bool:
            return bool(self.success)

    result = evaluate([CASE], [LowerIsBetter()], show=False).rows[0].metrics[0]
    assert (result.score, result.success) == (0.1, True)


class Own(BaseMetric):
    """Scores 0.7, and decides whether that passes if it is told to."""

    def __init__(self, threshold: float | None, strict_mode: bool, decides: bool) -> None:
        self.threshold, self.strict_mode, self.decides = threshold, strict_mode, decides

    def measure(self, test_case: LLMTestCase) -> float:
        self.score = 0.7
        if self.decides:
            self.success = self.score >= self.threshold
        return self.score


@pytest.mark.parametrize(
    ("threshold", "strict", "decides", "score", "success"),
    [
        (0.5, True, True, 0.7, True),  # what its code decided stands
        (0.9, True, True, 0.7, False),
        (0.5, False, True, 0.7, True),
        (0.5, False, False, 0.7, True),  # otherwise threshold and strictness decide
        (0.9, False, False, 0.7, False),
        (0.5, True, False, 0.0, False),
    ],
)
def test_success_of_an_own_metric_is_the_same_at_both_doors(
    threshold: float, strict: bool, decides: bool, score: float, success: bool
) -> None:
    metric = Own(threshold, strict, decides)
    metric.measure(CASE)
    assert metric.is_successful() is success
    result = evaluate([CASE], [metric], show=False).rows[0].metrics[0]
    assert (result.score, result.raw_score, result.success) == (score, 0.7, success)
    assert result.threshold == (1.0 if strict and not decides else threshold)
    tree = DAG(root_node=BinaryJudgementNode(
        "Good?", evaluation_params=["input"], then={True: metric, False: 0}
    ))  # fmt: skip
    under = evaluate([CASE], [DAGMetric("m", tree)], model=said(True), show=False)
    assert under.scores("m") == [score]


def test_an_own_metric_may_decide_only_when_asked() -> None:
    class Lazy(Own):
        def is_successful(self) -> bool:
            return self.score is not None and self.score <= 0.8

    metric = Lazy(0.9, True, False)
    metric.measure(CASE)
    assert metric.is_successful()
    result = evaluate([CASE], [metric], show=False).rows[0].metrics[0]
    assert (result.score, result.success) == (0.7, True)


class Halved(ExactMatchMetric):
    """A metric that does something with the score of the one that it is made of."""

    def measure(self, test_case: LLMTestCase, *args: Any, **private: Any) -> float:
        self.score = 0.4 * super().measure(test_case)
        self.reason = "less than half"
        return self.score


class HalvedLater(ExactMatchMetric):
    async def a_measure(self, test_case: LLMTestCase, *args: Any, **private: Any) -> float:
        self.score = 0.4 * await super().a_measure(test_case)
        self.reason = "less than half"
        return self.score


@pytest.mark.parametrize("kind", [Halved, HalvedLater])
def test_a_class_of_a_metric_may_change_what_its_graph_says(kind: type[ExactMatchMetric]) -> None:
    case = LLMTestCase(input="a", actual_output="b", expected_output="b")
    metric = kind()
    assert metric.measure(case) == asyncio.run(metric.a_measure(case)) == 0.4
    assert (metric.score, metric.is_successful()) == (0.4, False)
    result = evaluate([case], [kind()], show=False).rows[0].metrics[0]
    assert (result.score, result.success, result.reason) == (0.4, False, "less than half")


def test_a_metric_that_measures_nothing_says_so() -> None:
    class Empty(BaseMetric):
        pass

    failure = evaluate([CASE], [Empty()], show=False).rows[0].metrics[0].failure
    assert failure is not None
    assert "overrides neither measure nor a_measure" in failure.message


def test_assert_test_passes_quietly_and_fails_with_metric_score_and_reason() -> None:
    assert_test(CASE, [DAGMetric("m", dag(), model=said(True))])
    with pytest.raises(AssertionError, match=r"^0\.2 < 0\.5 m: good\n"):
        assert_test(CASE, [DAGMetric("m", dag(), model=said(False))])
    with pytest.raises(AssertionError, match="missing_field"):
        assert_test(LLMTestCase(input="x"), [DAGMetric("m", dag(), model=said(True))])


def test_evaluate_prints_a_table_and_what_the_run_cost(capsys: pytest.CaptureFixture[str]) -> None:
    cases = [CASE, LLMTestCase(input="x", name="no answer")]
    evaluate(cases, [DAGMetric("m", dag(), model=said(True))])
    shown = capsys.readouterr().out
    assert "no answer" in shown
    assert "missing_field" in shown
    assert "1 question, 1 judge call" in shown


def test_without_a_threshold_nobody_says_whether_a_score_passes() -> None:
    metric = Own(None, strict_mode=False, decides=False)
    metric.measure(CASE)
    assert (metric.score, metric.is_successful()) == (0.7, None)
