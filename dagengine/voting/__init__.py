"""Other answers at nodes: votes, juries, escalation, other judges, questions merged and split."""

from typing import TYPE_CHECKING

from dagengine.elsewhere import absent_names
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

if not TYPE_CHECKING:  # type checkers shall not take any name for one of ours
    __getattr__ = absent_names(__name__)
