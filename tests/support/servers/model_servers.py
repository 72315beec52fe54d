"""The processes that serve model files, as the system lists them (on Linux)."""

from __future__ import annotations

import os
import time
from pathlib import Path

from programs.commands import Started

_SECONDS = 60.0


def servers(parent: int | None = None) -> list[int]:
    """The processes that serve a model for a program, by default for this one."""
    parent = os.getpid() if parent is None else parent
    numbers: list[int] = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            state, number = (folder / "stat").read_text().rpartition(")")[2].split()[:2]
            command = (folder / "cmdline").read_bytes()
        except OSError:  # it has ended meanwhile
            continue
        if int(number) == parent and state != "Z" and b"local/llama_process.py" in command:
            numbers.append(int(folder.name))
    return numbers


def wait_for_server(program: Started) -> int:
    """Wait until a program has started one."""
    while not (found := servers(program.pid)):
        assert program.poll() is None, program.ended().stderr
        time.sleep(0.02)
    return found[0]


def wait_until_gone(process: int) -> None:
    """Wait until a process has ended, whoever its parent is by now."""
    end = time.monotonic() + _SECONDS
    while _lives(process):
        assert time.monotonic() < end, f"process {process} still lives"
        time.sleep(0.02)


def _lives(process: int) -> bool:
    try:
        state = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"
