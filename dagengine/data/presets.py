"""Names of columns in the files of other tools, and the fields that they are."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

from dagengine.errors import InputError

_QUESTION, _REFERENCE = ("question", "input", "prompt", "query"), ("ideal", "ground_truth")
_OF_ITEM = {
    **dict.fromkeys(_QUESTION, "input"),
    **dict.fromkeys(
        (*_REFERENCE, "expected", "expected_output", "reference", "reference_answer", "answer"),
        "expected_output",
    ),
    "correct_label": "expected_output",
}
# Assertions of promptfoo: those that compare with a text hold a reference, the others none.
_COMPARES = ("equals", "factuality", "similar", "levenshtein", "rouge-n", "bleu", "context-recall")
_CHECKS = (
    *("answer-relevance", "assert-set", "classifier", "contains", "contains-all", "contains-any"),
    *("contains-html", "contains-json", "contains-sql", "contains-xml", "context-faithfulness"),
    *("context-relevance", "conversation-relevance", "cost", "eval", "file", "finish-reason", "fn"),
    *("g-eval", "gleu", "grade", "guardrails", "icontains", "icontains-all", "icontains-any"),
    *("is-html", "is-json", "is-refusal", "is-sql", "is-valid-function-call", "is-xml"),
    *("is-valid-openai-function-call", "is-valid-openai-tools-call", "javascript", "latency"),
    *("llm-rubric", "meteor", "model-graded-closedqa", "model-graded-factuality", "moderation"),
    *("perplexity", "perplexity-score", "pi", "python", "regex", "select-best", "starts-with"),
    *("trajectory", "webhook", "word-count"),
)
_ASSERTION = re.compile(
    rf"\s*(not-)?({'|'.join(sorted({*_COMPARES, *_CHECKS}, key=len, reverse=True))})"
    r"(\([\d.]+\))?(?::(.*))?",
    re.DOTALL,
)
_OF_RUN = ("object", "id", "created_at", "eval_id", "run_id", "status", "datasource_item_id")


class Preset(NamedTuple):
    """What a tool calls fields; None leaves a column out.

    The columns in `opened` hold objects: their keys are columns, too (`item.question`), and those
    without a field go to the metadata. A text may stand there as messages of a chat. `values`
    says what the cells of a column mean, and raises InputError for one that is no such field.
    """

    columns: Mapping[str, str | None]
    opened: tuple[str, ...] = ()
    values: Mapping[str, Callable[[Any], Any]] = MappingProxyType({})


def _reference(cell: Any) -> Any:
    """The text that an assertion compares with; without the name of one the cell is the text."""
    assertion = _ASSERTION.fullmatch(cell) if isinstance(cell, str) else None
    if assertion is None:
        return cell
    negated, kind, least, text = assertion.groups()
    if text is None and not (negated or least or "-" in kind):
        return cell  # a word such as "python"
    if negated or kind not in _COMPARES or text is None:
        raise InputError(
            f"{cell.strip()!r:.80} is an assertion, not a reference: write it as a metric and "
            "leave the column out (--map __expected=), or take it as text "
            "(--map __expected=expected_output)"
        )
    return text.strip()


def _nothing(cell: Any) -> None:
    """Refuse a text around the prompt, which `input` would lack."""
    if isinstance(cell, str) and cell.strip():
        raise InputError(
            f"{cell!r:.80} stands around the prompt: make it part of the input's column"
        )


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
                for name in (
                    *("synthesizer_name", "persona_name", "query_style", "query_length", "rubrics"),
                    *("retrieved_context_ids", "reference_context_ids", "reference_topics"),
                )
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
            **dict.fromkeys(("id", "cost", "error", "failureReason", "gradingResult", "latencyMs")),
            **dict.fromkeys(("namedScores", "promptId", "promptIdx", "provider", "score")),
            **dict.fromkeys(("success", "testCase", "testIdx", "tokenUsage")),
            **{f"vars.{name}": "input" for name in _QUESTION},
            **dict.fromkeys(("vars.expected", "vars.reference"), "expected_output"),
            "response.output": "actual_output",
            **{f"prompt.{name}": None for name in ("raw", "label")},
        },
        ("vars", "response", "prompt"),
        {"__expected": _reference, "__prefix": _nothing, "__suffix": _nothing},
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
    contents: list[str] = []
    for message in messages:
        content = message.get("content") if isinstance(message, Mapping) else None
        if isinstance(content, list) and content:  # a text in parts
            parts = [part.get("text") if isinstance(part, Mapping) else None for part in content]
            texts = [text for text in parts if isinstance(text, str)]
            content = "\n".join(texts) if len(texts) == len(parts) else None
        if not isinstance(content, str):
            return messages
        contents.append(content)
    return "\n\n".join(contents) if contents else messages
