"""Rows and cases of a large run, in windows: the index says which, the run's files what."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from dagengine.report.page.people import People
from dagengine.report.page.texts import calls_of, odds_of, quotes_of, result_odds, three_digits
from dagengine.report.pictures.graphs import Contest, words
from dagengine.results import CaseResult, MetricResult, Step
from dagengine.results.worst import worst_result
from dagengine.view.index import STATES, utf8
from dagengine.view.indexed import Filter, Indexed, Order

_STATE = {"f": "fail", "n": "none", "p": "pass", "-": "plain"}
_PREVIEW = 240  # characters of a text in a table
_UNTOLD = frozenset({"name", "tags", "comments", "type", "role"})  # they say nothing of the text
_LINES = 100_000  # cases of a data set that is handed to the browser


class Cases:
    """The cases of one run."""

    def __init__(self, index: Indexed) -> None:
        self._index = index

    def rows(
        self, chosen: Filter, which: str, order: Order, start: int, stop: int
    ) -> dict[str, Any]:
        """A window of the rows in an order, and how many there are."""
        where = self._index.where(chosen, which)
        table, count = ("results", "count(*)") if where.rows else ("tallies", "sum(n)")
        ((total,),) = self._index.all(
            f"SELECT {count} FROM {table} r WHERE {where.sql}", *where.values
        )
        sql = self._index.ordered(where, order) + " LIMIT ? OFFSET ?"
        size = max(0, min(stop - start, 1000))
        places = self._index.all(sql, *where.values, size, max(start, 0)) if size else []
        people = self._index.run.people() if places else People()
        shown = [self._row(place, chosen.metric, people) for (place,) in places]
        return {"total": total or 0, "rows": shown}

    def place(self, chosen: Filter, which: str, order: Order, index: int) -> int:
        """The place of a case in an order; -1 when it is not among those chosen."""
        where = self._index.where(chosen, which)
        wanted = self._index.run.place_of(index)
        places = self._index.all(self._index.ordered(where, order), *where.values)
        return next((n for n, (place,) in enumerate(places) if place == wanted), -1)

    def why(self, place: int, metric: int) -> str | None:
        """The reason of the case at a place."""
        way = self._index.of(place, "way")[metric][0]
        name = self._index.graphs[metric]["name"]
        return self._why(metric, way, _result(self._index.run.row(place), name))

    def _row(self, place: int, front: int, people: People) -> dict[str, Any]:
        """A row of the table; where there are several metrics it tells of the worst."""
        row = self._index.run.row(place)
        names, worst = [graph["name"] for graph in self._index.graphs], worst_result(row)
        metric = front if len(names) == 1 or worst is None else names.index(worst.metric)
        results = self._index.of(
            place, "way, state, score, tokens, questions, split, cost, seconds"
        )
        way, state, score, tokens, questions, split, cost, seconds = results[metric]
        fields = self._index.run.fields(place) or {}
        first, output = first_text(fields), fields.get("actual_output")
        path = ", ".join(
            self._index.answer(metric, answer) for answer in self._index.ways[metric][way][0]
        )
        result = _result(row, self._index.graphs[metric]["name"])
        votes = self._index.all(
            "SELECT answer, count FROM items WHERE metric = ? AND place = ?", metric, place
        )
        return {
            "about": metric,
            "votes": votes,
            "index": row.index,
            "name": row.case,
            "scores": [self._score(number, results[number]) for number in sorted(results)],
            "end": self._ended(metric, way, STATES[state], score),
            "why": self._why(metric, way, result),
            "output": _cut(output) if isinstance(output, str) else None,
            "first": None if first is None else _cut(first.lstrip().split("\n", 1)[0]),
            "path": path,
            "split": split,
            "questions": questions,
            "tokens": tokens,
            "cost": cost,
            "seconds": seconds,
            "said": people.of(row.hash),
            "tags": list(fields.get("tags") or []),
        }

    def _score(self, metric: int, columns: Sequence[Any]) -> dict[str, Any]:
        way, state, score = columns[:3]
        failure = self._index.ways[metric][way][3]
        kind = failure[0] if failure else None
        return {"state": _STATE[STATES[state]], "score": score, "kind": kind}

    def _ended(self, metric: int, way: int, state: str, score: float | None) -> str:
        """Where one case ended: a leaf with the score that it gave."""
        course = self._index.ways[metric][way]
        if state == "n" or course[2][1] is not None or score is None:
            return self._index.end(metric, course, state)
        return f"{self._index.leaf(metric, course)} → {score:.2f}"

    def _why(self, metric: int, way: int, result: MetricResult | None) -> str | None:
        """The reason at the end of the path."""
        if result is None:
            return None
        if result.failure is not None:
            return _cut(result.failure.message)
        node = self._index.ways[metric][way][2][0]
        name = None if node is None else self._index.graphs[metric]["nodes"][node]["name"]
        step = next((candidate for candidate in result.steps if candidate.node == name), None)
        contest = None if step is None else Contest.of(step.output)
        why = contest.reason if contest else step.reason if step is not None else None
        if why is None:
            by_code = step is not None and step.kind == "code" and step.verdict is not None
            why = "decided by code" if by_code else result.reason
        return None if why is None else _cut(why)

    def find(self, name: str) -> int | None:
        """The number of a case by its name, or its number as text."""
        rows = self._index.all(
            "SELECT number FROM cases WHERE name = ? ORDER BY place LIMIT 1", utf8(name)
        )
        if not rows and name.isdecimal() and name.isascii() and len(name) < 19:
            rows = self._index.all("SELECT number FROM cases WHERE number = ?", int(name))
        return rows[0][0] if rows else None

    def one(self, index: int) -> dict[str, Any] | None:
        """One case with its texts and every step."""
        rows = self._index.all("SELECT place FROM cases WHERE number = ?", index)
        if not rows:
            return None
        (place,) = rows[0]
        row = self._index.run.row(place)
        columns = self._index.of(place, "way, state, score")
        results = {result.metric: result for result in row.metrics}
        metrics = []
        for metric, graph in enumerate(self._index.graphs):
            way, state, score = columns[metric]
            answers, _, end, failure = self._index.ways[metric][way]
            result = results.get(graph["name"])
            breakage = None if result is None else result.failure
            steps = () if result is None else result.steps
            odds = None if result is None else result.odds
            metrics.append(
                {
                    **self._score(metric, columns[metric]),
                    "end": self._ended(metric, way, STATES[state], score),
                    "endNode": failure[1] if failure else end[0],
                    "reason": None if result is None else result.reason,
                    "failure": None if breakage is None else {"raw": None, **breakage.as_dict()},
                    "answers": answers,
                    "steps": [self._step(metric, step) for step in steps],
                    "odds": None if odds is None else result_odds(odds),
                }
            )
        return {
            "index": index,
            "name": row.case,
            "hash": row.hash and row.hash[:8],
            "fields": self._index.run.fields(place),
            "said": self._index.run.people().of(row.hash),
            "seconds": three_digits(row.seconds),
            "metrics": metrics,
        }

    def _step(self, metric: int, step: Step) -> dict[str, Any]:
        names = [node["name"] for node in self._index.graphs[metric]["nodes"]]
        decided = step.verdict is not None
        calls, cached = calls_of(step)
        return {
            "node": names.index(step.node) if step.node in names else None,
            "name": step.node,
            "kind": step.kind,
            "outcome": str(step.outcome),
            "verdict": words(step.verdict) if decided else None,
            "output": None if decided or step.output == step.score else step.output,
            "reason": step.reason,
            "score": step.score,
            "mode": step.mode,
            "confidence": step.confidence,
            "votes": list(step.votes),
            "tokens": round(step.usage.input_tokens + step.usage.output_tokens),
            "cost": self._index.costs.of(self._index.graphs[metric]["name"], step) or None,
            "seconds": three_digits(step.seconds),
            "odds": odds_of(step),
            "calls": calls,
            "cached": cached or 0,
            "quotes": quotes_of(step),
            "spans": list(step.spans),
        }

    def lines(self, chosen: Filter, which: str) -> Iterable[str] | None:
        """The cases chosen as lines of a data set; None without texts, or for too many."""
        where = self._index.where(chosen, which)
        sql = self._index.ordered(where, Order(by="data")) + " LIMIT ?"
        # One more than are handed on tells that there are too many.
        places = self._index.all(sql, *where.values, _LINES + 1)
        if len(places) > _LINES or (places and self._index.run.fields(places[0][0]) is None):
            return None
        fields = (self._index.run.fields(place) for (place,) in places)
        return (json.dumps(case, ensure_ascii=False) + "\n" for case in fields)


def _result(row: CaseResult, metric: str) -> MetricResult | None:
    return next((result for result in row.metrics if result.metric == metric), None)


def first_text(value: Any) -> str | None:
    """The text that tells a case apart at a glance: its input, or the first of its texts."""
    if isinstance(value, str):
        return value
    if isinstance(value, list):
        parts: Iterable[Any] = value
    elif isinstance(value, Mapping):
        shown = {name: part for name, part in value.items() if name not in _UNTOLD}
        main = next((shown[name] for name in ("input", "scenario") if name in shown), None)
        parts = shown.values() if main is None else (main,)
    else:
        return None
    return next((text for text in map(first_text, parts) if text is not None), None)


def _cut(text: str) -> str:
    return text if len(text) <= _PREVIEW else f"{text[: _PREVIEW - 1]}…"
