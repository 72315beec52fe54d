"""Best of n: which of several candidates has the highest mean score, and what more scores buy."""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import compress, filterfalse
from operator import attrgetter
from pathlib import Path
from typing import Any, Literal

from dagengine.errors import InputError
from dagengine.graph.graph import Metric
from dagengine.reliability.card.card_maker import keys_of, named_setting, own_rules
from dagengine.reliability.card.case_results import segments
from dagengine.reliability.card.differences import comparable_pairs, contrast_of, correct_together
from dagengine.reliability.card.label_agreement import MOST_VOTES, UNSTATED, withhold_intervals
from dagengine.reliability.card.measures import figure, figure_of
from dagengine.reliability.card.repeats import Unlike, flips_between_settings, not_repeats
from dagengine.reliability.card.types import (
    BestOf,
    Contest,
    Contrast,
    Disagreement,
    Figure,
    JudgeCard,
    MetricCard,
    Needs,
    Outcomes,
    Setting,
    SettingCard,
    Voted,
)
from dagengine.reliability.counterfactual import Counterfactual
from dagengine.reliability.fingerprint import bind
from dagengine.reliability.human_labels import Given, HumanLabels
from dagengine.reliability.observations import Condition
from dagengine.reliability.observed_runs import Run, Runs, clusters
from dagengine.reliability.statistics.intervals import clusters_of
from dagengine.reliability.statistics.majority_votes import Picks, best_of, flips_of_votes
from dagengine.reliability.statistics.paired_comparisons import compare_repeated
from dagengine.reliability.statistics.stability import majority
from dagengine.reliability.statistics.sums import mean, numpy
from dagengine.reliability.verdict_cases import Contests
from dagengine.test_case import TestCase, case_label

Ties = Literal["wrong", "share"]
WITHIN = 0.01
"""How far short of all scores that were seen fewer of them may be, to be enough."""

_RULES = (
    "The best candidate is that with the highest mean of its first k scores. The mean is that of "
    "the scores that there are; a case counts if each of its candidates has one.",
    "Agreement is by one rule for ties: {rule}.",
    "Scores under different settings are never pooled.",
)
_RULE_WORDS: Mapping[Ties, str] = {
    "wrong": "a tie is wrong",
    "share": "a tie is shared (right as often as a draw among the best)",
}


def contest_card(
    contests: Contests, metric: Metric, cases: Sequence[TestCase], judges: Sequence[str], *,
    labels: str | Path | Mapping[int, Any] | None = None, labels_random: bool = False,
    groups: str | None = None, ties: Ties = "share", within: float = WITHIN,
    needs: Needs | None = None, progress: Callable[[str], None] | None = None,
) -> JudgeCard:  # fmt: skip
    """The card of a judge that scores several candidates of each case.

    `labels` names the right candidate of a case, as `HumanLabels` reads them; `ties` is the rule
    for ties, `within` (0 to 1) how far short fewer scores may be to be enough. All else is as in
    `make_card`. Raises InputError for a label that is no candidate of its case.
    """
    replay = Counterfactual(metric)
    together = clusters(cases, (), groups, [replay.plan.fields])
    people = {} if labels is None else HumanLabels(cases, labels).by_case
    right = _right(people, contests.names, cases)
    conditions = list(contests.scores)
    sides: list[_Side] = []
    for at, array in contests.scores.items():
        runs_with_scores = numpy.isfinite(array).any((0, 1)).nonzero()[0]
        width = int(runs_with_scores.max(initial=0)) + 1
        name, scores = named_setting(at, conditions), array[:, :, :width]
        sides.append(_Side(name, at, scores, contests.names, right, cases, together, ties))
    runs = Runs(replay.spec.name, {case: {side.at: side.runs[case] for side in sides}
                              for case in range(len(cases))}, together)  # fmt: skip
    made: list[SettingCard] = []
    for side in sides:
        if progress is not None:
            progress(side.name)
        unlike = not_repeats(runs.under(side.at), None)
        made.append(side.card(unlike, 1 - 0.05 / len(sides), within, labels_random))
    compared: list[Contrast] = []
    for earlier, later in comparable_pairs(sides, conditions) if (right >= 0).any() else ():
        count = min(earlier.most, later.most)
        level = f"means of the first {count} scores"
        rates = earlier.by_rule(count), later.by_rule(count)
        contrast = earlier.contrast(*rates, f"best-{ties}", level)
        compared.append(replace(contrast, one=earlier.name, other=later.name))
    flips, differences = tuple(flips_between_settings(runs)), correct_together(compared)
    card = MetricCard(replay.spec.name, 1.0, tuple(made), flips, differences)
    settings = tuple(Setting(side.name, side.at, side.most) for side in sides)
    return JudgeCard(
        bind([metric], judges, cases), max(map(attrgetter("most"), sides)), settings, (card,),
        tuple(keys_of(cases, together)),
        (*(rule.format(rule=_RULE_WORDS[ties]) for rule in _RULES),
         *own_rules(together, len(cases), (), 0)),
        labels_random, None, needs or Needs(),
    )  # fmt: skip


def _right(given: Given, names: Sequence[Sequence[str]], cases: Sequence[TestCase]) -> Any:
    """The number of the right candidate of each case by most of its labels; -1 without one."""
    right = numpy.full(len(names), -1)
    for case, labels in given.items():
        texts = [str(label).removesuffix(".0") for label in labels]
        for stray in filterfalse(names[case].__contains__, texts):
            raise InputError(
                f"the label {stray!r} of the case {case_label(cases[case], case)!r} is none of its "
                f"candidates: {', '.join(names[case])}"
            )
        if (best := majority(texts)) is not None:
            right[case] = names[case].index(best)
    return right


@dataclass(frozen=True)
class _Side:
    """The scores under one setting; the last axis of `array` has the runs."""

    name: str
    at: Condition
    array: Any
    names: Sequence[Sequence[str]]
    right: Any
    cases: Sequence[TestCase]
    together: Mapping[int, Hashable]
    ties: Ties

    @property
    def most(self) -> int:
        """The number of scores of a candidate."""
        return int(self.array.shape[2])

    @cached_property
    def groups(self) -> list[Hashable]:
        cases = range(len(self.names))
        return [*map(self.together.get, cases, cases)]

    @cached_property
    def labelled(self) -> Any:
        """Whether each case has a right candidate."""
        return self.right >= 0

    @cached_property
    def curve(self) -> list[Picks]:
        """Picks of the first 1, 2 … scores."""
        return [self._picks(0, count + 1) for count in range(self.most)]

    def by_rule(self, count: int) -> Any:
        """Right picks of the first so many scores, from 0 to 1, by the rule for ties."""
        return getattr(self.curve[count - 1], self.ties)

    @cached_property
    def singly(self) -> list[Picks]:
        """Picks of each run by itself."""
        return [self._picks(run, run + 1) for run in range(self.most)]

    def _picks(self, start: int, end: int) -> Picks:
        return best_of(self.array[:, :, start:end], self.right)

    @cached_property
    def scores(self) -> Any:
        """Picks of runs by case, as scores from 0 to 1; a tie is a pick of its own, nan is none."""
        picks = numpy.stack([*map(attrgetter("picked"), self.singly)], 1)
        sizes = numpy.array([*map(len, self.names)])[:, None]
        return numpy.where(picks < -1, numpy.nan, (picks + 1) / (1 + sizes))

    @cached_property
    def runs(self) -> list[list[Run]]:
        """Runs by case, with picks as their scores."""
        conditions = [replace(self.at, sample=run) for run in range(self.most)]
        return [[*map(Run, conditions, _none_for_nan(row))] for row in self.scores]

    def card(self, unlike: Unlike, together: float, within: float, random: bool) -> SettingCard:
        """Everything about the setting; `together` is the confidence of what a verdict reads."""
        some = self.labelled.any() and not self.labelled.all()
        why = UNSTATED if some and not random else ""
        made = self._contest(within)
        last = made.curve[-1]
        voted = tuple(
            withhold_intervals(Voted(votes, unlike.without(self._flips(votes, together)),
                           *self._agreement(votes, together)), why)
            for votes in range(1, max(min(self.most // 2, MOST_VOTES), 1) + 1)
        )  # fmt: skip
        kappa = self._agreement(self.most, 0.95)[1]
        return SettingCard(
            self.name, (self._flips(1, 0.95),), (),
            (getattr(last, self.ties), kappa) if self.labelled.any() else (), (),
            sum(map(len, self.names)) / len(self.names),
            more=(last.share if self.ties == "wrong" else last.wrong, last.ties),
            outcomes=self._outcomes(), voted=voted, departures=unlike.shown,
            segments=tuple(segments(self.hits, self.cases, self.groups.__getitem__)),
            disagreements=tuple(sorted(self._disagreements(), key=lambda each: -each.votes)),
            warnings=tuple(filter(None, (unlike.shock,))), contest=made,
        )  # fmt: skip

    def _contest(self, within: float) -> Contest:
        first, last = self.curve[0], self.curve[-1]
        curve = tuple(
            BestOf(
                count, self._figure("best-wrong", picks.wrong, count),
                self._figure("best-share", picks.share, count),
                self._figure("best-ties", picks.tied, count),
                self._gain(self.by_rule(count), self.by_rule(self.most)),
            )
            for count, picks in enumerate(self.curve, 1)
        )  # fmt: skip
        enough = self.most
        # From the top down to the first that is not, so that no luck of many looks makes one.
        while enough > 1 and (high := curve[enough - 2].short.high) is not None and high <= within:
            enough -= 1
        return Contest(
            max(map(len, self.names)), self.ties, within, curve, enough,
            self._gain(first.wrong, last.wrong), self._gain(first.share, last.share),
            self._gain(first.wrong - first.share, last.wrong - last.share),
        )  # fmt: skip

    def _figure(self, name: str, values: Any, count: int, confidence: float = 0.95) -> Figure:
        level = f"means of the first {count} scores" if count > 1 else "the first score"
        scores = _none_for_nan(values)
        return figure(name, scores, mean, "no labels", self.groups, level, confidence)

    def _gain(self, before: Any, after: Any) -> Figure:
        return self.contrast(before, after, "best-gain", "the same cases").difference

    def contrast(self, before: Any, after: Any, name: str, level: str) -> Contrast:
        """The gain of the second over the first, on the same cases."""
        is_paired = ~numpy.isnan(before + after)
        groups = clusters_of([*compress(self.groups, is_paired)])
        pairs = list(zip(before[is_paired].tolist(), after[is_paired].tolist(), strict=True))
        return contrast_of(name, compare_repeated(pairs, groups=groups), level)

    def _flips(self, votes: int, confidence: float) -> Figure:
        """The flip rate of picks by so many other scores; a tie is a pick of its own."""
        starts, rate = range(0, self.most - votes + 1, votes), None
        if len(starts) > 1:
            picks = numpy.stack([self._picks(at, at + votes).picked for at in starts], 1)
            table = [*map(_none_for_nan, numpy.where(picks < -1, numpy.nan, picks))]
            rate = flips_of_votes(table, 1, groups=self.groups, level=confidence)
        why = "every candidate has one score; more are needed"
        return figure_of("best-flip-rate", rate, f"picks by {votes} other scores", why)

    def _agreement(self, votes: int, confidence: float) -> tuple[Figure, Figure]:
        """The share of right picks, and how much of what chance leaves open that is."""
        right = self._figure(f"best-{self.ties}", self.by_rule(votes), votes, confidence)
        chance = sum(1 / len(own) for own in self.names) / len(self.names)
        value, low, high = (None if end is None else (end - chance) / (1 - chance)
                            for end in (right.value, right.low, right.high))  # fmt: skip
        return right, replace(right, name="best-kappa", value=value, low=low, high=high)

    @cached_property
    def hits(self) -> dict[int, bool]:
        """Whether all scores pick the right candidate, by labelled case with scores."""
        hits = self.curve[-1].wrong
        return {int(case): bool(hits[case]) for case in (~numpy.isnan(hits)).nonzero()[0]}

    def _outcomes(self) -> Outcomes:
        """The results of runs by themselves; without labels only equal picks are equal."""
        table = self.scores
        if self.labelled.any():  # shares of right picks
            table = numpy.stack([*map(attrgetter("share"), self.singly)], 1)
        counting = self.labelled | ~self.labelled.any()
        marks = [
            ["-" if math.isnan(value) else f"{value:.3g}" for value in row] * bool(counts)
            for row, counts in zip(table, counting, strict=True)
        ]
        lines = tuple(map(" ".join, marks))
        if not self.hits:
            return Outcomes(lines)
        right = tuple("".join(mark if mark in "-1" else "0" for mark in row) for row in marks)
        marks_of = {None: "-", False: "0", True: "1"}
        hits = map(marks_of.__getitem__, map(self.hits.get, range(len(lines))))
        # Without a right candidate, which is -1, the last name is that of none.
        labels = ((*own, "")[index] for own, index in zip(self.names, self.right, strict=True))
        return Outcomes(lines, right, "".join(hits), tuple(labels))

    def _disagreements(self) -> Iterator[Disagreement]:
        """The cases that all scores get wrong."""
        for case in filterfalse(self.hits.get, self.hits):
            own, pick = self.names[case], int(self.curve[-1].picked[case])
            alike = sum(score == (pick + 1) / (1 + len(own)) for score in self.scores[case])
            judged = "tie" if pick < 0 else own[pick]
            right = own[int(self.right[case])]
            yield Disagreement(
                case_label(self.cases[case], case), right, judged, int(alike), self.most
            )


def _none_for_nan(values: Any) -> list[float | None]:
    return [None if math.isnan(value) else value for value in values.tolist()]
