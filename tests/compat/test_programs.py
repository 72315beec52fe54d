"""Programs as users of deepeval write them, with only the package's name changed.

Every program asks the judge that its environment names: a server that answers validly.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from programs.snippets import any_reply
from servers.openai_server import OpenAIServer

import dagengine
from dagengine.cli.migrate import migrate_source
from dagengine.errors import DagengineError
from dagengine.test_case import LLMTestCase

CASE = """
from dagengine.test_case import LLMTestCase, SingleTurnParams
case = LLMTestCase(input="Who wrote it?", actual_output="Ada wrote it.",
    expected_output="Ada.", context=["Ada wrote it."], retrieval_context=["Ada wrote it."])
"""
TALK = """
from dagengine.test_case import ConversationalTestCase, Turn, MultiTurnParams
talk = ConversationalTestCase(chatbot_role="a librarian", turns=[
    Turn(role="user", content="A book?"), Turn(role="assistant", content="This one."),
    Turn(role="user", content="Thanks."), Turn(role="assistant", content="Welcome.")])
"""


def rag(name: str) -> str:
    return f"""{CASE}
from dagengine.metrics import {name}
metric = {name}(threshold=0.7, model="gpt-4o", include_reason=True)
metric.measure(case)
assert metric.score is not None and metric.reason
assert isinstance(metric.is_successful(), bool)
"""


def conversational(name: str, settings: str = "") -> str:
    return f"""{TALK}
from dagengine import evaluate
from dagengine.metrics import {name}
result = evaluate(test_cases=[talk], metrics=[{name}({settings})], print_results=False)
assert result.test_results[0].metrics_data[0].score is not None
"""


PROGRAMS: dict[str, str] = {
    **{
        f"RAG: {name}": rag(name)
        for name in (
            "AnswerRelevancyMetric",
            "FaithfulnessMetric",
            "ContextualPrecisionMetric",
            "ContextualRecallMetric",
            "ContextualRelevancyMetric",
            "HallucinationMetric",
            "SummarizationMetric",
        )
    },
    **{
        f"conversation: {name}": conversational(name)
        for name in (
            "KnowledgeRetentionMetric",
            "RoleAdherenceMetric",
            "ConversationCompletenessMetric",
            "ConversationRelevancyMetric",
        )
    },
    "conversation: G-Eval": conversational(
        "ConversationalGEval",
        'name="Kind", criteria="Is it kind?", evaluation_params=[MultiTurnParams.CONTENT]',
    ),
    "conversation: a tree": f"""{TALK}
from dagengine.metrics import ConversationalDAGMetric
from dagengine.metrics.dag import DeepAcyclicGraph
from dagengine.metrics.conversational_dag import (
    ConversationalBinaryJudgementNode, ConversationalTaskNode)
said = ConversationalTaskNode(instructions="Sum up what the user wants.", output_label="Wish",
    evaluation_params=[MultiTurnParams.ROLE, MultiTurnParams.CONTENT], turn_window=(0, 1))
kind = said.add_node(ConversationalBinaryJudgementNode(criteria="Is the wish fulfilled?"))
kind.add_verdict(True, score=10)
kind.add_verdict(False, score=0)
metric = ConversationalDAGMetric(name="Wish", dag=DeepAcyclicGraph(root_nodes=[said]))
assert metric.measure(talk) == 1.0
""",
    "a tree from the parent": f"""{CASE}
from dagengine.metrics import DAGMetric, GEval
from dagengine.metrics.dag import DeepAcyclicGraph, TaskNode, BinaryJudgementNode
claims = TaskNode(instructions="List the claims.", output_label="Claims",
    evaluation_params=[SingleTurnParams.ACTUAL_OUTPUT], label="Claims")
good = claims.add_node(BinaryJudgementNode(criteria="Is every claim true?"))
good.add_verdict(False, score=0)
good.add_verdict(True, then=GEval(name="Tone", criteria="Is it kind?",
    evaluation_params=[SingleTurnParams.ACTUAL_OUTPUT]))
metric = DAGMetric(name="True and kind", dag=DeepAcyclicGraph(root_nodes=[claims]), threshold=0)
metric.measure(case)
assert 0 <= metric.score <= 1
""",
    "G-Eval by steps with a rubric": f"""{CASE}
from dagengine.metrics import GEval
from dagengine.metrics.g_eval import Rubric
metric = GEval(name="Correct", evaluation_steps=["Compare the facts.", "Penalize omissions."],
    evaluation_params=[SingleTurnParams.ACTUAL_OUTPUT, SingleTurnParams.EXPECTED_OUTPUT],
    rubric=[Rubric(score_range=(0, 4), expected_outcome="Wrong."),
            Rubric(score_range=(5, 10), expected_outcome="Right.")])
metric.measure(case)
assert 0 <= metric.score <= 1
""",
    "an arena": """
from dagengine import compare
from dagengine.metrics import ArenaGEval
from dagengine.test_case import ArenaTestCase, Contestant, LLMTestCase, SingleTurnParams
arena = ArenaTestCase(contestants=[
    Contestant(name="a", test_case=LLMTestCase(input="Hi", actual_output="Hello!")),
    Contestant(name="b", test_case=LLMTestCase(input="Hi", actual_output="What?"))])
metric = ArenaGEval(name="Kind", criteria="Who is kinder?",
    evaluation_params=[SingleTurnParams.INPUT, SingleTurnParams.ACTUAL_OUTPUT])
assert sum(compare(test_cases=[arena], metric=metric, show=False).values()) == 1
""",
    "goldens and an application": """
from dagengine import evaluate
from dagengine.dataset import EvaluationDataset, Golden
from dagengine.metrics import AnswerRelevancyMetric
from dagengine.test_case import LLMTestCase
dataset = EvaluationDataset([Golden(input="Who?"), Golden(input="When?")])
for golden in dataset.goldens:
    dataset.add_test_case(LLMTestCase(input=golden.input, actual_output="Ada, 1843."))
result = evaluate(dataset, [AnswerRelevancyMetric()], show_indicator=False)
assert [row.input if hasattr(row, "input") else row.test_case.input
        for row in result.test_results] == ["Who?", "When?"]
""",
    "a data set saved and loaded": """
from dagengine.dataset import EvaluationDataset, Golden
path = EvaluationDataset(goldens=[Golden(input="Who?", metadata={"topic": "x"})]).save_as(
    file_type="csv", directory=".", file_name="mine")
loaded = EvaluationDataset()
loaded.add_goldens_from_csv_file(file_path=path)
assert loaded.goldens[0].metadata == {"topic": "x"}
""",
    "settings of a run": f"""{CASE}
from dagengine import AsyncConfig, CacheConfig, DisplayConfig, ErrorConfig, evaluate
from dagengine.metrics import BiasMetric, ToxicityMetric
result = evaluate([case], [BiasMetric(), ToxicityMetric()],
    async_config=AsyncConfig(max_concurrent=2), cache_config=CacheConfig(use_cache=True),
    display_config=DisplayConfig(print_results=False, show_indicator=False),
    error_config=ErrorConfig(ignore_errors=True))
assert result.test_results[0].name == "case 0"
""",
    "a test of CI": f"""{CASE}
import pytest
from dagengine import assert_test
from dagengine.metrics import AnswerRelevancyMetric
@pytest.mark.parametrize("test_case", [case])
def test_relevant(test_case):
    assert_test(test_case, [AnswerRelevancyMetric(threshold=0.5)])
""",
    "a metric of one's own": f"""{CASE}
from dagengine.metrics import BaseMetric
class LengthMetric(BaseMetric):
    def __init__(self, threshold: float = 0.5):
        self.threshold = threshold
    def measure(self, test_case):
        self.score = min(1.0, 5 / len(test_case.actual_output.split()))
        self.success = self.score >= self.threshold
        return self.score
    async def a_measure(self, test_case):
        return self.measure(test_case)
    def is_successful(self):
        return self.success
    @property
    def __name__(self):
        return "Length"
metric = LengthMetric()
assert metric.measure(case) == 1.0 and metric.is_successful()
""",
    "a judge of one's own": f"""{CASE}
from dagengine.metrics import PromptAlignmentMetric
from dagengine.models import DeepEvalBaseLLM
class Mine(DeepEvalBaseLLM):
    def load_model(self):
        return self
    def generate(self, prompt, schema):
        return schema(verdict="yes", reason="so")if "verdict" in schema.model_fields else schema(
            verdicts=[dict(number=1, verdict="yes", reason="so")])
    async def a_generate(self, prompt, schema):
        return self.generate(prompt, schema)
    def get_model_name(self):
        return "mine"
metric = PromptAlignmentMetric(prompt_instructions=["Name her."], model=Mine())
assert metric.measure(case) == 1.0
""",
    "output that follows a schema": """
from pydantic import BaseModel
from dagengine.metrics import JsonCorrectnessMetric
from dagengine.test_case import LLMTestCase
class Person(BaseModel):
    name: str
case = LLMTestCase(input="Who?", actual_output='{"name": "Ada"}')
metric = JsonCorrectnessMetric(expected_schema=Person)
assert metric.measure(case) == 1.0
""",
    "tools": """
from dagengine.metrics import ToolCorrectnessMetric
from dagengine.test_case import LLMTestCase, ToolCall
case = LLMTestCase(input="Weather?", actual_output="Sun.",
    tools_called=[ToolCall(name="weather"), ToolCall(name="map")],
    expected_tools=[ToolCall(name="weather")])
metric = ToolCorrectnessMetric()
assert metric.measure(case) == 1.0
""",
    "metrics at once": f"""{CASE}
import asyncio
from dagengine.metrics import AnswerRelevancyMetric, FaithfulnessMetric
first, second = AnswerRelevancyMetric(), FaithfulnessMetric()
async def both():
    await asyncio.gather(first.a_measure(case), second.a_measure(case))
asyncio.run(both())
assert first.score == second.score == 1.0
assert first.evaluation_cost > 0
""",
    "a tree over a conversation whose second question names nothing to read": f"""{TALK}
from dagengine.metrics import ConversationalDAGMetric, DeepAcyclicGraph
from dagengine.metrics.conversational_dag import (ConversationalBinaryJudgementNode,
    ConversationalNonBinaryJudgementNode, ConversationalTaskNode, ConversationalVerdictNode)
tone = ConversationalNonBinaryJudgementNode(criteria="How did it speak?", children=[
    ConversationalVerdictNode(verdict="playful", score=10),
    ConversationalVerdictNode(verdict="rude", score=0)])
helped = ConversationalBinaryJudgementNode(criteria="Was the user helped?", children=[
    ConversationalVerdictNode(verdict=False, score=0),
    ConversationalVerdictNode(verdict=True, child=tone)])
summary = ConversationalTaskNode(instructions="Sum it up.", output_label="Summary",
    evaluation_params=[MultiTurnParams.ROLE, MultiTurnParams.CONTENT], children=[helped])
metric = ConversationalDAGMetric(name="Playful", dag=DeepAcyclicGraph(root_nodes=[summary]))
metric.measure(talk, _show_indicator=False)
assert metric.score == 1.0
""",
    "a conversational metric of one's own, and turns of users": f"""{TALK}
from dagengine import evaluate
from dagengine.metrics import BaseConversationalMetric, TurnRelevancyMetric
class Short(BaseConversationalMetric):
    def measure(self, test_case):
        self.score = float(len(test_case.turns) < 9)
        self.success = self.score >= 0.5
        return self.score
    @property
    def __name__(self):
        return "Short"
last = Turn(role="user", content="?", user_id="1")
talk = talk.model_copy(update={{"turns": [*talk.turns, last]}})
result = evaluate([talk], [Short(), TurnRelevancyMetric()], print_results=False)
assert result.test_results[0].success
""",
    "arenas compared with configurations": """
from dagengine import AsyncConfig, DisplayConfig, compare
from dagengine.metrics import ArenaGEval
from dagengine.test_case import ArenaTestCase, Contestant, LLMTestCase, SingleTurnParams
arena = ArenaTestCase(contestants=[Contestant(name=name, test_case=LLMTestCase(
    input="Hi", actual_output=name)) for name in ("A", "B")])
metric = ArenaGEval(name="Kind", criteria="Who is kinder?",
    evaluation_params=[SingleTurnParams.ACTUAL_OUTPUT])
wins = compare(test_cases=[arena], metric=metric, name="kinder", async_config=AsyncConfig(),
    display_config=DisplayConfig(show_indicator=False, print_results=False))
assert sum(wins.values()) == 1
""",
    "judges by the names of their classes": f"""{CASE}
import os
from dagengine import evaluate
from dagengine.metrics import GEval
from dagengine.models import GPTModel, LocalModel, OllamaModel
for model in (GPTModel(model="gpt-4o", temperature=0.5),
        LocalModel(model="m", base_url=os.environ["OPENAI_BASE_URL"], api_key="any"),
        OllamaModel(model="m", base_url=os.environ["OPENAI_BASE_URL"].removesuffix("/v1"))):
    metric = GEval(name="Good", criteria="Is it good?", model=model, top_logprobs=5,
        evaluation_params=[SingleTurnParams.ACTUAL_OUTPUT])
    metric.measure(case)
    assert metric.score is not None
""",
    "what a run says of itself, and of its cases": f"""{CASE}
from dagengine import evaluate
from dagengine.metrics import AnswerRelevancyMetric
result = evaluate(test_cases=[case], metrics=[AnswerRelevancyMetric()], identifier="first",
    hyperparameters={{"model": "gpt-4o", "temperature": 1}}, print_results=False)
for found in result.test_results:
    assert (found.input, found.actual_output) == ("Who wrote it?", "Ada wrote it.")
    assert found.expected_output == "Ada." and found.metrics_data[0].error is None
    assert "relevance: " in found.metrics_data[0].verbose_logs
""",
    "a metric that compares seconds": """
from dagengine import assert_test
from dagengine.metrics import BaseMetric
from dagengine.test_case import LLMTestCase
class Latency(BaseMetric):
    def __init__(self, seconds):
        self.threshold = seconds
    def measure(self, test_case):
        self.success = test_case.completion_time <= self.threshold
        self.score = float(self.success)
        return self.score
    def is_successful(self):
        return self.success
assert_test(LLMTestCase(input="Hi", completion_time=2.0), [Latency(10)], run_async=False)
try:
    assert_test(LLMTestCase(input="Hi", completion_time=12.0), [Latency(10)], run_async=False)
except AssertionError as error:
    assert "Latency" in str(error)
else:
    raise RuntimeError("twelve seconds are more than ten")
""",
    "a table of test cases by the names of its columns": """
from pathlib import Path
from dagengine.dataset import EvaluationDataset
Path("cases.csv").write_text("question,answer,token_cost\\nq,N/A,0.5\\nr,,\\n", encoding="utf-8")
dataset = EvaluationDataset()
dataset.add_test_cases_from_csv_file("cases.csv", "question", "answer")
assert [case.actual_output for case in dataset.test_cases] == ["N/A", None]
dataset.add_goldens_from_csv_file("cases.csv", "question")
assert [golden.token_cost for golden in dataset.goldens] == [0.5, None]
""",
    "what of tools is compared": """
from dagengine.metrics import ToolCorrectnessMetric
from dagengine.test_case import LLMTestCase, ToolCall, ToolCallParams
case = LLMTestCase(input="Weather?", actual_output="Sun.", input_token_count=3,
    output_token_count=1, tools_called=[ToolCall(name="weather", input_parameters={"day": 1})],
    expected_tools=[ToolCall(name="weather", input_parameters={"day": 2})])
metric = ToolCorrectnessMetric(evaluation_params=[ToolCallParams.INPUT_PARAMETERS])
assert metric.measure(case) == 0.0
""",
    "a judge that tells questions apart by the names of their types": f"""{CASE}
from dagengine.errors import MissingTestCaseParamsError
from dagengine.metrics import DAGMetric
from dagengine.metrics.dag import (
    BinaryJudgementNode, DeepAcyclicGraph, NonBinaryJudgementNode, TaskNode)
from dagengine.models import DeepEvalBaseLLM
class Mine(DeepEvalBaseLLM):
    def load_model(self):
        return self
    def generate(self, prompt, schema=None):
        return schema(reason="so", **{{"TaskNodeOutput": {{"output": ["Ada"]}},
            "BinaryJudgementVerdict": {{"verdict": True}},
            "NonBinaryJudgementVerdict": {{"verdict": "well"}}}}[schema.__name__])
    async def a_generate(self, prompt, schema=None):
        return self.generate(prompt, schema)
    def get_model_name(self):
        return "mine"
names = TaskNode("List the names.", "Names", evaluation_params=[SingleTurnParams.ACTUAL_OUTPUT])
known = names.add_node(BinaryJudgementNode("Is she known?"))
how = NonBinaryJudgementNode("How well?")
known.add_verdict(True, then=how)
known.add_verdict(False, score=0)
how.add_verdict("well", score=10)
how.add_verdict("badly", score=3)
metric = DAGMetric("Known", DeepAcyclicGraph([names]), model=Mine())
assert metric.measure(case) == 1.0
try:
    metric.measure(LLMTestCase(input="Who?"))
except MissingTestCaseParamsError as error:
    assert "actual_output" in str(error)
else:
    raise RuntimeError("there is nothing to read")
""",
}


@pytest.fixture
def judge(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[OpenAIServer]:
    monkeypatch.chdir(tmp_path)
    with OpenAIServer(any_reply) as server:
        monkeypatch.setenv("OPENAI_BASE_URL", server.base_url)
        monkeypatch.setenv("OPENAI_API_KEY", "test")
        yield server


def test_there_are_34_programs() -> None:
    assert len(PROGRAMS) == 34


@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.usefixtures("judge")
def test_a_program_runs_as_its_author_wrote_it(name: str) -> None:
    names: dict[str, Any] = {"__name__": "program"}
    exec(compile(textwrap.dedent(PROGRAMS[name]), name, "exec", dont_inherit=True), names)
    for test in [one for one in names if one.startswith("test_")]:
        for case in names[test].pytestmark[0].args[1]:
            names[test](case)


@pytest.mark.parametrize("name", PROGRAMS)
def test_migrate_makes_the_program_that_runs(name: str) -> None:
    ours = textwrap.dedent(PROGRAMS[name])
    found = migrate_source(ours.replace("dagengine", "deepeval"), deepeval=(4, 3, 1))
    assert found.source == ours
    decided = ("ArenaGEval: a win",)  # a number
    assert [note for _, note in found.notes if not note.startswith(decided)] == []


# What runs there and is refused here, with what to write instead.
REFUSED: dict[str, tuple[str, str]] = {
    "prices of a model": (
        """
from dagengine.models import GPTModel
GPTModel(model="gpt-4.1", cost_per_input_token=0.000002, cost_per_output_token=0.000008)
""",
        r"limits=Limits\(prices=\{'gpt-4.1': \(2, 8\)\}\)",
    ),
    "the cost of one result": (
        f"""{CASE}
from dagengine import evaluate
from dagengine.metrics import ExactMatchMetric
result = evaluate([case], [ExactMatchMetric()], show=False)
result.test_results[0].metrics_data[0].evaluation_cost
""",
        "what a run cost is result.cost",
    ),
    "the context of a row": (
        f"""{CASE}
from dagengine import evaluate
from dagengine.metrics import ExactMatchMetric
evaluate([case], [ExactMatchMetric()], show=False).test_results[0].retrieval_context
""",
        "row.test_case has it",
    ),
    "only failing cases": (
        f"""{CASE}
from dagengine import evaluate
from dagengine.metrics import ExactMatchMetric
evaluate([case], [ExactMatchMetric()], display="failing")
""",
        r"result.failed\(\)",
    ),
    "a verdict as a root": (
        """
from dagengine.metrics.dag import DeepAcyclicGraph, VerdictNode
DeepAcyclicGraph(root_nodes=[VerdictNode(verdict=True, score=1)])
""",
        "start from the task or judgement whose verdict this is",
    ),
    "a node in the place of evaluation_params": (
        """
from dagengine.metrics.dag import BinaryJudgementNode, TaskNode
TaskNode("Check.", "result", [], [BinaryJudgementNode("Pass?")])
""",
        "read nodes with inputs=",
    ),
    "an evaluator of another kind": (
        "from dagengine import load_evaluator\nload_evaluator('qa')",
        "here: labeled_criteria",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_otherwise_here_is_refused_with_what_to_write(name: str) -> None:
    program, message = REFUSED[name]
    with pytest.raises((DagengineError, AttributeError, TypeError), match=message):
        exec(compile(textwrap.dedent(program), name, "exec", dont_inherit=True), {})


def test_modules_are_attributes_of_the_package() -> None:
    assert dagengine.__getattr__("test_case").LLMTestCase is LLMTestCase
