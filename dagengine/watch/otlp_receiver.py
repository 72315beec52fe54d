"""OTLP over HTTP at 127.0.0.1: what comes is appended to files, which are read as any folder is.

A request is answered once its records are in a file. So what was accepted survives a kill, and a
restart finds it. Only this machine can connect, and the host must be called so: another name that
leads here is an attack by DNS. A page in a browser cannot post JSON here without asking first.
"""

from __future__ import annotations

import gzip
import io
import threading
import zlib
from collections import deque
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any

import anyio
from starlette.applications import Starlette
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from dagengine.data.written_lines import JsonLines, line_of, value_of
from dagengine.system.local_server import listening, server_of
from dagengine.traces.formats import is_otlp, otlp_records

_PROTOBUF, _JSON = "application/x-protobuf", "application/json"
_LONGEST = 64 << 20  # bytes of a request
_ROOM = 128 << 20  # bytes of all requests in progress together
_PATIENCE = 60.0  # seconds for which a request may be in progress
_FILE = 64 << 20  # bytes of a file
_KINDS = {
    "traces": ("trace", "ExportTraceService", "rejectedSpans"),
    "logs": ("logs", "ExportLogsService", "rejectedLogRecords"),
}


class _RefusedError(Exception):
    """A request that is not taken: a status, and why."""

    def __init__(self, status: int, why: str) -> None:
        super().__init__(why)
        self.status = status


class _Files:
    """Lines in numbered files of a folder, each of a bounded size."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._folder, self._size = folder, 0
        self._number = max((int(file.stem) for file in folder.glob("[0-9]*.jsonl")), default=0)
        self._lines: JsonLines | None = None
        self._lock = threading.Lock()

    def append(self, value: Mapping[str, Any]) -> None:
        """Write a line; it is in the file when this returns."""
        line = line_of(value)
        with self._lock:
            if self._lines is None or self._size > _FILE:
                # A file of its own for every process: nothing follows half a line of a kill.
                self._number += 1
                self.close()
                self._lines = JsonLines(self._folder / f"{self._number:06}.jsonl")
                self._size = 0
            self._lines.write_line(line)
            self._size += len(line)

    def close(self) -> None:
        """Close the file."""
        if self._lines is not None:
            self._lines.close()


def _application(files: _Files, hosts: frozenset[str]) -> Starlette:
    room = _ROOM

    async def take(request: Request) -> Response:
        nonlocal room
        kind = request.path_params["kind"]
        body = bytearray()
        try:
            if request.headers.get("host", "") not in hosts:
                raise _RefusedError(403, "this address is for programs on this machine")
            media = request.headers.get("content-type", "").partition(";")[0].strip().lower()
            with anyio.fail_after(_PATIENCE):
                async for part in request.stream():
                    if len(body) + len(part) > _LONGEST:
                        raise _RefusedError(413, f"a request has at most {_LONGEST >> 20} MB")
                    if len(part) > room:
                        raise _RefusedError(503, "other requests are in progress: send it again")
                    body += part
                    room -= len(part)
            value = _value(kind, media, _unpack(body, request))
            damaged: list[Exception] = []
            deque(otlp_records(value, damaged.append), maxlen=0)
            files.append(value)
        except _RefusedError as refusal:
            headers = {"Retry-After": "1"} if refusal.status == 503 else None
            return JSONResponse({"message": str(refusal)}, refusal.status, headers)
        except TimeoutError:
            return JSONResponse({"message": f"it took more than {_PATIENCE:g} s"}, 408)
        except ClientDisconnect:
            return Response()
        finally:
            room += len(body)
        answer: dict[str, Any] = {}
        if damaged:
            counted = {_KINDS[kind][2]: len(damaged), "errorMessage": f"{damaged[0]!s:.200}"}
            answer = {"partialSuccess": counted}
        if media == _JSON:
            return JSONResponse(answer)
        message, form = _protobuf(kind, "Response")
        return Response(form.ParseDict(answer, message).SerializeToString(), media_type=media)

    routes = [Route("/v1/{kind:str}", take, methods=["POST"])]
    return Starlette(routes=routes)


def _unpack(body: bytearray, request: Request) -> bytes | bytearray:
    encoding = request.headers.get("content-encoding", "identity").lower()
    if encoding == "identity":
        return body
    if encoding != "gzip":
        raise _RefusedError(415, f"the encoding {encoding} is not known here: use gzip or none")
    try:
        data = gzip.GzipFile(fileobj=io.BytesIO(body)).read(_LONGEST + 1)
    except (OSError, EOFError, zlib.error) as error:
        raise _RefusedError(400, f"not gzip: {error}") from None
    if len(data) > _LONGEST:
        raise _RefusedError(413, f"a request has at most {_LONGEST >> 20} MB")
    return data


def _value(kind: str, media: str, body: bytes | bytearray) -> Mapping[str, Any]:
    """The export in a request, as OTLP's JSON."""
    if kind not in _KINDS:
        raise _RefusedError(404, f"/v1/{kind} is not taken here: only /v1/traces and /v1/logs")
    if media == _JSON:
        try:
            value = value_of(bytes(body))
        except ValueError as error:
            raise _RefusedError(400, f"not JSON: {error!s:.200}") from None
        if value == {} or not is_otlp(value):
            raise _RefusedError(400, "neither resourceSpans nor resourceLogs")
        return dict(value)
    if media != _PROTOBUF:
        wrong = f"the content type is {_JSON} or {_PROTOBUF}, not {media or 'empty'}"
        raise _RefusedError(415, wrong)
    message, form = _protobuf(kind, "Request")
    try:
        message.ParseFromString(bytes(body))
    except Exception as error:  # noqa: BLE001 - its own class of error is in an optional package
        raise _RefusedError(400, f"not a protobuf message of OTLP: {error!s:.200}") from None
    return dict(form.MessageToDict(message))


def _protobuf(kind: str, side: str) -> tuple[Any, Any]:
    """An empty message of a service, and the module that makes JSON of it."""
    module, name, _ = _KINDS[kind]
    try:
        package = f"opentelemetry.proto.collector.{module}.v1.{module}_service_pb2"
        message = getattr(import_module(package), f"{name}{side}")()
        return message, import_module("google.protobuf.json_format")
    except ModuleNotFoundError:
        raise _RefusedError(
            415,
            "protobuf needs the package opentelemetry-proto beside dagengine; or send JSON: "
            "OTEL_EXPORTER_OTLP_PROTOCOL=http/json",
        ) from None


@contextmanager
def receive(folder: Path, port: int) -> Iterator[tuple[str, Path]]:
    """Listen in a thread; gives the address, and the folder that fills with files.

    Port 0 is any free one. Raises InputError when the port is taken.
    """
    files = _Files(folder)
    with listening(port) as (listener, hosts):
        server = server_of(_application(files, frozenset(hosts)))
        thread = threading.Thread(target=server.run, args=([listener],), daemon=True)
        thread.start()
        try:
            yield f"http://{hosts[0]}", folder
        finally:
            server.should_exit = True
            thread.join()
            files.close()
