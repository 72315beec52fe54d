"""What a run will ask, before it asks anything."""

from dagengine.estimate.counting import estimate, verdicts_of
from dagengine.estimate.estimates import Estimate
from dagengine.unknown import answer_absent

__all__ = ["Estimate", "estimate", "verdicts_of"]

answer_absent(__name__)
