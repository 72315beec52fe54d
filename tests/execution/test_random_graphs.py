"""Random graphs, random answers, random timings: the engine against a plain interpreter."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import anyio
from graphs.random_graphs import Script, drawings, metric_of
from graphs.reference import interpret
from hypothesis import assume, event, given, settings
from hypothesis import strategies as st

from dagengine import Limits, a_evaluate, compile_metrics
from dagengine.errors import GraphError
from dagengine.metrics import DAGMetric
from dagengine.metrics.dag import DAG, BaseNode, BinaryJudgementNode, CodeNode
from dagengine.results import MetricResult
from dagengine.test_case import LLMTestCase

CASE = LLMTestCase(input="the input", context=["first", "second"])
SLOW = settings(max_examples=50)


def run(metric: DAGMetric, script: Script, limit: int, backend: str, copies: int = 1) -> Any:
    """Rows of a run of `copies` equal cases."""
    cases = [CASE.model_copy(update={"input": f"the input {n}"}) for n in range(copies)]

    async def main() -> Any:
        return await a_evaluate(
            cases, [metric], model=script.judge(), limits=Limits(max_in_flight=limit), show=False
        )

    return anyio.run(main, backend=backend)


def as_json(result: MetricResult) -> str:
    return json.dumps(result.as_dict(), sort_keys=True)


def combined(scores: list[float], how: str) -> float:
    return {
        "last": scores[-1],
        "min": min(scores),
        "max": max(scores),
        "mean": sum(scores) / len(scores),
    }[how]


@SLOW
@given(drawings(), st.sampled_from([1, 2, 64]), st.sampled_from(["asyncio", "trio"]))
def test_the_engine_agrees_with_the_reference(
    drawing: dict[str, Any], limit: int, backend: str
) -> None:
    script = Script()
    metric = metric_of(drawing, script)
    expected = interpret(metric.dag, script.verdicts.get)
    event(f"live nodes: {len(expected.reads)}")
    result = run(metric, script, limit, backend).rows[0].metrics[0]

    assert result.failure is None
    assert {step.node for step in result.steps} == set(expected.reads)
    assert dict(result.path) == expected.verdicts
    assert abs(result.score - combined(expected.scores, drawing["combine"])) < 1e-12
    # Nothing that is not live ran, and nothing ran twice (a map node asks once per item).
    assert set(script.ran) == set(expected.reads)
    for name, count in script.ran.items():
        is_map = drawing["nodes"][int(name[1:])]["kind"] == "map"
        assert count == (2 if is_map else 1), name


@SLOW
@given(drawings(), st.sets(st.integers(0, 8), min_size=1, max_size=3), st.booleans())
def test_scores_that_code_weighs_do_not_count_beside_its_own(
    drawing: dict[str, Any], weighed: set[int], gated: bool
) -> None:
    script = Script(verdicts={"weighs": 0.123, "gate": False})
    metric = metric_of(drawing, script)
    chosen = [node for number, node in enumerate(metric.dag.nodes()) if number in weighed]
    weighs: BaseNode = CodeNode(lambda *read: 0.123, inputs=chosen, name="weighs")
    if gated:  # the scores of what it would read count when it does not run
        then = {True: weighs, False: 7}
        weighs = BinaryJudgementNode("?", then=then, evaluation_params=["input"], name="gate")
    try:
        graph = DAG(root_nodes=[*metric.dag.root_nodes, weighs])
        metric = DAGMetric("m", graph, combine=drawing["combine"])
        compile_metrics([metric])
    except GraphError:
        assume(False)
    scores = interpret(graph, script.verdicts.get).scores
    result = run(metric, script, 8, "asyncio").rows[0].metrics[0]
    assert abs(result.score - combined(scores, drawing["combine"])) < 1e-12


@SLOW
@given(drawings(), st.lists(st.integers(0, 6), min_size=9, max_size=9))
def test_timing_limit_and_event_loop_change_nothing(
    drawing: dict[str, Any], other_delays: list[int]
) -> None:
    seen: set[str] = set()
    prompts: list[dict[str, set[str]]] = []
    for limit, backend, delays in ((1, "asyncio", None), (64, "trio", other_delays)):
        script = Script()
        metric = metric_of(drawing, script)
        if delays is not None:
            script.delays = {f"n{n}": delay for n, delay in enumerate(delays)}
        done = run(metric, script, limit, backend, copies=3)
        seen.add("\n".join(as_json(row.metrics[0]) for row in done.rows))
        prompts.append(script.prompts)
        assert [row.index for row in done.rows] == [0, 1, 2]
    assert len(seen) == 1
    assert prompts[0] == prompts[1]


@SLOW
@given(drawings(), st.permutations(range(9)))
def test_the_order_in_which_roots_are_declared_changes_no_prompt(
    drawing: dict[str, Any], shuffle: list[int]
) -> None:
    prompts: list[dict[str, set[str]]] = []
    for order in (drawing["shuffle"], [n for n in shuffle if n < len(drawing["nodes"])]):
        script = Script()
        metric = metric_of({**drawing, "shuffle": order}, script)
        run(metric, script, 64, "asyncio")
        prompts.append(script.prompts)
    assert prompts[0] == prompts[1]


@settings(SLOW, max_examples=30)  # of four runs each
@given(
    drawings(),
    st.frozensets(st.integers(0, 8), min_size=1, max_size=3),
    st.lists(st.integers(0, 6), min_size=9, max_size=9),
)
def test_a_failure_is_the_same_whatever_the_timing(
    drawing: dict[str, Any], failing: frozenset[int], other_delays: list[int]
) -> None:
    seen: set[str] = set()
    broken = frozenset(f"n{number}" for number in failing)
    for limit, backend, delays in (
        (1, "asyncio", None),
        (2, "asyncio", other_delays),
        (64, "trio", other_delays),
        (64, "asyncio", list(reversed(other_delays))),
    ):
        script = Script(failing=broken)
        metric = metric_of(drawing, script)
        if delays is not None:
            script.delays = {f"n{n}": delay for n, delay in enumerate(delays)}
        result = run(metric, script, limit, backend).rows[0].metrics[0]
        live = interpret(metric.dag, script.verdicts.get).reads
        if not broken & set(live):
            assert result.failure is None
        else:
            assert result.failure is not None
            assert result.score is None
            assert result.failure.node in broken
        seen.add(as_json(replace(result)))
    assert len(seen) == 1
