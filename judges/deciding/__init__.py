"""Judges that decide and give no text: probabilities of every option."""

from dagengine.judges.deciding.judge import DecisionJudge

__all__ = ["DecisionJudge"]
