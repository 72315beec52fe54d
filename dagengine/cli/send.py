"""`dagengine send`: the scores of a run to where its traces are."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from typer import Argument, Option

from dagengine.cli.common.files import Reads
from dagengine.cli.common.output import EXIT_FAILED, report, say

if TYPE_CHECKING:
    from dagengine.traces.score_backends import Backend
    from dagengine.traces.score_sending import Sent

Destinations = Annotated[
    list[str] | None,
    Option(
        "--to",
        metavar="KIND[=URL]",
        help="Write the scores to where the traces are: otlp, phoenix, langfuse, mlflow or opik, "
        "with an address if it is not the usual one. Keys come from the environment. Repeatable.",
    ),
]


def send(
    run: Annotated[Path, Argument(metavar="DIR", help="The folder of a run over traces."), Reads()],
    to: Destinations,
) -> None:
    """Write the scores of a run to the spans that it judged. Makes no judge calls.

    Each metric gives a score of the trace, each node that decided one of the span that it was
    about. What was written is noted in RUN/sent.jsonl: a second call sends what is missing or new.
    Keys are read from the environment (PHOENIX_API_KEY, LANGFUSE_PUBLIC_KEY and
    LANGFUSE_SECRET_KEY, MLFLOW_TRACKING_TOKEN, OPIK_API_KEY, OTEL_EXPORTER_OTLP_HEADERS).

    Exit codes: 0 all scores are there; 1 some are not, and are sent by the next call, or nobody
    knows whether they are (uncertain); 2 invalid input, or a key that is refused.
    """
    from dagengine.record.reader import load_run
    from dagengine.record.writer import sole_writer

    folder = load_run(run).folder
    with sole_writer(folder):
        complete = send_all(folder, to or ())
    if not complete:
        raise typer.Exit(EXIT_FAILED)


def backends_of(destinations: Sequence[str]) -> list[Backend]:
    """The backend of each destination; raises InputError for an unknown one or a missing key."""
    if not destinations:
        return []
    from dagengine.traces.score_backends import backend_of

    return [backend_of(to, os.environ) for to in destinations]


def send_all(folder: Path, destinations: Sequence[str]) -> bool:
    """Send the scores of a run to every destination; return whether all of them are there now."""
    from dagengine.record.reader import load_run
    from dagengine.traces.score_sending import send_run

    results: list[Sent] = []
    backends = backends_of(destinations)  # all of them are checked before anything is sent
    report(sent=results)  # a list that grows with each backend
    for backend in backends:
        sent = send_run(load_run(folder), backend)
        results.append(sent)
        say(str(sent))
        for problem, count in sent.problems.most_common(3):
            say(f"  {count} x {problem}", err=True)
        if sent.absent or sent.failed:
            say("  run `dagengine send` again for what is missing", err=True)
        if doubtful := sent.uncertain + sent.rejected:
            say(
                f"  {doubtful} may be there or not: look at {backend.name}; they are not sent "
                f"again, unless you remove {folder / 'sent.jsonl'}",
                err=True,
            )
    return all(sent.complete for sent in results)
