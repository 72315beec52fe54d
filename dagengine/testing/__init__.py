"""Evaluations as pytest tests: the plugin, recorded answers, gates."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from dagengine.unknown import absent_names

if TYPE_CHECKING:
    from dagengine.testing.assertion import assert_test as assert_test
    from dagengine.testing.assertion import on_test_run_end as on_test_run_end
    from dagengine.testing.verdicts import AnswerMissingError as AnswerMissingError
    from dagengine.testing.verdicts import EvaluationFailed as EvaluationFailed

# pytest imports this package for its plugin; the rest loads when it is first used.
_HOME = {
    "AnswerMissingError": "verdicts",
    "EvaluationFailed": "verdicts",
    "assert_test": "assertion",
    "on_test_run_end": "assertion",
}

__all__ = ["AnswerMissingError", "EvaluationFailed", "assert_test", "on_test_run_end"]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        return absent_names(__name__)(name)
    value = getattr(import_module(f"{__name__}.{_HOME[name]}"), name)
    globals()[name] = value
    return value
