"""Better verdicts from the judges there are: votes, juries, quotes, examples, other criteria.

Each of them takes a metric (or a graph) and returns a copy that asks more if that can change the
score. The original stays as it is. What they cost is in the plan, what was voted in the steps of
the results.

    sure = voted(GEval(…), votes=15)
    sure = judged_by(metric, ["gpt-4o", "claude-4", "gemini-3"])
    sure = escalated(metric, to="gpt-5", below=0.9)
    mixed = answered_by(metric, "gpt-5-mini", ["Extract claims"])
    shown = quoted(metric, "required")
    shown = exemplified(metric, {"Polite": [Example("Go away.", False)]})
    asked = reworded(metric, {"Polite": "Is the answer polite in its own words?"})
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Protocol, TypeVar

from dagengine.errors import InputError
from dagengine.graph.graph import Graph, MetricSpec
from dagengine.graph.judging import Example, Quotes, Unsupported
from dagengine.graph.node import BaseNode
from dagengine.graph.values import Panel
from dagengine.metrics.common.base import BaseMetric, DrawnMetric
from dagengine.prompts.quotes.answers import QuoteMode
from dagengine.voting.assignment import (
    Assigning,
    AssignPanels,
    assign_criteria,
    assign_examples,
    assign_quotes,
)
from dagengine.voting.panels import Delegate, Escalation, Jury, RepeatVotes
from dagengine.voting.stopping import Rule, Sprt, StandardError

T = TypeVar("T", Graph, BaseMetric)
Nodes = Sequence[str | BaseNode] | None

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
        rule = {"rating": ratings}.get(node.vote, stop)
        return RepeatVotes(votes, rule, temperature, by_item=node.vote == "items")

    return _rewritten(target, partial(AssignPanels, choose), nodes)


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
    return _rewritten(
        target, partial(AssignPanels, lambda node: jury if node.vote else None), nodes
    )


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
    panels = {"verdict": panel}
    return _rewritten(
        target, partial(AssignPanels, lambda node: panels.get(node.vote or ""), able=able), nodes
    )


def answered_by(target: T, model: Any, nodes: Nodes = None) -> T:
    """A copy of the metric in which another judge answers `nodes` (titles or nodes; default: all).

    `model` is a value for `model=` of a metric. Raises InputError if the target has no such node.
    """
    if model is None:
        raise InputError("answered_by needs a judge: a model's name, a judge, or a custom model")
    delegate = Delegate(model)
    return _rewritten(
        target, partial(AssignPanels, lambda node: delegate if node.asks else None), nodes
    )


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
    return _rewritten(target, partial(assign_quotes, quoting), nodes)


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


def _rewritten(
    target: T, rewriting: Callable[[Sequence[str | BaseNode] | None], Assigning], nodes: Nodes
) -> T:
    if isinstance(nodes, str | BaseNode):
        raise InputError(f"nodes takes a list: [{nodes!r}]")
    return _apply(target, partial(rewriting, None if nodes is None else tuple(nodes)))


def _apply(target: T, rewriting: Callable[[], Assigning]) -> T:
    if isinstance(target, Graph):
        return rewriting().graph(target)
    if isinstance(target, BaseMetric):
        return RewrittenMetric(target, rewriting)
    raise InputError(f"{target!r} is neither a metric nor a graph")
