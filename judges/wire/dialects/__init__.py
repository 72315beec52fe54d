"""What servers say in words of their own: how answers end, where they are, what failed and why."""

from dagengine.judges.wire.dialects.demands import Demands, Hypotheses
from dagengine.judges.wire.dialects.ends import End, end_of
from dagengine.judges.wire.dialects.failures import Complaint, complaint_in, error_of
from dagengine.judges.wire.dialects.messages import normalise, refusal_in

__all__ = [
    "Complaint",
    "Demands",
    "End",
    "Hypotheses",
    "complaint_in",
    "end_of",
    "error_of",
    "normalise",
    "refusal_in",
]
