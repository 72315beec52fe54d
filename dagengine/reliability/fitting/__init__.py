"""What labels tell beyond agreement: a threshold, when to abstain, which cases are examples."""

from dagengine.reliability.fitting.picking import Solved, pick_examples, solved_cases
from dagengine.reliability.fitting.thresholds import (
    Abstention,
    FittedThreshold,
    abstain_below,
    fit_threshold,
)

__all__ = [
    "Abstention",
    "FittedThreshold",
    "Solved",
    "abstain_below",
    "fit_threshold",
    "pick_examples",
    "solved_cases",
]
