"""What `dagengine run` can be told."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dagengine.cli.common.files import Given, Reads, Writes
from dagengine.cli.common.options import (
    BaseUrl,
    Data,
    Delimiters,
    JudgeName,
    Mapped,
    MaxCalls,
    MaxInFlight,
    Metrics,
    MoneyLimit,
    PriceOf,
    StorePath,
    prices,
)

if TYPE_CHECKING:
    from dagengine.data.shard import Shard
    from dagengine.gateway.limits import Limits

# What one batch of the provider may hold.
_BATCH = 50_000


def _files_in(out: Path, given: Given) -> Iterable[Path]:
    """What a run writes into its folder: pictures are named after metrics not known yet."""
    if given.get("results") is None:
        yield out / "results.jsonl"
        yield out / "results.jsonl.early"
    if given.get("batch") and given.get("store") is None:
        yield out / "results-batches"
    for name in ("run.json", "cases.jsonl", "times.jsonl", "summary.json", "report.html"):
        yield out / name
    for view in ("tree", "path", "counts"):
        yield from out.glob(f"*-{view}.svg")
        yield from out.glob(f"*-{view}.mmd")


@dataclass(frozen=True, kw_only=True)
class RunOptions:
    """The options of one run, as they were typed."""

    metrics: Metrics
    data: Data
    out: Annotated[
        Path, typer.Option(help="Folder for the record and the pictures."), Writes(_files_in)
    ] = Path("out")
    results: Annotated[
        Path | None,
        typer.Option(help="File for the rows, .jsonl or .parquet; by default OUT/results.jsonl."),
        Writes(),
    ] = None
    texts: Annotated[
        bool,
        typer.Option("--texts/--no-texts", help="Keep the cases' texts in OUT/cases.jsonl."),
    ] = True
    page: Annotated[
        bool,
        typer.Option("--page/--no-page", help="Write the page of the run, OUT/report.html."),
    ] = True
    redact: Annotated[
        list[str] | None,
        typer.Option(
            metavar="FIELD",
            help="Hide this field of the cases in everything that is written, also where it is "
            "quoted (additional_metadata.email for a key of an object). Repeatable.",
        ),
    ] = None
    mapped: Mapped = None
    delimiter: Delimiters = None
    app: Annotated[
        str | None,
        typer.Option(
            metavar="APP.py[:FUNCTION]",
            help="Read the data as goldens and have this function make the outputs.",
        ),
        Reads(),
    ] = None
    app_in_flight: Annotated[
        int, typer.Option(min=1, help="Calls to the app under way at the same time.")
    ] = 16
    judge: JudgeName = None
    base_url: BaseUrl = None
    batch: Annotated[
        bool,
        typer.Option(
            "--batch",
            help="Ask OpenAI or Anthropic in batches: half the price, within a day.",
        ),
    ] = False
    max_in_flight: MaxInFlight = 64
    requests_per_minute: Annotated[
        float | None, typer.Option(help="Judge calls per minute; no limit by default.")
    ] = None
    tokens_per_minute: Annotated[
        float | None, typer.Option(help="Tokens per minute; no limit by default.")
    ] = None
    call_timeout: Annotated[float, typer.Option(help="Seconds for one judge call.")] = 120.0
    case_timeout: Annotated[
        float | None, typer.Option(help="Seconds for one case; none by default.")
    ] = None
    max_calls: MaxCalls = None
    budget: MoneyLimit = None
    price: PriceOf = None
    case: Annotated[
        int | None,
        typer.Option(help="Index of the case whose path is drawn; by default the longest path."),
    ] = None
    fail_if: Annotated[
        list[str] | None,
        typer.Option(
            metavar="MEASURE>X",
            help="Exit with 1 when a figure is beyond this: Faithfulness.mean<0.8, pass-rate<0.9, "
            "p95.cost>0.02. Repeatable.",
        ),
    ] = None
    junit: Annotated[
        Path | None,
        typer.Option(help="Also write the results as JUnit XML, for a build server."),
        Writes(),
    ] = None
    assert_pass: Annotated[
        bool, typer.Option("--assert", help="Exit with 1 when a case is below its threshold.")
    ] = False
    store: StorePath = None
    replay: Annotated[
        bool, typer.Option("--replay", help="Take every answer from --store and call no judge.")
    ] = False
    trace: Annotated[
        bool, typer.Option("--trace", help="Make OpenTelemetry spans of cases, nodes and calls.")
    ] = False
    shard: Annotated[
        str | None,
        typer.Option(
            metavar="I/N",
            help="Judge every N-th case, from the I-th on (1/4, 2/4, …); `merge` joins the parts.",
        ),
    ] = None
    processes: Annotated[
        int | None,
        typer.Option(min=1, help="Judge in so many processes of this machine."),
    ] = None
    cluster: Annotated[
        str | None,
        typer.Option(
            metavar="local|ADDRESS",
            help="Run on the workers of a Dask scheduler; `local` starts processes here.",
        ),
    ] = None
    workers: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="With --cluster: processes to start (by default one per processor), or workers "
            "of the scheduler to wait for.",
        ),
    ] = None

    def settings(self) -> dict[str, Any]:
        """What the record says of the run beside its data and its limits."""
        names = (
            "metrics", "app", "judge", "base_url", "batch", "replay",
            "shard", "processes", "cluster", "workers",
        )  # fmt: skip
        return {name: getattr(self, name) for name in names}

    @property
    def journal(self) -> Path | None:
        """Where batches under way are written down, for the same command after a kill."""
        if not self.batch:
            return None
        beside = self.out / "results" if self.store is None else self.store
        return beside.with_name(f"{beside.name}-batches")

    @property
    def address(self) -> str | None:
        """Where other processes judge; None when this one does."""
        return "local" if self.processes is not None else self.cluster

    def part(self) -> Shard:
        """The part of the data set that is judged; raises InputError where there is no such one."""
        from dagengine.data.shard import Shard

        return Shard() if self.shard is None else Shard.parse(self.shard)

    def limits(self) -> Limits:
        """The limits of the whole run; raises InputError for values that make no sense."""
        from dagengine.gateway.limits import Limits

        return Limits(
            max_in_flight=_BATCH if self.batch else self.max_in_flight,
            requests_per_minute=self.requests_per_minute,
            tokens_per_minute=self.tokens_per_minute,
            call_timeout=self.call_timeout,
            case_timeout=self.case_timeout,
            max_calls=self.max_calls,
            budget=self.budget,
            prices=prices(self.price),
        )
