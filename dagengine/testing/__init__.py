"""Evaluations as pytest tests: the plugin, recorded answers, gates."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dagengine.unknown import answer_absent

if TYPE_CHECKING:
    from dagengine.testing.assertion import assert_test as assert_test
    from dagengine.testing.assertion import on_test_run_end as on_test_run_end
    from dagengine.testing.verdicts import AnswerMissingError as AnswerMissingError
    from dagengine.testing.verdicts import EvaluationFailed as EvaluationFailed

__all__ = ["AnswerMissingError", "EvaluationFailed", "assert_test", "on_test_run_end"]

# pytest imports this package for its plugin; the rest loads when it is first used.
answer_absent(
    __name__,
    {
        "AnswerMissingError": "dagengine.testing.verdicts",
        "EvaluationFailed": "dagengine.testing.verdicts",
        "assert_test": "dagengine.testing.assertion",
        "on_test_run_end": "dagengine.testing.assertion",
    },
)
