"""Judge the output of language models with decision trees that compile, draw and run.

Names are loaded when they are first used: importing this package does nothing else. Names that only
other libraries have are answered with what is done here (`compat`).
"""

from __future__ import annotations

from importlib import import_module

# Nothing else is imported before the command line can answer Ctrl-C, `typing` included.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from dagengine.attacking.campaign import a_attack as a_attack
    from dagengine.attacking.campaign import attack as attack
    from dagengine.compiler.execution_plan import compile_metrics as compile_metrics
    from dagengine.data.cases import read_cases as read_cases
    from dagengine.deepeval_configs import AsyncConfig as AsyncConfig
    from dagengine.deepeval_configs import CacheConfig as CacheConfig
    from dagengine.deepeval_configs import DisplayConfig as DisplayConfig
    from dagengine.deepeval_configs import ErrorConfig as ErrorConfig
    from dagengine.engine import Engine as Engine
    from dagengine.errors import DagengineError as DagengineError
    from dagengine.errors import EngineClosedError as EngineClosedError
    from dagengine.evaluation import a_evaluate as a_evaluate
    from dagengine.evaluation import evaluate as evaluate
    from dagengine.evaluation import stream as stream
    from dagengine.gateway.budget import Account as Account
    from dagengine.improvement.search import a_improve as a_improve
    from dagengine.improvement.search import improve as improve
    from dagengine.limits import Limits as Limits
    from dagengine.metrics.arena_g_eval import compare as compare
    from dagengine.metrics.criteria import Criteria as Criteria
    from dagengine.metrics.criteria import EvaluatorType as EvaluatorType
    from dagengine.metrics.criteria import load_evaluator as load_evaluator
    from dagengine.metrics.criteria import load_evaluators as load_evaluators
    from dagengine.prompts.instructions import PromptTemplate as PromptTemplate
    from dagengine.store.answer_journal import Store as Store
    from dagengine.testing.assertion import assert_test as assert_test
    from dagengine.testing.assertion import on_test_run_end as on_test_run_end

_NAMES = {
    "attacking.campaign": ("a_attack", "attack"),
    "compiler.execution_plan": ("compile_metrics",),
    "data.cases": ("read_cases",),
    "deepeval_configs": ("AsyncConfig", "CacheConfig", "DisplayConfig", "ErrorConfig"),
    "engine": ("Engine",),
    "errors": ("DagengineError", "EngineClosedError"),
    "evaluation": ("a_evaluate", "evaluate", "stream"),
    "gateway.budget": ("Account",),
    "improvement.search": ("a_improve", "improve"),
    "limits": ("Limits",),
    "metrics.arena_g_eval": ("compare",),
    "metrics.criteria": ("Criteria", "EvaluatorType", "load_evaluator", "load_evaluators"),
    "prompts.instructions": ("PromptTemplate",),
    "store.answer_journal": ("Store",),
    "testing.assertion": ("assert_test", "on_test_run_end"),
}
"""Where public names are made."""
_HOME = {name: module for module, names in _NAMES.items() for name in names}

__all__ = sorted(_HOME)  # pyright: ignore[reportUnsupportedDunderAll]

_DOORS = ("dataset", "errors", "metrics", "models", "scorer", "synthesizer", "test_case")
"""Modules that `import dagengine` alone is enough for."""


def __getattr__(name: str) -> Any:
    if name == "__version__":
        from importlib.metadata import version

        return version(__name__)
    if name in _DOORS:
        return import_module(f"{__name__}.{name}")
    if name not in _HOME:
        from dagengine.unknown import absent_names

        return absent_names(__name__)(name)
    value = getattr(import_module(f"{__name__}.{_HOME[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return __all__
