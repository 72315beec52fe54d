"""Judges that decide and give no text: probabilities of every option."""

from dagengine.judges.deciding.judge import DecisionJudge
from dagengine.judges.deciding.labels import LabelJudge

__all__ = ["DecisionJudge", "LabelJudge"]
