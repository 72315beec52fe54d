"""RewardBench 2 as five judges scored it: four answers an item, eight scores of each.

The figures that were published, and what the same scores say under another rule for ties, with
fewer scores, at other temperatures, by subset, and as a cascade of a small and a large judge.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from dagengine.reliability.statistics.majority_votes import Picks, best_of
from dagengine.reliability.statistics.paired_comparisons import Comparison, compare_repeated

FOLDER = "rewardbench2_ensembling"
SCORES = range(1, 9)
"""How many scores of an answer are averaged."""

Key = tuple[str, str]
"""An item: its subset and its name, since 38 names are in two subsets."""


@dataclass(frozen=True)
class Published:
    """A published share of right items, in per cent: the right answer alone is the best."""

    collection: str
    judge: str
    scores: int
    value: float
    within: float = 0.05
    note: str = ""


_NANO = (
    "the paper takes the items in common with the base collection (1,700 and 1,705) and does not "
    "list them. Those that this file has in common (1,694 and 1,699) give 52.13 and 71.45, all of "
    "nano's 52.22 and 71.65"
)
PUBLISHED = (
    Published("base_both_k8", "gpt-5.4", 1, 71.7),
    Published("base_both_k8", "gpt-5.4", 8, 81.5),
    Published("criteria_both_k8", "gpt-5.4", 1, 74.7),
    Published("criteria_both_k8", "gpt-5.4", 8, 83.6),
    Published("base_both_k8", "gpt-5.4-mini", 8, 79.2),
    Published("criteria_both_k8", "gpt-5.4-mini", 8, 81.5),
    Published("base_nano_k8", "gpt-5.4-nano", 1, 52.3, 0.3, _NANO),
    Published("base_nano_k8", "gpt-5.4-nano", 8, 71.4, 0.3, _NANO),
    Published("base_claude_both_k8", "claude-sonnet-4.6", 1, 72.3),
    Published("base_claude_both_k8", "claude-sonnet-4.6", 8, 82.7),
    Published("base_claude_both_k8", "claude-haiku-4.5", 8, 84.8),
)


@dataclass(frozen=True)
class Scored:
    """The scores of one judge in one collection: an array of items, answers and scores.

    `items` are its items in their order. The first answer is the right one.
    """

    items: Sequence[Key]
    scores: Any

    def picks(self, scores: int = 8) -> Picks:
        """What the first so many scores of each answer pick."""
        return best_of(self.scores[:, :, :scores], np.zeros(len(self.items), int))

    def of(self, items: Sequence[Key]) -> Scored:
        """The same scores of these items only, in this order."""
        places = {item: place for place, item in enumerate(self.items)}
        return Scored(items, self.scores[[places[item] for item in items]])


def is_there(directory: Path) -> bool:
    """Whether the recorded scores are there."""
    return (directory / FOLDER / "scores.jsonl").is_file()


def load(directory: Path) -> dict[tuple[str, str], Scored]:
    """The scores by collection and judge."""
    items: dict[tuple[str, str], list[Key]] = {}
    rows: dict[tuple[str, str], list[Any]] = {}
    with (directory / FOLDER / "scores.jsonl").open(encoding="utf-8") as lines:
        for row in map(json.loads, lines):
            name = row["collection"], row["judge"]
            items.setdefault(name, []).append((row["subset"], row["item"]))
            padded = np.full((4, 8), np.nan)
            for answer, scores in enumerate(row["scores"]):
                padded[answer, : len(scores)] = scores
            rows.setdefault(name, []).append(padded)
    return {name: Scored(keys, np.stack(rows[name])) for name, keys in items.items()}


def in_common(*sides: Scored) -> list[Key]:
    """The items that all sides have, in the order of the first."""
    shared = set.intersection(*(set(side.items) for side in sides))
    return [item for item in sides[0].items if item in shared]


def per_cent(values: Any) -> float:
    """The mean of the values that are known, in per cent."""
    return 100 * float(np.nanmean(values))


def pairs(before: Any, after: Any) -> list[tuple[float, float]]:
    """Values of the same items, of those where both are known."""
    known = ~np.isnan(before) & ~np.isnan(after)
    return list(zip(before[known].tolist(), after[known].tolist(), strict=True))


def gain(before: Any, after: Any) -> Comparison:
    """The difference of two values by item, with its paired interval."""
    compared = compare_repeated(pairs(before, after))
    assert isinstance(compared, Comparison), "there are thousands of items"
    return compared


def figures(recorded: Mapping[tuple[str, str], Scored]) -> Iterator[tuple[Published, float]]:
    """Every published figure with ours."""
    for wanted in PUBLISHED:
        picks = recorded[wanted.collection, wanted.judge].picks(wanted.scores)
        yield wanted, per_cent(picks.wrong)


@dataclass(frozen=True)
class Cascade:
    """A small judge that asks a large one where its two best means are less than `margin` apart.

    Means over draws that fit the margin on a random half of the items and use it on the other.
    All are from 0 to 1: right by the rule that shares ties, and `escalated` of the items. `random`
    is how right it is if as many items go to the large judge at random. `margin` is the median,
    and `there` how right it makes all items, which is not proved by others.
    """

    margin: float
    there: float
    right: float
    escalated: float
    small: float
    large: float
    random: float


def cascade(small: Scored, large: Scored, scores: tuple[int, int], draws: int = 200) -> Cascade:
    """Fit the margin on one half of the items in common and prove it on the other, many times."""
    items = in_common(small, large)
    one, two = small.of(items).picks(scores[0]), large.of(items).picks(scores[1])
    known = ~np.isnan(one.share) & ~np.isnan(two.share)
    # Where the scores that are missing differ, a mean has another denominator: 2/3 has two forms.
    lead, first, second = one.margin[known].round(9), one.share[known], two.share[known]
    margins = np.unique(lead)
    random = np.random.default_rng(0)
    proved: list[tuple[float, ...]] = []
    for _ in range(draws):
        order = random.permutation(len(lead))
        fit, seal = np.array_split(order, 2)
        # The items are sorted by their margin: those before a place go to the large judge.
        fit = fit[np.argsort(lead[fit], kind="stable")]
        gains = np.concatenate(([0], np.cumsum(second[fit] - first[fit])))
        best = margins[gains[np.searchsorted(lead[fit], margins, side="right")].argmax()]
        asks = lead[seal] <= best
        share = asks.mean()
        alone, other = first[seal].mean(), second[seal].mean()
        right = np.where(asks, second[seal], first[seal]).mean()
        proved.append((best, right, share, alone, other, share * other + (1 - share) * alone))
    middle = float(np.median([row[0] for row in proved]))
    there = float(np.where(lead <= middle, second, first).mean())
    return Cascade(middle, there, *(float(part) for part in np.mean(proved, axis=0)[1:]))
