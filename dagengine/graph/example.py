"""A question like those of a node, made before there is a case: a judge may reject it then."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pydantic import BaseModel

from dagengine.graph.list_nodes import MapNode, VerdictListNode, numbered
from dagengine.graph.node import AskingNode
from dagengine.graph.nodes import BinaryJudgementNode, NonBinaryJudgementNode, RatingNode, TaskNode
from dagengine.prompts.answer_types import judgement_type, list_type, output_type
from dagengine.prompts.evidence import Evidence, evidence_of
from dagengine.prompts.instructions import (
    judgement_instructions,
    list_instructions,
    messages_for,
    task_instructions,
    with_bounds,
)
from dagengine.question import Question
from dagengine.test_case import field_name

_TEXT = "Some text."


def example_question(node: AskingNode) -> Question[Any] | None:
    """A question of a node about made-up material, or None if only a case can tell.

    Words and answer type are the node's own; the node does not run. A prompt of the caller's
    is not filled in: the node's text is in its place, as the only message.
    """
    words = _words(node)
    if node.template is not None or node.wording is not None:
        shape = words[1] if words else output_type(str)
        return Question(({"role": "user", "content": node.text},), shape, node.options, node.parser)
    if words is None:
        return None
    messages = messages_for(words[0], [Evidence("material", _TEXT), *_items(node)])
    if node.parser is None:
        messages = with_bounds(messages, words[1], node.options)
    return Question(messages, words[1], node.options, node.parser)


def _items(node: AskingNode) -> Sequence[Evidence]:
    """The items that a question is about, which a list node shows by themselves."""
    if not isinstance(node, VerdictListNode):
        return ()
    if isinstance(node.over, str):
        return evidence_of(field_name(node.over), [_TEXT])
    return numbered(node.item_label, [_TEXT])


def _words(node: AskingNode) -> tuple[str, type[BaseModel]] | None:
    """The step and the answer type, of the nodes that have the same for every case."""
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
            step = list_instructions(node.criteria, node.verdicts, node.item_label, 1, field)
            return step, list_type(node.verdicts, 1)
        case BinaryJudgementNode() | NonBinaryJudgementNode():
            return judgement_instructions(node.criteria, node.verdicts()), node.answer_type()
        case RatingNode():
            shape = node.points.answer_type(node.parser is not None)
            return node.points.instructions(node.criteria), shape
    return None
