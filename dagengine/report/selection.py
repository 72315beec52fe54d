"""The cases of a run that a reader selects: by state, metric, name, answer or word."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import accumulate
from operator import itemgetter
from typing import Any

from dagengine.errors import InputError, did_you_mean
from dagengine.record.columns import Columns, outline_of, texts_in
from dagengine.record.costs import pair_lines
from dagengine.record.hiding import fields_in
from dagengine.record.run import Run, RunFiles
from dagengine.record.values import Manifest
from dagengine.report.pictures.graphs import item_verdicts
from dagengine.results.outcomes import OutcomeKind
from dagengine.results.rows import CaseResult, MetricResult, unknown_metric
from dagengine.results.summary import Worst

_INSIDE = " > "  # between a metric under a verdict and its nodes
_COURSES = 50_000  # whose results are kept


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
        """Raise InputError for a metric, a node or an answer that the run cannot have."""
        metrics = manifest.metric_names
        if self.metric is not None and self.metric not in metrics:
            raise unknown_metric(self.metric, metrics)
        answers = _answers_by_node(manifest)
        for at in (*self.at, *self.not_at):
            _require_known(at, answers)

    def takes(self, row: CaseResult, case: Mapping[str, Any]) -> bool:
        """Return whether a row is among them; `case` is the line of its case, read for a `text`."""
        if self.case is not None and self.case not in (row.case, str(row.index)):
            return False
        if self.text is not None:
            texts: list[Any] = [row.case, fields_in(case)]
            for result in row.metrics:
                failure = result.failure
                texts += [result.reason, failure and (failure.message, failure.raw)]
                texts += [(step.reason, step.output, step.verdict) for step in result.steps]
            folded = self.text.casefold()
            if not any(folded in text.casefold() for text in texts_in(texts)):
                return False
        return any(map(self.fits, row.metrics)) or not row.metrics

    def fits(self, result: MetricResult) -> bool:
        """Return whether a result meets what is asked of results; its texts do not matter."""
        if (self.failed or self.no_score) and not getattr(self, result.state, False):
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
        names = run.manifest.metric_names
        only = selection.metric  # the metrics that are shown, with their numbers
        self._metrics = {name: n for n, name in enumerate(names) if only in (None, name)}

    def __iter__(self) -> Iterator[CaseResult]:
        """The rows; raises InputError, before the first, for a case that the run does not have."""
        return self._whole_rows(self._chosen())

    def first(self, count: int) -> tuple[list[CaseResult], int]:
        """The first rows, and the number of all; raises InputError as iterating does."""
        chosen = self._chosen()
        rows = list(self._whole_rows(itertools.islice(chosen, count)))
        return rows, len(rows) + sum(1 for _ in chosen)

    def worst(self, count: int) -> list[CaseResult]:
        """The worst rows, from the worst on; raises InputError as iterating does."""
        worst, positions = Worst(count), dict[int, int]()
        for position, row in self._chosen():
            if worst.add(row):
                positions[row.index] = position
        order = sorted(((positions[row.index], row) for row in worst.rows), key=itemgetter(0))
        rows = {row.index: row for row in self._whole_rows(order)}
        return [rows[row.index] for row in worst.rows]

    def _chosen(self) -> Iterator[tuple[int, CaseResult]]:
        """The chosen rows with their places; by columns those in the run, and only outlines."""
        if self._columns is not None:
            yield from self._by_columns(self._columns)
            return
        selection, run = self._selection, self._run
        cases = iter(()) if selection.text is None else run.cases()
        pairs = pair_lines(run.rows(), cases, itemgetter("index"))
        rows = (row for row, case in pairs if selection.takes(row, case or {}))
        # Times are read for these alone: for all rows that takes as long as the rows themselves.
        yield from enumerate(map(selection.narrow, run.timed_rows(rows)))

    def _whole_rows(self, chosen: Iterable[tuple[int, CaseResult]]) -> Iterator[CaseResult]:
        """The rows with their texts; raises InputError for a case that the run does not have."""
        rows: Iterator[CaseResult] = map(itemgetter(1), chosen)
        if self._columns is not None:
            rows = self._read(map(itemgetter(0), chosen))
        if self._selection.case is None:
            return rows
        # Whether there is such a case is looked up only if no row came: that reads every name.
        first = list(itertools.islice(rows, 1))
        if not first:
            _require_case(self._run, self._selection.case)
        return itertools.chain(first, rows)

    def _by_columns(self, columns: Columns) -> Iterator[tuple[int, CaseResult]]:
        case = self._selection.case
        fits = lru_cache(_COURSES)(
            lambda courses: any(map(self._selection.fits, self._outline_row(courses)))
        )
        names = [f"course.{number}" for number in self._metrics.values()]
        position = itertools.count()
        for block in columns.blocks(["index", "case", *names]):
            courses = zip(*map(block.__getitem__, names), strict=True)
            for index, name, own in zip(block["index"], block["case"], courses, strict=True):
                at = next(position)
                if fits(own) and case in (None, name, str(index)):
                    yield at, CaseResult(index, name, self._outline_row(own))

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
    for case in run.cases():
        if case["index"] in wanted and case["type"] is not None:
            yield fields_in(case)


def _answers(result: MetricResult) -> set[str]:
    """The nodes that ran, and what they answered."""
    answers = set[str]()
    for step in result.steps:
        verdicts = [step.verdict] if step.verdict is not None else item_verdicts(step.output)
        answers.update(f"{step.node}={verdict}" for verdict in verdicts)
        # The node itself, and the metrics under verdicts that it is in
        answers.update(accumulate(step.node.split(_INSIDE), f"{{}}{_INSIDE}{{}}".format))
    if (failure := result.failure) is not None:
        answers |= {failure.node, f"{failure.node}={failure.kind}"}
    return answers


def _answers_by_node(manifest: Manifest) -> dict[str, dict[str, None]]:
    """The answers of every node of a run, those that stand for nested metrics among them.

    What a node says that judges the items of a list, or rates, is not known beforehand.
    """
    answers: dict[str, dict[str, None]] = {}
    for metric in manifest.metrics:
        for node in metric.nodes_and_nested():
            answers.setdefault(node.name, {})
        for name, verdicts in metric.verdicts().items():
            # Metrics may share a node: each of its answers counts once.
            answers.setdefault(name, {}).update(dict.fromkeys(map(str, verdicts)))
    return answers


def _require_known(at: str, answers: Mapping[str, Mapping[str, None]]) -> None:
    """Raise InputError for a node that the run does not have, or an answer that it cannot give."""
    if at in answers:
        return
    signs = (sign.span() for sign in re.finditer("=", at))
    named = [(at[:start], at[end:]) for start, end in signs if at[:start] in answers]
    if not named:
        name, nodes = at.rpartition("=")[0] or at, sorted(answers)
        hint = did_you_mean(name, nodes) or f"it had {', '.join(nodes)}"
        raise InputError(f"the run had no node {name!r:.80}; {hint}")
    if any(
        not answers[node] or verdict in {*answers[node], *OutcomeKind} for node, verdict in named
    ):
        return
    node, verdict = named[0]
    hint = did_you_mean(verdict, answers[node]) or f"its answers are {', '.join(answers[node])}"
    raise InputError(f"{node!r:.80} has no answer {verdict!r:.80}; {hint}")
