"""What workers have in common: nothing is lent twice, and nothing is lost with a worker."""

from __future__ import annotations

import random
from collections import Counter, defaultdict, deque
from collections.abc import Callable
from pathlib import Path
from typing import Any

import anyio
import pytest
from graphs.questions import ask_about
from hypothesis import given
from hypothesis import strategies as st

from dagengine.errors import OverBudgetError, ProviderError
from dagengine.execution.cluster.shared_limits import (
    AMOUNT,
    QUESTION,
    SHARE,
    CommonQuestions,
    Leases,
    SharedQuantity,
    SpentAmount,
)
from dagengine.execution.cluster.worker import Leased
from dagengine.gateway import Gateway, Limits
from dagengine.judges import ScriptedJudge
from dagengine.question import Question
from dagengine.results import OutcomeKind
from dagengine.store.answer_journal import Store

WORKERS = "abcd"
STEPS = st.lists(
    st.tuples(
        st.sampled_from(WORKERS), st.sampled_from(["want", "idle", "die"]), st.integers(1, 9)
    ),
    max_size=60,
)


class Holders:
    """Workers that do what they are told: they keep what is theirs, and give back what is asked."""

    def __init__(self, quantity: SharedQuantity | SpentAmount) -> None:
        self.quantity = quantity
        self.held: defaultdict[str, float] = defaultdict(float)
        self.refused: Counter[str] = Counter()

    def settle(self) -> None:
        """Do what has to be done until nothing is to be said any more."""
        while moves := self.quantity.moves():
            for worker, value in moves:
                if value > 0:
                    self.held[worker] += value
                elif value == 0:
                    self.refused[worker] += 1
                else:
                    spent = isinstance(self.quantity, SpentAmount)
                    back = self.held[worker] if spent else min(-value, self.held[worker])
                    self.held[worker] -= back
                    self.quantity.back(worker, back)


@given(STEPS, st.integers(1, 12))
def test_a_share_is_never_lent_twice_and_who_needs_it_gets_it(
    steps: list[tuple[str, str, int]], total: int
) -> None:
    shares = SharedQuantity(total, 2, whole=True)
    holders = Holders(shares)
    for worker, deed, amount in steps:
        if deed == "want":
            least = min(amount, total)
            shares.want(worker, least, amount)
            holders.settle()
            assert holders.held[worker] >= least
        elif deed == "idle" and holders.held[worker]:
            back = min(amount, holders.held[worker])
            holders.held[worker] -= back
            shares.back(worker, back)
        elif deed == "die":
            shares.drop_worker(worker)
            holders.held.pop(worker, None)
        holders.settle()
        assert sum(holders.held.values()) <= total
    for worker in WORKERS:
        shares.drop_worker(worker)
    shares.want("new", total, total)
    assert sum(value for _, value in shares.moves()) == total


def test_of_a_share_that_all_want_everybody_has_a_fair_part() -> None:
    shares = SharedQuantity(64, 1, whole=True)
    holders = Holders(shares)
    for worker in WORKERS:
        shares.want(worker, 1, 64)
        holders.settle()
    for _ in range(4):
        for worker in WORKERS:
            shares.want(worker, 1, 64)
            holders.settle()
    assert dict(holders.held) == dict.fromkeys(WORKERS, 16)


@given(STEPS, st.integers(0, 30))
def test_an_amount_is_never_lent_beyond_its_total_and_is_lent_to_its_end(
    steps: list[tuple[str, str, int]], total: int
) -> None:
    amount = SpentAmount(total, len(WORKERS))
    holders, spent = Holders(amount), 0.0
    for worker, deed, need in steps:
        if deed == "die":
            amount.drop_worker(worker)
            spent += holders.held.pop(worker, 0.0)
            continue
        before = sum(holders.held.values())
        if holders.held[worker] < need:
            amount.want(worker, need - holders.held[worker], 2 * need)
            refused = holders.refused[worker]
            holders.settle()
            if holders.refused[worker] > refused:
                # There is less than it needs, wherever that is.
                assert total - spent - sum(holders.held.values()) < need - holders.held[worker]
                continue
        assert holders.held[worker] >= need
        holders.held[worker] -= need
        spent += need
        assert spent + sum(holders.held.values()) <= total, before


def test_what_a_dead_worker_asked_is_asked_by_the_next_one_and_the_rest_hears_its_answer() -> None:
    questions = CommonQuestions(10)
    assert [questions.want(worker, b"q") for worker in "abc"] == [b"", None, None]
    assert questions.drop_worker("a") == [("b", b"q", b"")]
    assert questions.back("b", b"q", b"yes") == [("c", b"yes")]
    assert questions.want("a", b"q") == b"yes"
    assert questions.back("b", b"q", b"late") == []


@pytest.mark.parametrize("waiting", ["aab", "aba", "aaab"])
def test_a_dead_worker_that_asked_for_several_judges_is_waited_for_no_more(waiting: str) -> None:
    questions = CommonQuestions(10)
    for worker in waiting:
        questions.want(worker, b"q")
    assert questions.drop_worker("a") == [("b", b"q", b"")]
    assert questions.back("b", b"q", b"") == []
    assert questions.want("c", b"q") == b""


def test_only_the_latest_answers_are_kept() -> None:
    questions = CommonQuestions(3)
    for number in range(5):
        key = b"%d" % number
        questions.want("a", key)
        questions.back("a", key, b"yes")
    assert [questions.want("a", b"%d" % number) for number in range(5)] == [b"", b"", *[b"yes"] * 3]


# -- workers with engines' gateways, in one process ---------------------------------------------


class Run:
    """Gateways of several workers, and the leases between them.

    Messages arrive one by one; with a `seed`, those of one way in one package, at any time.
    """

    def __init__(self, limits: Limits, workers: str = "ab", seed: int | None = None) -> None:
        named = {name: getattr(limits, name) for name in ("max_in_flight", "requests_per_minute")}
        amounts = {name: getattr(limits, name) for name in ("max_calls", "budget")}
        self.leases = Leases(
            {name: total for name, total in named.items() if total is not None},
            {name: total for name, total in amounts.items() if total is not None},
            limits.remembered, len(workers),
        )  # fmt: skip
        self.leased = {name: Leased(limits, self.saying(name)) for name in workers}
        self.gateways = {
            name: Gateway(limits, account=each.account, leased=each)
            for name, each in self.leased.items()
        }
        self.ways: defaultdict[tuple[str, ...], deque[Callable[[], None]]] = defaultdict(deque)
        self.order = None if seed is None else random.Random(seed)
        self.delivered = 0
        self.dead: set[str] = set()

    def saying(self, worker: str) -> Callable[..., None]:
        def say(*news: Any) -> None:
            self.way(worker).append(lambda: self.leases.hear(self.send, worker, *news))

        return say

    def way(self, *ends: str) -> deque[Callable[[], None]]:
        return self.ways[() if self.order is None else ends]

    def send(self, worker: str, *news: Any) -> None:
        if worker not in self.dead:
            self.way("all", worker).append(lambda: self.leased[worker].hear(*news))

    async def deliver(self) -> None:
        """Hand on messages, in order on each way."""
        while True:
            await anyio.lowlevel.checkpoint()
            ways = [way for way in self.ways.values() if way]
            if not ways or (self.order is not None and self.order.random() < 0.5):
                continue
            way = ways[0] if self.order is None else self.order.choice(ways)
            for _ in range(1 if self.order is None else len(way)):
                way.popleft()()
                self.delivered += 1
                assert self.order is None or self.delivered < 1_000, "they go to and fro for ever"

    def kill(self, worker: str) -> None:
        self.dead.add(worker)
        self.leases.drop_worker(self.send, worker)


class Pupil:
    """Answers when it may, and knows how many calls there are at the same time."""

    def __init__(self) -> None:
        self.asked: Counter[str] = Counter()
        self.at_once = self.most = 0
        self.open = anyio.Event()
        self.judge = ScriptedJudge(self.answer, name="pupil")

    async def answer(self, question: Question[Any]) -> bool:
        self.asked[question.messages[-1]["content"]] += 1
        self.at_once += 1
        self.most = max(self.most, self.at_once)
        try:
            await self.open.wait()
            await anyio.lowlevel.checkpoint()
        finally:
            self.at_once -= 1
        return True


async def ask(run: Run, worker: str, pupil: Pupil, text: str, ends: list[str]) -> None:
    try:
        await run.gateways[worker].ask(pupil.judge, ask_about(text))
        ends.append(worker)
    except OverBudgetError as error:
        ends.append(error.kind)


@pytest.mark.anyio
async def test_workers_make_exactly_the_calls_of_the_run_whoever_needs_them() -> None:
    run, pupil, ends = Run(Limits(max_calls=23)), Pupil(), list[str]()
    pupil.open.set()
    async with anyio.create_task_group() as group:
        group.start_soon(run.deliver)
        async with anyio.create_task_group() as asking:
            for number in range(40):
                worker = "a" if number < 30 else "b"
                asking.start_soon(ask, run, worker, pupil, f"question {number}", ends)
        group.cancel_scope.cancel()
    assert pupil.asked.total() == 23
    assert Counter(ends)[OutcomeKind.OVER_BUDGET] == 17


@pytest.mark.anyio
@pytest.mark.parametrize("seed", range(8))
async def test_what_is_lent_for_a_call_is_asked_back_only_after_it(seed: int) -> None:
    run, pupil = Run(Limits(max_calls=40), "abcd", seed), Pupil()
    ends: list[str] = []
    pupil.open.set()
    async with anyio.create_task_group() as group:
        group.start_soon(run.deliver)
        async with anyio.create_task_group() as asking:
            for number in range(60):
                asking.start_soon(ask, run, "abcd"[number % 4], pupil, f"question {number}", ends)
        group.cancel_scope.cancel()
    assert pupil.asked.total() == 40
    assert Counter(ends)[OutcomeKind.OVER_BUDGET] == 20


@pytest.mark.anyio
async def test_calls_at_once_are_those_of_the_run_and_go_to_whoever_has_questions() -> None:
    run, pupil, ends = Run(Limits(max_in_flight=3)), Pupil(), list[str]()
    async with anyio.create_task_group() as group:
        group.start_soon(run.deliver)
        async with anyio.create_task_group() as asking:
            for number in range(9):
                asking.start_soon(ask, run, "a", pupil, f"question {number}", ends)
            while pupil.at_once < 3:  # all of them, as the other worker needs none
                await anyio.lowlevel.checkpoint()
            for number in range(9):
                asking.start_soon(ask, run, "b", pupil, f"other question {number}", ends)
            await anyio.lowlevel.checkpoint()
            pupil.open.set()
        group.cancel_scope.cancel()
    assert Counter(ends) == {"a": 9, "b": 9}
    assert pupil.most == 3


@pytest.mark.anyio
async def test_the_place_of_a_dead_worker_is_free_and_the_next_one_asks_what_it_asked() -> None:
    run, pupil, ends = Run(Limits(max_in_flight=1)), Pupil(), list[str]()
    async with anyio.create_task_group() as group:
        group.start_soon(run.deliver)
        async with anyio.create_task_group() as dying:
            dying.start_soon(ask, run, "a", pupil, "the same question", ends)
            while not pupil.at_once:
                await anyio.lowlevel.checkpoint()
            async with anyio.create_task_group() as asking:
                asking.start_soon(ask, run, "b", pupil, "the same question", ends)
                for _ in range(100):
                    await anyio.lowlevel.checkpoint()
                assert pupil.at_once == 1
                run.kill("a")
                while pupil.at_once < 2:
                    await anyio.lowlevel.checkpoint()
                pupil.open.set()
            dying.cancel_scope.cancel()
        group.cancel_scope.cancel()
    assert "b" in ends
    assert list(pupil.asked.values()) == [2]


@pytest.mark.anyio
async def test_a_failure_is_no_answer_for_others() -> None:
    fails = [ProviderError("down", transient=False)]

    def answer(question: Question[Any]) -> bool:
        if fails:
            raise fails.pop()
        return True

    run, judge = Run(Limits()), ScriptedJudge(answer, name="pupil")
    async with anyio.create_task_group() as group:
        group.start_soon(run.deliver)
        with pytest.raises(ProviderError, match="down"):
            await run.gateways["a"].ask(judge, ask_about("weather"))
        assert (await run.gateways["b"].ask(judge, ask_about("weather"))).origin == "live"
        assert (await run.gateways["a"].ask(judge, ask_about("weather"))).origin == "cached"
        group.cancel_scope.cancel()


@pytest.mark.anyio
async def test_judges_of_one_name_in_one_worker_ask_an_equal_question_once() -> None:
    run, pupil, origins = Run(Limits()), Pupil(), list[str]()

    async def ask_one() -> None:
        judge = ScriptedJudge(pupil.answer, name="pupil")  # apart in a process, alike in a store
        origins.append((await run.gateways["a"].ask(judge, ask_about("weather"))).origin)

    async with anyio.create_task_group() as group:
        group.start_soon(run.deliver)
        async with anyio.create_task_group() as asking:
            for _ in range(3):
                asking.start_soon(ask_one)
            for _ in range(100):
                await anyio.lowlevel.checkpoint()
            pupil.open.set()
        group.cancel_scope.cancel()
    assert pupil.asked.total() == 1
    assert sorted(origins) == ["cached", "cached", "live"]


@pytest.mark.anyio
async def test_what_a_store_lacks_another_worker_may_have_and_then_both_stores_have_it(
    tmp_path: Path,
) -> None:
    run, pupil = Run(Limits()), Pupil()
    pupil.open.set()
    async with anyio.create_task_group() as group:
        group.start_soon(run.deliver)
        for name, each in run.leased.items():
            async with Store(tmp_path / name).open() as store:
                gateway = Gateway(Limits(), None, store, account=each.account, leased=each)
                await gateway.ask(pupil.judge, ask_about("weather"))
        group.cancel_scope.cancel()
    assert pupil.asked.total() == 1
    for name in run.leased:
        async with Store(tmp_path / name, replay=True).open() as store:
            assert (await Gateway(stored=store).ask(pupil.judge, ask_about("weather"))).value


@pytest.mark.anyio
async def test_rates_are_divided_by_need_and_add_up_to_that_of_the_run(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("dagengine.execution.cluster.worker._LOOK", 0.001)
    run, pupil, ends = Run(Limits(requests_per_minute=600)), Pupil(), list[str]()
    pupil.open.set()

    def rates() -> list[float]:
        return [
            rate.per_minute
            for gateway in run.gateways.values()
            for judge in gateway._limiter._judges
            for rate in judge.rates.values()
        ]

    async with anyio.create_task_group() as group:
        group.start_soon(run.deliver)
        async with anyio.create_task_group() as asking:
            asking.start_soon(ask, run, "a", pupil, "question", ends)
        assert rates() == [300]  # a fair part at first
        for each in run.leased.values():
            group.start_soon(each.keep)
        async with anyio.create_task_group() as asking:
            for number in range(20):
                asking.start_soon(ask, run, "a", pupil, f"question {number}", ends)
            while rates() != [600]:  # it has more to ask, and nobody else has
                await anyio.lowlevel.checkpoint()
            for number in range(20):
                asking.start_soon(ask, run, "b", pupil, f"other question {number}", ends)
            while rates() != [300, 300]:
                await anyio.lowlevel.checkpoint()
                assert sum(rates()) <= 600
            asking.cancel_scope.cancel()
        while sum(rates()):  # nobody asks any more
            await anyio.sleep(0.001)
        group.cancel_scope.cancel()


def test_what_a_worker_says_after_its_death_changes_nothing() -> None:
    run = Run(Limits(max_calls=5))
    run.leases.hear(run.send, "a", SHARE, "max_in_flight", 1, 2)
    run.leases.hear(run.send, "a", AMOUNT, "max_calls", 1, 2)
    run.leases.hear(run.send, "a", QUESTION, b"key")
    run.leases.drop_worker(run.send, "a")
    run.ways.clear()
    run.leases.hear(run.send, "a", SHARE, "max_in_flight", 2)
    run.leases.hear(run.send, "a", AMOUNT, "max_calls", 2)
    run.leases.hear(run.send, "a", QUESTION, b"key", b"answer")
    run.leases.hear(run.send, "b", SHARE, "max_in_flight", 1, 99)
    run.leases.hear(run.send, "b", AMOUNT, "max_calls", 5, 5)
    (messages,) = run.ways.values()
    assert len(messages) == 2
    for message in messages:
        message()
    assert run.leased["b"].account.amounts["max_calls"].lent == 0
