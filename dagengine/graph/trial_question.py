"""A question like those of a node, made before there is a case: a judge may reject it then."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from pydantic import BaseModel

from dagengine.graph.list_nodes import MapNode, VerdictListNode, numbered
from dagengine.graph.node import AskingNode
from dagengine.graph.nodes import BinaryJudgementNode, NonBinaryJudgementNode, RatingNode, TaskNode
from dagengine.prompts.answer_types import judgement_type, output_type
from dagengine.prompts.evidence import Evidence, evidence_of
from dagengine.prompts.instructions import judgement_instructions, messages_for, task_instructions
from dagengine.prompts.quotes.answers import quoted_type
from dagengine.prompts.quotes.checking import QuoteCheck
from dagengine.question import Question
from dagengine.test_case import field_name

_TEXT = "Some text."


def example_question(node: AskingNode) -> Question[Any] | None:
    """A question of a node about made-up material, or None if only a case can tell.

    Words and answer type are the node's own; the node does not run. A prompt of the caller's
    is not filled in: the node's text is in its place, as the only message.
    """
    material = [Evidence("material", _TEXT)]
    quotes = None if node.quoting is None else node.quoting.check([material])
    words = _plain_words(node, quotes)
    # Of a list the verdicts have the quotes, in its own shape.
    if words is not None and quotes is not None and not isinstance(node, VerdictListNode):
        words = words[0], quoted_type(words[1], quotes.mode)
    if node.template is not None or node.wording is not None:
        shape = words[1] if words else output_type(str)
        return Question(({"role": "user", "content": node.text},), shape, node.options, node.parser)
    if words is None:
        return None
    # The items of a list are shown by themselves, beside what else is read.
    items: Sequence[Evidence] = ()
    if isinstance(node, VerdictListNode) and isinstance(node.over, str):
        items = evidence_of(field_name(node.over), [_TEXT])
    elif isinstance(node, VerdictListNode):
        items = numbered(node.item_label, [_TEXT])
    messages = messages_for(words[0], [*material, *items])
    question = node.put(messages, words[1], parser=node.parser, quotes=quotes)
    return replace(question, name="")  # whoever shows it names the node


def _plain_words(node: AskingNode, quotes: QuoteCheck | None) -> tuple[str, type[BaseModel]] | None:
    """The step and the answer type, of the nodes that have the same for every case.

    Without quotes, except for lists, whose verdicts have them.
    """
    match node:
        case TaskNode():
            return task_instructions(node.instructions), output_type(node.output_type)
        case MapNode() if node.vote is None:
            return task_instructions(node.instructions), output_type(node.answer)
        case MapNode():
            verdicts = node.answer if isinstance(node.answer, tuple) else None
            system = judgement_instructions(node.instructions, verdicts or (True, False))
            return system, judgement_type(verdicts)
        case VerdictListNode():
            field = field_name(node.over) if isinstance(node.over, str) else None
            step = node.step(node.verdicts, 1, field)
            return step, node.shape(node.verdicts, 1, quotes)
        case BinaryJudgementNode() | NonBinaryJudgementNode():
            return judgement_instructions(node.criteria, node.verdicts()), node.answer_type()
        case RatingNode():
            shape = node.points.answer_type(node.parser is not None)
            return node.points.instructions(node.criteria), shape
    return None
