"""How likely each end of a metric is on one case. Plain data."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from dagengine.results.outcomes import Verdict

_ROUNDING = 1e-9


@dataclass(frozen=True, slots=True)
class PathChance:
    """One path, as (node, verdict), its score from 0 to 1, and how likely it is.

    `passed` is False for a metric without a threshold. Paths of one node are told apart by their
    score where the node rates.
    """

    path: tuple[tuple[str, Verdict], ...]
    score: float
    passed: bool
    probability: float


@dataclass(frozen=True, slots=True)
class ResultOdds:
    """The odds of all paths of one metric on one case, the likeliest first.

    `unknown` is the probability (0 to 1) of paths to nodes that were not asked, and of lists whose
    items have other verdicts, where the code that reads them gives no odds: nothing is said
    of them, so that expectation and chance to pass have bounds.
    """

    paths: tuple[PathChance, ...]
    unknown: float = 0.0

    @property
    def expected_bounds(self) -> tuple[float, float]:
        """The least and the greatest that the expected score (0 to 1) can be."""
        known = math.fsum(one.score * one.probability for one in self.paths)
        return known, min(1.0, known + self.unknown)

    @property
    def expected(self) -> float | None:
        """The expected score (0 to 1); None where something is unknown."""
        known = self.expected_bounds[0]
        return None if self.unknown > _ROUNDING else min(1.0, known)

    @property
    def pass_bounds(self) -> tuple[float, float]:
        """The least and the greatest that the chance to pass can be."""
        known = math.fsum(one.probability for one in self.paths if one.passed)
        return known, min(1.0, known + self.unknown)

    def as_dict(self) -> dict[str, Any]:
        """JSON-ready form."""
        return {
            "paths": [
                {
                    "path": [list(turn) for turn in one.path],
                    "score": one.score,
                    "passed": one.passed,
                    "probability": one.probability,
                }
                for one in self.paths
            ],
            "unknown": self.unknown,
            "expected": list(self.expected_bounds),
            "pass": list(self.pass_bounds),
        }
