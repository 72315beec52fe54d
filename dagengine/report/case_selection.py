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
from dagengine.record.case_costs import pair_lines
from dagengine.record.hidden_fields import fields_in
from dagengine.record.parquet_columns import Columns, outline_of, texts_in
from dagengine.record.reader import Run, RunFiles
from dagengine.record.run_json_types import Manifest
from dagengine.report.pictures.metric_graph import item_verdicts
from dagengine.results.metric_results import CaseResult, MetricResult, unknown_metric
from dagengine.results.outcomes import OutcomeKind
from dagengine.results.summary import Worst

_INSIDE = " > "  # in the name of a node of a nested metric: `Metric > Node`
_KEPT_COURSES = 50_000  # courses (see `record.parquet_columns`) whose outlines are kept at most


@dataclass(frozen=True, slots=True)
class Selection:
    """Conditions on a row: `case` and `text` on all of it, the others on one of its results.

    `failed` (below the threshold) and `no_score` choose states; with both, either state counts.
    `case` is a name or an index. All of `at` have to hold, and none of `not_at`: `Node` says that
    the node ran, `Node=answer` that it gave this answer. A kind of failure counts as an answer, and
    so does a verdict on an item of a list. `text` is in the case, in its name or in what nodes
    answered, in upper or lower case.
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
        for condition in (*self.at, *self.not_at):
            _require_known(condition, answers)

    def fits_row(self, row: CaseResult, case: Mapping[str, Any]) -> bool:
        """Return whether a row meets all conditions; `case` is only needed with a `text`."""
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
        return any(map(self.fits_result, row.metrics)) or not row.metrics

    def fits_result(self, result: MetricResult) -> bool:
        """Return whether a result meets the conditions on results; they need no texts."""
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
    """The rows of a run that a selection chooses, in the order of the data, read lazily.

    If the run has columns, rows are chosen by outlines: results without texts, made from columns.
    Then only chosen rows are read from the lines. With a `text` all lines are read.
    """

    def __init__(self, run: Run, selection: Selection) -> None:
        """Raises InputError for a metric or a node that the run does not have."""
        selection.check(run.manifest)
        self._run, self._selection = run, selection
        self._columns = run.columns() if selection.text is None else None
        self._outline = lru_cache(_KEPT_COURSES)(outline_of)
        metrics = enumerate(run.manifest.metric_names)
        # The number of each chosen metric, by its name.
        self._metrics = {name: n for n, name in metrics if selection.metric in (None, name)}

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
        # Lines are read from the first to the last, and the rows put back in their order.
        pairs = sorted(((positions[row.index], row) for row in worst.rows), key=itemgetter(0))
        rows = {row.index: row for row in self._whole_rows(pairs)}
        return [rows[row.index] for row in worst.rows]

    def _chosen(self) -> Iterator[tuple[int, CaseResult]]:
        """The chosen rows, numbered. With columns: outlines, by their positions in the run."""
        if self._columns is not None:
            yield from self._chosen_outlines(self._columns)
            return
        selection, run = self._selection, self._run
        cases = iter(()) if selection.text is None else run.cases()
        pairs = pair_lines(run.rows(), cases, itemgetter("index"))
        rows = (row for row, case in pairs if selection.fits_row(row, case or {}))
        # Times are read for chosen rows alone: for all rows that takes as long as the rows.
        yield from enumerate(map(selection.narrow, run.timed_rows(rows)))

    def _whole_rows(self, chosen: Iterable[tuple[int, CaseResult]]) -> Iterator[CaseResult]:
        """The rows with their texts; raises InputError for a case that the run does not have."""
        rows: Iterator[CaseResult] = (row for _, row in chosen)
        if self._columns is not None:  # rows are outlines
            rows = self._read(position for position, _ in chosen)
        if self._selection.case is None:
            return rows
        # Looking a case up reads every name of the run. So it is done only if no row came.
        first = list(itertools.islice(rows, 1))
        if not first:
            _require_case(self._run, self._selection.case)
        return itertools.chain(first, rows)

    def _chosen_outlines(self, columns: Columns) -> Iterator[tuple[int, CaseResult]]:
        """The positions in the run and the outlines of the chosen rows."""

        @lru_cache(_KEPT_COURSES)
        def fits(courses: tuple[str, ...]) -> bool:
            return any(map(self._selection.fits_result, self._outlines(courses)))

        case = self._selection.case
        names = [f"course.{number}" for number in self._metrics.values()]
        positions = itertools.count()
        for block in columns.blocks(["index", "case", *names]):
            by_row = zip(*map(block.__getitem__, names), strict=True)
            for index, name, courses in zip(block["index"], block["case"], by_row, strict=True):
                position = next(positions)
                if fits(courses) and case in (None, name, str(index)):
                    yield position, CaseResult(index, name, self._outlines(courses))

    def _outlines(self, courses: tuple[str, ...]) -> tuple[MetricResult, ...]:
        """The results of a row without their texts, from a course for each chosen metric."""
        return tuple(map(self._outline, self._metrics, courses))

    def _read(self, positions: Iterable[int]) -> Iterator[CaseResult]:
        with RunFiles(self._run) as files:
            for position in positions:
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
    """The conditions that a result meets: `Node` and `Node=answer`."""
    answers = set[str]()
    for step in result.steps:
        verdicts = [step.verdict] if step.verdict is not None else item_verdicts(step.output)
        answers.update(f"{step.node}={verdict}" for verdict in verdicts)
        # The nested metrics that the node is in, from the outermost on, and the node itself.
        parts = step.node.split(_INSIDE)
        answers.update(accumulate(parts, lambda metric, node: f"{metric}{_INSIDE}{node}"))
    if (failure := result.failure) is not None:
        answers |= {failure.node, f"{failure.node}={failure.kind}"}
    return answers


def _answers_by_node(manifest: Manifest) -> dict[str, dict[str, None]]:
    """The possible answers of every node of a run; a nested metric counts as a node.

    They are empty for a node that rates, or judges the items of a list: nothing lists its answers.
    """
    answers: dict[str, dict[str, None]] = {}
    for metric in manifest.metrics:
        for node in metric.nodes_and_nested():
            answers.setdefault(node.name, {})
        for name, verdicts in metric.verdicts().items():
            # Metrics may share a node: each of its answers counts once.
            answers.setdefault(name, {}).update(dict.fromkeys(map(str, verdicts)))
    return answers


def _require_known(condition: str, answers: Mapping[str, Mapping[str, None]]) -> None:
    """Raise InputError for a node that the run does not have, or an answer that it cannot give."""
    if condition in answers:
        return
    # Names and answers may contain "=", so each of them may be the sign between the two.
    signs = (sign.span() for sign in re.finditer("=", condition))
    pairs = [(condition[:start], condition[end:]) for start, end in signs]
    pairs = [(node, answer) for node, answer in pairs if node in answers]
    if not pairs:
        name, nodes = condition.rpartition("=")[0] or condition, sorted(answers)
        hint = did_you_mean(name, nodes) or f"it had {', '.join(nodes)}"
        raise InputError(f"the run had no node {name!r:.80}; {hint}")
    for node, answer in pairs:
        if not answers[node] or answer in {*answers[node], *OutcomeKind}:
            return
    node, answer = pairs[0]
    hint = did_you_mean(answer, answers[node]) or f"its answers are {', '.join(answers[node])}"
    raise InputError(f"{node!r:.80} has no answer {answer!r:.80}; {hint}")
