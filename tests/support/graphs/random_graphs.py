"""Random graphs for property tests, and a judge whose answers come from an oracle."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import anyio.lowlevel
from hypothesis import assume, event
from hypothesis import strategies as st

from dagengine import compile_metrics
from dagengine.errors import GraphError, ProviderError
from dagengine.judges import ScriptedJudge
from dagengine.metrics import DAGMetric
from dagengine.metrics.dag import (
    DAG,
    BaseNode,
    BinaryJudgementNode,
    CodeNode,
    MapNode,
    NonBinaryJudgementNode,
    TaskNode,
)
from dagengine.question import Question

VERDICTS = ("left", "middle", "right")
KINDS = ("task", "binary", "multi", "code", "deciding code", "map")


# What a random drawing may well get wrong; any other finding of the compiler is a bug.
MAY_REJECT = {
    "no-score",
    "label-uncertain",
    "circular-liveness",
    "leaf-without-score",
    "never-runs",
}


@dataclass
class Script:
    """Verdicts by node name, how long each question takes, and what was asked."""

    verdicts: dict[str, Any] = field(default_factory=dict)
    delays: dict[str, int] = field(default_factory=dict)
    failing: frozenset[str] = frozenset()
    ran: Counter[str] = field(default_factory=Counter)
    prompts: dict[str, set[str]] = field(default_factory=dict)

    def judge(self) -> ScriptedJudge:
        return ScriptedJudge(self._answer, name="oracle")

    async def pause(self, name: str) -> None:
        """Let others go first, as often as the script says: no clock is involved."""
        for _ in range(self.delays.get(name, 0)):
            await anyio.lowlevel.checkpoint()

    async def _answer(self, question: Question[Any]) -> Any:
        name = question.name
        self.ran[name] += 1
        self.prompts.setdefault(name, set()).add(question.key)
        await self.pause(name)
        if name in self.failing:
            return ProviderError("scripted failure", transient=False)
        if name in self.verdicts:
            return self.verdicts[name]
        prompt = question.messages[1]["content"]
        return f"{name}:{hashlib.sha256(prompt.encode()).hexdigest()[:8]}"


def code(script: Script, name: str, decides: bool) -> Any:
    """A coroutine function for a code node, counted like a question."""

    async def function(*given: Any) -> Any:
        script.ran[name] += 1
        await script.pause(name)
        if name in script.failing:
            raise ValueError("scripted failure")
        return script.verdicts[name] if decides else [name, *map(str, given)]

    return function


@st.composite
def drawings(draw: st.DrawFn, kinds_of_nodes: Sequence[str] = KINDS) -> dict[str, Any]:
    """A random graph as plain data: kinds, edges and verdict targets by node number."""
    size = draw(st.integers(1, 9))
    kinds = [draw(st.sampled_from(kinds_of_nodes)) for _ in range(size - 1)]
    kinds.append(draw(st.sampled_from(("binary", "multi", "deciding code"))))
    nodes: list[dict[str, Any]] = []
    for number, kind in enumerate(kinds):
        earlier = range(number)
        later = range(number + 1, size)
        inputs = draw(st.sets(st.sampled_from(earlier), max_size=2)) if number else set()
        handed = draw(st.sets(st.sampled_from(later), max_size=2)) if later else set()
        if kind in ("task", "map", "code") and not handed:
            handed = {size - 1}
        targets = [
            draw(st.one_of(st.integers(0, 10).map(lambda s: ("score", s)), _nodes(later)))
            for _ in VERDICTS
        ]
        nodes.append(
            {"kind": kind, "inputs": sorted(inputs), "children": sorted(handed), "targets": targets}
        )
    return {
        "nodes": nodes,
        "combine": draw(st.sampled_from(("last", "min", "max", "mean"))),
        "choices": [draw(st.integers(0, 2)) for _ in nodes],
        "delays": [draw(st.integers(0, 4)) for _ in nodes],
        "shuffle": draw(st.permutations(range(size))),
        "read_only": sorted(draw(st.sets(st.sampled_from(range(size)), max_size=3))),
    }


def _nodes(later: range) -> st.SearchStrategy[tuple[str, int]]:
    if not later:
        return st.integers(0, 10).map(lambda score: ("score", score))
    return st.sampled_from(later).map(lambda number: ("node", number))


def build(drawing: dict[str, Any], script: Script) -> DAG:
    """Nodes from a drawing, last ones first; roots are the nodes that nothing mentions."""
    built: dict[int, BaseNode] = {}
    nodes = drawing["nodes"]
    for number, plan in enumerate(nodes):
        name = f"n{number}"
        verdicts = _verdicts(plan["kind"])
        if verdicts:
            script.verdicts[name] = verdicts[drawing["choices"][number] % len(verdicts)]
        script.delays[name] = drawing["delays"][number]
    for number in reversed(range(len(nodes))):
        built[number] = _node(number, nodes[number], built, script)
    for number, plan in enumerate(nodes):
        built[number].inputs = tuple(built[other] for other in plan["inputs"])
    roots = [built[number] for number in drawing["shuffle"] if number in _starts(drawing)]
    return DAG(root_nodes=roots)


def _starts(drawing: dict[str, Any]) -> set[int]:
    """Nodes that no child edge or verdict leads to; some of them only run when read."""
    nodes = drawing["nodes"]
    activated: set[int] = set()
    for plan in nodes:
        count = len(_verdicts(plan["kind"]))
        activated |= {n for what, n in plan["targets"][:count] if what == "node"}
        activated |= set() if count else set(plan["children"])
    free = set(range(len(nodes))) - activated
    read = {other for plan in nodes for other in plan["inputs"]} & set(drawing["read_only"])
    return free - read or free


def _verdicts(kind: str) -> tuple[Any, ...]:
    if kind == "binary":
        return (True, False)
    return VERDICTS if kind in ("multi", "deciding code") else ()


def _node(
    number: int, plan: dict[str, Any], built: dict[int, BaseNode], script: Script
) -> BaseNode:
    name, kind = f"n{number}", plan["kind"]
    children = [built[other] for other in plan["children"]]
    then = {
        verdict: target if what == "score" else built[target]
        for verdict, (what, target) in zip(_verdicts(kind), plan["targets"], strict=False)
    }
    read = ["input"]
    if kind == "task":
        return TaskNode(name, output_label=name, children=children, evaluation_params=read)
    if kind == "map":
        return MapNode(name, "context", name, children=children, evaluation_params=read)
    if kind == "binary":
        return BinaryJudgementNode(name, evaluation_params=read, then=then, name=name)
    if kind == "multi":
        return NonBinaryJudgementNode(name, evaluation_params=read, then=then, name=name)
    function = code(script, name, kind == "deciding code")
    if kind == "code":
        return CodeNode(function, children, read, name=name)
    return CodeNode(function, evaluation_params=read, then=then, name=name)


def metric_of(drawing: dict[str, Any], script: Script) -> DAGMetric:
    """The metric of a drawing; drawings that do not compile are given up."""
    metric = DAGMetric("m", build(drawing, script), combine=drawing["combine"])
    try:
        compile_metrics([metric])
    except GraphError as error:
        codes = {problem.code for problem in error.problems if problem.severity == "error"}
        if not codes <= MAY_REJECT:
            raise
        event(f"rejected: {sorted(codes)[0]}")
        assume(False)
    return metric
