"""The evaluator protocols of LLMBar as decision graphs.

Every protocol asks which of two answers follows an instruction better, in both orders of
presentation (Zeng et al. 2023, https://arxiv.org/abs/2310.07641); `llmbar` replays them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from recordings import WHOLE_TEXT

from dagengine import PromptTemplate
from dagengine.metrics import DAGMetric
from dagengine.metrics.dag import (
    DAG,
    BaseNode,
    CodeNode,
    FieldNode,
    Judgement,
    NonBinaryJudgementNode,
    TaskNode,
)
from dagengine.question import FirstMatch, Message, Options

ORDERS = ("AB", "BA")
"""Orders of presentation: in BA the judge sees the answer of contestant B first."""

UNPARSED = "unparsed"
SCORES = {"A": 10, UNPARSED: 5, "B": 0}
"""What a verdict scores, so that the winner can be read off the score of a result."""


# The protocols as they were recorded.


@dataclass(frozen=True)
class Stage:
    """One kind of call of a protocol.

    `template` is the prompt with its role markers, as it was sent. `patterns` are those of the
    answer shown first and of the one shown second; there are none where the text is the answer.
    """

    name: str
    template: str
    patterns: tuple[str, ...]
    options: Options


@dataclass(frozen=True)
class Protocol:
    """One way of judging with one model, for instance `GPT-4/Swap_CoT`."""

    id: str
    stages: Mapping[str, Stage]

    @property
    def judge(self) -> str:
        return self.id.partition("/")[0]

    @property
    def kind(self) -> str:
        return self.id.partition("/")[2]


# Prompts: the recorded ones are one text with role markers, the engine has messages.

_SYSTEM, _USER, _END = "<|im_start|>system\n", "<|im_end|>\n<|im_start|>user\n", "<|im_end|>"


def prompt_template(text: str) -> PromptTemplate:
    """A recorded template as messages; nothing is stripped, so `joined` gives it back."""
    system, _, user = text.removeprefix(_SYSTEM).removesuffix(_END).partition(_USER)
    return PromptTemplate(system=system, user=user)


def joined(messages: Sequence[Message]) -> str:
    """Messages as the one text with role markers that was sent."""
    system, user = (message["content"] for message in messages)
    return f"{_SYSTEM}{system}{_USER}{user}{_END}"


# The graphs.


def metrics_for(protocol: Protocol) -> list[DAGMetric]:
    """Two metrics over shared nodes: which contestant wins when shown AB, and when shown BA."""
    roots = _GRAPHS[protocol.kind](_Nodes(protocol))
    return [
        DAGMetric(f"{protocol.id} {order}", DAG(root_node=roots[order]), threshold=None)
        for order in ORDERS
    ]


class _Nodes:
    """Makes the nodes of one protocol; a field that several nodes read is one node."""

    def __init__(self, protocol: Protocol) -> None:
        self._protocol = protocol
        self._fields: dict[tuple[str, str], FieldNode] = {}

    def instruction(self) -> FieldNode:
        """The instruction, which all contestants share."""
        return self._field("contestants.A.input", "input")

    def answer(self, contestant: str, label: str) -> FieldNode:
        """The answer of one contestant, under the name that a prompt has for it."""
        return self._field(f"contestants.{contestant}.actual_output", label)

    def _field(self, path: str, label: str) -> FieldNode:
        node = FieldNode(path, output_label=label, name=f"{path} as {label}")
        return self._fields.setdefault((path, label), node)

    def text(self, stage: str, label: str, inputs: Iterable[BaseNode] = ()) -> TaskNode:
        """A call whose whole text is its result."""
        how = self._protocol.stages[stage]
        return TaskNode(
            f"Write the {stage}.",
            output_label=label,
            inputs=[self.instruction(), *inputs],
            prompt=prompt_template(how.template),
            parser=WHOLE_TEXT,
            options=how.options,
        )

    def verdict(
        self,
        stage: str,
        order: str,
        inputs: Iterable[BaseNode] = (),
        then: Mapping[str, int | None] = SCORES,
    ) -> NonBinaryJudgementNode:
        """A call that shows both answers in one order; its verdict is the contestant."""
        how = self._protocol.stages[stage]
        shown = [self.answer(name, f"output_{place}") for place, name in enumerate(order, 1)]
        return NonBinaryJudgementNode(
            "Which output is better?",
            output_label=f"{stage} {order}",
            inputs=[self.instruction(), *shown, *inputs],
            then=then,
            prompt=prompt_template(how.template),
            parser=verdict_reader(how.patterns, order),
            options=how.options,
        )


def verdict_reader(patterns: Iterable[str], order: str) -> FirstMatch:
    """Reads the contestant named, or that none is: the last pattern is found in any text."""
    return FirstMatch((*zip(patterns, order, strict=True), (r"", UNPARSED)))


Roots = Mapping[str, BaseNode]
"""The root node of each order's graph."""


def _compare(nodes: _Nodes) -> Roots:
    """One question per order."""
    return {order: nodes.verdict("verdict", order) for order in ORDERS}


def _compare_with_aids(nodes: _Nodes) -> Roots:
    """Questions to check and an answer to compare with are written once, for both orders."""
    metrics = nodes.text("metrics", "auxiliary_input_0")
    reference = nodes.text("reference", "auxiliary_input_1")
    return {order: nodes.verdict("verdict", order, [metrics, reference]) for order in ORDERS}


def _rate(nodes: _Nodes) -> Roots:
    """Each answer is rated alone; order matters only to ties and to what is no number."""
    ratings = {
        name: nodes.text("rating", f"rating of {name}", [nodes.answer(name, "output")])
        for name in "AB"
    }
    return {
        order: CodeNode(
            higher,
            inputs=[ratings[name] for name in order],
            then={"first": SCORES[order[0]], "second": SCORES[order[1]]},
            name=f"higher rating {order}",
        )
        for order in ORDERS
    }


def _swap_and_synthesize(nodes: _Nodes) -> Roots:
    """Both orders are judged first; only if they contradict each other, again with both texts."""
    nowhere = dict.fromkeys(SCORES)
    first = [nodes.verdict("verdict", order, then=nowhere) for order in ORDERS]
    return {order: _after_both(nodes, order, first) for order in ORDERS}


def _after_both(nodes: _Nodes, order: str, first: Sequence[BaseNode]) -> CodeNode:
    """Decides whether the first verdict of an order stands or the second stage is asked."""
    own = first[ORDERS.index(order)]
    stands = CodeNode(verdict_of, inputs=[own], then=SCORES, name=f"first verdict {order} stands")
    debate = [
        CodeNode(explanation_for(name, order), inputs=first, output_label=f"explanation_{place}")
        for place, name in enumerate(order, 1)
    ]
    again = nodes.verdict("synthesize", order, debate)
    then = {True: again, False: stands}
    return CodeNode(conflicting, inputs=first, then=then, name=f"conflict, for {order}")


_GRAPHS: dict[str, Callable[[_Nodes], Roots]] = {
    "Vanilla": _compare,
    "CoT": _compare,
    "Swap_CoT": _swap_and_synthesize,
    "Metrics_Reference": _compare_with_aids,
    "Rating": _rate,
}


# What the code nodes do.


def higher(first: str, second: str) -> Literal["first", "second"]:
    """Which of two ratings wins: ties go to the second, what is no number to the first."""
    try:
        return "first" if int(first) > int(second) else "second"
    except ValueError:
        return "first"


def conflicting(shown_ab: Judgement, shown_ba: Judgement) -> bool:
    """Whether the two first verdicts name different contestants; no verdict names none."""
    return {shown_ab.verdict, shown_ba.verdict} == {"A", "B"}


def verdict_of(judgement: Judgement) -> str:
    """A verdict passed on as it is."""
    return str(judgement.verdict)


def explanation_for(contestant: str, order: str) -> Callable[[Judgement, Judgement], str]:
    """Picks the text that voted for a contestant, worded for answers shown in `order`."""

    def explanation(shown_ab: Judgement, shown_ba: Judgement) -> str:
        same, other = (shown_ab, shown_ba) if order == "AB" else (shown_ba, shown_ab)
        if same.verdict == contestant:
            return same.reason or ""
        return swapped(other.reason or "")

    return explanation


def swapped(text: str) -> str:
    """A text about answers shown in one order, for readers who see them in the other."""
    return re.sub(r"([Oo]utput) \(([ab])\)", lambda m: f"{m[1]} ({'ba'['ab'.index(m[2])]})", text)
