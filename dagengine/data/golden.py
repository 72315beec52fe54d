"""Goldens: cases that the application under test completes while they are evaluated."""

from __future__ import annotations

from typing import Any

from dagengine.test_case import (
    ConversationalTestCase,
    LLMTestCase,
    TextOnly,
    ToolCall,
    Turn,
    either_metadata,
)


class _Golden(TextOnly):
    name: str | None = None
    additional_metadata: dict[str, Any] | None = either_metadata()
    comments: str | None = None
    source_file: str | None = None


class Golden(_Golden):
    """A test case without an output: an input, and what is known of a good answer.

    An `actual_output` given here is replaced when the case is completed by an app.
    """

    input: str
    actual_output: str | None = None
    expected_output: str | None = None
    context: list[str] | None = None
    retrieval_context: list[str] | None = None
    tools_called: list[ToolCall] | None = None
    expected_tools: list[ToolCall] | None = None
    token_cost: float | None = None
    input_token_count: int | None = None
    output_token_count: int | None = None


class ConversationalGolden(_Golden):
    """A conversation without turns: a scenario, and what is known of a good conversation."""

    scenario: str
    expected_outcome: str | None = None
    user_description: str | None = None
    chatbot_role: str | None = None
    context: list[str] | None = None
    turns: list[Turn] | None = None


GOLDEN_TYPES: tuple[type[_Golden], ...] = (Golden, ConversationalGolden)
CASE_OF: dict[type, type[LLMTestCase] | type[ConversationalTestCase]] = {
    Golden: LLMTestCase,
    ConversationalGolden: ConversationalTestCase,
}
