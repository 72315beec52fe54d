"""The rows of a run as a caller gets them: a sequence that can be asked, shown and saved."""

from __future__ import annotations

import importlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from dagengine.errors import InputError, MissingExtraError
from dagengine.results.html_tables import cell, number, table
from dagengine.results.metric_results import CaseResult, MetricResult, unknown_metric
from dagengine.results.pass_rules import State
from dagengine.results.summary import Summary, Summing, Worst
from dagengine.results.usage_totals import Totals
from dagengine.system.safe_files import require_own_folder
from dagengine.system.terminal_text import counted
from dagengine.unknown import absent_attributes

# What a reader expects here, and where it is.
_ELSEWHERE = {
    "total_cost": "what a run cost is result.cost",
    "tokens usage input_tokens output_tokens": "tokens are in result.totals.usage",
    "reasons": "write [(row.case, row[METRIC].reason) for row in result]",
    "failures failed_cases": (
        "write result.failed(), or result.unscored() for those without a score"
    ),
    "score mean passed pass_rate accuracy": (
        "result.summary() has the figures, result.scores(metric) every score"
    ),
    "to_dataframe to_frame to_df df dataframe": "write result.to_pandas()",
    "to_csv to_json to_excel to_parquet": "write result.to_pandas(), which writes such files",
    "results cases": "the rows are result.rows",
}

COLUMNS = (
    *("index", "case", "metric", "score", "success", "outcome", "reason", "threshold"),
    *("node", "answer", "input_tokens", "output_tokens", "seconds", "retried"),
)
"""Columns of results as flat rows, for data frames and CSV files: one per case and metric."""


class Saves(Protocol):
    """What a run says of itself beside its rows, and writes into a folder with them."""

    def save(self, folder: str | Path, rows: Iterable[CaseResult], /, *, page: bool) -> None: ...


@dataclass(frozen=True, slots=True)
class EvaluationResult(Sequence[CaseResult]):
    """The rows of a run in data set order, and its cost."""

    rows: tuple[CaseResult, ...]
    totals: Totals = field(default_factory=Totals)
    record: Saves | None = field(default=None, compare=False, repr=False)

    # Type checkers take whoever has `__getattr__` to have every attribute.
    if not TYPE_CHECKING:
        __getattr__ = absent_attributes(_ELSEWHERE)

    def __repr__(self) -> str:
        passed = sum(row.success for row in self.rows)
        unscored = sum(any(metric.failure for metric in row.metrics) for row in self.rows)
        failed = f", {unscored} without a score" if unscored else ""
        asked = counted(self.totals.asked, "question")
        asked += f", {counted(self.totals.calls, 'judge call')}"
        counts = f"{counted(len(self.rows), 'case')}, {passed} passed{failed}; {asked}"
        return f"<{type(self).__name__}: {counts}>"

    @property
    def test_results(self) -> list[CaseResult]:
        """The rows, as a list."""
        return list(self.rows)

    def _repr_html_(self) -> str:
        """HTML for a notebook: the summary, and the worst cases."""
        worst = Worst()
        for row in self.rows:
            worst.add(row)
        lines = [
            [str(row.index), cell(row.case), *result.cells()]
            for row in worst.rows
            for result in row.metrics
        ]
        heads = ("#", "case", "", "metric", "score", "ended at", "reason")
        names = ("mean", "median", "spread", "lowest", "highest")
        counts = ("cases", "passed", "failed", "no_score")
        figures = [
            [cell(tally.metric), *(str(getattr(tally, name)) for name in counts),
             *(number(getattr(tally, name)) for name in names)]
            for tally in self.summary()
        ]  # fmt: skip
        summary = table(("metric", "cases", "passed", "failed", "no score", *names), figures)
        return (
            f"<p>{cell(repr(self)[1:-1])}</p>{summary}<p>The worst cases</p>{table(heads, lines)}"
        )

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, str):
            raise TypeError(
                f"rows are numbered: next(row for row in result if row.case == {index!r}) is one "
                "by name, result.scores(METRIC) are the scores of a metric"
            )
        return self.rows[index]

    def __iter__(self) -> Iterator[CaseResult]:
        return iter(self.rows)

    @property
    def cost(self) -> float | None:
        """Cost of the run in US dollars; None if a price is not known."""
        return self.totals.cost

    @property
    def calls(self) -> int:
        """Number of judge calls."""
        return self.totals.calls

    @property
    def success(self) -> bool:
        """Whether there are cases and every one met every threshold."""
        return bool(self.rows) and all(row.success for row in self.rows)

    def failed(self, metric: str | None = None) -> list[CaseResult]:
        """The rows below the threshold of this metric, or of any.

        A row without a score is not among them (see `unscored`). Raises InputError when the run
        had no metric of that name.
        """
        return self._in_state("failed", metric)

    def unscored(self, metric: str | None = None) -> list[CaseResult]:
        """The rows without a score for this metric, or for any; raises InputError as `failed`."""
        return self._in_state("no_score", metric)

    def _in_state(self, state: State, metric: str | None) -> list[CaseResult]:
        if metric is not None:
            return [row for row, result in self._of(metric) if result.state == state]
        return [row for row in self.rows if any(result.state == state for result in row.metrics)]

    def scores(self, metric: str) -> list[float | None]:
        """The scores of one metric in data set order; None if there is none.

        Raises InputError when the run had no metric of that name.
        """
        return [result.score for _, result in self._of(metric)]

    def summary(self) -> Summary:
        """Means, medians, spreads, distributions and pass rates, by metric and by tag."""
        return Summing(self.rows).result()

    def to_pandas(self) -> Any:
        """A data frame with one row per case and metric; raises MissingExtraError without pandas.

        Columns: index, case, metric, score, success, outcome, reason, threshold, node and answer
        (where the result came about), input and output tokens. Then seconds (of its nodes, added
        up), retried (judge calls after the first one of each question) and the fields of the test
        case. A column per metric: `frame.pivot(index="index", columns="metric", values="score")`.
        """
        try:
            pandas = importlib.import_module("pandas")
        except ImportError:
            raise MissingExtraError("to_pandas() needs pandas: pip install pandas") from None
        rows = list[dict[str, Any]]()
        for row in self.rows:
            fields = {} if row.test_case is None else row.test_case.model_dump(exclude_none=True)
            more = {name: fields[name] for name in fields if name not in COLUMNS}
            rows += (flat(row, result) | more for result in row.metrics)
        return pandas.DataFrame(rows, columns=None if rows else list(COLUMNS))

    def save(self, folder: str | Path, *, page: bool = True) -> None:
        """Write the folder of the run, as `evaluate(…, out=folder)` does while the run continues.

        Without `page` it has no `report.html`. Raises InputError if it cannot be written, for the
        folder of another command, and for a result that no run has made.
        """
        if self.record is None:
            raise InputError("only what evaluate() returned can be saved: these rows have no run")
        require_own_folder(Path(folder), ["run.json"])
        self.record.save(folder, self.rows, page=page)

    def _of(self, metric: str) -> list[tuple[CaseResult, MetricResult]]:
        """The results of one metric with their rows; raises InputError for an unknown name."""
        pairs = [(row, result) for row in self.rows for result in row.metrics]
        results = [(row, result) for row, result in pairs if result.metric == metric]
        if self.rows and not results:
            raise unknown_metric(metric, (result.metric for _, result in pairs))
        return results


def flat(row: CaseResult, result: MetricResult) -> dict[str, Any]:
    """One metric on one case by `COLUMNS`, without what is nested."""
    end, used, seconds = result.end, result.usage, result.seconds
    # A step lists the calls of those questions only that needed more than one.
    retried = sum(len(calls) - 1 for step in result.steps for calls in step.calls)
    values = (
        *(row.index, row.case, result.metric, result.score, result.success, str(result.outcome)),
        *(result.failure.message if result.failure else result.reason, result.threshold),
        *(end.node if end.answer else None, end.answer or None),
        *(used.input_tokens, used.output_tokens),
        *(seconds if seconds is None else round(seconds, 4), retried),
    )
    return dict(zip(COLUMNS, values, strict=True))
