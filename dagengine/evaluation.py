"""The doors: metrics in, results out. One implementation, async, with a thin sync door."""

from __future__ import annotations

import itertools
import warnings
from collections.abc import (
    AsyncGenerator,
    Callable,
    Collection,
    Coroutine,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cached_property, partial, wraps
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ParamSpec, TypeVar, Unpack, cast, overload

from dagengine.data.app import as_app
from dagengine.data.cases import AsyncCases, Cases
from dagengine.deepeval_configs import NAMES, Show, translate_settings
from dagengine.errors import metric_failed
from dagengine.execution.cases_and_rows import OnRow, Pace, Source, rows_as_read
from dagengine.execution.cluster.coordinator import Executor, Workers, cluster_of
from dagengine.execution.interrupts import kept_judges, sync
from dagengine.execution.local_executor import LocalExecutor, Settings, check_settings
from dagengine.graph.graph import Metric, as_metrics
from dagengine.record.judge_standing import standing_lines
from dagengine.record.reader import load_run
from dagengine.record.run_json import Judging, data_of, hidden_fields, judges_of, manifest_of
from dagengine.record.run_json_types import DataRecord, Manifest
from dagengine.record.writer import MANIFEST, RunWriter, require_apart, sole_writer
from dagengine.report.page.run_page import write_run_page
from dagengine.report.progress import progress_bar
from dagengine.report.tables_and_junit import print_steps, print_table
from dagengine.report.tally import Tally
from dagengine.results import CaseResult, EvaluationResult, Spent, Totals
from dagengine.system.safe_files import require_own_folder

P = ParamSpec("P")
R = TypeVar("R")


class Recorded(Settings, total=False):
    """Settings of a run that may be judged by a cluster, and recorded; see `stream`."""

    cluster: Workers | str | None
    out: str | Path | None
    texts: bool
    redact: Sequence[str]
    page: bool


def names_first(*accepted: str) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Check a function's argument names first, but the `accepted`: Python names a missing one."""

    def checking(door: Callable[P, R]) -> Callable[P, R]:
        @wraps(door)
        def wrapper(*args: P.args, **kwargs: P.kwargs) -> R:
            __tracebackhide__ = True
            try:
                check_settings(door, itertools.filterfalse(accepted.__contains__, kwargs))
            except TypeError as error:  # the caller's line is what is wrong, not ours
                raise error.with_traceback(None) from None
            return door(*args, **kwargs)

        return wrapper

    return checking


@overload
def stream(
    test_cases: Source,
    metrics: Sequence[Metric],
    on_row: None = None,
    **settings: Unpack[Recorded],
) -> AsyncGenerator[CaseResult, None]: ...
@overload
def stream(
    test_cases: Source,
    metrics: Sequence[Metric],
    on_row: Callable[[CaseResult], None],
    **settings: Unpack[Recorded],
) -> Coroutine[Any, Any, Totals]: ...
def stream(
    test_cases: Source,
    metrics: Sequence[Metric],
    on_row: Callable[[CaseResult], None] | None = None,
    *,
    cluster: Workers | str | None = None,
    out: str | Path | None = None,
    texts: bool = True,
    redact: Sequence[str] = (),
    page: bool = True,
    **settings: Unpack[Settings],
) -> AsyncGenerator[CaseResult, None] | Coroutine[Any, Any, Totals]:
    """Run metrics over test cases and give every row as soon as it can, in data set order.

    `async for row in stream(cases, metrics)` reads the rows. The run works ahead of a slow reader
    by about 64 rows (on a cluster without this bound). A reader who may leave early closes it:
    `async with contextlib.aclosing(stream(…)) as rows`. With `on_row`, `await` it instead: the
    function gets every row, and the totals of the run are returned.

    `test_cases` is a source for `read_cases`, or a data set. A slow source should be an async
    iterator, so that earlier cases are judged while it waits. `settings` are those of `Settings`:
    `model`, `app`, `limits`, `store`, `on_attempt`, `tracer`.

    `cluster` runs the cases on Dask workers: `"local"`, the address of a scheduler, or a `Workers`
    object. Metrics and settings are sent to the workers; an object that cannot be sent is an
    InputError before the first call.

    `out` is a folder for the record of the run (see `dagengine.record`), written during the run.
    Without `texts` it has no cases. The fields in `redact` (`additional_metadata.email`) are hidden
    in all its files. Without `page` it has no `report.html`.

    Rows are not kept, so memory is bounded by the cases in progress. Raises GraphError or
    InputError before the first call, JudgeSetupError if a judge cannot work at all, and InputError
    later if the store fails. A case never raises: an invalid row among the first 1000 of a file is
    an InputError, a later one is an `invalid_case` outcome. If the source itself fails, the cases
    before are finished, and then InputError names the row.
    """
    check_settings(stream, settings)

    async def run(on_row: Callable[[CaseResult], None], pace: Pace | None = None) -> Totals:
        executor = _executor(metrics, settings, cluster, returns=True)
        cases = executor.cases(test_cases)
        target = _target(out, settings, texts, redact)
        data = DataRecord() if out is None else target.data(cases)  # hashes a file
        with open_record(target, executor, data, page) as record:

            def take(row: CaseResult) -> None:
                if record is not None:
                    record.add(row)
                on_row(row)

            waits = pace is not None and executor.waits_for_cases
            paced = pace(cases) if pace is not None and waits else cases
            await executor.judge(paced, OnRow(take, None if record is None else record.keep))
        return executor.totals

    return rows_as_read(run) if on_row is None else run(on_row)


@names_first(*NAMES)
async def a_evaluate(
    test_cases: Source,
    metrics: Sequence[Metric],
    *,
    show: Show = True,
    on_row: Callable[[CaseResult], None] | None = None,
    cluster: Workers | str | None = None,
    out: str | Path | None = None,
    texts: bool = True,
    redact: Sequence[str] = (),
    page: bool = True,
    **settings: Unpack[Settings],
) -> EvaluationResult:
    """Run metrics over test cases; returns one row per case, in order, even if other cases failed.

    All rows are kept in memory; for large data use `stream`. `show` draws a progress bar (on a
    terminal) and prints the result table. For the other arguments and the errors see `stream`.
    Metrics are not changed. deepeval's names for settings (`deepeval_configs`: `max_concurrent`,
    `AsyncConfig`, …) are accepted, too. `identifier` and `hyperparameters` (texts and numbers by
    name) are in the record and on its page.
    """
    rows: list[CaseResult] = []
    translation = translate_settings(cast("dict[str, Any]", settings), show)
    settings, show = cast("Settings", translation.settings), translation.show
    metrics = as_metrics(metrics)
    executor = _executor(metrics, settings, cluster)
    cases = executor.cases(test_cases)
    target = _target(out, settings, texts, redact, translation.labels)
    data = target.data(cases)
    with (
        progress_bar(executor, data.cases, show in (True, "progress")) as advance,
        open_record(target, executor, data, page) as record,
    ):

        def finish(row: CaseResult) -> None:
            if record is not None:
                record.keep(row)
            advance(row)

        def take(row: CaseResult) -> None:
            rows.append(row)
            if record is not None:
                record.add(row)
            print_verbose(metrics, row, translation.verbose)
            if on_row is not None:
                on_row(row)

        def result() -> EvaluationResult:
            return EvaluationResult(tuple(rows), executor.totals, _Saved(target, executor, data))

        with executor.keeping(result):
            await executor.judge(cases, OnRow(take, finish))
    if show in (True, "table"):
        records = judges_of(executor.plan, executor.judges, {})
        lines = standing_lines(records, executor.asked_judges)
        print_table(Tally(rows), executor.totals, standings=lines)
    evaluation = result()
    if translation.forgiven is not None:
        _require_scores(evaluation, translation.forgiven)
    return evaluation


def _require_scores(evaluation: EvaluationResult, forgiven: Collection[str]) -> None:
    """Raise MetricFailedError, with the result as its `result`, for the first lack of a score."""
    for row in evaluation.rows:
        for result in row.metrics:
            if result.failure is not None and str(result.failure.kind) not in forgiven:
                kind, message = str(result.failure.kind), f"{row.case}: {result.failure.message}"
                error = metric_failed(result.metric, result.failure.node, kind, message)
                error.result = evaluation
                raise error


@names_first(*NAMES)
def evaluate(
    test_cases: Source,
    metrics: Sequence[Metric],
    *,
    show: Show = True,
    on_row: Callable[[CaseResult], None] | None = None,
    cluster: Workers | str | None = None,
    out: str | Path | None = None,
    texts: bool = True,
    redact: Sequence[str] = (),
    page: bool = True,
    **settings: Unpack[Settings],
) -> EvaluationResult:
    """Run metrics over test cases; returns one row per case, in order, even if other cases failed.

    It is `a_evaluate` for callers without an event loop, and works inside one, too. Of `settings`,
    `model` is the judge of metrics that name none (a name such as "gpt-4o", or an object), `limits`
    is a `Limits` (`max_in_flight`, `budget`, `call_timeout` …), `store` a file of answers that are
    not asked again, `app` completes goldens, and `on_attempt` and `tracer` follow the calls. `out`
    is a folder for the record of the run, `show=False` prints nothing. All arguments and errors:
    `stream`.
    """
    return sync(
        partial(
            a_evaluate, test_cases, metrics, show=show, on_row=on_row, cluster=cluster, out=out,
            texts=texts, redact=redact, page=page, **settings,
        )
    )  # fmt: skip


async def judged_case(
    test_case: Any, metrics: Sequence[Metric], settings: Settings, *, at_once: bool = True
) -> tuple[CaseResult, Totals]:
    """The row of a single case, and its totals; without `at_once` one node runs at a time."""
    rows = list[CaseResult]()
    engine = LocalExecutor(metrics, settings, at_once=at_once, judges=kept_judges())
    await engine.judge(engine.cases([test_case]), OnRow(rows.append))
    return rows[0], engine.totals


def print_verbose(metrics: Sequence[Metric], row: CaseResult, wanted: bool | None = None) -> None:
    """Print the steps of metrics: where they are `wanted`; None: as each `verbose_mode` says."""
    for metric, result in zip(metrics, row.metrics, strict=True):
        if getattr(metric, "verbose_mode", False) if wanted is None else wanted:
            print_steps(result)


def _executor(
    metrics: Sequence[Metric],
    settings: Settings,
    cluster: Workers | str | None,
    *,
    returns: bool = False,
) -> Executor:
    """The executor that judges the cases: this process, or the workers of a cluster."""
    if cluster is not None:
        return cluster_of(metrics, settings, cluster)
    return LocalExecutor(metrics, settings, returns=returns)


@dataclass(frozen=True, slots=True)
class RecordTo:
    """Where a run is recorded, and what of it.

    `folder` is that of the run, or None while nobody has named one. `settings` are shown as those
    of the run, `columns` say how the columns of the data were read, `command` is the command line.
    `results` is another file for the rows, `started` when the run began. Without `texts` there are
    no cases; `redact` names the fields to hide.
    """

    folder: str | Path | None
    settings: Mapping[str, Any]
    texts: bool = True
    redact: Sequence[str] = ()
    command: str | None = None
    columns: Mapping[str, Any] = field(default_factory=dict[str, Any])
    results: Path | None = None
    started: datetime = field(default_factory=lambda: datetime.now(UTC))

    def data(self, cases: Cases | AsyncCases) -> DataRecord:
        """The source of the cases; of a file its hash."""
        return data_of(cases, **self.columns)

    def manifest(self, run: Judging, data: DataRecord) -> Manifest:
        """The manifest of a run that starts now; hashes the metrics."""
        manifest = manifest_of(
            run, data, self.settings, texts=self.texts, redact=self.redact, command=self.command
        )
        return manifest.model_copy(update={"started": self.started})

    def writer(self, run: Judging, data: DataRecord) -> RunWriter:
        """The writer of the record, for the sole writer of the folder.

        Raises InputError for a folder that holds the cases, or files of something else.
        """
        assert self.folder is not None
        if self.results is None:  # else the rows go elsewhere
            require_apart(data, self.folder)
        return RunWriter(
            self.folder,
            self.manifest(run, data),
            lambda: (run.totals, run.spent),
            self.results,
            held=True,
        )


def _target(
    out: str | Path | None,
    settings: Settings,
    texts: bool,
    redact: Sequence[str],
    labels: Mapping[str, Any] | None = None,
) -> RecordTo:
    """The target of a record; raises InputError for another command's folder, and bad `redact`."""
    hidden_fields(redact)
    if out is not None:
        require_own_folder(Path(out), [MANIFEST])
    app = as_app(settings.get("app"))
    settings_shown = {"app": None if app is None else app.name, **(labels or {})}
    return RecordTo(out, settings_shown, texts, redact)


@contextmanager
def open_record(
    target: RecordTo, executor: Executor, data: DataRecord, page: bool
) -> Iterator[RunWriter | None]:
    """Open the writer of a record (None: none is written); the `page` is written in the end."""
    if target.folder is None:
        yield None
        return
    writer = target.writer(executor, data)
    with sole_writer(target.folder):
        with writer:
            yield writer
        if page:
            write_page_or_warn(target.folder)


def write_page_or_warn(folder: str | Path) -> None:
    """Write the page of a run, or warn that there is none."""
    try:
        write_run_page(load_run(folder))
    except Exception as error:  # noqa: BLE001 - what was judged was paid for, and is recorded
        warnings.warn(
            f"{folder}: the page could not be written: {type(error).__name__}: {error}",
            stacklevel=2,
        )


class _Saved:
    """A run that ended now, to be saved with its page: without all that its engine remembers.

    Most runs are never saved, and hashing the metrics takes long: its end is made by the first
    `save`. It is pickled as made, since graphs and judges may not be picklable.
    """

    def __init__(self, target: RecordTo, executor: Executor, data: DataRecord) -> None:
        names = ("plan", "judges", "limits", "store", "totals", "spent")
        self._run: Any = SimpleNamespace(**{name: getattr(executor, name) for name in names})
        self._target, self._data, self._ended = target, data, datetime.now(UTC)

    def save(self, folder: str | Path, rows: Iterable[CaseResult], /, *, page: bool = True) -> None:
        """Write the folder of the run; raises InputError if it cannot be written."""
        manifest, totals, spent = self.end
        with RunWriter(folder, manifest, lambda: (totals, spent)) as writer:
            for row in rows:
                writer.add(row)
        if page:
            write_page_or_warn(folder)

    @cached_property
    def end(self) -> tuple[Manifest, Totals, tuple[Spent, ...]]:
        """The record without its rows, and what the run spent."""
        manifest = self._target.manifest(self._run, self._data)
        ended = manifest.model_copy(update={"ended": self._ended})
        return ended, self._run.totals, self._run.spent

    def __getstate__(self) -> dict[str, Any]:
        return {"end": self.end}
