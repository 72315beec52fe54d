"""Where a result came about, and how results are told apart at a glance."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

State = Literal["failed", "no_score", "passed", "scored"]
"""Below its threshold; without a score; not below it; with a score and no threshold."""
SIGNS: dict[State, str] = {"failed": "✕", "no_score": "⊘", "passed": "✓", "scored": "·"}


@dataclass(frozen=True, slots=True)
class End:
    """A node of a metric and what it said last: its answer, or the kind of its failure."""

    metric: str
    node: str
    answer: str
    state: State

    def __str__(self) -> str:
        return f"{self.node} → {self.answer}" if self.answer else self.node
