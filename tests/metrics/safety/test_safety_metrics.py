"""Metrics of what an answer must keep out: what they ask, and how they score."""

from __future__ import annotations

import warnings
from functools import partial
from typing import Any

import pytest
from graphs.packing_judge import PackingJudge
from graphs.trees import result_of

from dagengine import evaluate
from dagengine.errors import InputError
from dagengine.judges import ScriptedJudge
from dagengine.metrics import MisuseMetric, NonAdviceMetric, PIILeakageMetric, RoleViolationMetric
from dagengine.question import Question
from dagengine.results import MetricResult
from dagengine.test_case import LLMTestCase

CASE = LLMTestCase(input="Shall I sell?", actual_output="Yes. Ada, 12 Mill Lane, sold, too.")
SHARES: list[Any] = [
    (PIILeakageMetric, "details", "personal data"),
    (partial(NonAdviceMetric, ["financial", "legal"]), "advices", "professional advice"),
    (partial(MisuseMetric, "banking"), "services", "misuse"),
]
ALL: list[Any] = [
    *SHARES,
    (partial(RoleViolationMetric, "a bank clerk"), "departures", "role violation"),
]


def script(items: str, node: str, verdicts: str) -> dict[str, Any]:
    """What a judge says that finds an item for each letter: y is a fault, n is none."""
    words = {"y": "yes", "n": "no"}
    listed = [f"Thing {place}." for place in range(len(verdicts))]
    judged = {
        str(place): {"reason": f"why {place}", "verdict": words[letter]}
        for place, letter in enumerate(verdicts, 1)
    }
    return {f"{items} of actual_output": {items: listed}, node: {"verdicts": judged}}


def only(metric: Any, judge: Any, case: LLMTestCase = CASE) -> MetricResult:
    return result_of(case, metric, judge)


@pytest.mark.parametrize(("make", "items", "node"), SHARES)
@pytest.mark.parametrize(
    ("verdicts", "score"), [("nn", 1.0), ("ynnn", 3 / 4), ("yyn", 1 / 3), ("y", 0.0), ("", 1.0)]
)
def test_a_score_is_the_share_without_fault(
    make: Any, items: str, node: str, verdicts: str, score: float
) -> None:
    judge = ScriptedJudge(script(items, node, verdicts))
    done = evaluate([CASE], [make()], model=judge, show=False)
    assert done.rows[0].metrics[0].score == score
    assert done.totals.calls == (2 if verdicts else 1)


@pytest.mark.parametrize(
    ("verdicts", "score"), [("nn", 1.0), ("nnnnny", 0.0), ("y", 0.0), ("", 1.0)]
)
def test_one_violation_of_a_role_scores_zero(verdicts: str, score: float) -> None:
    judge = ScriptedJudge(script("departures", "role violation", verdicts))
    result = only(RoleViolationMetric("a bank clerk"), judge)
    assert result.score == score
    if "y" in verdicts:
        place = verdicts.index("y")
        assert result.reason == (
            f"{place} of {place + 1} departures are within the role: {place}/{place + 1} = "
            f"{place / (place + 1):.4g}.\nNot: 'Thing {place}.' (why {place + 1})\n"
            "One violation scores 0."
        )


def test_the_odds_of_a_role_are_those_of_no_violation_and_of_any() -> None:
    writer = ScriptedJudge(script("departures", "role violation", "nn"))
    (row,) = evaluate(
        [CASE], [RoleViolationMetric("a clerk")], model=PackingJudge(writer=writer), show=False
    ).rows
    odds = dict(row.metrics[0].steps[-1].odds or ())
    assert set(odds) == {0.0, 1.0}
    assert sum(odds.values()) == pytest.approx(1.0)


@pytest.mark.parametrize(("make", "items", "node"), ALL)
def test_the_list_is_made_of_the_answer_and_judged_without_it(
    make: Any, items: str, node: str
) -> None:
    asked: dict[str, str] = {}
    answers = script(items, node, "n")

    def answer(question: Question[Any]) -> Any:
        asked[question.name] = "\n".join(message["content"] for message in question.messages)
        return answers[question.name]

    only(make(), ScriptedJudge(answer))
    first, second = asked[f"{items} of actual_output"], asked[node]
    assert "12 Mill Lane" in first
    assert ("Shall I sell?" in first) is (make is not PIILeakageMetric)
    assert "Thing 0." in second
    assert "12 Mill Lane" not in second


@pytest.mark.parametrize(
    ("metric", "words"),
    [
        (NonAdviceMetric(["financial", "{x}"]), "one of these kinds: financial, {x}?"),
        (MisuseMetric("banking {here}"), "this domain only: banking {here}."),
        (RoleViolationMetric("a {bank} clerk"), "given this role: a {bank} clerk."),
    ],
)
def test_settings_are_in_the_question(metric: Any, words: str) -> None:
    texts = [node.text for node in metric.graph().nodes()]
    assert any(words in text for text in texts)


@pytest.mark.parametrize(
    ("make", "setting", "error", "message"),
    [
        (NonAdviceMetric, "financial", TypeError, "advice_types must be a list of texts"),
        (NonAdviceMetric, [], InputError, "advice_types is an empty list"),
        (NonAdviceMetric, ["a", " "], InputError, r"advice_types\[1\] is empty"),
        (NonAdviceMetric, [1], TypeError, r"advice_types\[0\] must be a text"),
        (MisuseMetric, " ", InputError, "domain is empty"),
        (MisuseMetric, None, TypeError, "domain must be a text"),
        (RoleViolationMetric, "", InputError, "role is empty"),
    ],
)
def test_settings_that_say_nothing_are_refused(
    make: Any, setting: Any, error: Any, message: str
) -> None:
    with pytest.raises(error, match=message):
        make(setting)


def test_a_low_threshold_is_no_misunderstanding() -> None:
    """Elsewhere, too, 1 is best here: there is nothing to warn of."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for make, _, _ in ALL:
            make(threshold=0.2)
