"""A tree that judges answers of a help desk, with a scripted judge: what tests of pages look at."""

from __future__ import annotations

from typing import Any

from dagengine.errors import RefusedError, UnparseableError
from dagengine.judges import ScriptedJudge
from dagengine.metrics import DAGMetric
from dagengine.metrics.dag import (
    DAG,
    BinaryJudgementNode,
    CodeNode,
    NonBinaryJudgementNode,
    RatingNode,
    TaskNode,
    VerdictNode,
)
from dagengine.prompts.evidence import unfence
from dagengine.question import Question
from dagengine.test_case import LLMTestCase

_QUESTIONS = (
    ("How do I change my password?", "help"),
    ("I returned the lamp three weeks ago and still have no money.", "refund"),
    ("Where is my parcel? It was due on Monday.", "help"),
    ("Do you also ship to Norway?", "other"),
    ("The blender stopped after two days. I would like a refund.", "refund"),
    ("My invoice has the wrong address.", "help"),
)
_ANSWERS = (
    "Open Settings, then Security, and press “Change password”. Shout if it sticks, we are here!",
    "You should have read the manual. It is all in there.",
    "I am sorry about that. Please open Orders and send us the number; we reply within a day.",
    "No.",
    "Your case was handed on. It takes 3 to 5 days.",
    "We are looking into it, as everybody can see.",
    "I am sorry. It is as it is.",
)
_REASONS = {
    "warm": "Greets, and invites the customer to come back.",
    "neutral": "Plain and correct; no greeting, no regret.",
    "rude": "It lectures the customer: “You should have read the manual.”",
    "apologetic": "It opens with “I am sorry”.",
}


def support_cases(count: int) -> list[LLMTestCase]:
    """Tickets with every mix of question and answer in turn."""
    return [
        LLMTestCase(
            name=f"ticket {1041 + place}",
            input=_QUESTIONS[place % len(_QUESTIONS)][0],
            actual_output=_ANSWERS[(place * 5 + place // 7) % len(_ANSWERS)],
            context=["Refunds within 30 days with receipt.", "Parcels arrive in 3 to 5 days."],
            tags=["night" if place % 3 else "day"],
        )
        for place in range(count)
    ]


def support_metric() -> DAGMetric:
    """Length, kind of request, policy or next step, tone, and empathy as a metric of its own."""
    empathy = DAGMetric(
        "Empathy",
        DAG(root_node=RatingNode("How much does `actual_output` care?", ["actual_output"])),
    )
    tone = NonBinaryJudgementNode(
        "How does `actual_output` speak to the customer?",
        evaluation_params=["actual_output"],
        children=[
            VerdictNode("warm", score=10),
            VerdictNode("neutral", score=7),
            VerdictNode("rude", score=0),
            VerdictNode("apologetic", child=empathy),
        ],
        name="Tone",
    )
    policy = BinaryJudgementNode(
        "Does `actual_output` keep to `context`?",
        evaluation_params=["actual_output", "context"],
        then={True: tone, False: 1},
        name="Policy",
    )
    step = BinaryJudgementNode(
        "Does `Steps` name at least one concrete next step?",
        then={True: tone, False: 3},
        name="Next step",
    )
    steps = TaskNode(
        "List the steps that `actual_output` asks the customer to take.",
        output_label="Steps",
        evaluation_params=["actual_output"],
        children=[step],
    )
    kind = NonBinaryJudgementNode(
        "What does the customer in `input` want?",
        evaluation_params=["input"],
        then={"refund": policy, "other": tone, "help": step},
        name="Kind of request",
    )
    length = CodeNode(
        lambda text: "ok" if len(text.split()) >= 3 else "too short",
        evaluation_params=["actual_output"],
        then={"too short": 0, "ok": kind},
        name="Length",
    )
    return DAGMetric("Support quality", DAG(root_nodes=[length, steps]))


def support_judge() -> ScriptedJudge:
    """Answers from the words of a case; two kinds of cases get no answer."""
    return ScriptedJudge(_answer, name="support")


def _answer(question: Question[Any]) -> Any:
    # A question that is put again has more messages; the evidence stands in the first of the user.
    evidence = next(m["content"] for m in question.messages if m["role"] == "user")
    texts = {piece.label: piece.text for piece in unfence(evidence)}
    output, asked = texts.get("actual_output", ""), texts.get("input", "")
    if question.name == "Kind of request":
        kind = next(kind for text, kind in _QUESTIONS if text == asked)
        return {"verdict": kind, "reason": f"The customer wants: {kind}."}
    if question.name == "Steps":
        return "Open Orders; send the number" if "open" in output.lower() else "none"
    if question.name == "Next step":
        found = texts["Steps"] != "none"
        reason = "`Steps` names an action." if found else "`Steps` is empty."
        return {"verdict": found, "reason": reason}
    if question.name == "Policy":
        if "handed on" in output:
            return UnparseableError("no verdict in the answer", "It depends.")
        return {"verdict": True, "reason": "Nothing in it goes beyond the context."}
    if question.name == "Tone":
        return _tone(output)
    return {"score": 4 if "as it is" in output else 8, "reason": "It regrets, and little more."}


def _tone(output: str) -> Any:
    if "everybody" in output:
        return RefusedError("the judge refused to answer (content filter)")
    for word, tone in (("sorry", "apologetic"), ("should have", "rude"), ("!", "warm")):
        if word in output:
            return {"verdict": tone, "reason": _REASONS[tone]}
    return {"verdict": "neutral", "reason": _REASONS["neutral"]}
