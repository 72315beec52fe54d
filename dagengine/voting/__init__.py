"""More answers where they can change a score: votes, juries, escalation, other judges."""

from dagengine.voting.stopping import Curtailed, Rule, Sprt, StandardError
from dagengine.voting.wrappers import (
    answered_by,
    escalated,
    exemplified,
    judged_by,
    quoted,
    reworded,
    voted,
)

__all__ = [
    "Curtailed",
    "Rule",
    "Sprt",
    "StandardError",
    "answered_by",
    "escalated",
    "exemplified",
    "judged_by",
    "quoted",
    "reworded",
    "voted",
]
