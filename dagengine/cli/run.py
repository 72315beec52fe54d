"""`dagengine run`: run metrics over a file of test cases and write the results into a folder."""

from __future__ import annotations

import itertools
import shlex
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer import Option

from dagengine.cli.common import options as shared
from dagengine.cli.common.files import Given, Reads, Writes, name_in_errors
from dagengine.cli.common.judge_access import (
    Access,
    any_accepted,
    collector_at_work,
    saying_how_to_go_on,
)
from dagengine.cli.common.output import (
    EXIT_FAILED,
    EXIT_NO_SCORE,
    fail_if_any,
    outlive_reader,
    report,
    say,
    warn,
)
from dagengine.cli.send import Destinations, backends_of, send_all
from dagengine.system.terminal_text import counted, plain

if TYPE_CHECKING:
    from dagengine.data.cases import Cases, Shard
    from dagengine.execution.cluster.coordinator import Executor
    from dagengine.execution.local_executor import LocalExecutor, Settings
    from dagengine.graph.graph import MetricSpec
    from dagengine.limits import Limits
    from dagengine.question import Judge
    from dagengine.record.run_json_types import Manifest
    from dagengine.record.writer import RunWriter
    from dagengine.reliability.card.recommendation import Verdict
    from dagengine.reliability.card.types import JudgeCard
    from dagengine.report.tally import Tally
    from dagengine.results.metric_results import CaseResult
    from dagengine.results.pass_rules import Condition

# What one batch of the provider may hold.
_BATCH = 50_000
# What one file of questions may hold: those that wait take some 27 kB each.
_FILE = 100_000
_CALL_TIMEOUT = 120.0


def _files_in(out: Path, given: Given) -> Iterable[Path]:
    """The files that a run writes into its folder; the names of the metrics are not known yet."""
    if given.get("results") is None:
        yield out / "results.jsonl"
        yield out / "results.jsonl.early"
    if given.get("batch") and given.get("store") is None:
        yield out / "results-batches"
    for name in (
        *("run.json", "cases.jsonl", "times.jsonl", "columns.parquet"),
        *("summary.json", "report.html"),
    ):
        yield out / name
    for view in ("tree", "path", "counts"):
        yield from out.glob(f"*-{view}.svg")
        yield from out.glob(f"*-{view}.mmd")


@dataclass(frozen=True, kw_only=True)
class RunOptions(shared.CaseOptions, shared.QuoteOptions, shared.ReplayOptions):
    """The options of one run, as they were typed.

    They also build the engine of a run by loading files, in this process or in a worker of a
    cluster. Workers need the same files under the same paths (see `absolute`).
    """

    out: Annotated[Path, Writes(_files_in)] = Path("out")
    """Output folder of the run."""
    results: Annotated[Path | None, Writes()] = None
    """File for the rows, .jsonl or .parquet. Default: OUT/results.jsonl."""
    card: Annotated[Path | None, Option(metavar="card.json"), Reads()] = None
    """The judge card of a benchmark of these metrics and this judge: the summary says what it
    found.
    """
    texts: Annotated[bool, Option("--texts/--no-texts")] = True
    """Keep the texts of the cases in OUT/cases.jsonl."""
    page: Annotated[bool, Option("--page/--no-page")] = True
    """Write the page of the run, OUT/report.html."""
    redact: Annotated[list[str] | None, Option(metavar="FIELD")] = None
    """Hide this field of the cases in all output, also where other texts quote it. A key of an
    object: additional_metadata.email. Repeatable.
    """
    app: Annotated[str | None, Option(metavar="APP.py[:FUNCTION]"), Reads()] = None
    """Read the data as goldens and call this function to produce the actual outputs."""
    app_in_flight: Annotated[int, Option(min=1)] = 16
    """Maximum number of concurrent calls of --app."""
    batch: Annotated[bool, Option("--batch")] = False
    """Use the batch API of OpenAI or Anthropic: half the price, results within a day."""
    batch_files: Annotated[Path | None, Option("--batch-files", metavar="DIR")] = None
    """Write questions to files, and wait until an offline engine (vllm run-batch) has written the
    answers; --judge is the name of its model.
    """
    requests_per_minute: float | None = None
    """Rate limit: judge calls per minute. Default: no limit."""
    tokens_per_minute: float | None = None
    """Rate limit: tokens per minute. Default: no limit."""
    call_timeout: float | None = None
    """Timeout of one judge call, in seconds. Default: what `judge check` saved, else 120."""
    case_timeout: float | None = None
    """Timeout of one case, in seconds. Default: none."""
    case: int | None = None
    """Draw the path of the case with this index. Default: the case with the longest path."""
    fail_if: Annotated[list[str] | None, Option(metavar="MEASURE>X")] = None
    """Exit with 1 if this condition holds: Faithfulness.mean<0.8, pass-rate<0.9, p95.cost>0.02.
    Repeatable.
    """
    junit: Annotated[Path | None, Writes()] = None
    """Also write the results as JUnit XML, for a CI server."""
    assert_pass: Annotated[bool, Option("--assert")] = False
    """Exit with 1 if a case is below the threshold of a metric."""
    trace: Annotated[bool, Option("--trace")] = False
    """Send OpenTelemetry spans for cases, nodes and calls."""
    to: Destinations = None
    shard: Annotated[str | None, Option(metavar="I/N")] = None
    """Judge only every N-th case, starting with the I-th (1/4, 2/4, …). `merge` combines the
    shards.
    """
    processes: Annotated[int | None, Option(min=1)] = None
    """Number of processes on this machine."""
    cluster: Annotated[str | None, Option(metavar="local|ADDRESS")] = None
    """Run on the workers of a Dask scheduler; `local` starts workers on this machine."""
    workers: Annotated[int | None, Option(min=1)] = None
    """With --cluster local: the number of processes (default: one per processor). With an address:
    wait for this number of workers.
    """

    def require_valid(self) -> None:
        """Raise BadParameter or InputError for options that cannot be combined."""
        backends_of(self.to or ())
        self.require_store()
        if self.batch_files is not None and (self.batch or self.base_url):
            raise typer.BadParameter(
                "--batch-files uses no server: leave out --batch and --base-url"
            )
        self.part()
        if self.processes is not None and (self.cluster or self.workers):
            raise typer.BadParameter(
                "--processes 2 is short for --cluster local --workers 2: use only one of the two "
                "forms"
            )
        if self.address is None:
            if self.workers is not None:
                raise typer.BadParameter("--workers needs --cluster")
            return
        if self.shard is not None:
            raise typer.BadParameter("--shard works in one process only: start one run per shard")
        from dagengine.execution.cluster.coordinator import require_shareable

        require_shareable(
            {"--batch": self.batch, "--batch-files": self.batch_files, "--trace": self.trace}
        )

    def settings(self) -> dict[str, Any]:
        """The settings that the record keeps, beside the data and the limits."""
        names = (
            "metrics", "app", "judge", "base_url", "batch", "replay",
            "shard", "processes", "cluster", "workers", "unit",
        )  # fmt: skip
        settings = {name: getattr(self, name) for name in names}
        if self.unit == "trace":
            settings["unit"] = None
        if self.batch_files:
            settings["batch_files"] = str(self.batch_files)
        if self.quotes:
            settings |= {"quotes": self.quotes, "unsupported": self.unsupported}
        return settings

    @property
    def journal(self) -> Path | None:
        """The journal of unfinished batches; the same command continues from it after a kill."""
        if not self.batch:
            return None
        beside = self.store or self.out / "results"
        return beside.with_name(f"{beside.name}-batches")

    @property
    def address(self) -> str | None:
        """The address of the cluster; None if this process judges."""
        return "local" if self.processes is not None else self.cluster

    def part(self) -> Shard:
        """The shard to judge; raises InputError if it is not valid."""
        from dagengine.data.cases import Shard

        return Shard() if self.shard is None else Shard.parse(self.shard)

    def limits(self, **settings: Any) -> Limits:
        """The limits of the whole run; raises InputError for invalid values."""
        from dagengine.judges.default import judge_settings

        if self.batch_files or self.batch:
            settings["max_in_flight"] = _BATCH if self.batch else _FILE
        if self.call_timeout is None:
            saved = judge_settings(self.judge, self.base_url).tuning.call_timeout
            settings["call_timeout"] = saved or _CALL_TIMEOUT
        return super().limits(**settings)

    def __call__(self, limits: Limits, app_in_flight: int) -> LocalExecutor:
        """The engine of one process; raises InputError, GraphError and MissingExtraError."""
        from dagengine.errors import load_extra
        from dagengine.execution.local_executor import LocalExecutor
        from dagengine.loading import load_app

        store, metrics = self.answers(), self.load_metrics(self.metrics)
        app = None if self.app is None else load_app(self.app, app_in_flight)
        tracer: Any = None
        if self.trace:
            # The provider is what the caller set up (`opentelemetry-instrument`), not ours.
            trace = load_extra("opentelemetry.trace", "--trace needs", "otel")
            tracer = trace.get_tracer("dagengine")
        settings: Settings = {
            "app": app, "model": self.chosen_judge(), "limits": limits, "store": store,
            "tracer": tracer,
        }  # fmt: skip
        return LocalExecutor(metrics, settings)

    def executor(self) -> Executor:
        """The executor of the cases: this process, or the workers of a cluster."""
        limits = self.limits()
        if self.address is None:
            return self(limits, self.app_in_flight)
        from dagengine.execution.cluster.coordinator import Cluster, Workers

        workers = Workers(self.address, self.processes or self.workers)
        return Cluster(self.absolute(), limits, self.app_in_flight, workers)

    def writer(self, executor: Executor, cases: Cases) -> RunWriter:
        """The writer of the record; raises InputError if --results has an unknown file type."""
        from dagengine.evaluation import RecordTo

        target = RecordTo(
            self.out,
            self.settings(),
            self.texts,
            self.redact or (),
            shared.command_line(),
            {
                "map": {column: field or None for column, field in self.columns().items()},
                "delimiters": self.delimiters(),
            },
            self.results,
        )
        return target.writer(executor, target.data(cases))

    def chosen_judge(self) -> Judge | None:
        """The judge of metrics that name none; None is the library's own default."""
        from dagengine.loading import load_batch_judge, load_file_judge

        if self.batch_files is not None:
            return load_file_judge(self.judge, self.batch_files, partial(say, err=True))
        if self.batch:
            return load_batch_judge(self.judge, self.base_url, self.journal)
        return super().chosen_judge()

    def absolute(self) -> RunOptions:
        """The same for processes in other folders: every file by its absolute path."""
        from dagengine.loading import Target

        judge, app = (name and str(Target.absolute(name)) for name in (self.judge, self.app))
        store = self.store and self.store.absolute()
        return replace(
            self, metrics=Target.absolute(self.metrics), app=app, judge=judge, store=store
        )


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
    from dagengine.record.run_fail_if import conditions_of
    from dagengine.record.writer import sole_writer
    from dagengine.report.tally import Tally

    options.require_valid()
    cases = options.cases(goldens=options.app is not None)
    if options.case is not None:
        total = cases.count()
        if options.case < 0 or (total is not None and options.case >= total):
            raise typer.BadParameter(
                plain(f"there is no case {options.case}; {cases.name} has {total}")
            )
    executor = options.executor()
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
    writer = options.writer(executor, cases)
    if options.card is not None:
        writer.manifest, line = _with_card(writer.manifest, options.card)
        if line is not None:
            warn(line)
    with sole_writer(options.out):  # its page and pictures are this run's as well
        _judge(executor, cases, writer, tally, options)
        _report(options, executor, writer, tally, conditions)


def _warn_of_cases(executor: Executor, cases: Cases, options: RunOptions) -> None:
    """Warn of cases; raises InputError if all of them lack a field that is always read."""
    from dagengine.estimate.case_warnings import example_lines, fields_before, too_long_cases

    if cases.count() is None or not executor.asked_judges:  # a pipe is read only once
        return
    part = options.part()

    def numbered_cases() -> Iterator[tuple[int, Any]]:
        return zip(itertools.count(part.first, part.count), part.part_of(cases), strict=False)

    warn(*too_long_cases(executor.plan, numbered_cases(), executor.judges))
    warn(*fields_before(executor.plan, (case for _, case in numbered_cases())))
    warn(*example_lines(executor.plan, numbered_cases()))


def _judge(
    executor: Executor, cases: Cases, writer: RunWriter, tally: Tally, options: RunOptions
) -> None:
    """Judge every case; an interrupt keeps the finished rows and says how to continue."""
    from dagengine.execution.cases_and_rows import OnRow
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

        observer = OnRow(partial(access.hand_on, take=take), partial(access.hand_on, take=keep))

        def left() -> str:
            count, path = writer.rows.count, writer.rows.path
            if not count:
                return f"interrupted before the first row; {path} is unchanged"
            of_all = counted(count, "row") if total is None else f"{count} of {total} rows"
            return f"interrupted: {of_all} are in {path}"

        with saying_how_to_go_on(options.store, left), writer:
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
    from dagengine.cli.render import draw_views
    from dagengine.record.judge_standing import standing_lines
    from dagengine.record.reader import load_run
    from dagengine.record.run_fail_if import failures
    from dagengine.redaction import public_text
    from dagengine.report.page.run_page import write_run_page
    from dagengine.report.tables_and_junit import add_step_summary, print_table, write_junit

    outlive_reader()  # the page and the pictures are not written yet
    judge = ["--judge", options.judge] if options.judge else []
    judge += ["--base-url", public_text(options.base_url)] if options.base_url else []
    words = shlex.join(judge or [options.metrics])  # of `judge check` for these judges
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


def _with_card(manifest: Manifest, path: Path) -> tuple[Manifest, str | None]:
    """The manifest of a run whose judges have what a card says of them, or why it says nothing.

    It holds for equal metrics and the only judge, up to 90 days after its file was written. Raises
    InputError for a file that is no card.
    """
    from dagengine.record.judge_standing import DAYS, is_recent
    from dagengine.record.run_json_types import Standing
    from dagengine.redaction import public_text
    from dagengine.reliability.card.card_formats import read_card

    card, day = read_card(path), datetime.fromtimestamp(path.stat().st_mtime, UTC).date()
    if not is_recent(day):
        return manifest, f"{path} is of {day}, older than {DAYS} days: it says nothing of this run"
    verdicts = _verdicts(card, manifest)
    if not verdicts:
        return manifest, f"{path} says nothing of this run: it is of other metrics"
    facts: dict[str, Any] = {
        "source": "judge card", "date": day, "dagengine": card.binding.version,
        "wording": card.sha256[:16],
        "says": "; ".join(f"{name}: {advice.headline}" for name, advice in verdicts.items()),
        "weak": any(advice.kind in ("no", "stop") for advice in verdicts.values()),
    }  # fmt: skip
    several = len({setting.condition.judge for setting in card.settings}) > 1
    identities, judges = set(map(public_text, card.binding.judges)), list(manifest.judges)
    for index, judge in enumerate(judges):
        if judge.identity in identities and not several:
            name = judge.model or judge.identity
            standing = Standing(identity=judge.identity, name=name, **facts)
            judges[index] = judge.model_copy(update={"standing": standing})
    if tuple(judges) == manifest.judges:
        return manifest, f"{path} says nothing of this run: it is of other judges"
    return manifest.model_copy(update={"judges": tuple(judges)}), None


def _verdicts(card: JudgeCard, manifest: Manifest) -> dict[str, Verdict]:
    """Verdicts of a card on the metrics of a run that have the same definition."""
    from dagengine.reliability.card.recommendation import verdict

    hashes = {record.name: record.hash for record in manifest.metrics}
    verdicts: dict[str, Verdict] = {}
    for measured in card.metrics:
        if card.binding.metric_hash(measured.metric) == hashes.get(measured.metric):
            for settings in measured.settings[:1]:
                verdicts[measured.metric] = verdict(card, measured, settings)
    return verdicts
