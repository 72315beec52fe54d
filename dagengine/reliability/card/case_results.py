"""What a card says of single cases: their results, where people differ, and segments of them."""

from __future__ import annotations

import statistics
from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache
from itertools import compress
from random import Random

from dagengine.reliability.card.label_agreement import LabelledRuns
from dagengine.reliability.card.measures import figure_of, measure_of
from dagengine.reliability.card.repeats import outcome, score
from dagengine.reliability.card.types import CaseSpread, Disagreement, Figure, Outcomes, Segment
from dagengine.reliability.human_labels import Vote, outcome_name
from dagengine.reliability.observed_runs import Runs
from dagengine.reliability.statistics.intervals import LEAST_GROUPS, jackknife
from dagengine.reliability.statistics.paired_comparisons import holm
from dagengine.reliability.statistics.stability import deviation_of, majority
from dagengine.reliability.statistics.sums import Sums, difference, present, quotient, stats, total
from dagengine.test_case import TestCase, case_label

_MOST_VALUES = 8  # of a field; one with more makes no segments
_LEAST_CASES = 5  # in a segment, and outside of it
_LEAST_RESULTS = 10  # with unsupported verdicts, and without, to tell how they differ


def spread(runs: Runs, cases: Sequence[TestCase]) -> list[CaseSpread]:
    """Scores by case, the largest deviation first."""
    spreads: list[CaseSpread] = []
    for number in runs.cases:
        scores = runs.scores(number)
        counts = tuple(sorted(Counter(scores).items()))
        deviation = deviation_of(tuple(scores)) if len(scores) > 1 else 0.0
        spreads.append(CaseSpread(case_label(cases[number], number), counts, deviation))
    return sorted(spreads, key=lambda case: -case.deviation)


def outcomes(marked: LabelledRuns, cases: int) -> Outcomes:
    """The result of every case under one setting, in the order of the cases and as text."""
    runs, labels, read_vote = marked.runs, marked.labels, marked.read
    by_case = runs.by_case(score)
    # All digits, as flips and passing are compared by them. Many runs have equal scores.
    as_text = cache(lambda value: "-" if value is None else repr(float(value)).removesuffix(".0"))
    scores = tuple(" ".join(map(as_text, by_case.get(case, ()))) for case in range(cases))
    if not labels.people or (read_vote is None and labels.kind != "number"):
        return Outcomes(scores)  # nobody labelled, or pass and fail need a threshold
    people = [*map(labels.by_case.get, range(cases))]
    labelled = tuple("" if label is None else outcome_name(label) for label in people)
    if read_vote is None or not cases:
        return Outcomes(scores, labels=labelled)
    votes, compare = runs.by_case(read_vote), cache(_comparison)
    right, hits, verdicts = zip(*(
        compare(votes.get(case, ()), label, marked.first_runs) for case, label in enumerate(people)
    ), strict=True)  # fmt: skip
    return Outcomes(scores, right, "".join(hits), labelled, verdicts)


def _comparison(
    votes: Sequence[Vote | None], label: Vote | None, first_runs: int | None
) -> tuple[str, str, str]:
    """The `right`, the `hits` and the verdict that `Outcomes` has for the votes of a case."""
    if not votes:
        return "", "-", ""
    answers = present(votes[:first_runs])
    most = majority(answers)
    if label is None:
        return "", "-", outcome_name(most)
    right = "".join("-" if vote is None else "01"[vote == label] for vote in votes)
    hit = "01"[most == label] if answers else "-"
    return right, hit, outcome_name(most)


def disagreements(marked: LabelledRuns, cases: Sequence[TestCase]) -> list[Disagreement]:
    """The cases where people and judge differ, those first where the judge is surest."""
    differing: list[Disagreement] = []
    for case, label, row in marked.rows:
        wrong = Counter(vote for vote in row if vote not in (None, label))
        answers = len(row) - row.count(None)
        if 2 * wrong.total() < answers or not answers:
            continue
        ((most, count),) = wrong.most_common(1)
        ends = (run.path[-1] for run, vote in zip(marked.runs.of(case), row, strict=True)
                if run.path and vote == most)  # fmt: skip
        node, verdict = next(ends, ("", ""))
        path = f"{node} → {outcome_name(verdict)}" if node else ""
        differing.append(Disagreement(case_label(cases[case], case), outcome_name(label),
                                      outcome_name(most), count, answers, path))  # fmt: skip
    return sorted(differing, key=lambda differs: -differs.votes / differs.runs)


def segments(
    hits: Mapping[int, bool], cases: Sequence[TestCase], group: Callable[[int], Hashable]
) -> list[Segment]:
    """Segments in which the judge is right less often: long answers, tags, fields with few values.

    `hits` says of each labelled case whether the judge is right. Only what differs by more than
    chance is a segment (p < 0.05 after Holm's correction for all that was tested). Cases of one
    group count as one: a group is right if at least half of its cases are.
    """
    tested: list[Segment] = []
    for name, members in _parts(cases, hits):
        outside = set(hits) - members
        if min(len(members), len(outside)) < _LEAST_CASES:
            continue
        right, size = _right_and_all(group, hits, members)
        outside_right, outside_size = _right_and_all(group, hits, outside)
        table = [[right, size - right], [outside_right, outside_size - outside_right]]
        p = float(stats.fisher_exact(table, "less").pvalue)
        tested.append(Segment(name, right, size, outside_right, outside_size, p))
    ps = holm([part.p for part in tested])
    return [replace(part, p=p) for part, p in zip(tested, ps, strict=True) if p < 0.05]


def _right_and_all(
    group: Callable[[int], Hashable], hits: Mapping[int, bool], chosen: Iterable[int]
) -> tuple[int, int]:
    """The number of groups that are right, and of all groups, of the chosen cases."""
    groups = defaultdict[Hashable, list[bool]](list)
    for case in chosen:
        groups[group(case)].append(hits[case])
    return sum(2 * sum(row) >= len(row) for row in groups.values()), len(groups)


def _parts(cases: Sequence[TestCase], hits: Mapping[int, bool]) -> Iterator[tuple[str, set[int]]]:
    """The parts of the labelled cases that may become segments, each with its name."""
    lengths = {case: len(getattr(cases[case], "actual_output", None) or "") for case in hits}
    if len({*lengths.values()}) > 1:
        middle = statistics.median(lengths.values())
        yield f"answers over {middle:.0f} characters", {c for c, n in lengths.items() if n > middle}
    values = defaultdict[str, defaultdict[str, set[int]]](lambda: defaultdict(set))
    for case in hits:
        for tag in getattr(cases[case], "tags", None) or ():
            values[f"tag {tag}"][""].add(case)  # a tag is there or not: its only value has no name
        for name, value in (getattr(cases[case], "additional_metadata", None) or {}).items():
            if isinstance(value, str | bool):
                values[name][str(value)].add(case)
    for name, parts in values.items():
        if len(parts) <= _MOST_VALUES:
            for value, members in parts.items():
                yield f"{name} {value}".strip(), members


def unsupported_effect(marked: LabelledRuns) -> tuple[list[Figure], list[str]]:
    """The accuracy of results that rest on an unsupported verdict, minus that of the others.

    The text says it in words. Both lists are empty if no result rests on such a verdict. The
    interval is the jackknife of the difference, over cases or their groups, with t for those of the
    smaller side. It is missing where a side has few of them, no error or no hit.
    """
    sides = [_accuracy_of_results(marked, unsupported) for unsupported in (True, False)]
    totals = [total(side.items) for side in sides]
    right, plain_right = (int(sums["right"]) for sums in totals)
    results, plain = (int(sums["results"]) for sums in totals)
    if not results:
        return [], []
    words = (
        "Results that rest on an unsupported verdict (no quote of it is there) are right in "
        f"{right} of {results}, the others in {plain_right} of {plain}"
    )
    if min(results, plain) < _LEAST_RESULTS:
        undecided = f"there are fewer than {_LEAST_RESULTS} results on one side"
        measure = figure_of("unsupported-effect", None, note=undecided)
        return [measure], [f"{words}. Whether they are worse is not known: {undecided}."]
    effect, groups = difference(*sides), marked.groups
    # The groups that have a result on the first side, on the second, and on any.
    sizes = [len(set(compress(groups, sums.adds))) for sums in (*sides, effect)]
    level = measure_of("unsupported-effect").level
    measure = Figure("unsupported-effect", effect.value(), items=sizes[-1], level=level)
    # A side that is all right, or all wrong, hides its variance.
    mixed = 0 < right < results and 0 < plain_right < plain
    if mixed and min(sizes) >= LEAST_GROUPS:
        limits = jackknife(effect, groups=groups, telling=min(sizes))
        if limits is not None:
            measure = replace(measure, low=max(limits[0], -1.0), high=min(limits[1], 1.0))
    return [measure], [f"{words}."]


def _accuracy_of_results(marked: LabelledRuns, unsupported: bool) -> Sums:
    """The share of right results among those that rest on an unsupported verdict, or on none."""
    items: list[dict[str, int]] = []
    for case, label, votes in marked.rows:
        hits = [vote == label for run, vote in zip(marked.runs.of(case), votes, strict=True)
                if vote is not None and any(run.unsupported.values()) is unsupported]  # fmt: skip
        items.append({"right": sum(hits), "results": len(hits)} if hits else {})
    return quotient(items, "right", "results")


def next_labels(marked: LabelledRuns) -> list[int]:
    """The cases to label next, ten at most: half drawn at random, half whose runs differ most.

    Only the random half says how right the judge is over all cases; the others find its mistakes.
    """
    # By case without a label, the share of runs that have its commonest outcome.
    shares = {case: max(Counter(row).values()) / len(row)
              for case, row in marked.runs.by_case(outcome(marked.threshold)).items()
              if case not in marked.by_case}  # fmt: skip
    # The draw is always the same: nobody can repeat it until they like the sample.
    sample = Random(0).sample([*shares], min(5, len(shares)))
    split = sorted(shares.keys() - {*sample}, key=lambda case: (shares[case], case))
    return [*sample, *(case for case in split[:5] if shares[case] < 1)]
