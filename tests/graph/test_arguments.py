"""Arguments that stand in the wrong place are told where they are written."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from dagengine.errors import InputError
from dagengine.metrics import BiasMetric
from dagengine.metrics.dag import DAG, BinaryJudgementNode, MapNode, TaskNode, VerdictNode


def node(**more: Any) -> BinaryJudgementNode:
    return BinaryJudgementNode("Is it good?", name="good", **more)


def task(**more: Any) -> TaskNode:
    return TaskNode("List the words.", "words", **more)


MISTAKES: dict[str, tuple[Callable[[], Any], str]] = {
    "a list as the root": (
        lambda: DAG([node()]),  # type: ignore[arg-type]
        "root_node= takes one node; for a list of nodes use root_nodes=",
    ),
    "a node as the roots": (
        lambda: DAG(root_nodes=node()),  # type: ignore[arg-type]
        "for one node use root_node=",
    ),
    "a node as a field": (
        lambda: node(evaluation_params=[task()]),
        "nodes are read by inputs=.*got <TaskNode 'words'>",
    ),
    "a node as the fields": (lambda: node(evaluation_params=task()), "names fields of the test"),
    "a metric as a field": (
        lambda: node(evaluation_params=[BiasMetric()]),
        "names fields of the test case.*BiasMetric",
    ),
    "a node as a field of a map": (
        lambda: MapNode("Good?", "context", "m", evaluation_params=[task()]),  # type: ignore[list-item]
        "nodes are read by inputs=",
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
