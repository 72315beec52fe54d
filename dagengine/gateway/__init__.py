"""The only place where a judge is called, and everything that decides when."""

from dagengine.gateway.gateway import Gateway
from dagengine.limits import DEFAULT_LIMITS, Limits
from dagengine.unknown import answer_absent

__all__ = ["DEFAULT_LIMITS", "Gateway", "Limits"]

answer_absent(__name__)
