"""How often a watch raises a false alarm, and how often it finds a drop and names its cause.

Every stream has two kinds of traffic, `simple` and `hard`, that are sampled at different rates, and
a judge that gives the wrong answer to 5 % of the questions, the old ones included. Healthy streams
have one of three pass rates, or scores between 0 and 1. In the other streams something happens
after some cases that lowers the mean by 10 points:

* app: the application answers worse, in all of its traffic;
* traffic: there is more hard traffic, and nothing else changes;
* judge: the judge says no to good answers more often, to old ones as well.

Other streams are healthy, but their cases are not independent: the pass rate rises and falls in the
course of a day, or each sender has its own. `--groups` counts the cases of a day, or of a sender,
as one. In these, and in a stream of independent cases, the mean falls by 10 points: at once, or
within 2,000 cases.

    python benchmarks/reliability/watched.py            # 300 healthy streams, 100 of each kind
    python benchmarks/reliability/watched.py 60 20 500  # fewer, and another baseline
    python benchmarks/reliability/watched.py uneven     # only those that are not independent: 200
    python benchmarks/reliability/watched.py uneven 20 0 3  # 20 streams of the first and the fourth
"""

from __future__ import annotations

import math
import random
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import count, islice
from statistics import median

from dagengine.watch.alarm_causes import ScoreChange, alarm_of
from dagengine.watch.alarms import Alarms
from dagengine.watch.trace_sampling import JudgedTrace

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

    def next(self, world: World) -> JudgedTrace:
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
        return JudgedTrace(
            self.rows - 1, stratum, RATES[stratum], share, characters,
            {METRIC: score}, {METRIC: path},
        )  # fmt: skip

    def pairs(self, world: World, most: int, before: int | None = None) -> list[ScoreChange]:
        """Old questions, each asked again once, by the judge of now."""
        pairs = []
        last = self.rows if before is None else before
        for row in range(self.again, min(self.again + most, last)):
            good, score, probability = self.truths[row]
            change = world.score(good, self.dice) - score
            pairs.append(ScoreChange(row, self.rows, METRIC, change, 1 / probability))
        self.again += len(pairs)
        return pairs

    def watch(self, world: World, cases: int) -> Iterator[tuple[int, str]]:
        """The rows and causes of the alarms."""
        for _ in range(cases):
            for departure in self.alarms.add(self.next(world)):
                pairs: list[ScoreChange] = []
                while True:
                    more = self.pairs(world, MANY, departure.latest[0].row)
                    for pair in more:
                        self.alarms.add_change(METRIC, pair.change, pair.row)
                    pairs += more
                    cause = alarm_of(departure, pairs).cause
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


@dataclass(frozen=True)
class Uneven:
    """A stream of days or senders with `size` cases each, whose pass rates differ by `spread`.

    A sender has 1 case and more (geometric); a day is a sine. `grouped` cases of one count as one.
    """

    name: str
    senders: bool = False
    size: int = 1000
    spread: float = 0.0
    grouped: bool = False
    baseline: int = BASELINE

    def cases(self, seed: int, fall: Callable[[int], float]) -> Iterator[JudgedTrace]:
        """Endless cases of a stream; `fall` is how much lower the rate is in a row."""
        dice = random.Random(seed)
        left = number = 0
        rate = 0.8
        for row in count():
            if not self.senders:
                number = row // self.size
                rate = 0.8 + self.spread * math.sin(2 * math.pi * row / self.size)
            elif not left:
                left, number = math.ceil(dice.expovariate(1 / self.size)), number + 1
                rate = 0.8 + dice.choice((-self.spread, self.spread))
            left -= 1
            score = float(dice.random() < rate - fall(row))
            group = str(number) if self.grouped else None
            scores, paths = {METRIC: score}, {METRIC: f"ok = {score}"}
            yield JudgedTrace(row, "others", 1.0, 0.0, 9, scores, paths, group)

    def alarm(self, seed: int, fall: Callable[[int], float], last: int) -> tuple[int | None, bool]:
        """The row of the first alarm before the `last` row, and whether alarms were ever off."""
        alarms, off = Alarms([METRIC], 1.0, self.baseline), False
        for case in islice(self.cases(seed, fall), last):
            if alarms.add(case):
                return case.row, off
            off = off or bool(alarms.off)
        return None, off


UNEVEN = (
    Uneven("independent"),
    Uneven("a day of 1,000 cases, ± 18 points", spread=0.18),
    Uneven("a day of 1,000 cases, ± 8 points", spread=0.08),
    Uneven("days of 100 cases, ± 15 points, --groups day", size=100, spread=0.15, grouped=True,
           baseline=3000),
    Uneven("senders of 20 cases, ± 18 points", senders=True, size=20, spread=0.18),
    Uneven("senders of 20 cases, ± 10 points, --groups", senders=True, size=20, spread=0.1,
           grouped=True, baseline=3000),
    Uneven("the same, baseline 1,000", senders=True, size=20, spread=0.1, grouped=True),
)  # fmt: skip


def uneven(kind: Uneven, streams: int, tell: Callable[[str], None]) -> bool:
    """Whether few healthy streams of a kind have an alarm; and how soon a fall is found."""
    start = kind.baseline + CALM
    calm = [kind.alarm(seed, lambda row: 0.0, start + AFTER) for seed in range(streams)]
    false = sum(row is not None for row, _ in calm) / streams
    off = sum(off for _, off in calm) / streams
    line = f"{kind.name}: {false:.1%} of {streams} healthy streams have an alarm, off in {off:.0%}"
    falls: dict[str, Callable[[int], float]] = {
        "at once": lambda row: 0.1 * (row >= start),
        "slowly": lambda row: 0.1 * min(1.0, max(0.0, (row - start) / 2000)),
    }
    for name, fall in falls.items():
        rows = [kind.alarm(10_000 + seed, fall, start + AFTER)[0] for seed in range(streams // 4)]
        delays = sorted(row - start for row in rows if row is not None and row >= start)
        shown = f"{median(delays):.0f}, {delays[int(0.9 * len(delays))]}" if delays else "-"
        line += f"; {name} found in {len(delays) / len(rows):.0%} after {shown} (median, 90 %)"
    tell(line)
    return false <= FALSE_ALARMS


def main(arguments: list[str]) -> int:
    """Print what was measured, and whether the targets are met."""
    if arguments[:1] == ["uneven"]:
        streams, *kinds = [int(text) for text in arguments[1:]] or [200]
        chosen = [kind for number, kind in enumerate(UNEVEN) if not kinds or number in kinds]
        few = [uneven(kind, streams, print) for kind in chosen]
        return 0 if all(few) else 1
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
