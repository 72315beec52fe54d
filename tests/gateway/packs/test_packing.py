"""Questions of one case in one request: who leaves with whom, under limits, failures, stops."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import pytest
from graphs.packing_judge import PackingJudge
from graphs.questions import ask_about
from graphs.trees import yes_no
from trio.testing import MockClock

from dagengine import Limits, a_evaluate
from dagengine.errors import ProviderError, RefusedError, UnparseableError
from dagengine.gateway.budget import Budget
from dagengine.gateway.call_priorities import Urgency
from dagengine.gateway.packs.packing import (
    PackCounts,
    PackEntry,
    Packing,
    PackSender,
    Participant,
    Pause,
)
from dagengine.gateway.rate_limiter import JudgeLimiter, Limiter
from dagengine.gateway.retry_pipeline import in_time
from dagengine.judges import ScriptedJudge
from dagengine.metrics import BaseMetric, DAGMetric
from dagengine.metrics.dag import DAG, CodeNode, MapNode, NonBinaryJudgementNode, TaskNode
from dagengine.question import Packs, Question
from dagengine.results import EvaluationResult, OutcomeKind
from dagengine.store import Store
from dagengine.test_case import LLMTestCase
from dagengine.voting import voted

CASE = LLMTestCase(input="why?", actual_output="so", context=["a", "b", "c"])
QUICK: dict[str, Any] = {"backoff": 0.0, "max_backoff": 0.0}
VIRTUAL = pytest.mark.parametrize(
    "anyio_backend", [("trio", {"clock": MockClock(autojump_threshold=0)})], ids=["trio, no clock"]
)
pytestmark = pytest.mark.anyio


def metric(name: str, node: Any = None) -> DAGMetric:
    return DAGMetric(name, DAG(node or yes_no(name)))


def several(count: int) -> list[DAGMetric]:
    return [metric(f"m{number}") for number in range(count)]


async def run(
    metrics: Sequence[Any], model: Any, cases: Sequence[Any] = (CASE,), **settings: Any
) -> EvaluationResult:
    with anyio.fail_after(120):  # only when something waits for ever
        return await a_evaluate(cases, metrics, model=model, show=False, **settings)


def scores(done: EvaluationResult) -> list[float | None]:
    return [result.score for row in done.rows for result in row.metrics]


async def test_what_is_ready_of_one_case_travels_together() -> None:
    model = PackingJudge()
    done = await run(several(5), model, [CASE, CASE.model_copy(update={"input": "who?"})])
    assert [len(names) for names in model.requests] == [5, 5]
    assert (done.totals.asked, done.totals.calls, done.totals.requests) == (10, 10, 2)
    assert scores(done) == [1.0] * 10


async def test_a_pack_waits_for_an_extraction_that_brings_further_questions() -> None:
    task = TaskNode("Sum up.", "summary", evaluation_params=["input"], name="summary")
    late = metric("late", yes_no("late", inputs=[task]))
    model = PackingJudge()
    await run([metric("early"), late], model)
    assert list(map(sorted, model.requests)) == [["early", "late"]]


async def test_a_pack_waits_for_nothing_that_brings_no_question() -> None:
    gate = anyio.Event()

    async def write(question: Question[Any]) -> str:
        await gate.wait()
        return "words"

    async def opened(names: Sequence[str]) -> None:
        gate.set()

    task = TaskNode("Sum up.", "summary", evaluation_params=["input"])
    code = CodeNode(lambda text: 1.0, inputs=[task], name="length")
    model = PackingJudge(writer=ScriptedJudge(write), pause=opened)
    done = await run([metric("early"), metric("length", code)], model)
    assert model.requests == [["early"]]
    assert scores(done) == [1.0, 1.0]


async def test_decisions_about_items_travel_with_the_others() -> None:
    over = MapNode("Good?", "context", "verdicts", answer=bool)
    share = CodeNode(lambda verdicts: 1.0, inputs=[over], name="share")
    model = PackingJudge()
    await run([metric("one"), metric("items", share)], model)
    assert [len(names) for names in model.requests] == [4]


@pytest.mark.parametrize("places", [1, 2, 3, 5, 64])
async def test_no_more_questions_are_under_way_than_may_be(places: int) -> None:
    under_way: list[int] = []

    async def count(names: Sequence[str]) -> None:
        under_way.append(len(names))
        assert sum(under_way) <= places
        await anyio.wait_all_tasks_blocked()
        under_way.remove(len(names))

    model = PackingJudge(pause=count)
    cases = [CASE.model_copy(update={"input": str(number)}) for number in range(4)]
    done = await run(several(5), model, cases, limits=Limits(max_in_flight=places))
    assert scores(done) == [1.0] * 20
    assert done.totals.requests == 4 * -(-5 // places)


@pytest.mark.parametrize("places", [1, 2, 64])
async def test_many_more_nodes_than_workers_do_not_wait_for_ever(places: int) -> None:
    model = PackingJudge()
    done = await run(several(150), model, limits=Limits(max_in_flight=places))
    assert scores(done) == [1.0] * 150
    assert done.totals.requests == -(-150 // places)


async def test_a_request_holds_what_the_judge_takes() -> None:
    model = PackingJudge(packs=Packs(3, 100_000))
    await run(several(7), model)
    assert sorted(map(len, model.requests)) == [1, 3, 3]
    model = PackingJudge(packs=Packs(400, 1))  # nothing fits beside another
    await run(several(3), model)
    assert [len(names) for names in model.requests] == [1, 1, 1]


async def test_a_judge_that_does_not_pack_gets_every_question_alone() -> None:
    model = PackingJudge(packs=None)
    done = await run(several(3), model)
    assert [len(names) for names in model.requests] == [1, 1, 1]
    assert done.totals.requests == done.totals.calls == 3


async def test_a_rate_counts_questions() -> None:
    judge_limiter = JudgeLimiter("j", Limits(requests_per_minute=60.0))
    limiter = Limiter(64)
    limiter.open(judge_limiter)
    call = await limiter.enter(judge_limiter, 0, Urgency(), 10)
    assert 8.5 < judge_limiter.opens_at() - anyio.current_time() <= 9.0
    for _ in range(10):
        limiter.leave(judge_limiter, call, None)
    assert limiter.in_flight == judge_limiter.in_flight == 0


async def test_a_wide_call_is_not_overtaken_for_ever() -> None:
    limits, limiter, order = Limits(), Limiter(4), list[str]()
    one, other = JudgeLimiter("one", limits), JudgeLimiter("other", limits)
    limiter.open(one)
    limiter.open(other)
    first = await limiter.enter(other, 0, Urgency(0))

    async def enter(name: str, judge_limiter: JudgeLimiter, place: int, places: int) -> None:
        call = await limiter.enter(judge_limiter, 0, Urgency(place), places)
        order.append(name)
        for _ in range(places):
            limiter.leave(judge_limiter, call, None)

    async with anyio.create_task_group() as group:
        group.start_soon(enter, "wide", one, 1, 4)
        await anyio.wait_all_tasks_blocked()
        group.start_soon(enter, "later", other, 2, 1)
        await anyio.wait_all_tasks_blocked()
        assert order == []  # there is a place for the later one, but the wide one comes first
        limiter.leave(other, first, None)
    assert order == ["wide", "later"]
    assert limiter.in_flight == 0


async def test_a_wide_call_that_is_stopped_lets_the_others_go() -> None:
    limiter, judge_limiter = Limiter(2), JudgeLimiter("one", Limits())
    limiter.open(judge_limiter)
    first = await limiter.enter(judge_limiter, 0, Urgency(0))
    async with anyio.create_task_group() as group:
        group.start_soon(limiter.enter, judge_limiter, 0, Urgency(1), 2)
        await anyio.wait_all_tasks_blocked()
        group.cancel_scope.cancel()
    assert (await limiter.enter(judge_limiter, 0, Urgency(2))).serial
    limiter.leave(judge_limiter, first, None)
    assert limiter.in_flight == 1


async def test_a_budget_that_ends_in_the_middle_of_a_pack_ends_the_rest_of_it() -> None:
    model = PackingJudge()
    done = await run(several(5), model, limits=Limits(max_calls=3))
    kinds = [result.outcome for result in done.rows[0].metrics]
    assert sorted(kinds) == sorted([OutcomeKind.OK] * 3 + [OutcomeKind.OVER_BUDGET] * 2)
    assert [len(names) for names in model.requests] == [3]
    assert done.totals.calls == 3


async def test_one_bad_answer_is_the_failure_of_its_question_alone() -> None:
    def decide(question: Question[Any]) -> Any:
        if question.name == "m1":
            return RefusedError("no")
        return UnparseableError("what?", "?") if question.name == "m2" else True

    model = PackingJudge(decide)
    done = await run(several(4), model, limits=Limits(reasks=1))
    kinds = [result.outcome for result in done.rows[0].metrics]
    assert kinds == [
        OutcomeKind.OK, OutcomeKind.JUDGE_REFUSED, OutcomeKind.UNPARSEABLE, OutcomeKind.OK,
    ]  # fmt: skip
    assert list(map(sorted, model.requests)) == [["m0", "m1", "m2", "m3"], ["m2"]]


async def test_a_request_that_fails_is_one_failure_and_goes_out_again_as_one() -> None:
    def decide(question: Question[Any]) -> Any:
        busy = ProviderError("busy", transient=True, status=503)
        return busy if len(model.requests) < 3 else True

    model = PackingJudge(decide)
    done = await run(several(6), model, limits=Limits(**QUICK))
    assert scores(done) == [1.0] * 6
    assert [len(names) for names in model.requests] == [6, 6, 6]
    assert (done.totals.calls, done.totals.failed, done.totals.requests) == (18, 12, 3)


async def test_what_is_too_much_for_one_request_goes_in_two() -> None:
    class Small(PackingJudge):
        async def answer_all(self, questions: Any, **more: Any) -> Any:
            if len(questions) > 2:
                more["on_request"]()
                raise ProviderError("HTTP 413", transient=False, status=413)
            return await super().answer_all(questions, **more)

    model = Small()
    done = await run(several(5), model)
    assert scores(done) == [1.0] * 5
    assert sorted(map(len, model.requests)) == [1, 2, 2]


async def test_one_of_a_pack_that_is_stopped_leaves_the_others_alone() -> None:
    """One metric fails while its other question is under way in a pack with another metric's."""
    sent, failed = anyio.Event(), anyio.Event()

    async def write(question: Question[Any]) -> Any:
        await sent.wait()
        failed.set()
        return ProviderError("gone", transient=False)

    async def pause(names: Sequence[str]) -> None:
        sent.set()
        await failed.wait()
        await anyio.wait_all_tasks_blocked()

    task = TaskNode("Sum up.", "summary", evaluation_params=["input"], name="summary")
    code = CodeNode(lambda summary, verdict: 1.0, inputs=[task, yes_no("beside", then=None)])
    model = PackingJudge(writer=ScriptedJudge(write), pause=pause)
    done = await run([metric("fails", code), metric("holds")], model)
    fails, holds = done.rows[0].metrics
    assert (fails.outcome, fails.failure and fails.failure.node) == ("provider_error", "summary")
    assert holds.score == 1.0


async def test_one_that_is_stopped_as_its_pack_has_its_places_gives_its_own_back() -> None:
    judge, packing, limiter, limits = PackingJudge(), Packing(), Limiter(2), Limits()
    own = JudgeLimiter("packing", limits)
    limiter.open(own)
    sender = PackSender(
        judge, Packs(2, 1000), own, limiter, Budget(limits), None, PackCounts(),
        lambda question: False, partial(in_time, own),
    )  # fmt: skip
    scopes: dict[str, anyio.CancelScope] = {}

    async def ask(name: str) -> None:
        packing.ready()
        pause = Pause(Participant(packing))
        entry = PackEntry(sender, ask_about(name), 1, Urgency(), pause)
        with anyio.CancelScope() as scopes[name]:
            pack = await packing.join(entry, 2)
            call = await pack.enter(entry)
            for neighbour in scopes.keys() - {name}:  # it has not heard of its pack yet
                scopes[neighbour].cancel()
            limiter.leave(own, call, None)

    async with anyio.create_task_group() as group:
        group.start_soon(ask, "one")
        group.start_soon(ask, "two")
    assert sum(scope.cancelled_caught for scope in scopes.values()) == 1
    assert limiter.in_flight == 0


@VIRTUAL
async def test_the_time_of_a_case_ends_its_packs_and_no_others() -> None:
    async def pause(names: Sequence[str]) -> None:
        if len(model.requests) == 1:
            await anyio.sleep_forever()

    model = PackingJudge(pause=pause)
    cases = [CASE, CASE.model_copy(update={"input": "who?"})]
    done = await run(several(3), model, cases, limits=Limits(case_timeout=50))
    first, second = ([one.outcome for one in row.metrics] for row in done.rows)
    assert first == [OutcomeKind.TIMEOUT] * 3
    assert second == [OutcomeKind.OK] * 3
    assert done.totals.in_flight == 0


@VIRTUAL
async def test_a_call_that_takes_too_long_ends_for_all_of_its_pack() -> None:
    async def pause(names: Sequence[str]) -> None:
        if len(model.requests) == 1:
            await anyio.sleep_forever()

    model = PackingJudge(pause=pause)
    limits = Limits(call_timeout=50, **QUICK)
    done = await run(several(3), model, limits=limits)
    assert scores(done) == [1.0] * 3
    assert [len(names) for names in model.requests] == [3, 3]


async def test_equal_questions_of_two_cases_wait_for_one_another_without_a_knot() -> None:
    """Two cases with the same texts: whoever asks first asks for both, whatever waits for it."""
    task = TaskNode("Sum up.", "summary", evaluation_params=["input"], name="summary")
    chain = metric("chain", yes_no("gate", then={True: yes_no("last", inputs=[task]), False: 0}))
    model = PackingJudge()
    done = await run([*several(3), chain], model, [CASE, CASE, CASE])
    assert scores(done) == [1.0] * 12
    assert done.totals.calls == 6  # with the writer's


async def test_code_that_measures_what_waits_in_a_pack_is_not_waited_for() -> None:
    inner = metric("m0")

    class Own(BaseMetric):
        name = "own"

        async def a_measure(self, test_case: Any, *args: Any, **kwargs: Any) -> float:
            return await inner.a_measure(test_case)

    tree = metric("tree", CodeNode(lambda text: True, evaluation_params=["input"], then={True: 10}))
    after = yes_no("after")
    nested = DAGMetric("nested", DAG(yes_no("gate", then={True: Own(), False: after})))
    model = PackingJudge()
    done = await run([metric("m0"), tree, nested], model)
    assert scores(done) == [1.0, 1.0, 1.0]


@pytest.mark.parametrize("first", [True, False])
async def test_a_store_knows_nothing_of_packs(first: bool, tmp_path: Path) -> None:
    path, metrics = tmp_path / "answers.db", several(4)
    packs = (Packs(400, 100_000), None)
    model = PackingJudge(packs=packs[first])
    one = await run(metrics, model, store=path)
    again = PackingJudge(packs=packs[not first])
    other = await run(metrics, again, store=path)
    replayed = await run(metrics, PackingJudge(), store=Store(path, replay=True))
    assert again.requests == []
    assert (other.totals.calls, other.totals.requests, other.totals.cached) == (0, 0, 4)
    rows = [[row.as_dict() for row in done.rows] for done in (one, other, replayed)]
    assert rows[0] == rows[1] == rows[2]


async def test_repetitions_of_a_question_do_not_share_a_request() -> None:
    tone = NonBinaryJudgementNode("Tone?", evaluation_params=["input"], then={"a": 1, "b": 2})
    model = PackingJudge()
    await run([voted(metric("tone", tone), votes=2)], model)
    assert [len(names) for names in model.requests] == [1, 1]
