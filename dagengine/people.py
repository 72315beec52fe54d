"""A metric against people's labels: accuracy never without kappa and the trivial baseline."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Hashable, Mapping, Sequence

from dagengine.card import Measure, measure
from dagengine.errors import InputError
from dagengine.repeated_runs import Run, Runs
from dagengine.statistics import classification, kendall, majority, pearson, spearman
from dagengine.test_case import TestCase, case_label, read_field

Pair = tuple[Hashable, Hashable]
Scored = tuple[float, float]

_WORDS = {"true": True, "yes": True, "pass": True, "false": False, "no": False, "fail": False}


def compare_with_labels(
    runs: Runs, threshold: float | None, cases: Sequence[TestCase], path: str
) -> tuple[Measure, ...]:
    """Agreement of a metric with the labels at a field of the cases.

    Yes or no (also 0 or 1) is held against pass or fail, other text against the last verdict
    of the path, each by the majority of a case's runs; other numbers against its mean score.
    Cases without a label are left out. Raises InputError when no case has one.
    """
    labels = {number: _label(read_field(cases[number], path)) for number in runs.cases}
    known = {number: label for number, label in labels.items() if label is not None}
    if not known:
        first = case_label(cases[0], 0)
        raise InputError(f"no case has a label at `{path}` (the first is {first})")
    if all(isinstance(label, str) for label in known.values()):
        return _verdicts(_pairs(runs, known, _last_verdict), "last verdicts")
    if set(known.values()) <= {0, 1}:
        if threshold is None:
            why = "the metric has no threshold, so it neither passes nor fails a case"
            return tuple(Measure(name, None, note=why) for name in _AGREEMENT)
        agreed = {number: bool(label) for number, label in known.items()}
        pairs = _pairs(runs, agreed, lambda run: run.score is not None and run.score >= threshold)
        return _verdicts(pairs, "pass or fail")
    return _correlations(runs, known)


def _label(value: object) -> bool | float | str | None:
    if isinstance(value, bool | int | float):
        return value
    return _WORDS.get(str(value).strip().lower(), str(value)) if value is not None else None


def _last_verdict(run: Run) -> Hashable:
    return str(run.path[-1][1]) if run.path else None


def _pairs(runs: Runs, labels: Mapping[int, Hashable], of: Callable[[Run], Hashable]) -> list[Pair]:
    """(label, majority of the runs) of every case that has both; a tie is no majority."""
    pairs: list[Pair] = []
    for number, label in labels.items():
        scored = [run for s in runs.cases[number].values() for run in s if run.score is not None]
        found = majority(of(run) for run in scored)
        if found is not None:
            pairs.append((label, found))
    return pairs


def _kappa(pairs: Sequence[Pair]) -> float | None:
    """Cohen's kappa (1960, https://doi.org/10.1177/001316446002000104)."""
    expected, given = Counter(label for label, _ in pairs), Counter(found for _, found in pairs)
    chance = sum(expected[label] * given[label] for label in expected) / max(len(pairs), 1) ** 2
    agreed = sum(label == found for label, found in pairs) / max(len(pairs), 1)
    return None if chance == 1 or not pairs else (agreed - chance) / (1 - chance)


def _accuracy(pairs: Sequence[Pair]) -> float | None:
    found = classification([label for label, _ in pairs], [said for _, said in pairs])
    return found.accuracy if found else None


def _balanced(pairs: Sequence[Pair]) -> float | None:
    """Mean share of hits per label that people gave."""
    totals = Counter(label for label, _ in pairs)
    hits = Counter(label for label, found in pairs if label == found)
    return (
        math.fsum(hits[label] / n for label, n in totals.items()) / len(totals) if totals else None
    )


def _baseline(pairs: Sequence[Pair]) -> float | None:
    """The accuracy of always giving the commonest label."""
    counts = Counter(label for label, _ in pairs)
    return max(counts.values()) / len(pairs) if pairs else None


_AGREEMENT: dict[str, Callable[[Sequence[Pair]], float | None]] = {
    "accuracy": _accuracy,
    "kappa": _kappa,
    "balanced-accuracy": _balanced,
    "baseline": _baseline,
}


def _verdicts(pairs: Sequence[Pair], what: str) -> tuple[Measure, ...]:
    level = f"{what} by majority of a case's runs, cases with a label"
    why = "no case has a majority" if not pairs else "people or judge gave one label only"
    return tuple(measure(name, pairs, of, level, why) for name, of in _AGREEMENT.items())


def _correlations(runs: Runs, labels: dict[int, bool | float | str]) -> tuple[Measure, ...]:
    pairs: list[Scored] = []
    for number, label in labels.items():
        scores = [r.score for s in runs.cases[number].values() for r in s if r.score is not None]
        if scores and not isinstance(label, str):
            pairs.append((float(label), math.fsum(scores) / len(scores)))
    level = "mean scores of cases with a label"

    def over(name: str, of: Callable[[Sequence[float], Sequence[float]], float | None]) -> Measure:
        def statistic(items: Sequence[Scored]) -> float | None:
            return of([label for label, _ in items], [score for _, score in items])

        return measure(name, pairs, statistic, level, "labels or scores are all equal")

    return (over("pearson", pearson), over("spearman", spearman), over("kendall", kendall))
