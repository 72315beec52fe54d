"""A stand-in for a model: it looks for words, and can word a criterion anew."""

import re

from dagengine.judges import ScriptedJudge
from dagengine.prompts.evidence import split_evidence

RULE = "harsh words about the product are none"
REASONS = ("because", "after", "since")
HARSH, PEOPLE = ("rubbish", "useless", "junk"), ("idiot", "liar", "crook")


def has(text, words):
    return any(re.search(rf"\b{word}s?\b", text) for word in words)


def answer(question):
    evidence, criterion = split_evidence(question.messages[-1]["content"])
    read = {part.label: part.text.lower() for part in evidence}
    if question.name == "New criterion":
        return f"Does `actual_output` contain insults ({RULE})?"
    if question.name == "Two criteria":
        return "ONE"
    review, product = read["actual_output"], read.get("input", "").split()[-1:]
    verdicts = {
        "Topic": has(review, product),
        "Insults": has(review, PEOPLE if RULE in criterion else (*PEOPLE, *HARSH)),
        "Reasons": has(review, REASONS),
    }
    if question.name == "Insults and Reasons":
        return verdicts["Reasons"] and not verdicts["Insults"]
    if question.name == "Topic and Insults":
        return verdicts["Topic"] and not verdicts["Insults"]
    if question.name == "Whole":
        return verdicts["Topic"] and verdicts["Reasons"] and not verdicts["Insults"]
    return verdicts[question.name]


judge = ScriptedJudge(answer, name="words")
