"""`dagengine watch`: traces judged as they come."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer import Argument, Option

from dagengine.cli.common import options as shared
from dagengine.cli.common.files import Reads, within
from dagengine.cli.common.judge_access import Access, any_accepted, collector_at_work
from dagengine.cli.common.output import EXIT_FAILED, EXIT_INTERRUPTED, report, say
from dagengine.cli.send import Destinations, backends_of, send_all
from dagengine.errors import InputError, load_extra

if TYPE_CHECKING:
    from dagengine.execution.local_executor import Settings
    from dagengine.limits import Limits
    from dagengine.watch import Watch, WatchSettings
    from dagengine.watch.growing import DailyAccount

# One more than the failures in a row after which a judge counts as away (its circuit opens). With
# fewer attempts a case that is asked alone would fail before that, and have its row.
_ATTEMPTS = 6
_REMEMBERED = 10_000  # answers in memory, which must not grow with the stream


@dataclass(frozen=True, kw_only=True)
class WatchOptions(shared.StoreOptions, shared.JudgeOptions, shared.MetricOptions):
    """The options of one watch, as they were typed."""

    source: Annotated[Path | None, Argument(metavar="FOLDER"), Reads()] = None
    """A folder of OTLP files (.jsonl, .json) that grow and rotate. Or use --listen."""
    listen: Annotated[int | None, Option(min=0, max=65535, metavar="PORT")] = None
    """Receive OTLP/HTTP at 127.0.0.1:PORT (/v1/traces, /v1/logs) into OUT/received; 0 takes any
    free port.
    """
    out: Annotated[
        Path,
        within(
            *("run.json", "results.jsonl", "cases.jsonl", "times.jsonl", "summary.json"),
            *("report.html", "alerts.jsonl", "again.jsonl", "spent.json"),
            opened=True,
        ),
    ] = Path("out")
    """Output folder of the watch; one that is there is continued."""
    texts: Annotated[bool, Option("--texts/--no-texts")] = True
    """Keep the texts of the cases. Without them no old question can be asked again."""
    sample: Annotated[list[str] | None, Option(metavar="[STRATUM=]RATE")] = None
    """The share of traces that is judged, or that of a stratum: errors=1. Repeatable. Default: 1.
    """
    strata: Annotated[str | None, Option(metavar="FILE.py:FUNCTION"), Reads()] = None
    """A function of a case that gives the name of its stratum. Default: errors (a span failed) and
    others.
    """
    quiet: Annotated[float, Option(min=0)] = 10.0
    """A trace is ready when its root has ended and nothing came for this number of seconds."""
    poll: Annotated[float, Option(min=0.01)] = 1.0
    """Seconds between two looks at the files."""
    baseline: Annotated[list[str] | None, Option(metavar="CASES|METRIC=MEAN")] = None
    """The first cases that later ones are compared with, or a mean that is known. Repeatable.
    Default: 1000.
    """
    groups: Annotated[str | None, Option(metavar="FIELD|hour|day")] = None
    """Cases with an equal value here (a sender, a conversation) are alike: alarms count their mean
    as one. `hour` and `day` are those of the trace.
    """
    again: Annotated[float, Option(min=0, max=1)] = 0.05
    """Old questions that are asked again for every new case: if their answers change, the judge
    has changed. 0: none.
    """
    max_calls_per_day: Annotated[int | None, Option(min=0)] = None
    """Judge calls per day (UTC). Later cases are unasked, with a row."""
    budget_per_day: Annotated[float | None, Option(min=0)] = None
    """US dollars per day (UTC). Later cases are unasked, with a row."""
    to: Destinations = None
    until_idle: Annotated[bool, Option("--until-idle")] = False
    """End when nothing comes and nothing is left to do."""
    seconds: Annotated[float | None, Option("--for", min=0)] = None
    """End after this number of seconds."""

    def require_valid(self) -> None:
        """Raise before anything is asked if options do not fit together."""
        if (self.source is None) == (self.listen is None):
            raise typer.BadParameter(
                "name a folder of traces, or a port with --listen: one of them"
            )
        numbers = (self.quiet, self.poll, self.again, self.seconds or 0)
        if not all(map(math.isfinite, numbers)):
            raise typer.BadParameter("--quiet, --poll, --again and --for take plain numbers")
        backends_of(self.to or ())


def watch(options: WatchOptions) -> None:
    """Judge traces as they come, and raise an alarm when scores leave their baseline.

    Reads a folder of OTLP files, or listens on a port. Rows are added to one folder, as `run`
    writes it. After a kill the same command goes on: what has a row is not judged again. An alarm
    names its cause as far as it can be known: the app, the traffic, or the judge. It is printed
    and added to OUT/alerts.jsonl.

    Exit codes: 0 no alarm; 1 an alarm; 2 invalid input, or a judge that accepts no call; 130
    interrupted.
    """
    from dagengine.loading import load_function
    from dagengine.record.writer import sole_writer
    from dagengine.watch import Sampling, WatchSettings

    options.require_valid()
    cases, means = _parse_baseline(options.baseline or ())
    stratify: Any = options.strata and load_function(options.strata, "stratum")
    samples = list(options.sample or ())
    how = WatchSettings(
        Sampling.parse(samples, stratify), baseline=cases, rates=means, quiet=options.quiet,
        poll=options.poll, again=options.again, seconds=options.seconds,
        until_idle=options.until_idle, groups=options.groups,
    )  # fmt: skip
    limits = options.limits(
        max_calls=options.max_calls_per_day,
        budget=options.budget_per_day,
        remembered=_REMEMBERED,
        attempts=_ATTEMPTS,
    )
    settings = {  # as they are shown with the run
        "metrics": options.metrics, "judge": options.judge, "base_url": options.base_url,
        "watch": str(options.source) if options.listen is None else f"port {options.listen}",
        "sample": samples, "strata": options.strata, "again": options.again,
        "groups": options.groups,
    }  # fmt: skip
    with sole_writer(options.out), ExitStack() as stack:
        folder = options.source
        if folder is None:  # what comes is written into a folder, which is then watched
            listening = load_extra("dagengine.watch.otlp_receiver", "--listen needs", "view")
            server = listening.receive(options.out / "received", options.listen or 0)
            address, folder = stack.enter_context(server)
            say(f"listening at {address} (/v1/traces, /v1/logs)")
        watching = _make_watch(options, folder, how, limits)
        _run(watching, options.out, settings, options.texts)
    if not (watching.read or watching.counts):  # no new spans, no rows of before
        raise InputError(
            f"{folder} has no traces: watch reads OTLP in .jsonl and .json files, as the file "
            "exporter of a Collector writes them"
        )
    if options.to:
        send_all(options.out, options.to)
    if watching.alerts:
        raise typer.Exit(EXIT_FAILED)


def _parse_baseline(texts: Iterable[str]) -> tuple[int, dict[str, float]]:
    """The number of cases of the baseline, and means that are known, by metric."""
    from dagengine.watch.alarms import BASELINE, LEAST

    cases, means = BASELINE, dict[str, float]()
    for text in texts:
        metric, equals, number = text.rpartition("=")
        with suppress(ValueError):  # no number: the error below says what is expected
            if equals and 0 < float(number) < 1:
                means[metric] = float(number)
                continue
            if not equals and int(number) >= LEAST:
                cases = int(number)
                continue
        raise typer.BadParameter(
            f"--baseline {text!r}: a number of cases (at least {LEAST}), or METRIC=MEAN with a "
            "mean inside of 0 and 1"
        )
    return cases, means


def _make_watch(options: WatchOptions, folder: Path, how: WatchSettings, limits: Limits) -> Watch:
    """Make the watch of a folder; what limits of a day count is kept over restarts."""
    from dagengine.loading import load_metrics
    from dagengine.watch import Folder, Watch
    from dagengine.watch.growing import DailyAccount

    settings: Settings = {"model": options.chosen_judge(), "limits": limits, "store": options.store}
    account: DailyAccount | None = None
    if limits.max_calls is not None or limits.budget is not None:
        account = DailyAccount(options.out)
    send: Callable[[], object] | None = None
    if options.to:
        send = partial(send_all, options.out, options.to)
    access = Access(lambda: any_accepted(watching.engine.totals))  # which is made next, with it
    watching = Watch(
        load_metrics(options.metrics), settings, Folder(folder), how, account,
        say=say, check=access.check, send=send,
    )  # fmt: skip
    return watching


def _run(watching: Watch, out: Path, settings: dict[str, Any], texts: bool) -> None:
    """Watch until the end or an interrupt, then print what came of it, and write the page."""
    from dagengine.evaluation import RecordTo, write_page_or_warn
    from dagengine.execution.interrupts import sync
    from dagengine.record.run_json_types import DataRecord
    from dagengine.watch.growing import GrowingRun

    engine = watching.engine
    recording = RecordTo(out, settings, texts, command=shared.command_line())
    manifest = recording.manifest(engine, DataRecord())
    record = GrowingRun(out, manifest, lambda: (engine.totals, engine.spent))
    collector_at_work()
    interrupted = False
    try:
        sync(lambda: watching.run(record, remembers=texts))
    except KeyboardInterrupt:
        interrupted = True
    report(out=out, alerts=watching.alerts, lines=watching.lines())
    for line in watching.lines():
        say(line)
    write_page_or_warn(out)
    if interrupted:
        say("interrupted; the same command goes on", err=True)
        raise typer.Exit(EXIT_INTERRUPTED)
