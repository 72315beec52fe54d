"""Why a question has no stored answer: how it differs from those that have one."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, NamedTuple

from dagengine.prompts.evidence import split_evidence
from dagengine.question import Question
from dagengine.store.file import names, printable, unpack
from dagengine.store.rows import UNREADABLE, DamagedError, find, holds, key_of
from dagengine.terminal import few

REWORDED = "its instructions differ from those stored"
# Stored questions of a node that a missing one is compared with, the latest first.
_COMPARED = 50


class Parts(NamedTuple):
    """What a question is made of, as its canonical bytes say it."""

    messages: Sequence[dict[str, str]]
    shape: str
    options: str


def question_parts(canonical: str) -> Parts:
    """The parts of a question from its canonical text."""
    prompt, _, rest = canonical.partition("\n")
    shape, _, options = rest.rpartition("\n")
    return Parts(json.loads(prompt), shape, options)


def difference(db: sqlite3.Connection, judge: str, question: Question[Any]) -> str:
    """Describe how a question differs from those with an answer."""
    judges = names(db, "judges")
    holders = [name for name in judges if holds(db, key_of(name, question))]
    if judge in holders:
        try:
            find(db, key_of(judge, question))
        except DamagedError as error:
            return f"{error}; run once without replay, and it is asked for again"
        return "the stored answer no longer fits the question"
    if holders:
        return f"it was answered by {holders[0]!r}, but not by {judge!r}"
    if printable(judge) not in judges:
        return f"nothing of the judge {judge!r} is stored{_only('of', judges)}"
    rows = db.execute(
        "SELECT question FROM answers WHERE judge = (SELECT id FROM judges WHERE name = ?) "
        "AND node = (SELECT id FROM nodes WHERE name = ?) ORDER BY created DESC LIMIT ?",
        (printable(judge), printable(question.name), _COMPARED),
    )
    kept: list[Parts] = []
    for (packed,) in rows.fetchall():
        with suppress(*UNREADABLE):  # a damaged question explains nothing
            kept.append(question_parts(unpack(packed)))
    if not kept:
        return f"nothing is stored for this node{_only('for', names(db, 'nodes'))}"
    asked = question_parts(question.canonical.decode(errors="surrogatepass"))
    _, shapes, options = zip(*kept, strict=True)
    if asked.options not in options:
        return f"asked with {asked.options}, stored with {options[0]}"
    if asked.shape not in shapes:
        return "its answer form (schema or parser) differs from the stored one"
    instructions = _instructions(asked)
    if instructions is None:
        return "its prompt differs from the stored question"
    if all(instructions != _instructions(parts) for parts in kept):
        return REWORDED
    return (
        "its evidence (the case, or the output of earlier nodes) differs from the stored question"
    )


def _instructions(parts: Parts) -> tuple[Any, str] | None:
    """Words of a question beside its evidence; None for a prompt that has no evidence."""
    *before, last = parts.messages
    if not before:
        return None
    try:
        _, step = split_evidence(last["content"])
    except ValueError:  # a prompt of one's own
        step = ""
    return before, step


def _only(word: str, choices: Sequence[str]) -> str:
    """The only alternative that is stored; empty without one."""
    return f", only {word} {few([*map(repr, choices)])}" if choices else ""
