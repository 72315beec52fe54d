"""A model file as the judge: a real process of llama.cpp serves it, and is gone with the run."""

from __future__ import annotations

import gc
import os
import pickle
import signal
import sys
import threading
import time
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path

import anyio
import pytest
from openai import AuthenticationError
from programs.commands import run_command, start_program
from servers import llama_server
from servers.model_servers import servers, wait_until_gone

from dagengine import Limits, a_evaluate
from dagengine.errors import JudgeSetupError, MetricFailedError, MissingExtraError
from dagengine.judges import GGUFJudge
from dagengine.metrics import DAGMetric
from dagengine.metrics.dag import DAG, BinaryJudgementNode
from dagengine.question import Options, ServerFacts, facts_of
from dagengine.results import OutcomeKind
from dagengine.test_case import LLMTestCase

pytestmark = pytest.mark.skipif(
    sys.platform != "linux"
    or any(find_spec(package) is None for package in ("xllamacpp", "gguf", "numpy")),
    reason="needs the llama extra, and Linux to look at processes",
)

METRIC = """
from dagengine.metrics import DAGMetric
from dagengine.metrics.dag import DAG, BinaryJudgementNode
from dagengine.question import Options

node = BinaryJudgementNode(
    "Right?", then={True: 10, False: 0}, evaluation_params=["input"], options=Options(max_tokens=20)
)
metric = DAGMetric("right", DAG(node))
"""
# Opens the judge, maybe forks a process that outlives it, and waits.
HOLDING = """
import asyncio, os, sys, time
from dagengine.judges import GGUFJudge

async def main():
    async with GGUFJudge(sys.argv[1], window=1024, places=2, threads=1).session():
        forked = os.fork() if "fork" in sys.argv else None
        if forked == 0:
            time.sleep(600)
        print(forked, flush=True)
        await asyncio.sleep(600)

asyncio.run(main())
"""


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("model") / "random.gguf"
    llama_server.write_random_model(path)
    return path


def judge_of(model: Path) -> GGUFJudge:
    return GGUFJudge(model, window=1024, places=2, threads=1)


CASES = [LLMTestCase(input=f"case {number}") for number in range(4)]
TYPED = {OutcomeKind.OK, OutcomeKind.UNPARSEABLE}


def tree() -> DAGMetric:
    """A question that a model of noise answers, or fails to, in 20 tokens."""
    node = BinaryJudgementNode(
        "Right?",
        then={True: 10, False: 0},
        evaluation_params=["input"],
        options=Options(max_tokens=20),
    )
    return DAGMetric("right", DAG(node))


@pytest.mark.anyio
async def test_a_run_starts_one_server_and_leaves_none_behind(model: Path) -> None:
    during: set[int] = set()
    done = await a_evaluate(
        CASES,
        [tree()],
        model=judge_of(model),
        limits=Limits(reasks=0),
        show=False,
        on_attempt=lambda attempt: during.update(servers()),
    )
    assert {row.metrics[0].outcome for row in done} <= TYPED
    assert len(during) == 1
    assert servers() == []


@pytest.mark.anyio
async def test_the_server_has_the_size_that_it_is_said_to_have(model: Path) -> None:
    judge = judge_of(model)
    assert await facts_of(judge) == ServerFacts("model file", 1024, 2)
    async with judge.session() as client:
        props = await client.api.get(
            f"{str(client.api.base_url).removesuffix('v1/')}props", cast_to=object
        )
    assert isinstance(props, dict)
    assert props["total_slots"] == 2
    assert props["default_generation_settings"]["n_ctx"] == 1024


@pytest.mark.anyio
async def test_nobody_else_may_ask_the_server(model: Path) -> None:
    async with judge_of(model).session() as client:
        stranger = client.api.with_options(api_key="guessed", max_retries=0)
        with pytest.raises(AuthenticationError):
            await stranger.chat.completions.create(model="any", messages=[])


@pytest.mark.anyio
async def test_an_exception_ends_the_server(model: Path) -> None:
    async def fail() -> None:
        async with judge_of(model).session():
            assert len(servers()) == 1
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await fail()
    assert servers() == []


@pytest.mark.anyio
async def test_a_run_that_is_cancelled_while_the_model_loads_ends_the_server(model: Path) -> None:
    with anyio.CancelScope() as scope:
        async with anyio.create_task_group() as tasks:

            async def use() -> None:
                async with judge_of(model).session():
                    raise AssertionError("it was not loading")

            tasks.start_soon(use)
            while not servers():
                await anyio.lowlevel.checkpoint()
            scope.cancel()
    assert servers() == []


def test_event_loops_and_judges_of_one_file_share_a_server_until_the_last_leaves(
    model: Path,
) -> None:
    inside = threading.Barrier(2)
    addresses: list[str] = []

    async def use(last: bool) -> None:
        async with judge_of(model).session() as client:
            addresses.append(str(client.api.base_url))
            inside.wait()
            assert len(servers()) == 1
            inside.wait()
            if last:
                other.join()
                assert len(servers()) == 1

    other = threading.Thread(target=anyio.run, args=(use, False))
    other.start()
    anyio.run(use, True)
    assert len(addresses) == 2
    assert len(set(addresses)) == 1
    assert servers() == []


def test_a_thread_that_measures_again_has_one_server_until_it_ends(model: Path) -> None:
    running: list[list[int]] = []

    def measure() -> None:
        metric = tree()
        metric.model = judge_of(model)
        for case in CASES[:2]:
            with suppress(MetricFailedError):  # what noise says may not be an answer
                metric.measure(case, _show_indicator=False)
            assert metric.score is not None or "token limit" in str(metric.error)
            running.append(servers())

    thread = threading.Thread(target=measure)
    thread.start()
    thread.join()
    assert len(running[0]) == 1
    assert running == [running[0]] * 2
    gc.collect()
    assert servers() == []


def test_a_judge_that_was_sent_to_another_process_is_the_same_without_the_key(model: Path) -> None:
    judge = judge_of(model)
    sent = pickle.loads(pickle.dumps(judge))
    assert (sent.identity, sent.window, sent.places) == (judge.identity, 1024, 2)

    async def key_and_pickle() -> tuple[str, bytes]:
        async with judge.session() as client:
            return client.api.api_key, pickle.dumps(judge)

    key, content = anyio.run(key_and_pickle)
    assert key.encode() not in content


@pytest.mark.parametrize(
    ("ending", "forks"),
    [
        (signal.SIGINT, False),
        (signal.SIGTERM, False),
        (signal.SIGKILL, False),
        (signal.SIGKILL, True),  # the forked process keeps the pipe to the server open
    ],
)
def test_the_server_ends_when_its_program_is_ended(
    model: Path, ending: signal.Signals, forks: bool
) -> None:
    program = start_program(HOLDING, str(model), *(["fork"] * forks))
    try:
        while not program.printed.endswith("\n"):
            assert program.poll() is None, program.ended().stderr
            time.sleep(0.01)
        (server,) = servers(program.pid)
        program.send_signal(ending)
        wait_until_gone(server)
    finally:
        program.kill()
        if forks:
            os.kill(int(program.printed), signal.SIGKILL)
        program.ended()


@pytest.mark.anyio
async def test_questions_to_a_server_that_died_say_so_with_its_file(model: Path) -> None:
    failures: list[str] = []

    def end_server(attempt: object) -> None:
        for pid in servers():
            os.kill(pid, signal.SIGKILL)

    done = await a_evaluate(
        CASES * 3,
        [tree()],
        model=judge_of(model),
        limits=Limits(max_in_flight=1, reasks=0, backoff=0.01),
        show=False,
        on_attempt=end_server,
    )
    failures = [row.metrics[0].failure.message for row in done if row.metrics[0].failure]
    assert any(
        "random.gguf was killed by signal 9; the machine may have" in text for text in failures
    )


@pytest.mark.anyio
async def test_weights_that_are_not_all_there_are_an_error_with_the_words_of_llama(
    model: Path, tmp_path: Path
) -> None:
    short = tmp_path / "short.gguf"
    short.write_bytes(model.read_bytes()[:-1000])
    with pytest.raises(JudgeSetupError, match=r"short\.gguf ended with status 1: .*not within"):
        async with GGUFJudge(short).session():
            pass
    assert servers() == []


def test_without_the_package_nothing_is_started(
    model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    judge = judge_of(model)
    monkeypatch.setitem(sys.modules, "xllamacpp", None)
    with pytest.raises(MissingExtraError, match=r'pip install "dagengine\[llama\]"'):
        anyio.run(judge.require_reachable)

    async def use() -> None:
        async with judge.session():
            raise AssertionError("it was started")

    with pytest.raises(MissingExtraError):
        anyio.run(use)
    monkeypatch.undo()
    assert servers() == []


def test_the_command_line_takes_a_model_file(model: Path, tmp_path: Path) -> None:
    (tmp_path / "metrics.py").write_text(METRIC)
    (tmp_path / "cases.jsonl").write_text('{"input": "a"}\n{"input": "b"}\n')
    done = run_command(
        tmp_path, "run", "metrics.py", "--data", "cases.jsonl",
        "--judge", f"gguf:{model}", "--store", "answers.db", "--no-page",
    )  # fmt: skip
    assert done.returncode in (0, 3), done.stderr
    rows = (tmp_path / "out" / "results.jsonl").read_text()
    assert rows.count("\n") == 2
    assert "provider_error" not in rows
