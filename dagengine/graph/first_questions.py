"""Which questions a node asks first, on a case or on an example, without a judge to answer them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import islice
from typing import Any, TypeVar

from pydantic import BaseModel

from dagengine.graph.list_nodes import MapNode, VerdictListNode, number_items
from dagengine.graph.node import AskingNode, BaseNode
from dagengine.graph.node_values import Given, NodeValue
from dagengine.graph.nodes import BinaryJudgementNode, NonBinaryJudgementNode, RatingNode, TaskNode
from dagengine.prompts.answer_types import judgement_type, output_type
from dagengine.prompts.evidence import Evidence, evidence_of
from dagengine.prompts.instructions import judgement_instructions, messages_for, task_instructions
from dagengine.prompts.quotes import QuoteCheck, quoted_type
from dagengine.question import Answer, Question
from dagengine.test_case import field_name

T = TypeVar("T", bound=BaseModel)
_TEXT = "Some text."


class _FirstQuestions(Exception):
    """Carries the first questions of a node out of its code."""

    def __init__(self, questions: list[Question[Any]]) -> None:
        self.questions = questions
        super().__init__()


class _RaisingAsk:
    """The `Ask` of a node that is only to show its questions: it raises the first ones."""

    def __init__(self, decides: bool, most: int | None) -> None:
        self.decides, self._most = decides, most

    async def __call__(self, question: Question[T]) -> Answer[T]:
        raise _FirstQuestions([question])

    async def each(self, questions: Iterable[Question[T]]) -> list[Answer[T]]:
        batch: list[Question[Any]] = list(islice(questions, self._most))
        if batch:
            raise _FirstQuestions(batch)
        return []


def first_step(
    node: BaseNode, given: Given, *, decides: bool = False, most: int | None = None
) -> NodeValue | list[Question[Any]] | Exception | None:
    """The value of a node that asks nothing, else its first questions, or the error of its code.

    None if it waits for something else than a judge. `decides` says whether its judge only decides.
    Of questions that it asks at the same time only the first `most` are made (None: all).
    """
    # A coroutine needs no event loop until it waits. So the node's own code is run up to its first
    # question, which leaves it as an exception: nobody is asked, and nothing is simulated.
    #
    #     send(None) ──▶ returns          StopIteration: its value
    #                ──▶ asks its judge   _FirstQuestions: what it asks
    #                ──▶ waits otherwise  None: a sleep or a socket would need the loop
    #
    # `close` runs what the node has in its `finally`, and keeps Python from complaining that it was
    # never awaited.
    work = node.work(given, _RaisingAsk(decides, most))
    try:
        work.send(None)
    except StopIteration as done:
        return done.value if isinstance(done.value, NodeValue) else None
    except _FirstQuestions as caught:
        return caught.questions
    except Exception as error:  # noqa: BLE001 - user code may raise anything
        # A node that asks is also tried with stand-ins for what it will read (`estimate`). Its
        # error may be about these, and tells nothing about the run.
        return None if node.asks else error
    finally:
        work.close()
    return None


def example_question(node: AskingNode) -> Question[Any] | None:
    """An example of a node's questions, about made-up material; None if they depend on the case.

    Words and answer type are the node's own; the node does not run. If the prompt is the caller's
    own, it is not filled in: the only message is the node's text.
    """
    material = [Evidence("material", _TEXT)]
    quotes = None if node.quoting is None else node.quoting.check([material])
    step, shape = _plain_step(node, quotes) or (None, output_type(str))
    # The answer to a list has its quotes already, beside each verdict.
    if step is not None and quotes is not None and not isinstance(node, VerdictListNode):
        shape = quoted_type(shape, quotes.mode)
    if node.template is not None or node.wording is not None:
        return Question(({"role": "user", "content": node.text},), shape, node.options, node.parser)
    if step is None:
        return None
    # Prompts show the items of a list after everything else that the node reads.
    items: Sequence[Evidence] = ()
    if isinstance(node, VerdictListNode) and isinstance(node.over, str):
        items = evidence_of(field_name(node.over), [_TEXT])
    elif isinstance(node, VerdictListNode):
        items = number_items(node.item_label, [_TEXT])
    messages = messages_for(step, [*material, *items])
    question = node.put(messages, shape, parser=node.parser, quotes=quotes)
    return replace(question, name="")  # whoever shows it names the node


def _plain_step(node: AskingNode, quotes: QuoteCheck | None) -> tuple[str, type[BaseModel]] | None:
    """The step and the answer type of a node, if every case has the same.

    Only the type of a list has the quotes already, those of each verdict in it.
    """
    match node:
        case TaskNode():
            return task_instructions(node.instructions), output_type(node.output_type)
        case MapNode() if node.vote is None:
            return task_instructions(node.instructions), output_type(node.answer)
        case MapNode():
            step = judgement_instructions(node.instructions, node.exemplary)
            return step, judgement_type(None if node.answer is bool else node.exemplary)
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
