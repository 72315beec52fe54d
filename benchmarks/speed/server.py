"""A fast stand-in for an OpenAI-compatible server, in a process of its own, for benchmarks.

    python benchmarks/speed/server.py --latency 0.05 --port 0

prints `READY http://127.0.0.1:PORT/v1` and serves until its standard input closes. Every call
takes the given latency and gets a valid answer (see `answers`). On request it behaves badly:
`--help` lists how. `GET /v1/stats` tells how many calls there were, how many of them at once at
most, what became of them, and the processor seconds that the server has used so far;
`GET /v1/answered` how many answers each prompt got, by its digest.
"""

from __future__ import annotations

import argparse
import asyncio
import hashlib
import json
import os
import random
import subprocess
import sys
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

from aiohttp import web
from answers import completion, decisions, embeddings

MINUTE = 60.0


def _option(default: float, what: str) -> Any:
    return field(default=default, metadata={"help": what})


@dataclass(frozen=True, kw_only=True)
class Settings:
    """How the server behaves; shares lie in 0..1, times are seconds."""

    latency: float = _option(0.05, "seconds each call takes")
    spread: float = _option(0.0, "share of the latency by which a call takes longer or shorter")
    port: int = _option(0, "0 takes any free port")
    per_minute: int = _option(0, "calls answered in any minute; more get a 429 (0: no limit)")
    capacity: int = _option(0, "calls in flight beyond which a call gets a 429 (0: no limit)")
    too_many: float = _option(0.0, "share of calls that get a 429")
    retry_after: float = _option(0.1, "seconds that a 429 asks to wait for")
    broken: float = _option(0.0, "share of calls that get a 500")
    dropped: float = _option(0.0, "share of calls whose connection is closed without an answer")
    malformed: float = _option(0.0, "share of calls whose answer is cut in half")
    hanging: float = _option(0.0, "share of calls that are never answered")
    dies_at: int = _option(0, "call at which the server goes away, once (0: never)")
    away: float = _option(1.0, "seconds until it comes back")


@contextmanager
def running(settings: Settings, script: Path = Path(__file__)) -> Iterator[str]:
    """Run the server in another process; gives its base URL. `script` may be that of a checkout."""
    options = [f"--{name.replace('_', '-')}={value}" for name, value in asdict(settings).items()]
    command, pipe = [sys.executable, str(script), *options], subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True) as process:
        assert process.stdout is not None
        try:
            word, _, url = process.stdout.readline().strip().partition(" ")
            if word != "READY":
                raise RuntimeError(f"the benchmark server ended with status {process.wait()}")
            yield url
        finally:
            process.terminate()


class Window:
    """At most `count` calls in any minute (0: no limit)."""

    def __init__(self, count: int) -> None:
        self._count = count
        self._times: deque[float] = deque()

    def wait(self, now: float) -> float:
        """Seconds until there is room for another call; 0 takes the room that there is."""
        if not self._count:
            return 0.0
        while self._times and now - self._times[0] >= MINUTE:
            self._times.popleft()
        if len(self._times) >= self._count:
            return MINUTE - (now - self._times[0])
        self._times.append(now)
        return 0.0


class Faults:
    """Which call goes wrong, and how: the same calls in every run."""

    NAMES = ("too_many", "broken", "dropped", "malformed", "hanging")

    def __init__(self, settings: Settings) -> None:
        self._shares = [getattr(settings, name) for name in self.NAMES]
        self._random = random.Random(0)

    def next(self) -> str:
        """What happens to the next call; `answered` if nothing does."""
        draw = self._random.random()
        for name, share in zip(self.NAMES, self._shares, strict=True):
            if draw < share:
                return name
            draw -= share
        return "answered"


def digest(messages: Any) -> str:
    """What tells the prompts of questions apart."""
    return hashlib.sha256(json.dumps(messages).encode()).hexdigest()


class Service:
    """Answers every call after the same latency, or with a fault, and counts them."""

    def __init__(self, settings: Settings) -> None:
        self.dying = asyncio.Event()
        self._settings = settings
        self._window = Window(settings.per_minute)
        self._faults = Faults(settings)
        self._random = random.Random(1)
        self._outcomes: Counter[str] = Counter()
        self._answered: Counter[str] = Counter()
        self._calls = self._embeddings = 0
        self._in_flight = self._in_flight_max = 0

    async def __call__(self, request: web.BaseRequest) -> web.Response:
        """Handle one request; there is no router, which would cost more than the answer."""
        if request.path == "/v1/chat/completions":
            return await self._chat(request)
        if request.path == "/v1/embeddings":
            return await self._embed(request)
        if request.path == "/v1/decisions":
            return await self._decide(request)
        if request.path == "/v1/stats":
            return web.json_response(self.stats())
        if request.path == "/v1/answered":
            return web.json_response(self._answered)
        if request.path == "/v1/models":
            return web.json_response({"object": "list", "data": [{"id": "benchmark"}]})
        return _error(404, "no such page")

    def stats(self) -> dict[str, Any]:
        """Counts so far."""
        return {
            "calls": self._calls,
            "embeddings": self._embeddings,
            "in_flight_max": self._in_flight_max,
            "outcomes": dict(self._outcomes),
            "cpu": time.process_time(),
        }

    async def _decide(self, request: web.BaseRequest) -> web.Response:
        self._calls += 1
        body = json.loads(await request.read())
        await asyncio.sleep(self._latency())
        return web.Response(body=decisions(body), content_type="application/json")

    async def _embed(self, request: web.BaseRequest) -> web.Response:
        self._embeddings += 1
        body = json.loads(await request.read())
        await asyncio.sleep(self._latency())
        return web.Response(body=embeddings(body), content_type="application/json")

    async def _chat(self, request: web.BaseRequest) -> web.Response:
        self._calls += 1
        if self._calls == self._settings.dies_at:
            self.dying.set()
        self._in_flight += 1
        self._in_flight_max = max(self._in_flight_max, self._in_flight)
        try:
            return await self._respond(request)
        finally:
            self._in_flight -= 1

    async def _respond(self, request: web.BaseRequest) -> web.Response:
        raw = await request.read()
        wait = self._refusal()
        outcome = "too_many" if wait else self._faults.next()
        self._outcomes[outcome] += 1
        if outcome == "too_many":
            return _error(429, "too many requests", wait or self._settings.retry_after)
        if outcome == "hanging":
            await asyncio.Event().wait()
        await asyncio.sleep(self._latency())
        if outcome == "answered":
            self._answered[digest(json.loads(raw)["messages"])] += 1
        return _outcomes[outcome](request, raw)

    def _latency(self) -> float:
        """Seconds that the next call takes, around the latency."""
        spread = self._settings.spread
        return self._settings.latency * self._random.uniform(1 - spread, 1 + spread)

    def _refusal(self) -> float:
        """Seconds to wait for room; 0 when there is room."""
        if 0 < self._settings.capacity < self._in_flight:
            return self._settings.retry_after
        return self._window.wait(time.monotonic())


def _answered(request: web.BaseRequest, raw: bytes) -> web.Response:
    return web.Response(body=completion(json.loads(raw), raw), content_type="application/json")


def _malformed(request: web.BaseRequest, raw: bytes) -> web.Response:
    """An answer whose text ends in the middle of its JSON."""
    whole = json.loads(completion(json.loads(raw), raw))
    message = whole["choices"][0]["message"]
    for holder, name in _texts(message):
        holder[name] = holder[name][: len(holder[name]) // 2]
    return web.json_response(whole)


def _texts(message: dict[str, Any]) -> Iterator[tuple[dict[str, Any], str]]:
    if message["content"]:
        yield message, "content"
    for call in message.get("tool_calls", ()):
        yield call["function"], "arguments"


def _dropped(request: web.BaseRequest, raw: bytes) -> web.Response:
    if request.transport is not None:
        request.transport.abort()
    return web.Response()


def _broken(request: web.BaseRequest, raw: bytes) -> web.Response:
    return _error(500, "something went wrong")


_outcomes: dict[str, Callable[[web.BaseRequest, bytes], web.Response]] = {
    "answered": _answered,
    "malformed": _malformed,
    "dropped": _dropped,
    "broken": _broken,
}


def _error(status: int, message: str, retry_after: float | None = None) -> web.Response:
    headers = {} if retry_after is None else {"Retry-After": f"{retry_after:.3f}"}
    return web.json_response({"error": {"message": message}}, status=status, headers=headers)


async def serve(settings: Settings) -> None:
    """Serve until standard input closes, which it does when the parent ends in whatever way."""
    service = Service(settings)
    # A hung call ends, and is no longer in flight, when its client hangs up.
    server = web.Server(service, access_log=None, handler_cancellation=True)
    runner = web.ServerRunner(server, shutdown_timeout=0.05)
    await runner.setup()
    site = await _listen(runner, settings.port)
    port = runner.addresses[0][1]
    print(f"READY http://127.0.0.1:{port}/v1", flush=True)
    absence = asyncio.create_task(_go_away_once(service, server, runner, site, settings.away))
    try:
        await _input_closed()
    finally:
        absence.cancel()
        await runner.cleanup()


async def _listen(runner: web.ServerRunner, port: int) -> web.TCPSite:
    site = web.TCPSite(runner, "127.0.0.1", port, backlog=4096, reuse_address=True)
    await site.start()
    return site


async def _go_away_once(
    service: Service, server: web.Server, runner: web.ServerRunner, site: web.TCPSite, away: float
) -> None:
    await service.dying.wait()
    port = runner.addresses[0][1]
    await site.stop()
    for connection in server.connections:
        connection.force_close()
    await asyncio.sleep(away)
    await _listen(runner, port)


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


def read_settings(arguments: Sequence[str] | None = None) -> Settings:
    """The settings that command line options make; those of this process by default."""
    parser = argparse.ArgumentParser(description="A fast stand-in for an OpenAI-compatible server.")
    for one in fields(Settings):
        name, kind = f"--{one.name.replace('_', '-')}", type(one.default)
        parser.add_argument(name, type=kind, default=one.default, help=one.metadata["help"])
    return Settings(**vars(parser.parse_args(arguments)))


if __name__ == "__main__":
    asyncio.run(serve(read_settings()))
