"""Small runs of a support-answer tree, recorded in folders, for what looks at records."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from dagengine import evaluate
from dagengine.judges import ScriptedJudge
from dagengine.metrics import DAGMetric
from dagengine.metrics.dag import (
    DAG,
    BinaryJudgementNode,
    CodeNode,
    NonBinaryJudgementNode,
    RatingNode,
    TaskNode,
)
from dagengine.question import Question
from dagengine.test_case import LLMTestCase

READS = ["actual_output"]
Said = Callable[[str, str], Any]
"""What a judge says: from the name of a node and the text of the question."""


def support_metric(question: str = "Does Steps name a next step?", **more: Any) -> DAGMetric:
    """Code, then a judgement of three ways; one of them over a task, and a rating at an end."""
    empathy = RatingNode("How kind?", evaluation_params=READS, name="Empathy", scale=(0, 10))
    tone = NonBinaryJudgementNode(
        "How does `actual_output` speak?", evaluation_params=READS, name="Tone",
        then={"warm": 10, "rude": 0, "apologetic": empathy},
    )  # fmt: skip
    step = BinaryJudgementNode(question, name="Next step", then={True: tone, False: 3})
    steps = TaskNode("List the steps.", "Steps", evaluation_params=READS, children=[step])
    kind = NonBinaryJudgementNode(
        "What does `input` ask for?", evaluation_params=["input"], name="Kind",
        then={"help": step, "other": tone},
    )  # fmt: skip
    length = CodeNode(
        lambda text: "ok" if len(text) > 3 else "too short", evaluation_params=READS,
        name="Length", then={"too short": 0, "ok": kind},
    )  # fmt: skip
    return DAGMetric("Support quality", DAG(root_nodes=[length, steps]), **more)


def cases(count: int, **more: Any) -> list[LLMTestCase]:
    """Cases whose texts hold their number."""
    return [
        LLMTestCase(name=f"ticket {n}", input=f"question {n}", actual_output=f"answer {n}", **more)
        for n in range(count)
    ]


def usual(node: str, text: str) -> Any:
    """Everything is well: a next step, which names what it is about, and a warm tone."""
    if node == "Steps":
        return f"1. Ask about {' '.join(re.findall(r'answer [0-9]+', text))}."
    return {"Kind": "help", "Next step": True, "Tone": "warm", "Empathy": 8}[node]


def but(*changes: tuple[str, str, Any]) -> Said:
    """The usual answers but for some, each for a node and a text that the question holds."""

    def said(node: str, text: str) -> Any:
        for name, part, answer in changes:
            if name == node and part in text:
                return answer
        return usual(node, text)

    return said


def judge_of(said: Said, name: str = "scripted") -> ScriptedJudge:
    """A judge that answers so."""

    def answer(question: Question[Any]) -> Any:
        return said(question.name, f"{question.messages[-1]['content']}\n")

    return ScriptedJudge(answer, name=name)


def record(
    folder: Path, said: Said = usual, over: Iterable[LLMTestCase] | int = 4,
    metric: DAGMetric | None = None, judge: str = "scripted", **more: Any,
) -> Path:  # fmt: skip
    """Run a metric over some cases and record it in a folder, which is handed back."""
    given = cases(over) if isinstance(over, int) else list(over)
    evaluate(
        given, [metric or support_metric()], model=judge_of(said, judge), out=folder, show=False,
        **more,
    )  # fmt: skip
    return folder
