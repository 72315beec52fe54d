"""A fast stand-in for an OpenAI-compatible server, in a process of its own, for benchmarks.

    python benchmarks/server.py --latency 0.05 --port 0

prints `READY http://127.0.0.1:PORT/v1` and serves until its standard input closes. Every call
takes the given latency and gets the same valid answer for the same schema. `GET /v1/stats` tells
how many calls there were, and how many of them at once at most.
"""

import argparse
import asyncio
import functools
import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from aiohttp import web

Json = dict[str, Any]


@contextmanager
def running(latency: float) -> Iterator[str]:
    """Run the server in another process; gives its base URL."""
    command = [sys.executable, __file__, "--latency", str(latency), "--port", "0"]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True) as process:
        assert process.stdout is not None
        try:
            word, _, url = process.stdout.readline().strip().partition(" ")
            if word != "READY":
                raise RuntimeError(f"the benchmark server ended with status {process.wait()}")
            yield url
        finally:
            process.terminate()


class Answers:
    """Answers every call after the same latency, and counts them."""

    def __init__(self, latency: float) -> None:
        self._latency = latency
        self._calls = 0
        self._in_flight = 0
        self._in_flight_max = 0

    async def __call__(self, request: web.BaseRequest) -> web.Response:
        """Handle one request; there is no router, which would cost more than the answer."""
        if request.path == "/v1/chat/completions":
            return await self._chat(request)
        if request.path == "/v1/stats":
            return web.json_response({"calls": self._calls, "in_flight_max": self._in_flight_max})
        if request.path == "/v1/models":
            return web.json_response({"object": "list", "data": [{"id": "benchmark"}]})
        return web.json_response({"error": {"message": "no such page"}}, status=404)

    async def _chat(self, request: web.BaseRequest) -> web.Response:
        self._calls += 1
        self._in_flight += 1
        self._in_flight_max = max(self._in_flight_max, self._in_flight)
        try:
            body = json.loads(await request.read())
            await asyncio.sleep(self._latency)
            return web.Response(body=_answer(body), content_type="application/json")
        finally:
            self._in_flight -= 1


def _answer(body: Json) -> bytes:
    if "response_format" in body:
        schema = body["response_format"].get("json_schema", {}).get("schema")
        return _completion(json.dumps(schema), None)
    if body.get("tools"):
        function = body["tools"][0]["function"]
        return _completion(json.dumps(function["parameters"]), function["name"])
    return _completion("null", None)


@functools.lru_cache(maxsize=10_000)
def _completion(schema_text: str, tool: str | None) -> bytes:
    """The whole answer for a schema, which is `null` where plain text is wanted."""
    schema = json.loads(schema_text)
    text = "because" if schema is None else json.dumps(_instance(schema, schema))
    message: Json = {"role": "assistant", "content": text}
    if tool is not None:
        function = {"name": tool, "arguments": text}
        call = {"id": "call_0", "type": "function", "function": function}
        message = {"role": "assistant", "content": None, "tool_calls": [call]}
    choice = {"index": 0, "message": message, "finish_reason": "stop", "logprobs": None}
    usage = {"prompt_tokens": 100, "completion_tokens": 10, "total_tokens": 110}
    about = {"id": "chatcmpl-0", "object": "chat.completion", "created": 0, "model": "benchmark"}
    return json.dumps({**about, "choices": [choice], "usage": usage}).encode()


def _instance(schema: Json, root: Json) -> Any:
    """The first thing the schema allows."""
    if "$ref" in schema:
        target: Any = root
        for step in schema["$ref"].split("/")[1:]:
            target = target[step]
        return _instance(target, root)
    if "const" in schema:
        return schema["const"]
    if "enum" in schema:
        return schema["enum"][0]
    branches = schema.get("anyOf") or schema.get("allOf")
    return _instance(branches[0], root) if branches else _instance_of_type(schema, root)


def _instance_of_type(schema: Json, root: Json) -> Any:
    kind = schema.get("type")
    if kind == "string":
        return "because".ljust(schema.get("minLength", 0), "!")[: schema.get("maxLength")]
    if kind == "array":
        return [_instance(schema["items"], root)] * schema.get("minItems", 0)
    if kind in ("integer", "number"):
        return schema.get("minimum", schema.get("exclusiveMinimum", -1) + 1)
    if kind in ("boolean", "null"):
        return True if kind == "boolean" else None
    return {name: _instance(part, root) for name, part in schema.get("properties", {}).items()}


async def serve(latency: float, port: int) -> None:
    """Serve until standard input closes, which it does when the parent ends in whatever way."""
    server = web.Server(Answers(latency), access_log=None)
    runner = web.ServerRunner(server, shutdown_timeout=0.05)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", port, backlog=4096).start()
    print(f"READY http://127.0.0.1:{runner.addresses[0][1]}/v1", flush=True)
    try:
        await _input_closed()
    finally:
        await runner.cleanup()


async def _input_closed() -> None:
    loop = asyncio.get_running_loop()
    closed = asyncio.Event()

    def watch() -> None:
        # Not sys.stdin.read: its lock would still be held if the process ended some other way.
        while os.read(0, 4096):
            pass
        loop.call_soon_threadsafe(closed.set)

    threading.Thread(target=watch, daemon=True).start()
    await closed.wait()


def main() -> None:
    """Read the command line and serve."""
    parser = argparse.ArgumentParser(description="A fast stand-in for an OpenAI-compatible server.")
    parser.add_argument("--latency", type=float, default=0.05, help="seconds each call takes")
    parser.add_argument("--port", type=int, default=0, help="0 takes any free port")
    options = parser.parse_args()
    asyncio.run(serve(options.latency, options.port))


if __name__ == "__main__":
    main()
