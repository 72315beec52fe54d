"""The options of `dagengine run`."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from typer import Option

from dagengine.cli.common import options as shared
from dagengine.cli.common.files import Given, Reads, Writes
from dagengine.cli.common.streams import say

if TYPE_CHECKING:
    from dagengine.data.shard import Shard
    from dagengine.execution.local_executor import LocalExecutor
    from dagengine.gateway.limits import Limits
    from dagengine.question import Judge

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
class RunOptions(shared.CaseOptions, shared.QuoteOptions, shared.LimitOptions):
    """The options of one run, as they were typed.

    They also build the engine of a run by loading files, in this process or in a worker of a
    cluster. Workers need the same files under the same paths (see `absolute`).
    """

    out: Annotated[Path, Option(help="Output folder of the run."), Writes(_files_in)] = Path("out")
    results: Annotated[
        Path | None,
        Option(help="File for the rows, .jsonl or .parquet. Default: OUT/results.jsonl."),
        Writes(),
    ] = None
    card: Annotated[
        Path | None,
        Option(
            metavar="card.json",
            help="The judge card of a benchmark of these metrics and this judge: the summary says "
            "what it found.",
        ),
        Reads(),
    ] = None
    texts: Annotated[
        bool, Option("--texts/--no-texts", help="Keep the texts of the cases in OUT/cases.jsonl.")
    ] = True
    page: Annotated[
        bool, Option("--page/--no-page", help="Write the page of the run, OUT/report.html.")
    ] = True
    redact: Annotated[
        list[str] | None,
        Option(
            metavar="FIELD",
            help="Hide this field of the cases in all output, also where other texts quote it. A "
            "key of an object: additional_metadata.email. Repeatable.",
        ),
    ] = None
    app: Annotated[
        str | None,
        Option(
            metavar="APP.py[:FUNCTION]",
            help="Read the data as goldens and call this function to produce the actual outputs.",
        ),
        Reads(),
    ] = None
    app_in_flight: Annotated[
        int, Option(min=1, help="Maximum number of concurrent calls of --app.")
    ] = 16
    batch: Annotated[
        bool,
        Option(
            "--batch",
            help="Use the batch API of OpenAI or Anthropic: half the price, results within a day.",
        ),
    ] = False
    batch_files: Annotated[
        Path | None,
        Option(
            "--batch-files",
            metavar="DIR",
            help="Write questions to files, and wait until an offline engine (vllm run-batch) has "
            "written the answers; --judge is the name of its model.",
        ),
    ] = None
    requests_per_minute: Annotated[
        float | None, Option(help="Rate limit: judge calls per minute. Default: no limit.")
    ] = None
    tokens_per_minute: Annotated[
        float | None, Option(help="Rate limit: tokens per minute. Default: no limit.")
    ] = None
    call_timeout: Annotated[
        float | None,
        Option(
            help="Timeout of one judge call, in seconds. Default: what `judge check` saved, else "
            "120."
        ),
    ] = None
    case_timeout: Annotated[
        float | None, Option(help="Timeout of one case, in seconds. Default: none.")
    ] = None
    case: Annotated[
        int | None,
        Option(
            help="Draw the path of the case with this index. Default: the case with the "
            "longest path."
        ),
    ] = None
    fail_if: Annotated[
        list[str] | None,
        Option(
            metavar="MEASURE>X",
            help="Exit with 1 if this condition holds: Faithfulness.mean<0.8, pass-rate<0.9, "
            "p95.cost>0.02. Repeatable.",
        ),
    ] = None
    junit: Annotated[
        Path | None, Option(help="Also write the results as JUnit XML, for a CI server."), Writes()
    ] = None
    assert_pass: Annotated[
        bool, Option("--assert", help="Exit with 1 if a case is below the threshold of a metric.")
    ] = False
    replay: shared.Replayed = False
    trace: Annotated[
        bool, Option("--trace", help="Send OpenTelemetry spans for cases, nodes and calls.")
    ] = False
    to: shared.Destinations = None
    shard: Annotated[
        str | None,
        Option(
            metavar="I/N",
            help="Judge only every N-th case, starting with the I-th (1/4, 2/4, …). `merge` "
            "combines the shards.",
        ),
    ] = None
    processes: Annotated[int | None, Option(min=1, help="Number of processes on this machine.")] = (
        None
    )
    cluster: Annotated[
        str | None,
        Option(
            metavar="local|ADDRESS",
            help="Run on the workers of a Dask scheduler; `local` starts workers on this machine.",
        ),
    ] = None
    workers: Annotated[
        int | None,
        Option(
            min=1,
            help="With --cluster local: the number of processes (default: one per processor). "
            "With an address: wait for this number of workers.",
        ),
    ] = None

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
        from dagengine.data.shard import Shard

        return Shard() if self.shard is None else Shard.parse(self.shard)

    def limits(self, **settings: Any) -> Limits:
        """The limits of the whole run; raises InputError for invalid values."""
        from dagengine.judges.default import tuning_of

        names = ("requests_per_minute", "tokens_per_minute", "case_timeout")
        own = {name: getattr(self, name) for name in names}
        if self.batch_files or self.batch:
            own["max_in_flight"] = _BATCH if self.batch else _FILE
        timeout = self.call_timeout
        if timeout is None:
            timeout = tuning_of(self.judge, self.base_url).call_timeout or _CALL_TIMEOUT
        return super().limits(**own, call_timeout=timeout, **settings)

    def __call__(self, limits: Limits, app_in_flight: int) -> LocalExecutor:
        """The engine of one process; raises InputError, GraphError and MissingExtraError."""
        from dagengine.errors import load_extra
        from dagengine.execution.local_executor import LocalExecutor
        from dagengine.loading import load_app, load_metrics
        from dagengine.store.answers import Store

        store = None if self.store is None else Store(self.store, replay=self.replay)
        metrics = load_metrics(self.metrics, self.quoting())
        app = None if self.app is None else load_app(self.app, app_in_flight)
        tracer: Any = None
        if self.trace:
            # The provider is what the caller set up (`opentelemetry-instrument`), not ours.
            trace = load_extra("opentelemetry.trace", "--trace needs", "otel")
            tracer = trace.get_tracer("dagengine")
        model: Any = self.chosen_judge()
        return LocalExecutor(
            metrics, {"app": app, "model": model, "limits": limits, "store": store,
                      "tracer": tracer},
        )  # fmt: skip

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
