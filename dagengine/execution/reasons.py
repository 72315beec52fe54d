"""The reason of a metric, when the judge is to write it: one last call."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import anyio

from dagengine.errors import JudgeError
from dagengine.execution.node_run import GatewayAsk
from dagengine.graph.graph import MetricSpec
from dagengine.prompts.answer_types import output_type
from dagengine.prompts.evidence import Evidence
from dagengine.prompts.instructions import messages_for, with_bounds
from dagengine.question import DEFAULT_OPTIONS, Message, Question
from dagengine.results import MetricResult

_REASON = (
    "Explain in two or three sentences, to somebody who reads a report, why an evaluation "
    "ended with this score. Use only the recorded path."
)


def wants_reason(spec: MetricSpec, result: MetricResult) -> bool:
    """Return whether the judge is to write the reason of a result."""
    if result.score is None or not (spec.judged_reason and spec.include_reason):
        return False
    return spec.reason_if_perfect or result.score < 1


def reason_question(spec: MetricSpec, result: MetricResult) -> Question[Any]:
    """The question for a reason, in the metric's own words if it has some."""
    score, path = result.score or 0.0, result.reason or ""  # so far it is the path in words
    answer_type = output_type(str)
    if spec.reason_wording is not None:
        own: Message = {"role": "user", "content": spec.reason_wording(score, path)}
        return Question((own,), answer_type, name=f"{result.metric} reason")
    evidence = [Evidence("path", path), Evidence("score", f"{score:.4g} of 1")]
    messages = with_bounds(messages_for(_REASON, evidence), answer_type, DEFAULT_OPTIONS)
    return Question(messages, answer_type, name=f"{result.metric} reason")


async def write_reason(
    result: MetricResult, question: Question[Any], ask: GatewayAsk, deadline: float
) -> MetricResult:
    """The result with the answer to one last call; if that fails, with a note that says why."""
    why = "the case's time was over"  # then the scope ends without an exception
    with anyio.CancelScope(deadline=deadline):
        try:
            answer: Any = await ask(question)
            return replace(result, reason=answer.value.output)
        except JudgeError as error:
            why = str(error)
    note = f"(no reason written by the judge: {why})"
    return replace(result, reason=f"{result.reason or ''}\n{note}".strip())
