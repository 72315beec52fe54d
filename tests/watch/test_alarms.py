"""Alarms: what leaves its baseline, how sampling is weighed, and which cause is named."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterable, Iterator

import pytest

from dagengine.watch.alarm_causes import ScoreChange, alarm_of, cause_of
from dagengine.watch.alarms import Alarms, SeriesDeparture, evenness, of_baseline, of_sequence
from dagengine.watch.trace_sampling import JudgedTrace, trace_share

BASELINE = 400


def cases(
    count: int, first: int = 0, rate: float = 0.9, hard: float = 0.2, less: float = 0.4
) -> Iterator[JudgedTrace]:
    """Judged cases: of hard traffic, all judged, fewer pass than of simple, half judged."""
    dice = random.Random(first)
    row = first
    while row < first + count:
        stratum = "hard" if dice.random() < hard else "simple"
        probability = 1.0 if stratum == "hard" else 0.5
        share = dice.random()
        if share < probability:
            good = dice.random() < rate - less * (stratum == "hard")
            path = f"ok = {good}"
            yield JudgedTrace(
                row, stratum, probability, share, 100, {"m": float(good)}, {"m": path}
            )
            row += 1


def departures(alarms: Alarms, stream: Iterable[JudgedTrace]) -> list[SeriesDeparture]:
    return [departure for case in stream for departure in alarms.add(case)]


def test_a_healthy_stream_raises_no_alarm_and_a_drop_raises_one() -> None:
    alarms = Alarms(["m"], 0.5, BASELINE)
    assert departures(alarms, cases(1500)) == []
    (departure,) = departures(alarms, cases(1200, 1500, rate=0.7))
    assert departure.before > departure.now + 0.1
    assert departure.row > 1500
    assert len(departure.first) == BASELINE


def test_after_an_alarm_the_next_cases_are_the_baseline() -> None:
    alarms = Alarms(["m"], 0.5, BASELINE)
    found = departures(alarms, [*cases(600), *cases(3000, 600, rate=0.6)])
    assert len(found) == 1
    again = departures(alarms, cases(1000, 3600, rate=0.9))
    assert [departure.now > departure.before for departure in again] == [True]


def test_oversampled_traffic_weighs_no_more_than_it_is() -> None:
    alarms = Alarms(["m"], 0.5, BASELINE)
    stream = [*cases(BASELINE), *cases(2000, BASELINE, hard=0.6)]
    assert sum(case.stratum == "hard" for case in stream[:BASELINE]) > 0.3 * BASELINE
    (departure,) = departures(alarms, stream)
    # 0.2 and 0.6 of the traffic are hard: 82 and 66 of 100 pass, whatever was judged of them.
    assert departure.group == "all"
    assert departure.before == pytest.approx(0.82, abs=0.06)
    assert departure.now == pytest.approx(0.66, abs=0.08)
    alert = alarm_of(departure, [ScoreChange(row, 0, "m", 0.0, 1.0) for row in range(200)])
    assert alert.cause == "traffic"


def test_a_stratum_has_its_own_series() -> None:
    alarms = Alarms(["m"], 0.5, BASELINE)
    (departure,) = departures(alarms, [*cases(600), *cases(400, 600, less=0.8)])
    assert departure.group == "stratum hard"


def test_a_path_has_its_own_series_where_scores_do_not_tell() -> None:
    def taking(path: str, first: int, count: int) -> list[JudgedTrace]:
        others = ("a", "b", "c")
        return [
            JudgedTrace(row, "others", 1.0, 0.5, 100, {"m": 1.0},
                   {"m": path if row % 3 else others[row % 9 // 3]})
            for row in range(first, first + count)
        ]  # fmt: skip

    alarms = Alarms(["m"], 1.0, BASELINE)
    (departure,) = departures(alarms, [*taking("a", 0, 600), *taking("b", 600, 300)])
    assert departure.group in ("path a", "path b")
    assert str(alarm_of(departure, []).path)[:6] in ("a (78%", "b (11%")
    assert alarm_of(departure, []).cause == "not known"  # nobody asked old questions again


def test_a_mean_that_is_known_needs_no_first_cases() -> None:
    alarms = Alarms(["m"], 0.5, rates={"m": 0.95})
    (departure, *_) = departures(alarms, cases(1000))
    assert (departure.before, departure.first) == (0.95, [])
    assert departure.row < 1000


def drawn(
    seed: int,
    rate: Callable[[int], float],
    count: int = 3000,
    group: Callable[[int], str | None] = lambda row: None,
) -> list[JudgedTrace]:
    """A stream whose pass rate depends on the row alone."""
    dice = random.Random(seed)
    scores = [float(dice.random() < rate(row)) for row in range(count)]
    return [
        JudgedTrace(row, "s", 1.0, 0.0, 9, {"m": score}, {"m": ""}, group(row))
        for row, score in enumerate(scores)
    ]


@pytest.mark.parametrize("rate", [0.5, 0.9, 0.995, 1.0])
def test_an_even_baseline_is_seldom_taken_for_uneven(rate: float) -> None:
    streams = ([case.scores["m"] for case in drawn(seed, lambda _: rate, 300)] for seed in range(8))
    assert sum(evenness(stream) <= 0.01 for stream in streams) <= 1


def of_day(row: int) -> float:
    return 0.8 + 0.18 * math.sin(2 * math.pi * row / 1000)


def of_sender(row: int) -> float:
    return 0.65 + 0.3 * (random.Random(row // 20).random() < 0.7)


@pytest.mark.parametrize("rate", [of_day, of_sender])
def test_alarms_are_off_and_none_is_raised_where_a_baseline_is_not_exchangeable(
    rate: Callable[[int], float],
) -> None:
    for seed in range(2):
        alarms = Alarms(["m"], 1.0, 1000)
        assert departures(alarms, drawn(seed, rate, 2500)) == []
        assert alarms.off == ("m",)


def test_alarms_are_on_again_with_a_baseline_that_is_exchangeable() -> None:
    alarms = Alarms(["m"], 1.0, 1000)
    departures(alarms, drawn(1, of_day, 1000))
    assert alarms.off == ("m",)
    assert departures(alarms, drawn(2, lambda row: 0.8 - 0.3 * (row > 1200), 2000))
    assert not alarms.off


def test_the_longest_baseline_is_compared_in_little_memory() -> None:
    assert evenness([0.0] * 50_000 + [1.0] * 50_000) < 0.01


def test_the_cases_of_a_group_are_one_number_and_a_drop_is_found_in_groups() -> None:
    def group(row: int) -> str:
        return str(row // 20)

    for seed in range(3):
        alarms = Alarms(["m"], 1.0, 1000)
        assert departures(alarms, drawn(seed, of_sender, 3000, group)) == []
        assert not alarms.off
    (departure, *_) = departures(
        Alarms(["m"], 1.0, 2000),
        drawn(4, lambda row: of_sender(row) - 0.3 * (row > 2500), 5000, group),
    )
    assert departure.row > 2500
    assert departure.before > departure.now
    assert len({case.group for case in departure.first}) == 100


def test_groups_that_come_at_the_same_time_are_told_apart() -> None:
    alarms = Alarms(["m"], 1.0, 400)
    stream = drawn(1, lambda row: 0.9, 1000, lambda row: f"{row // 100}-{row % 7}")
    assert departures(alarms, stream) == []
    first = [case for metric in alarms._metrics for block in metric._first for case in block]
    assert {len({case.group for case in block}) for block in alarms._metrics[0]._first} == {1}
    assert len(first) >= 400


def test_a_group_without_an_end_counts_now_and_then() -> None:
    alarms = Alarms(["m"], 1.0, rates={"m": 0.9})
    assert departures(alarms, drawn(1, lambda row: 0.5, 30_000, lambda row: "always"))


def test_a_case_without_a_score_says_nothing() -> None:
    alarms = Alarms(["m"], 1.0, BASELINE)
    silent = [JudgedTrace(row, "others", 1.0, 0.0, 1, {}, {}) for row in range(1000)]
    assert departures(alarms, [*cases(500), *silent, *cases(500, 500)]) == []


def test_old_questions_that_are_answered_otherwise_show_a_drift() -> None:
    alarms = Alarms(["m"], 1.0)
    dice = random.Random(1)
    steady = [dice.choice((-1, 0, 0, 0, 0, 0, 0, 0, 0, 1)) for _ in range(500)]
    assert not any(alarms.add_change("m", change, row) for row, change in enumerate(steady))
    drifts = [alarms.add_change("m", -(row % 5 == 0), row) for row in range(300)]
    (first, *_) = [drift for drift in drifts if drift]
    assert first[0] < 0


def test_the_false_alarms_of_all_tests_add_up() -> None:
    assert sum(map(of_sequence, range(100_000))) == pytest.approx(1, abs=1e-4)
    assert sum(map(of_baseline, range(100))) == pytest.approx(1)


@pytest.mark.parametrize(
    ("judge", "traffic", "inside", "cause"),
    [
        ((0.0, 0.01), (0.0, 0.01), (-0.1, 0.02), "app"),
        ((-0.1, 0.015), (0.0, 0.01), (-0.1, 0.02), "judge"),
        ((-0.2, 0.015), (0.0, 0.01), (-0.1, 0.02), "judge"),  # diluted by cases of before
        ((0.0, 0.01), (-0.1, 0.01), (0.0, 0.02), "traffic"),
        ((-0.05, 0.04), (0.0, 0.01), (-0.1, 0.02), "not known"),  # too few old questions
        ((-0.1, 0.01), (-0.1, 0.01), (-0.1, 0.02), "not known"),  # two of them
        (None, (0.0, 0.01), (-0.1, 0.02), "not known"),  # the app, or the judge
        (None, (-0.1, 0.01), (0.0, 0.02), "traffic"),
        ((-0.1, 0.01), None, (-0.1, 0.02), "judge"),
        ((0.0, 0.01), None, (-0.1, 0.02), "not known"),  # the app, or the traffic
    ],
)
def test_a_cause_is_named_only_if_no_other_fits(
    judge: tuple[float, float] | None,
    traffic: tuple[float, float] | None,
    inside: tuple[float, float],
    cause: str,
) -> None:
    assert cause_of(judge, traffic, inside) == cause


def test_the_place_of_a_trace_is_even_and_stays() -> None:
    places = [trace_share(f"{number:032x}") for number in range(2000)]
    assert places == [trace_share(f"{number:032x}") for number in range(2000)]
    assert all(0 <= place < 1 for place in places)
    assert 0.08 < sum(place < 0.1 for place in places) / 2000 < 0.12
