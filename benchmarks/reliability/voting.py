"""Sequential voting against 11 fixed votes, on a simulated judge whose noise is known.

    python benchmarks/reliability/voting.py [--cases 300] [--seeds 4]

The judge answers a yes/no question wrongly by chance, each vote on its own. In the rows with
one noise level all questions are alike; in the mixed ones each question has a noise of its
own. All arms see the same votes. `default` is `voted(metric)`; `designed` is the sequential
test for the stated noise with the error that 11 fixed votes have there (shown: its lead).
`diff` is the accuracy in points compared with 11 fixed votes, with its standard error.

The second table is about ratings and `StandardError()`: the real root mean square error of the
mean at the end of the vote, its bias, the standard error that the rule shows, and how many ratings
it took, beside the fixed number that has an error of 0.05.
"""

from __future__ import annotations

import hashlib
import math
import statistics
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from random import Random
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from dagengine import evaluate
from dagengine.judges import ScriptedJudge
from dagengine.metrics import DAGMetric
from dagengine.metrics.dag import DAG, BinaryJudgementNode
from dagengine.question import Question
from dagengine.test_case import LLMTestCase
from dagengine.voting import Rule, Sprt, StandardError, voted
from dagengine.voting.votes_and_juries import Vote

FIXED, LONGEST = 11, 19
NOISE = (0.05, 0.1, 0.15, 0.2, 0.25, 0.3)
# Rounding up to a whole lead must not cost a vote for a difference of a thousandth.
_SLACK = 1.06
Noise = Callable[[float], float]


@dataclass(frozen=True, slots=True)
class AllVotes:
    """No early stopping: what the others are compared with."""

    def more(self, votes: Sequence[Vote | None], left: int) -> int:
        return left


@dataclass(frozen=True, slots=True)
class Arm:
    """One way to vote on one population: which cases came out right, and the calls made."""

    right: list[bool]
    calls: int

    @property
    def accuracy(self) -> float:
        return statistics.fmean(self.right)


def draw(*what: object) -> float:
    """A number from 0 to 1, the same in every process."""
    digest = hashlib.sha256(repr(what).encode()).digest()
    return int.from_bytes(digest[:7]) / 2**56


def simulated(seed: int, noise: Noise) -> ScriptedJudge:
    """The truth is True; a vote is wrong by the noise of its question."""

    def answer(question: Question[Any]) -> bool:
        text = question.messages[-1]["content"]
        return draw(seed, text, question.options.sample) >= noise(draw(seed, text))

    return ScriptedJudge(answer)


def question() -> DAGMetric:
    then = {True: 10, False: 0}
    node = BinaryJudgementNode("Is it right?", evaluation_params=["input"], then=then, name="right")
    return DAGMetric("right", DAG(root_node=node))


def run(noise: Noise, votes: int, rule: Rule | None, cases: int, seeds: int) -> Arm:
    metric = voted(question(), votes) if rule is None else voted(question(), votes, stop=rule)
    right: list[bool] = []
    calls = 0
    data = [LLMTestCase(input=f"case {n}", actual_output="") for n in range(cases)]
    for seed in range(seeds):
        done = evaluate(data, [metric], model=simulated(seed, noise), show=False)
        right += [score == 1 for score in done.scores("right")]
        calls += done.totals.calls
    return Arm(right, calls)


def fixed_error(noise: float) -> float:
    """The chance that the majority of 11 votes is wrong."""
    wrong = range(FIXED // 2 + 1, FIXED + 1)
    return math.fsum(math.comb(FIXED, n) * noise**n * (1 - noise) ** (FIXED - n) for n in wrong)


def difference(arm: Arm, base: Arm) -> str:
    """Accuracy compared with another arm, in points, and its standard error (pairs of cases)."""
    pairs = [100.0 * (a - b) for a, b in zip(arm.right, base.right, strict=True)]
    error = statistics.stdev(pairs) / math.sqrt(len(pairs))
    return f"{statistics.fmean(pairs):+.2f} ± {error:.2f}"


def main(
    cases: Annotated[int, typer.Option(help="Cases per seed.")] = 300,
    seeds: Annotated[int, typer.Option(help="Simulated judges per row.")] = 4,
) -> None:
    """Print accuracy and calls of 11 fixed votes and of sequential voting."""
    table = Table(title=f"{cases} cases, {seeds} seeds", pad_edge=False)
    for name in ("noise", "11 fixed", "calls"):
        table.add_column(name, justify="right", no_wrap=True)
    for name in ("default", "designed"):
        for column in (name, "diff", "calls", "ratio"):
            table.add_column(column, justify="right", no_wrap=True)
    for label, noise, rule in populations():
        fixed = run(noise, FIXED, AllVotes(), cases, seeds)
        arms = [run(noise, 15, None, cases, seeds)]
        arms += [run(noise, LONGEST, rule, cases, seeds)] if rule else []
        row = [label, f"{fixed.accuracy:.2%}", str(fixed.calls)]
        for arm in arms:
            lead = f" ({rule.lead})" if rule and arm is arms[-1] else ""
            row += [f"{arm.accuracy:.2%}{lead}", difference(arm, fixed)]
            row += [str(arm.calls), f"{arm.calls / fixed.calls:.0%}"]
        table.add_row(*row)
    Console(width=130).print(table)
    Console(width=130).print(ratings_table(10 * cases))


MOST_RATINGS = 60
RATINGS: dict[str, dict[float, int]] = {
    "half 0.4, half 0.8": {0.4: 1, 0.8: 1},
    "0.8, one in ten 0.2": {0.8: 9, 0.2: 1},
    "five points alike": {0.0: 1, 0.25: 1, 0.5: 1, 0.75: 1, 1.0: 1},
    "half 0.75, half 1": {0.75: 1, 1.0: 1},
    "always equal": {0.8: 1},
}


def ratings_table(votes: int) -> Table:
    """`StandardError()` on ratings whose mean is known."""
    table = Table(title=f"{votes} votes of ratings, at most {MOST_RATINGS} each", pad_edge=False)
    table.add_column("ratings", no_wrap=True)
    for name in ("real error", "bias", "shown", "ratings taken", "fixed number"):
        table.add_column(name, justify="right", no_wrap=True)
    for label, chances in RATINGS.items():
        table.add_row(label, *rated(chances, votes))
    return table


def rated(chances: dict[float, int], votes: int) -> Iterator[str]:
    """One row: what many votes on ratings of this distribution come to."""
    rule, random = StandardError(), Random(1)
    truth = math.fsum(value * n for value, n in chances.items()) / sum(chances.values())
    errors: list[float] = []
    shown: list[float] = []
    taken: list[int] = []
    for _ in range(votes):
        ratings = random.choices(list(chances), list(chances.values()), k=MOST_RATINGS)
        count = 0
        while more := rule.more(ratings[:count], MOST_RATINGS - count):
            count += more
        errors.append(statistics.fmean(ratings[:count]) - truth)
        shown.append(rule.error(ratings[:count]) or 0.0)
        taken.append(count)
    variance = math.fsum(n * (v - truth) ** 2 for v, n in chances.items()) / sum(chances.values())
    yield f"{math.sqrt(statistics.fmean(error**2 for error in errors)):.3f}"
    yield f"{statistics.fmean(errors):+.3f}"
    yield f"{statistics.fmean(shown):.3f}"
    yield f"{statistics.fmean(taken):.1f}"
    yield str(max(math.ceil(variance / rule.target**2), 1))


def _same(level: float) -> Noise:
    return lambda _: level


def populations() -> list[tuple[str, Noise, Sprt | None]]:
    """What the judge's noise is like: its name, noise by a draw from 0 to 1, a rule for it."""
    found: list[tuple[str, Noise, Sprt | None]] = [
        (f"{level:.2f}", _same(level), Sprt(level, _SLACK * fixed_error(level))) for level in NOISE
    ]
    return [
        *found,
        ("0 to 0.4", lambda where: 0.4 * where, None),
        ("mostly low", lambda where: 0.45 * where**3, None),
    ]


if __name__ == "__main__":
    typer.run(main)
