"""Judges that decide and give no text: probabilities of every option."""

from dagengine.judges.deciding.decision_judge import DecisionJudge, LabelJudge

__all__ = ["DecisionJudge", "LabelJudge"]
