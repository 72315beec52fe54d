"""What a node's own code measures joins the run: its judge, limits, store, ledger and replay."""

from __future__ import annotations

import asyncio
import contextvars
import io
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import anyio.to_thread
import pytest
from graphs.hostile import two_of_each
from rich.console import Console

from dagengine import Limits, Store, a_evaluate, assert_test, evaluate
from dagengine.compiler.execution_plan import compile_metrics
from dagengine.errors import InputError
from dagengine.estimate import estimate
from dagengine.estimate.estimate_report import Assumptions, as_dict, print_estimate
from dagengine.gateway import inner_metrics
from dagengine.judges import ScriptedJudge
from dagengine.metrics import AnswerRelevancyMetric, BaseMetric, DAGMetric, FaithfulnessMetric
from dagengine.metrics.dag import DAG, BinaryJudgementNode, CodeNode
from dagengine.question import Question
from dagengine.reliability import repeat
from dagengine.results import Attempt, EvaluationResult, OutcomeKind
from dagengine.system.threads import EventLoop, LoopCall
from dagengine.test_case import LLMTestCase

CASES = [
    LLMTestCase(
        input=f"question {n}", actual_output=f"answer {n}", retrieval_context=[f"a {n}", "b"]
    )
    for n in range(4)
]
FEW = CASES[:2]  # for what is tried in every way
CALLS = 4  # of a case, equal ones among both metrics counted once


def answered(question: Question[Any]) -> Any:
    return two_of_each(question, 0)


def judge(name: str = "joined") -> ScriptedJudge:
    return ScriptedJudge(answered, name)


def worst(done: EvaluationResult) -> float:
    failed = [str(result.failure) for result in done.rows[0].metrics if result.failure is not None]
    if failed:
        raise RuntimeError(failed[0])
    return min(result.score or 0.0 for result in done.rows[0].metrics)


class Composite(BaseMetric):
    """Two metrics in one, measured in whatever way `how` says."""

    def __init__(self, how: str = "await", model: Any = None, inner: Any = None) -> None:
        self.threshold = 0.5
        self.how = how
        self.model = model
        self.inner = inner

    def parts(self) -> list[BaseMetric]:
        return [AnswerRelevancyMetric(model=self.inner), FaithfulnessMetric(model=self.inner)]

    def decide(self, parts: Sequence[BaseMetric]) -> float:
        scores = [part.score for part in parts if part.score is not None]
        self.score = min(scores)
        self.reason = "\n".join(part.reason or "" for part in parts)
        self.success = self.score >= self.threshold
        return self.score


class Waiting(Composite):
    """With an `a_measure` of its own."""

    async def a_measure(self, test_case: Any) -> float:
        parts = self.parts()
        if self.how == "gather":
            await asyncio.gather(*(part.a_measure(test_case) for part in parts))
        elif self.how == "group":
            async with anyio.create_task_group() as group:
                for part in parts:
                    group.start_soon(part.a_measure, test_case)
        elif self.how == "thread":
            for part in parts:
                await anyio.to_thread.run_sync(part.measure, test_case)
        elif self.how == "blocking":
            for part in parts:
                part.measure(test_case)
        elif self.how == "evaluate":
            return worst(await a_evaluate([test_case], parts, show=False))
        else:
            for part in parts:
                await part.a_measure(test_case)
        return self.decide(parts)


def in_bare_thread(metric: BaseMetric, case: Any) -> None:
    done = Future[float]()

    def work() -> None:
        try:
            done.set_result(metric.measure(case))
        except Exception as error:  # noqa: BLE001 - raised where the thread is waited for
            done.set_exception(error)

    threading.Thread(target=work).start()
    done.result()


class Plain(Composite):
    """With a `measure` of its own, which runs in a thread."""

    def measure(self, test_case: Any) -> float:
        parts = self.parts()
        if self.how == "asyncio.run":
            for part in parts:
                asyncio.run(part.a_measure(test_case))
        elif self.how == "gather":
            asyncio.run(self.together(parts, test_case))
        elif self.how == "evaluate":
            return worst(evaluate([test_case], parts, show=False))
        elif self.how == "bare thread":
            for part in parts:
                in_bare_thread(part, test_case)
        elif self.how == "pool":
            with ThreadPoolExecutor(2) as pool:
                list(pool.map(lambda part: part.measure(test_case), parts))
        elif self.how == "executor":
            asyncio.run(self.in_executor(parts, test_case))
        elif self.how == "own threads":
            for part in parts:
                contextvars.copy_context().run(part.measure, test_case)
        else:
            for part in parts:
                part.measure(test_case)
        return self.decide(parts)

    async def in_executor(self, parts: Sequence[BaseMetric], case: Any) -> None:
        loop = asyncio.get_running_loop()
        await asyncio.gather(*(loop.run_in_executor(None, part.measure, case) for part in parts))

    async def together(self, parts: Sequence[BaseMetric], case: Any) -> None:
        await asyncio.gather(*(part.a_measure(case) for part in parts))


class Outer(BaseMetric):
    """A composite that measures a composite, in turn in another way."""

    def __init__(self, deep: int, how: str) -> None:
        self.deep, self.how = deep, how

    async def a_measure(self, test_case: Any) -> float:
        inner: BaseMetric = Outer(self.deep - 1, self.how) if self.deep else Waiting(self.how)
        return worst(await a_evaluate([test_case], [inner], show=False))


WAYS: list[Composite | Outer] = [
    *(Waiting(how) for how in ("await", "group", "thread", "blocking", "evaluate")),
    *(Plain(how) for how in ("measure", "asyncio.run", "gather", "evaluate", "own threads")),
    *(Plain(how) for how in ("bare thread", "pool", "executor")),
    *(Outer(deep, how) for deep, how in ((0, "await"), (3, "thread"), (2, "blocking"))),
]
NAMES = [f"{type(m).__name__} {m.how}" for m in WAYS]
every_way = pytest.mark.parametrize("metric", WAYS, ids=NAMES)


class Pooled(Composite):
    """With a pool of threads that every case uses."""

    def __init__(self, pool: ThreadPoolExecutor, model: Any = None) -> None:
        super().__init__(model=model)
        self.pool = pool

    def measure(self, test_case: Any) -> float:
        parts = self.parts()
        list(self.pool.map(lambda part: part.measure(test_case), parts))
        return self.decide(parts)


@pytest.fixture
def pool() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(2) as pool:
        yield pool


def failures(done: EvaluationResult) -> list[OutcomeKind]:
    return [result.outcome for row in done for result in row.metrics]


@every_way
@pytest.mark.anyio
async def test_inner_metrics_are_under_the_limit_of_calls(metric: BaseMetric) -> None:
    asked: list[str] = []

    def answer(question: Question[Any]) -> Any:
        asked.append(question.name)
        return answered(question)

    limits = Limits(max_calls=0)
    done = await a_evaluate(FEW, [metric], model=ScriptedJudge(answer), limits=limits, show=False)
    assert asked == []
    kinds = {OutcomeKind.OVER_BUDGET, OutcomeKind.CODE_ERROR}
    assert set(failures(done)) <= kinds
    assert all("max_calls" in str(row.metrics[0].failure) for row in done)


@every_way
@pytest.mark.anyio
async def test_inner_metrics_ask_the_judge_of_the_run_and_share_its_place(
    metric: BaseMetric,
) -> None:
    running, most, ledger = 0, 0, list[Attempt]()

    async def answer(question: Question[Any]) -> Any:
        nonlocal running, most
        running += 1
        most = max(most, running)
        for _ in range(3):
            await anyio.lowlevel.checkpoint()
        running -= 1
        return answered(question)

    done = await a_evaluate(
        FEW, [metric], model=ScriptedJudge(answer, "joined"), limits=Limits(max_in_flight=1),
        on_attempt=ledger.append, show=False,
    )  # fmt: skip
    assert failures(done) == [OutcomeKind.OK] * len(FEW)
    assert done.totals.calls == len(ledger) == CALLS * len(FEW)
    assert {attempt.judge.partition(" ")[0] for attempt in ledger} == {"joined"}
    assert most == 1


@every_way
@pytest.mark.anyio
async def test_inner_answers_are_stored_and_a_replay_asks_nobody(
    metric: BaseMetric, tmp_path: Path
) -> None:
    path = tmp_path / "answers.db"
    first = await a_evaluate(FEW, [metric], model=judge(), store=path, show=False)
    assert failures(first) == [OutcomeKind.OK] * len(FEW)

    def refuse(question: Question[Any]) -> Any:
        raise AssertionError("a replay makes no judge calls")

    silent = ScriptedJudge(refuse, "joined")
    replayed = Store(path, replay=True)
    again = await a_evaluate(FEW, [metric], model=silent, store=replayed, show=False)
    assert [row.as_dict() for row in again] == [row.as_dict() for row in first]
    assert (again.totals.calls, again.totals.cached) == (0, CALLS * len(FEW))
    empty = Store(tmp_path / "other.db", replay=True)
    await a_evaluate(FEW[:1], [AnswerRelevancyMetric()], model=judge(),
                     store=tmp_path / "other.db", show=False)  # fmt: skip
    missed = await a_evaluate(FEW[1:], [metric], model=silent, store=empty, show=False)
    assert OutcomeKind.OK not in failures(missed)


def test_the_parts_by_themselves_ask_as_often() -> None:
    parts = Composite().parts()
    assert evaluate(CASES, parts, model=judge(), show=False).totals.calls == CALLS * len(CASES)


def test_gather_joins_the_run_on_asyncio() -> None:
    done = evaluate(CASES, [Waiting("gather")], model=judge(), show=False)
    assert failures(done) == [OutcomeKind.OK] * len(CASES)
    assert done.totals.calls == CALLS * len(CASES)


@pytest.mark.anyio
async def test_a_composite_with_a_judge_of_its_own_hands_it_on() -> None:
    ledger: list[str] = []
    metric = Waiting(model=judge("own"))
    run = judge("run")
    await a_evaluate(CASES[:1], [metric], model=run, show=False,
                     on_attempt=lambda one: ledger.append(one.judge.split()[0]))  # fmt: skip
    assert set(ledger) == {"own"}
    ledger.clear()
    await a_evaluate(CASES[:1], [Waiting(inner=judge("inner"))], model=run, show=False,
                     on_attempt=lambda one: ledger.append(one.judge.split()[0]))  # fmt: skip
    assert set(ledger) == {"inner"}


@pytest.mark.parametrize("setting", ["limits", "store", "on_attempt"])
def test_an_inner_evaluation_cannot_have_what_belongs_to_the_run(
    setting: str, tmp_path: Path
) -> None:
    values = {"limits": Limits(), "store": tmp_path / "x.db", "on_attempt": print}

    class Own(BaseMetric):
        def measure(self, test_case: Any) -> float:
            given: Any = {setting: values[setting]}
            evaluate([test_case], [AnswerRelevancyMetric()], show=False, **given)
            return 1.0

    failure = evaluate(CASES[:1], [Own()], model=judge(), show=False)[0].metrics[0].failure
    assert f"leave out {setting}=" in failure.message


def test_a_code_node_joins_too_and_is_told_what_would_block() -> None:
    inner = AnswerRelevancyMetric()

    async def waits(case: str) -> float:
        return await inner.a_measure(CASES[0])

    def blocks(case: str) -> float:
        return inner.measure(CASES[0])

    def metric(function: Callable[..., Any]) -> DAGMetric:
        return DAGMetric("m", DAG(root_node=CodeNode(function, evaluation_params=["input"])))

    done = evaluate(CASES, [metric(waits)], model=judge(), show=False)
    assert (failures(done), done.totals.calls) == ([OutcomeKind.OK] * 4, 2)
    done = evaluate(CASES[:1], [metric(blocks)], model=judge(), show=False)
    assert "await a_measure()" in str(done[0].metrics[0].failure)
    assert done.totals.calls == 0


@pytest.mark.anyio
async def test_an_inner_run_is_cancelled_with_the_run() -> None:
    """The thread is left behind; the call that it waits for is not."""
    asked, ended = anyio.Event(), anyio.Event()

    async def never(question: Question[Any]) -> Any:
        asked.set()
        try:
            await anyio.sleep_forever()
        finally:
            ended.set()

    async def run() -> None:
        await a_evaluate(CASES[:1], [Plain()], model=ScriptedJudge(never), show=False)

    async with anyio.create_task_group() as group:
        group.start_soon(run)
        await asked.wait()
        group.cancel_scope.cancel()
    with anyio.CancelScope(shield=True):
        await ended.wait()


@pytest.mark.anyio
async def test_what_goes_on_after_its_node_can_ask_nothing() -> None:
    late: list[str] = []
    over = anyio.Event()

    class Leaving(BaseMetric):
        async def a_measure(self, test_case: Any) -> float:
            async def later() -> None:
                await over.wait()
                try:
                    await AnswerRelevancyMetric().a_measure(test_case)
                except Exception as error:  # noqa: BLE001
                    late.append(str(error))

            group.start_soon(contextvars.copy_context().run, later)
            return 1.0

    ledger: list[Attempt] = []
    async with anyio.create_task_group() as group:
        await a_evaluate(
            CASES[:1], [Leaving()], model=judge(), on_attempt=ledger.append, show=False
        )
        over.set()
    assert late
    assert "has ended" in late[0]
    assert ledger == []


def test_a_judge_that_measures_keeps_its_own_run() -> None:
    """It holds a place while it answers: joined it would wait for itself."""

    async def answer(question: Question[Any]) -> Any:
        await AnswerRelevancyMetric(model=judge("inner")).a_measure(CASES[0])
        return True

    node = BinaryJudgementNode("Good?", evaluation_params=["input"], then={True: 10, False: 0})
    metric = DAGMetric("m", DAG(root_node=node))
    limits = Limits(max_in_flight=1)
    done = evaluate(CASES, [metric], model=ScriptedJudge(answer), limits=limits, show=False)
    assert failures(done) == [OutcomeKind.OK] * len(CASES)
    assert done.totals.calls == len(CASES)


def test_repetitions_of_a_composite_ask_anew() -> None:
    ledger: list[str] = []
    evaluate(CASES[:1], [Waiting()], model=judge(), show=False,
             on_attempt=lambda attempt: ledger.append(attempt.key))  # fmt: skip
    once = len(ledger)
    ledger.clear()
    repeat(CASES[:1], [Waiting()], times=3, model=judge(),
           on_attempt=lambda attempt: ledger.append(attempt.key))  # fmt: skip
    assert len(ledger) == len(set(ledger)) == 3 * once


def test_an_estimate_says_that_own_code_may_ask_and_asks_nobody() -> None:
    asked: list[str] = []

    def note(question: Question[Any]) -> Any:
        asked.append(question.name)
        return answered(question)

    def inner(text: str) -> float:
        return AnswerRelevancyMetric(model=ScriptedJudge(note)).measure(CASES[0])

    read = CodeNode(inner, evaluation_params=["input"], output_label="found")
    score = CodeNode(lambda found: found, inputs=[read])
    plain = DAGMetric("plain", DAG(root_nodes=[read, score]))
    found = estimate(compile_metrics([Waiting(), plain]), CASES)
    assert asked == []
    assert found.uncounted == ("Waiting",)
    budget = Assumptions({}, 1.0, 64, 10)
    console = Console(file=io.StringIO(), width=120)
    print_estimate(found, budget, console)
    shown = console.file.getvalue()  # type: ignore[attr-defined]
    assert "Waiting runs its own code, which may ask" in shown
    assert "the length of a list that a judge writes" not in shown
    assert as_dict(found, budget)["uncounted"] == ["Waiting"]


def test_steps_say_what_inner_metrics_used() -> None:
    done = evaluate(CASES[:1], [Waiting()], model=judge(), show=False)
    assert done[0].metrics[0].usage == done.totals.usage


def test_the_limits_of_assert_test_hold_inside() -> None:
    with pytest.raises(AssertionError, match="max_calls"):
        assert_test(CASES[0], [Waiting()], model=judge(), limits=Limits(max_calls=0))


@pytest.mark.anyio
async def test_a_pool_that_cases_share_belongs_to_the_run(
    pool: ThreadPoolExecutor, tmp_path: Path
) -> None:
    """Its threads work for one node after another."""
    path, ledger = tmp_path / "answers.db", list[str]()
    settings: dict[str, Any] = {"limits": Limits(max_in_flight=1), "store": path}
    done = await a_evaluate(CASES, [Pooled(pool)], model=judge(), show=False, **settings,
                            on_attempt=lambda one: ledger.append(one.judge.split()[0]))  # fmt: skip
    assert failures(done) == [OutcomeKind.OK] * len(CASES)
    assert ledger == ["joined"] * CALLS * len(CASES)
    with ThreadPoolExecutor(2) as another:
        again = await a_evaluate(CASES, [Pooled(another)], model=judge(), show=False,
                                 store=Store(path, replay=True))  # fmt: skip
    assert [row.as_dict() for row in again] == [row.as_dict() for row in done]
    assert again.totals.calls == 0


@pytest.mark.anyio
async def test_a_pool_inside_a_composite_that_cases_share_belongs_to_the_run(
    pool: ThreadPoolExecutor,
) -> None:
    class Deep(BaseMetric):
        async def a_measure(self, test_case: Any) -> float:
            return await Pooled(pool).a_measure(test_case)

    limits = Limits(max_in_flight=1)
    done = await a_evaluate(CASES, [Deep()], model=judge(), limits=limits, show=False)
    assert failures(done) == [OutcomeKind.OK] * len(CASES)
    assert done.totals.calls == CALLS * len(CASES)


@pytest.mark.anyio
async def test_a_pool_serves_one_run_after_the_other_and_what_belongs_to_none(
    pool: ThreadPoolExecutor,
) -> None:
    """Its threads were started by a node of the first run, or before it."""
    alone: dict[str, Any] = {"model": judge("alone"), "show": False}
    for _ in range(2):
        done = await a_evaluate(CASES, [Pooled(pool)], model=judge(), show=False)
        assert failures(done) == [OutcomeKind.OK] * len(CASES)
        assert done.totals.calls == CALLS * len(CASES)
        refused = await a_evaluate(
            CASES, [Pooled(pool)], model=judge(), limits=Limits(max_calls=0), show=False
        )
        assert refused.totals.calls == 0
        work = pool.submit(evaluate, CASES[:1], [AnswerRelevancyMetric()], **alone)
        assert failures(work.result()) == [OutcomeKind.OK]


@pytest.mark.anyio
async def test_a_job_that_goes_on_after_its_node_can_ask_nothing(
    pool: ThreadPoolExecutor,
) -> None:
    over = threading.Event()
    jobs: list[Future[float]] = []

    class Leaving(BaseMetric):
        def measure(self, test_case: Any) -> float:
            def late() -> float:
                over.wait()
                return AnswerRelevancyMetric(model=judge()).measure(test_case)

            jobs.append(pool.submit(late))
            return 1.0

    await a_evaluate(CASES[:1], [Leaving()], model=judge(), show=False)
    over.set()
    with pytest.raises(InputError, match="has ended"):
        jobs[0].result()


@pytest.mark.anyio
async def test_a_thread_that_asks_in_the_moment_in_which_its_run_ends_is_told_so(
    monkeypatch: pytest.MonkeyPatch, anyio_backend_name: str
) -> None:
    """It has seen the node open, and the loop is closed when it goes on."""
    seen_open, closed = threading.Event(), threading.Event()
    told: Future[float] = Future()

    class Held(LoopCall[Any]):
        def __init__(self, *given: Any) -> None:
            super().__init__(*given)
            seen_open.set()
            closed.wait()

    class Leaving(BaseMetric):
        async def a_measure(self, test_case: Any) -> float:
            def late() -> None:
                try:
                    told.set_result(AnswerRelevancyMetric().measure(test_case))
                except Exception as error:  # noqa: BLE001 - looked at below
                    told.set_exception(error)

            threading.Thread(target=late, daemon=True).start()
            seen_open.wait()
            return 1.0

    async def run() -> None:
        monkeypatch.setattr(inner_metrics, "LoopCall", Held)
        await a_evaluate(CASES[:1], [Leaving()], model=judge(), show=False)

    await anyio.to_thread.run_sync(partial(anyio.run, run, backend=anyio_backend_name))
    closed.set()
    with pytest.raises(InputError, match="has ended"):
        await anyio.to_thread.run_sync(told.result)


@pytest.mark.anyio
async def test_a_call_that_ends_before_the_loop_begins_it_is_never_made() -> None:
    made: list[str] = []

    async def make() -> None:
        raise AssertionError("never awaited")

    def coroutine() -> Any:
        made.append("made")
        return make()

    loop = EventLoop.here()
    call = LoopCall[None](loop, coroutine, lambda: InputError("over"))
    loop.soon(call.start)
    call.end()
    for _ in range(3):
        await anyio.lowlevel.checkpoint()
    assert made == []
    with pytest.raises(InputError, match="over"):
        call.outcome.result()


def test_the_default_executor_of_the_runs_own_loop_joins() -> None:
    class Own(Composite):
        async def a_measure(self, test_case: Any) -> float:
            loop, parts = asyncio.get_running_loop(), self.parts()
            await asyncio.gather(
                *(loop.run_in_executor(None, part.measure, test_case) for part in parts)
            )
            return self.decide(parts)

    done = evaluate(CASES, [Own()], model=judge(), limits=Limits(max_in_flight=1), show=False)
    assert failures(done) == [OutcomeKind.OK] * len(CASES)
    assert done.totals.calls == CALLS * len(CASES)
    refused = evaluate(CASES, [Own()], model=judge(), limits=Limits(max_calls=0), show=False)
    assert refused.totals.calls == 0
    assert all("max_calls" in str(row.metrics[0].failure) for row in refused)


@pytest.mark.anyio
async def test_a_thread_that_no_node_started_keeps_its_own_run(tmp_path: Path) -> None:
    """As of a web server: neither limits nor store nor judge of the other run are its own."""
    inside, done = threading.Event(), threading.Event()
    found: list[EvaluationResult] = []
    path = tmp_path / "answers.db"

    def serve() -> None:
        inside.wait()
        metrics = [AnswerRelevancyMetric()]
        found.append(evaluate(CASES[:1], metrics, model=judge("web"), store=path, show=False))
        with ThreadPoolExecutor(1) as workers:
            work = workers.submit(evaluate, CASES[:1], metrics, model=judge("pool"), show=False)
            found.append(work.result())
        done.set()

    class Held(BaseMetric):
        def measure(self, test_case: Any) -> float:
            inside.set()
            done.wait()
            return 1.0

    server = threading.Thread(target=serve)
    server.start()
    limits = Limits(max_calls=0)
    held = await a_evaluate(CASES[:1], [Held()], model=judge(), limits=limits, show=False)
    server.join()
    assert failures(held) == [OutcomeKind.OK]
    assert held.totals.calls == 0
    assert [failures(each) for each in found] == [[OutcomeKind.OK]] * 2
    assert all(each.totals.calls for each in found)
    assert path.exists()


def test_votes_in_threads_differ() -> None:
    ledger: list[str] = []
    repeat(CASES[:1], [Plain("pool")], times=3, model=judge(),
           on_attempt=lambda attempt: ledger.append(attempt.key))  # fmt: skip
    assert len(ledger) == len(set(ledger)) == 3 * CALLS


def test_what_threads_used_is_part_of_the_steps() -> None:
    done = evaluate(CASES[:1], [Plain("pool")], model=judge(), show=False)
    assert done[0].metrics[0].usage == done.totals.usage
