"""Labelling a run: where a person is on a case, and their answers on the way to the file."""

from __future__ import annotations

import re
import secrets
import threading
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from typing import Any

from dagengine.errors import InputError
from dagengine.record.label_file import LABELS, Label, LabelFile, Retraction
from dagengine.results import OutcomeKind, Step
from dagengine.view.compared_runs import OpenRun
from dagengine.view.label_queues import QUEUES, Queue, is_failed, is_unsure, planned_cases, sample
from dagengine.view.next_question import WHOLE, Asked, Passed, Position, Said, Walk, answer_in

NUMBER = re.compile("[0-9]{1,12}")
"""Number of a case, or another whole number in an address."""
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
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
        known: Callable[[str, Queue], Sequence[int] | None] = lambda metric, kind: None,
    ) -> None:
        """`known` gives the places of failed and unsure cases where an index knows them."""
        self._run, self._now, self._known = run, now, known
        self._file = LabelFile(run.folder / LABELS)
        self._lock = threading.Lock()

    def queue(self, metric: str, kind: str, count: int, seed: str) -> list[int]:
        """The places of the cases to label, in their order; at most `count`.

        The queue `one` is the case whose number in the data is `seed`, the queue `planned` all
        cases that `labels plan` has written down, in its order. Raises InputError for a
        kind of queue, a metric, or a case that there is not.
        """
        self._run.metric(metric)
        if kind == "one" and NUMBER.fullmatch(seed):
            return [self._run.place_of(int(seed))]
        if kind not in QUEUES:
            raise InputError(f"a queue is one of {', '.join(QUEUES)}, not {kind!r:.40}")
        if kind == "planned":
            return list(map(self._run.place_of, planned_cases(self._run.folder, metric)))
        positions: Sequence[int] | None = range(len(self._run))
        if kind != "random":
            positions = self._known(metric, kind)
        if positions is None:  # no index knows: every row has to be read
            wanted = is_failed if kind == "failed" else is_unsure
            results = (row.by_metric().get(metric) for row in self._run.rows())
            positions = [at for at, result in enumerate(results) if result and wanted(result)]
        return sample(positions, count, seed)

    def position(self, at: At) -> dict[str, Any]:
        """Position of the person on the case, and the page's data for it."""
        with self._lock:
            return self._walk(at).as_dict()

    def answer(self, at: At, node: str, choice: int, note: str | None = None) -> dict[str, Any]:
        """Save an answer, and say where that leads.

        `choice` counts the choices from 1 on, 0 is "cannot tell". Returns when the answer is on
        the disk. Raises MovedError when another question is next, InputError for a
        choice that there is not, and when the file cannot be written.
        """
        # One at a time: two tabs of a person must not both answer the question that is next.
        with self._lock:
            walk = self._walk(at)
            asked = walk.position().asked
            if asked is None or asked.node != node:
                raise MovedError
            if not CANNOT_TELL <= choice <= len(asked.choices):
                raise InputError(f"{asked.node or 'the case'} has no answer {choice}")
            answer = None if choice == CANNOT_TELL else asked.choices[choice - 1].answer
            self._file.add(walk.answer(asked, answer, note, self._when()))
            return self._walk(at).as_dict()

    def undo(self, at: At, back_to: str | None = None) -> dict[str, Any]:
        """Take back the last answer on the case, or all from that of a node on."""
        with self._lock:
            mine = self._walk(at).mine
            starts = [position for position, label in enumerate(mine) if not label.ends]
            named = [position for position in starts if mine[position].node == back_to]
            # The end of a walk (`ends`) is no answer: it goes with the answer before it.
            start = min(named, default=max(starts, default=len(mine)))
            when = self._when()
            gone = [Retraction(who=at.who, when=when, retracts=label.id) for label in mine[start:]]
            if gone:
                self._file.add(gone)
            return self._walk(at).as_dict()

    def _when(self) -> str:
        return self._now().isoformat(timespec="seconds")

    def _walk(self, at: At) -> _PersonsWalk:
        return _PersonsWalk(at, self._run, self._file.labels())


class _PersonsWalk:
    """What one person said on one case so far, and where that leads."""

    def __init__(self, at: At, run: OpenRun, labels: Sequence[Label]) -> None:
        """Raises InputError for a metric or a case that there is not."""
        self._at, self._metric = at, run.metric(at.metric)
        if not 0 <= at.place < len(run):
            raise InputError(f"there is no case {at.place}: the run has {len(run)}")
        self._row, self._fields = run.row(at.place), run.fields(at.place)
        self._result = self._row.by_metric().get(at.metric)
        # The key of a case in labels is the hash of its content.
        self._case = self._row.hash or f"row {self._row.index}"
        own = (at.who, at.metric, self._case)
        self.mine = [label for label in labels if (label.who, label.metric, label.case) == own]
        # An answer does not hold for a node that is no longer the same.
        hashes = self._metric.definitions()
        self._answers = dict[str, Said]()
        for label in self.mine:
            if not label.ends and hashes.get(label.node) == label.definition:
                self._answers[label.node] = label.answer

    def position(self) -> Position:
        """Position to which the answers lead."""
        return Walk(self._metric, self._result, self._answers).position()

    def answer(self, asked: Asked, said: Said, note: str | None, when: str) -> list[Label]:
        """Take an answer; its label, and the end of the walk when nothing more is to be asked."""
        label = Label(
            id=secrets.token_hex(8),
            who=self._at.who,
            when=when,
            case=self._case,
            index=self._row.index,
            name=self._row.case,
            metric=self._at.metric,
            node=asked.node,
            definition=asked.hash,
            answer=said,
            note=note or None,
        )
        self._answers[asked.node] = said
        after = self.position()
        # Without a threshold nothing passes or fails, and the label of the case is its score.
        outcome = after.score if after.success is None else ("fail", "pass")[after.success]
        if outcome is None or not after.done:
            return [label]
        if asked.node == WHOLE:
            return [replace(label, outcome=outcome)]
        end = replace(
            label, id=secrets.token_hex(8), node=WHOLE, definition=self._metric.hash,
            answer=None, outcome=outcome, note=None,
        )  # fmt: skip
        return [label, end]

    def as_dict(self) -> dict[str, Any]:
        """The position as the page has it: the judge's answers only when the case is done."""
        position = self.position()
        asked, question = position.asked, None
        if asked is not None:
            question = {
                "node": asked.node,
                "kind": asked.kind,
                "question": asked.question,
                "choices": [choice.label for choice in asked.choices],
                "reads": asked.reads,
                "evidence": [{"node": name, "output": output} for name, output in asked.evidence],
            }
        return {
            "place": self._at.place,
            "name": self._row.case,
            "fields": self._fields,
            "steps": [{**asdict(step), "answer": _words(step.answer)} for step in position.steps],
            "asked": question,
            "answered": sum(step.by == "person" for step in position.steps),
            "done": position.done,
            "score": position.score,
            "success": position.success,
            "why": position.why,
            "judge": self._judge(position) if position.done else None,
        }

    def _judge(self, position: Position) -> dict[str, Any]:
        """The judge's answers beside those of the person; only for a case that is done."""
        result = self._result
        steps = {} if result is None else result.by_node()
        mine = {step.node: step for step in position.steps if step.by == "person" and step.node}
        names = dict.fromkeys(mine)
        for name, step in steps.items():
            if step.kind != "code" and answer_in(step) is not None:
                names[name] = None
        failure = result and result.failure
        return {
            "score": result and result.score,
            "success": result and result.success,
            "failure": failure and str(failure),
            "nodes": [_both_answers(name, mine.get(name), steps.get(name)) for name in names],
        }


def _both_answers(name: str, own: Passed | None, step: Step | None) -> dict[str, Any]:
    """A node's answer by a person and by the judge; `same` is None where one is silent."""
    judge = answer_in(step) if step is not None and step.outcome == OutcomeKind.OK else None
    both = own is not None and own.answer is not None and judge is not None
    return {
        "node": name,
        "you": own and _words(own.answer),
        "judge": step and _words(judge),
        "reason": step and step.reason,
        "same": own.answer == judge if own is not None and both else None,
    }


def _words(said: Said) -> str:
    if said is None:
        return "cannot tell"
    return f"{said:.4g}" if isinstance(said, float) else str(said)
