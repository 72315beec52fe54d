"""What is wrong with a graph as it is written, before anything is connected."""

from __future__ import annotations

import typing
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import networkx as nx

from dagengine.errors import Problem, Severity, did_you_mean
from dagengine.graph.graph import Graph, Metric, MetricSpec, as_digraph
from dagengine.graph.node import Branch
from dagengine.graph.nodes import (
    BaseNode,
    BinaryJudgementNode,
    CodeNode,
    DecisionNode,
    NonBinaryJudgementNode,
    RatingNode,
    VerdictNode,
)
from dagengine.results.pass_rules import Combine
from dagengine.test_case import is_known_field, known_fields

# A graph with one of these cannot be expanded; the checks of the wired graph are left out.
UNWIRABLE = frozenset(
    {"cycle", "metric-cycle", "not-a-node", "no-root", "verdict-misplaced", "verdict-root"}
    | {"bare-child", "verdict-target", "verdict-duplicate", "verdict-type"}
)
# Of these and others, what a graph of finished nodes does not have.
_HOPELESS = UNWIRABLE - {"bare-child"} | {"reads-nothing", "root-reachable", "verdict-missing"}
_DEEPEST = 50


@dataclass(frozen=True, slots=True)
class Reporter:
    """Makes problems that name the metric and the node; a tree of no metric yet has only nodes."""

    metric: str = ""

    def __call__(
        self,
        code: str,
        node: BaseNode | str | None,
        message: str,
        hint: str,
        severity: Severity = "error",
    ) -> Problem:
        title = node.title if isinstance(node, BaseNode) else node
        metric = self.metric and f"metric {self.metric!r}"
        where = ", ".join(filter(None, [metric, title and f"node {title!r}"]))
        return Problem(code, where or "the tree", message, hint, severity)


def graph_problems(
    spec: MetricSpec, above: tuple[Graph, ...], seen: set[Graph]
) -> Iterator[Problem]:
    """Problems of the graph as it is written, nested metrics included.

    `above` are the graphs that it is nested in, `seen` those whose problems are reported already.
    """
    report = Reporter(spec.name)
    if spec.graph in above:
        hint = "let the inner verdict lead to a score or to another metric"
        yield report("metric-cycle", None, "the metric contains itself under a verdict", hint)
        return
    if len(above) > _DEEPEST:
        hint = "put the innermost metrics next to each other, or combine them in code"
        yield report("nested-too-deep", None, f"more than {_DEEPEST} nested metrics", hint)
        return
    if not isinstance(spec.graph, Graph):
        hint = "wrap the node: DAG(root_node=…)"
        yield report("no-root", None, f"the graph is {spec.graph!r:.80}", hint)
        return
    yield from _settings(spec, report)
    if not spec.graph.root_nodes:
        yield _no_root(report)
        return
    misfits = list(_misfits(spec.graph, report))
    yield from misfits
    nodes = spec.graph.nodes()
    for node in nodes:
        yield from _node_problems(node, report)
        for branch in node.branches():
            if hasattr(branch.target, "spec"):
                inner = branch.target.spec()
                # A metric that contains itself is still open here; one that is done is skipped.
                if inner.graph in (*above, spec.graph) or inner.graph not in seen:
                    yield from graph_problems(inner, (*above, spec.graph), seen)
                    seen.add(inner.graph)
    if not misfits:
        yield from _cycle(nodes, report)


def _settings(spec: MetricSpec, report: Reporter) -> Iterator[Problem]:
    threshold, ways = spec.threshold, typing.get_args(Combine)
    if not (threshold is None or (isinstance(threshold, int | float) and 0 <= threshold <= 1)):
        hint = "use a number from 0 to 1, or None for no pass or fail"
        yield report("threshold-range", None, f"the threshold is {threshold!r}", hint)
    if spec.combine not in ways:
        hint = f"use {', '.join(ways[:-1])} or {ways[-1]}"
        yield report("combine", None, f"combine is {spec.combine!r}", hint)


def hopeless(graph: Graph) -> list[Problem]:
    """Problems that no child added later would mend: verdicts are complete by now.

    Only of the graph itself: metrics under verdicts, values such as scores, and nodes that may
    still be missing, are left to `graph_problems`.
    """
    report = Reporter()
    if not graph.root_nodes:
        return [_no_root(report)]
    problems = list(_misfits(graph, report))
    if not problems:
        nodes = graph.nodes()
        problems += _cycle(nodes, report)
        problems += roots_below(graph, report)
        for node in nodes:
            problems += _node_problems(node, report)
        for root in graph.root_nodes:
            if decides(root) and not root.evaluation_params and not root.inputs:
                problems.append(reads_nothing(root, report))
    return [problem for problem in problems if problem.code in _HOPELESS]


def _no_root(report: Reporter) -> Problem:
    return report("no-root", None, "the graph has no root node", "pass root_node= to DAG")


def decides(node: BaseNode) -> bool:
    """Return whether a node gives a verdict or a rating; that of nothing says nothing of a case."""
    return bool(node.branches()) or node.vote == "rating"


def reads_nothing(node: BaseNode, report: Reporter) -> Problem:
    """The problem of a decision about nothing."""
    hint = "give it evaluation_params, inputs, or a parent that passes data to it"
    if node.kind == "code":
        hint += "; its function takes the values of those, in this order, and not the case"
    return report("reads-nothing", node, "it decides but reads nothing", hint)


def roots_below(graph: Graph, report: Reporter) -> Iterator[Problem]:
    """Roots that something else leads to."""
    roots, edges = set(graph.root_nodes), as_digraph(graph.nodes())
    for root in graph.root_nodes:
        for parent in edges.predecessors(root):
            # A root that leads to its own parent is on a cycle, which has a message of its own.
            if parent not in root.inputs and not nx.has_path(edges, root, parent):
                hint = f"start from {parent.title!r} alone, or remove that edge"
                title = "another root" if parent in roots else repr(parent.title)
                yield report("root-reachable", root, f"a root is also below {title}", hint)
                break


def _misfits(graph: Graph, report: Reporter) -> Iterator[Problem]:
    """Things that stand where only a node may stand."""
    for root in graph.root_nodes:
        if isinstance(root, VerdictNode):
            hint = "start from the task or judgement whose verdict this is"
            yield report("verdict-root", root, "a verdict cannot be a root", hint)
        elif not isinstance(root, BaseNode):
            yield _not_a_node(repr(root), "root_node", report)
    for node in graph.nodes():
        for role, neighbours in (("children", node.children), ("inputs", node.inputs)):
            for neighbour in neighbours:
                if not isinstance(neighbour, BaseNode):
                    yield _not_a_node(repr(neighbour), f"{role} of {node.title!r}", report)
                elif isinstance(neighbour, VerdictNode) and not (
                    role == "children" and isinstance(node, DecisionNode)
                ):
                    hint = "put the verdict under the judgement that decides it"
                    message = f"{neighbour.title} is among the {role} of a {node.kind} node"
                    yield report("verdict-misplaced", node, message, hint)


def _not_a_node(value: str, role: str, report: Reporter) -> Problem:
    hint = "use a node; fields belong in evaluation_params=, metrics and scores under a verdict"
    return report("not-a-node", None, f"{role} contains {value}", hint)


def _cycle(nodes: Iterable[BaseNode], report: Reporter) -> Iterator[Problem]:
    graph = as_digraph(nodes)
    if nx.is_directed_acyclic_graph(graph):
        return
    looping = (part for part in nx.strongly_connected_components(graph) if len(part) > 1)
    part = next(looping, None) or set(nx.nodes_with_selfloops(graph))
    # In the order of mention, so that the same cycle is drawn every time.
    edges = nx.find_cycle(graph.subgraph(part), filter(part.__contains__, graph))
    circle = " -> ".join(node.title for node, _ in (*edges, edges[0]))
    hint = "remove one of these edges, or give the repeated step its own node"
    yield report("cycle", edges[0][0], f"the graph has a cycle: {circle}", hint)


def _node_problems(node: BaseNode, report: Reporter) -> Iterator[Problem]:
    for path in node.evaluation_params:
        if not is_known_field(path):
            hint = name_hint(path, known_fields())
            yield report("field-unknown", node, f"no test case has a field {path!r}", hint)
    if isinstance(node, DecisionNode):
        yield from _verdicts(node, report)
    if isinstance(node, RatingNode) and not isinstance(node.scale, Mapping):
        low, high = node.scale
        if not (isinstance(low, int) and isinstance(high, int) and low < high):
            hint = "use two whole numbers, the worst first, for instance (0, 10)"
            yield report("scale-range", node, f"the scale is {node.scale!r}", hint)
    if node.asks and not node.text.strip():
        yield report("empty-text", node, "the question is empty", "write the question")


def name_hint(word: str, known: Iterable[str]) -> str:
    """A hint: the known name that was probably meant, else all known names."""
    names = sorted(set(known))
    return did_you_mean(word, names) or f"known are {', '.join(names) or 'none'}"


_VERDICTS_OF: tuple[tuple[type[BaseNode], str], ...] = (
    (BinaryJudgementNode, "a binary judgement has the verdicts True and False"),
    (NonBinaryJudgementNode, "a non-binary judgement has verdicts that are strings"),
    (BaseNode, "a code node has verdicts that are strings, True or False"),
)


def _verdicts(node: DecisionNode, report: Reporter) -> Iterator[Problem]:
    bare = [repr(branch.target) for branch in node.branches() if branch.bare]
    if bare:
        hint = "name the verdict: VerdictNode(verdict=…, child=…)"
        message = f"no single undeclared verdict is left for {', '.join(bare)}"
        yield report("bare-child", node, message, hint)
    hint = next(hint for kind, hint in _VERDICTS_OF if isinstance(node, kind))
    named: list[Branch] = []
    for branch in node.branches():
        if branch.bare:
            continue
        if isinstance(branch.verdict, str | bool | int):
            named.append(branch)
        if not isinstance(branch.verdict, node.verdict_types):
            yield report("verdict-type", node, f"verdict {branch.verdict!r}", hint)
        elif isinstance(branch.verdict, str) and not branch.verdict.strip():
            yield report("verdict-type", node, "a verdict is empty", "write the verdict's words")
    yield from _declarations(node, named, bool(bare), report)


def _declarations(
    node: DecisionNode, branches: list[Branch], bare: bool, report: Reporter
) -> Iterator[Problem]:
    """Verdicts that are doubled or missing, and what leads nowhere."""
    counts = Counter((type(branch.verdict), branch.verdict) for branch in branches)
    for (_, verdict), count in counts.items():
        if count > 1:
            hint = "keep one; a verdict leads to one place"
            yield report("verdict-duplicate", node, f"verdict {verdict!r} is declared twice", hint)
    declared = {branch.verdict for branch in branches}
    if isinstance(node, NonBinaryJudgementNode) and len(declared) < 2:
        hint = "declare every verdict the judge may give, at least two"
        words = f"{('no', 'only one')[len(declared)]} verdict is declared"
        yield report("verdict-missing", node, words, hint)
    if branches and not bare:
        yield from _coverage(node, branches, report)
    for branch in branches:
        yield from _target(node, branch, report)


def _possible_verdicts(node: BaseNode) -> tuple[Any, ...] | None:
    """All verdicts that a node can give; None where that is not known."""
    if isinstance(node, BinaryJudgementNode):
        return (True, False)
    if isinstance(node, CodeNode):
        with suppress(NameError, TypeError):  # annotations may name what is not there, or nothing
            annotation = typing.get_type_hints(node.function).get("return")
            if annotation is bool:
                return (True, False)
            if typing.get_origin(annotation) is typing.Literal:
                return typing.get_args(annotation)
    return None


def _coverage(node: BaseNode, branches: list[Branch], report: Reporter) -> Iterator[Problem]:
    """Verdicts that a node can give and does not declare, and the other way round."""
    declared = [branch.verdict for branch in branches]
    possible = _possible_verdicts(node)
    if possible is None:
        return
    for verdict in possible:
        if verdict not in declared:
            hint = f"add a verdict node, or {verdict!r}: … to then="
            yield report("verdict-missing", node, f"verdict {verdict!r} leads nowhere", hint)
    for verdict in dict.fromkeys(declared):
        if verdict not in possible and isinstance(node, CodeNode):
            message = f"verdict {verdict!r} is never returned by {node.text}()"
            hint = "remove it, or correct the function's return annotation"
            yield report("unreachable-verdict", node, message, hint, "warning")


def _target(node: BaseNode, branch: Branch, report: Reporter) -> Iterator[Problem]:
    target, verdict = branch.target, branch.verdict
    if target is None or isinstance(target, BaseNode | Metric):
        if isinstance(target, VerdictNode):
            hint = "let the verdict lead to a score, a node or a metric"
            yield report("verdict-target", node, f"{verdict!r} leads to a verdict", hint)
        return
    if isinstance(target, bool) or not isinstance(target, int) or not 0 <= target <= 10:
        hint = "scores are whole numbers from 0 to 10"
        yield report("score-range", node, f"verdict {verdict!r} has score {target!r}", hint)
