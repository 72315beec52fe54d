"""What stands in the file of a page, read without a browser."""

from __future__ import annotations

import base64
import gzip
import json
import re
import shlex
from array import array
from pathlib import Path
from typing import Any

import pytest
from graphs.support_tree import support_cases, support_judge, support_metric
from typer.testing import CliRunner

from dagengine import evaluate
from dagengine.cli import app
from dagengine.judges import ScriptedJudge
from dagengine.metrics import DAGMetric
from dagengine.metrics.dag import DAG, BinaryJudgementNode
from dagengine.record.label_file import LABELS, Label, LabelFile
from dagengine.record.reader import Run, load_run
from dagengine.report.page import write_page
from dagengine.report.page.run_facts import run_record
from dagengine.report.tally import Tally
from dagengine.test_case import LLMTestCase

BREAKS = "</script><script>alert(1)</script><!-- <script> --> ]]> \u2028"


@pytest.fixture(scope="module")
def support(tmp_path_factory: pytest.TempPathFactory) -> Run:
    folder = tmp_path_factory.mktemp("runs") / "support"
    evaluate(support_cases(60), [support_metric()], model=support_judge(), show=False, out=folder)
    return load_run(folder)


def _parts(file: Path) -> dict[str, str]:
    """The data blocks of a page by id."""
    text = file.read_text(encoding="utf-8")
    return dict(re.findall(r'<script type="[^"]*" id="([^"]*)">(.*?)</script>', text, re.DOTALL))


def _unpacked(block: str) -> str:
    return gzip.decompress(base64.b64decode(block)).decode()


def _column(file: Path, name: str, code: str) -> list[int]:
    return array(code, gzip.decompress(base64.b64decode(_parts(file)[f"column-{name}"]))).tolist()


def _head(file: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(_parts(file)["head"])
    return found


def _index(file: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(_unpacked(_parts(file)["index"]))
    return found


def test_columns_count_what_the_tally_counts(support: Run, tmp_path: Path) -> None:
    file = write_page(support, tmp_path / "report.html")
    tallied = Tally(support.rows())
    (tally,), (summary,) = tallied.metrics.values(), tallied.summing.result()
    (kinds,) = _index(file)["kinds"]
    rows = [kinds[kind] for kind in _column(file, "kind.0", "I")]
    states = [kind["state"] for kind in rows]
    (graph,) = _head(file)["run"]["metrics"]
    assert states.count("f") == summary.failed
    assert states.count("n") == summary.no_score
    assert states.count("p") == summary.passed
    taken: dict[tuple[str, str], int] = {}
    for kind in rows:
        for answer in kind["answers"]:
            found = graph["answers"][answer]
            key = (graph["nodes"][found["node"]]["name"], found["verdict"])
            taken[key] = taken.get(key, 0) + 1
    assert taken == {(node, str(verdict)): count for (node, verdict), count in tally.chose.items()}


def test_the_same_run_gives_the_same_bytes(support: Run, tmp_path: Path) -> None:
    one, other = (write_page(support, tmp_path / name) for name in ("one.html", "other.html"))
    assert one.read_bytes() == other.read_bytes()


def test_no_text_ends_a_script_or_opens_a_comment(tmp_path: Path) -> None:
    node = BinaryJudgementNode(
        BREAKS, evaluation_params=["actual_output"], then={True: 10, False: 0}, name=BREAKS
    )
    judge = ScriptedJudge(lambda question: {"verdict": False, "reason": BREAKS})
    case = LLMTestCase(name=BREAKS, input=BREAKS, actual_output=BREAKS)
    metric = DAGMetric(BREAKS, DAG(root_node=node))
    evaluate([case], [metric], model=judge, show=False, out=tmp_path / "run")
    file = write_page(load_run(tmp_path / "run"), tmp_path / "report.html")
    text = file.read_text(encoding="utf-8")
    parts = _parts(file)
    assert text.count("<script") == text.count("</script") == len(parts) + 1
    assert "<!--" not in text.split("<script>")[0]
    assert json.loads(parts["head"])["run"]["metrics"][0]["name"] == BREAKS


def test_the_policy_names_the_script_and_the_style_by_their_hashes(
    support: Run, tmp_path: Path
) -> None:
    text = write_page(support, tmp_path / "report.html").read_text(encoding="utf-8")
    found = re.search(r'Content-Security-Policy" content="([^"]*)"', text)
    assert found
    assert "default-src 'none'" in found[1]
    assert "connect-src 'none'" in found[1]
    assert "unsafe" not in found[1]
    assert found[1].count("'sha256-") == 2


def test_above_the_limit_scores_stay_and_texts_of_passed_cases_go(
    support: Run, tmp_path: Path
) -> None:
    file = write_page(support, tmp_path / "report.html", rows=59)
    (kinds,), run = _index(file)["kinds"], _head(file)["run"]
    states = [kinds[kind]["state"] for kind in _column(file, "kind.0", "I")]
    assert len(states) == run["cases"] == 60
    assert run["texts"] == "some"
    kept = [slot >= 0 for slot in _column(file, "slot", "i")]
    assert kept == [state != "p" for state in states]
    assert run["kept"] == sum(kept)
    text = "".join(_unpacked(part) for name, part in _parts(file).items() if "texts" in name)
    assert len(text.split("\n")) == sum(kept)


def test_a_file_without_room_for_texts_says_so(support: Run, tmp_path: Path) -> None:
    file = write_page(support, tmp_path / "report.html", room=10)
    assert _head(file)["run"]["texts"] == "some"
    assert _head(file)["blocks"] == []
    assert set(_column(file, "slot", "i")) == {-1}


def test_a_run_without_texts_keeps_the_reasons(tmp_path: Path) -> None:
    evaluate(
        support_cases(8),
        [support_metric()],
        model=support_judge(),
        show=False,
        out=tmp_path / "run",
        texts=False,
    )
    file = write_page(load_run(tmp_path / "run"), tmp_path / "report.html")
    assert _head(file)["run"]["texts"] == "none"
    text = "".join(_unpacked(part) for name, part in _parts(file).items() if "texts" in name)
    assert "Refunds within 30 days" not in text
    assert "lectures the customer" in text


def _chain(length: int) -> DAGMetric:
    """A tree of many nodes: each asks, and leads on when it is true."""
    after: BinaryJudgementNode | int = 10
    for place in reversed(range(length)):
        after = BinaryJudgementNode(
            f"Does `actual_output` hold {place}?",
            evaluation_params=["actual_output"],
            then={True: after, False: place % 10},
            name=f"step {place}",
        )
    assert isinstance(after, BinaryJudgementNode)
    return DAGMetric("Long", DAG(root_node=after))


def test_a_large_tree_is_also_drawn_folded_and_with_each_stub_open(tmp_path: Path) -> None:
    judge = ScriptedJudge(lambda question: {"verdict": question.name < "step 3", "reason": ""})
    case = LLMTestCase(input="?", actual_output="!")
    evaluate([case], [_chain(60)], model=judge, show=False, out=tmp_path / "run")
    file = write_page(load_run(tmp_path / "run"), tmp_path / "report.html")
    (metric,) = _head(file)["run"]["metrics"]
    whole, folded, *opened = metric["layouts"]
    assert all(whole["nodes"])
    drawn = [node for node, box in enumerate(folded["nodes"]) if box]
    assert 0 < len(drawn) < 60
    assert folded["width"] <= 1212  # it fits the width of a page
    assert folded["height"] <= 620
    hidden = [node for stub in folded["stubs"] for node in stub["nodes"]]
    never = sum(never["nodes"] for never in folded["never"])
    assert len(hidden) + never == 60 - len(drawn)
    assert len(opened) == len(folded["stubs"])
    assert all(sum(map(bool, layout["nodes"])) > len(drawn) for layout in opened)


def test_a_folded_tree_opens_the_branch_with_most_failures(tmp_path: Path) -> None:
    """One of nine equal branches fails; the others are groups, whose failures are none."""

    def branch(depth: int, path: str) -> BinaryJudgementNode:
        then: Any = {True: 10, False: 0}
        if depth:
            then = {True: branch(depth - 1, f"{path}1"), False: branch(depth - 1, f"{path}0")}
        return BinaryJudgementNode(
            f"{path}?", evaluation_params=["actual_output"], name=path, then=then
        )

    def answer(question: Any) -> Any:
        number = int(question.messages[-1]["content"].split("text ")[1].split()[0])
        depth = len(question.name) - 1
        return {"verdict": bool(number >> depth & 1) if depth < 4 else number != 5}

    cases = [LLMTestCase(input="?", actual_output=f"text {n} .") for n in range(16)]
    judge = ScriptedJudge(answer)
    metric = DAGMetric("Deep", DAG(root_node=branch(4, "b")))
    evaluate(cases, [metric], model=judge, show=False, out=tmp_path / "run")
    head = _head(write_page(load_run(tmp_path / "run"), tmp_path / "report.html"))
    (found,) = head["run"]["metrics"]
    names = [node["name"] for node in found["nodes"]]
    drawn = {names[place] for place, box in enumerate(found["layouts"][1]["nodes"]) if box}
    assert {"b", "b1", "b10", "b101", "b1010"} <= drawn  # 5 is 0101 from its last bit on


@pytest.mark.usefixtures("without_graphviz")
def test_without_graphviz_a_page_has_no_drawings(support: Run, tmp_path: Path) -> None:
    (metric,) = _head(write_page(support, tmp_path / "report.html"))["run"]["metrics"]
    assert (metric["layouts"], metric["nested"]) == ([], {})


def test_boxes_of_a_drawing_do_not_cover_each_other(support: Run, tmp_path: Path) -> None:
    (metric,) = _head(write_page(support, tmp_path / "report.html"))["run"]["metrics"]
    (layout,) = metric["layouts"]
    boxes = [box for box in (*layout["nodes"], *layout["leaves"]) if box]
    boxes += [[*edge["label"], 40, 16] for edge in layout["edges"] if edge and edge["label"]]
    for place, (x, y, width, height) in enumerate(boxes):
        for left, top, wide, high in boxes[:place]:
            apart_x = x + width <= left or left + wide <= x
            assert apart_x or y + height <= top or top + high <= y


@pytest.mark.parametrize(
    ("combine", "ended"),
    [("min", ("b", "False")), ("max", ("c", "True")), ("mean", ("c", "True"))],
)
def test_a_case_ended_where_its_score_was_given(tmp_path: Path, combine: Any, ended: Any) -> None:
    """Three roots that score 0.6, 0.2 and 1; no root alone gives their mean, which is 0.6, too."""
    roots = [
        BinaryJudgementNode(
            f"Is {name} so?", evaluation_params=["actual_output"], name=name,
            then={True: yes, False: no},
        )
        for name, yes, no in (("a", 6, 0), ("b", 10, 2), ("c", 10, 0))
    ]  # fmt: skip
    metric = DAGMetric("Three", DAG(root_nodes=roots), combine=combine)
    judge = ScriptedJudge(lambda question: question.name != "b", name="scripted")
    case = LLMTestCase(input="question", actual_output="answer")
    (row,) = evaluate([case], [metric], model=judge, show=False, out=tmp_path / "run")
    file = write_page(load_run(tmp_path / "run"), tmp_path / "report.html")
    (graph,), (kinds,) = _head(file)["run"]["metrics"], _index(file)["kinds"]
    ((node, answer),) = (kind["end"] for kind in kinds)
    assert (graph["nodes"][node]["name"], graph["answers"][answer]["verdict"]) == ended
    for read in (row, *load_run(tmp_path / "run").rows()):  # as the terminal and JUnit have it
        assert (read.metrics[0].end.node, read.metrics[0].end.answer) == ended


METRICS = """
from dagengine.metrics import DAGMetric
from dagengine.metrics.dag import DAG, BinaryJudgementNode

kind = BinaryJudgementNode(
    "Is it kind?", evaluation_params=["actual_output"], name="Kind", then={True: 10, False: 0}
)
metric = DAGMetric("Manners", DAG(kind))
"""
JUDGE = """
from dagengine.judges import ScriptedJudge

judge = ScriptedJudge(lambda question: "dear" in question.messages[-1]["content"], name="mine")
"""


def test_the_command_for_labels_asks_the_same_judge_about_the_same_cases(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("metrics.py").write_text(METRICS)
    Path("my judge.py").write_text(JUDGE)
    Path("cases.csv").write_text("id,my text,notes\nmug,dear you,x\nkey,go away,y\n")
    words = ["dagengine", "run", "metrics.py", "--data=cases.csv", "--map", "id=name"]
    words += ["--map", "my text=actual_output", "--map", "notes=input"]
    words += ["--judge", "my judge.py:judge", "--out", str(tmp_path / "runs" / "a")]
    monkeypatch.setattr("sys.argv", words)
    assert CliRunner().invoke(app, words[1:], catch_exceptions=False).exit_code == 0
    run = load_run(tmp_path / "runs" / "a")
    LabelFile(run.folder / LABELS).add(
        Label(
            id=row.case, who="Ana", when="2026-11-22T04:00:00+00:00", case=row.hash or "",
            index=row.index, name=row.case, metric="Manners", node="",
            definition=run.manifest.metrics[0].hash,
            answer=None, outcome="pass" if row.case == "mug" else "fail",
        )
        for row in run.rows()
    )  # fmt: skip
    command = shlex.split(run_record(run, 2, 2, served=True)["benchmark"])
    assert not any(str(tmp_path) in word for word in command)
    arguments = [*command[1:], "--times", "2"]
    done = CliRunner().invoke(app, arguments, catch_exceptions=False)
    assert "mine" in done.stdout
    assert "2 cases; each counts once, however often it ran; 2 have a label" in done.stdout
    assert "'pass' as pass (1)" in Path("benchmark/card.md").read_text()


def test_a_page_that_may_travel_names_no_place_of_the_machine(support: Run) -> None:
    assert support.folder.is_absolute()
    assert run_record(support, 60, 60)["folder"] == "support"
    assert run_record(support, 60, 60, served=True)["folder"] == str(support.folder)
