"""What several metrics extract: the same words everywhere, so the question is asked once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, create_model

from dagengine.errors import InputError
from dagengine.node import BaseNode, Given
from dagengine.nodes import CodeNode, TaskNode

STATEMENTS = (
    "List every statement that the text makes, each as one short self-contained sentence in "
    "the text's own language, in the order of the text. Replace pronouns by what they stand "
    "for. Mark each statement: factual if it claims something that can be true or false, not "
    "factual if it is a greeting, a question, an offer, an opinion or a remark about the text "
    "itself. An empty text makes no statement."
)
TRUTHS = (
    "List the facts that the text states, each as one short self-contained sentence, in the "
    "order of the text. Take only what the text says, whether or not it is true elsewhere."
)
OPINIONS = (
    "List every opinion that the text expresses as its own, each as one short self-contained "
    "sentence in the text's own words. Facts, and opinions that the text only reports of "
    "others, are none."
)


class _Extracted(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore")


def _marked(value: Any) -> Any:
    """A bare sentence, as own templates ask for, counts as a factual statement."""
    return {"text": value, "factual": True} if isinstance(value, str) else value


class Statement(_Extracted):
    """One statement of a text."""

    text: str = Field(json_schema_extra={"maxLength": 1000})
    factual: bool


class Statements(_Extracted):
    """The answer of an extraction of statements."""

    statements: list[Annotated[Statement, BeforeValidator(_marked)]]


class Claims(_Extracted):
    """The answer of an extraction of claims by a template of one's own."""

    claims: list[str]


class Truths(_Extracted):
    """The answer of an extraction of facts."""

    truths: list[str]


class Opinions(_Extracted):
    """The answer of an extraction of opinions."""

    opinions: list[str]


def statements_of(
    field: str = "actual_output", wording: Callable[[Given], str] | None = None
) -> TaskNode:
    """Asks for all statements of a case field; readers see `Statements`."""
    return TaskNode(
        STATEMENTS,
        output_label=f"statements of {field}",
        evaluation_params=[field],
        output_type=Statements,
        wording=wording,
    )


def all_statements(source: BaseNode) -> CodeNode:
    """The texts of all statements."""
    return CodeNode(
        lambda found: [statement.text for statement in found.statements],
        inputs=[source],
        output_label="statements",
    )


def claims(source: BaseNode) -> CodeNode:
    """The texts of the factual statements."""
    return CodeNode(
        lambda found: [statement.text for statement in found.statements if statement.factual],
        inputs=[source],
        output_label="claims",
    )


def claims_of(
    field: str = "actual_output", wording: Callable[[Given], str] | None = None
) -> CodeNode:
    """The claims of a case field, by the question that `statements_of` asks.

    With a wording of one's own they are asked for by themselves, as `Claims`.
    """
    if wording is None:
        return claims(statements_of(field))
    asked = TaskNode(
        STATEMENTS,
        output_label=f"claims of {field}",
        evaluation_params=[field],
        output_type=Claims,
        wording=wording,
    )
    return CodeNode(lambda found: found.claims, inputs=[asked], output_label="claims")


def truths_prompt(limit: int | None) -> str:
    """What asks for the facts of a text, at most `limit` of them when there is a limit."""
    return TRUTHS if limit is None else f"{TRUTHS} Give the {limit} most important at most."


def at_least_one(name: str, limit: int | None) -> int | None:
    """`limit` itself; raises InputError when it is below 1."""
    if limit is not None and limit < 1:
        raise InputError(f"{name} must be at least 1, got {limit}")
    return limit


@cache
def _truths_type(limit: int | None) -> type[Truths]:
    if limit is None:
        return Truths
    bounded: Any = Annotated[list[str], Field(max_length=limit)]
    return create_model("Truths", __base__=Truths, truths=(bounded, ...))


def truths_of(
    field: str, limit: int | None = None, wording: Callable[[Given], str] | None = None
) -> CodeNode:
    """The facts that a case field states, by one question about all of it."""
    asked = TaskNode(
        truths_prompt(limit),
        output_label=f"truths of {field}",
        evaluation_params=[field],
        output_type=_truths_type(limit),
        wording=wording,
    )
    return CodeNode(lambda found: found.truths, inputs=[asked], output_label="truths")


def opinions_of(
    field: str = "actual_output", wording: Callable[[Given], str] | None = None
) -> CodeNode:
    """The opinions that a case field expresses."""
    asked = TaskNode(
        OPINIONS,
        output_label=f"opinions of {field}",
        evaluation_params=[field],
        output_type=Opinions,
        wording=wording,
    )
    return CodeNode(lambda found: found.opinions, inputs=[asked], output_label="opinions")


def listed(items: Sequence[str], label: str) -> CodeNode:
    """A list that is the same for every case, as a node."""
    fixed = tuple(items)
    return CodeNode(lambda: list(fixed), output_label=label)
