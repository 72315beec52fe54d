"""Labelling a run: where a person is on a case, and their answers on the way to the file."""

from __future__ import annotations

import secrets
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

from dagengine.errors import InputError
from dagengine.record.labels import Label, LabelFile, Retraction
from dagengine.record.values import MetricRecord
from dagengine.results import CaseResult, MetricResult, OutcomeKind, Step
from dagengine.view.opened import OpenRun
from dagengine.view.planned import planned_cases
from dagengine.view.queues import QUEUES, Queue, is_failed, is_unsure, sample
from dagengine.view.walk import WHOLE, Asked, Passed, Position, Said, Walk

_DIGITS = 12  # of the number of a case
CANNOT_TELL = 0
"""The choice of a person who cannot tell; the others are counted from 1."""


class MovedError(Exception):
    """Raised when a question was answered meanwhile, in another tab or process."""


@dataclass(frozen=True, slots=True)
class At:
    """Who labels what: a person, a metric, and the place of a case."""

    who: str
    metric: str
    place: int


class Labelling:
    """The labels of one run. All methods are safe to call from several threads."""

    def __init__(
        self,
        run: OpenRun,
        file: LabelFile,
        now: Callable[[], datetime] | None = None,
        known: Callable[[str, Queue], Sequence[int] | None] = lambda metric, kind: None,
    ) -> None:
        """`known` gives the places of failed and unsure cases where an index knows them."""
        self._run = run
        self._known = known
        self._file = file
        self._now = now or (lambda: datetime.now(UTC))
        self._lock = threading.Lock()

    def queue(self, metric: str, kind: str, count: int, seed: str) -> list[int]:
        """The places of the cases to label, in their order; at most `count`.

        The queue `one` is the case whose number in the data is `seed`, the queue `planned` all
        cases that `labels plan` has written down, in its order. Raises InputError for a
        kind of queue, a metric, or a case that there is not.
        """
        self._record(metric)
        if kind == "one" and seed.isdecimal() and seed.isascii() and len(seed) <= _DIGITS:
            return [self._run.place_of(int(seed))]
        if kind not in QUEUES:
            raise InputError(f"a queue is one of {', '.join(QUEUES)}, not {kind!r:.40}")
        if kind == "planned":
            return [self._run.place_of(index) for index in planned_cases(self._run.folder, metric)]
        positions: Sequence[int] | None = range(len(self._run))
        if kind != "random":
            positions = self._known(metric, kind)
        if positions is None:  # no index knows: every row has to be read
            wanted = is_failed if kind == "failed" else is_unsure
            positions = [
                position
                for position, row in enumerate(self._run.rows())
                if (result := _result(row, metric)) is not None and wanted(result)
            ]
        return sample(positions, count, seed)

    def position(self, at: At) -> dict[str, Any]:
        """Position of the person on the case, and the page's data for it."""
        with self._lock:
            return self._page_position(at)

    def answer(self, at: At, node: str, choice: int, note: str | None = None) -> dict[str, Any]:
        """Save an answer, and say where that leads.

        `choice` counts the choices from 1 on, 0 is "cannot tell". Returns when the answer is on
        the disk. Raises MovedError when another question is next, InputError for a
        choice that there is not, and when the file cannot be written.
        """
        # One at a time: two tabs of a person must not both answer the question that is next.
        with self._lock:
            asked = self._position(at, self._answers(at)).asked
            if asked is None or asked.node != node:
                raise MovedError
            if not CANNOT_TELL <= choice <= len(asked.choices):
                raise InputError(f"{asked.node or 'the case'} has no answer {choice}")
            answer = None if choice == CANNOT_TELL else asked.choices[choice - 1].answer
            self._file.add(self._labels(at, asked, answer, note))
            return self._page_position(at)

    def undo(self, at: At, back_to: str | None = None) -> dict[str, Any]:
        """Take back the last answer on the case, or all from that of a node on."""
        with self._lock:
            mine = self._mine(at)
            starts = [position for position, label in enumerate(mine) if not label.ends]
            named = [position for position in starts if mine[position].node == back_to]
            # The end of a walk (`ends`) is no answer: it goes with the answer before it.
            start = named[0] if named else starts[-1] if starts else len(mine)
            when = self._when()
            gone = [Retraction(who=at.who, when=when, retracts=label.id) for label in mine[start:]]
            if gone:
                self._file.add(gone)
            return self._page_position(at)

    # What is known.

    def _record(self, metric: str) -> MetricRecord:
        record = next(
            (candidate for candidate in self._run.metrics if candidate.name == metric), None
        )
        if record is None:
            raise InputError(f"the run has no metric {metric!r:.80}")
        return record

    def _row(self, at: At) -> CaseResult:
        if not 0 <= at.place < len(self._run):
            raise InputError(f"there is no case {at.place}: the run has {len(self._run)}")
        return self._run.row(at.place)

    def _mine(self, at: At) -> list[Label]:
        """The person's labels of the case, in their order."""
        case = _key(self._row(at))
        return [
            label
            for label in self._file.labels()
            if (label.who, label.metric, label.case) == (at.who, at.metric, case)
        ]

    def _answers(self, at: At) -> dict[str, Said]:
        """The person's answers by node, except for those to nodes that are no longer the same."""
        record = self._record(at.metric)
        definitions = {node.name: node.hash for node in record.every_node()} | {WHOLE: record.hash}
        return {
            label.node: label.answer
            for label in self._mine(at)
            if not label.ends and definitions.get(label.node) == label.definition
        }

    def _position(self, at: At, said: Mapping[str, Said]) -> Position:
        result = _result(self._row(at), at.metric)
        return Walk(self._record(at.metric), result, said).position()

    # What is written.

    def _labels(self, at: At, asked: Asked, said: Said, note: str | None) -> list[Label]:
        """An answer, and the end of the walk when there is nothing more to ask."""
        row = self._row(at)
        label = Label(
            id=secrets.token_hex(8),
            who=at.who,
            when=self._when(),
            case=_key(row),
            index=row.index,
            name=row.case,
            metric=at.metric,
            node=asked.node,
            definition=asked.hash,
            answer=said,
            note=note or None,
        )
        after = self._position(at, {**self._answers(at), asked.node: said})
        # Without a threshold nothing passes or fails, and the label of the case is its score.
        outcome = after.score if after.success is None else "pass" if after.success else "fail"
        if outcome is None or not after.done:
            return [label]
        if asked.node == WHOLE:
            return [replace(label, outcome=outcome)]
        end = replace(
            label, id=secrets.token_hex(8), node=WHOLE, definition=self._record(at.metric).hash,
            answer=None, outcome=outcome, note=None,
        )  # fmt: skip
        return [label, end]

    def _when(self) -> str:
        return self._now().isoformat(timespec="seconds")

    # What is shown.

    def _page_position(self, at: At) -> dict[str, Any]:
        """The position as the page has it: the judge's answers only when the case is done."""
        answers = self._answers(at)
        position = self._position(at, answers)
        row, asked = self._row(at), position.asked
        return {
            "place": at.place,
            "name": row.case,
            "fields": self._run.fields(at.place),
            "steps": [
                {"node": step.node, "answer": _words(step.answer), "by": step.by}
                for step in position.steps
            ],
            "asked": None
            if asked is None
            else {
                "node": asked.node,
                "kind": asked.kind,
                "question": asked.question,
                "choices": [choice.label for choice in asked.choices],
                "reads": list(asked.reads),
                "evidence": [{"node": name, "output": output} for name, output in asked.evidence],
            },
            "answered": sum(step.by == "person" for step in position.steps),
            "done": position.done,
            "score": position.score,
            "success": position.success,
            "why": position.why,
            "judge": self._judge(at, position) if position.done else None,
        }

    def _judge(self, at: At, position: Position) -> dict[str, Any]:
        """The judge's answers beside those of the person; only for a case that is done."""
        result = _result(self._row(at), at.metric)
        steps = {} if result is None else {step.node: step for step in result.steps}
        mine = {step.node: step for step in position.steps if step.by == "person" and step.node}
        spoken = (
            name
            for name, step in steps.items()
            if step.kind != "code" and (step.verdict is not None or step.score is not None)
        )
        names = dict.fromkeys((*mine, *spoken))
        failure = result and result.failure
        return {
            "score": result and result.score,
            "success": result and result.success,
            "failure": failure and str(failure),
            "nodes": [_both_answers(name, mine.get(name), steps.get(name)) for name in names],
        }


def _both_answers(name: str, own: Passed | None, step: Step | None) -> dict[str, Any]:
    """A node's answer by a person and by the judge; `same` is None where one is silent."""
    judge: Said = None
    if step is not None and step.outcome == OutcomeKind.OK:
        judge = step.score if step.verdict is None else step.verdict
    both = own is not None and own.answer is not None and judge is not None
    return {
        "node": name,
        "you": own and _words(own.answer),
        "judge": step and _words(judge),
        "reason": step and step.reason,
        "same": own.answer == judge if own is not None and both else None,
    }


def _result(row: CaseResult, metric: str) -> MetricResult | None:
    return next((result for result in row.metrics if result.metric == metric), None)


def _key(row: CaseResult) -> str:
    """Key of a case in labels: the hash of its content."""
    return row.hash or f"row {row.index}"


def _words(said: Said) -> str:
    if said is None:
        return "cannot tell"
    return f"{said:.4g}" if isinstance(said, float) else str(said)
