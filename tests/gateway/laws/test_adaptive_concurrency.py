"""The control law alone: where it settles, how fast, and what it must never do."""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable

from hypothesis import given, settings
from hypothesis import strategies as st

from dagengine.gateway.laws.adaptive_concurrency import AdaptiveConcurrency


def started(law: AdaptiveConcurrency) -> int:
    """The number of a call that starts now."""
    law.serial += 1
    return law.serial


class Server:
    """Rounds of calls against a server that takes `capacity` at once and rejects the rest."""

    def __init__(self, law: AdaptiveConcurrency, capacity: int, noise: float = 0.0) -> None:
        self.law = law
        self.capacity = capacity
        self.noise = noise
        self.served = self.rejected = 0
        self.random = random.Random(7)

    def round(self) -> int:
        """Fill the limit, end every call; the number of calls that were answered."""
        calls = [started(self.law) for _ in range(self.law.limit)]
        good, bad = deque[int](), deque[int]()
        for place, serial in enumerate(calls):
            noisy = self.random.random() < self.noise
            (bad if place >= self.capacity or noisy else good).append(serial)
        under_way = len(calls)
        for serial in bad:
            self.law.note_rejection(serial, under_way)
            under_way -= 1
        for serial in good:
            self.law.note_success(serial, self.law.limit)  # others wait for the place
        self.served += len(good)
        self.rejected += len(bad)
        return len(good)


def after(rounds: int, capacity: int, ceiling: int = 64, noise: float = 0.0) -> Server:
    server = Server(AdaptiveConcurrency(ceiling), capacity, noise)
    for _ in range(rounds):
        server.round()
    return server


def test_the_ceiling_is_reached_within_a_few_round_trips() -> None:
    assert after(3, capacity=10**6).law.limit == 64


def test_it_settles_at_what_the_server_takes_and_wastes_few_calls() -> None:
    for capacity in (3, 5, 10, 20, 40, 60):
        server = after(300, capacity)
        assert server.served >= 0.95 * 300 * capacity, capacity
        assert server.rejected <= 80, capacity


def test_many_rejections_of_one_round_trip_halve_the_limit_at_most() -> None:
    law = AdaptiveConcurrency(64)
    serials = [started(law) for _ in range(16)]
    for under_way, serial in zip(range(16, 0, -1), serials, strict=True):
        law.note_rejection(serial, under_way)
    assert law.limit == 7  # half of the 15 that were under way at the second one


def test_the_last_rejection_of_a_burst_says_what_was_too_much() -> None:
    server = Server(AdaptiveConcurrency(64), capacity=36)
    for _ in range(3):
        server.round()
    assert server.law.limit == 36
    assert server.rejected == 64 - 36


def test_one_rejection_among_many_answers_costs_one_call_at_most() -> None:
    law = AdaptiveConcurrency(16)
    serials = [started(law) for _ in range(16)]
    law.note_rejection(serials[0], 16)
    for serial in serials[1:]:
        law.note_success(serial, 16)
    assert law.limit == 15


def test_a_run_that_never_needs_the_limit_does_not_raise_it() -> None:
    law = AdaptiveConcurrency(64)
    for _ in range(500):
        law.note_success(started(law), 1)
    assert law.limit == 16


def test_a_server_that_takes_more_later_is_found_out() -> None:
    server = after(100, capacity=8)
    server.capacity = 10**6
    for _ in range(300):
        server.round()
    assert server.law.limit == 64


def test_a_server_that_takes_much_less_later_is_found_out_soon() -> None:
    server = after(20, capacity=10**6)
    server.capacity = 4
    for _ in range(12):
        server.round()
    assert server.law.limit <= 8


def test_rejections_whatever_the_load_do_not_bring_the_number_of_calls_down() -> None:
    for noise in (0.02, 0.05, 0.1, 0.2):
        server = after(400, capacity=10**6, noise=noise)
        assert server.served >= 0.6 * 400 * 64 * (1 - noise), noise


def test_a_rejection_means_everybody_unless_it_is_known_to_be_independent_of_the_load() -> None:
    law = AdaptiveConcurrency(64)
    assert law.note_rejection(started(law), 1)
    server = Server(AdaptiveConcurrency(64), 10**6, noise=0.1)
    said: list[bool] = []
    heard: Callable[[int, int], bool] = server.law.note_rejection

    def rejected(serial: int, in_flight: int) -> bool:
        said.append(heard(serial, in_flight))
        return said[-1]

    server.law.note_rejection = rejected  # type: ignore[method-assign]
    for _ in range(200):
        server.round()
    assert sum(said) < 0.1 * len(said)


def test_a_rejection_of_what_was_only_being_tried_out_does_not_mean_everybody() -> None:
    law = AdaptiveConcurrency(64)
    for _ in range(4):
        law.note_success(started(law), law.limit)
    tried = [started(law) for _ in range(law.limit)]
    assert not any(law.note_rejection(serial, law.limit) for serial in tried)


@settings(max_examples=200, deadline=None)
@given(
    st.integers(1, 80),
    st.lists(st.tuples(st.sampled_from(["start", "good", "bad", "lost"]), st.integers(0, 79))),
)
def test_the_limit_stays_between_one_and_the_ceiling(
    ceiling: int, events: list[tuple[str, int]]
) -> None:
    law, under_way = AdaptiveConcurrency(ceiling), list[int]()
    for what, place in events:
        if what == "start" and len(under_way) < law.limit:
            under_way.append(started(law))
        elif under_way and what != "start":
            serial = under_way.pop(place % len(under_way))
            if what == "good":
                law.note_success(serial, len(under_way) + 1)
            elif what == "bad":
                law.note_rejection(serial, len(under_way) + 1)
        assert 1 <= law.limit <= ceiling


@settings(max_examples=50, deadline=None)
@given(st.integers(1, 100), st.integers(1, 30))
def test_it_recovers_from_any_burst_of_rejections(ceiling: int, burst: int) -> None:
    server = Server(AdaptiveConcurrency(ceiling), capacity=0)
    for _ in range(burst):
        server.round()
    server.capacity = 10**6
    for _ in range(600):
        server.round()
    assert server.law.limit == ceiling


def test_a_run_begins_with_few_calls_or_an_eighth_of_what_it_may_have() -> None:
    found = {ceiling: AdaptiveConcurrency(ceiling).limit for ceiling in (8, 64, 512)}
    assert found == {8: 8, 64: 16, 512: 64}
