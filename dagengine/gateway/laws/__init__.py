"""Whether a judge may be called now, and how often at the same time: laws without a clock."""

from dagengine.gateway.laws.adaptive_concurrency import AdaptiveConcurrency
from dagengine.gateway.laws.circuit_breaker import CircuitBreaker
from dagengine.gateway.laws.throughput import ThroughputLimit

__all__ = ["AdaptiveConcurrency", "CircuitBreaker", "ThroughputLimit"]
