"""An engine: many callers of one run, what they share, and what none of them can do to others."""

from __future__ import annotations

import asyncio
import contextvars
import gc
import os
import pickle
import random
import signal
import threading
from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import Any

import anyio
import anyio.lowlevel
import pytest
from graphs.trees import yes_no_metric

from dagengine import Account, Engine, EngineClosedError, Limits
from dagengine.engine import BlockingEngine
from dagengine.errors import GraphError, InputError
from dagengine.judges import ScriptedJudge
from dagengine.metrics import BaseMetric, DAGMetric
from dagengine.metrics.dag import DAG, CodeNode
from dagengine.question import Question
from dagengine.results import CaseResult, OutcomeKind
from dagengine.test_case import ConversationalTestCase, LLMTestCase, Turn

pytestmark = pytest.mark.anyio
METRIC = yes_no_metric()


def case(name: object) -> LLMTestCase:
    return LLMTestCase(input=f"case {name}.")


class Gate:
    """A judge that answers when it is let, and knows how many it answers at the same time."""

    def __init__(self, *, open_: bool = False) -> None:
        self.let = anyio.Event()
        self.asked = anyio.Event()
        self.calls = Counter[str]()
        self.ended = self.at_once = self.most = 0
        if open_:
            self.let.set()

    async def __call__(self, question: Question[Any]) -> bool:
        self.calls[question.messages[-1]["content"]] += 1
        self.at_once += 1
        self.most = max(self.most, self.at_once)
        self.asked.set()
        try:
            await self.let.wait()
            await anyio.lowlevel.checkpoint()
            self.ended += 1
        finally:
            self.at_once -= 1
        return True

    @property
    def judge(self) -> ScriptedJudge:
        return ScriptedJudge(self)


async def until(holds: Callable[[], bool]) -> None:
    with anyio.fail_after(30):
        while not holds():
            await anyio.lowlevel.checkpoint()


def outcome(row: CaseResult) -> tuple[str, str]:
    failure = row.metrics[0].failure
    return str(row.metrics[0].outcome), failure.message if failure else ""


async def test_callers_of_one_case_share_its_questions_and_all_callers_the_limits() -> None:
    gate, rows = Gate(), list[CaseResult]()
    metrics = [yes_no_metric(name, name) for name in "abc"]
    async with Engine(metrics, model=gate.judge, limits=Limits(max_in_flight=2)) as engine:

        async def call(name: object) -> None:
            rows.append(await engine.judge(case(name)))

        async with anyio.create_task_group() as group:
            for _ in range(8):
                group.start_soon(call, "equal")
            await until(lambda: gate.at_once == 2)
            gate.let.set()
        assert (gate.calls.total(), gate.most) == (3, 2)
        async with anyio.create_task_group() as group:
            for number in range(50):
                group.start_soon(call, number)
        assert gate.most == 2
        assert len(rows) == 58
        assert all(row.success for row in rows)
        assert engine.totals.asked == 58 * 3
        assert engine.totals.calls == 51 * 3
        assert {spent.metric for spent in engine.spent} == {"a", "b", "c"}
    assert engine.totals.in_flight == 0


async def test_rows_leave_when_they_are_finished_and_those_of_one_call_in_its_order() -> None:
    gate = Gate()

    async def answer(question: Question[Any]) -> bool:
        return await gate(question) if "slow" in question.messages[-1]["content"] else True

    async with Engine(METRIC, model=ScriptedJudge(answer)) as engine:
        rows = dict[str, list[CaseResult]]()

        async def call() -> None:
            rows["slow"] = await engine.judge_all([case("slow"), case("quick")])

        async with anyio.create_task_group() as group:
            group.start_soon(call)
            await gate.asked.wait()
            assert (await engine.judge(case("other"))).success
            assert not rows
            gate.let.set()
        assert [row.test_case.input for row in rows["slow"]] == ["case slow.", "case quick."]
        assert await engine.judge_all([]) == []


@pytest.mark.parametrize("seed", range(3))
async def test_callers_who_leave_take_nothing_from_others_and_cut_no_call_off(seed: int) -> None:
    random_ = random.Random(seed)
    rows = dict[int, CaseResult]()
    started = finished = 0

    async def answer(question: Question[Any]) -> bool:
        nonlocal started, finished
        started += 1
        for _ in range(random_.randrange(4)):
            await anyio.lowlevel.checkpoint()
        finished += 1
        return "7" not in question.messages[-1]["content"]

    async with Engine(METRIC, model=ScriptedJudge(answer)) as engine:

        async def call(number: int, scope: anyio.CancelScope) -> None:
            with scope:
                rows[number] = await engine.judge(case(number % 700))

        async def cancel(scope: anyio.CancelScope) -> None:
            for _ in range(random_.randrange(40)):
                await anyio.lowlevel.checkpoint()
            scope.cancel()

        async with anyio.create_task_group() as group:
            for number in range(2_000):
                scope = anyio.CancelScope()
                group.start_soon(call, number, scope)
                if number % 2:
                    group.start_soon(cancel, scope)
        await until(lambda: engine.totals.in_flight == 0)
        assert started == finished
        assert set(range(0, 2_000, 2)) <= rows.keys()
        assert all(
            row.metrics[0].score == ("7" not in str(number % 700)) for number, row in rows.items()
        )
        assert (await engine.judge(case("last"))).success
    assert engine.totals.in_flight == 0


async def test_for_a_caller_who_leaves_calls_in_progress_end_and_nothing_new_is_asked() -> None:
    gate = Gate()
    metrics = [yes_no_metric(name, name) for name in "abcd"]
    async with Engine(metrics, model=gate.judge, limits=Limits(max_in_flight=2)) as engine:
        with anyio.CancelScope() as scope:
            async with anyio.create_task_group() as group:

                async def leave() -> None:
                    await until(lambda: gate.at_once == 2)
                    scope.cancel()

                group.start_soon(leave)
                await engine.judge(case("left"))
        assert (gate.ended, gate.at_once) == (0, 2)
        gate.let.set()
        await until(lambda: gate.at_once == 0)
        assert (await engine.judge(case("another"))).success
        assert gate.calls.total() == gate.ended == 6
        row = await engine.judge(case("left"))  # what was paid for is remembered
        assert row.success
        assert gate.calls.total() == 8


async def test_a_deadline_holds_from_the_call_on_and_ends_no_other_case() -> None:
    gate = Gate()
    metrics = [
        yes_no_metric("slow", "slow"),
        DAGMetric("quick", DAG(CodeNode(lambda text: 1.0, evaluation_params=["input"]))),
    ]
    async with Engine(metrics, model=gate.judge, limits=Limits(max_in_flight=1)) as engine:
        rows = dict[str, CaseResult]()

        async def call(name: str, deadline: float | None) -> None:
            rows[name] = await engine.judge(case(name), deadline=deadline)

        async with anyio.create_task_group() as group:
            group.start_soon(call, "first", None)
            await gate.asked.wait()
            with anyio.fail_after(20):
                await call("queued", 0.01)
            gate.let.set()
        assert outcome(rows["queued"]) == (
            "timeout", "no result within 0.01 s: deadline of the case",
        )  # fmt: skip
        assert rows["queued"].metrics[0].score is None
        assert rows["first"].metrics[0].score == 1
        gate.let = anyio.Event()
        with anyio.fail_after(20):
            await call("asked", 0.01)
        assert outcome(rows["asked"])[1] == "no result within 0.01 s: deadline of the case"
        gate.let.set()
        assert (await engine.judge(case("next"), deadline=30)).metrics[0].score == 1


async def test_whatever_is_wrong_with_a_case_is_in_its_row() -> None:
    limits = Limits(max_calls=1)
    async with Engine(METRIC, model=ScriptedJudge(lambda q: True), limits=limits) as engine:
        rows = [
            await engine.judge(LLMTestCase(input="fine")),
            await engine.judge({"inpt": "x"}),
            await engine.judge(ConversationalTestCase(turns=[Turn(role="user", content="hello")])),
            await engine.judge(LLMTestCase(input="more")),
        ]
        kinds = [row.metrics[0].outcome for row in rows]
        assert kinds == ["ok", "invalid_case", "missing_field", "over_budget"]
        engine.limits = Limits(max_calls=3)
        assert (await engine.judge(LLMTestCase(input="more"))).success
        with pytest.raises(InputError, match=r"only max_calls, budget, .* can be changed"):
            engine.limits = Limits(max_in_flight=3)
        engine.limits = Limits(max_calls=3, max_waiting=0)
        row = await engine.judge(LLMTestCase(input="one too many"))
        assert row.metrics[0].outcome is OutcomeKind.OVER_BUDGET
        assert "0 cases wait for their turn" in outcome(row)[1]


async def test_an_account_holds_beyond_one_engine() -> None:
    account = Account()
    limits, judge = Limits(max_calls=2), ScriptedJudge(lambda question: True)
    kinds = []
    for number in range(3):
        async with Engine(METRIC, model=judge, limits=limits, account=account) as engine:
            kinds.append(str((await engine.judge(case(number))).metrics[0].outcome))
    assert kinds == ["ok", "ok", "over_budget"]


@pytest.mark.parametrize("deadline", [0, -1, float("nan"), True, "1", [1]])
async def test_a_deadline_that_is_none_is_an_error(deadline: Any) -> None:
    async with Engine(METRIC, model=ScriptedJudge(lambda question: True)) as engine:
        with pytest.raises(InputError, match="deadline must be a positive number of seconds"):
            await engine.judge(case(1), deadline=deadline)


async def test_invalid_use_is_an_error_at_once() -> None:
    judge = ScriptedJudge(lambda question: True)
    for metrics in ([], [1]):
        with pytest.raises((InputError, GraphError, TypeError)):
            Engine(metrics, model=judge)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="has no argument 'modle'"):
        Engine(METRIC, modle=judge)  # type: ignore[call-arg]
    with pytest.raises(InputError, match="account must be"):
        Engine(METRIC, model=judge, account=3)  # type: ignore[arg-type]
    engine = Engine(METRIC, model=judge)
    for use in (lambda: engine.judge(case(1)), lambda: engine.judge_all([case(1)])):
        with pytest.raises(InputError, match="not open"):
            await use()
    with pytest.raises(InputError, match="not open"):
        engine.also(METRIC)
    async with engine:
        for thing in (7, "case", METRIC, None, LLMTestCase, [case(1)]):
            with pytest.raises(InputError, match="test case"):
                await engine.judge(thing)
        with pytest.raises(InputError, match="test case"):
            await engine.judge_all([case(1), 7])
        with pytest.raises(InputError, match="opened before"):
            await engine.__aenter__()
        process = os.fork()
        if not process:
            code = 1
            try:
                engine.judge(case(1)).send(None)
            except InputError as error:
                code = 0 if "fork" in str(error) else 2
            finally:
                os._exit(code)
        assert os.waitstatus_to_exitcode(os.waitpid(process, 0)[1]) == 0
    for use in (lambda: engine.judge(case(1)), lambda: engine.judge_all([case(1)])):
        with pytest.raises(EngineClosedError, match="is closed"):
            await use()
    with pytest.raises(EngineClosedError):
        engine.also(METRIC)
    with pytest.raises(InputError, match="opened before"):
        await engine.__aenter__()
    await engine.close()


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_a_blocking_engine_in_a_fork_says_so_and_can_be_left() -> None:
    process, code = -1, 1
    try:
        with Engine(METRIC, model=ScriptedJudge(lambda question: True)) as engine:
            with pytest.raises(TypeError, match="one in each process"):
                pickle.dumps(engine)
            process = os.fork()
            if not process:
                signal.alarm(20)  # instead of a hang
            assert engine.judge(case(1)).success
    except InputError as error:
        code = 0 if "fork" in str(error) else 2
    finally:
        if not process:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(process, 0)[1]) == 0


async def test_a_caller_on_another_event_loop_is_told_so() -> None:
    async with Engine(METRIC, model=ScriptedJudge(lambda question: True)) as engine:

        def elsewhere() -> None:
            with pytest.raises(InputError, match="opened on another event loop"):
                asyncio.run(engine.judge(case(1)))
            with pytest.raises(InputError, match="opened on another event loop"):
                asyncio.run(engine.close())

        await anyio.to_thread.run_sync(elsewhere)
        assert (await engine.judge(case(1))).success


async def test_other_metrics_share_judges_limits_and_budget_and_close_with_the_engine() -> None:
    gate = Gate(open_=True)
    async with Engine(METRIC, model=gate.judge, limits=Limits(max_calls=2)) as engine:
        other, same = engine.also(yes_no_metric("other", "other")), engine.also([METRIC])
        assert (await engine.judge(case(1))).success
        assert (await same.judge(case(1))).success
        assert (await other.judge(case(1))).success
        assert (await other.judge(case(2))).metrics[0].outcome is OutcomeKind.OVER_BUDGET
        assert gate.calls.total() == 2
        assert other.totals == engine.totals
        await same.close()
        with pytest.raises(EngineClosedError):
            await same.judge(case(1))
        assert (await engine.judge(case(1))).success
    with pytest.raises(EngineClosedError):
        await other.judge(case(1))


@pytest.mark.parametrize("own_thread", [False, True])
async def test_a_node_may_ask_its_own_engine(own_thread: bool) -> None:
    class Inner(BaseMetric):
        async def a_measure(self, test_case: LLMTestCase) -> float:
            if "inner" in test_case.input:
                return 1.0
            row = await engine.judge(LLMTestCase(input=f"inner {test_case.input}"))
            return row.metrics[0].score or 0.0

    engines: list[BlockingEngine] = []

    class Blocking(BaseMetric):
        def measure(self, test_case: LLMTestCase) -> float:
            if "inner" in test_case.input:
                return 1.0
            inner = LLMTestCase(input=f"inner {test_case.input}")
            return engines[0].judge(inner).metrics[0].score or 0.0

    judge, limits = ScriptedJudge(lambda question: True), Limits(max_in_flight=1)
    cases = [case(number) for number in range(9)]
    with anyio.fail_after(60):
        if own_thread:

            def work() -> list[CaseResult]:
                with Engine([Blocking(), METRIC], model=judge, limits=limits) as blocking:
                    engines.append(blocking)
                    return blocking.judge_all(cases)

            rows = await anyio.to_thread.run_sync(work)
        else:
            async with Engine([Inner(), METRIC], model=judge, limits=limits) as engine:
                rows = await engine.judge_all(cases)
    assert [[result.score for result in row.metrics] for row in rows] == [[1, 1]] * 9


async def test_nodes_see_the_context_variables_of_their_caller_and_of_no_other() -> None:
    who: contextvars.ContextVar[str] = contextvars.ContextVar("who", default="nobody")

    async def own(text: str) -> float:
        before = who.get()
        await anyio.lowlevel.checkpoint()
        return float(before == who.get() == text)

    metric = DAGMetric("own", DAG(CodeNode(own, evaluation_params=["input"])))
    async with Engine(metric, model=ScriptedJudge({})) as engine:
        rows = list[CaseResult]()

        async def call(name: str) -> None:
            who.set(name)
            rows.append(await engine.judge(LLMTestCase(input=name)))

        async with anyio.create_task_group() as group:
            for number in range(40):
                group.start_soon(call, f"caller {number}")
        rows.append(await engine.judge(LLMTestCase(input="nobody")))
        assert [row.metrics[0].score for row in rows] == [1] * 41


async def test_what_holds_in_the_whole_process_holds_while_cases_are_open() -> None:
    gate, idle = Gate(), (gc.get_threshold(), threading.Thread.start)
    metrics = [
        METRIC,
        DAGMetric("own", DAG(CodeNode(lambda text: 1.0, evaluation_params=["input"]))),
    ]
    async with Engine(metrics, model=gate.judge) as engine, anyio.create_task_group() as group:
        assert (gc.get_threshold(), threading.Thread.start) == idle
        group.start_soon(engine.judge, case(1))
        await gate.asked.wait()
        assert gc.get_threshold() != idle[0]
        gate.let.set()
        await until(lambda: gc.get_threshold() == idle[0])
        assert threading.Thread.start is idle[1]


def test_opening_a_blocking_engine_again_is_an_error_and_leaves_it_open() -> None:
    twice = Engine(METRIC, model=ScriptedJudge(lambda question: True))
    with twice as engine:
        with pytest.raises(InputError, match="opened before"), twice:
            pass
        assert engine.judge(case(1)).success


def test_threads_share_a_blocking_engine() -> None:
    judge, rows = ScriptedJudge(lambda question: True), list[CaseResult]()
    with Engine(METRIC, model=judge, limits=Limits(max_in_flight=3)) as engine:

        def work(number: int) -> None:
            rows.append(engine.judge(case(number % 8)))

        threads = [threading.Thread(target=partial(work, number)) for number in range(32)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert [row.metrics[0].score for row in rows] == [1] * 32
        assert engine.totals.calls == 8
        assert engine.start(case(1)).result().success
        assert engine.also(yes_no_metric("o", "o")).judge_all([case(1), case(2)])[1].success
        assert list(engine.judges.values()) == ["in order"]
        with pytest.raises(InputError, match="test case"):
            engine.judge(7)
    for use in (partial(engine.judge, case(1)), partial(engine.start, case(1))):
        with pytest.raises(EngineClosedError):
            use()
    with pytest.raises(InputError), Engine([], model=judge):
        pass
