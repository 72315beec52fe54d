"""Hashes of definitions: other parameters, another hash; the same parameters, the same one."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from graphs.contract import case_for, judge, make, metric_classes
from programs.hash_seeds import printed
from pydantic import BaseModel

from dagengine import compile_metrics, evaluate
from dagengine.compiler.metric_hashes import definitions, digest
from dagengine.errors import InputError
from dagengine.graph.examples_and_quotes import Example
from dagengine.metrics.common.g_eval_prompts import Rubric
from dagengine.metrics.common.prebuilt import PrebuiltMetric
from dagengine.metrics.dag import DAG, CodeNode, DAGMetric
from dagengine.prompts.instructions import PromptTemplate
from dagengine.test_case import ToolCall
from dagengine.trees.schema import parameters_of

KINDS = metric_classes()
# They say who judges, and how a case is run: a judge stands beside the definition in a record.
HOW_IT_RUNS = {"model", "async_mode", "verbose_mode"}


class Dish(BaseModel):
    """Another schema than that of the contract."""

    title: str


class Template:
    """Own prompts under every name that a metric asks for."""

    @staticmethod
    def generate_reason(score: float, path: str) -> str:
        return "why"


def read(text: str) -> str:
    return text


# Another value than the default and the contract's, by the name of the parameter.
CHANGED: dict[str, Any] = {
    "advice_types": ["legal"],
    "anywhere": True,
    "assessment_questions": ["Is the city named?"],
    "available_tools": [ToolCall(name="book", description="Books trips.")],
    "beta": 2.0,
    "criteria": "The answer is short.",
    "distance": "jaro",
    "domain": "cooking",
    "evaluation_params": ["actual_output"],
    "evaluation_steps": ["Count the words."],
    "evaluation_template": Template,
    "expected": True,
    "expected_schema": Dish,
    "ignore_case": True,
    "include_reason": False,
    "judged_reason": True,
    "mode": "recall",
    "n": 7,
    "name": "Another name",
    "parser": read,
    "partial": True,
    "pattern": "Lyon",
    "penalize_ambiguous_claims": True,
    "precision": True,
    "prompt": PromptTemplate.from_template("Judge {input} and {output} by {criteria}."),
    "prompt_instructions": ["Answer in French."],
    "reference": True,
    "relevant_topics": ["cooking"],
    "role": "a strict clerk",
    "rubric": [Rubric((0, 4), "wrong"), Rubric((5, 10), "right")],
    "scale": (0, 9),
    "score_type": "rougeL",
    "seed": 1,
    "should_consider_ordering": True,
    "should_exact_match": True,
    "strict_mode": True,
    "task": "Book a trip.",
    "threshold": 0.75,
    "tokenizer": "char",
    "top_logprobs": 5,
    "truths_extraction_limit": 3,
    "use_stemmer": False,
    "verdicts_per_call": 2,
    "window_size": 4,
}


# Metrics whose parameter of this name is another than that of the others.
OF_ONE: dict[str, dict[str, Any]] = {
    "RubricMetric": {
        "criteria": ["It is short."],
        "examples": [Example({"criterion": "x"}, "met")],
        "per_call": 2,
        "show_points": True,
        "unsure": "worst",
    },
    "ConversationalGEval": {"evaluation_params": ["retrieval_context"]},
    "ToolCorrectnessMetric": {"evaluation_params": ["output"]},
}
# Metrics that refuse a parameter, or ask no question about the items of a list.
WITHOUT = {
    "ContextualRelevancyMetric": {"verdicts_per_call"},
    "ConversationRelevancyMetric": {"verdicts_per_call"},
    "JsonCorrectnessMetric": {"evaluation_template", "verdicts_per_call"},
    "KnowledgeRetentionMetric": {"verdicts_per_call"},
    "RagasMetric": {"evaluation_template"},
    "TaskCompletionMetric": {"verdicts_per_call"},
    "ToolCorrectnessMetric": {"evaluation_template", "verdicts_per_call"},
    "TurnContextualRelevancyMetric": {"verdicts_per_call"},
}


def hashes(metric: Any) -> dict[str, str]:
    plan = compile_metrics([metric])
    return definitions(plan, plan.metrics[0])


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__qualname__)
def test_every_parameter_of_a_metric_that_changes_what_it_does_changes_its_definition(
    kind: type[PrebuiltMetric],
) -> None:
    plain, equal = hashes(make(kind)), []
    assert hashes(make(kind)) == plain
    values = {**CHANGED, **OF_ONE.get(kind.__qualname__, {})}
    for name in sorted(
        {*parameters_of(kind)}
        - HOW_IT_RUNS
        - {"quote", "unsupported"}
        - WITHOUT.get(kind.__qualname__, set[str]())
    ):
        if hashes(make(kind, **{name: values[name]})) == plain:
            equal.append(name)
    assert equal == []


# Metrics of code alone, and those whose answers are lists of their own kind.
NO_QUOTES = {
    *("BleuMetric", "EditSimilarityMetric", "ExactMatchMetric", "JsonCorrectnessMetric"),
    *("JsonMatchMetric", "PatternMatchMetric", "RougeMetric", "ToolCorrectnessMetric"),
    *("ArenaGEval", "ContextualRelevancyMetric", "ConversationRelevancyMetric"),
    *("KnowledgeRetentionMetric", "TurnContextualPrecisionMetric", "TurnContextualRecallMetric"),
    *("TurnContextualRelevancyMetric", "TurnFaithfulnessMetric"),
}


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__qualname__)
def test_quotes_change_the_definition_or_are_refused(kind: type[PrebuiltMetric]) -> None:
    if not {"quote"} & {*parameters_of(kind)}:
        with pytest.raises(TypeError, match="no setting 'quote'"):
            make(kind, quote="required")
        return
    if kind.__qualname__ in NO_QUOTES:
        with pytest.raises(InputError, match="no verdict that could quote"):
            make(kind, quote="required").spec()
        return
    ways: list[dict[str, Any]] = [
        {},
        {"quote": "if_any"},
        {"quote": "required"},
        {"quote": "required", "unsupported": "keep"},
    ]
    made = [hashes(make(kind, **way)) for way in ways]
    assert all(made[first] != made[second] for first in range(4) for second in range(first))


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__qualname__)
def test_how_a_metric_runs_and_what_it_judged_last_is_no_part_of_its_definition(
    kind: type[PrebuiltMetric],
) -> None:
    metric = make(kind, model=judge(0), async_mode=False, verbose_mode=True)
    before = hashes(metric)
    assert before == hashes(make(kind))
    evaluate([case_for(metric)], [metric], show=False)
    metric.score, metric.reason = 0.5, "so so"
    assert hashes(metric) == before


def of(function: Callable[..., Any]) -> dict[str, str]:
    node = CodeNode(function, evaluation_params=["actual_output"], name="score")
    return hashes(DAGMetric("M", DAG(root_node=node)))


def longer_than(limit: Any, *, unset: bool = False) -> Callable[[str], bool]:
    def longer(text: str) -> bool:
        return len(text) > limit and not later

    if not unset:
        later = False
    return longer


def at_least(text: str, limit: int) -> bool:
    return len(text) >= limit


class Rule:
    """An object of somebody else, with a client inside."""

    def __init__(self, limit: int) -> None:
        self.limit, self.client = limit, Client()

    def check(self, text: str) -> bool:
        self.client.calls += 1
        return len(text) > self.limit


class Client:
    """What changes while it is used."""

    def __init__(self) -> None:
        self.calls = 0


def test_values_from_around_a_function_are_part_of_it() -> None:
    assert of(longer_than(1)) != of(longer_than(2))
    assert of(longer_than({"en": 1})) != of(longer_than({"en": 2}))
    assert of(longer_than(re.compile("a"))) != of(longer_than(re.compile("b")))
    assert of(longer_than(b"a")) != of(longer_than(b"b"))
    assert of(longer_than(1)) != of(longer_than(1, unset=True))
    assert of(partial(at_least, limit=1)) != of(partial(at_least, limit=2))


def test_of_an_object_its_data_counts_and_not_the_state_of_what_is_in_it() -> None:
    rule = Rule(3)
    before = of(rule.check)
    assert before == of(Rule(3).check)
    assert before != of(Rule(4).check)
    rule.check("text")
    assert of(rule.check) == before


def test_a_function_that_reaches_itself_has_a_definition() -> None:
    def deep(value: Any) -> int:
        return 1 + max(map(deep, value), default=0) if isinstance(value, list) else 0

    assert of(deep) == of(deep)


def test_definitions_are_equal_in_every_process() -> None:
    program = (
        "from dagengine.compiler.metric_hashes import definitions\n"
        "from dagengine import compile_metrics\n"
        "from dagengine.metrics import ToolCorrectnessMetric, TopicAdherenceMetric\n"
        "metrics = [ToolCorrectnessMetric(), TopicAdherenceMetric(['travel', 'food'])]\n"
        "plan = compile_metrics(metrics)\n"
        "print([definitions(plan, metric) for metric in plan.metrics])"
    )
    assert len(set(printed(program))) == 1


PINNED = Path(__file__).with_name("definitions.json")


def test_definitions_of_the_catalogue_are_those_of_runs_and_cards_that_people_have() -> None:
    """They are made of the text of code, so that a new name or docstring there changes them.

    Where a change is meant, say it in a file in `changes/` and on the page of kept answers, and
    write the new ones into the file.
    """
    now = {kind.__qualname__: digest(hashes(make(kind))) for kind in KINDS}
    assert now == json.loads(PINNED.read_text(encoding="utf-8"))
