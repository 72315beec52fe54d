"""The node that causes the wrong results: by people's answers to nodes, else by counterfactuals.

A wrong repetition is the fault of the node whose other answer mends it, that is, makes it right. If
people answered nodes, it is the first node at which their answer differs and mends the result. If
there are only final labels, several nodes may be to blame. They share the fault by the odds that
they err, which follow from all cases (expectation and maximization, Dempster, Laird & Rubin 1977).
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any, Literal

from dagengine.improvement.experiment import Judged, reader_of
from dagengine.reliability.counterfactual import Counterfactual, NoReplyError, Reply
from dagengine.reliability.human_labels import NodeAnswers, Vote
from dagengine.reliability.observed_runs import Run
from dagengine.reliability.statistics.sums import indices, numpy, stats

By = Literal["labels of nodes", "counterfactuals", "your choice"]
"""The evidence that names the node."""
LEAST_WRONG = 5
"""The least number of wrong cases by which a node is named."""
MOST_LABELS = 640
"""The largest number of further labels that is asked for."""
_SURE, _RESAMPLES = 0.95, 400  # a node is named if it leads in this share of so many resamples
_ROUNDS, _DEEP = 25, 3  # rounds of expectation and maximization; unasked nodes of one replay


@dataclass(frozen=True, slots=True)
class NodeShare:
    """The share of the wrong final results that one node causes, with its interval."""

    node: str
    share: float
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class NodeBlame:
    """The node that causes the wrong results on the cases that are not sealed.

    `shares` have the largest first. `node` is None if it is not known. Then about `needed` more
    labels would name it (None: more than 640). `wrong` is the number of wrong cases; a case of
    which some repetitions are wrong counts by their share. `by` is the evidence.
    """

    shares: tuple[NodeShare, ...]
    node: str | None
    wrong: float
    by: By
    needed: int | None = None


class _CaseFault:
    """Shares of the repetitions of one case (0 to 1), in all and by node."""

    def __init__(self) -> None:
        self.wrong = 0.0
        self.causes = defaultdict[str, float](float)  # wrong, and mended by the node
        self.reached = defaultdict[str, float](float)  # with a reply of the node


class Faults:
    """Finds out which answers make wrong repetitions right, and which node is to blame."""

    def __init__(self, judged: Judged, answers: NodeAnswers) -> None:
        """`answers` are those of people; they count for a case and node if all are equal."""
        self._asking, self._judged = judged.asking, judged
        self._replay = Counterfactual(judged.metric)
        self._read = reader_of(judged.metric, self._asking.labels)
        self._people: defaultdict[int, dict[str, Reply]] = defaultdict(dict)
        for node, votes in answers.items():
            decides = bool(self._replay.verdicts_of(node))
            for number, own in votes.items():
                if len({*own}) == 1:
                    answer: Any = own[0]
                    reply = Reply(answer) if decides else Reply(score=answer)
                    self._people[number][node] = reply
        # Code whose answer follows from other nodes (`reads`) is never to blame itself.
        self.nodes = [speaker.node for speaker in self._replay.speakers if not speaker.reads]
        self._pooled: defaultdict[str, Counter[Reply]] = defaultdict(Counter)
        for run in chain.from_iterable(judged.runs.values()):
            for node, reply in run.replies.items():
                self._pooled[node][reply] += 1

    def blame(self, tried_share: float) -> NodeBlame:
        """The node with the largest share of the wrong results, if the cases tell.

        It is named if it has the largest share in 95 of 100 resamples of the cases, by odds and
        also if nodes share evenly what several of them could mend. Of further labels, only
        `tried_share` (0 to 1) would be used for this: the rest would be sealed.
        """
        numbers = self._judged.runs.keys()
        faults = [*map(self.fault_of, numbers)]
        nodes = [node for node in self.nodes if any(node in fault.causes for fault in faults)]
        wrong = sum(fault.wrong for fault in faults)
        by: By = "labels of nodes" if numbers & self._people.keys() else "counterfactuals"
        if self.nodes and 0 < wrong < LEAST_WRONG:
            # So many if as large a share of new cases is wrong; labels that are sealed do not help.
            labels = math.ceil(len(faults) * (LEAST_WRONG / max(wrong, 0.5) - 1) / tried_share)
            return NodeBlame((), None, wrong, by, labels if labels <= MOST_LABELS else None)
        if not nodes or not wrong:
            return NodeBlame((), None, wrong, by)
        groups = [self._asking.groups.get(number, number) for number in numbers]
        shares, lead = _ranked_shares(nodes, faults, groups)
        if _is_sure(lead):
            return NodeBlame(shares, shares[0].node, wrong, by)
        return NodeBlame(shares, None, wrong, by, _further_labels(lead, len(faults), tried_share))

    def wrong_at(self, node: str, shown: Iterable[int]) -> list[int]:
        """The cases among `shown` that a node may have made wrong, surest first."""
        causes = {n: self.fault_of(n).causes[node] for n in shown if n in self._judged.runs}
        return sorted(filter(causes.get, causes), key=lambda n: (-causes[n], n))

    def fault_of(self, number: int) -> _CaseFault:
        """The fault of one case."""
        fault, runs = _CaseFault(), self._judged.runs[number]
        label = self._asking.labels.by_case[number]
        for run in runs:
            share = 1 / len(runs)
            for node in run.replies:
                fault.reached[node] += share
            if run.score is not None and self._read(run) == label:
                continue
            fault.wrong += share
            for node, chance in self._causes(number, run, label):
                fault.causes[node] += share * chance
        return fault

    def _causes(self, number: int, run: Run, label: Vote) -> Iterable[tuple[str, float]]:
        """The nodes that may have caused a wrong result, each with the chance that it mends it."""
        people = self._people.get(number, {})
        labelled = people.keys() & run.replies.keys()
        if not labelled:
            return self._possible_causes(number, run, label)
        differing = [n for n in self.nodes if n in labelled and run.replies[n] != people[n]]
        for node in differing:
            # One reply is changed. Nodes that the run did not ask reply as people did.
            if self._mends(number, {**people, **run.replies, node: people[node]}, label):
                return [(node, 1.0)]
        return [(node, 1.0) for node in differing[:1]]  # no single change mends it

    def _possible_causes(self, number: int, run: Run, label: Vote) -> Iterator[tuple[str, float]]:
        """The nodes whose other answers mend a result, each with the chance of its best one."""
        for node, reply in run.replies.items():
            if node in self.nodes:
                # A rating has no other answer by name: both ends of its scale are tried.
                possible = [*map(Reply, self._replay.verdicts_of(node))]
                possible = possible or [Reply(score=0.0), Reply(score=1.0)]
                chances = (
                    self._mends(number, {**run.replies, node: answer}, label)
                    for answer in possible
                    if answer != reply
                )
                if (chance := max(chances, default=0.0)) > 0:
                    yield node, chance

    def _mends(
        self, number: int, replies: Mapping[str, Reply], label: Vote, deep: int = 0
    ) -> float:
        """The chance that these replies give the label; unasked nodes reply as in other runs."""
        try:
            result = self._replay.result(replies, self._asking.cases[number])
        except NoReplyError as missing:
            usual = self._pooled[missing.node]
            # Each unasked node multiplies the replays by its replies: too deep, nothing is known.
            if deep >= _DEEP or not usual:
                return 0.5
            chance = 0.0
            for reply, count in usual.items():
                answered = {**replies, missing.node: reply}
                chance += count / usual.total() * self._mends(number, answered, label, deep + 1)
            return chance
        if result is None or result.score is None:
            return 0.0
        outcome: Vote = result.success is True
        if self._asking.labels.kind != "pass":
            outcome = str(result.path[-1][1]) if result.path else ""
        return float(outcome == label)


def _ranked_shares(
    nodes: Sequence[str], faults: Sequence[_CaseFault], groups: Sequence[Hashable]
) -> tuple[tuple[NodeShare, ...], Any]:
    """The shares of nodes, the largest first; its lead in each resample of the groups of cases."""
    # Two tables of cases (rows) and nodes (columns). In resamples, cases are columns of weights.
    table = [[(fault.causes[node], fault.reached[node]) for node in nodes] for fault in faults]
    causes, reached = numpy.moveaxis(numpy.array(table, float), -1, 0).copy()
    columns = indices(groups)
    random, size = numpy.random.default_rng(0), max(columns) + 1
    resamples = random.multinomial(size, [1 / size] * size, size=_RESAMPLES)[:, columns]
    shares = _blame_shares(causes, reached, numpy.ones((1, len(columns))))[0]
    samples = _blame_shares(causes, reached, resamples)
    order = sorted(range(len(nodes)), key=lambda index: -shares[index])
    top, runners_up = order[0], order[1:]
    # If each of two nodes could mend every mistake, nothing says which one is to blame. But odds
    # alone surely blame the one that is asked less often. With even shares neither leads.
    whole = numpy.maximum(causes.sum(axis=1, keepdims=True), 1e-9)
    even = resamples @ (causes / whole * causes.max(axis=1, keepdims=True))
    blames = numpy.stack([samples, even / numpy.maximum(even.sum(axis=1, keepdims=True), 1e-9)])
    lead = (blames[..., top] - blames[..., runners_up].max(axis=-1, initial=0)).min(axis=0)
    if not _is_sure(lead):
        samples = numpy.concatenate(blames)
    wrong = sum(fault.wrong for fault in faults)
    return tuple(_node_share(nodes[n], float(shares[n]), samples[:, n], wrong) for n in order), lead


def _is_sure(lead: Any) -> bool:
    """Return whether a node has the largest share in 95 of 100 resamples."""
    return float((lead > 1e-9).mean()) >= _SURE


def _further_labels(lead: Any, cases: int, tried_share: float) -> int | None:
    """The further labels by which the node leads surely (95 %), with a chance of 80 %."""
    mean, error = float(lead.mean()), float(lead.std())
    if mean <= 0:
        return None
    # 2.49 = 1.645 + 0.842, normal quantiles; the error falls with the root of the number of cases.
    labels = cases * ((2.49 * error / mean) ** 2 - 1) / tried_share
    return None if labels > MOST_LABELS else max(10, 10 * math.ceil(labels / 10))


def _node_share(node: str, share: float, samples: Any, wrong: float) -> NodeShare:
    """A share with the interval of resamples, widened to Jeffreys' for that many wrong cases."""
    part, tails = share * wrong, (0.025, 0.975)
    jeffreys = stats.beta.ppf(tails, part + 0.5, max(wrong - part, 0.0) + 0.5)
    lows, highs = zip(jeffreys, numpy.quantile(samples, tails), strict=True)
    return NodeShare(node, share, float(min(*lows, share)), float(max(*highs, share)))


def _blame_shares(causes: Any, reached: Any, weights: Any) -> Any:
    """The share of each node (column) in each resample (row), by the odds that nodes err."""
    # All nodes share as much of a case as the likeliest of them could mend.
    size = causes.max(axis=1)
    base = weights @ reached
    # Shares of the blame follow from the odds that nodes err, and these from the shares: both are
    # found in turns, from equal odds on. Odds of 0 could never rise again, hence the least rate.
    odds = numpy.full((len(weights), causes.shape[1]), 0.1)
    total = numpy.zeros_like(odds)
    for _ in range(_ROUNDS):
        whole = odds @ causes.T
        part = numpy.divide(weights * size, whole, out=numpy.zeros_like(whole), where=whole > 0)
        total = (part @ causes) * odds
        rate = numpy.clip(total / numpy.maximum(base, 1e-9), 1e-4, 0.9)
        odds = rate / (1 - rate)
    return total / numpy.maximum(total.sum(axis=1, keepdims=True), 1e-9)
