"""Does a card keep what it promises? Runs drawn from the odds that real judges gave.

    python benchmarks/recorded/odds_promises.py [--draws 100] [--cases 40] [--times 3 --times 20]

Two recordings hold the probability of every answer of one token at temperature 1: GPT-4 Turbo that
compares the answers of six systems with those of another, and GPT-3.5 that rates dialogues from 1
to 4 by nine questions. Asked again at that temperature the judge draws from these probabilities; so
any number of runs is drawn, and the truth is known. A draw takes cases with replacement and so
many runs of each; its intervals, and what it says about votes, are held against all cases.
"""

from __future__ import annotations

import math
import statistics
import sys
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Annotated

import typer
from recordings import Folder, data_directory, how_to_get
from rich.console import Console
from rich.table import Table

from dagengine.reliability.card.repeats import again
from dagengine.reliability.observations import Condition
from dagengine.reliability.observed_runs import Run, Runs
from dagengine.reliability.statistics.majority_votes import steady_votes

Odds = Mapping[float, float]
"""The chance of each score of one case."""

THRESHOLD, TARGET, MOST = 0.5, 0.05, 99


@dataclass
class Kept:
    """How often intervals of one figure held over the draws of one recording, and their widths."""

    held: list[bool] = field(default_factory=list)
    widths: list[float] = field(default_factory=list)
    named: list[bool] = field(default_factory=list)
    silent: list[bool] = field(default_factory=list)

    def add(self, low: float, truth: float, high: float) -> None:
        """One more interval."""
        self.held.append(low - 1e-9 <= truth <= high + 1e-9)
        self.widths.append(high - low)

    @property
    def share(self) -> float:
        """The share that held."""
        return statistics.fmean(self.held)


# What was recorded.


def recorded(directory: Path) -> Iterator[tuple[str, list[Odds]]]:
    """Every system, and every question, with the odds of its cases."""
    found: defaultdict[str, list[Odds]] = defaultdict(list)
    compared = Folder(directory / "alpaca_eval").judgements()
    for row, call in ((one, call) for one in compared for call in one["calls"]):
        tops = {token: math.exp(log) for token, log in call.get("top_logprobs", {}).items()}
        first, second = tops.get("m", 0.0), tops.get("M", 0.0)
        if first + second > 0:
            system = row["item"].rpartition("/")[2]
            found[system].append({1.0: second / (first + second), 0.0: first / (first + second)})
    for row in Folder(directory / "llm_rubric_logprobs").judgements():
        given = row["calls"][0]["token_probs"]
        whole = math.fsum(given.values())
        found[f"rubric {row['dim']}"].append(
            {(int(rating) - 1) / 3: chance / whole for rating, chance in given.items()}
        )
    yield from found.items()


# The truth, over all cases.


def truths(cases: Sequence[Odds]) -> dict[str, float]:
    """The figures that do not depend on the number of runs."""
    passing = [_passing(odds) for odds in cases]
    means = [math.fsum(score * p for score, p in odds.items()) for odds in cases]
    squares = [math.fsum(score * score * p for score, p in odds.items()) for odds in cases]
    within = statistics.fmean(q - m * m for q, m in zip(squares, means, strict=True))
    between = statistics.pvariance(means)
    return {
        "flip-rate": statistics.fmean(2 * p * (1 - p) for p in passing),
        "score-flip-rate": statistics.fmean(
            1 - math.fsum(p * p for p in odds.values()) for odds in cases
        ),
        "pass-rate": statistics.fmean(passing),
        "mean-score": statistics.fmean(means),
        "test-retest": between / (between + within),
    }


def _passing(odds: Odds) -> float:
    return math.fsum(p for score, p in odds.items() if score >= THRESHOLD)


def enough(cases: Sequence[Odds]) -> int:
    """The least odd number of votes with few enough flips; above `MOST` where none is."""
    passing = [_passing(odds) for odds in cases]
    for votes in range(1, MOST + 1, 2):
        lost = [_lost(p, votes) for p in passing]
        if statistics.fmean(2 * p * (1 - p) for p in lost) <= TARGET:
            return votes
    return MOST + 2


def _lost(p: float, votes: int) -> float:
    """The chance that the majority does not pass."""
    return math.fsum(
        math.comb(votes, k) * p**k * (1 - p) ** (votes - k) for k in range(votes // 2 + 1)
    )


# What a benchmark would have seen.


def kept(cases: Sequence[Odds], count: int, times: int, draws: int) -> dict[str, Kept]:
    """What benchmarks of so many cases and runs say, held against the truth, by figure."""
    truth, votes = truths(cases), enough(cases)
    found: defaultdict[str, Kept] = defaultdict(Kept)
    for seed in range(draws):
        random = Random(f"{times} {seed}")
        scores = [_drawn(random, random.choice(cases), times) for _ in range(count)]
        for one in again(_runs(scores), THRESHOLD):
            if one.name in truth and one.low is not None and one.high is not None:
                found[one.name].add(one.low, truth[one.name], one.high)
        said = steady_votes([[score >= THRESHOLD for score in row] for row in scores], TARGET)
        if said is not None:
            most = math.inf if said.most is None else said.most
            told = found["votes"]
            told.held.append((said.least or MOST + 2) <= votes <= most)
            told.named.append(said.most is not None)
            told.silent.append(said.kind == "not known")
    return dict(found)


def _drawn(random: Random, odds: Odds, times: int) -> list[float]:
    return random.choices(list(odds), list(odds.values()), k=times)


def _runs(scores: Sequence[Sequence[float]]) -> Runs:
    at = Condition()
    rows = {case: {at: [Run(at, score) for score in row]} for case, row in enumerate(scores)}
    return Runs("drawn", rows)


# The table.


def table_of(found: Mapping[int, Sequence[Mapping[str, Kept]]], title: str) -> Table:
    """Each figure and number of runs: over all recordings, how often it held."""
    table = Table("figure", "runs", "held: mean", "least", "mean width", "with an upper end",
                  "not known", title=title)  # fmt: skip
    for times, recordings in found.items():
        for name in dict.fromkeys(name for one in recordings for name in one):
            of = [one[name] for one in recordings if name in one]
            row = [name, str(times), _percent([one.share for one in of]),
                   f"{100 * min(one.share for one in of):.0f} %"]  # fmt: skip
            widths = [width for one in of for width in one.widths]
            row.append(f"{statistics.fmean(widths):.3f}" if widths else "")
            for column in ("named", "silent"):
                told = [bool(said) for one in of for said in getattr(one, column)]
                row.append(_percent([float(said) for said in told]) if told else "")
            table.add_row(*row)
    return table


def _percent(shares: Sequence[float]) -> str:
    return f"{100 * statistics.fmean(shares):.1f} %"


def main(
    draws: Annotated[int, typer.Option(min=1)] = 100,
    cases: Annotated[int, typer.Option(min=2)] = 40,
    times: Annotated[list[int] | None, typer.Option(min=2)] = None,
) -> None:
    """Print the table."""
    directory = data_directory()
    if not (directory / "alpaca_eval").is_dir():
        print(how_to_get(directory), file=sys.stderr)
        raise typer.Exit(2)
    every = list(recorded(directory))
    found = {
        often: [kept(odds, cases, often, draws) for _, odds in every] for often in times or (3, 20)
    }
    print(*(f"{name}: {len(odds)} cases, {enough(odds)} votes" for name, odds in every), sep="\n")
    Console(width=120).print(table_of(found, f"{cases} cases, {draws} draws of {len(every)}"))


if __name__ == "__main__":
    typer.run(main)
