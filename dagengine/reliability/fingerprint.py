"""What a measurement was made of, as hashes: metrics node by node, judges, data, version."""

from __future__ import annotations

import importlib.metadata
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from dagengine.compiler.definitions import definitions, digest
from dagengine.compiler.lowering import compile_metrics
from dagengine.graph.graph import Metric
from dagengine.question import judge_name
from dagengine.terminal import counted
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
    return Binding(
        version=importlib.metadata.version("dagengine"),
        metrics={metric.spec().name: _nodes(metric) for metric in metrics},
        judges=tuple(judges),
        data=digest([case.content_hash() for case in cases]),
        cases=len(cases),
    )


def changes(old: Binding, new: Binding) -> list[str]:
    """What makes a card of `old` say nothing about `new`, one line each; empty when it holds."""
    return [*_metric_changes(old.metrics, new.metrics), *_other_changes(old, new)]


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


def _other_changes(old: Binding, new: Binding) -> Iterator[str]:
    if old.judges != new.judges:
        yield f"judge: {_judges(old.judges, new.judges)}"
    if old.data != new.data:
        yield f"data: {counted(old.cases, 'case')} → {counted(new.cases, 'case')}, not the same"
    if old.version != new.version:
        yield f"dagengine: {old.version} → {new.version}"


def _judges(old: Sequence[str], new: Sequence[str]) -> str:
    before, after = (" and ".join(dict.fromkeys(map(judge_name, judges))) for judges in (old, new))
    return (
        f"{before} → {after}"
        if before != after
        else f"{after}, with other settings or another object"
    )


def _nodes(metric: Metric) -> dict[str, str]:
    plan = compile_metrics([metric])
    return definitions(plan, plan.metrics[0])
