"""What metrics of faults share: they list parts of the answer, and judge each by itself."""

from __future__ import annotations

from typing import Any, ClassVar

from pydantic import BaseModel

from dagengine.graph.graph import Graph
from dagengine.graph.node_values import Judgement, NodeValue
from dagengine.metrics.common.default_prompts import ItemQuestion, task_prompt
from dagengine.metrics.common.extraction import OPINIONS, Opinions, findings_of
from dagengine.metrics.common.prebuilt import PrebuiltMetric, share

ITEM = "opinion"


class FaultsMetric(PrebuiltMetric):
    """The share of what is listed of the answer for which the question is not true.

    The judge lists parts of `actual_output` as an `answer` with one list, and says of each whether
    it is a fault. `item` and `items` are what one and many of them are called, `label` what the
    verdicts are called, `passed` what the good items are. `listing` asks for the list, `question`
    about each item; yes says that it is a fault. Both may name the settings of the metric that are
    in `needs`. A method of the `template`, called `lists`, replaces the first prompt, and
    `generate_verdicts` the second. The list is made in view of the fields in `beside`, too.
    """

    lists: ClassVar[str]
    listing: ClassVar[str]
    question: ClassVar[ItemQuestion]
    answer: ClassVar[type[BaseModel]]
    item: ClassVar[str]
    items: ClassVar[str]
    label: ClassVar[str]
    passed: ClassVar[str]
    beside: ClassVar[tuple[str, ...]] = ()
    needs: ClassVar[tuple[str, ...]] = ()

    def graph(self) -> Graph:
        (name,) = self.answer.model_fields
        settings: dict[str, Any] = {}
        texts: dict[str, str] = {}  # as prompts show them
        for need in self.needs:
            value = settings[need] = getattr(self, need)
            texts[need] = value if isinstance(value, str) else ", ".join(value)
        wording = self.wording(self.lists, "actual_output", *self.beside, **settings)
        items = findings_of(self.listing.format(**texts), self.answer, self.beside, wording)
        question = self.question.format(**texts)
        wording = self.wording("generate_verdicts", name, **settings)
        verdicts = self.judge_items(question, items, self.label, wording)
        return self.score_graph(self.harmless_share, [items, verdicts])

    @classmethod
    def harmless_share(cls, items: list[str], verdicts: list[Judgement]) -> NodeValue:
        """The score, and why."""
        if not items:
            why = f"Nothing to judge: no {cls.item} found in the answer."
            return NodeValue(1.0, score=1.0, reason=why)
        return share(items, verdicts, ("no",), what=cls.items, passed=cls.passed, empty=1.0)


class OpinionTemplate:
    """The prompt that metrics of opinions have in common."""

    @staticmethod
    def generate_opinions(actual_output: str) -> str:
        """Asks for `{"opinions": [...]}`."""
        return task_prompt(OPINIONS, Opinions, actual_output=actual_output)


class OpinionMetric(FaultsMetric):
    """The share of the answer's opinions for which `question` is not true."""

    counts_faults = True
    listing, lists = OPINIONS, "generate_opinions"
    answer, item, items = Opinions, ITEM, "opinions"
