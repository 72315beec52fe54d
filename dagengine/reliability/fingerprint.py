"""What a measurement was made of, as hashes: metrics node by node, judges, data, version."""

from __future__ import annotations

import importlib.metadata
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from dagengine.compiler.execution_plan import compile_metrics
from dagengine.compiler.metric_hashes import definitions, digest
from dagengine.graph.graph import Metric
from dagengine.question import judge_name
from dagengine.system.terminal_text import counted, text_if
from dagengine.test_case import TestCase


@dataclass(frozen=True, slots=True)
class Binding:
    """The subject of a card: that of which it holds.

    `metrics` contain, by metric and node, the SHA-256 of everything that the node asks, reads and
    leads to. The node "" stands for the metric's own settings. `judges` are the identities of the
    judges, `data` is the SHA-256 of all cases in order.
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
    """Differences because of which a card of `old` does not hold for `new`; empty if it holds."""
    lines = list(_metric_changes(old.metrics, new.metrics))
    if old.judges != new.judges:
        old_judges, new_judges = (" and ".join(dict.fromkeys(map(judge_name, binding.judges)))
                                  for binding in (old, new))  # fmt: skip
        # Identities contain settings, too: judges of one name may still differ.
        if old_judges != new_judges:
            lines.append(f"judge: {old_judges} → {new_judges}")
        else:
            lines.append(f"judge: {new_judges}, with other settings or another object")
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
        if metric in old and metric in new:
            for node in {**old[metric], **new[metric]}:
                subject = f"node {node!r}" if node else "its settings"
                if change := _change(node, old[metric], new[metric]):
                    yield f"metric {metric!r}: {subject} {change}"
        else:
            yield f"metric {metric!r} {_change(metric, old, new)}"


def _change(name: str, old: Mapping[str, object], new: Mapping[str, object]) -> str:
    """The change of what a name stands for, in words; empty if there is none."""
    if name not in old:
        return "is new"
    if name not in new:
        return "is gone"
    return text_if(old[name] != new[name], "changed")
