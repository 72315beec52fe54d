"""What several metrics extract: the same words everywhere, so the question is asked once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

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
