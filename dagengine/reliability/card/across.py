"""What several settings show together: what changes a score, and how well judges agree."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial

from dagengine.reliability.card.again import Outcome, outcome
from dagengine.reliability.card.figures import figure
from dagengine.reliability.card.values import Figure
from dagengine.reliability.observations import Condition
from dagengine.reliability.runs import Run, Runs
from dagengine.reliability.statistics.inter_rater import (
    cohen_kappa,
    fleiss_kappa,
    krippendorff_alpha,
)
from dagengine.reliability.statistics.sums import Sums, mean

CIRCUMSTANCES = {
    "position": "order",
    "judge": "judge",
    "temperature": "temperature",
    "seed": "seed",
    "paraphrase": "paraphrase",
}
"""Circumstances of a run, by the name that measures have, with their field of a condition."""


def changed(runs: Runs) -> Iterator[Figure]:
    """The flip rate of the score between runs that differ in one circumstance."""
    for name, field in CIRCUMSTANCES.items():
        if len({getattr(setting, field) for setting in runs.settings}) < 2:
            continue
        items = [_crossed(settings, field) for settings in runs.cases.values()]
        level = f"scores, pairs of runs of one case that differ in {field}"
        groups = [runs.group(case) for case in runs.cases]
        yield figure(f"{name}-flip-rate", items, mean, level, "no case has such a pair", groups)


def _crossed(settings: Mapping[Condition, Sequence[Run]], field: str) -> float | None:
    """The share of pairs of runs with different scores, among settings that differ in `field`."""
    rates: list[float] = []
    for (setting, some), (counterpart, more) in itertools.combinations(settings.items(), 2):
        if replace(setting, **{field: getattr(counterpart, field)}) != counterpart:
            continue
        first, second = Counter(_scores(some)), Counter(_scores(more))
        pairs = first.total() * second.total()
        if pairs:
            equal = sum(count * second[score] for score, count in first.items())
            rates.append(1 - equal / pairs)
    return math.fsum(rates) / len(rates) if rates else None


def _scores(runs: Sequence[Run]) -> list[float]:
    return [run.score for run in runs if run.score is not None]


def agreement_of_judges(runs: Runs, threshold: float | None) -> Iterator[Figure]:
    """How well several judges agree beyond chance, single run against single run."""
    judges = list(dict.fromkeys(setting.judge for setting in runs.settings))
    if len(judges) < 2:
        return
    why = "only one outcome occurs, so chance alone always agrees"

    def over(name: str, of: Callable[..., Sums], read: Outcome, level: str) -> Figure:
        table, cases = _by_judge(runs, judges, read)
        return figure(name, table, of, level, why, [runs.group(case) for case in cases])

    basis = f"{'scores' if threshold is None else 'pass or fail'}, single runs of {len(judges)}"
    name, kappa = ("cohen-kappa", cohen_kappa) if len(judges) == 2 else _FLEISS
    yield over(name, kappa.sums, outcome(threshold), f"{basis} judges")
    yield over("alpha", krippendorff_alpha.sums, outcome(threshold), f"{basis} judges")
    distances = partial(krippendorff_alpha.sums, level="interval")
    yield over("score-alpha", distances, lambda run: run.score, "distances of scores, single runs")


_FLEISS = ("fleiss-kappa", fleiss_kappa)


def _by_judge(
    runs: Runs, judges: Sequence[str], read: Outcome
) -> tuple[list[list[Hashable]], list[int]]:
    """One row per case and repetition, one column per judge; and the case of every row."""
    rows: dict[tuple[int, Condition], dict[str, Hashable]] = {}
    for case, settings in runs.cases.items():
        for repetitions in settings.values():
            for run in repetitions:
                place = case, replace(run.condition, judge="")
                rows.setdefault(place, {})[run.condition.judge] = read(run)
    table = [[row.get(judge) for judge in judges] for row in rows.values()]
    return table, [case for case, _ in rows]
