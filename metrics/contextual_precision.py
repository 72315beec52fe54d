"""Contextual precision: whether useful contexts are above useless ones."""

from __future__ import annotations

import math
from collections.abc import Sequence

from dagengine.graph.graph import Graph
from dagengine.graph.node_values import Judgement, NodeValue
from dagengine.metrics.common.default_prompts import ItemQuestion
from dagengine.metrics.common.prebuilt import PrebuiltMetric, in_brackets, order_odds

USEFUL = ItemQuestion(
    "Is the piece of context of use for getting from `input` to `expected_output`? yes: it "
    "holds at least some of what the expected output says or rests on; no: the expected "
    "output can do without it, even if it is about the same subject. Judge each piece by "
    "itself; its place in the list means nothing.",
    "piece of context",
)


class ContextualPrecisionTemplate:
    """The prompt of `ContextualPrecisionMetric`; override the method to replace it."""

    @staticmethod
    def generate_verdicts(input: str, expected_output: str, retrieval_context: list[str]) -> str:
        """Asks for `{"verdicts": {"1": {"reason", "verdict"}, ...}}`."""
        return USEFUL.prompt(
            retrieval_context,
            field="retrieval_context",
            input=input,
            expected_output=expected_output,
        )


class ContextualPrecisionMetric(PrebuiltMetric):
    """How high the relevant contexts are ranked.

    Reads `input`, `expected_output` and `retrieval_context`; 1 call. Score: the mean, over
    the ranks k of relevant contexts, of (relevant in the first k) / k; 0 without any.
    """

    title, template = "Contextual Precision", ContextualPrecisionTemplate
    judged = (("retrieval_context",),)

    def graph(self) -> Graph:
        fields = ("input", "expected_output", "retrieval_context")
        # One call for all pieces, each verdict with the number of its piece: a list that is too
        # short or misnumbered is asked again, where zipping it would have scored the wrong ranks.
        wording = self.wording("generate_verdicts", *fields)
        verdicts = self.judge_items(USEFUL, fields[-1], "usefulness", wording, fields[:-1])
        return self.score_graph(mean_precision, [verdicts])


def mean_precision(verdicts: list[Judgement]) -> NodeValue:
    if not verdicts:
        return NodeValue(0.0, score=0.0, reason="There are no contexts to judge.")
    ranks = [rank for rank, judgement in enumerate(verdicts, 1) if judgement.verdict == "yes"]
    odds = order_odds(verdicts, ("yes",), _precision_of)
    if not ranks:
        why = "\n".join(_failing(verdicts, len(verdicts)))
        reason = f"None of {len(verdicts)} contexts is relevant.\n{why}"
        return NodeValue(0.0, score=0.0, reason=reason, odds=odds)
    score = precision_at(ranks)
    terms = " + ".join(f"{place}/{rank}" for place, rank in enumerate(ranks, 1))
    names = ", ".join(map(str, ranks))
    count = f"{len(ranks)} of {len(verdicts)} contexts are relevant, at rank {names}"
    parts = [f"{count}: ({terms}) / {len(ranks)} = {score:.4g}."]
    reason = "\n".join([*parts, *_failing(verdicts, ranks[-1])])
    return NodeValue(score, score=score, reason=reason, odds=odds)


def precision_at(ranks: Sequence[int]) -> float:
    """The mean precision at the ranks (from 1) of relevant contexts; 0 without any."""
    total = math.fsum(number / rank for number, rank in enumerate(ranks, 1))
    return total / len(ranks) if ranks else 0.0


def _precision_of(relevant: Sequence[bool]) -> float:
    """The mean precision by whether each context, in order, is relevant."""
    return precision_at([rank for rank, yes in enumerate(relevant, 1) if yes])


def _failing(verdicts: list[Judgement], last: int) -> list[str]:
    """The reasons of the irrelevant contexts that lower the score: those up to rank `last`."""
    reasons: list[str] = []
    for rank, judgement in enumerate(verdicts[:last], 1):
        if judgement.verdict != "yes":
            reasons.append(f"Not: rank {rank}{in_brackets(judgement.reason)}")
    return reasons
