"""What a graph must satisfy before anything is asked.

Every check has a stable code. All problems of a metric are collected, so that one look at
the message is enough to fix them all.
"""

from __future__ import annotations

import difflib
import inspect
import re
import typing
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import networkx as nx

from dagengine.errors import Problem, Severity
from dagengine.graph import Graph, MetricSpec, as_digraph
from dagengine.nodes import (
    BaseNode,
    BinaryJudgementNode,
    Branch,
    CodeNode,
    NonBinaryJudgementNode,
    RatingNode,
    VerdictNode,
)
from dagengine.test_case import is_known_field, known_fields
from dagengine.wiring import Scope, Slot, Wiring, label_of, wire

_BACKTICKS = re.compile(r"`([^`\n]+)`")


@dataclass(frozen=True, slots=True)
class _Reporter:
    """Makes problems that name the metric and the node."""

    metric: str

    def __call__(
        self,
        code: str,
        node: BaseNode | str | None,
        message: str,
        hint: str,
        severity: Severity = "error",
    ) -> Problem:
        title = node.title if isinstance(node, BaseNode) else node
        where = f"metric {self.metric!r}" + (f", node {title!r}" if title else "")
        return Problem(code, where, message, hint, severity)


def check(spec: MetricSpec) -> tuple[list[Problem], Wiring | None]:
    """Every problem of one metric, and its wiring when it has one."""
    problems = list(_written(spec, ()))
    if any(problem.severity == "error" and problem.code in _UNWIRABLE for problem in problems):
        return problems, None
    wiring = wire(spec)
    for scope in _scopes(wiring):
        report = _Reporter(_scope_name(scope))
        problems += _meaning(scope, wiring, report)
    if wiring.circular:
        problems.append(_circular(wiring.circular, _Reporter(spec.name)))
    return problems, wiring


# With one of these the graph cannot be expanded, so what depends on that must wait.
_UNWIRABLE = frozenset(
    {"cycle", "metric-cycle", "not-a-node", "no-root", "verdict-misplaced", "bare-child"}
)


def _scopes(wiring: Wiring) -> list[Scope]:
    return list(dict.fromkeys([wiring.scope, *(slot.scope for slot in wiring.slots)]))


def _scope_name(scope: Scope) -> str:
    return scope.prefix() + scope.spec.name if scope.owner else scope.spec.name


def _written(spec: MetricSpec, above: tuple[Graph, ...]) -> Iterator[Problem]:
    """Problems of the graph as it is written, nested metrics included."""
    report = _Reporter(spec.name)
    if spec.graph in above:
        hint = "let the inner verdict lead to a score or to another metric"
        yield report("metric-cycle", None, "the metric contains itself under a verdict", hint)
        return
    yield from _settings(spec, report)
    if not spec.graph.root_nodes:
        yield report("no-root", None, "the graph has no root node", "pass root_node= to DAG")
        return
    misfits = list(_misfits(spec.graph, report))
    yield from misfits
    nodes = spec.graph.nodes()
    for node in nodes:
        yield from _node_problems(node, report)
        for branch in node.branches():
            if hasattr(branch.target, "spec"):
                yield from _written(branch.target.spec(), (*above, spec.graph))
    if not misfits:
        yield from _cycle(nodes, report)


def _settings(spec: MetricSpec, report: _Reporter) -> Iterator[Problem]:
    low, high = 0.0, 1.0
    if spec.threshold is not None and not low <= spec.threshold <= high:
        hint = "use a number from 0 to 1, or None for a score without pass or fail"
        yield report("threshold-range", None, f"the threshold is {spec.threshold!r}", hint)
    if spec.combine not in ("last", "min", "max", "mean", "error"):
        hint = "use last, min, max, mean or error"
        yield report("combine", None, f"combine is {spec.combine!r}", hint)


def _misfits(graph: Graph, report: _Reporter) -> Iterator[Problem]:
    """Things that stand where only a node may stand."""
    for root in graph.root_nodes:
        if isinstance(root, VerdictNode):
            hint = "start from the task or judgement whose verdict this is"
            yield report("verdict-root", root, "a verdict cannot be a root", hint)
        elif not isinstance(root, BaseNode):
            yield _not_a_node(repr(root), "root_node", report)
    for node in graph.nodes():
        for role, others in (("children", node.children), ("inputs", node.inputs)):
            for other in others:
                if not isinstance(other, BaseNode):
                    yield _not_a_node(repr(other), f"{role} of {node.title!r}", report)
                elif isinstance(other, VerdictNode) and not _may_have_verdicts(node, role):
                    hint = "put the verdict under the judgement that decides it"
                    message = f"{other.title} stands among the {role} of a {node.kind} node"
                    yield report("verdict-misplaced", node, message, hint)


def _not_a_node(what: str, role: str, report: _Reporter) -> Problem:
    return report("not-a-node", None, f"{role} contains {what}", "use a node of dagengine")


def _may_have_verdicts(node: BaseNode, role: str) -> bool:
    judgement = (BinaryJudgementNode, NonBinaryJudgementNode, CodeNode)
    return role == "children" and isinstance(node, judgement)


def _cycle(nodes: Iterable[BaseNode], report: _Reporter) -> Iterator[Problem]:
    graph = as_digraph(nodes)
    try:
        edges = nx.find_cycle(graph)
    except nx.NetworkXNoCycle:
        return
    titles = [edge[0].title for edge in edges]
    drawn = " -> ".join([*titles, titles[0]])
    hint = "remove one of these edges, or give the repeated step a node of its own"
    yield report("cycle", edges[0][0], f"the graph runs in a circle: {drawn}", hint)


def _node_problems(node: BaseNode, report: _Reporter) -> Iterator[Problem]:
    yield from _fields(node, report)
    if isinstance(node, BinaryJudgementNode | NonBinaryJudgementNode | CodeNode):
        yield from _verdicts(node, report)
    if isinstance(node, RatingNode):
        low, high = node.scale
        if not (isinstance(low, int) and isinstance(high, int) and low < high):
            hint = "use two whole numbers, the worst first, for instance (0, 10)"
            yield report("scale-range", node, f"the scale is {node.scale!r}", hint)
    if node.asks and not node.text.strip():
        yield report("empty-text", node, "there is nothing to ask", "write what is asked")


def _fields(node: BaseNode, report: _Reporter) -> Iterator[Problem]:
    for path in node.evaluation_params:
        if not is_known_field(path):
            hint = _did_you_mean(path, known_fields())
            yield report("field-unknown", node, f"no test case has a field {path!r}", hint)


def _did_you_mean(word: str, known: Iterable[str]) -> str:
    names = sorted(set(known))
    close = difflib.get_close_matches(word, names, n=1, cutoff=0.6)
    return f"did you mean {close[0]!r}?" if close else f"known are {', '.join(names) or 'none'}"


def _verdicts(node: BaseNode, report: _Reporter) -> Iterator[Problem]:
    branches = node.branches()
    bare = [branch for branch in branches if branch.bare]
    if bare:
        names = ", ".join(repr(branch.target.title) for branch in bare)
        hint = "name the verdict: VerdictNode(verdict=…, child=…)"
        message = f"no single undeclared verdict is left for {names}"
        yield report("bare-child", node, message, hint)
    named = [branch for branch in branches if not branch.bare]
    yield from _verdict_types(node, named, report)
    repeated = [v for v, n in Counter((type(b.verdict), b.verdict) for b in named).items() if n > 1]
    for _, verdict in repeated:
        hint = "keep one; a verdict leads to one place"
        yield report("verdict-duplicate", node, f"verdict {verdict!r} is declared twice", hint)
    yield from _coverage(node, named, bool(bare), report)
    for branch in named:
        yield from _target(node, branch, report)
    for child in node.children:
        if isinstance(child, VerdictNode) and None not in (child.score, child.child):
            hint = "a verdict leads either to a score or to a child"
            yield report("verdict-both", node, f"{child.title} has a score and a child", hint)


def _verdict_types(
    node: BaseNode, branches: Iterable[Branch], report: _Reporter
) -> Iterator[Problem]:
    wanted: type[Any] | tuple[type[Any], ...] = (str, bool)
    if isinstance(node, BinaryJudgementNode):
        wanted, hint = bool, "a binary judgement has the verdicts True and False"
    elif isinstance(node, NonBinaryJudgementNode):
        wanted, hint = str, "a non-binary judgement has verdicts that are strings"
    else:
        hint = "a code node has verdicts that are strings, True or False"
    for branch in branches:
        if not isinstance(branch.verdict, wanted):
            yield report("verdict-type", node, f"verdict {branch.verdict!r}", hint)
        elif isinstance(branch.verdict, str) and not branch.verdict.strip():
            yield report("verdict-type", node, "a verdict is empty", "write the verdict's words")


def _coverage(
    node: BaseNode, branches: list[Branch], bare: bool, report: _Reporter
) -> Iterator[Problem]:
    declared = {branch.verdict for branch in branches}
    possible = _possible_verdicts(node)
    if isinstance(node, NonBinaryJudgementNode) and len(declared) < 2:
        hint = "declare every verdict the judge may give, at least two"
        yield report("verdict-missing", node, f"{len(declared)} verdicts are declared", hint)
    if possible is None or not branches or bare:
        return
    for verdict in possible:
        if verdict not in declared:
            hint = f"add a verdict node, or {verdict!r}: … to then="
            yield report("verdict-missing", node, f"verdict {verdict!r} leads nowhere", hint)
    for verdict in declared - set(possible):
        if isinstance(node, CodeNode):
            message = f"verdict {verdict!r} is never returned by {node.text}()"
            hint = "remove it, or correct the function's return annotation"
            yield report("unreachable-verdict", node, message, hint, "warning")


def _possible_verdicts(node: BaseNode) -> tuple[Any, ...] | None:
    """All verdicts a node can give, where that is known."""
    if isinstance(node, BinaryJudgementNode):
        return (True, False)
    if isinstance(node, CodeNode):
        try:
            returned = typing.get_type_hints(node.function).get("return")
        except (NameError, TypeError):
            return None
        if returned is bool:
            return (True, False)
        if typing.get_origin(returned) is typing.Literal:
            return typing.get_args(returned)
    return None


def _target(node: BaseNode, branch: Branch, report: _Reporter) -> Iterator[Problem]:
    target, verdict = branch.target, branch.verdict
    if target is None or isinstance(target, BaseNode) or hasattr(target, "spec"):
        if isinstance(target, VerdictNode):
            hint = "let the verdict lead to a score, a node or a metric"
            yield report("verdict-target", node, f"{verdict!r} leads to a verdict", hint)
        return
    if isinstance(target, bool) or not isinstance(target, int) or not 0 <= target <= 10:
        hint = "scores are whole numbers from 0 to 10"
        yield report("score-range", node, f"verdict {verdict!r} has score {target!r}", hint)


def _meaning(scope: Scope, wiring: Wiring, report: _Reporter) -> Iterator[Problem]:
    """Problems that show only when the graph is wired."""
    nodes = [slot for slot in scope.slots.values() if slot.node is not None]
    for slot in nodes:
        yield from _reads(slot, report)
        yield from _labels(slot, scope, report)
        yield from _leaf(slot, nodes, report)
    yield from _roots(scope, report)
    yield from _scores(scope, report)
    yield from _threshold(scope, report)


def _reads(slot: Slot, report: _Reporter) -> Iterator[Problem]:
    node = slot.node
    assert node is not None
    if not node.evaluation_params and not slot.sources and node.branches():
        hint = "give it evaluation_params, inputs, or a parent that hands on to it"
        yield report("reads-nothing", node, "it decides but reads nothing", hint)
    for label, count in Counter(source.label for source in slot.sources).items():
        # Uncertain ones may be alternatives, of which one arrives.
        if count > 1 and any(s.certain for s in slot.sources if s.label == label):
            hint = "give each of them an output_label of its own"
            yield report("label-clash", node, f"{count} inputs are called {label!r}", hint)
        if label in node.evaluation_params:
            hint = "rename the output_label"
            yield report("label-clash", node, f"{label!r} is an input and a field", hint)
    if isinstance(node, CodeNode):
        yield from _arity(slot, node, report)


def _arity(slot: Slot, node: CodeNode, report: _Reporter) -> Iterator[Problem]:
    for source in slot.sources:
        if not source.certain:
            message = f"{source.label!r} is not certain to have run before {node.text}() is called"
            hint = "name it in inputs=, which makes it run, or read something that always runs"
            yield report("label-uncertain", node, message, hint)
    count = len(node.evaluation_params) + len(slot.sources)
    try:
        inspect.signature(node.function).bind(*range(count))
    except TypeError as error:
        names = ", ".join([*node.evaluation_params, *(s.label for s in slot.sources)]) or "nothing"
        hint = f"it is called with: {names}"
        yield report("code-arity", node, f"{node.text}() cannot be called: {error}", hint)
    except ValueError:  # a builtin without a signature
        return


def _labels(slot: Slot, scope: Scope, report: _Reporter) -> Iterator[Problem]:
    """Whether everything a prompt refers to is there for certain."""
    node = slot.node
    assert node is not None
    template = node.template
    if template is not None:
        yield from _placeholders(slot, report)
        return
    if not node.asks:
        return
    known = {label_of(s.node) for s in scope.slots.values() if s.node and s.node.output_label}
    for word in dict.fromkeys(_BACKTICKS.findall(node.text)):
        if is_known_field(word) and word not in known:
            if not _reads_field(node, word):
                hint = f"add {word!r} to evaluation_params, or drop the backticks"
                message = f"it mentions the field `{word}` but does not read it"
                yield report("field-not-read", node, message, hint, "warning")
        elif word in known:
            yield from _certain(slot, word, report)
        elif difflib.get_close_matches(word, [*known, *known_fields()], n=1, cutoff=0.8):
            hint = _did_you_mean(word, [*known, *known_fields()])
            yield report("label-unknown", node, f"nothing is called `{word}`", hint)


def _reads_field(node: BaseNode, word: str) -> bool:
    return any(path == word or path.startswith(f"{word}.") for path in node.evaluation_params)


def _certain(slot: Slot, label: str, report: _Reporter) -> Iterator[Problem]:
    producers = [source for source in slot.sources if source.label == label]
    if any(source.certain for source in producers):
        return
    what = "may not have run" if producers else "is not read by this node"
    hint = "name its node in inputs=, which makes it run, or list this node as its child"
    yield report("label-uncertain", slot.node, f"`{label}` {what}", hint)


def _placeholders(slot: Slot, report: _Reporter) -> Iterator[Problem]:
    node = slot.node
    assert node is not None and node.template is not None
    try:
        names = node.template.placeholders()
    except ValueError as error:
        hint = "write literal braces as {{ and }}"
        yield report("template", node, f"the prompt's braces do not match: {error}", hint)
        return
    labels = {source.label for source in slot.sources}
    known = {*labels, *node.evaluation_params}
    for name in names:
        base = name.removesuffix(".reason")
        if base in labels:
            yield from _certain(slot, base, report)
        elif name not in known:
            hint = _did_you_mean(name, known)
            yield report("label-unknown", node, f"the prompt refers to {{{name}}}", hint)
    used = {name.removesuffix(".reason") for name in names} | set(names)
    for name in sorted(known - used):
        hint = "use it in the prompt, or do not read it"
        yield report("unused-output", node, f"{name!r} is read but not used", hint, "warning")


def _leaf(slot: Slot, nodes: Iterable[Slot], report: _Reporter) -> Iterator[Problem]:
    node = slot.node
    assert node is not None
    read = any(source.slot is slot for other in nodes for source in other.sources)
    follows = node.successors() or any(branch.target is not None for branch in node.branches())
    if slot.grades or read or follows:
        for branch in node.branches():
            if branch.target is None and not read:
                hint = "give it a score, a node or a metric"
                yield report("leaf-without-score", node, f"{branch.verdict!r} leads nowhere", hint)
        return
    hint = "let a judgement read it, or remove it"
    yield report("leaf-without-score", node, f"the {node.kind} is the end of a path", hint)


def _roots(scope: Scope, report: _Reporter) -> Iterator[Problem]:
    roots = set(scope.spec.graph.root_nodes)
    graph = as_digraph(scope.spec.graph.nodes())
    for root in scope.spec.graph.root_nodes:
        parents = [p for p in graph.predecessors(root) if p not in root.inputs]
        if parents:
            hint = f"start from {parents[0].title!r} alone, or remove that edge"
            what = "another root" if parents[0] in roots else repr(parents[0].title)
            yield report("root-reachable", root, f"a root follows {what}", hint)


def _scores(scope: Scope, report: _Reporter) -> Iterator[Problem]:
    """Whether a score is certain, and whether there may be more than one."""
    start, end = object(), object()
    flow: nx.DiGraph[Any] = nx.DiGraph()
    flow.add_nodes_from((start, end))
    sure: dict[Slot, bool] = {}
    own = set(scope.slots.values())
    for slot in sorted(own, key=lambda s: -s.generation):
        after = [t for t in (*slot.activates, *slot.pulls()) if t in own]
        verdicts = [branch.verdict for branch in slot.node.branches()] if slot.node else []
        reached = dict.fromkeys(verdicts, False)
        for verdict, target in slot.branches:
            reached[verdict] = sure.get(target, False)
        sure[slot] = (
            slot.grades
            or any(sure.get(target, False) for target in slot.activates)
            or (bool(reached) and all(reached.values()))
        )
        flow.add_edges_from((slot, target) for target in after)
        flow.add_edges_from((slot, target) for _, target in slot.branches)
        if slot.grades:
            flow.add_edge(slot, end)
    roots = [scope.slots[root] for root in scope.spec.graph.root_nodes]
    flow.add_edges_from((start, root) for root in roots)
    if not any(sure[root] for root in roots):
        hint = "follow the verdicts from the root: each must lead to a score in the end"
        dead = [s.name for s in own if s.node and s.node.branches() and not sure[s]]
        where = f" (not from {', '.join(sorted(dead))})" if dead else ""
        yield report("no-score", None, f"not every path ends in a score{where}", hint)
    elif scope.spec.combine == "last" and _may_fork(flow, start, end):
        hint = "say how scores combine: combine='min', 'max', 'mean' or 'error'"
        message = "several verdicts may be reached at once; the last in the graph counts"
        yield report("several-terminals", None, message, hint, "warning")


def _may_fork(flow: nx.DiGraph[Any], start: object, end: object) -> bool:
    """Whether two paths may be live at once and not meet again before a score."""
    meet = nx.immediate_dominators(flow.reverse(copy=False), end)
    for place in flow:
        if place is not start and not isinstance(place, Slot):
            continue
        after = set(flow.successors(place)) & set(meet)
        if isinstance(place, Slot):
            after -= {target for _, target in place.branches} - set(place.activates)
        if len(after) > 1 and meet.get(place) is end:
            return True
    return False


def _threshold(scope: Scope, report: _Reporter) -> Iterator[Problem]:
    spec = scope.spec
    threshold = 1.0 if spec.strict else spec.threshold
    if threshold is None or not scope.terminals:
        return
    scores = [slot.score if slot.kind == "verdict" else None for slot in scope.terminals]
    known = [score for score in scores if score is not None]
    if len(known) < len(scores):
        return
    if max(known) < threshold:
        message = f"no verdict reaches the threshold {threshold}; the best is {max(known)}"
        yield report(
            "threshold-unreachable", None, message, "lower it, or raise a score", "warning"
        )
    elif min(known) >= threshold:
        message = f"every verdict meets the threshold {threshold}; the worst is {min(known)}"
        yield report("threshold-trivial", None, message, "raise it, or lower a score", "warning")


def _circular(slots: Iterable[Slot], report: _Reporter) -> Problem:
    names = ", ".join(repr(slot.name) for slot in slots if slot.kind == "node")
    hint = "make the node that is read a root, or let the first decision read it too"
    message = f"whether these run depends on their own outcome: {names}"
    return report("circular-liveness", None, message, hint)
