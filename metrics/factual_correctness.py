"""Factual correctness: claims of the answer and of the reference, each against the other text."""

from __future__ import annotations

from typing import Any, Literal, Unpack

from dagengine.errors import InputError, NotApplicableError, did_you_mean
from dagengine.graph.graph import Graph
from dagengine.graph.list_nodes import VerdictListNode
from dagengine.graph.node_values import Judgement, NodeValue
from dagengine.graph.nodes import CodeNode
from dagengine.metrics.common.default_prompts import ItemQuestion, task_prompt
from dagengine.metrics.common.extraction import STATEMENTS, Statements, claims_of
from dagengine.metrics.common.prebuilt import MetricSettings, PrebuiltMetric, share

MODES = ("f1", "precision", "recall")
STATED = ItemQuestion(
    "Is the claim in `{field}`? Go by that text and by nothing else you know. yes: the text says "
    "or implies it; no: the text contradicts it or leaves it open.",
    "claim",
)


class FactualCorrectnessTemplate:
    """The prompts of `FactualCorrectness`; override a method to replace one."""

    @staticmethod
    def generate_claims(text: str) -> str:
        """Asks for `{"claims": [...]}`, once of the answer and once of the reference."""
        return task_prompt(STATEMENTS, Statements, text=text)

    @staticmethod
    def generate_verdicts(claims: list[str], text: str) -> str:
        """Asks for `{"verdicts": {"1": {"reason", "verdict"}, ...}}` on one side's claims."""
        return STATED.format(field="text").prompt(claims, text=text)


class FactualCorrectness(PrebuiltMetric):
    """How well the claims of the answer match those of the reference.

    Reads `actual_output` and `expected_output`; 4 calls in two rounds, 2 with a `mode` for one
    side. Precision: claims of the answer that the reference states / claims of the answer, 0
    without any. Recall: claims of the reference that the answer states / claims of the reference; a
    case whose reference claims nothing is skipped. Score, from 0 to 1: by `mode` one of them, or
    ("f1") their weighted harmonic mean. A case is also skipped if the judge lists no statement of a
    text, asked twice. `beta` above 1 gives more weight to recall, below 1 to precision. Raises
    InputError for another `mode`, or a `beta` that is not positive.

    Source: the metric of this name in Ragas.
    """

    title, template = "Factual Correctness", FactualCorrectnessTemplate
    judged = (("actual_output",), ("expected_output",))

    def __init__(
        self,
        *common: Any,
        mode: Literal["f1", "precision", "recall"] = "f1",
        beta: float = 1.0,
        **settings: Unpack[MetricSettings],
    ) -> None:
        self.take_common(common, settings)
        if mode not in MODES:
            hint = did_you_mean(str(mode), MODES) or f"use one of {', '.join(MODES)}"
            raise InputError(f"mode={mode!r:.40} is unknown; {hint}")
        if not 0 < beta < float("inf"):
            raise InputError(f"beta must be above 0, got {beta!r:.40}")
        self.mode = mode
        self.beta = beta

    def graph(self) -> Graph:
        if self.mode == "precision":
            return Graph(self._precision())
        if self.mode == "recall":
            return Graph(self._recall())
        parts = [self._precision(), self._recall()]
        return self.score_graph(self.f_score, parts)

    def _precision(self) -> CodeNode:
        inputs = self._claims_stated("actual_output", "expected_output", "claims of the answer")
        return CodeNode(stated_by_reference, inputs=inputs, name="precision")

    def _recall(self) -> CodeNode:
        inputs = self._claims_stated("expected_output", "actual_output", "claims of the reference")
        return CodeNode(stated_by_answer, inputs=inputs, name="recall")

    def _claims_stated(
        self, field: str, other: str, label: str
    ) -> tuple[CodeNode, VerdictListNode]:
        """The claims of one text, and whether the other one states them."""
        claims = claims_of(field, self.wording("generate_claims", field))
        question = STATED.format(field=other)
        wording = self.wording("generate_verdicts", "claims", other)
        return claims, self.judge_items(question, claims, label, wording, [other])

    def f_score(self, precision: float, recall: float) -> NodeValue:
        """The weighted harmonic mean, and what it is made of."""
        weight = self.beta**2
        below = weight * precision + recall
        score = (1 + weight) * precision * recall / below if below else 0.0
        reason = f"F{self.beta:g} of precision {precision:.4g}, recall {recall:.4g}: {score:.4g}."
        return NodeValue(score, score=score, reason=reason)


def stated_by_reference(claims: list[str], verdicts: list[Judgement]) -> NodeValue:
    what, passed = "claims of the answer", "stated by the reference"
    return share(claims, verdicts, ("yes",), what=what, passed=passed, empty=0.0)


def stated_by_answer(claims: list[str], verdicts: list[Judgement]) -> NodeValue:
    """The recall; raises NotApplicableError when the reference claims nothing."""
    if not claims:
        raise NotApplicableError("nothing to judge: `expected_output` claims nothing")
    what, passed = "claims of the reference", "stated by the answer"
    return share(claims, verdicts, ("yes",), what=what, passed=passed, empty=0.0)
