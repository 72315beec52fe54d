"""A plan run over cases: the tasks that ask, wait and hand on what came."""

from dagengine.execution.cases_and_rows import OnRow, RunObserver
from dagengine.execution.cluster.coordinator import Executor, Workers
from dagengine.execution.interrupts import sync
from dagengine.execution.local_executor import LocalExecutor, Settings
from dagengine.unknown import answer_absent

__all__ = ["Executor", "LocalExecutor", "OnRow", "RunObserver", "Settings", "Workers", "sync"]

answer_absent(__name__)
