"""From graphs as written to one checked, numbered plan."""

from dagengine.compiler.checks import check
from dagengine.compiler.lowering import compile_metrics
from dagengine.compiler.plan import Plan

__all__ = ["Plan", "check", "compile_metrics"]
