"""How often the estimators of the judge card hold the truth, on tables whose truth is known.

    python benchmarks/reliability/estimators.py [--seeds 300] [--only votes]

Every row is one estimator on one population over many seeds, each with its own cases and answers:
how often the 95 % interval held the truth, how wide it was on average, and how often the answer was
"not known", which never counts as held. An exact method, too, leaves 93 to 97 % in one row of
nine by luck. Votes have a table of their own, since their answer may have no upper end.
"""

from __future__ import annotations

import itertools
import math
import statistics
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from random import Random
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from dagengine.reliability.statistics import (
    Corrected,
    Interval,
    Unknown,
    ac1_interval,
    balanced_accuracy_interval,
    bootstrap,
    corrected_difference,
    corrected_mean,
    corrected_rate,
    debiased_calibration_error,
    drift,
    flip_rate,
    flips_of_votes,
    icc_interval,
    kappa_interval,
    steady_votes,
)

Odds = dict[float, float]
"""How the odds of a case's rarer verdict are spread: odds to share of cases."""

POPULATIONS: dict[str, Odds] = {
    "all at .1": {0.1: 1},
    "all at .2": {0.2: 1},
    "all at .3": {0.3: 1},
    "a fifth coins": {0.0: 0.8, 0.5: 0.2},
    "sure, noisy and coins": {0.0: 0.6, 0.15: 0.25, 0.3: 0.1, 0.5: 0.05},
    "mostly sure": {0.02: 0.7, 0.25: 0.3},
    "0 to .5": {k / 100: 1 / 50 for k in range(50)},
}
TARGET, MOST = 0.05, 99


def differing(p: float, votes: int) -> float:
    """Two majorities of this many votes differ."""
    ways = range(votes // 2 + 1, votes + 1)
    lost = math.fsum(math.comb(votes, k) * p**k * (1 - p) ** (votes - k) for k in ways)
    return 2 * lost * (1 - lost)


def flips(odds: Odds, votes: int) -> float:
    return math.fsum(share * differing(p, votes) for p, share in odds.items())


def enough(odds: Odds) -> int | None:
    """The truth: the least number of votes, None where no number up to 99 is enough."""
    return next((k for k in range(1, MOST + 1, 2) if flips(odds, k) <= TARGET), None)


def drawn(random: Random, odds: Odds, cases: int, runs: int) -> list[list[bool]]:
    chosen = random.choices(list(odds), list(odds.values()), k=cases)
    return [[random.random() >= p for _ in range(runs)] for p in chosen]


# Votes.


@dataclass(frozen=True)
class Votes:
    """Shares of seeds, from 0 to 1; `wrong` are numbers that are not right, `named` numbers."""

    held: float
    named: float
    wrong: float
    unknown: float


def votes(odds: Odds, cases: int, runs: int, seeds: int) -> Votes:
    """What is said about votes, beside the truth."""
    truth = enough(odds) or MOST + 2
    held, named, wrong, unknown = 0, 0, 0, 0
    for seed in range(seeds):
        found = steady_votes(drawn(Random(seed), odds, cases, runs), TARGET)
        assert found is not None
        least, most = found.least or MOST + 2, found.most
        right = least <= truth and (most is None or truth <= most)
        held += right
        named += most is not None
        wrong += most is not None and not right
        unknown += found.kind == "not known"
    return Votes(held / seeds, named / seeds, wrong / seeds, unknown / seeds)


def votes_table(seeds: int) -> Table:
    title = f"votes needed for {TARGET:.0%} flips, {seeds} seeds"
    table = Table("cases' odds", "truth", "cases", "runs", "held", "named", "wrong", "not known",
                  title=title)  # fmt: skip
    for name, odds in POPULATIONS.items():
        for cases, runs in itertools.product((20, 40, 100, 300), (3, 5, 8, 20)):
            found = votes(odds, cases, runs, seeds)
            figures = (found.held, found.named, found.wrong, found.unknown)
            shown = [f"{100 * one:.1f} %" for one in figures]
            table.add_row(name, str(enough(odds)), str(cases), str(runs), *shown)
    return table


# Intervals.

Answer = Interval | Unknown | None


@dataclass(frozen=True)
class Trial:
    """One estimator on one population: the truth, and its answer to a sample."""

    name: str
    truth: float
    answer: Callable[[Random], Answer]


@dataclass(frozen=True)
class Held:
    """The share of intervals with the truth, their mean width, and the share of not known."""

    held: float
    width: float
    unknown: float


def hold(trial: Trial, seeds: int) -> Held:
    """A trial over many seeds."""
    # By name, so that rows do not share their luck.
    answers = [trial.answer(Random(f"{trial.name}, {seed}")) for seed in range(seeds)]
    known = [one for one in answers if isinstance(one, Interval)]
    if not known:
        return Held(math.nan, math.nan, 1.0)
    held = [one.low - 1e-9 <= trial.truth <= one.high + 1e-9 for one in known]
    width = statistics.fmean(one.high - one.low for one in known)
    return Held(statistics.fmean(held), width, 1 - len(known) / seeds)


def trials() -> Iterator[Trial]:
    """All populations; the rarest labels and the fewest cases first."""
    yield from _repeated()
    for prevalence, cases in itertools.product((0.95, 0.9, 0.75, 0.5), (20, 40, 100, 300)):
        yield from _labelled(prevalence, cases, noise=0.0)
    for cases in (40, 100):
        yield from _labelled(0.8, cases, noise=0.1)
    yield from _scored()
    for right, labels in itertools.product((0.9, 0.6, 0.5), (20, 50, 100)):
        yield from _corrected(right, labels)


def _repeated() -> Iterator[Trial]:
    for name, odds in POPULATIONS.items():
        for cases, runs in ((20, 3), (40, 5), (40, 20)):
            label = f"{name}, {cases}x{runs}"
            table = partial(drawn, odds=odds, cases=cases, runs=runs)
            yield Trial(f"flip rate, {label}", flips(odds, 1), _of(table, _flip_rate))
            if runs == 20:
                nine = partial(flips_of_votes, votes=9)
                yield Trial(f"flips of 9 votes, {label}", flips(odds, 9), _of(table, nine))
    for groups in (8, 20):
        yield Trial(f"flip rate, {groups} dialogues of 5", 0.1, _dialogues(groups))


def _of(table: Callable[[Random], Any], estimate: Callable[[Any], Answer]) -> Any:
    return lambda random: estimate(table(random))


def _flip_rate(table: Any) -> Interval | None:
    return bootstrap(table, flip_rate)


def _dialogues(groups: int) -> Callable[[Random], Answer]:
    """Cases of one dialogue are all sure, or all coins."""

    def answer(random: Random) -> Answer:
        odds = [random.choice((0, 0, 0, 0, 0.5)) for _ in range(groups)]
        table = [[random.random() >= p for _ in range(5)] for p in odds for _ in range(5)]
        return bootstrap(table, flip_rate, groups=[k // 5 for k in range(5 * groups)])

    return answer


RIGHT = 0.85


def _labelled(prevalence: float, cases: int, noise: float) -> Iterator[Trial]:
    """A judge that is right with 85 %, people that are wrong with `noise`."""

    def pairs(random: Random) -> list[tuple[bool, bool]]:
        truths = [random.random() < prevalence for _ in range(cases)]
        return [(t ^ (random.random() < noise), t ^ (random.random() >= RIGHT)) for t in truths]

    said = {True: prevalence, False: 1 - prevalence}
    joint = {
        (label, verdict): math.fsum(
            share * (1 - noise if label == t else noise) * (RIGHT if verdict == t else 1 - RIGHT)
            for t, share in said.items()
        )
        for label, verdict in itertools.product((True, False), repeat=2)
    }
    agree = joint[True, True] + joint[False, False]
    label = joint[True, True] + joint[True, False]
    verdict = joint[True, True] + joint[False, True]
    both = label * verdict + (1 - label) * (1 - verdict)
    mean = (label + verdict) / 2
    name = f"prevalence {prevalence}, {cases} cases" + (
        f", {noise:.0%} wrong labels" if noise else ""
    )
    balanced = (joint[True, True] / label + joint[False, False] / (1 - label)) / 2
    kinds = (True, False)
    chance = 2 * mean * (1 - mean)
    measures: list[tuple[str, float, Any]] = [
        ("kappa", (agree - both) / (1 - both), kappa_interval),
        ("AC1", (agree - chance) / (1 - chance), ac1_interval),
        ("balanced accuracy", balanced, balanced_accuracy_interval),
    ]
    for measure, truth, of in measures:
        yield Trial(f"{measure}, {name}", truth, _of(pairs, partial(of, kinds=kinds)))


def _scored() -> Iterator[Trial]:
    for cases, runs in ((10, 5), (20, 3), (40, 8)):
        shape = f"{cases}x{runs}"
        for name, truth, of in (("yes and no", 0.64, _yes_no), ("normal scores", 0.8, _normal)):
            table = partial(of, cases=cases, runs=runs)
            yield Trial(f"ICC of {name}, {shape}", truth, _of(table, icc_interval))
        for moved in (0.0, 0.2):
            yield Trial(f"drift of {moved}, {shape}", moved, _drifting(cases, runs, moved))
    for cases, off in itertools.product((30, 200), (0.0, 0.1)):
        yield Trial(f"calibration off by {off}, {cases}x5", off, _stating(cases, off))


def _yes_no(random: Random, cases: int, runs: int) -> list[list[float]]:
    odds = [random.choice((0.1, 0.9)) for _ in range(cases)]
    return [[float(random.random() < p) for _ in range(runs)] for p in odds]


def _normal(random: Random, cases: int, runs: int) -> list[list[float]]:
    centres = [random.gauss(0, 1) for _ in range(cases)]
    return [[random.gauss(centre, 0.5) for _ in range(runs)] for centre in centres]


def _drifting(cases: int, runs: int, moved: float) -> Callable[[Random], Answer]:
    def answer(random: Random) -> Answer:
        odds = [random.choice((0.2, 0.5, 0.8)) for _ in range(cases)]
        places = [moved * (k / (runs - 1) - 0.5) for k in range(runs)]
        return drift([[float(random.random() < p + place) for place in places] for p in odds])

    return answer


def _stating(cases: int, off: float) -> Callable[[Random], Answer]:
    def answer(random: Random) -> Answer:
        truths = [random.uniform(0.05, 0.85) for _ in range(cases)]
        stated = [(p + off, random.random() < p) for p in truths for _ in range(5)]
        return debiased_calibration_error(stated, cases=[k // 5 for k in range(5 * cases)])

    return answer


# Corrected by labels on a part of 1,000 judged cases.

JUDGED = 1000


def _corrected(right: float, labels: int) -> Iterator[Trial]:
    judge = f"a judge right in {right:.0%}, {labels} labels"
    for rate in (0.7, 0.95, 0.98):

        def corrected(random: Random, rate: float = rate) -> Answer:
            return _estimate(corrected_rate(*_judged(random, rate, right, labels), random=True))

        yield Trial(f"pass rate of {rate}, {judge}", rate, corrected)

    def difference(random: Random) -> Answer:
        sides: Any = [_judged(random, rate, right, labels) for rate in (0.8, 0.9)]
        return _estimate(corrected_difference(*sides, random=True))

    def mean(random: Random) -> Answer:
        people = [random.choice((0, 0.5, 0.75, 1, 1)) for _ in range(JUDGED)]
        scores = [right * y + (1 - right) * random.random() for y in people]
        known = [y if k < labels else None for k, y in enumerate(people)]
        return _estimate(corrected_mean(scores, known, random=True))

    yield Trial(f"difference of .1, {judge}", 0.1, difference)
    yield Trial(f"mean score, {judge}", 0.65, mean)


def _judged(random: Random, rate: float, right: float, labels: int) -> tuple[Any, Any]:
    truths = [random.random() < rate for _ in range(JUDGED)]
    said = [truth ^ (random.random() >= right) for truth in truths]
    return said, [truth if k < labels else None for k, truth in enumerate(truths)]


def _estimate(found: Corrected | Unknown) -> Answer:
    return found.estimate if isinstance(found, Corrected) else found


def intervals_table(seeds: int) -> Table:
    table = Table("estimator, population", "truth", "held", "width", "not known",
                  title=f"intervals of 95 %, {seeds} seeds")  # fmt: skip
    for trial in trials():
        one = hold(trial, seeds)
        table.add_row(trial.name, f"{trial.truth:.3f}", f"{100 * one.held:.1f} %",
                      f"{one.width:.3f}", f"{100 * one.unknown:.1f} %")  # fmt: skip
    return table


TABLES = {"votes": votes_table, "intervals": intervals_table}


def main(
    seeds: Annotated[int, typer.Option(min=2)] = 300,
    only: Annotated[str, typer.Option(help="votes or intervals; both without it.")] = "",
) -> None:
    """Print the tables."""
    for name, make in TABLES.items():
        if only in ("", name):
            Console(width=110).print(make(seeds))


if __name__ == "__main__":
    typer.run(main)
