"""The rows of a store: how an answer gets into the file, and out of it as it was."""

from __future__ import annotations

import hashlib
import json
import sqlite3
import time
import zlib
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, NamedTuple, TypeVar

from pydantic import BaseModel, ConfigDict, Field, Strict

from dagengine.errors import (
    JudgeError,
    JudgeFailure,
    RefusedError,
    TooLongError,
    TruncatedError,
    UnparseableError,
)
from dagengine.prompts.json_values import shallow_value
from dagengine.prompts.parsing import read_answer, read_part
from dagengine.question import PART, Answer, Origin, Question, TokenChoice, Usage
from dagengine.store.file import storable_text, transaction, unpack

T = TypeVar("T", bound=BaseModel)

_JSON = json.JSONEncoder(ensure_ascii=False)
# What reading a row raises if its cells are not what they were. Any cell of sqlite may contain any
# type of value, and after a damage of the disk any bytes.
UNREADABLE = (zlib.error, OverflowError, RecursionError, TypeError, ValueError)
_INSERT = """INSERT OR IGNORE INTO answers (key, judge, node, created, answer, question)
    VALUES (?, (SELECT id FROM judges WHERE name = ?), (SELECT id FROM nodes WHERE name = ?),
            ?, ?, ?)"""


class DamagedError(Exception):
    """Raised for a stored answer that cannot be read; it may be asked for again."""


# JSON has lists for tuples, which a strict model takes for something else.
_Pair = Annotated[tuple[str, float], Strict(False)]
_Token = Annotated[tuple[str, list[_Pair]], Strict(False)]
_Chance = Annotated[tuple[str | bool, float], Strict(False)]


class _Fields(BaseModel):
    """What a stored answer must hold; `value` only where `raw` does not bring it back.

    `failure` is the message of a question that ended without an answer; `mode` is then its kind.
    """

    model_config = ConfigDict(strict=True, title="the fields of an answer")

    raw: str
    mode: str
    usage: Annotated[list[float], Field(min_length=3, max_length=3)]
    tokens: list[_Token] | None = None
    odds: list[_Chance] | None = None
    mass: float | None = None
    failure: str | None = None


class AnswerEntry(NamedTuple):
    """An answer on its way into the file; `over` puts it in the place of one that is there."""

    key: bytes
    judge: str
    question: Question[Any]
    answer: str
    over: bool = False


def key_of(judge: str, question: Question[Any]) -> bytes:
    """Key of an answer: SHA-256 of the judge's durable identity and the question."""
    return hashlib.sha256(f"{judge}\n{question.key}".encode(errors="surrogatepass")).digest()


_SHORT = 16  # hexadecimal digits


def short_key(key: bytes) -> str:
    """Part of a key that rows of results have: enough to find one of any number of answers."""
    return key.hex()[:_SHORT]


def insert(db: sqlite3.Connection, entries: Sequence[AnswerEntry]) -> int:
    """Put entries into the file, leaving alone what is there; returns how many are new."""
    rows = [
        (
            entry.key,
            storable_text(entry.judge),
            storable_text(entry.question.name),
            int(time.time()),
            zlib.compress(entry.answer.encode(errors="surrogatepass"), 1),
            zlib.compress(entry.question.canonical, 1),
        )
        for entry in entries
    ]
    gone = [(entry.key,) for entry in entries if entry.over]
    with transaction(db):
        db.executemany("DELETE FROM answers WHERE key = ?", gone)
        for table, column in (("judges", 1), ("nodes", 2)):
            values = sorted({(row[column],) for row in rows})
            db.executemany(f"INSERT OR IGNORE INTO {table} (name) VALUES (?)", values)
        return db.executemany(_INSERT, rows).rowcount


def holds(db: sqlite3.Connection, key: bytes) -> bool:
    """Return whether there is an answer under a key, readable or not."""
    return bool(db.execute("SELECT 1 FROM answers WHERE key = ?", (key,)).fetchall())


def question_by(db: sqlite3.Connection, short: str) -> bytes | None:
    """The packed question whose key begins so; None without one, or for something that is not a
    such key.
    """
    try:
        low = bytes.fromhex(short)
    except ValueError:
        return None
    # Keys are SHA-256: that two of a store begin with the same 64 bits does not happen.
    high = low + b"\xff" * (32 - len(low))
    sql = "SELECT question FROM answers WHERE key BETWEEN ? AND ? LIMIT 1"
    rows = db.execute(sql, (low, high)).fetchall()
    return rows[0][0] if rows else None


def find(db: sqlite3.Connection, key: bytes) -> dict[str, Any] | None:
    """The fields of the answer under a key; raises DamagedError when they cannot be read."""
    rows = db.execute("SELECT answer FROM answers WHERE key = ?", (key,)).fetchall()
    return answer_fields(rows[0][0]) if rows else None


def answer_fields(packed: Any) -> dict[str, Any]:
    """The fields of a stored answer; raises DamagedError."""
    try:
        fields: dict[str, Any] = shallow_value(unpack(packed))
        _Fields.model_validate(fields)
        return fields
    except UNREADABLE as error:
        why = str(error).splitlines()[0]
        raise DamagedError(f"the stored answer is damaged ({why})") from error


def entry_of(
    key: bytes, judge: str, question: Question[Any], answer: Answer[Any]
) -> AnswerEntry | None:
    """An entry that will bring back exactly this answer, or None when nothing would."""
    try:
        # Of the value nothing: it is in the text, unless reading that text gives another one.
        used = answer.usage
        usage = [used.input_tokens, used.output_tokens, used.cached_tokens]
        fields: dict[str, Any] = {"raw": answer.raw, "mode": answer.mode, "usage": usage}
        if answer.tokens is not None:
            fields["tokens"] = [[choice.token, choice.alternatives] for choice in answer.tokens]
        if answer.odds is not None:
            fields["odds"] = answer.odds
        if answer.mass is not None:
            fields["mass"] = answer.mass
        if not _is_same(revive(question, fields, "live"), answer):
            fields["value"] = answer.value.model_dump(mode="json", warnings=False)
            if not _is_same(revive(question, fields, "live"), answer):
                return None
        return AnswerEntry(key, judge, question, _JSON.encode(fields))
    except (AttributeError, TypeError, ValueError):  # a judge may be any code
        return None


def failure_entry(
    key: bytes, judge: str, question: Question[Any], error: JudgeFailure
) -> AnswerEntry:
    """An entry that lets a replay fail as the judge made this run fail."""
    raw = error.raw if isinstance(error, UnparseableError) else ""
    usage = [*error.tokens, 0]
    fields = {"raw": raw, "mode": error.kind, "usage": usage, "failure": str(error)}
    return AnswerEntry(key, judge, question, _JSON.encode(fields))


def failure_of(fields: Mapping[str, Any]) -> JudgeError | None:
    """The failure that is in the place of an answer, or None."""
    message = fields.get("failure")
    if message is None:
        return None
    tokens = (fields["usage"][0], fields["usage"][1])
    for final in (RefusedError, TruncatedError, TooLongError):
        if fields["mode"] == final.kind:
            return final(message, tokens)
    return UnparseableError(message, fields["raw"], tokens)


def revive(question: Question[T], fields: Mapping[str, Any], origin: Origin) -> Answer[T] | None:
    """The answer as the judge gave it, or None if the question does not take it any more."""
    if fields.get("failure") is not None:
        return None
    raw, tokens = fields["raw"], fields.get("tokens")
    try:
        if "value" in fields:
            value: T | None = question.answer_type.model_validate(fields["value"])
        elif fields["mode"] == PART:
            value = read_part(question, raw)
        else:
            value = read_answer(question, raw)
    except (UnparseableError, ValueError):  # pydantic's own is a ValueError, too
        value = None
    if value is None or (question.check is not None and question.check(value) is not None):
        return None
    choices = None
    if tokens is not None:
        choices = tuple(TokenChoice(t, tuple((token, p) for token, p in a)) for t, a in tokens)
    odds = fields.get("odds")
    chances = None if odds is None else tuple((verdict, chance) for verdict, chance in odds)
    usage = Usage(*fields["usage"])
    mode, mass = fields["mode"], fields.get("mass")
    return Answer(value, raw, choices, usage, mode, chances, origin, mass=mass)


def _is_same(read: Answer[Any] | None, answer: Answer[Any]) -> bool:
    """Return whether a value was read back, field by field.

    A judge may return a subclass of the answer type, also with private attributes.
    """
    return read is not None and _content(read.value) == _content(answer.value)


def _content(value: BaseModel) -> dict[str, Any]:
    return dict(BaseModel.__iter__(value))  # a caller's model may iterate otherwise
