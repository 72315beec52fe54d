"""Runs on several processes: the same rows, whatever happens to the workers."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import pytest
from programs.commands import Started, start_command
from programs.worker_processes import Unreadable, fork_workers, raising, unreadable, waiting
from servers.dask_cluster import dask_cluster
from servers.openai_server import OpenAIServer
from typer.testing import CliRunner

from dagengine.cli import app
from dagengine.data.golden import Golden
from dagengine.data.result_files import read_rows
from dagengine.data.written_lines import beside
from dagengine.errors import InputError, MissingExtraError, ProviderError
from dagengine.evaluation import a_evaluate, evaluate, stream
from dagengine.execution import Workers, sync
from dagengine.execution.cases_and_rows import OnRow, RowsInOrder
from dagengine.execution.cluster import coordinator as cluster
from dagengine.execution.cluster import processes
from dagengine.gateway import Limits
from dagengine.judges import OpenAIBatchJudge, ScriptedJudge
from dagengine.metrics import DAGMetric
from dagengine.metrics.dag import DAG, BinaryJudgementNode
from dagengine.question import Question, Usage
from dagengine.record.reader import load_run
from dagengine.results import CaseResult, Totals, Waiting
from dagengine.store import claims
from dagengine.test_case import LLMTestCase

pytest.importorskip("distributed")

METRICS = """
from dagengine.metrics import DAGMetric
from dagengine.metrics.dag import DAG, BinaryJudgementNode, TaskNode

rules = TaskNode("Write down the rules", "rules", output_type=list[str], name="rules")
kind = BinaryJudgementNode(
    "Is it kind?", evaluation_params=["actual_output"], inputs=[rules],
    then={True: 10, False: 4}, name="kind",
)
short = BinaryJudgementNode(
    "Is it short?", evaluation_params=["actual_output"], then={True: kind, False: 0}, name="short"
)
metric = DAGMetric("Good manners", DAG(short))
"""

# Writes down who asks what, and whose rules they are.
JUDGE = """
import os
from pathlib import Path

from dagengine.judges import ScriptedJudge
from dagengine.store.database import key_of

LOG = Path(__file__).with_name("asked.txt")

def answer(question):
    with LOG.open("a") as log:
        log.write(f"{key_of('scripted pupil', question).hex()} {question.name}\\n")
    text = question.messages[-1]["content"]
    if question.name == "rules":
        return {"output": [RULES]}
    dies(text)
    return question.name in text

def dies(text):
    pass

RULES = "Be brief."
judge = ScriptedJudge(answer, name="pupil")
"""
PERSONAL = 'RULES = f"As {os.getpid()} says."\njudge = ScriptedJudge(answer)\n'

# Before its first end this worker writes down what is safe in the store.
DIES_ONCE = """
import signal
import sqlite3
from contextlib import closing

def dies(text):
    note = LOG.with_name("safe.txt")
    if "fatal" in text and not note.exists():
        with closing(sqlite3.connect(LOG.with_name("answers.db"))) as db:
            keys = [key.hex() for key, in db.execute("SELECT key FROM answers")]
        note.write_text(" ".join(keys))
        os.kill(os.getpid(), signal.SIGKILL)
"""
DIES_ALWAYS = """
import signal

def dies(text):
    if "fatal" in text:
        os.kill(os.getpid(), signal.SIGKILL)
"""

SPOILS = """
import sqlite3
from contextlib import closing

def dies(text):
    if "fatal" in text:
        with closing(sqlite3.connect(LOG.with_name("answers.db"))) as db:
            db.execute("DROP TABLE answers")
"""


@pytest.fixture(scope="module")
def scheduler() -> Iterator[str]:
    """A scheduler with two workers, which are replaced when they die."""
    with dask_cluster() as address:
        yield address


@pytest.fixture
def address(monkeypatch: pytest.MonkeyPatch) -> str:
    """Two processes of this machine, forked from one that has its imports behind it."""
    monkeypatch.setattr("os.cpu_count", lambda: 2)
    fork_workers(monkeypatch)
    return "local"


@pytest.fixture(params=["processes", "Dask"])
def either(request: pytest.FixtureRequest) -> str:
    """Workers of either kind, two of them."""
    name = "address" if request.param == "processes" else "scheduler"
    found: str = request.getfixturevalue(name)
    return found


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "metrics.py").write_text(METRICS)
    (tmp_path / "judge.py").write_text(JUDGE)
    write_cases(tmp_path, 40)
    return tmp_path


def write_cases(folder: Path, count: int, fatal: int = -1) -> None:
    outputs = ["kind and short", "long", "short"]
    rows = [{"input": "a", "actual_output": f"{i} {outputs[i % 3]}"} for i in range(count)]
    if fatal >= 0:
        rows[fatal]["actual_output"] += " fatal"
    (folder / "cases.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))


def run(folder: Path, *options: str, out: str = "out", code: int = 0) -> str:
    """Run in this process; returns what was printed, or raises what the run raises."""
    files = [str(folder / "metrics.py"), "--data", str(folder / "cases.jsonl")]
    judge = ["--judge", f"{folder / 'judge.py'}:judge", "--out", str(folder / out)]
    done = CliRunner().invoke(app, ["run", *files, *judge, *options])
    if isinstance(done.exception, Exception):
        raise done.exception
    assert done.exit_code == code, done.output
    return done.output


def results(folder: Path, out: str = "out") -> bytes:
    return (folder / out / "results.jsonl").read_bytes()


def asked(folder: Path) -> Counter[str]:
    return Counter((folder / "asked.txt").read_text().splitlines())


def test_the_rows_are_those_of_a_local_run_and_nothing_is_asked_twice(
    folder: Path, either: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dagengine.data.row_readers.CHECKED", 201)  # beforehand
    write_cases(folder, 201)
    with (folder / "cases.jsonl").open("a") as cases:
        cases.write('{"input": "nothing said"}\n[]\n')
    local = run(folder, out="local", code=3)
    questions = asked(folder)
    (folder / "asked.txt").unlink()
    spread = run(folder, "--cluster", either, "--workers", "2", "--max-in-flight", "4", code=3)
    assert results(folder) == results(folder, "local")
    rows = results(folder).splitlines()
    assert [json.loads(row)["index"] for row in rows] == list(range(203))
    assert b"missing_field" in rows[-2]
    assert b"invalid_case" in rows[-1]
    assert asked(folder) == questions
    costs = [re.findall(r"[\d,]+ questions, [\d,]+ judge calls", text) for text in (local, spread)]
    assert costs[0] == costs[1] != []


def test_what_no_case_reaches_is_the_same_on_all_workers_without_a_store(
    folder: Path, address: str
) -> None:
    (folder / "judge.py").write_text(JUDGE + PERSONAL)
    run(folder, "--cluster", address)
    assert set(re.findall(rb"As \d+ says", results(folder))) == {b"As %d says" % os.getpid()}
    assert sum(n for line, n in asked(folder).items() if line.endswith("rules")) == 1


def test_a_run_does_not_begin_without_the_answer_that_all_workers_need(
    folder: Path, address: str
) -> None:
    down = """
from dagengine.errors import ProviderError
judge = ScriptedJudge({"rules": ProviderError("down for today", transient=False)})
"""
    (folder / "judge.py").write_text(JUDGE + down)
    with pytest.raises(InputError, match=r"at rules: down for today .*once for all cases"):
        run(folder, "--cluster", address)
    assert not (folder / "out" / "results.jsonl").exists()


def test_a_killed_worker_costs_no_row_doubles_none_and_nothing_stored_is_asked_again(
    folder: Path, either: str
) -> None:
    write_cases(folder, 60, fatal=45)
    run(folder, out="local")
    (folder / "asked.txt").unlink()
    (folder / "judge.py").write_text(with_end(DIES_ONCE))
    run(folder, "--cluster", either, "--store", str(folder / "answers.db"))
    assert results(folder) == results(folder, "local")
    repeated = {line.split()[0] for line, count in asked(folder).items() if count > 1}
    safe = set((folder / "safe.txt").read_text().split())
    assert repeated
    assert safe
    assert not repeated & safe


def with_end(end: str) -> str:
    """The judge that has another end than to answer."""
    return JUDGE.replace("def dies(text):\n    pass\n", end)


def test_an_app_completes_goldens_on_the_workers(folder: Path, address: str) -> None:
    (folder / "app.py").write_text(
        "async def answer(text):\n"
        "    if text == 'a9':\n"
        "        raise RuntimeError('the app is down')\n"
        "    return text + ' short'\n"
    )
    goldens = "".join(json.dumps({"input": f"a{number}"}) + "\n" for number in range(20))
    (folder / "cases.jsonl").write_text(goldens)
    application = ("--app", f"{folder / 'app.py'}:answer")
    run(folder, *application, out="local", code=3)
    run(folder, *application, "--cluster", address, code=3)
    assert results(folder) == results(folder, "local")
    assert b"the app is down (app.py line 3)" in results(folder)


def test_a_replay_on_workers_asks_nobody(folder: Path, address: str) -> None:
    store = ("--store", str(folder / "answers.db"))
    run(folder, *store, out="local")
    (folder / "asked.txt").unlink()
    run(folder, *store, "--replay", "--cluster", address)
    assert results(folder) == results(folder, "local")
    assert not (folder / "asked.txt").exists()


def test_what_a_worker_cannot_load_ends_the_run_and_says_where(folder: Path, address: str) -> None:
    here = f"import os\nif os.getpid() != {os.getpid()}:\n    raise OSError('no model here')\n"
    (folder / "judge.py").write_text(here + JUDGE)
    with pytest.raises(InputError, match=r"on a worker: .*judge.py line 3: OSError: no model here"):
        run(folder, "--cluster", address)


def test_a_store_that_fails_on_a_worker_ends_the_run(folder: Path, address: str) -> None:
    write_cases(folder, 40, fatal=7)
    (folder / "judge.py").write_text(with_end(SPOILS))
    with pytest.raises(InputError, match=r"on a worker: the store .*answers\.db: .*no such table"):
        run(folder, "--cluster", address, "--store", str(folder / "answers.db"))


def test_cases_that_kill_every_worker_end_the_run(folder: Path, address: str) -> None:
    write_cases(folder, 30, fatal=21)
    (folder / "judge.py").write_text(with_end(DIES_ALWAYS))
    with pytest.raises(InputError, match=r"died again and again while the cases from \d+ on"):
        run(folder, "--cluster", address)


def test_an_address_where_nobody_answers_is_named(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # An attempt that is cut off leaves its socket open.
    monkeypatch.setattr("dagengine.execution.cluster.dask_cluster._PATIENCE", 0)
    with pytest.raises(InputError, match=r"no Dask scheduler .* tcp://127\.0\.0\.1:9: .*dask sch"):
        run(folder, "--cluster", "tcp://127.0.0.1:9")
    assert not (folder / "asked.txt").exists()


def test_workers_that_are_not_there_are_missed(
    folder: Path, scheduler: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dagengine.execution.cluster.dask_cluster._PATIENCE", 3)
    with pytest.raises(InputError, match=r"has \d of 9 workers"):
        run(folder, "--cluster", scheduler, "--workers", "9")


def test_without_dask_the_extra_is_named(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "distributed", None)
    with pytest.raises(MissingExtraError, match=r"dagengine\[cluster\]"):
        run(folder, "--cluster", "tcp://127.0.0.1:9")


def test_processes_are_a_cluster_on_this_machine(folder: Path) -> None:
    write_cases(folder, 20)
    one = run(folder, out="one")
    two = run(folder, "--processes", "2", out="two")
    assert two.replace("two", "one") == one
    assert results(folder, "two") == results(folder, "one")
    said = run(folder, "--processes", "2", "--cluster", "local", code=2)
    assert "--processes 2 is short for --cluster local --workers 2" in said


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ("--cluster local --batch", "--batch works in one process only"),
        ("--cluster local --trace", "--trace works in one process only"),
    ],
)
def test_options_that_a_cluster_cannot_keep_are_refused_with_a_reason(
    folder: Path, options: str, says: str
) -> None:
    with pytest.raises(InputError, match=f"{says}: on a cluster, .*; leave it out"):
        run(folder, *options.split())


def test_workers_make_no_more_calls_than_the_run_may(folder: Path, either: str) -> None:
    run(folder, "--cluster", either, "--workers", "2", "--max-calls", "17", code=3)
    assert asked(folder).total() == 17
    assert b"the run has used its 17 calls" in results(folder)


@pytest.mark.parametrize(
    ("either", "at_once"), [("processes", 1), ("processes", 7), ("Dask", 7)], indirect=["either"]
)
def test_workers_spend_one_budget_and_share_the_calls_at_once(
    folder: Path, either: str, at_once: int
) -> None:
    """As the server counts them, at one dollar for each token of a prompt."""
    write_cases(folder, 60)
    with OpenAIServer() as server:
        options = ["--judge", "any", "--base-url", server.base_url, "--price", "1000000,0"]
        limits = ["--budget", "4000", "--max-in-flight", str(at_once), "--cluster", either]
        run(folder, *options, *limits, code=3)
    words = [
        len(message["content"].split()) for body in server.requests for message in body["messages"]
    ]
    assert 2000 < sum(words) <= 4000
    assert server.in_flight_max <= at_once
    assert b"of the budget of $4000 are spent" in results(folder)


def test_equal_questions_are_asked_once_by_all_workers_without_a_store(
    folder: Path, either: str
) -> None:
    lines = (folder / "cases.jsonl").read_text()
    (folder / "cases.jsonl").write_text(lines * 8)
    one = run(folder, out="one")
    questions = asked(folder)
    (folder / "asked.txt").unlink()
    two = run(folder, "--cluster", either, "--workers", "2", out="two")
    assert asked(folder) == questions
    assert set(questions.values()) == {1}
    assert results(folder, "two") == results(folder, "one")
    assert two.replace("two", "one") == one


def test_processes_with_a_store_share_answers_where_a_system_has_no_locks(
    folder: Path, address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cluster, "available", False)
    lines = (folder / "cases.jsonl").read_text()
    (folder / "cases.jsonl").write_text(lines * 8)
    monkeypatch.setattr(claims, "available", False)
    run(folder, "--cluster", address, "--store", str(folder / "answers.db"))
    assert set(asked(folder).values()) == {1}


def test_workers_without_a_cluster_are_refused(folder: Path) -> None:
    said = run(folder, "--workers", "2", code=2)
    assert "--workers needs --cluster" in " ".join(said.replace("│", " ").split())


# -- metrics, judges and cases of Python code -------------------------------------------------


def manners() -> DAGMetric:
    kind = BinaryJudgementNode(
        "Is it kind?", evaluation_params=["actual_output"], then={True: 10, False: 4}, name="kind"
    )
    return DAGMetric("Manners", DAG(kind))


def pupil() -> ScriptedJudge:
    """A judge whose function is sent whole, as those of a script are."""
    return ScriptedJudge(lambda question: "kind" in question.messages[-1]["content"], name="pupil")


TEXTS = [LLMTestCase(input="a", actual_output=("kind" if n % 3 else "rude")) for n in range(30)]


@pytest.mark.parametrize("anyio_backend", ["asyncio"])
@pytest.mark.anyio
async def test_a_cluster_judges_by_objects_of_python_code(address: str, tmp_path: Path) -> None:
    local = await a_evaluate(TEXTS, [manners()], model=pupil(), show=False)
    spread = await a_evaluate(
        TEXTS, [manners()], model=pupil(), show=False, cluster=Workers(address, 2)
    )
    assert spread.rows == local.rows
    assert (spread.totals.asked, local.totals.asked) == (30, 30)


def test_a_cluster_serves_code_without_an_event_loop_and_keeps_a_store(
    address: str, tmp_path: Path
) -> None:
    store = tmp_path / "answers.db"
    given: Any = {"model": pupil(), "store": store, "cluster": address, "show": False}
    first = evaluate(TEXTS, [manners()], **given)
    assert store.exists()
    again = evaluate(TEXTS, [manners()], **given)
    assert again.rows == first.rows
    assert (first.totals.calls > 0, again.totals.calls) == (True, 0)


async def seen_while_all_questions_wait(address: str) -> tuple[Totals, list[Waiting]]:
    """What is known of a run before its first row, as all of its questions were rejected."""

    def rejected(question: Question[Any]) -> bool:
        raise ProviderError("later", transient=True, status=429, retry_after=3_600.0)

    settings: Any = {"model": ScriptedJudge(rejected), "limits": Limits(patience=7_200.0)}
    run, rows = cluster.cluster_of([manners()], settings, Workers(address, 2)), list[CaseResult]()
    seen = list[tuple[Totals, list[Waiting]]]()
    async with anyio.create_task_group() as group:
        group.start_soon(run.judge, run.cases(TEXTS), OnRow(rows.append))
        while not (run.waiting and run.totals.calls):
            await anyio.sleep(0.01)
        seen.append((run.totals, list(run.waiting)))
        group.cancel_scope.cancel()
    assert not rows
    return seen[0]


def test_what_workers_wait_for_is_known_before_the_first_row(
    either: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cluster, "_LOOK", 0.05)
    totals, waiting = anyio.run(seen_while_all_questions_wait, either)
    assert [one.why for one in waiting] == ["429"]
    assert 0 < waiting[0].seconds <= 3_600
    assert totals.calls > 0


def test_a_judge_that_cannot_be_sent_is_made_in_every_process(address: str) -> None:
    def make() -> dict[str, Any]:
        judge = ScriptedJudge(
            lambda question: "kind" in question.messages[-1]["content"].split("\n")[1]
        )
        judge.connection = threading.Lock()  # type: ignore[attr-defined]
        return {"model": judge}

    rows: list[CaseResult] = []
    workers = Workers(address, make=make)
    totals = sync(lambda: stream(TEXTS, [manners()], rows.append, cluster=workers))
    assert [row.metrics[0].score for row in rows] == [0.4 if n % 3 == 0 else 1 for n in range(30)]
    assert totals.asked == 30


def test_a_module_that_the_workers_lack_is_named(address: str) -> None:
    workers = Workers(address, make=lambda: {"model": pupil()})  # of this module
    with pytest.raises(InputError, match=r"on a worker: .*No module named .*every worker needs"):
        evaluate(TEXTS, [manners()], cluster=workers, show=False)


def with_a_lock(metric: DAGMetric) -> DAGMetric:
    metric.lock = threading.Lock()  # type: ignore[attr-defined]
    return metric


async def one_by_one() -> AsyncIterator[LLMTestCase]:
    yield TEXTS[0]


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"model": threading.Lock()}, "is not a judge"),
        ({"metrics": [with_a_lock(manners())]}, "metric 'Manners' cannot be sent .*make="),
        ({"app": partial(print, threading.Lock())}, "`app` cannot be sent .*make="),
        ({"on_attempt": print}, "on_attempt works in one process only"),
        ({"tracer": object()}, "tracer works in one process only"),
        ({"model": OpenAIBatchJudge("gpt-4o")}, "batch works in one process only"),
        ({"cluster": Workers(make=lambda: {"model": pupil()})}, "`model` is given twice"),
        ({"test_cases": one_by_one()}, "cannot read cases from an async iterator"),
    ],
)
def test_what_a_cluster_cannot_do_is_refused_before_a_worker_is_started(
    change: dict[str, Any], says: str
) -> None:
    given = {"test_cases": TEXTS, "metrics": [manners()], "model": pupil(), "cluster": "local"}
    with pytest.raises(InputError, match=says):
        evaluate(**{**given, **change}, show=False)


@pytest.mark.parametrize("anyio_backend", ["trio"])
@pytest.mark.anyio
async def test_a_cluster_says_that_it_needs_asyncio() -> None:
    with pytest.raises(InputError, match="works only with asyncio"):
        await a_evaluate(TEXTS, [manners()], model=pupil(), cluster="local", show=False)


def test_a_case_that_cannot_be_sent_is_named(address: str) -> None:
    case = LLMTestCase(input="a", additional_metadata={"lock": threading.Lock()})
    with pytest.raises(InputError, match="the chunk of case 0 cannot be sent"):
        evaluate([case], [manners()], model=pupil(), cluster=address, show=False)


def test_rows_that_cannot_be_sent_end_the_run(address: str) -> None:
    async def app(text: str) -> LLMTestCase:
        return LLMTestCase(input=text, additional_metadata={"lock": threading.Lock()})

    node = BinaryJudgementNode("?", evaluation_params=["input"], then={True: 10, False: 0})
    given: Any = {"app": app, "model": pupil(), "cluster": address, "show": False}
    with pytest.raises(TypeError, match="cannot pickle"):
        evaluate([Golden(input="a")] * 9, [DAGMetric("m", DAG(node))], **given)


WAITS = """
import anyio

async def waits(question):
    if "fatal" in question.messages[-1]["content"]:
        LOG.with_name("reached").touch()
        await anyio.sleep_forever()
    return answer(question)

judge = ScriptedJudge(waits)
"""


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="processes are found in /proc")
def test_an_interrupt_leaves_the_rows_and_no_process(folder: Path) -> None:
    write_cases(folder, 40, fatal=30)
    (folder / "judge.py").write_text(JUDGE + WAITS)
    command = "run metrics.py --data cases.jsonl --judge judge.py:judge --cluster local --workers 2"
    process = subprocess.Popen(
        [sys.executable, "-m", "dagengine", *command.split()],
        cwd=folder, stderr=subprocess.PIPE, text=True, start_new_session=True,
    )  # fmt: skip
    while not ((folder / "reached").exists() and (folder / "out" / "results.jsonl").exists()):
        assert process.poll() is None, process.communicate()
        time.sleep(0.05)
    os.killpg(process.pid, signal.SIGINT)  # what Ctrl-C does
    _, said = process.communicate(timeout=300)
    assert process.returncode == 130, said
    counted = re.search(r"interrupted: (\d+) of 40 rows", said)
    assert counted is not None, said
    rows = (folder / "out" / "results.jsonl").read_text().splitlines()
    assert len(rows) == int(counted[1])
    # A worker of Dask may be telling its scheduler that it lives when that one ends.
    assert not re.search(r'File ".*dagengine/(execution|gateway|cli)/', said), said
    while alive(process.pid):  # the last ones are just going
        time.sleep(0.05)


# Its first worker to see the fatal case ends when the file `waited` is there.
WAITS_AND_DIES = """
import anyio
import signal

async def waits(question):
    LOG.with_name(f"{os.getpid()}.process").touch()
    if "fatal" in question.messages[-1]["content"] and not LOG.with_name("died").exists():
        while not LOG.with_name("waited").exists():
            await anyio.sleep(0.01)
        LOG.with_name("died").touch()
        os.kill(os.getpid(), signal.SIGKILL)
    verdict = answer(question)
    return verdict if type(verdict) is dict else {"reason": str(os.getpid()), "verdict": verdict}

judge = ScriptedJudge(waits)
"""
# Eight places of two processes and four chunks each make chunks of eight cases.
CASES = 256


def started_until(folder: Path, rows: int) -> Started:
    """A run in two processes that has so many rows, of which those after case 0 wait for it."""
    (folder / "judge.py").write_text(JUDGE + WAITS_AND_DIES)
    command = "run metrics.py --data cases.jsonl --judge judge.py:judge --out out --processes 2"
    process = start_command(folder, *command.split())
    early = beside(folder / "out" / "results.jsonl")
    while not (early.exists() and early.read_bytes().count(b"\n") == rows):
        assert process.poll() is None
        time.sleep(0.02)
    return process


@pytest.mark.skipif(os.name == "nt", reason="there is no SIGKILL")
def test_killed_processes_lose_no_finished_row_of_a_chunk_in_progress(folder: Path) -> None:
    write_cases(folder, CASES, fatal=0)
    process = started_until(folder, CASES - 1)
    process.kill()
    process.ended()
    for name in folder.glob("*.process"):
        with suppress(ProcessLookupError):  # the workers end with it
            os.kill(int(name.stem), signal.SIGKILL)
    found = load_run(folder / "out")
    assert [row.index for row in found.rows()] == list(range(1, CASES))
    assert [case["index"] for case in found.cases()] == list(range(1, CASES))
    assert all(row.seconds is not None for row in found.timed_rows())


@pytest.mark.skipif(os.name == "nt", reason="there is no SIGKILL")
def test_rows_that_a_killed_worker_had_finished_are_not_taken_from_another(folder: Path) -> None:
    write_cases(folder, CASES, fatal=0)
    process = started_until(folder, CASES - 1)
    kept = list(read_rows(folder / "out" / "results.jsonl"))
    (folder / "waited").touch()
    assert process.ended().returncode == 0
    rows = list(read_rows(folder / "out" / "results.jsonl"))
    assert [row.index for row in rows] == list(range(CASES))
    assert rows[1:] == kept
    processes = {step.reason for row in rows for step in row.metrics[0].steps if step.reason}
    assert len(processes) == 3  # two, and one that judged case 0 again


def alive(session: int) -> list[int]:
    """The processes of a session that have not ended."""
    found: list[int] = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            state, _, _, leader = stat.read_text().rpartition(")")[2].split()[:4]
        except (FileNotFoundError, ProcessLookupError):
            continue
        if int(leader) == session and state not in "ZX":
            found.append(int(stat.parent.name))
    return found


async def ended_while_cancelled() -> int | None:
    """How a worker process ended whose run was cancelled at that moment."""
    worker = await processes._Process.start(lambda process, news: None)
    with anyio.CancelScope() as scope:
        scope.cancel()
        await worker.end()
    return worker._process.returncode


def test_a_worker_process_is_ended_also_while_its_run_is_cancelled() -> None:
    assert anyio.run(ended_while_cancelled) == 0


def test_what_cannot_be_read_of_a_request_or_a_reply_ends_its_own_call_only(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    fork_workers(monkeypatch)

    async def main() -> None:
        heard: Any = print
        async with processes.Pool.of(1, 2) as pool:
            with anyio.fail_after(60):
                with pytest.raises(ValueError, match="no number"):
                    await pool.submit(unreadable, 1, heard=heard)
                with pytest.raises(ValueError, match="no number"):
                    await pool.submit(unreadable, 0, Unreadable(), heard=heard)
                assert await pool.submit(unreadable, 0, heard=heard) == []

    asyncio.run(main())


@pytest.mark.parametrize("at_once", [False, True])
@pytest.mark.parametrize("kind", [StopIteration, SystemExit, asyncio.CancelledError, LookupError])
def test_whatever_ends_a_call_or_its_answer_is_heard(
    kind: type[BaseException], at_once: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if at_once and kind is SystemExit:
        pytest.skip("it ends the process, as a death does")
    fork_workers(monkeypatch)

    async def main() -> None:
        heard: Any = print
        async with processes.Pool.of(1, 2) as pool:
            beside = asyncio.ensure_future(pool.submit(waiting, heard=heard))
            with anyio.fail_after(60):
                with pytest.raises(Exception, match=r"read|cancelled|StopIteration"):
                    await pool.submit(partial(raising, kind, at_once=at_once), heard=heard)
                assert await pool.submit(unreadable, 0, heard=heard) == []
            assert not beside.done()
            beside.cancel()

    asyncio.run(main())


def test_totals_add_up_and_one_without_a_price_leaves_none() -> None:
    one = Totals(asked=3, shared=1, calls=2, usage=Usage(10, 5), cost=0.5)
    two = Totals(asked=4, cached=2, failed=1, retried=1, calls=3, usage=Usage(1, 1), cost=0.25)
    assert one + two == Totals(7, 1, 5, 1, 1, Usage(11, 6), 2, 0.75)
    assert (one + Totals()).cost is None


def test_rows_come_out_in_order_once_and_the_rest_is_kept_after_an_interrupt() -> None:
    out: list[str] = []
    done: list[str] = []
    rows = RowsInOrder(OnRow(lambda row: out.append(row.case), lambda row: done.append(row.case)))

    def add(text: str, said: str) -> None:
        for index in text:
            rows.add(CaseResult(int(index), index + said, ()))

    add("23", "a")
    assert out == []
    add("2013", "b")  # 2 and 3 were there
    assert (out, done) == (["0b", "1b", "2a", "3a"], ["2a", "3a", "0b", "1b"])
    add("067", "c")
    add("6", "d")
    rows.rest()
    assert out == ["0b", "1b", "2a", "3a", "6c", "7c"]
    assert done == ["2a", "3a", "0b", "1b", "6c", "7c"]
