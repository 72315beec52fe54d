"""Tree files where METRICS.py may stand, and the trees that runs keep."""

from __future__ import annotations

import json
import pickle
from pathlib import Path
from typing import Any

import pytest
from programs.commands import output_of

from dagengine.loading import Target, load_metrics
from dagengine.metrics import DAGMetric, FaithfulnessMetric
from dagengine.metrics.dag import DAG, BinaryJudgementNode
from dagengine.record import load_run
from dagengine.trees import text_of

CODE = """
from dagengine.judges import ScriptedJudge

def short(text):
    return len(text) < 10

judge = ScriptedJudge(lambda question: True, name="yes")
"""
CASES = '{"input": "a", "actual_output": "b"}\n{"input": "c", "actual_output": "a long answer"}\n'


def document(**settings: Any) -> dict[str, Any]:
    ways = [{"verdict": True, "score": 10}, {"verdict": False, "score": 0}]
    to_good = {"type": "node", "ref": "Good"}
    return {
        "name": "Answer",
        **settings,
        "roots": ["Short"],
        "nodes": {
            "Short": {
                "type": "CodeNode", "function": "metrics.py:short",
                "evaluation_params": ["actual_output"],
                "then": [{"verdict": True, "child": to_good}, {"verdict": False, "score": 0}],
            },
            "Good": {
                "type": "BinaryJudgementNode", "criteria": "Good?",
                "evaluation_params": ["actual_output"], "then": ways,
            },
        },
    }  # fmt: skip


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "metrics.py").write_text(CODE)
    (tmp_path / "cases.jsonl").write_text(CASES)
    (tmp_path / "tree.json").write_text(text_of(document()))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def run(out: str) -> str:
    words = ("--data", "cases.jsonl", "--judge", "metrics.py:judge", "--allow-code", "--out", out)
    return output_of("run", "tree.json", *words, "--no-page")


def test_commands_take_a_tree_file_and_run_its_code_only_if_told(folder: Path) -> None:
    with pytest.raises(ValueError, match=r"tree\.json: nodes\.Short\.function names code"):
        output_of("check", "tree.json")
    assert "ok: Answer" in output_of("check", "tree.json:Answer", "--allow-code")
    with pytest.raises(ValueError, match=r"no metric 'x'; it has Answer"):
        output_of("check", "tree.json:x", "--allow-code")
    output_of("render", "tree.json", "--allow-code", "--out", "tree.mmd")
    assert "Good" in (folder / "tree.mmd").read_text()
    planned = ("--data", "cases.jsonl", "--judge", "metrics.py:judge", "--allow-code")
    assert "question" in output_of("plan", "tree.json", *planned)
    assert "Answer" in output_of("benchmark", "tree.json", *planned, "--times", "2", "--out", "b")
    output_of("attack", "tree.json", *planned, "--plan")
    with pytest.raises(ValueError, match="same file"):
        output_of("render", "tree.json", "--out", "tree.json")


def test_a_document_that_chooses_its_judge_is_refused_and_shown(folder: Path) -> None:
    (folder / "tree.json").write_text(text_of(document(model="gpt-4o")))
    with pytest.raises(ValueError, match="model: the document chooses the judge, 'gpt-4o'"):
        output_of("check", "tree.json", "--allow-code")
    assert "gpt-4o" in output_of("check", "tree.json", "--allow-code", "--allow-model")


def test_what_a_target_allows_travels_to_other_processes(folder: Path) -> None:
    target = pickle.loads(pickle.dumps(Target("tree.json", allow_code=True))).absolute()
    assert target == str(folder / "tree.json")
    assert [metric.__name__ for metric in load_metrics(target)] == ["Answer"]
    assert eval(repr(target), {"Target": Target}).allowed == {"allow_code": True}


def test_a_run_keeps_its_trees_and_they_can_be_used_again(folder: Path) -> None:
    run("out")
    text = output_of("show", "out", "--tree")
    assert json.loads(text)["nodes"]["Good"]["criteria"] == "Good?"
    with pytest.raises(ValueError, match="no metric 'x'"):
        output_of("show", "out", "--tree", "--metric", "x")
    (folder / "again.json").write_text(text)
    assert "ok: Answer" in output_of("check", "again.json", "--allow-code")
    output_of("render", "out", "--out", "out.mmd")
    output_of("render", "tree.json", "--allow-code", "--out", "tree.mmd")
    assert (folder / "out.mmd").read_text() == (folder / "tree.mmd").read_text()


def test_diff_says_which_keys_of_which_node_changed(folder: Path) -> None:
    run("old")
    data = document()
    data["nodes"]["Good"]["options"] = {"temperature": 0.5}
    (folder / "tree.json").write_text(text_of(data))
    run("new")
    (change,) = json.loads(output_of("diff", "old", "new", "--format", "json"))["metrics"][0][
        "tree"
    ]
    assert (change["node"], change["data"]) == ("Good", {"options": [None, {"temperature": 0.5}]})
    assert "options None → {'temperature': 0.5}" in output_of("diff", "old", "new")


def test_where_no_document_holds_a_metric_the_run_says_why_and_goes_on(folder: Path) -> None:
    (folder / "own.py").write_text(
        "from dagengine.metrics import DAGMetric\n"
        "from dagengine.metrics.dag import DAG, CodeNode\n"
        "m = DAGMetric('m', DAG(CodeNode(lambda text: 1.0, evaluation_params=['input'])))\n"
    )
    output_of("run", "own.py", "--data", "cases.jsonl", "--out", "out", "--no-page")
    (metric,) = load_run("out").manifest.metrics
    assert metric.tree is not None
    assert "no lambda" in metric.tree["refused"]
    (folder / "own.json").write_text(output_of("show", "out", "--tree"))
    with pytest.raises(ValueError, match=r"has no metric: .*no lambda"):
        output_of("check", "own.json")


def test_several_metrics_are_a_list(folder: Path) -> None:
    good = BinaryJudgementNode("?", evaluation_params=["input"], then={True: 1, False: 0})
    metrics = [DAGMetric("T", DAG(good)), FaithfulnessMetric(0.8)]
    (folder / "two.json").write_text(text_of([metric.to_dict() for metric in metrics]))
    assert [m.__name__ for m in load_metrics("two.json")] == ["T", "Faithfulness"]
    assert load_metrics("two.json:Faithfulness")[0].threshold == 0.8
    with pytest.raises(ValueError, match=r"two\.json has 2 metrics, not one DAGMetric"):
        DAGMetric.load("two.json")


def test_migrate_makes_a_tree_file_of_deepevals(folder: Path) -> None:
    lines = Path(__file__).with_name("deepeval.jsonl").read_text(encoding="utf-8").splitlines()
    (folder / "dag.json").write_text(json.dumps(json.loads(lines[0])["document"]))
    assert '+  "roots": [' in output_of("migrate", "dag.json")
    output_of("migrate", "--write", "dag.json")
    data = json.loads((folder / "dag.json").read_text())
    assert data["$schema"] == "urn:dagengine:tree:1"
    assert "VerdictNode" not in {node["type"] for node in data["nodes"].values()}
