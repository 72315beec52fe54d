"""What labels tell beyond agreement: a threshold, when to abstain, which cases are examples."""

from dagengine.reliability.fitting.abstaining import Abstention, abstain_below
from dagengine.reliability.fitting.cuts import FittedThreshold, fit_threshold
from dagengine.reliability.fitting.picking import Solved, pick_examples, solved_cases

__all__ = [
    "Abstention",
    "FittedThreshold",
    "Solved",
    "abstain_below",
    "fit_threshold",
    "pick_examples",
    "solved_cases",
]
