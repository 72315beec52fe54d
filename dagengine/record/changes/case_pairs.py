"""Two run folders read side by side, and every case of one paired with its case in the other.

Cases are paired by content first, then by what is left of it. Where both runs have columns, most
rows are not read: equal courses (results without their texts, see `record.parquet_columns`) are no
change.
"""

from __future__ import annotations

import itertools
from array import array
from collections import Counter, deque
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from functools import lru_cache
from itertools import zip_longest
from operator import itemgetter
from typing import Literal

from dagengine.compiler.metric_hashes import digest
from dagengine.errors import InputError, did_you_mean
from dagengine.record.changes.flip_causes import CasePair, RunComparison, start_comparison
from dagengine.record.parquet_columns import outline_of
from dagengine.record.reader import Run, RunFiles
from dagengine.results import CaseResult

_SIDES: tuple[Side, Side] = (0, 1)
_COURSES = 10_000  # that are counted before their results are looked at
Side = Literal[0, 1]
"""The old run and the new one."""
Place = int
"""Where a case is in its run, from 0 on."""


def compare_runs(
    old: Run, new: Run, *, metric: str | None = None, advance: Callable[[], None] | None = None
) -> RunComparison:
    """Compare two runs; makes no judge calls.

    Cases are paired by content. The rest is paired by content except for the name, then by name,
    then by input, if these are unique in both runs. `metric` is the only one to look at; `advance`
    is called for every row of the longer run. Nothing but the changes is held in memory.
    Raises InputError for a metric that neither run has, for a run without rows, and for damaged
    files.
    """
    comparison = start_comparison(old.manifest, new.manifest, metric)
    _require_metric(old, new, metric, comparison)
    with ExitStack() as stack:
        sides = (stack.enter_context(RunFiles(old)), stack.enter_context(RunFiles(new)))
        for run, files in zip((old, new), sides, strict=True):
            # Nothing would differ, and that would read as if nothing had changed.
            if not len(files):
                why = f" (it ended with: {run.manifest.error})" if run.manifest.error else ""
                raise InputError(f"{run.folder} has no rows to compare{why}")
        _Reader(sides, comparison).read(advance or (lambda: None))
    return comparison


def _require_metric(old: Run, new: Run, metric: str | None, comparison: RunComparison) -> None:
    ours, theirs = old.manifest.metric_names, new.manifest.metric_names
    names = ours + theirs
    if metric is not None and metric not in names:
        had = ", ".join(map(repr, dict.fromkeys(names)))
        hint = did_you_mean(metric, names) or f"they had {had}"
        raise InputError(f"neither run had a metric {metric!r:.80}; {hint}")
    if not comparison.metrics:
        raise InputError(
            f"the runs have no metric in common: {', '.join(ours)} in {old.folder}, "
            f"{', '.join(theirs)} in {new.folder}"
        )


class _Side:
    """One run, gone over case by case: by its columns if it has some, else row by row."""

    def __init__(self, files: RunFiles, courses: Sequence[str]) -> None:
        """`courses` are the columns of the metrics to compare."""
        self.files = files
        self._names = courses
        self._hashes = [array("q") for _ in courses]  # of courses: of texts there may be many
        self._latest: tuple[Place, CaseResult] | None = None

    def cases(self) -> Iterator[tuple[Hashable, tuple[str, ...]]]:
        """Key of every case, and its courses by metric (none without columns).

        The key is the content; a row of the data that was not a test case is known by its place.
        """
        if self.files.columns is None:
            for offset in range(len(self.files)):
                row = self.row(offset)
                self._latest = (offset, row)
                yield row.hash or (row.index, row.case), ()
            return
        for block in self.files.columns.blocks(["hash", "index", "case", *self._names]):
            courses = list(map(block.__getitem__, self._names))
            for hashes, column in zip(self._hashes, courses, strict=True):
                hashes.extend(map(hash, column))
            cases = zip(block["hash"], block["index"], block["case"], strict=True)
            keys = [content or (index, case) for content, index, case in cases]
            yield from zip(keys, zip(*courses, strict=True), strict=True)

    def hashes(self, place: Place) -> list[int]:
        """The hashes of the courses of a case, by metric."""
        return list(map(itemgetter(place), self._hashes))

    def row(self, place: Place) -> CaseResult:
        """The row of a case."""
        if self._latest is not None and self._latest[0] == place:
            return self._latest[1]
        return self.files.row(place)


class _Reader:
    """Goes over both runs side by side, and then over what found no partner."""

    def __init__(self, sides: tuple[RunFiles, RunFiles], comparison: RunComparison) -> None:
        self._sides = sides
        self._comparison = comparison
        self._alignment = Alignment()
        self._readers = list[_Side]()
        for files, run in zip(sides, (comparison.old, comparison.new), strict=True):
            numbers = dict(zip(run.metric_names, itertools.count()))
            courses = [f"course.{numbers[metric.name]}" for metric in comparison.metrics]
            self._readers.append(_Side(files, courses))
        # Equal courses are the same answers, if nodes have the same names.
        self._by_course = all(files.columns is not None for files in sides) and not any(
            metric.trees.renamed for metric in comparison.metrics
        )
        self._outline = lru_cache(_COURSES)(outline_of)
        self._alike: Counter[tuple[str, ...]] = Counter()

    def read(self, advance: Callable[[], None]) -> None:
        nothing: tuple[Hashable, tuple[str, ...]] = (None, ())
        cases = zip_longest(*map(_Side.cases, self._readers), fillvalue=nothing)
        alike, by_course = self._alike, self._by_course
        before_at, after_at = (side.hashes for side in self._readers)
        for index, latest in enumerate(cases):
            (old, before), (new, after) = latest
            if old == new and self._alignment.idle:
                if before == after and by_course:
                    alike[after] += 1
                else:
                    self._take((index, index), before, after)
            else:
                for side, (key, courses) in zip(_SIDES, latest, strict=True):
                    pair = None if key is None else self._alignment.offer(side, index, key)
                    if pair is not None:
                        if by_course and before_at(pair[0]) == after_at(pair[1]):
                            alike[courses] += 1
                        else:
                            self._take(pair)
            if len(alike) > _COURSES:
                self._count_alike()
            advance()
        self._count_alike()
        self.leftovers()

    def _count_alike(self) -> None:
        """Count the cases that went alike in both runs."""
        for courses, cases in self._alike.items():
            self._comparison.same_cases += cases
            for metric, course in zip(self._comparison.metrics, courses, strict=True):
                metric.add_same(self._outline(metric.name, course), cases)
        self._alike.clear()

    def _take(
        self, pair: tuple[Place, Place], old: Sequence[str] = (), new: Sequence[str] = ()
    ) -> None:
        """Count a case that is equal in content; its courses are there if they are at hand."""
        self._comparison.same_cases += 1
        listed = list(self._comparison.metrics)
        if self._by_course and old:
            listed = [
                metric
                for metric, *courses in zip(self._comparison.metrics, old, new, strict=True)
                if not metric.add_unlisted(*(self._outline(metric.name, c) for c in courses))
            ]
        if listed:
            before, after = self._readers
            self._comparison.add(before.row(pair[0]), after.row(pair[1]), CasePair(), listed)

    def leftovers(self) -> None:
        # From the surest key to the least sure one. Each takes its pairs out before the next looks,
        # so a case that only got another name is not claimed by one with the same input.
        left = list(map(dict.fromkeys, map(self._alignment.left, _SIDES)))
        before, after = self._sides
        for kind, key in _KEYS.items():
            if not all(left):
                break
            keys = (
                {at: key(files, at) for at in left[side]} for side, files in enumerate(self._sides)
            )
            for old, new in pairs_of_keys(*keys):
                del left[0][old], left[1][new]
                same = kind == "renamed"
                self._comparison.renamed += same
                self._comparison.changed += not same
                case = CasePair(same, before.fields(old), after.fields(new))
                metrics = self._comparison.metrics
                self._comparison.add(before.row(old), after.row(new), case, metrics)
        for side in _SIDES:
            for index in left[side]:
                self._comparison.add_unpaired(self._sides[side].row(index).case, new=side == 1)


def _without_name(side: RunFiles, place: Place) -> Hashable | None:
    fields = side.fields(place)
    if fields is None:
        return None
    return digest({name: value for name, value in fields.items() if name != "name"})


def _name(side: RunFiles, place: Place) -> Hashable | None:
    row = side.row(place)
    return None if row.case == f"case {row.index}" else row.case


def _input(side: RunFiles, place: Place) -> Hashable | None:
    """Input of the application: an input, the contestants' input, or the first turn."""
    fields = side.fields(place) or {}
    value = fields.get("input")
    if "input" not in fields:
        contestants = [*(fields.get("contestants") or {}).values()]
        turns = fields.get("turns") or [{}]
        value = contestants[0].get("input") if contestants else turns[0].get("content")
    return None if value is None else digest(value)


_KEYS = {"renamed": _without_name, "named": _name, "input": _input}


class Alignment:
    """Pairs equal keys of two runs that are read side by side.

    Cases with one key are paired in their order: the second copy of a case with the second
    copy. Only what still waits for its partner is kept. So two runs over one data set need no
    memory, and a shuffled data set needs a number for each case.
    """

    def __init__(self) -> None:
        self._waiting: tuple[dict[Hashable, deque[Place]], ...] = ({}, {})

    @property
    def idle(self) -> bool:
        """Return whether no case waits for its partner."""
        return not (self._waiting[0] or self._waiting[1])

    def offer(self, side: Side, place: Place, key: Hashable) -> tuple[Place, Place] | None:
        """The pair that this case completes, as old and new place; None while it waits."""
        # Copies of a case (`a` twice on each side) are paired in their order. With the new run read
        # beside the old one, at most those wait that are out of step:
        #
        #     old   a  b  a        a waits ─▶ (0, 1); b waits ─▶ (1, 0); a waits ─▶ (2, 2)
        #     new   b  a  a
        waiting = self._waiting[1 - side]
        if key in waiting:
            partner = waiting[key].popleft()
            if not waiting[key]:
                del waiting[key]
            return (partner, place) if side == 1 else (place, partner)
        self._waiting[side].setdefault(key, deque()).append(place)
        return None

    def left(self, side: Side) -> list[Place]:
        """Places of the cases that found no partner, in order."""
        return sorted(index for waiting in self._waiting[side].values() for index in waiting)


def pairs_of_keys(
    old: Mapping[Place, Hashable | None], new: Mapping[Place, Hashable | None]
) -> Iterator[tuple[Place, Place]]:
    """Cases that are alone with their key in both runs; a key of None is none."""
    # Where two cases of one side have the key, either may be the partner. A wrong pair would be
    # shown as a change that never was, so such cases stay unpaired.
    alone = (_alone(old.values()), _alone(new.values()))
    partners = {key: index for index, key in old.items() if key in alone[0]}
    for index, key in new.items():
        if key in alone[1] and key in partners:
            yield partners[key], index


def _alone(keys: Iterable[Hashable | None]) -> set[Hashable]:
    return {key for key, count in Counter(keys).items() if count == 1 and key is not None}
