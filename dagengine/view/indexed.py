"""The index of a large run as it is asked: conditions of a filter in SQL, names of ends."""

from __future__ import annotations

import json
import math
import sqlite3
import threading
from collections.abc import Iterable
from typing import Any, Literal, NamedTuple

from pydantic import BaseModel, ConfigDict, Field

from dagengine.errors import InputError
from dagengine.record.costs import StepCosts
from dagengine.view.index import STATES, mask_of, utf8
from dagengine.view.opened import OpenRun

_ORDERS = {
    "score": "r.score IS NULL, r.score {}", "tokens": "r.tokens {}", "questions": "r.questions {}",
    "cost": "r.cost IS NULL, r.cost {}", "time": "r.seconds IS NULL, r.seconds {}",
    "state": "r.state {}", "split": "r.split {}", "data": "r.place {}", "end": "r.way {}",
    "case": "(SELECT sorted FROM cases c WHERE c.place = r.place) {}",
    # As `results.worst`: failed by score, without a score, then the lowest.
    "worst": "(SELECT min(min(w.state, 2) * 2 + ifnull(w.score, 0)) FROM results w "
    "WHERE w.place = r.place) {}",
}  # fmt: skip
_WORDS = 30  # of a search: every one is looked up in the index of all texts


class Part(BaseModel):
    """One condition of a filter; see `Part` in the front end."""

    model_config = ConfigDict(extra="forbid", populate_by_name=True)
    kind: Literal["e", "n", "end", "b", "set", "day", "stratum"]
    key: str = Field(max_length=10_000)
    inverted: bool = Field(alias="not")


class Filter(BaseModel):
    """The conditions that all hold at once, under one metric."""

    model_config = ConfigDict(extra="forbid")
    metric: int = Field(ge=0, lt=2**53)
    parts: list[Part] = Field(default=[], max_length=50)
    text: str = Field(default="", max_length=1000)


class Order(BaseModel):
    """By what rows are sorted, and whether downwards."""

    model_config = ConfigDict(extra="forbid")
    by: str = Field(max_length=20)
    down: bool = False


class Where(NamedTuple):
    """A condition in SQL over `results` (as r); `rows` says that sums over ways do not do."""

    sql: str
    values: tuple[Any, ...] = ()
    rows: bool = False


_CASES = "r.place IN (SELECT place FROM cases WHERE {})"
_SHOWN = {
    "all": Where("TRUE"), "fail": Where("r.state = 0"), "none": Where("r.state = 1"),
    "pass": Where("r.state = 2"), "unsure": Where("r.split > 0", (), True),
    # These are of the whole case: which of its metrics failed, and which have no score.
    "any": Where(_CASES.format("failing <> '0'"), (), True),
    "missing": Where(_CASES.format("failing = '0' AND missing <> '0'"), (), True),
    "passed": Where(_CASES.format("failing = '0' AND missing = '0'"), (), True),
}  # fmt: skip
"""Which rows of a filter the table shows."""


class Indexed:
    """A run and its index. All methods are safe to call from several threads."""

    def __init__(self, run: OpenRun, db: sqlite3.Connection) -> None:
        self.run = run
        self._db = db
        self._lock = threading.Lock()
        self.costs = StepCosts(run.manifest)
        self.graphs: list[dict[str, Any]] = json.loads(self._meta("graphs"))
        self.ways: list[list[Any]] = json.loads(self._meta("ways"))

    def close(self) -> None:
        """Close the index."""
        self._db.close()

    def _meta(self, name: str) -> str:
        return str(self.all("SELECT value FROM meta WHERE name = ?", name)[0][0])

    def all(self, sql: str, *values: Any) -> list[Any]:
        """All lines of a query."""
        with self._lock:
            return self._db.execute(sql, values).fetchall()

    def of(self, place: int, columns: str) -> dict[int, Any]:
        """Columns of the results at a place, by metric."""
        metrics = ", ".join(map(str, range(len(self.graphs))))
        sql = f"SELECT metric, {columns} FROM results WHERE metric IN ({metrics}) AND place = ?"
        return {metric: rest for metric, *rest in self.all(sql, place)}

    # Names.

    def end(self, metric: int, way: Any, state: str) -> str:
        """Where cases ended, as a group."""
        graph, (_, _, (_, answer), failure) = self.graphs[metric], way
        if state == "n" and failure:
            return f"{failure[2]}: {failure[0].replace('_', ' ')}"
        if answer is not None:
            return self.answer(metric, answer)
        threshold = "" if graph["threshold"] is None else f"{graph['threshold']:.12g}"
        limit = "1 (strict)" if graph["strict"] else threshold
        leaf = self.leaf(metric, way)
        return f"{leaf} below {limit}" if state == "f" else leaf

    def leaf(self, metric: int, way: Any) -> str:
        """A leaf behind decisions has its own name; a graph without decisions is its metric."""
        graph, (answers, _, (node, _), _) = self.graphs[metric], way
        named = node is not None and answers
        return str(graph["nodes"][node]["name"] if named else graph["name"])

    def answer(self, metric: int, answer: int) -> str:
        """What an answer is called: `Tone → rude`."""
        graph = self.graphs[metric]
        edge = graph["answers"][answer]
        return f"{graph['nodes'][edge['node']]['name']} → {edge['verdict']}"

    # Conditions.

    def where(self, chosen: Filter, which: str = "all") -> Where:
        """The condition of a filter, and of the rows of it that are shown (`which`)."""
        conditions = [Where("r.metric = ?", (chosen.metric,))]
        for part in chosen.parts:
            condition = self._positive(chosen.metric, part)
            sql = f"NOT ({condition.sql})" if part.inverted else condition.sql
            conditions.append(condition._replace(sql=sql))
        if chosen.text:
            # Quotes would end the word and let a search be a query of its own.
            words = utf8(chosen.text.replace('"', " ").replace("\0", " ")).split()
            if len(words) > _WORDS:
                raise InputError(
                    f"a search has at most {_WORDS} words, and this one has {len(words)}"
                )
            match = " ".join(f'"{word}"*' for word in words)
            sql = "r.place IN (SELECT rowid FROM texts WHERE texts MATCH ?)"
            conditions.append(Where(sql, (match,), True) if match else Where("TRUE"))
        conditions.append(_SHOWN[which])
        sql = " AND ".join(
            f"({condition.sql})" if len(conditions) > 2 else condition.sql
            for condition in conditions
        )
        values = tuple(value for condition in conditions for value in condition.values)
        return Where(
            "r.metric = ?" if len(conditions) == 2 and which == "all" else sql,
            values,
            any(condition.rows for condition in conditions),
        )

    def _positive(self, metric: int, part: Part) -> Where:
        graph, ways, key = self.graphs[metric], self.ways[metric], part.key
        if part.kind in ("day", "stratum"):
            places = f"SELECT place FROM cases WHERE {part.kind} = ?"
            return Where(f"r.place IN ({places})", (key,), True)
        if part.kind == "b":
            try:
                tenth = math.floor(float(key) * 10 + 0.5)
            except (ValueError, OverflowError):
                raise InputError(f"{key!r:.40} is no score") from None
            return Where("r.bin IS ?", (tenth,))
        if part.kind == "set":
            names = [each["name"] for each in self.graphs]
            mask = mask_of(names.index(name) for name in key.split(" + ") if name in names)
            return Where("r.place IN (SELECT place FROM cases WHERE failing = ?)", (mask,), True)
        if part.kind == "n":
            number = next((i for i, n in enumerate(graph["nodes"]) if n["name"] == key), -1)
            return Where(_among(number in way[1] for way in ways))
        if part.kind == "end":
            # One name may be the end of cases that failed and of cases without a score.
            return Where(
                " OR ".join(
                    f"(r.state = {STATES.index(sign)} AND "
                    f"{_among(self.end(metric, way, sign) == key for way in ways)})"
                    for sign in "fn"
                )
            )
        names = [node["name"] for node in graph["nodes"]]
        keys = [f"{names[answer['node']]}:{answer['verdict']}" for answer in graph["answers"]]
        number = keys.index(key) if key in keys else -1
        went = _among(number in way[0] for way in ways)
        sql = "SELECT 1 FROM whole WHERE metric = ? AND answer = ? AND what = 'items'"
        if not self.all(sql, metric, number):
            return Where(went)
        # Items of a list give answers, too, and those are not in the way of their case.
        items = "SELECT place FROM items WHERE metric = ? AND answer = ?"
        return Where(f"{went} OR r.place IN ({items})", (metric, number), True)

    def ordered(self, where: Where, order: Order) -> str:
        """The query for the places of rows in an order."""
        way = "DESC" if order.down else "ASC"
        by = _ORDERS.get(order.by, f"r.state {way}, r.score {way}, r.way {way}").format(way)
        number = order.by.removeprefix("score")
        if order.by.startswith("score") and number.isdecimal():
            score = f"(SELECT score FROM results s WHERE s.metric = {int(number)}"
            score += " AND s.place = r.place)"
            by = f"{score} IS NULL, {score} {way}"
        return f"SELECT r.place FROM results r WHERE {where.sql} ORDER BY {by}, r.place"


def _among(fitting: Iterable[bool]) -> str:
    """That a row went one of the ways that fit, which are told in the order of their numbers."""
    numbers = [str(number) for number, fits in enumerate(fitting) if fits]
    return f"r.way IN ({', '.join(numbers)})"
