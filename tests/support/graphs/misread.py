"""A tree whose judge misreads one criterion until it says a rule, with cases and labels."""

from __future__ import annotations

import json
from random import Random
from typing import Any

from dagengine.metrics import DAGMetric
from dagengine.metrics.dag import DAG, BinaryJudgementNode
from dagengine.question import Question
from dagengine.test_case import LLMTestCase

RULE = "quoted words do not count"
METRICS = '''"""Whether an answer is polite."""

from dagengine.metrics import DAGMetric
from dagengine.metrics.dag import DAG, BinaryJudgementNode

sources = BinaryJudgementNode(
    "Does it name its sources?",
    evaluation_params=["actual_output"],
    then={True: 10, False: 0},
    name="Sources",
)
tone = BinaryJudgementNode(
    "Is the answer polite?",
    evaluation_params=["actual_output"],
    then={True: sources, False: 0},
    name="Tone",
)
metric = DAGMetric("Manners", DAG(tone))
'''


def single(**more: Any) -> DAGMetric:
    """One question about the tone."""
    tone = BinaryJudgementNode(
        "Is the answer polite?", evaluation_params=["actual_output"],
        then={True: 10, False: 0}, name="Tone",
    )  # fmt: skip
    return DAGMetric("Manners", DAG(tone), **more)


def chain() -> DAGMetric:
    """The tree of `METRICS`."""
    names: dict[str, Any] = {}
    exec(METRICS, names)
    metric = names["metric"]
    assert isinstance(metric, DAGMetric)
    return metric


def texts(count: int, quoted: float = 0.5) -> list[str]:
    """Answers that say whether they are polite and have sources; some quote somebody."""
    random = Random(7)
    return [
        f"answer {number}: polite={random.random() < 0.6} sources={random.random() < 0.9}"
        + " quoted" * (random.random() < quoted)
        for number in range(count)
    ]


def cases(count: int, quoted: float = 0.5) -> list[LLMTestCase]:
    """The answers as cases, with names."""
    return [
        LLMTestCase(name=f"case {number}", input="Write.", actual_output=text)
        for number, text in enumerate(texts(count, quoted))
    ]


def is_good(text: str, *, sources: bool = False) -> bool:
    """What people say of an answer; with `sources` as the tree of `METRICS` asks."""
    return "polite=True" in text and (not sources or "sources=True" in text)


def labels(count: int, quoted: float = 0.5, *, sources: bool = False) -> dict[int, bool]:
    """The labels of the cases."""
    return {n: is_good(text, sources=sources) for n, text in enumerate(texts(count, quoted))}


def answer(question: Question[Any]) -> Any:
    """A judge that takes quoted words for the answer's own, until the criterion says the rule."""
    text = question.messages[-1]["content"]
    if question.name == "New criterion":
        again = text.count("write another edit")
        return f"Is the answer polite; {RULE}{' here' * again}?"
    case = text.partition("<<<BEGIN solved")[0]
    if question.name == "Sources":
        return {"verdict": "sources=True" in case}
    if question.name == "Whole":
        return {"verdict": is_good(case, sources=True)}
    wrong = "quoted" in case and RULE not in text and "solved example" not in text
    return {"verdict": ("polite=True" in case) != wrong}


JUDGE = f"""
import json
from dagengine.judges import ScriptedJudge
RULE = {json.dumps(RULE)}

def answer(question):
    text = question.messages[-1]["content"]
    if question.name == "New criterion":
        return f"Is the answer polite; {{RULE}}{{' here' * text.count('write another edit')}}?"
    case = text.partition("<<<BEGIN solved")[0]
    if question.name == "Sources":
        return {{"verdict": "sources=True" in case}}
    if question.name == "Whole":
        return {{"verdict": "polite=True" in case and "sources=True" in case}}
    wrong = "quoted" in case and RULE not in text and "solved example" not in text
    return {{"verdict": ("polite=True" in case) != wrong}}

judge = ScriptedJudge(answer, name="misreads")
"""
