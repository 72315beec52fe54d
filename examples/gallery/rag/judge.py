"""A stand-in for a model: it compares words, and leaves claims to the lexical judge."""

import re

from dagengine.judges import LexicalJudge, ScriptedJudge
from dagengine.prompts.evidence import unfence

LITTLE = {"the", "does", "what", "when", "there", "and"}
LEXICAL = LexicalJudge()


def words(text):
    return {word.rstrip("s") for word in re.findall(r"\w+", text.lower()) if len(word) > 2} - LITTLE


def answer(question):
    read = {one.label: one.text for one in unfence(question.messages[-1]["content"])}
    if question.name == "Admits it":
        return any(phrase in read["actual_output"] for phrase in ("do not say", "do not know"))
    rest = " ".join(text for label, text in read.items() if label != "input")
    return len(words(read["input"]) & words(rest)) > 0


class Words(ScriptedJudge):
    """Answers what the tree asks itself; what is asked about claims is asked elsewhere."""

    async def answer(self, question):
        if question.name in ("Admits it", "Passages answer", "Answers"):
            return await super().answer(question)
        return await LEXICAL.answer(question)


judge = Words(answer, name="words")
