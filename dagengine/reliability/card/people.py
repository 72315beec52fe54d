"""A metric against people's labels: accuracy never without kappa and the trivial baseline."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence

from dagengine.reliability.card.figures import figure
from dagengine.reliability.card.values import Figure, Outcomes
from dagengine.reliability.labels import Kind, Labels, Vote
from dagengine.reliability.runs import Run, Runs
from dagengine.reliability.statistics.correlations import kendall, majority, pearson, spearman
from dagengine.reliability.statistics.labels import (
    accuracy,
    balanced_accuracy,
    label_kappa,
    majority_baseline,
    scored_pairs,
)
from dagengine.reliability.statistics.sums import Sums, mean

Pair = tuple[Vote | None, Vote | None]
Labelled = Sequence[Pair]


def compare_with_labels(runs: Runs, threshold: float | None, labels: Labels) -> Iterator[Figure]:
    """Agreement of a metric with people's labels.

    Verdicts are held against the last verdict of the path, yes or no against pass or fail, each
    by the majority of a case's runs; numbers against its mean score. Cases without a label are
    left out; one without a majority counts as a miss.
    """
    read = reading(labels.kind, threshold)
    if labels.kind == "number":
        yield from _correlations(runs, labels.by_case)
    elif read is None:
        why = "the metric has no threshold, so it neither passes nor fails a case"
        yield from (Figure(name, None, note=why) for name in ("accuracy", *_AGREEMENT))
    else:
        what = "last verdicts" if labels.kind == "verdict" else "pass or fail"
        yield from _verdicts(runs, labels.by_case, read, what)


def reading(kind: Kind, threshold: float | None) -> Callable[[Run], Vote] | None:
    """What of a run is held against labels; None where that is its score, or nothing."""
    if kind == "verdict":
        return _last_verdict
    if kind == "pass" and threshold is not None:
        return lambda run: run.score is not None and run.score >= threshold
    return None


def _last_verdict(run: Run) -> Vote:
    return str(run.path[-1][1]) if run.path else ""


def _labelled(runs: Runs, labels: Mapping[int, Vote]) -> Iterator[tuple[int, Vote, list[Run]]]:
    """Number, label and runs with a score of every case that has a label."""
    for number, settings in runs.cases.items():
        if number in labels:
            found = [run for row in settings.values() for run in row if run.score is not None]
            yield number, labels[number], found


_AGREEMENT: dict[str, Callable[[Labelled], Sums]] = {
    "kappa": label_kappa.sums,
    "balanced-accuracy": balanced_accuracy.sums,
    "baseline": majority_baseline.sums,
}


def _verdicts(
    runs: Runs, labels: Mapping[int, Vote], read: Callable[[Run], Vote], what: str
) -> Iterator[Figure]:
    found = list(_labelled(runs, labels))
    pairs = [(label, majority(read(run) for run in scored)) for _, label, scored in found]
    groups: list[Hashable] = [runs.group(number) for number, _, _ in found]
    level = f"{what} by majority of a case's runs, cases with a label"
    none = "no case that ran has a label"
    yield figure("accuracy", pairs, accuracy.sums, level, none, groups)
    singly = [
        statistics.fmean(read(run) == label for run in scored) if scored else 0.0
        for _, label, scored in found
    ]
    single = f"{what} of single runs, cases with a label"
    yield figure("single-run-accuracy", singly, mean, single, none, groups)
    why = "people and judge gave one and the same label only"
    for name, of in _AGREEMENT.items():
        yield figure(name, pairs, of, level, why, groups)


def _correlations(runs: Runs, labels: Mapping[int, Vote]) -> Iterator[Figure]:
    found = [(number, float(label), scored) for number, label, scored in _labelled(runs, labels)]
    table = [[run.score for run in scored] for _, _, scored in found]
    pairs = scored_pairs(table, [label for _, label, _ in found])
    groups = [runs.group(number) for number, _, scored in found if scored]
    level = "mean scores of cases with a label"

    def over(name: str, of: Callable[[Sequence[float], Sequence[float]], float | None]) -> Figure:
        def statistic(items: Sequence[tuple[float, float]]) -> float | None:
            return of([score for score, _ in items], [label for _, label in items])

        return figure(name, pairs, statistic, level, "labels or scores are all equal", groups)

    yield from (over("pearson", pearson), over("spearman", spearman), over("kendall", kendall))


def outcomes(runs: Runs, threshold: float | None, labels: Labels | None, cases: int) -> Outcomes:
    """What became of every case under one setting, in the order of the cases."""
    found = {case: row for case, settings in runs.cases.items() for row in settings.values()}
    scores = tuple(" ".join(map(_score, found.get(case, ()))) for case in range(cases))
    read = None if labels is None else reading(labels.kind, threshold)
    if labels is None or read is None:
        return Outcomes(scores)
    right, hits = [""] * cases, ["-"] * cases
    for case in (case for case in labels.by_case if case in found):
        label, row = labels.by_case[case], found[case]
        right[case] = "".join(str(int(one.score is not None and read(one) == label)) for one in row)
        hits[case] = str(int(majority(read(one) for one in row if one.score is not None) == label))
    return Outcomes(scores, tuple(right), "".join(hits))


def _score(run: Run) -> str:
    return "-" if run.score is None else f"{run.score:.6g}"
