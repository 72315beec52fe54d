"""What changed between two runs of a metric on one case: a pure function of both results.

A flip is named by the first node, in topological order, whose answer differs. Its cause is the
first of these that holds:

definition  the node, or where its answers lead, was changed (or the metric's threshold was)
evidence    what the node read differs: fields of the case, or what nodes before it wrote
judge       another judge was asked
same        the same question was put to the same judge, and got another answer
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal, cast

from dagengine.record.changes.tree_changes import Trees
from dagengine.results import MetricResult, OutcomeKind, Step
from dagengine.results.passing import State, passes
from dagengine.system.terminal import clip
from dagengine.test_case import read_field

Cause = Literal["definition", "evidence", "judge", "same"]
CAUSES: tuple[Cause, ...] = ("definition", "evidence", "judge", "same")
Kind = Literal["worse", "better", "lost", "gained", "score", "path"]
"""Flips from pass to fail and back, and lost and gained scores. Then other scores on the same side
of the threshold, and another path to the same result."""
FLIPS: tuple[Kind, Kind] = ("worse", "better")

_LONGEST = 80  # characters of an answer in words


@dataclass(frozen=True, slots=True)
class Difference:
    """The first node that answered otherwise, and why; `node` is empty for the metric itself.

    `detail` says more about the cause in words.
    """

    node: str
    old_answer: str
    new_answer: str
    cause: Cause
    detail: str = ""


@dataclass(frozen=True, slots=True)
class CaseChange:
    """One metric on one case, where the two runs do not agree."""

    kind: Kind
    case: str
    old_index: int
    new_index: int
    old_state: State
    new_state: State
    old_score: float | None
    new_score: float | None
    first: Difference


@dataclass(frozen=True, slots=True)
class CaseFields:
    """What two runs judged on one case: the fields of both; None if no texts were kept.

    `same` says that the content is equal, whatever is kept of it.
    """

    same: bool = True
    old: Mapping[str, Any] | None = None
    new: Mapping[str, Any] | None = None

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
    return _by_criterion(step) or _verdicts(step.output) or step.score


def _by_criterion(step: Step | None) -> dict[str, Any] | None:
    """The verdicts on criteria of a rubric, by name, else by text; None for any other step."""
    if step is None or _verdicts(step.output) is None or "criterion" not in step.output[0]:
        return None
    return {item.get("name") or item.get("criterion"): item["verdict"] for item in step.output}


def _verdicts(output: Any) -> list[Any] | None:
    items = output if isinstance(output, list) else []
    are_verdicts = all(isinstance(item, Mapping) and "verdict" in item for item in items)
    return [item["verdict"] for item in items] if items and are_verdicts else None


def answer_words(step: Step | None) -> str:
    """A node's answer in words."""
    if step is None:
        return "not asked"
    if step.outcome != OutcomeKind.OK:
        return str(step.outcome).replace("_", " ")
    if step.verdict is not None:
        return str(step.verdict)
    verdicts = _verdicts(step.output)
    if verdicts is not None:
        return clip(", ".join(map(str, verdicts)), _LONGEST)
    return "an answer" if step.score is None else f"{step.score:.4g}"


def compare_results(
    trees: Trees,
    old: MetricResult,
    new: MetricResult,
    *,
    case: str,
    places: tuple[int, int],
    fields: CaseFields,
) -> CaseChange | None:
    """Compare two results of one metric on one case; None when every answer is the same.

    `places` are the indices of the case in both runs.
    """
    states = (old.state, new.state)
    first = _Walk(trees, old, new, fields).first()
    same_result = old.score == new.score and states[0] == states[1]
    if first is None and same_result:
        return None
    if not same_result and _by_settings(trees, old, new):
        first = Difference("", _result(old), _result(new), "definition", trees.settings)
    if first is None:
        first = _Walk(trees, old, new, fields).last()
    kind = "path" if same_result else _kind(*states)
    return CaseChange(kind, case, *places, *states, old.score, new.score, first)


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
    return old.threshold is not None and passes(new.score, old.threshold) == old.success


class _Walk:
    """The steps of two results side by side, in topological order."""

    def __init__(
        self, trees: Trees, old: MetricResult, new: MetricResult, fields: CaseFields
    ) -> None:
        self._trees, self._old, self._new, self._fields = trees, old, new, fields
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
            differs = self._difference(failure.node)
            return replace(
                differs, old_answer=_ending_of(self._old), new_answer=_ending_of(self._new)
            )
        shared = [name for name in self._names() if name in self._before and name in self._after]
        changed = [name for name in shared if name in self._trees.redefined]
        if changed:
            return self._redefinition(changed[-1])
        if not shared:
            return Difference("", _result(self._old), _result(self._new), "same")
        return self._difference(shared[-1])

    def _names(self) -> Iterator[str]:
        yield from self._trees.order
        for name in (*self._before, *self._after):
            if name not in self._trees.known:
                yield name

    def _redefinition(self, name: str) -> Difference:
        old, new = answer_words(self._before.get(name)), answer_words(self._after.get(name))
        return Difference(name, old, new, "definition", self._trees.redefined[name])

    def _difference(self, name: str) -> Difference:
        before, after = self._before.get(name), self._after.get(name)
        cause, detail = self.cause(name)
        old, new = answer_words(before), answer_words(after)
        olds, news = _by_criterion(before), _by_criterion(after)
        if olds is not None and news is not None:
            differing = [key for key in {**olds, **news} if olds.get(key) != news.get(key)]
            old, new = (
                clip("; ".join(f"{key}: {by.get(key, 'not asked')}" for key in differing), _LONGEST)
                for by in (olds, news)
            )
        return Difference(name, old, new, cause, detail)

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
            return "" if self._fields.same else "the case changed"
        node = self._trees.node(name)
        inputs = self._trees.inputs(name)
        fields = self._fields.changes_among(tuple(node.reads))
        if fields:
            return f"{' and '.join(fields)} changed"
        if not node.reads and not inputs and not self._fields.same:
            return "the case changed"
        wrote = [source for source in inputs if self.wrote(source)]
        return f"{' and '.join(wrote)} gave something else" if wrote else ""

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
        if shares[0] == shares[1]:
            return f"votes {shares[0]}, both times"
        return f"votes {shares[0]}, then {shares[1]}"


def _ending_of(result: MetricResult) -> str:
    failure = result.failure
    return _result(result) if failure is None else str(failure.kind).replace("_", " ")
