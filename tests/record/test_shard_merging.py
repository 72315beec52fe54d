"""Shards: parts of a data set run apart, and one folder made of theirs."""

from __future__ import annotations

import json
import os
import random
import time
from dataclasses import asdict, replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from programs.commands import start_command
from typer.testing import CliRunner

from dagengine.cli import app
from dagengine.data.cases import Shard
from dagengine.errors import InputError
from dagengine.question import Usage
from dagengine.record import load_run
from dagengine.record.run_json_types import TotalsRecord
from dagengine.results import Totals

METRICS = """
from dagengine.metrics import DAGMetric
from dagengine.metrics.dag import DAG, BinaryJudgementNode, TaskNode

words = TaskNode("List the words", "words", evaluation_params=["input"], name="words")
kind = BinaryJudgementNode("Kind?", inputs=[words], then={True: 10, False: 4}, name="kind")
metric = DAGMetric("Kind", DAG(kind))
"""
JUDGE = """
import zlib
import anyio
from dagengine.judges import ScriptedJudge

async def answer(question):
    await anyio.sleep(0.002)
    text = question.messages[-1]["content"]
    return text.split("\\n")[1] if question.name == "words" else zlib.crc32(text.encode()) % 2 == 0

judge = ScriptedJudge(answer, name="checksum")
"""
CASES = 90


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    Path("metrics.py").write_text(METRICS, encoding="utf-8")
    Path("judge.py").write_text(JUDGE, encoding="utf-8")
    # No names: a row says which index its case has in the whole data set.
    rows = (json.dumps({"input": f"number {n}"}) for n in range(CASES))
    Path("cases.jsonl").write_text("".join(f"{row}\n" for row in rows), encoding="utf-8")
    return tmp_path


def command(out: str, *more: str) -> list[str]:
    given = ["run", "metrics.py", "--data", "cases.jsonl", "--judge", "judge.py", "--out", out]
    return [*given, *more]


def typed(*arguments: str, code: int = 0) -> str:
    done = CliRunner().invoke(app, arguments)
    if isinstance(done.exception, InputError):  # `main` prints it, and exits with 2
        assert code == 2
        return str(done.exception)
    assert done.exit_code == code, done.output
    return done.output


def shards(count: int, **more: str) -> list[str]:
    names = [f"part{number}" for number in range(1, count + 1)]
    for number, name in enumerate(names, 1):
        typed(*command(name, "--shard", f"{number}/{count}"))
    return names


@given(count=st.integers(1, 7), total=st.integers(0, 30))
def test_every_case_belongs_to_one_shard(count: int, total: int) -> None:
    parts = [list(Shard(number, count).part_of(range(total))) for number in range(1, count + 1)]
    assert sorted(index for part in parts for index in part) == list(range(total))
    assert [len(part) for part in parts] == [
        Shard(number, count).size(total) for number in range(1, count + 1)
    ]


@pytest.mark.parametrize("text", ["0/4", "5/4", "4", "1/0", "-1/4", "a/b", "1/4/2", "²/4"])
def test_a_part_that_there_is_not_is_refused(text: str) -> None:
    with pytest.raises(InputError, match="shard"):
        Shard.parse(text)


def test_merged_shards_are_what_one_run_leaves(folder: Path) -> None:
    parts = shards(4)
    once = typed(*command("whole"))
    said = typed("merge", parts[2], parts[0], parts[3], parts[1], "--out", "merged")
    for name in ("results.jsonl", "cases.jsonl"):
        assert Path("merged", name).read_bytes() == Path("whole", name).read_bytes()
    assert all(row.seconds is not None for row in load_run("merged").timed_rows())
    # Columns are those of the whole run, but for how long each case took.
    (ours,), (theirs,) = (load_run(name).blocks() for name in ("merged", "whole"))
    assert {**ours, "seconds.0": []} == {**theirs, "seconds.0": []}
    assert load_run("merged").columns() is not None
    merged, whole = load_run("merged").manifest, load_run("whole").manifest
    assert merged.counts == whole.counts
    assert merged.totals == whole.totals
    assert merged.settings == whole.settings
    assert [(u.node, u.calls) for u in merged.usage] == [(u.node, u.calls) for u in whole.usage]
    (line,) = (line for line in once.splitlines() if f"{2 * CASES} judge calls" in line)
    assert line in said.splitlines()


def test_sums_come_back_from_the_record_with_their_tokens() -> None:
    sums = Totals(9, 1, 7, 2, 1, Usage(300, 20, 100), 3, 0.5, damaged=1, requests=6, unneeded=2)
    fields = asdict(sums) | asdict(sums.usage)
    assert TotalsRecord.model_validate(fields).totals() == sums
    of_before = {**fields, "requests": None, "speculated": None, "unneeded": None}
    assert TotalsRecord.model_validate(of_before).totals() == replace(sums, requests=7, unneeded=0)


@pytest.mark.skipif(os.name == "nt", reason="there is no SIGKILL")
def test_shards_that_are_killed_go_on_from_their_stores(folder: Path) -> None:
    typed(*command("whole"))
    pick, names = random.Random(0), []
    for number in (1, 2):
        name, store = f"part{number}", f"answers{number}.db"
        again = command(name, "--shard", f"{number}/2", "--store", store)
        process = start_command(Path.cwd(), *again)
        rows, enough = Path(name, "results.jsonl"), pick.randrange(1, CASES // 4)
        while process.poll() is None:
            if rows.exists() and rows.read_bytes().count(b"\n") >= enough:
                process.kill()
                process.ended()
            time.sleep(0.001)
        typed(*again)
        names.append(name)
    typed("merge", *names, "--out", "merged")
    assert Path("merged/results.jsonl").read_bytes() == Path("whole/results.jsonl").read_bytes()


def test_what_is_not_all_shards_of_one_run_is_refused_before_anything_is_written(
    folder: Path,
) -> None:
    one, two = shards(2)
    typed(*command("whole"))
    typed(*command("third", "--shard", "1/3"))
    Path("cases.jsonl").write_text('{"input": "other"}\n{"input": "another"}\n', encoding="utf-8")
    typed(*command("changed", "--shard", "2/2"))
    manifest = Path(two, "run.json")
    for folders, what in {
        (one,): "the shards 2/2 are missing",
        (one, one, two): "are both the shard 1/2",
        (one, "whole"): "its run had no --shard",
        (one, "third"): "another number of shards",
        (one, "changed"): "other data",
    }.items():
        assert what in " ".join(typed("merge", *folders, "--out", "merged", code=2).split())
    manifest.write_text(json.dumps({**json.loads(manifest.read_text()), "exit": "interrupted"}))
    said = typed("merge", one, two, "--out", "merged", code=2)
    assert "is not finished: run its command again" in " ".join(said.split())
    assert not Path("merged").exists()
    assert "choose another folder for --out" in typed("merge", one, two, "--out", one, code=2)


def test_a_row_that_is_missing_is_named(folder: Path) -> None:
    one, two = shards(2)
    rows = Path(two, "results.jsonl")
    lines = rows.read_bytes().splitlines(keepends=True)
    rows.write_bytes(b"".join(lines[:3] + lines[4:]))
    said = typed("merge", one, two, "--out", "merged", code=2)
    assert "row 8 is in the place of row 7" in " ".join(said.split())


def test_a_merge_that_ended_early_leaves_a_run_that_is_not_finished_and_can_be_repeated(
    folder: Path,
) -> None:
    one, two = shards(2)
    typed("merge", one, two, "--out", "merged")
    whole, rows = Path("merged", "results.jsonl").read_bytes(), Path(two, "results.jsonl")
    lines = rows.read_bytes()
    rows.write_bytes(lines[: lines.rindex(b"\n", 0, -1) + 1])
    typed("merge", one, two, "--out", "merged", code=2)
    assert not load_run("merged").finished
    rows.write_bytes(lines)
    typed("merge", one, two, "--out", "merged")
    assert load_run("merged").finished
    assert Path("merged", "results.jsonl").read_bytes() == whole


def test_a_shard_is_no_part_of_a_cluster(folder: Path) -> None:
    assert "--shard" in typed(*command("out", "--shard", "1/2", "--cluster", "local"), code=2)
