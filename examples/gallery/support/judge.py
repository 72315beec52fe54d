"""A stand-in for a model: it looks for words."""

from dagengine.judges import ScriptedJudge
from dagengine.prompts.evidence import unfence

WORDS = {
    "Helps": ("restart", "replace", "refund", "reset", "update"),
    "Asks back": ("?", "tell us"),
    "Guarantees": ("guarantee", "promise you"),
}


def answer(question):
    read = {one.label: one.text.lower() for one in unfence(question.messages[-1]["content"])}
    text = read["actual_output"]
    if question.name == "Tone":
        if any(word in text for word in ("obviously", "should have")):
            return "rude"
        return (
            "friendly" if any(word in text for word in ("sorry", "happy", "thank")) else "neutral"
        )
    return any(word in text for word in WORDS[question.name])


judge = ScriptedJudge(answer, name="words")
