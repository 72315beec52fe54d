"""What a run leaves: its folder, written as it goes and read back."""

from dagengine.record.run import Run, load_run
from dagengine.record.writer import RunWriter

__all__ = ["Run", "RunWriter", "load_run"]
