"""How metrics look at a prompt and in a notebook: by name, never by address."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from typing import Any

import pytest
from graphs.contract import make, metric_classes
from graphs.hostile import TEXTS

from dagengine import evaluate
from dagengine.errors import ProviderError
from dagengine.judges import ScriptedJudge
from dagengine.metrics import DAGMetric, GEval
from dagengine.metrics.dag import DAG, BinaryJudgementNode
from dagengine.question import Question
from dagengine.system.terminal_text import one_line, plain
from dagengine.test_case import LLMTestCase

HOSTILE = "</text></svg><script>alert(1)</script>\x1b[2J\u202e"


@pytest.mark.parametrize("kind", metric_classes(), ids=lambda kind: kind.__name__)
def test_every_metric_says_its_name_and_what_passes(kind: Any) -> None:
    shown = repr(make(kind))
    assert shown.startswith(f"<{kind.__name__} '")
    assert re.search(r"'[^']+': (passes at [0-9.]+|no threshold)>$", shown)
    assert "object at" not in shown


def test_a_notebook_shows_the_graph_of_a_metric_with_its_questions() -> None:
    metric = GEval("Tone", criteria="Is it polite?", evaluation_params=["actual_output"])
    shown = metric._repr_html_()
    assert "<svg" in shown
    assert "polite" in shown
    assert "GEval" in shown


def test_hostile_names_and_criteria_are_text_in_a_notebook() -> None:
    node = BinaryJudgementNode(
        HOSTILE, evaluation_params=["input"], then={True: 10, False: 0}, name=HOSTILE
    )
    shown = DAGMetric(HOSTILE, DAG(node))._repr_html_()
    assert "<script" not in shown
    assert "\x1b" not in shown
    assert "&lt;script&gt;" in shown


class _Reader(HTMLParser):
    """A page as a browser takes it apart: its elements, and its text."""

    def __init__(self, source: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, list[tuple[str, str | None]]]] = []
        self.text = ""
        self.feed(source)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, attrs))

    def handle_comment(self, data: str) -> None:
        self.elements.append(("comment", []))

    def handle_data(self, data: str) -> None:
        self.text += data


MARKUP = [HOSTILE, "<img src=x onerror=alert(1)>", "<!-- ", "&lt;b&gt; &amp;", "]]><b>", "</td><i>"]
LEFT = ("style", "text-align: left")
TABLES = {"p", "table", "thead", "tbody", "tr", "th", "td"}


@pytest.mark.parametrize("hostile", [*MARKUP, *TEXTS.values()])
def test_hostile_texts_of_results_and_rows_are_shown_literally_in_a_notebook(hostile: str) -> None:
    named = f"m {hostile}".encode(errors="ignore").decode()  # a name is no half of a character
    kind = BinaryJudgementNode(
        "Kind?", evaluation_params=["actual_output"], then={True: 10, False: 0}, name=named
    )
    metric = DAGMetric(named, DAG(kind))
    cases = [
        LLMTestCase(input="i", actual_output=f"{text} {hostile}", name=hostile, tags=[hostile])
        for text in ("fine", "fails", "breaks")
    ]

    def answer(question: Question[Any]) -> Any:
        said = question.messages[-1]["content"]
        if "breaks" in said:
            raise ProviderError(hostile, transient=False)
        return {"verdict": "fine" in said, "reason": hostile}

    result = evaluate(cases, [metric], model=ScriptedJudge(answer), show=False)
    assert [row.state for row in result.rows] == ["passed", "failed", "no_score"]
    # What hides in a text is shown as its code; a long text is cut.
    name, reason = one_line(named, 80), plain(hostile)[:200]
    for row in result.rows:
        for shown in (result, row, row.metrics[0]):
            read = _Reader(shown._repr_html_())
            assert {tag for tag, _ in read.elements} <= TABLES
            assert {attr for _, attrs in read.elements for attr in attrs} <= {LEFT}
            assert name in read.text
            assert "\x1b" not in read.text
        assert reason in _Reader(row._repr_html_()).text


def test_a_graph_that_does_not_compile_is_shown_as_its_problems() -> None:
    node = BinaryJudgementNode("Kind?", evaluation_params=["input"], then={True: 10, False: 0})
    broken = DAGMetric("Kind", DAG(node))
    node.then = {True: 10}
    assert "<pre>" in broken._repr_html_()
