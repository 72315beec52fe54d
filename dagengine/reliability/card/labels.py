"""A metric against people's labels: accuracy never without kappa and the trivial baseline."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from dagengine.errors import InputError
from dagengine.reliability.card.values import Figure, figure
from dagengine.reliability.runs import Run, Runs
from dagengine.reliability.statistics.correlations import kendall, majority, pearson, spearman
from dagengine.reliability.statistics.labels import (
    accuracy,
    balanced_accuracy,
    label_kappa,
    majority_baseline,
    scored_pairs,
)
from dagengine.reliability.statistics.sums import Sums
from dagengine.test_case import TestCase, case_label, read_field

Vote = str | bool | int | float
Pair = tuple[Vote | None, Vote | None]
Labelled = Sequence[Pair]

_WORDS = {"true": True, "yes": True, "pass": True, "false": False, "no": False, "fail": False}


def compare_with_labels(
    runs: Runs, threshold: float | None, labels: Mapping[int, Vote]
) -> tuple[Figure, ...]:
    """Agreement of a metric with people's labels, by the number of the case.

    Yes or no (also 0 or 1) is held against pass or fail, other text against the last verdict
    of the path, each by the majority of a case's runs; other numbers against its mean score.
    Cases without a label are left out; one without a majority counts as a miss.
    """
    read = reading(labels, threshold)
    if read is not None:
        what = "last verdicts" if read is _last_verdict else "pass or fail"
        return _verdicts(_pairs(runs, labels, read), what)
    if set(labels.values()) <= {0, 1}:
        why = "the metric has no threshold, so it neither passes nor fails a case"
        return tuple(Figure(name, None, note=why) for name in _AGREEMENT)
    return _correlations(runs, labels)


def labels_of(numbers: Iterable[int], cases: Sequence[TestCase], path: str) -> dict[int, Vote]:
    """What people say about those of the numbered cases that have a label.

    Yes and no in words are True and False. Raises InputError when no case has a label.
    """
    found = {number: _label(read_field(cases[number], path)) for number in numbers}
    known = {number: label for number, label in found.items() if label is not None}
    if not known:
        first = case_label(cases[0], 0)
        raise InputError(f"no case has a label at `{path}` (the first is {first})")
    if set(known.values()) <= {0, 1}:
        return {number: bool(label) for number, label in known.items()}
    return known


def reading(labels: Mapping[int, Vote], threshold: float | None) -> Callable[[Run], Vote] | None:
    """What of a run is held against such labels; None where that is its score, or nothing."""
    if all(isinstance(label, str) for label in labels.values()):
        return _last_verdict
    if threshold is not None and set(labels.values()) <= {0, 1}:
        return lambda run: run.score is not None and run.score >= threshold
    return None


def _label(value: object) -> Vote | None:
    if value is None or isinstance(value, bool | int | float):
        return value
    return _WORDS.get(str(value).strip().lower(), str(value))


def _last_verdict(run: Run) -> Vote:
    return str(run.path[-1][1]) if run.path else ""


def _pairs(runs: Runs, labels: Mapping[int, Vote], of: Callable[[Run], Vote]) -> list[Pair]:
    """(label, majority of the runs) of every case with a label; None without a majority."""
    pairs: list[Pair] = []
    for number, label in labels.items():
        scored = [run for s in runs.cases[number].values() for run in s if run.score is not None]
        pairs.append((label, majority(of(run) for run in scored)))
    return pairs


_AGREEMENT: dict[str, Callable[[Labelled], Sums]] = {
    "accuracy": accuracy.sums,
    "kappa": label_kappa.sums,
    "balanced-accuracy": balanced_accuracy.sums,
    "baseline": majority_baseline.sums,
}


def _verdicts(pairs: Labelled, what: str) -> tuple[Figure, ...]:
    level = f"{what} by majority of a case's runs, cases with a label"
    why = "people and judge gave one and the same label only"
    return tuple(figure(name, pairs, of, level, why) for name, of in _AGREEMENT.items())


def _correlations(runs: Runs, labels: Mapping[int, Vote]) -> tuple[Figure, ...]:
    numbers = {n: float(label) for n, label in labels.items() if isinstance(label, int | float)}
    table = [[run.score for s in runs.cases[n].values() for run in s] for n in numbers]
    pairs = scored_pairs(table, list(numbers.values()))
    level = "mean scores of cases with a label"

    def over(name: str, of: Callable[[Sequence[float], Sequence[float]], float | None]) -> Figure:
        def statistic(items: Sequence[tuple[float, float]]) -> float | None:
            return of([score for score, _ in items], [label for _, label in items])

        return figure(name, pairs, statistic, level, "labels or scores are all equal")

    return (over("pearson", pearson), over("spearman", spearman), over("kendall", kendall))
