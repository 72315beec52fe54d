"""`dagengine view` as a process of its own, and requests to it with any headers."""

from __future__ import annotations

import http.client
import json
import os
import re
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from programs.commands import Started, start_command, start_program


@dataclass(frozen=True)
class Reply:
    """What the server answered."""

    status: int
    headers: Mapping[str, str]
    text: str

    @property
    def json(self) -> Any:
        return json.loads(self.text)


class Viewing:
    """A server that runs; addresses are seen from behind the token."""

    def __init__(self, process: Started, address: str) -> None:
        self.process = process
        self.address = address
        parts = urlsplit(address)
        assert parts.hostname is not None
        self.host, self.port, self.root = parts.hostname, parts.port, parts.path
        self.origin = f"http://{self.host}:{self.port}"

    def ask(
        self, path: str, body: Any = None, *, root: str | None = None, **headers: str
    ) -> Reply:  # fmt: skip
        """GET, or POST of a body; names of headers have _ for -."""
        given = {name.replace("_", "-"): value for name, value in headers.items()}
        if body is not None:
            given = {"Origin": self.origin, **given}
        connection = http.client.HTTPConnection(self.host, self.port, timeout=120)
        data = body if isinstance(body, bytes | None) else json.dumps(body).encode()
        method = "GET" if body is None else "POST"
        target = (self.root if root is None else root) + path
        connection.request(method, target, data, {k: v for k, v in given.items() if v})
        reply = connection.getresponse()
        found = Reply(reply.status, dict(reply.getheaders()), reply.read().decode())
        connection.close()
        return found


SERVE = """
import sys
from pathlib import Path
from dagengine.view import large_runs, open_runs, serve
large_runs.CHUNK = int(sys.argv[2])
served = open_runs([Path(path) for path in sys.argv[3:]], "Ana", rows=int(sys.argv[1]))
serve(served, 0, lambda address: print(address, flush=True))
"""


@contextmanager
def viewing(*folders: Path, rows: int | None = None, chunk: int = 1000) -> Iterator[Viewing]:
    """Serve some runs to Ana for as long as the block runs.

    Runs of more than `rows` rows are read from an index, `chunk` rows of a column at once; by
    default as the command does it.
    """
    # Indexes are made beside the runs, and not in the cache of who runs the tests.
    environment = {**os.environ, "XDG_CACHE_HOME": str(folders[0].resolve().parent / "cache")}
    names = list(map(str, folders))
    if rows is None:
        process = start_command(Path.cwd(), "view", *names, "--as", "Ana", environment=environment)
    else:
        process = start_program(SERVE, str(rows), str(chunk), *names, environment=environment)
    try:
        while not (address := re.search(r"http://\S+(?=\s)", process.printed)):
            assert process.poll() is None, process.ended().stderr
            time.sleep(0.01)
        yield Viewing(process, address[0])
    finally:
        process.kill()
        process.ended()
