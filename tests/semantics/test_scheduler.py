"""The state machine by itself: every order of completion gives the same results."""

from __future__ import annotations

from collections import Counter
from typing import Any

from graphs.random_graphs import Script, build, drawings
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from dagengine import compile_metrics
from dagengine.compiler import Plan
from dagengine.errors import GraphError
from dagengine.graph import NodeValue
from dagengine.metrics import DAGMetric
from dagengine.metrics.dag import DAG, CodeNode
from dagengine.results import Failure, MetricResult, OutcomeKind
from dagengine.semantics.scheduler import CaseState

SLOW = settings(max_examples=60)


def compiled(drawing: dict[str, Any], script: Script) -> Plan:
    """Metrics over one graph, so that units are shared; one of them nested under a verdict."""
    dag = build(drawing, script)
    one = DAGMetric("one", dag, combine=drawing["combine"])
    script.verdicts["gate"] = "in"
    start = CodeNode(lambda: 0, name="start")
    gate = CodeNode(lambda zero: "in", inputs=[start], then={"in": one, "out": 0}, name="gate")
    try:
        compile_metrics([one])
    except GraphError:
        assume(False)
    return compile_metrics([one, DAGMetric("two", dag), DAGMetric("outer", DAG(root_node=gate))])


def play(
    plan: Plan, script: Script, order: list[int], failing: frozenset[str]
) -> tuple[tuple[MetricResult, ...], list[str]]:
    """Complete running units in the order that `order` picks; returns results and starts."""
    state = CaseState(plan)
    running: list[int] = []
    started: list[str] = []
    turn = 0
    while not state.finished:
        for unit in state.ready:
            running.append(unit)
            started.append(plan.units[unit].name.rpartition(" > ")[2])
        state.ready.clear()
        for unit in list(state.cancel):
            state.cancel.remove(unit)
            running.remove(unit)
            state.allow_restart(unit)
        if state.finished:
            break
        if state.ready:
            continue
        assert running, "nothing runs, and the case is not finished"
        unit = running.pop(order[turn % len(order)] % len(running))
        turn += 1
        name = plan.units[unit].name.rpartition(" > ")[2]
        if name in failing:
            state.fail(unit, Failure(OutcomeKind.CODE_ERROR, name, "scripted"))
        else:
            verdict = script.verdicts.get(name)
            state.complete(unit, NodeValue(verdict or name, verdict=verdict))
    return state.results(), started


@SLOW
@given(drawings(), st.lists(st.integers(0, 20), min_size=1, max_size=12))
def test_the_order_of_completion_does_not_matter(drawing: dict[str, Any], order: list[int]) -> None:
    script = Script()
    plan = compiled(drawing, script)
    first, _ = play(plan, script, [0], frozenset())
    second, started = play(plan, script, order, frozenset())
    assert first == second
    assert max(Counter(started).values()) <= 2  # at most once for the nested metric apart
    assert all(result.failure is None for result in first)
    assert first[2].score == first[0].score


@SLOW
@given(
    drawings(),
    st.lists(st.integers(0, 20), min_size=1, max_size=12),
    st.frozensets(st.integers(0, 8), min_size=1, max_size=4),
)
def test_failures_are_the_same_in_every_order(
    drawing: dict[str, Any], order: list[int], broken: frozenset[int]
) -> None:
    script = Script()
    plan = compiled(drawing, script)
    failing = frozenset(f"n{number}" for number in broken)
    first, _ = play(plan, script, [0], failing)
    second, _ = play(plan, script, order, failing)
    last, _ = play(plan, script, [-1], failing)
    assert first == second == last


def test_nothing_changes_after_a_result_is_there() -> None:
    def make(name: str) -> CodeNode:
        return CodeNode(lambda: 1.0, name=name)

    plan = compile_metrics([DAGMetric("m", DAG(root_nodes=[make("a"), make("b")]), combine="min")])
    state = CaseState(plan)
    first, second = sorted(state.ready, key=lambda unit: plan.units[unit].name)
    state.fail(first, Failure(OutcomeKind.CODE_ERROR, "a", "no"))
    assert state.finished
    before = state.results()
    state.complete(second, NodeValue(1.0))
    state.fail(first, Failure(OutcomeKind.TIMEOUT, "a", "late"))
    assert state.results() == before


def test_a_metric_that_cannot_run_does_not_hold_back_the_other() -> None:
    shared = CodeNode(lambda: 1.0, name="shared")
    plan = compile_metrics([DAGMetric(name, DAG(root_node=shared)) for name in ("a", "b")])
    missing = Failure(OutcomeKind.MISSING_FIELD, "shared", "absent")
    state = CaseState(plan, {0: missing})
    (unit,) = state.ready
    state.complete(unit, NodeValue(1.0))
    one, two = state.results()
    assert one.failure == missing
    assert one.steps == ()
    assert two.score == 1.0
