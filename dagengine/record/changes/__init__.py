"""Two runs compared: which case is which, where they part, and why."""

from dagengine.record.changes.case_pairs import compare_runs
from dagengine.record.changes.flip_causes import MetricComparison, RunComparison

__all__ = ["MetricComparison", "RunComparison", "compare_runs"]
