"""Judge the output of language models with decision trees that compile, draw and run.

Names are loaded when they are first used: importing this package does nothing else.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dagengine.cases import read_cases as read_cases
    from dagengine.errors import DagengineError as DagengineError
    from dagengine.evaluation import a_evaluate as a_evaluate
    from dagengine.evaluation import assert_test as assert_test
    from dagengine.evaluation import evaluate as evaluate
    from dagengine.evaluation import on_test_run_end as on_test_run_end
    from dagengine.evaluation import stream as stream
    from dagengine.limits import Limits as Limits
    from dagengine.plan import compile_metrics as compile_metrics
    from dagengine.prompts import PromptTemplate as PromptTemplate
    from dagengine.store import Store as Store

_HOME = {
    "DagengineError": "errors",
    "Limits": "limits",
    "PromptTemplate": "prompts",
    "Store": "store",
    "a_evaluate": "evaluation",
    "assert_test": "evaluation",
    "compile_metrics": "plan",
    "evaluate": "evaluation",
    "on_test_run_end": "evaluation",
    "read_cases": "cases",
    "stream": "evaluation",
}

__all__ = [
    "DagengineError",
    "Limits",
    "PromptTemplate",
    "Store",
    "a_evaluate",
    "assert_test",
    "compile_metrics",
    "evaluate",
    "on_test_run_end",
    "read_cases",
    "stream",
]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(f"{__name__}.{_HOME[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return __all__
