"""Names of columns in the files of other tools, and the fields that they are."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from itertools import product, starmap
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple, cast

from dagengine.data.written_lines import without_nulls
from dagengine.errors import InputError
from dagengine.system.entry_points import READERS, installed_words, load_offer, offers
from dagengine.system.terminal_text import text_if
from dagengine.test_case import Turn

_METADATA = "additional_metadata"
_QUESTION, _REFERENCE = "question input prompt query", "ideal ground_truth"
_EXPECTED = f"{_REFERENCE} expected expected_output reference reference_answer answer correct_label"
# Assertions of promptfoo: those that compare with a text hold a reference, the others none.
_COMPARES = "equals factuality similar levenshtein rouge-n bleu context-recall"
_CHECKS = (
    "answer-relevance assert-set classifier contains contains-all contains-any contains-html "
    "contains-json contains-sql contains-xml context-faithfulness context-relevance "
    "conversation-relevance cost eval file finish-reason fn g-eval gleu grade guardrails icontains "
    "icontains-all icontains-any is-html is-json is-refusal is-sql is-valid-function-call is-xml "
    "is-valid-openai-function-call is-valid-openai-tools-call javascript latency llm-rubric meteor "
    "model-graded-closedqa model-graded-factuality moderation perplexity perplexity-score pi "
    "python regex select-best starts-with trajectory webhook word-count"
)
_ASSERTION = re.compile(
    rf"\s*(not-)?({'|'.join(f'{_COMPARES} {_CHECKS}'.split())})(\([\d.]+\))?(?::(.*))?", re.DOTALL
)
_KEYS = (("role", "content"), ("from", "value"), ("type", "content"))


class Preset(NamedTuple):
    """What a tool calls fields; None leaves a column out.

    A name with a dot is inside of a column of objects (`item.question`); what is there without a
    field goes to the metadata. `values` says what the cells of a column mean, and raises InputError
    for one that is no such field. A file that has one of the columns `signs` is the tool's. `read`
    makes rows, or test cases, of a file.
    """

    columns: Mapping[str, str | None]
    signs: frozenset[str] = frozenset()
    values: Mapping[str, Callable[[Any], Any]] = MappingProxyType({})
    read: Callable[[Path], Iterable[Any]] | None = None


def _reference(cell: Any) -> Any:
    """The text that an assertion compares with; without the name of one the cell is the text."""
    assertion = _ASSERTION.fullmatch(cell) if isinstance(cell, str) else None
    if assertion is None:
        return cell
    negated, kind, least, text = assertion.groups()
    if text is None and not (negated or least or "-" in kind):
        return cell  # a word such as "python"
    if negated or kind not in _COMPARES.split() or text is None:
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
            f"{cell!r:.80} stands around the prompt: make __prefix and __suffix part of the "
            "input's column"
        )


def _join_answers(cell: Any) -> Any:
    """The text of a reference; of several accepted answers each is on a line."""
    if isinstance(cell, list) and all(isinstance(answer, str) for answer in cell):
        return "\nor: ".join(cell) or None
    return cell


def _inside(owners: str, words: str) -> str:
    """The names of columns inside of some owners, as words of a text."""
    return " ".join(starmap("{}.{}".format, product(owners.split(), words.split())))


def _columns(**names: str) -> dict[str, str | None]:
    """The columns of fields, whose names are words of a text; of `_` they are left out."""
    columns: dict[str, str | None] = {}
    for field, words in names.items():
        for name in words.split():
            columns[name] = None if field == "_" else field
            if field == _METADATA:
                columns[name] = f"{_METADATA}.{name}"
    return columns


_RAGAS_SCORES = (
    "answer_accuracy answer_correctness answer_relevancy answer_similarity bleu_score chrf_score "
    "context_entity_recall context_precision context_recall context_relevance context_utilization "
    "exact_match factual_correctness faithfulness llm_context_precision_with_reference "
    "llm_context_precision_without_reference non_llm_context_precision_with_reference "
    "non_llm_context_recall non_llm_string_similarity nv_accuracy nv_context_relevance "
    "nv_response_groundedness rouge_score semantic_similarity string_present summary_score "
    "factual_correctness(mode=f1) factual_correctness(mode=precision) noise_sensitivity "
    "factual_correctness(mode=recall) noise_sensitivity(mode=relevant) faithfulness_with_hhem "
    "noise_sensitivity(mode=irrelevant) rouge_score(mode=fmeasure)"
)
_PROMPTFOO_RUN = (
    "__prefix __suffix __metric __threshold id cost error failureReason gradingResult latencyMs "
    "namedScores promptId promptIdx provider score success testCase testIdx tokenUsage"
)
_OPENAI_RUN = "object id created_at eval_id run_id status datasource_item_id results"
_ITEMS = "item datasource_item"
PRESETS: Mapping[str, Preset] = {
    "ragas": Preset(
        _columns(
            input="user_input question",
            actual_output="response answer",
            expected_output="reference ground_truth",
            retrieval_context="retrieved_contexts contexts",
            context="reference_contexts",
            additional_metadata="synthesizer_name persona_name query_style query_length rubrics "
            "retrieved_context_ids reference_context_ids reference_topics",
            _=_RAGAS_SCORES,
        ),
        frozenset({"user_input", "retrieved_contexts", "reference_contexts"}),
    ),
    "promptfoo": Preset(
        _columns(
            input=f"{_QUESTION} {_inside('vars', _QUESTION)}",
            actual_output="output response.output",
            expected_output="__expected vars.expected vars.reference",
            name="__description",
            _=f"{_PROMPTFOO_RUN} prompt.raw prompt.label",
        ),
        frozenset({"__expected", "__description", "vars"}),
        {"__expected": _reference, "__prefix": _nothing, "__suffix": _nothing},
    ),
    "openai": Preset(
        _columns(
            input=f"question {_inside(_ITEMS, _QUESTION)}",
            actual_output="completion output_text sample.output_text sample.output",
            expected_output=f"{_REFERENCE} {_inside(_ITEMS, _EXPECTED)}",
            _=_OPENAI_RUN,
        ),
        frozenset({"item", "sample", "datasource_item", "ideal"}),
        dict.fromkeys(f"{_REFERENCE} {_inside(_ITEMS, _REFERENCE)}".split(), _join_answers),
    ),
    "healthbench": Preset(
        _columns(
            name="prompt_id",
            input="prompt",
            actual_output="completion response",
            expected_output="ideal_completions_data.ideal_completion",
            tags="example_tags",
            additional_metadata="rubrics",
            _="canary",
        ),
        frozenset({"example_tags", "ideal_completions_data"}),
    ),
}
"""By tool; of these columns a file may have any."""


def preset_called(name: str | None) -> Preset:
    """The fields as a tool calls them, ours or a package's; raises InputError for unknown names."""
    if name is None:
        return Preset({})
    if name not in offers(READERS):
        if name in PRESETS:
            return PRESETS[name]
        raise InputError(
            f"there is no preset {name!r:.40}: write --map COLUMN=FIELD, or one of "
            f"{', '.join(PRESETS)} and otel; {installed_words(READERS, name)}"
        )
    reader = load_offer(READERS, name, text_if(name in (*PRESETS, "otel"), "one of dagengine"))
    if callable(reader):
        return Preset({}, read=cast("Callable[[Path], Iterable[Any]]", reader))
    if isinstance(reader, Mapping):
        return Preset(reader)
    raise InputError(f"the reader {name!r} is no function of a path and no mapping of columns")


# What tools call the sides of a conversation.
_ROLES = {
    **dict.fromkeys(("human", "prompter", "customer"), "user"),
    **dict.fromkeys(("gpt", "ai", "bot", "model", "chatgpt", "bing", "bard"), "assistant"),
    "developer": "system",
}


def _messages(chat: Any) -> list[tuple[str, str, dict[str, Any]]]:
    """Role, text and all else of the messages of a chat; empty for anything else."""
    messages: list[tuple[str, str, dict[str, Any]]] = []
    for item in chat if isinstance(chat, list) else [chat]:
        more = dict(item) if isinstance(item, Mapping) else {}
        keys = next((pair for pair in _KEYS if more.keys() >= {*pair}), ("", ""))
        role, content = more.pop(keys[0], None), more.pop(keys[1], None)
        if isinstance(content, list) and content:  # a text in parts
            texts: list[Any] = [part.get("text") for part in content if isinstance(part, Mapping)]
            if len(texts) == len(content) and all(isinstance(text, str) for text in texts):
                content = "\n".join(texts)
        if not isinstance(role, str) or not isinstance(content, str):
            return []
        messages.append((_ROLES.get(role.lower(), role), content, more))
    return messages


def text_of(chat: Any) -> Any:
    """The messages of a chat as one text, with roles where they are a talk; all else as it is."""
    if isinstance(chat, str):
        return chat
    messages = _messages(chat)
    is_talk = sum(role != "system" or "name" in more for role, _, more in messages) > 1
    texts = [
        f"{more.get('name') or role}: {text}" if is_talk else text for role, text, more in messages
    ]
    return "\n\n".join(texts) if texts else chat


def turns_of(chat: Any) -> dict[str, Any] | None:
    """The fields of a conversation: its turns, and its system message as the chatbot's role.

    What a turn has no field for is metadata of the turn. None for what is no chat, and for a chat
    that calls tools.
    """
    turns: list[dict[str, Any]] = []
    orders: list[str] = []
    for role, text, more in _messages(chat):
        own = without_nulls(more)
        if "tool_calls" in own:
            return None
        metadata = {name: own.pop(name) for name in [*own] if name not in Turn.model_fields}
        if role == "system":
            orders.append(text)
        else:
            own |= {"additional_metadata": metadata} if metadata else {}
            turns.append({"role": role, "content": text, **own})
    about = {"chatbot_role": "\n\n".join(orders)} if orders else {}
    return {"turns": turns, **about} if turns else None
