"""Which node is to blame, on simulated judges whose true shares are enumerated.

Trees of two and of three depths, in which nodes run only where the one before says yes. The
cases of a population have odds of their own; a node's true share is that of the population.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from random import Random

from rows import Answer, Trial

from dagengine.metrics import DAGMetric
from dagengine.metrics.dag import DAG, BinaryJudgementNode
from dagengine.reliability.attribution import Repetition, attribute
from dagengine.reliability.blame import Blame, blame
from dagengine.reliability.card.values import Figure
from dagengine.reliability.counterfactual import Counterfactual, Reply

Chances = Mapping[str, float]
"""The chance of a yes, by node."""


@dataclass(frozen=True)
class Tree:
    """A metric, and which node each node runs behind (where that one says yes)."""

    name: str
    metric: DAGMetric
    behind: Mapping[str, str]


@dataclass(frozen=True)
class Population:
    """Kinds of cases, all equally frequent."""

    name: str
    tree: Tree
    kinds: Sequence[Chances]


def _judged(name: str, yes: object, no: object) -> BinaryJudgementNode:
    return BinaryJudgementNode(
        f"{name}?", name=name, evaluation_params=["input"], then={True: yes, False: no}
    )


def two_deep() -> Tree:
    """`a`, then `b` where it says yes."""
    metric = DAGMetric("two", DAG(_judged("a", _judged("b", 10, 5), 0)))
    return Tree("two deep", metric, {"a": "", "b": "a"})


def three_deep() -> Tree:
    """`a`, then `b`, then `c`, each where the one before says yes; `d` beside `a`."""
    chain = _judged("a", _judged("b", _judged("c", 10, 6), 3), 0)
    metric = DAGMetric("three", DAG(root_nodes=[chain, _judged("d", 10, 0)]), combine="mean")
    return Tree("three deep", metric, {"a": "", "b": "a", "c": "b", "d": ""})


def populations() -> Iterator[Population]:
    """Cases alike, mixed ones, and ones that seldom reach the last node."""
    two, three = two_deep(), three_deep()
    yield Population("alike", two, [{"a": 0.8, "b": 0.8}])
    yield Population("mixed", two, [{"a": a, "b": b} for a in (0.98, 0.7) for b in (0.95, 0.5)])
    yield Population("seldom reached", two, [{"a": 0.25, "b": 0.5}, {"a": 0.1, "b": 0.7}])
    yield Population("coins", two, [{"a": 0.5, "b": 0.5}, {"a": 1.0, "b": 1.0}])
    yield Population("alike", three, [{"a": 0.8, "b": 0.7, "c": 0.7, "d": 0.95}])
    yield Population(
        "mixed", three,
        [
            {"a": 0.95, "b": 0.6, "c": 0.8, "d": 0.9},
            {"a": 0.6, "b": 0.9, "c": 0.5, "d": 1.0},
            {"a": 0.3, "b": 0.4, "c": 0.5, "d": 0.9},
        ],
    )  # fmt: skip
    yield Population(
        "seldom reached", three,
        [{"a": 0.3, "b": 0.5, "c": 0.5, "d": 0.95}, {"a": 0.6, "b": 0.3, "c": 0.5, "d": 0.95}],
    )  # fmt: skip


# The truth, by definition.


class Simulation:
    """A population with its scores, its true shares, and runs drawn from it."""

    def __init__(self, population: Population) -> None:
        self.population = population
        self.replay = Counterfactual(population.tree.metric)
        self.nodes = list(population.tree.behind)
        self._scores = {
            said: self.replay.score(_replies(zip(self.nodes, said, strict=True))) or 0.0
            for said in itertools.product((True, False), repeat=len(self.nodes))
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
        cells: dict[tuple[bool, ...], list[tuple[float, float]]] = {}
        for said, score in self._scores.items():
            pairs = list(zip(self.nodes, said, strict=True))
            weight = math.prod(kind[node] if yes else 1 - kind[node] for node, yes in pairs)
            cells.setdefault(tuple(y for n, y in pairs if n in fixed), []).append((weight, score))
        sums = [(sum(w for w, _ in cell), sum(w * s for w, s in cell)) for cell in cells.values()]
        mean = math.fsum(total for _, total in sums)
        return math.fsum(total**2 / weight for weight, total in sums if weight) - mean**2

    # What is drawn.

    def blamed(
        self, random: Random, cases: int, times: int, second: bool = True
    ) -> dict[str, Blame]:
        """What the runs of one benchmark say about every node."""
        runs: dict[int, list[Repetition]] = {}
        alone: dict[int, list[tuple[str, Reply]]] = {}
        for case in range(cases):
            kind = random.choice(self.population.kinds)
            drawn = [self._run(kind, random) for _ in range(times)]
            runs[case] = [self._repetition(said) for said in drawn]
            alone[case] = list(self._second(kind, drawn, random)) if second else []
        noise = attribute(self.replay, runs, None, alone)
        return {node: blame(noise, node) for node in self.nodes}

    def _run(self, kind: Chances, random: Random) -> dict[str, bool]:
        said: dict[str, bool] = {}
        for node, before in self.population.tree.behind.items():
            if not before or said.get(before):
                said[node] = random.random() < kind[node]
        return said

    def _repetition(self, said: Mapping[str, bool]) -> Repetition:
        whole = tuple(said.get(node, False) for node in self.nodes)
        return Repetition(_replies(said.items()), self._scores[whole])

    def _second(
        self, kind: Chances, drawn: Sequence[Mapping[str, bool]], random: Random
    ) -> Iterator[tuple[str, Reply]]:
        """What `repeat` asks alone: up to two answers of all that the answers lead to."""
        yes: dict[str, bool] = {"": True}
        for node, before in self.population.tree.behind.items():
            heard = [said[node] for said in drawn if node in said]
            while yes.get(before) and len(heard) < 2:
                heard.append(random.random() < kind[node])
                yield node, Reply(verdict=heard[-1])
            yes[node] = any(heard)


def _replies(said: Iterable[tuple[str, bool]]) -> dict[str, Reply]:
    return {node: Reply(verdict=yes) for node, yes in said}


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
