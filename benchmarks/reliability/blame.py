"""Which node is to blame, on simulated judges whose true shares are enumerated.

    python benchmarks/reliability/blame.py [--seeds 60] [--cases 40] [--times 8]

Trees of two and of three depths, in which nodes run only where the one before says yes. The
cases of a population have odds of their own. Each row is one node over many seeds: its true
share (that of the population), the mean error, the mean width of the 95 % intervals, how often
they held the truth, and in how many seeds the share was known at all.
"""

from __future__ import annotations

import itertools
import math
import statistics
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from random import Random
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from dagengine.metrics import DAGMetric
from dagengine.metrics.dag import DAG, BinaryJudgementNode
from dagengine.reliability.attribution import Repetition, attribute
from dagengine.reliability.blame import Blame, blame
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

    def blamed(self, seed: int, cases: int, times: int, second: bool = True) -> dict[str, Blame]:
        """What the runs of one seed say about every node."""
        random = Random(seed)
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


# What is shown.


@dataclass(frozen=True)
class Found:
    """One node of one population over many seeds."""

    truth: float
    blames: Sequence[Blame]

    @property
    def known(self) -> list[Blame]:
        return [one for one in self.blames if one.share is not None]

    @property
    def bias(self) -> float:
        """The mean error of the shares that are known."""
        return statistics.fmean(one.share or 0.0 for one in self.known) - self.truth

    @property
    def held(self) -> float:
        """The share of intervals with the truth inside."""
        return statistics.fmean(
            (one.low or 0.0) - 1e-9 <= self.truth <= (one.high or 0.0) + 1e-9 for one in self.known
        )

    @property
    def width(self) -> float:
        """The mean width of the intervals."""
        return statistics.fmean((one.high or 0.0) - (one.low or 0.0) for one in self.known)


def found(
    population: Population, seeds: int, cases: int, times: int, second: bool = True
) -> dict[str, Found]:
    """What is found out about every node of a population."""
    simulation = Simulation(population)
    truth = simulation.shares()
    seen = [simulation.blamed(seed, cases, times, second) for seed in range(seeds)]
    return {node: Found(truth[node], [one[node] for one in seen]) for node in truth}


def main(
    seeds: Annotated[int, typer.Option(help="How often each row is simulated.")] = 60,
    cases: Annotated[int, typer.Option(help="Cases per benchmark.")] = 40,
    times: Annotated[int, typer.Option(help="Runs of each case.")] = 8,
    second_answers: Annotated[bool, typer.Option(help="Ask what was reached once again.")] = True,
) -> None:
    """Print the table."""
    title = f"{seeds} seeds, {cases} cases, {times} runs"
    table = Table("tree", "cases", "node", "truth", "bias", "width", "held", "known", title=title)
    for population in populations():
        for node, one in found(population, seeds, cases, times, second_answers).items():
            known = len(one.known) / len(one.blames)
            shown = (
                (f"{one.truth:.3f}", f"{one.bias:+.3f}", f"{one.width:.3f}", f"{one.held:.1%}")
                if one.known
                else (f"{one.truth:.3f}", "-", "-", "-")
            )
            table.add_row(population.tree.name, population.name, node, *shown, f"{known:.0%}")
    Console().print(table)


if __name__ == "__main__":
    typer.run(main)
