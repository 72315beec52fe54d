"""A stand-in for a model: it looks for words."""

from dagengine.judges import ScriptedJudge
from dagengine.prompts.evidence import unfence


def answer(question):
    text = unfence(question.messages[-1]["content"])[0].text
    return any(phrase in text for phrase in ("not found", "did not work", "failed"))


judge = ScriptedJudge(answer, name="words")
