"""Which node is to blame, on simulated judges whose true shares are enumerated.

Trees of two to four depths, in which nodes run only where the one before says yes, and one whose
root leads three ways. The cases of a population have odds of their own; a node's true share is
that of the population.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from random import Random
from typing import Any

from rows import Answer, Trial

from dagengine.metrics import DAGMetric
from dagengine.metrics.dag import DAG, BinaryJudgementNode, NonBinaryJudgementNode
from dagengine.reliability.card.types import Figure
from dagengine.reliability.counterfactual import Counterfactual, Reply
from dagengine.reliability.node_blame import Blame, attribute, blame
from dagengine.reliability.observations import Condition
from dagengine.reliability.observed_runs import Run
from dagengine.reliability.second_answers import Lack, chosen_cases

Odds = Mapping[Any, float]
Chances = Mapping[str, Odds]
"""The chance of each verdict, by node."""


@dataclass(frozen=True)
class Tree:
    """A metric, and behind which verdict of which node each node runs ("": always)."""

    name: str
    metric: DAGMetric
    behind: Mapping[str, tuple[str, Any]]


@dataclass(frozen=True)
class Population:
    """Kinds of cases, all equally frequent."""

    name: str
    tree: Tree
    kinds: Sequence[Chances]


ROOT = ("", True)


def _judged(name: str, yes: object, no: object) -> BinaryJudgementNode:
    return BinaryJudgementNode(
        f"{name}?", name=name, evaluation_params=["input"], then={True: yes, False: no}
    )


def two_deep() -> Tree:
    """`a`, then `b` where it says yes."""
    metric = DAGMetric("two", DAG(_judged("a", _judged("b", 10, 5), 0)))
    return Tree("two deep", metric, {"a": ROOT, "b": ("a", True)})


def three_deep() -> Tree:
    """`a`, then `b`, then `c`, each where the one before says yes; `d` beside `a`."""
    chain = _judged("a", _judged("b", _judged("c", 10, 6), 3), 0)
    metric = DAGMetric("three", DAG(root_nodes=[chain, _judged("d", 10, 0)]), combine="mean")
    behind = {"a": ROOT, "b": ("a", True), "c": ("b", True), "d": ROOT}
    return Tree("three deep", metric, behind)


def four_deep() -> Tree:
    """`a`, `b`, `c` and `d`, each where the one before says yes."""
    chain = _judged("a", _judged("b", _judged("c", _judged("d", 10, 8), 6), 3), 0)
    behind = {"a": ROOT, **{node: (before, True) for before, node in pairwise("abcd")}}
    return Tree("four deep", DAGMetric("four", DAG(chain)), behind)


def three_ways() -> Tree:
    """`a` leads to `x`, `y` or `z`."""
    ends = {"x": _judged("x", 10, 7), "y": _judged("y", 7, 3), "z": _judged("z", 3, 0)}
    root = NonBinaryJudgementNode("a?", name="a", evaluation_params=["input"], then=ends)
    behind = {"a": ROOT, **{end: ("a", end) for end in ends}}
    return Tree("three ways", DAGMetric("ways", DAG(root)), behind)


def populations() -> Iterator[Population]:
    """Cases alike, mixed ones, and ones that seldom reach the last node."""
    two, three = two_deep(), three_deep()
    yield Population("alike", two, [_yes(a=0.8, b=0.8)])
    yield Population("mixed", two, [_yes(a=a, b=b) for a in (0.98, 0.7) for b in (0.95, 0.5)])
    yield Population("seldom reached", two, [_yes(a=0.25, b=0.5), _yes(a=0.1, b=0.7)])
    yield Population("coins", two, [_yes(a=0.5, b=0.5), _yes(a=1.0, b=1.0)])
    yield Population("alike", three, [_yes(a=0.8, b=0.7, c=0.7, d=0.95)])
    yield Population(
        "mixed", three,
        [
            _yes(a=0.95, b=0.6, c=0.8, d=0.9),
            _yes(a=0.6, b=0.9, c=0.5, d=1.0),
            _yes(a=0.3, b=0.4, c=0.5, d=0.9),
        ],
    )  # fmt: skip
    yield Population(
        "seldom reached", three,
        [_yes(a=0.3, b=0.5, c=0.5, d=0.95), _yes(a=0.6, b=0.3, c=0.5, d=0.95)],
    )  # fmt: skip
    yield Population("coins", four_deep(), [_yes(a=0.5, b=0.5, c=0.5, d=0.5)])
    yield Population(
        "mixed", four_deep(), [_yes(a=0.9, b=0.8, c=0.6, d=0.7), _yes(a=0.5, b=0.6, c=0.9, d=0.5)]
    )
    ways = three_ways()
    yield Population("equally often", ways, [_ways(1, 1, 1, 0.8)])
    yield Population("mixed", ways, [_ways(8, 1, 1, 0.9), _ways(1, 1, 1, 0.6), _ways(1, 5, 4, 0.7)])
    yield Population(
        "mostly one", ways, [_ways(18, 1, 1, 0.7), _ways(1, 18, 1, 0.9), _ways(1, 1, 18, 0.8)]
    )


def _yes(**chances: float) -> Chances:
    return {node: {True: yes, False: 1 - yes} for node, yes in chances.items()}


def _ways(x: float, y: float, z: float, yes: float) -> Chances:
    whole = x + y + z
    root = {"x": x / whole, "y": y / whole, "z": z / whole}
    return {"a": root, **_yes(x=yes, y=yes, z=yes)}


# The truth, by definition.


class Simulation:
    """A population with its scores, its true shares, and runs drawn from it."""

    def __init__(self, population: Population) -> None:
        self.population = population
        self.replay = Counterfactual(population.tree.metric)
        self.nodes = list(population.tree.behind)
        verdicts = (population.kinds[0][node] for node in self.nodes)
        self._scores = {
            said: self.replay.score(_replies(zip(self.nodes, said, strict=True))) or 0.0
            for said in itertools.product(*verdicts)
        }

    def shares(self) -> dict[str, float]:
        """Shapley effects over all kinds: gains in Var(E[score | nodes]) over all orders."""
        parts = dict.fromkeys(self.nodes, 0.0)
        orders = list(itertools.permutations(self.nodes))
        for kind, order in itertools.product(self.population.kinds, orders):
            known = [self._explained(kind, set(order[:n])) for n in range(len(order) + 1)]
            for node, before, after in zip(order, known, known[1:], strict=False):
                parts[node] += after - before
        whole = math.fsum(parts.values())
        return {node: part / whole for node, part in parts.items()}

    def _explained(self, kind: Chances, fixed: set[str]) -> float:
        cells: dict[tuple[Any, ...], list[tuple[float, float]]] = {}
        for said, score in self._scores.items():
            pairs = list(zip(self.nodes, said, strict=True))
            weight = math.prod(kind[node][verdict] for node, verdict in pairs)
            cells.setdefault(tuple(v for n, v in pairs if n in fixed), []).append((weight, score))
        sums = [(sum(w for w, _ in cell), sum(w * s for w, s in cell)) for cell in cells.values()]
        mean = math.fsum(total for _, total in sums)
        return math.fsum(total**2 / weight for weight, total in sums if weight) - mean**2

    # What is drawn.

    def blamed(
        self, random: Random, cases: int, times: int, second: bool = True
    ) -> dict[str, Blame]:
        """What the runs of one benchmark say about every node."""
        return self.asked(random, cases, times, second)[0]

    def asked(
        self, random: Random, cases: int, times: int, second: bool = True
    ) -> tuple[dict[str, Blame], int, int]:
        """The same, with the numbers of answers in the runs and alone."""
        kinds = [random.choice(self.population.kinds) for _ in range(cases)]
        drawn = [[self._run(kind, random) for _ in range(times)] for kind in kinds]
        runs = {case: [self._repetition(said) for said in row] for case, row in enumerate(drawn)}
        answers = sum(len(said) for row in drawn for said in row)
        lacks = {
            case: Lack(lacking, self._calls(lacking, row), str(random.random()))
            for case, row in enumerate(drawn)
            if (lacking := self._lacking(row))
        }
        alone = {
            case: list(self._second(kinds[case], drawn[case], random))
            for case in (chosen_cases(lacks, answers) if second else ())
        }
        noise = attribute(self.replay, runs, alone=alone)
        more = sum(map(len, alone.values()))
        return {node: blame(noise, node) for node in self.nodes}, answers, more

    def _lacking(self, drawn: Sequence[Mapping[str, Any]]) -> tuple[str, ...]:
        return tuple(node for node in self.nodes if sum(node in said for said in drawn) == 1)

    def _calls(self, lacking: Sequence[str], drawn: Sequence[Mapping[str, Any]]) -> int:
        """For what is lacking, and one for each node behind it that no run reached."""
        behind = set(lacking)
        for node, (before, _) in self.population.tree.behind.items():
            if before in behind and not any(node in said for said in drawn):
                behind.add(node)
        return len(behind)

    def _run(self, kind: Chances, random: Random) -> dict[str, Any]:
        said: dict[str, Any] = {"": True}
        for node, (before, verdict) in self.population.tree.behind.items():
            if said.get(before) == verdict:
                said[node] = _one_of(kind[node], random)
        del said[""]
        return said

    def _repetition(self, said: Mapping[str, Any]) -> Run:
        # What a run did not reach moves no score.
        whole = tuple(
            said.get(node, next(iter(self.population.kinds[0][node]))) for node in self.nodes
        )
        return Run(Condition(), self._scores[whole], replies=_replies(said.items()))

    def _second(
        self, kind: Chances, drawn: Sequence[Mapping[str, Any]], random: Random
    ) -> Iterator[tuple[str, Reply]]:
        """What `repeat` asks alone: up to two answers of all that the answers lead to."""
        heard: dict[str, list[Any]] = {"": [True]}
        for node, (before, verdict) in self.population.tree.behind.items():
            heard[node] = [said[node] for said in drawn if node in said]
            while verdict in heard[before] and len(heard[node]) < 2:
                heard[node].append(_one_of(kind[node], random))
                yield node, Reply(verdict=heard[node][-1])


def _one_of(odds: Odds, random: Random) -> Any:
    return random.choices(list(odds), list(odds.values()))[0]


def _replies(said: Iterable[tuple[str, Any]]) -> dict[str, Reply]:
    return {node: Reply(verdict=verdict) for node, verdict in said}


# Trials.


def trial(population: Population, cases: int, times: int, second: bool = True) -> Trial:
    """The shares of all nodes of a population, with second answers or without."""
    simulation = Simulation(population)

    def answers(random: Random) -> dict[str, Answer]:
        blamed = simulation.blamed(random, cases, times, second)
        return {
            node: Figure("variance-share", one.share, one.low, one.high)
            for node, one in blamed.items()
        }

    name = f"{population.tree.name}, {population.name}, {cases}x{times}"
    return Trial(name, simulation.shares(), answers)


def trials() -> Iterator[Trial]:
    """All populations, from ten cases on."""
    for cases, times in ((10, 8), (20, 3), (40, 3), (40, 8), (100, 3), (100, 20)):
        yield from (trial(population, cases, times) for population in populations())
