"""The server behind `dagengine view`: the page of each run, what changed between two, labels."""

from __future__ import annotations

import json
import math
import secrets
import sqlite3
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Annotated, Any, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import JSONResponse, RedirectResponse, Response
from starlette.routing import Mount, Route

from dagengine.errors import DagengineError, InputError
from dagengine.local_server import listening, server_of
from dagengine.prompts.json_values import shallow_value
from dagengine.record.labels import LABELS, LabelFile
from dagengine.record.writer import MANIFEST
from dagengine.reliability.card.values import JudgeCard
from dagengine.report.page.writing import ROWS
from dagengine.view.access import Access
from dagengine.view.labelling import At, Labelling, MovedError
from dagengine.view.large import IndexedRun, LargeRun
from dagengine.view.opened import OpenRun
from dagengine.view.queues import Queue
from dagengine.view.runs import Comparisons, history, walks

_Form = TypeVar("_Form", bound=BaseModel)
_DIGITS = 12  # of a whole number in an address
_LONGEST = 64_000  # bytes of what a page may send
_SEARCHED = 1000  # characters of a search
_WHOLE = 2**53  # whole numbers from here on a page cannot tell apart
# What code raises that meets what it does not expect. Requests are checked before: it is in files.
_BROKEN = (
    ArithmeticError, AttributeError, LookupError, OSError, RecursionError, TypeError, ValueError,
    sqlite3.Error,
)  # fmt: skip


def _silent(text: str) -> None:
    """Says nothing."""


@dataclass(frozen=True)
class Served:
    """What the server shows: runs, the newest last, and a card of their judge if there is one.

    `who` is the name under which labels are saved until the person gives another. A run of more
    than `rows` rows gets an index, and its page asks the index for what it shows. `announce` hears
    of it while it is made. `broken` are folders that cannot be read, each with the reason.
    """

    runs: Sequence[OpenRun]
    who: str
    card: JudgeCard | None = None
    rows: int = ROWS
    announce: Callable[[str], None] = _silent
    broken: Sequence[tuple[str, str]] = ()
    _indexed: dict[int, LargeRun] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def large(self, number: int) -> LargeRun | None:
        """A run as its index has it; None if it is small enough to send whole.

        The index is made when the run has grown so large.
        """
        run = self.runs[number]
        with self._lock:
            # Under the lock: two requests must not both make the index, which may take minutes.
            if number not in self._indexed and len(run) > self.rows:

                def tell(done: int) -> None:
                    self.announce(f"{run.name}: {done:,} rows indexed")

                self._indexed[number] = LargeRun(run.folder, tell)
            return self._indexed.get(number)

    def places(self, number: int, metric: str, kind: Queue) -> Sequence[int] | None:
        """Indices of the cases to label in a run (see `IndexedRun`); None if no index knows."""
        large = self.large(number)
        if large is None:
            return None
        with large.reading() as indexed:
            return indexed.places(metric, kind)

    def close(self) -> None:
        """Close all files."""
        for index in self._indexed.values():
            index.close()
        for run in self.runs:
            run.close()


class _Json(JSONResponse):
    """JSON whatever is in it: a NaN becomes null, and a lone surrogate its escape."""

    def render(self, content: Any) -> bytes:
        try:
            text = json.dumps(content, allow_nan=False, separators=(",", ":"))
        except ValueError:
            # Hardly any answer has a NaN: all of it is looked through only where one was met.
            text = json.dumps(_without_nan(content), allow_nan=False, separators=(",", ":"))
        return text.encode()


def _without_nan(value: Any) -> Any:
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {key: _without_nan(item) for key, item in value.items()}
    return [_without_nan(item) for item in value] if isinstance(value, list | tuple) else value


class _Places(BaseModel):
    """Rows of which a page without data wants the texts."""

    model_config = ConfigDict(extra="forbid")
    places: list[Annotated[int, Field(ge=0, lt=_WHOLE)]] = Field(max_length=1000)


class _Answer(BaseModel):
    """What a page sends to label: an answer, or (without a choice) what to take back."""

    model_config = ConfigDict(extra="forbid")
    who: str = Field(min_length=1, max_length=100)
    metric: str = Field(max_length=1000)
    place: int = Field(ge=0, lt=_WHOLE)
    node: str | None = Field(default=None, max_length=1000)
    choice: int | None = Field(default=None, ge=0, lt=_WHOLE)
    note: str | None = Field(default=None, max_length=10_000)


def application(served: Served, token: str, hosts: Sequence[str]) -> Access:
    """The whole server; it answers only requests with the token, to one of `hosts`."""
    pages = _Pages(served)
    routes = [
        Route("/", pages.start),
        Route("/api/runs", pages.runs),
        Route("/api/changes", pages.changes),
        Route("/api/walks", pages.walks),
        Route("/run/{run}/", pages.page),
        Route("/run/{run}/api/status", pages.status),
        Route("/run/{run}/api/prompts", pages.prompts),
        Route("/run/{run}/api/column", pages.column),
        Route("/run/{run}/api/search", pages.search),
        Route("/run/{run}/api/texts", pages.texts, methods=["POST"]),
        Route("/run/{run}/api/fields", pages.fields, methods=["POST"]),
        Route("/run/{run}/api/label/queue", pages.queue),
        Route("/run/{run}/api/label/position", pages.position),
        Route("/run/{run}/api/label/answer", pages.answer, methods=["POST"]),
        Route("/run/{run}/api/label/undo", pages.undo, methods=["POST"]),
    ]
    app = Starlette(
        routes=[Mount(f"/{token}", routes=routes)],
        exception_handlers=dict.fromkeys((DagengineError, MovedError, *_BROKEN), _refusal),
    )
    return Access(app, token, hosts)


async def _refusal(request: Request, error: Exception) -> Response:
    if isinstance(error, MovedError):
        return _Json({"error": "this question was already answered in another tab"}, 409)
    if isinstance(error, DagengineError):
        return _Json({"error": str(error)}, 400)
    # A stranger's folder may hold anything, and a page that cannot show it must say why.
    message = f"the folder of the run holds what cannot be shown ({type(error).__name__}: {error})"
    return _Json({"error": f"{message:.500}; make the run again, or restore a copy"}, 400)


class _Pages:
    """What every address answers."""

    def __init__(self, served: Served) -> None:
        self._served = served
        self._comparisons = Comparisons(served.card)
        self._labels = [
            Labelling(run, LabelFile(run.folder / LABELS), known=partial(served.places, number))
            for number, run in enumerate(served.runs)
        ]

    async def start(self, request: Request) -> Response:
        # Several runs begin with their list.
        several = len(self._served.runs) + len(self._served.broken) > 1
        return RedirectResponse(f"run/{len(self._served.runs) - 1}/{'#v=runs' * several}")

    async def runs(self, request: Request) -> Response:
        runs = await run_in_threadpool(history, self._served.runs)
        broken = [{"name": name, "why": why} for name, why in self._served.broken]
        return _Json({"runs": runs, "broken": broken})

    async def page(self, request: Request) -> Response:
        number = self._number(_whole(request.path_params, "run"))
        run = self._served.runs[number]
        await run_in_threadpool(run.refresh)
        large = await run_in_threadpool(self._served.large, number)
        head = {"run": number, "who": self._served.who}
        if large is None:
            page = await run_in_threadpool(run.page, head)
        else:
            await run_in_threadpool(large.refresh)
            page = await self._read(request, lambda indexed: indexed.page(head))
        return Response(page.encode(errors="replace"), media_type="text/html")

    async def column(self, request: Request) -> Response:
        name, part = request.query_params.get("name", ""), _whole(request.query_params, "part")
        data = await self._read(request, lambda large: large.chunk(name, part))
        return Response(data, media_type="application/octet-stream")

    async def search(self, request: Request) -> Response:
        text = request.query_params.get("text", "")
        if len(text) > _SEARCHED:
            raise InputError(f"a search has at most {_SEARCHED:,} characters, not {len(text):,}")
        data = await self._read(request, lambda large: large.search(text))
        return Response(data, media_type="application/octet-stream")

    async def texts(self, request: Request) -> Response:
        numbers = (await _read_form(request, _Places)).places
        return _Json(await self._read(request, lambda large: large.texts(numbers)))

    async def fields(self, request: Request) -> Response:
        numbers = (await _read_form(request, _Places)).places
        return _Json(await self._read(request, lambda large: large.fields(numbers)))

    async def _read(self, request: Request, read: Callable[[IndexedRun], Any]) -> Any:
        """Read what a page without data asks for."""
        number = self._number(_whole(request.path_params, "run"))
        large = await run_in_threadpool(self._served.large, number)
        if large is None:
            raise InputError(f"the page of run {number} holds its data itself")

        def locked() -> Any:
            with large.reading() as indexed:
                return read(indexed)

        return await run_in_threadpool(locked)

    async def status(self, request: Request) -> Response:
        number = self._number(_whole(request.path_params, "run"))
        run, large = self._served.runs[number], await run_in_threadpool(self._served.large, number)
        await run_in_threadpool(run.refresh if large is None else large.refresh)
        rows, state = (len(run), run) if large is None else (large.rows, large)
        return _Json({"rows": rows, "finished": state.finished})

    async def prompts(self, request: Request) -> Response:
        run = self._served.runs[self._number(_whole(request.path_params, "run"))]
        index = _whole(request.query_params, "index")
        return _Json(await run_in_threadpool(run.prompts, index))

    async def changes(self, request: Request) -> Response:
        old, new = self._both(request.query_params)
        return _Json(await run_in_threadpool(self._comparisons.changes, old, new))

    async def walks(self, request: Request) -> Response:
        query = request.query_params
        indices = (_whole(query, "old_index"), _whole(query, "new_index"))
        old, new = self._both(query)
        both = await run_in_threadpool(walks, old, new, query.get("metric", ""), indices)
        return _Json(both)

    async def queue(self, request: Request) -> Response:
        labels, query = self._labelling(request), request.query_params
        kind, metric = query.get("kind", ""), query.get("metric", "")
        count, seed = _whole(query, "count"), query.get("seed", "")
        numbers = await run_in_threadpool(labels.queue, metric, kind, count, seed)
        return _Json({"places": numbers})

    async def position(self, request: Request) -> Response:
        labels, query = self._labelling(request), request.query_params
        at = At(query.get("who", ""), query.get("metric", ""), _whole(query, "place"))
        return _Json(await run_in_threadpool(labels.position, at))

    async def answer(self, request: Request) -> Response:
        labels, sent = self._labelling(request), await _read_form(request, _Answer)
        if sent.node is None or sent.choice is None:
            raise InputError("an answer needs `node` and `choice`")
        at = At(sent.who, sent.metric, sent.place)
        position = await run_in_threadpool(labels.answer, at, sent.node, sent.choice, sent.note)
        return _Json(position)

    async def undo(self, request: Request) -> Response:
        labels, sent = self._labelling(request), await _read_form(request, _Answer)
        at = At(sent.who, sent.metric, sent.place)
        return _Json(await run_in_threadpool(labels.undo, at, sent.node))

    # Which run.

    def _number(self, number: int) -> int:
        if not 0 <= number < len(self._served.runs):
            raise InputError(f"there is no run {number}: {len(self._served.runs)} are open")
        return number

    def _both(self, given: Mapping[str, str]) -> tuple[OpenRun, OpenRun]:
        """The old and the new run of a comparison."""
        old, new = (self._number(_whole(given, name)) for name in ("old", "new"))
        return self._served.runs[old], self._served.runs[new]

    def _labelling(self, request: Request) -> Labelling:
        return self._labels[self._number(_whole(request.path_params, "run"))]


def _whole(given: Mapping[str, str], name: str) -> int:
    """A whole number of the address; raises InputError for anything else."""
    text = given.get(name, "")
    # `isdecimal` alone takes the digits of all scripts.
    if not text.isdecimal() or not text.isascii() or len(text) > _DIGITS:
        raise InputError(f"`{name}` is a whole number, not {text!r:.40}")
    return int(text)


async def _read_form(request: Request, form: type[_Form]) -> _Form:
    """The body of a request; raises InputError for what is not one of ours."""
    body = b""
    async for part in request.stream():
        body += part
        # Counted while it comes: the length that a request states may be wrong.
        if len(body) > _LONGEST:
            raise InputError(f"a request has at most {_LONGEST:,} bytes")
    try:
        return form.model_validate(shallow_value(body))
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        where = ".".join(str(step) for step in first["loc"])
        raise InputError(f"{where}: {first['msg']}") from None
    except ValueError as error:
        raise InputError(f"the request is not JSON: {error}") from None


def serve(served: Served, port: int, ready: Callable[[str], None]) -> None:
    """Serve until an interrupt; `ready` is given the address when it can be opened.

    Listens on 127.0.0.1 only; port 0 is any free one. Raises InputError when the port is taken.
    """
    token = secrets.token_urlsafe(24)
    with listening(port) as (listener, hosts):
        app = application(served, token, hosts)
        ready(f"http://{hosts[0]}/{token}/")
        server_of(app).run(sockets=[listener])


def open_runs(
    folders: Sequence[Path],
    who: str,
    card: JudgeCard | None = None,
    *,
    rows: int = ROWS,
    announce: Callable[[str], None] | None = None,
) -> Served:
    """The runs of some folders, the oldest first; raises InputError for a folder without one.

    A folder may hold the folders of runs: those that cannot be read are named in the list of runs.
    Runs of more than `rows` rows get an index, which `announce` tells of while it is made.
    """
    with ExitStack() as failed:
        runs, broken = list[OpenRun](), list[tuple[str, str]]()
        for folder in folders:
            inside: list[Path] = []
            if not (folder / MANIFEST).exists() and folder.is_dir():
                inside = sorted(path.parent for path in folder.glob(f"*/{MANIFEST}"))
            for path in inside or [folder]:
                try:
                    runs.append(failed.enter_context(OpenRun(path)))
                except DagengineError as error:
                    if not inside:
                        raise
                    broken.append((path.name, str(error)))
        if not runs:
            raise InputError(f"no run in {folders[0]} can be read: {broken[0][1]}")
        runs.sort(key=lambda run: run.manifest.started)
        served = Served(runs, who, card, rows, announce or _silent, broken)
        failed.callback(served.close)
        for number in range(len(runs)):
            served.large(number)
        failed.pop_all()
    return served
