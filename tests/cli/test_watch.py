"""`dagengine watch` on the command line: a folder, a port, a kill, and options that do not fit."""

from __future__ import annotations

import json
import os
import signal
import time
from pathlib import Path

import httpx2
import pytest
from folders.spans import export, trace_id, write
from programs.commands import run_command, start_command
from servers.score_server import ScoreServer

from dagengine.record.writer import sole_writer

METRICS = """
from dagengine.metrics import DAGMetric
from dagengine.metrics.dag import DAG, BinaryJudgementNode

reads, ends = ["input", "actual_output"], {True: 10, False: 0}
ok = BinaryJudgementNode("ok?", evaluation_params=reads, then=ends, name="ok")
metric = DAGMetric("Good", DAG(root_node=ok))
"""
JUDGE = """
import anyio
from dagengine.judges import ScriptedJudge


async def answer(question):
    await anyio.sleep(0.02)
    return "good" in question.messages[-1]["content"]


judge = ScriptedJudge(answer, name="scripted")
"""
STRATA = """
def stratum(case):
    return "odd" if int(case.input.split()[1]) % 2 else "even"
"""
QUICK = ["--quiet", "0", "--poll", "0.05", "--until-idle"]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name, text in {"metrics": METRICS, "judge": JUDGE, "strata": STRATA}.items():
        (tmp_path / f"{name}.py").write_text(text)
    write(tmp_path / "spans" / "a.jsonl", ["good"] * 60)
    return tmp_path


def command(*more: str) -> list[str]:
    return ["watch", "metrics.py", "spans", "--judge", "judge.py", *QUICK, *more]


def test_a_folder_is_judged_sent_and_shown(folder: Path) -> None:
    with ScoreServer() as server:
        done = run_command(folder, *command("--to", f"phoenix={server.url}"))
    assert done.returncode == 0, done.stderr
    assert "traces: 60 judged" in done.stdout
    assert "120 scores written" in done.stdout
    assert (folder / "out" / "report.html").exists()
    shown = run_command(folder, "show", "out")
    assert shown.returncode == 0
    assert "60" in shown.stdout


def test_an_alarm_is_printed_written_and_the_exit_code(folder: Path) -> None:
    write(folder / "spans" / "b.jsonl", ["bad"] * 40, first=61)
    done = run_command(folder, *command("--baseline", "50", "--again", "0"))
    assert done.returncode == 1, done.stdout + done.stderr
    assert "alarm at row " in done.stdout
    assert "cause: not known" in done.stdout  # no old question was asked again
    (line,) = (folder / "out" / "alerts.jsonl").read_text().splitlines()
    assert json.loads(line)["metric"] == "Good"
    again = run_command(folder, *command("--baseline", "50", "--again", "0"))
    assert (again.returncode, "alarm" in again.stdout) == (0, False)


def test_own_strata_have_their_rates(folder: Path) -> None:
    rates = ["--sample", "0.2", "--sample", "odd=1"]
    done = run_command(folder, *command("--strata", "strata.py:stratum", *rates))
    assert done.returncode == 0, done.stderr
    rows = map(json.loads, (folder / "out" / "results.jsonl").read_text().splitlines())
    strata = [row["trace"]["watch.stratum"] for row in rows]
    assert strata.count("odd") == 30
    assert 0 < strata.count("even") < 20


@pytest.mark.skipif(os.name == "nt", reason="there is no SIGKILL")
def test_a_port_takes_spans_and_a_kill_loses_none_that_were_accepted(folder: Path) -> None:
    arguments = [
        *("watch", "metrics.py", "--listen", "0"),
        *("--judge", "judge.py", "--quiet", "0", "--poll", "0.05"),
    ]
    sent = 0
    for kill in (True, True, False):
        process = start_command(folder, *arguments)
        while "\n" not in process.printed:
            assert process.poll() is None, process.ended().stderr
            time.sleep(0.01)
        address = process.printed.split()[2]
        for _ in range(10):
            sent += 1
            response = httpx2.post(f"{address}/v1/traces", json=export(sent))
            assert response.status_code == 200
        if not kill:
            rows_file = folder / "out" / "results.jsonl"
            while not (rows_file.exists() and rows_file.read_bytes().count(b"\n") >= sent):
                assert process.poll() is None, process.ended().stderr
                time.sleep(0.05)
        process.send_signal(signal.SIGKILL if kill else signal.SIGINT)
        done = process.ended()
        assert done.returncode == (-signal.SIGKILL if kill else 130), done.stderr
    assert f"traces: {sent} judged" in done.stdout
    rows = map(json.loads, (folder / "out" / "results.jsonl").read_text().splitlines())
    assert sorted(row["trace"]["trace_id"] for row in rows) == [
        trace_id(number) for number in range(1, sent + 1)
    ]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["metrics.py"], "name a folder of traces, or a port with --listen"),
        (["metrics.py", "spans", "--listen", "0"], "one of them"),
        (["metrics.py", "nowhere"], "nowhere is not a folder"),
        (["metrics.py", "metrics.py"], "metrics.py is not a folder"),
        (["metrics.py", "spans", "--sample", "2"], "above 0 and at most 1"),
        (["metrics.py", "spans", "--sample", "x"], "--sample is RATE or STRATUM=RATE"),
        (["metrics.py", "spans", "--sample", "error=1"], "there is no stratum 'error'"),
        (["metrics.py", "spans", "--sample", "1", "--sample", "1"], "two rates for all strata"),
        (["metrics.py", "spans", "--baseline", "3"], "at least 20"),
        (["metrics.py", "spans", "--baseline", "Good=1"], "inside of 0 and 1"),
        (["metrics.py", "spans", "--baseline", "Bad=0.5"], "names the metric 'Bad'"),
        (["metrics.py", "spans", "--strata", "metrics.py"], "has no 'stratum'"),
        (["metrics.py", "spans", "--to", "grafana"], "--to takes otlp"),
        (["metrics.py", "spans", "--strata", "strata.py", "--store", "strata.py"], "same file"),
        (["metrics.py", "spans", "--quiet", "inf"], "plain numbers"),
    ],
)
def test_what_does_not_fit_is_refused_before_anything_is_asked(
    folder: Path, arguments: list[str], message: str
) -> None:
    done = run_command(folder, "watch", *arguments, "--judge", "judge.py", *QUICK[2:])
    assert done.returncode == 2, done.stdout + done.stderr
    assert message in " ".join(done.stderr.replace("│", " ").split())
    assert not (folder / "out" / "run.json").exists()


def test_a_second_writer_is_refused(folder: Path) -> None:
    with sole_writer(folder / "out"):
        done = run_command(folder, *command())
    assert done.returncode == 2
    assert "out" in done.stderr
    assert not (folder / "out" / "results.jsonl").exists()


def test_a_folder_without_traces_says_so(folder: Path) -> None:
    (folder / "spans" / "a.jsonl").write_text("no\n")
    done = run_command(folder, *command())
    assert done.returncode == 2
    assert "spans has no traces" in done.stderr
    assert "1 line left out: not JSON (first in a.jsonl)" in done.stdout


def test_a_folder_of_another_run_stays_as_it_is(folder: Path) -> None:
    (folder / "cases.jsonl").write_text('{"input": "a", "actual_output": "good"}\n')
    run = run_command(
        folder, "run", "metrics.py", "--data", "cases.jsonl", "--judge", "judge.py", "--no-page"
    )
    assert run.returncode == 0, run.stderr
    before = (folder / "out" / "results.jsonl").read_bytes()
    done = run_command(folder, *command())
    assert done.returncode == 2
    assert "out has another kind of run: choose another folder for --out" in done.stderr
    assert (folder / "out" / "results.jsonl").read_bytes() == before
