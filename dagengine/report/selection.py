"""The cases of a run that a reader selects: by state, metric, name, answer or word."""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

from dagengine.errors import InputError, did_you_mean
from dagengine.record.changes.tree_changes import every_edge
from dagengine.record.columns import Columns, outline_of
from dagengine.record.run import Run
from dagengine.record.run_files import RunFiles
from dagengine.record.values import Manifest, MetricRecord
from dagengine.report.pictures.graphs import item_verdicts
from dagengine.results.outcomes import OutcomeKind
from dagengine.results.rows import CaseResult, MetricResult, unknown_metric
from dagengine.results.worst import Worst

_INSIDE = " > "  # between a metric under a verdict and its nodes
_COURSES = 50_000  # whose results are kept
_INDEX = re.compile(rb'\{"index": (\d+)')


@dataclass(frozen=True, slots=True)
class Selection:
    """Conditions on the results of a case; one of its results has to meet all of them.

    `failed` (below the threshold) and `no_score` choose states; with both, either state counts.
    `case` is a name or an index. `at` are `Node`, which ran, and `Node=answer`; a kind of failure
    counts as an answer, and so does one for an item of a list. None of `not_at` may hold. `text`
    is somewhere in the case, in what nodes said, or in its name, in upper or lower case.
    """

    failed: bool = False
    no_score: bool = False
    metric: str | None = None
    case: str | None = None
    at: tuple[str, ...] = ()
    not_at: tuple[str, ...] = ()
    text: str | None = None

    def check(self, manifest: Manifest) -> None:
        """Raise InputError for a metric or a node that the run does not have."""
        metrics = [metric.name for metric in manifest.metrics]
        if self.metric is not None and self.metric not in metrics:
            raise unknown_metric(self.metric, metrics)
        nodes = {name for metric in manifest.metrics for name in _nodes(metric)}
        for at in (*self.at, *self.not_at):
            if at not in nodes and not any(at.startswith(f"{node}=") for node in nodes):
                name = at.rpartition("=")[0] or at
                hint = did_you_mean(name, sorted(nodes)) or f"it had {', '.join(sorted(nodes))}"
                raise InputError(f"the run had no node {name!r:.80}; {hint}")
            _require_answer(at, manifest)

    def takes(self, row: CaseResult, mentioned: bool) -> bool:
        """Return whether a row is among them; `mentioned`: its case's texts hold `text`."""
        if self.case is not None and self.case not in (row.case, str(row.index)):
            return False
        if self.text is not None and not mentioned:
            texts: list[Any] = [row.case]
            for result in row.metrics:
                failure = result.failure
                texts += [result.reason, failure and (failure.message, failure.raw)]
                texts += [(step.reason, step.output, step.verdict) for step in result.steps]
            folded = self.text.casefold()
            if not any(folded in part for part in _texts(texts)):
                return False
        return any(self.fits(result) for result in row.metrics) or not row.metrics

    def fits(self, result: MetricResult) -> bool:
        """Return whether a result meets what is asked of results; its texts do not matter."""
        states = [name for name in ("failed", "no_score") if getattr(self, name)]
        if states and result.state not in states:
            return False
        if self.metric is not None and result.metric != self.metric:
            return False
        if not self.at and not self.not_at:
            return True
        answers = _answers(result)
        return answers.issuperset(self.at) and answers.isdisjoint(self.not_at)

    def narrow(self, row: CaseResult) -> CaseResult:
        """The row with the chosen metric alone."""
        if self.metric is None:
            return row
        return replace(row, metrics=tuple(m for m in row.metrics if m.metric == self.metric))

    def may_take(self, line: bytes, mentioned: Collection[int]) -> bool:
        """Whether a row may be among them, going by its line: most need not be read for that."""
        # Lines are as the record's writer makes them, with a blank behind each colon.
        if self.failed and not self.no_score and b'"success": false' not in line:
            return False
        if self.no_score and not self.failed and b'"score": null' not in line:
            return False
        if self.case is not None and _quote_text(self.case) not in line:
            return self.case == str(_index(line))
        if not all(_may_say(line, at) for at in self.at):
            return False
        if self.text is not None and _index(line) not in mentioned:
            return _may_hold(line, _fold_case(self.text))
        return True


def _may_say(line: bytes, at: str) -> bool:
    """Return whether a node, or its answer, may be in a line; names may hold `=` themselves."""
    if _quote_text(at) in line or _quote_text(at)[:-1] + _INSIDE.encode() in line:
        return True
    for index, letter in enumerate(at):
        if letter == "=" and _quote_text(at[:index]) in line:
            answer = at[index + 1 :]
            if _quote_text(answer) in line or f'"verdict": {answer.lower()}'.encode() in line:
                return True
    return False


def _may_hold(line: bytes, folded: str) -> bool:
    """Return whether a folded text is in a line."""
    if line.isascii():
        return folded.encode(errors="replace") in line.lower()
    return folded in line.decode(errors="replace").casefold()


class Selected:
    """The rows of a run that are chosen, in the order of the data; iterating reads them lazily.

    If the run has columns they tell which rows these are, and only the rows that are wanted are
    read. Not so for a `text`, which is in the lines alone.
    """

    def __init__(self, run: Run, selection: Selection) -> None:
        """Raises InputError for a metric or a node that the run does not have."""
        selection.check(run.manifest)
        self._run, self._selection = run, selection
        self._columns = run.columns() if selection.text is None else None
        self._outline = lru_cache(_COURSES)(outline_of)
        names = [metric.name for metric in run.manifest.metrics]
        only = selection.metric  # the metrics that are shown, with their numbers
        self._metrics = {name: n for n, name in enumerate(names) if only in (None, name)}

    def __iter__(self) -> Iterator[CaseResult]:
        """The rows; raises InputError, before the first, for a case that the run does not have."""
        if self._columns is None:
            return self._of_case(self._by_lines())
        return self._of_case(
            self._read(position for position, *_ in self._by_columns(self._columns))
        )

    def first(self, count: int) -> tuple[list[CaseResult], int]:
        """The first rows, and the number of all; raises InputError as iterating does."""
        if self._columns is None:
            rows = iter(self)
            first = list(itertools.islice(rows, count))
            return first, len(first) + sum(1 for _ in rows)
        positions = (position for position, *_ in self._by_columns(self._columns))
        first_places = list(itertools.islice(positions, count))
        rows = self._of_case(self._read(first_places))
        return list(rows), len(first_places) + sum(1 for _ in positions)

    def worst(self, count: int) -> list[CaseResult]:
        """The worst rows, from the worst on; raises InputError as iterating does."""
        worst = Worst(count)
        if self._columns is None:
            for row in self:
                worst.add(row)
            return worst.rows
        positions = dict[int, int]()
        for position, index, case, courses in self._by_columns(self._columns):
            if worst.add(CaseResult(index, case, self._outline_row(courses))):
                positions[index] = position
        order = [positions[outline.index] for outline in worst.rows]
        rows = dict(zip(sorted(order), self._of_case(self._read(sorted(order))), strict=True))
        return [rows[position] for position in order]

    def _of_case(self, rows: Iterator[CaseResult]) -> Iterator[CaseResult]:
        if self._selection.case is None:
            return rows
        # Whether there is such a case is looked up only if no row came: that reads every name.
        first = list(itertools.islice(rows, 1))
        if not first:
            _require_case(self._run, self._selection.case)
        return itertools.chain(first, rows)

    def _by_lines(self) -> Iterator[CaseResult]:
        selection, mentioned = self._selection, frozenset[int]()
        if selection.text is not None:
            # A line may hold the text in a field that is not the case's own: the fields decide.
            written, folded = _fold_case(selection.text), selection.text.casefold()
            mentioned = frozenset(
                case["index"]
                for case in self._run.cases(lambda line: _may_hold(line, written))
                if any(
                    folded in part
                    for name in case.keys() - set(_OWN)
                    for part in _texts(case[name])
                )
            )
        for row in self._run.timed_rows(lambda line: selection.may_take(line, mentioned)):
            if selection.takes(row, row.index in mentioned):
                yield selection.narrow(row)

    def _by_columns(self, columns: Columns) -> Iterator[tuple[int, int, str, tuple[str, ...]]]:
        """The chosen rows: place, index and name of each, and its courses by metric."""
        case = self._selection.case
        fits = lru_cache(_COURSES)(
            lambda courses: any(map(self._selection.fits, self._outline_row(courses)))
        )
        names = [f"course.{number}" for number in self._metrics.values()]
        position = 0
        for block in columns.blocks(["index", "case", *names]):
            courses = zip(*map(block.__getitem__, names), strict=True)
            for index, name, own in zip(block["index"], block["case"], courses, strict=True):
                if fits(own) and case in (None, name, str(index)):
                    yield position, index, name, own
                position += 1

    def _outline_row(self, courses: tuple[str, ...]) -> tuple[MetricResult, ...]:
        """The results of a row without their texts."""
        return tuple(map(self._outline, self._metrics, courses))

    def _read(self, places: Iterable[int]) -> Iterator[CaseResult]:
        with RunFiles(self._run) as files:
            for position in places:
                yield self._selection.narrow(files.timed_row(position))


def _require_case(run: Run, case: str) -> None:
    """Raise InputError if no case of the run has this name or index."""
    names: list[str] = []
    for row in run.rows():
        if case in (row.case, str(row.index)):
            return
        names.append(row.case)
    if not names:
        raise InputError(f"{run.folder} has no case")
    hint = did_you_mean(case, names) or f"names are such as {', '.join(names[:3])}"
    raise InputError(
        f"{run.folder} has no case {case!r:.80} (an index is 0 to {len(names) - 1}); {hint}"
    )


def require_texts(run: Run) -> None:
    """Raise InputError when the run kept no texts."""
    if not run.manifest.texts:
        raise InputError(f"{run.folder} contains no cases: the run kept no texts (--no-texts)")


def fields_of(run: Run, indexes: Iterable[int]) -> Iterator[dict[str, Any]]:
    """The fields of the cases with these indexes, in the order of the data.

    Raises InputError when the run kept no texts.
    """
    require_texts(run)
    wanted = set(indexes)
    for case in run.cases(lambda line: _index(line) in wanted):
        if case["index"] in wanted and case["type"] is not None:
            yield {name: value for name, value in case.items() if name not in _OWN}


_OWN = ("index", "hash", "type")


def _texts(value: Any) -> Iterator[str]:
    """Every text in plain data, ready to be searched."""
    if isinstance(value, str):
        yield value.casefold()
    elif isinstance(value, dict):
        for item in value.values():
            yield from _texts(item)
    elif isinstance(value, list | tuple):
        for item in value:
            yield from _texts(item)


def _answers(result: MetricResult) -> set[str]:
    """The nodes that ran, and what they answered."""
    answers = set[str]()
    for step in result.steps:
        verdicts = [step.verdict] if step.verdict is not None else item_verdicts(step.output)
        answers |= {step.node, *(f"{step.node}={verdict}" for verdict in verdicts)}
        outer = step.node.rpartition(_INSIDE)[0]
        while outer:  # the metrics under verdicts that it is in
            answers.add(outer)
            outer = outer.rpartition(_INSIDE)[0]
    failure = result.failure
    return (
        answers if failure is None else answers | {failure.node, f"{failure.node}={failure.kind}"}
    )


def _require_answer(at: str, manifest: Manifest) -> None:
    """Raise InputError for an answer that a decision of the run cannot give.

    What a node says that judges the items of a list, or rates, is not known beforehand.
    """
    answers: dict[str, dict[str, None]] = {}
    names: list[str] = []
    for metric in manifest.metrics:
        names += _nodes(metric)
        for edge in every_edge(metric):
            if edge.verdict is not None:
                answers.setdefault(edge.source, {})[str(edge.verdict)] = None
    splits = [(at[:index], at[index + 1 :]) for index, sign in enumerate(at) if sign == "="]
    named = [(node, verdict) for node, verdict in splits if node in names]
    if at in names or any(
        node not in answers or verdict in answers[node] or verdict in set(OutcomeKind)
        for node, verdict in named
    ):
        return
    node, verdict = named[0]
    hint = (
        did_you_mean(verdict, list(answers[node])) or f"its answers are {', '.join(answers[node])}"
    )
    raise InputError(f"{node!r:.80} has no answer {verdict!r:.80}; {hint}")


def _nodes(metric: MetricRecord) -> Iterator[str]:
    for node in metric.nodes:
        yield node.name
        if node.metric is not None:
            yield from _nodes(node.metric)


def _index(line: bytes) -> int:
    match = _INDEX.match(line)
    return int(match[1]) if match else -1


def _quote_text(text: str) -> bytes:
    """A text as it is in a line."""
    return json.dumps(text, ensure_ascii=False).encode(errors="backslashreplace")


def _fold_case(text: str) -> str:
    """A part of a text as it is in a line, whatever the case of its letters."""
    return _quote_text(text)[1:-1].decode().casefold()
