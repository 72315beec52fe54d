"""The question that stands for those of a node before there is a case."""

from __future__ import annotations

from typing import Any

import pytest

from dagengine.graph.first_questions import example_question
from dagengine.graph.list_nodes import MapNode, VerdictListNode
from dagengine.graph.node import AskingNode
from dagengine.graph.node_values import Given
from dagengine.graph.nodes import BinaryJudgementNode, NonBinaryJudgementNode, RatingNode, TaskNode
from dagengine.judges import LexicalJudge
from dagengine.prompts.instructions import parts_of
from dagengine.question import Answer, Question

READ: dict[str, Any] = {"evaluation_params": ["actual_output"]}
ITEMS = "retrieval_context"
NODES: dict[str, AskingNode] = {
    "task": TaskNode("Take the dates.", "dates", **READ),
    "map": MapNode("Take the date.", ITEMS, "dates", **READ),
    "judged map": MapNode("Is it so?", ITEMS, "so", answer=bool, **READ),
    "labelled map": MapNode("Which is it?", ITEMS, "which", answer=("a", "b"), **READ),
    "list": VerdictListNode("Is it so?", ITEMS, "so", verdicts=("yes", "no"), **READ),
    "binary": BinaryJudgementNode("Good?", then={True: 1, False: 0}, **READ),
    "verdicts": NonBinaryJudgementNode("Which?", then={"a": 1, "b": 0}, **READ),
    "rating": RatingNode("How good?", **READ),
    "labels": RatingNode("How good?", scale={"poor": 1, "good": 2}, **READ),
}
GIVEN = Given((("actual_output", "Some text."),), ())
GIVEN_LIST = Given(((ITEMS, ["Some text."]), ("actual_output", "Some text.")), ())


class Asked(Exception):
    """The question that a node put."""


class Caught:
    """Raises the first question in place of asking it."""

    decides = False

    async def __call__(self, question: Question[Any], /) -> Answer[Any]:
        raise Asked(question)

    async def each(self, questions: Any, /) -> list[Any]:
        raise Asked(next(iter(questions)))

    async def outcomes(self, questions: Any, /) -> list[Any]:
        raise Asked(next(iter(questions)))


def step_of(question: Question[Any]) -> str:
    """What a question asks after its material, for one item."""
    step, _ = parts_of(question.messages)
    return step


@pytest.mark.anyio
@pytest.mark.parametrize("kind", NODES)
async def test_an_example_has_the_words_and_the_answer_type_of_what_a_node_asks(kind: str) -> None:
    node = NODES[kind]
    with pytest.raises(Asked) as caught:
        await node.run(GIVEN_LIST if hasattr(node, "over") else GIVEN, Caught())
    asked, example = caught.value.args[0], example_question(node)
    assert example is not None
    assert example.messages[0] == asked.messages[0]
    assert step_of(example) == step_of(asked)
    assert example.answer_type is asked.answer_type
    assert (example.options, example.parser) == (asked.options, asked.parser)


def test_a_prompt_of_the_callers_is_not_made_without_a_case() -> None:
    def never(_: Given) -> str:
        raise AssertionError("the caller's function was called")

    example = example_question(TaskNode("Take the dates.", "dates", wording=never, **READ))
    assert example is not None
    assert [message["role"] for message in example.messages] == ["user"]
    refused = LexicalJudge().refuses(example)
    assert refused is not None
    assert "worded by a template" in refused


def test_a_node_of_an_unknown_kind_has_no_example() -> None:
    assert example_question(AskingNode(name="own")) is None
