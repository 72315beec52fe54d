"""Runs that are looked at: each by its rows and texts, and several beside each other."""

from __future__ import annotations

import threading
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import astuple, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dagengine.errors import InputError
from dagengine.record.changes.case_pairs import compare_runs
from dagengine.record.reader import RunFiles, load_run
from dagengine.record.run_json_types import Manifest, MetricRecord
from dagengine.report.page.packed_texts import Prompt, keys_of, open_prompts, prompts_of
from dagengine.report.page.run_page import page_text
from dagengine.results import CaseResult
from dagengine.results.summary import MetricSummary, Summing

if TYPE_CHECKING:
    from dagengine.reliability.card.types import JudgeCard

_READ = 30_000  # rows that are read for what a list of runs says of each
_KEPT = 64  # comparisons that stay in memory
_FIRST = 2_000  # changes of a metric whose first line is read
_LINE = 160  # characters of it
_UNTOLD = frozenset({"name", "tags", "comments", "type", "role"})  # they say nothing of the text


@dataclass(frozen=True)
class Glance:
    """What a list of runs says of one: figures by metric, and the contents of its cases."""

    metrics: tuple[MetricSummary, ...] = ()
    contents: frozenset[str] = frozenset()


class OpenRun:
    """One run folder, to be closed. All methods are safe to call from several threads."""

    def __init__(self, folder: Path) -> None:
        """Raises InputError for a folder without a run."""
        self._run = load_run(folder)
        self.folder = self._run.folder
        self._files = RunFiles(self._run)
        self._lock = threading.Lock()
        self._glance: tuple[int, Glance] | None = None

    @property
    def name(self) -> str:
        """Name of the run on pages: the name of its folder."""
        return self.folder.resolve().name

    @property
    def manifest(self) -> Manifest:
        return self._run.manifest

    def metric(self, name: str) -> MetricRecord:
        """The metric of a name; raises InputError without one."""
        return self.manifest.records(name)[0]

    @property
    def finished(self) -> bool:
        """Return whether every case has its row."""
        return self._run.finished

    def __enter__(self) -> OpenRun:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def refresh(self) -> None:
        """Take in what was added since; nothing for a run that is finished."""
        if self.finished:
            return
        with self._lock:
            self._run = load_run(self.folder)
            self._files.close()
            self._files = RunFiles(self._run)

    def __len__(self) -> int:
        return len(self._files)

    def row(self, place: int) -> CaseResult:
        """The row at a place, with how long it took."""
        with self._lock:
            return self._files.timed_row(place)

    def fields(self, place: int) -> Mapping[str, Any] | None:
        """The fields of a case; None if no texts were kept."""
        with self._lock:
            return self._files.fields(place)

    def place_of(self, index: int) -> int:
        """The place of the case with a number in the data; raises InputError without one."""
        with self._lock:
            position = self._files.place_of(index)
        if position is None:
            raise InputError(f"{self.name} has no row of case {index}")
        return position

    def rows(self) -> Iterator[CaseResult]:
        """All rows, lazily."""
        return self._run.rows()

    def glance(self) -> Glance:
        """Its figures and contents; nothing of a run that is too long to be read for a list."""
        rows = len(self)
        if self._glance is None or self._glance[0] != rows:
            summing, contents = Summing(), set[str]()
            for row in self.rows() if rows <= _READ else ():
                summing.add(row)
                contents.update([row.hash] if row.hash else ())
            self._glance = rows, Glance(summing.result().metrics, frozenset(contents))
        return self._glance[1]

    def prompts(self, index: int) -> list[list[list[Prompt]]] | None:
        """Prompts of the case with a number, by metric and step; None without a store.

        Raises InputError for a number without a row.
        """
        keys = keys_of(self.row(self.place_of(index)), self.manifest.metric_names)
        with open_prompts(self._run) as stored:
            return None if stored is None else prompts_of(stored, keys)

    def page(self, server: Mapping[str, Any]) -> str:
        """The page of the run as it is now; `server` is what the server tells it of itself."""
        return page_text(self._run, server)

    def close(self) -> None:
        """Close the files."""
        self._files.close()


def history(runs: Sequence[OpenRun]) -> list[dict[str, Any]]:
    """A line for each run, the oldest first."""
    for run in runs:
        run.refresh()
    lines = list[dict[str, Any]]()
    for number, run in enumerate(runs):
        manifest, counts, totals = run.manifest, run.manifest.counts, run.manifest.totals
        lines.append(
            {
                "run": number,
                "name": run.name,
                "folder": str(run.folder),
                "started": manifest.started.isoformat(),
                "seconds": manifest.seconds,
                "finished": run.finished,
                "metrics": run.manifest.metric_names,
                "rates": _rates(run),
                "data": None if manifest.data.file is None else Path(manifest.data.file).name,
                "comparable": [
                    index
                    for index, peer in enumerate(runs)
                    if peer is not run and comparable(run, peer)
                ],
                "planned": manifest.data.cases,
                "cases": len(run),
                "passed": counts and counts.passed,
                "failed": counts and counts.failed,
                "no_score": counts and counts.no_score,
                "cost": totals and totals.cost,
                "judges": [judge.name for judge in manifest.judges],
            }
        )
    return lines


def _rates(run: OpenRun) -> list[dict[str, Any]]:
    """Of every metric: what passed, of how many, and the share with its 95 % interval."""
    hashes = {metric.name: metric.hash for metric in run.manifest.metrics}
    return [
        {
            "metric": summary.metric,
            "hash": hashes.get(summary.metric),
            "passed": summary.passed,
            "of": summary.passed + summary.failed,
            "no_score": summary.no_score,
            "share": summary.pass_rate and astuple(summary.pass_rate),
        }
        for summary in run.glance().metrics
    ]


def comparable(one: OpenRun, two: OpenRun) -> bool:
    """Return whether two runs have a metric and a case in common: then they can be compared."""
    if set(one.manifest.metric_names).isdisjoint(two.manifest.metric_names):
        return False
    file = one.manifest.data.sha256
    if file is not None and file == two.manifest.data.sha256:
        return True
    return not one.glance().contents.isdisjoint(two.glance().contents)


class Comparisons:
    """What changed between runs; the latest comparisons stay in memory."""

    def __init__(self, card: JudgeCard | None = None) -> None:
        self._card = card
        self._kept: dict[Hashable, dict[str, Any]] = {}

    def changes(self, old: OpenRun, new: OpenRun) -> dict[str, Any]:
        """Changes from one run to another; see `change_report`."""
        key = tuple((run.folder, len(run), run.finished) for run in (old, new))
        report = self._kept.pop(key, None)
        if report is None:
            # Measures of judges: who only opens a run does not need them.
            from dagengine.reliability.change_significance import change_report

            runs = load_run(old.folder), load_run(new.folder)
            report = change_report(compare_runs(*runs), self._card)
            for metric in report["metrics"]:
                for change in metric["changes"][:_FIRST]:
                    fields = new.fields(new.place_of(change["index"][1]))
                    text = None if fields is None else _first_text(fields)
                    change["first"] = text and text.lstrip().split("\n", 1)[0][:_LINE]
        self._kept[key] = report
        for oldest in list(self._kept)[:-_KEPT]:
            self._kept.pop(oldest, None)
        return report


def walks(
    old: OpenRun, new: OpenRun, metric: str, indices: tuple[int, int]
) -> list[dict[str, Any]]:
    """One case in both runs: what every node said, and the texts; the old run first.

    Raises InputError for a case or a metric that a run has not.
    """
    shown = []
    for run, index in zip((old, new), indices, strict=True):
        position = run.place_of(index)
        row = run.row(position)
        results = row.by_metric()
        if metric not in results:
            raise InputError(f"{run.name} has no result of {metric!r:.80} on case {index}")
        questions = {node.name: node.question for node in run.metric(metric).nodes}
        more = {"case": row.case, "fields": run.fields(position), "questions": questions}
        shown.append({**results[metric].as_dict(), **more})
    return shown


def _first_text(value: Any) -> str | None:
    """The text that tells a case apart at a glance: its input, or the first of its texts."""
    if isinstance(value, str):
        return value
    parts: Iterable[Any] = value if isinstance(value, list) else ()
    if isinstance(value, Mapping):
        shown = {name: part for name, part in value.items() if name not in _UNTOLD}
        main = shown.get("input", shown.get("scenario"))
        parts = shown.values() if main is None else (main,)
    return next((text for text in map(_first_text, parts) if text is not None), None)
