"""The built-in prompts as one text each: what a template's method gives unless overridden.

A method that overrides one may call it and add a sentence: material, allowed verdicts,
numbering and scale are all in it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pydantic import BaseModel

from dagengine.graph.list_nodes import numbered
from dagengine.prompts.answer_types import list_type, rating_type
from dagengine.prompts.evidence import Evidence, canonical_place, evidence_of
from dagengine.prompts.instructions import (
    list_instructions,
    messages_for,
    rating_instructions,
    task_instructions,
    with_bounds,
)
from dagengine.question import DEFAULT_OPTIONS


def task_prompt(instructions: str, answer_type: type[BaseModel], /, **evidence: Any) -> str:
    """A task over some evidence, each value under its name."""
    return whole_prompt(task_instructions(instructions), pieces(evidence), answer_type)


def verdicts_prompt(
    criteria: str,
    verdicts: Sequence[str],
    label: str,
    items: Sequence[Any],
    /,
    field: str | None = None,
    **evidence: Any,
) -> str:
    """One verdict per item, called "`label` 1", "`label` 2", …, in view of some evidence.

    The items of a `field` of the case have its name, as in the prompts of others.
    """
    step = list_instructions(criteria, verdicts, label, len(items), field)
    answer_type = list_type(tuple(verdicts), len(items))
    own = [] if field else numbered(label, items)
    material = {**evidence, field: items} if field else evidence
    return whole_prompt(step, [*pieces(material), *own], answer_type)


def rating_prompt(criteria: str, scale: tuple[int, int], **evidence: Any) -> str:
    """A rating of some evidence on a scale of whole numbers."""
    step = rating_instructions(criteria, *scale)
    return whole_prompt(step, pieces(evidence), rating_type(*scale))


def pieces(evidence: dict[str, Any]) -> list[Evidence]:
    """Values as fenced prompts show them, by name: first those that are fields of a case."""
    labels = sorted(evidence, key=lambda label: canonical_place(label)[0])
    return [piece for label in labels for piece in evidence_of(label, evidence[label])]


def whole_prompt(
    step: str, evidence: Sequence[Evidence], answer_type: type[BaseModel] | None = None
) -> str:
    """The two messages of the judge as one text; the type says how long answers are."""
    messages = messages_for(step, evidence)
    if answer_type is not None:
        messages = with_bounds(messages, answer_type, DEFAULT_OPTIONS)
    return "\n\n".join(message["content"] for message in messages)
