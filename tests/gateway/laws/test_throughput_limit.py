"""The control law alone, against a server that lets calls wait: where it settles, what is late."""

from __future__ import annotations

import heapq
import math
import random
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dagengine.gateway.laws.throughput import ThroughputLimit

LIMIT = 120.0
"""Seconds that a call may take."""


@dataclass
class Queue:
    """A server of so many places: first come, first served; a call that is late hangs up.

    There is always one more question. `seconds` says for the number of a question how long it
    takes, and of which kind it is.
    """

    law: ThroughputLimit
    places: float
    seconds: Callable[[int], tuple[str, float]]
    now: float = 0.0
    asked: int = 0
    answered: int = 0
    late: int = 0
    most: int = 0
    waiting: deque[int] = field(default_factory=deque[int])
    served: set[int] = field(default_factory=set[int])
    calls: dict[int, tuple[float, int, int]] = field(
        default_factory=dict[int, tuple[float, int, int]]
    )
    events: list[tuple[float, int, int]] = field(default_factory=list[tuple[float, int, int]])

    def run(self, answers: int) -> Queue:
        """Go on until there are so many more answers, or calls that were late."""
        end = self.answered + self.late + answers
        while self.answered + self.late < end:
            self._ask()
            self.now, hangs_up, number = heapq.heappop(self.events)
            if number in self.calls:
                self._end(number, late=bool(hangs_up))
        return self

    def _ask(self) -> None:
        while len(self.calls) < self.law.limit:
            self.asked += 1
            self.calls[self.asked] = self.now, len(self.calls) + 1, self.law.epoch
            self.waiting.append(self.asked)
            heapq.heappush(self.events, (self.now + self.law.time_limit, 1, self.asked))
        self.most = max(self.most, len(self.calls))
        while self.waiting and len(self.served) < self.places:
            number = self.waiting.popleft()
            if number in self.calls:
                self.served.add(number)
                heapq.heappush(self.events, (self.now + self.seconds(number)[1], 0, number))

    def _end(self, number: int, *, late: bool) -> None:
        began, level, epoch = self.calls.pop(number)
        self.served.discard(number)
        if late:
            self.late += 1
            self.law.late(epoch)
        else:
            self.answered += 1
            self.law.note_answer(self.seconds(number)[0], level, epoch, self.now - began)


def constant(seconds: float) -> Callable[[int], tuple[str, float]]:
    return lambda number: ("judgement", seconds)


def varied(seconds: float, spread: float, seed: int = 1) -> Callable[[int], tuple[str, float]]:
    def drawn(number: int) -> tuple[str, float]:
        draw = random.Random(f"{seed} {number}").gauss(0, spread)
        return "judgement", seconds * math.exp(draw)

    return drawn


def law(ceiling: int = 64, start: int | None = None) -> ThroughputLimit:
    return ThroughputLimit(ceiling, LIMIT, start)


@pytest.mark.parametrize("seconds", [1.0, 3.0, 10.0, 20.0, 30.0, 50.0, 100.0, 119.0])
def test_four_places_get_about_four_calls_and_no_answer_is_late(seconds: float) -> None:
    server = Queue(law(), 4, constant(seconds)).run(400)
    assert server.late == 0
    assert server.now == pytest.approx(400 * seconds / 4, rel=0.02)
    usual = [server.run(1).law.limit for _ in range(200)]
    assert sorted(usual)[100] in (4, 5)


@pytest.mark.parametrize("seconds", [35.0, 50.0, 100.0])
def test_where_twice_the_time_of_an_answer_is_too_near_the_limit_it_does_not_grow_much(
    seconds: float,
) -> None:
    assert Queue(law(), 64, constant(seconds)).run(12).law.limit <= (5 if seconds == 35.0 else 4)


def test_it_never_has_so_many_calls_wait_that_they_pass_half_of_the_time_limit() -> None:
    for seconds in (1.0, 2.0, 5.0, 8.0, 15.0, 20.0, 29.0):
        server = Queue(law(512), 4, constant(seconds)).run(600)
        assert server.most * seconds / 4 <= LIMIT / 2 + 2 * seconds, (seconds, server.most)


@pytest.mark.parametrize("places", [8, 20, 40])
def test_it_finds_about_as_many_calls_as_there_are_places(places: int) -> None:
    server = Queue(law(), places, constant(5.0)).run(100 * places)
    assert server.late == 0
    assert places <= server.law.limit <= 2 * places
    assert server.now <= 1.1 * 100 * places * 5.0 / places


@pytest.mark.parametrize(("ceiling", "rounds"), [(64, 2), (512, 3)])
def test_a_server_without_a_queue_is_used_to_the_ceiling_within_a_few_round_trips(
    ceiling: int, rounds: int
) -> None:
    server = Queue(law(ceiling), math.inf, constant(1.0))
    while server.law.limit < ceiling:
        server.run(1)
    assert server.now == rounds


def test_answers_of_different_length_are_not_taken_for_a_queue() -> None:
    for seed in range(10):
        server = Queue(law(), math.inf, varied(2.0, 0.5, seed)).run(2000)
        assert server.law.limit == 64
        assert server.now <= 1.35 * 2000 * 2.0 * math.exp(0.125) / 64, seed


def test_tasks_that_take_longer_than_judgements_are_not_taken_for_a_queue() -> None:
    def mixed(number: int) -> tuple[str, float]:
        return ("task", 6.0) if number % 3 else ("judgement", 0.8)

    def judgements_first(number: int) -> tuple[str, float]:
        return ("judgement", 0.8) if number <= 300 else ("task", 6.0)

    for seconds in (mixed, judgements_first):
        assert Queue(law(), math.inf, seconds).run(1200).law.limit == 64


def test_a_queue_is_found_though_its_answers_differ_in_length() -> None:
    for seed in range(5):
        server = Queue(law(), 4, varied(5.0, 0.4, seed)).run(400)
        assert server.late == 0
        assert server.most <= 32, seed
        limits = [server.run(1).law.limit for _ in range(400)]
        assert sorted(limits)[200] <= 16, seed


def test_a_server_that_gets_more_places_is_found_out() -> None:
    server = Queue(law(), 4, constant(2.0)).run(200)
    assert server.law.limit <= 8
    server.places = 64
    server.run(3000)
    assert server.law.limit >= 48


def test_a_server_that_becomes_slow_is_not_run_into_the_time_limit() -> None:
    seconds = 2.0
    server = Queue(law(), 32, lambda number: ("judgement", seconds)).run(600)
    assert server.law.limit >= 32
    seconds, server.places = 10.0, 4
    server.run(300)
    assert server.law.limit <= 24  # of 32 and more calls each would take 80 s
    late = server.late
    server.run(400)
    assert server.late == late


@pytest.mark.parametrize(("places", "seconds"), [(1, 40.0), (1, 100.0), (2, 70.0), (2, 100.0)])
def test_fewer_places_than_calls_cost_a_few_late_answers_and_no_more(
    places: int, seconds: float
) -> None:
    server = Queue(law(), places, constant(seconds)).run(100)
    assert server.late <= 12
    assert server.law.limit * seconds / places <= LIMIT


def test_a_few_late_answers_among_many_change_nothing() -> None:
    def seldom_hangs(number: int) -> tuple[str, float]:
        return "judgement", 1e9 if number % 50 == 0 else 1.0

    server = Queue(law(), math.inf, seldom_hangs).run(3000)
    assert server.late > 10
    assert server.law.limit == 64


def test_after_late_answers_it_comes_back_to_where_it_began() -> None:
    limit = law()
    for _ in range(2):
        limit.late(limit.epoch)
    assert limit.limit == 2
    Queue(limit, math.inf, constant(20.0)).run(60)
    assert limit.limit >= 4


def test_a_server_that_says_its_places_is_taken_at_its_word() -> None:
    for seconds in (0.5, 20.0, 100.0):
        server = Queue(law(ceiling=9, start=8), 8, constant(seconds)).run(400)
        assert (server.late, server.most <= 9) == (0, True)
        assert server.now == pytest.approx(400 * seconds / 8, rel=0.01)


def test_it_begins_again_with_a_server_that_was_away() -> None:
    server = Queue(law(), math.inf, constant(1.0)).run(300)
    assert server.law.limit == 64
    server.law.restart()
    assert server.law.limit == 4
    assert server.run(400).law.limit == 64


@settings(max_examples=200, deadline=None)
@given(
    st.integers(1, 80),
    st.lists(
        st.tuples(
            st.sampled_from(["answered", "late", "restart"]),
            st.integers(1, 90),
            st.floats(0, 1e6),
            st.sampled_from("abc"),
        )
    ),
)
def test_the_limit_stays_between_one_and_the_ceiling(
    ceiling: int, events: list[tuple[str, int, float, str]]
) -> None:
    limit = ThroughputLimit(ceiling, LIMIT)
    for what, level, seconds, kind in events:
        if what == "answered":
            limit.note_answer(kind, level, limit.epoch, seconds)
        elif what == "late":
            limit.late(limit.epoch)
        else:
            limit.restart()
        assert 1 <= limit.limit <= ceiling
