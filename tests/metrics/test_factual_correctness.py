"""Factual correctness: claims of both sides, each against the other text."""

from __future__ import annotations

from typing import Any, Literal

import pytest
from graphs.trees import result_of
from hypothesis import given, settings
from hypothesis import strategies as st

from dagengine import evaluate
from dagengine.errors import InputError
from dagengine.judges import LexicalJudge, ScriptedJudge
from dagengine.metrics.factual_correctness import FactualCorrectness, FactualCorrectnessTemplate
from dagengine.results import OutcomeKind
from dagengine.test_case import LLMTestCase

CASE = LLMTestCase(
    input="Which?",
    actual_output="The tower stands in Paris. It opened in 1890.",
    expected_output="The tower stands in Paris. Eiffel's firm built it of iron.",
)
MODES: tuple[Literal["f1", "precision", "recall"], ...] = ("f1", "precision", "recall")
SIDES = st.lists(st.booleans(), max_size=4)


def script(answer: list[bool], reference: list[bool]) -> dict[str, Any]:
    """What a judge says that finds these claims stated by the other side."""

    def claims(of: list[bool]) -> dict[str, Any]:
        return {"statements": [{"text": f"claim {n}", "factual": True} for n in range(len(of))]}

    def verdicts(of: list[bool]) -> dict[str, Any]:
        words = enumerate(("yes" if one else "no" for one in of), 1)
        return {"verdicts": [{"number": n, "reason": "so", "verdict": v} for n, v in words]}

    return {
        "statements of actual_output": claims(answer),
        "statements of expected_output": claims(reference),
        "claims of the answer": verdicts(answer),
        "claims of the reference": verdicts(reference),
    }


@pytest.mark.parametrize(
    ("mode", "beta", "score"),
    [
        ("precision", 1, 1 / 2),
        ("recall", 1, 1 / 4),
        ("f1", 1, 2 * (1 / 2) * (1 / 4) / (3 / 4)),
        ("f1", 2, 5 * (1 / 2) * (1 / 4) / (4 * (1 / 2) + 1 / 4)),
        ("f1", 0.5, 1.25 * (1 / 2) * (1 / 4) / (0.25 * (1 / 2) + 1 / 4)),
    ],
)
def test_each_mode_is_its_formula(
    mode: Literal["f1", "precision", "recall"], beta: float, score: float
) -> None:
    answers = ScriptedJudge(script([True, False], [True, False, False, False]))
    result = result_of(CASE, FactualCorrectness(mode=mode, beta=beta), answers)
    assert result.score == pytest.approx(score)


@settings(max_examples=40)
@given(answer=SIDES, reference=SIDES)
def test_f1_lies_between_its_parts_and_is_none_without_a_reference(
    answer: list[bool], reference: list[bool]
) -> None:
    model = ScriptedJudge(script(answer, reference))
    metrics = [FactualCorrectness(mode=mode) for mode in MODES]
    for metric, mode in zip(metrics, MODES, strict=True):
        metric.name = mode
    (row,) = evaluate([CASE], metrics, model=model, show=False).rows
    f1, precision, recall = row.metrics
    assert precision.score == (sum(answer) / len(answer) if answer else None)
    if not answer or not reference:
        assert f1.outcome == OutcomeKind.SKIPPED
        assert (recall.outcome == OutcomeKind.SKIPPED) == (not reference)
        return
    assert recall.score == sum(reference) / len(reference)
    assert f1.score is not None
    assert precision.score is not None
    assert recall.score is not None
    assert min(precision.score, recall.score) - 1e-9 <= f1.score
    assert f1.score <= max(precision.score, recall.score) + 1e-9


def test_the_reason_says_both_parts_and_the_steps_say_what_is_wrong_and_missing() -> None:
    result = result_of(CASE, FactualCorrectness(), script([True, False], [False]))
    assert result.reason is not None
    assert "F1 of precision 0.5, recall 0: 0." in result.reason
    said = {step.node: step.reason for step in result.steps}
    assert said["precision"] == (
        "1 of 2 claims of the answer are stated by the reference: 1/2 = 0.5.\nNot: 'claim 1' (so)"
    )


@pytest.mark.parametrize("blank", ["actual_output", "expected_output"])
def test_without_a_text_on_one_side_nothing_is_asked(blank: str) -> None:
    metric = FactualCorrectness(mode="precision")
    result = result_of(CASE.model_copy(update={blank: " "}), metric, {})
    assert result.outcome == OutcomeKind.SKIPPED


def test_words_alone_can_judge_it() -> None:
    result = result_of(CASE, FactualCorrectness(), LexicalJudge())
    assert result.score == 0.5


def test_a_template_replaces_both_prompts_for_both_sides() -> None:
    seen: list[str] = []

    class Own(FactualCorrectnessTemplate):
        @staticmethod
        def generate_claims(text: str) -> str:
            return f"List the claims of: {text}"

        @staticmethod
        def generate_verdicts(claims: list[str], text: str) -> str:
            seen.append(text)
            return f"Which of {claims} does this state? {text}"

    answers = script([True], [True])
    for side in ("actual_output", "expected_output"):
        answers[f"claims of {side}"] = {"claims": ["claim 0"]}
    result = result_of(CASE, FactualCorrectness(evaluation_template=Own), answers)
    assert result.score == 1.0
    assert sorted(seen) == sorted([str(CASE.actual_output), str(CASE.expected_output)])


def test_wrong_settings_are_refused() -> None:
    wrong: Any = "recal"
    with pytest.raises(InputError, match=r"mode='recal' is unknown; did you mean 'recall'\?"):
        FactualCorrectness(mode=wrong)
    for beta in (0.0, -1.0, float("nan"), float("inf")):
        with pytest.raises(InputError, match="beta must be above 0"):
            FactualCorrectness(beta=beta)
