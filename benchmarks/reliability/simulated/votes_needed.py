"""How many votes are needed: what is said about them, beside the truth.

The answer may have no upper end, so that its table is one of its own: how often it holds the
truth, how often it names a number, or one that is not right, and how often it is "not known".
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import cache, partial
from multiprocessing import get_context
from random import Random

from rich.table import Table

from dagengine.reliability.statistics.majority_votes import SteadyVotes, steady_votes

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


@dataclass(frozen=True)
class Votes:
    """Shares of seeds, from 0 to 1; `named` have an upper end, `wrong` ones that is not right.

    `exists` says whether any number of votes is enough.
    """

    exists: bool
    held: float
    named: float
    wrong: float
    unknown: float

    @property
    def fails(self) -> bool:
        """Whether it holds too seldom, or promises what does not exist too often."""
        return self.held < 0.95 or (not self.exists and self.named > 0.025)


def votes(odds: Odds, cases: int, runs: int, seeds: int) -> Votes:
    """What is said about votes, beside the truth."""
    truth = enough(odds) or MOST + 2
    held, named, wrong, unknown = 0, 0, 0, 0
    for seed in range(seeds):
        table = drawn(Random(seed), odds, cases, runs)
        found = said(tuple(sorted(min(sum(row), runs - sum(row)) for row in table)), runs)
        least, most = found.least or MOST + 2, found.most
        right = least <= truth and (most is None or truth <= most)
        held += right
        named += most is not None
        wrong += most is not None and not right
        unknown += found.kind == "not known"
    shares = (held / seeds, named / seeds, wrong / seeds, unknown / seeds)
    return Votes(truth <= MOST, *shares)


@cache
def said(rarer: tuple[int, ...], runs: int) -> SteadyVotes:
    """What cases say of which the rarer verdict was given so often; few runs repeat themselves."""
    found = steady_votes([[k < rare for k in range(runs)] for rare in rarer], TARGET)
    assert found is not None
    return found


Place = tuple[str, int, int]


def places() -> Iterator[Place]:
    """Every population with numbers of cases and runs."""
    return itertools.product(POPULATIONS, (10, 20, 40, 100, 300), (3, 5, 8, 20))


def said_at(place: Place, seeds: int) -> Votes:
    """The row of one place."""
    name, cases, runs = place
    return votes(POPULATIONS[name], cases, runs, seeds)


def votes_rows(seeds: int, jobs: int, named: str = "") -> list[tuple[Place, Votes]]:
    """All rows of which the name, such as `all at .1, 40x5`, holds `named`."""
    every = [place for place in places() if named in "{}, {}x{}".format(*place)]
    with ProcessPoolExecutor(jobs, get_context("spawn")) as pool:
        return list(zip(every, pool.map(partial(said_at, seeds=seeds), every), strict=True))


def votes_table(rows: list[tuple[Place, Votes]], seeds: int) -> Table:
    """Rows as a table; what fails is marked."""
    table = Table("cases' odds", "truth", "cases", "runs", "held", "number", "wrong", "not known",
                  title=f"votes needed for {TARGET:.0%} flips, {seeds} seeds")  # fmt: skip
    for (name, cases, runs), found in rows:
        figures = (found.held, found.named, found.wrong, found.unknown)
        shown = [f"{100 * one:.1f} %" for one in figures]
        shown[0] += " FAILS" if found.fails else ""
        table.add_row(name, str(enough(POPULATIONS[name])), str(cases), str(runs), *shown)
    return table
