"""What the page asks of a large run, answered from its index: counts, ends, many metrics.

The shapes are those of `Source` in the front end (`report/page/front/data/source.ts`).
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from itertools import accumulate
from typing import Any, NamedTuple

from dagengine.view.index import STATES
from dagengine.view.indexed import Filter, Indexed

_STATE = {"f": "fail", "n": "none"}
_WHYS = 9  # ends whose first reason is looked up


class _Group(NamedTuple):
    """Cases that went one way to one score."""

    way: int
    state: str
    score: float | None
    bin: int | None
    cases: int
    unsure: int
    first: int


class Figures:
    """The figures of one run; `why` gives the reason of the case at a place, under a metric."""

    def __init__(self, index: Indexed, why: Callable[[int, int], str | None]) -> None:
        self._index = index
        self._why = why
        self._latest: tuple[str, list[_Group]] | None = None

    def counts(self, chosen: Filter) -> dict[str, Any]:
        """Cases, figures of the scores, and the counts of every node and answer."""
        groups = self._groups(chosen)
        states = Counter[str]()
        bins = [{"passed": 0, "failed": 0} for _ in range(11)]
        for group in groups:
            states[group.state] += group.cases
            if group.bin is not None:
                place = min(max(group.bin, 0), 10)  # code of a metric may give any number
                bins[place]["failed" if group.state == "f" else "passed"] += group.cases
        return {
            "cases": states.total(),
            "passed": states["p"],
            "failed": states["f"],
            "none": states["n"],
            "plain": states["-"],
            "unsure": sum(group.unsure for group in groups),
            "bins": bins,
            "scores": _scores(groups),
            "answers": self._answers(chosen, groups),
            "nodes": self._nodes(chosen, groups),
        }

    def _groups(self, chosen: Filter) -> list[_Group]:
        """The cases of a filter; those of the latest one stay, since a page asks several times."""
        key = chosen.model_dump_json()
        latest = self._latest  # read once: another thread may put a filter of its own there
        if latest is not None and latest[0] == key:
            return latest[1]
        where = self._index.where(chosen)
        table = "tallies r" if not where.rows else (
            "(SELECT way, state, score, bin, count(*) AS n, sum(split > 0) AS unsure, "
            f"min(place) AS first, metric FROM results r WHERE {where.sql} "
            "GROUP BY +way, +state, +score, +bin) r"
        )  # fmt: skip
        condition = "TRUE" if where.rows else where.sql
        sql = f"SELECT way, state, score, bin, n, unsure, first FROM {table} WHERE {condition}"
        rows = self._index.all(sql, *where.values)
        groups = [_Group(way, STATES[state], *rest) for way, state, *rest in rows]
        self._latest = (key, groups)
        return groups

    def _answers(self, chosen: Filter, groups: Sequence[_Group]) -> list[dict[str, Any]]:
        counts: defaultdict[int, Counter[str]] = defaultdict(Counter)
        for group in groups:
            for answer in set(self._index.ways[chosen.metric][group.way][0]):
                _count(counts[answer], group.state, group.cases)
        # Split votes and items are not in the way of a case: they have tables of their own.
        if chosen.parts or chosen.text:
            where = self._index.where(chosen)
            sql = " UNION ALL ".join(
                f"SELECT x.answer, '{what}', r.state, count(*), {items} FROM {table} x "
                f"JOIN results r USING (metric, place) WHERE {where.sql} GROUP BY 1, 3"
                for what, table, items in (
                    ("split", "splits", "0"), ("items", "items", "sum(count)"),
                )
            )  # fmt: skip
            rows = self._index.all(sql, *where.values, *where.values)
        else:
            sql = "SELECT answer, what, state, cases, items FROM whole WHERE metric = ?"
            rows = self._index.all(sql, chosen.metric)
        for answer, what, state, cases, items in rows:
            if what == "split":
                counts[answer]["split"] += cases
            else:
                _count(counts[answer], STATES[state], cases)
                counts[answer]["items"] += items
        names = ("cases", "failed", "none", "split", "items")
        answers = self._index.graphs[chosen.metric]["answers"]
        return [{name: counts[number][name] for name in names} for number in range(len(answers))]

    def _nodes(self, chosen: Filter, groups: Sequence[_Group]) -> list[dict[str, Any]]:
        counts: defaultdict[int, Counter[str]] = defaultdict(Counter)
        broken: defaultdict[int, Counter[str]] = defaultdict(Counter)
        for group in groups:
            _, nodes, _, failure = self._index.ways[chosen.metric][group.way]
            for node in set(nodes):
                _count(counts[node], group.state, group.cases)
            if group.state == "n" and failure and failure[1] is not None:
                broken[failure[1]][failure[0]] += group.cases
        return [
            {
                **{name: counts[number][name] for name in ("cases", "failed", "none")},
                "broken": dict(broken[number]),
            }
            for number in range(len(self._index.graphs[chosen.metric]["nodes"]))
        ]

    def days(self, chosen: Filter) -> list[dict[str, Any]]:
        """The cases of every day, stratum and probability, with sums of their scores."""
        where = self._index.where(chosen)
        sql = (
            "SELECT day, stratum, probability, count(*), sum(r.state = 2), sum(r.state = 0), "
            "sum(r.state = 1), count(r.score), total(r.score), total(r.score * r.score) "
            f"FROM results r JOIN cases USING (place) WHERE {where.sql} AND day IS NOT NULL "
            "GROUP BY 1, 2, 3"
        )
        names = ("day", "stratum", "probability", "cases", "passed", "failed", "none", "scored")
        rows = self._index.all(sql, *where.values)
        return [dict(zip((*names, "sum", "squares"), row, strict=True)) for row in rows]

    def ends(self, chosen: Filter) -> list[dict[str, Any]]:
        """Where cases failed or broke off, the most first, with the reason of the first case."""
        by_label: dict[str, dict[str, Any]] = {}
        for group in self._groups(chosen):
            if group.state not in "fn":
                continue
            way = self._index.ways[chosen.metric][group.way]
            key = self._index.end(chosen.metric, way, group.state)
            end = by_label.setdefault(
                key,
                {
                    "key": key, "label": key, "state": _STATE[group.state], "node": way[2][0],
                    "answer": way[2][1], "cases": 0, "why": "", "first": group.first,
                },
            )  # fmt: skip
            end["cases"] += group.cases
            end["first"] = min(end["first"], group.first)
        ends = sorted(by_label.values(), key=lambda row: (row["state"] == "none", -row["cases"]))
        for end in ends[:_WHYS]:
            end["why"] = self._why(end["first"], chosen.metric) or ""
        return ends

    def many(self, chosen: Filter) -> dict[str, Any]:
        """Every metric in the cases of a filter, and which fail together."""
        where = self._index.where(chosen)
        inside = "TRUE" if where.sql == "r.metric = ?" else (
            f"c.place IN (SELECT r.place FROM results r WHERE {where.sql})"
        )  # fmt: skip
        values = () if inside == "TRUE" else where.values
        sets = [
            (int(failing, 16), int(missing, 16), cases)
            for failing, missing, cases in self._index.all(
                f"SELECT failing, missing, count(*) FROM cases c WHERE {inside} GROUP BY 1, 2",
                *values,
            )
        ]
        together = Counter[int]()
        for failing, _, cases in sets:
            together[failing] += cases
        return {
            "strips": [
                self._strip(number, inside, values) for number in range(len(self._index.graphs))
            ],
            "together": [
                {
                    "metrics": [n for n in range(failing.bit_length()) if failing >> n & 1],
                    "cases": cases,
                }
                for failing, cases in together.most_common()
                if failing
            ],
            "any": sum(cases for failing, _, cases in sets if failing),
            "missing": sum(cases for failing, missing, cases in sets if missing and not failing),
            "passed": sum(cases for failing, missing, cases in sets if not failing | missing),
        }

    def _strip(self, metric: int, inside: str, values: tuple[Any, ...]) -> dict[str, Any]:
        if inside == "TRUE":
            groups = self._groups(Filter(metric=metric))
        else:
            rows = self._index.all(
                "SELECT way, state, score, bin, count(*), 0, min(place) FROM results r "
                f"WHERE r.metric = ? AND {inside.replace('c.place', 'r.place', 1)} "
                "GROUP BY way, state, score, bin",
                metric, *values,
            )  # fmt: skip
            groups = [_Group(way, STATES[state], *rest) for way, state, *rest in rows]
        scores = _scores(groups)
        return {
            "failed": sum(group.cases for group in groups if group.state == "f"),
            "none": sum(group.cases for group in groups if group.state == "n"),
            "passed": sum(group.cases for group in groups if group.state == "p"),
            "mean": None if scores is None else scores["mean"],
        }


def _count(counts: Counter[str], state: str, cases: int) -> None:
    counts["cases"] += cases
    counts["failed"] += cases if state == "f" else 0
    counts["none"] += cases if state == "n" else 0


def _scores(groups: Sequence[_Group]) -> dict[str, Any] | None:
    """Mean, median, spread and least; None without a score."""
    counts = Counter[float]()
    for group in groups:
        if group.score is not None:
            counts[group.score] += group.cases
    total = counts.total()
    if not total:
        return None
    mean = math.fsum(score * n for score, n in counts.items()) / total
    squares = math.fsum((score - mean) ** 2 * n for score, n in counts.items())
    ordered = sorted(counts)
    stops = list(accumulate(counts[score] for score in ordered))
    middle = [ordered[bisect_right(stops, place)] for place in ((total - 1) // 2, total // 2)]
    return {
        "mean": mean,
        "median": sum(middle) / 2,
        "spread": math.sqrt(squares / (total - 1)) if total > 1 else None,
        "lowest": ordered[0],
    }
