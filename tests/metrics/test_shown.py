"""How metrics look at a prompt and in a notebook: by name, never by address."""

from __future__ import annotations

import re
from typing import Any

import pytest
from contract import make, metric_classes

from dagengine.metrics import DAGMetric, GEval
from dagengine.metrics.dag import DAG, BinaryJudgementNode

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


def test_a_graph_that_does_not_compile_is_shown_as_its_problems() -> None:
    node = BinaryJudgementNode("Kind?", evaluation_params=["input"], then={True: 10, False: 0})
    broken = DAGMetric("Kind", DAG(node))
    node.then = {True: 10}
    assert "<pre>" in broken._repr_html_()
