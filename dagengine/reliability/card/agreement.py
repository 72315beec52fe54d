"""More of what repetition showed: agreement of runs, of texts, of paths, and of judges."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import replace
from functools import partial

from dagengine.reliability.card.values import Figure, figure
from dagengine.reliability.runs import Run, Runs
from dagengine.reliability.statistics.consistency import (
    entropy,
    flip_rate,
    majority_share,
    missing_effect,
    missing_rate,
    total_agreement,
)
from dagengine.reliability.statistics.inter_rater import (
    cohen_kappa,
    fleiss_kappa,
    krippendorff_alpha,
)
from dagengine.reliability.statistics.sums import Sums

Outcome = Callable[[Run], Hashable]
_WHY = "no case has two runs with a score"


def outcome(threshold: float | None) -> Outcome:
    """What is compared of two runs: pass or fail, or the score where there is no threshold."""
    return (lambda run: run.score) if threshold is None else (lambda run: run.passed(threshold))


def agreement_of_runs(runs: Runs, threshold: float | None) -> Iterator[Figure]:
    """How far the runs of one case agree in scores, texts and paths."""
    cases = runs.rows

    def over(name: str, of: Callable[..., Sums], read: Outcome, level: str) -> Figure:
        return figure(name, runs.table(read), of, level, _WHY, cases)

    def score(run: Run) -> float | None:
        return run.score

    def path(run: Run) -> Hashable:
        return None if run.score is None else run.path

    yield over("total-agreement", total_agreement.sums, score, "cases: all runs, one score")
    if any(run.raw is not None for run in runs.every()):
        raw = "cases: all runs, one text"
        yield over("raw-agreement", total_agreement.sums, lambda run: run.raw, raw)
    yield over("path-agreement", total_agreement.sums, path, "cases: all runs, one path")
    yield over("path-flip-rate", flip_rate.sums, path, "paths, pairs of runs of one case")
    yield over("majority-share", majority_share.sums, score, "scores, runs of one case")
    yield over("entropy", entropy.sums, score, "scores in bits, runs of one case")
    table = runs.table(outcome(threshold))
    if missing_rate(table):
        level = "flip rate with runs without a score as an outcome, less that without them"
        yield figure("unscored-effect", table, missing_effect.sums, level, _WHY, cases)


def agreement_of_judges(runs: Runs, threshold: float | None) -> Iterator[Figure]:
    """How far several judges agree beyond chance, single run against single run."""
    judges = list(dict.fromkeys(setting.judge for setting in runs.settings))
    if len(judges) < 2:
        return
    why = "chance alone would agree always: only one outcome occurs"

    def over(name: str, of: Callable[..., Sums], read: Outcome, level: str) -> Figure:
        table, cases = _by_judge(runs, judges, read)
        return figure(name, table, of, level, why, cases)

    what = f"{'scores' if threshold is None else 'pass or fail'}, single runs of {len(judges)}"
    name, kappa = ("cohen-kappa", cohen_kappa) if len(judges) == 2 else _FLEISS
    yield over(name, kappa.sums, outcome(threshold), f"{what} judges")
    yield over("alpha", krippendorff_alpha.sums, outcome(threshold), f"{what} judges")
    distances = partial(krippendorff_alpha.sums, level="interval")
    yield over("score-alpha", distances, lambda run: run.score, "distances of scores, single runs")


_FLEISS = ("fleiss-kappa", fleiss_kappa)


def _by_judge(
    runs: Runs, judges: Sequence[str], read: Outcome
) -> tuple[list[list[Hashable]], list[int]]:
    """One row per case and repetition, one column per judge; and the case of every row."""
    rows: dict[Hashable, dict[str, Hashable]] = {}
    for case, settings in runs.cases.items():
        for found in settings.values():
            for run in found:
                place = case, replace(run.condition, judge="")
                rows.setdefault(place, {})[run.condition.judge] = read(run)
    table = [[row.get(judge) for judge in judges] for row in rows.values()]
    return table, [place[0] for place in rows if isinstance(place, tuple)]
