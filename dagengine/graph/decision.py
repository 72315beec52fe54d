"""Nodes whose verdicts lead somewhere."""

from __future__ import annotations

from typing import Any, ClassVar, NoReturn

from dagengine.errors import InputError
from dagengine.graph.arguments import of_kind, verdict_target
from dagengine.graph.graph import Metric
from dagengine.graph.node import BaseNode, Branch
from dagengine.graph.settings import takes
from dagengine.results import Verdict

_KINDS = {bool: "True or False", str: "a text"}


class VerdictNode(BaseNode):
    """Where one verdict of a decision leads: a score from 0 to 10, a node, or a metric.

    Raises InputError unless exactly one of `score` and `child` is given, and for a score that
    is not a number from 0 to 10.
    """

    kind = "verdict"

    @takes()
    def __init__(
        self,
        verdict: Verdict,
        score: int | None = None,
        child: BaseNode | Metric | None = None,
        *,
        name: str | None = None,
        label: str | None = None,
    ) -> None:
        super().__init__(name=name, label=label)
        self.verdict = of_kind("verdict", verdict, object, "a verdict")
        self.score = score
        self.child = verdict_target(child)
        if (score is None) == (child is None):
            count = "neither" if score is None else "both"
            raise InputError(f"verdict {verdict!r} needs either a score or a child; got {count}")
        if isinstance(score, int | float) and not 0 <= score <= 10:
            raise InputError(f"verdict {verdict!r} has score {score!r}; scores go from 0 to 10")

    @property
    def title(self) -> str:
        return self.name or f"verdict {self.verdict!r}"

    def branches(self) -> tuple[Branch, ...]:
        return () if self.child is None else (Branch(self.verdict, self.child),)

    def add_node(self, child: Any) -> NoReturn:
        """Refuse a child: raises InputError."""
        raise InputError(f"{self.title} takes one child, in its constructor: child={child!r:.60}")


class DecisionNode(BaseNode):
    """A node whose verdicts lead somewhere."""

    verdict_types: ClassVar[tuple[type[str | bool], ...]] = (bool, str)

    def add_verdict(
        self, verdict: Verdict, score: int | None = None, then: BaseNode | Metric | None = None
    ) -> VerdictNode:
        """Declare one more verdict and what it leads to; returns its node.

        `then` is the node or metric that follows; `score` (0 to 10) ends the path instead.
        Raises InputError unless exactly one of `score` and `then` is given. Whether all verdicts
        are there, each once and of the right kind, is asked when the graph is made.
        """
        return self.add_node(VerdictNode(verdict, score=score, child=then))

    def require_child(self, child: object) -> None:
        if not isinstance(child, VerdictNode):
            super().require_child(child)
            return
        title = self.name or type(self).__name__
        if not isinstance(child.verdict, self.verdict_types):
            wanted = " or ".join(_KINDS[kind] for kind in self.verdict_types)
            raise InputError(f"{title}: a verdict is {wanted}, not {child.verdict!r:.60}")
        declared = [sibling for sibling in self.children if isinstance(sibling, VerdictNode)]
        if any(sibling is not child and sibling.verdict == child.verdict for sibling in declared):
            raise InputError(f"{title}: verdict {child.verdict!r} is declared twice")

    def branches(self) -> tuple[Branch, ...]:
        # Verdict nodes come first, then `then`, each as written. Prompts list the verdicts in this
        # order, so it is in the key of every stored answer.
        ways = [
            Branch(child.verdict, child.score if child.child is None else child.child)
            if isinstance(child, VerdictNode)
            else Branch(None, child, bare=True)
            for child in self.children
        ]
        ways += [Branch(verdict, target) for verdict, target in self.then.items()]
        return self._name_bare(tuple(ways))

    def _name_bare(self, branches: tuple[Branch, ...]) -> tuple[Branch, ...]:
        return branches

    def successors(self) -> tuple[BaseNode, ...]:
        # All children are behind verdicts. What is handed on to runs whatever the verdict is.
        return ()
