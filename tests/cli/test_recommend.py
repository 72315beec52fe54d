"""Recommendations: every name exists, every answer matters, something is always named."""

from __future__ import annotations

from dataclasses import fields, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

import dagengine.metrics
from dagengine.cli import app
from dagengine.cli.recommend import QUESTIONS, Needs, suggestions
from dagengine.test_case import ConversationalTestCase

ANSWERS = st.builds(Needs, **{field.name: st.booleans() for field in fields(Needs)})


@given(ANSWERS)
def test_every_metric_that_is_named_exists_and_is_named_once(needs: Needs) -> None:
    names = [suggestion.metric for suggestion in suggestions(needs)]
    assert names
    assert len(names) == len(set(names))
    assert set(names) <= set(dagengine.metrics.__all__)


def test_there_is_a_question_for_everything_that_is_asked_about() -> None:
    assert [name for name, _ in QUESTIONS] == [field.name for field in fields(Needs)]


@pytest.mark.parametrize("name", [field.name for field in fields(Needs)])
def test_every_answer_changes_what_is_recommended(name: str) -> None:
    assert suggestions(replace(Needs(), **{name: True})) != suggestions(Needs())


def test_conversations_get_no_metrics_of_single_answers() -> None:
    needs = Needs(conversation=True, retrieves=True, reference=True, tools=True)
    names = {suggestion.metric for suggestion in suggestions(needs)}
    for name in names:
        metric = getattr(dagengine.metrics, name)
        made = metric("C", "Is it good?") if name == "ConversationalGEval" else metric()
        read = {path for node in made.graph().nodes() for path in node.evaluation_params}
        assert read <= set(ConversationalTestCase.model_fields), name
    assert "TurnContextualRecallMetric" in names
    assert "KnowledgeRetentionMetric" in names


def test_the_command_asks_and_names() -> None:
    answers = "n\nn\ny\ny\nn\nn\nn\nn\ny\n"
    done = CliRunner().invoke(app, ["recommend"], input=answers)
    assert done.exit_code == 0, done.output
    for name in ("DAGMetric", "FaithfulnessMetric", "ContextualRecallMetric"):
        assert name in done.output
    assert "BiasMetric" not in done.output
