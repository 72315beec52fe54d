"""What a measurement was made of, as hashes: metrics node by node, judges, data, version."""

from __future__ import annotations

import importlib.metadata
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from dagengine.compiler.definitions import definitions, digest
from dagengine.compiler.plan import compile_metrics
from dagengine.graph.graph import Metric
from dagengine.question import judge_name
from dagengine.system.terminal import counted
from dagengine.test_case import TestCase


@dataclass(frozen=True, slots=True)
class Binding:
    """What a card speaks about.

    `metrics` contain, by metric and node, the SHA-256 of everything that the node says, reads and
    leads to. The node "" stands for the metric's own settings. `judges` are their identities,
    `data` the SHA-256 of all cases in order.
    """

    version: str
    metrics: dict[str, dict[str, str]]
    judges: tuple[str, ...]
    data: str
    cases: int

    @property
    def sha256(self) -> str:
        """One hash for all of it."""
        return digest([self.version, self.metrics, self.judges, self.data])

    def metric_hash(self, metric: str) -> str:
        """One hash for all of a metric."""
        return digest(self.metrics[metric])


def bind(metrics: Sequence[Metric], judges: Sequence[str], cases: Sequence[TestCase]) -> Binding:
    """The binding of a measurement; raises GraphError when a metric does not compile."""
    plans = [(metric.spec().name, compile_metrics([metric])) for metric in metrics]
    return Binding(
        version=importlib.metadata.version("dagengine"),
        metrics={name: definitions(plan, plan.metrics[0]) for name, plan in plans},
        judges=tuple(judges),
        data=digest([case.content_hash() for case in cases]),
        cases=len(cases),
    )


def changes(old: Binding, new: Binding) -> list[str]:
    """Reasons why a card of `old` says nothing about `new`; empty if it holds."""
    lines = list(_metric_changes(old.metrics, new.metrics))
    if old.judges != new.judges:
        before, after = (
            " and ".join(dict.fromkeys(map(judge_name, judges)))
            for judges in (old.judges, new.judges)
        )
        # Identities hold settings, too: judges of one name may still differ.
        if before != after:
            lines.append(f"judge: {before} → {after}")
        else:
            lines.append(f"judge: {after}, with other settings or another object")
    if old.data != new.data:
        sizes = f"{counted(old.cases, 'case')} → {counted(new.cases, 'case')}"
        lines.append(f"data: {sizes}, not the same")
    if old.version != new.version:
        lines.append(f"dagengine: {old.version} → {new.version}")
    return lines


def _metric_changes(
    old: Mapping[str, Mapping[str, str]], new: Mapping[str, Mapping[str, str]]
) -> Iterator[str]:
    for metric in {**old, **new}:
        if metric not in new:
            yield f"metric {metric!r} is gone"
        elif metric not in old:
            yield f"metric {metric!r} is new"
        else:
            for node in {**old[metric], **new[metric]}:
                before, after = old[metric].get(node), new[metric].get(node)
                if before != after:
                    how = "is new" if before is None else "is gone" if after is None else "changed"
                    subject = f"node {node!r}" if node else "its settings"
                    yield f"metric {metric!r}: {subject} {how}"
