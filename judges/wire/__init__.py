"""How questions travel to servers of the OpenAI protocol, and answers back."""

from dagengine.judges.wire.bodies import BodyReader
from dagengine.judges.wire.completions import Completion
from dagengine.judges.wire.connection import Connection
from dagengine.judges.wire.endpoint import Endpoint, endpoint_of, moved_to

__all__ = [
    "BodyReader",
    "Completion",
    "Connection",
    "Endpoint",
    "endpoint_of",
    "moved_to",
]
