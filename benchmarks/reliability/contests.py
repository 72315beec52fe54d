"""What a card says of candidates, held against the truth: best of n by the mean of k scores.

    python benchmarks/reliability/contests.py --draws 1000

A population has 20,000 cases of four candidates with eight scores each; all of its cases are the
truth. A draw takes some of them with replacement. Printed is how often the 95 % interval of each
figure holds the truth, and how often fewer scores were called enough that are not.
"""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Iterator
from typing import Any

import numpy as np

from dagengine.metrics import DAGMetric
from dagengine.metrics.dag import DAG, RatingNode
from dagengine.reliability.card.best_of_n import contest_card
from dagengine.reliability.card.types import Contest, Figure
from dagengine.reliability.observations import Condition
from dagengine.reliability.verdict_cases import Contests
from dagengine.test_case import LLMTestCase

CASES, RUNS, WITHIN = 20_000, 8, 0.02
# How far the right candidate is ahead, how candidates differ, how noisy a score is, and the grid.
POPULATIONS = {
    "whole numbers": (1.5, 1.2, 0.8, 1.0),
    "few points": (1.0, 1.0, 0.7, 3.0),
    "noisy": (1.0, 0.8, 1.6, 1.0),
    "hardly any noise": (2.0, 1.5, 0.15, 1.0),
    "decimals": (1.0, 1.0, 1.0, 0.1),
}


def population(ahead: float, apart: float, noise: float, grid: float, seed: int) -> Any:
    """Scores from 0 to 1 of a population; the first candidate of a case is the right one."""
    random = np.random.default_rng(seed)
    level = 5 + apart * random.standard_normal((CASES, 4, 1))
    level[:, 0] += ahead
    scores = level + noise * random.standard_normal((CASES, 4, RUNS))
    return np.clip(np.round(scores / grid) * grid, 1, 10) / 10


def contest_of(scores: Any, cases: int) -> Contest:
    """What a card says of the first so many cases."""
    names = [[str(place) for place in range(4)]] * cases
    metric = DAGMetric("best", DAG(RatingNode("Given.", ["input"], name="best")))
    texts = [LLMTestCase(input=f"case {place}") for place in range(cases)]
    card = contest_card(Contests(names, {Condition(): scores[:cases]}), metric, texts, ["judge"],
                        labels=dict.fromkeys(range(cases), "0"), within=WITHIN)  # fmt: skip
    made = card.metrics[0].settings[0].contest
    assert made is not None
    return made


def figures(contest: Contest) -> Iterator[tuple[str, Figure]]:
    """The figures of a contest with an interval, by kind and number of scores."""
    for row in contest.curve:
        for name in ("wrong", "share", "ties"):
            yield f"{name}, {row.scores}", getattr(row, name)
        if row.scores < len(contest.curve):
            yield f"short, {row.scores}", row.short
    for name in ("gain", "noise", "unties"):
        yield name, getattr(contest, name)


def main() -> None:
    """Draw, and print a row for each population and number of cases."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--draws", type=int, default=100)
    options.add_argument("--cases", type=int, nargs="*", default=[60, 200])
    given = options.parse_args()
    for name, shape in POPULATIONS.items():
        whole = population(*shape, seed=1)
        true = truth(whole)
        for cases in given.cases:
            random, held, seen = np.random.default_rng(2), Counter[str](), Counter[str]()
            wrong = 0
            for _ in range(given.draws):
                made = contest_of(whole[random.integers(CASES, size=cases)], cases)
                for key, figure in figures(made):
                    if figure.low is not None and figure.high is not None:
                        seen[key] += 1
                        held[key] += figure.low <= true[key] <= figure.high
                enough = range(made.enough, RUNS)
                wrong += any(true[f"short, {scores}"] > WITHIN for scores in enough)
            shares = {key: held[key] / count for key, count in seen.items()}
            least = min(shares, key=shares.__getitem__)
            print(
                f"{name:18}{cases:5} cases: held {100 * np.mean([*shares.values()]):.1f} % on "
                f"average, least {100 * shares[least]:.1f} % ({least}); "
                f"enough that is not: {100 * wrong / given.draws:.1f} %", flush=True,
            )  # fmt: skip


def truth(whole: Any) -> dict[str, float]:
    """The figures of all cases of a population."""
    from dagengine.reliability.statistics.majority_votes import best_of

    right = np.zeros(CASES, int)
    picks = [best_of(whole[:, :, : scores + 1], right) for scores in range(RUNS)]
    values: dict[str, float] = {}
    for scores, pick in enumerate(picks, 1):
        for key, part in (("wrong", pick.wrong), ("share", pick.share), ("ties", pick.tied)):
            values[f"{key}, {scores}"] = float(part.mean())
        values[f"short, {scores}"] = float((picks[-1].share - pick.share).mean())
    values["gain"] = float((picks[-1].wrong - picks[0].wrong).mean())
    values["noise"] = values["short, 1"]
    values["unties"] = values["gain"] - values["noise"]
    return values


if __name__ == "__main__":
    main()
