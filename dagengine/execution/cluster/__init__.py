"""A run on several processes: of this machine, or of the workers of a Dask cluster."""

from dagengine.execution.cluster.coordinator import Cluster, Workers
from dagengine.execution.cluster.worker import Job, Part

__all__ = ["Cluster", "Job", "Part", "Workers"]
