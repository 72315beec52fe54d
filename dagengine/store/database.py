"""The file behind a store: its tables and rows, and how an answer gets in, and out as it was."""

from __future__ import annotations

import hashlib
import json
import random
import sqlite3
import time
import zlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from operator import itemgetter
from pathlib import Path
from typing import Annotated, Any, NamedTuple, TypeVar

from pydantic import BaseModel, ConfigDict, Field, Strict

from dagengine.errors import (
    InputError,
    JudgeError,
    JudgeFailure,
    RefusedError,
    TooLongError,
    TruncatedError,
    UnparseableError,
)
from dagengine.prompts.json_in_text import shallow_value
from dagengine.prompts.parsing import read_answer, read_part
from dagengine.question import PART, Answer, Origin, Question, TokenChoice, Usage
from dagengine.system.safe_files import require_regular

T = TypeVar("T", bound=BaseModel)

SCHEMA_VERSION = 1
_APPLICATION = 0x64616765  # "dage", in the place that sqlite keeps for it
_TABLES = (
    "CREATE TABLE judges (id INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE)",
    "CREATE TABLE nodes (id INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE)",
    # The question comes last: a hit need not read over it.
    """CREATE TABLE answers (
        id INTEGER PRIMARY KEY, key BLOB NOT NULL UNIQUE,
        judge INTEGER NOT NULL REFERENCES judges, node INTEGER NOT NULL REFERENCES nodes,
        created INTEGER NOT NULL,  -- seconds since 1970
        answer BLOB NOT NULL, question BLOB NOT NULL)""",
    # Answers counts, dates and filters without a look at the rows.
    "CREATE INDEX answers_by_asker ON answers (judge, node, created)",
    f"PRAGMA application_id = {_APPLICATION}",
    f"PRAGMA user_version = {SCHEMA_VERSION}",
)
# A view in the place of a table may be without an end.
_FOREIGN = """SELECT count(*) FROM sqlite_master
    WHERE type NOT IN ('table', 'index') OR sql LIKE 'CREATE VIRTUAL%'"""
_LONGEST = 100_000_000  # bytes of one answer or question; a few packed ones may stand for more
_DAMAGED = "it is damaged; restore a copy, or move it away and start a new one"
_HINTS = {
    "SQLITE_NOTADB": "this is not a store and not an sqlite file; choose another file",
    "SQLITE_BUSY": "another process has locked it; wait, or use another file",
    "SQLITE_FULL": "the disk is full; earlier answers are kept",
    "SQLITE_READONLY": "it cannot be written; check the permissions of the file and its folder",
    "SQLITE_CANTOPEN": "it cannot be opened; check that its folder exists and can be written",
    "SQLITE_IOERR": "the disk failed; check it, or use another file",
}
_NO_PLACE = ("SQLITE_CANTOPEN", "SQLITE_READONLY_DIRECTORY", "SQLITE_READONLY_CANTINIT")
_JSON = json.JSONEncoder(ensure_ascii=False)
# What reading a row raises if its cells are not what they were. Any cell of sqlite may contain any
# type of value, and after a damage of the disk any bytes.
UNREADABLE = (zlib.error, OverflowError, RecursionError, TypeError, ValueError)
_INSERT = """INSERT OR IGNORE INTO answers (key, judge, node, created, answer, question)
    VALUES (?, (SELECT id FROM judges WHERE name = ?), (SELECT id FROM nodes WHERE name = ?),
            ?, ?, ?)"""
_PLAIN: dict[str, Any] = {"isolation_level": None, "check_same_thread": False}


@contextmanager
def explain_errors(path: Path) -> Iterator[None]:
    """Turn what sqlite and the file system raise into an InputError that says what to do."""
    try:
        yield
    except sqlite3.Error as error:
        hint = next((text for name, text in _HINTS.items() if _code(error).startswith(name)), None)
        raise InputError(f"the store {path}: {hint or _DAMAGED} ({error})") from error
    except OSError as error:
        raise InputError(f"the store {path}: {error.strerror or error}") from error


def connect(path: Path, patience: float) -> sqlite3.Connection:
    """Open a store for reading and writing, making it if there is none.

    `patience` is how many seconds to wait for other processes. Raises InputError for a file
    that is something else, that another version of dagengine has written, or that is a link.
    """
    _require_regular(path)
    with explain_errors(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        return _require_store(sqlite3.connect(path, timeout=patience, **_PLAIN), path, patience)


def connect_to_read(path: Path, patience: float) -> sqlite3.Connection:
    """Open a store that has to be there, and never write an answer into it."""
    _require_regular(path)
    if not path.is_file():
        raise InputError(f"there is no store {path}")
    # A connection that may not write leaves sqlite's own files behind (`-wal`, `-shm`).
    address = path.resolve().as_uri()
    with explain_errors(path):
        db = sqlite3.connect(f"{address}?mode=rw", timeout=patience, uri=True, **_PLAIN)
        try:
            db.execute("PRAGMA query_only = ON")
            db.execute("SELECT count(*) FROM sqlite_master").fetchall()
        except sqlite3.Error as error:
            db.close()
            if _code(error) not in _NO_PLACE:
                raise
            # Where nothing can be written sqlite has no place for its own files, nor the need.
            address = f"{address}?mode=ro&immutable=1"
            db = sqlite3.connect(address, timeout=patience, uri=True, **_PLAIN)
        return _require_store(db, path, None)


def _require_regular(path: Path) -> None:
    """Raise InputError for links, pipes and devices in the place of a store or sqlite's own files.

    sqlite follows a link, and waits for ever at a pipe.
    """
    for suffix in ("", "-wal", "-shm", "-journal"):
        require_regular(Path(f"{path}{suffix}"))


def _require_store(
    db: sqlite3.Connection, path: Path, patience: float | None
) -> sqlite3.Connection:
    """The connection to a file that is a store; a new one is set up unless only read."""
    try:
        if patience is not None:
            # Where two processes change the journal at once, sqlite does not wait but gives up.
            until = time.monotonic() + patience
            while not _set_up(db, last=time.monotonic() >= until):
                time.sleep(random.uniform(0.01, 0.05))
        version = _number(db, "user_version")
        if _number(db, "application_id") != _APPLICATION:
            raise InputError(f"{path} is an sqlite file, but not a store of answers")
        if version != SCHEMA_VERSION:
            raise InputError(
                f"the store {path} has format {version}, this version of dagengine has format "
                f"{SCHEMA_VERSION}; use the version that wrote it, or another file"
            )
        if db.execute(_FOREIGN).fetchone()[0]:
            raise InputError(
                f"the store {path} holds views or triggers, or virtual tables; no store of "
                "dagengine does: use another file"
            )
    except BaseException:
        db.close()
        raise
    return db


def _set_up(db: sqlite3.Connection, *, last: bool) -> bool:
    """Make the tables of a new file; False if it is busy, for which the `last` attempt raises."""
    try:
        with transaction(db):  # others may be making the same tables
            empty = not db.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]
            for statement in _TABLES if empty else ():
                db.execute(statement)
            columns = [*map(itemgetter(1), db.execute("PRAGMA table_info(judges)"))]
            ours = _number(db, "application_id") == _APPLICATION
            if columns == ["id", "name"] and ours:  # of a judge's code, a digest
                db.execute("ALTER TABLE judges ADD COLUMN code TEXT")
        # A file of another program stays as it is. In ours readers see the last whole state while
        # one process writes (WAL). A write is safe against the end of a process at once, and
        # against that of the machine a little later (NORMAL): the answers of the last moment are
        # asked again, and nothing is damaged.
        if ours:
            db.execute("PRAGMA journal_mode = WAL")
            db.execute("PRAGMA synchronous = NORMAL")
    except sqlite3.Error as error:
        if last or not _code(error).startswith("SQLITE_BUSY"):
            raise
        return False
    return True


def _code(error: BaseException) -> str:
    """sqlite's name of an error; Python's own about sqlite have none."""
    return getattr(error, "sqlite_errorname", "")


def _number(db: sqlite3.Connection, pragma: str) -> int:
    number: int = db.execute(f"PRAGMA {pragma}").fetchone()[0]
    return number


@contextmanager
def transaction(db: sqlite3.Connection) -> Iterator[None]:
    """All or nothing, with the file locked for writing from the beginning."""
    db.execute("BEGIN IMMEDIATE")
    with db:
        yield


def storable_text(name: str) -> str:
    """A name as the file keeps it: lone surrogates have no place in its texts."""
    return name.encode(errors="backslashreplace").decode()


def unpack(data: bytes) -> str:
    """A text out of the file, lone surrogates included; raises zlib.error for one too long."""
    unpacking = zlib.decompressobj()
    text = unpacking.decompress(data, _LONGEST)
    if not unpacking.eof:
        why = f"it is longer than {_LONGEST:,} bytes" if unpacking.unconsumed_tail else "it is cut"
        raise zlib.error(why)
    return text.decode(errors="surrogatepass")


def names(db: sqlite3.Connection, table: str) -> list[str]:
    """All judges or nodes of a store."""
    return list(map(itemgetter(0), db.execute(f"SELECT name FROM {table} ORDER BY name")))


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


def short_key(key: bytes) -> str:
    """Part of a key that rows of results have: enough to find one of any number of answers."""
    return key[:8].hex()


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
            values = sorted(set(map(itemgetter(column), rows)))
            db.executemany(f"INSERT OR IGNORE INTO {table} (name) VALUES (?)", zip(values))
        return db.executemany(_INSERT, rows).rowcount


def holds(db: sqlite3.Connection, key: bytes) -> bool:
    """Return whether there is an answer under a key, readable or not."""
    return bool(db.execute("SELECT 1 FROM answers WHERE key = ?", (key,)).fetchall())


def question_by(db: sqlite3.Connection, short: str) -> bytes | None:
    """The packed question whose key begins so; None without one, or if it is not such a key."""
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
