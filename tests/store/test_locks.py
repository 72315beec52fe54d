"""One writer at a time: among processes and threads, and for as long as its process lives."""

from __future__ import annotations

import os
import signal
import threading
from pathlib import Path

import pytest
from programs.commands import Started, start_program

from dagengine.errors import InputError
from dagengine.system.file_locks import one_writer

HOLD = """
import sys
from pathlib import Path
from dagengine.system.file_locks import one_writer
with one_writer(Path(sys.argv[1]), folder=sys.argv[2] == "folder"):
    print("held", flush=True)
    sys.stdin.read()
"""


def holding(target: Path, kind: str = "file") -> Started:
    """A process that writes something, until its input ends."""
    process = start_program(HOLD, str(target), kind, asks=True)
    assert process.line() == "held"
    return process


def refused(target: Path, *, folder: bool = False) -> str:
    with pytest.raises(InputError) as caught, one_writer(target, folder=folder):
        pass
    return str(caught.value)


@pytest.mark.parametrize("kind", ["file", "folder"])
def test_the_second_writer_is_told_which_process_is_the_first(tmp_path: Path, kind: str) -> None:
    target = tmp_path / "there" / "of"
    first = holding(target, kind)
    assert f"(process {first.pid})" in refused(target, folder=kind == "folder")
    first.send_signal(signal.SIGKILL)
    first.ended()
    with one_writer(target, folder=kind == "folder"):
        assert str(os.getpid()) in refused(target, folder=kind == "folder")
    assert list(target.parent.iterdir()) == ([target] if kind == "folder" else [])


def test_a_writer_that_waits_comes_after_the_other(tmp_path: Path) -> None:
    first, order = holding(tmp_path / "of"), list[str]()

    def second() -> None:
        with one_writer(tmp_path / "of", wait=True):
            order.append("second")

    thread = threading.Thread(target=second)
    thread.start()
    order.append("first")
    first.ended()
    thread.join()
    assert order == ["first", "second"]


def test_threads_take_turns(tmp_path: Path) -> None:
    inside, most = list[int](), list[int]()

    def write() -> None:
        for _ in range(50):
            with one_writer(tmp_path / "of", wait=True):
                inside.append(1)
                most.append(len(inside))
                inside.pop()

    threads = [threading.Thread(target=write) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert set(most) == {1}
    assert os.listdir(tmp_path) == []


@pytest.mark.skipif(not hasattr(os, "fork"), reason="only where processes are forked")
def test_a_fork_that_lives_on_holds_nothing(tmp_path: Path) -> None:
    reading, writing = os.pipe()
    with one_writer(tmp_path / "of"):
        child = os.fork()
        if not child:  # waits for its parent, as a worker that was forgotten
            os.close(writing)
            os.read(reading, 1)
            os._exit(0)
    try:
        with one_writer(tmp_path / "of"):
            pass
    finally:
        os.write(writing, b".")
        os.waitpid(child, 0)
        os.close(reading)
        os.close(writing)


def test_a_link_in_the_place_of_a_lock_is_refused(tmp_path: Path) -> None:
    (tmp_path / "precious").write_text("kept")
    (tmp_path / ".writing").symlink_to(tmp_path / "precious")
    assert "is a link" in refused(tmp_path, folder=True)
    assert (tmp_path / "precious").read_text() == "kept"
