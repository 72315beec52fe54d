"""A run that is too large to send whole: a page without data, and what it reads from the server.

Its index is one sqlite file, made of the rows, and made again if needed. It is in a private folder
and never in that of the run: whoever made the run could have put a false one there. It holds the
columns that a page reads, in chunks of rows, and the words of texts (FTS5). When a run grows, rows
keep their places in a new index, and kinds of results their numbers. So open pages can go on.
"""

from __future__ import annotations

import json
import os
import sqlite3
import threading
from array import array
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager, suppress
from itertools import chain, compress, count
from pathlib import Path
from typing import Any

from dagengine.compiler.metric_hashes import digest
from dagengine.errors import InputError
from dagengine.record.case_costs import StepCosts
from dagengine.record.reader import Run, load_run
from dagengine.record.writer import CASES, MANIFEST
from dagengine.report.page.packed_columns import CHUNK, MetricKinds, PackedColumns
from dagengine.report.page.packed_texts import pack, packed_row, people_of
from dagengine.report.page.run_facts import alarms_of, run_record
from dagengine.report.page.run_page import head_of, page_of
from dagengine.report.pictures.metric_graph import MetricGraph
from dagengine.system.safe_files import is_there, private_folders
from dagengine.system.terminal_text import utf8
from dagengine.view.compared_runs import OpenRun
from dagengine.view.label_queues import Queue

_GROWN = 1.1  # an index takes seconds to minutes: it is made again for so many times the bytes
_WORDS = 30  # of a search: every one is looked up in the index of all texts
_FORMAT = 11  # of the index: one of an earlier format is made again
_NAMES = "view-{}.sqlite"
# No journal: what a kill leaves is made again, not repaired. Words are collected in 32 MB before
# they are written: FTS5 would write parts of 1 MB by itself, too many to be merged.
_TABLES = """
    PRAGMA journal_mode = OFF; PRAGMA synchronous = OFF; PRAGMA cache_size = -20000;
    CREATE TABLE meta (name TEXT PRIMARY KEY, value) WITHOUT ROWID;
    CREATE TABLE chunks (name TEXT, number INT, bytes BLOB, PRIMARY KEY (name, number));
    CREATE VIRTUAL TABLE texts USING fts5(text, content='', detail='none');
    INSERT INTO texts (texts, rank) VALUES ('hashsize', 33554432), ('pgsz', 16000);
"""


class LargeRun:
    """A run folder and its index. All methods are safe to call from several threads."""

    def __init__(self, folder: Path, announce: Callable[[int], None] | None = None) -> None:
        """Make the index when there is none; `announce` is called with the number of rows."""
        # Held while a new index is made, and while one is read or replaced.
        self._making_lock, self._reading_lock = threading.Lock(), threading.Lock()
        self._indexed = IndexedRun(load_run(folder), announce)

    def __len__(self) -> int:
        """The number of rows that the index knows."""
        return self._indexed.rows

    @property
    def finished(self) -> bool:
        """Return whether the index knows all rows that there will be."""
        return self._indexed.record.finished

    def refresh(self) -> None:
        """Make the index again if the rows are a tenth more, or all that there will be.

        Other threads read the old one meanwhile. Returns at once while another thread does it.
        """
        if self.finished or not self._making_lock.acquire(blocking=False):
            return
        try:
            old, run = self._indexed, load_run(self._indexed.record.folder)
            if run.finished or _size(run) >= _GROWN * old.size:
                new = IndexedRun(run)
                with self._reading_lock:
                    self._indexed = new
                    old.close()
        finally:
            self._making_lock.release()

    def page(self, server: Mapping[str, Any]) -> str:
        """The page of the run as its index knows it now; see `IndexedRun`."""
        self.refresh()
        with self.reading() as indexed:
            return indexed.page(server)

    def close(self) -> None:
        """Close the index, and the files of the run."""
        self._indexed.close()

    @contextmanager
    def reading(self) -> Iterator[IndexedRun]:
        """The run as its index knows it now; for one thread at a time."""
        with self._reading_lock:
            yield self._indexed


class IndexedRun:
    """A run and its index as they stood at one time."""

    def __init__(self, record: Run, announce: Callable[[int], None] | None = None) -> None:
        self.record = record
        self.size = _size(record)
        with ExitStack() as opened:
            self._run = opened.enter_context(closing(OpenRun(record.folder)))
            self._db = opened.enter_context(closing(open_index(record, announce)))
            self._meta: dict[str, Any] = dict(self._db.execute("SELECT name, value FROM meta"))
            self.rows: int = self._meta["rows"]
            self._chunk: int = self._meta["chunk"]
            facts = json.loads(self._meta["index"])  # those of `PackedColumns.as_dict`
            self._kinds: list[list[dict[str, Any]]] = facts["kinds"]  # by metric and number
            self._days: list[str | None] = [day for day, *_ in facts["groups"]]  # of traces
            self._graphs = list(map(MetricGraph.of, record.manifest.metrics))
            self._costs = StepCosts(record.manifest)
            self._opened = opened.pop_all()

    def close(self) -> None:
        """Close the index and the files."""
        self._opened.close()

    def page(self, server: Mapping[str, Any]) -> str:
        """The page without data; `server` holds facts about the server."""
        record = run_record(self.record, self.rows, kept=self.rows, served=True)
        record["metrics"] = json.loads(self._meta["metrics"])
        record["days"] = len({*self._days} - {None})
        record["alarms"] = alarms_of(self.record, self._day_of)
        head = head_of(record, {**server, "asks": True}, chunk=self._chunk)
        index = f'<script type="text/plain" id="index">{pack(self._meta["index"])}</script>\n'
        return page_of(head, index, title=self._run.name, connect="'self'")

    def _day_of(self, case: int) -> str | None:
        """The day of the trace of a case; None without one, and for a case without a row."""
        with suppress(InputError):
            number, position = divmod(self._run.place_of(case), self._chunk)
            groups = array("I", self.chunk("group", number))
            return self._days[groups[position]]
        return None

    def chunk(self, column: str, number: int) -> bytes:
        """A chunk of a column; raises InputError where there is none."""
        sql = "SELECT bytes FROM chunks WHERE name = ? AND number = ?"
        for (data,) in self._db.execute(sql, (utf8(column), number)):
            return bytes(data)
        raise InputError(f"the run has no column {column!r:.80} with a part {number}")

    def search(self, text: str) -> bytes:
        """The places (32-bit numbers) of rows with words that begin with each of the text's."""
        # Quotes would end the word and let a search be a query of its own.
        words = utf8(text.replace('"', " ").replace("\0", " ")).split()
        if len(words) > _WORDS:
            raise InputError(f"a search has at most {_WORDS} words, and this one has {len(words)}")
        match = " ".join(f'"{word}"*' for word in words)
        sql = "SELECT rowid FROM texts WHERE texts MATCH ?"
        hits = self._db.execute(sql, (match,)) if match else zip(range(self.rows), strict=True)
        return array("I", chain.from_iterable(hits)).tobytes()

    def texts(self, places: Sequence[int]) -> list[Any]:
        """The texts of rows, each with its labels; raises InputError for a place without a row."""
        people, texts = people_of(self.record), list[Any]()
        for row, fields in zip(map(self._run.row, places), self.fields(places), strict=True):
            line = packed_row(self._graphs, self._costs, row, fields)
            texts.append([line, people.get(row.hash, [])])
        return texts

    def fields(self, places: Sequence[int]) -> list[Mapping[str, Any] | None]:
        """The fields of cases; None without texts. Raises InputError for a place without a row."""
        if (last := max(places, default=-1)) >= len(self._run):
            raise InputError(f"there is no row {last}: the run has {len(self._run)}")
        return list(map(self._run.fields, places))

    def places(self, metric: str, kind: Queue) -> Sequence[int]:
        """The places of the cases that a metric failed or gave no score, or of the unsure ones."""
        number = self.record.manifest.metric_names.index(metric)
        # All results of a kind have its state (a letter) and its split votes, so kinds are chosen.
        is_chosen = [
            facts["state"] in ("f", "n") if kind == "failed" else bool(facts["split"])
            for facts in self._kinds[number]
        ]
        sql = "SELECT bytes FROM chunks WHERE name = ? ORDER BY number"
        chunks = self._db.execute(sql, (f"kind.{number}",))
        kinds = array("I", b"".join(chain.from_iterable(chunks)))
        return array("q", compress(count(), map(is_chosen.__getitem__, kinds)))


def _size(run: Run) -> int:
    """The bytes of the rows so far."""
    return run.results.stat().st_size if run.results.exists() else 0


def open_index(run: Run, announce: Callable[[int], None] | None = None) -> sqlite3.Connection:
    """The index of a run, made first when there is none or the run has changed since.

    `announce` hears the number of rows while it is made. Raises InputError for a damaged run,
    and where no private folder has room.
    """
    # The mark identifies this state of a run: its files, their sizes and times. Whoever writes a
    # file can set its `st_mtime` back, but not `st_ctime`, which the system sets.
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
        for (value,) in db.execute("SELECT value FROM meta WHERE name = ?", (name,)):
            return str(value)
    return None


def _make(path: Path, run: Run, mark: str, announce: Callable[[int], None]) -> None:
    """Write the index of a run; raises OSError and sqlite3.OperationalError without room."""
    # First make room: remove the indexes of runs whose folders are gone.
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
            columns, rows = PackedColumns(run.manifest.metrics), 0
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
                "metrics": json.dumps(list(map(MetricKinds.as_drawn, columns.kinds))),
            }  # fmt: skip
            db.executemany("INSERT INTO meta VALUES (?, ?)", meta.items())
            db.execute("COMMIT")
        making.replace(path)
    finally:
        with suppress(OSError):
            making.unlink(missing_ok=True)


def _add_chunk(db: sqlite3.Connection, columns: PackedColumns) -> None:
    number = columns.taken // CHUNK
    chunk = ((name, number, data) for name, data in columns.take(CHUNK).items())
    db.executemany("INSERT INTO chunks VALUES (?, ?, ?)", chunk)
