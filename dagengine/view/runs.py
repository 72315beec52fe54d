"""Several runs beside each other: their history, what changed, one case in both."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any

from dagengine.errors import InputError
from dagengine.record.changes.diff import compare_runs
from dagengine.record.run import load_run
from dagengine.reliability.card.values import JudgeCard
from dagengine.reliability.changes.report import change_report
from dagengine.report.page.about import judge_name
from dagengine.view.opened import OpenRun

_KEPT = 8  # comparisons that stay in memory


def history(runs: Sequence[OpenRun]) -> list[dict[str, Any]]:
    """A line for each run, the oldest first."""
    return [_line(number, run) for number, run in enumerate(runs)]


def _line(number: int, run: OpenRun) -> dict[str, Any]:
    run.refresh()
    manifest, counts, totals = run.manifest, run.manifest.counts, run.manifest.totals
    ended = manifest.ended
    return {
        "run": number,
        "name": run.name,
        "folder": str(run.folder),
        "started": manifest.started.isoformat(),
        "seconds": None if ended is None else (ended - manifest.started).total_seconds(),
        "finished": run.finished,
        "metrics": [metric.name for metric in run.metrics],
        "cases": len(run),
        "passed": None if counts is None else counts.passed,
        "failed": None if counts is None else counts.failed,
        "no_score": None if counts is None else counts.no_score,
        "cost": None if totals is None else totals.cost,
        "judges": [judge_name(judge) for judge in manifest.judges],
    }


class Comparisons:
    """What changed between runs; the latest comparisons stay in memory."""

    def __init__(self, card: JudgeCard | None = None) -> None:
        self._card = card
        self._kept: dict[Hashable, dict[str, Any]] = {}

    def changes(self, old: OpenRun, new: OpenRun) -> dict[str, Any]:
        """What changed from one run to another; see `change_report`."""
        key = tuple((run.folder, len(run), run.finished) for run in (old, new))
        found = self._kept.pop(key, None)
        if found is None:
            runs = load_run(old.folder), load_run(new.folder)
            found = change_report(compare_runs(*runs), self._card)
        self._kept[key] = found
        for oldest in list(self._kept)[:-_KEPT]:
            self._kept.pop(oldest, None)
        return found


def walks(
    old: OpenRun, new: OpenRun, metric: str, indices: tuple[int, int]
) -> list[dict[str, Any]]:
    """One case in both runs: what every node said, and the texts; the old run first.

    Raises InputError for a case or a metric that a run has not.
    """
    return [_walk(run, metric, index) for run, index in zip((old, new), indices, strict=True)]


def _walk(run: OpenRun, metric: str, index: int) -> dict[str, Any]:
    place = run.place_of(index)
    row = run.row(place)
    result = next((one for one in row.metrics if one.metric == metric), None)
    if result is None:
        raise InputError(f"{run.name} has no result of {metric!r:.80} on case {index}")
    return {**result.as_dict(), "case": row.case, "fields": run.fields(place)}
