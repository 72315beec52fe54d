"""What recorded judges show of themselves: how far they repeat, and whom they agree with.

Reference values are those of the recordings' README and of EXPECTED.json. An answer without a
verdict is a vote of its own kind in all of them, but for MT-Bench's ratings, where a prompt
with a failed call is left out.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, fields
from operator import attrgetter
from pathlib import Path
from typing import Any

from label_agreement import LabelAgreement, agreement
from recordings import Folder, expected_figures

from dagengine.reliability import Observations
from dagengine.reliability.observations import Condition, Observation, Reading
from dagengine.reliability.statistics.stability import (
    flip_rate,
    majority,
    majority_share,
    total_agreement,
)
from dagengine.reliability.statistics.sums import mean
from replays.determinism_sources import (
    CHOICES,
    llmbar_verdicts,
    pandalm_verdicts,
    repeat_mtbench,
    repeat_pairs,
    repeat_prometheus,
    winner,
)
from replays.published import REPEATED

Table = Sequence[Sequence[Any]]


@dataclass(frozen=True)
class Repeatability:
    """Prompts, and means over them: the share with one verdict only, the share of the verdict
    given most often, of pairs of verdicts that differ, and of prompts with one text only."""

    prompts: int
    unanimous: float | None
    majority_share: float | None
    disagreement: float | None
    identical: float | None = None

    def meets(self, reference: Repeatability) -> bool:
        """Whether all that the reference says is the same to three decimals."""
        names = [field.name for field in fields(self)]
        pairs = [(getattr(self, name), getattr(reference, name)) for name in names]
        return all(
            stated is None or (ours is not None and round(ours, 3) == stated)
            for ours, stated in pairs
        )


_PAIRS = {
    "position_bias/MTBench/gpt-4-0613": (192, 0.906, 0.967, 0.064, 0.005),
    "position_bias/MTBench/gpt-3.5-turbo-0125": (192, 0.807, 0.936, 0.128, 0.005),
    "position_bias/MTBench/claude-3-haiku-20240307": (192, 0.682, 0.894, 0.212, 0.000),
    "position_bias/MTBench/gemini-pro": (192, 0.693, 0.891, 0.212, 0.120),
    "position_bias/DevBench/gpt-4-0613": (144, 0.910, 0.970, 0.060, 0.000),
    "position_bias/DevBench/gpt-3.5-turbo-0125": (144, 0.917, 0.972, 0.056, 0.000),
    "position_bias/DevBench/claude-3-haiku-20240307": (144, 0.708, 0.903, 0.194, 0.000),
    "position_bias/DevBench/gemini-pro": (144, 0.542, 0.847, 0.306, 0.000),
}
_TEXTS = {"mtbench GPT-4 T=0 repeats": 0.000}

REFERENCE = {
    **{name: Repeatability(*row, _TEXTS.get(name)) for name, row in REPEATED.items()},
    **{name: Repeatability(*row) for name, row in _PAIRS.items()},
}
"""The reference values of the recordings' README; it has no texts of Prometheus to compare."""


def repeatability(votes: Table, texts: Table) -> Repeatability:
    """How far repeated answers agree; a row per prompt."""
    return Repeatability(
        len(votes),
        total_agreement(votes),
        majority_share(votes, missing="own category"),
        flip_rate(votes, missing="own category"),
        total_agreement(texts),
    )


def raw(observation: Observation) -> str | None:
    """What stands for the text of the answer."""
    return observation.raw


# Repetitions.

SHOWN = ("given", "swapped")


def of_prometheus(directory: Path) -> dict[str, Repeatability]:
    """Three ratings per prompt, by data set."""
    sources, seen = repeat_prometheus(Folder(directory / "prometheus_gpt4x3"))
    votes, texts = seen.table("rating", "rating"), seen.table("rating", "rating", raw)
    found: dict[str, Repeatability] = {}
    for source in dict.fromkeys(sources):
        own = [place for place, of in enumerate(sources) if of == source]
        table = [votes[place] for place in own], [texts[place] for place in own]
        found[f"prometheus/{source} GPT-4 n=3"] = repeatability(*table)
    return found


def of_mtbench(directory: Path) -> dict[str, Repeatability]:
    """Two ratings per prompt, of prompts where both calls gave one."""
    seen = repeat_mtbench(Folder(directory / "mtbench_gpt4"))
    both = list(zip(seen.table("rating"), seen.table("rating", of=raw), strict=True))
    rated = [(votes, texts) for votes, texts in both if None not in votes]
    votes, texts = ([pair[side] for pair in rated] for side in (0, 1))
    return {"mtbench GPT-4 T=0 repeats": repeatability(votes, texts)}


@dataclass(frozen=True)
class Position:
    """How far verdicts hold when the answers change places.

    `consistent` is the share of comparisons with the same verdict in both orders, averaged
    over repetitions; of the others with a winner, `first` is the share in which the answer
    shown first won both times.
    """

    comparisons: int
    consistent: float | None
    first: float | None


def of_pairs(directory: Path) -> tuple[dict[str, Repeatability], dict[str, Position]]:
    """Three verdicts per prompt, and the same pair in both orders."""
    repeated: dict[str, Repeatability] = {}
    positions: dict[str, Position] = {}
    for protocol in CHOICES:
        seen = repeat_pairs(Folder(directory / "position_bias_rep3"), protocol)
        for judge in dict.fromkeys(condition.judge for condition in seen.conditions):
            name = f"position_bias/{protocol.partition('/')[0]}/{judge}"
            repeated[name] = repeatability(
                *([row for order in SHOWN for row in _pairs(seen, judge, order, of)]
                  for of in (attrgetter("vote"), raw))
            )  # fmt: skip
            positions[name] = position(*(_pairs(seen, judge, order) for order in SHOWN))
    return repeated, positions


def _pairs(seen: Observations, judge: str, order: str, of: Reading = attrgetter("vote")) -> Table:
    def chosen(condition: Condition) -> bool:
        return (condition.judge, condition.order) == (judge, order)

    return seen.table("pairwise", "verdict", of, chosen)


def position(given: Table, swapped: Table) -> Position:
    """Verdicts in both orders, named as if nothing had been swapped: A stood first in given."""
    pairs = [pair for rows in zip(given, swapped, strict=True) for pair in zip(*rows, strict=True)]
    won = Counter(pair for pair in pairs if set(pair) == {"A", "B"})
    first, second = won["A", "B"], won["B", "A"]
    return Position(
        len(pairs),
        mean(float(one == other is not None) for one, other in pairs).value(),
        first / (first + second) if first + second else None,
    )


# Labels.


def of_llmbar(directory: Path) -> tuple[dict[str, float], dict[str, LabelAgreement]]:
    """LLMBar's published figures, and agreement with the preferred answer, by protocol."""
    items, seen = llmbar_verdicts(Folder(directory / "llmbar"))
    figures: dict[str, float] = {}
    agreements: dict[str, LabelAgreement] = {}
    for name, one in seen.items():
        orders = [[winner(row[0]) for row in one.table(metric)] for metric in one.metrics]
        labelled = list(zip(items, zip(*orders, strict=True), strict=True))
        for subset in dict.fromkeys(item["subset"] for item in items):
            own = [(item["preferred"], pair) for item, pair in labelled if item["subset"] == subset]
            start = f"llmbar/{name}/{subset}"
            right = sum(verdict == wanted for wanted, pair in own for verdict in pair)
            figures[f"{start}/acc_average"] = right / 2 / len(own) * 100
            figures[f"{start}/agreement"] = sum(a == b for _, (a, b) in own) / len(own) * 100
            flat = [(wanted, verdict) for wanted, pair in own for verdict in pair]
            agreements[start] = agreement(flat)
    return figures, agreements


def of_pandalm(directory: Path) -> dict[str, LabelAgreement]:
    """PandaLM's model against the majority of three people, where there is one."""
    people, seen = pandalm_verdicts(Folder(directory / "pandalm"))
    verdicts = [str(row[0]) for row in seen.table("verdict", "verdict")]
    pairs = [(wanted, said) for own, said in zip(people, verdicts, strict=True)
             if (wanted := majority(own)) is not None]  # fmt: skip
    return {"pandalm": agreement(pairs)}


def llmbar_reference(directory: Path) -> dict[str, float]:
    """LLMBar's published accuracies and agreements."""
    stored = expected_figures(directory)
    return {name: value for name, value in stored.items() if name.startswith("llmbar/")}
