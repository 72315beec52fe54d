"""Nodes over the items of a list: one question per item, or one question about all."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import chain, repeat
from typing import Any, Literal, TypeVar, Unpack, cast

from pydantic import BaseModel

from dagengine.errors import InputError
from dagengine.graph.argument_checks import answer_kind, as_nodes, fields_listed, of_kind, text
from dagengine.graph.node import BaseNode
from dagengine.graph.node_settings import JudgingSettings, ListSettings, takes
from dagengine.graph.node_values import Ask, Given, Judgement, NodeValue, QuestionCount
from dagengine.graph.nodes import JudgingNode, verdict_of
from dagengine.prompts.answer_types import judgement_type, list_type, output_of, output_type
from dagengine.prompts.evidence import Evidence, as_text, evidence_of, field_of, numbered_name
from dagengine.prompts.instructions import (
    judgement_instructions,
    list_instructions,
    task_instructions,
)
from dagengine.prompts.prompt_echo import fence_check
from dagengine.prompts.quotes import Quote, QuoteCheck, judgements_in, quoted_type
from dagengine.question import DEFAULT_OPTIONS, Answer, Odds, Options, Question, schema_of
from dagengine.test_case import LLMTestCaseParams, Span, ToolCall, field_name

T = TypeVar("T", bound=BaseModel)


def number_items(label: str, items: Iterable[Any]) -> list[Evidence]:
    """Items as evidence: "claim 1", "claim 2", …"""
    return [Evidence(f"{label} {number}", as_text(item)) for number, item in enumerate(items, 1)]


def span_ids(items: Sequence[Any]) -> tuple[str, ...]:
    """The ids of items that are all spans of a trace, or read from one; empty for any others."""
    ids: list[str] = []
    for item in items:
        if not isinstance(item, Span | ToolCall) or item.span_id is None:
            return ()
        ids.append(item.span_id)
    return tuple(ids)


def judgement_of(
    answer: BaseModel, odds: Odds | None = None, quotes: tuple[Quote, ...] = ()
) -> Judgement:
    """The judgement in an answer that has a reason and a verdict."""
    fields = cast(Any, answer)
    return Judgement(verdict=fields.verdict, reason=fields.reason, odds=odds, quotes=quotes)


def mean_mass(answers: Iterable[Answer[Any] | NodeValue]) -> float | None:
    """The share of all probability on the options, on average over answers that know it."""
    masses = [answer.mass for answer in answers if answer.mass is not None]
    return math.fsum(masses) / len(masses) if masses else None


class _OverNode(JudgingNode):
    """A node that goes over a list: the output of a node, or a field of the case.

    `given` is all that it reads, `rest` that without the list.
    """

    item_label: str

    def __init__(
        self,
        over: BaseNode | str | LLMTestCaseParams,
        *,
        evaluation_params: Iterable[str | LLMTestCaseParams] | None = None,
        inputs: Iterable[BaseNode] = (),
        **common: Any,
    ) -> None:
        of_kind("over", over, BaseNode | str, "a field of the case or a node")
        fields, nodes = fields_listed(evaluation_params or ()), as_nodes("inputs", inputs)
        if isinstance(over, BaseNode):
            nodes.insert(0, over)
        else:
            fields.insert(0, over)
        super().__init__(evaluation_params=fields, inputs=nodes, **common)
        self.over = over

    def names_in_examples(self, read: Iterable[str]) -> list[str]:
        return [self.item_label, *(name for name in read if name != self._list_name)]

    @property
    def only(self) -> str:
        return self.item_label

    @property
    def _list_name(self) -> str:
        """The name by which the node reads the list."""
        over = self.over
        return (over.output_label or over.title) if isinstance(over, BaseNode) else field_name(over)

    def _split(self, reads: Given) -> tuple[list[Any], Given]:
        """The items, and everything else that is read; raises InputError without a list."""
        if isinstance(self.over, BaseNode):
            items, rest = reads.inputs[0][1], replace(reads, inputs=reads.inputs[1:])
        else:
            items, rest = reads.fields[0][1], replace(reads, fields=reads.fields[1:])
        if not isinstance(items, list | tuple):
            source = self.over.title if isinstance(self.over, BaseNode) else self.over
            raise InputError(f"this node needs a list, but {source!r} is {items!r:.80}")
        return list(items), rest

    def _pieces(self, items: Sequence[Evidence], rest: Given) -> list[list[Evidence]]:
        """The pieces that the verdict on each of `items`, as the prompt shows them, may quote.

        These are pieces of the case, and the item itself if it is from a field of the case.
        """
        beside: list[Evidence] = []
        if isinstance(self.over, BaseNode):
            # The item is what another node wrote. Quoting it would show that a judge said so, not
            # that the case does. So it is quoted only if the node reads nothing else.
            if rest.fields or rest.inputs:
                beside = rest.quotable(self.quote_from)
            shows_item = not beside
        elif self.quote_from and field_name(self.over) not in self.quote_from:
            beside, shows_item = rest.quotable(self.quote_from), False
        else:
            beside, shows_item = replace(rest, inputs=()).evidence(), True
            if self.quote_from:
                beside = [piece for piece in beside if field_of(piece.label) in self.quote_from]
        return [[item, *beside] if shows_item else beside for item in items]

    async def _judgements(
        self,
        ask: Ask,
        given: Given,
        split: tuple[list[Any], Given],
        groups: Sequence[Sequence[int]],
        make: Callable[[Sequence[Any], QuoteCheck | None], Question[Any]],
    ) -> tuple[list[Answer[Any]], dict[int, Judgement]]:
        """The answers to one question per group of items, and the judgements by index of the item.

        `split` are all items, and `rest`. A group is the indices of its items; `make` makes the
        question about them. An item that an answer leaves out has no judgement.
        """
        quoting, (items, rest) = self.quoting, split
        parts = [list(map(items.__getitem__, group)) for group in groups]
        shown = [] if quoting is None else [self.show(part, given) for part in parts]
        pieces = [self._pieces(evidence, rest) for evidence in shown]
        if quoting is None:
            answers = quoted = await ask.each(map(make, parts, repeat(None)))
        elif ask.decides:
            # A judge that decides cannot quote. A writer is asked for the quotes of each verdict.
            questions = list(map(make, parts, repeat(None)))
            answers = await ask.each(questions)
            verdicts = zip(questions, answers, pieces, shown, strict=True)
            quoted = await ask.each(
                self.quotes_of(quoting, answer, question.decision, own, [*rest.evidence(), *item])
                for question, answer, (own,), item in verdicts  # a group has one item here
                if question.decision is not None
            )
        else:
            answers = quoted = await ask.each(map(make, parts, map(quoting.check, pieces)))
        judgements: dict[int, Judgement] = {}
        for number, (group, answer) in enumerate(zip(groups, answers, strict=True)):
            quotations: Iterable[tuple[Quote, ...]] = repeat(())
            if quoting is not None:
                quotations = quoting.in_answer(quoted[number], pieces[number])
            for verdict, quotes in zip(judgements_in(answer.value), quotations, strict=False):
                position: int = getattr(verdict, "number", 1) - 1
                index = group[position]
                if quotes:
                    label = shown[number][position].label
                    quotes = self._rename_quotes(quotes, label, index, len(items))
                judgements[index] = judgement_of(verdict, answer.chances, quotes)
        return answers, judgements

    def show(self, items: Sequence[Any], given: Given) -> Sequence[Evidence]:
        """Items as the question about them shows them."""
        return [Evidence(self.item_label, as_text(item)) for item in items]

    def _rename_quotes(
        self, quotes: tuple[Quote, ...], label: str, index: int, count: int
    ) -> tuple[Quote, ...]:
        """Name the item in its quotes as the case does; a question about a part numbers it anew."""
        if isinstance(self.over, BaseNode):
            return quotes
        names = {label: numbered_name(field_name(self.over), index + 1, count)}
        return tuple(replace(quote, piece=names.get(quote.piece, quote.piece)) for quote in quotes)

    def questions(self, known: Mapping[str, Any], items: int) -> QuestionCount:
        value = known.get(self._list_name)
        if isinstance(value, list | tuple):
            return QuestionCount.exactly(self.calls(len(value)))
        # The largest number of items that the type of the list allows
        schema = schema_of(output_type(getattr(self.over, "output_type", str)))
        most = schema.get("properties", {}).get("output", {}).get("maxItems")
        if most is None:
            return QuestionCount(0, self.calls(items), None)
        return QuestionCount(0, self.calls(min(items, most)), self.calls(int(most)))

    def calls(self, count: int) -> int:
        """The number of questions about `count` items."""
        return count


class MapNode(_OverNode):
    """Asks one question per item of a list, in parallel.

    `over` is the list: a node whose output is a list, or the name of a case field. `answer` is the
    type of each answer. With `bool` or a tuple of strings it is a verdict with its reason, and
    readers get a list of `Judgement`. With any other type it is an output of that type, and readers
    get a list of these. A `prompt` or `wording` refers to the item by `item_label`, and to all else
    that the node reads by its name. The whole list is not shown. Raises InputError if `over` is not
    a list in a run.
    """

    kind = "map"

    @takes(JudgingSettings)
    def __init__(
        self,
        instructions: str,
        over: BaseNode | str | LLMTestCaseParams,
        output_label: str,
        *,
        answer: Any = str,
        item_label: str = "item",
        children: Iterable[BaseNode] = (),
        evaluation_params: Iterable[str | LLMTestCaseParams] | None = None,
        options: Options = DEFAULT_OPTIONS,
        wording: Callable[[Given], str] | None = None,
        **settings: Unpack[JudgingSettings],
    ) -> None:
        self.instructions = text("instructions", instructions)
        self.answer = answer_kind("answer", answer, ", or a tuple of verdicts")
        self.item_label = text("item_label", item_label)
        misplaced = "only verdicts quote" if self.quoting else "examples are for verdicts"
        if (self.quoting or self.examples) and not self.exemplary:
            raise InputError(f"{self.title}: {misplaced}: give answer=bool or a tuple of verdicts")

    @property
    def text(self) -> str:
        return self.instructions

    @property
    def vote(self) -> Literal["items", None]:
        return "items" if self.exemplary else None

    @property
    def exemplary(self) -> tuple[Any, ...]:
        if self.answer is bool:
            return (True, False)
        return self.answer if isinstance(self.answer, tuple) else ()

    async def run(self, given: Given, ask: Ask) -> NodeValue:
        items, rest = self._split(given)
        verdicts = self.exemplary
        if not verdicts:
            shape, system = output_type(self.answer), task_instructions(self.instructions)
            answers = await ask.each(self._about(item, rest, system, shape) for item in items)
            return NodeValue([output_of(answer.value) for answer in answers], spans=span_ids(items))
        shape = judgement_type(None if self.answer is bool else verdicts)
        system = judgement_instructions(self.instructions, verdicts)

        def make(part: Sequence[Any], quotes: QuoteCheck | None) -> Question[Any]:
            full_shape = shape if quotes is None else quoted_type(shape, quotes.mode)
            return self._about(part[0], rest, system, full_shape, quotes)

        groups = [[index] for index in range(len(items))]
        answers, judgements = await self._judgements(ask, given, (items, rest), groups, make)
        ordered = map(judgements.__getitem__, range(len(items)))
        return NodeValue(list(ordered), mass=mean_mass(answers), spans=span_ids(items))

    def _about(
        self, item: Any, rest: Given, system: str, shape: type[T], quotes: QuoteCheck | None = None
    ) -> Question[T]:
        """The question about one item."""
        part = Given(rest.fields, ((self.item_label, item), *rest.inputs), rest.case)
        # The item comes last. So the prompts for all items begin alike, and a server reads the rest
        # once (`gateway/packs/prompt_cache`).
        evidence = [*rest.evidence(), Evidence(self.item_label, as_text(item))]
        messages = self.messages(part, system, evidence)
        if not self.exemplary:
            return self.put(messages, shape, None, self.parser, fence_check(messages))
        decision = verdict_of(part, self.instructions, self.exemplary)
        return self.put(messages, shape, decision, self.parser, quotes=quotes)

    def prompt_names(self, read: Iterable[str]) -> set[str]:
        return set(self.names_in_examples(read))


class VerdictListNode(_OverNode):
    """Asks one question about all items of a list; every item gets its own verdict.

    A question is about at most `per_call` items (None: all), numbered from 1. All questions are
    asked in parallel. A `wording` then sees only the items of its question. The judge answers with
    one key per number, or with a list: of numbered verdicts, or in the order of the items. An
    answer with more verdicts than items, or with at most half, is asked for again. After that,
    items whose verdicts are missing or duplicate are asked one by one. `questions` counts neither.
    A judge that only decides gets one question per item. Readers get a list of `Judgement` in the
    order of the items. An empty list costs no call. `items_of` names the field that the list is
    about, item by item: if that was read from a trace, the verdicts keep the ids of its spans.
    Raises InputError if `per_call` is below 1.
    """

    kind = "verdict list"
    of_criteria = False  # whether its items are the criteria, and `criteria` only words around them

    @takes(ListSettings)
    def __init__(
        self,
        criteria: str,
        over: BaseNode | str | LLMTestCaseParams,
        output_label: str,
        *,
        verdicts: tuple[str, ...],
        item_label: str = "item",
        children: Iterable[BaseNode] = (),
        evaluation_params: Iterable[str | LLMTestCaseParams] | None = None,
        options: Options = DEFAULT_OPTIONS,
        wording: Callable[[Given], str] | None = None,
        per_call: int | None = None,
        items_of: str | None = None,
        **settings: Unpack[ListSettings],
    ) -> None:
        if per_call is not None and (not isinstance(per_call, int) or per_call < 1):
            raise InputError(f"per_call must be a whole number from 1 on, got {per_call!r:.80}")
        self.criteria = text("criteria", criteria)
        self.per_call = per_call
        self.items_of = items_of
        self.verdicts = tuple(of_kind("verdicts", verdicts, tuple | list, "a tuple of texts"))
        self.item_label = text("item_label", item_label)

    @property
    def vote(self) -> Literal["verdicts"]:
        return "verdicts"

    @property
    def exemplary(self) -> tuple[str, ...]:
        return self.verdicts

    def questions(self, known: Mapping[str, Any], items: int) -> QuestionCount:
        count = super().questions(known, items)
        without_bound = self.per_call is None and count.most is None
        return replace(count, most=1) if without_bound else count

    def calls(self, count: int) -> int:
        return math.ceil(count / (self.per_call or max(count, 1)))

    async def run(self, given: Given, ask: Ask) -> NodeValue:
        items, rest = split = self._split(given)
        make = partial(self._about, given, rest)
        # Five items, two per question. The second answer does not fit, also when it is asked for
        # again: it has two verdicts on item 2. Item 2 gets a question of its own.
        #
        #     [0 1] ──▶ 0: yes  1: no
        #     [2 3] ──▶ 2: yes  2: no  3: yes     ──▶ [2] ──▶ 2: no
        #     [4]   ──▶ 4: yes
        groups = self.groups(items, 1 if ask.decides else self.per_call)
        answers, judged = await self._judgements(ask, given, split, groups, make)
        missing = [[index] for index in chain.from_iterable(groups) if index not in judged]
        single, more = await self._judgements(ask, given, split, missing, make)
        judgements = self.in_order(items, {**judged, **more})
        mass = mean_mass([*answers, *single])
        sources = items if self.items_of is None else dict(rest.fields).get(self.items_of) or ()
        return NodeValue(judgements, mass=mass, spans=span_ids(sources))

    def groups(self, items: Sequence[Any], size: int | None) -> list[Sequence[int]]:
        """The indices of the items of each question, at most `size` in one (None: all)."""
        every, step = range(len(items)), size or max(1, len(items))
        return [every[start : start + step] for start in every[::step]]

    def in_order(self, items: Sequence[Any], judged: Mapping[int, Judgement]) -> list[Judgement]:
        """The judgements of all items; `judged` has those of the items that were asked about."""
        return list(map(judged.__getitem__, range(len(items))))

    def evidence_in(self, item: Any) -> Any:
        """The part of an item that prompts show."""
        return item

    def verdicts_of(self, items: Sequence[Any]) -> tuple[str, ...]:
        """The verdicts that items of one question may have."""
        return self.verdicts

    def step(self, verdicts: tuple[str, ...], count: int, field: str | None) -> str:
        """Instruction of a question about `count` items, which may be all of a `field`."""
        return list_instructions(self.criteria, verdicts, self.item_label, count, field)

    def shape(
        self, verdicts: tuple[str, ...], count: int, quotes: QuoteCheck | None = None
    ) -> type[BaseModel]:
        """The answer type of a question about `count` items."""
        return list_type(verdicts, count, None if quotes is None else quotes.mode)

    def show(self, items: Sequence[Any], given: Given) -> Sequence[Evidence]:
        field = self._field_of(items, given)
        return evidence_of(field, items) if field else self._number_items(items)

    def _number_items(self, items: Iterable[Any]) -> list[Evidence]:
        return number_items(self.item_label, map(self.evidence_in, items))

    def _about(
        self, given: Given, rest: Given, items: Sequence[Any], quotes: QuoteCheck | None = None
    ) -> Question[BaseModel]:
        """The question about some of the items."""
        field, verdicts = self._field_of(items, given), self.verdicts_of(items)
        step = self.step(verdicts, len(items), field)
        evidence = given.evidence() if field else [*rest.evidence(), *self._number_items(items)]
        # What is read, with these items as the whole list
        if isinstance(self.over, BaseNode):
            (label, _), *inputs = given.inputs
            part = replace(given, inputs=((label, items), *inputs))
        else:
            (label, _), *fields = given.fields
            part = replace(given, fields=((label, items), *fields))
        messages = self.messages(part, step, evidence)
        shape = self.shape(verdicts, len(items), quotes)
        if len(items) > 1:
            return self.put(messages, shape, quotes=quotes)
        material = ((self.item_label, self.evidence_in(items[0])), *rest.inputs)
        decision = verdict_of(rest, self.criteria, verdicts, material=material)
        return self.put(messages, shape, decision, quotes=quotes)

    def _field_of(self, items: Sequence[Any], given: Given) -> str | None:
        """The field of the case whose items these are, if it has no others: they keep its names."""
        if isinstance(self.over, BaseNode):
            return None
        # A question about a part of the list shows that part, and numbers it from 1. In the field
        # the same pieces have other numbers ("7 of 8"), so they are called by their item label.
        path, pieces = given.fields[0]
        return path if items and len(items) == len(pieces) else None
