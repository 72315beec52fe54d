"""`dagengine improve`: what it prints, and what it leaves in its folder."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest
from graphs import misread
from typer.testing import CliRunner, Result

from dagengine.cli.commands import app
from dagengine.record.reader import load_run
from dagengine.system.terminal_text import plain

COUNT = 100


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    Path("metrics.py").write_text(misread.METRICS, encoding="utf-8")
    Path("judge.py").write_text(misread.JUDGE, encoding="utf-8")
    rows = [
        {
            "name": case.name,
            "input": case.input,
            "actual_output": case.actual_output,
            "additional_metadata": {"label": "pass" if good else "fail"},
        }
        for case, good in zip(
            misread.cases(COUNT), misread.labels(COUNT, sources=True).values(), strict=True
        )
    ]
    lines = "".join(f"{json.dumps(row)}\n" for row in rows)
    Path("cases.jsonl").write_text(lines, encoding="utf-8")
    return tmp_path


def run(*more: str) -> Result:
    command = "improve metrics.py --data cases.jsonl --labels additional_metadata.label --times 1"
    return CliRunner().invoke(app, [*command.split(), "--judge", "judge.py:judge", *more])


def test_a_plan_makes_no_call_and_no_file(folder: Path) -> None:
    done = run("--plan")
    assert done.exit_code == 0, done.output
    assert "criterion rewritten, b" in done.output
    assert "p values are corrected for" in done.output
    assert not Path("improve").exists()


def test_a_search_leaves_a_patch_a_page_pictures_and_a_run(
    folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    done = run("--out", "runs/1")
    assert done.exit_code == 0, done.output
    assert "other words" not in caplog.text  # it puts nodes in other words on purpose
    out = folder / "runs" / "1"
    assert "✓ New wording for Tone: agreement up " in done.output
    assert "next  git apply runs/1/metrics.patch" in done.output
    record = json.loads((out / "improve.json").read_text(encoding="utf-8"))
    sha256 = record["split"]["sha256"]
    assert load_run(out).manifest.settings["hyperparameters"] == {"sealed part": sha256}
    assert record["sealed_part"]["sha256"] == sha256
    assert len(record["sealed_part"]["looks"]) == 1
    assert [row["rung"] for row in record["candidates"] if not row["refused"]] == ["criterion"]
    page = (out / "improve.html").read_text(encoding="utf-8")
    assert misread.RULE in page
    assert "<script" not in page
    assert {"before.svg", "after.svg"} <= {path.name for path in out.iterdir()}
    subprocess.run(["git", "apply", "runs/1/metrics.patch"], check=True)
    assert misread.RULE in Path("metrics.py").read_text(encoding="utf-8")

    # Again: nothing is asked. For another change: the second look is warned of.
    Path("metrics.py").write_text(misread.METRICS, encoding="utf-8")
    again = run("--out", "runs/1")
    assert "0 calls;" in again.output
    assert "opened" not in again.output.replace("opened once", "")
    judge = Path("judge.py").read_text(encoding="utf-8")
    Path("judge.py").write_text(judge.replace("polite; {RULE}", "kind; {RULE}"), encoding="utf-8")
    second = run("--out", "runs/2")
    assert "the sealed part was opened before, for 1 change in folders beside" in second.output
    assert "the sealed part was opened 1 time before, for other changes" in second.output


def test_the_page_has_no_hidden_character_and_loads_nothing(folder: Path) -> None:
    named = misread.METRICS.replace('"Manners"', '"Man\\u202e\\x1b<img>ners"')
    Path("metrics.py").write_text(named, encoding="utf-8")
    assert run().exit_code == 0
    page = Path("improve/improve.html").read_text(encoding="utf-8")
    assert r"Man\u202e\x1b&lt;img&gt;ners" in page
    assert page == plain(page)
    assert "default-src 'none'" in page


def test_a_limit_says_how_to_go_on(folder: Path) -> None:
    done = run("--max-calls", "20")
    assert done.exit_code != 0
    assert "the limit of calls or money is reached" in str(done.exception)
    assert (folder / "improve" / "answers.db").exists()


def test_several_metrics_need_a_choice(folder: Path) -> None:
    more = misread.METRICS + 'second = DAGMetric("Second", DAG(sources))\n'
    Path("metrics.py").write_text(more, encoding="utf-8")
    assert "choose one, metrics.py:NAME" in str(run("--plan").exception)
