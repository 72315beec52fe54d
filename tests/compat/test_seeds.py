"""Published decision-tree snippets, run as they are written but for their import lines.

They stand in documents outside the project; the tests find them through the environment
variable DAGENGINE_SEEDS (by default a folder beside the checkout) and skip without them.
"""

from __future__ import annotations

import inspect
from itertools import takewhile
from pathlib import Path
from typing import Any

import pytest
from programs.snippets import lines_of, refused, run, snippet
from servers.openai_server import OpenAIServer, Reply, valid_reply

import dagengine.metrics.dag as dag_module
from dagengine.errors import GraphError

FIELDS = "from deepeval.test_case import LLMTestCaseParams"


def transcript() -> str:
    # As published, a comma is missing between two arguments.
    code = refused(snippet("000", "from deepeval.test_case import LLMTestCase", ")"))
    return code.replace('"""\nactual_output', '""",\nactual_output')


def tree() -> str:
    last = "dag = DAG(root_node=extract_headings_node)"
    return snippet("000", "from deepeval.metrics.dag import (", last)


def use() -> str:
    return snippet(
        "000", "from deepeval.metrics import DAGMetric", "print(format_correctness.score)"
    )


def verdicts(body: dict[str, Any]) -> Reply:
    """Headings are there, two of them out of order."""
    system = body["messages"][1]["content"]
    if "correct order" in system:
        return Reply(content='{"reason": "body first", "verdict": "Two are out of order"}')
    if "contain all three" in system:
        return Reply(content='{"reason": "all there", "verdict": true}')
    assert "Extract all headings" in system
    assert "Bob reported performance issues" in body["messages"][1]["content"]
    return valid_reply(body)


def test_the_walkthrough_runs_as_written(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    names = run(transcript())
    run(FIELDS, names)  # imported by an earlier snippet of the same page
    run(tree(), names)
    with OpenAIServer(verdicts) as server:
        monkeypatch.setenv("OPENAI_BASE_URL", server.base_url)
        monkeypatch.setenv("OPENAI_API_KEY", "test")
        run(use(), names)
    assert capsys.readouterr().out.strip() == "0.4"
    assert [body["model"] for body in server.requests] == ["gpt-4o"] * 3


def test_the_tree_of_the_walkthrough_has_no_problem_and_can_be_drawn(tmp_path: Path) -> None:
    names = run(FIELDS)
    run(tree(), names)
    assert names["dag"].check() == []
    assert "Two are out of order" in Path(names["dag"].render(str(tmp_path / "t.svg"))).read_text()


def test_the_graph_goes_by_its_long_name_too() -> None:
    first = "from deepeval.metrics.dag import DeepAcyclicGraph"
    code = snippet("000", first, "dag = DeepAcyclicGraph(root_node=...)")
    with pytest.raises(GraphError, match="root_node contains Ellipsis"):  # it stands for a node
        run(code)
    names = run(FIELDS)
    run(tree(), names)
    run(code.replace("...", "extract_headings_node"), names)
    assert names["dag"].check() == []


OUTLINES = ("TaskNode", "BinaryJudgementNode", "NonBinaryJudgementNode", "VerdictNode")


@pytest.mark.parametrize("name", OUTLINES)
def test_the_outlined_parameters_are_those_of_the_class(name: str) -> None:
    """The outlines stand in the document without indentation, so they are read, not run."""
    lines = lines_of("000")
    start = lines.index(f"class {name}(BaseNode):")
    before = (line for line in reversed(lines[:start]))
    run("\n".join(line for line in takewhile(lambda x: x.startswith("from "), before)))
    outline = takewhile(lambda line: ": " in line, lines[start + 1 :])
    parameters = [line.partition(":")[0] for line in outline]
    assert len(parameters) >= 2
    ours = inspect.signature(getattr(dag_module, name)).parameters
    assert set(parameters) <= set(ours)
