"""Memory of one process whose judge answers with anything but an answer.

    python benchmarks/speed/engine/hostile_memory.py [--cases 192] [--kinds good,bomb]

A server in a process of its own sends, for every call: a good answer; a body without an end; a
string without an end; a gzip bomb (256 MB of blanks in 250 kB); a body just below the judge's
limit; or all of these in turns. `evaluate` with `OpenAIJudge` runs against it, in a new process
for each kind, and tells its peak resident memory (`resource.getrusage`), imports included.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import subprocess
import sys
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

TARGET = 120  # MB
PIECE = 1 << 16
SAID = 3_900_000  # bytes of the long answer, just below the limit
ENVELOPE = {"id": "0", "object": "chat.completion", "created": 0, "model": "m"}
CHUNKED = b"Transfer-Encoding: chunked"


def completion(content: str) -> bytes:
    """The body of an answer with this text."""
    message = {"role": "assistant", "content": content}
    choice = {"index": 0, "message": message, "finish_reason": "stop"}
    return json.dumps({**ENVELOPE, "choices": [choice]}).encode()


def head(*headers: bytes) -> bytes:
    """The beginning of a response."""
    lines = [b"HTTP/1.1 200 OK", b"Content-Type: application/json", *headers, b"", b""]
    return b"\r\n".join(lines)


def whole(body: bytes, *headers: bytes) -> bytes:
    """A response of known length."""
    return head(b"Content-Length: %d" % len(body), *headers) + body


def chunk(data: bytes) -> bytes:
    """A piece of a response of unknown length."""
    return b"%x\r\n%b\r\n" % (len(data), data)


def bomb() -> bytes:
    """256 MB of blanks, packed."""
    packer = zlib.compressobj(9, zlib.DEFLATED, zlib.MAX_WBITS | 16)
    return b"".join([*(packer.compress(b" " * (1 << 20)) for _ in range(256)), packer.flush()])


def kinds() -> dict[str, Callable[[], Iterator[bytes]]]:
    """What the server may send: pieces of a response, by name."""
    good = whole(completion(json.dumps({"reason": "because", "verdict": True})))
    packed = whole(bomb(), b"Content-Encoding: gzip")
    long = whole(completion(json.dumps({"reason": "r" * SAID, "verdict": True})))
    opened, text = head(CHUNKED), chunk(b'{"choices": "')
    blank, letters = chunk(b" " * PIECE), chunk(b"x" * PIECE)
    return {
        "good": lambda: iter([good]),
        "endless body": lambda: itertools.chain([opened], itertools.repeat(blank)),
        "endless string": lambda: itertools.chain([opened, text], itertools.repeat(letters)),
        "bomb": lambda: iter([packed]),
        "below the limit": lambda: iter([long]),
    }


class Hostile:
    """The server: answers every call as its kind says."""

    def __init__(self, kind: str) -> None:
        known = kinds()
        self._next = itertools.cycle(known.values() if kind == "mixed" else [known[kind]])

    async def __call__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve one connection until the client closes it."""
        with suppress(OSError, asyncio.IncompleteReadError):
            while True:
                lines = await reader.readuntil(b"\r\n\r\n")
                length = lines.lower().partition(b"content-length:")[2].split(b"\r\n")[0]
                await reader.readexactly(int(length))
                for piece in next(self._next)():
                    writer.write(piece)
                    await writer.drain()
        writer.close()


async def serve(kind: str) -> None:
    """Serve until the standard input closes."""
    server = await asyncio.start_server(Hostile(kind), "127.0.0.1", 0, backlog=1024)
    print(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1", flush=True)
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)


# The process that is measured imports nothing but what `evaluate` needs.
JOB = """
import json, resource, sys
from dagengine import Limits, evaluate
from dagengine.judges import OpenAIJudge
from dagengine.metrics.dag import DAG, BinaryJudgementNode, DAGMetric
from dagengine.test_case import LLMTestCase

base_url, (cases, in_flight) = sys.argv[1], map(int, sys.argv[2:])
node = BinaryJudgementNode(
    "Is it good?", then={True: 10, False: 0}, evaluation_params=["actual_output"]
)
metric = DAGMetric("good", DAG(node), model=OpenAIJudge("m", base_url=base_url))
limits = Limits(max_in_flight=in_flight, attempts=1, reasks=0, patience=3600.0)
imported = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
found = evaluate(
    [LLMTestCase(input="i", actual_output=f"case {number}") for number in range(cases)],
    [metric],
    limits=limits,
    show=False,
)
peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
scored = sum(result.score is not None for row in found for result in row.metrics)
print("DONE", json.dumps([imported, peak, scored]))
"""


@contextmanager
def running(kind: str) -> Iterator[str]:
    """The server in another process; gives its address."""
    pipe = subprocess.PIPE
    command = [sys.executable, __file__, "--serve", kind]
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True) as process:
        assert process.stdout is not None
        try:
            yield process.stdout.readline().strip()
        finally:
            process.terminate()


def measured(kind: str, cases: int, in_flight: int) -> tuple[float, float, int]:
    """Megabytes after the imports and at the peak, and how many cases got a score."""
    with running(kind) as url:
        command = [sys.executable, "-c", JOB, url, str(cases), str(in_flight)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(done.stderr[-2000:])
    imported, peak, scored = json.loads(done.stdout.rpartition("DONE")[2])
    return imported, peak, scored


def main(
    cases: Annotated[int, typer.Option(help="Cases of each run; one call each.")] = 192,
    in_flight: Annotated[int, typer.Option(help="Calls at once.")] = 64,
    only: Annotated[str, typer.Option("--kinds", help="Kinds to run, with commas.")] = "",
    serving: Annotated[str, typer.Option("--serve", hidden=True)] = "",
) -> None:
    """Measure and print; exit code 1 when a run needs more than the target."""
    if serving:
        asyncio.run(serve(serving))
        return
    table = Table("answers", "after imports", "peak", "above good answers", "scored")
    peaks: list[float] = []
    for kind in only.split(",") if only else [*kinds(), "mixed"]:
        imported, peak, scored = measured(kind, cases, in_flight)
        peaks.append(peak)
        shown = (f"{imported:.0f} MB", f"{peak:.0f} MB", f"{peak - peaks[0]:+.0f} MB")
        table.add_row(kind, *shown, f"{scored} of {cases}")
    Console().print(table)
    Console().print(f"peak resident memory of the whole process; target: at most {TARGET} MB")
    raise typer.Exit(max(peaks) > TARGET)


if __name__ == "__main__":
    typer.run(main)
