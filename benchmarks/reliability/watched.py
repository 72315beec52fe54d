"""How often a watch raises a false alarm, and how often it finds a drop and names its cause.

Every stream has two kinds of traffic, `simple` and `hard`, that are sampled at different rates, and
a judge that gives the wrong answer to 5 % of the questions, the old ones included. Healthy streams
have one of three pass rates, or scores between 0 and 1. In the other streams something happens
after some cases that lowers the mean by 10 points:

* app: the application answers worse, in all of its traffic;
* traffic: there is more hard traffic, and nothing else changes;
* judge: the judge says no to good answers more often, to old ones as well.

    python benchmarks/reliability/watched.py            # 300 healthy streams, 100 of each kind
    python benchmarks/reliability/watched.py 60 20 500  # fewer, and another baseline
"""

from __future__ import annotations

import random
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from statistics import median

from dagengine.watch.alarms import Alarms
from dagengine.watch.causes import explained
from dagengine.watch.values import Judged, Pair

BASELINE, CALM, AFTER = 1000, 500, 4000  # judged cases
WRONG, AGAIN, MANY, MOST = 0.05, 0.05, 200, 800
METRIC = "score"
RATES = {"simple": 0.5, "hard": 1.0}
FALSE_ALARMS, FOUND = 0.05, 0.9


@dataclass(frozen=True)
class World:
    """What is true of the traffic, the application and the judge at one moment."""

    hard: float = 0.2
    good: tuple[float, float] = (0.93, 0.53)  # simple, hard
    strict: float = 0.0  # good answers that the judge calls bad, beyond its mistakes
    smooth: bool = False

    def answer(self, dice: random.Random) -> tuple[str, bool]:
        """The kind of a trace, and whether the answer in it is good."""
        stratum = "hard" if dice.random() < self.hard else "simple"
        return stratum, dice.random() < self.good[stratum == "hard"]

    def score(self, good: bool, dice: random.Random) -> float:
        """What the judge says of an answer."""
        if self.smooth:
            return dice.betavariate(8, 2) if good else dice.betavariate(3, 5)
        if good and dice.random() < self.strict:
            return 0.0
        return float(good != (dice.random() < WRONG))


CALM_WORLD = World()
HEALTHY = {
    "usual": CALM_WORLD,
    "nearly all pass": World(good=(0.999, 0.98)),
    "half pass": World(good=(0.6, 0.3)),
    "scores": World(smooth=True),
}
# Each lowers the mean by 10 points; see `mean`.
DROPS = {
    "app": World(good=(0.93 - 0.111, 0.53 - 0.111)),
    "traffic": World(hard=0.478),
    "judge": World(strict=0.1235),
}


def mean(world: World) -> float:
    """The mean of the scores that the judge gives."""
    good = (1 - world.hard) * world.good[0] + world.hard * world.good[1]
    return good * (1 - world.strict) * (1 - WRONG) + (1 - good) * WRONG


@dataclass
class Stream:
    """One stream that is watched, and its old cases."""

    dice: random.Random
    alarms: Alarms
    rows: int = 0
    asked: int = 0

    def __post_init__(self) -> None:
        self.truths: list[tuple[bool, float, float]] = []
        self.again = self.extra = 0

    def next(self, world: World) -> Judged:
        """The next trace that is sampled, judged."""
        while True:
            stratum, good = world.answer(self.dice)
            share = self.dice.random()
            if share < RATES[stratum]:
                break
        score = world.score(good, self.dice)
        self.truths.append((good, score, RATES[stratum]))
        self.rows += 1
        path = f"ok = {score > 0.5}"
        characters = self.dice.randrange(20, 400)
        return Judged(
            self.rows - 1, stratum, RATES[stratum], share, characters,
            {METRIC: score}, {METRIC: path},
        )  # fmt: skip

    def pairs(self, world: World, most: int, before: int | None = None) -> list[Pair]:
        """Old questions, each asked again once, by the judge of now."""
        pairs = []
        last = self.rows if before is None else before
        for row in range(self.again, min(self.again + most, last)):
            good, score, probability = self.truths[row]
            change = world.score(good, self.dice) - score
            pairs.append(Pair(row, self.rows, METRIC, change, 1 / probability))
        self.again += len(pairs)
        return pairs

    def watch(self, world: World, cases: int) -> Iterator[tuple[int, str]]:
        """The rows and causes of the alarms."""
        for _ in range(cases):
            for departure in self.alarms.add(self.next(world)):
                pairs: list[Pair] = []
                while True:
                    more = self.pairs(world, MANY, departure.latest[0].row)
                    for pair in more:
                        self.alarms.add_change(METRIC, pair.change, pair.row)
                    pairs += more
                    cause = explained(departure, pairs).cause
                    if cause != "not known" or not more or len(pairs) >= MOST:
                        break
                self.extra += len(pairs)
                yield departure.row, cause
            if self.rows * AGAIN > self.asked:
                self.asked += 1
                for pair in self.pairs(world, 1):
                    if self.alarms.add_change(METRIC, pair.change, pair.row) is not None:
                        yield self.rows, "judge"


def stream(seed: int, baseline: int) -> Stream:
    """A stream of its own."""
    return Stream(random.Random(seed), Alarms([METRIC], min(RATES.values()), baseline))


def healthy(streams: int, baseline: int, tell: Callable[[str], None]) -> float:
    """The share of healthy streams with any alarm."""
    alarms = Counter[str]()
    for seed in range(streams):
        name = list(HEALTHY)[seed % len(HEALTHY)]
        world = HEALTHY[name]
        cases = baseline + CALM + AFTER
        alarms[name] += next(stream(seed, baseline).watch(world, cases), None) is not None
    share = alarms.total() / streams
    tell(f"healthy: {alarms.total()} of {streams} streams of {baseline + CALM + AFTER} judged "
         f"cases have an alarm ({share:.1%}): {dict(alarms)}")  # fmt: skip
    return share


def dropped(kind: str, streams: int, baseline: int, tell: Callable[[str], None]) -> float:
    """The share of streams with a drop that is found, with its cause named."""
    causes, delays, early = Counter[str](), [], 0
    world = DROPS[kind]
    for seed in range(streams):
        watched = stream(10_000 + seed, baseline)
        if next(watched.watch(CALM_WORLD, baseline + CALM), None) is not None:
            early += 1
            continue
        first = next(watched.watch(world, AFTER), None)
        causes["not found" if first is None else first[1]] += 1
        if first is not None:
            delays.append(first[0] - baseline - CALM)
    named = causes[kind] / streams
    late = sorted(delays)[int(0.9 * len(delays))] if delays else 0
    tell(f"{kind}: mean {mean(CALM_WORLD):.3f} → {mean(world):.3f}; named in {named:.0%} of "
         f"{streams} streams ({dict(causes)}, {early} false alarms before); found after "
         f"{median(delays or [0]):.0f} cases (median), {late} (90 %)")  # fmt: skip
    return named


def main(arguments: list[str]) -> int:
    """Print what was measured, and whether the targets are met."""
    numbers = [int(text) for text in arguments]
    streams, each, baseline = [*numbers, *(300, 100, BASELINE)[len(numbers) :]]
    began = time.perf_counter()
    met = [healthy(streams, baseline, print) <= FALSE_ALARMS]
    met += [dropped(kind, each, baseline, print) >= FOUND for kind in DROPS]
    print(
        f"targets (at most {FALSE_ALARMS:.0%} false alarms, each cause named in at least "
        f"{FOUND:.0%}): {'met' if all(met) else 'MISSED'}; {time.perf_counter() - began:.0f} s"
    )
    return 0 if all(met) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
