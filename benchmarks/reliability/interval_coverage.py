"""How often 95 % intervals hold the truth, on simulated judges whose truth is known.

    python benchmarks/reliability/interval_coverage.py [trials]

Each trial draws new items from a population and lets a judge answer them; the truth is that of
the population. Coverage should lie between 93 and 97 %, bias within twice its standard error.
"""

from __future__ import annotations

import math
import statistics
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any

from rich.console import Console
from rich.table import Table

from dagengine.reliability.statistics.accuracy_and_kappa import (
    accuracy,
    cohen_kappa,
    fleiss_kappa,
    krippendorff_alpha,
)
from dagengine.reliability.statistics.correlation_and_bias import (
    Compared,
    Measured,
    brier_score,
    first_wins,
    length_bias,
    longer_wins,
    position_consistency,
)
from dagengine.reliability.statistics.intervals import bootstrap
from dagengine.reliability.statistics.stability import entropy, flip_rate, icc, missing_rate

SIZES = ((20, 10), (50, 5), (50, 20), (200, 10))


@dataclass(frozen=True)
class Simulation:
    """A measure, how one item is drawn, and the value of the measure in the population."""

    name: str
    measure: Any
    item: Callable[[Random, int], Any]
    truth: float


@dataclass(frozen=True)
class Coverage:
    """The share of trials whose interval held the truth, and the mean error of the value."""

    covered: float
    bias: float
    bias_error: float


def noisy_judge() -> list[Simulation]:
    """Simulated judges and the truth about them."""
    return [
        Simulation("flip rate, equal noise", flip_rate, _votes([0.1]), 0.18),
        Simulation("flip rate, mixed noise", flip_rate, _votes(NOISE), _mean(_flips)),
        Simulation("entropy", entropy, _votes(NOISE), _mean(_bits)),
        Simulation("Fleiss' kappa", fleiss_kappa, _votes(NOISE), KAPPA),
        Simulation("Krippendorff's alpha", krippendorff_alpha, _votes(NOISE), KAPPA),
        Simulation("ICC(1,1)", icc, _scores, 0.8),
        Simulation("Cohen's kappa", cohen_kappa, _labelled, 1 - 0.2 / 0.5),
        Simulation("accuracy", accuracy, _labelled, 0.8),
        Simulation("position consistency", position_consistency, _ordered, 0.75),
        Simulation("first wins", first_wins, _ordered, 0.5 + 0.4 * 0.25),
        Simulation("longer wins", longer_wins, _compared, 0.6),
        Simulation("length bias", length_bias, _measured, 0.6),
        Simulation("Brier score", brier_score, _stated, 1 / 6),
        Simulation("missing rate", missing_rate, _unparseable, 0.1),
    ]


NOISE = (0.02, 0.1, 0.3, 0.5, 0.9)


def _mean(of: Callable[[float], float]) -> float:
    return statistics.fmean(of(p) for p in NOISE)


def _flips(p: float) -> float:
    return 2 * p * (1 - p)


def _bits(p: float) -> float:
    return -p * math.log2(p) - (1 - p) * math.log2(1 - p)


KAPPA = statistics.pvariance(NOISE) / (_mean(float) * (1 - _mean(float)))


def _votes(noise: Sequence[float]) -> Callable[[Random, int], Any]:
    def item(random: Random, repeats: int) -> list[bool]:
        p = random.choice(noise)
        return [random.random() < p for _ in range(repeats)]

    return item


def _scores(random: Random, repeats: int) -> list[float]:
    centre = random.gauss(0, 1)
    return [centre + random.gauss(0, 0.5) for _ in range(repeats)]


def _labelled(random: Random, repeats: int) -> tuple[bool, bool]:
    label = random.random() < 0.5
    return label, label if random.random() < 0.8 else not label


def _ordered(random: Random, repeats: int) -> tuple[str, str]:
    """Of 10 pairs 6 are judged fairly; in 4 the first wins with probability 3/4 by itself."""
    if random.random() < 0.6:
        fair = random.choice("AB")
        return fair, fair
    first, second = random.random() < 0.75, random.random() < 0.75
    return ("A" if first else "B"), ("B" if second else "A")


def _compared(random: Random, repeats: int) -> Compared:
    first, second = random.random(), random.random()
    return Compared(first, second, (first > second) == (random.random() < 0.6))


def _measured(random: Random, repeats: int) -> Measured:
    label, length = random.gauss(0, 1), random.gauss(0, 1)
    return Measured(label + 0.75 * length + random.gauss(0, 1), length + label, label)


def _stated(random: Random, repeats: int) -> tuple[float, bool]:
    p = random.random()
    return p, random.random() < p


def _unparseable(random: Random, repeats: int) -> list[bool | None]:
    p = random.choice((0.0, 0.2))
    return [None if random.random() < p else True for _ in range(repeats)]


def coverage(
    one: Simulation, items: int, repeats: int, *, trials: int = 1000, resamples: int = 1000
) -> Coverage:
    """Draw samples, and see how often the 95 % interval holds the truth."""
    random, covered, errors = Random(1), 0, []
    for seed in range(trials):
        sample = [one.item(random, repeats) for _ in range(items)]
        found = bootstrap(sample, one.measure, resamples=resamples, seed=seed)
        if found is not None:
            covered += found.low <= one.truth <= found.high
            errors.append(found.value - one.truth)
    error = statistics.stdev(errors) / math.sqrt(len(errors))
    return Coverage(covered / trials, statistics.fmean(errors), error)


def main() -> int:
    """Print the table."""
    trials = int(sys.argv[1]) if len(sys.argv) > 1 else 1000
    table = Table("measure", "items", "repeats", "truth", "coverage", "bias", "± error")
    for one in noisy_judge():
        for items, repeats in SIZES:
            found = coverage(one, items, repeats, trials=trials)
            numbers = (f"{x:+.4f}" for x in (found.bias, found.bias_error))
            row = (one.name, str(items), str(repeats), f"{one.truth:.4f}")
            table.add_row(*row, f"{found.covered:.3f}", *numbers)
    Console(width=None if sys.stdout.isatty() else 100).print(table)
    return 0


if __name__ == "__main__":
    sys.exit(main())
