"""The index of a large run: one sqlite file, made of its rows, and made again if needed.

It is in a private folder and never in that of the run: whoever made the run could have put another
one there, which tells other figures.

A *way* is what rows share that went alike through a metric's graph (see `report.page.columns`).
Most figures are sums over ways, scores and states, so `tallies` contains the sums. A filter by the
tree reads some hundred lines, whatever the number of rows. Texts are found by words (FTS5).
"""

from __future__ import annotations

import json
import os
import re
import sqlite3
from collections.abc import Callable, Iterable
from contextlib import closing, suppress
from functools import lru_cache
from pathlib import Path
from typing import Any

from dagengine.compiler.definitions import digest
from dagengine.errors import InputError
from dagengine.record.columns import Block, outline_of
from dagengine.record.costs import StepCosts, Used
from dagengine.record.run import Run
from dagengine.record.writer import CASES, MANIFEST
from dagengine.regular_files import is_there, private_folders
from dagengine.report.page.columns import Course, MetricColumns, shown_cost
from dagengine.report.page.days import group_of
from dagengine.report.page.layouts import layouts
from dagengine.report.pictures.graphs import MetricGraph
from dagengine.results import CaseResult, MetricResult
from dagengine.results.verdict import LETTERS

STATES = "".join(LETTERS.values())
"""Failed, no score, passed, a score without a threshold: as whole numbers, in this order."""
_FORMAT = 10
_NAMES = "view-{}.sqlite"
_KEPT = 10_000  # sets of states and groups that are kept while the index is made
_TABLES = """
    CREATE TABLE meta (name TEXT PRIMARY KEY, value TEXT) WITHOUT ROWID;
    CREATE TABLE cases (place INTEGER PRIMARY KEY, number INT, name TEXT, sorted TEXT, failing TEXT,
        missing TEXT, day TEXT, stratum TEXT, probability REAL);
    CREATE TABLE results (metric INT, place INT, way INT, state INT, score REAL, bin INT,
        tokens INT, questions INT, split INT, cost REAL, seconds REAL,
        PRIMARY KEY (metric, place)) WITHOUT ROWID;
    CREATE TABLE splits (metric INT, answer INT, place INT);
    CREATE TABLE items (metric INT, answer INT, place INT, count INT);
    CREATE VIRTUAL TABLE texts USING fts5(text, content='', detail='none');
"""
_SUMS = """
    CREATE INDEX cases_by_name ON cases (name);
    CREATE INDEX cases_by_number ON cases (number);
    CREATE INDEX cases_by_failing ON cases (failing, missing);
    CREATE INDEX cases_by_day ON cases (day, stratum);
    CREATE INDEX results_in_order ON results (metric, state, score, way);
    CREATE INDEX splits_by_answer ON splits (metric, answer, place);
    CREATE INDEX items_by_answer ON items (metric, answer, place);
    CREATE TABLE tallies AS SELECT metric, way, state, score, bin, count(*) AS n,
        sum(split > 0) AS unsure, min(place) AS first FROM results GROUP BY 1, 2, 3, 4, 5;
    CREATE TABLE whole AS SELECT metric, answer, 'split' AS what, state, count(*) AS cases,
        0 AS items FROM splits JOIN results USING (metric, place) GROUP BY 1, 2, 4
        UNION ALL SELECT metric, answer, 'items', state, count(*), sum(count)
        FROM items JOIN results USING (metric, place) GROUP BY 1, 2, 4;
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
    """What an index says of itself; None without one that can be read."""
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
            # No journal: what a kill leaves is made again, not repaired.
            db.executescript("PRAGMA journal_mode = OFF; PRAGMA synchronous = OFF;" + _TABLES)
            db.execute("BEGIN")
            numbered = _Rows(db, run).fill(announce)
            db.execute("COMMIT")
            db.executescript(_SUMS)
            db.execute("INSERT INTO meta VALUES ('mark', ?)", (mark,))
            db.execute("INSERT INTO meta VALUES ('folder', ?)", (utf8(str(run.folder.resolve())),))
            (rows,) = db.execute("SELECT count(*) FROM cases").fetchone()
            query = "SELECT sum(n), sum((state = 0) * n) FROM tallies WHERE metric = ? AND way = ?"
            graphs, ways = [], []
            for metric, (graph, numbers) in enumerate(numbered):
                counted = []
                for way, number in numbers.items():
                    cases, failed = db.execute(query, (metric, number)).fetchone()
                    counted.append((way, cases or 0, failed or 0))
                drawn, nested = layouts(graph, counted, rows)
                graphs.append({**graph.as_dict(), "layouts": drawn, "nested": nested})
                ways.append(list(numbers))
            db.execute("INSERT INTO meta VALUES ('graphs', ?)", (json.dumps(graphs),))
            db.execute("INSERT INTO meta VALUES ('ways', ?)", (json.dumps(ways),))
        making.replace(path)
    finally:
        with suppress(OSError):
            making.unlink(missing_ok=True)


def mask_of(metrics: Iterable[int]) -> str:
    """A set of metrics by their numbers, as a text: numbers of SQLite have 63 bits."""
    return format(sum(1 << number for number in metrics), "x")


class _Rows:
    """Puts the rows of a run into the tables, some thousand at a time."""

    def __init__(self, db: sqlite3.Connection, run: Run) -> None:
        self._db = db
        self._run = run
        self._costs = StepCosts(run.manifest)
        self._graphs = [MetricGraph.of(metric) for metric in run.manifest.metrics]
        self._ways: list[dict[Any, int]] = [{} for _ in self._graphs]
        # Many rows have the same states, and all rows without a trace the same group.
        self._masks = lru_cache(_KEPT)(_masks)
        self._groups = lru_cache(_KEPT)(
            lambda trace: group_of(
                CaseResult(0, "", (), recorded_trace=None if trace is None else json.loads(trace))
            )
        )

    def fill(self, announce: Callable[[int], None]) -> list[tuple[MetricGraph, dict[Any, int]]]:
        start = 0
        for block in self._run.blocks():
            count = len(block["index"])
            states = [self._add_results(n, block, start) for n in range(len(self._graphs))]
            signs = list(map("".join, zip(*states, strict=True))) or [""] * count
            own = zip(block["index"], block["case"], block["trace"], signs, strict=True)
            cases = []
            for place, (index, case, trace, sign) in enumerate(own, start):
                name = utf8(case)
                # Names are sorted by the value of the numbers in them: `case 9` before `case 10`.
                key = re.sub("[0-9]+", lambda digits: digits[0].zfill(12), name.lower())
                cases.append((place, index, name, key, *self._masks(sign), *self._groups(trace)))
            self._db.executemany("INSERT INTO cases VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)", cases)
            texts = enumerate(map(utf8, block["words"]), start)
            self._db.executemany("INSERT INTO texts (rowid, text) VALUES (?, ?)", texts)
            start += count
            announce(start)
        return list(zip(self._graphs, self._ways, strict=True))

    def _add_results(self, metric: int, block: Block, start: int) -> list[str]:
        """Put the results of a metric into their tables; returns their states."""
        columns = MetricColumns(self._graphs[metric], self._costs, ways=self._ways[metric])
        courses: dict[str | None, tuple[Course, tuple[Any, ...]]] = {}
        states, results, splits, items = [], [], [], []
        name, used_names = columns.graph.metric.name, ("course", *Used._fields)
        lines = zip(*(block[f"{used}.{metric}"] for used in used_names), strict=True)
        for place, (text, tokens, more, questions, cost, seconds) in enumerate(lines, start):
            if text not in courses:
                # None: the row has no result of this metric.
                empty = MetricResult(name, None, None, None)
                course = columns.course(empty if text is None else outline_of(name, text))
                number = None if course.score is None else int(course.score * 10 + 0.5)
                state = STATES.index(course.state)
                courses[text] = course, (course.way, state, course.score, number)
            course, head = courses[text]
            states.append(course.state)
            used = (tokens or 0) + (more or 0), questions or 0, len(course.split), shown_cost(cost)
            spent = None if seconds is None else round(seconds, 3)
            results.append((metric, place, *head, *used, spent))
            splits += [(metric, answer, place) for answer in course.split]
            items += [(metric, answer, place, count) for answer, count in course.items]
        marks = ", ".join("?" * 11)
        self._db.executemany(f"INSERT INTO results VALUES ({marks})", results)
        self._db.executemany("INSERT INTO splits VALUES (?, ?, ?)", splits)
        self._db.executemany("INSERT INTO items VALUES (?, ?, ?, ?)", items)
        return states


def _masks(states: str) -> tuple[str, str]:
    """The metrics that failed, and those without a score, as texts of numbers."""
    failing, missing = (
        mask_of(number for number, state in enumerate(states) if state == sign) for sign in "fn"
    )
    return failing, missing


def utf8(text: str) -> str:
    """Text that sqlite takes: without lone surrogates."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode(errors="replace").decode()
    return text
