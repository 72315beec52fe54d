"""Published snippets of G-Eval and its arena, run as written but for their import lines.

They stand in documents outside the project; the tests find them through the environment
variable DAGENGINE_SEEDS (by default a folder beside the checkout) and skip without them.
"""

from __future__ import annotations

from typing import Any

import pytest
from programs.snippets import refused, run, snippet
from servers.openai_server import OpenAIServer, Reply

from dagengine.test_case import LLMTestCase


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Any:
    """A judge that finds steps, the second contestant (by its words) and a 7."""

    def reply(body: dict[str, Any]) -> Reply:
        system, user = (message["content"] for message in body["messages"][:2])
        if "You write the steps" in system:
            return Reply(content='{"steps": ["Which is friendlier?"]}')
        if "Compare 2 contestants" in user:
            first = user.index("Paris is the capital") < user.index("Contestant 2")
            label = f"Contestant {1 if first else 2}"
            return Reply(content=f'{{"reason": "{label} is kind", "verdict": "{label}"}}')
        return Reply(content='{"reason": "vague", "score": 7}')

    with OpenAIServer(reply) as running:
        monkeypatch.setenv("OPENAI_BASE_URL", running.base_url)
        monkeypatch.setenv("OPENAI_API_KEY", "test")
        yield running


def test_the_arena_runs_as_published_where_metric_means_arena_geval(
    server: OpenAIServer, capsys: pytest.CaptureFixture[str]
) -> None:
    first, last = "from deepeval import evaluate", "print(metric.winner, metric.reason)"
    code = snippet("002", first, last)
    # As published the last lines say `metric`, which nothing defines, for `arena_geval`, and
    # LLMTestCase is not among the names that it imports.
    definition, use = code.split("metric.measure(a_test_case)")
    names = run(definition, {"LLMTestCase": LLMTestCase})
    names["metric"] = names["arena_geval"]
    run(f"metric.measure(a_test_case){use}", names)
    assert capsys.readouterr().out.startswith("Claude-4 Claude-4 wins 2 of 2 orders")
    assert names["metric"].score == 1.0
    assert len(server.requests) == 3
    assert not any("GPT-4" in str(body["messages"]) for body in server.requests)
    assert not any("Claude" in str(body["messages"]) for body in server.requests)


def published_g_eval() -> str:
    return snippet("003", "from deepeval.metrics import GEval", ")")


def test_g_eval_runs_as_published_without_the_criteria_that_it_forbids_itself(
    server: OpenAIServer, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = published_g_eval().splitlines()
    names = run("\n".join(line for line in lines if "criteria=" not in line))
    dog = '    input="The dog chased the cat up the tree, who ran up the tree?",'
    names["LLMTestCase"] = LLMTestCase
    run(f"test_case = LLMTestCase(\n{snippet('003', dog, ')')}", names)
    names["correctness_metric"].measure(names["test_case"])
    run("print(correctness_metric.score, correctness_metric.reason)", names)
    assert capsys.readouterr().out == "0.7 vague\n"
    assert "heavily penalize omission" in server.requests[0]["messages"][1]["content"]
    assert len(server.requests) == 1


def test_of_criteria_and_steps_together_the_steps_are_used() -> None:
    code = published_g_eval()
    assert "you can only provide either criteria or evaluation_steps, and not both" in code
    with pytest.warns(UserWarning, match="both given; only the steps are used"):
        metric = run(code)["correctness_metric"]
    assert metric.generate_steps() == metric.evaluation_steps


def test_the_steps_for_headings_run_with_the_comma_that_is_missing(server: OpenAIServer) -> None:
    code = refused(snippet("000", "from deepeval.metrics import GEval", ")"))
    names = run("from deepeval.test_case import LLMTestCaseParams")
    run(code.replace("]\nevaluation_params", "],\nevaluation_params"), names)
    assert names["metric"].measure(LLMTestCase(input="x", actual_output="Intro: …")) == 0.7
