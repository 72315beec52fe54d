"""Published snippets that no other test runs, as they are written but for their import lines.

Where each snippet runs:

- 000, decision trees: all in test_seeds.py; its G-Eval in test_g_eval_seeds.py.
- 001, metrics with own models: here. Its text has lost the indentation, which is put back.
- 002, the arena: test_g_eval_seeds.py.
- 003, metrics: here; its G-Eval in test_g_eval_seeds.py, its ROUGE metric in test_classic.py.
  Of its data sets only what needs no data set class. Shell commands are none of Python.
- 004, criteria: all in test_criteria.py.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from folders.seed_blocks import indented
from programs.snippets import Chat, Transformer, any_reply, refused, run, snippet
from servers.openai_server import OpenAIServer

from dagengine import Limits, Store, evaluate
from dagengine.errors import InputError
from dagengine.judges import ScriptedJudge
from dagengine.metrics import DAGMetric
from dagengine.metrics.dag import DAG, CodeNode, TaskNode
from dagengine.results import Attempt, OutcomeKind
from dagengine.test_case import LLMTestCase

CASE = LLMTestCase(
    input="Who?", actual_output="Ada.", expected_output="Ada.", retrieval_context=["Ada."]
)
RELEVANCY = "from deepeval.metrics import AnswerRelevancyMetric"


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[OpenAIServer]:
    """An endpoint that answers every question validly, where clients look for one."""
    with OpenAIServer(any_reply) as running:
        monkeypatch.setenv("OPENAI_BASE_URL", running.base_url)
        monkeypatch.setenv("OPENAI_API_KEY", "test")
        yield running


# 001: models of one's own. The libraries they wrap are played by what answers validly.


LIBRARIES: dict[str, dict[str, Any]] = {
    "langchain_openai": {"AzureChatOpenAI": Chat},
    "langchain_google_vertexai": {
        "ChatVertexAI": Chat,
        "HarmBlockThreshold": SimpleNamespace(BLOCK_NONE=0),
        "HarmCategory": SimpleNamespace(
            **{
                f"HARM_CATEGORY_{name}": name
                for name in (
                    "UNSPECIFIED",
                    "DANGEROUS_CONTENT",
                    "HATE_SPEECH",
                    "HARASSMENT",
                    "SEXUALLY_EXPLICIT",
                )
            }
        ),
    },
    "langchain_community": {},
    "langchain_community.chat_models": {"BedrockChat": Chat},
    "transformers": {"AutoModelForCausalLM": Transformer, "AutoTokenizer": Transformer},
}


@pytest.fixture
def libraries(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, contents in LIBRARIES.items():
        module = ModuleType(name)
        vars(module).update(contents)
        monkeypatch.setitem(sys.modules, name, module)


def in_quotes(code: str) -> str:
    """Placeholders such as <your-region-name> as texts: as published they are no Python."""
    return re.sub(r"=<([\w-]+)>", r'="\1"', code)


JOKE = '.generate("Write me a joke"))'
OPENAI_SETTINGS = ("openai_api_version", "azure_deployment", "azure_endpoint", "openai_api_key")
# First and last line of the class, where its indentation ends, and the name of the model.
MODELS = {
    "azure": (
        "from langchain_openai import AzureChatOpenAI",
        f"print(azure_openai{JOKE}",
        "# Replace these",
        "azure_openai",
    ),
    "mistral": (
        "from transformers import AutoModelForCausalLM, AutoTokenizer",
        f"print(mistral_7b{JOKE}",
        "model = Auto",
        "mistral_7b",
    ),
    "vertex": (
        "from langchain_google_vertexai import (",
        f"print(vertexai_gemini{JOKE}",
        "# Initilialize",
        "vertexai_gemini",
    ),
    "bedrock": (
        "from langchain_community.chat_models import BedrockChat",
        f"print(aws_bedrock{JOKE}",
        "# Replace these",
        "aws_bedrock",
    ),
}


def model_of(library: str) -> dict[str, Any]:
    first, last, after, _ = MODELS[library]
    names: dict[str, Any] = {"__name__": "published", **dict.fromkeys(OPENAI_SETTINGS, "x")}
    return run(in_quotes(indented(refused(snippet("001", first, last)), after)), names)


@pytest.mark.parametrize("library", MODELS)
@pytest.mark.usefixtures("libraries")
def test_a_published_model_of_ones_own_judges_as_written(
    library: str, capsys: pytest.CaptureFixture[str]
) -> None:
    names = model_of(library)
    assert capsys.readouterr().out == "a joke\n"
    use = f"metric = AnswerRelevancyMetric(model={MODELS[library][-1]})"
    place = list(MODELS).index(library)
    run(snippet("001", RELEVANCY, use, place), names)
    assert names["metric"].measure(CASE) == 1.0


@pytest.mark.usefixtures("libraries")
def test_the_published_way_into_a_thread_works_as_written() -> None:
    last = "return await loop.run_in_executor(None, self.generate, prompt)"
    names = model_of("mistral")
    before = names["Mistral7B"]
    run(indented(refused(snippet("001", "import asyncio", last))), names)
    # The published class stands for the one before, of which it shows the new method only.
    kind = type("Mistral7B", (before,), {"a_generate": names["Mistral7B"].a_generate})
    names["mistral_7b"] = kind(names["model"], names["tokenizer"])
    use = "metric = AnswerRelevancyMetric(model=mistral_7b)"
    run(snippet("001", RELEVANCY, use, 1), names)
    assert names["metric"].measure(CASE) == 1.0


# 001 and 003: measuring, in two documents with and without indentation.

both_documents = pytest.mark.parametrize("document", ["001", "003"])


def repaired(document: str, code: str, after: str = "\0") -> str:
    return indented(refused(code), after) if document == "001" else code


def quick_example(document: str) -> dict[str, Any]:
    start = snippet(document, RELEVANCY, "metric = AnswerRelevancyMetric(threshold=0.5)", -2)
    assert "# Initialize a test case" in start
    return run(start[start.rindex(RELEVANCY) :])


@both_documents
def test_a_metric_is_measured_as_published(
    document: str, server: OpenAIServer, capsys: pytest.CaptureFixture[str]
) -> None:
    names = quick_example(document)
    run(snippet(document, "metric.measure(test_case)", "print(metric.reason)"), names)
    assert capsys.readouterr().out.startswith("1.0\n")
    assert {body["model"] for body in server.requests} == {"gpt-4o"}


@both_documents
def test_a_case_is_asserted_as_published(document: str, server: OpenAIServer) -> None:
    names = quick_example(document)
    first, last = "from deepeval import assert_test", "assert_test(test_case, [metric])"
    if document == "003":
        last = f"    {last}"
    code = snippet(document, first, last, 1 if document == "003" else 0)
    run(repaired(document, code), names)
    names["test_answer_relevancy"]()
    assert len(server.requests) == 2


@both_documents
def test_cases_are_evaluated_as_published(document: str, server: OpenAIServer) -> None:
    names = quick_example(document)
    last = "evaluate([test_case], [metric])"
    code = snippet(document, "from deepeval import evaluate", last, -1)
    run(code, names)
    assert len(server.requests) == 2


@both_documents
def test_a_metric_that_works_at_once_is_measured_as_published(
    document: str, server: OpenAIServer, capsys: pytest.CaptureFixture[str]
) -> None:
    names = quick_example(document)
    first = "from deepeval.metrics import FaithfulnessMetric"
    run(snippet(document, first, 'print("Metric finished!")'), names)
    assert capsys.readouterr().out == "Metric finished!\n"
    assert names["metric"].score == 1.0


@both_documents
def test_metrics_are_measured_together_as_published(
    document: str, server: OpenAIServer, capsys: pytest.CaptureFixture[str]
) -> None:
    names = quick_example(document)
    names |= {f"metric{n}": type(names["metric"])() for n in range(1, 5)}
    code = snippet(document, "import asyncio", "asyncio.run(long_running_function())", -1)
    run(repaired(document, code, "asyncio.run"), names)
    assert capsys.readouterr().out == "Metrics finished!\n"
    assert [names[f"metric{n}"].score for n in range(1, 5)] == [1.0] * 4


@both_documents
def test_a_metric_shows_its_steps_as_published(
    document: str, server: OpenAIServer, capsys: pytest.CaptureFixture[str]
) -> None:
    names = quick_example(document)
    first = "metric = AnswerRelevancyMetric(verbose_mode=True)"
    run(snippet(document, first, "metric.measure(test_case)"), names)
    assert "relevance" in capsys.readouterr().out


# 003: the rest of its metrics.


def test_what_stands_for_cases_is_refused_and_cases_are_evaluated(server: OpenAIServer) -> None:
    dots = "evaluate(test_cases=[...], metrics=[AnswerRelevancyMetric()])"
    with pytest.raises(InputError, match="case 0: ellipsis is neither"):
        run(snippet("003", RELEVANCY, dots))
    last = "evaluate(test_cases=[test_case], metrics=[AnswerRelevancyMetric()])"
    run(snippet("003", "from deepeval import evaluate", last, 2))
    assert len(server.requests) == 2


def test_a_template_of_ones_own_is_used_as_published(server: OpenAIServer) -> None:
    use = "metric = AnswerRelevancyMetric(evaluation_template=CustomTemplate)"
    names = run(snippet("003", RELEVANCY, use, -1))
    assert "metric.measure(...)" in snippet("003", use, "metric.measure(...)")
    assert names["metric"].measure(CASE) == 1.0
    prompt = server.requests[0]["messages"][0]["content"]
    assert prompt.startswith("Given the text, breakdown and generate")
    assert "Text:\nAda.\n" in prompt


def test_g_eval_is_evaluated_and_measured_as_published(
    server: OpenAIServer, capsys: pytest.CaptureFixture[str]
) -> None:
    first, last = "from deepeval.metrics import GEval", "    ],"
    setting = snippet("003", first, last).splitlines()  # both criteria and steps: refused
    params = "    evaluation_params=['input', 'actual_output', 'expected_output'],\n)"
    names = run("\n".join([*(line for line in setting if "criteria=" not in line), params]))
    names["evaluate"] = evaluate
    use = snippet(
        "003",
        "from deepeval.test_case import LLMTestCase",
        "evaluate(test_cases=[test_case], metrics=[correctness_metric])",
        3,
    )
    run(use[use.rindex("from deepeval") :], names)
    capsys.readouterr()
    line = "print(correctness_metric.score, correctness_metric.reason)"
    run(snippet("003", "correctness_metric.measure(test_case)", line), names)
    assert float(capsys.readouterr().out.split()[0]) == names["correctness_metric"].score
    assert len(server.requests) == 2


BASE = "from deepeval.metrics import BaseMetric"


def custom(last: str, nth: int) -> str:
    return snippet("003", BASE, last, nth)


def test_the_parts_of_a_metric_of_ones_own_make_one_as_published() -> None:
    """Each snippet shows one part of a class; together they are the metric of the page."""
    names = run(custom("    ...", 0))
    parts = [names["CustomMetric"]]
    # As published a parameter without a default follows one with a default.
    code = refused(custom("        self.async_mode = async_mode", 1))
    run(code.replace("evaluation_model: str,", 'evaluation_model: str = "gpt-4o",'), names)
    parts.append(names["CustomMetric"])
    for last, nth in (
        ("            raise", 2),
        ("        return self.measure(test_case)", 3),
        ("            return self.success", 4),
        ('        return "My Custom Metric"', 5),
    ):
        parts.append(run(custom(last, nth), names)["CustomMetric"])
    names["generate_hypothetical_score"] = lambda case: len(case.actual_output) / 4
    names["generate_hypothetical_reason"] = lambda case: f"about {case.input}"
    whole = type("CustomMetric", tuple(reversed(parts)), {})
    metric = whole(threshold=0.7)
    done = evaluate([CASE, CASE], [metric], show=False)
    assert done.scores("My Custom Metric") == [1.0, 1.0]
    assert done.rows[0].metrics[0].reason == "about Who?"
    assert metric.measure(CASE) == 1.0
    assert metric.is_successful()


def test_an_error_of_a_metric_of_ones_own_is_a_failure_of_its_case() -> None:
    names = run(custom("            raise", 2))
    names["generate_hypothetical_score"] = lambda case: 1 / 0
    done = evaluate([CASE], [names["CustomMetric"]()], show=False)
    assert "division by zero" in str(done.rows[0].metrics[0].failure)


def test_the_asynchronous_measure_is_the_one_that_runs_as_published() -> None:
    names = run(custom("            raise", 2))
    tail = "    async def a_measure(self, test_case: LLMTestCase) -> float:"
    run(custom("            raise", 2) + "\n\n" + snippet("003", tail, "            raise"), names)

    async def score(case: LLMTestCase) -> float:
        return 0.25

    async def reason(case: LLMTestCase) -> str:
        return "slowly"

    names["async_generate_hypothetical_score"] = score
    names["async_generate_hypothetical_reason"] = reason
    (result,) = evaluate([CASE], [names["CustomMetric"]()], show=False).rows[0].metrics
    assert (result.score, result.success, result.reason) == (0.25, False, "slowly")


def test_several_metrics_are_asserted_at_once_as_published() -> None:
    last = "    assert_test(test_case, [metric1, metric2], run_async=True)"
    names = run(snippet("003", "from deepeval import assert_test", last, 2))
    kind = run(custom('        return "My Custom Metric"', 5))["CustomMetric"]

    async def a_measure(self: Any, case: LLMTestCase) -> float:
        return self.wanted  # type: ignore[no-any-return]

    kind.a_measure = a_measure
    other = type("Other", (kind,), {"__name__": "Another Metric"})
    names |= {"test_case": CASE, "metric1": kind(), "metric2": other()}
    names["metric1"].wanted = names["metric2"].wanted = 1.0
    names["test_multiple_metrics"]()
    names["metric2"].wanted = 0.0
    with pytest.raises(AssertionError, match="Another Metric"):
        names["test_multiple_metrics"]()


def composite() -> dict[str, Any]:
    """The composite metric; as published four names lack what makes them names of the class."""
    first = "from deepeval.metrics import BaseMetric, AnswerRelevancyMetric, FaithfulnessMetric"
    code = snippet("003", first, "        self.success = self.score >= self.threshold")
    names = {"__name__": "published"}
    with pytest.raises(NameError, match="Optional"):
        run(code, dict(names))
    for theirs, meant in (
        ("= initialize_metrics()", "= self.initialize_metrics()"),
        (" set_score_reason_success(relevancy", " self.set_score_reason_success(relevancy"),
        ("faithfulness_reason.reason", "faithfulness_metric.reason"),
        ("if include_reason:", "if self.include_reason:"),
    ):
        assert theirs in code
        code = code.replace(theirs, meant)
    return run(f"from typing import Optional\n{code}", names)


def test_the_composite_metric_runs_with_the_names_it_means(server: OpenAIServer) -> None:
    names = composite()
    metric = names["FaithfulRelevancyMetric"]()
    assert metric.measure(CASE) == 1.0
    assert metric.is_successful()
    assert "statements" in metric.reason
    assert "claims" in metric.reason
    assert {body["model"] for body in server.requests} == {"gpt-4-turbo"}
    done = evaluate([CASE], [metric], show=False)
    assert done.scores("Composite Relevancy Faithfulness Metric") == [1.0]


def test_the_composite_metric_as_published_never_escapes_its_run(
    server: OpenAIServer, tmp_path: Path
) -> None:
    metric = composite()["FaithfulRelevancyMetric"]()
    refused = evaluate([CASE], [metric], show=False, limits=Limits(max_calls=0))
    replayed = evaluate([CASE], [metric], show=False, store=Store(empty(tmp_path), replay=True))
    assert server.requests == []
    assert refused.rows[0].metrics[0].outcome == OutcomeKind.OVER_BUDGET
    assert replayed.rows[0].metrics[0].outcome == OutcomeKind.PROVIDER_ERROR
    ledger: list[Attempt] = []
    path = tmp_path / "answers.db"
    done = evaluate([CASE], [metric], show=False, store=path, on_attempt=ledger.append)
    assert done.totals.calls == len(ledger) == len(server.requests) > 0
    again = evaluate([CASE], [metric], show=False, store=Store(path, replay=True))
    assert again.scores(metric.__name__) == done.scores(metric.__name__) == [1.0]
    assert done.totals.calls == len(server.requests)


def empty(folder: Path) -> Path:
    """A store that has the answer to no question of the metric."""
    path = folder / "empty.db"
    judge = ScriptedJudge(lambda question: {"output": "words"}, "other")
    node = TaskNode("Read.", "read", evaluation_params=["input"], children=[CodeNode(len)])
    evaluate([CASE], [DAGMetric("m", DAG(root_node=node))], model=judge, store=path, show=False)
    return path


def test_the_composite_metric_is_asserted_as_published(server: OpenAIServer) -> None:
    names = composite()
    code = snippet(
        "003", "from deepeval import assert_test", "    assert_test(test_case, [metric])", -1
    )
    names["CASE"] = CASE
    run(code.replace("LLMTestCase(...)", "CASE"), names)
    names["test_llm"]()
    assert server.requests
