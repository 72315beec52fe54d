"""The built-in prompts as one text each: what a template's method gives unless overridden.

A method that overrides one may call it and add a sentence: material, allowed verdicts,
numbering and scale are all in it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from pydantic import BaseModel

from dagengine.graph.list_nodes import number_items
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


@dataclass(frozen=True, slots=True)
class ItemQuestion:
    """A question about every item of a list: what an item is called, and its verdicts."""

    text: str
    item: str
    verdicts: tuple[str, ...] = ("yes", "no")

    def format(self, **texts: str) -> ItemQuestion:
        """The same question with the texts that it names."""
        return replace(self, text=self.text.format(**texts))

    def prompt(self, items: Sequence[Any], /, field: str | None = None, **evidence: Any) -> str:
        """One verdict per item, called by its number, in view of some evidence.

        The items of a `field` of the case have its name, as in the prompts of others.
        """
        own = [] if field else number_items(self.item, items)
        material = {**evidence, field: items} if field else evidence
        return self.prompt_of([*pieces(material), *own], len(items), field)

    def prompt_of(self, evidence: Sequence[Evidence], count: int, field: str | None = None) -> str:
        """One verdict for each of `count` items, which the evidence shows."""
        step = list_instructions(self.text, self.verdicts, self.item, count, field)
        return whole_prompt(step, evidence, list_type(self.verdicts, count))


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
