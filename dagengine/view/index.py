"""The index of a large run: one sqlite file, made of its rows, and made again if needed.

It is in a private folder and never in that of the run: whoever made the run could have put another
one there, which tells other figures.

It holds the columns that a page reads, in chunks of rows, and the words of texts (FTS5). Where a
run has only grown, the new index begins as the old one did: rows keep their places, and kinds their
numbers. So a page that was handed out before reads on.
"""

from __future__ import annotations

import json
import os
import sqlite3
from collections.abc import Callable
from contextlib import closing, suppress
from pathlib import Path

from dagengine.compiler.definitions import digest
from dagengine.errors import InputError
from dagengine.record.run import Run
from dagengine.record.writer import CASES, MANIFEST
from dagengine.regular_files import is_there, private_folders
from dagengine.report.page.columns import CHUNK, Columns

_FORMAT = 11
_NAMES = "view-{}.sqlite"
# No journal: what a kill leaves is made again, not repaired. Words are collected in 32 MB before
# they are written: of the parts of one MB, as FTS5 does it by itself, there are too many to merge.
_TABLES = """
    PRAGMA journal_mode = OFF; PRAGMA synchronous = OFF; PRAGMA cache_size = -20000;
    CREATE TABLE meta (name TEXT PRIMARY KEY, value) WITHOUT ROWID;
    CREATE TABLE chunks (name TEXT, number INT, bytes BLOB, PRIMARY KEY (name, number));
    CREATE VIRTUAL TABLE texts USING fts5(text, content='', detail='none');
    INSERT INTO texts (texts, rank) VALUES ('hashsize', 33554432), ('pgsz', 16000);
"""


def open_index(run: Run, announce: Callable[[int], None] | None = None) -> sqlite3.Connection:
    """The index of a run, made first when there is none or the run has changed since.

    `announce` hears the number of rows while it is made. Raises InputError for a damaged run,
    and where no private folder has room.
    """
    # The mark is what tells this state of a run: its files, their sizes and times. Whoever writes
    # a file can set its `st_mtime` back, but not `st_ctime`, when the system last changed it.
    files = [run.folder / MANIFEST, run.results, run.folder / CASES]
    stats = [file.lstat() for file in files if is_there(file)]
    marks = [(stat.st_ino, stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns) for stat in stats]
    mark, failure = json.dumps([_FORMAT, marks]), None
    for folder in private_folders():
        path = folder / _NAMES.format(digest(str(run.folder.resolve()))[:32])
        try:
            if _meta(path, "mark") != mark:
                _make(path, run, mark, announce or (lambda rows: None))
            return _connect(path)
        except (OSError, sqlite3.OperationalError) as error:
            failure = error
    raise InputError(f"no folder has room for the index of {run.folder}: {failure}")


def _connect(path: Path) -> sqlite3.Connection:
    db = sqlite3.connect(f"{path.as_uri()}?mode=ro", uri=True, check_same_thread=False)
    db.execute("PRAGMA query_only = ON")
    return db


def _meta(path: Path, name: str) -> str | None:
    """Metadata of an index; None without one that can be read."""
    with suppress(sqlite3.Error), closing(_connect(path)) as db:
        entry = db.execute("SELECT value FROM meta WHERE name = ?", (name,)).fetchone()
        return None if entry is None else str(entry[0])
    return None


def _make(path: Path, run: Run, mark: str, announce: Callable[[int], None]) -> None:
    # The indexes of runs that are no more give room.
    for old in path.parent.glob(_NAMES.format("*")):
        folder = _meta(old, "folder")
        with suppress(OSError):
            if folder is not None and not Path(folder).exists():
                old.unlink()
    # Under another name until it is whole: a kill leaves no half of an index to be read, and two
    # servers that make the same one do not write into each other's file.
    making = path.with_name(f"{path.name}.{os.getpid()}")
    try:
        with closing(sqlite3.connect(making, isolation_level=None)) as db:
            db.executescript(_TABLES)
            db.execute("BEGIN")
            columns, rows = Columns(run.manifest.metrics), 0
            for block in run.blocks():
                texts = enumerate(map(utf8, block["words"]), rows)
                db.executemany("INSERT INTO texts (rowid, text) VALUES (?, ?)", texts)
                columns.extend(block)
                while columns.waiting >= CHUNK:
                    _add_chunk(db, columns)
                rows += len(block["index"])
                announce(rows)
            _add_chunk(db, columns)
            meta = {
                "mark": mark, "folder": utf8(str(run.folder.resolve())), "rows": rows,
                "chunk": CHUNK, "index": json.dumps(columns.as_dict()),
                "metrics": json.dumps([kinds.as_drawn() for kinds in columns.kinds]),
            }  # fmt: skip
            db.executemany("INSERT INTO meta VALUES (?, ?)", meta.items())
            db.execute("COMMIT")
        making.replace(path)
    finally:
        with suppress(OSError):
            making.unlink(missing_ok=True)


def _add_chunk(db: sqlite3.Connection, columns: Columns) -> None:
    number = columns.taken // CHUNK
    chunk = ((name, number, data) for name, data in columns.take(CHUNK).items())
    db.executemany("INSERT INTO chunks VALUES (?, ?, ?)", chunk)


def utf8(text: str) -> str:
    """Text that sqlite takes: without lone surrogates."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode(errors="replace").decode()
    return text
