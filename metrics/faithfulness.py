"""Faithfulness: whether what the answer claims agrees with the retrieved context."""

from __future__ import annotations

from functools import partial
from typing import Any

from dagengine.errors import NotApplicableError
from dagengine.graph import Graph
from dagengine.list_nodes import VerdictListNode
from dagengine.metrics.extraction import (
    STATEMENTS,
    at_least_one,
    claims_of,
    truths_of,
    truths_prompt,
)
from dagengine.metrics.prebuilt import PrebuiltMetric, share, whole_prompt
from dagengine.node import Judgement, NodeValue
from dagengine.nodes import CodeNode

VERDICTS = ("yes", "idk", "no")
SUPPORTED = (
    "Compare the claim with the facts in `truths` and with nothing else you know. yes: the "
    "facts support it; no: the facts contradict it, they cannot both be true; idk: the facts "
    "neither support nor contradict it. `input` is the question that was answered; it only "
    "shows what the claim is about."
)


class FaithfulnessTemplate:
    """The prompts of `FaithfulnessMetric`; override a method to replace one."""

    @staticmethod
    def generate_claims(actual_output: str) -> str:
        """Asks for `{"claims": [...]}`."""
        return whole_prompt(STATEMENTS, actual_output=actual_output)

    @staticmethod
    def generate_truths(retrieval_context: list[str], extraction_limit: int | None = None) -> str:
        """Asks for `{"truths": [...]}`."""
        return whole_prompt(truths_prompt(extraction_limit), retrieval_context=retrieval_context)

    @staticmethod
    def generate_verdicts(claims: list[str], truths: list[str]) -> str:
        """Asks for `{"verdicts": [{"reason", "verdict", "number"}, ...]}`."""
        return whole_prompt(SUPPORTED, claims=claims, truths=truths)


class FaithfulnessMetric(PrebuiltMetric):
    """The share of the answer's claims that the retrieved context does not contradict.

    Reads `input`, `actual_output` and `retrieval_context`; 3 calls, the first two at the
    same time. Score: not contradicted / claims, 1 when the answer claims nothing; an empty
    context is an error. `truths_extraction_limit` bounds the facts taken from the context;
    `penalize_ambiguous_claims` counts claims that it neither supports nor contradicts as
    failing.
    """

    title = "Faithfulness"

    def __init__(
        self,
        threshold: float = 0.5,
        model: Any = None,
        *,
        truths_extraction_limit: int | None = None,
        penalize_ambiguous_claims: bool = False,
        **settings: Any,
    ) -> None:
        super().__init__(threshold, model, **settings)
        self.truths_extraction_limit = at_least_one(
            "truths_extraction_limit", truths_extraction_limit
        )
        self.penalize_ambiguous_claims = penalize_ambiguous_claims

    def graph(self) -> Graph:
        template, limit = FaithfulnessTemplate, self.truths_extraction_limit
        wording = self.wording(
            template, "generate_truths", "retrieval_context", extraction_limit=limit
        )
        truths = truths_of("retrieval_context", limit, wording)
        claims = claims_of(wording=self.wording(template, "generate_claims", "actual_output"))
        verdicts = VerdictListNode(
            SUPPORTED,
            claims,
            "support",
            verdicts=VERDICTS,
            item_label="claim",
            inputs=[truths],
            evaluation_params=["input"],
            wording=self.wording(template, "generate_verdicts", "claims", "truths"),
        )
        # By its name it comes before every question, so that none is asked in vain.
        context = CodeNode(
            _given, evaluation_params=["retrieval_context"], name="context to compare with"
        )
        good = ("yes",) if self.penalize_ambiguous_claims else ("yes", "idk")
        score = partial(_score, good)
        return Graph(CodeNode(score, inputs=[context, claims, verdicts], name="score"))


def _given(contexts: list[str]) -> str:
    """What to call the contexts; raises InputError when there is none."""
    if not contexts:
        raise NotApplicableError(
            "not applicable: `retrieval_context` is empty, nothing to compare with"
        )
    return "the context" if len(contexts) == 1 else f"the {len(contexts)} contexts"


def _score(
    good: tuple[str, ...], context: str, claims: list[str], verdicts: list[Judgement]
) -> NodeValue:
    agree = "not contradicted" if "idk" in good else "supported"
    return share(claims, verdicts, good, what="claims", passed=f"{agree} by {context}", empty=1.0)
