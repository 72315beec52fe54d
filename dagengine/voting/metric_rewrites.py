"""Better verdicts from the judges there are: votes, juries, quotes, examples, other questions.

Each function takes a metric (or a graph) and returns a copy that asks more if that can change the
score. The original stays as it is. The cost is in the plan, the votes are in the steps of the
results.

Yes/no nodes are also merged and split. A node can be merged with the node that one of its verdicts
leads to, if the other verdicts of both lead to the same:

    P ─True─▶ C ─True─▶ 10                P and C ─True─▶ 10
    └─False─▶ 0 ◀─False─┘       ⇄         └─False─▶ 0

The way back is a split. Everything behind the two stays as it is.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import product
from typing import Any, Protocol, TypeGuard, TypeVar

import networkx as nx

from dagengine.errors import InputError
from dagengine.graph.argument_checks import text
from dagengine.graph.examples_and_quotes import Example, Quotes, Unsupported, examples_given
from dagengine.graph.graph import Graph, MetricSpec, as_digraph
from dagengine.graph.node import AskingNode, BaseNode
from dagengine.graph.node_values import Panel
from dagengine.graph.nodes import BinaryJudgementNode, VerdictNode
from dagengine.graph.rewriting import G, Rewriting
from dagengine.metrics.common.base import BaseMetric, DrawnMetric
from dagengine.prompts.quotes import QuoteMode
from dagengine.voting.votes_and_juries import (
    Delegate,
    Escalation,
    Jury,
    RepeatVotes,
    Rule,
    Sprt,
    StandardError,
)

T = TypeVar("T", Graph, BaseMetric)
Nodes = Sequence[str | BaseNode] | None
Choice = Callable[[BaseNode], Panel | None]
_BETWEEN = re.compile(r"\s+(AND|OR)\s+")
# Two nodes may differ in these settings and still be asked as one question.
_OWN_SETTINGS = {"criteria", "name", "children", "then", "inputs", "evaluation_params"}


class Assigning(Rewriting):
    """Changes the nodes in `names` (titles or nodes; None: all) for which `can` is true.

    `able` says in messages what such a node does: "asks a judge". `edit` takes a node and its copy.
    """

    def __init__(
        self,
        able: str,
        can: Callable[[BaseNode], bool],
        edit: Callable[[BaseNode, Any], None],
        names: Nodes = None,
    ) -> None:
        super().__init__()
        self._able, self._can, self._edit, self._names = able, can, edit, names
        self._changed: set[BaseNode] = set()

    def spec(self, spec: MetricSpec) -> MetricSpec:
        """The specification, changed; raises InputError when no node can be."""
        rewritten = super().spec(spec)
        self._check(spec.name)
        return rewritten

    def graph(self, graph: G) -> G:
        """A copy of a graph, changed; raises InputError when no node can be."""
        copied = super().graph(graph)
        self._check(type(graph).__name__)
        return copied

    def change(self, graph: Graph, new: Sequence[BaseNode], strict: bool) -> None:
        """Change the named nodes that can be changed."""
        for node in graph.nodes():
            is_named = self._names is None or any(_is(node, name) for name in self._names)
            if is_named and self._can(node):
                self._changed.add(node)
                self._edit(node, self.copies[node])

    def _check(self, name: str) -> None:
        """Raise InputError if a name has no changed node, or no node was changed at all."""
        for target in self._names or ():
            if not any(_is(node, target) for node in self._changed):
                titles = (repr(node.title) for node in filter(self._can, self.copies))
                names = ", ".join(titles) or "none at all"
                raise InputError(
                    f"{name!r} has no node {target!r} that {self._able}; it has {names}"
                )
        if not self._changed:
            raise InputError(f"{name!r} has no node that {self._able}")


def assign_quotes(quoting: Quotes, names: Nodes = None) -> Assigning:
    """Let the verdicts of nodes quote the material; nodes that quote already stay as they are."""

    def quote(node: BaseNode, copied: Any) -> None:
        if isinstance(copied, AskingNode) and copied.quoting is None:
            copied.quote_with(quoting)

    return Assigning("judges the material", lambda node: node.quotes, quote, names)


def assign_examples(examples: Mapping[str, Sequence[Example]]) -> Assigning:
    """Give nodes solved examples, by their titles, in place of those that they have."""
    checked = {title: examples_given(solved) for title, solved in examples.items()}

    def can(node: BaseNode) -> bool:
        return isinstance(node, AskingNode) and bool(node.exemplary) and not node.prompted

    def show(node: BaseNode, copied: Any) -> None:
        copied.show_examples(checked[node.title])

    return Assigning("takes examples", can, show, tuple(examples))


def assign_criteria(criteria: Mapping[str, str]) -> Assigning:
    """Give nodes other criteria, by their titles."""
    checked = {title: text("criteria", words) for title, words in criteria.items()}

    def can(node: BaseNode) -> bool:
        own = hasattr(node, "criteria") and not getattr(node, "of_criteria", False)
        return isinstance(node, AskingNode) and own and not node.prompted

    def reword(node: BaseNode, copied: Any) -> None:
        copied.criteria = checked[node.title]

    return Assigning("has a criterion of its own", can, reword, tuple(criteria))


class AssignPanels(Assigning):
    """Gives nodes the panel that `choose` returns for them; None leaves a node as it is.

    A node whose verdicts all lead to the same gets no panel, since no vote on it can matter.
    """

    def __init__(self, choose: Choice, names: Nodes, able: str) -> None:
        super().__init__(able, lambda node: choose(node) is not None, self._seat, names)
        self._choose = choose
        self._needless = set[BaseNode]()

    def change(self, graph: Graph, new: Sequence[BaseNode], strict: bool) -> None:
        """Seat panels; raises InputError for a node that has one."""
        self._needless = _needless(graph.nodes(), strict)
        super().change(graph, new, strict)

    def _seat(self, node: BaseNode, copied: Any) -> None:
        if node.panel is not None:
            raise InputError(
                f"node {node.title!r} already has votes or several judges: {node.panel.label}"
            )
        if node not in self._needless:
            copied.panel = self._choose(node)


def _is(node: BaseNode, name: str | BaseNode) -> bool:
    return name is node or name == node.title


def _needless(nodes: Iterable[BaseNode], strict: bool) -> set[BaseNode]:
    """Decisions that cannot change the score: all their verdicts have the same consequence."""
    graph = as_digraph(nodes)
    if not nx.is_directed_acyclic_graph(graph):
        return set()
    sources = {source for node in graph for source in node.inputs}
    # The consequence of reaching a node: that of its verdicts if they have one, else the node.
    consequences: dict[BaseNode, object] = {}
    needless: set[BaseNode] = set()
    for node in reversed(list(nx.topological_sort(graph))):  # targets before their nodes
        ends = {_consequence(branch.target, consequences, strict) for branch in node.branches()}
        consequences[node] = node
        # A node that others read matters: its answer is in their prompts.
        if len(ends) == 1 and node not in sources:
            (consequences[node],) = ends
            needless.add(node)
    return needless


def _consequence(target: Any, consequences: Mapping[BaseNode, object], strict: bool) -> object:
    """The consequence of a verdict's target: a score, or the node that decides."""
    if isinstance(target, BaseNode) and not isinstance(target, VerdictNode):
        return consequences.get(target, target)
    if isinstance(target, int) and not isinstance(target, bool):
        # In strict mode only 10 of 10 passes: scores below it are the same score.
        return "score", target >= 10 if strict else target
    return id(target)


_VERDICTS, _RATINGS = Sprt(), StandardError()


class Respecifying(Protocol):
    """Makes one specification of another."""

    def spec(self, spec: MetricSpec) -> MetricSpec: ...


class RewrittenMetric(DrawnMetric):
    """A metric with some nodes changed; otherwise as the one it was made from."""

    def __init__(self, metric: BaseMetric, rewriting: Callable[[], Respecifying]) -> None:
        self.metric = metric
        self.rewriting = rewriting
        self.name = metric.__name__
        self.threshold = metric.threshold
        self.model = metric.model
        self.include_reason = metric.include_reason
        self.strict_mode = metric.strict_mode
        self.async_mode = metric.async_mode
        self.verbose_mode = metric.verbose_mode
        self.spec()

    def spec(self) -> MetricSpec:
        return self.rewriting().spec(self.metric.spec())


def voted(
    target: T,
    votes: int = 15,
    nodes: Nodes = None,
    *,
    stop: Rule = _VERDICTS,
    ratings: Rule = _RATINGS,
    temperature: float | None = None,
) -> T:
    """A copy of the metric in which the judge is asked up to `votes` times, until the outcome is
    settled.

    `nodes` (titles or nodes) are the nodes that vote; by default all nodes with verdicts, lists of
    verdicts or ratings. Verdicts are decided by majority, item by item for lists, and end by
    `stop`; ratings are averaged and end by `ratings`. A question whose verdicts all lead to the
    same score is asked once.

    Votes do not help if the judge always gives the same answer: set a `temperature` (for instance
    0.7) unless the nodes have one. Take a judgement that is wrong with a probability of up to 0.2.
    With the defaults, it gets at least the accuracy of 11 votes, with 4 to 7 votes on average.
    Raises InputError if there is nothing to vote on.
    """

    def choose(node: BaseNode) -> Panel | None:
        if node.vote is None:
            return None
        rule = ratings if node.vote == "rating" else stop
        return RepeatVotes(votes, rule, temperature, by_item=node.vote == "items")

    return _with_panels(target, choose, nodes)


def judged_by(
    target: T,
    judges: Sequence[Any],
    nodes: Nodes = None,
    *,
    weights: Sequence[float] = (),
) -> T:
    """A copy of the metric that a jury answers: the majority of `judges`, or the mean of their
    ratings.

    `judges` are values for `model=`; all are asked in parallel. `weights` are positive, one per
    judge. There is no vote on a text: nodes that write one ask the metric's judge (`model=`).
    `dagengine.reliability.jury_report` reports how useful the jury was. Raises InputError if there
    is nothing to vote on.
    """
    if not isinstance(judges, Sequence) or isinstance(judges, str):
        raise InputError("judged_by takes the judges as one list: judged_by(metric, [judge, …])")
    jury = Jury(tuple(judges), tuple(weights))
    return _with_panels(target, lambda node: jury if node.vote else None, nodes)


def escalated(
    target: T,
    to: Any,
    *,
    below: float | None = None,
    votes: int = 1,
    unsure: Sequence[str | bool] = (),
    nodes: Nodes = None,
    temperature: float | None = None,
) -> T:
    """A copy of the metric in which the judge `to` answers if the metric's judge is unsure.

    `to` is a value for `model=`. The metric's judge is unsure if the probability of its verdict is
    unknown or less than `below` (above 0, up to 1). It is also unsure if its `votes` differ, if it
    gives one of the verdicts in `unsure`, or if its answer is unparseable. Give at least one of
    `below`, `votes` and `unsure`. Only judgements escalate: raises InputError if the target has
    none.
    """
    if isinstance(unsure, str):
        raise InputError(f"unsure takes a list of verdicts: [{unsure!r}]")
    panel = Escalation(to, below, votes, tuple(unsure), temperature)
    able = "gives a single verdict (not a list of them)"
    return _with_panels(target, lambda node: panel if node.vote == "verdict" else None, nodes, able)


def answered_by(target: T, model: Any, nodes: Nodes = None) -> T:
    """A copy of the metric in which another judge answers `nodes` (titles or nodes; default: all).

    `model` is a value for `model=` of a metric. Raises InputError if the target has no such node.
    """
    if model is None:
        raise InputError("answered_by needs a judge: a model's name, a judge, or a custom model")
    delegate = Delegate(model)
    return _with_panels(target, lambda node: delegate if node.asks else None, nodes)


def quoted(
    target: T,
    quote: QuoteMode = "required",
    nodes: Nodes = None,
    *,
    unsupported: Unsupported = "fail",
) -> T:
    """A copy of the metric whose verdicts quote what they stand on; code checks every quote.

    `nodes` (titles or nodes) are the nodes that quote; by default all that give verdicts or
    ratings. With "required" a verdict needs a quote, or says what the material lacks; with "if_any"
    it may quote nothing. A judge whose quotes are not in the material is asked once more. A verdict
    that then has no true quote ends the metric with the outcome `unsupported`, or is kept, and its
    quotes are marked (`unsupported="keep"`). Raises InputError if no node can quote.
    """
    quoting = Quotes.of(quote, unsupported)
    if quoting is None:
        raise InputError("quoted needs 'required' or 'if_any'")
    return _apply(target, partial(assign_quotes, quoting, _names(nodes)))


def exemplified(target: T, examples: Mapping[str, Sequence[Example]]) -> T:
    """A copy of the metric in which the prompts of nodes show solved examples.

    `examples` has a list of examples by the titles of nodes, in place of those that they have. An
    empty list takes a node's examples away. Raises InputError for a node that the target has not,
    or that takes no examples; what is in them is checked when the metric is compiled.
    """
    if not isinstance(examples, Mapping) or not examples:
        raise InputError("exemplified needs examples by node: {'Polite': [Example(…, True)]}")
    return _apply(target, partial(assign_examples, examples))


def reworded(target: T, criteria: Mapping[str, str]) -> T:
    """A copy of the metric in which nodes ask by other criteria.

    `criteria` has the text of each by the title of its node. A node without a name is called by its
    new words then. Raises InputError for a node that the target has not, or without a criterion.
    """
    if not isinstance(criteria, Mapping) or not criteria:
        raise InputError("reworded needs criteria by node: {'Polite': 'Is the answer polite?'}")
    return _apply(target, partial(assign_criteria, criteria))


def _names(nodes: Nodes) -> Nodes:
    if isinstance(nodes, str | BaseNode):
        raise InputError(f"nodes takes a list: [{nodes!r}]")
    return None if nodes is None else tuple(nodes)


def _with_panels(target: T, choose: Choice, nodes: Nodes, able: str = "asks a judge") -> T:
    return _apply(target, partial(AssignPanels, choose, _names(nodes), able))


def _apply(target: T, rewriting: Callable[[], Assigning]) -> T:
    if isinstance(target, Graph):
        return rewriting().graph(target)
    if isinstance(target, BaseMetric):
        return RewrittenMetric(target, rewriting)
    raise InputError(f"{target!r} is neither a metric nor a graph")


@dataclass(frozen=True, slots=True)
class Pair:
    """Two nodes that may be merged: `parent_verdict` leads from the parent to the child.

    `child_verdict` goes on; the child's other verdict leads where that of the parent does.
    """

    parent: BinaryJudgementNode
    child: BinaryJudgementNode
    parent_verdict: bool
    child_verdict: bool

    @property
    def criterion(self) -> str:
        """The two criteria as one."""
        words = {True: "yes", False: "no"}
        return (
            f"First: {self.parent.text} Second: {self.child.text} Answer true only if the first "
            f"answer is {words[self.parent_verdict]} and the second one is "
            f"{words[self.child_verdict]}."
        )


def pair_at(metric: BaseMetric, title: str) -> Pair | None:
    """The node of that title and a neighbour that it may be merged with: a child before a parent.

    A child is asked after one node only, and nothing reads what the two answer.
    """
    graph = metric.spec().graph
    edges: list[tuple[BaseNode, BaseNode]] = []
    for node in graph.nodes():
        edges += ((node, child) for child in targets(node).values() if isinstance(child, BaseNode))
    for end in (0, 1):  # first edges from the node, then edges to it
        for edge in edges:
            if edge[end].title == title and (pair := _pair(graph, *edge)):
                return pair
    return None


def _pair(graph: Graph, parent: BaseNode, child: BaseNode) -> Pair | None:
    if not (_is_free(parent, graph) and _is_free(child, graph)):
        return None
    predecessors = set(as_digraph(graph.nodes()).predecessors(child))
    deciders = {node for node in predecessors if child in targets(node).values()}
    has_one_parent = deciders == {parent} and child not in graph.root_nodes
    if not has_one_parent or _settings(parent) != _settings(child):
        return None
    of_parent, of_child = targets(parent), targets(child)
    for verdict, child_verdict in product((True, False), repeat=2):
        end = of_parent[not verdict]
        if of_parent[verdict] is child and end is not child and of_child[not child_verdict] == end:
            return Pair(parent, child, verdict, child_verdict)
    return None


def can_split(metric: BaseMetric, title: str) -> bool:
    """Return whether a node is a yes/no question that may become two."""
    graph = metric.spec().graph
    return any(node.title == title and _is_free(node, graph) for node in graph.nodes())


def _is_free(node: BaseNode, graph: Graph) -> TypeGuard[BinaryJudgementNode]:
    """Return whether a node is a yes/no question that nothing reads and whose words may change."""
    if not isinstance(node, BinaryJudgementNode) or node.prompted or node.examples:
        return False
    unread = not any(node in reader.inputs for reader in graph.nodes())
    return unread and set(targets(node)) == {True, False}


def _settings(node: AskingNode) -> dict[str, Any]:
    return {name: value for name, value in vars(node).items() if name not in _OWN_SETTINGS}


def targets(node: BaseNode) -> dict[Any, Any]:
    """Targets of the verdicts of a node; a `VerdictNode` without a child is its score."""
    ends: dict[Any, Any] = {}
    for branch in node.branches():
        leaf = isinstance(branch.target, VerdictNode) and branch.target.child is None
        ends[branch.verdict] = branch.target.score if leaf else branch.target
    return ends


def halves(words: str) -> tuple[str, str, str] | None:
    """Two criteria, and the word that is between them: AND or OR; None for any other text."""
    parts = _BETWEEN.split(words.strip())
    return (parts[0], parts[1], parts[2]) if len(parts) == 3 and all(parts) else None


class _Reshaping(Rewriting):
    """Reshapes the graph that contains a node, once all of it is copied."""

    def __init__(self, node: BaseNode, reshape: Callable[[Rewriting], None]) -> None:
        super().__init__()
        self._node, self._reshape = node, reshape

    def change(self, graph: Graph, new: Sequence[BaseNode], strict: bool) -> None:
        """Reshape the copy."""
        if self._node in new:
            self._reshape(self)


def merge_nodes(metric: BaseMetric, title: str) -> BaseMetric:
    """A copy of the metric in which a node and its neighbour (`pair_at`) are one question."""
    pair = pair_at(metric, title)
    assert pair is not None, title

    def reshape(rewriting: Rewriting) -> None:
        parent, child = rewriting.copies[pair.parent], rewriting.copies[pair.child]
        assert isinstance(parent, BinaryJudgementNode)
        parent.criteria = pair.criterion
        parent.name = f"{pair.parent.title} and {pair.child.title}"
        for name in ("evaluation_params", "inputs"):
            combined = (*getattr(parent, name), *getattr(child, name))
            setattr(parent, name, tuple(dict.fromkeys(combined)))
        leads = {
            True: targets(child)[pair.child_verdict],
            False: targets(parent)[not pair.parent_verdict],
        }
        # In the order that the parent has: definitions are made of it.
        parent.then = {verdict: leads[verdict] for verdict in targets(parent)}
        parent.children = []
        for node in rewriting.copies.values():
            if child in node.successors():
                kids = dict.fromkeys(node.children)
                node.children = list(dict.fromkeys(parent if kid is child else kid for kid in kids))

    return RewrittenMetric(metric, partial(_Reshaping, pair.parent, reshape))


def split_node(metric: BaseMetric, title: str, words: str) -> BaseMetric:
    """A copy of the metric in which a node is two: `words` are both criteria, AND or OR between."""
    node = next(node for node in metric.spec().graph.nodes() if node.title == title)
    parts = halves(words)
    assert parts is not None, words

    def reshape(rewriting: Rewriting) -> None:
        copied = rewriting.copies[node]
        assert isinstance(copied, BinaryJudgementNode)
        second, goes_on = copy.copy(copied), parts[1] == "AND"
        copied.criteria, _, second.criteria = parts
        second.name, second.output_label = f"{title}, 2", None
        second.children, second.then = [], targets(copied)
        copied.children, copied.then = [], {**targets(copied), goes_on: second}
        for reader in list(rewriting.copies.values()):
            if copied in reader.successors():
                reader.children.append(second)

    return RewrittenMetric(metric, partial(_Reshaping, node, reshape))
