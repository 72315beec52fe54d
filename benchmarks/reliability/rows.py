"""Rows of the tables of recovered truths: trials over many seeds, and whether intervals hold.

A 95 % interval that is exactly right holds in 93 to 97 % of 300 seeds only by luck in one row of
nine; so a row fails only where so few hold that, at 93 %, it would happen once in a thousand.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from importlib import import_module
from multiprocessing import get_context
from random import Random

from rich.table import Table

from dagengine.reliability.card.types import Figure
from dagengine.reliability.statistics.intervals import Interval, Unknown

Answer = Interval | Unknown | Figure | None

LEAST, LUCK = 0.93, 0.001


@dataclass(frozen=True)
class Trial:
    """Estimators on one population: the truth by name, and their answers to one sample."""

    name: str
    truth: Mapping[str, float]
    answers: Callable[[Random], Mapping[str, Answer]]


@dataclass(frozen=True)
class Row:
    """One estimator over many seeds: `held` of the `known` intervals hold the truth.

    `refused` says why a figure of a card has no interval, once for each seed without one.
    """

    name: str
    truth: float
    held: int
    known: int
    seeds: int
    width: float
    bias: float
    refused: tuple[str, ...] = ()

    @property
    def share(self) -> float:
        """The share of known intervals with the truth inside."""
        return self.held / self.known if self.known else math.nan

    @property
    def unknown(self) -> float:
        """The share of seeds without an interval."""
        return 1 - self.known / self.seeds

    @property
    def fails(self) -> bool:
        """Whether significantly fewer than 93 % hold."""
        binom = import_module("scipy.stats").binom
        return bool(self.known and binom.cdf(self.held, self.known, LEAST) < LUCK)


def held(trial: Trial, seeds: int) -> list[Row]:
    """A trial over many seeds."""
    # By name, so that rows do not share their luck.
    seen: list[Mapping[str, Answer]] = [
        trial.answers(Random(f"{trial.name}, {seed}")) for seed in range(seeds)
    ]
    return [
        _row(f"{figure}, {trial.name}", truth, [one.get(figure) for one in seen])
        for figure, truth in trial.truth.items()
    ]


def _row(name: str, truth: float, answers: Sequence[Answer]) -> Row:
    known = [ends for one in answers if (ends := _ends(one)) is not None]
    return Row(
        name, truth,
        sum(low - 1e-9 <= truth <= high + 1e-9 for low, _, high in known),
        len(known), len(answers),
        statistics.fmean(high - low for low, _, high in known) if known else math.nan,
        statistics.fmean(value - truth for _, value, _ in known) if known else math.nan,
        tuple(one.note for one in answers if isinstance(one, Figure) and _ends(one) is None),
    )  # fmt: skip


def _ends(one: Answer) -> tuple[float, float, float] | None:
    if one is None or isinstance(one, Unknown):
        return None
    if one.value is None or one.low is None or one.high is None:
        return None
    return one.low, one.value, one.high


_TRIALS: list[Trial] = []


def _start(module: str) -> None:
    """Trials hold closures, which cannot be sent: each process makes them for itself."""
    _TRIALS[:] = import_module(module).trials()


def _held_at(place: int, seeds: int) -> list[Row]:
    return held(_TRIALS[place], seeds)


def rows_of(module: str, seeds: int, jobs: int, named: str = "") -> Iterator[Row]:
    """All rows of the `trials()` of a module whose names hold `named`, in their order."""
    trials = import_module(module).trials()
    places = [place for place, trial in enumerate(trials) if named in trial.name]
    with ProcessPoolExecutor(jobs, get_context("spawn"), _start, (module,)) as pool:
        for found in pool.map(_held_at, places, [seeds] * len(places)):
            yield from found


def table_of(title: str, rows: Iterable[Row]) -> Table:
    """Rows as a table; what fails is marked."""
    table = Table("estimator, population", "truth", "held", "width", "bias", "not known",
                  title=title)  # fmt: skip
    for row in rows:
        mark = " FAILS" if row.fails else ""
        table.add_row(
            row.name, f"{row.truth:.3f}", f"{100 * row.share:.1f} %{mark}", f"{row.width:.3f}",
            f"{row.bias:+.3f}", f"{100 * row.unknown:.1f} %",
        )  # fmt: skip
    return table
