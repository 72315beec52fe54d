"""Programs under several hash seeds, each printed by an interpreter that has its imports behind it.

A hash seed is that of a whole process. So one server for each seed loads the package once and
forks a process for each program.
"""

from __future__ import annotations

import atexit
import json
import os
import subprocess
import sys
import tempfile
from functools import cache
from pathlib import Path

SEEDS = ("0", "1", "4242")
_SERVER = """
import gc, importlib, json, os, sys
for name in ("judges", "metrics.dag", "reliability", "report"):
    importlib.import_module(f"dagengine.{name}")
gc.freeze()
for line in sys.stdin:
    code, folder, out = json.loads(line)
    if not (child := os.fork()):
        os.chdir(folder)
        for descriptor in (1, 2):
            os.dup2(os.open(out, os.O_WRONLY | os.O_APPEND), descriptor)
        sys.path.insert(0, folder)
        try:
            exec(compile(code, "<string>", "exec"), {"__name__": "__main__"})
        except BaseException:
            import traceback
            traceback.print_exc()
            os._exit(1)
        sys.stdout.flush()
        os._exit(0)
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
"""


@cache
def _server(seed: str) -> subprocess.Popen[str]:
    path = os.pathsep.join(filter(None, sys.path))
    server = subprocess.Popen(
        [sys.executable, "-c", _SERVER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        env={**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": path},
    )  # fmt: skip
    atexit.register(server.communicate)  # it ends when its standard input does
    return server


def printed(code: str, folder: Path | None = None) -> list[str]:
    """What a program prints under each of the seeds; it imports what is in a folder."""
    texts = []
    for seed in SEEDS:
        server = _server(seed)
        assert server.stdin is not None
        assert server.stdout is not None
        with tempfile.NamedTemporaryFile() as file:
            print(json.dumps([code, str(folder or Path.cwd()), file.name]), file=server.stdin)
            server.stdin.flush()
            status = server.stdout.readline().strip()
            texts.append(Path(file.name).read_text("utf-8"))
        assert status == "0", texts[-1]
    return texts
