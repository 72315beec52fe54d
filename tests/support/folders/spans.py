"""Traces of one span, as an exporter writes them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any


def trace_id(number: int) -> str:
    """The id of a trace, as OTLP's JSON has it."""
    return f"{number:032x}"


def export(
    number: int, answer: str = "good", *, failed: bool = False, child: bool = False, **more: Any
) -> dict[str, Any]:
    """An export of one span: the root of a trace, or a `child` of one that is elsewhere."""
    texts = {"input.value": f"question {number}", "output.value": answer}
    span = {
        "traceId": trace_id(number),
        "spanId": f"{number + (1 << 40) * child:016x}",
        "name": "ask",
        "startTimeUnixNano": "1000",
        "endTimeUnixNano": "2000",
        "attributes": [{"key": key, "value": {"stringValue": texts[key]}} for key in texts],
        **({"parentSpanId": f"{number:016x}"} if child else {}),
        **({"status": {"code": 2, "message": "it broke"}} if failed else {}),
        **more,
    }
    return {"resourceSpans": [{"scopeSpans": [{"spans": [span]}]}]}


def line(number: int, answer: str = "good", **more: Any) -> str:
    """The export as a line of a file."""
    return json.dumps(export(number, answer, **more)) + "\n"


def write(path: Path, answers: list[str], first: int = 1, **more: Any) -> None:
    """Add traces with these answers, numbered from `first` on, to a file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a", encoding="utf-8") as file:
        file.writelines(line(first + place, answer, **more) for place, answer in enumerate(answers))
