"""Calls over time, on a clock that jumps: how fast, in which order, after which waits."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from typing import Any

import anyio
import pytest
from graphs.questions import SHAPE, ask_about, yes
from trio.testing import MockClock

from dagengine.errors import JudgeError, ProviderError
from dagengine.gateway import Gateway, Limits
from dagengine.prompts import Evidence, messages_for
from dagengine.prompts.instructions import KEPT_CHARACTERS
from dagengine.question import NO_FACTS, Answer, Capabilities, Question, ServerFacts, Usage
from dagengine.results import Waiting

YES = yes()
LATENCY = 0.05

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.parametrize(
        "anyio_backend",
        [("trio", {"clock": MockClock(autojump_threshold=0)})],
        ids=["a clock that jumps"],
    ),
]


class Server:
    """A judge that takes `capacity` calls at once and rejects further ones at once.

    `fate` is asked for an error to raise, given the number of the call and the time.
    """

    capabilities = Capabilities()
    hosted = False

    def __init__(
        self,
        capacity: float = math.inf,
        fate: Callable[[int, float], Exception | None] = lambda number, now: None,
        identity: str = "server",
        answer: Answer[Any] = YES,
        latency: float = LATENCY,
        retry_after: float | None = None,
    ) -> None:
        self.identity = identity
        self.capacity = capacity
        self.fate = fate
        self.reply = answer
        self.latency = latency
        self.retry_after = retry_after
        self.inside = self.most = self.rejected = 0
        self.started: list[float] = []
        self.names: list[str] = []

    async def answer(self, question: Question[Any]) -> Any:
        self.started.append(anyio.current_time())
        self.names.append(question.name)
        error = self.fate(len(self.started), anyio.current_time())
        if error is None and self.inside >= self.capacity:
            wait = self.retry_after
            error = ProviderError("HTTP 429", transient=True, status=429, retry_after=wait)
        if error is not None:
            self.rejected += 1
            await anyio.sleep(0.001)
            raise error
        self.inside += 1
        self.most = max(self.most, self.inside)
        try:
            await anyio.sleep(self.latency)
        finally:
            self.inside -= 1
        return self.reply


class Places(Server):
    """A server of few places: it rejects nothing, and lets further calls wait in line.

    `lost` counts the calls whose client hung up while it was at work on them.
    """

    def __init__(self, places: int, seconds: float, ready: float = 0.0, status: int = 503) -> None:
        super().__init__(latency=seconds)
        self.places = anyio.CapacityLimiter(places)
        self.ready = anyio.current_time() + ready
        self.status = status or None
        self.lost = 0

    async def answer(self, question: Question[Any]) -> Any:
        if anyio.current_time() < self.ready:
            raise ProviderError("not ready", transient=True, status=self.status)
        self.started.append(anyio.current_time())
        self.inside += 1
        self.most = max(self.most, self.inside)
        try:
            async with self.places:
                try:
                    await anyio.sleep(self.latency)
                except BaseException:
                    self.lost += 1
                    raise
        finally:
            self.inside -= 1
        return self.reply


async def ask_all(gateway: Gateway, judge: Server, count: int, workers: int) -> list[JudgeError]:
    """Ask different questions; the errors, if any."""
    numbers, errors = iter(range(count)), list[JudgeError]()

    async def worker() -> None:
        for number in numbers:
            try:
                await gateway.ask(judge, ask_about(number))
            except JudgeError as error:
                errors.append(error)

    async with anyio.create_task_group() as group:
        for _ in range(workers):
            group.start_soon(worker)
    return errors


async def test_a_server_without_a_limit_is_used_to_the_ceiling_almost_at_once() -> None:
    judge, began = Server(), anyio.current_time()
    await ask_all(Gateway(Limits(max_in_flight=64)), judge, 3000, 288)
    assert anyio.current_time() - began <= 1.05 * 3000 * LATENCY / 64
    assert judge.most == 64


@pytest.mark.parametrize("capacity", [5, 40])
async def test_a_hidden_capacity_is_used_and_few_calls_are_wasted(capacity: int) -> None:
    judge, began = Server(capacity), anyio.current_time()
    limits, work = Limits(max_in_flight=64, attempts=20), 2000 * LATENCY / capacity
    assert not await ask_all(Gateway(limits), judge, 2000, 288)
    # The server is busy as long as questions wait; of the last ones, some wait to be asked again.
    assert judge.started[1999 - int(capacity)] - began <= 1.05 * work
    assert anyio.current_time() - began <= 1.05 * work + limits.backoff
    assert judge.rejected <= 0.05 * 2000


@pytest.mark.parametrize(
    ("capacity", "latency"), [(5, 0.01), (5, 2.0), (40, 0.1), (200, 0.01), (200, 2.0)]
)
async def test_trying_out_more_does_not_pause_a_judge_that_asks_to_wait(
    capacity: int, latency: float
) -> None:
    judge, began = Server(capacity, latency=latency, retry_after=0.5), anyio.current_time()
    errors = await ask_all(Gateway(Limits(max_in_flight=256, attempts=20)), judge, 3000, 600)
    assert not errors
    started = 3.0 + 12 * latency  # finding out costs a few waits and round trips
    assert anyio.current_time() - began <= started + 1.1 * 3000 * latency / capacity
    assert judge.rejected <= 0.05 * 3000


async def test_no_call_starts_before_the_time_the_provider_asked_to_wait_for() -> None:
    def fate(number: int, now: float) -> Exception | None:
        if number == 1:
            return ProviderError("HTTP 429", transient=True, status=429, retry_after=20.0)
        return None

    judge = Server(fate=fate)
    assert not await ask_all(Gateway(Limits(max_in_flight=1)), judge, 5, 5)
    first, *others = judge.started
    assert min(others) >= first + 20.0
    assert max(others) <= first + 25.0


async def test_a_judge_that_asks_for_an_hour_is_not_waited_for() -> None:
    error = ProviderError("HTTP 429", transient=True, status=429, retry_after=3600.0)
    judge, began = Server(fate=lambda number, now: error), anyio.current_time()
    errors = await ask_all(Gateway(Limits(max_in_flight=1)), judge, 50, 10)
    assert anyio.current_time() - began < 1
    assert (len(errors), judge.names[1:]) == (50, ["harmless"])
    assert all("3600 s" in str(error) for error in errors)


async def test_a_wait_beyond_the_deadline_of_the_case_ends_the_question_at_once() -> None:
    error = ProviderError("HTTP 429", transient=True, status=429, retry_after=30.0)
    gateway, began = Gateway(), anyio.current_time()
    with anyio.fail_after(10), pytest.raises(ProviderError, match="asks to wait 30 s"):
        await gateway.ask(Server(fate=lambda number, now: error), ask_about("a"))
    assert anyio.current_time() - began < 1


async def test_a_server_that_comes_back_within_the_patience_costs_no_question() -> None:
    began = anyio.current_time()

    def fate(number: int, now: float) -> Exception | None:
        down = 1.0 < now - began < 51.0
        return ProviderError("refused", transient=True) if down else None

    judge = Server(fate=fate)
    errors = await ask_all(Gateway(Limits(max_in_flight=16, attempts=2)), judge, 1000, 64)
    assert not errors
    assert judge.rejected < 60
    assert anyio.current_time() - began < 51 + 5 + 1000 * LATENCY / 16 + 5


async def test_a_server_that_stays_away_fails_every_question_when_the_patience_is_over() -> None:
    began = anyio.current_time()
    dead = ProviderError("connection refused", transient=True)
    judge = Server(fate=lambda number, now: dead)
    errors = await ask_all(Gateway(Limits(patience=30.0)), judge, 1000, 64)
    assert len(errors) == 1000
    assert anyio.current_time() - began <= 31
    assert len(judge.started) < 150
    assert "connection refused" in str(errors[-1])
    assert "patience of 30 s is used up" in str(errors[-1])


async def test_a_refused_key_fails_the_rest_without_calls() -> None:
    refused = ProviderError("HTTP 401: no such key", transient=False, status=401)
    judge = Server(fate=lambda number, now: refused)
    errors = await ask_all(Gateway(Limits(max_in_flight=4)), judge, 500, 20)
    assert len(errors) == 500
    assert len(judge.started) <= 7
    assert all("no such key" in str(error) for error in errors)


async def test_a_judge_that_is_out_of_order_does_not_hold_up_another() -> None:
    gateway = Gateway(Limits(max_in_flight=8))
    dead = Server(fate=lambda n, now: ProviderError("gone", transient=True), identity="dead")
    well, began = Server(identity="well"), anyio.current_time()
    finished: list[float] = []

    async def healthy() -> None:
        assert not await ask_all(gateway, well, 400, 32)
        finished.append(anyio.current_time() - began)

    async with anyio.create_task_group() as group:
        group.start_soon(ask_all, gateway, dead, 100, 32)
        await anyio.sleep(5)
        group.start_soon(healthy)
    assert finished[0] <= 5 + 1.1 * 400 * LATENCY / 8


async def test_two_judges_share_the_ceiling() -> None:
    gateway, one, other = Gateway(Limits(max_in_flight=10)), Server(), Server(identity="other")
    inside = 0

    async def watched(self: Server, question: Question[Any]) -> Any:
        nonlocal inside
        inside = max(inside, one.inside + other.inside + 1)
        return await Server.answer(self, question)

    for judge in (one, other):
        judge.answer = lambda question, judge=judge: watched(judge, question)  # type: ignore
    async with anyio.create_task_group() as group:
        group.start_soon(ask_all, gateway, one, 200, 30)
        group.start_soon(ask_all, gateway, other, 200, 30)
    assert inside == 10


async def test_earlier_questions_are_asked_first() -> None:
    judge, gateway = Server(), Gateway(Limits(max_in_flight=1))
    async with anyio.create_task_group() as group:
        for number in range(30):
            group.start_soon(gateway.ask, judge, ask_about(number))
            await anyio.wait_all_tasks_blocked()
    assert judge.names == [str(number) for number in range(30)]


async def test_questions_of_earlier_cases_go_first_in_a_rate_window_too() -> None:
    judge, gateway = Server(), Gateway(Limits(requests_per_minute=60))
    async with anyio.create_task_group() as group:
        for place in (7, 5, 9, 3, 0):
            group.start_soon(gateway.ask, judge, ask_about(f"{place} one"), place)
            group.start_soon(gateway.ask, judge, ask_about(f"{place} other"), place)
            await anyio.wait_all_tasks_blocked()
    # The first two went at once; whoever came later was sorted by case.
    assert [name[0] for name in judge.names] == list("7700335599")


async def test_a_retry_goes_before_all_that_came_after_its_first_attempt() -> None:
    def fate(number: int, now: float) -> Exception | None:
        return ProviderError("HTTP 429", transient=True, status=429) if number == 2 else None

    judge, gateway = Server(fate=fate), Gateway(Limits(max_in_flight=1, requests_per_minute=30))
    async with anyio.create_task_group() as group:
        for name in "abcdef":
            group.start_soon(gateway.ask, judge, ask_about(name), 3)
            await anyio.wait_all_tasks_blocked()
    first = judge.names.index("b")
    assert sorted(judge.names) == list("abbcdef")
    assert judge.names[first + 1 : first + 3] in (["b", "c"], ["c", "b"])


async def test_an_equal_question_of_an_earlier_case_is_not_held_up_by_the_later_one() -> None:
    judge, gateway = Server(), Gateway(Limits(max_in_flight=1))
    async with anyio.create_task_group() as group:
        for name, place in (("in progress", 0), ("x", 4), ("y", 5), ("shared", 6), ("z", 5)):
            group.start_soon(gateway.ask, judge, ask_about(name), place)
            await anyio.wait_all_tasks_blocked()
        group.start_soon(gateway.ask, judge, ask_about("shared"), 1)
    assert judge.names == ["in progress", "shared", "x", "y", "z"]


async def test_the_first_of_prompts_that_begin_alike_is_as_urgent_as_its_followers() -> None:
    judge, gateway = Server(), Gateway(Limits(max_in_flight=1))
    judge.capabilities = Capabilities(caches_prefixes=True)
    judge.hosted = True
    long = [Evidence("text", "x" * KEPT_CHARACTERS)]

    def alike(name: str) -> Question[Any]:
        return Question(messages_for(name, long), SHAPE, name=name, shares=("text",))

    async with anyio.create_task_group() as group:
        group.start_soon(gateway.ask, judge, ask_about("in progress"), 0)
        await anyio.wait_all_tasks_blocked()
        group.start_soon(gateway.ask, judge, ask_about("other"), 5)
        group.start_soon(gateway.ask, judge, alike("leader"), 9)
        await anyio.wait_all_tasks_blocked()
        group.start_soon(gateway.ask, judge, alike("follower"), 1)
    assert judge.names[:2] == ["in progress", "leader"]


async def test_one_who_waits_and_is_cancelled_gives_up_the_place_whatever_it_waits_for() -> None:
    judge, gateway = Server(), Gateway(Limits(max_in_flight=1, requests_per_minute=6))
    await gateway.ask(judge, ask_about("first"))
    with anyio.move_on_after(1.0) as impatient:  # at the head, minding the time
        await gateway.ask(judge, ask_about("impatient"))
    assert impatient.cancelled_caught
    async with anyio.create_task_group() as group:
        for number in range(3):
            group.start_soon(gateway.ask, judge, ask_about(number))
            await anyio.wait_all_tasks_blocked()
        scope = anyio.CancelScope()

        async def leaving() -> None:
            with scope:
                await gateway.ask(judge, ask_about("leaving"))

        group.start_soon(leaving)
        group.start_soon(gateway.ask, judge, ask_about("last"))
        await anyio.wait_all_tasks_blocked()
        scope.cancel()
    assert judge.names == ["first", "0", "1", "2", "last"]


async def test_a_place_in_the_queue_is_passed_on_when_its_head_is_cancelled() -> None:
    judge, gateway = Server(), Gateway(Limits(requests_per_minute=6))
    await gateway.ask(judge, ask_about("first"))

    async def head() -> None:
        with anyio.move_on_after(1.0):
            await gateway.ask(judge, ask_about("head"))

    async with anyio.create_task_group() as group:
        group.start_soon(head)
        await anyio.wait_all_tasks_blocked()
        group.start_soon(gateway.ask, judge, ask_about("second"))
    assert judge.names == ["first", "second"]
    assert judge.started[1] - judge.started[0] == pytest.approx(9.0)


async def test_requests_per_minute_are_spread_evenly() -> None:
    judge = Server()
    await ask_all(Gateway(Limits(requests_per_minute=120)), judge, 60, 60)
    gaps = [later - earlier for earlier, later in itertools.pairwise(judge.started[2:])]
    assert gaps == pytest.approx([0.5] * len(gaps))


async def test_tokens_per_minute_hold_for_what_the_server_counts() -> None:
    judge = Server(answer=Answer(YES.value, "{}", usage=Usage(900, 100)))
    await ask_all(Gateway(Limits(tokens_per_minute=60_000)), judge, 200, 200)
    minute = [time for time in judge.started if 20 <= time - judge.started[0] < 80]
    assert len(minute) == pytest.approx(60, abs=3)


async def test_the_deadline_of_a_call_does_not_run_while_its_judge_is_out_of_order() -> None:
    began = anyio.current_time()

    def fate(number: int, now: float) -> Exception | None:
        return ProviderError("gone", transient=True) if now - began < 40 else None

    gateway = Gateway(Limits(call_timeout=1.0))
    assert not await ask_all(gateway, Server(fate=fate), 50, 50)


async def test_a_judge_begins_with_the_places_that_its_server_says_it_has() -> None:
    class Told(Server):
        asked = 0

        async def facts(self) -> ServerFacts:
            self.asked += 1
            return ServerFacts("llama.cpp", window=4096, slots=3)

    judge, gateway = Told(), Gateway(Limits(max_in_flight=64))
    assert gateway.facts(judge) == NO_FACTS
    await gateway.meet([judge])
    await gateway.meet([judge])
    assert gateway.facts(judge) == ServerFacts("llama.cpp", window=4096, slots=3)
    assert not await ask_all(gateway, judge, 60, 60)
    assert (judge.asked, judge.most) == (1, 4)  # one more is busy while others come and go


@pytest.mark.parametrize("seconds", [3.0, 20.0, 50.0, 100.0])
@pytest.mark.parametrize("ready", [0.0, 20.0])
@pytest.mark.parametrize("status", [503, 0], ids=["loading", "refused"])
async def test_a_slow_server_of_four_places_answers_everything_once_and_is_kept_busy(
    seconds: float, ready: float, status: int
) -> None:
    judge, began = Places(4, seconds, ready, status), anyio.current_time()
    gateway = Gateway()
    assert not await ask_all(gateway, judge, 60, 100)
    assert (judge.lost, len(judge.started)) == (0, 60)
    assert judge.most <= 16
    late = 6.0 if ready else 0.1  # probes are up to five seconds apart
    assert anyio.current_time() - began <= ready + late + 60 * seconds / 4


async def test_a_judge_that_needs_longer_than_a_call_may_take_gets_more_time_and_is_not_dead() -> (
    None
):
    judge, gateway = Places(4, 140.0), Gateway()
    assert not await ask_all(gateway, judge, 60, 100)
    assert judge.lost == 4  # the first calls; from then on it was known


@pytest.mark.parametrize("places", [1, 2])
async def test_calls_that_are_late_in_a_queue_are_repeated_once_with_fewer_at_a_time(
    places: int,
) -> None:
    judge, gateway = Places(places, 100.0), Gateway()
    assert not await ask_all(gateway, judge, 60, 100)
    assert gateway.totals.failed <= 12


async def test_a_question_without_an_answer_is_given_up_after_its_second_call() -> None:
    judge, hangs = Server(), ask_about("hangs")

    async def answer(question: Question[Any]) -> Any:
        if question.name == "hangs":
            judge.started.append(anyio.current_time())
            await anyio.sleep_forever()
        await anyio.sleep(1.0)
        return YES

    judge.answer = answer  # type: ignore[method-assign]
    gateway, began = Gateway(), anyio.current_time()
    async with anyio.create_task_group() as group:
        group.start_soon(ask_all, gateway, judge, 2000, 60)
        with pytest.raises(JudgeError, match="no answer within 240"):
            await gateway.ask(judge, hangs)
    assert [start - began for start in judge.started] == [0.0, 120.0]


async def test_a_server_that_is_silent_from_the_beginning_is_given_up_at_last() -> None:
    judge, began = Places(1, 1e9), anyio.current_time()
    errors = await ask_all(Gateway(), judge, 50, 50)
    assert len(errors) == 50
    assert anyio.current_time() - began <= 900


async def test_nobody_waits_five_minutes_for_a_server_that_was_never_there() -> None:
    refused = ProviderError("connection refused", transient=True)
    judge, began = Server(fate=lambda number, now: refused), anyio.current_time()
    assert len(await ask_all(Gateway(), judge, 50, 50)) == 50
    assert anyio.current_time() - began <= 61


async def test_patience_is_longer_than_a_call_may_take_unless_it_is_given() -> None:
    assert Limits().patience_of_a_judge == (300.0, 60.0)
    assert Limits(call_timeout=600).patience_of_a_judge == (1500.0, 60.0)
    assert Limits(call_timeout=5).patience_of_a_judge == (60.0, 60.0)
    assert Limits(call_timeout=None).patience_of_a_judge == (300.0, 60.0)
    assert Limits(patience=10).patience_of_a_judge == (10, 10)


async def test_after_a_minute_without_an_answer_it_is_said_what_is_waited_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    judge, gateway = Places(4, 100.0), Gateway()
    monkeypatch.setattr("dagengine.gateway.rate_limiter.time.monotonic", anyio.current_time)
    heard = list[tuple[float, list[Waiting]]]()
    async with anyio.create_task_group() as group:
        group.start_soon(ask_all, gateway, judge, 8, 8)
        for seconds in (59.0, 3.0, 40.0, 70.0):
            await anyio.sleep(seconds)
            heard.append((anyio.current_time(), gateway.waiting))
    assert [len(waits) for _, waits in heard] == [0, 1, 0, 1]
    first, second = heard[1][1][0], heard[3][1][0]
    assert first.count == 4
    assert first.silent == pytest.approx(62.0)
    assert first.why.startswith("node '")
    assert first.why.endswith("'; the server has not answered yet: loading the model?")
    assert second.silent == pytest.approx(72.0)
    assert "loading" not in second.why
