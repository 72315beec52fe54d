"""From graphs as written to one checked, numbered plan."""

from dagengine.compiler.checks import check
from dagengine.compiler.execution_plan import Plan, compile_metrics
from dagengine.unknown import answer_absent

__all__ = ["Plan", "check", "compile_metrics"]

answer_absent(__name__)
