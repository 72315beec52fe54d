"""What can be told of a case before a judge is asked: questions, failures, decisions of code.

Nodes whose inputs are all known are run up to their first question. Code on the case's fields gives
its value, and a node that asks gives its whole prompt. Nothing is sent.
"""

from __future__ import annotations

import copy
import inspect
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

from pydantic import BaseModel

from dagengine.compiler.plan import ALWAYS, Plan, Unit
from dagengine.errors import UnsupportedError
from dagengine.estimate.paths import UnitForecast
from dagengine.execution.node_run import addressed
from dagengine.gateway.host import asking_nobody
from dagengine.graph.first_step import first_step
from dagengine.graph.list_nodes import VerdictListNode
from dagengine.graph.node import AskingNode
from dagengine.graph.values import Given, NodeValue, QuestionCount
from dagengine.prompts.lengths.token_counts import size_of
from dagengine.question import Judge, Question, schema_json, schema_of
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
_READY, _FAILING = UnitForecast(), UnitForecast(fails=True)


@dataclass(frozen=True, slots=True)
class UnitEstimate:
    """What one unit will do on one case, once it runs.

    `keys` identify its questions where they are known word for word. Where they are not, an
    equal `like` on another case says that they will most likely be the same. Tokens are those
    of all likely questions and their answers. `longest` are those of the longest question whose
    words are known, its answer included.
    """

    forecast: UnitForecast = _READY
    asked: QuestionCount = _NOTHING
    keys: tuple[int, ...] = ()
    input_tokens: float = 0.0
    output_tokens: float = 0.0
    like: int | None = None
    longest: float = 0.0


_IDLE, _FAILS = UnitEstimate(), UnitEstimate(_FAILING)


class Lookahead:
    """Looks ahead at cases under one plan."""

    def __init__(
        self, plan: Plan, judges: Sequence[str], items: int, asked: Sequence[Judge] = ()
    ) -> None:
        """`judges` identify the judges in the order of `plan.models`; `asked` are these judges.

        Without the latter all of them are taken for chat models.
        """
        self._plan = plan
        self._asked = [asked[unit.judges[0]] if asked else None for unit in plan.units]
        self._units = [_unit_for(*pair) for pair in zip(plan.units, self._asked, strict=True)]
        self._judges = judges
        self._items = items
        self._telling = [_telling(plan, unit) for unit in plan.units]
        self._constants: dict[int, tuple[UnitEstimate, NodeValue | None]] = {}
        self._sizes: dict[int, tuple[float, float]] = {}

    def look(self, case: TestCase, wanted: Sequence[int]) -> dict[int, UnitEstimate]:
        """An estimate of each unit wanted (what they read is wanted, too)."""
        outputs: dict[int, NodeValue] = {}
        estimates: dict[int, UnitEstimate] = {}
        likes: dict[int, int] = {}
        fields = {path: read_field(case, path) for path in self._plan.fields}
        marks = {
            path: hash(value if isinstance(value, str) else repr(value))
            for path, value in fields.items()
        }
        for number in wanted:  # sources come first
            if number in self._constants:
                estimates[number], value = self._constants[number]
            else:
                unit = self._units[number]
                estimates[number], value = self._estimate(unit, case, fields, outputs)
                if unit.constant:
                    self._constants[number] = estimates[number], value
            if value is not None:
                outputs[number] = value
            likes[number] = self._like(number, case, marks, likes)
            if estimates[number].asked.most != 0 and not estimates[number].keys:
                estimates[number] = replace(estimates[number], like=likes[number])
        return estimates

    def _like(
        self, number: int, case: TestCase, marks: Mapping[str, int], likes: Mapping[int, int]
    ) -> int:
        """A number for everything that a unit reads, and that what it reads reads."""
        unit = self._plan.units[number]
        judge = self._asked[number]
        shown = judge is not None and judge.capabilities.decides and unit.node.asks
        own = repr(case) if unit.node.whole_case or shown else ""
        sources = [likes[source] for _, source, _ in unit.sources]
        return hash((number, own, *[marks[path] for path in unit.reads], *sources))

    def _estimate(
        self,
        unit: Unit,
        case: TestCase,
        values: Mapping[str, Any],
        outputs: Mapping[int, NodeValue],
    ) -> tuple[UnitEstimate, NodeValue | None]:
        fields = tuple([(path, values[path]) for path in unit.reads])
        if any([value is None for _, value in fields]):  # noqa: C419 - faster for these few
            return _FAILS, None
        # Whether a source that may be dead is there, only the run can tell.
        inputs = {
            label: outputs[source].value
            for label, source, slot in unit.sources
            if slot == ALWAYS and source in outputs
        }
        reads = Given(fields, tuple(inputs.items()), case)
        asked = self._asked_by(unit, {**dict(fields), **inputs})
        complete = len(inputs) == len(unit.sources)
        tells = self._telling[unit.index] and (asked.most == 0 or unit.node.asks)
        first = _first_step(unit, reads) if complete and tells else None
        if first is None:
            return self._guessed(unit, reads, asked), None
        if isinstance(first, NodeValue):
            return self._decided(unit, first)
        if isinstance(first, Exception):
            return _FAILS, None
        return self._worded(unit, asked, first), None

    def _asked_by(self, unit: Unit, known: Mapping[str, Any]) -> QuestionCount:
        """The questions of a unit; the quotes of a judge that only decides are one more for each.

        Its writer gives them.
        """
        asked, judge = unit.node.asked(known, self._items), self._asked[unit.index]
        quotes = isinstance(unit.node, AskingNode) and unit.node.quoting is not None
        if not quotes or judge is None or not judge.capabilities.decides:
            return asked
        most = None if asked.most is None else 2 * asked.most
        return QuestionCount(2 * asked.least, 2 * asked.likely, most, 2 * asked.in_a_row)

    def _decided(self, unit: Unit, value: NodeValue) -> tuple[UnitEstimate, NodeValue | None]:
        branches = self._plan.slots[unit.slots[0]].branches
        declared = any(type(v) is type(value.verdict) and v == value.verdict for v in branches)
        if branches and not declared:
            return _FAILS, None
        return UnitEstimate(UnitForecast(verdict=value.verdict)) if branches else _IDLE, value

    def _worded(
        self, unit: Unit, asked: QuestionCount, questions: Sequence[Question[Any]]
    ) -> UnitEstimate:
        """A unit whose first questions are known word for word."""
        judge, asked_one = self._judges[unit.judges[0]], self._asked[unit.index]
        if asked_one is not None:
            questions = [_addressed(asked_one, question) for question in questions]
        sizes = [question_tokens(question, self._items) for question in questions]
        share = asked.likely / len(sizes)
        whole = asked.least == asked.most == len(sizes)
        return UnitEstimate(
            UnitForecast(asked.in_a_row),
            asked,
            tuple(hash((judge, _identity(q))) for q in questions) if whole else (),
            share * sum(size for size, _ in sizes),
            share * sum(size for _, size in sizes),
            longest=max(
                _DENSITY * size_of(question.messages).tokens + _MESSAGE + answer
                for question, (_, answer) in zip(questions, sizes, strict=True)
            ),
        )

    def _guessed(self, unit: Unit, reads: Given, asked: QuestionCount) -> UnitEstimate:
        """A unit whose questions depend on what a judge will say."""
        if asked.most == 0:
            return _IDLE
        if not unit.node.asks:
            return UnitEstimate(UnitForecast(1), asked)
        around, answer = self._size(unit, reads)
        read = sum(text_tokens(str(value)) for _, value in reads.fields)
        tokens = asked.likely * (around + read), asked.likely * answer
        return UnitEstimate(UnitForecast(asked.in_a_row), asked, (), *tokens)

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
            judge = self._asked[unit.index]
            if isinstance(first, list):
                if judge is not None:
                    first = [_addressed(judge, question) for question in first]
                sizes = [question_tokens(question, self._items) for question in first]
                read = sum(text_tokens(str(value)) for _, value in reads.fields)
                around, answer = (sum(part) / len(first) for part in zip(*sizes, strict=True))
                size = max(around - read, 0.0), answer
            self._sizes[unit.index] = size
        return self._sizes[unit.index]


def _unit_for(unit: Unit, judge: Judge | None) -> Unit:
    """The unit as its judge has it: one that decides is asked about every item by itself."""
    node = unit.node
    if judge is None or not judge.capabilities.decides or not isinstance(node, VerdictListNode):
        return unit
    single = copy.copy(node)
    single.per_call = 1
    return replace(unit, node=single)


def _addressed(judge: Judge, question: Question[Any]) -> Question[Any]:
    """A question as it is sent; its own words if there is nobody to send it to."""
    try:
        return addressed(judge, question)[1]
    except UnsupportedError:
        return question


def _telling(plan: Plan, unit: Unit) -> bool:
    """Whether to look at what a unit gives: scores at the end say nothing about questions."""
    if unit.node.asks:
        return True
    # Coroutines may have begun something by the time they wait; they are left alone.
    if inspect.iscoroutinefunction(getattr(unit.node, "function", None)):
        return False
    slots = [plan.slots[number] for number in unit.slots]
    return any(slot.feeds or slot.branches or slot.activates for slot in slots)


def _first_step(unit: Unit, reads: Given) -> NodeValue | list[Question[Any]] | Exception | None:
    """What a node gives or asks at first; None when it waits for something else."""
    with asking_nobody():
        return first_step(unit.node, reads)


def _identity(question: Question[BaseModel]) -> tuple[Any, ...]:
    """What makes two questions one; as `Question.key`, which takes longer."""
    texts = tuple([(message["role"], message["content"]) for message in question.messages])
    return texts, schema_json(question.answer_type), question.options, repr(question.parser or "")


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
        named = part["properties"].items()
        return sum(_ATOM + _named_tokens(name, inner, root, items) for name, inner in named)
    if part.get("type") == "array":
        count = max(part.get("minItems", 0), min(items, part.get("maxItems", items)))
        return float(count * _answer_tokens(part.get("items", {}), root, items))
    return _SENTENCE if part.get("type") == "string" and "enum" not in part else _ATOM


def _named_tokens(name: str, part: Mapping[str, Any], root: Mapping[str, Any], items: int) -> float:
    if name == "reason":
        return _REASON
    if name == "quotes":
        return _answer_tokens(part["items"], root, items)  # one of them
    if name == "output" and part.get("type") == "string":
        return items * _SENTENCE
    return _answer_tokens(part, root, items)
