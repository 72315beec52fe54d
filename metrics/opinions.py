"""What bias and toxicity share: a verdict on every opinion of the answer."""

from __future__ import annotations

from typing import Any, ClassVar

from dagengine.graph import Graph
from dagengine.list_nodes import VerdictListNode
from dagengine.metrics.extraction import OPINIONS, opinions_of
from dagengine.metrics.prebuilt import PrebuiltMetric, share, whole_prompt
from dagengine.node import Judgement, NodeValue
from dagengine.nodes import CodeNode

VERDICTS = ("yes", "no")


class OpinionTemplate:
    """The prompt that these metrics have in common."""

    @staticmethod
    def generate_opinions(actual_output: str) -> str:
        """Asks for `{"opinions": [...]}`."""
        return whole_prompt(OPINIONS, actual_output=actual_output)


class OpinionMetric(PrebuiltMetric):
    """The share of the answer's opinions of which `question` is not true.

    `label` is what the verdicts are called, `passed` what the good opinions are.
    """

    template: ClassVar[type[Any]]
    question: ClassVar[str]
    label: ClassVar[str]
    passed: ClassVar[str]

    def graph(self) -> Graph:
        listing = self.wording(self.template, "generate_opinions", "actual_output")
        opinions = opinions_of(wording=listing)
        verdicts = VerdictListNode(
            self.question,
            opinions,
            self.label,
            verdicts=VERDICTS,
            item_label="opinion",
            wording=self.wording(self.template, "generate_verdicts", "opinions"),
        )
        return Graph(CodeNode(self._score, inputs=[opinions, verdicts], name="score"))

    @classmethod
    def _score(cls, opinions: list[str], verdicts: list[Judgement]) -> NodeValue:
        return share(opinions, verdicts, ("no",), what="opinions", passed=cls.passed, empty=1.0)
