"""Random graphs, random answers, random timings: the engine against a plain interpreter."""

from __future__ import annotations

import json
import random
from collections.abc import AsyncIterator
from contextlib import aclosing
from dataclasses import replace
from typing import Any

import anyio
import anyio.lowlevel
from graphs.packing_judge import PackingJudge, first_option
from graphs.random_graphs import Script, drawings, metric_of
from graphs.reference import interpret
from graphs.trees import yes_no_metric
from hypothesis import Phase, assume, event, given, settings
from hypothesis import strategies as st
from trio.testing import MockClock

from dagengine import Engine, Limits, a_evaluate, compile_metrics, stream
from dagengine.errors import GraphError, ProviderError, RefusedError
from dagengine.judges import ScriptedJudge
from dagengine.metrics import DAGMetric
from dagengine.metrics.dag import DAG, BaseNode, BinaryJudgementNode, CodeNode
from dagengine.question import Capabilities, Packs, Question
from dagengine.results import CaseResult, MetricResult
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


class Careful(ScriptedJudge):
    """Is asked by few at first, as a server is."""

    capabilities = Capabilities()


class Standing(Script):
    """Every question, every call of code and every case of a source stands until it is let go."""

    def __init__(self, seed: int, *, jumps: bool) -> None:
        """`jumps` says that the clock jumps over every wait, so that failures may lead to waits."""
        super().__init__()
        self.chance = random.Random(seed)
        self.jumps = jumps
        self.standing: list[anyio.Event] = []
        self.passing = 40 if jumps else 4  # failures that may pass: five in a row open the circuit
        self.asked = self.most_asked = 0
        self.news = anyio.Event()
        self.over = False

    async def pause(self, name: str) -> None:
        gate = anyio.Event()
        self.standing.append(gate)
        self.news.set()
        try:
            await gate.wait()
        finally:
            self.standing.remove(gate)

    def failure(self) -> Exception | None:
        """The failure of one question in four."""
        kind = self.chance.randrange(16)
        if kind == 0 and self.passing:
            self.passing -= 1
            return ProviderError("HTTP 500", transient=True, status=self.chance.choice([429, 500]))
        if kind == 1 and self.jumps:
            return ProviderError("HTTP 401", transient=False, status=401, lasting=True)
        failures = {
            2: ProviderError("HTTP 400", transient=False, status=400),
            3: RefusedError("no"),
        }
        return failures.get(kind)

    async def _answer(self, question: Question[Any]) -> Any:
        self.asked += 1
        self.most_asked = max(self.most_asked, self.asked)
        try:
            answer = await super()._answer(question)
        finally:
            self.asked -= 1
        return self.failure() or ("nonsense" if self.chance.random() < 0.1 else answer)

    def judge(self) -> ScriptedJudge:
        return self.chance.choice([ScriptedJudge, Careful])(self._answer, name="oracle")

    def packing_judge(self) -> PackingJudge:
        """A judge that decides several questions in one request, some before they are wanted."""

        def decide(question: Question[Any]) -> Any:
            return self.failure() or self.verdicts.get(question.name) or first_option(question)

        packs = Packs(self.chance.choice([2, 400]), 100_000, ahead=self.chance.choice([0, 8]))
        judge = PackingJudge(decide, packs=packs, writer=self.judge())
        judge._pause = lambda names: self.pause(names[0])
        return judge

    async def move(self, scopes: list[anyio.CancelScope]) -> None:
        """Once everybody stands, let one go, or give one up; or wait for what a clock brings."""
        for _ in range(50):  # to wait until all are blocked takes a tenth of a second else
            await anyio.lowlevel.checkpoint()
        await anyio.wait_all_tasks_blocked()
        if scopes and self.chance.random() < 0.03:
            scopes.pop(self.chance.randrange(len(scopes))).cancel()
        elif standing := [gate for gate in self.standing if not gate.is_set()]:
            self.chance.choice(standing).set()
        elif not self.over:
            self.news = anyio.Event()
            await self.news.wait()


async def call_all(engine: Engine, script: Standing, scopes: list[anyio.CancelScope]) -> int:
    """Have cases judged by callers who come one after the other; returns the number of rows."""
    rows: list[CaseResult] = []

    async def call(number: int) -> None:
        with anyio.CancelScope() as scope:
            scopes.append(scope)
            await script.pause("caller")
            case = CASE.model_copy(update={"input": f"the input {number}"})
            deadline = script.chance.choice([None, 3]) if script.jumps else None
            rows.append(await engine.judge(case, deadline=deadline))

    async with engine, anyio.create_task_group() as group:
        for number in range(6):
            group.start_soon(call, number // 2)  # every case comes twice
    assert engine.totals.in_flight == 0
    assert not engine.waiting
    return len(rows)


async def read_all(script: Standing, **settings: Any) -> int:
    """Have the cases of a slow source judged; returns the number of rows."""

    async def cases() -> AsyncIterator[LLMTestCase]:
        for number in range(5):
            await script.pause("source")
            yield CASE.model_copy(update={"input": f"the input {number // 2}"})

    async with aclosing(stream(cases(), **settings)) as rows:
        return len([row async for row in rows])


@settings(SLOW, max_examples=120, phases=[Phase.generate])  # each standstill costs its bound
@given(
    drawings(),
    st.integers(0, 1 << 30),
    st.sampled_from([1, 2, 3, 64]),
    st.sampled_from([{}, {}, {"max_calls": 4}, {"budget": 3e-4, "prices": {"*": (1.0, 1.0)}}]),
    st.sampled_from(["asyncio", "trio"]),
    st.tuples(st.booleans(), st.booleans(), st.booleans()),
)
def test_nobody_waits_for_ever_whatever_comes_first_fails_or_is_given_up(
    drawing: dict[str, Any],
    seed: int,
    limit: int,
    costs: dict[str, Any],
    backend: str,
    kinds: tuple[bool, bool, bool],
) -> None:
    script = Standing(seed, jumps=backend == "trio")
    called, packed, joined = kinds
    metric = metric_of(drawing, script)
    judge: Any = script.packing_judge() if packed else script.judge()

    async def measure(text: str) -> float:
        inner = yes_no_metric()
        return float(await inner.a_measure(LLMTestCase(input=text[-1])))

    code = CodeNode(measure, evaluation_params=["input"], name="measures")
    other = (
        DAGMetric("n", DAG(code)) if joined else DAGMetric("o", metric.dag, model=script.judge())
    )
    time: dict[str, Any] = {"case_timeout": 20.0} if script.jumps else {}
    limits = Limits(max_in_flight=limit, attempts=3, backoff=0, **costs, **time)
    asking: dict[str, Any] = {"metrics": [metric, other], "model": judge, "limits": limits}

    async def main() -> None:
        scopes: list[anyio.CancelScope] = []

        async def work() -> None:
            with anyio.CancelScope() as scope:
                scopes.append(scope)
                if called:
                    await call_all(Engine(**asking), script, scopes)
                else:
                    await read_all(script, **asking)
            script.over = True
            script.news.set()

        with anyio.fail_after(30 if backend == "asyncio" else 1e6):
            async with anyio.create_task_group() as group:
                group.start_soon(work)
                while not script.over:
                    await script.move(scopes)
        assert not script.standing

    options = {"clock": MockClock(autojump_threshold=0)} if script.jumps else {}
    anyio.run(main, backend=backend, backend_options=options)
    assert packed or script.most_asked <= limit
