"""The circuit breaker alone: when it opens, whom it lets through, when it gives up."""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import pairwise
from random import Random
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from dagengine.gateway.laws.circuit_breaker import CircuitBreaker

Json = dict[str, Any]
Fate = Callable[[int], Json | None]


def broken(patience: float = 60.0, at: float = 100.0) -> CircuitBreaker:
    """A breaker that has just opened."""
    breaker = CircuitBreaker("judge", patience)
    for serial in range(1, 6):
        breaker.note_start(serial, at)
        breaker.note_failure(serial, at, "refused")
    return breaker


def test_the_circuit_opens_after_failures_in_a_row_only() -> None:
    breaker = CircuitBreaker("judge", 60.0)
    for serial in range(1, 40):
        breaker.note_failure(serial, 0.0, "refused")
        if serial % 4 == 0:
            breaker.note_answer()
    assert not breaker.is_open
    assert broken().is_open


def test_a_few_quick_failures_among_many_calls_do_not_open_it() -> None:
    breaker = CircuitBreaker("judge", 60.0)
    for serial in range(1, 33):
        assert not breaker.is_open
        breaker.note_failure(serial, 0.0, "refused", in_flight=65 - serial)
    breaker.note_failure(33, 0.0, "refused", in_flight=32)
    assert breaker.is_open


def test_while_it_is_open_the_next_probe_waits_until_the_last_one_seems_to_be_worked_on() -> None:
    breaker = broken(at=100.0)
    assert 100 < breaker.opens_at < 101
    breaker.note_start(6, 100.25)
    assert breaker.opens_at == 100.75
    breaker.note_failure(6, 103.25, "refused")
    opens = breaker.opens_at
    assert 103.25 < opens < math.inf
    breaker.note_start(7, opens)
    assert breaker.opens_at == opens + 6  # the other one took three seconds to fail


def test_a_judge_is_not_given_up_while_it_seems_to_work_on_a_probe() -> None:
    breaker = broken(patience=30.0, at=0.0)
    breaker.note_start(6, 29.0)
    breaker.note_start(7, 29.5)
    breaker.note_failure(7, 31.0, "refused")
    assert (breaker.given_up, breaker.opens_at) == (None, math.inf)
    breaker.note_failure(6, 149.0, "no answer")
    assert breaker.given_up is not None


def test_a_server_of_which_there_is_no_sign_is_given_up_sooner_than_one_that_says_not_yet() -> None:
    for status in (None, 503):
        breaker, now = CircuitBreaker("judge", 300.0, 60.0), 0.0
        for serial in range(1, 500):
            breaker.note_start(serial, now)
            breaker.note_failure(serial, now, "not yet", status=status)
            if breaker.given_up:
                break
            now = max(now, breaker.opens_at)
        assert now == (60.0 if status is None else 300.0)


def test_it_knows_whether_a_call_was_in_progress_when_the_judge_answered() -> None:
    breaker = CircuitBreaker("judge", 60.0)
    breaker.note_start(1, 0.0)
    breaker.note_start(2, 0.0)
    breaker.note_answer()
    breaker.note_start(3, 1.0)
    assert [breaker.has_answered_since(serial) for serial in (1, 2, 3)] == [True, True, False]


def test_waits_between_probes_grow_and_the_last_one_is_when_the_patience_ends() -> None:
    breaker, waits, now = broken(at=0.0), list[float](), 0.0
    for serial in range(6, 99):
        waits.append(breaker.opens_at - now)
        now = breaker.opens_at
        breaker.note_start(serial, now)
        breaker.note_failure(serial, now, "refused")
        if breaker.given_up:
            break
    assert now == 60.0
    assert waits[:-1] == sorted(waits[:-1])
    assert max(waits) <= 5.0


def test_any_answer_closes_the_circuit() -> None:
    breaker = broken()
    breaker.note_answer()
    assert not breaker.is_open
    assert breaker.opens_at == -math.inf


def test_a_probe_that_is_cancelled_makes_room_for_the_next() -> None:
    breaker = broken()
    breaker.note_start(6, 101.0)
    breaker.note_end(6)
    assert breaker.opens_at < math.inf


def test_giving_up_says_what_happened_for_how_long_and_what_to_do() -> None:
    breaker = broken(patience=30.0, at=0.0)
    breaker.note_start(6, 31.0)
    breaker.note_failure(6, 31.0, "connection refused")
    assert breaker.given_up is not None
    for part in ("'judge'", "6 calls", "31 s", "'connection refused'", "patience of 30 s"):
        assert part in breaker.given_up


FOR_NOW: list[Json] = [
    *({"status": status} for status in (None, 0, 429, 500, 502, 503, 529)),
]
FOR_ALL: list[Json] = [
    *({"status": status, "lasting": True} for status in (None, 400, 401, 402, 403, 404, 429)),
]


class World:
    """A run of one judge: any call in progress may end next, and questions may start any time.

    `fate` says how a question fails, or None where it is answered; `harmless` does so for the
    harmless question. What failed for now is asked again, before all others. Calls last from no
    time to half a minute.
    """

    def __init__(self, dice: Random, patience: float, most: int) -> None:
        self.dice, self.most, self.now = dice, most, 0.0
        self.breaker = CircuitBreaker("judge", patience)
        self.calls = self.answers = 0
        self.harmless = list[float]()

    def run(self, count: int, fate: Fate, harmless: Fate) -> None:
        """Ask so many questions, until all have ended or the judge is given up."""
        dice, breaker = self.dice, self.breaker
        waiting, ends = list(range(count)), dict[int, tuple[int | None, float]]()
        while not breaker.given_up and (waiting or ends):
            may_start = waiting and len(ends) < self.most and breaker.opens_at <= self.now
            if may_start and (not ends or dice.random() < 0.6):
                self.calls += 1
                asks = breaker.note_start(self.calls, self.now)
                self.harmless += [self.now] if asks else []
                end = self.now + dice.choice([0.0, 0.01, 1.0, 30.0])
                ends[self.calls] = (None if asks else waiting.pop(0)), end
            elif ends:
                serial = dice.choice(list(ends))
                question, end = ends.pop(serial)
                self.now = max(self.now, end)
                failure = harmless(0) if question is None else fate(question)
                if failure is None:
                    self.answers += 1
                    breaker.note_answer()
                    assert not breaker.is_open
                    assert breaker.opens_at == -math.inf
                    continue
                for_good = "lasting" in failure
                note = breaker.note_doubt if for_good else breaker.note_failure
                note(serial, self.now, "why", len(ends) + 1, failure["status"])
                if question is not None and not for_good:
                    waiting.insert(0, question)
            else:
                assert breaker.opens_at < math.inf, "no call may ever start"
                self.now = max(self.now, breaker.opens_at)
        gaps = [after - before for before, after in pairwise(self.harmless)]
        assert all(gap >= 59.999 for gap in gaps)


worlds = st.builds(
    World,
    st.randoms(use_true_random=False),
    st.sampled_from([0.0, 0.5, 10.0, 60.0, 300.0]),
    st.sampled_from([1, 4, 64]),
)


@given(worlds, st.integers(1, 200), st.sampled_from(FOR_NOW + FOR_ALL), st.integers(1, 30))
def test_what_one_question_meets_never_gives_a_judge_up_that_answers(
    world: World, count: int, failure: Json, times: int
) -> None:
    bad, left = world.dice.randrange(count), [failure] * times
    world.run(count, lambda q: left.pop() if q == bad and left else None, lambda _: None)
    assert world.breaker.given_up is None
    assert world.answers >= count - 1


@given(worlds, st.lists(st.sampled_from(FOR_NOW + FOR_ALL), min_size=1))
def test_a_judge_that_never_answers_is_given_up_after_few_calls_in_any_order_of_failures(
    world: World, failures: list[Json]
) -> None:
    def fate(_: int) -> Json:
        return world.dice.choice(failures)

    world.run(3_000, fate, fate)
    assert world.breaker.given_up is not None
    assert world.calls <= 5 * 64 + 200  # those in progress, and probes over 300 s
    assert world.harmless
    if all(failure in FOR_ALL for failure in failures):
        assert world.calls <= world.most + 1


@given(worlds, st.sampled_from(FOR_ALL), st.integers(0, 3), st.integers(5, 300))
def test_a_judge_that_fails_from_some_answer_on_is_given_up_after_few_calls(
    world: World, failure: Json, flagged: int, answers: int
) -> None:
    if flagged and failure["status"] in (403, 404):
        flagged = 0  # for a minute they look like questions that are flagged

    def fate(question: int) -> Json | None:
        if question < flagged:
            return {"status": 403, "lasting": True}
        return failure if world.answers >= answers else None

    world.run(3_000, fate, lambda _: failure if world.answers >= answers else None)
    assert world.breaker.given_up is not None
    assert world.calls <= flagged + answers + 5 * world.most + 10


def test_an_answer_that_comes_meanwhile_counts_more_than_the_harmless_question() -> None:
    breaker = CircuitBreaker("judge", 60.0)
    for serial in (1, 2):
        breaker.note_start(serial, 0.0)
    breaker.note_doubt(1, 1.0, "no such key", status=401)
    assert breaker.note_start(3, 1.0)
    breaker.note_answer()
    breaker.note_doubt(3, 2.0, "no such key", status=401)
    assert (breaker.given_up, breaker.is_open) == (None, False)


def test_nothing_but_the_harmless_question_goes_out_in_doubt() -> None:
    breaker = CircuitBreaker("judge", 60.0)
    breaker.note_doubt(1, 5.0, "no such key", status=401)
    assert breaker.opens_at <= 5.0
    assert breaker.note_start(2, 5.0)
    assert breaker.opens_at == 65.0
    breaker.note_failure(2, 6.0, "HTTP 503", status=503)  # it could not tell: a question goes out …
    assert 6.0 < breaker.opens_at < 7.0
    assert not breaker.note_start(3, 7.0)
    breaker.note_doubt(3, 8.0, "no such key", status=401)
    assert breaker.opens_at == 65.0  # … and fails for good: nothing until it may be asked again


def test_a_judge_that_is_tried_again_is_asked_at_once_and_harmlessly_a_minute_later() -> None:
    breaker = CircuitBreaker("judge", 60.0)
    breaker.note_doubt(1, 5.0, "no such key", status=401)
    assert breaker.note_start(2, 5.0)
    breaker.note_doubt(2, 6.0, "no such key", status=401)
    assert "no such key" in str(breaker.given_up)
    assert breaker.opens_at == math.inf
    breaker.try_again(30.0)
    assert (breaker.given_up, breaker.opens_at) == (None, -math.inf)
    assert not breaker.note_start(3, 30.0)
    breaker.note_doubt(3, 31.0, "no such key", status=401)
    breaker.try_again(65.0)
    assert breaker.note_start(4, 65.0)
    breaker.note_answer()
    assert (breaker.given_up, breaker.is_open) == (None, False)


def test_the_answer_to_the_harmless_question_explains_failures_for_a_minute() -> None:
    for status, failed in ((403, "refused"), (503, "away")):
        breaker = CircuitBreaker("judge", 60.0)
        breaker.note_doubt(1, 0.0, "flagged", status=403)
        assert breaker.note_start(2, 0.0)
        breaker.note_answer()
        note = breaker.note_doubt if failed == "refused" else breaker.note_failure
        for serial in range(3, 40):
            breaker.note_start(serial, 59.0)
            note(serial, 59.0, failed, status=status)
            assert not breaker.is_open
        note(40, 60.0, failed, status=status)
        assert breaker.is_open
