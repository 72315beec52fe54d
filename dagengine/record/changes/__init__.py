"""Two runs compared: which case is which, where they part, and why."""

from dagengine.record.changes.diff import compare_runs
from dagengine.record.changes.run_comparison import MetricComparison, RunComparison

__all__ = ["MetricComparison", "RunComparison", "compare_runs"]
