"""Looking after a store: what is in it, what may go, and putting several together."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from dagengine.errors import InputError
from dagengine.store.cache_misses import QuestionParts, question_parts
from dagengine.store.database import (
    UNREADABLE,
    DamagedError,
    answer_fields,
    connect,
    connect_to_read,
    explain_errors,
    names,
    transaction,
    unpack,
)

_PATIENCE = 60.0
_GROUPS = """SELECT judges.name, nodes.name, answers, first, last
    FROM (SELECT judge, node, count(*) AS answers, min(created) AS first, max(created) AS last
          FROM answers GROUP BY judge, node) AS found
    JOIN judges ON judges.id = found.judge JOIN nodes ON nodes.id = found.node
    ORDER BY judges.name, nodes.name"""
_RECORDS = """SELECT answers.key, judges.name, nodes.name, created, answer, question
    FROM answers JOIN judges ON judges.id = answers.judge JOIN nodes ON nodes.id = answers.node
    WHERE answers.id {chosen}"""
_MERGE = """INSERT OR IGNORE INTO answers (key, judge, node, created, answer, question)
    SELECT theirs.key, judges.id, nodes.id, theirs.created, theirs.answer, theirs.question
    FROM other.answers AS theirs
    JOIN other.judges AS j ON j.id = theirs.judge JOIN judges ON judges.name = j.name
    JOIN other.nodes AS n ON n.id = theirs.node JOIN nodes ON nodes.name = n.name
    ORDER BY theirs.key"""


@dataclass(frozen=True, slots=True)
class Group:
    """The answers of one judge for one node: how many, and from when."""

    judge: str
    node: str
    answers: int
    first: datetime
    last: datetime


@dataclass(frozen=True, slots=True)
class StoredAnswer:
    """One stored answer. `answer` has the entries raw, mode, usage, and value and tokens if any."""

    key: str
    judge: str
    node: str
    created: datetime
    question: QuestionParts
    answer: dict[str, Any]

    def as_dict(self) -> dict[str, Any]:
        """JSON-ready form, one line of an export."""
        head = {"key": self.key, "judge": self.judge, "node": self.node}
        created = self.created.isoformat()
        return {**head, "created": created, "question": self.question._asdict(), **self.answer}


@dataclass(frozen=True, slots=True)
class AnswerSelection:
    """Which answers are meant: all, unless something narrows them.

    `judge` and `node` are names, or patterns with `*`; `before` is a moment in time.
    """

    judge: str | None = None
    node: str | None = None
    before: datetime | None = None

    def where(self, db: sqlite3.Connection) -> tuple[str, list[Any]]:
        """The condition and its values; raises InputError for a name that matches nothing."""
        terms, values = ["1"], list[Any]()
        for column, pattern in (("judge", self.judge), ("node", self.node)):
            if pattern is not None:
                rows = db.execute(f"SELECT id, name FROM {column}s").fetchall()
                numbers = [number for number, name in rows if name == pattern]
                numbers = numbers or [n for n, name in rows if fnmatchcase(name, pattern)]
                if not numbers:
                    listing = ", ".join(repr(name) for _, name in rows[:10])
                    raise InputError(
                        f"no {column} in the store is called {pattern!r}; there are: {listing}"
                    )
                terms.append(f"{column} IN ({', '.join('?' * len(numbers))})")
                values += numbers
        if self.before is not None:
            terms.append("created < ?")
            values.append(self.before.timestamp())
        return " AND ".join(terms), values


@contextmanager
def open_to_look(path: Path) -> Iterator[sqlite3.Connection]:
    """A store to look into; raises InputError when it cannot be read."""
    with closing(connect_to_read(path, _PATIENCE)) as db, explain_errors(path):
        try:
            yield db
        except DamagedError as error:
            raise InputError(f"the store {path}: {error}") from error


def size(path: Path) -> int:
    """Bytes on disk, with what sqlite has not moved to its place yet."""
    files = (path, path.with_name(f"{path.name}-wal"))
    return sum(file.stat().st_size for file in files if file.exists())


def groups(db: sqlite3.Connection) -> list[Group]:
    """Contents of a store, by judge and node."""
    return [
        Group(judge, node, count, _moment(first), _moment(last))
        for judge, node, count, first, last in db.execute(_GROUPS)
    ]


def latest(db: sqlite3.Connection, chosen: AnswerSelection, limit: int) -> list[StoredAnswer]:
    """The latest answers, newest first."""
    where, values = chosen.where(db)
    numbers = f"SELECT id FROM answers WHERE {where} ORDER BY created DESC, id DESC LIMIT ?"
    query = _RECORDS.format(chosen=f"IN ({numbers})") + " ORDER BY created DESC, answers.id DESC"
    return list(map(_record, db.execute(query, [*values, limit])))


def records(db: sqlite3.Connection) -> Iterator[StoredAnswer]:
    """Every answer, in the order in which they came."""
    rows = db.execute(_RECORDS.format(chosen="IS NOT NULL") + " ORDER BY answers.id")
    return map(_record, rows)


def _record(row: Sequence[Any]) -> StoredAnswer:
    key, judge, node, created, answer, question = row
    try:
        parts, fields = question_parts(unpack(question)), answer_fields(answer)
        return StoredAnswer(key.hex(), judge, node, _moment(created), parts, fields)
    except (*UNREADABLE, DamagedError) as error:
        raise DamagedError(
            f"an answer for the node {node!r} is damaged ({error}); a run that needs it asks for "
            "it again, and prune removes it"
        ) from error


def _moment(seconds: Any) -> datetime:
    """A time out of the file; raises DamagedError."""
    try:
        return datetime.fromtimestamp(seconds, UTC)
    except (*UNREADABLE, OSError) as error:
        raise DamagedError(f"the time of an answer is damaged ({seconds!r:.40})") from error


def count(path: Path, chosen: AnswerSelection) -> int:
    """Number of answers that are meant."""
    with open_to_look(path) as db:
        where, values = chosen.where(db)
        total: int = db.execute(f"SELECT count(*) FROM answers WHERE {where}", values).fetchone()[0]
        return total


def prune(path: Path, chosen: AnswerSelection, *, compact: bool = False) -> int:
    """Remove answers and return how many; `compact` also gives their space back."""
    if not path.is_file():
        raise InputError(f"there is no store {path}")
    with closing(connect(path, _PATIENCE)) as db, explain_errors(path):
        where, values = chosen.where(db)
        with transaction(db):
            gone = db.execute(f"DELETE FROM answers WHERE {where}", values).rowcount
            for column in ("judge", "node"):
                db.execute(
                    f"DELETE FROM {column}s WHERE NOT EXISTS "
                    f"(SELECT 1 FROM answers WHERE answers.{column} = {column}s.id)"
                )
        if compact:
            db.execute("VACUUM")
        return gone


def merge(path: Path, other: Path) -> int:
    """Add the answers of another store that are not there yet, and return how many."""
    if other.exists() and path.exists() and other.samefile(path):
        raise InputError(f"{other} is the store to merge into; choose another one")
    with open_to_look(other) as theirs:
        names(theirs, "judges")
    with closing(connect(path, _PATIENCE)) as db, explain_errors(path):
        db.execute("ATTACH ? AS other", (str(other),))
        with transaction(db):
            for table in ("judges", "nodes"):
                db.execute(f"INSERT OR IGNORE INTO {table} (name) SELECT name FROM other.{table}")
            return db.execute(_MERGE).rowcount
