"""Results as flat rows, for data frames and CSV files: one per case and metric."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from dagengine.results.rows import CaseResult, MetricResult

COLUMNS = (
    *("index", "case", "metric", "score", "success", "outcome", "reason", "threshold"),
    *("node", "answer", "input_tokens", "output_tokens", "seconds", "retried"),
)


def frame_rows(rows: Iterable[CaseResult]) -> Iterator[dict[str, Any]]:
    """A dict of `COLUMNS` per case and metric, then the fields that the test case has."""
    for row in rows:
        fields = {} if row.test_case is None else row.test_case.model_dump(exclude_none=True)
        more = {name: value for name, value in fields.items() if name not in COLUMNS}
        for result in row.metrics:
            yield {**flat(row, result), **more}


def flat(row: CaseResult, result: MetricResult) -> dict[str, Any]:
    """One metric on one case, without what is nested."""
    end, used = result.end, result.usage
    reason = result.failure.message if result.failure else result.reason
    return {
        "index": row.index,
        "case": row.case,
        "metric": result.metric,
        "score": result.score,
        "success": result.success,
        "outcome": str(result.outcome),
        "reason": reason,
        "threshold": result.threshold,
        "node": end.node if end.answer else None,
        "answer": end.answer or None,
        "input_tokens": used.input_tokens,
        "output_tokens": used.output_tokens,
        "seconds": None if result.seconds is None else round(result.seconds, 4),
        # A step lists the calls of those questions only that needed more than one.
        "retried": sum(len(calls) - 1 for step in result.steps for calls in step.calls),
    }
