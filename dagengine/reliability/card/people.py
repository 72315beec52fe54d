"""A metric against human labels: accuracy always with kappa and the baseline."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

from dagengine.reliability.card.figures import figure, shown
from dagengine.reliability.card.values import ConfusionTable, CorrectedFigure, Figure, Outcomes
from dagengine.reliability.labels import Kind, Labels, Vote
from dagengine.reliability.runs import Run, Runs
from dagengine.reliability.statistics.confusion import (
    ac1_interval,
    balanced_accuracy_interval,
    baseline_interval,
    confusion_table,
    kappa_interval,
    label_ceiling,
    label_rates,
)
from dagengine.reliability.statistics.corrected import Corrected, corrected_mean, corrected_rate
from dagengine.reliability.statistics.correlations import (
    group_correlation,
    kendall,
    majority,
    pearson,
    spearman,
)
from dagengine.reliability.statistics.intervals import Interval, Unknown
from dagengine.reliability.statistics.labels import accuracy, majority_baseline, scored_pairs
from dagengine.reliability.statistics.sums import mean

Pair = tuple[Vote | None, Vote | None]
Labelled = Sequence[Pair]


def compare_with_labels(
    runs: Runs, threshold: float | None, labels: Labels, grouped: bool = False
) -> Iterator[Figure]:
    """Agreement of a metric with human labels.

    Verdicts are compared with the last verdict of the path, yes or no with pass or fail, each by
    the majority of a case's runs. Numbers are compared with its mean score. Cases without a label
    are left out; one without a majority counts as a miss. `grouped` cases belong to documents or
    dialogues, within which numbers are correlated, too.
    """
    read = reading(labels.kind, threshold)
    if all(run.score is None for run in runs.every()):
        names = ("spearman",) if labels.kind == "number" else _AGAINST_LABELS
        yield from (Figure(name, None, note="no run has a score") for name in names)
        yield from people_among_themselves(runs, labels)
    elif labels.kind == "number":
        yield from _correlations(runs, labels.by_case)
        yield from _within_groups(runs, labels.by_case) if grouped else ()
    elif read is None:
        why = "the metric has no threshold, so no case passes or fails"
        yield from (Figure(name, None, note=why) for name in _AGAINST_LABELS)
    else:
        subject = "last verdicts" if labels.kind == "verdict" else "pass or fail"
        yield from _verdicts(runs, labels, read, subject)
        yield from people_among_themselves(runs, labels)


def reading(kind: Kind, threshold: float | None) -> Callable[[Run], Vote] | None:
    """What of a run is compared with labels; None if that is its score, or nothing."""
    if kind == "verdict":
        return _last_verdict
    if kind == "pass" and threshold is not None:
        return lambda run: run.passed(threshold) is True
    return None


def _last_verdict(run: Run) -> Vote:
    return str(run.path[-1][1]) if run.path else ""


def _labelled(runs: Runs, labels: Mapping[int, Vote]) -> Iterator[tuple[int, Vote, list[Run]]]:
    """Number, label and runs with a score of every case that has a label."""
    for number, settings in runs.cases.items():
        if number in labels:
            scored = [run for row in settings.values() for run in row if run.score is not None]
            yield number, labels[number], scored


_AGAINST_LABELS = ("accuracy", "kappa", "baseline")
_ENDS = (1.0, 3.0, 4.0, 5.0, 7.0, 10.0, 100.0)
_NONE = "no case that ran has a label"


@dataclass(frozen=True)
class _Judged:
    """Cases with a label and runs: the label, the majority of the runs, the share that is right."""

    pairs: Labelled
    singly: Sequence[float]
    groups: Sequence[Hashable]

    @property
    def clusters(self) -> Sequence[Hashable] | None:
        """The groups where some hold several cases; None if cases are independent."""
        return self.groups if len(set(self.groups)) < len(self.groups) else None

    def counted(self, measure: Figure) -> Figure:
        """The figure with the number of independent groups, as all others have it."""
        return replace(measure, items=len(set(self.groups)))


def _judged(runs: Runs, labels: Mapping[int, Vote], read: Callable[[Run], Vote]) -> _Judged:
    pairs: list[Pair] = []
    singly: list[float] = []
    groups: list[Hashable] = []
    for number, label, scored in _labelled(runs, labels):
        votes = [read(run) for run in scored]
        pairs.append((label, majority(votes)))
        singly.append(statistics.fmean(vote == label for vote in votes) if votes else 0.0)
        groups.append(runs.group(number))
    return _Judged(pairs, singly, groups)


def _verdicts(
    runs: Runs, labels: Labels, read: Callable[[Run], Vote], subject: str
) -> Iterator[Figure]:
    judged = _judged(runs, labels.by_case, read)
    kinds = (True, False) if labels.kind == "pass" else ()
    level = f"{subject}: majority of a case's runs, cases with a label"
    yield figure("accuracy", judged.pairs, accuracy.sums, level, _NONE, judged.groups)
    single = f"{subject}: single runs, cases with a label"
    yield figure("single-run-accuracy", judged.singly, mean, single, _NONE, judged.groups)
    yield _kappa(judged, kinds, level)
    ac1 = ac1_interval(judged.pairs, kinds=kinds, groups=judged.clusters)
    yield judged.counted(shown("ac1", ac1, level, _why_constant(judged, ac1)))
    balanced = balanced_accuracy_interval(judged.pairs, kinds=kinds, groups=judged.clusters)
    even = shown("balanced-accuracy", balanced, level, _why_unbalanced(judged, kinds))
    yield judged.counted(even)
    yield _baseline(judged, kinds, level)
    every = label_rates(judged.pairs, groups=judged.clusters)
    # Of two labels, the second one's are the first one's in turn.
    first = sorted(every, key=lambda rate: rate.label is not True)
    for rates in first[:1] if len(every) == 2 else every:
        label = outcome_name(rates.label)
        yield shown("sensitivity", rates.sensitivity, f"human label “{label}”")
        yield shown("specificity", rates.specificity, f"any human label but “{label}”")


def _kappa(judged: _Judged, kinds: Sequence[Vote], level: str) -> Figure:
    """Kappa, and the lower bound of a judge without an error on these cases."""
    kappa = kappa_interval(judged.pairs, kinds=kinds, groups=judged.clusters)
    perfect = [(label, label) for label, _ in judged.pairs]
    ideal = kappa_interval(perfect, kinds=kinds, groups=judged.clusters)
    made = shown("kappa", kappa, level, _why_constant(judged, kappa))
    best = ideal.low if isinstance(ideal, Interval) else None
    return judged.counted(replace(made, best=best))


def _baseline(judged: _Judged, kinds: Sequence[Vote], level: str) -> Figure:
    base = figure("baseline", judged.pairs, majority_baseline.sums, level, _NONE, judged.groups)
    ends = baseline_interval(judged.pairs, kinds=kinds, groups=judged.clusters)
    return (
        replace(base, low=ends.low, high=ends.high) if ends else replace(base, low=None, high=None)
    )


def _why_constant(judged: _Judged, measured: Interval | Unknown) -> str:
    if isinstance(measured, Unknown) and measured.reason != "undefined":
        return ""
    return "people and judge gave only one label" if judged.pairs else _NONE


def _why_unbalanced(judged: _Judged, kinds: Sequence[Vote]) -> str:
    labels = {label for label, _ in judged.pairs}
    missing = [outcome_name(kind) for kind in kinds if kind not in labels]
    if not judged.pairs:
        return _NONE
    return f"no case is labelled {' or '.join(missing)}" if missing else ""


def outcome_name(outcome: object) -> str:
    """An outcome of a metric, in words."""
    if isinstance(outcome, bool):
        return "pass" if outcome else "fail"
    if isinstance(outcome, int | float):
        return f"{outcome:g}"
    return str(outcome) if outcome else "no outcome"


def confusion(runs: Runs, threshold: float | None, labels: Labels) -> ConfusionTable | None:
    """The confusion table, by the majority of a case's runs; None for numbers."""
    read = reading(labels.kind, threshold)
    if read is None:
        return None
    table = confusion_table(_judged(runs, labels.by_case, read).pairs)
    return ConfusionTable(tuple(map(outcome_name, table.kinds)), table.counts)


def people_among_themselves(runs: Runs, labels: Labels) -> Iterator[Figure]:
    """How well people agree, and the ceiling for a judge; nothing with one label per case."""
    several = {case: row for case, row in labels.people.items() if len(row) > 1}
    if labels.kind == "number" or not several:
        return
    ceiling = label_ceiling([*map(list, several.values())], groups=[*map(runs.group, several)])
    level = "cases with labels of several people"
    if isinstance(ceiling, Unknown):
        yield shown("ceiling", ceiling, level)
        return
    yield shown("people-agreement", ceiling.low, level)
    yield shown("ceiling", ceiling.high, f"{level}; accuracy against the label of one person")


def _correlations(runs: Runs, labels: Mapping[int, Vote]) -> Iterator[Figure]:
    rows = [(number, float(label), scored) for number, label, scored in _labelled(runs, labels)]
    table = [[run.score for run in scored] for _, _, scored in rows]
    pairs = scored_pairs(table, [label for _, label, _ in rows])
    groups = [runs.group(number) for number, _, scored in rows if scored]
    level = "mean scores of cases with a label"

    def over(name: str, of: Callable[[Sequence[float], Sequence[float]], float | None]) -> Figure:
        def statistic(items: Sequence[tuple[float, float]]) -> float | None:
            return of([score for score, _ in items], [label for _, label in items])

        return figure(name, pairs, statistic, level, "labels or scores are all equal", groups)

    yield from (over("pearson", pearson), over("spearman", spearman), over("kendall", kendall))


def _within_groups(runs: Runs, labels: Mapping[int, Vote]) -> Iterator[Figure]:
    """Whether the judge orders the cases of one document or dialogue as people do."""
    groups: dict[Hashable, list[tuple[float | None, float | None]]] = {}
    for number, label, scored in _labelled(runs, labels):
        scores = [run.score for run in scored if run.score is not None]
        if scores:
            pair = statistics.fmean(scores), float(label)
            groups.setdefault(runs.group(number), []).append(pair)
    level = "mean scores, averaged over groups of cases"
    why = "no group has two cases that differ in score and in label"
    for name, of in (("spearman", spearman), ("kendall", kendall)):
        measure = partial(group_correlation.sums, of=of)
        yield figure(f"within-group-{name}", list(groups.values()), measure, level, why)


def corrected_figures(
    runs: Runs, threshold: float | None, labels: Labels, random: bool
) -> Iterator[CorrectedFigure]:
    """The pass rate, or the mean score on the scale of the labels, by the human standard.

    `random` says that the labelled cases are a random sample of all. Nothing if all have a label.
    """
    rows = [run for settings in runs.cases.values() for run in settings.values()]
    marks = [labels.by_case.get(case) for case, row in runs.cases.items() for _ in row]
    if None not in marks:
        return
    if labels.kind == "pass" and threshold is not None:
        verdicts = [majority(run.passed(threshold) for run in row) for row in rows]
        truths = [None if label is None else bool(label) for label in marks]
        yield _corrected(
            "corrected-pass-rate", corrected_rate(verdicts, truths, random=random), random
        )
    elif labels.kind == "number":
        means = [_mean([run.score for run in row if run.score is not None]) for row in rows]
        stated = [None if label is None else float(label) for label in marks]
        least, most = scale_of([value for value in stated if value is not None])
        scaled = [None if value is None else least + value * (most - least) for value in means]
        limits = (least, most)
        estimate = corrected_mean(scaled, stated, random=random, limits=limits)
        yield _corrected("corrected-mean-score", estimate, random)
    elif random:
        why = "labels name verdicts, not pass or fail"
        if labels.kind == "pass":
            why = "the metric has no threshold, so no case passes or fails"
        yield CorrectedFigure(Figure("corrected-pass-rate", None, note=why))


def _mean(scores: Sequence[float]) -> float | None:
    return statistics.fmean(scores) if scores else None


def scale_of(labels: Sequence[float]) -> tuple[float, float]:
    """The likely ends of the labels' scale: from 0 or 1, up to 1, 3, 4, 5, 7 …"""
    low, high = min(labels, default=0.0), max(labels, default=1.0)
    return min(low, 0.0 if low < 1 else 1.0), min(
        (end for end in _ENDS if end >= high), default=high
    )


def _corrected(name: str, result: Corrected | Unknown, random: bool) -> CorrectedFigure:
    level = "all cases, from labels of a random sample"
    if isinstance(result, Unknown):
        return CorrectedFigure(
            shown(name, result, level, _refusal(result, random)), labelled=result.items
        )
    return CorrectedFigure(
        shown(name, result.estimate, level), result.judge, shown(name, result.labels_alone, level),
        result.labelled, result.judged, result.worth, result.telling,
    )  # fmt: skip


def _refusal(unknown: Unknown, random: bool) -> str:
    if unknown.reason != "labels are not random":
        return ""
    if random:
        return "the judge's results differ on labelled cases, so these are not a random sample"
    return "labels must be on a random sample of the cases; if they are, state --labels-random"


def outcomes(runs: Runs, threshold: float | None, labels: Labels | None, cases: int) -> Outcomes:
    """The result of every case under one setting, in the order of the cases."""
    rows = {case: row for case, settings in runs.cases.items() for row in settings.values()}
    scores = tuple(" ".join(map(_score, rows.get(case, ()))) for case in range(cases))
    if labels is None:
        return Outcomes(scores)
    labelled = tuple(
        outcome_name(labels.by_case[case]) if case in labels.by_case else ""
        for case in range(cases)
    )
    read = reading(labels.kind, threshold)
    if read is None:
        return Outcomes(scores, labels=labelled if labels.kind == "number" else ())
    right, hits, verdicts = [""] * cases, ["-"] * cases, [""] * cases
    for case, row in rows.items():
        scored = [read(run) for run in row if run.score is not None]
        most = majority(scored)
        verdicts[case] = outcome_name(most)
        if case in labels.by_case:
            label = labels.by_case[case]
            right[case] = "".join(
                "-" if run.score is None else str(int(read(run) == label)) for run in row
            )
            hits[case] = str(int(most == label))
    return Outcomes(scores, tuple(right), "".join(hits), labelled, tuple(verdicts))


def _score(run: Run) -> str:
    """All digits, as flips and passing are compared by them."""
    return "-" if run.score is None else repr(float(run.score)).removesuffix(".0")
