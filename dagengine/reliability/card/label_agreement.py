"""Agreement of a metric with human labels: accuracy, never without kappa and the baseline."""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property, partial
from typing import Any, TypeVar

from dagengine.reliability.card.measures import NOT_RANDOM, figure, figure_of, figure_over_sides
from dagengine.reliability.card.repeats import Unlike, outcome, score
from dagengine.reliability.card.types import (
    Calibration,
    ConfusionTable,
    CorrectedFigure,
    Figure,
    Voted,
)
from dagengine.reliability.human_labels import Kind, Labels, Vote, outcome_name
from dagengine.reliability.observed_runs import Run, Runs
from dagengine.reliability.statistics import accuracy_and_kappa, correlation_and_bias
from dagengine.reliability.statistics.corrected import Corrected, corrected_mean, corrected_rate
from dagengine.reliability.statistics.intervals import Interval, Unknown, clusters_of
from dagengine.reliability.statistics.majority_votes import flips_of_votes, majority_odds
from dagengine.reliability.statistics.stability import majority
from dagengine.reliability.statistics.sums import Groups, mean, mean_score, present
from dagengine.system.terminal_text import counted, text_if

T = TypeVar("T")
Pair = tuple[Vote | None, Vote | None]
"""The label of a case, and the majority of its runs."""
VoteShare = tuple[Vote, Mapping[Vote | None, float]]
"""The label of a case, and the share of each vote; no shares without an answer."""
Reader = Callable[[Run], Vote | None]
"""A function that reads the vote of a run: pass or fail, or a verdict; None without a score."""

NOBODY = Labels("number", {}, {}, ())
"""The labels of cases that nobody labelled."""
_NO_LABEL = "no case that ran has a label"


def vote_reader(kind: Kind, threshold: float | None) -> Reader | None:
    """The reader of votes for labels of a kind; None for numbers, or "pass" without a threshold."""
    if kind == "verdict":
        return _last_verdict
    return outcome(threshold) if kind == "pass" and threshold is not None else None


def _last_verdict(run: Run) -> Vote | None:
    if run.score is None:
        return None
    return str(run.path[-1][1]) if run.path else ""


@dataclass(frozen=True)
class LabelledRuns:
    """The runs of a metric, its threshold, and the human labels of the cases."""

    runs: Runs
    threshold: float | None
    labels: Labels

    @cached_property
    def read(self) -> Reader | None:
        """The reader of votes for these labels; see `vote_reader`."""
        return vote_reader(self.labels.kind, self.threshold)

    @cached_property
    def by_case(self) -> Mapping[int, Vote]:
        """The label of each case that has one."""
        return self.labels.by_case

    @property
    def why_no_kappa(self) -> str:
        """Reason of an undefined agreement beyond chance."""
        return "people and judge gave only one label" if self.groups else _NO_LABEL

    @cached_property
    def rows(self) -> list[tuple[int, Vote, tuple[Vote | None, ...]]]:
        """Number, label and votes (one per run) of every case that ran and has a label."""
        votes = {} if self.read is None else self.runs.by_case(self.read)
        return [(case, self.by_case[case], votes[case]) for case in votes if case in self.by_case]

    @cached_property
    def groups(self) -> list[Hashable]:
        """The group of each row."""
        return [self.runs.group(case) for case, *_ in self.rows]

    @cached_property
    def hits(self) -> dict[int, bool]:
        """Whether the majority of runs equals the label, by case; no case without an answer."""
        answered = ((case, label, present(row)) for case, label, row in self.rows)
        return {case: majority(votes) == label for case, label, votes in answered if votes}

    @cached_property
    def first_runs(self) -> int | None:
        """The number of first runs whose majority is taken, odd; None for all runs.

        It is set if cases ran differently often. The more runs, the seldomer is a majority wrong,
        and hard cases may have run more often. So majorities of all runs could not be compared.
        """
        sizes = {len(votes) for *_, votes in self.rows if votes}
        return None if len(sizes) < 2 else max(min(sizes) - 1 + min(sizes) % 2, 1)

    def sides(
        self, of: Callable[[Vote, Sequence[Vote | None]], T], first_runs: int | None = None
    ) -> list[list[T]]:
        """`of` label and votes of each row, of the `first_runs` alone unless that is None.

        The first list leaves runs without a score out. If there are any, two more lists follow: in
        the second they are wrong, in the third right, for figures at worst and at best.
        """
        count = 3 if any(None in votes for *_, votes in self.rows) else 1

        @cache  # many cases have equal votes
        def values(label: Vote, votes: tuple[Vote | None, ...]) -> list[T]:
            answers: list[Vote] = present(votes)
            missing = len(votes) - len(answers)
            # Wrong is the opposite of pass or fail; None stands for any wrong verdict.
            wrong = not label if isinstance(label, bool) else None
            filled = answers, [*answers, *[wrong] * missing], [*answers, *[label] * missing]
            return [of(label, side) for side in filled[:count]]

        rows = [values(label, votes[:first_runs]) for _, label, votes in self.rows]
        return [*map(list, zip(*rows, strict=True))] or [[]]

    @cached_property
    def pairs(self) -> list[list[Pair]]:
        """Sides of the label and the majority of each row; (None, None) without an answer."""
        return self.sides(
            lambda label, votes: (label, majority(votes)) if votes else (None, None),
            self.first_runs,
        )


def compare_with_labels(marked: LabelledRuns, grouped: bool = False) -> Iterator[Figure]:
    """Agreement of a metric with human labels.

    Labels that are verdicts are compared with the last verdict of the path, yes or no with pass or
    fail, each by the majority of a case's runs. Numbers are compared with its mean score. Cases
    without a label are left out. A case without a majority counts as wrong. `grouped` cases belong
    to documents or dialogues; numbers are then correlated within each of them, too.
    """
    labels = marked.labels
    if not labels.people:
        return
    names = ("spearman",) if labels.kind == "number" else ("accuracy", "kappa", "baseline")
    if all(run.score is None for run in marked.runs.every()):
        yield from (Figure(name, None, note="no run has a score") for name in names)
        yield from _people_among_themselves(marked, None)
    elif labels.kind == "number":
        yield from _correlations(marked, grouped)
    elif marked.read is None:
        yield from (Figure(name, None, note=_UNCORRECTED["pass"]) for name in names)
    else:
        yield from _verdict_figures(marked)
        yield from _people_among_themselves(marked, marked.read)


def _verdict_figures(marked: LabelledRuns) -> Iterator[Figure]:
    """The figures of labels that are verdicts, or pass or fail."""
    kinds, groups, clusters = marked.labels.kinds, marked.groups, clusters_of(marked.groups)
    sides, first_runs = marked.pairs, marked.first_runs
    subject = "last verdicts" if marked.labels.kind == "verdict" else "pass or fail"
    runs_counted = "runs" if first_runs is None else f"first {counted(first_runs, 'run')}"
    level = f"{subject}: majority of a case's {runs_counted}, cases with a label"
    shares: list[list[VoteShare]] = marked.sides(
        lambda label, votes: (label, {majority(votes): 1.0} if votes else {}), first_runs
    )
    kappa = _kappa(marked, shares, level)

    def over_sides(figure_of_pairs: Callable[[Sequence[Pair]], Figure]) -> Figure:
        return replace(figure_over_sides(map(figure_of_pairs, sides)), items=kappa.items)

    def interval_figure(name: str, of: Callable[..., Interval | Unknown], why: str) -> Figure:
        measure = partial(of, kinds=kinds, groups=clusters)
        return over_sides(lambda pairs: _figure_or_reason(name, measure(pairs), level, why))

    hits = accuracy_and_kappa.accuracy.sums
    yield over_sides(lambda pairs: figure("accuracy", pairs, hits, _NO_LABEL, groups, level))
    single = f"{subject}: single runs, cases with a label"
    rights = marked.sides(lambda label, votes: mean_score([vote == label for vote in votes]))
    yield figure_over_sides(
        figure("single-run-accuracy", side, mean, _NO_LABEL, groups, single) for side in rights
    )
    yield kappa
    yield interval_figure("ac1", accuracy_and_kappa.ac1_interval, marked.why_no_kappa)
    labels = [label for label, _ in sides[0]]
    absent = " or ".join(outcome_name(kind) for kind in kinds if kind not in labels)
    unbalanced = text_if(absent, f"no case is labelled {absent}") if groups else _NO_LABEL
    yield interval_figure(
        "balanced-accuracy", accuracy_and_kappa.balanced_accuracy_interval, unbalanced
    )
    # The baseline is about labels alone.
    pairs = [(label, None) for label in labels]
    base = figure(
        "baseline", pairs, accuracy_and_kappa.majority_baseline.sums, _NO_LABEL, groups, level
    )
    # It chooses the most common label from these labels, so its interval is not that of a share.
    ends = accuracy_and_kappa.baseline_interval(pairs, kinds=kinds, groups=clusters)
    low, high = (None, None) if ends is None else (ends.low, ends.high)
    yield replace(base, low=low, high=high)
    yield from _rates_of_labels(sides, clusters)


def _rates_of_labels(sides: Sequence[Sequence[Pair]], clusters: Groups) -> Iterator[Figure]:
    """Sensitivity and specificity of every label; of two labels only of one, preferably pass."""
    rates = [accuracy_and_kappa.label_rates(side, groups=clusters) for side in sides]
    labels = [*rates[0]]
    if len(labels) == 2:  # the sensitivity of the other is the specificity of this one
        labels = [True] if True in labels else labels[:1]
    for label in labels:
        word = outcome_name(label)
        levels = f"human label “{word}”", f"any human label but “{word}”"
        for index, name in enumerate(("sensitivity", "specificity")):
            yield figure_over_sides(
                figure_of(name, rate[label][index], levels[index]) for rate in rates
            )


def _kappa(
    marked: LabelledRuns, sides: Sequence[Sequence[VoteShare]], level: str, confidence: float = 0.95
) -> Figure:
    """Kappa; its `best` is the lower bound for a judge without an error on these cases."""
    groups = marked.groups
    clustered = clusters_of(groups) is not None

    def kappa_of(side: Sequence[VoteShare]) -> Figure:
        pairs, weights, names = list[Pair](), list[float](), list[Hashable]()
        for (label, shares), group in zip(side, groups, strict=True):
            pairs += [(label, verdict) for verdict in shares]
            weights += shares.values()
            names += [group] * len(shares)
        kappa = accuracy_and_kappa.kappa_interval(
            pairs, kinds=marked.labels.kinds, groups=names if clustered else None, weights=weights,
            level=confidence,
        )  # fmt: skip
        return _figure_or_reason("kappa", kappa, level, marked.why_no_kappa)

    ideal = kappa_of([(label, {label: 1.0} if shares else {}) for label, shares in sides[0]])
    answered = {group for (_, shares), group in zip(sides[0], groups, strict=True) if shares}
    return replace(figure_over_sides(map(kappa_of, sides)), items=len(answered), best=ideal.low)


def _figure_or_reason(name: str, result: Interval | Unknown, level: str, why: str) -> Figure:
    """The figure of a result; `why` is its note if the result is undefined."""
    reasoned = isinstance(result, Unknown) and result.reason != "undefined"
    return figure_of(name, result, level, "" if reasoned else why)


def confusion_table(marked: LabelledRuns) -> ConfusionTable | None:
    """The confusion table, by the majority of a case's runs; None if labels are numbers."""
    if marked.read is None:
        return None
    table = accuracy_and_kappa.Confusion(marked.pairs[0])
    counts = tuple(map(tuple, table.counts.astype(int).tolist()))
    return ConfusionTable(tuple(map(outcome_name, table.kinds)), counts)


def _people_among_themselves(marked: LabelledRuns, read: Reader | None) -> Iterator[Figure]:
    """Agreement of people, and the ceiling for a judge; nothing with one label per case."""
    runs, labels = marked.runs, marked.labels
    several = {case: row for case, row in labels.people.items() if len(row) > 1}
    if labels.kind == "number" or not several:
        return
    rows, groups = [*map(list, several.values())], [*map(runs.group, several)]
    yield figure(
        "people-agreement", rows, accuracy_and_kappa.people_agreement.sums, "too few cases", groups
    )
    yield figure_of("ceiling", accuracy_and_kappa.label_ceiling(rows, groups=groups))
    if read is None:
        return
    shares, groups, votes = list[float | None](), list[Hashable](), runs.by_case(read)
    for case in filter(runs.cases.__contains__, several):
        answers = present(votes[case])
        verdict = majority(answers)
        # The share of the people whose label is the majority of the runs
        share = statistics.fmean(label == verdict for label in several[case])
        shares.append(share if answers else None)
        groups.append(runs.group(case))
    yield figure("person-accuracy", shares, mean, "", groups)


def _correlations(marked: LabelledRuns, grouped: bool) -> Iterator[Figure]:
    """Correlation of mean scores with labels, over all cases and within groups."""
    pairs, groups = list[tuple[float, float]](), list[Hashable]()
    by_group = defaultdict[Hashable, list[tuple[float | None, float | None]]](list)
    for case in marked.runs.cases:
        if case in marked.by_case and (scores := marked.runs.scores(case)):
            pairs.append((statistics.fmean(scores), float(marked.by_case[case])))
            groups.append(marked.runs.group(case))
            by_group[groups[-1]].append(pairs[-1])
    ranked = {"spearman": correlation_and_bias.spearman, "kendall": correlation_and_bias.kendall}
    for name, of in ({"pearson": correlation_and_bias.pearson} | ranked).items():

        def statistic(items: Sequence[tuple[float, float]], of: Any = of) -> float | None:
            value: float | None = of(*zip(*items, strict=True)) if items else None
            return value

        yield figure(name, pairs, statistic, "labels or scores are all equal", groups)
    why = "no group has two cases that differ in score and in label"
    for name, of in ranked.items() if grouped else ():
        # Whether the judge orders the cases of one document or dialogue as people do
        measure = partial(correlation_and_bias.group_correlation.sums, of=of)
        yield figure(f"within-group-{name}", list(by_group.values()), measure, why)


# All cases by the human standard, from labels of some.

UNSTATED = "the labelled cases may not be a random sample; if they are, add --labels-random"
_UNCORRECTED = {
    "number": "the scale of the labels is not stated: --label-scale 1,5",
    "pass": "the metric has no threshold, so no case passes or fails",
    "verdict": "labels name verdicts, not pass or fail",
}


def corrected_figures(
    marked: LabelledRuns, random: bool, known: Mapping[str, Sequence[float]]
) -> Iterator[CorrectedFigure]:
    """The pass rate, or the mean score on the scale of the labels, by the human standard.

    Nothing if people labelled every case. `random` says that the labelled cases are a random sample
    of all. `known` are numbers of every case, such as its length, in which no such sample differs.
    """
    runs, threshold, labels = marked.runs, marked.threshold, marked.labels
    marks: list[Any] = [*map(marked.by_case.get, runs.cases)]
    if not labels.people or None not in marks:
        return
    traits = {name: [values[case] for case in runs.cases] for name, values in known.items()}
    groups = [*map(runs.group, runs.cases)] if runs.groups else None
    sample: dict[str, Any] = {"random": random, "groups": groups, "known": traits}
    name = "corrected-mean-score" if labels.kind == "number" else "corrected-pass-rate"
    if labels.kind == "number" and labels.scale is not None:
        (low, high), scaled = labels.scale, list[float | None]()
        for value in map(mean_score, runs.by_case(score).values()):
            scaled.append(None if value is None else low + value * (high - low))
        result = corrected_mean(scaled, marks, limits=labels.scale, **sample)
    elif labels.kind == "pass" and threshold is not None:
        verdicts = [*map(majority, runs.by_case(outcome(threshold)).values())]
        result = corrected_rate(verdicts, marks, **sample)
    else:
        if random or labels.kind == "number":
            yield CorrectedFigure(Figure(name, None, note=_UNCORRECTED[labels.kind]))
        return
    yield _corrected_figure(name, result, random)


def _corrected_figure(name: str, result: Corrected | Unknown, random: bool) -> CorrectedFigure:
    if not isinstance(result, Unknown):
        return CorrectedFigure(
            figure_of(name, result.estimate), result.judge, figure_of(name, result.labels_alone),
            result.labelled, result.judged, result.worth, result.telling,
        )  # fmt: skip
    why = ""
    if result.reason == "labels are not random":
        # Nobody stated that they are, or the cases differ in what is known of them.
        differ = f"the labelled cases differ from the others in their {result.detail}"
        why = f"{differ} by more than chance, {NOT_RANDOM}" if random else UNSTATED
    return CorrectedFigure(figure_of(name, result, note=why), labelled=result.items)


def why_not_all(marked: LabelledRuns, corrected: Iterable[CorrectedFigure], random: bool) -> str:
    """Reason to doubt figures about all cases; empty without labels, or if labels tell about all.

    Labels on a part of the cases tell about all only if the part was drawn at random. That has to
    be stated, and nothing that is known of the cases may contradict it.
    """
    if not marked.labels.people or marked.runs.cases.keys() <= marked.by_case.keys():
        return ""
    notes = (figure.estimate.note for figure in corrected if figure.estimate.value is None)
    return next((note for note in notes if NOT_RANDOM in note), "") if random else UNSTATED


def withhold_intervals(votes: Voted, why: str) -> Voted:
    """The votes; with a reason `why`, without the intervals of agreement and kappa."""
    if not why:
        return votes
    agreement, kappa = votes.agreement.without_interval(why), votes.kappa.without_interval(why)
    return replace(votes, agreement=agreement, kappa=kappa)


# Figures of the first screen: one vote, and majorities.

MOST_VOTES = 7


def votes_of_runs(marked: LabelledRuns, unlike: Unlike, confidence: float) -> Iterator[Voted]:
    """Flip rate, accuracy and kappa of the metric with 1 vote, with 3, and so on.

    Majorities have at most half of the runs, since flips show in two majorities of different runs.
    If runs are not repeats, as `unlike` says, 1 vote is all. `confidence` is that of intervals.
    """
    runs = marked.runs
    table = runs.table(marked.read or outcome(marked.threshold))
    # Half of the cases or more have so many results.
    seen = statistics.median_low([len(row) - row.count(None) for row in table] or [0])
    groups = runs.rows if runs.groups else None
    most = 1 if unlike.first or len(set(runs.sizes)) > 1 else min(max(seen // 2, 1), MOST_VOTES)
    for votes in range(1, most + 1, 2):
        level = f"majorities of {votes}" if votes > 1 else "single runs"
        rate = None
        if seen > 1:
            rate = flips_of_votes(table, votes, groups=groups, level=confidence)
        flips = figure_of("flip-rate", rate, level, "every case ran once; use --times 2 or more")
        yield Voted(votes, unlike.without(flips), *_agreement(marked, votes, level, confidence))


def _agreement(marked: LabelledRuns, votes: int, level: str, confidence: float) -> list[Figure]:
    """Accuracy and kappa of majorities of `votes` runs of each case.

    They are means over all subsets of that many runs, so no choice of runs matters.
    """
    if marked.read is None:
        why = "labels are numbers, and not pass or fail" if marked.labels.people else "no labels"
        return [Figure(name, None, note=why) for name in ("accuracy", "kappa")]
    groups, accuracies = marked.groups, list[Figure]()
    sides = marked.sides(lambda label, row: (label, majority_odds(row, votes)))
    for side in sides:
        hits = [shares.get(label, 0.0) if shares else None for label, shares in side]
        accuracies.append(figure("accuracy", hits, mean, _NO_LABEL, groups, level, confidence))
    return [figure_over_sides(accuracies), _kappa(marked, sides, level, confidence)]


def stated_probabilities(marked: LabelledRuns) -> tuple[list[Figure], list[Calibration]]:
    """Brier score, calibration error and table of each event that should be as likely as stated."""
    figures, tables = list[Figure](), list[Calibration]()
    for name, event, rows in (
        ("repeat", "the next run takes the same path", [*_same_paths(marked.runs)]),
        ("label", "the human label agrees", [*_equal_labels(marked)]),
    ):
        if not rows:
            continue
        groups = [group for group, *_ in rows]
        pairs = [(chance, happened) for _, chance, happened in rows]
        figures.append(
            figure(f"{name}-brier", pairs, correlation_and_bias.brier_score.sums, "", groups)
        )
        error = correlation_and_bias.debiased_calibration_error(pairs, cases=groups)
        figures.append(figure_of(f"{name}-calibration-error", error))
        bins = tuple(row for row in correlation_and_bias.reliability(pairs) if row.answers)
        tables.append(Calibration(event, bins))
    return figures, tables


def _same_paths(runs: Runs) -> Iterator[tuple[Hashable, float, bool]]:
    """Group, stated probability, and whether the next run took the same path; one row per run."""
    for case, settings in runs.cases.items():
        for row in settings.values():
            scored = [run for run in row if run.score is not None]
            if len(scored) < 2:
                continue
            # The next run after the last is the first.
            for run, following in zip(scored, (*scored[1:], scored[0]), strict=True):
                if run.stated is not None:
                    yield runs.group(case), run.stated, run.path == following.path


def _equal_labels(marked: LabelledRuns) -> Iterator[tuple[Hashable, float, bool]]:
    """Group, stated probability (or weighted score), and whether the label agrees."""
    kind, read = marked.labels.kind, marked.read
    for case, run in marked.runs.each():
        label, group = marked.by_case.get(case), marked.runs.group(case)
        if label is None or run.score is None:
            continue
        if run.weighted and kind == "pass":
            yield group, run.score, bool(label)
        elif run.stated is not None and read is not None:
            yield group, run.stated, read(run) == label
