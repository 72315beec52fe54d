"""How often `fit escalation` proves a useless cascade, and how often its intervals hold.

    python benchmarks/reliability/escalated.py [--draws 400] [--covering 1000] [--recorded FOLDER]

First table: planted cascades, drawn `draws` times each. Useless are a second judge that is right as
often as the first one at every confidence (`no better`), one that is worse, and confidences that
have nothing to do with being right (`says nothing`) before a better judge. `naive` is the share of
draws in which a threshold that is fitted and judged on the same cases looks better than the small
judge alone and than chance. `proved` is that of the law, `opened` that of sealed parts opened.

Second table: draws with replacement from a population of cases, split, fitted and proved. The truth
is what the chosen threshold comes to in the whole population. It counts how often intervals hold
it: of the gains over the small judge, over chance and over the large one, and of the accuracies
(the least of the four). With `--recorded` (the folder of the scores of RewardBench 2, with
`scores.jsonl`) also real judges: the confidence is the margin of the two best of four answers.
"""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from random import Random
from statistics import fmean
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from dagengine.improvement.escalation import (
    NEVER,
    Cascade,
    Proof,
    TwoJudges,
    Way,
    fit_escalation,
    prove_escalation,
)
from dagengine.reliability.statistics.intervals import Interval
from dagengine.reliability.statistics.paired_comparisons import Comparison

Drawn = Callable[[Random], TwoJudges]
SEALED = 0.4


def one_judgement(sure: float, small: bool, large: bool) -> TwoJudges:
    """The case of one judgement: how sure the small judge is, and whether each is right."""
    sides = [(None, small)] if small == large else [(False, small), (True, large)]
    ways = tuple(Way(((sure, side),), is_right) for side, is_right in sides)
    return TwoJudges(ways, small, large)


def planted(kind: str) -> Drawn:
    """Cases of a kind: the confidence of the small judge, and whether each judge is right."""

    def draw(random: Random) -> TwoJudges:
        sure = random.random()
        right = 0.5 + 0.45 * sure
        if kind == "no better, one of five confidences":
            sure = round(4 * sure) / 4
            right = 0.5 + 0.45 * sure
        if kind.startswith("no better"):
            return one_judgement(sure, random.random() < right, random.random() < right)
        if kind == "worse":
            return one_judgement(sure, random.random() < right, random.random() < right - 0.1)
        if kind.startswith("says nothing"):
            sure = round(4 * sure) / 4 if kind.endswith("confidences") else sure
            gain = 0.05 if "little" in kind else 0.15
            return one_judgement(sure, random.random() < 0.75, random.random() < 0.75 + gain)
        return one_judgement(sure, random.random() < 0.5 + 0.5 * sure, random.random() < 0.85)

    return draw


USELESS = (
    "no better", "no better, one of five confidences", "worse", "says nothing",
    "says nothing, little better", "says nothing, one of five confidences",
)  # fmt: skip


def prove(cases: Sequence[TwoJudges]) -> tuple[float, Proof] | None:
    """The threshold of one part and what it comes to on the other; None if none was opened."""
    size = round(SEALED * len(cases))
    below = fit_escalation(Cascade(cases[size:])).below
    return None if below == NEVER else (below, prove_escalation(Cascade(cases[:size]), below))


def looks_better(cases: Sequence[TwoJudges]) -> bool:
    """Whether a threshold is better than both on the very cases that it was fitted on."""
    cascade = Cascade(cases)
    below = fit_escalation(cascade, distance=0.0).below
    right, _, handed, _ = cascade.at(below)
    alone, chance = cascade.at(NEVER)[0], cascade.by_chance(float(handed.mean()))
    return bool(right.mean() > max(alone.mean(), chance.mean()) + 1e-9)


def proved_shares(kind: str, size: int, draws: int) -> tuple[float, float, float]:
    """The shares of draws in which a kind looks better, is opened, and is proved."""
    counts = Counter[str]()
    for seed in range(draws):
        random = Random(f"{kind} {size} {seed}")
        cases = [planted(kind)(random) for _ in range(size)]
        proof = prove(cases)
        counts["naive"] += looks_better(cases)
        counts["opened"] += proof is not None
        counts["proved"] += proof is not None and proof[1].proved
    return counts["naive"] / draws, counts["opened"] / draws, counts["proved"] / draws


def held_shares(population: Sequence[TwoJudges], size: int, draws: int) -> dict[str, float]:
    """The shares of opened draws in which intervals hold the truth, by what they are of."""
    held, opened, worth = Counter[str](), 0, dict[float, dict[str, float]]()
    for seed in range(draws):
        random = Random(f"{size} {seed}")
        proof = prove(random.choices(population, k=size))
        if proof is None:
            continue
        opened += 1
        below, seen = proof
        if below not in worth:
            worth[below] = truths(population, below)
        for name, truth in worth[below].items():
            kind, _, arm = name.partition(" ")
            figure = seen.gains[arm] if kind == "over" else seen.accuracy[arm]
            limits = figure.interval if isinstance(figure, Comparison) else figure
            held[name] += isinstance(limits, Interval) and (
                limits.low - 1e-9 <= truth <= limits.high + 1e-9
            )
    return {"opened": opened / draws, **{name: held[name] / opened for name in held}}


def truths(population: Sequence[TwoJudges], below: float) -> dict[str, float]:
    """What a threshold comes to in a population: accuracies, and gains over the other arms."""
    cascade = Cascade(population)
    right, asked, handed, _ = cascade.at(below)
    arms = {
        "small": float(cascade.at(NEVER)[0].mean()), "cascade": float(right.mean()),
        "chance": float(cascade.by_chance(float(handed.sum() / asked.sum())).mean()),
        "large": fmean(case.large for case in population),
    }  # fmt: skip
    gains = {f"over {arm}": arms["cascade"] - arms[arm] for arm in ("small", "chance", "large")}
    return gains | {f"accuracy {arm}": share for arm, share in arms.items()}


# Real judges.

RECORDED = (
    ("claude-haiku-4.5", 3, "claude-sonnet-4.6", 8), ("gpt-5.4-mini", 1, "gpt-5.4", 8),
    ("gpt-5.4-nano", 2, "gpt-5.4", 8),
)  # fmt: skip


def recorded(path: Path) -> Iterator[tuple[str, list[TwoJudges]]]:
    """Pairs of judges on RewardBench 2: the mean of k scores, the chosen answer strictly first."""
    scores: dict[str, dict[tuple[str, str], list[list[int | None]]]] = defaultdict(dict)
    with path.open(encoding="utf-8") as file:
        for row in map(json.loads, file):
            if row["prompt"] == "base" and row["temperature"] is None:
                scores[row["judge"]][row["subset"], row["item"]] = row["scores"]

    def margin(lists: list[list[int | None]], votes: int) -> tuple[float, bool] | None:
        each = [[score for score in own[:votes] if score is not None] for own in lists]
        if not all(each):
            return None
        means = [fmean(own) for own in each]
        first, second = sorted(means, reverse=True)[:2]
        return first - second, means[0] == first > second

    for small, few, large, many in RECORDED:
        both = scores[small].keys() & scores[large].keys()
        pairs = [
            (margin(scores[small][item], few), margin(scores[large][item], many))
            for item in sorted(both)
        ]
        cases = [one_judgement(*mine, theirs[1]) for mine, theirs in pairs if mine and theirs]
        yield f"{small} x {few}, {large} x {many}", cases


def main(
    draws: Annotated[int, typer.Option(help="Draws of each planted cascade; 0: none.")] = 400,
    covering: Annotated[int, typer.Option(help="Draws of each population; 0: none.")] = 1000,
    folder: Annotated[Path | None, typer.Option("--recorded", help="Recorded scores.")] = None,
) -> None:
    """Print both tables."""
    console = Console(width=140)
    table = Table("planted", "cases", "naive", "opened", "proved")
    for kind in (*USELESS, "useful"):
        for size in (100, 400) if draws else ():
            shares = proved_shares(kind, size, draws)
            table.add_row(kind, str(size), *(f"{100 * share:.1f} %" for share in shares))
    console.print(table)
    names = ["opened", "over small", "over chance", "over large"]
    table = Table("population", "cases", *names, "accuracies")
    populations = {
        kind: [planted(kind)(random) for _ in range(2000)]
        for kind in ("useful", "no better")
        for random in [Random(kind)]
    }
    if folder is not None:
        populations |= dict(recorded(folder / "scores.jsonl"))
    for name, population in populations.items():
        for size in (250, 1000) if covering else ():
            held = held_shares(population, size, covering)
            least = min(share for of, share in held.items() if of.startswith("accuracy"))
            row = [*(held.get(of, 0.0) for of in names), least]
            table.add_row(name, str(size), *(f"{100 * share:.1f} %" for share in row))
    console.print(table)


if __name__ == "__main__":
    typer.run(main)
