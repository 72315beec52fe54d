"""Other answers at nodes: votes, juries, escalation, other judges, questions merged and split."""

from dagengine.unknown import answer_absent
from dagengine.voting.metric_rewrites import (
    answered_by,
    escalated,
    exemplified,
    judged_by,
    quoted,
    reworded,
    voted,
)
from dagengine.voting.votes_and_juries import Curtailed, Rule, Sprt, StandardError

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

answer_absent(__name__)
