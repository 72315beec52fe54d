"""A metric against human labels: accuracy always with kappa and the baseline."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property, partial
from itertools import compress
from random import Random
from typing import Any

from dagengine.reliability.card.again import Unlike, outcome, score
from dagengine.reliability.card.figures import NOT_RANDOM, figure, reaching, shown
from dagengine.reliability.card.values import (
    Calibration,
    ConfusionTable,
    CorrectedFigure,
    Disagreement,
    Figure,
    Outcomes,
    Segment,
    Voted,
)
from dagengine.reliability.labels import Kind, Labels, Vote
from dagengine.reliability.runs import Run, Runs
from dagengine.reliability.statistics.calibration import (
    brier_score,
    debiased_calibration_error,
    reliability,
)
from dagengine.reliability.statistics.comparisons import holm
from dagengine.reliability.statistics.confusion import (
    ac1_interval,
    accuracy,
    balanced_accuracy_interval,
    baseline_interval,
    confusion_table,
    kappa_interval,
    label_ceiling,
    label_rates,
    majority_baseline,
    people_agreement,
)
from dagengine.reliability.statistics.corrected import Corrected, corrected_mean, corrected_rate
from dagengine.reliability.statistics.correlations import (
    group_correlation,
    kendall,
    majority,
    pearson,
    spearman,
)
from dagengine.reliability.statistics.intervals import (
    LEAST_GROUPS,
    Interval,
    Unknown,
    clusters_of,
    jackknife,
    needs,
)
from dagengine.reliability.statistics.measures import mean_score, measure_of
from dagengine.reliability.statistics.sums import Sums, difference, mean, quotient, total
from dagengine.reliability.statistics.votes import flips_of_votes, majority_odds
from dagengine.terminal import counted
from dagengine.test_case import TestCase, case_label

Pair = tuple[Vote | None, Vote | None]
Shared = tuple[Vote | None, Mapping[Vote | None, float]]
"""A human label, and the shares of the verdicts of its case; none without an answer."""
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
    marked = marked_runs(runs, threshold, labels)
    if all(run.score is None for run in runs.every()):
        names = ("spearman",) if labels.kind == "number" else _AGAINST_LABELS
        yield from (Figure(name, None, note="no run has a score") for name in names)
        yield from people_among_themselves(runs, labels)
    elif labels.kind == "number":
        yield from _correlations(runs, labels.by_case)
        yield from _within_groups(runs, labels.by_case) if grouped else ()
    elif marked is None:
        why = "the metric has no threshold, so no case passes or fails"
        yield from (Figure(name, None, note=why) for name in _AGAINST_LABELS)
    else:
        yield from _verdicts(marked)
        yield from people_among_themselves(runs, labels, marked.read)


Reader = Callable[[Run], Vote | None]
"""The vote of a run; None without a score."""


@dataclass(frozen=True)
class Marked:
    """Runs, labels that say what their outcomes should be, and the reader of these outcomes."""

    runs: Runs
    labels: Labels
    read: Reader

    @cached_property
    def rows(self) -> list[tuple[int, Vote, tuple[Vote | None, ...]]]:
        """Number, label and votes of every case with a label, one vote per run."""
        labels = self.labels.by_case
        return [(case, labels[case], votes) for case, votes in self.runs.by_case(self.read).items()
                if case in labels]  # fmt: skip

    @property
    def groups(self) -> list[Hashable]:
        """The group of each row."""
        return [self.runs.group(case) for case, *_ in self.rows]


def marked_runs(runs: Runs, threshold: float | None, labels: Labels | None) -> Marked | None:
    """The runs with labels; None without any, and if labels are numbers, or nothing to compare."""
    read = None if labels is None else reading(labels.kind, threshold)
    return None if labels is None or read is None else Marked(runs, labels, read)


def reading(kind: Kind, threshold: float | None) -> Reader | None:
    """Reader of what is compared with labels; None if that is the score, or nothing."""
    if kind == "verdict":
        return _last_verdict
    return outcome(threshold) if kind == "pass" and threshold is not None else None


def _last_verdict(run: Run) -> Vote | None:
    if run.score is None:
        return None
    return str(run.path[-1][1]) if run.path else ""


def _means_by_label(
    runs: Runs, labels: Mapping[int, Vote]
) -> Iterator[tuple[Hashable, float, float]]:
    """Group, mean score and label of every case that has a label and a score."""
    for case in runs.cases:
        if case in labels and (scores := runs.scores(case)):
            yield runs.group(case), statistics.fmean(scores), float(labels[case])


_AGAINST_LABELS = ("accuracy", "kappa", "baseline")
_NONE = "no case that ran has a label"
_ONE_LABEL = "people and judge gave only one label"


@dataclass(frozen=True)
class _Judged:
    """Cases with a label and runs: the label, the majority of the runs, the share that is right.

    The first of `sides` leaves runs without a score out. If there are any, two more follow, in
    which they are wrong, and right: figures at worst, and at best. `shares` has the same sides.
    `often` says which runs count where cases ran differently often.
    """

    sides: Sequence[Labelled]
    shares: Sequence[Sequence[float | None]]
    groups: Sequence[Hashable]
    often: int | None

    def over(self, measured: Callable[[Labelled], Figure]) -> Figure:
        """A figure of the pairs, whose interval reaches over what missing answers leave open."""
        rows = zip(self.sides[0], self.groups, strict=True)
        answered = {group for (label, _), group in rows if label is not None}
        return replace(reaching([*map(measured, self.sides)]), items=len(answered))


def often_enough(rows: Iterable[Sequence[object]]) -> int | None:
    """Number of runs in a case's majority, if cases ran differently often: an odd number.

    The more runs, the seldomer is a majority wrong. So a majority of all runs would be another
    figure for each case, and cases may have run more often because they are hard.
    """
    sizes = {len(row) for row in rows if row}
    return None if len(sizes) < 2 else max(min(sizes) - 1 + min(sizes) % 2, 1)


def _judge_cases(marked: Marked) -> _Judged:
    often = often_enough(votes for *_, votes in marked.rows)
    tally_of = cache(_Tally.of)  # of many cases some are equal
    tallies = [tally_of(label, votes, often) for _, label, votes in marked.rows]
    numbers = range(_sides_of(marked))
    sides = [[tally.pairs[side] for tally in tallies] for side in numbers]
    shares = [[tally.shares[side] for tally in tallies] for side in numbers]
    return _Judged(sides, shares, marked.groups, often)


def _sides_of(marked: Marked) -> int:
    """The number of ways to count runs without a score: one if every run has one."""
    return 3 if any(None in votes for *_, votes in marked.rows) else 1


@dataclass(frozen=True)
class _Tally:
    """One case: the label with the majority of its runs, and the share of runs that meets it.

    Both are as answered, with all missing answers wrong, and with all of them right.
    """

    pairs: tuple[Pair, Pair, Pair]
    shares: tuple[float | None, float, float]

    @classmethod
    def of(cls, label: Vote, row: Sequence[Vote | None], often: int | None) -> _Tally:
        answers, worst, best = _fill(label, row[:often])
        answered: Pair = (label, majority(answers)) if answers else (None, None)
        hits = [vote == label for vote in row if vote is not None]
        share = statistics.fmean(hits) if hits else None
        right, wrong = sum(hits) / len(row), hits.count(False) / len(row)
        pairs = answered, (label, majority(worst)), (label, majority(best))
        return cls(pairs, (share, right, 1 - wrong))


def _fill(label: Vote, row: Sequence[Vote | None]) -> tuple[list[Vote | None], ...]:
    """The answers of runs as they are, then with all missing ones wrong, and with them right."""
    answers: list[Vote | None] = [vote for vote in row if vote is not None]
    missing = len(row) - len(answers)
    # A wrong answer to pass or fail is the other one; of several verdicts it is none of them.
    miss = not label if isinstance(label, bool) else None
    return answers, [*answers, *[miss] * missing], [*answers, *[label] * missing]


def _verdicts(marked: Marked) -> Iterator[Figure]:
    judged, kinds = _judge_cases(marked), marked.labels.kinds
    subject = "last verdicts" if marked.labels.kind == "verdict" else "pass or fail"
    runs_counted = "runs" if judged.often is None else f"first {counted(judged.often, 'run')}"
    level = f"{subject}: majority of a case's {runs_counted}, cases with a label"
    groups, clusters = judged.groups, clusters_of(judged.groups)
    why = _ONE_LABEL if groups else _NONE

    def hits(pairs: Labelled) -> Figure:
        return figure("accuracy", pairs, accuracy.sums, _NONE, groups, level)

    yield judged.over(hits)
    single = f"{subject}: single runs, cases with a label"
    yield reaching([figure("single-run-accuracy", shares, mean, _NONE, groups, single)
                    for shares in judged.shares])  # fmt: skip
    shares: list[list[Shared]] = [
        [(label, {} if label is None else {verdict: 1.0}) for label, verdict in side]
        for side in judged.sides
    ]
    yield _kappa(shares, groups, kinds, level, why)

    def beyond(pairs: Labelled) -> Figure:
        ac1 = ac1_interval(pairs, kinds=kinds, groups=clusters)
        return shown("ac1", ac1, level, _if_undefined(ac1, why))

    yield judged.over(beyond)
    labels = [label for label, _ in judged.sides[0]]
    absent = [outcome_name(kind) for kind in kinds if kind not in labels]
    unbalanced = f"no case is labelled {' or '.join(absent)}" if absent else ""

    def even(pairs: Labelled) -> Figure:
        balanced = balanced_accuracy_interval(pairs, kinds=kinds, groups=clusters)
        return shown("balanced-accuracy", balanced, level, unbalanced if groups else _NONE)

    yield judged.over(even)
    alone = [(label, None) for label in labels]
    base = figure("baseline", alone, majority_baseline.sums, _NONE, groups, level)
    # The commonest label is chosen from the labels themselves: its interval is one of its own.
    ends = baseline_interval(alone, kinds=kinds, groups=clusters)
    yield replace(base, low=ends.low if ends else None, high=ends.high if ends else None)
    yield from _rates_of_labels(judged.sides, clusters)


def _rates_of_labels(
    sides: Sequence[Labelled], clusters: Sequence[Hashable] | None
) -> Iterator[Figure]:
    """Sensitivity and specificity; of two labels, the second one's are the first one's in turn."""
    rates = [{rate.label: rate for rate in label_rates(side, groups=clusters)} for side in sides]
    labels = list(rates[0])
    if len(labels) == 2:
        labels = sorted(labels, key=lambda label: label is not True)[:1]
    for label in labels:
        word = outcome_name(label)
        for name, level in (("sensitivity", f"human label “{word}”"),
                            ("specificity", f"any human label but “{word}”")):  # fmt: skip
            yield reaching([shown(name, getattr(rate[label], name), level) for rate in rates])


def _kappa(
    sides: Sequence[Sequence[Shared]], groups: Sequence[Hashable], kinds: Sequence[Vote],
    level: str, why: str, confidence: float = 0.95,
) -> Figure:  # fmt: skip
    """Kappa, and the lower bound of a judge without an error on these cases.

    `sides` have every case's label with the shares of its verdicts, as answered, then with missing
    answers wrong and right. `why` says why it may be undefined.
    """
    clustered = clusters_of(groups) is not None

    def measured(side: Sequence[Shared]) -> Figure:
        parts = [(label, verdict, share, group)
                 for (label, shares), group in zip(side, groups, strict=True)
                 for verdict, share in shares.items()]  # fmt: skip
        kappa = kappa_interval(
            [(label, verdict) for label, verdict, _, _ in parts], kinds=kinds,
            groups=[group for *_, group in parts] if clustered else None,
            weights=[share for _, _, share, _ in parts], level=confidence,
        )  # fmt: skip
        return shown("kappa", kappa, level, _if_undefined(kappa, why))

    ideal = measured([(label, {label: 1.0} if shares else {}) for label, shares in sides[0]])
    answered = {group for (_, shares), group in zip(sides[0], groups, strict=True) if shares}
    kappa = reaching([*map(measured, sides)])
    return replace(kappa, items=len(answered), best=ideal.low)


def _if_undefined(result: Interval | Unknown, why: str) -> str:
    """The note, unless the result says itself why it is not known."""
    return "" if isinstance(result, Unknown) and result.reason != "undefined" else why


def outcome_name(outcome: object) -> str:
    """An outcome of a metric, in words."""
    if isinstance(outcome, bool):
        return "pass" if outcome else "fail"
    if isinstance(outcome, int | float):
        return f"{outcome:g}"
    return str(outcome) if outcome else "no outcome"


def confusion(marked: Marked) -> ConfusionTable:
    """The confusion table, by the majority of a case's runs."""
    table = confusion_table(_judge_cases(marked).sides[0])
    counts = tuple(tuple(map(int, row)) for row in table.counts)
    return ConfusionTable(tuple(map(outcome_name, table.kinds)), counts)


def people_among_themselves(
    runs: Runs, labels: Labels, read: Reader | None = None
) -> Iterator[Figure]:
    """Agreement of people, and the ceiling for a judge; nothing with one label per case."""
    several = {case: row for case, row in labels.people.items() if len(row) > 1}
    if labels.kind == "number" or not several:
        return
    rows, groups = [*map(list, several.values())], [*map(runs.group, several)]
    yield figure("people-agreement", rows, people_agreement.sums, "too few cases", groups)
    yield shown("ceiling", label_ceiling(rows, groups=groups))
    if read is not None:
        shares: list[float | None] = []
        names: list[Hashable] = []
        for case, people in several.items():
            if case not in runs.cases:
                continue
            votes = [read(run) for run in runs.of(case) if run.score is not None]
            verdict = majority(votes)
            # The share of the people whose label the majority of the runs meets
            shares.append(statistics.fmean(label == verdict for label in people) if votes else None)
            names.append(runs.group(case))
        yield figure("person-accuracy", shares, mean, "", names)


def _correlations(runs: Runs, labels: Mapping[int, Vote]) -> Iterator[Figure]:
    rows = list(_means_by_label(runs, labels))
    groups = [group for group, *_ in rows]

    def over(name: str, of: Callable[[Sequence[float], Sequence[float]], float | None]) -> Figure:
        def statistic(items: Sequence[tuple[Hashable, float, float]]) -> float | None:
            return of([mean for _, mean, _ in items], [label for *_, label in items])

        return figure(name, rows, statistic, "labels or scores are all equal", groups)

    yield from (over("pearson", pearson), over("spearman", spearman), over("kendall", kendall))


def _within_groups(runs: Runs, labels: Mapping[int, Vote]) -> Iterator[Figure]:
    """Whether the judge orders the cases of one document or dialogue as people do."""
    groups: dict[Hashable, list[tuple[float | None, float | None]]] = {}
    for group, *pair in _means_by_label(runs, labels):
        groups.setdefault(group, []).append((pair[0], pair[1]))
    why = "no group has two cases that differ in score and in label"
    for name, of in (("spearman", spearman), ("kendall", kendall)):
        measure = partial(group_correlation.sums, of=of)
        yield figure(f"within-group-{name}", list(groups.values()), measure, why)


def corrected_figures(
    runs: Runs,
    threshold: float | None,
    labels: Labels,
    random: bool,
    known: Mapping[str, Sequence[float]],
) -> Iterator[CorrectedFigure]:
    """The pass rate, or the mean score on the scale of the labels, by the human standard.

    `random` says that the labelled cases are a random sample of all; `known` are numbers of all
    cases in which a random sample does not differ. Nothing if all have a label.
    """
    marks = [labels.by_case.get(case) for case in runs.cases]
    if None not in marks:
        return
    traits = {name: [values[case] for case in runs.cases] for name, values in known.items()}
    groups = [*map(runs.group, runs.cases)] if runs.groups else None
    sample: dict[str, Any] = {"random": random, "groups": groups, "known": traits}
    if labels.kind == "number":
        yield _corrected_mean(runs, marks, labels.scale, sample)
    elif labels.kind == "pass" and threshold is not None:
        verdicts = [*map(majority, runs.by_case(outcome(threshold)).values())]
        truths = [None if label is None else bool(label) for label in marks]
        estimate = corrected_rate(verdicts, truths, **sample)
        yield _corrected_figure("corrected-pass-rate", estimate, random)
    elif random:
        why = "labels name verdicts, not pass or fail"
        if labels.kind == "pass":
            why = "the metric has no threshold, so no case passes or fails"
        yield CorrectedFigure(Figure("corrected-pass-rate", None, note=why))


def _corrected_mean(
    runs: Runs, marks: Sequence[Vote | None],
    scale: tuple[float, float] | None, sample: Mapping[str, Any],
) -> CorrectedFigure:  # fmt: skip
    """The mean score on the scale of the labels, which has to be stated."""
    name = "corrected-mean-score"
    if scale is None:
        why = "the scale of the labels is not stated: --label-scale 1,5"
        return CorrectedFigure(Figure(name, None, note=why))
    least, most = scale
    means = map(mean_score, runs.by_case(score).values())
    scaled = [None if value is None else least + value * (most - least) for value in means]
    stated = [None if label is None else float(label) for label in marks]
    estimate = corrected_mean(scaled, stated, limits=scale, **sample)
    return _corrected_figure(name, estimate, sample["random"])


def _corrected_figure(name: str, result: Corrected | Unknown, random: bool) -> CorrectedFigure:
    if isinstance(result, Unknown):
        why = ""
        if result.reason == "labels are not random":
            # Either nobody stated that they are, or what is known of the cases speaks against it.
            differ = f"the labelled cases differ from the others in their {result.detail}"
            why = f"{differ} by more than chance, {NOT_RANDOM}" if random else UNSTATED
        return CorrectedFigure(shown(name, result, note=why), labelled=result.items)
    return CorrectedFigure(
        shown(name, result.estimate), result.judge, shown(name, result.labels_alone),
        result.labelled, result.judged, result.worth, result.telling,
    )  # fmt: skip


UNSTATED = "the labelled cases may not be a random sample; if they are, add --labels-random"


def sampled(
    votes: Voted, labels: Labels, runs: Runs, corrected: Iterable[CorrectedFigure], random: bool
) -> Voted:
    """Agreement and kappa as the judge has them on all cases: no interval from other labels.

    Labels on a part of the cases tell about all only if the part was drawn at random. That has to
    be stated, and nothing that is known of the cases may speak against it.
    """
    if all(case in labels.by_case for case in runs.cases):
        return votes
    notes = (figure.estimate.note for figure in corrected if figure.estimate.value is None)
    why = next((note for note in notes if NOT_RANDOM in note), "") if random else UNSTATED
    if not why:
        return votes
    agreement, kappa = (
        measure if measure.value is None else replace(measure, low=None, high=None, note=why)
        for measure in (votes.agreement, votes.kappa)
    )
    return replace(votes, agreement=agreement, kappa=kappa)


def outcomes(runs: Runs, threshold: float | None, labels: Labels | None, cases: int) -> Outcomes:
    """The result of every case under one setting, in the order of the cases."""
    by_case = runs.by_case(score)
    # All digits, as flips and passing are compared by them.
    in_words = cache(lambda value: "-" if value is None else repr(float(value)).removesuffix(".0"))
    scores = tuple(" ".join(map(in_words, by_case.get(case, ()))) for case in range(cases))
    if labels is None:
        return Outcomes(scores)
    words = {case: outcome_name(label) for case, label in labels.by_case.items()}
    labelled = tuple(words.get(case, "") for case in range(cases))
    marked = marked_runs(runs, threshold, labels)
    if marked is None:
        return Outcomes(scores, labels=labelled if labels.kind == "number" else ())
    rows, often = runs.by_case(marked.read), often_enough(row for *_, row in marked.rows)
    against = cache(_against)
    results = [against(rows.get(case, ()), labels.by_case.get(case), often)
               for case in range(cases)]  # fmt: skip
    right, hits, verdicts = zip(*results, strict=True) if results else ((), (), ())
    return Outcomes(scores, right, "".join(hits), labelled, verdicts)


def _against(
    row: Sequence[Vote | None], label: Vote | None, often: int | None
) -> tuple[str, str, str]:
    """Runs of a case that meet its label, whether their majority does, and what that says."""
    if not row:
        return "", "-", ""
    scored = [vote for vote in row[:often] if vote is not None]
    most = majority(scored)
    if label is None:
        return "", "-", outcome_name(most)
    right = ("-" if vote is None else str(int(vote == label)) for vote in row)
    return "".join(right), str(int(most == label)) if scored else "-", outcome_name(most)


# What the first screen shows.

MOST_VOTES = 7
_NOT_LABELLED = "no labels"
_NUMBERS = "labels are numbers, and not pass or fail"


def voted(
    runs: Runs, threshold: float | None, labels: Labels | None, unlike: Unlike, confidence: float
) -> Iterator[Voted]:
    """The metric with one vote and with majorities of more, up to half of the runs.

    More than half was not seen. `unlike` says how runs are not repeats: no majority follows then.
    `confidence` is that of every interval.
    """
    verdicts = labels is not None and labels.kind == "verdict"
    table = runs.table(_last_verdict) if verdicts else runs.table(outcome(threshold))
    # How many results most cases have at least.
    sizes = [len(row) - row.count(None) for row in table]
    seen = statistics.median_low(sizes) if sizes else 0
    groups = runs.rows if runs.groups else None
    marked = marked_runs(runs, threshold, labels)
    most = 1 if unlike.first or len(set(runs.sizes)) > 1 else min(max(seen // 2, 1), MOST_VOTES)
    for votes in range(1, most + 1, 2):
        level = f"majorities of {votes}" if votes > 1 else "single runs"
        rate = None
        if seen > 1:
            rate = flips_of_votes(table, votes, groups=groups, level=confidence)
        flips = shown("flip-rate", rate, level, "every case ran once; use --times 2 or more")
        if marked is None:
            why = _NOT_LABELLED if labels is None else _NUMBERS
            right = [Figure(name, None, note=why) for name in ("accuracy", "kappa")]
        else:
            right = _agreement(marked, votes, level, confidence)
        yield Voted(votes, unlike.without(flips), *right)


def _agreement(marked: Marked, votes: int, level: str, confidence: float) -> list[Figure]:
    """Accuracy and kappa of majorities of so many runs of each case.

    They are shares over all runs, or all subsets of them: no choice of some of them decides.
    """

    @cache
    def share_of(label: Vote, row: Sequence[Vote | None], side: int) -> Shared:
        return label, majority_odds(_fill(label, row)[side], votes)

    groups, accuracies = marked.groups, list[Figure]()
    sides = [[share_of(label, row, side) for _, label, row in marked.rows]
             for side in range(_sides_of(marked))]  # fmt: skip
    for side in sides:
        hits = [shares.get(label, 0.0) if shares else None for label, shares in side]
        accuracies.append(figure("accuracy", hits, mean, _NONE, groups, level, confidence))
    why = _ONE_LABEL if groups else _NONE
    kappa = _kappa(sides, groups, marked.labels.kinds, level, why, confidence)
    return [reaching(accuracies), kappa]


def disagreements(marked: Marked, cases: Sequence[TestCase]) -> list[Disagreement]:
    """The cases where people and judge differ, those first where the judge is surest."""
    differing: list[Disagreement] = []
    for case, label, row in marked.rows:
        votes = [vote for vote in row if vote is not None]
        wrong = Counter(vote for vote in votes if vote != label)
        if 2 * wrong.total() < len(votes) or not votes:
            continue
        ((most, count),) = wrong.most_common(1)
        paths = (run.path[-1] for run in marked.runs.of(case)
                 if run.path and marked.read(run) == most)  # fmt: skip
        node, verdict = next(paths, ("", ""))
        path = f"{node} → {outcome_name(verdict)}" if node else ""
        differing.append(Disagreement(case_label(cases[case], case), outcome_name(label),
                                      outcome_name(most), count, len(votes), path))  # fmt: skip
    return sorted(differing, key=lambda differs: -differs.votes / differs.runs)


SEGMENTS = 8
"""Fields with more values than this make no segments."""


def segments(marked: Marked, cases: Sequence[TestCase]) -> list[Segment]:
    """Segments in which the judge is right less often: long answers, tags, fields with few values.

    Only what differs by more than chance (p < 0.05 after Holm's correction for all that was looked
    at). Cases of one group count as one: a group is right if most of its cases are.
    """
    hits: dict[int, bool] = {}
    for case, label, row in marked.rows:
        if votes := [vote for vote in row if vote is not None]:
            hits[case] = majority(votes) == label
    return segments_of(hits, cases, marked.runs.group)


def segments_of(
    hits: Mapping[int, bool], cases: Sequence[TestCase], group: Callable[[int], Hashable]
) -> list[Segment]:
    """As `segments`, of cases that are known to be right or wrong."""
    tables, ps = [], []
    for name, members in _parts(cases, hits):
        if min(len(members), len(hits) - len(members)) < 5:
            continue
        inside, outside = _hits_of(group, hits, members), _hits_of(group, hits, set(hits) - members)
        table = [[sum(side), len(side) - sum(side)] for side in (inside, outside)]
        tables.append((name, table))
        ps.append(float(needs("scipy.stats").fisher_exact(table, "less").pvalue))
    return [
        Segment(name, within[0], sum(within), without[0], sum(without), p)
        for (name, (within, without)), p in zip(tables, holm(ps), strict=True)
        if p < 0.05
    ]


LEAST_RESULTS = 10
"""Results on either side, below which it is not known how the sides differ."""


def beside_unsupported(marked: Marked) -> tuple[Figure, str] | None:
    """The accuracy of results that rest on an unsupported verdict, minus that of the others.

    The text says it in words. None if no result rests on such a verdict. The interval is the
    jackknife of the difference, over cases or their groups, with t for those of the smaller side.
    It is not given where that has few, or a side no error or no hit.
    """
    sides = [_accuracy_of_results(marked, unsupported) for unsupported in (True, False)]
    (right, results), (plain_right, plain) = (
        (int(totals["right"]), int(totals["results"]))
        for totals in (total(side.items) for side in sides)
    )
    if not results:
        return None
    words = (
        "Results that rest on an unsupported verdict (no quote of it is there) are right in "
        f"{right} of {results}, the others in {plain_right} of {plain}"
    )
    if min(results, plain) < LEAST_RESULTS:
        undecided = f"there are fewer than {LEAST_RESULTS} results on one side"
        measure = shown("unsupported-effect", None, note=undecided)
        return measure, f"{words}. Whether they are worse is not known: {undecided}."
    change, groups = difference(*sides), marked.groups
    sizes = [len(set(compress(groups, sums.adds))) for sums in (*sides, change)]
    level = measure_of("unsupported-effect").level
    measure = Figure("unsupported-effect", change.value(), items=sizes[-1], level=level)
    # A side that is all right, or all wrong, hides its variance.
    mixed = 0 < right < results and 0 < plain_right < plain
    if mixed and min(sizes) >= LEAST_GROUPS:
        ends = jackknife(groups, lambda _: change, groups=groups, telling=min(sizes))
        if ends is not None:
            measure = replace(measure, low=max(ends[0], -1.0), high=min(ends[1], 1.0))
    return measure, f"{words}."


def _accuracy_of_results(marked: Marked, unsupported: bool) -> Sums:
    """The share of right results among those that rest on an unsupported verdict, or on none."""
    items: list[dict[str, int]] = []
    for case, label, _ in marked.rows:
        hits = [marked.read(run) == label for run in marked.runs.of(case) if run.score is not None
                and any(run.unsupported.values()) is unsupported]  # fmt: skip
        items.append({"right": sum(hits), "results": len(hits)} if hits else {})
    return quotient(items, "right", "results")


def _hits_of(
    group: Callable[[int], Hashable], hits: Mapping[int, bool], chosen: Iterable[int]
) -> list[bool]:
    groups: dict[Hashable, list[bool]] = {}
    for case in chosen:
        groups.setdefault(group(case), []).append(hits[case])
    return [2 * sum(row) >= len(row) for row in groups.values()]


def _parts(cases: Sequence[TestCase], hits: Mapping[int, bool]) -> Iterator[tuple[str, set[int]]]:
    """Segments of the labelled cases, by name."""
    lengths = {case: len(getattr(cases[case], "actual_output", None) or "") for case in hits}
    if len({*lengths.values()}) > 1:
        middle = statistics.median(lengths.values())
        yield f"answers over {middle:.0f} characters", {c for c, n in lengths.items() if n > middle}
    values: dict[str, dict[str, set[int]]] = {}
    for case in hits:
        fields = dict(getattr(cases[case], "additional_metadata", None) or {})
        for tag in getattr(cases[case], "tags", None) or ():
            values.setdefault(f"tag {tag}", {}).setdefault("", set()).add(case)
        for name, value in fields.items():
            if isinstance(value, str | bool):
                values.setdefault(name, {}).setdefault(str(value), set()).add(case)
    for name, kinds in values.items():
        for value, chosen in kinds.items() if len(kinds) <= SEGMENTS else ():
            yield f"{name} {value}".strip(), chosen


def next_labels(runs: Runs, labels: Labels | None, threshold: float | None) -> list[int]:
    """The cases to label next, ten: half drawn at random, half those whose runs differ most.

    Only the random half says how right the judge is over all cases; the others find its mistakes.
    """
    free = [case for case in runs.cases if labels is None or case not in labels.by_case]
    rows = runs.by_case(outcome(threshold))

    def largest_share(case: int) -> float:
        return Counter(rows[case]).most_common(1)[0][1] / len(rows[case])

    # Always the same ones: asking again is no way to choose among samples.
    sample = Random(0).sample(free, min(5, len(free)))
    split = sorted((case for case in free if case not in sample), key=largest_share)
    return [*sample, *(case for case in split[:5] if largest_share(case) < 1)]


# Probabilities that a judge stated, if there are any.


@dataclass(frozen=True, slots=True)
class Stated:
    """Stated probabilities of one kind of event: (probability, happened), and their cases."""

    name: str
    event: str
    answers: Sequence[tuple[float, bool]]
    groups: Sequence[Hashable]

    def figures(self) -> Iterator[Figure]:
        """Brier score and calibration error, with their intervals."""
        brier = brier_score.sums
        yield figure(f"{self.name}-brier", self.answers, brier, "", self.groups)
        error = debiased_calibration_error(self.answers, cases=self.groups)
        yield shown(f"{self.name}-calibration-error", error)

    def calibration(self) -> Calibration:
        """The reliability table, bins without an answer left out."""
        bins = tuple(row for row in reliability(self.answers) if row.answers)
        return Calibration(self.event, bins)


def stated(runs: Runs, threshold: float | None, labels: Labels | None) -> Iterator[Stated]:
    """Everything that stated probabilities can be compared with."""
    # Whether the next run takes the same path as often as the tokens of this one state.
    answers: list[tuple[float, bool]] = []
    groups: list[Hashable] = []
    for case, settings in runs.cases.items():
        for row in settings.values():
            scored = [run for run in row if run.score is not None]
            pairs = zip(scored, (*scored[1:], *scored[:1]), strict=True)
            for run, following in pairs if len(scored) > 1 else ():
                if run.stated is not None:
                    answers.append((run.stated, run.path == following.path))
                    groups.append(runs.group(case))
    comparisons = [Stated("repeat", "the next run takes the same path", answers, groups)]
    comparisons += [] if labels is None else [_against_labels(runs, threshold, labels)]
    yield from (comparison for comparison in comparisons if comparison.answers)


def _against_labels(runs: Runs, threshold: float | None, labels: Labels) -> Stated:
    """Whether people agree as often as a path's probability, or a weighted score, states."""
    answers: list[tuple[float, bool]] = []
    groups: list[Hashable] = []
    marked = marked_runs(runs, threshold, labels)
    for case, run in runs.each():
        label = labels.by_case.get(case)
        if label is None or run.score is None:
            continue
        if run.weighted and labels.kind == "pass":
            answers.append((run.score, bool(label)))
        elif run.stated is not None and marked is not None:
            answers.append((run.stated, marked.read(run) == label))
        else:
            continue
        groups.append(runs.group(case))
    return Stated("label", "the human label agrees", answers, groups)
