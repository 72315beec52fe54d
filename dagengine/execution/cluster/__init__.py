"""A run on several processes: of this machine, or of the workers of a Dask cluster."""

from dagengine.execution.cluster.coordinator import Cluster, Workers
from dagengine.execution.cluster.worker import ChunkResult, Job

__all__ = ["ChunkResult", "Cluster", "Job", "Workers"]
