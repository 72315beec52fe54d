"""Traces in, scores out: cases from spans, and verdicts back to the spans that they are about."""

from dagengine.traces.score_sending import Sent, send
from dagengine.traces.trace_files import case_of_spans, read_traces
from dagengine.unknown import answer_absent

__all__ = ["Sent", "case_of_spans", "read_traces", "send"]

answer_absent(__name__)
