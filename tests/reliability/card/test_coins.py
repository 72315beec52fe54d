"""What a judge card says of judges whose answers tell nothing, and of one that does."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest

from dagengine.metrics import DAGMetric
from dagengine.metrics.dag import DAG, BinaryJudgementNode
from dagengine.reliability.card import card_page, make_card
from dagengine.reliability.card.card_formats import markdown
from dagengine.reliability.card.sentences import answers
from dagengine.reliability.card.types import JudgeCard
from dagengine.reliability.observations import Condition, Observation
from dagengine.results import OutcomeKind
from dagengine.test_case import LLMTestCase

CASES = [LLMTestCase(name=f"case {number}", input=str(number)) for number in range(60)]


def card_of(judge: Callable[[random.Random, bool], bool], runs: int = 5) -> JudgeCard:
    """The card of a simulated judge: what it says of a case that should pass, or should not."""
    draw, seen = random.Random(4), list[Observation]()
    for case in range(len(CASES)):
        for sample in range(runs):
            verdict = judge(draw, case % 3 > 0)
            condition, path = Condition(sample), (("kind", verdict),)
            ok, score = OutcomeKind.OK, float(verdict)
            seen += [
                Observation(case, "manners", "", condition, None, score, None, ok, path),
                Observation(case, "manners", "kind", condition, verdict, None, None, ok),
            ]
    node = BinaryJudgementNode(
        "Is it kind?", then={True: 10, False: 0}, name="kind", evaluation_params=["input"]
    )
    return make_card(seen, [DAGMetric("manners", DAG(node))], CASES, ["judge"])


def price(card: JudgeCard) -> str:
    return str(answers(card.metrics[0].settings[0])[2])


@pytest.mark.parametrize("heads", [0.5, 0.8])
def test_a_coin_is_called_one(heads: float) -> None:
    card = card_of(lambda draw, _: draw.random() < heads)
    assert price(card).startswith(
        "Votes cannot help: the answers of “kind” to the same question agree no more than chance "
        "(Krippendorff's alpha "
    )
    (node,) = card.metrics[0].settings[0].nodes
    assert node.votes is not None
    assert node.votes.by_chance
    for shown in (markdown(card), card_page(card)):
        assert "votes cannot help: its answers agree by chance" in shown


def test_a_judge_that_always_says_yes_is_told_so() -> None:
    card = card_of(lambda *_: True)
    assert price(card) == "Votes change nothing: “kind” gave every case the same verdict."


def test_a_good_judge_with_noise_is_told_its_votes() -> None:
    card = card_of(lambda draw, good: good if draw.random() < 0.9 else not good)
    assert price(card).startswith("“kind” needs ")
    (node,) = card.metrics[0].settings[0].nodes
    assert node.votes is not None
    assert not node.votes.by_chance
    assert not node.votes.constant
    found = node.votes.agreement
    assert found is not None
    assert found.low is not None
    assert found.value is not None
    assert found.low > 0.4


def test_two_runs_of_a_few_cases_call_nobody_a_coin() -> None:
    card = card_of(lambda draw, good: good if draw.random() < 0.85 else not good, runs=2)
    assert "Votes cannot help" not in price(card)
