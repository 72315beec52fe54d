"""What changed between two runs of a metric: on one case, and summed up by node and cause.

A flip is named by the first node, in topological order, whose answer differs. Its cause is the
first of these that holds:

definition  the node, or where its answers lead, was changed (or the metric's threshold was)
evidence    what the node read differs: fields of the case, or what nodes before it wrote
judge       another judge was asked
same        the same question was put to the same judge, and got another answer
"""

from __future__ import annotations

import math
from array import array
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, MutableSequence, Sequence
from dataclasses import dataclass, field, replace
from itertools import filterfalse
from operator import itemgetter
from typing import Any, Literal, cast

from dagengine.record.changes.tree_changes import Trees
from dagengine.record.run_json_types import Manifest
from dagengine.results import CaseResult, MetricResult, OutcomeKind, Step
from dagengine.results.pass_rules import STATES, State, passes
from dagengine.system.terminal_text import clip
from dagengine.test_case import read_field

Cause = Literal["definition", "evidence", "judge", "same"]
CAUSES: tuple[Cause, ...] = ("definition", "evidence", "judge", "same")
Kind = Literal["worse", "better", "lost", "gained", "score", "path"]
"""Flips from pass to fail and back, and lost and gained scores. Then other scores on the same side
of the threshold, and another path to the same result."""
FLIPS: tuple[Kind, Kind] = ("worse", "better")

_LONGEST = 80  # characters of an answer in words
LISTED = 10_000
"""Changes that flip nothing are counted all, and kept up to this number per metric."""
_QUIET: tuple[Kind, Kind] = ("score", "path")
_MISSING = float("nan")


@dataclass(frozen=True, slots=True)
class Difference:
    """The first node that answered otherwise, and why; `node` is empty for the metric itself.

    `answer` is the old and the new one, `detail` says more about the cause in words.
    """

    node: str
    answer: tuple[str, str]
    cause: Cause
    detail: str = ""


@dataclass(frozen=True, slots=True)
class CaseChange:
    """One metric on one case, where the two runs do not agree; pairs are old and new."""

    kind: Kind
    case: str
    index: tuple[int, int]
    state: tuple[State, State]
    score: tuple[float | None, float | None]
    first: Difference


@dataclass(frozen=True, slots=True)
class CasePair:
    """One case of two runs: the fields that each judged (None if no texts were kept), its name
    and its indices.

    `same` says that the content is equal, whatever is kept of it.
    """

    same: bool = True
    old: Mapping[str, Any] | None = None
    new: Mapping[str, Any] | None = None
    name: str = ""
    index: tuple[int, int] = (0, 0)

    def changes_among(self, paths: tuple[str, ...]) -> list[str]:
        """Those of some field paths whose values differ."""
        if self.same:
            return []
        if self.old is None or self.new is None:
            return list(paths)
        old, new = cast(Any, self.old), cast(Any, self.new)  # mappings are read, too
        return [path for path in paths if read_field(old, path) != read_field(new, path)]


def answer_of(step: Step | None) -> Any:
    """Decision or score of a node, as data to compare; None if it only prepared something.

    The verdicts of a list are its answer; a step that failed answers with its kind of failure.
    """
    if step is None:
        return None
    if step.outcome != OutcomeKind.OK:
        return (str(step.outcome),)
    if step.verdict is not None:
        return (type(step.verdict), step.verdict)
    return _by_criterion(step) or _verdicts(step) or step.score


def _by_criterion(step: Step | None) -> dict[str, Any]:
    """The verdicts on criteria of a rubric, by name, else by text; none for any other step."""
    if step is None or not _verdicts(step) or "criterion" not in step.output[0]:
        return {}
    return {item.get("name") or item.get("criterion"): item["verdict"] for item in step.output}


def _verdicts(step: Step) -> list[Any]:
    """The verdicts on the items of a list; none for any other step."""
    try:
        return list(map(itemgetter("verdict"), step.output))
    except (TypeError, LookupError):
        return []


def answer_words(step: Step | None) -> str:
    """A node's answer in words."""
    if step is None:
        return "not asked"
    if step.outcome != OutcomeKind.OK:
        return str(step.outcome).replace("_", " ")
    if step.verdict is not None:
        return str(step.verdict)
    if verdicts := _verdicts(step):
        return clip(", ".join(map(str, verdicts)), _LONGEST)
    return "an answer" if step.score is None else f"{step.score:.4g}"


def compare_results(
    trees: Trees, old: MetricResult, new: MetricResult, case: CasePair
) -> CaseChange | None:
    """Compare two results of one metric on one case; None when every answer is the same."""
    walk = _Walk(trees, old, new, case)
    first = walk.first()
    scores = (old.score, new.score)
    same_result = old.score == new.score and old.state == new.state
    if first is None and same_result:
        return None
    if not same_result and _by_settings(trees, old, new):
        first = Difference("", (_result(old), _result(new)), "definition", trees.settings)
    kind = "path" if same_result else _kind(old.state, new.state)
    states = (old.state, new.state)
    return CaseChange(kind, case.name, case.index, states, scores, first or walk.last())


def _kind(old: State, new: State) -> Kind:
    if old != new and "no_score" in (old, new):
        return "lost" if new == "no_score" else "gained"
    if {old, new} == {"passed", "failed"}:
        return "better" if new == "passed" else "worse"
    return "score"


def _result(result: MetricResult) -> str:
    """Score and state in words."""
    if result.score is None:
        return "no score"
    score = f"{result.score:.4g}"
    return score if result.state == "scored" else f"{score}, {result.state}"


def _by_settings(trees: Trees, old: MetricResult, new: MetricResult) -> bool:
    """Whether the results would agree had the metric's own settings stayed as they were."""
    if not trees.settings or old.score is None or new.score is None:
        return False
    if old.raw_score == new.raw_score:
        return True
    moved = old.state != new.state and old.threshold is not None
    return moved and passes(new.score, old.threshold) == old.success


class _Walk:
    """The steps of two results side by side, in topological order."""

    def __init__(self, trees: Trees, old: MetricResult, new: MetricResult, case: CasePair) -> None:
        self._trees, self._old, self._new, self._case = trees, old, new, case
        self._before = {trees.renamed.get(step.node, step.node): step for step in old.steps}
        self._after = new.by_node()

    def first(self) -> Difference | None:
        """The first node whose answer differs; None when all answers are the same."""
        changed = ""  # the last node of both walks whose definition changed
        for name in self._names():
            before, after = self._before.get(name), self._after.get(name)
            if answer_of(before) == answer_of(after):
                if before is not None and after is not None and name in self._trees.redefined:
                    changed = name
            elif before is not None and after is not None:
                return self._difference(name)
            # One walk did not come to the node, although no answer before it differs. If that walk
            # broke off, the node tells nothing. Otherwise a definition before it led elsewhere.
            elif (self._old if before is None else self._new).failure is None:
                is_cause = name in self._trees.redefined or not changed
                return self._difference(name) if is_cause else self._redefinition(changed)
        return None

    def last(self) -> Difference:
        """Difference of scores although all answers are the same."""
        failure = self._new.failure or self._old.failure
        if failure is not None:
            # A failure that no step shows, for instance a missing field.
            ends = _ending_of(self._old), _ending_of(self._new)
            return replace(self._difference(failure.node), answer=ends)
        both = self._before.keys() & self._after.keys()
        shared = list(filter(both.__contains__, self._names()))
        if changed := list(filter(self._trees.redefined.__contains__, shared)):
            return self._redefinition(changed[-1])
        if not shared:
            return Difference("", (_result(self._old), _result(self._new)), "same")
        return self._difference(shared[-1])

    def _names(self) -> Iterator[str]:
        yield from self._trees.order
        yield from filterfalse(self._trees.known.__contains__, (*self._before, *self._after))

    def _redefinition(self, name: str) -> Difference:
        answer = answer_words(self._before.get(name)), answer_words(self._after.get(name))
        return Difference(name, answer, "definition", self._trees.redefined[name])

    def _difference(self, name: str) -> Difference:
        before, after = self._before.get(name), self._after.get(name)
        answer = answer_words(before), answer_words(after)
        olds, news = _by_criterion(before), _by_criterion(after)
        if olds and news:
            differing = [key for key in {**olds, **news} if olds.get(key) != news.get(key)]
            answer = _criteria_words(olds, differing), _criteria_words(news, differing)
        return Difference(name, answer, *self.cause(name))

    def cause(self, name: str) -> tuple[Cause, str]:
        # In the order of what explains the most. A node that was changed may answer otherwise to
        # the same evidence, and the same judge may answer otherwise to other evidence. Only when
        # all of that is equal is it the judge that does not repeat itself.
        if name in self._trees.redefined:
            return "definition", self._trees.redefined[name]
        if evidence := self.evidence(name):
            return "evidence", evidence
        if name in self._trees.rejudged:
            return "judge", ""
        return "same", self.votes(name)

    def evidence(self, name: str) -> str:
        """Changes of the evidence of a node, in words; empty when that is the same."""
        if name not in self._trees.known:
            return "" if self._case.same else "the case changed"
        node = self._trees.node(name)
        inputs = self._trees.inputs(name)
        if fields := self._case.changes_among(node.reads):
            return f"{' and '.join(fields)} changed"
        if not node.reads and not inputs and not self._case.same:
            return "the case changed"
        wrote = " and ".join(filter(self.wrote, inputs))
        return wrote and f"{wrote} gave something else"

    def wrote(self, name: str) -> bool:
        """Whether a node handed on something else, even if only another reason."""
        before, after = self._before.get(name), self._after.get(name)
        if before is None or after is None:
            return before is not after
        return bool(before.output != after.output)

    def votes(self, name: str) -> str:
        """Certainty of the panels, where nodes had one."""
        shares = []
        for step in (self._before.get(name), self._after.get(name)):
            if step is None or not step.votes or step.verdict is None:
                return ""
            shares.append(f"{step.agreeing} of {len(step.votes)}")
        old, new = shares
        return f"votes {old}, both times" if old == new else f"votes {old}, then {new}"


def _criteria_words(verdicts: Mapping[str, Any], criteria: Sequence[str]) -> str:
    """The verdicts on some criteria, in words."""
    words = (f"{name}: {verdicts.get(name, 'not asked')}" for name in criteria)
    return clip("; ".join(words), _LONGEST)


def _ending_of(result: MetricResult) -> str:
    failure = result.failure
    return _result(result) if failure is None else str(failure.kind).replace("_", " ")


@dataclass
class MetricComparison:
    """One metric in two runs.

    `states` count the cases by how they ended before and now. `first` counts flips by the first
    node that differs (empty: the metric's own settings) and by cause. `changes` hold every flip,
    every score that was lost or gained, and the first 10,000 of all else, in the order of the new
    run.
    """

    trees: Trees
    states: Counter[tuple[State, State]] = field(default_factory=Counter)
    kinds: Counter[Kind] = field(default_factory=Counter)
    first: Counter[tuple[str, Cause]] = field(default_factory=Counter)
    changes: list[CaseChange] = field(default_factory=list)
    _scores: tuple[MutableSequence[float], MutableSequence[float]] = field(
        default_factory=lambda: (array("d"), array("d"))
    )
    _quiet: int = 0

    @property
    def name(self) -> str:
        return self.trees.new.name

    @property
    def cases(self) -> int:
        """Cases that both runs judged."""
        return self.states.total()

    @property
    def flips(self) -> int:
        """Cases that passed and fail now, or the other way round."""
        return sum(self.kinds[kind] for kind in FLIPS)

    @property
    def same(self) -> int:
        """Cases with the same result, those that came to it another way among them."""
        return self.cases - self.kinds.total() + self.kinds["path"]

    @property
    def agrees(self) -> bool:
        """Return whether every answer on every common case is the same."""
        return not self.kinds

    @property
    def scored(self) -> int:
        """Cases that have a score in both runs."""
        return sum(count for states, count in self.states.items() if "no_score" not in states)

    def passed(self) -> tuple[int, int]:
        """Of the cases that have a score in both runs those that passed before, and now."""
        lost, gained = self.states["passed", "no_score"], self.states["no_score", "passed"]
        old, new = self._in("passed")
        return old - lost, new - gained

    def without_score(self) -> tuple[int, int]:
        """Cases without a score before, and now."""
        return self._in("no_score")

    def _in(self, state: State) -> tuple[int, int]:
        counts = self.states
        return sum(counts[state, at] for at in STATES), sum(counts[at, state] for at in STATES)

    def means(self) -> tuple[float | None, float | None]:
        """The means before and now, from 0 to 1, of the cases that have a score in both runs."""
        pairs = [pair for pair in zip(*self._scores, strict=True) if not any(map(math.isnan, pair))]
        if not pairs:
            return None, None
        # Not `sum`, which rounds in another way before Python 3.12.
        old, new = map(math.fsum, zip(*pairs, strict=True))
        return old / len(pairs), new / len(pairs)

    def pairs(self) -> list[tuple[float | None, float | None]]:
        """The scores of every case before and now; None if there is none."""
        sides = ([None if math.isnan(x) else x for x in scores] for scores in self._scores)
        return list(zip(*sides, strict=True))

    def by_cause(self) -> dict[Cause, int]:
        """Flips by cause; all causes are there."""
        flips = dict.fromkeys(CAUSES, 0)
        for (_, cause), count in self.first.items():
            flips[cause] += count
        return flips

    def add_same(self, result: MetricResult, cases: int) -> None:
        """Count cases of both runs that went alike in both, and ended with this result."""
        self.states[result.state, result.state] += cases
        self._add_scores(result.score, result.score, cases=cases)

    def add_unlisted(self, old: MetricResult, new: MetricResult) -> bool:
        """Count a case that has no change, or none that is kept; else False, and nothing counted.

        The results may lack their texts: they tell the kind of a change, and not its cause.
        """
        change = compare_results(self.trees, old, new, CasePair())
        if change is not None:
            if change.kind not in _QUIET or self._quiet < LISTED:
                return False
            self.kinds[change.kind] += 1
            self._quiet += 1
        self._count(old, new)
        return True

    def _count(self, old: MetricResult, new: MetricResult) -> None:
        self.states[old.state, new.state] += 1
        self._add_scores(old.score, new.score)

    def _add_scores(self, *pair: float | None, cases: int = 1) -> None:
        for scores, score in zip(self._scores, pair, strict=True):
            scores.extend([_MISSING if score is None else score] * cases)

    def add(self, old: MetricResult, new: MetricResult, case: CasePair) -> None:
        """Count one case of both runs."""
        self._count(old, new)
        change = compare_results(self.trees, old, new, case)
        if change is None:
            return
        self.kinds[change.kind] += 1
        if change.kind in FLIPS:
            self.first[change.first.node, change.first.cause] += 1
        if change.kind in _QUIET:
            self._quiet += 1
            if self._quiet > LISTED:
                return
        self.changes.append(change)


@dataclass
class RunComparison:
    """Two runs: metrics that both have, and which cases are whose.

    `same_cases` are equal in content, `renamed` except for the name, `changed` are known by name
    or input and have another content. `added` and `removed` are the names of metrics. `new` and
    `missing` are the first 10,000 names of cases that only one run has; `counts` contains their
    numbers.
    """

    old: Manifest
    new: Manifest
    metrics: list[MetricComparison]
    added: list[str]
    removed: list[str]
    same_cases: int = 0
    renamed: int = 0
    changed: int = 0
    new_cases: list[str] = field(default_factory=list)
    missing_cases: list[str] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)

    @property
    def cases(self) -> int:
        """Cases that both runs judged."""
        return self.same_cases + self.renamed + self.changed

    @property
    def agrees(self) -> bool:
        """Return whether both runs say the same of the same cases, by the same trees."""
        return (
            all(metric.agrees and not any(metric.trees.changes()) for metric in self.metrics)
            and not (self.added or self.removed)
            and not self.counts.total()
        )

    def add(
        self, old: CaseResult, new: CaseResult, case: CasePair, metrics: Iterable[MetricComparison]
    ) -> None:
        """Count one case of both runs under some metrics."""
        before, after = old.by_metric(), new.by_metric()
        named = replace(case, name=new.case, index=(old.index, new.index))
        for metric in metrics:
            if (name := metric.name) in before and name in after:
                metric.add(before[name], after[name], named)

    def add_unpaired(self, name: str, *, new: bool) -> None:
        """Count a case that only one run has."""
        self.counts["new" if new else "missing"] += 1
        names = self.new_cases if new else self.missing_cases
        if len(names) < LISTED:
            names.append(name)


def start_comparison(old: Manifest, new: Manifest, only: str | None = None) -> RunComparison:
    """A comparison without a case yet; `only` is the metric to look at."""
    before, after = (
        {metric.name: metric for metric in run.metrics if only in (None, metric.name)}
        for run in (old, new)
    )
    judges = [[judge.identity for judge in run.judges] for run in (old, new)]
    names = filter(before.__contains__, after)
    return RunComparison(
        old,
        new,
        [MetricComparison(Trees(before[name], after[name], *judges)) for name in names],
        added=list(filterfalse(before.__contains__, after)),
        removed=list(filterfalse(after.__contains__, before)),
    )
