"""Would I get this score again? What repeated runs of one setting show."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import replace
from functools import partial

from dagengine.reliability.card.figures import figure, shown
from dagengine.reliability.card.values import CaseSpread, Figure
from dagengine.reliability.runs import Run, Runs
from dagengine.reliability.statistics.consistency import (
    effect_of_missing,
    entropy,
    entropy_interval,
    flip_rate,
    majority_share,
    missing_effect,
    missing_rate,
    total_agreement,
)
from dagengine.reliability.statistics.intervals import Interval, Unknown
from dagengine.reliability.statistics.spread import drift, icc_interval, score_spread
from dagengine.reliability.statistics.sums import Sums, mean
from dagengine.results import OutcomeKind
from dagengine.test_case import TestCase, case_label

_SCALE = (0.0, 1.0)

Outcome = Callable[[Run], Hashable]


def outcome(threshold: float | None) -> Outcome:
    """What is compared of two runs: pass or fail, or the score if there is no threshold."""
    return (lambda run: run.score) if threshold is None else (lambda run: run.passed(threshold))


def score(run: Run) -> float | None:
    """The score of a run, as tables take it."""
    return run.score


def why_not_twice(runs: Runs) -> str:
    """Why nothing can be said about repetition."""
    scored = [[run for run in row if run.score is not None] for row in runs.table(lambda run: run)]
    if not any(scored):
        return "no run has a score"
    if max(len(row) for row in runs.table(score)) < 2:
        return "every case ran once; use --times 2 or more"
    return "no case has two runs with a score"


def again(runs: Runs, threshold: float | None) -> Iterator[Figure]:
    """The figures of the first question."""
    pairs, scores, groups = "pairs of runs of one case", runs.table(score), runs.rows
    why = why_not_twice(runs)

    def over(name: str, of: Callable[..., Sums], level: str, why: str = why) -> Figure:
        return figure(name, scores, of, level, why, groups)

    if threshold is None:
        undefined = "the metric has no threshold; see score-flip-rate"
        yield Figure("flip-rate", None, level=f"pass or fail, {pairs}", note=undefined)
    else:
        table = runs.table(lambda run: run.passed(threshold))
        yield figure("flip-rate", table, flip_rate.sums, f"pass or fail, {pairs}", why, groups)
        yield figure("pass-rate", table, _mean_of_runs, "runs, averaged over cases", why, groups)
    yield over("score-flip-rate", flip_rate.sums, f"scores, {pairs}")
    yield over("mean-score", _mean_of_runs, "runs, averaged over cases", "no run has a score")
    spread_of = partial(score_spread.sums, scale=_SCALE)
    yield over("score-spread", spread_of, "runs of one case, averaged over cases")
    clusters = groups if len(set(groups)) < len(groups) else None
    reliability = icc_interval(scores, groups=clusters, scale=_SCALE)
    yield shown(
        "test-retest",
        reliability,
        "single scores: share of the variance that is between cases",
        _no_icc(runs, why),
    )
    moved = drift(scores, groups=clusters)
    yield shown(
        "drift", moved, "points of the score, from the first run to the last",
        _no_drift(runs, moved),
    )  # fmt: skip
    yield over("unscored", missing_rate.sums, "all runs", "nothing ran")


def _mean_of_runs(table: Sequence[Sequence[float | bool | None]]) -> Sums:
    return mean(_fmean(row) for row in table)


def _fmean(row: Sequence[float | bool | None]) -> float | None:
    values = [float(value) for value in row if value is not None]
    return statistics.fmean(values) if values else None


def _no_icc(runs: Runs, why: str) -> str:
    """Reliability needs two cases, two runs of one, and scores that differ somewhere."""
    rows = [[value for value in row if value is not None] for row in runs.table(score)]
    scored = [row for row in rows if row]
    if len(scored) == 1:
        return "only one case has scores; two are needed"
    if (
        max(map(len, scored), default=0) > 1
        and len({value for row in scored for value in row}) == 1
    ):
        return "all scores are equal"
    if any(len(set(row)) > 1 for row in scored):
        return ""
    return "" if max(map(len, scored), default=0) > 1 else why


def _no_drift(runs: Runs, drift: Interval | Unknown) -> str:
    """Why no drift is known, if the reason is not the number of cases."""
    rows = [[value for value in row if value is not None] for row in runs.table(score)]
    if max(map(len, rows), default=0) < 2:
        return why_not_twice(runs)
    if not any(len(set(row)) > 1 for row in rows):
        return "no case has two different scores"
    alike = isinstance(drift, Unknown) and drift.reason == "no variation"
    return "all cases change equally from the first run to the last" if alike else ""


def agreement_of_runs(runs: Runs, threshold: float | None) -> Iterator[Figure]:
    """How far the runs of one case agree in scores, texts and paths."""
    groups, why = runs.rows, why_not_twice(runs)

    def over(name: str, of: Callable[..., Sums], read: Outcome, level: str) -> Figure:
        return figure(name, runs.table(read), of, level, why, groups)

    def in_all(name: str, read: Outcome, shared: str) -> Figure:
        level = f"cases: all runs, {shared}"
        if len(runs.sizes) > 1:
            note = f"cases have {runs.sizes[0]} to {runs.sizes[-1]} runs; equal numbers are needed"
            return Figure(name, None, level=level, note=note)
        return over(name, total_agreement.sums, read, level)

    def scored(read: Outcome) -> Outcome:
        return lambda run: None if run.score is None else read(run)

    if any(run.score is not None for run in runs.every()):
        yield in_all("total-agreement", score, "the same score")
    if any(run.raw is not None for run in runs.every()):
        yield in_all("raw-agreement", lambda run: run.raw, "the same text")
    path = scored(lambda run: run.path)
    if any(path(run) is not None for run in runs.every()):
        yield in_all("path-agreement", path, "the same path")
    yield over("path-flip-rate", flip_rate.sums, path, "paths, pairs of runs of one case")
    yield over("majority-share", majority_share.sums, score, "scores, runs of one case")
    yield _entropy(runs, why)
    table = runs.table(outcome(threshold))
    if missing_rate(table):
        level = (
            "flip rate with runs without a score as an outcome, minus the flip rate without them"
        )
        yield figure("unscored-effect", table, missing_effect.sums, level, why, groups)


def _entropy(runs: Runs, why: str) -> Figure:
    """Its interval reaches over what so few runs cannot show."""
    table, level = runs.table(score), "scores in bits, runs of one case"
    plain = figure("entropy", table, entropy.sums, level, why, runs.rows)
    interval = entropy_interval(table, groups=runs.rows)
    return plain if interval is None else replace(plain, low=interval.low, high=interval.high)


def rule_effect(runs: Runs, threshold: float | None) -> Iterator[str]:
    """How the rule for runs without a score changes the flip rate, if there are any."""
    effect = effect_of_missing(runs.table(outcome(threshold)), flip_rate)
    if effect.missing and effect.dropped is not None and effect.own_category is not None:
        yield (
            f"Without the runs that have no score, the flip rate is {100 * effect.dropped:.1f} %. "
            f"With “no score” as an outcome, it is {100 * effect.own_category:.1f} %."
        )


def without_score(runs: Runs) -> Iterator[str]:
    """Why runs have no score, if some have none."""
    every = list(runs.every())
    missing = Counter(_missing(run.outcome) for run in every if run.score is None)
    if missing:
        why = ", ".join(f"{count:,} {kind}" for kind, count in missing.items())
        yield f"{missing.total():,} of {len(every):,} runs have no score: {why}."


def _missing(outcome: OutcomeKind | None) -> str:
    if outcome is OutcomeKind.OK:  # a table left out a node that its verdicts lead to
        return "with verdicts that lead to no score"
    return str(outcome or "not observed").replace("_", " ")


def spread(runs: Runs, cases: Sequence[TestCase]) -> Iterator[CaseSpread]:
    """Scores by case, the largest deviation first."""
    spreads: list[CaseSpread] = []
    for number, settings in runs.cases.items():
        scores = [run.score for row in settings.values() for run in row if run.score is not None]
        counts = tuple((score, scores.count(score)) for score in sorted(set(scores)))
        deviation = statistics.stdev(scores) if len(scores) > 1 else 0.0
        spreads.append(CaseSpread(case_label(cases[number], number), counts, deviation))
    yield from sorted(spreads, key=lambda case: -case.deviation)
