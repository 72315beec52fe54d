"""How a session ends: it says what came of it, writes recordings and its run, and checks gates.

Every process writes a folder for its own cases. With pytest-xdist, those of the workers are inside
the folder of the run until the controller has put them together.
"""

from __future__ import annotations

import importlib.metadata
import itertools
import os
import pickle
import platform
import re
import shutil
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from dagengine.errors import DagengineError
from dagengine.execution.local_executor import LocalExecutor
from dagengine.record.hidden_fields import fields_in
from dagengine.record.reader import load_run
from dagengine.record.run_json import judges_of, metrics_of
from dagengine.record.run_json_types import JudgeRecord, Manifest, MetricRecord
from dagengine.record.writer import RunWriter
from dagengine.reliability.statistics.intervals import Interval
from dagengine.reliability.statistics.paired_comparisons import Comparison, compare_shares
from dagengine.report.page.run_page import write_run_page
from dagengine.results import CaseResult
from dagengine.system.safe_files import noting_writes
from dagengine.system.terminal_text import replaced_line, text_if
from dagengine.test_case import CASE_TYPES
from dagengine.testing.deferral import plugin_of_class
from dagengine.testing.recordings import TestFiles
from dagengine.testing.session_summary import Gate, Summary, in_order, label_of

if TYPE_CHECKING:
    from dagengine.testing.xdist_workers import Sent, Workers


_PARTS = ".workers"
_NUMBER = re.compile(r" #\d+$")  # of a case, behind the name of its test
_CASES = {kind.__name__: kind for kind in CASE_TYPES}


@dataclass(slots=True)
class Ending:
    """What is said at the end, and which of it keeps the session from being a success."""

    lines: list[str] = field(default_factory=list[str])
    failing: list[str] = field(default_factory=list[str])

    def take(self, lines: Iterable[tuple[bool, str]]) -> None:
        """Add lines; what cannot be done is one, and keeps nothing else from being done."""
        try:
            for holds, line in lines:
                self.lines.append(line)
                if not holds:
                    self.failing.append(line)
        except DagengineError as error:
            self.take([(False, f"error: {error}")])

    def report(self, config: pytest.Config) -> None:
        """Write what does not hold into the JUnit file, as tests that failed.

        pytest has written the file by then: gates come after the fixtures of the session.
        """
        junit = plugin_of_class(config, "LogXML")
        if junit is None or not self.failing:
            return
        for number, line in enumerate(self.failing, 1):
            name = f"evaluations::gate {number}"
            report = pytest.TestReport(
                name, ("evaluations", None, name), {}, "failed", line, when="call"
            )
            junit.pytest_runtest_logreport(report)
        junit.pytest_sessionfinish()


def check_options(config: pytest.Config) -> None:
    """Raise what is wrong with the options of gates, before anything runs."""
    for text in config.getoption("evals_min") or ():
        Gate.read(text)
    baseline: str | None = config.getoption("evals_baseline")
    if baseline is not None:
        # No run folder, or no statistics installed, would be found at the end only.
        load_run(Path(baseline))
        compare_shares([(True, False)])
    card: str | None = config.getoption("evals_card")
    if card is not None:
        from dagengine.reliability.card.card_formats import read_card

        read_card(Path(card))


def is_whole(session: pytest.Session, left_out: bool) -> bool:
    """Whether all of every test ran, of every file that was begun with.

    `left_out` says whether tests were deselected, or ended before their last evaluation.
    """
    config = session.config
    return not (
        left_out
        or session.shouldfail
        or session.shouldstop
        or any("::" in str(argument) for argument in config.args)
        or any(config.getoption(name, False) for name in ("lf", "stepwise"))
    )


def end(
    config: pytest.Config,
    summary: Summary,
    files: TestFiles,
    run: SessionRun | None,
    *,
    is_whole: bool,
) -> Ending:
    """Write recordings and the run, check gates, and say what the evaluations came to."""
    ending = Ending(summary.lines())
    for path, count in files.save(is_whole=is_whole):
        shown = os.path.relpath(path)
        shown = str(path) if shown.startswith("..") else shown
        ending.lines.append(f"recorded: {shown} ({count} new or changed answers)")
    out, baseline = config.getoption("evals_out"), config.getoption("evals_baseline")
    if baseline is not None:  # which may be the folder that is written next
        ending.take(against(Path(baseline), summary))
    if out is not None and run is not None:
        with noting_writes() as written:
            run.save(Path(out), summary)
        ending.lines.append(f"run folder: {Path(out)}")
        if line := replaced_line(written):
            ending.lines.append(line)
    gates: Sequence[str] = config.getoption("evals_min") or ()
    ending.take(Gate.read(text).check(summary.all) for text in gates)
    return ending


def end_of_workers(config: pytest.Config, workers: Workers) -> Ending:
    """The same from what workers sent, in the order of the tests."""
    summary, files, tests = Summary(), TestFiles(config), list(workers.collected)
    whole = not workers.died
    for parts in map(pickle.loads, workers.sent):
        sent: Sent = parts
        summary.add(sent.summary)
        files.add(sent.recordings)
        whole &= sent.whole
    summary.arrange(tests)
    out: str | None = config.getoption("evals_out")
    run = None if out is None else SessionRun.gather(Path(out), tests)
    return end(config, summary, files, run, is_whole=whole)


def against(folder: Path, summary: Summary) -> Iterator[tuple[bool, str]]:
    """Each metric against an earlier run, pair by pair: whether it holds, and what to say.

    A metric does not hold if its pass rate is worse on the same cases by more than chance. The
    whole 95 % interval of the difference is then below 0. Cases are paired by their tests, or by
    their names; where none of them was judged before, nothing holds. Raises InputError for what is
    not a run folder.
    """
    before: dict[tuple[str, str], bool | None] = {}
    for row in load_run(folder).rows():
        before |= {(row.case, result.metric): result.success for result in row.metrics}
    pairs = dict[str, list[tuple[bool | None, bool | None]]]()
    for outcome in summary.all:
        named = before.get((outcome.case, outcome.metric))
        earlier = before.get((outcome.label, outcome.metric), named)
        pairs.setdefault(outcome.metric, []).append((earlier, outcome.success))
    if all(earlier is None for own in pairs.values() for earlier, _ in own):
        yield False, f"against {folder}: none of its cases was judged"
        return
    for metric, own in pairs.items():
        label, result = f"against {folder}: {metric}", compare_shares(own)
        if not isinstance(result, Comparison) or not isinstance(result.interval, Interval):
            yield True, f"{label}: no case was judged in both"
            continue
        low, high = result.interval.low, result.interval.high
        holds = high >= 0
        word = text_if(not holds, ": worse by more than chance")
        yield (
            holds,
            f"{label}: pass rate {result.value:+.0%} on {result.cases} cases (95 % interval "
            f"{low:+.0%} to {high:+.0%}, {result.differing} differ, p = {result.p:.2g}){word}",
        )


@dataclass(slots=True)
class SessionRun:
    """What a session judged: rows by test, the metrics, and the judges by their identities.

    A row is called like its test, `#2` and so on where a test judges several cases. Metrics of
    one name are one metric.
    """

    rows: dict[str, list[CaseResult]] = field(default_factory=dict[str, list[CaseResult]])
    metrics: dict[str, MetricRecord] = field(default_factory=dict[str, MetricRecord])
    judges: dict[str, JudgeRecord] = field(default_factory=dict[str, JudgeRecord])
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

    def save(self, folder: Path, summary: Summary) -> None:
        """Write the folder, which the session holds (`sole_writer`), and its page.

        Raises InputError if it cannot be written.
        """
        self._write(folder, summary, held=True)
        write_run_page(load_run(folder))

    def _write(self, folder: Path, summary: Summary, *, held: bool) -> None:
        manifest = Manifest(
            dagengine=importlib.metadata.version("dagengine"),
            python=platform.python_version(),
            started=self.started,
            command="pytest",
            metrics=tuple(self.metrics.values()),
            judges=tuple(self.judges.values()),
        )
        spent = summary.totals, summary.spent
        with RunWriter(folder, manifest, lambda: spent, held=held) as writer:
            indices = itertools.count()
            for test, rows in self.rows.items():
                for number, row in enumerate(rows):
                    writer.add(replace(row, index=next(indices), case=label_of(test, number)))

    def save_part(self, folder: Path, worker: str, summary: Summary) -> None:
        """Write what one worker judged, for `gather`."""
        self._write(folder / _PARTS / worker, summary, held=False)

    @classmethod
    def gather(cls, folder: Path, order: Sequence[str]) -> SessionRun:
        """Rows of all workers, in the order of these tests; their parts are removed."""
        whole = cls()
        for part in sorted((folder / _PARTS).glob("*")):
            run = load_run(part)
            whole.started = min(whole.started, run.manifest.started)
            whole._define(run.manifest.metrics, run.manifest.judges)
            for row, case in zip(run.rows(), run.cases(), strict=True):
                kind = _CASES.get(case["type"])
                shown = None if kind is None else kind.model_validate(fields_in(case))
                whole.note(_NUMBER.sub("", row.case), replace(row, test_case=shown))
        shutil.rmtree(folder / _PARTS, ignore_errors=True)
        whole.arrange(order)
        return whole

    def arrange(self, tests: Iterable[str]) -> None:
        """Put rows into the order of the tests, and metrics into that of the rows."""
        self.rows = in_order(self.rows, tests)
        rows = itertools.chain.from_iterable(self.rows.values())
        names = (result.metric for row in rows for result in row.metrics)
        self.metrics = in_order(self.metrics, names)


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
