"""Scores written to real servers of Phoenix and MLflow, where one runs: see CONTRIBUTING.md."""

from __future__ import annotations

import os
import secrets
import struct
from pathlib import Path
from typing import Any

import httpx2
import pytest

from dagengine import evaluate
from dagengine.graph import MapNode
from dagengine.judges import ScriptedJudge
from dagengine.metrics import DAGMetric
from dagengine.metrics.dag import DAG, CodeNode
from dagengine.test_case import LLMTestCase, Span
from dagengine.traces import send

SERVERS = {"phoenix": "DAGENGINE_PHOENIX", "mlflow": "DAGENGINE_MLFLOW"}


def field(number: int, value: bytes | int) -> bytes:
    """A field of a protobuf message, shorter than 128 bytes; numbers take 64 bits."""
    if isinstance(value, int):
        return bytes([number << 3 | 1]) + struct.pack("<Q", value)
    assert len(value) < 128
    return bytes([number << 3 | 2, len(value)]) + value


def span_message(trace: str, span: str, parent: str) -> bytes:
    """An export of one span: the form that both servers take."""
    ids = field(1, bytes.fromhex(trace)) + field(2, bytes.fromhex(span))
    inside = field(4, bytes.fromhex(parent)) if parent else b""
    times = field(7, 1_793_919_599 * 10**9) + field(8, 1_793_919_600 * 10**9)
    return field(1, field(2, field(2, ids + inside + field(5, b"step") + times)))


def share(verdicts: list[Any]) -> float:
    return float(sum(verdict.verdict for verdict in verdicts) / len(verdicts))


def run_about(folder: Path, traces: list[str], spans: tuple[str, str]) -> None:
    """A run over cases of these traces: a verdict about the last span, and a score of the first."""
    each = MapNode("Is it right?", "tools", "right", answer=bool, item_label="call", name="right")
    metric = DAGMetric("Right", DAG(CodeNode(share, inputs=[each], name="share")))
    cases = [
        LLMTestCase(
            input="?",
            actual_output="!",
            spans=[Span(span_id=last, trace_id=trace, kind="tool", name="step")],
            additional_metadata={"trace_id": trace, "span_id": first},
        )
        for trace, (first, last) in zip(traces, (spans, ("a" * 16, "b" * 16)), strict=True)
    ]
    judge = ScriptedJudge({"right": False})
    evaluate(cases, [metric], model=judge, show=False, out=folder, page=False)


def scores_at(kind: str, url: str, trace: str, spans: tuple[str, str]) -> list[tuple[Any, ...]]:
    """What the server has about the spans of a trace: span, name and score."""
    if kind == "phoenix":
        asked: dict[str, Any] = {"span_ids": list(spans), "limit": 1000}
        path = f"{url}/v1/projects/default/span_annotations"
        listed = httpx2.get(path, params=asked, timeout=60).json()["data"]
        return sorted((one["span_id"], one["name"], one["result"]["score"]) for one in listed)
    answer = httpx2.get(f"{url}/api/3.0/mlflow/traces/tr-{trace}", timeout=60).json()
    listed = answer["trace"]["trace_info"].get("assessments", [])
    return sorted(
        (one["span_id"], one["assessment_name"], one["feedback"]["value"]) for one in listed
    )


@pytest.mark.parametrize("kind", SERVERS)
def test_a_real_server_has_every_score_once(kind: str, tmp_path: Path) -> None:
    url = os.environ.get(SERVERS[kind], "").rstrip("/")
    if not url:
        pytest.skip(f"no server of {kind}: set {SERVERS[kind]} to its address")
    trace, unknown = secrets.token_hex(16), secrets.token_hex(16)
    spans = secrets.token_hex(8), secrets.token_hex(8)
    headers = {"content-type": "application/x-protobuf", "x-mlflow-experiment-id": "0"}
    for span, parent in zip(spans, ("", spans[0]), strict=True):
        message = span_message(trace, span, parent)
        taken = httpx2.post(f"{url}/v1/traces", content=message, headers=headers, timeout=60)
        taken.raise_for_status()
    run_about(tmp_path / "run", [trace, unknown], spans)
    to = f"{kind}={url}"
    first = send(tmp_path / "run", to)
    for _ in range(20):  # a server may take spans before it stores them
        if first.absent == 3:
            break
        first = send(tmp_path / "run", to)
    assert (first.absent, first.failed, first.written + first.earlier) == (3, 0, 3)
    there = scores_at(kind, url, trace, spans)
    wanted = [(spans[0], "Right", 0.0), (spans[0], "Right: share", 0.0)]
    assert there == sorted([*wanted, (spans[1], "Right: right", 0.0)])
    again = send(tmp_path / "run", to)
    assert (again.written, again.earlier, again.absent) == (0, 3, 3)
    # Without its journal everything is written again, and nothing is there twice.
    (tmp_path / "run" / "sent.jsonl").unlink()
    assert send(tmp_path / "run", to).written == 3
    assert scores_at(kind, url, trace, spans) == there
