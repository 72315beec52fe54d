"""What is not the same in the trees of one metric in two runs, by their definitions alone."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal

from dagengine.record.run_json_types import MetricRecord, NodeRecord

ChangeKind = Literal["definition", "new", "gone", "renamed", "judge", "threshold", "settings"]


@dataclass(frozen=True, slots=True)
class TreeChange:
    """One thing that changed; `node` is empty for the metric's own settings.

    `old` and `new` are what a reader compares: the questions of a node, its names, its judges,
    or the thresholds. `what` says in words what changed, `data` the keys of its document that did,
    each with the old and the new value.
    """

    kind: ChangeKind
    node: str
    what: str
    old: str | None = None
    new: str | None = None
    old_hash: str | None = None
    new_hash: str | None = None
    data: Mapping[str, Sequence[Any]] = field(default_factory=dict[str, Sequence[Any]])


@dataclass(frozen=True)
class Trees:
    """One metric as two runs had it. Nodes go by their names in the new run."""

    old: MetricRecord
    new: MetricRecord
    old_judges: Sequence[str]
    new_judges: Sequence[str]

    @cached_property
    def renamed(self) -> Mapping[str, str]:
        """New names by old ones, of nodes that say and read the same as a node that is gone."""
        old, new = list(self.old.every_node()), list(self.new.every_node())
        before, after = ({node.name for node in nodes} for nodes in (old, new))
        # Only names that one side alone has: of a node that is in both nobody knows better than
        # its name. A new name for an old question is no change of what is asked.
        gone = {_content(node): node.name for node in old if node.name not in after}
        come = {_content(node): node.name for node in new if node.name not in before}
        return {gone[content]: come[content] for content in come if content in gone}

    @cached_property
    def before(self) -> Mapping[str, NodeRecord]:
        """Nodes of the old run."""
        return {self.renamed.get(node.name, node.name): node for node in self.old.every_node()}

    @cached_property
    def after(self) -> Mapping[str, NodeRecord]:
        """Nodes of the new run."""
        return {node.name: node for node in self.new.every_node()}

    @cached_property
    def order(self) -> tuple[str, ...]:
        """All nodes in topological order; a node that is gone stands after what it followed."""
        # The new tree gives the order. What is gone comes behind its forerunner in the old one:
        #
        #     before  a x b      after  b a c      order  b a x c
        names = list(self.after)
        last = -1
        for name in self.before:
            if name in self.after:
                last = max(last, names.index(name))
            else:
                last += 1
                names.insert(last, name)
        return tuple(names)

    @cached_property
    def known(self) -> frozenset[str]:
        """Names of all nodes."""
        return frozenset(self.order)

    def node(self, name: str) -> NodeRecord:
        """The node as the new run has it, or had it before it was gone."""
        return self.after[name] if name in self.after else self.before[name]

    def decides(self, name: str) -> bool:
        """Whether a node decides or scores, in the new run or before it was gone."""
        tree = self.new if name in self.after else self.old
        node = self.node(name)
        return node.grades or bool(self._leads(tree, node.name))

    def inputs(self, name: str) -> tuple[str, ...]:
        """The nodes that a node reads."""
        return tuple(self.renamed.get(source, source) for source in self.node(name).inputs)

    @cached_property
    def redefined(self) -> Mapping[str, str]:
        """Change of a node, in words, for every node that is not the same."""
        return {name: change for name in self.order if (change := self._redefinition(name))}

    def _redefinition(self, name: str) -> str:
        old, new = self.before.get(name), self.after.get(name)
        if old is None or new is None:
            return "it is new" if old is None else "it is gone"
        if old.hash == new.hash:
            return ""
        if old.question != new.question:
            return "its question changed"
        if self._leads(self.old, old.name) != self._leads(self.new, new.name):
            return "its answers lead elsewhere"
        return "its settings changed" if old.name == new.name else f"it was called {old.name}"

    def _leads(self, tree: MetricRecord, name: str) -> list[tuple[Any, ...]]:
        """Targets of the answers of a node, by the new names of nodes."""
        names = self.renamed if tree is self.old else {}
        leads = list[tuple[Any, ...]]()
        for edge in tree.every_edge():
            if edge.source == name and edge.verdict is not None:
                target = names.get(edge.target or "", edge.target)
                leads.append((type(edge.verdict), edge.verdict, target, edge.score))
        return leads

    @cached_property
    def rejudged(self) -> Mapping[str, tuple[str, str]]:
        """Nodes that ask another judge, with the judges before and now."""
        pairs: dict[str, tuple[str, str]] = {}
        for name in self.before.keys() & self.after.keys():
            old = " and ".join(map(self.old_judges.__getitem__, self.before[name].judges))
            new = " and ".join(map(self.new_judges.__getitem__, self.after[name].judges))
            if old != new:
                pairs[name] = old, new
        return pairs

    @cached_property
    def settings(self) -> str:
        """Change of the metric's settings, in words; empty without one."""
        if self.old.threshold != self.new.threshold:
            limits = (self.old.threshold, self.new.threshold)
            words = ("none" if limit is None else f"{limit:g}" for limit in limits)
            return f"threshold {' → '.join(words)}"
        if self.old.strict != self.new.strict:
            return "strict mode off → on" if self.new.strict else "strict mode on → off"
        if self.old.combine != self.new.combine:
            return f"scores are combined by {self.old.combine} → {self.new.combine}"
        return ""

    def changes(self) -> Iterator[TreeChange]:
        """All that changed: the metric's settings, then node by node."""
        if self.settings:
            kind: ChangeKind = "threshold" if self.settings.startswith("thr") else "settings"
            yield TreeChange(kind, "", self.settings)
        for name in self.order:
            yield from self._changes_of(name)

    def _changes_of(self, name: str) -> Iterator[TreeChange]:
        old, new = self.before.get(name), self.after.get(name)
        if (what := self.redefined.get(name)) is not None:
            kind: ChangeKind = "renamed" if what.startswith("it was called") else "definition"
            if old is None or new is None:
                kind = "new" if old is None else "gone"
            questions = getattr(old, "question", None), getattr(new, "question", None)
            hashes = getattr(old, "hash", None), getattr(new, "hash", None)
            yield TreeChange(kind, name, what, *questions, *hashes, self._data(name))
        if judges := self.rejudged.get(name):
            yield TreeChange("judge", name, " → ".join(judges), *judges)

    def _data(self, name: str) -> dict[str, Sequence[Any]]:
        """The keys of a node's document that changed, if both runs have one."""
        old = _document_of(self.old, self.before.get(name))
        new = _document_of(self.new, self.after.get(name))
        both = old and new and {**old, **new}
        return {key: (old.get(key), new.get(key)) for key in both if old.get(key) != new.get(key)}


def _document_of(metric: MetricRecord, node: NodeRecord | None) -> dict[str, Any]:
    nodes: dict[str, dict[str, Any]] = (metric.tree or {}).get("nodes", {})
    return {} if node is None else nodes.get(node.name, {})


def _content(node: NodeRecord) -> tuple[Any, ...]:
    """Content of a node, whatever its name."""
    return (node.kind, node.question, tuple(node.reads), tuple(node.inputs))
