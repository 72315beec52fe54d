"""What a node asks at first, found without asking anybody: of a case, or before there is any."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import islice
from typing import Any, TypeVar

from pydantic import BaseModel

from dagengine.graph.list_nodes import MapNode, VerdictListNode, number_items
from dagengine.graph.node import AskingNode, BaseNode
from dagengine.graph.nodes import BinaryJudgementNode, NonBinaryJudgementNode, RatingNode, TaskNode
from dagengine.graph.values import Given, NodeValue
from dagengine.prompts.answer_types import judgement_type, output_type
from dagengine.prompts.evidence import Evidence, evidence_of
from dagengine.prompts.instructions import judgement_instructions, messages_for, task_instructions
from dagengine.prompts.quotes import QuoteCheck, quoted_type
from dagengine.question import Answer, Question
from dagengine.test_case import field_name

T = TypeVar("T", bound=BaseModel)
_TEXT = "Some text."


class _Questions(Exception):
    """Carries the first questions of a node out of it."""

    def __init__(self, questions: list[Question[Any]]) -> None:
        self.questions = questions
        super().__init__()


class _Catch:
    """Stands where a running node expects its judge, and keeps what it is asked."""

    def __init__(self, decides: bool, most: int | None) -> None:
        self.decides, self._most = decides, most

    async def __call__(self, question: Question[T]) -> Answer[T]:
        raise _Questions([question])

    async def each(self, questions: Iterable[Question[T]]) -> list[Answer[T]]:
        made: list[Question[Any]] = list(islice(questions, self._most))
        if made:
            raise _Questions(made)
        return []


def first_step(
    node: BaseNode, given: Given, *, decides: bool = False, most: int | None = None
) -> NodeValue | list[Question[Any]] | Exception | None:
    """The value of a node, its first questions, or the error of its code.

    None when it waits for something else. `decides` says what kind of judge it has; of many
    questions at once only the first `most` are made.
    """
    # A coroutine needs no event loop until it waits. So the node's own code is run up to its first
    # question, which leaves it as an exception: nobody is asked, and nothing is simulated.
    #
    #     send(None) ──▶ returns          StopIteration: its value
    #                ──▶ asks its judge   _Questions: what it asks at first
    #                ──▶ waits otherwise  None: a sleep or a socket would need the loop
    #
    # `close` runs what the node has in its `finally`, and keeps Python from complaining that it was
    # never awaited.
    work = node.work(given, _Catch(decides, most))
    try:
        work.send(None)
    except StopIteration as done:
        return done.value if isinstance(done.value, NodeValue) else None
    except _Questions as caught:
        return caught.questions
    except Exception as error:  # noqa: BLE001 - user code may raise anything
        # A node that asks is also tried with stand-ins for what is not known yet (`estimate`).
        # Its error may be about these, and tells nothing about the run.
        return None if node.asks else error
    finally:
        work.close()
    return None


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
        items = number_items(node.item_label, [_TEXT])
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
            system = judgement_instructions(node.instructions, node.exemplary)
            return system, judgement_type(None if node.answer is bool else node.exemplary)
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
