"""The file behind a store: its tables, its rows, and what can be wrong with it."""

from __future__ import annotations

import random
import sqlite3
import time
import zlib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel

from dagengine.errors import InputError
from dagengine.system.regular_files import require_regular

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
        require_regular(path.with_name(f"{path.name}{suffix}"))


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
            columns = [row[1] for row in db.execute("PRAGMA table_info(judges)")]
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
    rows: Iterable[tuple[str]] = db.execute(f"SELECT name FROM {table} ORDER BY name")
    return [name for (name,) in rows]
