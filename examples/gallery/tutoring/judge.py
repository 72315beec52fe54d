"""A stand-in for a model: it multiplies, and looks for words."""

import re

from dagengine.judges import ScriptedJudge
from dagengine.prompts.evidence import unfence


def answer(question):
    (text,) = (one.text for one in unfence(question.messages[-1]["content"]))
    if question.name == "Pupil is right":
        first, second, given = map(int, re.findall(r"\d+", text))
        return first * second == given
    if question.name == "Tells the result":
        return "it is" in text
    if question.name == "Confirms":
        return text.startswith("Yes")
    return "stupid" not in text


judge = ScriptedJudge(answer, name="words")
