"""A real HTTP server that takes scores as Phoenix, Langfuse, MLflow, Opik or an OTLP receiver do.

It keeps one score per key, as these do, and does for a while what servers do when they fail:

    with ScoreServer(spans={"a1"}, failures=[429, 500]) as server:
        send(folder, f"phoenix={server.url}", sleep=waits.append)
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterable
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self

DROP = -1
"""Take the request, and close the connection without an answer."""
DROP_UNREAD = -2
"""Close the connection before the request was handled."""


class ScoreServer:
    """Keeps scores by their keys in `kept`, and every request in `requests`.

    `spans` are the ids of spans that are there (None: any). `failures` are answered to the first
    requests, one each: a status, `DROP` or `DROP_UNREAD`. `says` are whole answers to the first
    requests, of which nothing is kept: status, body (None: one that never ends) and headers.
    """

    def __init__(self, spans: Iterable[str] | None = None, failures: Iterable[int] = ()) -> None:
        self.spans = None if spans is None else set(spans)
        self.failures = list(failures)
        self.says: list[tuple[int, str | bytes | None, dict[str, str]]] = []
        self.kept: dict[Any, Any] = {}
        self.records: list[Any] = []
        self.requests: list[tuple[str, str, Any]] = []
        self.headers: list[dict[str, str]] = []
        owner = self

        class Handler(BaseHTTPRequestHandler):
            def handle_any(self) -> None:
                body = self.rfile.read(int(self.headers.get("content-length", 0)))
                owner.headers.append({key.lower(): value for key, value in self.headers.items()})
                if owner.says:
                    with suppress(OSError):
                        self.say(*owner.says.pop(0))
                    return
                status = owner.failures.pop(0) if owner.failures else 0
                if status == DROP_UNREAD:
                    self.close_connection = True
                    return
                answer = (status, "busy") if status > 0 else owner.take(self, json.loads(body))
                if status == DROP:
                    self.close_connection = True
                    return
                text = answer[1].encode()
                self.send_response(answer[0])
                self.send_header("content-length", str(len(text)))
                if status == 429:
                    self.send_header("retry-after", "7")
                self.end_headers()
                with suppress(OSError):
                    self.wfile.write(text)

            def say(self, status: int, body: str | bytes | None, headers: dict[str, str]) -> None:
                self.send_response(status)
                for name, value in headers.items():
                    self.send_header(name, value)
                self.end_headers()
                while body is None:
                    self.wfile.write(b" ")
                    time.sleep(0.05)
                self.wfile.write(body.encode() if isinstance(body, str) else body)

            do_POST = do_PUT = do_PATCH = handle_any

            def log_message(self, format: str, *_: Any) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"

    def __enter__(self) -> Self:
        threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()

    def take(self, request: BaseHTTPRequestHandler, body: Any) -> tuple[int, str]:
        """Keep what a request has; the status and the text of the answer."""
        path, method = request.path, request.command
        self.requests.append((method, path, body))
        if path == "/v1/logs":
            self.records += body["resourceLogs"][0]["scopeLogs"][0]["logRecords"]
            return 200, "{}"
        if "_annotations" in path:
            return self._phoenix(body["data"])
        if path == "/api/public/scores":
            if self._unknown(body.get("observationId")):
                return 404, "no such observation"
            self.kept[body["id"]] = body
            return 200, json.dumps({"id": body["id"]})
        if path.endswith("/feedback-scores"):
            for score in body["scores"]:
                self.kept[score["id"], score["name"]] = score
            return 204, ""
        return self._mlflow(method, body["assessment"])

    def _phoenix(self, data: list[dict[str, Any]]) -> tuple[int, str]:
        unknown = [item["span_id"] for item in data if self._unknown(item.get("span_id"))]
        if unknown:  # nothing of the batch is written
            return 404, f"Spans with IDs {', '.join(sorted(set(unknown)))} do not exist."
        for item in data:
            place = next(item[name] for name in item if name.endswith("_id"))
            self.kept[place, item["name"], item["identifier"]] = item
        return 200, json.dumps({"data": [{"id": item["name"]} for item in data]})

    def _mlflow(self, method: str, assessment: dict[str, Any]) -> tuple[int, str]:
        key = assessment["assessment_id"]
        if method == "PATCH" and key not in self.kept:
            return 404, "no such assessment"
        if method == "POST" and key in self.kept:
            return 500, "constraint violation"
        self.kept[key] = {**self.kept.get(key, {}), **assessment}
        return 200, json.dumps({"assessment": self.kept[key]})

    def _unknown(self, span: str | None) -> bool:
        return self.spans is not None and span is not None and span not in self.spans
