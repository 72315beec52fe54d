"""Names of columns in the files of other tools, and the fields that they are."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

_QUESTION, _REFERENCE = ("question", "input", "prompt", "query"), ("ideal", "ground_truth")
_OF_ITEM = {
    **dict.fromkeys(_QUESTION, "input"),
    **dict.fromkeys(
        (*_REFERENCE, "expected", "expected_output", "reference", "reference_answer", "answer"),
        "expected_output",
    ),
    "correct_label": "expected_output",
}
_OF_RUN = ("object", "id", "created_at", "eval_id", "run_id", "status", "datasource_item_id")


class Preset(NamedTuple):
    """What a tool calls fields; None leaves a column out.

    The columns in `opened` hold objects: their keys are columns, too (`item.question`), and those
    without a field go to the metadata. A text may stand there as messages of a chat.
    """

    columns: Mapping[str, str | None]
    opened: tuple[str, ...] = ()


PRESETS: Mapping[str, Preset] = {
    "ragas": Preset(
        {
            "user_input": "input",
            "question": "input",
            "response": "actual_output",
            "answer": "actual_output",
            "reference": "expected_output",
            "ground_truth": "expected_output",
            "retrieved_contexts": "retrieval_context",
            "contexts": "retrieval_context",
            "reference_contexts": "context",
            **{
                name: f"additional_metadata.{name}"
                for name in ("synthesizer_name", "persona_name", "query_style", "query_length")
            },
        }
    ),
    "promptfoo": Preset(
        {
            **dict.fromkeys(_QUESTION, "input"),
            "output": "actual_output",
            "__expected": "expected_output",
            "__description": "name",
            **dict.fromkeys(("__prefix", "__suffix", "__metric", "__threshold")),
            **{f"vars.{name}": "input" for name in _QUESTION},
            **dict.fromkeys(("vars.expected", "vars.reference"), "expected_output"),
            "response.output": "actual_output",
            **{f"prompt.{name}": None for name in ("raw", "label")},
        },
        ("vars", "response", "prompt"),
    ),
    "openai": Preset(
        {
            "question": "input",
            "completion": "actual_output",
            "output_text": "actual_output",
            **dict.fromkeys(_REFERENCE, "expected_output"),
            **{f"item.{name}": field for name, field in _OF_ITEM.items()},
            **{f"datasource_item.{name}": field for name, field in _OF_ITEM.items()},
            "sample.output_text": "actual_output",
            "sample.output": "actual_output",
            **dict.fromkeys((*_OF_RUN, "results")),
        },
        ("item", "sample", "datasource_item"),
    ),
}
"""By tool; of these columns a file may have any."""


def text_of(messages: list[Any]) -> Any:
    """The contents of messages of a chat as one text; anything else as it is."""
    contents = [one.get("content") if isinstance(one, Mapping) else None for one in messages]
    if not contents or not all(isinstance(one, str) for one in contents):
        return messages
    return "\n\n".join(one for one in contents if isinstance(one, str))
