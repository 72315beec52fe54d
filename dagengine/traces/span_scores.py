"""What a run said about its cases, as scores on the spans that it said it about."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Literal

from dagengine.record.run_json_types import MetricRecord, NodeRecord
from dagengine.results import CaseResult, MetricResult, OutcomeKind, Step

Source = Literal["LLM", "CODE"]


@dataclass(frozen=True)
class Score:
    """One verdict on a span, a trace or a session.

    `name` is the metric, or `metric: node`. `value` is from 0 to 1, `label` a verdict or `pass` or
    `fail`. `error` says why there is neither. `definition` is the hash of what was asked: the same
    question asked again replaces its score, a question in other words gives another one.
    """

    name: str
    definition: str
    source: Source
    trace_id: str | None
    span_id: str | None
    session_id: str | None
    value: float | None = None
    label: str | None = None
    reason: str | None = None
    error: str | None = None
    path: tuple[str, ...] = field(default=())

    @property
    def level(self) -> str:
        """Kind of its subject: a span, a trace or a session."""
        return "span" if self.span_id else "trace" if self.trace_id else "session"

    @property
    def subject_id(self) -> str | None:
        """Id of what it is about."""
        return self.span_id or self.trace_id or self.session_id

    @cached_property
    def id(self) -> str:
        """32 hex digits that tell what was asked about what; equal in every run."""
        key = (self.trace_id, self.span_id, self.session_id, self.name, self.definition)
        return _digest(key)[:32]

    @cached_property
    def key(self) -> str:
        """The id, and 16 more digits for what was said: a journal notes it once it is written."""
        content = (self.value, self.label, self.reason, self.error, self.path)
        return self.id + _digest(content)[:16]


def _digest(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=True)
    return hashlib.sha256(text.encode()).hexdigest()


def scores_of(row: CaseResult, metrics: Mapping[str, MetricRecord]) -> Iterator[Score]:
    """The scores of one row by the metrics of its run; none without a trace."""
    ids = row.trace or {}
    trace, span, session = map(ids.get, ("trace_id", "span_id", "session_id"))
    if trace is None and session is None:
        return
    # A trace itself is no span.
    own = None if span == trace else span
    fields: dict[str, Any] = {"trace_id": trace, "span_id": own, "session_id": session}
    for result in row.metrics:
        metric = metrics.get(result.metric)
        if metric is not None:
            nodes = {node.name: node for node in metric.nodes_and_nested()}
            yield Score(
                result.metric,
                metric.hash,
                _source(nodes.values()),
                value=result.score,
                label={True: "pass", False: "fail", None: None}[result.success],
                reason=result.why or None,
                error=None if result.failure is None else str(result.failure.kind),
                path=tuple(f"{node}={verdict}" for node, verdict in result.path),
                **fields,
            )
            for step in result.steps:
                if (node := nodes.get(step.node)) is not None:
                    yield from _of_step(result, step, node, fields)


def _source(nodes: Iterable[NodeRecord]) -> Source:
    return "LLM" if any(node.judges for node in nodes) else "CODE"


def _of_step(
    result: MetricResult, step: Step, node: NodeRecord, place: dict[str, Any]
) -> Iterator[Score]:
    """The scores of one node: one for each span that it went over, else one for the case."""
    name = f"{result.metric}: {step.node}"
    empty = Score(name, node.hash or "", _source([node]), **place)
    if step.outcome is not OutcomeKind.OK:
        yield replace(empty, reason=step.reason, error=str(step.outcome))
    elif step.spans and isinstance(step.output, list) and len(step.output) == len(step.spans):
        for span, item in zip(step.spans, step.output, strict=True):
            if isinstance(item, dict) and "verdict" in item:
                label, value = _verdict(item["verdict"])
                reason = item.get("reason")
                yield replace(empty, span_id=span, value=value, label=label, reason=reason)
    elif step.verdict is not None or step.score is not None:
        label, value = _verdict(step.verdict)
        value = value if step.score is None else step.score
        for subject in step.spans or (empty.span_id,):
            yield replace(empty, span_id=subject, value=value, label=label, reason=step.reason)


def _verdict(verdict: Any) -> tuple[str | None, float | None]:
    """A verdict as a label, and yes and no also as 1 and 0."""
    if verdict is None:
        return None, None
    if isinstance(verdict, bool):
        return ("yes" if verdict else "no"), float(verdict)
    label = str(verdict)
    return label, {"yes": 1.0, "no": 0.0}.get(label.lower())
