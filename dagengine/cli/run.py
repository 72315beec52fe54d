"""`dagengine run`: metrics over a file of cases, rows and pictures into a folder."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dagengine.cli.options import (
    EXIT_FAILED,
    EXIT_INTERRUPTED,
    EXIT_NO_SCORE,
    BaseUrl,
    Data,
    Delimiters,
    JudgeName,
    Mapped,
    MaxInFlight,
    Metrics,
    PriceOf,
    StorePath,
    cases_of,
    prices,
)

if TYPE_CHECKING:
    from dagengine.data.cases import Cases
    from dagengine.data.result_rows import RowWriter
    from dagengine.execution.cluster import Cluster
    from dagengine.execution.engine import Engine
    from dagengine.report.tally import Tally
    from dagengine.results import CaseResult, Totals
    from dagengine.store.answers import Store

# What one batch of the provider may hold.
_BATCH = 50_000


def run(
    metrics: Metrics,
    data: Data,
    out: Annotated[Path, typer.Option(help="Folder for results and pictures.")] = Path("out"),
    results: Annotated[
        Path | None,
        typer.Option(help="File for the rows, .jsonl or .parquet; by default OUT/results.jsonl."),
    ] = None,
    mapped: Mapped = None,
    delimiter: Delimiters = None,
    app: Annotated[
        str | None,
        typer.Option(
            metavar="APP.py[:FUNCTION]",
            help="Read the data as goldens and have this function make the outputs.",
        ),
    ] = None,
    app_in_flight: Annotated[
        int, typer.Option(min=1, help="Calls to the app under way at the same time.")
    ] = 16,
    judge: JudgeName = None,
    base_url: BaseUrl = None,
    batch: Annotated[
        bool,
        typer.Option(
            "--batch", help="Ask through OpenAI's batch API: half the price, within a day."
        ),
    ] = False,
    max_in_flight: MaxInFlight = 64,
    requests_per_minute: Annotated[
        float | None, typer.Option(help="Judge calls per minute; no limit by default.")
    ] = None,
    tokens_per_minute: Annotated[
        float | None, typer.Option(help="Tokens per minute; no limit by default.")
    ] = None,
    call_timeout: Annotated[float, typer.Option(help="Seconds for one judge call.")] = 120.0,
    case_timeout: Annotated[
        float | None, typer.Option(help="Seconds for one case; none by default.")
    ] = None,
    max_calls: Annotated[
        int | None, typer.Option(min=0, help="Stop asking after so many judge calls.")
    ] = None,
    budget: Annotated[
        float | None, typer.Option(help="Stop asking before more US dollars than this are spent.")
    ] = None,
    price: PriceOf = None,
    case: Annotated[
        int | None,
        typer.Option(help="Index of the case whose path is drawn; by default the longest path."),
    ] = None,
    assert_pass: Annotated[
        bool, typer.Option("--assert", help="Exit with 1 when a case is below its threshold.")
    ] = False,
    store: StorePath = None,
    replay: Annotated[
        bool, typer.Option("--replay", help="Take every answer from --store and ask nobody.")
    ] = False,
    trace: Annotated[
        bool, typer.Option("--trace", help="Make OpenTelemetry spans of cases, nodes and calls.")
    ] = False,
    cluster: Annotated[
        str | None,
        typer.Option(
            metavar="local|ADDRESS",
            help="Run on the workers of a Dask scheduler, or of one started on this machine.",
        ),
    ] = None,
    workers: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="With --cluster: processes to start (by default one per processor), or workers "
            "of the scheduler to wait for.",
        ),
    ] = None,
) -> None:
    """Run metrics over a file of test cases.

    Writes `results.jsonl` (one row per case, in order, as the run goes on) and three pictures
    per metric: the tree, the path of one case, and how often each edge was taken. Prints a
    table.

    An invalid line among the first 1000 of the data stops the run before anything is asked; a
    later one becomes a row without a score (`invalid_case`), and the run goes on.

    Exit codes: 0 every case has a score, 1 a case failed (with --assert), 2 bad input,
    3 a case has no score, 130 interrupted.
    """
    from dagengine.cli.pictures import draw_views, stems
    from dagengine.data.result_rows import RowWriter
    from dagengine.execution.engine import Engine
    from dagengine.gateway.limits import Limits
    from dagengine.loading import load_app, load_metrics
    from dagengine.report.tables import print_table
    from dagengine.report.tally import Tally
    from dagengine.store.answers import Store

    if replay and store is None:
        raise typer.BadParameter("--replay needs --store")
    if cluster is not None:
        _require_shareable(batch=batch, trace=trace, max_calls=max_calls, budget=budget)
    elif workers is not None:
        raise typer.BadParameter("--workers needs --cluster")
    loaded = load_metrics(metrics)
    caller = None if app is None else load_app(app, app_in_flight)
    cases = cases_of(data, mapped, delimiter, goldens=caller is not None)
    total = cases.count()
    if case is not None and total is not None and not 0 <= case < total:
        raise typer.BadParameter(f"there is no case {case}; {data} has {total}")
    limits = Limits(
        max_in_flight=_BATCH if batch else max_in_flight,
        requests_per_minute=requests_per_minute,
        tokens_per_minute=tokens_per_minute,
        call_timeout=call_timeout,
        case_timeout=case_timeout,
        max_calls=max_calls,
        budget=budget,
        prices=prices(price),
    )
    kept = None if store is None else Store(store, replay=replay)
    model = _judge(judge, base_url, batch, ask=not replay)
    tracer = _tracer() if trace else None
    engine = Engine(
        loaded,
        {"app": caller, "model": model, "limits": limits, "store": kept, "tracer": tracer},
    )
    doors: Engine | Cluster = engine
    if cluster is not None:
        from dagengine.execution.cluster import Cluster, Workers
        from dagengine.execution.cluster_worker import job_of

        doors = Cluster(
            engine,
            job_of(metrics, app, app_in_flight, judge, base_url, kept, limits),
            Workers(cluster, workers),
        )
    for problem in engine.plan.warnings:
        typer.echo(f"warning: {problem}", err=True)
    tally = Tally(case=case)
    with RowWriter(results or out / "results.jsonl") as rows:
        engine.cases(cases)  # checks them
        done = _finish(doors, cases, rows, tally, kept)
    print_table(tally, done)
    typer.echo(f"results: {rows.path}")
    for metric, stem in zip(loaded, stems(loaded), strict=True):
        draw_views(metric, tally, out / stem)
    _exit_as(tally, assert_pass)


def _require_shareable(**options: object) -> None:
    """Raise for options that hold for one process and cannot be kept by many."""
    for name, value in options.items():
        if value is not None and value is not False:
            option = f"--{name.replace('_', '-')}"
            raise typer.BadParameter(
                f"{option} holds for one process; leave it out, or run without --cluster"
            )


def _judge(name: str | None, base_url: str | None, batch: bool, *, ask: bool) -> Any:
    """The run's judge; fails before the first case when nothing answers at its address."""
    from dagengine.execution.evaluation import sync
    from dagengine.loading import load_batch_judge, load_judge

    if batch:
        model: Any = load_batch_judge(name, base_url)
    else:
        model = load_judge(name, base_url) if name or base_url else None
    reachable = getattr(model, "require_reachable", None)
    if ask and reachable is not None:
        sync(reachable)
    return model


def _tracer() -> Any:
    """A tracer of whatever OpenTelemetry was set up with (`opentelemetry-instrument`)."""
    from dagengine.errors import MissingExtraError

    try:
        from opentelemetry import trace
    except ImportError:
        raise MissingExtraError(
            '--trace needs OpenTelemetry: pip install "dagengine[otel]"'
        ) from None
    return trace.get_tracer("dagengine")


def _finish(
    doors: Engine | Cluster, cases: Cases, rows: RowWriter, tally: Tally, store: Store | None
) -> Totals:
    """Run every case; an interrupt leaves what is finished, and says how to go on."""
    from dagengine.execution.evaluation import sync
    from dagengine.report.progress import progress_bar

    total = cases.count()

    async def all_cases() -> None:
        async with doors.open():
            await doors.run(cases, take)

    with progress_bar(total, True, lambda: doors.totals) as advance:

        def take(row: CaseResult) -> None:
            rows.add(row)
            tally.add(row)
            advance(row)

        try:
            sync(all_cases)
        except KeyboardInterrupt:
            typer.echo(_interrupted(rows, total, store), err=True)
            raise typer.Exit(EXIT_INTERRUPTED) from None
    return doors.totals


def _interrupted(rows: RowWriter, total: int | None, store: Store | None) -> str:
    """What is where after an interrupt, and how to go on; rows carry their index."""
    if not rows.count:
        what = f"interrupted before the first row; {rows.path} was not touched"
    else:
        what = f"interrupted: {rows.count} of {total} rows are in {rows.path}"
    if store is None:
        return f"{what}; with --store FILE the next run would not ask again what was answered"
    return f"{what}; run the same command to go on: what was answered is in {store.path}"


def _exit_as(tally: Tally, assert_pass: bool) -> None:
    """Leave with the exit code that a run calls for."""
    if tally.unscored:
        raise typer.Exit(EXIT_NO_SCORE)
    if assert_pass and not tally.success:
        raise typer.Exit(EXIT_FAILED)
