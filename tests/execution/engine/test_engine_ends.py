"""How an engine ends: closed by whom it may be, with its loop, by its store, or killed."""

from __future__ import annotations

import asyncio
import gc
import signal
import sqlite3
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import anyio
import pytest
from graphs.trees import yes_no_metric

from dagengine import Engine, EngineClosedError, Limits
from dagengine.errors import DagengineError, InputError, JudgeSetupError
from dagengine.judges import ScriptedJudge
from dagengine.metrics import BaseMetric
from dagengine.results import CaseResult
from dagengine.store import Store
from dagengine.system.threads import Kept, KeptOpen
from dagengine.test_case import LLMTestCase

pytestmark = pytest.mark.anyio
METRIC = yes_no_metric()


def case(name: object) -> LLMTestCase:
    return LLMTestCase(input=f"case {name}.")


def spoil(store: Path) -> None:
    connection = sqlite3.connect(store)
    tables = connection.execute("SELECT name FROM sqlite_master WHERE type='table'").fetchall()
    for (table,) in tables:
        connection.execute(f"DROP TABLE {table}")
    connection.close()


class Held:
    """A judge that answers when it is let."""

    def __init__(self) -> None:
        self.let, self.asked = anyio.Event(), anyio.Event()

    async def __call__(self, question: Any) -> bool:
        self.asked.set()
        await self.let.wait()
        return True


@pytest.mark.parametrize("cancel", [False, True])
async def test_an_engine_is_closed_by_another_task_than_opened_it_with_callers_waiting(
    cancel: bool,
) -> None:
    held, ends = Held(), list[CaseResult | EngineClosedError]()
    engine = Engine(METRIC, model=ScriptedJudge(held), limits=Limits(max_in_flight=1))

    async def call(name: int) -> None:
        try:
            ends.append(await engine.judge(case(name)))
        except EngineClosedError as error:
            ends.append(error)

    async def close() -> None:
        await engine.close(cancel=cancel)

    async with anyio.create_task_group() as opening:
        opening.start_soon(engine.__aenter__)
    with anyio.fail_after(30):
        async with anyio.create_task_group() as group:
            for name in range(5):
                group.start_soon(call, name)
            await held.asked.wait()
            group.start_soon(close)
            await anyio.wait_all_tasks_blocked()
            with pytest.raises(EngineClosedError):
                await engine.judge(case("late"))
            held.let.set()
    assert len(ends) == 5
    assert all(isinstance(end, EngineClosedError) == cancel for end in ends)
    assert engine.totals.in_flight == 0
    await engine.close()


async def test_leaving_by_an_error_cancels_and_the_error_comes_out() -> None:
    held = Held()
    engine = Engine(METRIC, model=ScriptedJudge(held))

    async def call() -> None:
        with pytest.raises(EngineClosedError):
            await engine.judge(case(1))

    async def leave() -> None:
        async with engine:
            group.start_soon(call)
            await held.asked.wait()
            raise LookupError("of the program")

    async with anyio.create_task_group() as group:
        with anyio.fail_after(30), pytest.raises(LookupError, match="of the program"):
            await leave()
    assert engine.totals.in_flight == 0


async def test_a_close_that_is_cancelled_ends_all_the_same() -> None:
    held = Held()
    engine = await Engine(METRIC, model=ScriptedJudge(held)).__aenter__()

    async def call() -> None:
        with pytest.raises(EngineClosedError):
            await engine.judge(case(1))

    with anyio.fail_after(30):
        async with anyio.create_task_group() as group:
            group.start_soon(call)
            await held.asked.wait()
            with anyio.move_on_after(0.01):
                await engine.close()
    assert engine.totals.in_flight == 0


async def test_a_judge_that_cannot_work_ends_the_opening(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    monkeypatch.delenv("OPENAI_BASE_URL", raising=False)
    engine = Engine(METRIC, model="gpt-4o")
    with pytest.raises(JudgeSetupError):
        async with engine:
            pass
    with pytest.raises(EngineClosedError, match="has ended") as error:
        await engine.judge(case(1))
    assert isinstance(error.value.__cause__, JudgeSetupError)


async def test_a_store_that_fails_ends_the_engine_and_is_the_cause(tmp_path: Path) -> None:
    path = tmp_path / "answers.db"
    engine = Engine(METRIC, model=ScriptedJudge(lambda q: True, "s"), store=path)

    async def use() -> None:
        async with engine:
            assert (await engine.judge(case(1))).success
            spoil(path)
            with pytest.raises(EngineClosedError, match="no such table") as error:
                await engine.judge(case(2))
            assert isinstance(error.value.__cause__, InputError)

    with anyio.fail_after(60), pytest.raises(InputError, match="no such table"):
        await use()


async def test_what_on_attempt_raises_is_raised_once_at_the_end() -> None:
    def refuse(attempt: Any) -> None:
        raise LookupError("a full disk")

    engine = Engine(METRIC, model=ScriptedJudge(lambda q: True), on_attempt=refuse)
    with pytest.raises(LookupError, match="a full disk"):
        async with engine:
            assert (await engine.judge(case(1))).success
    await engine.close()


async def test_a_node_that_closes_its_engine_is_told_so() -> None:
    class Closing(BaseMetric):
        async def a_measure(self, test_case: LLMTestCase) -> float:
            await engine.close()
            return 1.0

    with anyio.fail_after(30):
        async with Engine([Closing(), METRIC], model=ScriptedJudge(lambda q: True)) as engine:
            row = await engine.judge(case(1))
    assert "the engine would wait for" in str(row.metrics[0].failure)
    assert row.metrics[1].score == 1


def in_time(program: Any) -> None:
    """Run a program that may never end in a thread."""
    errors = list[BaseException]()

    def work() -> None:
        try:
            program()
        except BaseException as error:  # noqa: BLE001 - raised by the test
            errors.append(error)

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    thread.join(60)
    assert not thread.is_alive()
    if errors:
        raise errors[0]


# A task of a group that is cancelled before its first step leaves the coroutine that it was for.
@pytest.mark.filterwarnings("ignore:.*was never awaited", "ignore:.*coroutine object")
@pytest.mark.parametrize("waits", [0, 1, 3, 30, 300])
@pytest.mark.parametrize("closes", [False, True])
def test_a_loop_that_ends_ends_engine_and_callers(waits: int, closes: bool) -> None:
    async def main() -> None:
        held = Held()
        engine = Engine(METRIC, model=ScriptedJudge(held))

        async def call() -> None:
            if closes:
                async with engine:
                    await engine.judge(case(1))
            else:
                await (await engine.__aenter__()).judge(case(1))

        calling = asyncio.ensure_future(call())
        for _ in range(waits):
            await asyncio.sleep(0)
        raise LookupError(f"of the program, not of {calling}")

    def program() -> None:
        with pytest.raises(LookupError):
            asyncio.run(main())

    in_time(program)
    gc.collect()  # here, where such a coroutine is expected, and not in some other test


@pytest.mark.parametrize("waits", [0, 1, 5])
async def test_the_end_of_a_task_is_heard_however_it_ended(waits: int) -> None:
    ends = list[str]()
    forever = anyio.Event()
    kept = Kept(forever.wait, lambda: ends.append("told"))
    for _ in range(waits):
        await anyio.lowlevel.checkpoint()
    with anyio.fail_after(30):
        await kept.end()
    assert (ends, kept.error) == (["told"], None)

    async def fail() -> None:
        raise LookupError("no")

    failing = Kept(fail)
    with anyio.fail_after(30):
        await failing.over.wait()
    assert isinstance(failing.error, LookupError)
    whole = Kept(anyio.lowlevel.checkpoint)
    with anyio.fail_after(30):
        await whole.over.wait()
    assert whole.error is None


def test_a_task_that_its_loop_cancels_before_its_first_step_is_heard_of() -> None:
    async def main() -> None:
        before = asyncio.all_tasks()
        kept = KeptOpen(Store("never.db").open())
        for task in asyncio.all_tasks() - before:
            task.cancel()
        with anyio.fail_after(30):
            assert not await kept.is_open()
        assert isinstance(kept.error, DagengineError)

    asyncio.run(main())


KILLED = """
import sys
import anyio
from dagengine import Engine, Limits
from dagengine.judges import ScriptedJudge
from graphs.trees import yes_no_metric
from dagengine.test_case import LLMTestCase

async def answer(question):
    with open(sys.argv[1] + "/asked", "a") as file:
        file.write("x")
    await anyio.sleep(0.001)
    return True

async def main():
    limits = Limits(max_in_flight=4)
    judge = ScriptedJudge(answer, "killed")
    store = sys.argv[1] + "/s.db"
    async with Engine(yes_no_metric(), model=judge, limits=limits, store=store) as e:
        async def call(number):
            await e.judge(LLMTestCase(input=f"case {number}."))
            print(number, flush=True)
        async with anyio.create_task_group() as group:
            for number in range(400):
                group.start_soon(call, number)

anyio.run(main)
"""


def test_a_killed_engine_with_a_store_asks_no_more_again_than_was_in_progress(
    tmp_path: Path,
) -> None:
    program = [sys.executable, "-c", KILLED, str(tmp_path)]
    paths = ":".join(sys.path)
    first = subprocess.Popen(program, stdout=subprocess.PIPE, env={"PYTHONPATH": paths})
    assert first.stdout is not None
    for _ in range(50):
        first.stdout.readline()
    first.send_signal(signal.SIGKILL)
    first.communicate()
    asked = len((tmp_path / "asked").read_text())
    assert 50 <= asked < 400
    subprocess.run(program, check=True, env={"PYTHONPATH": paths}, stdout=subprocess.DEVNULL)
    assert 400 <= len((tmp_path / "asked").read_text()) <= 400 + 4
