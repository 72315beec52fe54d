"""The shapes that must work, each as a function from verdicts to a graph."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from dagengine.metrics.dag import (
    DAG,
    BaseNode,
    BinaryJudgementNode,
    NonBinaryJudgementNode,
    TaskNode,
    VerdictNode,
)

READ = ["actual_output"]


@dataclass(frozen=True)
class Shape:
    """A graph, every choice of verdicts with the score it must give, and what must not run."""

    build: Callable[[], DAG]
    outcomes: tuple[tuple[dict[str, Any], float, frozenset[str]], ...]


def judge(name: str, **then: Any) -> BinaryJudgementNode:
    """A judgement of the actual output; `yes` and `no` are its targets."""
    targets = {True: then["yes"], False: then["no"]}
    return BinaryJudgementNode(f"Is {name}?", evaluation_params=READ, then=targets, name=name)


def task(name: str, *children: BaseNode) -> TaskNode:
    return TaskNode(f"Do {name}", name, children, READ)


def final(name: str = "last") -> BinaryJudgementNode:
    return judge(name, yes=10, no=3)


def summary_tree() -> DAG:
    """The walkthrough of the seeds."""
    order = NonBinaryJudgementNode(
        "Are the headings in order?",
        [VerdictNode("Yes", 10), VerdictNode("Two are out", 4), VerdictNode("All are out", 2)],
        name="order",
    )
    headings = BinaryJudgementNode(
        "All three headings there?", [VerdictNode(False, 0), order], name="headings"
    )
    return DAG(root_node=TaskNode("Extract headings", "Headings", [headings, order], READ))


def both_verdicts_to_one_node() -> DAG:
    last = final()
    return DAG(root_node=judge("first", yes=last, no=last))


def both_verdicts_and_a_task_edge() -> DAG:
    last = final()
    return DAG(root_node=task("prepare", judge("first", yes=last, no=last), last))


def one_node_on_two_paths() -> DAG:
    last = final()
    second = judge("second", yes=last, no=1)
    return DAG(root_node=judge("first", yes=last, no=second))


def two_live_judgements_one_node() -> DAG:
    last = final()
    return DAG(root_nodes=[judge("one", yes=last, no=2), judge("two", yes=last, no=0)])


def directly_and_through_a_task() -> DAG:
    last = final()
    return DAG(root_node=judge("first", yes=last, no=task("detour", last)))


def one_verdict_object_twice() -> DAG:
    shared = VerdictNode(True, 10)
    second = BinaryJudgementNode("B?", [shared, VerdictNode(False, 5)], READ, name="second")
    first = BinaryJudgementNode("A?", [shared], READ, then={False: second}, name="first")
    return DAG(root_node=first)


def steps_for_a_branch() -> DAG:
    """A second root prepares what one branch of the first reads."""
    next_step = final("next_step")
    steps = task("steps", next_step)
    kind = NonBinaryJudgementNode(
        "What is it?", evaluation_params=READ, then={"help": next_step, "chat": 2}, name="kind"
    )
    length = NonBinaryJudgementNode(
        "How long?", evaluation_params=READ, then={"too short": 0, "fine": kind}, name="length"
    )
    return DAG(root_nodes=[length, steps])


def deep_chain(length: int = 50) -> DAG:
    node: Any = 10
    for number in reversed(range(length)):
        node = judge(f"j{number}", yes=node, no=number % 10)
    return DAG(root_node=node)


def wide_fan(width: int = 30) -> DAG:
    last = final()
    tasks = [task(f"t{number}", last) for number in range(width)]
    return DAG(root_nodes=tasks)


def lattice(layers: int = 40) -> DAG:
    last = final()
    below: list[BaseNode] = [last]
    for layer in reversed(range(layers)):
        below = [task(f"a{layer}", *below), task(f"b{layer}", *below)]
    return DAG(root_nodes=below)


NONE: frozenset[str] = frozenset()
SHAPES = {
    "the summary tree": Shape(
        summary_tree,
        (
            ({"headings": False}, 0.0, frozenset({"order"})),
            ({"headings": True, "order": "Yes"}, 1.0, NONE),
            ({"headings": True, "order": "Two are out"}, 0.4, NONE),
            ({"headings": True, "order": "All are out"}, 0.2, NONE),
        ),
    ),
    "both verdicts to one node": Shape(
        both_verdicts_to_one_node,
        (
            ({"first": True, "last": True}, 1.0, NONE),
            ({"first": False, "last": True}, 1.0, NONE),
            ({"first": False, "last": False}, 0.3, NONE),
        ),
    ),
    "both verdicts and a task edge": Shape(
        both_verdicts_and_a_task_edge,
        (
            ({"first": True, "last": True}, 1.0, NONE),
            ({"first": False, "last": False}, 0.3, NONE),
        ),
    ),
    "one node on two paths": Shape(
        one_node_on_two_paths,
        (
            ({"first": True, "last": True}, 1.0, frozenset({"second"})),
            ({"first": False, "second": True, "last": False}, 0.3, NONE),
            ({"first": False, "second": False}, 0.1, frozenset({"last"})),
        ),
    ),
    "two live judgements, one choosing": Shape(
        two_live_judgements_one_node,
        (
            ({"one": True, "two": False, "last": True}, 1.0, NONE),
            ({"one": False, "two": True, "last": False}, 0.3, NONE),
            ({"one": True, "two": True, "last": True}, 1.0, NONE),
            ({"one": False, "two": False}, 0.0, frozenset({"last"})),
        ),
    ),
    "directly and through a task": Shape(
        directly_and_through_a_task,
        (
            ({"first": True, "last": True}, 1.0, frozenset({"detour"})),
            ({"first": False, "last": False}, 0.3, NONE),
        ),
    ),
    "one verdict object under two judgements": Shape(
        one_verdict_object_twice,
        (
            ({"first": True}, 1.0, frozenset({"second"})),
            ({"first": False, "second": True}, 1.0, NONE),
            ({"first": False, "second": False}, 0.5, NONE),
        ),
    ),
    "data for a branch from a second root": Shape(
        steps_for_a_branch,
        (
            ({"length": "too short"}, 0.0, frozenset({"kind", "next_step"})),
            ({"length": "fine", "kind": "chat"}, 0.2, frozenset({"next_step"})),
            ({"length": "fine", "kind": "help", "next_step": True}, 1.0, NONE),
        ),
    ),
    "a deep chain": Shape(
        deep_chain,
        (
            ({f"j{n}": True for n in range(50)}, 1.0, NONE),
            (
                {f"j{n}": n != 25 for n in range(50)},
                0.5,
                frozenset(f"j{n}" for n in range(26, 50)),
            ),
        ),
    ),
    "a wide fan": Shape(wide_fan, (({"last": True}, 1.0, NONE), ({"last": False}, 0.3, NONE))),
    "a lattice of 40 layers": Shape(
        lattice, (({"last": True}, 1.0, NONE), ({"last": False}, 0.3, NONE))
    ),
}
