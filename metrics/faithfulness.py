"""Faithfulness: whether what the answer claims agrees with the retrieved context."""

from __future__ import annotations

from typing import Any, Unpack

from dagengine.errors import NotApplicableError
from dagengine.graph.graph import Graph, is_blank
from dagengine.graph.node import BaseNode
from dagengine.graph.node_values import Judgement, NodeValue
from dagengine.graph.nodes import CodeNode
from dagengine.metrics.common.default_prompts import ItemQuestion, task_prompt
from dagengine.metrics.common.extraction import (
    STATEMENTS,
    Statements,
    claims_of,
    truths_of,
    truths_prompt,
)
from dagengine.metrics.common.prebuilt import MetricSettings, PrebuiltMetric, at_least_one, share

SUPPORTED = ItemQuestion(
    "Compare the claim with the facts in `truths` and with nothing else you know. yes: the "
    "facts support it; no: the facts contradict it, they cannot both be true; idk: the facts "
    "neither support nor contradict it. `input` is the question that was answered; it only "
    "shows what the claim is about.",
    "claim",
    ("yes", "idk", "no"),
)


class FaithfulnessTemplate:
    """The prompts of `FaithfulnessMetric`; override a method to replace one."""

    @staticmethod
    def generate_claims(actual_output: str) -> str:
        """Asks for `{"claims": [...]}`."""
        return task_prompt(STATEMENTS, Statements, actual_output=actual_output)

    @staticmethod
    def generate_truths(retrieval_context: list[str], extraction_limit: int | None = None) -> str:
        """Asks for `{"truths": [...]}`."""
        return truths_prompt(extraction_limit, retrieval_context=retrieval_context)

    @staticmethod
    def generate_verdicts(claims: list[str], truths: list[str], input: str) -> str:
        """Asks for `{"verdicts": {"1": {"reason", "verdict"}, ...}}`."""
        return SUPPORTED.prompt(claims, truths=truths, input=input)


class FaithfulnessMetric(PrebuiltMetric):
    """The share of the answer's claims that the retrieved context does not contradict.

    Reads `input`, `actual_output` and `retrieval_context`; 3 calls, the first two at the same time.
    Score: claims that are not contradicted / claims, from 0 to 1, and 1 when the answer claims
    nothing, which the judge has to say twice. A case without context is skipped. So is one if the
    judge lists nothing of the answer or of the context, asked twice. `truths_extraction_limit` is
    the largest number of facts taken from the context (InputError below 1). With
    `penalize_ambiguous_claims` a claim that the context neither supports nor contradicts fails.
    """

    title, template = "Faithfulness", FaithfulnessTemplate

    def __init__(
        self,
        *common: Any,
        truths_extraction_limit: int | None = None,
        penalize_ambiguous_claims: bool = False,
        **settings: Unpack[MetricSettings],
    ) -> None:
        self.take_common(common, settings)
        self.truths_extraction_limit = at_least_one(
            "truths_extraction_limit", truths_extraction_limit
        )
        self.penalize_ambiguous_claims = penalize_ambiguous_claims

    def graph(self) -> Graph:
        return Graph(self.score_node(comparison_gate()))

    def score_node(self, wanted: BaseNode) -> CodeNode:
        """The node that scores; `wanted` is a node whose value says whether to ask anything."""
        limit = self.truths_extraction_limit
        wording = self.wording("generate_truths", "retrieval_context", extraction_limit=limit)
        # Neither extraction reads the other, so they run at the same time. Their prompts are those
        # of other metrics word for word: used together, metrics ask for the claims of an answer
        # once.
        truths = truths_of("retrieval_context", limit, wording, wanted)
        wording = self.wording("generate_claims", "actual_output")
        claims = claims_of("actual_output", wording, wanted)
        verdicts = self.judge_items(
            SUPPORTED,
            claims,
            "support",
            self.wording("generate_verdicts", "claims", "truths", "input"),
            ["input"],
            inputs=[truths],
            quote_from=["retrieval_context"],
        )
        return CodeNode(
            self.faithful_share,
            evaluation_params=["retrieval_context"],
            inputs=[claims, verdicts],
            name="score",
        )

    def faithful_share(
        self, contexts: list[str], claims: list[str], verdicts: list[Judgement]
    ) -> NodeValue:
        """The score, and why."""
        good = ("yes",) if self.penalize_ambiguous_claims else ("yes", "idk")
        agree = "not contradicted" if "idk" in good else "supported"
        context = "the context" if len(contexts) == 1 else f"the {len(contexts)} contexts"
        passed = f"{agree} by {context}"
        return share(claims, verdicts, good, what="claims", passed=passed, empty=1.0)


def comparison_gate() -> CodeNode:
    """The node that says whether there is anything to compare, before the first call."""
    return CodeNode(
        comparable,
        evaluation_params=["actual_output", "retrieval_context"],
        name="something to compare",
    )


def comparable(actual_output: str, contexts: list[str]) -> bool:
    """Whether the answer says anything; raises NotApplicableError when there is no context."""
    if is_blank(contexts):
        raise NotApplicableError(
            "not applicable: `retrieval_context` is empty, nothing to compare with"
        )
    return not is_blank(actual_output)
