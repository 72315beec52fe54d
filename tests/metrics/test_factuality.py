"""The ready tree of five verdicts about facts."""

from __future__ import annotations

import pytest

from dagengine import evaluate
from dagengine.compiler import check
from dagengine.errors import InputError
from dagengine.judges import ScriptedJudge
from dagengine.metrics.factuality import SCORES, factuality
from dagengine.test_case import LLMTestCase

CASE = LLMTestCase(input="Who?", actual_output="Ada.", expected_output="Ada Lovelace.")


@pytest.mark.parametrize(("verdict", "score"), SCORES.items())
def test_every_relation_has_its_score(verdict: str, score: int) -> None:
    metric = factuality()
    assert check(metric.spec())[0] == []
    done = evaluate([CASE], [metric], model=ScriptedJudge({"relation": verdict}), show=False)
    assert done.scores("Factuality") == [score / 10]


def test_the_scores_are_the_callers() -> None:
    metric = factuality({**SCORES, "the same facts": 9}, threshold=0.95)
    done = evaluate(
        [CASE], [metric], model=ScriptedJudge({"relation": "the same facts"}), show=False
    )
    assert (done.scores("Factuality"), done.success) == ([0.9], False)
    with pytest.raises(InputError, match="scores go from 0 to 10"):
        factuality({**SCORES, "the same facts": 11})
