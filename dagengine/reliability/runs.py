"""Observations of repeated questions as the runs that they come from, and cases as their groups.

The one place that knows what observations look like.
"""

from __future__ import annotations

import itertools
import math
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import chain, islice
from typing import Any, TypeVar

import networkx as nx

from dagengine.data.case_numbers import read_digest
from dagengine.errors import InputError
from dagengine.reliability.attribution import Repetition
from dagengine.reliability.counterfactual import Counterfactual, NoReplyError, Reply
from dagengine.reliability.labels import verdict_named
from dagengine.reliability.observations import Condition, Observation
from dagengine.reliability.statistics.sums import present
from dagengine.results import OutcomeKind, Verdict
from dagengine.results.passing import passes
from dagengine.test_case import TestCase, read_field

T = TypeVar("T")
Path = tuple[tuple[str, Verdict], ...]


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
    asked_alone: Mapping[int, Mapping[Condition, Sequence[tuple[str, Reply]]]] = field(
        default_factory=dict
    )
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

    def repetitions(self, setting: Condition) -> dict[int, list[Repetition]]:
        """The runs with a score under one setting, as attribution takes them."""
        return {
            case: [
                Repetition(run.replies, run.score)
                for run in settings.get(setting, ())
                if run.score is not None
            ]
            for case, settings in self.cases.items()
        }

    def alone(self, setting: Condition) -> dict[int, Sequence[tuple[str, Reply]]]:
        """Answers of nodes outside of runs under one setting, as attribution takes it.

        Seeds may be pooled in the setting: then what was asked under any of them belongs to it.
        """
        return {
            case: [reply for under, row in rows.items()
                   if setting in (under, replace(under, seed=None)) for reply in row]
            for case, rows in self.asked_alone.items()
        }  # fmt: skip


def runs_of(
    observations: Iterable[Observation],
    replay: Counterfactual,
    groups: Mapping[int, Hashable] | None = None,
) -> Runs:
    """The runs of one metric; `groups` name the cases that depend on each other."""
    name = replay.spec.name
    collected = _Collected(replay)
    for seen in observations:
        if seen.metric == name:
            collected.take(seen)
    collected.complete()
    cases = {
        case: _seeds_as_repeats(
            {at: [row[sample] for sample in sorted(row)] for at, row in settings.items()}
        )
        for case, settings in sorted(collected.runs.items())
    }
    return Runs(name, cases, groups or {}, collected.alone)


class _Collected:
    """Observations of one metric, put with the run that they come from."""

    def __init__(self, replay: Counterfactual) -> None:
        self._replay = replay
        self._speakers = {speaker.node for speaker in replay.speakers}
        self.runs: dict[int, dict[Condition, dict[int, Run]]] = {}
        self.alone: dict[int, dict[Condition, list[tuple[str, Reply]]]] = {}
        self._bare: list[Run] = []
        self._settings: dict[Condition, Condition] = {}

    def take(self, seen: Observation) -> None:
        setting = self._settings.get(seen.condition)
        if setting is None:
            setting = self._settings[seen.condition] = replace(seen.condition, sample=0)
        if seen.alone:
            if reply := self._reply(seen):
                self.alone.setdefault(seen.case, {}).setdefault(setting, []).append(reply)
            return
        samples = self.runs.setdefault(seen.case, {}).setdefault(setting, {})
        run = samples.setdefault(seen.condition.sample, Run(seen.condition))
        if seen.node:
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
        else:
            run.score, run.raw, run.outcome = seen.score, seen.raw, seen.outcome
            turns = ((node, self._meant(seen, node, verdict)) for node, verdict in seen.path)
            run.path = tuple((node, verdict) for node, verdict in turns if verdict is not None)
            run.weighted = seen.weighted
            if seen.outcome is OutcomeKind.OK:
                self._bare.append(run)

    def complete(self) -> None:
        """Add what a table left out: the row of the only node, scores that follow from verdicts."""
        alike: dict[Reply, dict[str, Reply]] = {}  # there are few answers, of many runs
        asked = (*self._speakers,)
        for run in self._bare:
            if not run.replies and not run.asked and len(self._speakers) == 1:
                # The metric's result stands for that of its only node; a score decides nothing
                (node,) = self._speakers
                decides = bool(self._replay.verdicts_of(node))
                if run.path or (run.score is not None and not decides):
                    reply = Reply(run.path[-1][1]) if run.path else Reply(score=run.score)
                    run.replies = alike.setdefault(reply, {node: reply})
                    run.asked = asked
            if run.score is None:
                # Replies that lead to a node which has none lead to no score.
                with suppress(NoReplyError):
                    run.score = self._replay.score(run.replies)
            if run.score is None and not run.replies and [node for node, _ in run.path] == [""]:
                run.score = self.pass_score(run)

    def pass_score(self, run: Run) -> float:
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
        named = node or (next(iter(self._speakers)) if len(self._speakers) == 1 else "")
        verdicts = self._replay.verdicts_of(named)
        if verdict in verdicts or not verdicts:
            return verdict
        meant = verdict_named(verdict, verdicts)
        if meant is None:
            raise InputError(
                f"case {seen.case}, run {seen.condition.sample}: {named!r} has no verdict "
                f"{verdict!r}; it has {', '.join(map(repr, verdicts))}"
            )
        return meant


def _seeds_as_repeats(settings: Mapping[Condition, list[Run]]) -> Mapping[Condition, list[Run]]:
    """If a case ran once under each seed, the seeds are repeats: together they are one setting."""
    if any(len(runs) > 1 for runs in settings.values()):
        return settings
    merged = defaultdict[Condition, list[Run]](list)
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
        if all(value is None for value in values):
            raise InputError(f"no case has a value at `{field}`, so cases cannot be grouped by it")
        for number, value in enumerate(values):
            if value is not None:
                ties.add_edge(number, ("field", str(value)))
    for shared, numbers in _sharing(cases, observations, reads).items():
        ties.add_edges_from((number, shared) for number in numbers)
    groups: dict[int, Hashable] = {}
    for component in nx.connected_components(ties):
        members = sorted(member for member in component if isinstance(member, int))
        if len(members) > 1:
            groups |= dict.fromkeys(members, f"group of case {members[0]}")
    return groups


def _sharing(
    cases: Sequence[TestCase], observations: Iterable[Observation],
    reads: Iterable[Collection[str]],
) -> dict[Hashable, set[int]]:  # fmt: skip
    """The cases that share a question, or all that is read, but for what all of them share."""
    sharing: dict[Hashable, set[int]] = {}
    seen: set[int] = set()
    for row in observations:
        seen.add(row.case)
        if row.question is not None:
            sharing.setdefault((row.metric, row.node, row.question), set()).add(row.case)
    numbers = range(len(cases))
    seen = seen or {*numbers}
    for paths, number in itertools.product(reads, seen.intersection(numbers)):
        sharing.setdefault((*paths, read_digest(cases[number], paths)), set()).add(number)
    # What every case was asked would make all of them one group, and no interval possible.
    return {of: alike for of, alike in sharing.items() if 1 < len(alike) < len(seen)}


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
    seen: set[int] = set()
    asked = defaultdict[tuple[str, str, str], set[int]](set)
    for row in observations:
        seen.add(row.case)
        if row.node and row.question is not None:
            asked[row.node, row.metric, row.question].add(row.case)
    whole = (node for (node, *_), numbers in asked.items() if numbers == seen)
    return tuple(dict.fromkeys(whole)) if len(seen) > 1 else ()
