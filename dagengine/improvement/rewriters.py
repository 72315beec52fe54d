"""Who words a criterion anew, or as two: an interface, and a judge that is asked for a small edit.

An edit is bounded: it may add or remove so many words, and stays about as long as the criterion. A
whole new text is another question, and the labels of the old one say little of it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from dagengine.evaluation import a_evaluate
from dagengine.graph.graph import Graph, MetricSpec
from dagengine.graph.nodes import CodeNode, TaskNode
from dagengine.graph.rewriting import SpecMetric
from dagengine.improvement.improvement_report import word_changes
from dagengine.prompts.evidence import as_text
from dagengine.question import Options
from dagengine.results import OutcomeKind, Totals
from dagengine.test_case import LLMTestCase
from dagengine.voting.metric_rewrites import halves

MOST_WORDS = 30
"""Words that an edit may add or remove, together."""
ONE = "ONE"
"""What a rewriter answers for a criterion that cannot be split."""
_LONGER, _SHOWN, _CASES = 300, 1_500, 6


@dataclass(frozen=True, slots=True)
class WrongCase:
    """A case on which the criterion led to a wrong answer, as a rewriter sees it.

    `wanted` is the right verdict of the node, or what people say of the whole result.
    """

    reads: Mapping[str, Any]
    answered: str
    reason: str | None
    wanted: str


@dataclass(frozen=True, slots=True)
class Task:
    """What a rewriter is given: a node's criterion, its verdicts, and cases that went wrong.

    With `split` it is to word the criterion as two: `First? AND Second?`, or with OR between them.
    """

    criterion: str
    verdicts: Sequence[str]
    wrong: Sequence[WrongCase]
    complaint: str = ""
    split: bool = False


class Rewriter(Protocol):
    """Words a criterion anew. `settings` are those of a run: judge, store, limits."""

    async def rewrite(self, task: Task, settings: Mapping[str, Any]) -> tuple[str | None, Totals]:
        """The new criterion, None without one, and what it took to get it."""
        ...


@dataclass(frozen=True, slots=True)
class JudgeRewriter:
    """Asks a judge for a small edit: `model`, by default the judge of the run."""

    model: Any = None

    async def rewrite(self, task: Task, settings: Mapping[str, Any]) -> tuple[str | None, Totals]:
        """One question; what is stored is not asked again."""
        own = {} if self.model is None else {"model": self.model}
        parts: list[str] = []
        # A bounded number of cases, and of characters of each: a prompt has to stay a prompt.
        for number, wrong in enumerate(task.wrong[:_CASES], 1):
            lines = (f"{name}: {as_text(value)[:_SHOWN]}" for name, value in wrong.reads.items())
            reason = f" ({wrong.reason})" if wrong.reason else ""
            ends = f"answered: {wrong.answered}{reason}", f"right: {wrong.wanted}"
            parts.append("\n".join([f"Case {number}", *lines, *ends]))
        case = LLMTestCase(input=task.criterion, actual_output="\n\n".join(parts))
        run = await a_evaluate(
            [case], [SpecMetric(MetricSpec("rewriting", Graph(_step(task))))], show=False,
            **{**settings, **own},
        )  # fmt: skip
        step = next((step for step in run.rows[0].metrics[0].steps if step.kind == "task"), None)
        if step is None or step.outcome is not OutcomeKind.OK:
            return None, run.totals
        return " ".join(str(step.output).split()).strip("\"'"), run.totals


_EDIT = (
    "Edit the criterion so that a careful reader would answer them right, and cases like them. "
    "State the rule that was missing or unclear; name no single case. Keep the same answers. Write "
    "the whole edited criterion"
)
_SPLIT = (
    "If the criterion asks for several things, word it as two criteria, each of which can be "
    "answered alone. Write both on one line, with the word AND between them if both have to hold, "
    f"or the word OR if one of them is enough. If it asks for one thing only, write {ONE}. Write "
    "both criteria"
)


def _step(task: Task) -> TaskNode:
    verdicts = ", ".join(task.verdicts)
    complaint = f"\nYour last edit could not be used: {task.complaint}" if task.complaint else ""
    return TaskNode(
        "`input` is the criterion of a judge that answers with one of: "
        f"{verdicts}. `actual_output` lists cases on which it led to wrong answers. "
        f"{_SPLIT if task.split else _EDIT}, and nothing else. Change as few words as possible, at "
        f"most {MOST_WORDS}, and keep names in backticks.{complaint}",
        output_label="Two criteria" if task.split else "New criterion",
        evaluation_params=["input", "actual_output"],
        children=[CodeNode(_share_kept, name="Kept")],
        options=Options(max_characters=len(task.criterion) + _LONGER),
    )


def _share_kept(words: str) -> float:
    return float(bool(words))


def words_changed(before: str, after: str) -> int:
    """Number of words that an edit adds and removes."""
    changes = word_changes(before, after)
    return sum(len(words.split()) for kind, words in changes if kind != "kept")


def complaint(task: Task, after: str | None) -> str:
    """Why an edit cannot be used; "" if it can."""
    old_criterion = task.criterion
    if not after:
        return "there was no text"
    if after == old_criterion:
        return "it is the criterion as it was"
    if task.split and halves(after) is None:
        return "it is not two criteria with one AND, or one OR, between them"
    changed = words_changed(old_criterion, after)
    if changed > MOST_WORDS:
        return f"it changes {changed} words; at most {MOST_WORDS} are allowed"
    if len(after) > len(old_criterion) + _LONGER:
        return f"it is {len(after) - len(old_criterion)} characters longer; {_LONGER} are allowed"
    labels = [name for name in re.findall(r"`[^`]+`", old_criterion) if name not in after]
    return f"it lost {labels[0]}" if labels else ""
