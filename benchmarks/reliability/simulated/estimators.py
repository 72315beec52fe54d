"""Estimators of the judge card by themselves, on tables whose truth is known.

What a whole card takes too long for: many numbers of cases, runs, labels and groups.
"""

from __future__ import annotations

import itertools
import math
import statistics
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from random import Random
from typing import Any

from rows import Answer, Trial

from dagengine.reliability.statistics.accuracy_and_kappa import (
    ac1_interval,
    balanced_accuracy_interval,
    kappa_interval,
    label_kappa,
)
from dagengine.reliability.statistics.corrected import (
    Corrected,
    corrected_difference,
    corrected_mean,
    corrected_rate,
)
from dagengine.reliability.statistics.correlation_and_bias import debiased_calibration_error
from dagengine.reliability.statistics.intervals import Unknown, bootstrap
from dagengine.reliability.statistics.majority_votes import flips_of_votes
from dagengine.reliability.statistics.paired_comparisons import Comparison, compare_measures
from dagengine.reliability.statistics.stability import flip_rate, icc, icc_interval
from simulated.votes_needed import POPULATIONS, Odds, drawn, flips

# Intervals.


def trials() -> Iterator[Trial]:
    """All populations; the rarest labels and the fewest cases first."""
    yield from _repeated()
    for prevalence, cases in itertools.product((0.95, 0.9, 0.75, 0.5), (20, 40, 100, 300)):
        yield _labelled(prevalence, cases, noise=0.0)
    for cases in (40, 100):
        yield _labelled(0.8, cases, noise=0.1)
    for groups in (5, 8, 20, 60):
        yield _labelled_dialogues(groups)
    for kinds, cases in itertools.product((3, 5), (20, 100)):
        yield _several_kinds(kinds, cases)
    yield from _scored()
    yield from _changed()
    for right, labels in itertools.product((0.9, 0.6, 0.5), (20, 50, 100)):
        yield from _corrected(right, labels)


def _one(name: str, population: str, truth: float, answer: Callable[[Random], Answer]) -> Trial:
    """A trial of a single estimator."""
    return Trial(population, {name: truth}, lambda random: {name: answer(random)})


def _repeated() -> Iterator[Trial]:
    shapes = ((10, 20), (20, 3), (20, 8), (40, 5), (40, 20), (100, 8))
    for (name, odds), (cases, runs) in itertools.product(POPULATIONS.items(), shapes):
        seen = {f"flips of {k} votes": k for k in (1, 3, 5, 9) if 2 * k <= runs}

        def answers(
            random: Random,
            odds: Odds = odds, cases: int = cases, runs: int = runs,
            seen: Mapping[str, int] = seen,
        ) -> dict[str, Answer]:  # fmt: skip
            table = drawn(random, odds, cases, runs)
            return {name: flips_of_votes(table, votes) for name, votes in seen.items()}

        truth = {name: flips(odds, votes) for name, votes in seen.items()}
        yield Trial(f"{name}, {cases}x{runs}", truth, answers)
    for cases, runs in ((20, 8), (100, 8), (40, 20)):
        yield _three_verdicts(cases, runs)
    for groups in (5, 8, 20):
        yield _one("flip rate", f"{groups} dialogues of 5", 0.1, _dialogues(groups))


def _three_verdicts(cases: int, runs: int) -> Trial:
    """Half of the cases are sure, half give three verdicts."""
    chances, verdicts = (0.6, 0.3, 0.1), "abc"
    seen = {f"flips of {k} votes": k for k in (1, 3) if 2 * k <= runs}

    def answers(random: Random) -> dict[str, Answer]:
        table = [
            random.choices(verdicts, chances if random.random() < 0.5 else (1, 0, 0), k=runs)
            for _ in range(cases)
        ]
        return {name: flips_of_votes(table, votes) for name, votes in seen.items()}

    truth = {name: _flips_of_three(chances, votes) / 2 for name, votes in seen.items()}
    return Trial(f"three verdicts, {cases}x{runs}", truth, answers)


def _flips_of_three(chances: tuple[float, ...], votes: int) -> float:
    """Two majorities differ, a tie being an outcome of its own."""
    won = dict.fromkeys(range(len(chances) + 1), 0.0)
    for said in itertools.product(range(len(chances)), repeat=votes):
        counts = [said.count(kind) for kind in range(len(chances))]
        tied = counts.count(max(counts)) > 1
        won[len(chances) if tied else counts.index(max(counts))] += math.prod(
            chances[kind] for kind in said
        )
    return 1 - math.fsum(p * p for p in won.values())


def _dialogues(groups: int) -> Callable[[Random], Answer]:
    """Cases of one dialogue are all sure, or all coins."""

    def answer(random: Random) -> Answer:
        odds = [random.choice((0, 0, 0, 0, 0.5)) for _ in range(groups)]
        table = [[random.random() >= p for _ in range(5)] for p in odds for _ in range(5)]
        return bootstrap(table, flip_rate, groups=[k // 5 for k in range(5 * groups)])

    return answer


RIGHT = 0.85


def _labelled(prevalence: float, cases: int, noise: float) -> Trial:
    """A judge that is right with 85 %, people that are wrong with `noise`."""

    def pairs(random: Random) -> list[tuple[bool, bool]]:
        truths = [random.random() < prevalence for _ in range(cases)]
        return [(t ^ (random.random() < noise), t ^ (random.random() >= RIGHT)) for t in truths]

    wrong = f", {noise:.0%} wrong labels" if noise else ""
    name = f"prevalence {prevalence}, {cases} cases{wrong}"
    return _of_pairs(name, _joint(prevalence, noise), pairs)


def _joint(prevalence: float, noise: float) -> Joint:
    said = {True: prevalence, False: 1 - prevalence}
    return {
        (label, verdict): math.fsum(
            share * (1 - noise if label == t else noise) * (RIGHT if verdict == t else 1 - RIGHT)
            for t, share in said.items()
        )
        for label, verdict in itertools.product((True, False), repeat=2)
    }


def _labelled_dialogues(groups: int) -> Trial:
    """Of five cases of a dialogue the judge is right in all, or in half of them by chance."""

    def pairs(random: Random) -> list[tuple[bool, bool]]:
        found = []
        for _ in range(groups):
            lost = random.random() < 2 * (1 - RIGHT)
            for _ in range(5):
                label = random.random() < 0.75
                found.append((label, label ^ (lost and random.random() < 0.5)))
        return found

    names = [case // 5 for case in range(5 * groups)]
    return _of_pairs(f"{groups} dialogues of 5 cases", _joint(0.75, 0.0), pairs, names)


def _several_kinds(kinds: int, cases: int) -> Trial:
    """Labels of unequal frequency, each met in 85 %, the others given alike."""
    shares = [kind + 1 for kind in range(kinds)]

    def pairs(random: Random) -> list[tuple[int, int]]:
        labels = random.choices(range(kinds), shares, k=cases)
        return [
            (
                label,
                label if random.random() < RIGHT else (label + random.randrange(1, kinds)) % kinds,
            )
            for label in labels
        ]

    joint = {
        (label, verdict): shares[label] / sum(shares)
        * (RIGHT if label == verdict else (1 - RIGHT) / (kinds - 1))
        for label, verdict in itertools.product(range(kinds), repeat=2)
    }  # fmt: skip
    return _of_pairs(f"{kinds} labels, {cases} cases", joint, pairs)


Joint = Mapping[tuple[Any, Any], float]


def _of_pairs(name: str, joint: Joint, pairs: Callable[[Random], Any], groups: Any = None) -> Trial:
    """Kappa, AC1 and balanced accuracy of pairs of label and verdict."""
    kinds = list(dict.fromkeys(label for label, _ in joint))

    def share(side: int, kind: Any) -> float:
        return math.fsum(chance for pair, chance in joint.items() if pair[side] == kind)

    agree = math.fsum(joint[kind, kind] for kind in kinds)
    both = math.fsum(share(0, kind) * share(1, kind) for kind in kinds)
    means = [(share(0, kind) + share(1, kind)) / 2 for kind in kinds]
    chance = math.fsum(mean * (1 - mean) for mean in means) / (len(kinds) - 1)
    truth = {
        "kappa": (agree - both) / (1 - both),
        "AC1": (agree - chance) / (1 - chance),
        "balanced accuracy": statistics.fmean(joint[kind, kind] / share(0, kind) for kind in kinds),
    }

    def answers(random: Random) -> dict[str, Answer]:
        sample = pairs(random)
        made = {"kinds": kinds, "groups": groups}
        return {
            "kappa": kappa_interval(sample, **made),
            "AC1": ac1_interval(sample, **made),
            "balanced accuracy": balanced_accuracy_interval(sample, **made),
        }

    return Trial(name, truth, answers)


def _scored() -> Iterator[Trial]:
    for cases, runs in ((10, 5), (20, 3), (40, 8)):
        for name, truth, of in (("yes and no", 0.64, _yes_no), ("normal scores", 0.8, _normal)):
            table = partial(of, cases=cases, runs=runs)
            yield _one("ICC", f"{name}, {cases}x{runs}", truth, _of(table, icc_interval))
    for (name, odds), (cases, runs) in itertools.product(
        RARE.items(), ((10, 19), (20, 3), (40, 5))
    ):
        table = partial(_passing, odds=odds, cases=cases, runs=runs)
        yield _one("ICC", f"{name}, {cases}x{runs}", _reliability(odds), _of(table, icc_interval))
    for cases, off in itertools.product((30, 200), (0.0, 0.1)):
        yield _one("calibration error", f"off by {off}, {cases}x5", off, _stating(cases, off))


RARE: dict[str, Odds] = {
    "one in twenty fails, noise .1": {0.9: 0.95, 0.1: 0.05},
    "a fifth coins, three in four pass": {1.0: 0.6, 0.0: 0.2, 0.5: 0.2},
}
"""How the chance to pass is spread where few cases carry the figure."""


def _passing(random: Random, odds: Odds, cases: int, runs: int) -> list[list[float]]:
    chosen = random.choices(list(odds), list(odds.values()), k=cases)
    return [[float(random.random() < p) for _ in range(runs)] for p in chosen]


def _reliability(odds: Odds) -> float:
    mean = math.fsum(share * p for p, share in odds.items())
    within = math.fsum(share * p * (1 - p) for p, share in odds.items())
    return 1 - within / (mean * (1 - mean))


def _of(table: Callable[[Random], Any], estimate: Callable[[Any], Answer]) -> Any:
    return lambda random: estimate(table(random))


def _changed() -> Iterator[Trial]:
    """Differences of measures that are no means, on the same cases before and after."""
    for cases, runs in ((20, 5), (100, 5)):

        def reliability(random: Random, cases: int = cases, runs: int = runs) -> Answer:
            odds = [random.choice((0.1, 0.9)) for _ in range(cases)]
            sides = [[[float(random.random() < abs(p - off)) for _ in range(runs)] for p in odds]
                     for off in (0.1, 0.0)]  # fmt: skip
            return _difference(compare_measures(*(icc.sums(side) for side in sides)))

        # From odds of 0 and .8 to .1 and .9.
        before = 1 - (0.8 * 0.2 / 2) / (0.4 * 0.6)
        name = f"{cases}x{runs}"
        yield _one("change of ICC", name, 0.64 - before, reliability)
    for cases in (40, 200):

        def kappa(random: Random, cases: int = cases) -> Answer:
            labels = [random.random() < 0.75 for _ in range(cases)]
            sides = [[(label, label ^ (random.random() >= right)) for label in labels]
                     for right in (0.75, RIGHT)]  # fmt: skip
            return _difference(compare_measures(*(label_kappa.sums(side) for side in sides)))

        # Kappa of a judge right in a share r, of labels of which 75 % pass.
        first, second = (
            (r - both) / (1 - both)
            for r, both in ((r, 0.75 * (0.5 * r + 0.25) + 0.25 * (0.75 - 0.5 * r))
                            for r in (0.75, RIGHT))
        )  # fmt: skip
        yield _one("change of kappa", f"{cases} cases", second - first, kappa)


def _difference(found: Comparison | Unknown) -> Answer:
    return found.interval if isinstance(found, Comparison) else found


def _yes_no(random: Random, cases: int, runs: int) -> list[list[float]]:
    odds = [random.choice((0.1, 0.9)) for _ in range(cases)]
    return [[float(random.random() < p) for _ in range(runs)] for p in odds]


def _normal(random: Random, cases: int, runs: int) -> list[list[float]]:
    centres = [random.gauss(0, 1) for _ in range(cases)]
    return [[random.gauss(centre, 0.5) for _ in range(runs)] for centre in centres]


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

        yield _one(f"pass rate of {rate}", judge, rate, corrected)

    def several(random: Random) -> Answer:
        said, known = _judged(random, 0.7, right, labels)
        verdicts = [f"{one}{random.choice('ab')}" if one else "no" for one in said]
        passed = ["Truea", "Trueb"]
        return _estimate(corrected_rate(verdicts, known, random=True, passed=passed))

    def difference(random: Random) -> Answer:
        sides: Any = [_judged(random, rate, right, labels) for rate in (0.8, 0.9)]
        return _estimate(corrected_difference(*sides, random=True))

    def mean(random: Random) -> Answer:
        people = [random.choice((0, 0.5, 0.75, 1, 1)) for _ in range(JUDGED)]
        scores = [right * y + (1 - right) * random.random() for y in people]
        known = [y if k < labels else None for k, y in enumerate(people)]
        return _estimate(corrected_mean(scores, known, random=True))

    yield _one("pass rate of 0.7 by three verdicts", judge, 0.7, several)
    yield _one("difference of .1", judge, 0.1, difference)
    yield _one("mean score", judge, 0.65, mean)


def _judged(random: Random, rate: float, right: float, labels: int) -> tuple[Any, Any]:
    truths = [random.random() < rate for _ in range(JUDGED)]
    said = [truth ^ (random.random() >= right) for truth in truths]
    return said, [truth if k < labels else None for k, truth in enumerate(truths)]


def _estimate(found: Corrected | Unknown) -> Answer:
    return found.estimate if isinstance(found, Corrected) else found
