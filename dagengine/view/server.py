"""The server behind `dagengine view`: the page of each run, what changed between two, labels."""

from __future__ import annotations

import json
import secrets
import sqlite3
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.datastructures import Headers
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, RedirectResponse, Response
from starlette.routing import Mount, Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from dagengine.data.written_lines import finite
from dagengine.errors import DagengineError, InputError, first_flaw
from dagengine.prompts.json_in_text import shallow_value
from dagengine.record.writer import MANIFEST
from dagengine.reliability.card.types import JudgeCard
from dagengine.report.page.run_page import ROWS
from dagengine.system.local_server import listening, server_of
from dagengine.view.compared_runs import Comparisons, OpenRun, history, walks
from dagengine.view.label_queues import Queue
from dagengine.view.labelling import NUMBER, At, Labelling, MovedError
from dagengine.view.large_runs import IndexedRun, LargeRun

_LONGEST = 64_000  # bytes of what a page may send
_SEARCHED = 1000  # characters of a search
_WHOLE = 2**53  # whole numbers from here on a page cannot tell apart
# What code raises that meets what it does not expect. Requests are checked before: it is in files.
_BROKEN = (
    ArithmeticError, AttributeError, LookupError, OSError, RecursionError, TypeError, ValueError,
    sqlite3.Error,
)  # fmt: skip
HEADERS = {
    "Content-Security-Policy": "frame-ancestors 'none'",  # the page brings the rest itself
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}


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
            text = json.dumps(finite(content), allow_nan=False, separators=(",", ":"))
        return text.encode()


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
        Route("/", _endpoint(pages.start)),
        Route("/api/runs", _endpoint(pages.runs)),
        Route("/api/changes", _endpoint(pages.changes)),
        Route("/api/walks", _endpoint(pages.walks)),
        Route("/run/{run}/", _endpoint(pages.page)),
        Route("/run/{run}/api/status", _endpoint(pages.status)),
        Route("/run/{run}/api/prompts", _endpoint(pages.prompts)),
        Route("/run/{run}/api/column", _endpoint(pages.column)),
        Route("/run/{run}/api/search", _endpoint(pages.search)),
        Route("/run/{run}/api/texts", _endpoint(pages.texts, _Places), methods=["POST"]),
        Route("/run/{run}/api/fields", _endpoint(pages.fields, _Places), methods=["POST"]),
        Route("/run/{run}/api/label/queue", _endpoint(pages.queue)),
        Route("/run/{run}/api/label/position", _endpoint(pages.position)),
        Route("/run/{run}/api/label/answer", _endpoint(pages.answer, _Answer), methods=["POST"]),
        Route("/run/{run}/api/label/undo", _endpoint(pages.undo, _Answer), methods=["POST"]),
    ]
    app = Starlette(
        routes=[Mount(f"/{token}", routes=routes)],
        exception_handlers=dict.fromkeys((DagengineError, MovedError, *_BROKEN), _refusal),
    )
    return Access(app, token, hosts)


def _endpoint(answer: Callable[..., Any], form: type[BaseModel] | None = None) -> Any:
    """Hand out what `answer` returns for a request, and for its `form` if it has one.

    It runs in a thread, since it reads files. Bytes and responses stay what they are, all else is
    JSON.
    """

    async def endpoint(request: Request) -> Response:
        forms = [] if form is None else [await _read_form(request, form)]
        reply = await run_in_threadpool(answer, request, *forms)
        if isinstance(reply, bytes):
            return Response(reply, media_type="application/octet-stream")
        return reply if isinstance(reply, Response) else _Json(reply)

    return endpoint


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
            Labelling(run, known=partial(served.places, number))
            for number, run in enumerate(served.runs)
        ]

    def start(self, _: Request) -> Response:
        # Several runs begin with their list.
        several = len(self._served.runs) + len(self._served.broken) > 1
        return RedirectResponse(f"run/{len(self._served.runs) - 1}/{'#v=runs' * several}")

    def runs(self, _: Request) -> dict[str, Any]:
        broken = [{"name": name, "why": why} for name, why in self._served.broken]
        return {"runs": history(self._served.runs), "broken": broken}

    def page(self, request: Request) -> Response:
        number = self._number(request.path_params)
        run = self._served.runs[number]
        run.refresh()
        large = self._served.large(number)
        shown = run if large is None else large  # an index of no rows is false
        page = shown.page({"run": number, "who": self._served.who})
        return Response(page.encode(errors="replace"), media_type="text/html")

    def column(self, request: Request) -> bytes:
        query = request.query_params
        with self._indexed(request) as indexed:
            return indexed.chunk(query.get("name", ""), _whole(query, "part"))

    def search(self, request: Request) -> bytes:
        text = request.query_params.get("text", "")
        if len(text) > _SEARCHED:
            raise InputError(f"a search has at most {_SEARCHED:,} characters, not {len(text):,}")
        with self._indexed(request) as indexed:
            return indexed.search(text)

    def texts(self, request: Request, form: _Places) -> list[Any]:
        with self._indexed(request) as indexed:
            return indexed.texts(form.places)

    def fields(self, request: Request, form: _Places) -> list[Any]:
        with self._indexed(request) as indexed:
            return indexed.fields(form.places)

    def _indexed(self, request: Request) -> AbstractContextManager[IndexedRun]:
        """The run of a page without data, to read what it asks for."""
        number = self._number(request.path_params)
        large = self._served.large(number)
        if large is None:
            raise InputError(f"the page of run {number} holds its data itself")
        return large.reading()

    def status(self, request: Request) -> dict[str, Any]:
        number = self._number(request.path_params)
        run = self._served.large(number) or self._served.runs[number]
        run.refresh()
        return {"rows": len(run), "finished": run.finished}

    def prompts(self, request: Request) -> Any:
        run = self._served.runs[self._number(request.path_params)]
        return run.prompts(_whole(request.query_params, "index"))

    def changes(self, request: Request) -> dict[str, Any]:
        return self._comparisons.changes(*self._both(request.query_params))

    def walks(self, request: Request) -> list[dict[str, Any]]:
        query = request.query_params
        indices = (_whole(query, "old_index"), _whole(query, "new_index"))
        return walks(*self._both(query), query.get("metric", ""), indices)

    def queue(self, request: Request) -> dict[str, Any]:
        labels, query = self._labelling(request), request.query_params
        kind, metric = query.get("kind", ""), query.get("metric", "")
        places = labels.queue(metric, kind, _whole(query, "count"), query.get("seed", ""))
        return {"places": places}

    def position(self, request: Request) -> dict[str, Any]:
        query = request.query_params
        at = At(query.get("who", ""), query.get("metric", ""), _whole(query, "place"))
        return self._labelling(request).position(at)

    def answer(self, request: Request, form: _Answer) -> dict[str, Any]:
        labels, at = self._labelling(request), At(form.who, form.metric, form.place)
        if form.node is None or form.choice is None:
            raise InputError("an answer needs `node` and `choice`")
        return labels.answer(at, form.node, form.choice, form.note)

    def undo(self, request: Request, form: _Answer) -> dict[str, Any]:
        at = At(form.who, form.metric, form.place)
        return self._labelling(request).undo(at, form.node)

    # Which run.

    def _number(self, numbers: Mapping[str, str], name: str = "run") -> int:
        number = _whole(numbers, name)
        if not 0 <= number < len(self._served.runs):
            raise InputError(f"there is no run {number}: {len(self._served.runs)} are open")
        return number

    def _both(self, query: Mapping[str, str]) -> tuple[OpenRun, OpenRun]:
        """The old and the new run of a comparison."""
        old, new = self._number(query, "old"), self._number(query, "new")
        return self._served.runs[old], self._served.runs[new]

    def _labelling(self, request: Request) -> Labelling:
        return self._labels[self._number(request.path_params)]


def _whole(given: Mapping[str, str], name: str) -> int:
    """A whole number of the address; raises InputError for anything else."""
    text = given.get(name, "")
    if not NUMBER.fullmatch(text):
        raise InputError(f"`{name}` is a whole number, not {text!r:.40}")
    return int(text)


async def _read_form(request: Request, form: type[BaseModel]) -> BaseModel:
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
        raise InputError(first_flaw(error)) from None
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
    announce: Callable[[str], None] = _silent,
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
        served = Served(runs, who, card, rows, announce, broken)
        failed.callback(served.close)
        for number in range(len(runs)):
            served.large(number)
        failed.pop_all()
    return served


class Access:
    """Refuses every request without the token, or from elsewhere; adds headers to the others.

    A page of another site must not read a run, or write a label, through the browser of somebody
    who looks at one. So the address contains a token that no other page knows. The host must be
    this one: another name that leads here is an attack by DNS. A request that says where it comes
    from must come from here.
    """

    def __init__(self, app: ASGIApp, token: str, hosts: Iterable[str]) -> None:
        """`hosts` are the names, with the port, by which the server may be called."""
        self._app = app
        self._prefix = f"/{token}/"
        self._hosts = frozenset(hosts)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        refusal = self._refusal(scope)
        if refusal is not None:
            response = PlainTextResponse(refusal, 403, headers=HEADERS)
            await response(scope, receive, send)
            return

        async def guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                added = [(name.lower().encode(), value.encode()) for name, value in HEADERS.items()]
                message["headers"] = [*message.get("headers", ()), *added]
            await send(message)

        await self._app(scope, receive, guarded)

    def _refusal(self, scope: Scope) -> str | None:
        """Why a request is refused; None when it is not."""
        if scope["type"] != "http":
            return "only HTTP is spoken here"
        headers = Headers(scope=scope)
        if headers.get("host") not in self._hosts:
            return "this server answers to 127.0.0.1 only"
        origin = headers.get("origin")
        if origin is not None and origin not in {f"http://{host}" for host in self._hosts}:
            return "requests from other sites are rejected"
        # Whoever leads the browser itself here knows the token: `--open` does, by a file.
        led = scope["method"] == "GET" and headers.get("sec-fetch-mode") == "navigate"
        led = led and headers.get("sec-fetch-dest") == "document"
        if not led and headers.get("sec-fetch-site", "none") not in ("none", "same-origin"):
            return "requests from other sites are rejected"
        if scope["method"] not in ("GET", "HEAD") and origin is None:
            return "a request that writes needs an Origin header"
        # Compared in equal time: a refusal must not tell how much of a token was right.
        prefix = scope["path"][: len(self._prefix)].encode()
        if not secrets.compare_digest(prefix, self._prefix.encode()):
            return "open the address that `dagengine view` printed: it contains a token"
        return None
