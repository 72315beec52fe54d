"""A stand-in for a model: it looks for the words in quotation marks of each criterion."""

import re

from dagengine.judges import ScriptedJudge
from dagengine.prompts.evidence import unfence


def answer(question):
    read = {
        one.label: one.text
        for one in unfence(question.messages[-1]["content"].split("\n\nThis was")[0])
    }
    words = re.findall(r"“([^”]+)”", read["criterion 1"])
    found = [word for word in words if word in read["actual_output"].lower()]
    return {"verdict": "met" if found else "unmet", "reason": f"It says {found or 'none of it'}."}


judge = ScriptedJudge(answer, name="words")
