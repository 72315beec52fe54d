"""From graphs as written to one checked, numbered plan."""

from dagengine.compiler.checks import check
from dagengine.compiler.plan import Plan, compile_metrics

__all__ = ["Plan", "check", "compile_metrics"]
