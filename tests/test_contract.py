"""The contract of every metric in the package, whichever there are."""

from __future__ import annotations

from typing import Any

import anyio
import pytest
from contract import case_for, empty_case, judge, make, metric_classes

from dagengine import Limits, a_evaluate, compile_metrics, evaluate
from dagengine.errors import RefusedError
from dagengine.judges import ScriptedJudge
from dagengine.metrics import DAGMetric
from dagengine.metrics.dag import DAG, CodeNode
from dagengine.metrics.prebuilt import PrebuiltMetric
from dagengine.results import MetricResult, OutcomeKind

KINDS = metric_classes()
every_metric = pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
# Once without a second chance: a failure is a failure at once.
FIRST = Limits(attempts=1, reasks=0, call_timeout=0.2)


def result_of(metric: PrebuiltMetric, model: Any, case: Any = None) -> MetricResult:
    done = evaluate([case or case_for(metric)], [metric], model=model, show=False, limits=FIRST)
    result: MetricResult = done.rows[0].metrics[0]
    return result


def has_nothing_to_judge(result: MetricResult) -> bool:
    """Some metrics have no score for a case without anything to judge, and say so."""
    return result.failure is not None and "nothing to judge" in result.failure.message


def asks(kind: type[PrebuiltMetric]) -> bool:
    asked: list[str] = []
    result_of(make(kind), judge(0, asked))
    return bool(asked)


@every_metric
@pytest.mark.parametrize("pick", [0, -1])
def test_valid_answers_give_a_score_from_zero_to_one_with_a_reason(
    kind: type[PrebuiltMetric], pick: int
) -> None:
    result = result_of(make(kind), judge(pick))
    if has_nothing_to_judge(result):
        return
    assert result.failure is None
    assert result.score is not None
    assert 0 <= result.score <= 1
    assert result.reason


@every_metric
def test_measure_a_measure_and_evaluate_agree_on_both_event_loops(
    kind: type[PrebuiltMetric],
) -> None:
    metric = make(kind, model=judge(0))
    case = case_for(metric)
    scores = {
        metric.measure(case),
        anyio.run(metric.a_measure, case),
        anyio.run(metric.a_measure, case, backend="trio"),
        result_of(metric, None).score,
    }
    assert len(scores) == 1


@every_metric
def test_the_same_case_gives_the_same_prompts(kind: type[PrebuiltMetric]) -> None:
    seen: list[list[str]] = []
    for _ in range(2):
        asked: list[str] = []
        result_of(make(kind), judge(0, asked))
        seen.append(sorted(asked))
    assert seen[0] == seen[1]


@every_metric
def test_a_case_without_the_fields_is_a_typed_failure_before_any_call(
    kind: type[PrebuiltMetric],
) -> None:
    metric, asked = make(kind), list[str]()
    case = empty_case(case_for(metric))
    result = result_of(metric, judge(0, asked), case)
    required = compile_metrics([metric]).metrics[0].required
    missing = [path for path, _ in required if getattr(case, path.partition(".")[0], None) is None]
    if missing:
        assert result.outcome == OutcomeKind.MISSING_FIELD
        assert asked == []
        assert f"`{missing[0]}`" in str(result.failure)
    else:
        assert result.failure is not None or result.score is not None


@every_metric
@pytest.mark.parametrize(
    ("answer", "outcome"),
    [
        ({"nonsense": 1}, OutcomeKind.UNPARSEABLE),
        (RefusedError("no"), OutcomeKind.JUDGE_REFUSED),
    ],
    ids=["garbage", "refusal"],
)
def test_a_bad_answer_is_a_typed_failure_and_no_score(
    kind: type[PrebuiltMetric], answer: Any, outcome: OutcomeKind
) -> None:
    if not asks(kind):
        pytest.skip("this metric asks no judge")
    result = result_of(make(kind), ScriptedJudge(lambda question: answer))
    assert result.score is None
    assert result.outcome == outcome


@every_metric
def test_a_judge_that_never_answers_is_a_timeout(kind: type[PrebuiltMetric]) -> None:
    if not asks(kind):
        pytest.skip("this metric asks no judge")

    async def answer(question: Any) -> None:
        await anyio.sleep_forever()

    assert result_of(make(kind), ScriptedJudge(answer)).outcome == OutcomeKind.TIMEOUT


@every_metric
@pytest.mark.parametrize("pick", [0, -1])
def test_strict_mode_knows_only_zero_and_one(kind: type[PrebuiltMetric], pick: int) -> None:
    try:
        metric = make(kind, strict_mode=True)
    except TypeError:
        pytest.skip("this metric has no strict mode")
    result = result_of(metric, judge(pick))
    assert result.score in (0.0, 1.0) or has_nothing_to_judge(result)
    assert result.threshold == 1.0


@every_metric
def test_a_metric_gives_the_same_score_under_a_verdict(kind: type[PrebuiltMetric]) -> None:
    metric = make(kind)
    start = CodeNode(lambda: 1, name="start")
    root = CodeNode(lambda one: one == 1, inputs=[start], then={True: metric, False: 0})
    case = case_for(metric)
    nested = evaluate(
        [case], [DAGMetric("outer", DAG(root_node=root))], model=judge(-1), show=False
    )
    assert nested.scores("outer") == [result_of(metric, judge(-1)).score]


@every_metric
@pytest.mark.anyio
async def test_one_object_judges_many_cases_at_once(kind: type[PrebuiltMetric]) -> None:
    metric = make(kind)
    case = case_for(metric)
    before = dict(vars(metric))
    done = await a_evaluate([case] * 5, [metric], model=judge(-1), show=False)
    results = {str(m.as_dict()) for row in done.rows for m in row.metrics}
    assert len(results) == 1
    assert vars(metric) == before


@every_metric
def test_the_graph_has_no_findings_and_can_be_drawn(kind: type[PrebuiltMetric]) -> None:
    metric = make(kind)
    plan = compile_metrics([metric])
    assert [problem for problem in plan.warnings if problem.code != "field-not-read"] == []
    assert "<svg" in metric.picture().layout("svg").decode()
