"""Files that the command line runs: what they may import, and what is left of it."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from dagengine.cli import app
from dagengine.errors import InputError
from dagengine.loading import load_judge, load_metrics

METRICS = """
from words_beside import CRITERION
from dagengine.metrics import DAGMetric
from dagengine.metrics.dag import DAG, BinaryJudgementNode

metric = DAGMetric("m", DAG(BinaryJudgementNode(
    CRITERION, evaluation_params=["actual_output"], then={True: 10, False: 0})))
"""


def test_a_file_of_metrics_may_import_the_files_beside_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "words_beside.py").write_text("CRITERION = 'Is it kind?'\n")
    (tmp_path / "metrics.py").write_text(METRICS)
    (tmp_path / "judge.py").write_text(
        "from words_beside import CRITERION\n"
        "from dagengine.judges import ScriptedJudge\n"
        "judge = ScriptedJudge(lambda question: True, name=CRITERION)\n"
    )
    monkeypatch.chdir(tmp_path.parent)
    monkeypatch.delitem(sys.modules, "words_beside", raising=False)
    before = list(sys.path)
    (metric,) = load_metrics(f"{tmp_path.name}/metrics.py")
    assert metric.spec().graph.nodes()[0].text == "Is it kind?"
    assert load_judge(f"{tmp_path.name}/judge.py:judge", None).identity.startswith("Is it kind?")
    assert sys.path == before


def test_a_file_that_fails_leaves_the_path_as_it_was(tmp_path: Path) -> None:
    (tmp_path / "metrics.py").write_text("import nothing_beside\n")
    before = list(sys.path)
    with pytest.raises(InputError, match="line 1: ModuleNotFoundError: No module named"):
        load_metrics(str(tmp_path / "metrics.py"))
    assert sys.path == before


COPIES = """
from dagengine.attacking import defended
from dagengine.metrics import DAGMetric
from dagengine.metrics.dag import DAG, BinaryJudgementNode
from dagengine.voting import judged_by, quoted, voted

good = BinaryJudgementNode("Is it kind?", evaluation_params=["actual_output"],
                           then={True: 10, False: 0}, name="Kind")
"""
PLAIN = f'{COPIES}plain = DAGMetric("Polite", DAG(good))\nother = DAGMetric("Other", DAG(good))\n'


@pytest.mark.parametrize(
    ("code", "replaced"),
    [
        (f'{PLAIN}sure = judged_by(plain, ["a", "b", "c"])', "plain"),
        (f'{PLAIN}first = quoted(plain)\nsure = voted(first)', "first and plain"),
        (f'{PLAIN}sure = defended(plain, "gate")', "plain"),
        (f'{COPIES}other = DAG(good)\nsure = voted(other)', "other"),
    ],
    ids=["judged", "twice", "defended", "graph"],
)  # fmt: skip
def test_a_copy_takes_the_place_of_its_original(code: str, replaced: str, tmp_path: Path) -> None:
    file = tmp_path / "metrics.py"
    file.write_text(code)
    lines: list[str] = []
    names = {metric.spec().name for metric in load_metrics(str(file), on_copy=lines.append)}
    assert names == ({"metrics"} if replaced == "other" else {"Polite", "Other"})
    assert lines == [f"sure takes the place of {replaced}, which it was made from"]
    done = CliRunner().invoke(app, ["check", str(file)])
    assert (done.exit_code, lines[0] in done.output) == (0, True)
    assert len(load_metrics(f"{file}:{replaced.split()[0]}")) == 1  # each can be had by its name


def test_two_copies_of_one_original_are_refused_with_the_names_of_both(tmp_path: Path) -> None:
    file = tmp_path / "metrics.py"
    file.write_text(
        f'{PLAIN}sure = voted(plain)\njury = [judged_by(quoted(plain), ["a", "b", "c"])]'
    )
    with pytest.raises(InputError) as refusal:
        load_metrics(str(file))
    assert "sure and jury are copies of one metric" in str(refusal.value)
    assert f"{file}:sure or {file}:jury" in str(refusal.value)
