"""Scores of a run written to where its traces are; a journal in its folder says which are there."""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import anyio
from anyio.from_thread import BlockingPortal, start_blocking_portal

from dagengine.data.written_lines import JsonLines, complete_lines, line_of, value_of
from dagengine.errors import InputError, ProviderError
from dagengine.judges.wire.response_bodies import BodyReader
from dagengine.judges.wire.transport import BoundedClient
from dagengine.record.reader import Run, load_run
from dagengine.redaction import public_text
from dagengine.system.terminal_text import counted
from dagengine.traces.score_backends import Backend, ScoreRequest, backend_of
from dagengine.traces.span_scores import Score, scores_of

if TYPE_CHECKING:
    import httpx2

_TIMEOUT = 60.0  # seconds for a request and its whole answer
_LONGEST = 1 << 20  # bytes of an answer
_WAITS = (0.5, 2.0, 8.0)  # seconds before another attempt, if the server does not say
_LONGEST_WAIT = 60.0
_AT_ONCE = 2000  # scores that are in memory
_REFUSED = frozenset({401, 403})
SENT = "sent.jsonl"
# How a request stands, as the journal notes it.
BEGUN = "begun"  # it must not be made twice, and its end is not known
DONE = "sent"
FAILED = "failed"  # nothing of it is there
PARTLY = "partly"  # some of its scores were rejected, nobody knows which

Sleep = Callable[[float], None]


@dataclass(slots=True)
class Sent:
    """The scores of a run at one place, counted by what became of them.

    They were `written` now, or by an `earlier` call. Those without a span there yet (`absent`) and
    those that were not taken (`failed`) are sent again the next time. Two kinds are not, for a
    second write could be a second score. `uncertain` ones were in a request whose end nobody saw.
    Of a request that was `rejected` in part, the place does not say in which. For `unwritable` ones
    it has no form. `problems` counts scores by message.
    """

    to: str
    written: int = 0
    earlier: int = 0
    absent: int = 0
    failed: int = 0
    uncertain: int = 0
    rejected: int = 0
    unwritable: int = 0
    without_trace: int = 0
    problems: Counter[str] = field(default_factory=Counter[str])

    @property
    def complete(self) -> bool:
        """Return whether all scores are there that have a form there."""
        return not (self.absent or self.failed or self.uncertain or self.rejected)

    def __str__(self) -> str:
        counts = {
            "were there": self.earlier,
            "without their span there": self.absent,
            "not taken": self.failed,
            "uncertain (not sent twice)": self.uncertain,
            "rejected (which ones is not known, none is sent twice)": self.rejected,
            "without a form there": self.unwritable,
        }
        parts = [f"{counted(self.written, 'score')} written"]
        parts += [f"{count} {noun}" for noun, count in counts.items() if count]
        if self.without_trace:
            parts.append(counted(self.without_trace, "case") + " without a trace")
        return f"{self.to}: {', '.join(parts)}"


class SentJournal:
    """What was sent to one place, named `to`, by keys of scores; use it as a context manager.

    It has a line for every request after its end, and one before it if a second write would do
    harm. What is not in the file as sent is sent the next time: nothing is lost when a server or
    this process dies. `keys` are by state; of the scores `partly` written, `rejected` were not.
    """

    def __init__(self, folder: Path, to: str) -> None:
        self._path, self._to = folder / SENT, to
        self.keys: dict[str, set[str]] = {BEGUN: set(), DONE: set(), FAILED: set(), PARTLY: set()}
        self.rejected = 0
        for _, line in complete_lines(self._path, whole=True):
            entry: Any = None
            with suppress(ValueError):  # half a line, where a process was killed
                entry = value_of(line)
            if isinstance(entry, dict) and entry.get("to") == self._to:
                self._take(entry)

    def _take(self, entry: dict[str, Any]) -> None:
        keys, state = entry.get("keys") or (), str(entry.get("state"))
        self.keys[BEGUN].difference_update(keys)
        self.keys.get(state, set()).update(keys)
        if state == PARTLY:
            self.rejected += int(entry.get("rejected") or 0)

    def __enter__(self) -> Self:
        self._lines = JsonLines(self._path, emptied=False)
        return self

    def __exit__(self, *_: object) -> None:
        self._lines.close()

    def note(self, state: str, scores: Iterable[Score], **more: int) -> None:
        """Note how a request with these scores stands."""
        keys = [score.key for score in scores]
        if keys:
            entry = {"to": self._to, "state": state, "keys": keys, **more}
            # A request that must not be made twice begins when its note is on the disk.
            self._lines.write(entry, synced=state == BEGUN)
            self._take(entry)


@dataclass(frozen=True, slots=True)
class _Answer:
    """The end of a request: the status (0 without an answer) and a text.

    `arrived` is False only if it is certain that the place did nothing with the request.
    """

    text: str
    status: int = 0
    arrived: bool = True


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
    """Write the scores of a run that was read to a backend, as `send` does."""
    import httpx2

    to = f"{backend.name} {public_text(backend.url)}"
    tally = Sent(to)
    with (
        SentJournal(run.folder, to) as journal,
        start_blocking_portal() as portal,
        ExitStack() as stack,
    ):
        # As judges are asked: an answer is read up to a limit, and no redirect is followed.
        sender = httpx2.AsyncClient(headers=backend.headers, timeout=_TIMEOUT)
        client = BoundedClient(sender, BodyReader(_LONGEST))
        stack.callback(portal.call, client.aclose)
        courier = _Courier(backend, client, portal, journal, tally, sleep)
        scores = _unsent(run, backend, journal, tally)
        # Looked at before the first request: a run without traces is refused with nothing written.
        batch = list(islice(scores, _AT_ONCE))
        has_scores = batch or tally.earlier or tally.uncertain or tally.rejected
        if tally.without_trace and not has_scores:
            raise InputError(
                f"the cases of {run.folder} have no ids of traces: read them with --map otel, or "
                "map a column to additional_metadata.trace_id"
            )
        while batch:
            courier.carry(batch)
            batch = list(islice(scores, _AT_ONCE))
    return tally


def _unsent(run: Run, backend: Backend, journal: SentJournal, sent: Sent) -> Iterator[Score]:
    """The scores of a run that are not at the place yet."""
    metrics, rejected = {metric.name: metric for metric in run.manifest.metrics}, journal.rejected
    for row in run.rows():
        if row.trace is None:
            sent.without_trace += 1
        for score in scores_of(row, metrics):
            if score.key in journal.keys[DONE]:
                sent.earlier += 1
            elif score.key in journal.keys[PARTLY]:
                # Which ones were rejected is not known: the first are counted as such.
                sent.rejected += rejected > 0
                sent.earlier += rejected <= 0
                rejected -= 1
            elif score.key in journal.keys[BEGUN] and not backend.repeatable:
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
    client: BoundedClient
    portal: BlockingPortal
    journal: SentJournal
    sent: Sent
    sleep: Sleep
    stopped: bool = False

    def carry(self, scores: list[Score]) -> None:
        """Write scores; after the place has stopped taking any, only count them."""
        for request in self.backend.requests(scores):
            if self.stopped:
                self.sent.failed += len(request.scores)
            else:
                self._send(request)

    def _send(self, request: ScoreRequest) -> None:
        """Make a request, and note how many of its scores were written."""
        backend, sent, count = self.backend, self.sent, len(request.scores)
        answer = self._last_answer(request)
        if answer.status == 404 and request.otherwise is not None:
            self._send(request.otherwise)
            return
        rejected, text = count, answer.text[:300]
        if 200 <= answer.status < 300:
            rejection = backend.rejection(request, answer.text)
            self.stopped = rejection is None
            rejected, text = rejection or (count, f"is no answer of {backend.name}: {text!r}")
            # A text with a field of the place is a damaged answer of it: some scores may be there.
            has_field = any(name and name in answer.text for name in backend.answer_fields)
            answer = replace(answer, arrived=rejection is None and has_field)
        sent.written += count - rejected
        problem = public_text(f"{answer.status or ''} {text}".strip(), backend.secrets)
        if rejected:
            self._take_rejection(request, answer, problem, rejected)
            return
        self.journal.note(DONE, request.scores)
        if text:
            sent.problems[f"warning: {problem}"] += count

    def _take_rejection(
        self, request: ScoreRequest, answer: _Answer, problem: str, rejected: int
    ) -> None:
        """Note that scores were not taken; write those again that were refused for others."""
        backend, sent, status = self.backend, self.sent, answer.status
        sent.problems[problem] += rejected
        # Without an answer (0), redirected or in trouble, the place will take no others either.
        self.stopped |= status // 100 in (0, 3, 5) or status in backend.transient
        if not backend.repeatable:
            if rejected < len(request.scores):
                self.journal.note(PARTLY, request.scores, rejected=rejected)
                sent.rejected += rejected
                return
            if answer.arrived:
                sent.uncertain += rejected  # a second write could be a second score
                return
            self.journal.note(FAILED, request.scores)
        if status in _REFUSED:
            names = ", ".join(backend.key_variables)
            raise InputError(f"{sent.to} refuses the key ({problem}): set {names}")
        if status != 404:
            sent.failed += rejected
            return
        # A batch was refused because some of its spans are not there: the rest is written again.
        absent = backend.absent(request, answer.text)
        sent.absent += len(absent)
        keys = {score.key for score in absent}
        scores = [score for score in request.scores if score.key not in keys]
        sent.problems[problem] -= len(scores)
        self.carry(scores)

    def _last_answer(self, request: ScoreRequest) -> _Answer:
        """The last answer to a request, which is made again if that may help and does no harm."""
        import httpx2

        backend, waits = self.backend, iter(_WAITS)
        not_connected = (
            *(httpx2.ConnectError, httpx2.ConnectTimeout, httpx2.ProxyError, httpx2.InvalidURL),
            *(httpx2.UnsupportedProtocol, httpx2.LocalProtocolError),
        )
        while True:
            if not backend.repeatable:
                self.journal.note(BEGUN, request.scores)
            pause, may_help = 0.0, backend.repeatable
            try:
                response = self.portal.call(self._exchange, request)
            except not_connected as error:
                answer, may_help = _Answer(f"no connection: {error}", arrived=False), True
            except ProviderError:
                answer = _Answer(f"the answer is damaged, or longer than {_LONGEST:,} bytes")
                may_help = False
            except (httpx2.HTTPError, TimeoutError) as error:
                answer = _Answer(f"the server ended in between: {error!r:.200}")
            else:
                status = response.status_code
                may_help = status in backend.transient
                # Of other errors of a server nobody knows what came before them.
                arrived = not may_help and (status == 408 or status >= 500)
                answer = _Answer(response.text, status, arrived)
                if (target := response.headers.get("location")) and response.is_redirect:
                    hint = f"log in again, or write --to {backend.name}=ADDRESS"
                    answer = replace(answer, text=f"it redirects to {target}, not followed: {hint}")
                with suppress(ValueError):  # it asks for a date, or for nothing
                    pause = float(response.headers.get("retry-after", ""))
            wait = next(waits, None)
            if not may_help or wait is None:
                return answer
            if not backend.repeatable:
                self.journal.note(FAILED, request.scores)
            self.sleep(min(max(0.0, pause), _LONGEST_WAIT) or wait)

    async def _exchange(self, request: ScoreRequest) -> httpx2.Response:
        """Make one request; raises TimeoutError if its answer takes too long, slowly or not."""
        address, body = self.backend.url + request.path, line_of(request.body)
        headers = {"Content-Type": "application/json"}
        with anyio.fail_after(_TIMEOUT):
            return await self.client.request(request.method, address, content=body, headers=headers)
