"""What the page of a large run may ask the server, and who answers it."""

from __future__ import annotations

import json
from array import array
from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from dagengine.record.run import load_run
from dagengine.report.page.about import run_record
from dagengine.report.page.writing import FORMAT, page_of
from dagengine.view.cases import Cases
from dagengine.view.figures import Figures
from dagengine.view.index import open_index
from dagengine.view.indexed import Filter, Indexed, Order
from dagengine.view.opened import OpenRun
from dagengine.view.queues import Queue

Chosen = Literal["fail", "none", "pass", "all", "unsure", "any", "every", "passed"]


class Asked(BaseModel):
    """One question of the page; which fields count depends on what is asked."""

    model_config = ConfigDict(extra="forbid", populate_by_name=True)
    ask: Literal["counts", "ends", "many", "rows", "place", "one", "find", "lines"]
    filter: Filter = Filter(metric=0)
    chosen: Chosen = "all"
    order: Order = Order(by="default")
    start: int = Field(default=0, ge=0)
    stop: int = Field(default=0, ge=0)
    index: int = 0
    name: str = ""


class LargeRun:
    """A run that is too large to be handed out whole: a page without data, and answers to it."""

    def __init__(self, run: OpenRun, said: Callable[[int], None] | None = None) -> None:
        """Makes the index when there is none; `said` is called with the number of rows."""
        self._run = run
        self._index = Indexed(run, open_index(load_run(run.folder), said))
        self._cases = Cases(self._index)
        self._figures = Figures(self._index, self._cases.why)

    @cached_property
    def rows(self) -> int:
        """The rows that the index knows: those that there were when the server was started."""
        count: int = self._index.all("SELECT count(*) FROM cases")[0][0]
        return count

    def close(self) -> None:
        """Close the index."""
        self._index.close()

    def page(self, server: dict[str, Any]) -> str:
        """The page without data; `server` is what the server tells it of itself."""
        run = load_run(self._run.folder)
        record = run_record(run, self.rows, kept=self.rows)
        record["metrics"] = self._index.graphs
        head = {"format": FORMAT, "run": record, "blocks": [], "server": {**server, "asks": True}}
        return "".join(page_of(json.dumps(head), "", title=self._run.name, connect="'self'"))

    def places(self, metric: str, kind: Queue) -> Sequence[int]:
        """The places of the cases that failed or have no score, or are unsure."""
        number = [graph["name"] for graph in self._index.graphs].index(metric)
        which = "state < 2" if kind == "failed" else "split > 0"
        sql = f"SELECT place FROM results WHERE metric = ? AND {which} ORDER BY place"
        return array("q", (place for (place,) in self._index.all(sql, number)))

    def answer(self, asked: Asked) -> Any:
        """The answer in the form that the front end expects; raises InputError without a case."""
        if asked.filter.metric >= len(self._index.graphs):
            return None
        given = asked.filter
        match asked.ask:
            case "counts" | "ends" | "many":
                return getattr(self._figures, asked.ask)(given)
            case "rows":
                return self._cases.rows(given, asked.chosen, asked.order, asked.start, asked.stop)
            case "place":
                return self._cases.place(given, asked.chosen, asked.order, asked.index)
            case "one":
                return self._cases.one(asked.index)
            case "find":
                return self._cases.find(asked.name)
            case "lines":
                found = self._cases.lines(given, asked.chosen)
                return None if found is None else "".join(found)
