"""The metrics that make published figures of recorded calls.

Parsing, weighting and combining happens here; who answers is no concern of a metric. Where a
source kept its prompts they are the question, where it did not, the name of the item is. The
sources ask in prose, and some in questions of their own (faithfulness without a list of truths,
one order of presentation per comparison): ratings are G-Eval, the others decision graphs.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any, Literal

from pydantic import BaseModel

from dagengine import PromptTemplate
from dagengine.graph import NodeValue
from dagengine.metrics import DAGMetric, GEval
from dagengine.metrics.common.base import DrawnMetric
from dagengine.metrics.common.prebuilt import share
from dagengine.metrics.dag import (
    DAG,
    BaseNode,
    CodeNode,
    Judgement,
    MapNode,
    NonBinaryJudgementNode,
    RatingNode,
    TaskNode,
)
from dagengine.metrics.g_eval import Rubric
from dagengine.prompts.evidence import unfence
from dagengine.question import EveryMatch, FirstMatch, Options
from dagengine.reliability.statistics.stability import majority_share


def metric(name: str, root: BaseNode) -> DAGMetric:
    """A graph, given by its root, as a metric that scores and passes no judgement."""
    return DAGMetric(name, DAG(root), threshold=None)


def number(pattern: str, field: str = "score") -> FirstMatch:
    """Reads the number that a pattern's group finds."""
    return FirstMatch(((pattern, None),), field=field)


# WikiEval: a chain of calls, and ratings with probabilities.

SCALES = {"1-5": (1, 5), "1-10": (1, 10), "0-1": (0, 1)}


def faithfulness() -> DAGMetric:
    """The statements of the answer, a verdict on each, and the share of supported ones."""
    statements = TaskNode(
        "List the statements that the answer makes.",
        output_label="statements",
        evaluation_params=["name"],
        output_type=list[str],
        prompt=PromptTemplate("the statements of {name}"),
        # Whatever stands in quotes: the source also takes what is whole of a list cut off.
        parser=EveryMatch(r'"((?:[^"\\]|\\.)*)"'),
    )
    verdicts = MapNode(
        "Can the statement be inferred from the context?",
        statements,
        "verdicts",
        answer=("1", "0"),
        item_label="statement",
        evaluation_params=["name"],
        prompt=PromptTemplate("{name}: {statement}"),
        parser=number(r"Verdict:\s*([01])", "verdict"),
    )
    return metric("faithfulness", CodeNode(supported, inputs=[statements, verdicts]))


def supported(statements: list[str], verdicts: list[Judgement]) -> NodeValue:
    """The share of statements that the context supports."""
    return share(statements, verdicts, ("1",), what="statements", passed="supported", empty=1.0)


class Recorded:
    """What stands for prompts that were not kept: the item, and what it is rated by."""

    @staticmethod
    def generate_evaluation_results(
        evaluation_steps: str, test_case_content: str, **more: Any
    ) -> str:
        """The step, and the name of the item."""
        (name,) = unfence(test_case_content)
        return f"{evaluation_steps.removeprefix('1. ')} of {name.text}"


def rated(name: str, scale: tuple[int, int], pattern: str) -> GEval:
    """A rating weighted by the probabilities of the token that the pattern finds."""
    return GEval(
        name,
        evaluation_steps=[name],
        evaluation_params=["name"],
        rubric=[Rubric(score_range=scale, expected_outcome="not recorded")],
        threshold=None,
        evaluation_template=Recorded,
        parser=number(pattern),
    )


def relevance(scale: str) -> GEval:
    """How relevant the answer is, on one scale."""
    # On the scale from 0 to 1 the source weighted what stands before the decimal point.
    return rated(scale, SCALES[scale], r"^(\d+)")


# LLM-Rubric: nothing but the probabilities of four answers.

QUESTIONS = ("Q0", "Q1", "Q2", "Q3", "Q4", "Q5", "Q6", "Q7", "Q8")


def rubric_metrics() -> list[DrawnMetric]:
    """Two metrics per question: the expected answer, and the most likely one as it stands."""
    expected = [rated(question, (1, 4), r"^(\d)$") for question in QUESTIONS]
    return [*expected, *(_most_likely(question) for question in QUESTIONS)]


def _most_likely(question: str) -> DAGMetric:
    rating = RatingNode(
        question,
        ["name"],
        scale=(1, 4),
        prompt=PromptTemplate(f"{question} of {{name}}"),
        parser=number(r"^(\d)$"),
        options=Options(),
    )
    return metric(f"argmax {question}", rating)


# AlpacaEval: one answer against a baseline, in an order that the instruction decides.

BASELINE, MODEL = "A", "B"
SHOWN = {"m": 0, "M": 1}
"""How the prompt calls the answers: m is shown first, M second."""

TOKEN, RANKS = "the better one of {name} as one token", "the ranks in {name}"
"""What stands in for the prompts of the judge that writes one token, and of the one that ranks."""


class Ranked(BaseModel):
    """One answer's place in a ranking."""

    model: Literal["m", "M"]
    rank: Literal[1, 2]


class Ranking(BaseModel):
    """What the judge that explains itself answers, as a function call."""

    concise_explanation: str
    ordered_models: list[Ranked]


def preference(compare: Callable[[str], BaseNode]) -> DAGMetric:
    """How far the model's answer is preferred; nobody is asked about two equal answers."""
    order = CodeNode(
        shown_order,
        evaluation_params=["contestants.A.input"],
        then={"AB": compare("AB"), "BA": compare("BA")},
        name="order",
    )
    answers = [f"contestants.{name}.actual_output" for name in (BASELINE, MODEL)]
    root = CodeNode(equal, evaluation_params=answers, then={True: 5, False: order})
    return metric("preference", root)


def equal(first: str, second: str) -> bool:
    """Whether two answers are the same text."""
    return first == second


def shown_order(instruction: str) -> str:
    """The order of presentation, drawn by AlpacaEval with the instruction as the seed."""
    drawn = random.Random(f"is_switched_outputs{instruction}0")
    return "BA" if drawn.choices([False, True])[0] else "AB"


def token_preference(order: str) -> BaseNode:
    """The preference in the probabilities of m and M as the only token of the answer.

    score = Σ value · p / Σ p over the two, whatever else the judge might have written or did
    write (Dubois et al. 2024, https://arxiv.org/abs/2404.04475).
    """
    return RatingNode(
        "Which answer is better?",
        ["name"],
        scale={token: int(order[place] == MODEL) for token, place in SHOWN.items()},
        name=f"preference {order}",
        prompt=PromptTemplate(TOKEN),
        parser=number(r"^(\w+)"),
        options=Options(temperature=1.0, max_tokens=1, top_logprobs=5),
    )


def ranked_preference(order: str) -> BaseNode:
    """The preference in a ranking: whatever rank m has decides, as AlpacaEval reads it."""
    ranking = TaskNode(
        "Rank both answers.",
        output_label=f"ranking {order}",
        evaluation_params=["name"],
        output_type=Ranking,
        prompt=PromptTemplate(RANKS),
    )
    first, second = (10 if name == MODEL else 0 for name in order)
    return CodeNode(first_wins, inputs=[ranking], then={True: first, False: second})


def first_wins(ranking: Ranking) -> bool:
    """Whether the answer shown first has rank 1; the other one's rank is not looked at."""
    return next(entry.rank for entry in ranking.ordered_models if entry.model == "m") == 1


# MT-Bench: a number in double brackets, anywhere in the answer, with or without a fraction.

MT_SCALE = (1, 10)


def stated_rating(sample: int) -> DAGMetric:
    """A rating as it stands in the answer; RatingNode is for whole numbers."""
    rating = TaskNode(
        "Rate it.",
        output_label="rating",
        evaluation_params=["input"],
        output_type=float,
        prompt=PromptTemplate("{input}"),
        parser=number(r"\[\[(\d+(?:\.\d+)?)\]\]", "output"),
        options=Options(sample=sample),
    )
    return metric("rating", CodeNode(scaled, inputs=[rating]))


def scaled(rating: float) -> float:
    """Where a rating stands on MT-Bench's scale, from 0 to 1."""
    low, high = MT_SCALE
    return (rating - low) / (high - low)


# Prometheus: a rubric score after the feedback, asked three times.

TIMES = range(3)


def agreement() -> DAGMetric:
    """Three ratings of one answer, and the share of the one given most often."""
    ratings = [
        RatingNode(
            "Rate the answer by the rubric.",
            ["input"],
            scale=(1, 5),
            output_label=f"rating {sample}",
            prompt=PromptTemplate("{input}"),
            parser=number(r"\[RESULT\]\s*(\d+)"),
            options=Options(sample=sample),
        )
        for sample in TIMES
    ]
    return metric("agreement", CodeNode(share_of_majority, inputs=ratings))


def share_of_majority(*ratings: float) -> float | None:
    """The share of the rating given most often."""
    return majority_share([ratings])


# PandaLM: first answer, second answer or tie, against the majority of three people.

_VERDICTS = {"A": 10, "tie": 5, "B": 0}


def comparison() -> DAGMetric:
    """One question; an answer that names no response is a tie, as the source counts it."""
    verdict = NonBinaryJudgementNode(
        "Which response is better?",
        name="verdict",
        evaluation_params=["name"],
        then=_VERDICTS,
        prompt=PromptTemplate("{name}"),
        parser=FirstMatch(((r"^1\b", "A"), (r"^2\b", "B"), (r"", "tie"))),
    )
    return metric("verdict", verdict)
