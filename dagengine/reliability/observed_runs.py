"""Observations of repeated questions as the runs that they come from, and cases as their groups.

The one place that knows what observations look like.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cache
from itertools import chain, islice, product, repeat
from operator import attrgetter
from typing import Any, TypeVar

import networkx as nx

from dagengine.data.case_lookup import read_digest
from dagengine.errors import InputError
from dagengine.reliability.counterfactual import Counterfactual, NoReplyError, Reply
from dagengine.reliability.human_labels import verdict_named
from dagengine.reliability.observations import Condition, Observation
from dagengine.reliability.statistics.sums import present
from dagengine.results import OutcomeKind, Verdict
from dagengine.results.pass_rules import passes
from dagengine.test_case import TestCase, read_field

T = TypeVar("T")
Path = tuple[tuple[str, Verdict], ...]
Answers = Sequence[tuple[str, Reply]]
"""What nodes answered, each after the name of its node."""

_NOTHING: dict[str, Any] = {}


def _none() -> dict[str, Any]:
    """Return what stands for all that a run does not have; nobody writes into it."""
    return _NOTHING


@dataclass(slots=True)
class Run:
    """One metric on one case under one condition.

    `outcome` is what became of it, None if no row says so. `sure` contains the probability of
    each verdict that a judge gave, None if it is not known. `weighted` says that the score is an
    expectation over such probabilities. `lists` holds the verdicts about the items of lists, by
    node; `keys` and `gains` are those of the criteria of a rubric, as in `Observation`.
    `unsupported` says, by node that quotes, whether a verdict of it has no support.
    """

    condition: Condition
    score: float | None = None
    path: Path = ()
    replies: dict[str, Reply] = field(default_factory=_none)
    asked: tuple[str, ...] = ()
    raw: str | None = None
    sure: dict[str, float | None] = field(default_factory=_none)
    weighted: bool = False
    outcome: OutcomeKind | None = None
    lists: dict[str, tuple[Verdict, ...]] = field(default_factory=_none)
    unsupported: dict[str, bool] = field(default_factory=_none)
    keys: dict[str, tuple[tuple[str, ...], ...]] = field(default_factory=_none)
    gains: dict[str, tuple[float | None, ...]] = field(default_factory=_none)

    @property
    def stated(self) -> float | None:
        """The probability of the path by the judge's tokens: the product of its verdicts'."""
        chances = [self.sure[node] for node, _ in self.path if node in self.sure]
        values = present(chances)
        return math.prod(values) if chances and len(values) == len(chances) else None

    def meets(self, threshold: float) -> bool | None:
        """Return whether the score meets a threshold; None without a score."""
        return passes(self.score, threshold)


@dataclass(frozen=True, slots=True)
class Runs:
    """All runs of one metric: by case, then by setting (a condition without its sample).

    `groups` names the group of each case that depends on others; other cases stand alone.
    """

    metric: str
    cases: Mapping[int, Mapping[Condition, Sequence[Run]]]
    groups: Mapping[int, Hashable] = field(default_factory=dict)
    asked_alone: Mapping[int, Mapping[Condition, Answers]] = field(default_factory=dict)
    _tables: dict[Callable[[Run], Any], list[tuple[Any, ...]]] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )

    def group(self, case: int) -> Hashable:
        """Independent unit: the group of a case, or the case itself."""
        return self.groups.get(case, case)

    def under(self, setting: Condition) -> Runs:
        """The runs under one setting; cases without any are left out."""
        only = {
            case: {setting: settings[setting]}
            for case, settings in self.cases.items()
            if setting in settings
        }
        return replace(self, cases=only)

    def each(self) -> Iterator[tuple[int, Run]]:
        """Every run, after the number of its case."""
        for case, settings in self.cases.items():
            for runs in settings.values():
                yield from ((case, run) for run in runs)

    def of(self, case: int) -> list[Run]:
        """The runs of one case, under all settings."""
        return [*chain.from_iterable(self.cases[case].values())]

    def scores(self, case: int) -> list[float]:
        """The scores of one case; runs without a score are left out."""
        return present(run.score for run in self.of(case))

    def every(self) -> Iterator[Run]:
        """Every run of every case."""
        return (run for _, run in self.each())

    @property
    def settings(self) -> tuple[Condition, ...]:
        """The settings, in the order in which they were met."""
        return tuple(dict.fromkeys(chain.from_iterable(self.cases.values())))

    @property
    def rows(self) -> list[Hashable]:
        """The group of each row of a table."""
        return [self.group(case) for case, settings in self.cases.items() for _ in settings]

    @property
    def sizes(self) -> list[int]:
        """Numbers of runs of cases under a setting, each number once, the lowest first."""
        return sorted({len(row) for settings in self.cases.values() for row in settings.values()})

    def table(self, of: Callable[[Run], T]) -> list[tuple[T, ...]]:
        """Table of what `of` reads: one row per case and setting, a column per sample."""
        if of not in self._tables:
            series = (runs for settings in self.cases.values() for runs in settings.values())
            self._tables[of] = [tuple(map(of, runs)) for runs in series]
        return self._tables[of]

    def by_case(self, of: Callable[[Run], T]) -> dict[int, tuple[T, ...]]:
        """Values that `of` reads of all runs, by the number of the case."""
        rows = iter(self.table(of))
        return {case: tuple(chain.from_iterable(islice(rows, len(settings))))
                for case, settings in self.cases.items()}  # fmt: skip

    def repetitions(self, setting: Condition) -> Mapping[int, list[Run]]:
        """The runs with a score under one setting, by the number of the case."""
        repeated = defaultdict[int, list[Run]](list)
        for case, run in self.under(setting).each():
            if run.score is not None:
                repeated[case].append(run)
        return repeated

    def alone(self, setting: Condition) -> Mapping[int, Answers]:
        """Answers of nodes outside of runs under one setting, by the number of the case.

        Seeds may be pooled in the setting: then what was asked under any of them belongs to it.
        """
        answers: dict[int, Answers] = {}
        for case, rows in self.asked_alone.items():
            own = (row for at, row in rows.items() if setting in (at, replace(at, seed=None)))
            answers[case] = [*chain.from_iterable(own)]
        return answers


def runs_of(
    observations: Iterable[Observation],
    replay: Counterfactual,
    groups: Mapping[int, Hashable] | None = None,
) -> Runs:
    """The runs of one metric; `groups` name the cases that depend on each other."""
    collected = _Collected(replay)
    for seen in observations:
        if seen.metric == replay.spec.name:
            collected.take(seen)
    collected.complete()
    cases: dict[int, Mapping[Condition, list[Run]]] = {}
    for case, settings in sorted(collected.runs.items()):
        in_order = {at: [*map(row.__getitem__, sorted(row))] for at, row in settings.items()}
        cases[case] = seeds_as_repeats(in_order)
    return Runs(replay.spec.name, cases, groups or {}, collected.alone)


class _Collected:
    """Observations of one metric, put with the run that they come from."""

    def __init__(self, replay: Counterfactual) -> None:
        self._replay = replay
        self._speakers = tuple(speaker.node for speaker in replay.speakers)
        self._only = self._speakers[0] if len(self._speakers) == 1 else ""
        self.runs: dict[int, dict[Condition, dict[int, Run]]] = {}
        self.alone: dict[int, dict[Condition, list[tuple[str, Reply]]]] = {}
        self._bare: list[Run] = []
        self._alike: dict[Reply, dict[str, Reply]] = {}  # few answers, of many runs
        self._setting_of = cache(attrgetter("setting"))  # few conditions, of many observations

    def take(self, seen: Observation) -> None:
        setting = self._setting_of(seen.condition)
        if seen.alone:
            if reply := self._reply(seen):
                self.alone.setdefault(seen.case, {}).setdefault(setting, []).append(reply)
            return
        samples = self.runs.setdefault(seen.case, {}).setdefault(setting, {})
        run = samples.setdefault(seen.condition.sample, Run(seen.condition))
        if seen.node:
            self._take_node(run, seen)
            return
        run.score, run.raw, run.outcome = seen.score, seen.raw, seen.outcome
        turns = ((node, self._meant(seen, node, verdict)) for node, verdict in seen.path)
        run.path = tuple((node, verdict) for node, verdict in turns if verdict is not None)
        run.weighted = seen.weighted
        if seen.outcome is OutcomeKind.OK:
            self._bare.append(run)

    def _take_node(self, run: Run, seen: Observation) -> None:
        node = self._replay.name_of(seen.node)
        if node in self._replay.asking:
            run.asked += (node,)
            if seen.verdict is not None:
                run.sure = {**run.sure, seen.node: seen.confidence}
            if seen.items:
                run.lists = {**run.lists, node: seen.items}
            if seen.keys:
                run.keys = {**run.keys, node: seen.keys}
                run.gains = {**run.gains, node: seen.gains}
            if seen.unsupported is not None:
                run.unsupported = {**run.unsupported, node: seen.unsupported}
        if reply := self._reply(seen):
            run.replies = {**run.replies, node: reply[1]}

    def complete(self) -> None:
        """Add what a table left out: the row of the only node, scores that follow from verdicts."""
        for run in self._bare:
            if self._only and not run.replies and not run.asked:
                self._take_only_node(run)
            if run.score is None:
                # Replies that lead to a node which has none lead to no score.
                with suppress(NoReplyError):
                    run.score = self._replay.score(run.replies)
            if run.score is None and not run.replies and run.path and not run.path[0][0]:
                run.score = self._pass_score(run)

    def _take_only_node(self, run: Run) -> None:
        """Let the metric's result stand for that of its only node; a score decides nothing."""
        decides = bool(self._replay.verdicts_of(self._only))
        if run.path or (run.score is not None and not decides):
            reply = Reply(run.path[-1][1]) if run.path else Reply(score=run.score)
            run.replies = self._alike.setdefault(reply, {self._only: reply})
            run.asked = self._speakers

    def _pass_score(self, run: Run) -> float:
        """The score of a metric of several nodes if only pass (1) or fail (0) is known."""
        verdict = run.path[0][1]
        passed = verdict if isinstance(verdict, bool) else verdict_named(verdict, (True, False))
        if passed is None:
            raise InputError(
                f"run {run.condition.sample}: a metric passes or fails, or has a score, but this "
                f"is {verdict!r}. If it is the verdict of a node, name the node in a column `node`"
            )
        return float(passed)

    def _reply(self, seen: Observation) -> tuple[str, Reply] | None:
        """Reply of a node, where it decides or scores and could be read."""
        node = self._replay.name_of(seen.node)
        if node not in self._speakers or seen.outcome is not OutcomeKind.OK:
            return None
        return node, Reply(self._meant(seen, seen.node, seen.verdict), seen.score)

    def _meant(self, seen: Observation, node: str, verdict: Verdict | None) -> Verdict | None:
        """A verdict as its node names it: tables from elsewhere have other words for yes and no.

        Raises InputError for a verdict of a table that its node does not have.
        """
        if verdict is None or seen.raw is not None or seen.question is not None:
            return verdict
        named = node or self._only
        verdicts = self._replay.verdicts_of(named)
        if verdict in verdicts or not verdicts:
            return verdict
        meant = verdict_named(str(verdict), verdicts)
        if meant is None:
            raise InputError(
                f"case {seen.case}, run {seen.condition.sample}: {named!r} has no verdict "
                f"{verdict!r}; it has {', '.join(map(repr, verdicts))}"
            )
        return meant


def seeds_as_repeats(settings: Mapping[Condition, list[T]]) -> Mapping[Condition, list[T]]:
    """If a case ran once under each seed, the seeds are repeats: together they are one setting."""
    if any(len(runs) > 1 for runs in settings.values()):
        return settings
    merged = defaultdict[Condition, list[T]](list)
    for setting, runs in settings.items():
        merged[replace(setting, seed=None)] += runs
    return settings if len(merged) == len(settings) else dict(merged)


# Cases that depend on each other: those of one group, equal ones, those that share a question.


def clusters(
    cases: Sequence[TestCase], observations: Iterable[Observation], field: str | None = None,
    reads: Iterable[Collection[str]] = (),
) -> dict[int, Hashable]:  # fmt: skip
    """The group of every case that has company, by the number of the case.

    Cases with an equal value at `field` (a dotted path) are together. So are cases that are equal
    in all that a metric reads (`reads`: the paths of each metric), and cases on which a node asked
    one and the same question, as it was then asked once for all of them. What is asked once for all
    cases there are (the steps of G-Eval) ties none together. Raises InputError for a field that no
    case has.
    """
    ties: nx.Graph[Hashable] = nx.Graph()
    if field is not None:
        values = [read_field(case, field) for case in cases]
        if not present(values):
            raise InputError(f"no case has a value at `{field}`, so cases cannot be grouped by it")
        for number, value in enumerate(values):
            if value is not None:
                ties.add_edge(number, ("field", str(value)))
    seen, sharing = _cases_by_question(observations)
    numbers = range(len(cases))
    seen = seen or {*numbers}
    for paths, number in product(reads, seen.intersection(numbers)):
        sharing[(*paths, read_digest(cases[number], paths))].add(number)
    for shared, alike in sharing.items():
        # What every case was asked would make all of them one group, and no interval possible.
        if 1 < len(alike) < len(seen):
            ties.add_edges_from(zip(alike, repeat(shared)))
    groups: dict[int, Hashable] = {}
    for component in nx.connected_components(ties):
        members = sorted(member for member in component if isinstance(member, int))
        if len(members) > 1:
            groups |= dict.fromkeys(members, f"group of case {members[0]}")
    return groups


def _cases_by_question(
    observations: Iterable[Observation],
) -> tuple[set[int], defaultdict[tuple[str, ...], set[int]]]:
    """All cases, and those that share a question, by its metric, node and digest."""
    seen, sharing = set[int](), defaultdict[tuple[str, ...], set[int]](set)
    for row in observations:
        seen.add(row.case)
        if row.question is not None:
            sharing[row.metric, row.node, row.question].add(row.case)
    return seen, sharing


def alike_but_for_blanks(cases: Sequence[TestCase], reads: Collection[str]) -> int:
    """Number of texts read by a metric that differ from another in blanks only."""
    exact = {read_digest(case, reads): case for case in cases}.values()
    counts = Counter(read_digest(case, reads, blanks=False) for case in exact)
    return sum(count for count in counts.values() if count > 1)


def constant_questions(observations: Iterable[Observation]) -> tuple[str, ...]:
    """The nodes that asked one and the same question for all cases, if there are several.

    Such an answer (the steps of G-Eval) moves all scores of a run alike. That makes no two cases
    more dependent than any others, and no interval over cases shows it.
    """
    seen, sharing = _cases_by_question(observations)
    whole = (node for (_, node, _), numbers in sharing.items() if node and numbers == seen)
    return tuple(dict.fromkeys(whole)) if len(seen) > 1 else ()
