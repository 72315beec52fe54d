"""What servers say in words of their own: how answers end, where they are, what failed and why."""

from dagengine.judges.wire.dialects.completion_shapes import End
from dagengine.judges.wire.dialects.demands import Demands
from dagengine.judges.wire.dialects.failures import Complaint

__all__ = ["Complaint", "Demands", "End"]
