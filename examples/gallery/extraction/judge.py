"""A stand-in for a model: it looks a value up."""

from dagengine.judges import ScriptedJudge
from dagengine.prompts.evidence import unfence


def answer(question):
    read = {one.label: one.text for one in unfence(question.messages[-1]["content"])}
    return read["value"].partition(": ")[2] in read["input"]


judge = ScriptedJudge(answer, name="words")
