"""Accuracy of verdicts against labels, with the figures that say what it is worth."""

from __future__ import annotations

from dataclasses import dataclass

from dagengine.reliability.statistics.accuracy_and_kappa import (
    Labelled,
    accuracy,
    balanced_accuracy_interval,
    label_kappa,
    majority_baseline,
)
from dagengine.reliability.statistics.intervals import Interval


@dataclass(frozen=True, slots=True)
class LabelAgreement:
    """`items` have a label, `missing` of them no verdict. Undefined with one label: None."""

    items: int
    missing: int
    accuracy: float
    baseline: float
    balanced_accuracy: float | None
    kappa: float | None


def agreement(pairs: Labelled) -> LabelAgreement:
    """How verdicts meet what people said; raises ValueError without a label."""
    used = [pair for pair in pairs if pair[0] is not None]
    hits, baseline = accuracy(used), majority_baseline(used)
    if hits is None or baseline is None:
        raise ValueError("there is nothing to compare")
    balanced = balanced_accuracy_interval(used)
    return LabelAgreement(
        len(used), sum(verdict is None for _, verdict in used), hits, baseline,
        balanced.value if isinstance(balanced, Interval) else None, label_kappa(used),
    )  # fmt: skip
