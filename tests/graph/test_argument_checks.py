"""Arguments that stand in the wrong place are told where they are written."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import pytest

from dagengine.errors import InputError
from dagengine.graph import VerdictListNode
from dagengine.metrics import BiasMetric
from dagengine.metrics.dag import (
    DAG,
    BinaryJudgementNode,
    CodeNode,
    FieldNode,
    MapNode,
    NonBinaryJudgementNode,
    RatingNode,
    TaskNode,
    VerdictNode,
)


def node(**more: Any) -> BinaryJudgementNode:
    return BinaryJudgementNode("Is it good?", name="good", **more)


def task(**more: Any) -> TaskNode:
    return TaskNode("List the words.", "words", **more)


MISTAKES: dict[str, tuple[Callable[[], Any], str]] = {
    "a node as the roots": (
        lambda: DAG(root_nodes=node()),  # type: ignore[arg-type]
        "for one node use root_node=",
    ),
    "a node as a field": (
        lambda: node(evaluation_params=[task()]),
        "read nodes with inputs=.*got <TaskNode 'words'>",
    ),
    "a node as the fields": (
        lambda: node(evaluation_params=task()),
        "takes names of test case fields",
    ),
    "a metric as a field": (
        lambda: node(evaluation_params=[BiasMetric()]),
        "takes names of test case fields.*BiasMetric",
    ),
    "a node as a field of a map": (
        lambda: MapNode("Good?", "context", "m", evaluation_params=[task()]),  # type: ignore[list-item]
        "read nodes with inputs=",
    ),
    "a class in then": (
        lambda: node(then={True: BiasMetric, False: 0}),
        r"not to a class: write BiasMetric\(",
    ),
    "a class under a verdict": (
        lambda: VerdictNode(True, child=BiasMetric),  # type: ignore[arg-type]
        r"not to a class: write BiasMetric\(",
    ),
    "text as the children": (
        lambda: task(children="words"),
        "children= takes a list of nodes, not the text 'words'",
    ),
    "a node as the children": (lambda: task(children=node()), r"write children=\[…\] around"),
    "a node as the inputs": (lambda: task(inputs=node()), r"write inputs=\[…\] around <Binary"),
    "fields of a map as one text": (
        lambda: MapNode("Good?", "context", "m", evaluation_params="input"),
        r"evaluation_params takes a list: \['input'\]",
    ),
    "a number as the list of a map": (
        lambda: MapNode("Good?", 3, "m"),  # type: ignore[arg-type]
        "over= takes a field of the case or a node; got 3",
    ),
    "a number as a field": (
        lambda: FieldNode(3),  # type: ignore[arg-type]
        "path= takes a field of the case; got 3",
    ),
    "a text as the prompt": (
        lambda: node(prompt="Good?"),
        r'prompt= takes a template: PromptTemplate\("…"\); got \'Good',
    ),
    "a mapping as the options": (
        lambda: node(options={"temperature": 0}),
        r"options= takes Options\(temperature=…\); got {'temp",
    ),
    "a text as the parser": (lambda: node(parser="yes"), "parser= takes a function; got 'yes'"),
    "a text as the wording": (
        lambda: task(wording="List."),
        r"wording= takes a function; got 'List\.'",
    ),
    "a list as a label": (
        lambda: TaskNode("List.", ["words"]),  # type: ignore[arg-type]
        r"output_label= takes a text; got \['words'\]",
    ),
    "a number as a name": (lambda: CodeNode(len, name=3), "name= takes a text; got 3"),  # type: ignore[arg-type]
    "a list as the criterion": (
        lambda: BinaryJudgementNode(["Good?"]),  # type: ignore[arg-type]
        r"criteria= takes a text; got \['Good",
    ),
    "nothing as the instructions": (
        lambda: TaskNode(None, "words"),  # type: ignore[arg-type]
        "instructions= takes a text; got None",
    ),
    "a list of a type": (
        lambda: task(output_type=[str]),
        r"output_type= takes a type, such as str or list\[str\]; got \[<class",
    ),
    "a type in quotes": (
        lambda: MapNode("Good?", "context", "m", answer="bool"),
        "answer= takes a type, .* or a tuple of verdicts; got 'bool'",
    ),
    "one end of a scale": (
        lambda: RatingNode("How good?", scale=5),  # type: ignore[arg-type]
        r"scale= takes the worst and the best whole number, such as \(1, 5\), .*; got 5",
    ),
    "a text as how many verdicts": (
        lambda: VerdictListNode("?", "context", "v", verdicts=("a", "b"), per_call="3"),  # type: ignore[arg-type]
        "per_call must be a whole number from 1 on, got '3'",
    ),
    "a list in then": (
        lambda: node(then=[node()]),
        "then= maps verdicts to targets",
    ),
}


@pytest.mark.parametrize(("make", "message"), MISTAKES.values(), ids=MISTAKES)
def test_a_misplaced_argument_is_told_with_what_to_write_instead(
    make: Callable[[], Any], message: str
) -> None:
    with pytest.raises(InputError, match=message):
        make()


@pytest.mark.parametrize(
    ("node", "names"),
    [
        (TaskNode, {"instructions", "output_type", "inputs", "name", "prompt", "parser"}),
        (BinaryJudgementNode, {"criteria", "then", "inputs", "name", "prompt", "parser"}),
        (NonBinaryJudgementNode, {"criteria", "then", "inputs", "name", "prompt", "parser"}),
        (RatingNode, {"criteria", "scale", "inputs", "name", "prompt", "parser"}),
        (MapNode, {"over", "answer", "inputs", "name", "prompt", "parser"}),
        (CodeNode, {"function", "then", "inputs", "name"}),
        (VerdictListNode, {"over", "verdicts", "inputs", "name"}),
    ],
)
def test_the_signature_of_a_node_shows_every_argument(node: Any, names: set[str]) -> None:
    shown = inspect.signature(node).parameters
    assert names <= set(shown)
    assert not any(one.kind is one.VAR_KEYWORD for one in shown.values())
    assert (shown["inputs"].default, shown["name"].default) == ((), None)


def test_an_unknown_argument_of_a_node_is_told_with_the_nearest_known_one() -> None:
    build: Any = CodeNode
    with pytest.raises(TypeError, match=r"^CodeNode has no argument 'input'; did you mean 'input"):
        build(str, input=[])
    for one, more in (("then", TaskNode), ("prompt", CodeNode), ("wording", BinaryJudgementNode)):
        build = more
        with pytest.raises(TypeError, match=rf"^{more.__name__} has no argument '{one}'; .*it has"):
            build(str, **{one: None})


@pytest.mark.parametrize(
    ("make", "given", "message"),
    [
        (DAG, {"root": 1}, r"^DAG has no argument 'root'; did you mean 'root_node'\?"),
        (FieldNode, {"field": "input"}, "^FieldNode has no argument 'field'; it has path"),
        (VerdictNode, {"verdict": True, "scor": 1}, r"^VerdictNode .* did you mean 'score'\?"),
        (BinaryJudgementNode, {}, "^BinaryJudgementNode: missing .* argument: 'criteria'"),
    ],
)
def test_an_argument_that_is_unknown_or_missing_is_told_with_the_name_of_the_class(
    make: Any, given: dict[str, Any], message: str
) -> None:
    with pytest.raises(TypeError, match=message):
        make(**given)


@pytest.mark.parametrize(
    "make",
    [
        lambda half: BinaryJudgementNode(half, evaluation_params=["input"]),
        lambda half: TaskNode("List.", half, evaluation_params=["input"]),
        lambda half: RatingNode("How?", evaluation_params=["input"], name=half),
        lambda half: NonBinaryJudgementNode(
            "?", evaluation_params=["input"], then={half: 1, "b": 2}
        ),
    ],
)
def test_half_a_character_in_a_text_is_refused_where_it_is_written(make: Any) -> None:
    with pytest.raises(InputError, match="half of a character, which UTF-8 cannot hold"):
        make("a\ud83d b")
    make("a \U0001f600 b")  # the whole one
