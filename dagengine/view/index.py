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
from dagengine.report.page.days import Group, group_of
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
    mark, failure = _mark(run), None
    for folder in private_folders():
        path = folder / _NAMES.format(digest(str(run.folder.resolve()))[:32])
        try:
            if not _fits(path, mark):
                _forget_old(folder)
                _make(path, run, mark, announce or (lambda rows: None))
            return _connect(path)
        except (OSError, sqlite3.OperationalError) as error:
            failure = error
    raise InputError(f"no folder has room for the index of {run.folder}: {failure}")


def _forget_old(folder: Path) -> None:
    """Remove the indexes of runs that are no more."""
    for path in folder.glob(_NAMES.format("*")):
        with suppress(OSError, sqlite3.Error), closing(_connect(path)) as db:
            entry = db.execute("SELECT value FROM meta WHERE name = 'folder'").fetchone()
            if entry is not None and not Path(entry[0]).exists():
                path.unlink()


def _connect(path: Path) -> sqlite3.Connection:
    db = sqlite3.connect(f"{path.as_uri()}?mode=ro", uri=True, check_same_thread=False)
    db.execute("PRAGMA query_only = ON")
    return db


def _mark(run: Run) -> str:
    """What tells this state of a run from others: its files, their sizes and times.

    When the system last changed a file (`st_ctime`) nobody can set.
    """
    files = [run.folder / MANIFEST, run.results, run.folder / CASES]
    stats = [file.lstat() for file in files if is_there(file)]
    marks = [(stat.st_ino, stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns) for stat in stats]
    return json.dumps([_FORMAT, marks])


def _fits(path: Path, mark: str) -> bool:
    if not path.exists():
        return False
    try:
        with closing(_connect(path)) as db:
            entry = db.execute("SELECT value FROM meta WHERE name = 'mark'").fetchone()
    except sqlite3.Error:
        return False
    return entry is not None and entry[0] == mark


def _make(path: Path, run: Run, mark: str, announce: Callable[[int], None]) -> None:
    making = path.with_name(f"{path.name}.{os.getpid()}")
    try:
        with closing(sqlite3.connect(making, isolation_level=None)) as db:
            db.executescript("PRAGMA journal_mode = OFF; PRAGMA synchronous = OFF;" + _TABLES)
            db.execute("BEGIN")
            graphs = _Rows(db, run).fill(announce)
            db.execute("COMMIT")
            db.executescript(_SUMS)
            db.execute("INSERT INTO meta VALUES ('mark', ?)", (mark,))
            folder = utf8(str(run.folder.resolve()))
            db.execute("INSERT INTO meta VALUES ('folder', ?)", (folder,))
            _describe(db, graphs)
        making.replace(path)
    finally:
        with suppress(OSError):
            making.unlink(missing_ok=True)


def _describe(db: sqlite3.Connection, numbered: list[tuple[MetricGraph, dict[Any, int]]]) -> None:
    """Keep the graphs with their drawings, and the ways."""
    (rows,) = db.execute("SELECT count(*) FROM cases").fetchone()
    graphs, ways = [], []
    for metric, (graph, numbers) in enumerate(numbered):
        counted = [(way, *_cases(db, metric, number)) for way, number in numbers.items()]
        drawn, nested = layouts(graph, counted, rows)
        graphs.append({**graph.as_dict(), "layouts": drawn, "nested": nested})
        ways.append(list(numbers))
    db.execute("INSERT INTO meta VALUES ('graphs', ?)", (json.dumps(graphs),))
    db.execute("INSERT INTO meta VALUES ('ways', ?)", (json.dumps(ways),))


def _cases(db: sqlite3.Connection, metric: int, way: int) -> tuple[int, int]:
    """The cases that went a way, and those of them that failed."""
    query = "SELECT sum(n), sum((state = 0) * n) FROM tallies WHERE metric = ? AND way = ?"
    cases, failed = db.execute(query, (metric, way)).fetchone()
    return cases or 0, failed or 0


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
        self._masks, self._groups = lru_cache(_KEPT)(_masks), lru_cache(_KEPT)(_group)

    def fill(self, announce: Callable[[int], None]) -> list[tuple[MetricGraph, dict[Any, int]]]:
        start = 0
        for block in self._run.blocks():
            self._add(block, start)
            start += len(block["index"])
            announce(start)
        return list(zip(self._graphs, self._ways, strict=True))

    def _add(self, block: Block, start: int) -> None:
        states = [self._add_results(metric, block, start) for metric in range(len(self._graphs))]
        signs = list(map("".join, zip(*states, strict=True))) or [""] * len(block["index"])
        own = zip(block["index"], block["case"], block["trace"], signs, strict=True)
        cases = []
        for place, (index, case, trace, sign) in enumerate(own, start):
            name = utf8(case)
            masks, group = self._masks(sign), self._groups(trace)
            cases.append((place, index, name, _sorted(name), *masks, *group))
        self._db.executemany("INSERT INTO cases VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)", cases)
        texts = enumerate(map(utf8, block["words"]), start)
        self._db.executemany("INSERT INTO texts (rowid, text) VALUES (?, ?)", texts)

    def _add_results(self, metric: int, block: Block, start: int) -> list[str]:
        """Put the results of a metric into their tables; returns their states."""
        columns = MetricColumns(self._graphs[metric], self._costs, ways=self._ways[metric])
        courses: dict[str | None, tuple[Course, tuple[Any, ...]]] = {}
        states, results, splits, items = [], [], [], []
        names = (f"{name}.{metric}" for name in ("course", *Used._fields))
        lines = zip(*map(block.__getitem__, names), strict=True)
        for place, (text, tokens, more, questions, cost, seconds) in enumerate(lines, start):
            if text not in courses:
                course = _course(columns, text)
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


def _course(columns: MetricColumns, course: str | None) -> Course:
    """A result as columns have it; None: the row has none of this metric."""
    name = columns.graph.metric.name
    empty = MetricResult(name, None, None, None)
    return columns.course(empty if course is None else outline_of(name, course))


def _masks(states: str) -> tuple[str, str]:
    """The metrics that failed, and those without a score, as texts of numbers."""
    failing, missing = (
        mask_of(number for number, state in enumerate(states) if state == sign) for sign in "fn"
    )
    return failing, missing


def _group(trace: str | None) -> Group:
    ids = None if trace is None else json.loads(trace)
    return group_of(CaseResult(0, "", (), recorded_trace=ids))


def _sorted(name: str) -> str:
    """What names are sorted by: numbers in them by their value, whatever their case."""
    return re.sub("[0-9]+", lambda found: found[0].zfill(12), name.lower())


def utf8(text: str) -> str:
    """Text that sqlite takes: without lone surrogates."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode(errors="replace").decode()
    return text
