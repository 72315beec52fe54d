"""What a graph means: which node runs, which failure counts, what a case scores. No event loop."""

from dagengine.semantics.scheduler import CaseState
from dagengine.unknown import answer_absent

__all__ = ["CaseState"]

answer_absent(__name__)
