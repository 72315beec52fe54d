"""Metrics: small modules that build a graph."""

from dagengine.metrics.base import BaseMetric
from dagengine.metrics.dag import DAGMetric

__all__ = ["BaseMetric", "DAGMetric"]
