"""A stand-in for a model: it counts sentences and looks for words."""

import re

from dagengine.judges import ScriptedJudge
from dagengine.prompts.evidence import unfence


def answer(question):
    read = {one.label: one.text for one in unfence(question.messages[-1]["content"])}
    german, english = read.get("German text", ""), read["English text"]
    if question.name == "Complete":
        return len(re.findall(r"[.?!]", german)) <= len(re.findall(r"[.?!]", english))
    if question.name == "Translated":
        return re.search(r"[äöüß]", english) is None
    return "Hey" not in english


judge = ScriptedJudge(answer, name="words")
