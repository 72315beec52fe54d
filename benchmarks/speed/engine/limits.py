"""How well the limits find out what a server can take, and what faults cost.

    python benchmarks/speed/engine/limits.py [--calls 4000] [--latency 0.1]

One server in a process of its own. First with a hidden capacity of 40 calls at once, which
rejects the 41st, with and without Retry-After: the adaptive limit beside fixed ones. Then
without a limit, then with 10 % 429 (and Retry-After), 5 % 500, 2 % dropped connections and 3 %
malformed answers, in each case against the ideal `calls * latency / calls at once`.

Then, on a simulated clock (`trio.testing.MockClock`), servers that let calls wait and reject
nothing: four places and 20, 50 and 100 s for an answer, ready at once or after 20 s (503 until
then), with default limits. And servers that work on all calls at the same time: the seconds until
64 and 512 calls are in progress.
"""

from __future__ import annotations

import asyncio
import json
import math
import random
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Annotated, Any
from unittest import mock

import anyio
import typer
from aiohttp import web
from rich.console import Console
from rich.table import Table
from trio.testing import MockClock

from dagengine.errors import JudgeError, ProviderError
from dagengine.gateway import Gateway, Limits, rate_limiter
from dagengine.gateway.laws.adaptive_concurrency import AdaptiveConcurrency
from dagengine.judges import OpenAIJudge
from dagengine.prompts import Evidence, messages_for
from dagengine.prompts.answer_types import judgement_type
from dagengine.question import Answer, Capabilities, Question

CAPACITY = 40
CEILING = 64
SHAPE = judgement_type(None)
GOOD = json.dumps({"reason": "because", "verdict": True})
FAULTS = (("429", 0.10), ("500", 0.05), ("drop", 0.02), ("garbage", 0.03), ("ok", 0.80))


class Fixed(AdaptiveConcurrency):
    """A limit that learns nothing: what the adaptive one is compared with."""

    def __init__(self, ceiling: int, start: int = 0) -> None:
        super().__init__(ceiling, ceiling)

    def note_success(self, serial: int, in_flight: int) -> None:
        """Learn nothing."""

    def note_rejection(self, serial: int, in_flight: int) -> bool:
        """Learn nothing."""
        return True


class Unruly:
    """The server: a path says what is wrong with it."""

    def __init__(self, latency: float) -> None:
        self._latency = latency
        self._inside = 0
        self._dice = random.Random(5)

    async def __call__(self, request: web.BaseRequest) -> web.Response:
        """`/limited/…` rejects beyond the capacity, `/faulty/…` fails now and then.

        `/asking/…` is limited and asks to wait.
        """
        await request.read()
        fate = "ok"
        if request.path.startswith(("/limited", "/asking")) and self._inside >= CAPACITY:
            fate = "429 wait" if request.path.startswith("/asking") else "429 full"
        elif request.path.startswith("/faulty"):
            fate = self._dice.choices([f for f, _ in FAULTS], [share for _, share in FAULTS])[0]
        if fate.startswith("429"):
            waits = {"429": "1", "429 wait": "0.5"}
            headers = {"Retry-After": waits[fate]} if fate in waits else {}
            return web.json_response({"error": {"message": fate}}, status=429, headers=headers)
        if fate == "500":
            return web.json_response({"error": {"message": fate}}, status=500)
        if fate == "drop" and request.transport is not None:
            request.transport.abort()
        return await self._answer(GOOD if fate == "ok" else '{"verdict": "perh')

    async def _answer(self, content: str) -> web.Response:
        self._inside += 1
        try:
            await asyncio.sleep(self._latency)
        finally:
            self._inside -= 1
        message = {"role": "assistant", "content": content}
        choice = {"index": 0, "message": message, "finish_reason": "stop"}
        about = {"id": "0", "object": "chat.completion", "created": 0, "model": "m"}
        return web.json_response({**about, "choices": [choice]})


async def serve(latency: float) -> None:
    """Serve until the standard input closes."""
    runner = web.ServerRunner(web.Server(Unruly(latency)))
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0, backlog=1024)
    await site.start()
    print(f"http://127.0.0.1:{runner.addresses[0][1]}", flush=True)
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)


@contextmanager
def running(latency: float) -> Iterator[str]:
    """The server in another process; gives its address."""
    command = [sys.executable, __file__, "--serve", "--latency", str(latency)]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True) as process:
        assert process.stdout is not None
        try:
            yield process.stdout.readline().strip()
        finally:
            process.terminate()


async def run(base_url: str, calls: int, limits: Limits) -> tuple[float, int, int]:
    """Wall seconds, failed calls, and questions without an answer."""
    judge, gateway = OpenAIJudge("m", base_url=base_url), Gateway(limits)
    numbers, lost = iter(range(calls)), 0

    async def worker() -> None:
        nonlocal lost
        for number in numbers:
            try:
                await gateway.ask(judge, question(number))
            except JudgeError:
                lost += 1

    async with judge.session():
        started = time.perf_counter()
        async with anyio.create_task_group() as group:
            for _ in range(4 * CEILING + 32):  # as many as a run has workers
                group.start_soon(worker)
    return time.perf_counter() - started, gateway.totals.failed, lost


class Patient:
    """A judge of so many places that rejects nothing; the others wait. It counts lost work."""

    identity = "patient"
    capabilities = Capabilities()

    def __init__(self, places: float, seconds: float, spread: float, ready: float) -> None:
        self._places = anyio.CapacityLimiter(places)
        self._seconds, self._spread = seconds, spread
        self._ready = anyio.current_time() + ready
        self._dice = random.Random(5)
        self._began = anyio.current_time()
        self.inside = self.lost = 0
        self.reached: dict[int, float] = {}

    async def answer(self, question: Question[Any]) -> Any:
        if anyio.current_time() < self._ready:
            raise ProviderError("loading", transient=True, status=503)
        self.inside += 1
        self.reached.setdefault(self.inside, anyio.current_time() - self._began)
        try:
            async with self._places:
                await self._work()
        finally:
            self.inside -= 1
        return Answer(SHAPE.model_validate_json(GOOD), GOOD)

    async def _work(self) -> None:
        try:
            await anyio.sleep(self._seconds * self._dice.lognormvariate(0, self._spread))
        except BaseException:
            self.lost += 1
            raise


async def waiting(
    calls: int, most: int, places: float, seconds: float, spread: float, ready: float
) -> tuple[float, Patient, int]:
    """Simulated seconds, the judge, and questions without an answer."""
    judge, gateway = Patient(places, seconds, spread, ready), Gateway(Limits(max_in_flight=most))
    numbers, failed, began = iter(range(calls)), 0, anyio.current_time()

    async def worker() -> None:
        nonlocal failed
        for number in numbers:
            try:
                await gateway.ask(judge, question(number))
            except JudgeError:
                failed += 1

    async with anyio.create_task_group() as group:
        for _ in range(4 * most + 32):
            group.start_soon(worker)
    return anyio.current_time() - began, judge, failed


def simulated(
    calls: int, most: int, places: float, seconds: float, spread: float, ready: float
) -> tuple[float, Patient, int]:
    """`waiting` on a clock that jumps."""
    random.seed(5)
    options = {"clock": MockClock(autojump_threshold=0)}
    work = partial(waiting, calls, most, places, seconds, spread, ready)
    return anyio.run(work, backend="trio", backend_options=options)


def simulations() -> Iterator[Table]:
    """Tables of servers that let calls wait, and of servers that need not."""
    slow = Table("places", "service", "ready", "wall", "ideal", "ratio", "lost work", "failed")
    for seconds in (20.0, 50.0, 100.0):
        for ready in (0.0, 20.0):
            wall, judge, failed = simulated(80, 64, 4, seconds, 0.0, ready)
            ideal = ready + 80 * seconds / 4
            times = (f"{wall:.0f} s", f"{ideal:.0f} s", f"{wall / ideal:.3f}")
            row = ("4", f"{seconds:.0f} s", f"{ready:.0f} s", *times, str(judge.lost), str(failed))
            slow.add_row(*row)
    yield slow
    wide = Table("most", "latency", "64 reached", "512 reached", "wall", "ideal")
    for most, seconds, spread in ((64, 1.0, 0.3), (512, 1.0, 0.3), (512, 5.0, 0.5)):
        wall, judge, _ = simulated(8 * most, most, float("inf"), seconds, spread, 0.0)
        ideal = 8 * seconds * math.exp(spread**2 / 2)
        reached = (f"{judge.reached[at]:.2f} s" if at <= most else "" for at in (64, 512))
        wide.add_row(str(most), f"{seconds:.0f} s", *reached, f"{wall:.1f} s", f"{ideal:.1f} s")
    yield wide


def question(number: int) -> Question[Any]:
    """One of many questions."""
    return Question(messages_for("Good?", [Evidence("text", f"case {number}")]), SHAPE, name="q")


def main(
    calls: Annotated[int, typer.Option(help="Questions of each run.")] = 4000,
    latency: Annotated[float, typer.Option(help="Seconds the server takes.")] = 0.1,
    widths: Annotated[str, typer.Option(help="Fixed limits to compare.")] = "10,20,30,40,64",
    serving: Annotated[bool, typer.Option("--serve", hidden=True)] = False,
) -> None:
    """Measure and print."""
    if serving:
        asyncio.run(serve(latency))
        return
    table = Table("server", "limit", "answers/s", "wall", "ideal", "ratio", "failed calls", "lost")

    def row(server: str, name: str, limits: Limits, at_once: int) -> None:
        wall, failed, lost = anyio.run(run, f"{url}/{server}/v1", calls, limits)
        ideal = calls * latency / at_once
        shown = (f"{calls / wall:.0f}", f"{wall:.2f} s", f"{ideal:.2f} s", f"{wall / ideal:.3f}")
        table.add_row(server, name, *shown, str(failed), str(lost))

    for simulation in simulations():
        Console().print(simulation)
    patient: dict[str, Any] = {"attempts": 100, "max_backoff": 2.0}
    with running(latency) as url:
        row("limited", "adaptive, up to 64", Limits(max_in_flight=CEILING, **patient), CAPACITY)
        row("asking", "adaptive, up to 64", Limits(max_in_flight=CEILING, **patient), CAPACITY)
        for width in map(int, widths.split(",")):
            with mock.patch.object(rate_limiter, "AdaptiveConcurrency", Fixed):
                limits = Limits(max_in_flight=width, **patient)
                row("limited", f"fixed {width}", limits, CAPACITY)
        row("plain", "adaptive, up to 64", Limits(max_in_flight=CEILING), CEILING)
        row("faulty", "adaptive, up to 64", Limits(max_in_flight=CEILING), CEILING)
    Console().print(table)


if __name__ == "__main__":
    typer.run(main)
