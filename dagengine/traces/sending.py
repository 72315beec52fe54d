"""The scores of a run written to where its traces are: `send`."""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

from dagengine.errors import InputError
from dagengine.record.run import Run, load_run
from dagengine.redaction import public_text
from dagengine.terminal import counted
from dagengine.traces.backends import Backend, Request, backend_of, without
from dagengine.traces.journal import Journal
from dagengine.traces.scores import Score, Scores

if TYPE_CHECKING:
    import httpx2

_TIMEOUT = 60.0  # seconds
_WAITS = (0.5, 2.0, 8.0)  # seconds before another attempt, if the server does not say
_LONGEST_WAIT = 60.0
_AT_ONCE = 2000  # scores that are held
_TRANSIENT = frozenset({408, 429, 500, 502, 503, 504})
_REFUSED = frozenset({401, 403})

Sleep = Callable[[float], None]


@dataclass(slots=True)
class Sent:
    """What became of the scores of a run at one place.

    `written` now, `earlier` by an earlier call, `absent` have no span there (yet), `failed` were
    not taken; those two are sent again the next time. `uncertain` were in a request whose end
    nobody saw, where a second write would be a second score: they are not sent again.
    `unwritable` are what the place has no form for. `problems` says why, by message.
    """

    to: str
    written: int = 0
    earlier: int = 0
    absent: int = 0
    failed: int = 0
    uncertain: int = 0
    unwritable: int = 0
    without_trace: int = 0
    problems: Counter[str] = field(default_factory=Counter[str])

    @property
    def complete(self) -> bool:
        """Whether nothing is left to send."""
        return not (self.absent or self.failed)

    def __str__(self) -> str:
        parts = [f"{counted(self.written, 'score')} written"]
        parts += [f"{self.earlier} were there"] if self.earlier else []
        more = {
            "without their span there": self.absent,
            "not taken": self.failed,
            "uncertain (not sent twice)": self.uncertain,
            "without a form there": self.unwritable,
        }
        parts += [f"{count} {what}" for what, count in more.items() if count]
        cases = counted(self.without_trace, "case") + " without a trace"
        return f"{self.to}: {', '.join([*parts, *([cases] if self.without_trace else [])])}"


class _StoppedError(Exception):
    """The place takes nothing now; what is left is sent the next time."""


def send(
    folder: str | Path,
    to: str,
    *,
    environment: Mapping[str, str] | None = None,
    sleep: Sleep = time.sleep,
) -> Sent:
    """Write the scores of a run to where its traces are.

    `to` is `otlp`, `phoenix`, `langfuse`, `mlflow` or `opik`, or one of these with an address
    (`phoenix=http://localhost:6006`). Every metric gives a score of the trace, and every node that
    decided one of the span that it was about. What was written is noted in the folder
    (`sent.jsonl`), so a second call sends only what is missing or new. Keys are taken from the
    environment, under the names of the tools.

    Raises InputError for a folder without a run, for an unknown place, for a run whose cases were
    not read from traces, and for a place that refuses the key.
    """
    run = load_run(folder)
    return send_run(run, backend_of(to, os.environ if environment is None else environment), sleep)


def send_run(run: Run, backend: Backend, sleep: Sleep = time.sleep) -> Sent:
    """The same, of a run that was read, to a place."""
    import httpx2

    to = f"{backend.name} {public_text(backend.url)}"
    sent = Sent(to)
    with (
        Journal(run.folder, to) as journal,
        httpx2.Client(headers=backend.headers, timeout=_TIMEOUT, follow_redirects=True) as client,
    ):
        courier = _Courier(backend, client, journal, sent, sleep)
        scores = _unsent(run, backend, journal, sent)
        # Looked at before the first request: a run without traces is refused with nothing written.
        first = list(islice(scores, _AT_ONCE))
        if not first and sent.without_trace and not (sent.earlier or sent.uncertain):
            raise InputError(
                f"the cases of {run.folder} have no ids of traces: read them with --map otel, or "
                "map a column to additional_metadata.trace_id"
            )
        batch = first
        while batch:
            courier.carry(batch)
            batch = list(islice(scores, _AT_ONCE))
    return sent


def _unsent(run: Run, backend: Backend, journal: Journal, sent: Sent) -> Iterator[Score]:
    """The scores of a run that are not at the place yet."""
    scores = Scores(run.manifest)
    for row in run.rows():
        if row.trace is None:
            sent.without_trace += 1
        for score in scores.of(row):
            if journal.was_sent(score):
                sent.earlier += 1
            elif journal.is_uncertain(score) and not backend.repeatable:
                sent.uncertain += 1
            elif why := backend.unwritable(score):
                sent.unwritable += 1
                sent.problems[why] += 1
            else:
                yield score


@dataclass(slots=True)
class _Courier:
    """Makes requests, one after the other, and notes what came of them."""

    backend: Backend
    client: httpx2.Client
    journal: Journal
    sent: Sent
    sleep: Sleep
    stopped: bool = False

    def carry(self, scores: list[Score]) -> None:
        """Write scores; after the place has stopped taking any, only count them."""
        for request in self.backend.requests(scores):
            if self.stopped:
                self.sent.failed += len(request.scores)
                continue
            try:
                self._make(request)
            except _StoppedError as stop:
                self.stopped = True
                self.sent.failed += len(request.scores)
                self.sent.problems[str(stop)] += 1

    def _make(self, request: Request) -> None:
        response = self._answer(request)
        status = response.status_code
        if response.is_success:
            self.journal.done(request.scores)
            self.sent.written += len(request.scores)
            return
        refusal = public_text(f"{status} {response.text[:300]}")
        if not self.backend.repeatable:
            self.journal.failed(request.scores)
        if status in _REFUSED:
            names = ", ".join(self.backend.keys)
            raise InputError(f"{self.sent.to} refuses the key ({refusal}): set {names}")
        if status == 404 and request.otherwise is not None:
            self._make(request.otherwise)
        elif status == 404:
            # Write the rest of a batch that was refused because some of its spans are not there
            absent = self.backend.absent(request, response.text)
            self.sent.absent += len(absent)
            self.sent.problems[refusal] += len(absent)
            rest = without(request.scores, absent)
            for again in self.backend.requests(rest) if rest else ():
                self._make(again)
        elif status in _TRANSIENT:
            raise _StoppedError(refusal)
        else:
            self.sent.failed += len(request.scores)
            self.sent.problems[refusal] += len(request.scores)

    def _answer(self, request: Request) -> httpx2.Response:
        """The last answer to a request, or _StoppedError if there is none."""
        import httpx2

        address = self.backend.url + request.path
        once = not self.backend.repeatable
        for wait in (*_WAITS, None):
            if once:
                self.journal.begin(request.scores)
            try:
                response = self.client.request(request.method, address, json=request.body)
            except (httpx2.ConnectError, httpx2.ConnectTimeout) as error:
                if once:
                    self.journal.failed(request.scores)  # nothing left this machine
                if wait is None:
                    raise _StoppedError(f"no connection: {error}") from None
                self.sleep(wait)
            except httpx2.HTTPError as error:
                if once:  # it may have been written
                    self.sent.uncertain += len(request.scores)
                    self.sent.failed -= len(request.scores)
                    raise _StoppedError(f"the server ended in between: {error!r:.200}") from None
                if wait is None:
                    raise _StoppedError(f"the server ended in between: {error!r:.200}") from None
                self.sleep(wait)
            else:
                if response.status_code not in _TRANSIENT or wait is None:
                    return response
                if once:
                    self.journal.failed(request.scores)
                pause = wait
                with suppress(ValueError):  # it asks for a date, or for nothing
                    asked = float(response.headers.get("retry-after", ""))
                    pause = min(max(0.0, asked), _LONGEST_WAIT)
                self.sleep(pause)
        raise AssertionError("the last attempt returns or raises")
