"""What can be told of a case before a judge is asked: questions, failures, decisions of code.

Nodes whose inputs are all known are run up to their first question. Code on the case's fields gives
its value, and a node that asks gives its whole prompt. Nothing is sent.
"""

from __future__ import annotations

import copy
import inspect
import math
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

from pydantic import BaseModel

from dagengine.compiler.execution_plan import ALWAYS, Plan, Unit
from dagengine.errors import UnsupportedError
from dagengine.graph.current_node import asking_nobody
from dagengine.graph.first_questions import first_step
from dagengine.graph.list_nodes import VerdictListNode
from dagengine.graph.node import AskingNode
from dagengine.graph.node_values import Given, NodeValue, QuestionCount
from dagengine.prompts.decisions import address_question
from dagengine.prompts.lengths.token_counts import size_of
from dagengine.question import Judge, Question, schema_json, schema_of
from dagengine.results import Verdict
from dagengine.test_case import TestCase, read_field

# Assumptions, as `ASSUMED` states them.
_BYTES, _SENTENCE, _REASON, _ATOM, _MESSAGE, _AROUND = 4, 20, 40, 5, 4, 150
ASSUMED = (
    f"A token is {_BYTES} bytes. A list or text that a judge writes has {{items}} items or "
    f"sentences of {_SENTENCE} tokens, a reason {_REASON} tokens."
)
# Tokens of usual tokenizers for one of the most efficient.
_DENSITY = 1.3
_STAND_IN = "x" * _SENTENCE * _BYTES
_NOTHING = QuestionCount.exactly(0)


@dataclass(frozen=True, slots=True)
class UnitForecast:
    """What a unit will do when it runs: fail, decide, or keep its readers waiting.

    `rounds` counts the questions put one after the other (0: it asks nothing);
    `verdict` is None if it is not known beforehand.
    """

    rounds: int = 0
    verdict: Verdict | None = None
    fails: bool = False


@dataclass(frozen=True, slots=True)
class UnitEstimate:
    """What one unit will do on one case, once it runs.

    `keys` identify its questions where they are known word for word. Where they are not, an
    equal `like` on another case says that they will most likely be the same. Tokens are those
    of all likely questions and their answers. `longest` are those of the longest question whose
    words are known, its answer included. `value` is that of code, where it can be told.
    """

    forecast: UnitForecast = UnitForecast()
    asked: QuestionCount = _NOTHING
    keys: tuple[int, ...] = ()
    input_tokens: float = 0.0
    output_tokens: float = 0.0
    like: int | None = None
    longest: float = 0.0
    value: NodeValue | None = None


_FAILS = UnitEstimate(UnitForecast(fails=True))


class Lookahead:
    """Looks ahead at cases under one plan."""

    def __init__(self, plan: Plan, judges: Sequence[Judge], items: int) -> None:
        """`judges` are those of the plan; without them all are taken for chat models."""
        self._plan = plan
        self._asked = [judges[unit.judges[0]] if judges else None for unit in plan.units]
        self._names = [judge.identity for judge in judges] or [*map(str, plan.models)]
        self._units = list(plan.units)
        self._whole_case = [unit.node.whole_case for unit in plan.units]
        for unit, judge in zip(plan.units, self._asked, strict=True):
            if judge is not None and judge.capabilities.decides:
                self._whole_case[unit.index] |= unit.node.asks
                # A judge that decides is asked about every item of a list by itself.
                if isinstance(unit.node, VerdictListNode):
                    single = copy.copy(unit.node)
                    single.per_call = 1
                    self._units[unit.index] = replace(unit, node=single)
        self._items = items
        self._telling = [_telling(plan, unit) for unit in plan.units]
        self._constants: dict[int, UnitEstimate] = {}
        self._sizes: dict[int, tuple[float, float]] = {}

    def look(self, case: TestCase, wanted: Sequence[int]) -> dict[int, UnitEstimate]:
        """An estimate of each unit wanted (what they read is wanted, too)."""
        estimates: dict[int, UnitEstimate] = {}
        likes: dict[int, int] = {}
        fields = {path: read_field(case, path) for path in self._plan.fields}
        texts = (value if isinstance(value, str) else repr(value) for value in fields.values())
        marks = dict(zip(fields, map(hash, texts), strict=True))
        for number in wanted:  # sources come first
            unit = self._units[number]
            estimate = self._constants.get(number)
            if estimate is None:
                estimate = self._estimate(unit, case, fields, estimates)
            if unit.constant:  # what reads no field of the case is the same in all of them
                self._constants[number] = estimate
            # A number for everything that the unit reads, and that what it reads reads
            whole = repr(case) if self._whole_case[number] else ""
            sources = [likes[source] for _, source, _ in unit.sources]
            likes[number] = hash((number, whole, *[marks[path] for path in unit.reads], *sources))
            if estimate.asked.most != 0 and not estimate.keys:
                estimate = replace(estimate, like=likes[number])
            estimates[number] = estimate
        return estimates

    def _estimate(
        self,
        unit: Unit,
        case: TestCase,
        values: Mapping[str, Any],
        sources: Mapping[int, UnitEstimate],
    ) -> UnitEstimate:
        fields = tuple([(path, values[path]) for path in unit.reads])
        if any([value is None for _, value in fields]):  # noqa: C419 - faster for these few
            return _FAILS
        inputs: dict[str, Any] = {}
        for label, source, slot in unit.sources:
            value = sources[source].value
            # Whether a source that may be dead is there, only the run can tell.
            if slot == ALWAYS and value is not None:
                inputs[label] = value.value
        reads = Given(fields, tuple(inputs.items()), case)
        asked = self._question_count(unit, {**dict(fields), **inputs})
        complete = len(inputs) == len(unit.sources)
        # Code that may put questions is not run: nobody would answer them.
        tells = self._telling[unit.index] and (asked.most == 0 or unit.node.asks)
        first = _first_step(unit, reads) if complete and tells else None
        if first is None:
            return self._guessed_unit(unit, reads, asked)
        if isinstance(first, NodeValue):
            return self._valued_unit(unit, first)
        if isinstance(first, Exception):
            return _FAILS
        return self._worded_unit(unit, asked, first)

    def _question_count(self, unit: Unit, values: Mapping[str, Any]) -> QuestionCount:
        asked, judge = unit.node.all_questions(values, self._items), self._asked[unit.index]
        quotes = isinstance(unit.node, AskingNode) and unit.node.quoting is not None
        if not quotes or judge is None or not judge.capabilities.decides:
            return asked
        # A judge that only decides gives no quotes: its writer does, one question for each.
        most = asked.most and 2 * asked.most
        return QuestionCount(2 * asked.least, 2 * asked.likely, most, 2 * asked.in_a_row)

    def _valued_unit(self, unit: Unit, value: NodeValue) -> UnitEstimate:
        """A unit of code whose value is known."""
        branches = self._plan.slots[unit.slots[0]].branches
        if not branches:
            return UnitEstimate(value=value)
        # 1 == True in Python, but they are two verdicts.
        if not any(type(v) is type(value.verdict) and v == value.verdict for v in branches):
            return _FAILS
        return UnitEstimate(UnitForecast(verdict=value.verdict), value=value)

    def _worded_unit(
        self, unit: Unit, asked: QuestionCount, questions: Sequence[Question[Any]]
    ) -> UnitEstimate:
        """A unit whose first questions are known word for word."""
        judge = self._names[unit.judges[0]]
        questions, sizes = self._measure(unit, questions)
        share = asked.likely / len(sizes)
        read, written = (share * sum(part) for part in zip(*sizes, strict=True))
        whole = asked.least == asked.most == len(sizes)
        # What makes two questions one, as `Question.key`, which takes longer.
        keys = list[int]()
        for question in questions if whole else ():
            texts = tuple([(message["role"], message["content"]) for message in question.messages])
            answer_type: type[BaseModel] = question.answer_type
            form = schema_json(answer_type), question.options, repr(question.parser or "")
            keys.append(hash((judge, texts, form)))
        return UnitEstimate(
            UnitForecast(asked.in_a_row),
            asked,
            tuple(keys),
            read,
            written,
            longest=max(
                _DENSITY * size_of(question.messages).tokens + _MESSAGE + answer
                for question, (_, answer) in zip(questions, sizes, strict=True)
            ),
        )

    def _guessed_unit(self, unit: Unit, reads: Given, asked: QuestionCount) -> UnitEstimate:
        """A unit whose questions depend on what a judge will say."""
        if asked.most == 0:
            return UnitEstimate()
        if not unit.node.asks:
            return UnitEstimate(UnitForecast(1), asked)
        around, answer = self._size(unit, reads)
        read = sum(text_tokens(str(value)) for _, value in reads.fields)
        tokens = asked.likely * (around + read), asked.likely * answer
        return UnitEstimate(UnitForecast(asked.in_a_row), asked, (), *tokens)

    def _measure(
        self, unit: Unit, questions: Sequence[Question[Any]]
    ) -> tuple[list[Question[Any]], list[tuple[float, float]]]:
        """Questions as they are sent, with their tokens; their own words if nobody can be asked."""
        sent, judge = list(questions), self._asked[unit.index]
        for index, question in enumerate(questions):
            with suppress(UnsupportedError):
                if judge is not None:
                    sent[index] = address_question(judge, question)[1]
        return sent, [question_tokens(question, self._items) for question in sent]

    def _size(self, unit: Unit, reads: Given) -> tuple[float, float]:
        """Tokens of one question besides the case's fields, and of its answer.

        From a prompt in which sentences stand for what is not known; where the node cannot
        make one of them, from its instructions.
        """
        if unit.index not in self._sizes:
            values = dict(reads.inputs)
            stand_in = [_STAND_IN] * self._items
            inputs = tuple((label, values.get(label, stand_in)) for label, _, _ in unit.sources)
            first = _first_step(unit, replace(reads, inputs=inputs))
            size = text_tokens(unit.node.text) + _AROUND, 2.0 * _REASON
            if isinstance(first, list):
                _, sizes = self._measure(unit, first)
                read = sum(text_tokens(str(value)) for _, value in reads.fields)
                around, answer = (sum(part) / len(first) for part in zip(*sizes, strict=True))
                size = max(around - read, 0.0), answer
            self._sizes[unit.index] = size
        return self._sizes[unit.index]


def _telling(plan: Plan, unit: Unit) -> bool:
    """Whether to look at what a unit gives: scores at the end say nothing about questions."""
    if unit.node.asks:
        return True
    # Coroutines may have begun something by the time they wait; they are left alone.
    if inspect.iscoroutinefunction(getattr(unit.node, "function", None)):
        return False
    return any(slot.feeds or slot.branches or slot.activates for slot in plan.slots_at(unit.slots))


def _first_step(unit: Unit, reads: Given) -> NodeValue | list[Question[Any]] | Exception | None:
    """The first value or questions of a node; None when it waits for something else."""
    with asking_nobody():
        return first_step(unit.node, reads)


def text_tokens(text: str) -> int:
    """About how many tokens a text has: one per four bytes."""
    return math.ceil(len(text.encode(errors="surrogatepass")) / _BYTES)


def question_tokens(question: Question[BaseModel], items: int) -> tuple[float, float]:
    """About how many tokens a question has (with the schema it carries), and its answer."""
    prompt = sum([text_tokens(message["content"]) + _MESSAGE for message in question.messages])
    if question.decision is not None and question.options.temperature is None:
        return prompt, _ATOM  # a decision as decision models get it: no schema, and odds come back
    if question.parser is not None:
        return prompt, _REASON
    schema, answer = _schema_tokens(question.answer_type, items)
    return prompt + schema, answer


@lru_cache(1_000)
def _schema_tokens(answer_type: type[BaseModel], items: int) -> tuple[int, float]:
    """Tokens of a schema, and of an answer that follows it."""
    schema = schema_of(answer_type)
    return text_tokens(schema_json(answer_type)), _answer_tokens(schema, schema, items)


def _answer_tokens(part: Mapping[str, Any], root: Mapping[str, Any], items: int) -> float:
    """Tokens of a JSON answer that follows a part of a schema."""
    if "$ref" in part:
        return _answer_tokens(root["$defs"][part["$ref"].rpartition("/")[2]], root, items)
    if "properties" in part:
        total: float = 0
        for name, inner in part["properties"].items():
            if name == "reason":
                tokens: float = _REASON
            elif name == "quotes":
                tokens = _answer_tokens(inner["items"], root, items)  # one of them
            elif name == "output" and inner.get("type") == "string":
                tokens = items * _SENTENCE
            else:
                tokens = _answer_tokens(inner, root, items)
            total += _ATOM + tokens
        return total
    if part.get("type") == "array":
        count = max(part.get("minItems", 0), min(items, part.get("maxItems", items)))
        return float(count * _answer_tokens(part.get("items", {}), root, items))
    return _SENTENCE if part.get("type") == "string" and "enum" not in part else _ATOM
