"""The run folder of a session, written by all of its processes, and an earlier one to compare with.

Every process writes a folder for its own cases. With pytest-xdist, those of the workers are inside
the folder until the controller has put them together.
"""

from __future__ import annotations

import importlib.metadata
import platform
import re
import shutil
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path

from dagengine.execution.local_executor import LocalExecutor
from dagengine.question import Usage
from dagengine.record.definition import judges_of, metrics_of
from dagengine.record.run import load_run
from dagengine.record.values import JudgeRecord, Manifest, MetricRecord
from dagengine.record.writer import RunWriter
from dagengine.report.page.run_page import write_run_page
from dagengine.results import CaseResult, Spent, Totals
from dagengine.test_case import CASE_TYPES
from dagengine.testing.session_summary import in_order, label_of

_PARTS = ".workers"
_NUMBER = re.compile(r" #\d+$")  # of a case, behind the name of its test
_CASES = {kind.__name__: kind for kind in CASE_TYPES}


@dataclass(slots=True)
class SessionRun:
    """What a session judged: rows by test, the metrics, and the judges by their identities.

    A row is called like its test, `#2` and so on where a test judges several cases. Metrics of
    one name are one metric.
    """

    rows: dict[str, list[CaseResult]] = field(default_factory=dict[str, list[CaseResult]])
    metrics: dict[str, MetricRecord] = field(default_factory=dict[str, MetricRecord])
    judges: dict[str, JudgeRecord] = field(default_factory=dict[str, JudgeRecord])
    spent: list[Spent] = field(default_factory=list[Spent])
    started: datetime = field(default_factory=lambda: datetime.now(UTC))
    _known: set[int] = field(default_factory=set[int])

    def note(self, test: str, row: CaseResult) -> None:
        """Keep the row of a test."""
        self.rows.setdefault(test, []).append(row)

    def define(self, engine: LocalExecutor) -> None:
        """Keep what an engine's metrics are, and who answers them."""
        if id(engine) not in self._known:
            self._known.add(id(engine))
            judges = judges_of(engine.plan, engine.judges, engine.limits.prices)
            self._define(metrics_of(engine.plan, trees=True), judges)

    def _define(self, metrics: Iterable[MetricRecord], judges: Sequence[JudgeRecord]) -> None:
        for judge in judges:
            self.judges.setdefault(judge.identity, judge)
        indices = [list(self.judges).index(judge.identity) for judge in judges]
        for metric in metrics:
            self.metrics.setdefault(metric.name, _with_numbers(metric, indices))

    def save(self, folder: Path, totals: Totals) -> None:
        """Write the folder, which the session holds (`sole_writer`), and its page.

        Raises InputError if it cannot be written.
        """
        self._write(folder, totals, held=True)
        write_run_page(load_run(folder))

    def _write(self, folder: Path, totals: Totals, *, held: bool) -> None:
        manifest = Manifest(
            dagengine=importlib.metadata.version("dagengine"),
            python=platform.python_version(),
            started=self.started,
            command="pytest",
            metrics=tuple(self.metrics.values()),
            judges=tuple(self.judges.values()),
        )
        with RunWriter(folder, manifest, lambda: (totals, self.spent), held=held) as writer:
            labelled = (
                (label_of(test, number), row)
                for test, rows in self.rows.items()
                for number, row in enumerate(rows)
            )
            for index, (label, row) in enumerate(labelled):
                writer.add(replace(row, index=index, case=label))

    def save_part(self, folder: Path, worker: str, totals: Totals) -> None:
        """Write what one worker judged, for `gather`."""
        self._write(folder / _PARTS / worker, totals, held=False)

    @classmethod
    def gather(cls, folder: Path, order: Sequence[str]) -> SessionRun:
        """Rows of all workers, in the order of these tests; their parts are removed."""
        whole, rows = cls(), dict[str, list[CaseResult]]()
        for part in sorted((folder / _PARTS).glob("*")):
            run = load_run(part)
            whole.started = min(whole.started, run.manifest.started)
            whole._define(run.manifest.metrics, run.manifest.judges)
            # A manifest has the places of judges in its own list: other parts have other places.
            judges = run.manifest.judges
            for used in run.manifest.usage:
                usage = Usage(used.input_tokens, used.output_tokens, used.cached_tokens)
                judge = "" if used.judge is None else judges[used.judge].identity
                whole.spent.append(
                    Spent(used.metric, used.node, judge, used.asked, used.calls, used.failed, usage,
                          used.cost, used.seconds)
                )  # fmt: skip
            for row, case in zip(run.rows(), run.cases(), strict=True):
                test = _NUMBER.sub("", row.case)
                kind = _CASES.get(case["type"])
                fields = {
                    name: value
                    for name, value in case.items()
                    if name not in ("index", "hash", "type")
                }
                rows.setdefault(test, []).append(
                    replace(row, test_case=None if kind is None else kind.model_validate(fields))
                )
        shutil.rmtree(folder / _PARTS, ignore_errors=True)
        whole.rows = rows
        whole.arrange(order)
        return whole

    def arrange(self, tests: Iterable[str]) -> None:
        """Put rows into the order of the tests, and metrics into that of the rows."""
        self.rows = in_order(self.rows, tests)
        rows = (row for rows in self.rows.values() for row in rows)
        self.metrics = in_order(
            self.metrics, [result.metric for row in rows for result in row.metrics]
        )


def _with_numbers(metric: MetricRecord, places: Sequence[int]) -> MetricRecord:
    """The metric with other places of judges."""
    nodes = tuple(
        node.model_copy(
            update={
                "judges": tuple(places[judge] for judge in node.judges),
                "metric": None if node.metric is None else _with_numbers(node.metric, places),
            }
        )
        for node in metric.nodes
    )
    return metric.model_copy(update={"nodes": nodes})
