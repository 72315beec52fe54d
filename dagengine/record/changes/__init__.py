"""Two runs compared: which case is which, where they part, and why."""

from dagengine.record.changes.comparison import MetricComparison, RunComparison
from dagengine.record.changes.diff import compare_runs

__all__ = ["MetricComparison", "RunComparison", "compare_runs"]
