"""Does the judge agree with people? Verdicts and scores against labels.

An item without a label is left out. A labelled item without a parseable answer counts as a miss by
default ("own category"). What was not answered was not right, and dropping it would make a judge
better by failing on hard items.
"""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Literal

from dagengine.errors import InputError
from dagengine.reliability.statistics.inter_rater import cohen_kappa
from dagengine.reliability.statistics.sums import (
    Missing,
    ScoreTable,
    Sums,
    Totals,
    Vote,
    counted,
    measure,
    numbers,
)

__all__ = [
    "LabelAgreement",
    "accuracy",
    "balanced_accuracy",
    "label_agreement",
    "label_kappa",
    "majority_baseline",
    "scored_pairs",
]

Labelled = Sequence[tuple[Vote | None, Vote | None]]
"""Pairs of a human label and the judge's verdict."""

Level = Literal["item", "answer", "system"]


@measure
def accuracy(pairs: Labelled, *, missing: Missing = "own category") -> Sums:
    """The share of verdicts equal to the label, from 0 to 1, over the pooled pairs.

    Do not show it alone: `label_agreement` contains what to compare it with.
    """
    items = [
        {"items": 1.0, "right": float(pair[0] == pair[1])} if _counts(pair, missing) else {}
        for pair in pairs
    ]
    return Sums(items, lambda all_: all_["right"] / all_["items"], most=1.0)


@measure
def majority_baseline(pairs: Labelled, *, missing: Missing = "own category") -> Sums:
    """The accuracy of always giving the most common label, from 0 to 1."""
    items = [{pair[0]: 1.0} if _counts(pair, missing) else {} for pair in pairs]
    return Sums(items, _commonest)


@measure
def balanced_accuracy(pairs: Labelled, *, missing: Missing = "own category") -> Sums:
    """The mean over labels of the share of its items that were met, from 0 to 1.

    1/labels for always giving one verdict (Brodersen et al. 2010,
    https://doi.org/10.1109/ICPR.2010.764).
    """
    items: list[dict[Hashable, float]] = [
        {("label", pair[0]): 1.0, ("met", pair[0]): float(pair[0] == pair[1])}
        if _counts(pair, missing)
        else {}
        for pair in pairs
    ]
    return Sums(items, _mean_recall)


@measure
def label_kappa(pairs: Labelled, *, missing: Missing = "own category") -> Sums:
    """Cohen's kappa of the judge with the labels, from -1 to 1; 0 for a constant judge."""
    used = [pair if _counts(pair, missing) else (None, None) for pair in pairs]
    rated = cohen_kappa.sums(used, missing="own category")
    labelled = zip(used, rated.items, strict=True)
    return Sums([totals if pair[0] is not None else {} for pair, totals in labelled], rated.formula)


@dataclass(frozen=True, slots=True)
class LabelAgreement:
    """Accuracy, with the figures to compare it with.

    `items` have a label and count, `missing` of all labelled items got no parseable answer, and
    `baseline` is the accuracy of always giving the most common label. `kappa` is None if
    all labels and verdicts are equal.
    """

    items: int
    missing: int
    accuracy: float
    baseline: float
    balanced_accuracy: float
    kappa: float | None


def label_agreement(pairs: Labelled, *, missing: Missing = "own category") -> LabelAgreement | None:
    """How well verdicts agree with labels, over the pooled pairs; None without a pair."""
    used = [pair for pair in pairs if _counts(pair, missing)]
    hits, baseline = accuracy(used), majority_baseline(used)
    balanced = balanced_accuracy(used)
    if hits is None or baseline is None or balanced is None:
        return None
    unanswered = sum(label is not None and verdict is None for label, verdict in pairs)
    return LabelAgreement(len(used), unanswered, hits, baseline, balanced, label_kappa(used))


def _counts(pair: tuple[Vote | None, Vote | None], missing: Missing) -> bool:
    return pair[0] is not None and bool(counted(pair[1:], missing))


def _commonest(all_: Totals) -> float:
    counts = list(all_.values())
    return max(counts, default=0.0) / sum(counts)


def _mean_recall(all_: Totals) -> float | None:
    labels = [key[1] for key, n in all_.items() if key[0] == "label" and n]
    recalls = [all_["met", label] / all_["label", label] for label in labels]
    return statistics.fmean(recalls) if recalls else None


# Scores.


def scored_pairs(
    table: ScoreTable,
    labels: Sequence[float | None],
    *,
    level: Level = "item",
    systems: Sequence[Hashable] = (),
) -> list[tuple[float, float]]:
    """The (score, label) points that correlations are taken over.

    "item": the mean score of an item with its label. "answer": every score with the label of
    its item, which shows what a single call is worth. "system": mean scores and mean labels of the
    items of one system each, named row by row in `systems`. It averages most noise away and is
    usually the highest. Missing scores and labels are dropped. Raises InputError for lists that do
    not belong together.
    """
    if level not in ("item", "answer", "system"):
        raise InputError(f"level={level!r}: choose 'item', 'answer' or 'system'")
    if len(labels) != len(table) or (level == "system" and len(systems) != len(table)):
        raise InputError(
            f"{len(table)} rows need as many labels (and systems, at their level), "
            f"got {len(labels)} (and {len(systems)})"
        )
    named = systems if level == "system" else range(len(table))
    rated = zip(map(numbers, table), labels, named, strict=True)
    labelled = [(scores, label, name) for scores, label, name in rated
                if scores and label is not None]  # fmt: skip
    if level == "answer":
        return [(score, label) for scores, label, _ in labelled for score in scores]
    points: defaultdict[Hashable, list[tuple[float, float]]] = defaultdict(list)
    for scores, label, name in labelled:
        points[name].append((statistics.fmean(scores), label))
    # Of items each is alone with its place.
    sides = [[*zip(*group, strict=True)] for group in points.values()]
    return [(statistics.fmean(scores), statistics.fmean(stated)) for scores, stated in sides]
