"""What a graph must satisfy before the first call.

Every check has a stable code. All problems of a metric are collected, so that one look at
the message is enough to fix them all.
"""

from __future__ import annotations

import inspect
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from itertools import chain
from operator import attrgetter
from typing import Any

import networkx as nx

from dagengine.compiler.dependencies import Scope, Slot, Wiring, only_after, wire
from dagengine.compiler.structure_checks import (
    UNWIRABLE,
    Reporter,
    decides,
    graph_problems,
    name_hint,
    reads_nothing,
    roots_below,
)
from dagengine.errors import GraphError, Problem
from dagengine.graph.examples_and_quotes import Example
from dagengine.graph.graph import MetricSpec, is_blank
from dagengine.graph.node import AskingNode, BaseNode
from dagengine.graph.nodes import BinaryJudgementNode, CodeNode, NonBinaryJudgementNode
from dagengine.prompts.instructions import PromptTemplate
from dagengine.system.terminal_text import text_if
from dagengine.test_case import is_known_field

_JUDGED = (BinaryJudgementNode, NonBinaryJudgementNode)
_MANY = 12
_SHORT = 4  # letters; of two shorter words one other letter makes two names (`A` and `B`)
_BACKTICKS = re.compile(r"`([^`\n]+)`")


def check(spec: MetricSpec) -> tuple[list[Problem], Wiring | None]:
    """Every problem of one metric, and its wiring when it has one."""
    problems = list(graph_problems(spec, (), set()))
    if not UNWIRABLE.isdisjoint(map(attrgetter("code"), problems)):
        return problems, None
    wiring = wire(spec)
    for scope in dict.fromkeys([wiring.scope, *(slot.scope for slot in wiring.slots)]):
        report = Reporter(scope.owner.name if scope.owner else scope.spec.name)
        problems += _meaning(scope, wiring, report)
    report = Reporter(spec.name)
    if wiring.circular:
        names = ", ".join(repr(slot.name) for slot in wiring.circular if slot.kind == "node")
        way_out = (
            "name the node that may be missing in inputs=, which makes it run, or make it a root"
        )
        waits = f"they wait to learn whether something runs that depends on them: {names}"
        problems.append(report("circular-liveness", None, waits, way_out))
    for slot in wiring.idle:
        hint = "add it to root_nodes=, or list it as a child or verdict of something that runs"
        message = "nothing makes it run: only nodes that wait for it lead to it"
        problems.append(report("never-runs", slot.name, message, hint))
    return problems, wiring


def require_no_errors(problems: Iterable[Problem]) -> None:
    """Raise GraphError, with every problem once, if one of them is an error."""
    unique = list(dict.fromkeys(problems))
    if any(problem.severity == "error" for problem in unique):
        raise GraphError(unique)


def _meaning(scope: Scope, wiring: Wiring, report: Reporter) -> Iterator[Problem]:
    """Problems that only a wired graph shows."""
    nodes, slots = scope.spec.graph.nodes(), scope.slots.values()
    labels = set(filter(None, map(attrgetter("output_label"), nodes)))
    fields = set(chain.from_iterable(map(attrgetter("fields"), slots)))
    sources = set(chain.from_iterable(map(Slot.reads, slots)))
    for node in nodes:
        slot = scope.slots[node]
        yield from _reads(slot, node, report)
        if node.template is not None:
            yield from _placeholders(slot, node, node.template, wiring, report)
        elif node.asks:
            yield from _mentions(slot, node, labels, fields, wiring, report)
        # A verdict may lead nowhere if another node reads which one it was.
        if slot not in sources:
            yield from _dead_ends(slot, node, report)
    yield from _bypassed_gates(scope, report)
    yield from roots_below(scope.spec.graph, report)
    yield from _scores(scope, wiring, report)
    yield from _threshold(scope, report)


def _reads(slot: Slot, node: BaseNode, report: Reporter) -> Iterator[Problem]:
    """Problems of what a node reads, by its kind."""
    if not slot.fields and not slot.sources and decides(node):
        yield reads_nothing(node, report)
    yield from _label_clashes(slot, report)
    if isinstance(node, CodeNode):
        yield from _code_call(slot, node, report)
    if isinstance(node, AskingNode) and node.examples:
        names = node.names_in_examples([*slot.fields, *slot.labels()])
        for number, example in enumerate(node.examples, 1):
            yield from _example(slot, node, number, example, names, report)


def _dead_ends(slot: Slot, node: BaseNode, report: Reporter) -> Iterator[Problem]:
    """Verdicts of an unread node that lead nowhere, or the node where it has none."""
    branches = node.branches()
    dead = [branch.verdict for branch in branches if branch.target is None]
    if not (slot.grades or node.successors() or len(dead) < len(branches)):
        hint = "let a judgement read its output, or remove it"
        yield report("leaf-without-score", node, f"the {node.kind} is the end of a path", hint)
        return
    for verdict in dead:
        hint = "give it a score, a node or a metric"
        yield report("leaf-without-score", node, f"{verdict!r} leads nowhere", hint)


def _label_clashes(slot: Slot, report: Reporter) -> Iterator[Problem]:
    """Inputs of a node that have one name."""
    node = slot.node
    for label, count in Counter(slot.labels()).items():
        # Uncertain ones may be alternatives: one of them arrives.
        if count > 1 and any(s.certain for s in slot.sources if s.label == label):
            hint = "give each of them its own output_label"
            yield report("label-clash", node, f"{count} inputs are called {label!r}", hint)
        if label in slot.fields:
            hint = "rename the output_label"
            yield report("label-clash", node, f"{label!r} is an input and a field", hint)


def _code_call(slot: Slot, node: CodeNode, report: Reporter) -> Iterator[Problem]:
    """Problems of calling a code node's function with what the node reads."""
    for source in slot.sources:
        if not source.certain:
            message = f"{source.label!r} is not certain to have run before {node.text}() is called"
            hint = "name it in inputs=, which makes it run, or read something that always runs"
            yield report("label-uncertain", node, message, hint)
    count = len(slot.fields) + len(slot.sources)
    try:
        inspect.signature(node.function).bind(*range(count))
    except TypeError as error:
        names = ", ".join([*slot.fields, *slot.labels()]) or "nothing"
        hint = f"it is called with: {names}"
        yield report("code-arity", node, f"{node.text}() cannot be called: {error}", hint)
    except ValueError:  # a builtin without a signature
        pass


def _example(
    slot: Slot, node: AskingNode, number: int, example: Example, names: list[str], report: Reporter
) -> Iterator[Problem]:
    """Problems of one example: an impossible answer, or that it does not show what is read."""
    allowed = list(map(repr, node.exemplary))  # 1 is no True
    if repr(example.answer) not in allowed:
        words = ", ".join(allowed) if len(allowed) < _MANY else f"{allowed[0]} to {allowed[-1]}"
        message = f"example {number} has the answer {example.answer!r:.80}"
        yield report("example-answer", node, message, f"the node answers {words}")
    only = names[0] if len(names) == 1 else node.only
    values = dict(example.values(node.evaluation_params, only))
    empty = all(map(is_blank, values.values()))
    if empty:
        hint = f"write what was judged: Example({{{names[0]!r}: …}}, …)" if names else ""
        yield report("example-empty", node, f"example {number} shows nothing", hint)
    if isinstance(example.reads, str):
        return  # of one text nobody can say which field it is
    for name in values.keys() - set(names):
        message = f"example {number} shows {name!r}, which is not in the node's prompts"
        yield report("example-field", node, message, name_hint(name, names))
    missing = [repr(field) for field in slot.fields if field in names and field not in values]
    if missing and not empty:
        message = f"example {number} lacks {' and '.join(missing)}, which the node reads"
        hint = "add it, so that the example looks like the cases"
        yield report("example-incomplete", node, message, hint, "warning")


def _mentions(
    slot: Slot,
    node: BaseNode,
    labels: set[str],
    fields: set[str],
    wiring: Wiring,
    report: Reporter,
) -> Iterator[Problem]:
    """References of a question to what may not be there."""
    for word in dict.fromkeys(_BACKTICKS.findall(node.text)):
        if is_known_field(word) and word not in labels:
            if not any(path == word or path.startswith(f"{word}.") for path in slot.fields):
                hint = f"add {word!r} to evaluation_params, or drop the backticks"
                message = f"it mentions the field `{word}` but does not read it"
                yield report("field-not-read", node, message, hint, "warning")
        elif word in slot.fields:
            continue
        elif word in labels:
            yield from _certain(slot, word, wiring, report)
        # Words in backticks may be code, or a name: only what is nearly a name here is a slip.
        elif near := next((name for name in sorted(labels | fields) if _is_slip(word, name)), None):
            hint = f"did you mean {near!r}?"
            yield report("label-unknown", node, f"nothing is called `{word}`", hint, "warning")


def _is_slip(word: str, name: str) -> bool:
    """Return whether two words differ by case, or by one letter more, less, other or swapped."""
    word, name = word.casefold(), name.casefold()
    if word == name or min(len(word), len(name)) < _SHORT:
        return word == name
    # With a hole somewhere, in place of a letter or between two, both are the same.
    holes = [{text[:i] + "\0" + text[i + letters :] for i in range(len(text) + 1)
              for letters in (0, 1)} for text in (word, name)]  # fmt: skip
    return sorted(word) == sorted(name) or not holes[0].isdisjoint(holes[1])


def _bypassed_gates(scope: Scope, report: Reporter) -> Iterator[Problem]:
    """Nodes that verdicts lead to, and that also run because a parent behind a verdict ran."""
    verdicts, parents = defaultdict[Slot, list[str]](list), defaultdict[Slot, list[str]](list)
    for slot in scope.slots.values():
        for verdict, target in slot.branches:
            verdicts[target].append(f"{verdict!r} of {slot.name!r}")
        for target in slot.activates:
            parents[target].append(repr(slot.name))
    for slot, gates in verdicts.items():
        if slot in parents and not slot.always_live:
            names = " and ".join(parents[slot])
            message = f"it runs after {' or '.join(gates)}, and also whenever {names} runs"
            hint = (
                f"if only the verdicts should decide, remove it from the children of {names}; to "
                "read their output, name them in inputs="
            )
            yield report("gate-bypassed", slot.node, message, hint, "warning")


def _certain(slot: Slot, label: str, wiring: Wiring, report: Reporter) -> Iterator[Problem]:
    producers = [source for source in slot.sources if source.label == label]
    if any(source.certain for source in producers):
        return
    # One of several alternatives with the same label may always be there.
    if producers and only_after(slot, [source.slot for source in producers], wiring.causes):
        return
    state = "may not have run" if producers else "is not read by this node"
    hint = "name its node in inputs=, which makes it run, or list this node as its child"
    yield report("label-uncertain", slot.node, f"`{label}` {state}", hint)


def _placeholders(
    slot: Slot, node: BaseNode, template: PromptTemplate, wiring: Wiring, report: Reporter
) -> Iterator[Problem]:
    """References of a prompt to what may not be there."""
    try:
        names = template.placeholders()
    except ValueError as error:
        hint = "write literal braces as {{ and }}"
        yield report("template", node, f"the prompt's braces do not match: {error}", hint)
        return
    labels = set(slot.labels())
    readable = node.prompt_names([*labels, *slot.fields])
    reasoned = {s.label for s in slot.sources if isinstance(s.slot.node, _JUDGED)}
    for name in names:
        base = name.removesuffix(".reason")
        # Only a judgement has a reason: `{name.reason}` of other nodes is a label not known.
        if base in labels & readable and (base == name or base in reasoned):
            yield from _certain(slot, base, wiring, report)
        elif name not in readable:
            hint = name_hint(name, readable)
            yield report("label-unknown", node, f"the prompt refers to {{{name}}}", hint)
    bases = (name.removesuffix(".reason") for name in names)
    for name in sorted(readable.difference(names, bases)):
        hint = "use it in the prompt, or remove it from what the node reads"
        yield report("unused-output", node, f"{name!r} is read but not used", hint, "warning")


def _scores(scope: Scope, wiring: Wiring, report: Reporter) -> Iterator[Problem]:
    """Paths without a score, and cases that may reach several."""
    # From the last slots backwards: a score is certain from a slot if it grades, if it is from one
    # that it hands on to, or if it is from the targets of all its verdicts.
    sure: set[Slot] = set()
    dead: list[str] = []
    for slot in sorted(scope.slots.values(), key=lambda s: -s.generation):  # the last ones first
        reached = dict.fromkeys(slot.verdicts(), False)
        for verdict, target in slot.branches:
            reached[verdict] = target in sure
        handed = not sure.isdisjoint(slot.activates)
        if slot.grades or handed or (reached and all(reached.values())):
            sure.add(slot)
        elif reached:
            dead.append(slot.name)
    roots = [scope.slots[root] for root in scope.spec.graph.root_nodes]
    if sure.isdisjoint(roots):
        hint = "follow the verdicts from the root: each must lead to a score in the end"
        where = text_if(dead, f" (not from {', '.join(sorted(dead))})")
        yield report("no-score", None, f"not every path ends in a score{where}", hint)
    elif scope.spec.combine == "last" and _may_fork(scope, roots, wiring):
        hint = "; ".join(_ways_to_one_score(scope))
        message = "one case may reach several scores; the last in the graph counts"
        yield report("several-terminals", None, message, hint, "warning")


def _ways_to_one_score(scope: Scope) -> Iterator[str]:
    """Hints for a graph in which several scores may be reached."""
    yield "say how scores combine: combine='min', 'max', 'mean' or 'error'"
    scored = {slot for slot in scope.slots.values() if any(t.grades for t in slot.targets())}
    for slot in scope.slots.values():
        gates = [source for source in slot.reads() if source in scored]
        if not gates:
            continue
        if isinstance(slot.node, _JUDGED) and slot in scored:
            yield (
                f"or, if {slot.name!r} is meant to come after a verdict of {gates[0].name!r}, put "
                "it under that verdict: what it reads does not decide whether it runs"
            )
        elif slot.grades:
            yield f"leave then= out of what {slot.name!r} only weighs"


def _may_fork(scope: Scope, roots: Iterable[Slot], wiring: Wiring) -> bool:
    """Return whether two paths may be live in one case and not meet again before a score.

    The ways from the start to a score are a graph with two ends. Every way to a score from a slot
    passes its immediate dominator on the way back from the end. If that is the end itself, the
    ways from the slot never meet. A score that another one is computed from is no end.
    """
    start, end = object(), object()
    flow: nx.DiGraph[Any] = nx.DiGraph()
    flow.add_node(end)
    own = set(scope.slots.values())
    spent = _weighed_scores(scope, wiring)
    for slot in sorted(own, key=lambda s: -s.generation):
        inner = own.intersection((*slot.activates, *slot.pulls()))
        nx.add_star(flow, [slot, *inner, *slot.targets()])
        if slot.grades and slot not in spent:
            flow.add_edge(slot, end)
    nx.add_star(flow, [start, *roots])
    meet = nx.immediate_dominators(flow.reverse(copy=False), end)
    dominators = nx.immediate_dominators(flow, start)
    for slot in flow:
        if meet.get(slot) is not end or slot is end:
            continue
        targets = {target for target in flow.successors(slot) if target in meet}
        ways = len(targets) if slot is start else _ways_from(slot, targets, dominators)
        if ways > 1:
            return True
    return False


def _weighed_scores(scope: Scope, wiring: Wiring) -> set[Slot]:
    """Scores that always become part of a computed one."""
    weighing = defaultdict[Slot, list[Slot]](list)
    for slot in scope.slots.values():
        for score in slot.material:
            weighing[score].append(slot)
    return {
        score
        for score, codes in weighing.items()
        if any(code.always_live for code in codes) or only_after(score, codes, wiring.causes)
    }


def _ways_from(slot: Slot, targets: set[Slot], dominators: Mapping[Any, Any]) -> int:
    """Number of `targets` that may be live in one case; of several verdicts it is one."""
    verdicts = set(slot.targets()).difference(slot.activates)
    pulled = targets.intersection(slot.pulls()) - verdicts
    # What is read only because it chose this slot continues here and nowhere else.
    above: Any = slot
    while pulled and dominators.get(above) not in (None, above):
        above = dominators[above]
        pulled.discard(above)
    handed = targets - verdicts - set(slot.pulls())
    return len(pulled) + len(handed) + bool(targets & verdicts)


def _threshold(scope: Scope, report: Reporter) -> Iterator[Problem]:
    spec = scope.spec
    threshold = 1.0 if spec.strict else spec.threshold
    if not isinstance(threshold, int | float) or not 0 <= threshold <= 1:
        return
    stated = [slot.score for slot in scope.terminals if slot.score is not None]
    # A score that is computed may have any value.
    if not stated or len(stated) < len(scope.terminals):
        return
    if max(stated) < threshold:
        message = f"no verdict reaches the threshold {threshold}; the best is {max(stated)}"
        yield report(
            "threshold-unreachable", None, message, "lower it, or raise a score", "warning"
        )
    elif min(stated) >= threshold:
        message = f"every verdict meets the threshold {threshold}; the worst is {min(stated)}"
        yield report("threshold-trivial", None, message, "raise it, or lower a score", "warning")
