"""How likely each end of a metric is on one case. Plain data."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import Any

from dagengine.results.outcomes import Verdict

_ROUNDING = 1e-9


@dataclass(frozen=True, slots=True)
class PathChance:
    """One path, as (node, verdict), with its score (0 to 1) and its probability (0 to 1).

    `passed` is False for a metric without a threshold. Paths of one node are told apart by their
    score where the node rates.
    """

    path: tuple[tuple[str, Verdict], ...]
    score: float
    passed: bool
    probability: float


@dataclass(frozen=True, slots=True)
class ResultOdds:
    """The odds of all paths of one metric on one case, the most likely first.

    `unknown` is the probability (0 to 1) of paths that cannot be computed. These are paths to nodes
    that were not asked, and other verdicts of lists that code without odds reads. So the expected
    score and the probability to pass have bounds.
    """

    paths: tuple[PathChance, ...]
    unknown: float = 0.0

    @property
    def expected_bounds(self) -> tuple[float, float]:
        """The lower and the upper bound of the expected score (0 to 1)."""
        least = math.fsum(path.score * path.probability for path in self.paths)
        return least, min(1.0, least + self.unknown)

    @property
    def expected(self) -> float | None:
        """The expected score (0 to 1); None if something is unknown."""
        least = self.expected_bounds[0]
        return None if self.unknown > _ROUNDING else min(1.0, least)

    @property
    def pass_bounds(self) -> tuple[float, float]:
        """The lower and the upper bound of the probability to pass."""
        least = math.fsum(path.probability for path in self.paths if path.passed)
        return least, min(1.0, least + self.unknown)

    def as_dict(self) -> dict[str, Any]:
        """JSON-ready form."""
        paths = [asdict(path) | {"path": [*map(list, path.path)]} for path in self.paths]
        bounds = {"expected": list(self.expected_bounds), "pass": list(self.pass_bounds)}
        return {"paths": paths, "unknown": self.unknown, **bounds}
