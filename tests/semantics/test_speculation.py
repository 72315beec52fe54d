"""Questions asked before they are wanted: which they may be, and that they change nothing."""

from __future__ import annotations

import json
from typing import Any

import anyio
import pytest
from graphs.packing_judge import PackingJudge, first_option
from graphs.random_graphs import Script, drawings, metric_of
from graphs.trees import yes_no
from hypothesis import given, settings
from hypothesis import strategies as st

from dagengine import Limits, a_evaluate, compile_metrics
from dagengine.compiler.execution_plan import ALWAYS
from dagengine.errors import ProviderError, RefusedError
from dagengine.graph.node_values import NodeValue
from dagengine.judges import ScriptedJudge
from dagengine.metrics import DAGMetric
from dagengine.metrics.dag import DAG, RatingNode, TaskNode
from dagengine.prompts.decisions import read_wording
from dagengine.question import Packs, Question
from dagengine.results import Attempt, EvaluationResult
from dagengine.semantics.scheduler import CaseState
from dagengine.semantics.speculation import ahead, bringing, deciding_units
from dagengine.test_case import LLMTestCase

CASE = LLMTestCase(input="the input", context=["first", "second"])
AHEAD, TOGETHER = Packs(400, 100_000, 32), Packs(400, 100_000)
MANY = settings(max_examples=60)


class Priced(ScriptedJudge):
    """A judge whose model has a price."""

    model = "m"


def chain(*, reads: bool = False) -> DAGMetric:
    """Two decisions in a row, both of which read one extraction; the second may read the first."""
    task = TaskNode("Take out.", "parts", evaluation_params=["input"], name="parts")
    first = yes_no("first", inputs=[task])
    second = yes_no("second", inputs=[task, first] if reads else [task])
    first.then = {True: second, False: 0}
    return DAGMetric("chain", DAG(first))


async def run(metrics: Any, model: Any, **more: Any) -> EvaluationResult:
    with anyio.fail_after(120):  # only when something waits for ever
        return await a_evaluate([CASE], metrics, model=model, show=False, **more)


@pytest.mark.anyio
async def test_the_second_decision_of_a_tree_rides_with_the_first() -> None:
    model, seen = PackingJudge(packs=AHEAD), list[Attempt]()
    done = await run([chain()], model, on_attempt=seen.append)
    assert list(map(sorted, model.requests)) == [["first", "second"]]
    totals = done.totals
    assert (totals.asked, totals.calls, totals.shared, totals.requests) == (3, 3, 0, 2)
    assert (totals.speculated, totals.unneeded) == (1, 0)
    assert [(one.node, one.outcome, one.origin) for one in seen] == [
        ("parts", "ok", "live"), ("first", "ok", "live"), ("second", "ok", "live"),
    ]  # fmt: skip


@pytest.mark.anyio
async def test_what_was_not_needed_is_counted_apart() -> None:
    model = PackingJudge(lambda question: question.name != "first", packs=AHEAD)
    seen: list[Attempt] = []
    done = await run([chain()], model, on_attempt=seen.append)
    assert list(map(sorted, model.requests)) == [["first", "second"]]
    assert (done.totals.asked, done.totals.calls, done.totals.requests) == (2, 2, 2)
    assert (done.totals.speculated, done.totals.unneeded) == (1, 1)
    assert [one.node for one in seen] == ["parts", "first"]
    assert [step.node for step in done.rows[0].metrics[0].steps] == ["parts", "first"]


@pytest.mark.anyio
async def test_nothing_is_asked_before_what_it_reads_is_there() -> None:
    model = PackingJudge(packs=AHEAD)
    done = await run([chain(reads=True)], model)
    assert model.requests == [["first"], ["second"]]
    assert done.totals.speculated == 0


@pytest.mark.parametrize("limits", [Limits(max_calls=9), Limits(budget=1.0, prices={"*": (1, 1)})])
@pytest.mark.anyio
async def test_a_run_that_may_not_ask_what_it_likes_asks_only_what_it_needs(limits: Limits) -> None:
    model = PackingJudge(packs=AHEAD, writer=Priced(lambda question: "words"))
    vars(model)["model"] = "m"
    await run([chain()], model, limits=limits)
    assert model.requests == [["first"], ["second"]]


@pytest.mark.anyio
async def test_no_more_is_asked_ahead_than_may_be() -> None:
    leaves = [yes_no(f"leaf {number}") for number in range(6)]
    roots = [
        yes_no(f"root {n}", then={True: one, False: other})
        for n, (one, other) in enumerate(zip(leaves[::2], leaves[1::2], strict=True))
    ]
    metric = DAGMetric("m", DAG(root_nodes=roots), combine="mean")
    model = PackingJudge(packs=Packs(400, 100_000, 4))
    done = await run([metric], model)
    assert [len(names) for names in model.requests] == [7, 1]
    assert (done.totals.speculated, done.totals.unneeded) == (4, 2)
    model = PackingJudge(packs=AHEAD)
    done = await run([metric], model, limits=Limits(max_in_flight=4))  # one place beside the three
    assert [len(names) for names in model.requests] == [4, 2]
    assert (done.totals.speculated, done.totals.unneeded) == (1, 0)


@pytest.mark.parametrize("failure", [RefusedError("no"), ProviderError("bad", transient=False)])
@pytest.mark.anyio
async def test_a_failure_that_nobody_needed_is_seen_nowhere(failure: Exception) -> None:
    def decide(question: Question[Any]) -> Any:
        return failure if question.name == "second" else False

    done = await run([chain()], PackingJudge(decide, packs=AHEAD))
    assert done.rows[0].metrics[0].score == 0.0
    assert (done.totals.failed, done.totals.unneeded) == (0, 1)

    def needed(question: Question[Any]) -> Any:
        return failure if question.name == "second" else True

    done = await run([chain()], model := PackingJudge(needed, packs=AHEAD))
    result = done.rows[0].metrics[0]
    assert result.failure is not None
    assert result.failure.node == "second"
    assert model.requests[-1] == ["second"]  # it failed where it was asked


@pytest.mark.anyio
async def test_code_of_the_callers_runs_only_when_it_is_its_turn() -> None:
    ran: list[str] = []

    def words(given: Any) -> str:
        ran.append("words")
        return "Is it?"

    rating = RatingNode("Good?", ["input"], wording=words)
    gate = yes_no("gate", then={True: 10, False: rating})
    done = await run([DAGMetric("m", DAG(gate))], PackingJudge(packs=AHEAD))
    assert done.totals.speculated == 0
    assert ran == []


def decided(script: Script, packs: Packs | None) -> PackingJudge:
    def decide(question: Question[Any]) -> Any:
        if question.name in script.failing:
            return ProviderError("scripted failure", transient=False)
        return script.verdicts.get(question.name, next(iter(read_wording(question).meanings)))

    async def pause(names: Any) -> None:
        for name in names:
            await script.pause(name)

    return PackingJudge(decide, packs=packs, writer=script.judge(), pause=pause)


def outcome(
    drawing: dict[str, Any], packs: Packs | None, limit: int, backend: str, broken: frozenset[str]
) -> tuple[str, PackingJudge, EvaluationResult]:
    script = Script(failing=broken)
    metrics = [metric_of(drawing, script)]
    model = decided(script, packs)

    async def main() -> EvaluationResult:
        return await run(metrics, model, limits=Limits(max_in_flight=limit, attempts=1))

    done = anyio.run(main, backend=backend)
    return json.dumps(done.rows[0].as_dict(), sort_keys=True), model, done


@MANY
@given(
    drawings(),
    st.sampled_from([1, 2, 64]),
    st.sampled_from(["asyncio", "trio"]),
    st.frozensets(st.integers(0, 8).map("n{}".format), max_size=2),
)
def test_packed_and_speculated_runs_give_the_rows_of_plain_ones(
    drawing: dict[str, Any], limit: int, backend: str, broken: frozenset[str]
) -> None:
    plain, alone, _ = outcome(drawing, None, 64, "asyncio", broken)
    packed, together, done = outcome(drawing, TOGETHER, limit, backend, broken)
    assert packed == plain
    assert done.totals.speculated == 0
    speculated, riding, done = outcome(drawing, AHEAD, limit, backend, broken)
    assert speculated == plain
    assert all(len(names) <= limit for names in [*together.requests, *riding.requests])
    if not broken:
        assert len(together.requests) <= len(alone.requests)
        assert len(riding.requests) <= len(together.requests)
        keys = {one.key for one in alone.questions}
        assert {one.key for one in together.questions} == keys
        # What is asked ahead is what would be asked later, word for word, or is not needed.
        needed = {one.name for one in alone.questions}
        assert {one.key for one in riding.questions if one.name in needed} == keys
        assert done.totals.unneeded == sum(one.name not in needed for one in riding.questions)


@MANY
@given(drawings(), st.data())
def test_only_what_has_all_that_it_reads_is_asked_ahead(
    drawing: dict[str, Any], data: st.DataObject
) -> None:
    script = Script()
    plan = compile_metrics([metric_of(drawing, script)])
    judges = [PackingJudge(first_option, packs=AHEAD) for _ in plan.models]
    state, running = CaseState(plan), list[int]()
    assert {unit.index for unit in deciding_units(plan, judges)} <= bringing(plan, judges)
    foreseen: dict[int, tuple[Any, ...]] = {}
    while True:
        running += state.ready
        state.ready.clear()
        for unit in ahead(state, plan.units):
            assert unit.index not in running
            read = tuple(
                state.output(source)
                for _, source, slot in unit.sources
                if slot == ALWAYS or state.is_live(slot)
            )
            assert foreseen.setdefault(unit.index, read) == read  # nothing is added later
        if not running:
            break
        number = running.pop(data.draw(st.integers(0, len(running) - 1)))
        unit = plan.units[number]
        if number in foreseen:
            sources = [one for one in unit.sources if one[2] == ALWAYS or state.is_live(one[2])]
            assert foreseen[number] == tuple(state.output(source) for _, source, _ in sources)
        branches = list(plan.slots[unit.slots[0]].branches)
        verdict = data.draw(st.sampled_from(branches)) if branches else None
        state.complete(number, NodeValue(0.5, verdict=verdict, score=0.5))
