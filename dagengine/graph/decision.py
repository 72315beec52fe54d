"""Nodes whose verdicts lead somewhere."""

from __future__ import annotations

from dagengine.graph.arguments import verdict_target
from dagengine.graph.graph import Metric
from dagengine.graph.node import BaseNode, Branch
from dagengine.results import Verdict


class VerdictNode(BaseNode):
    """Where one verdict of a decision leads: a score from 0 to 10, a node, or a metric."""

    kind = "verdict"

    def __init__(
        self,
        verdict: Verdict,
        score: int | None = None,
        child: BaseNode | Metric | None = None,
        *,
        name: str | None = None,
    ) -> None:
        super().__init__(name=name)
        self.verdict = verdict
        self.score = score
        self.child = verdict_target(child)

    @property
    def title(self) -> str:
        return self.name or f"verdict {self.verdict!r}"

    def branches(self) -> tuple[Branch, ...]:
        return () if self.child is None else (Branch(self.verdict, self.child),)


class DecisionNode(BaseNode):
    """A node whose verdicts lead somewhere."""

    def add_verdict(
        self,
        verdict: Verdict,
        score: int | None = None,
        child: BaseNode | Metric | None = None,
    ) -> VerdictNode:
        """Declare one more verdict and what it leads to; returns its node."""
        node = VerdictNode(verdict, score=score, child=child)
        self.children.append(node)
        return node

    def branches(self) -> tuple[Branch, ...]:
        found = [
            Branch(child.verdict, child.score if child.child is None else child.child)
            if isinstance(child, VerdictNode)
            else Branch(None, child, bare=True)
            for child in self.children
        ]
        found += [Branch(verdict, target) for verdict, target in self.then.items()]
        return self._name_bare(tuple(found))

    def _name_bare(self, branches: tuple[Branch, ...]) -> tuple[Branch, ...]:
        return branches

    def successors(self) -> tuple[BaseNode, ...]:
        return ()
