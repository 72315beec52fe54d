"""How questions travel to servers of the OpenAI protocol, and answers back."""

from dagengine.judges.wire.completions import Completion
from dagengine.judges.wire.connection import Connection

__all__ = ["Completion", "Connection"]
