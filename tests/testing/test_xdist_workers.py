"""Sessions of several processes, and sessions that are interrupted."""

from __future__ import annotations

import atexit
import json
import os
import re
import signal
import tempfile
import threading
from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from programs.evaluations import JUDGED, MIXED, run

from dagengine import on_test_run_end

pytest_plugins = ["pytester"]


def written(folder: Path) -> list[Any]:
    """What a run folder and a recording say, without times and what was spent."""
    manifest = json.loads((folder / "run.json").read_text(encoding="utf-8"))
    names = ("results.jsonl", "cases.jsonl")
    lines = [line for name in names for line in (folder / name).read_text("utf-8").splitlines()]
    recording = next((folder.parent / "recordings").glob("*.jsonl"))
    text = recording.read_text(encoding="utf-8")
    recording.unlink()
    return [manifest["metrics"], manifest["judges"], list(map(json.loads, lines)), text]


def test_workers_leave_what_one_process_leaves(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(MIXED)
    store, found = Path(pytester.path, "answers.db"), []
    for processes, folder in (("-n0", "one"), ("-n2", "two")):
        store.unlink(missing_ok=True)
        options = (
            "-W",
            "default",
            "--evals=record",
            f"--evals-store={store}",
            f"--evals-out={folder}",
        )
        left = run(pytester, *options, processes, needs=["xdist"])
        said = re.search(r"(?m)^Quality: (?:.*\n)*?recorded: .*", left.output)
        assert said is not None
        cases = ElementTree.fromstring(left.junit).iter("testcase")
        found.append((
            left.code, sorted(left.outcomes), sorted(map(ElementTree.tostring, cases)),
            re.sub(r"(?m)^\d+ questions.*\n", "", said[0]), written(pytester.path / folder),
        ))  # fmt: skip
    assert found[0] == found[1]
    assert not (pytester.path / "two" / ".workers").exists()
    assert (pytester.path / "two" / "report.html").exists()
    again = run(pytester, "-Wdefault", f"--evals-store={store}")
    assert " questions, 0 judge calls, " in again.output
    assert "slowest node" not in again.output


def test_a_worker_that_dies_loses_no_test_silently(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(f"""{JUDGED}
import os


async def never(question):
    await anyio.sleep_forever()


slow = metric(judge=ScriptedJudge(never))


@pytest.mark.parametrize("one", [case(f"good {{n}}") for n in range(5)])
def test_waits(one):
    assert_test(one, [slow])


def test_dies():
    os._exit(3)
""")
    left = run(pytester, "-n1", "--max-worker-restart=0", needs=["xdist"])
    assert left.code == 1
    tests = {event[1] for event in left.outcomes}
    assert len(tests) == 6
    assert {event[2] for event in left.outcomes} == {"failed"}
    assert "died before the verdict" in left.output


@pytest.mark.parametrize("dead", [False, True], ids=["", "one was killed"])
def test_the_last_of_several_processes_calls_what_ends_a_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, dead: bool
) -> None:
    monkeypatch.setenv("PYTEST_XDIST_TESTRUNUID", "run")
    monkeypatch.setattr(tempfile, "gettempdir", lambda: str(tmp_path))
    at_exit: list[Callable[[], None]] = []
    monkeypatch.setattr(atexit, "register", at_exit.append)
    called: list[int] = []

    @on_test_run_end
    def end() -> None:
        called.append(1)

    (folder,) = tmp_path.iterdir()
    # No process has so large a number; the parent of this one runs.
    other = folder / (str(2**30) if dead else str(os.getppid()))
    other.touch()
    at_exit[0]()
    assert len(called) == dead
    other.unlink(missing_ok=True)
    at_exit[0]()
    assert called == [1]


INTERRUPTED = f"""{JUDGED}
import os
import signal

from dagengine.testing import plugin


async def some(question):
    if "never" in question.messages[-1]["content"]:
        await anyio.sleep_forever()
    return {{"verdict": True, "reason": "at once"}}


half = metric(judge=ScriptedJudge(some))


@pytest.mark.parametrize("one", [case("good 1"), case("never 2"), case("good 3")])
def test_each(one):
    assert_test(one, [half])


def test_at_once():
    with pytest.raises(AssertionError):
        assert_test(bad, [quality])


def test_last(request):
    for held in plugin.buffer_of(request.session)._queue:
        if "good" in held.item.name:
            held.verdicts[0].future.result()
    PLACE
"""
PARENT, SELF = (f"os.kill(os.{one}(), signal.SIGINT)" for one in ("getppid", "getpid"))


@pytest.mark.parametrize(
    ("place", "options"),
    [(SELF, ()), ("pass", ()), (f"{PARENT}; {SELF}", ("-n1",))],
    ids=["in a body", "while it waits", "on a worker"],
)
def test_after_an_interrupt_what_is_finished_is_reported(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch, place: str, options: tuple[str, ...]
) -> None:
    def wait_for(future: Future[Any], *_: Any) -> None:
        if not future.done():
            signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr("dagengine.testing.report_order.wait_for", wait_for)
    pytester.makepyfile(INTERRUPTED.replace("PLACE", place))
    left = run(pytester, "-v", *options, needs=["xdist"])
    assert left.code == pytest.ExitCode.INTERRUPTED
    judged = [event[1].partition("::")[2] for event in left.outcomes if event[2] == "passed"]
    last = ["test_last"] if place == "pass" else []
    assert sorted(judged) == ["test_at_once", "test_each[good 1]", "test_each[good 3]", *last]
    assert len(left.outcomes) == len(judged)
    assert "1 test had begun, and nothing is reported of it" in left.output
    assert "KeyboardInterrupt" in left.output
    assert "dagengine evaluations" not in [thread.name for thread in threading.enumerate()]
