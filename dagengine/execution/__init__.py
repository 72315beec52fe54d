"""A plan run over cases: the laws of who runs and what counts, and the tasks that obey."""

from dagengine.execution.cluster.coordinator import Workers
from dagengine.execution.engine import Engine, Settings
from dagengine.execution.evaluation import (
    a_evaluate,
    evaluate,
    stream,
    sync,
)

__all__ = [
    "Engine",
    "Settings",
    "Workers",
    "a_evaluate",
    "evaluate",
    "stream",
    "sync",
]
