"""A stand-in for a model: it compares words."""

import re

from dagengine.judges import ScriptedJudge
from dagengine.prompts.evidence import unfence

OPINIONS = {"sadly", "luckily", "beautiful"}


def words(text):
    return {word[:4] for word in re.findall(r"\w{4,}|\d+", text.lower())} - {"ther", "that", "this"}


def answer(question):
    read = {one.label: one.text for one in unfence(question.messages[-1]["content"])}
    summary = read.get("actual_output", "")
    if question.name == "facts":
        return re.split(r"(?<=\.)\s+", read["input"])
    if question.name == "covered":
        fact = words(read["fact"])
        return len(fact & words(summary)) >= len(fact) / 2
    if question.name == "Neutral":
        return not OPINIONS & set(re.findall(r"\w+", summary.lower()))
    return not set(re.findall(r"\d+", summary)) - set(re.findall(r"\d+", read["input"]))


judge = ScriptedJudge(answer, name="words")
