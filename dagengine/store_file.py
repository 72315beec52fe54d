"""The file behind a store: its tables, its rows, and what can be wrong with it."""

from __future__ import annotations

import hashlib
import json
import sqlite3
import time
import zlib
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import tenacity
from pydantic import BaseModel

from dagengine.errors import InputError, UnparseableError
from dagengine.question import Answer, Origin, Question, TokenChoice, Usage
from dagengine.reading import read_answer

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
        created INTEGER NOT NULL, mode TEXT NOT NULL,
        input_tokens INTEGER NOT NULL, output_tokens INTEGER NOT NULL,
        answer BLOB NOT NULL, question BLOB NOT NULL)""",
    # Answers counts, dates and filters without a look at the rows.
    "CREATE INDEX answers_by_asker ON answers (judge, node, created)",
    f"PRAGMA application_id = {_APPLICATION}",
    f"PRAGMA user_version = {SCHEMA_VERSION}",
)
_FIND = "SELECT mode, input_tokens, output_tokens, answer FROM answers WHERE key = ?"
_INSERT = """INSERT OR IGNORE INTO answers
    (key, judge, node, created, mode, input_tokens, output_tokens, answer, question)
    VALUES (?, (SELECT id FROM judges WHERE name = ?), (SELECT id FROM nodes WHERE name = ?),
            ?, ?, ?, ?, ?, ?)"""
_HINTS = {
    "SQLITE_NOTADB": "this is no store, and no sqlite file at all",
    "SQLITE_BUSY": "another process keeps it locked; wait for it, or use another file",
    "SQLITE_FULL": "the disk is full; what was stored before is kept",
    "SQLITE_READONLY": "it cannot be written; check the permissions of the file and its folder",
    "SQLITE_CANTOPEN": "it cannot be opened; check that its folder exists and can be written",
    "SQLITE_CORRUPT": "it is damaged; put back a copy, or move it away and begin a new one",
}


class Entry(NamedTuple):
    """An answer on its way into the file.

    `value` are the fields of the answer where reading its text does not bring them back;
    `over` puts it in the place of an answer that is there already.
    """

    key: bytes
    judge: str
    question: Question[Any]
    answer: Answer[Any]
    value: Any = None
    over: bool = False


@dataclass(frozen=True, slots=True)
class Stored:
    """What the file holds of one answer, before it is read as an answer to a question."""

    mode: str
    usage: Usage
    raw: str
    value: Any
    tokens: tuple[TokenChoice, ...] | None


def key_of(judge: str, question: Question[Any]) -> bytes:
    """What an answer is found by: SHA-256 of the judge's durable identity and the question."""
    return hashlib.sha256(f"{judge}\n{question.key}".encode(errors="surrogatepass")).digest()


@contextmanager
def explained(path: Path) -> Iterator[None]:
    """Turn what sqlite and the file system raise into an InputError that says what to do."""
    try:
        yield
    except sqlite3.Error as error:
        code = getattr(error, "sqlite_errorname", "")
        hint = next((text for name, text in _HINTS.items() if code.startswith(name)), None)
        raise InputError(f"the store {path}: {hint or 'it cannot be used'} ({error})") from error
    except (zlib.error, UnicodeDecodeError, json.JSONDecodeError) as error:
        raise InputError(f"the store {path}: a row is damaged ({error})") from error
    except OSError as error:
        raise InputError(f"the store {path}: {error.strerror or error}") from error


def connect(path: Path, patience: float) -> sqlite3.Connection:
    """Open a store for reading and writing, making it where there is none.

    `patience` is how many seconds to wait for other processes. Raises InputError for a file
    that is something else, or that another version of dagengine has written.
    """
    with explained(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        return _checked(sqlite3.connect(path, patience, **_PLAIN), path, patience)


def connect_to_read(path: Path, patience: float) -> sqlite3.Connection:
    """Open a store that has to be there, and never write to it."""
    if not path.is_file():
        raise InputError(f"there is no store {path}")
    with explained(path):
        db = sqlite3.connect(f"{path.resolve().as_uri()}?mode=ro", patience, uri=True, **_PLAIN)
        try:
            db.execute("SELECT count(*) FROM sqlite_master").fetchall()
        except sqlite3.OperationalError:
            db.close()  # a folder that cannot be written has no place for sqlite's own files
            fixed = f"{path.resolve().as_uri()}?mode=ro&immutable=1"
            db = sqlite3.connect(fixed, patience, uri=True, **_PLAIN)
        return _checked(db, path, None)


_PLAIN: dict[str, Any] = {"isolation_level": None, "check_same_thread": False}


def _checked(db: sqlite3.Connection, path: Path, patience: float | None) -> sqlite3.Connection:
    """The connection to a file that is a store; a new one is set up unless only read."""
    try:
        if patience is not None:
            _set_up(db, patience)
        (application,) = db.execute("PRAGMA application_id").fetchone()
        (version,) = db.execute("PRAGMA user_version").fetchone()
        if application != _APPLICATION:
            raise InputError(f"{path} is an sqlite file, but no store of answers")
        if version != SCHEMA_VERSION:
            raise InputError(
                f"the store {path} has format {version}, this version of dagengine has format "
                f"{SCHEMA_VERSION}; use the version that wrote it, or another file"
            )
    except BaseException:
        db.close()
        raise
    return db


def _is_busy(error: BaseException) -> bool:
    return getattr(error, "sqlite_errorname", "").startswith("SQLITE_BUSY")


def _set_up(db: sqlite3.Connection, patience: float) -> None:
    """Make the tables of an empty file; others may be doing the same."""
    # Where two processes change the journal at once, sqlite does not wait but gives up.
    for attempt in tenacity.Retrying(
        stop=tenacity.stop_after_delay(patience),
        wait=tenacity.wait_random(0.01, 0.05),
        retry=tenacity.retry_if_exception(_is_busy),
        reraise=True,
    ):
        with attempt:
            _make_tables(db)


def _make_tables(db: sqlite3.Connection) -> None:
    with transaction(db):
        empty = not db.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]
        for statement in _TABLES if empty else ():
            db.execute(statement)
    if empty:
        db.execute("PRAGMA journal_mode = WAL")  # kept in the file
    db.execute("PRAGMA synchronous = NORMAL")


@contextmanager
def transaction(db: sqlite3.Connection) -> Iterator[None]:
    """All or nothing, with the file locked for writing from the beginning."""
    db.execute("BEGIN IMMEDIATE")
    with db:
        yield


def insert(db: sqlite3.Connection, entries: Sequence[Entry]) -> int:
    """Put entries into the file, leaving alone what is there; returns how many are new."""
    rows = [_row(entry) for entry in entries]
    with transaction(db):
        gone = [(entry.key,) for entry in entries if entry.over]
        db.executemany("DELETE FROM answers WHERE key = ?", gone)
        for table, place in (("judges", 1), ("nodes", 2)):
            names = sorted({(row[place],) for row in rows})
            db.executemany(f"INSERT OR IGNORE INTO {table} (name) VALUES (?)", names)
        return db.executemany(_INSERT, rows).rowcount


def _row(entry: Entry) -> tuple[Any, ...]:
    answer, usage = entry.answer, entry.answer.usage
    tokens = answer.tokens and [[choice.token, choice.alternatives] for choice in answer.tokens]
    return (
        entry.key,
        _printable(entry.judge),
        _printable(entry.question.name),
        int(time.time()),
        answer.mode,
        usage.input_tokens,
        usage.output_tokens,
        pack(json.dumps([answer.raw, entry.value, tokens], ensure_ascii=False)),
        zlib.compress(entry.question.canonical, 1),
    )


def _printable(name: str) -> str:
    return name.encode(errors="backslashreplace").decode()


def pack(text: str) -> bytes:
    """Any text, lone surrogates included, as few bytes."""
    return zlib.compress(text.encode(errors="surrogatepass"), 1)


def unpack(data: bytes) -> str:
    """The text that was packed."""
    return zlib.decompress(data).decode(errors="surrogatepass")


def find(db: sqlite3.Connection, key: bytes) -> Stored | None:
    """What is stored under a key."""
    for mode, asked, answered, packed in db.execute(_FIND, (key,)).fetchall():
        return stored(mode, asked, answered, packed)
    return None


def stored(mode: str, asked: int, answered: int, packed: bytes) -> Stored:
    """The columns of an answer as what they mean."""
    raw, value, tokens = json.loads(unpack(packed))
    choices = tokens and tuple(
        TokenChoice(token, tuple((other, logprob) for other, logprob in alternatives))
        for token, alternatives in tokens
    )
    return Stored(mode, Usage(asked, answered), raw, value, choices)


def revive(question: Question[T], found: Stored, origin: Origin) -> Answer[T] | None:
    """The answer as the judge gave it, or None where the question does not take it any more."""
    value = _read(question, found.raw, found.value)
    if value is None:
        return None
    return Answer(value, found.raw, found.tokens, found.usage, found.mode, origin)


def _read(question: Question[T], raw: str, fields: Any) -> T | None:
    try:
        if fields is not None:
            return question.answer_type.model_validate(fields)
        return read_answer(question, raw)
    except (UnparseableError, ValueError):  # pydantic's own is a ValueError, too
        return None


def entry_of(key: bytes, judge: str, question: Question[Any], answer: Answer[Any]) -> Entry | None:
    """An entry that will bring back exactly this answer, or None when nothing would."""
    for fields in (lambda: None, lambda: answer.value.model_dump(mode="json")):
        try:
            entry = Entry(key, judge, question, answer, fields())
            json.dumps(entry.value)
        except (TypeError, ValueError):
            return None
        read = _read(question, answer.raw, entry.value)
        if read is not None and _fields(read) == _fields(answer.value):
            return entry
    return None


def _fields(value: BaseModel) -> tuple[Any, ...]:
    """What a value says. Judges may give it a class of their own beneath the one asked for."""
    return vars(value), value.model_extra


def names(db: sqlite3.Connection, table: str) -> list[str]:
    """All judges or nodes of a store."""
    rows: Iterable[tuple[str]] = db.execute(f"SELECT name FROM {table} ORDER BY name")
    return [name for (name,) in rows]
