"""Turns of a conversation: how prompts show them, and windows of them for decision trees."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Unpack

from pydantic import BaseModel

from dagengine.errors import InputError, NotApplicableError
from dagengine.graph.graph import Judged, is_blank
from dagengine.graph.list_nodes import VerdictListNode, number_items
from dagengine.graph.node import AskingNode, shorten
from dagengine.graph.node_values import Given, Judgement, NodeValue
from dagengine.graph.nodes import CodeNode, TaskNode
from dagengine.metrics.common.default_prompts import ItemQuestion, pieces, whole_prompt
from dagengine.metrics.common.prebuilt import MetricSettings, PrebuiltMetric, share
from dagengine.prompts.evidence import Evidence, as_text, turn_names
from dagengine.question import Message
from dagengine.test_case import Turn


def turn_windows(size: int, step: int = 1, *, output_label: str = "windows") -> CodeNode:
    """Sliding windows over a conversation, as a list for a `MapNode`.

    Each window has `size` turns and starts `step` turns after the one before. The last one ends
    with the conversation and may be shorter. Judges do not see the metadata of turns. Raises
    InputError for steps that would skip turns.
    """
    if not 1 <= step <= size:
        raise InputError(f"windows need 1 <= step <= size, got {size=}, {step=}")

    def windows(turns: list[Turn]) -> list[list[Turn]]:
        # Metadata may hold labels that the judge must not see.
        shown = [turn.model_copy(update={"additional_metadata": None}) for turn in turns]
        starts = range(0, max(len(turns) - size, 0) + step, step)
        return [shown[start : start + size] for start in starts]

    return CodeNode(windows, evaluation_params=["turns"], output_label=output_label)


def turn_blocks(turns: Sequence[Turn]) -> list[list[Evidence]]:
    """Each turn as separate evidence: what was said, then the tools called, if any.

    The role is in the label, which no content can forge.
    """
    blocks: list[list[Evidence]] = []
    for name, turn in zip(turn_names(turns), turns, strict=True):
        block = [Evidence(name, turn.content)]
        if turn.tools_called:
            block.append(Evidence(f"{name}, tools called", as_text(turn.tools_called)))
        blocks.append(block)
    return blocks


def flat(blocks: Iterable[list[Evidence]]) -> list[Evidence]:
    """The evidence of several turns as one list."""
    return [piece for block in blocks for piece in block]


def conversation_prompt(
    step: str,
    turns: Sequence[Turn],
    *more: Evidence,
    answer_type: type[BaseModel] | None = None,
    **evidence: Any,
) -> str:
    """Turns, more evidence and the step as one text, for templates that build on a default."""
    blocks = [*flat(turn_blocks(turns)), *pieces(evidence), *more]
    return whole_prompt(step, blocks, answer_type)


def items_prompt(
    question: ItemQuestion, turns: Sequence[Turn], items: Sequence[str], **evidence: Any
) -> str:
    """One verdict per item, in view of the turns and more evidence, as one text."""
    blocks = [*flat(turn_blocks(turns)), *pieces(evidence), *number_items(question.item, items)]
    return question.prompt_of(blocks, len(items))


class _ByRole(AskingNode):
    """Shows the case's `turns` by role, each in a separate block, before everything else."""

    def messages(
        self, given: Given, instructions: str, evidence: Sequence[Evidence]
    ) -> tuple[Message, ...]:
        blocks = flat(turn_blocks(dict(given.fields)["turns"]))
        # The evidence of the field `turns` has the same names: it is not shown twice.
        labels = {piece.label for piece in blocks}
        further = [piece for piece in evidence if piece.label not in labels]
        return super().messages(given, instructions, [*blocks, *further])


class ConversationTask(_ByRole, TaskNode):
    """A task over a whole conversation; it reads `turns`."""


class ConversationVerdicts(_ByRole, VerdictListNode):
    """One verdict per item of a list, in view of the whole conversation; it reads `turns`."""


class ConversationMetric(PrebuiltMetric):
    """Base of metrics of conversations, whose lists are judged in view of all turns."""

    judged: Judged = (("turns",),)
    list_kind = ConversationVerdicts


class WindowedMetric(ConversationMetric):
    """Base of metrics that judge each reply in a window: with some of the turns before it.

    `window_size` is the most turns of a window (InputError below 2).
    """

    def __init__(
        self, *common: Any, window_size: int = 10, **settings: Unpack[MetricSettings]
    ) -> None:
        self.take_common(common, settings)
        if window_size < 2:
            raise InputError(
                f"window_size must be at least 2 (a turn and one before it), got {window_size}"
            )
        self.window_size = window_size


def replies(turns: Sequence[Turn]) -> list[int]:
    """The indices of the assistant's turns; none when all of them are blank."""
    indices = [index for index, turn in enumerate(turns) if turn.role == "assistant"]
    return [] if is_blank(list(map(turns.__getitem__, indices))) else indices


def given_replies(turns: Sequence[Turn]) -> list[int]:
    """The indices of the assistant's turns.

    Raises NotApplicableError when the assistant never spoke: neither 0 nor 1 would be true then.
    """
    indices = replies(turns)
    if not indices:
        raise NotApplicableError(
            "nothing to judge: the conversation has no assistant turn with text"
        )
    return indices


def quoted(turns: Sequence[Turn], indices: Iterable[int]) -> list[str]:
    """The turns at these indices as reasons quote them."""
    names = turn_names(turns)
    return [f"{names[index]}: {shorten(turns[index].content, 80)}" for index in indices]


def reply_share(turns: Sequence[Turn], verdicts: Sequence[Judgement], passed: str) -> NodeValue:
    """The share of the assistant's turns with the verdict yes.

    Raises NotApplicableError when the assistant never spoke.
    """
    items = quoted(turns, given_replies(turns))
    return share(items, verdicts, ("yes",), what="assistant turns", passed=passed, empty=0.0)
