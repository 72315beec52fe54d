"""What the contract test knows: how to make any metric, a case for it, and valid answers."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
import re
from collections.abc import Iterator
from typing import Any, cast

from pydantic import BaseModel

import dagengine.metrics
from dagengine.errors import InputError
from dagengine.judges import ScriptedJudge
from dagengine.metrics.common.prebuilt import PrebuiltMetric
from dagengine.prompts.answer_types import VerdictList
from dagengine.prompts.evidence import field_of
from dagengine.prompts.instructions import parts_of
from dagengine.question import Question, schema_of
from dagengine.test_case import (
    ArenaTestCase,
    ConversationalTestCase,
    LLMTestCase,
    Span,
    TestCase,
    ToolCall,
    Turn,
    has_field,
)


class Recipe(BaseModel):
    """A schema for metrics that check one."""

    name: str


# Values for parameters that a constructor requires, by name.
ARGUMENTS: dict[str, Any] = {
    "name": "Contract",
    "criteria": "The answer is polite.",
    "evaluation_params": ["input", "actual_output"],
    "prompt_instructions": ["Answer in English.", "Be brief."],
    "expected_schema": Recipe,
    "pattern": r"\bParis\b",
    "principle": "harmful",
    "advice_types": ["financial", "medical"],
    "domain": "travel",
    "role": "a patient travel agent",
    "relevant_topics": ["travel"],
    "available_tools": [ToolCall(name="search", description="Finds trips.")],
}

# Values of parameters that mean something else to one metric, by its name.
OWN_ARGUMENTS: dict[str, dict[str, Any]] = {
    "RubricMetric": {
        "name": "Rubric",
        "criteria": [{"criterion": "It is polite.", "points": 2}, "It is brief."],
    },
}

FULL = LLMTestCase(
    input="What is the capital of France?",
    actual_output="The capital of France is Paris. It lies on the Seine.",
    expected_output="Paris is the capital of France.",
    context=["Paris is the capital of France.", "The Seine flows through Paris."],
    retrieval_context=["Paris is the capital of France.", "The Seine flows through Paris."],
    tools_called=[ToolCall(name="search", input_parameters={"q": "France"}, output="Paris")],
    expected_tools=[ToolCall(name="search", input_parameters={"q": "France"}, output="Paris")],
    spans=[
        Span(span_id="a1", kind="tool", name="search", input={"q": "France"}, output="Paris"),
        Span(span_id="b2", kind="tool", name="rivers", input={"of": "Paris"}, error="no answer"),
        Span(span_id="d4", kind="tool", name="maps", input={"of": "Paris"}, output="a map"),
        Span(span_id="c3", kind="tool", name="parks", input={"of": "Paris"}, error="no answer"),
    ],
)
TALK = ConversationalTestCase(
    chatbot_role="a patient travel agent",
    scenario="planning a trip",
    expected_outcome="a booked trip",
    turns=[
        Turn(role="user", content="I am Ana and want to go to Paris."),
        Turn(
            role="assistant",
            content="Gladly, Ana. When?",
            retrieval_context=["Trips to Paris are on sale."],
            tools_called=[ToolCall(name="search", input_parameters={"q": "Paris"})],
        ),
        Turn(role="user", content="In May."),
        Turn(
            role="assistant",
            content="May in Paris is booked.",
            retrieval_context=["Paris is warm in May."],
        ),
    ],
)
ARENA = ArenaTestCase(
    contestants={
        "one": LLMTestCase(input="Hi", actual_output="Hello!"),
        "two": LLMTestCase(input="Hi", actual_output="What?"),
    }
)

PAYLOAD = FULL.model_copy(update=dict.fromkeys(("actual_output", "expected_output"), '{"n": 1}'))
# Cases for metrics of texts that have to be of some form, by the metric's name.
FORMED = {"JsonMatchMetric": PAYLOAD}


def metric_classes() -> list[type[PrebuiltMetric]]:
    """Every metric of the package, found by looking."""
    found: dict[str, type[PrebuiltMetric]] = {}
    for module in pkgutil.walk_packages(dagengine.metrics.__path__, "dagengine.metrics."):
        names = vars(importlib.import_module(module.name))
        for value in names.values():
            if (
                inspect.isclass(value)
                and issubclass(value, PrebuiltMetric)
                and value is not PrebuiltMetric
                and not any(  # then it is a base of others
                    one.__module__.startswith("dagengine.") for one in value.__subclasses__()
                )
            ):
                found[str(value.__qualname__)] = value
    return [found[name] for name in sorted(found)]


def make(kind: type[PrebuiltMetric], **more: Any) -> PrebuiltMetric:
    """A metric with the arguments that its constructor requires, and `more`."""
    arguments = {**OWN_ARGUMENTS.get(cast(Any, kind).__name__, {}), **more}
    for parameter in inspect.signature(kind).parameters.values():
        required = parameter.default is inspect.Parameter.empty
        wanted = required or (parameter.name == "criteria" and "evaluation_steps" not in more)
        if wanted and parameter.name in ARGUMENTS:
            arguments.setdefault(parameter.name, ARGUMENTS[parameter.name])
    try:
        return kind(**arguments)
    except InputError:  # some need fields although the parameter has a default
        return kind(**{**arguments, "evaluation_params": ARGUMENTS["evaluation_params"]})


def case_for(metric: PrebuiltMetric) -> TestCase:
    """The kind of case whose fields the metric reads."""
    if type(metric).__qualname__ in FORMED:
        return FORMED[type(metric).__qualname__]
    read = {
        path.partition(".")[0]
        for node in metric.spec().graph.nodes()
        for path in node.evaluation_params
    }
    for case in (FULL, TALK, ARENA):
        if all(has_field(type(case), path) for path in read):
            return case
    raise AssertionError(f"no kind of test case has all of {sorted(read)}")


def empty_case(case: TestCase) -> TestCase:
    """The same kind of case with nothing but what it must have."""
    if isinstance(case, LLMTestCase):
        return LLMTestCase(input=case.input)
    if isinstance(case, ConversationalTestCase):
        return ConversationalTestCase(turns=[Turn(role="user", content="")])
    return ArenaTestCase(contestants={})


def valid(question: Question[BaseModel], pick: int) -> Any:
    """A valid answer: the first (0) or last (-1) allowed value everywhere."""
    if question.parser is not None:
        return "Fine.\n" + ("Y" if pick == 0 else "N")
    schema = schema_of(question.answer_type)
    return valid_for(schema, schema, pick)


def valid_for(part: dict[str, Any], root: dict[str, Any], pick: int) -> Any:
    if "$ref" in part:
        return valid_for(root["$defs"][part["$ref"].rpartition("/")[2]], root, pick)
    if "enum" in part:
        return part["enum"][pick]
    if "const" in part:
        return part["const"]
    if "anyOf" in part:
        return valid_for(part["anyOf"][0], root, pick)
    kind = part.get("type")
    if kind == "object":
        return {name: valid_for(p, root, pick) for name, p in part.get("properties", {}).items()}
    if kind == "array":
        return list(_items(part, root, pick))
    simple = {
        "string": "words",
        "boolean": pick == 0,
        "integer": part.get("maximum" if pick == 0 else "minimum", 1),
        "number": part.get("maximum" if pick == 0 else "minimum", 1.0),
    }
    return simple.get(str(kind))


def _items(part: dict[str, Any], root: dict[str, Any], pick: int) -> Iterator[Any]:
    for place in range(1, max(part.get("minItems", 0), 2 if "maxItems" not in part else 0) + 1):
        item = valid_for(part["items"], root, pick)
        if isinstance(item, dict) and "number" in item:
            item["number"] = place
        yield item


def items_of(question: Question[Any]) -> list[str]:
    """The texts that a question for a list of verdicts is about, in their order.

    They are the pieces of the field that the step names, or the numbered pieces at the end.
    """
    assert issubclass(question.answer_type, VerdictList)
    count = question.answer_type.count
    step, evidence = parts_of(question.messages)
    field = re.match(r"Judge each of the \d+ pieces of `([^`]*)`", step)
    if field:
        items = [piece for piece in evidence if field_of(piece.label) == field[1]]
        labels = [f"{field[1]} ({place} of {count})" for place in range(1, count + 1)]
    else:
        items = evidence[-count:]
        label = items[0].label.removesuffix(" 1")
        labels = [f"{label} {place}" for place in range(1, count + 1)]
    assert [piece.label for piece in items] == labels
    return [piece.text for piece in items]


def judge(pick: int, asked: list[str] | None = None) -> ScriptedJudge:
    """Answers everything validly and notes the keys of what it was asked."""

    def answer(question: Question[Any]) -> Any:
        if asked is not None:
            asked.append(question.key)
        return valid(question, pick)

    return ScriptedJudge(answer, name=f"valid {pick}")
