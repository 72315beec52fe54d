"""The circuit breaker alone: when it opens, whom it lets through, when it gives up."""

from __future__ import annotations

import math

from dagengine.gateway.laws.circuit_breaker import CircuitBreaker


def broken(patience: float = 60.0, at: float = 100.0) -> CircuitBreaker:
    """A breaker that has just opened."""
    breaker = CircuitBreaker("judge", patience)
    for serial in range(1, 6):
        breaker.started(serial, at)
        breaker.failed(serial, at, "refused")
    return breaker


def test_the_circuit_opens_after_failures_in_a_row_only() -> None:
    breaker = CircuitBreaker("judge", 60.0)
    for serial in range(1, 40):
        breaker.failed(serial, 0.0, "refused")
        if serial % 4 == 0:
            breaker.answered()
    assert not breaker.is_open
    assert broken().is_open


def test_a_few_quick_failures_among_many_calls_do_not_open_it() -> None:
    breaker = CircuitBreaker("judge", 60.0)
    for serial in range(1, 33):
        assert not breaker.is_open
        breaker.failed(serial, 0.0, "refused", in_flight=65 - serial)
    breaker.failed(33, 0.0, "refused", in_flight=32)
    assert breaker.is_open


def test_while_it_is_open_the_next_probe_waits_until_the_last_one_seems_to_be_worked_on() -> None:
    breaker = broken(at=100.0)
    assert 100 < breaker.opens_at < 101
    breaker.started(6, 100.25)
    assert breaker.opens_at == 100.75
    breaker.failed(6, 103.25, "refused")
    opens = breaker.opens_at
    assert 103.25 < opens < math.inf
    breaker.started(7, opens)
    assert breaker.opens_at == opens + 6  # the other one took three seconds to fail


def test_a_judge_is_not_given_up_while_it_seems_to_work_on_a_probe() -> None:
    breaker = broken(patience=30.0, at=0.0)
    breaker.started(6, 29.0)
    breaker.started(7, 29.5)
    breaker.failed(7, 31.0, "refused")
    assert (breaker.given_up, breaker.opens_at) == (None, math.inf)
    breaker.failed(6, 149.0, "no answer")
    assert breaker.given_up is not None


def test_a_server_of_which_there_is_no_sign_is_given_up_sooner_than_one_that_says_not_yet() -> None:
    for reached in (False, True):
        breaker, now = CircuitBreaker("judge", 300.0, 60.0), 0.0
        for serial in range(1, 500):
            breaker.started(serial, now)
            breaker.failed(serial, now, "not yet", reached=reached)
            if breaker.given_up:
                break
            now = max(now, breaker.opens_at)
        assert now == (300.0 if reached else 60.0)


def test_it_knows_whether_a_call_was_in_progress_when_the_judge_answered() -> None:
    breaker = CircuitBreaker("judge", 60.0)
    breaker.started(1, 0.0)
    breaker.started(2, 0.0)
    breaker.answered()
    breaker.started(3, 1.0)
    assert [breaker.has_answered_since(serial) for serial in (1, 2, 3)] == [True, True, False]


def test_waits_between_probes_grow_and_the_last_one_is_when_the_patience_ends() -> None:
    breaker, waits, now = broken(at=0.0), list[float](), 0.0
    for serial in range(6, 99):
        waits.append(breaker.opens_at - now)
        now = breaker.opens_at
        breaker.started(serial, now)
        breaker.failed(serial, now, "refused")
        if breaker.given_up:
            break
    assert now == 60.0
    assert waits[:-1] == sorted(waits[:-1])
    assert max(waits) <= 5.0


def test_any_answer_closes_the_circuit() -> None:
    breaker = broken()
    breaker.answered()
    assert not breaker.is_open
    assert breaker.opens_at == -math.inf


def test_a_probe_that_is_cancelled_makes_room_for_the_next() -> None:
    breaker = broken()
    breaker.started(6, 101.0)
    breaker.ended(6)
    assert breaker.opens_at < math.inf


def test_giving_up_says_what_happened_for_how_long_and_what_to_do() -> None:
    breaker = broken(patience=30.0, at=0.0)
    breaker.started(6, 31.0)
    breaker.failed(6, 31.0, "connection refused")
    assert breaker.given_up is not None
    for part in ("'judge'", "6 calls", "31 s", "'connection refused'", "Limits.patience (30 s)"):
        assert part in breaker.given_up


def test_a_key_that_is_refused_from_the_start_is_given_up_at_once() -> None:
    breaker = CircuitBreaker("judge", 60.0)
    for serial in (1, 2, 3):
        assert breaker.given_up is None
        breaker.refused(serial, 401, "HTTP 401: no such key")
    assert breaker.given_up is not None
    assert "no such key" in breaker.given_up


def test_a_refusal_after_an_answer_or_of_one_question_gives_nothing_up() -> None:
    answered, picky = CircuitBreaker("judge", 60.0), CircuitBreaker("judge", 60.0)
    answered.answered()
    for serial in range(9):
        answered.refused(serial, 403, "moderated")
        picky.refused(serial, 400, "too long")
    assert (answered.given_up, picky.given_up) == (None, None)


def test_a_wait_longer_than_the_patience_is_not_waited_for() -> None:
    breaker = CircuitBreaker("judge", 60.0)
    breaker.failed(1, 0.0, "HTTP 429", in_flight=9, retry_after=3600.0)
    assert breaker.given_up is not None
    assert "3600 s" in breaker.given_up
