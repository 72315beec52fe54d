"""A run folder that is being looked at: rows and texts by place, taken in again while it grows."""

from __future__ import annotations

import bisect
import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dagengine.errors import InputError
from dagengine.record.prompts import Prompt, keys_of, open_prompts
from dagengine.record.run import load_run
from dagengine.record.run_files import RunFiles
from dagengine.record.values import Manifest, MetricRecord
from dagengine.report.page.run_page import served_page
from dagengine.report.page.texts import People
from dagengine.results import CaseResult
from dagengine.results.summary import MetricSummary, Summing

_READ = 30_000  # rows that are read for what a list of runs says of each


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

    @property
    def metrics(self) -> tuple[MetricRecord, ...]:
        return self.manifest.metrics

    def metric(self, name: str) -> MetricRecord:
        """The metric of a name; raises InputError without one."""
        for metric in self.metrics:
            if metric.name == name:
                return metric
        raise InputError(f"the run has no metric {name!r:.80}")

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
        # Mostly a case is at its own number. Where a run broke off, rows before it may be missing.
        if index < len(self) and self.row(index).index == index:
            return index
        position = bisect.bisect_left(range(len(self)), index, key=lambda at: self.row(at).index)
        if position >= len(self) or self.row(position).index != index:
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
        row = self.row(self.place_of(index))
        with open_prompts(self._run) as stored:
            keys = keys_of(row, self.manifest.metric_names)
            return None if stored is None else stored.of(keys)

    def people(self) -> People:
        """Labels by people so far."""
        return People.of_run(self._run)

    def page(self, server: Mapping[str, Any]) -> str:
        """The page of the run as it is now; `server` is what the server tells it of itself."""
        return served_page(self._run, server)

    def close(self) -> None:
        """Close the files."""
        self._files.close()
