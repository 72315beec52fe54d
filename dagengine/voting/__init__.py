"""More answers where they can change a score: votes, juries, escalation."""

from dagengine.voting.stopping import Curtailed, Rule, Sprt, StandardError
from dagengine.voting.wrappers import escalated, judged_by, voted

__all__ = ["Curtailed", "Rule", "Sprt", "StandardError", "escalated", "judged_by", "voted"]
