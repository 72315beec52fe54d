"""Do cards and votes keep what they promise about the noise of a real model?

    python benchmarks/recorded/real/held.py [--folder out/real] [--draws 200]

Reads what `noise.py` recorded. A draw divides the runs at random. It takes cases with replacement
and a few runs of each from one half, as a benchmark would. Its intervals are held against the
figures of all cases in the other half, which stands for what happens later. The votes that it
promises are held against those that the stated probabilities need. Targets stand beside the
figures.
"""

from __future__ import annotations

import math
import statistics
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Annotated

import typer
from noise import STATEMENT, STATEMENTS, THRESHOLD
from rich.console import Console
from rich.table import Table

from dagengine.reliability import Observations
from dagengine.reliability.card.repeats import again
from dagengine.reliability.observations import Condition
from dagengine.reliability.observed_runs import Run, Runs
from dagengine.reliability.statistics.majority_votes import steady_votes
from dagengine.reliability.statistics.stability import flip_rate, icc
from dagengine.store.maintenance import open_to_look, records
from dagengine.voting.votes_and_juries import Curtailed, Rule, Sprt

Passes = Sequence[Sequence[bool]]
"""Whether each run of each case said yes."""

TARGET, MOST = 0.05, 99
COVERAGE = "at least 95 %"
RULES: dict[str, tuple[Rule, int]] = {
    "majority of 3": (Curtailed(), 3),
    "majority of 9": (Curtailed(), 9),
    "Sprt(noise=0.2, error=0.05), up to 25": (Sprt(0.2, 0.05), 25),
    "Sprt(noise=0.3, error=0.05), up to 25": (Sprt(0.3, 0.05), 25),
}
Row = tuple[str, ...]


# What was recorded.


def recorded(folder: Path) -> dict[str, Passes]:
    """The runs of every case that have an answer, the same number for all cases, by metric."""
    rows: defaultdict[str, defaultdict[int, list[float]]] = defaultdict(lambda: defaultdict(list))
    for seen in Observations.load(folder / "observations.jsonl"):
        if not seen.node and seen.score is not None:
            rows[seen.metric][seen.case].append(seen.score)
    tables: dict[str, Passes] = {}
    for metric, cases in rows.items():
        if len(cases) != len(STATEMENTS):
            raise typer.BadParameter(f"{folder}: cases without answers; record them again")
        runs = min(map(len, cases.values()))
        tables[metric] = [
            [score >= THRESHOLD for score in scores[:runs]] for _, scores in sorted(cases.items())
        ]
    return tables


@dataclass(frozen=True)
class Stated:
    """The probabilities that stood behind an answer: of "Yes" among both, and of both together."""

    yes: float
    mass: float


def stated(folder: Path) -> dict[str, list[Stated]]:
    """The mean over runs of what was stated for each case, by node, in the order of the cases."""
    found: defaultdict[str, defaultdict[str, list[Stated]]] = defaultdict(lambda: defaultdict(list))
    with open_to_look(folder / "answers.db") as db:
        for record in records(db):
            if "tokens" not in record.answer:  # of an answer that was not one of both
                continue
            _, alternatives = record.answer["tokens"][0]
            chances = {token: math.exp(logprob) for token, logprob in alternatives}
            yes, no = chances.get("Yes", 0.0), chances.get("No", 0.0)
            messages = record.as_dict()["question"]["messages"]
            statement = messages[-1]["content"].rpartition(STATEMENT)[2]
            found[record.node][statement].append(Stated(yes / (yes + no), yes + no))
    return {
        node: [
            Stated(
                statistics.fmean(each.yes for each in cases[statement]),
                statistics.fmean(each.mass for each in cases[statement]),
            )
            for statement in STATEMENTS
        ]
        for node, cases in found.items()
    }


# The truth.


def truths(passes: Passes) -> dict[str, float | None]:
    """The figures that do not depend on the number of runs."""
    return {
        "flip-rate": flip_rate(passes),
        "pass-rate": statistics.fmean(statistics.fmean(row) for row in passes),
        "test-retest": icc([[float(run) for run in row] for row in passes]),
    }


def enough(chances: Sequence[float]) -> int:
    """The least odd number of votes with few enough flips; above `MOST` if none is."""
    for votes in range(1, MOST + 1, 2):
        lost = [_lost(chance, votes) for chance in chances]
        if statistics.fmean(2 * p * (1 - p) for p in lost) <= TARGET:
            return votes
    return MOST + 2


def _lost(chance: float, votes: int) -> float:
    """The chance that the majority is no."""
    return math.fsum(
        math.comb(votes, k) * chance**k * (1 - chance) ** (votes - k) for k in range(votes // 2 + 1)
    )


def _runs(passes: Passes) -> Runs:
    at = Condition()
    return Runs(
        "real",
        {case: {at: [Run(at, float(run)) for run in row]} for case, row in enumerate(passes)},
    )


# What benchmarks say, held against what happened later.


@dataclass
class Kept:
    """Whether each interval held what happened later, and what both were.

    `ends` has the low end, the value, the high end and what happened later.
    """

    held: list[bool] = field(default_factory=list)
    ends: list[tuple[float, float, float, float]] = field(default_factory=list)

    @property
    def widths(self) -> list[float]:
        """How wide the intervals were."""
        return [high - low for low, _, high, _ in self.ends]

    def predicted(self) -> float:
        """The share that holds what happens later with the noise of the later runs counted, too.

        An interval is made for the judge, of which later runs are another sample. So each side gets
        the variance of their figure on top. Draws show half of it: they divide the same runs, so a
        later half varies by the runs that it does not share with another one.
        """
        noise = 2 * statistics.pvariance([later for *_, later in self.ends])
        reach = 1.96**2 * noise
        return statistics.fmean(
            value - math.sqrt((value - low) ** 2 + reach) <= later
            and later <= value + math.sqrt((high - value) ** 2 + reach)
            for low, value, high, later in self.ends
        )


def intervals(passes: Passes, times: int, draws: int, votes: int) -> dict[str, Kept]:
    """How often cards of so many runs held what the later half of the runs shows, by figure."""
    kept: defaultdict[str, Kept] = defaultdict(Kept)
    for seed in range(draws):
        random = Random(f"{times} {seed}")
        order = random.sample(range(len(passes[0])), len(passes[0]))
        earlier, later = order[: len(order) // 2], order[len(order) // 2 :]
        truth = truths([[row[run] for run in later] for row in passes])
        # A case that is drawn twice has runs of its own each time, as two like it would.
        table = [
            [row[run] for run in random.sample(earlier, times)]
            for row in random.choices(passes, k=len(passes))
        ]
        for figure in again(_runs(table), THRESHOLD):
            value = truth.get(figure.name)
            if value is not None and figure.low is not None and figure.high is not None:
                held = figure.low - 1e-9 <= value <= figure.high + 1e-9
                kept[figure.name].held.append(held)
                ends = figure.low, figure.value or 0.0, figure.high, value
                kept[figure.name].ends.append(ends)
        promise = steady_votes(table, TARGET)
        if promise is not None:
            most = math.inf if promise.most is None else promise.most
            kept["votes"].held.append((promise.least or MOST + 2) <= votes <= most)
    return dict(kept)


def voted(passes: Passes, rule: Rule, most: int, draws: int) -> tuple[float, float, float]:
    """Shares of flips between two votes and of verdicts unlike the majority; votes cast."""
    flips: list[float] = []
    wrong: list[float] = []
    cast: list[int] = []
    for case, row in enumerate(passes):
        usual = 2 * sum(row) > len(row)
        random = Random(case)
        for _ in range(draws):
            order = random.sample(row, len(row))
            first, count = _vote(order, rule, most)
            second, _ = _vote(order[count:], rule, most)
            flips.append(first != second)
            wrong.append(first != usual)
            cast.append(count)
    return statistics.fmean(flips), statistics.fmean(wrong), statistics.fmean(cast)


def _vote(runs: Sequence[bool], rule: Rule, most: int) -> tuple[bool, int]:
    """The verdict of a vote over runs in this order, and how many were cast."""
    cast = 0
    while more := rule.more(runs[:cast], most - cast):
        cast += more
    return 2 * sum(runs[:cast]) > cast, cast


# The tables.


def odds_rows(tables: Mapping[str, Passes], odds: Mapping[str, Sequence[Stated]]) -> Iterator[Row]:
    """Are the log-probabilities the odds of what is answered?"""
    for name, passes in tables.items():
        runs, chances = len(passes[0]), [each.yes for each in odds[name]]
        within = [
            abs(sum(row) / runs - chance)
            <= 1.96 * math.sqrt(chance * (1 - chance) / runs) + 0.5 / runs
            for row, chance in zip(passes, chances, strict=True)
        ]
        flips = statistics.fmean(
            2 * sum(row) * (runs - sum(row)) / runs / (runs - 1) for row in passes
        )
        promised = statistics.fmean(2 * chance * (1 - chance) for chance in chances)
        mass = statistics.fmean(each.mass for each in odds[name])
        yield (
            name, str(len(passes)), str(runs), f"{mass:.2f}", f"{promised:.3f}", f"{flips:.3f}",
            f"{100 * statistics.fmean(within):.0f} %", COVERAGE,
        )  # fmt: skip


def interval_rows(
    tables: Mapping[str, Passes], odds: Mapping[str, Sequence[Stated]], draws: int
) -> Iterator[Row]:
    """Do intervals hold what happened later?"""
    for name, passes in tables.items():
        votes = enough([each.yes for each in odds[name]])
        for times in (3, 20):
            if times > len(passes[0]) // 2:
                continue
            for figure, kept in intervals(passes, times, draws, votes).items():
                width = f"{statistics.fmean(kept.widths):.3f}" if kept.widths else f"truth: {votes}"
                share = f"{100 * statistics.fmean(kept.held):.1f} %"
                both = f"{100 * kept.predicted():.1f} %" if kept.ends else ""
                yield name, str(times), figure, share, both, COVERAGE, width, str(len(kept.held))


def vote_rows(tables: Mapping[str, Passes], draws: int) -> Iterator[Row]:
    """Do votes keep what their rules promise? By how noisy the cases are."""
    every = [row for passes in tables.values() for row in passes]
    for title, (rule, most) in RULES.items():
        noise = rule.noise if isinstance(rule, Sprt) else 0.5
        chosen = [row for row in every if min(sum(row), len(row) - sum(row)) / len(row) <= noise]
        if not chosen or 2 * most > len(chosen[0]):
            continue
        flips, wrong, cast = voted(chosen, rule, most, draws)
        if isinstance(rule, Sprt):
            target = f"wrong at most {100 * rule.error:.0f} %"
        else:
            shares = [sum(row) / len(row) for row in chosen]
            lost = [_lost(share, most) for share in shares]
            target = f"flips {100 * statistics.fmean(2 * p * (1 - p) for p in lost):.1f} %"
        yield (
            title, str(len(chosen)), f"{100 * flips:.1f} %", f"{100 * wrong:.1f} %", target,
            f"{cast:.1f}",
        )  # fmt: skip


def main(
    folder: Path = Path("out/real"),
    draws: Annotated[int, typer.Option(min=1)] = 200,
) -> None:
    """Print the tables."""
    if not (folder / "observations.jsonl").is_file():
        raise typer.BadParameter(f"no recording in {folder}: run benchmarks/recorded/real/noise.py")
    tables, odds = recorded(folder), stated(folder)
    console = Console(width=130)
    _print(
        console, "log-probabilities and answers",
        ("question", "cases", "runs", "mass of both", "flips promised", "flips seen",
         "cases within 95 % of their odds", "target"),
        odds_rows(tables, odds),
    )  # fmt: skip
    _print(
        console, "cards of a few runs, held against later runs",
        ("question", "runs", "figure", "held", "held, with the noise of later runs", "target",
         "mean width", "draws"),
        interval_rows(tables, odds, draws),
    )  # fmt: skip
    _print(
        console, "votes: cases whose noise is at most that of the rule",
        ("rule", "cases", "flips of two votes", "unlike the majority of all runs", "target",
         "votes"),
        vote_rows(tables, draws),
    )  # fmt: skip


def _print(console: Console, title: str, columns: Row, rows: Iterator[Row]) -> None:
    table = Table(*columns, title=title)
    for row in rows:
        table.add_row(*row)
    console.print(table)


if __name__ == "__main__":
    typer.run(main)
