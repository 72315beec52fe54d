"""Two run folders read side by side, and every case of one paired with its case in the other."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Hashable
from contextlib import ExitStack
from typing import Any

from dagengine.errors import InputError, did_you_mean
from dagengine.record.changes.alignment import Alignment, Place, Side, paired
from dagengine.record.changes.comparison import CaseFields
from dagengine.record.changes.run_comparison import RunComparison, start_comparison
from dagengine.record.places import RunFiles
from dagengine.record.run import Run
from dagengine.results import CaseResult

_SIDES: tuple[Side, Side] = (0, 1)


def compare_runs(
    old: Run,
    new: Run,
    *,
    metric: str | None = None,
    advance: Callable[[], None] | None = None,
) -> RunComparison:
    """What changed from one run to another; makes no judge calls.

    Cases are paired by content. The rest is paired by content except for the name, then by name,
    then by input, if these are unique in both runs. `metric` is the only one to look at; `advance`
    is called for every row of the longer run. Nothing but the changes is held in memory.
    Raises InputError for a metric that neither run has, and for damaged files.
    """
    comparison = start_comparison(old.manifest, new.manifest, metric)
    _require_metric(old, new, metric, comparison)
    with ExitStack() as stack:
        sides = (stack.enter_context(RunFiles(old)), stack.enter_context(RunFiles(new)))
        _Reader(sides, comparison).read(advance or (lambda: None))
    return comparison


def _require_metric(old: Run, new: Run, metric: str | None, comparison: RunComparison) -> None:
    names = [recorded.name for run in (old, new) for recorded in run.manifest.metrics]
    if metric is not None and metric not in names:
        hint = (
            did_you_mean(metric, names) or f"they had {', '.join(map(repr, dict.fromkeys(names)))}"
        )
        raise InputError(f"neither run had a metric {metric!r:.80}; {hint}")
    if not comparison.metrics:
        ours, theirs = ([recorded.name for recorded in run.manifest.metrics] for run in (old, new))
        raise InputError(
            f"the runs have no metric in common: {', '.join(ours)} in {old.folder}, "
            f"{', '.join(theirs)} in {new.folder}"
        )


class _Reader:
    """Goes over both runs side by side, and then over what found no partner."""

    def __init__(self, sides: tuple[RunFiles, RunFiles], comparison: RunComparison) -> None:
        self._sides = sides
        self._comparison = comparison
        self._alignment = Alignment()

    def read(self, advance: Callable[[], None]) -> None:
        for place in range(max(len(side) for side in self._sides)):
            rows: dict[Side, CaseResult] = {
                side: self._sides[side].row(place)
                for side in _SIDES
                if place < len(self._sides[side])
            }
            for side, row in rows.items():
                # A row of the data that was not a test case is known by its place.
                pair = self._alignment.offer(side, place, row.hash or (row.index, row.case))
                if pair is None:
                    continue
                # The partner came earlier in its run, so its row is read a second time.
                old, new = (
                    rows[own] if pair[own] == place else self._sides[own].row(pair[own])
                    for own in _SIDES
                )
                self._comparison.same_cases += 1
                self._comparison.add(old, new, CaseFields())
            advance()
        self._leftovers()

    def _leftovers(self) -> None:
        # From the surest key to the least sure one. Each takes its pairs out before the next looks,
        # so a case that only got another name is not claimed by one with the same input.
        left = [dict.fromkeys(self._alignment.left(side)) for side in _SIDES]
        for kind, key in _KEYS.items():
            if not all(left):
                break
            keys = [
                {place: key(self._sides[side], place) for place in left[side]} for side in _SIDES
            ]
            for old, new in paired(*keys):
                del left[0][old], left[1][new]
                same = kind == "renamed"
                if same:
                    self._comparison.renamed += 1
                else:
                    self._comparison.changed += 1
                texts = (self._sides[0].fields(old), self._sides[1].fields(new))
                rows = (self._sides[0].row(old), self._sides[1].row(new))
                self._comparison.add(*rows, CaseFields(same, *texts))
        for side in _SIDES:
            for place in left[side]:
                self._comparison.unpaired(self._sides[side].row(place).case, new=side == 1)


def _without_name(side: RunFiles, place: Place) -> Hashable | None:
    fields = side.fields(place)
    if fields is None:
        return None
    return _digest({name: value for name, value in fields.items() if name != "name"})


def _name(side: RunFiles, place: Place) -> Hashable | None:
    row = side.row(place)
    return None if row.case == f"case {row.index}" else row.case


def _input(side: RunFiles, place: Place) -> Hashable | None:
    """What went into the application: an input, the contestants' input, or the first turn."""
    fields = side.fields(place) or {}
    contestants = [*(fields.get("contestants") or {}).values()]
    turns = fields.get("turns") or ()
    inputs = [
        *([fields["input"]] if "input" in fields else []),
        *(contestant.get("input") for contestant in contestants[:1]),
        *(turn.get("content") for turn in turns[:1]),
    ]
    return None if not inputs or inputs[0] is None else _digest(inputs[0])


def _digest(value: Any) -> bytes:
    text = json.dumps(value, ensure_ascii=False, sort_keys=True)
    return hashlib.sha256(text.encode(errors="surrogatepass")).digest()[:16]


_KEYS = {"renamed": _without_name, "named": _name, "input": _input}
