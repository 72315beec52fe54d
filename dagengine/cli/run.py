"""`dagengine run`: run metrics over a file of test cases and write the results into a folder."""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import typer

from dagengine.cli.common import options as shared
from dagengine.cli.common.files import name_in_errors
from dagengine.cli.common.formats import EXIT_FAILED, EXIT_NO_SCORE, fail_if_any, report
from dagengine.cli.common.garbage import collector_at_work
from dagengine.cli.common.judge_access import Access, any_accepted
from dagengine.cli.common.run_options import RunOptions
from dagengine.cli.common.standings import with_card, words_of_judge
from dagengine.cli.common.streams import outlive_reader, say, warn
from dagengine.cli.send import send_all
from dagengine.system.terminal import counted, plain

if TYPE_CHECKING:
    from dagengine.data.cases import Cases
    from dagengine.execution.executor import Executor
    from dagengine.graph.graph import MetricSpec
    from dagengine.record.writer import RunWriter
    from dagengine.report.tally import Tally
    from dagengine.results.conditions import Condition
    from dagengine.results.rows import CaseResult


def run(options: RunOptions) -> None:
    """Run metrics over a file of test cases.

    Writes one folder: `run.json`, `results.jsonl` (one row per case, in order), `cases.jsonl` (the
    texts), `times.jsonl` (the durations), `columns.parquet` (both in columns, if pyarrow is
    installed), `summary.json` and `report.html`. Also draws three
    pictures per metric: the tree, the path of one case, and how often each edge was taken. Without
    Graphviz, pictures are Mermaid text. Prints a summary, the worst cases and where cases failed;
    `dagengine show` shows more.

    An invalid line among the first 1000 stops the run before the first judge call. A later invalid
    line becomes a row without a score (`invalid_case`), and the run continues. Data from a pipe is
    not checked before the run, because it can be read only once.

    Exit codes: 0 every case has a score; 1 a case failed (with --assert) or a --fail-if condition
    holds; 2 invalid input, or a judge that accepts no call; 3 otherwise, if a case has no
    score; 130 interrupted.
    """
    from dagengine.execution.interrupts import sync
    from dagengine.record.run_conditions import conditions_of
    from dagengine.record.writer import sole_writer
    from dagengine.report.tally import Tally

    _check(options)
    cases = options.cases_in(options.data, goldens=options.app is not None, unit=options.unit)
    if options.case is not None:
        total = cases.count()
        if options.case < 0 or (total is not None and options.case >= total):
            raise typer.BadParameter(
                plain(f"there is no case {options.case}; {cases.name} has {total}")
            )
    executor = _executor(options)
    tally = Tally(case=options.case)
    names = [metric.spec.name for metric in executor.plan.metrics]
    conditions = conditions_of(options.fail_if or (), names)
    executor.cases(cases)  # checks them
    for judge in executor.asked_judges:
        reachable = getattr(judge, "require_reachable", None)
        if reachable is not None:
            sync(reachable)
    warn(*executor.plan.warnings)
    _warn_of_cases(executor, cases, options)
    writer = _writer(options, executor, cases)
    if options.card is not None:
        writer.manifest, line = with_card(writer.manifest, options.card)
        if line is not None:
            warn(line)
    with sole_writer(options.out):  # its page and pictures are this run's as well
        _judge(executor, cases, writer, tally, options)
        _report(options, executor, writer, tally, conditions)


def _check(options: RunOptions) -> None:
    """Raise BadParameter or InputError for options that cannot be combined."""
    if options.to:
        from dagengine.traces.backends import backend_of

        for destination in options.to:
            backend_of(destination, os.environ)  # raises before anything is asked
    if options.replay and options.store is None:
        raise typer.BadParameter("--replay needs --store")
    if options.batch_files is not None and (options.batch or options.base_url):
        raise typer.BadParameter("--batch-files uses no server: leave out --batch and --base-url")
    options.part()
    if options.processes is not None and (options.cluster or options.workers):
        raise typer.BadParameter(
            "--processes 2 is short for --cluster local --workers 2: use only one of the two forms"
        )
    if options.address is None:
        if options.workers is not None:
            raise typer.BadParameter("--workers needs --cluster")
        return
    if options.shard is not None:
        raise typer.BadParameter("--shard works in one process only: start one run per shard")
    from dagengine.execution.cluster.coordinator import require_shareable

    require_shareable(
        {"--batch": options.batch, "--batch-files": options.batch_files, "--trace": options.trace}
    )


def _executor(options: RunOptions) -> Executor:
    """The executor of the cases: this process, or the workers of a cluster."""
    limits = options.limits()
    if options.address is None:
        return options(limits, options.app_in_flight)
    from dagengine.execution.cluster.coordinator import Cluster, Workers

    workers = Workers(options.address, options.processes or options.workers)
    return Cluster(options.absolute(), limits, options.app_in_flight, workers)


def _writer(options: RunOptions, executor: Executor, cases: Cases) -> RunWriter:
    """The writer of the record; raises InputError if --results has an unknown file type."""
    from dagengine.evaluation import RecordTo

    columns = shared.pairs("--map", shared.columns_in(options.mapped))
    target = RecordTo(
        options.out,
        options.settings(),
        options.texts,
        options.redact or (),
        shared.command_line(),
        {
            "map": {column: field or None for column, field in columns.items()},
            "delimiters": shared.pairs("--delimiter", options.delimiter),
        },
        options.results,
    )
    return target.writer(executor, target.data(cases))


def _warn_of_cases(executor: Executor, cases: Cases, options: RunOptions) -> None:
    """Say which fields cases lack, which are too long for a server, and which are examples, too.

    Of data from a pipe nothing. Raises InputError if all cases lack a field that is always read.
    """
    from dagengine.cli.plan import too_long
    from dagengine.estimate.case_warnings import example_lines
    from dagengine.estimate.packs import with_writers
    from dagengine.evaluation import fields_before

    if cases.count() is None or not executor.asked_judges:
        return
    part = options.part()

    def numbered_cases() -> Iterator[tuple[int, Any]]:
        return zip(itertools.count(part.first, part.count), part.part_of(cases), strict=False)

    warn(*too_long(executor.plan, numbered_cases(), with_writers(executor.judges)))
    warn(*fields_before(executor.plan, (case for _, case in numbered_cases())))
    warn(*example_lines(executor.plan, numbered_cases()))


def _judge(
    executor: Executor, cases: Cases, writer: RunWriter, tally: Tally, options: RunOptions
) -> None:
    """Judge every case; an interrupt keeps the finished rows and says how to continue."""
    from dagengine.execution.executor import OnRow
    from dagengine.execution.interrupts import sync
    from dagengine.report.progress import progress_bar

    collector_at_work()
    part = options.part()
    total = part.size(cases.count())
    mine = cases if options.shard is None else part.part_of(cases)
    access = Access(lambda: any_accepted(executor.totals))
    with progress_bar(executor, total, True) as advance:

        def take(row: CaseResult) -> None:
            tally.add(writer.add(row))

        def keep(row: CaseResult) -> None:
            writer.keep(row)
            advance(row)

        observer = OnRow(
            lambda row: access.hand_on(row, take), lambda row: access.hand_on(row, keep)
        )

        def left() -> str:
            count, path = writer.rows.count, writer.rows.path
            if not count:
                return f"interrupted before the first row; {path} is unchanged"
            of_all = counted(count, "row") if total is None else f"{count} of {total} rows"
            return f"interrupted: {of_all} are in {path}"

        with shared.saying_how_to_go_on(options.store, left), writer:
            sync(lambda: executor.judge(mine, observer, part.first, part.count))
            access.end()


def _report(
    options: RunOptions,
    executor: Executor,
    writer: RunWriter,
    tally: Tally,
    conditions: Sequence[Condition],
) -> None:
    """Print and draw the results, and exit with their exit code."""
    from dagengine.cli.common.pictures import draw_views
    from dagengine.record.definition import standing_lines
    from dagengine.record.run import load_run
    from dagengine.record.run_conditions import failures
    from dagengine.report.build_servers import add_step_summary, write_junit
    from dagengine.report.page.run_page import write_run_page
    from dagengine.report.tables import print_table

    outlive_reader()  # the page and the pictures are not written yet
    words = words_of_judge(options.metrics, options.judge, options.base_url)
    standings = standing_lines(writer.manifest.judges, executor.asked_judges, words)
    report(out=options.out, summary=tally.summing.result(), totals=executor.totals)
    print_table(tally, executor.totals, standings=standings)
    add_step_summary(tally, executor.totals, standings)
    say(f"results: {writer.rows.path}")
    if options.junit is not None:
        with name_in_errors(options.junit):
            write_junit(options.junit, load_run(options.out).rows(), tally.summing.result())
        say(f"JUnit: {options.junit}")
    if options.page:
        with name_in_errors(options.out / "report.html"):
            page = write_run_page(load_run(options.out))
        unwritten = "page: not written for a run of this size; use dagengine view"
        say(f"page: {page}" if page else unwritten)
    specs: list[MetricSpec] = [metric.spec for metric in executor.plan.metrics]
    draw_views(specs, tally, options.out)
    if options.to:
        send_all(options.out, options.to)
    fail_if_any(failures(conditions, writer.figures()))
    if options.assert_pass and (tally.failed or not tally.rows):
        raise typer.Exit(EXIT_FAILED)
    if tally.unscored:
        raise typer.Exit(EXIT_NO_SCORE)
