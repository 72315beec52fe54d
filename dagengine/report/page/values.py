"""What the page is told of a graph and its drawings: plain data, in the terms of the front end."""

from __future__ import annotations

import re
from dataclasses import asdict, dataclass, field
from typing import Any

Box = tuple[float, float, float, float]
"""Left, top, width and height in pixels."""


@dataclass(frozen=True, slots=True)
class Node:
    """A node; one of a nested metric stands `inside` the node of that metric."""

    name: str
    kind: str
    question: str | None = None
    reads: tuple[str, ...] = ()
    inputs: tuple[str, ...] = ()
    hash: str | None = None
    panel: str | None = None
    inside: int | None = None

    def as_dict(self) -> dict[str, Any]:
        """JSON-ready form; of the panel the number of votes."""
        found = asdict(self)
        panel = found.pop("panel") or ""
        votes = re.search(r"\d+", panel)
        return {**found, "votes": int(votes[0]) if votes else 1}


@dataclass(slots=True)
class Answer:
    """An answer of a node: where it leads, or its score (0 to 1)."""

    node: int
    verdict: str
    targets: list[int] = field(default_factory=list)
    score: float | None = None

    def as_dict(self) -> dict[str, Any]:
        """JSON-ready form; scores of verdicts are whole numbers from 0 to 10."""
        score = None if self.score is None else round(self.score * 10, 6)
        to = self.targets[0] if self.targets else None
        return {"node": self.node, "verdict": self.verdict, "to": to, "score": score}


@dataclass(frozen=True, slots=True)
class Feed:
    """An edge without an answer; one that `runs` makes its target run."""

    source: int
    target: int
    runs: bool

    def as_dict(self) -> dict[str, Any]:
        """JSON-ready form."""
        return {"from": self.source, "to": self.target, "runs": self.runs}
