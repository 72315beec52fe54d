"""A run over traces of several days, as a watch leaves it."""

from __future__ import annotations

import json
from pathlib import Path

from dagengine import evaluate
from dagengine.judges import ScriptedJudge
from dagengine.metrics import DAGMetric
from dagengine.metrics.dag import DAG, BinaryJudgementNode
from dagengine.test_case import LLMTestCase

ALARM = {
    "time": "2026-11-24T05:00:00+00:00", "row": 9, "metric": "Solved", "group": "all",
    "before": 0.75, "now": 0.25, "cases": 40, "cause": "app", "judge": [0.0, 0.01],
    "traffic": None, "again": 200, "path": "Solved = False",
}  # fmt: skip


def case(number: int, day: int, answer: str, stratum: str, probability: float) -> LLMTestCase:
    """A case as a watch reads it from a trace of a day of November 2026."""
    ids = {
        "trace_id": f"{number:032x}",
        "span_id": f"{number:016x}",
        "trace.started": f"2026-11-{day:02}T23:59:59+00:00",
        "watch.stratum": stratum,
        "watch.probability": repr(probability),
        "watch.characters": "8",
    }
    return LLMTestCase(
        name=f"trace {number}", input="question", actual_output=answer, additional_metadata=ids
    )


def days(folder: Path) -> Path:
    """Twelve traces of three days in two strata, one judged at 50 %; an alarm on the last day."""
    answers = ["good"] * 8 + ["good", "bad", "bad", "bad"]
    cases = [
        case(number, (3, 4, 6)[number // 4], answer, *(("errors", 1.0), ("rest", 0.5))[number % 2])
        for number, answer in enumerate(answers)
    ]
    root = BinaryJudgementNode(
        "Solved?", evaluation_params=["actual_output"], then={True: 10, False: 0}, name="Solved"
    )
    judge = ScriptedJudge(lambda asked: "good" in asked.messages[-1]["content"], name="s")
    metrics = [DAGMetric("Solved", DAG(root))]
    evaluate(cases, metrics, model=judge, show=False, out=folder)
    folder.joinpath("alerts.jsonl").write_text(json.dumps(ALARM) + "\n", encoding="utf-8")
    return folder
