"""A toy judge: plain rules for headings in place of a model. No key, no network.

It knows headings that fill a whole line (markdown, bold, a colon at the end,
underlined, numbered, upper case, HTML) and goes by their first word. So it misses headings
with text behind them on the same line, and it takes a heading such as "Body language" for
"Body". Nothing in the text can instruct it: rules do not read orders.
"""

import re
from collections.abc import Callable
from typing import Any

from dagengine.errors import UnsupportedError
from dagengine.judges import ScriptedJudge
from dagengine.question import Question

WANTED = ("intro", "body", "conclusion")
SPELLINGS = {"introduction": "intro", "conclusions": "conclusion"}

MARKED = (
    re.compile(r"#{1,6}\s+(.+)"),
    re.compile(r"<h[1-6][^<>]*>(.+)</h[1-6]>", re.IGNORECASE),
    re.compile(r"\*\*(.+?)\*\*:?"),
    re.compile(r"__(.+?)__:?"),
    re.compile(r"([^.!?:]{1,40}):"),
    re.compile(r"\d{1,2}[.)]\s+([^.!?:]{1,40}):?"),
)
UNDERLINE = re.compile(r"(={3,}|-{3,})")
OPENING = re.compile(r"(<{3,})BEGIN [^\n]+\n")


def evidence(message: str) -> dict[str, str]:
    """The evidence blocks by label.

    The first line tells how wide the fences are. No text contains a fence that wide, so a
    narrower END line is a part of the text.
    """
    first = OPENING.match(message)
    if first is None:
        return {}
    left, right = first[1], ">" * len(first[1])
    block = rf"^{left}BEGIN ([^\n]+?){right}\n(.*?)\n{left}END \1{right}$"
    found = re.finditer(block, message, re.DOTALL | re.MULTILINE)
    return {part[1]: part[2] for part in found}


def heading(line: str, after: str) -> str | None:
    """The heading that `line` is, if it is one; `after` is the line that follows."""
    for pattern in MARKED:
        found = pattern.fullmatch(line)
        if found:
            return found[1].strip(" #")
    underlined = UNDERLINE.fullmatch(after) and len(line.split()) <= 6
    shouted = line.isupper() and len(line.split()) <= 4 and line[-1] not in ".!?"
    return line if underlined or shouted else None


def headings(text: str) -> list[str]:
    """All headings in order of appearance; blanks and quoted lines ('>') hold none."""
    lines = [line.strip() for line in text.split("\n")]
    pairs = zip(lines, [*lines[1:], ""], strict=True)
    found = (heading(line, after) for line, after in pairs if line and line[0] != ">")
    return [title for title in found if title]


def places(listed: str) -> list[str]:
    """The wanted names in order of first appearance among headings, one per line."""
    words = [re.findall(r"[^\W\d_]+", line.casefold())[:1] for line in listed.split("\n")]
    names = (SPELLINGS.get(word, word) for first in words for word in first)
    return [name for name in dict.fromkeys(names) if name in WANTED]


def extract(material: dict[str, str]) -> str:
    return "\n".join(headings(material.get("actual_output", "")))


def present(material: dict[str, str]) -> dict[str, Any]:
    found = places(material.get("Summary headings", ""))
    missing = [name for name in WANTED if name not in found]
    reason = f"There is no heading for {' or '.join(missing)}." if missing else "All three exist."
    return {"reason": reason, "verdict": not missing}


def order(material: dict[str, str]) -> dict[str, Any]:
    found = places(material.get("Summary headings", ""))
    displaced = sum(name != wanted for name, wanted in zip(found, WANTED, strict=False))
    verdicts = {0: "Yes", 2: "Two are out of order"}
    reason = f"The order is {', '.join(found)}: {displaced} of 3 are not in their place."
    return {"reason": reason, "verdict": verdicts.get(displaced, "All out of order")}


RULES: dict[str, Callable[[dict[str, str]], Any]] = {
    "Summary headings": extract,
    "Headings present": present,
    "Heading order": order,
}


def answer(question: Question[Any]) -> Any:
    """The answer to one node's question; other questions than these three have none."""
    rule = RULES.get(question.name)
    if rule is None:
        return UnsupportedError(f"the heading rules have no answer for {question.name!r}")
    return rule(evidence(question.messages[-1]["content"]))


judge = ScriptedJudge(answer, name="heading rules")
