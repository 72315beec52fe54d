"""Judges that decide and give no text: probabilities of every option."""

from dagengine.judges.deciding.decision_judge import DecisionJudge
from dagengine.judges.deciding.label_judge import LabelJudge

__all__ = ["DecisionJudge", "LabelJudge"]
