"""What a run will ask, before it asks anything."""

from dagengine.estimate.estimate_types import Estimate
from dagengine.estimate.estimator import estimate, verdicts_of
from dagengine.unknown import answer_absent

__all__ = ["Estimate", "estimate", "verdicts_of"]

answer_absent(__name__)
