"""Which of the metrics that come with dagengine fit an application."""

from __future__ import annotations

import re
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Needs:
    """What an application does and which data it has."""

    conversation: bool = False
    compares: bool = False
    retrieves: bool = False
    reference: bool = False
    tools: bool = False
    summarizes: bool = False
    safety: bool = False
    structured: bool = False
    own_rules: bool = False


QUESTIONS: tuple[tuple[str, str], ...] = (
    ("conversation", "Do you judge whole conversations rather than single answers?"),
    ("compares", "Do you want to know which of several answers is best?"),
    ("retrieves", "Does the application answer from documents that it retrieves (RAG)?"),
    ("reference", "Do you have reference answers written by people?"),
    ("tools", "Does the application call tools?"),
    ("summarizes", "Does it summarize texts?"),
    ("safety", "Do you worry about bias, toxicity or personal data?"),
    ("structured", "Must its output follow a JSON schema or instructions of form?"),
    ("own_rules", "Do you have rules of your own that a careful person could check step by step?"),
)


@dataclass(frozen=True, slots=True)
class Suggestion:
    """A metric by class name, and why it fits."""

    metric: str
    why: str


_ANYTHING = "a criterion in your words, where nothing more specific fits"
# In the order of a recommendation, the most specific first: the needs that a metric fits ("-": and
# not these), and why. `{turn}` is that of the same metric for every reply of a conversation.
_FITTING = (
    ("own_rules", "DAGMetric", "your rules as a tree that can be reviewed"),
    ("compares", "ArenaGEval", "picks the best answer, in every order shown"),
    ("conversation", "ConversationCompletenessMetric", "what the user wanted was dealt with"),
    ("conversation", "KnowledgeRetentionMetric", "nothing the user said is asked for again"),
    ("conversation", "RoleAdherenceMetric", "replies stay in the role they were given"),
    ("conversation", "ConversationRelevancyMetric", "replies fit what was said before"),
    ("retrieves", "{turn}FaithfulnessMetric", "claims are not contradicted by what was retrieved"),
    ("retrieves", "{turn}ContextualRelevancyMetric", "what was retrieved is about the question"),
    ("retrieves reference", "{turn}ContextualRecallMetric", "the reference can be found in it"),
    ("retrieves reference", "{turn}ContextualPrecisionMetric", "useful documents come first"),
    ("tools conversation", "GoalAccuracyMetric", "goals are reached, in steps that make sense"),
    ("tools -conversation", "ToolCorrectnessMetric", "the tools called against those expected"),
    ("tools -conversation", "TaskCompletionMetric", "whether the task was done in the end"),
    ("tools -conversation", "StepEfficiencyMetric", "no call that the task did not need"),
    ("summarizes", "SummarizationMetric", "nothing added, nothing important missing"),
    ("safety", "BiasMetric", "the share of opinions without bias"),
    ("safety", "ToxicityMetric", "the share of opinions that are not toxic"),
    ("safety", "PIILeakageMetric", "no personal data is given away"),
    ("structured", "JsonCorrectnessMetric", "the output follows your schema; no call"),
    ("structured", "PromptAlignmentMetric", "each instruction was followed"),
    ("reference -conversation", "FactualCorrectness", "the claims of the reference, and no others"),
    ("reference -conversation", "RougeMetric", "overlap with the reference; no call, a baseline"),
    ("-conversation", "AnswerRelevancyMetric", "the answer is about the question"),
    ("conversation", "ConversationalGEval", _ANYTHING),
    ("-conversation", "GEval", _ANYTHING),
)


def recommend(needs: Needs) -> list[Suggestion]:
    """Metrics for `needs`, the most specific first; never an empty list."""
    turn = "Turn" * needs.conversation
    fitting: list[Suggestion] = []
    for words, metric, why in _FITTING:
        if all(getattr(needs, word.strip("-")) != ("-" in word) for word in words.split()):
            fitting.append(Suggestion(metric.format(turn=turn), why))
    return fitting


# What to write for metrics that need more than their name.
_MADE = {
    "ArenaGEval": 'ArenaGEval("Better", "Which answer helps more?", '
    'evaluation_params=["input", "actual_output"])',
    "ConversationalGEval": 'ConversationalGEval("Helpful", "Is the user helped in the end?")',
    "DAGMetric": 'DAGMetric("Rules", DAG(rules))',
    "GEval": 'GEval("Helpful", "Is the person who asked helped?", '
    'evaluation_params=["input", "actual_output"])',
    "JsonCorrectnessMetric": "JsonCorrectnessMetric(expected_schema=Output)",
    "PromptAlignmentMetric": 'PromptAlignmentMetric(prompt_instructions=["Be brief."])',
}
_TREE = """
# Your rules: each node asks one small thing.
rules = BinaryJudgementNode("Does `actual_output` answer `input`?",
    evaluation_params=["input", "actual_output"], label="answers")
complete = BinaryJudgementNode("Is nothing important missing in `actual_output`?",
    evaluation_params=["input", "actual_output"], label="complete")
rules.add_verdict(False, score=0)
rules.add_verdict(True, then=complete)
complete.add_verdict(False, score=5)
complete.add_verdict(True, score=10)
"""
_SCHEMA = '''

class Output(BaseModel):
    """What the output must look like."""

    answer: str

'''


def program(needs: Needs) -> str:
    """A file of the recommended metrics that `dagengine check` and `run` take as it is."""
    names = [suggestion.metric for suggestion in recommend(needs)]
    tree, schema = "DAGMetric" in names, "JsonCorrectnessMetric" in names
    lines = ['"""Metrics to begin with: change what they ask, their thresholds, their names."""\n']
    lines += ["from pydantic import BaseModel\n"] if schema else []
    lines += [f"from dagengine.metrics import {', '.join(sorted(names))}"]
    lines += ["from dagengine.metrics.dag import DAG, BinaryJudgementNode"] if tree else []
    lines += [_SCHEMA if schema else "", _TREE if tree else ""]
    for suggestion in recommend(needs):
        lines.append(f"# {suggestion.why}")
        name = suggestion.metric
        # FaithfulnessMetric is `faithfulness`, PIILeakageMetric `piileakage`.
        variable = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name.removesuffix("Metric")).lower()
        lines.append(f"{variable} = {_MADE.get(name, f'{name}()')}")
    return "\n".join(lines) + "\n"
