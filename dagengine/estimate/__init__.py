"""What a run will ask, before it asks anything."""

from dagengine.estimate.counting import estimate, verdicts_of
from dagengine.estimate.values import Estimate

__all__ = ["Estimate", "estimate", "verdicts_of"]
