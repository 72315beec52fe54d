"""What a run leaves: its folder, written as it goes, read back, and compared with another."""

from dagengine.record.changes.case_pairs import compare_runs
from dagengine.record.reader import Run, load_run
from dagengine.record.writer import RunWriter
from dagengine.unknown import answer_absent

__all__ = ["Run", "RunWriter", "compare_runs", "load_run"]

answer_absent(__name__)
