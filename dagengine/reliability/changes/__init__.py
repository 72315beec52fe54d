"""What changed between two runs: how much of it is chance, and all of it as plain data."""

from dagengine.reliability.changes.chance import Noise, PairedTest, noise, paired_test
from dagengine.reliability.changes.report import change_report

__all__ = ["Noise", "PairedTest", "change_report", "noise", "paired_test"]
