"""The guide for coding agents: its names exist, and its templates run as they are printed."""

from __future__ import annotations

import inspect
import json
import re
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest
from programs.commands import run_python
from typer.testing import CliRunner

from dagengine.cli import app

SKILL = files("dagengine.cli").joinpath("SKILL.md").read_text(encoding="utf-8")
_BLOCK = re.compile(r"^### (?:\d+\. )?([^\n]+)\n```python\n(.*?)^```", re.MULTILINE | re.DOTALL)
TEMPLATES: dict[str, str] = dict(_BLOCK.findall(SKILL))
IMPORTS = re.search(r"## Imports\n\n```python\n(.*?)^```", SKILL, re.MULTILINE | re.DOTALL)
PAIR = {"input": "2 + 2?", "actual_output": "It is 4. Gladly."}
TALK = [{"role": "user", "content": "?"}, {"role": "assistant", "content": "Done."}]
ITEMS = [{"index": 1, "reason": "r", "verdict": "supported"},
         {"index": 2, "reason": "r", "verdict": "not supported"}]  # fmt: skip
SPANS = [{"span_id": "a", "kind": "tool", "name": "rates", "error": "timeout"}]
RUBRICS = {"rubrics": [{"criterion": "Is kind", "points": 5}]}
# Per template: a case, what the judge says by node, and the scores.
TRIED: dict[str, tuple[dict[str, Any], dict[str, Any], list[float]]] = {
    "A tree with a code gate": (PAIR, {"Polite": True}, [1.0]),
    "A weighted checklist": (PAIR, {"Correct": True, "Polite": False}, [2 / 3]),
    "G-Eval as a leaf": (PAIR, {"Answers": True, "": 8}, [0.8]),
    "The end of a conversation": ({"turns": TALK}, {"Solved": True}, [1.0]),
    "RAG with an own node": (
        PAIR | {"retrieval_context": ["2 + 2 is 4."]},
        {"used": True, "": "lexical"},
        [1.0, 0.5],
    ),
    "An arena with an own tree": (
        {"contestants": {"A": PAIR, "B": PAIR}},
        {"Better": "tie"},
        [0.5],
    ),
    "A jury": (PAIR, {}, [1.0]),
    "A list of verdicts": (
        PAIR | {"context": ["4"]},
        {"Claims": ["one", "two"], "Backed": {"verdicts": ITEMS}},
        [0.5],
    ),
    "A trace": (PAIR | {"spans": SPANS}, {"Says so": False}, [0.0]),
    "Rubrics, in the file and per case": (
        PAIR | {"additional_metadata": RUBRICS},
        {"": "met"},
        [0, 1.0],
    ),
}


def test_it_has_at_most_200_lines_and_guide_prints_it() -> None:
    assert len(SKILL.splitlines()) <= 200
    assert CliRunner().invoke(app, ["guide"]).stdout == SKILL
    assert len(TRIED) == 10
    assert [*TEMPLATES] == [*TRIED, "A pytest gate"]


def api() -> dict[str, Any]:
    names: dict[str, Any] = {}
    assert IMPORTS is not None
    exec(IMPORTS[1], names)
    return names


def test_every_name_and_every_argument_that_it_shows_exists() -> None:
    import dagengine.metrics

    names = vars(dagengine.metrics) | api()
    calls = re.findall(r"\b([A-Z]\w+[a-z]\w*)\(([^()]*)", SKILL)
    assert len(calls) > 40
    for name, arguments in calls:
        takes = inspect.signature(names[name]).parameters
        for argument in re.findall(r"(\w+)=(?!=)", arguments):
            assert argument in takes, f"{name} has no {argument}"
    for name in re.findall(r"`(\w+(?:Metric|Node|GEval|Judge|TestCase))\b", SKILL):
        assert name in names or hasattr(dagengine.metrics, name), name
    shared = {"evaluation_params", "inputs", "children", "name", "turn_window"}
    for name in names:
        if name.endswith("Node") and name not in ("FieldNode", "VerdictNode"):
            assert shared <= inspect.signature(names[name]).parameters.keys()


@pytest.mark.parametrize("template", TRIED)
def test_a_template_is_checked_without_a_warning_and_scores_as_it_should(
    template: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    case, answers, scores = TRIED[template]
    monkeypatch.chdir(tmp_path)
    assert IMPORTS is not None
    assert len(TEMPLATES[template].splitlines()) <= 12
    Path("metrics.py").write_text(IMPORTS[1] + "\n\n" + TEMPLATES[template])
    Path("cases.jsonl").write_text(json.dumps(case))
    Path("judge.py").write_text(JUDGE.format(answers=answers))
    check = CliRunner().invoke(app, ["check", "metrics.py", "--data", "cases.jsonl"])
    assert check.output.endswith("(0 warnings)\n"), check.output
    run = ["run", "metrics.py", "--data", "cases.jsonl", "--judge", "judge.py:judge", "--no-page"]
    assert CliRunner().invoke(app, run).exit_code in (0, 1)
    (row,) = map(json.loads, Path("out/results.jsonl").read_text().splitlines())
    assert [result["score"] for result in row["metrics"]] == pytest.approx(scores), row


def test_the_pytest_gate_runs(tmp_path: Path) -> None:
    assert IMPORTS is not None
    tree = TEMPLATES["A tree with a code gate"]
    judged = f"{tree}metric.model = ScriptedJudge({{'Polite': True}})\n"
    test = tmp_path / "test_gate.py"
    test.write_text(IMPORTS[1] + judged + TEMPLATES["A pytest gate"])
    (tmp_path / "cases.jsonl").write_text(json.dumps(PAIR))
    command = ("-m", "pytest", "-q", "--evals-min", "Short and polite>=0.9", str(test))
    done = run_python(tmp_path, *command)
    assert "1 passed" in done.stdout, done.stdout
    assert done.returncode == 0


JUDGE = '''
from dagengine.judges import LexicalJudge, ScriptedJudge

ANSWERS = {answers!r}


class Either(ScriptedJudge):
    """Answers by node; of other nodes as `""` says, or by words."""

    async def answer(self, question):
        if question.name not in ANSWERS and ANSWERS.get("") == "lexical":
            return await LexicalJudge().answer(question)
        return await super().answer(question)


judge = Either(lambda question: ANSWERS.get(question.name, ANSWERS.get("")), name="script")
'''
