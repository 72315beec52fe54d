"""What the page of a large run may ask the server, and who answers it."""

from __future__ import annotations

import json
import threading
from array import array
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from dagengine.record.run import Run, load_run
from dagengine.report.page.about import run_record
from dagengine.report.page.days import alarms_of
from dagengine.report.page.writing import FORMAT, page_of
from dagengine.view.cases import Cases
from dagengine.view.figures import Figures
from dagengine.view.index import open_index
from dagengine.view.indexed import Filter, Indexed, Order
from dagengine.view.opened import OpenRun
from dagengine.view.queues import Queue

_GROWN = 1.1  # an index is made again for so many times the rows: it takes seconds to minutes
Chosen = Literal["fail", "none", "pass", "all", "unsure", "any", "missing", "passed"]


class Asked(BaseModel):
    """One question of the page; which fields count depends on what is asked."""

    model_config = ConfigDict(extra="forbid", populate_by_name=True)
    ask: Literal["counts", "ends", "many", "days", "rows", "place", "one", "find", "lines"]
    filter: Filter = Filter(metric=0)
    chosen: Chosen = "all"
    order: Order = Order(by="default")
    start: int = Field(default=0, ge=0, lt=2**53)
    stop: int = Field(default=0, ge=0, lt=2**53)
    index: int = Field(default=0, ge=0, lt=2**53)
    name: str = Field(default="", max_length=10_000)


class LargeRun:
    """A run that is too large to send whole: a page without data, and answers to it.

    All methods are safe to call from several threads.
    """

    def __init__(self, folder: Path, announce: Callable[[int], None] | None = None) -> None:
        """Makes the index when there is none; `announce` is called with the number of rows."""
        self._growing, self._asking = threading.Lock(), threading.Lock()
        self._known = _Known(load_run(folder), announce)

    @property
    def rows(self) -> int:
        """The rows that the index knows."""
        return self._known.rows

    @property
    def finished(self) -> bool:
        """Whether the index knows all rows that there will be."""
        return self._known.record.finished

    def refresh(self) -> None:
        """Take in what was added when it is a tenth more, or the last; else nothing.

        Meanwhile the old rows are answered from. Returns at once while another thread does it.
        """
        if self.finished or not self._growing.acquire(blocking=False):
            return
        try:
            now, state = load_run(self._known.record.folder), self._known
            if now.finished or _size(now) >= _GROWN * state.size:
                more = _Known(now)
                with self._asking:
                    self._known = more
                    state.close()
        finally:
            self._growing.release()

    def close(self) -> None:
        """Close the index, and the files of the run."""
        self._known.close()

    def page(self, server: dict[str, Any]) -> str:
        """The page without data; `server` is what the server tells it of itself."""
        with self._asking:
            state = self._known
        record = run_record(state.record, state.rows, kept=state.rows, served=True)
        record["metrics"] = state.index.graphs
        record["days"] = state.index.all("SELECT count(DISTINCT day) FROM cases")[0][0]
        record["alarms"] = alarms_of(state.record, state.day_of)
        head = {"format": FORMAT, "run": record, "blocks": [], "server": {**server, "asks": True}}
        return "".join(page_of(json.dumps(head), "", title=state.run.name, connect="'self'"))

    def places(self, metric: str, kind: Queue) -> Sequence[int]:
        """The places of the cases that failed or have no score, or are unsure."""
        which = "state < 2" if kind == "failed" else "split > 0"
        sql = f"SELECT place FROM results WHERE metric = ? AND {which} ORDER BY place"
        with self._asking:
            index = self._known.index
            number = [graph["name"] for graph in index.graphs].index(metric)
            return array("q", (place for (place,) in index.all(sql, number)))

    def answer(self, asked: Asked) -> Any:
        """The answer in the form that the front end expects; raises InputError without a case."""
        with self._asking:
            return self._known.answer(asked)


class _Known:
    """A run and its index as they stood at one time."""

    def __init__(self, record: Run, announce: Callable[[int], None] | None = None) -> None:
        self.record = record
        self.size = _size(record)
        self.run = OpenRun(record.folder)
        try:
            database = open_index(record, announce)
        except BaseException:
            self.run.close()
            raise
        self.index = Indexed(self.run, database)
        self.rows: int = self.index.all("SELECT count(*) FROM cases")[0][0]
        self._cases = Cases(self.index)
        self._figures = Figures(self.index, self._cases.why)

    def day_of(self, number: int) -> str | None:
        """The day of the case with a number; None without one."""
        days = self.index.all("SELECT day FROM cases WHERE number = ? ORDER BY place", number)
        return days[0][0] if days else None

    def close(self) -> None:
        """Close the index and the files."""
        self.index.close()
        self.run.close()

    def answer(self, asked: Asked) -> Any:
        """What was asked of these rows."""
        if asked.filter.metric >= len(self.index.graphs):
            return None
        chosen = asked.filter
        match asked.ask:
            case "counts" | "ends" | "many" | "days":
                return getattr(self._figures, asked.ask)(chosen)
            case "rows":
                return self._cases.rows(chosen, asked.chosen, asked.order, asked.start, asked.stop)
            case "place":
                return self._cases.place(chosen, asked.chosen, asked.order, asked.index)
            case "one":
                return self._cases.one(asked.index)
            case "find":
                return self._cases.find(asked.name)
            case "lines":
                lines = self._cases.lines(chosen, asked.chosen)
                return None if lines is None else "".join(lines)


def _size(run: Run) -> int:
    """The bytes of the rows so far."""
    return run.results.stat().st_size if run.results.exists() else 0
