"""A stand-in for a model: it looks for words."""

from dagengine.judges import ScriptedJudge
from dagengine.prompts.evidence import unfence


def answer(question):
    text = unfence(question.messages[-1]["content"])[0].text.lower()
    if question.name == "About the code":
        return not any(word in text for word in ("who writes", "stupid", "you never"))
    return any(word in text for word in ("use ", "read it from", "name the", "add "))


judge = ScriptedJudge(answer, name="words")
