"""Texts of any length and kind in pictures and their names, and what the library says of them."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from dagengine.cli import app
from dagengine.cli.render import stems
from dagengine.metrics import DAGMetric
from dagengine.metrics.dag import DAG, BinaryJudgementNode
from dagengine.report import draw
from dagengine.report.pictures.dot import without_font_warnings
from dagengine.results import MetricResult, OutcomeKind, Step


def metric(name: str = "Kind", node: str = "kind") -> DAGMetric:
    then = {True: 10, False: 0}
    return DAGMetric(
        name, DAG(BinaryJudgementNode(node, evaluation_params=["input"], then=then, name=node))
    )


def result(node: str = "kind", reason: str = "") -> MetricResult:
    step = Step(node, "binary", OutcomeKind.OK, verdict=True, reason=reason)
    return MetricResult("Kind", 1.0, True, "", path=((node, True),), steps=(step,))


@pytest.mark.parametrize("text", ["x", "ä'", "<&>", "a b ", "\x1b[2J\u202e", "\\N"])
def test_names_and_reasons_of_any_length_are_drawn(text: str) -> None:
    long = text * 16_000
    picture = draw(metric(long, long).spec(), result=result(long, long), case=long)
    assert b"<svg" in picture.layout("svg")


def test_a_long_name_of_a_metric_gives_a_name_that_a_file_may_have(tmp_path: Path) -> None:
    found = stems([metric(name).spec() for name in ("ä" * 16_000, "ä" * 16_000, "Kind")])
    assert found == ["ä" * 50, "ä" * 50 + "-2", "kind"]
    for stem in found:
        (tmp_path / f"{stem}-counts.svg").touch()


def test_a_run_of_a_case_with_a_long_name_ends_with_its_pictures(tmp_path: Path) -> None:
    (tmp_path / "m.py").write_text(
        "from dagengine.metrics import ExactMatchMetric\nmetric = ExactMatchMetric()\n"
    )
    name = "ä'" * 8000
    (tmp_path / "a.jsonl").write_text(
        f'{{"name": "{name}", "input": "a", "actual_output": "a", "expected_output": "a"}}'
    )
    command = ["run", str(tmp_path / "m.py"), "--data", str(tmp_path / "a.jsonl")]
    done = CliRunner().invoke(app, [*command, "--out", str(tmp_path / "out")])
    assert done.exit_code == 0, done.output
    assert len(list((tmp_path / "out").glob("*-path.*"))) == 1


def test_only_the_font_librarys_warnings_are_held_back(capfd: pytest.CaptureFixture[str]) -> None:
    with without_font_warnings():
        os.write(2, b'Fontconfig warning: "a.conf", line 6: unknown element\nother \x1b\xff\n')
    os.write(2, b"later\n")
    assert capfd.readouterr().err == "other \\x1b\\udcff\nlater\n"


def test_an_error_inside_gives_the_standard_error_back(capfd: pytest.CaptureFixture[str]) -> None:
    def failing() -> None:
        with without_font_warnings():
            os.write(2, b"said before\n")
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        failing()
    os.write(2, b"later\n")
    assert capfd.readouterr().err == "said before\nlater\n"


def test_a_picture_is_drawn_without_a_word(capfd: pytest.CaptureFixture[str]) -> None:
    draw(metric().spec()).layout("svg")
    assert capfd.readouterr().err == ""


PLAIN = """
import sys
from dagengine import evaluate
from dagengine.cli import main
from dagengine.judges import ScriptedJudge
from dagengine.metrics import DAGMetric
from dagengine.metrics.dag import DAG, BinaryJudgementNode
from dagengine.test_case import LLMTestCase

node = BinaryJudgementNode("ok?", evaluation_params=["input"], then={True: 10, False: 0})
metric = [DAGMetric(name, DAG(node)) for name in ("Polite \\xfc", "\\u793c", "\\u8c8c")]
judge = ScriptedJudge(lambda question: True, name="n")
if __name__ == "__main__":
    evaluate([LLMTestCase(name="F\\xe4ll", input="\\u2192")], metric, model=judge)
    sys.argv[1:] = ["run", "m.py", "--data", "a.jsonl", "--judge", "m.py:judge", "--out", "out"]
    sys.exit(main())
"""


def test_names_that_no_file_can_have_here_cost_no_run(tmp_path: Path) -> None:
    (tmp_path / "m.py").write_text(PLAIN, encoding="utf-8")
    (tmp_path / "a.jsonl").write_text('{"name": "F\\u00e4ll", "input": "\\u2192"}\n')
    plain = {**os.environ, "LC_ALL": "C", "PYTHONUTF8": "0"}
    done = subprocess.run(
        [sys.executable, "m.py"], cwd=tmp_path, env=plain, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert "warning: file names here are ascii, which lacks letters of 'Polite" in done.stderr
    assert r"Polite \xfc" in done.stdout
    names = {path.name for path in (tmp_path / "out").glob("*-tree.*")}
    assert {name.rpartition("-")[0] for name in names} == {"polite", "metric", "metric-2"}
