"""What a person can audit: the steps of a result on screen, and the same as data."""

import io
import json

import pytest
from graphs.trees import food_metric
from rich.console import Console
from servers.openai_server import OpenAIServer

from dagengine import evaluate
from dagengine.judges import LexicalJudge, OpenAIJudge, ScriptedJudge
from dagengine.metrics import AnswerRelevancyMetric, FaithfulnessMetric
from dagengine.question import Usage
from dagengine.report import print_steps
from dagengine.results import MetricResult
from dagengine.test_case import LLMTestCase

CASE = LLMTestCase(
    input="May I send them back?",
    actual_output="Refunds take 30 days. Shipping is free to Mars.",
    retrieval_context=["Refunds take 30 days."],
)


def screen(result: MetricResult) -> str:
    console = Console(file=io.StringIO(), width=100, color_system=None)
    print_steps(result, console)
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def test_the_screen_shows_what_was_extracted_each_verdict_and_the_formula_with_its_numbers() -> (
    None
):
    done = evaluate([CASE], [FaithfulnessMetric()], model=LexicalJudge(), show=False)
    lines = [line.strip() for line in screen(done.rows[0].metrics[0]).splitlines()]
    assert lines[0] == "Faithfulness: score 0.5, threshold 0.5, passed"
    assert "1. Refunds take 30 days." in lines
    assert "2. Shipping is free to Mars." in lines
    assert any(line.startswith("1. yes: ") for line in lines)
    assert any(line.startswith("2. no: ") for line in lines)
    assert any("1/2 = 0.5" in line for line in lines)


def test_the_screen_of_a_failure_says_where_and_why() -> None:
    bare = LLMTestCase(input="?", actual_output="!")
    done = evaluate([bare], [FaithfulnessMetric()], model=LexicalJudge(), show=False)
    assert "missing_field" in screen(done.rows[0].metrics[0])
    assert "`retrieval_context`" in screen(done.rows[0].metrics[0])


def test_verbose_mode_prints_the_steps(capsys: pytest.CaptureFixture[str]) -> None:
    AnswerRelevancyMetric(model=LexicalJudge(), verbose_mode=True).measure(CASE)
    assert "● relevance (verdict list)" in capsys.readouterr().out


def test_steps_hold_plain_data_that_survives_json() -> None:
    done = evaluate([CASE], [FaithfulnessMetric()], model=LexicalJudge(), show=False)
    row = json.loads(json.dumps(done.rows[0].as_dict()))
    steps = {step["node"]: step for step in row["metrics"][0]["steps"]}
    assert steps["claims"]["output"] == ["Refunds take 30 days.", "Shipping is free to Mars."]
    assert [judgement["verdict"] for judgement in steps["support"]["output"]] == ["yes", "no"]


def test_a_result_says_how_many_tokens_its_answers_took_even_when_they_are_shared() -> None:
    with OpenAIServer() as server:
        judge = OpenAIJudge("m", base_url=server.base_url)
        done = evaluate([CASE, CASE], [food_metric()], model=judge, show=False)
    first, second = (row.metrics[0] for row in done.rows)
    assert first.usage == second.usage == done.totals.usage
    assert first.usage.input_tokens > first.usage.output_tokens > 0
    assert all(step.usage != Usage() for step in first.steps)
    assert first.as_dict()["steps"][0]["usage"]["input_tokens"] == first.steps[0].usage.input_tokens


def test_steps_without_tokens_say_nothing_about_them() -> None:
    judge = ScriptedJudge({"topic": "bread", "Is it about food?": True})
    done = evaluate([CASE], [food_metric()], model=judge, show=False)
    assert all("usage" not in step.as_dict() for step in done.rows[0].metrics[0].steps)
