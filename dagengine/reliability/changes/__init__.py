"""What changed between two runs: how much of it is chance, and all of it as plain data."""

from dagengine.reliability.changes.run_report import (
    Noise,
    PairedTest,
    change_report,
    noise,
    paired_test,
)

__all__ = ["Noise", "PairedTest", "change_report", "noise", "paired_test"]
