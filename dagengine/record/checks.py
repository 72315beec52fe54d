"""Whether a record that was read fits together: others may have made it, or a disk damaged it."""

from __future__ import annotations

from collections.abc import Iterator

from dagengine.record.values import Manifest, MetricRecord

NODES, DEPTH = 10_000, 50
"""How many nodes the metrics of a run may have in all, and how deep metrics may be nested."""


def flaw_of(manifest: Manifest) -> str | None:
    """Contradiction of settings, as the end of a sentence; None if everything does."""
    # A loop, and before all else: what walks the metrics later calls itself for nested ones, and a
    # record that is nested deep enough would end it with a RecursionError.
    waiting, nodes = [(metric, 1) for metric in manifest.metrics], 0
    while waiting:
        metric, depth = waiting.pop()
        nodes += len(metric.nodes)
        if nodes > NODES:
            return f"its metrics have more than {NODES:,} nodes"
        if depth > DEPTH:
            return f"its metrics are nested more than {DEPTH} deep"
        waiting += [(node.metric, depth + 1) for node in metric.nodes if node.metric is not None]
    return next(_flaws(manifest), None)


def _flaws(manifest: Manifest) -> Iterator[str]:
    judges = set(range(len(manifest.judges)))
    for metric in manifest.metrics:
        nodes = [node for inner in _metrics(metric) for node in inner.nodes]
        names = {node.name for node in nodes}
        for node in nodes:
            where = f"the node {node.name!r:.80} of {metric.name!r:.80}"
            for judge in sorted({*node.judges} - judges):
                yield f"{where} asks the judge {judge}, and there are {len(judges)}"
            for name in sorted({*node.inputs} - names):
                yield f"{where} reads the node {name!r:.80}, which is not there"
        for edge in (edge for inner in _metrics(metric) for edge in inner.edges):
            for end in (edge.source, edge.target):
                if end not in {*names, None}:
                    yield f"an edge of {metric.name!r:.80} names {end!r:.80}, which is no node"
    for spent in manifest.usage:
        if spent.judge not in {*judges, None}:
            yield f"the judge {spent.judge} was used, and there are {len(judges)}"


def _metrics(metric: MetricRecord) -> Iterator[MetricRecord]:
    """A metric and those that are nested in it."""
    yield metric
    for node in metric.nodes:
        if node.metric is not None:
            yield from _metrics(node.metric)
