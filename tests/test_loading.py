"""Files that the command line runs: what they may import, and what is left of it."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

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
