"""Labelled cases in folds, whether gains on them are chance, and how often a metric is right.

Candidates are compared on the same cases, and most of them mend the same ones. So their p values
come from one permutation of the whole search: under "no gain" the difference of a case is as likely
to be negative, for all candidates together (maximum of t, Westfall & Young 1993, Resampling-Based
Multiple Testing). The differences are means of repetitions, so the noise of the judge is in them.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from dagengine.data.case_lookup import read_digest
from dagengine.errors import InputError
from dagengine.graph.graph import Metric
from dagengine.reliability.card.label_agreement import Reader, vote_reader
from dagengine.reliability.counterfactual import Counterfactual
from dagengine.reliability.human_labels import Labels
from dagengine.reliability.observed_runs import Run, runs_of
from dagengine.reliability.repetition import Experiment
from dagengine.reliability.statistics.intervals import Interval, Unknown, bootstrap, clusters_of
from dagengine.reliability.statistics.paired_comparisons import Comparison, compare_repeated
from dagengine.reliability.statistics.sums import Groups, mean, numpy
from dagengine.results import CaseResult, MetricResult, OutcomeKind
from dagengine.test_case import TestCase

FOLDS = 4
LEAST_TRIED = 20
"""Fewer cases (or groups) to try on show nothing."""
LEVEL = 0.05
"""Gains with a greater p value may be chance."""
_SIGN_CHANGES = 4000  # draws of one permutation test
Shares = Mapping[int, float]
"""The share of right repetitions, by the number of the case."""
Gains = Mapping[int, float]
"""The change of that share, by the number of the case."""


@dataclass(frozen=True, slots=True)
class Split:
    """The labelled cases, by number: the `sealed` ones, and folds of those that are tried on.

    `sha256` is that of the contents of the sealed cases and their labels.
    """

    sealed: tuple[int, ...]
    folds: tuple[tuple[int, ...], ...]
    sha256: str

    @property
    def tried(self) -> tuple[int, ...]:
        """The cases that candidates are tried on, in the order of the data."""
        return tuple(sorted(case for fold in self.folds for case in fold))

    def without(self, fold: int) -> tuple[int, ...]:
        """The tried cases outside of one fold, in the order of the data."""
        return tuple(case for case in self.tried if case not in self.folds[fold])


def split_cases(
    cases: Sequence[TestCase],
    labels: Mapping[int, Any],
    groups: Mapping[int, Hashable],
    sealed: float = 0.4,
    reads: Collection[str] = (),
    salt: str = "improve",
) -> Split:
    """Seal a share of the labelled cases; the same case is sealed in every run.

    Whether a case is sealed depends alone on what is read of it (`reads`: paths of fields), or of
    the cases of its group, so more cases move none from one part to the other. Cases that are
    equal in that, whatever their names, and cases of a group stay together. Another `salt` seals
    others. Raises InputError for too few cases.
    """
    if not 0.1 <= sealed <= 0.9:
        raise InputError(f"sealed={sealed}: the sealed share of the cases lies from 0.1 to 0.9")
    content = {case: read_digest(cases[case], reads) for case in labels}
    names = _group_names(content, groups)

    def draw(name: str) -> float:
        """A number from 0 to 1 that a name has in every process: `hash` differs between them."""
        return int.from_bytes(hashlib.sha256(f"{salt} {name}".encode()).digest()[:7]) / 2**56

    draws = {name: draw(name) for name in names.values()}
    sealed_cases = tuple(case for case in sorted(labels) if draws[names[case]] < sealed)
    unsealed = sorted((name for name in draws if draws[name] >= sealed), key=draws.__getitem__)
    if len(unsealed) < LEAST_TRIED:
        raise InputError(
            f"{len(labels)} labelled cases leave {len(unsealed)} to try changes on beside the "
            f"sealed part; {LEAST_TRIED} are the least that can show anything: label more cases "
            "(`dagengine labels plan` says which)"
        )
    fold_of = {name: number % FOLDS for number, name in enumerate(unsealed)}
    folds: list[list[int]] = [[] for _ in range(FOLDS)]
    for case in sorted(labels):
        if names[case] in fold_of:
            folds[fold_of[names[case]]].append(case)
    sha256 = labels_digest(cases, {case: labels[case] for case in sealed_cases}, reads)
    return Split(sealed_cases, tuple(map(tuple, folds)), sha256)


def _group_names(content: Mapping[int, str], groups: Mapping[int, Hashable]) -> dict[int, str]:
    """Name each case by the least digest of its group, in whatever order the cases are."""
    least: dict[Hashable, str] = {}
    for case, digest in content.items():
        group = groups.get(case, digest)
        least[group] = min(least.get(group, digest), digest)
    return {case: least[groups.get(case, digest)] for case, digest in content.items()}


def labels_digest(
    cases: Sequence[TestCase], labels: Mapping[int, Any], reads: Collection[str]
) -> str:
    """SHA-256 (hex) of labels and of what is read of their cases, in whatever order these are."""
    lines = sorted(f"{read_digest(cases[case], reads)} {labels[case]!r}" for case in labels)
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()


def dependent_groups(cases: Iterable[int], groups: Mapping[int, Hashable]) -> Groups:
    """The group of each case, the case itself if it has none; None if no two cases share one."""
    return clusters_of([groups.get(case, case) for case in cases])


def joint_p(gains: Sequence[Gains], groups: Mapping[int, Hashable]) -> list[float]:
    """The p value of each candidate's gain, corrected for all of them.

    Only gains count, and each p is twice that of one side, as in intervals of two sides. So if none
    is better than what it is compared with, the least p is at most 0.05 in 2.5 of 100 searches.
    Cases of a group change their sign together. Equal input gives equal values.
    """
    if not gains:
        return []
    names = dict.fromkeys(groups.get(n, n) for by_case in gains for n in sorted(by_case))
    rows = {name: row for row, name in enumerate(names)}
    # A row is a group, a column a candidate. The mean is 0 for a group that a candidate lacks.
    sums = numpy.zeros((len(rows), len(gains)))
    counts = numpy.zeros_like(sums)
    for column, by_case in enumerate(gains):
        for number, gain in by_case.items():
            row = rows[groups.get(number, number)]
            sums[row, column] += gain
            counts[row, column] += 1
    means = numpy.divide(sums, counts, out=numpy.zeros_like(sums), where=counts > 0)
    sizes, squares = (counts > 0).sum(axis=0), (means**2).sum(axis=0)
    # One draw of signs for all candidates: those that mend the same cases change together.
    signs = numpy.random.default_rng(0).choice((-1.0, 1.0), size=(_SIGN_CHANGES, len(rows)))
    observed = _t(means.sum(axis=0), squares, sizes)
    highest = _t(signs @ means, squares, sizes).max(axis=1)
    # A draw that changes no sign counts, even if rounding makes its t a little smaller.
    exceed = (highest[:, None] >= observed[None, :] - 1e-9).sum(axis=0)
    return [min(1.0, 2 * float(p)) for p in (exceed + 1) / (_SIGN_CHANGES + 1)]


def _t(sums: Any, squares: Any, sizes: Any) -> Any:
    """The t of means by their sums; a change of signs leaves the sums of squares as they are."""
    mean = sums / numpy.maximum(sizes, 1)
    # Above 0: all gains may be equal.
    variance = numpy.maximum(squares / numpy.maximum(sizes, 1) - mean**2, 1e-12)
    return mean / numpy.sqrt(variance / numpy.maximum(sizes - 1, 1))


@dataclass(kw_only=True)
class LabelledExperiment(Experiment):
    """Cases and their labels, and how a metric is asked about them."""

    cases: Sequence[TestCase]
    labels: Labels
    groups: Mapping[int, Hashable]

    async def judge(self, metric: Metric, chosen: Sequence[int]) -> Judged:
        """Ask a metric about some of the cases."""
        rows: list[CaseResult] = []
        cases = [self.cases[number] for number in chosen]
        observations = await self.ask(cases, [metric], rows.append)
        if OutcomeKind.OVER_BUDGET in {row.outcome for row in observations}:
            raise InputError(
                "the limit of calls or money is reached: allow more, and run it again with the "
                "same store; no answered question is asked again"
            )
        runs = runs_of(observations, Counterfactual(metric))
        by_case = dict(zip(chosen, map(runs.of, range(len(chosen))), strict=True))
        first_results = {chosen[row.index]: row.metrics[0] for row in rows}
        return Judged(metric, by_case, first_results, self)

    def share(self, right: Shares) -> Interval | Unknown:
        """The mean share of right results, with its interval over cases or groups."""
        numbers = sorted(right)
        shares = [*map(right.__getitem__, numbers)]
        interval = bootstrap(shares, mean, groups=dependent_groups(numbers, self.groups))
        return interval or Unknown("too few items", len(shares))

    def gain(self, before: Shares, after: Shares) -> Comparison | Unknown:
        """The gain on the cases that both have, case by case.

        A case counts by the share of its repetitions that are right. So the differences have the
        noise of the judge in them, as well as that of the choice of cases.
        """
        numbers = sorted(before.keys() & after.keys())
        pairs = [(before[number], after[number]) for number in numbers]
        return compare_repeated(pairs, groups=dependent_groups(numbers, self.groups))


@dataclass(frozen=True)
class Judged:
    """A metric that `asking` has repeated on labelled cases, by number; `first` is sample 0."""

    metric: Metric
    runs: Mapping[int, Sequence[Run]]
    first: Mapping[int, MetricResult]
    asking: LabelledExperiment

    def right(self, reader: Reader | None = None) -> dict[int, float]:
        """The share of right repetitions, by case; a repetition without a score is wrong."""
        labels, right = self.asking.labels, dict[int, float]()
        reader = reader or reader_of(self.metric, labels)
        for number, runs in self.runs.items():
            answers = [reader(run) for run in runs if run.score is not None]
            if runs:
                right[number] = answers.count(labels.by_case[number]) / len(runs)
        return right


def reader_of(metric: Metric, labels: Labels, task: str = "an improvement needs") -> Reader:
    """The reader of what a label is compared with (pass or verdict); raises InputError for none."""
    spec = metric.spec()
    reader = vote_reader(labels.kind, 1.0 if spec.strict else spec.threshold)
    if reader is None:
        raise InputError(
            f"{spec.name!r} has no threshold, or its labels are numbers: {task} labels that say "
            "pass or fail, or name verdicts"
        )
    return reader
