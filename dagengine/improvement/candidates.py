"""Changes of each kind ("rung") that may improve a metric, and copies of the metric with them."""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain, repeat
from typing import Any

from dagengine.graph.examples_and_quotes import Example
from dagengine.graph.graph import Graph, Metric, MetricSpec
from dagengine.graph.node import AskingNode, BaseNode
from dagengine.graph.nodes import BinaryJudgementNode, DecisionNode, VerdictNode
from dagengine.graph.rewriting import Rewriting
from dagengine.improvement.experiment import Judged, Split
from dagengine.metrics.common.base import BaseMetric
from dagengine.metrics.dag import DAGMetric
from dagengine.reliability.counterfactual import Counterfactual, NoReplyError
from dagengine.reliability.human_labels import Given, NodeAnswers, Vote
from dagengine.reliability.observed_runs import Run
from dagengine.reliability.statistics.intervals import Unknown
from dagengine.reliability.statistics.sums import present
from dagengine.reliability.threshold_fitting import (
    FittedThreshold,
    fit_threshold,
    pick_examples,
    solved_cases,
)
from dagengine.results import Verdict
from dagengine.results.pass_rules import passes
from dagengine.voting.metric_rewrites import (
    RewrittenMetric,
    escalated,
    exemplified,
    merge_nodes,
    reworded,
    split_node,
    targets,
    voted,
)
from dagengine.voting.votes_and_juries import Curtailed, Escalation

EXAMPLES = 4
VOTES = 3
Leaf = tuple[str, Verdict]
"""A node by its title, and a verdict of it that ends with a score."""


def asking_node(metric: Metric, title: str) -> AskingNode | None:
    """The node of that title that asks a judge, if the metric has it."""
    nodes = metric.spec().graph.nodes()
    asking = (node for node in nodes if isinstance(node, AskingNode) and node.title == title)
    return next(asking, None)


def changed(metric: BaseMetric, rung: str, where: str, **detail: Any) -> BaseMetric:
    """A copy of the metric with the change of one rung, at the node with the title `where`.

    `detail` is the change as data: what a `Proposal` has.
    """
    if rung == "threshold":
        return with_threshold(metric, detail["threshold"])
    if rung == "scores":
        return with_score(metric, (where, detail["verdict"]), detail["score"])
    if rung == "votes":
        return voted(metric, detail["votes"], [where], stop=Curtailed())
    if rung == "escalation":
        return with_escalation(metric, **detail)
    if rung == "merge":
        return merge_nodes(metric, where)
    if rung == "split":
        return split_node(metric, where, detail["criterion"])
    if rung == "rival":
        whole = holistic(metric)
        assert whole is not None
        return whole
    # Examples first: with a new criterion, a node without a name has another title.
    if "examples" in detail:
        metric = exemplified(metric, {where: [Example(**row) for row in detail["examples"]]})
    return reworded(metric, {where: detail["criterion"]}) if "criterion" in detail else metric


def with_escalation(metric: BaseMetric, below: float | None, to: Any = None) -> BaseMetric:
    """A copy of the metric whose judgements below a probability go to its second judge.

    With `to` it gets this judge. Without `below` it loses the one that it has.
    """
    if to is not None:
        return escalated(metric, to, below=below)

    def change(node: BaseNode) -> None:
        if isinstance(node.panel, Escalation):
            node.panel = None if below is None else replace(node.panel, below=below)

    return RewrittenMetric(metric, lambda: Rewriting([change]))


def escalation_of(metric: BaseMetric) -> Escalation | None:
    """The second judge of a metric where the first is unsure, if it has one."""
    nodes = metric.spec().graph.nodes()
    return next((node.panel for node in nodes if isinstance(node.panel, Escalation)), None)


@dataclass(frozen=True, slots=True)
class Threshold:
    """A rewriting that sets another threshold, and nothing else."""

    threshold: float

    def spec(self, spec: MetricSpec) -> MetricSpec:
        """The specification with the threshold."""
        return replace(spec, threshold=self.threshold)


def with_threshold(metric: BaseMetric, threshold: float) -> BaseMetric:
    """A copy of the metric with another threshold."""
    rewritten = RewrittenMetric(metric, partial(Threshold, threshold))
    rewritten.threshold = threshold
    return rewritten


def with_score(metric: BaseMetric, leaf: Leaf, score: int) -> BaseMetric:
    """A copy of the metric in which a verdict ends with another score (0 to 10)."""
    title, verdict = leaf

    def change(node: BaseNode) -> None:
        if node.title != title or not isinstance(node, DecisionNode):
            return
        if verdict in node.then:
            node.then[verdict] = score
        for child in node.children:
            if isinstance(child, VerdictNode) and child.verdict == verdict:
                child.score = score

    return RewrittenMetric(metric, lambda: Rewriting([change]))


@dataclass(frozen=True, slots=True)
class Proposal:
    """A change to try: what it is, at which node, and its `detail` as data, or why there is none.

    `right` are shares of right results by case; None where the changed metric has to be asked.
    """

    what: str
    where: str
    detail: Mapping[str, Any] | str
    right: Mapping[int, float] | None = None


def fitted_threshold(judged: Judged, split: Split) -> Proposal:
    """The threshold that the labels ask for, by the scores that are there."""
    threshold_now, asking = judged.metric.spec().threshold, judged.asking
    no_proposal = partial(Proposal, "another threshold", "whole metric")
    assert threshold_now is not None

    def fit(numbers: Sequence[int]) -> FittedThreshold | Unknown:
        scored, groups = list[tuple[float, bool]](), list[Hashable]()
        for number in numbers:
            case_scores = present(run.score for run in judged.runs.get(number, ()))
            scored += zip(case_scores, repeat(asking.labels.by_case[number] is True))
            groups += [asking.groups.get(number, number)] * len(case_scores)
        return fit_threshold(scored, now=threshold_now, groups=groups)

    scores = {run.score for run in chain(*judged.runs.values())}
    if len(scores - {None}) < 3:
        return no_proposal("no other threshold would change a result")
    whole = fit(split.tried)
    if isinstance(whole, Unknown):
        return no_proposal(whole.detail or whole.reason)
    if whole.threshold == threshold_now:
        return no_proposal("the present one fits best")

    def right_by(numbers: Sequence[int]) -> Mapping[int, float]:
        outside = fit(numbers)
        cut = outside.threshold if isinstance(outside, FittedThreshold) else threshold_now
        return judged.right(lambda run: passes(run.score, cut) is True)

    cut, right = round(whole.threshold, 3), _held_out(split, right_by)
    detail = {"before": threshold_now, "threshold": cut}
    return Proposal(f"threshold {threshold_now:g} → {cut:g}", "whole metric", detail, right)


def _held_out(
    split: Split, right_by: Callable[[Sequence[int]], Mapping[int, float]]
) -> dict[int, float]:
    """The shares of right results, each by what is fitted to the cases of the other folds.

    A fit to all cases would be measured on the same cases.
    """
    shares: dict[int, float] = {}
    for index, fold in enumerate(split.folds):
        right = right_by(split.without(index))
        shares |= {number: right[number] for number in fold if number in right}
    return shares


def fitted_score(judged: Judged, split: Split) -> Proposal:
    """The verdict whose other score mends most, replayed from the answers that are there."""
    spec = judged.metric.spec()
    assert spec.threshold is not None
    right_before = judged.right()
    scores: dict[Leaf, tuple[int, int]] = {}  # before and after
    shares: dict[Leaf, Mapping[int, float]] = {}
    if not spec.expected:  # an expectation follows from scores of all verdicts at once
        for leaf, old, new in _other_scores(judged, spec.threshold):
            scores[leaf], shares[leaf] = (old, new), _shares_with_score(judged, leaf, new)

    def best(numbers: Sequence[int]) -> Leaf | None:
        def gain(leaf: Leaf) -> float:
            return statistics.fmean(shares[leaf][n] - right_before[n] for n in numbers)

        leaf = max(shares, key=gain, default=None)
        return None if leaf is None or gain(leaf) <= 0 else leaf

    best_leaf = best(list(right_before))
    if best_leaf is None:
        why = "no verdict has a score that most people contradict"
        return Proposal("another score", "whole metric", why)

    def right_by(numbers: Sequence[int]) -> Mapping[int, float]:
        choice = best([*filter(right_before.__contains__, numbers)])
        return right_before if choice is None else shares[choice]

    (node, verdict), (old, new) = best_leaf, scores[best_leaf]
    detail = {"verdict": verdict, "before": old, "score": new}
    right = _held_out(split, right_by)
    return Proposal(f"score of {verdict}: {old:g} → {new}", node, detail, right)


def _other_scores(judged: Judged, threshold: float) -> Iterator[tuple[Leaf, int, int]]:
    """Verdicts whose score most people contradict: this score, and one that agrees with them."""
    outcomes: defaultdict[Leaf, list[bool]] = defaultdict(list)
    for number, runs in judged.runs.items():
        for run in runs:
            if run.path and run.score is not None:
                outcomes[run.path[-1]].append(judged.asking.labels.by_case[number] is True)
    for node in judged.metric.spec().graph.nodes():
        for verdict, target in targets(node).items():
            leaf = node.title, verdict
            labels = outcomes.get(leaf)
            if not labels or not isinstance(target, int) or isinstance(target, bool):
                continue
            passing = statistics.fmean(labels)
            good = passing >= 0.5
            if good == (target / 10 >= threshold):
                continue
            # The score that the labels give, on their side of the threshold.
            sides = [score for score in range(11) if (score / 10 >= threshold) == good]
            if sides:
                near = min(sides, key=lambda score: abs(score - 10 * passing))
                yield leaf, target, near


def _shares_with_score(judged: Judged, leaf: Leaf, score: int) -> dict[int, float]:
    """The shares of right results with another score of a verdict, replayed from the answers."""
    assert isinstance(judged.metric, BaseMetric)
    replay = Counterfactual(with_score(judged.metric, leaf, score))

    def replay_run(number: int, run: Run) -> Run:
        if run.score is None:
            return run
        try:
            return replace(run, score=replay.score(run.replies, judged.asking.cases[number]))
        except NoReplyError:
            return run

    runs = {n: [replay_run(n, run) for run in case_runs] for n, case_runs in judged.runs.items()}
    return replace(judged, runs=runs).right()


def examples_for(judged: Judged, title: str, answers: Given, shown: Sequence[int]) -> list[Example]:
    """Solved examples of a node from people's answers to it on cases that may be shown."""
    node = asking_node(judged.metric, title)
    if node is None or not node.exemplary or node.prompted:
        return []
    own = {number: answers[number] for number in shown if number in answers}
    labels = {source.title: source.output_label or source.title for source in node.inputs}
    votes: dict[int, Vote] = {}
    outputs: dict[int, dict[str, Any]] = {}
    for number, result in judged.first.items():
        for step in result.steps:
            vote = step.score if step.verdict is None else step.verdict
            if step.node == title and vote is not None:
                votes[number] = vote
            if step.node in labels:
                outputs.setdefault(number, {})[labels[step.node]] = step.output
    solved = solved_cases(node, own, judged.asking.cases, judged=votes, outputs=outputs)
    return [pick.example for pick in pick_examples(solved, EXAMPLES)]


def holistic(metric: BaseMetric) -> BaseMetric | None:
    """The rival of a tree: one question in its place. None for a metric that asks only one."""
    spec = metric.spec()
    nodes = [node for node in spec.graph.nodes() if isinstance(node, AskingNode)]
    fields = tuple(dict.fromkeys(path for node in nodes for path in node.evaluation_params))
    if len(nodes) < 2 or not fields or spec.threshold is None:
        return None
    lines = ["Judge the whole by these steps together: does it pass?"]
    for node in nodes:
        ends: list[str] = []
        for verdict, target in targets(node).items():
            if isinstance(target, int):
                side = "passes" if target / 10 >= spec.threshold else "fails"
                ends.append(f"{verdict}: {side}")
            elif isinstance(target, BaseNode):
                ends.append(f"{verdict}: go on with {target.title}")
        lines.append(f"- {node.title}: {node.text}" + (f" ({'; '.join(ends)})" if ends else ""))
    whole = BinaryJudgementNode(
        "\n".join(lines), evaluation_params=fields, then={True: 10, False: 0}, name="Whole"
    )
    return DAGMetric(
        spec.name, Graph(whole), threshold=0.5, model=spec.model, include_reason=spec.include_reason
    )


def answers_of_one(metric: BaseMetric, labels: Mapping[int, Vote]) -> NodeAnswers:
    """Answers of people to a metric's only node, which follow from their labels of the result.

    They follow if one verdict passes and one fails. Empty for other metrics.
    """
    replay, threshold = Counterfactual(metric), metric.spec().threshold
    if len(replay.speakers) != 1 or len(replay.asking) != 1 or threshold is None:
        return {}
    title = replay.speakers[0].node
    node = next(node for node in metric.spec().graph.nodes() if node.title == title)
    by_side: dict[bool, list[Verdict]] = {True: [], False: []}
    for verdict, target in targets(node).items():
        if isinstance(target, int) and verdict is not None:
            by_side[target / 10 >= threshold].append(verdict)
    if any(len(verdicts) != 1 for verdicts in by_side.values()):
        return {}
    answers = {n: (by_side[vote][0],) for n, vote in labels.items() if isinstance(vote, bool)}
    return {title: answers}
