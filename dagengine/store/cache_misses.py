"""Stored answers that a run does not use, or should know of, and why."""

from __future__ import annotations

import hashlib
import inspect
import json
import re
import sqlite3
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from pydantic import BaseModel

from dagengine.errors import InputError
from dagengine.prompts.evidence import split_evidence
from dagengine.question import Judge, Question, judge_name
from dagengine.redaction import public_value
from dagengine.store.database import (
    UNREADABLE,
    DamagedError,
    find,
    holds,
    key_of,
    names,
    storable_text,
    unpack,
)
from dagengine.system.terminal_text import few

REWORDED = "its instructions differ from those stored"
# Stored questions of a node that a missing one is compared with, the latest first.
COMPARED = 50
_MARK = re.compile(r" \(digest [0-9a-f]{16}\)")  # as of `judges.identity`


def lost_answers(judge: str, stored: Mapping[str, int], in_use: Collection[str]) -> int:
    """Number of stored answers of the same model and endpoint that the run does not use.

    None are lost if the judge has answers of its own.
    """
    if judge in in_use and stored.get(judge):
        return 0
    alike = {name for name in stored if _MARK.sub("", name) == _MARK.sub("", judge)}
    return sum(stored[name] for name in alike.difference(in_use))


def require_distinct(judges: Collection[tuple[Judge, str]]) -> None:
    """Raise InputError where judges that are apart in a run have one name in its store.

    Only of those that know what tells them apart (`store_hint`).
    """
    times = Counter(name for name, _ in {(name, judge.identity) for judge, name in judges})
    for judge, name in judges:
        hint = getattr(judge, "store_hint", "")
        if hint and times[name] > 1:
            raise InputError(
                f"{times[name]} judges {judge_name(name)!r} of this run have one name in the "
                f"store, where they would share answers: {hint}"
            )


def code_of(judge: Judge) -> tuple[str, str] | None:
    """The file, and a digest, of the code that a judge's own name stands for; None without any.

    Of data, for instance a script or the settings of a model, that of the data.
    """
    code: Any = getattr(judge, "named_code", judge)
    while isinstance(code, partial):
        code = code.func
    kind = code if inspect.isroutine(code) else type(code)
    file, text = "its content", ""
    if isinstance(code, Mapping | BaseModel):
        # LangChain's metadata are versions of libraries.
        fields = code if isinstance(code, Mapping) else {**vars(code), "metadata": None}
        text = re.sub(r" at 0x\w+", "", repr(sorted(public_value(fields).items(), key=repr)))
    elif str(kind.__module__).partition(".")[0] != "dagengine":
        with suppress(OSError, TypeError):  # it has no source
            file, text = inspect.getfile(kind), "".join(inspect.findsource(kind)[0])
    digest = hashlib.sha256(text.encode(errors="replace")).hexdigest()
    return (Path(file).name, digest) if text else None


Words = tuple[list[dict[str, str]], str] | None


class QuestionParts(NamedTuple):
    """What a question is made of, as its canonical bytes say it."""

    messages: Sequence[dict[str, str]]
    shape: str
    options: str


def question_parts(canonical: str) -> QuestionParts:
    """The parts of a question from its canonical text."""
    prompt, _, rest = canonical.partition("\n")
    shape, _, options = rest.rpartition("\n")
    return QuestionParts(json.loads(prompt), shape, options)


def explain_miss(
    db: sqlite3.Connection, judge: str, question: Question[Any], others: Sequence[Words] = ()
) -> str:
    """Describe how a question differs from those with an answer; see `compare` for `others`."""
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
    if storable_text(judge) not in judges:
        return f"nothing of the judge {judge!r} is stored{_only('of', judges)}"
    stored = stored_questions(db, judge, question.name)
    if not stored:
        return f"nothing is stored for this node{_only('for', names(db, 'nodes'))}"
    return compare(question, stored, others)[0]


def stored_questions(db: sqlite3.Connection, judge: str, node: str) -> list[QuestionParts]:
    """The latest stored questions to a judge of nodes of a name."""
    rows = db.execute(
        "SELECT question FROM answers WHERE judge = (SELECT id FROM judges WHERE name = ?) "
        "AND node = (SELECT id FROM nodes WHERE name = ?) ORDER BY created DESC LIMIT ?",
        (storable_text(judge), storable_text(node), COMPARED),
    )
    stored: list[QuestionParts] = []
    for (packed,) in rows.fetchall():
        with suppress(*UNREADABLE):  # a damaged question explains nothing
            stored.append(question_parts(unpack(packed)))
    return stored


def compare(
    question: Question[Any], stored: Sequence[QuestionParts], others: Sequence[Words]
) -> tuple[str, int]:
    """Describe how a question differs from stored ones of nodes of its name; and count these.

    Names are not unique in a store: those in the words of `others`, which are other nodes of the
    run, do not count.
    """
    asked = _asked(question)
    own = _words(asked)
    kept = [parts for parts in stored if (words := _words(parts)) == own or words not in others]
    if not kept:
        return "what is stored under its name is of another node", 0
    _, shapes, options = zip(*kept, strict=True)
    if asked.options not in options:
        why = f"asked with {asked.options}, stored with {options[0]}"
    elif asked.shape not in shapes:
        why = "its answer form (schema or parser) differs from the stored one"
    elif own is None:
        why = "its prompt differs from the stored question"
    elif own not in map(_words, kept):
        why = REWORDED
    else:
        evidence = "its evidence (the case, or the output of earlier nodes)"
        why = f"{evidence} differs from the stored question"
    return why, len(kept)


def _asked(question: Question[Any]) -> QuestionParts:
    return question_parts(question.canonical.decode(errors="surrogatepass"))


def words_of(question: Question[Any]) -> Words:
    """Words of a question beside its evidence; None for a prompt that has no evidence."""
    return _words(_asked(question))


def _words(parts: QuestionParts) -> Words:
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
