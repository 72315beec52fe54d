"""A stand-in for a model: a query that counts answers "how many"."""

from dagengine.judges import ScriptedJudge
from dagengine.prompts.evidence import unfence


def answer(question):
    read = {one.label: one.text.lower() for one in unfence(question.messages[-1]["content"])}
    return ("how many" in read["input"]) == ("count" in read["actual_output"])


judge = ScriptedJudge(answer, name="words")
