"""Are fitted thresholds and promised error rates what they say? Known populations, many samples.

    python benchmarks/reliability/fitted.py [SAMPLES]

For each population of scores, size and cost: how often the interval of the threshold holds a
threshold that is truly best, how far the held-out cost is from the true cost of what was fitted,
and in which share of samples another threshold than the best one is said to be better.
For promised rates: the true rate of wrong verdicts that are not called unsure, on average.
"""

from __future__ import annotations

import statistics
import sys
from bisect import bisect_left
from collections.abc import Callable
from itertools import accumulate
from random import Random

from dagengine.reliability.threshold_fitting import (
    Abstention,
    FittedThreshold,
    abstain_below,
    fit_threshold,
)

Draw = Callable[[Random], tuple[float, bool]]
_POPULATION = 40_000


def _smooth(random: Random) -> tuple[float, bool]:
    """Scores of good and bad cases that overlap; the best threshold is 0.6 at equal costs."""
    good = random.random() < 0.6
    score = random.betavariate(5, 2) if good else random.betavariate(2, 4)
    return score, good


def _steps(random: Random) -> tuple[float, bool]:
    """A tree with five scores."""
    score = random.choice((0.0, 0.3, 0.5, 0.8, 1.0))
    return score, random.random() < (0.05, 0.2, 0.45, 0.75, 0.95)[
        (0, 3, 5, 8, 10).index(score * 10)
    ]


def _rare(random: Random) -> tuple[float, bool]:
    """One bad case in ten."""
    good = random.random() < 0.9
    return min(1.0, max(0.0, random.gauss(0.75 if good else 0.45, 0.15))), good


def _chance(random: Random) -> tuple[float, bool]:
    """Labels that do not depend on the score: all that counts is which label is commoner."""
    return random.random(), random.random() < 0.7


POPULATIONS: dict[str, Draw] = {
    "smooth": _smooth,
    "five scores": _steps,
    "rare faults": _rare,
    "by chance": _chance,
}


def true_costs(draw: Draw, cost_pass: float) -> Callable[[float], float]:
    """The mean cost of any threshold in a population."""
    random = Random(99)
    whole = sorted(draw(random) for _ in range(_POPULATION))
    scores = [score for score, _ in whole]
    failed_good = [0, *accumulate(int(good) for _, good in whole)]
    failed_bad = [0, *accumulate(int(not good) for _, good in whole)]

    def cost(threshold: float) -> float:
        place = bisect_left(scores, threshold)
        passed_bad = failed_bad[-1] - failed_bad[place]
        return (failed_good[place] + cost_pass * passed_bad) / len(whole)

    return cost


def thresholds(samples: int) -> None:
    """The table of thresholds."""
    print("population    labels  cost  covered  held-out cost  true cost  falsely better")
    for name, draw in POPULATIONS.items():
        for cost_pass in (1.0, 4.0):
            cost = true_costs(draw, cost_pass)
            grid = [place / 200 for place in range(201)]
            least = min(map(cost, grid))
            best = [cut for cut in grid if cost(cut) <= least + 0.002]
            for size in (40, 100, 300):
                random = Random(f"{name} {size} {cost_pass}")
                covered = better = fitted = 0
                held: list[float] = []
                true: list[float] = []
                for seed in range(samples):
                    scored = [draw(random) for _ in range(size)]
                    fit = fit_threshold(
                        scored, now=best[len(best) // 2], cost_pass=cost_pass, seed=seed
                    )
                    if not isinstance(fit, FittedThreshold):
                        continue
                    fitted += 1
                    step = 1 / 200
                    covered += any(fit.low - step <= cut <= fit.high + step for cut in best)
                    held.append(fit.cost)
                    true.append(cost(fit.threshold))
                    better += fit.is_better
                if not fitted:
                    continue
                print(
                    f"{name:12} {size:7} {cost_pass:5g} {100 * covered / fitted:7.1f} %"
                    f"{statistics.fmean(held):14.3f} {statistics.fmean(true):10.3f}"
                    f"{100 * better / fitted:13.1f} %"
                )


def promises(samples: int) -> None:
    """The table of promised rates."""
    print("\njudge            labels  promised  true rate  answered")
    judges: dict[str, Callable[[float], float]] = {
        "calibrated": lambda chance: chance,
        "too sure": lambda chance: 0.5 + (chance - 0.5) * 0.6,
        "tells nothing": lambda chance: 0.8,
    }
    for name, right in judges.items():
        for promised in (0.05, 0.1):
            for size in (40, 100, 300):
                random = Random(f"{name} {size} {promised}")
                rates: list[float] = []
                kept: list[float] = []

                def draw(
                    random: Random = random, right: Callable[[float], float] = right
                ) -> tuple[float, bool]:
                    chance = 0.5 + random.betavariate(3, 1.5) / 2
                    return round(chance, 2), random.random() < right(chance)

                whole = [draw() for _ in range(_POPULATION)]
                for _ in range(samples):
                    cut = abstain_below([draw() for _ in range(size)], promised)
                    if isinstance(cut, Abstention):
                        answered = [good for chance, good in whole if chance >= cut.below]
                        rates.append(answered.count(False) / len(whole))
                        kept.append(len(answered) / len(whole))
                print(
                    f"{name:15} {size:7} {promised:9g} {statistics.fmean(rates):10.3f}"
                    f"{100 * statistics.fmean(kept):8.0f} %"
                )


if __name__ == "__main__":
    SAMPLES = int(sys.argv[1]) if len(sys.argv) > 1 else 200
    thresholds(SAMPLES)
    promises(SAMPLES)
