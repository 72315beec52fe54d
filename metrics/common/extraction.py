"""What several metrics extract: the same words everywhere, so the question is asked once."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import cache, partial
from typing import Annotated, Any, TypeVar

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, create_model

from dagengine.errors import NotApplicableError
from dagengine.graph.graph import is_blank
from dagengine.graph.node import BaseNode
from dagengine.graph.node_values import Ask, Given, NodeValue
from dagengine.graph.nodes import CodeNode, TaskNode
from dagengine.metrics.common.default_prompts import task_prompt
from dagengine.prompts.answer_bounds import Usually
from dagengine.prompts.evidence import as_text, says_something, sentences
from dagengine.prompts.instructions import around_material, task_instructions
from dagengine.prompts.prompt_echo import echoed_instruction, fence_check, texts_of
from dagengine.question import Answer, Check, Message, Question
from dagengine.system.terminal_text import counted, text_if

X = TypeVar("X")
B = TypeVar("B", bound=BaseModel)

STATEMENTS = (
    "List every statement that the text makes, each as one short self-contained sentence in "
    "the text's own language, in the order of the text. Replace pronouns by what they stand "
    "for. Mark each statement: factual if it claims something, whether true or false; not "
    "factual if it is a greeting, a question, an offer, an opinion or a remark about the text "
    "itself. A text that only greets, asks, refuses or shows something (code, a table) makes one "
    "statement that says so."
)
TRUTHS = (
    "List the facts that the text states, each as one short self-contained sentence, in the "
    "order of the text. Take only what the text says, whether or not it is true elsewhere. Of a "
    "text that states none, say in one sentence what it is."
)
OPINIONS = (
    "List every opinion that the text expresses as its own, each as one short self-contained "
    "sentence in the text's own words. Facts, and opinions that the text only reports of "
    "others, are none."
)

_EMPTY = (
    "That list is empty, but {} has {}. Answer again in the same form, and list what they say. If "
    "the text only greets, asks, refuses or shows something (code, a table), the list has one item "
    "that says so."
)

_NOT_FACTUAL = (
    "None of these statements is marked as factual. Factual is what claims something, also if the "
    "claim is false or cannot be checked; greetings, questions, offers and opinions are not. "
    "Answer again in the same form, with the marks that are right."
)

Wording = Callable[[Given], str] | None
_STOPS = " .!?…。！？;:,"  # noqa: RUF001


ONE_AT_LEAST = Field(json_schema_extra={"minItems": 1})
"""Of a list taken out of a text with words: a grammar then gives an item.

It has something true to say, since the question tells what to list of a text that claims nothing.
An empty list from a judge without a grammar is asked for again.
"""


class Extracted(BaseModel):
    """Base of the answers of extractions."""

    model_config = ConfigDict(frozen=True, extra="ignore")


def _mark_factual(value: Any) -> Any:
    """A bare sentence, which a caller's template may ask for, counts as a factual statement."""
    return {"text": value, "factual": True} if isinstance(value, str) else value


class Statement(Extracted):
    """One statement of a text."""

    text: Annotated[str, Usually(1000)]
    factual: bool


class Statements(Extracted):
    """The answer of an extraction of statements."""

    statements: Annotated[list[Annotated[Statement, BeforeValidator(_mark_factual)]], ONE_AT_LEAST]


class Claims(Extracted):
    """The answer of an extraction of claims by a template of one's own."""

    claims: Annotated[list[str], ONE_AT_LEAST]


class Truths(Extracted):
    """The answer of an extraction of facts."""

    truths: Annotated[list[str], ONE_AT_LEAST]


class Opinions(Extracted):
    """The answer of an extraction of opinions."""

    opinions: list[str]


class Questions(Extracted):
    """The answer of a request for questions."""

    questions: list[str]


def item_check(instructions: str, messages: Sequence[Message], source: str) -> Check:
    """Finds items of a list, taken out of the text `source`, that are no part of it.

    These are copies of the marks around the material, and of the instructions.
    """
    around = around_material(task_instructions(instructions))
    return partial(_copied_item, around, fence_check(messages), source)


def _copied_item(instructions: str, fences: Check, source: str, answer: BaseModel) -> str | None:
    return fences(answer) or echoed_instruction(instructions, texts_of(answer), source)


# Without this, a judge that skips the work and says `[]` gives the best score: there is no claim
# that could be wrong. An empty list has to be said twice, and then is an outcome without a score.
def asked_again(
    question: Question[B], answer: Answer[B], source: str, name: str
) -> Question[B] | None:
    """The question once more, if its list is empty although the text `source` has words.

    A text always has something to list: if it claims nothing, one item that says so. `name` is
    what the judge is told that the text is called.
    """
    if any(map(says_something, texts_of(answer.value))) or not says_something(source):
        return None
    return question.again(
        answer.text, _EMPTY.format(name, counted(len(sentences(source)), "sentence"))
    )


def nothing_found(what: str, name: str) -> NotApplicableError:
    """The error for a text that has words, and a judge that listed nothing of it twice."""
    return NotApplicableError(
        f"nothing found to judge: {name} is not empty, but the judge listed no {what}, asked twice"
    )


def distinct(items: Iterable[X], text: Callable[[X], str] = str) -> list[X]:
    """The items that say something, each once; case, blanks and the last stop do not tell apart."""
    unique: dict[str, X] = {}
    for item in items:
        if says_something(text(item)):
            unique.setdefault(" ".join(text(item).split()).rstrip(_STOPS).casefold(), item)
    return list(unique.values())


def each_once(items: Sequence[str]) -> NodeValue:
    """Distinct items as the value of a node, whose reason says how many were repeated."""
    unique = distinct(items)
    left_out = len(items) - len(unique)
    reason = f"{left_out} of {len(items)} items are repeated or blank: left out."
    return NodeValue(unique, reason=reason if left_out else None)


class ExtractionNode(TaskNode):
    """Lists what a case field holds, as an answer type with one list.

    A blank field holds nothing, which costs no call. An empty list of any other field is asked for
    again, which does not count in `questions`. If it is empty again, there is nothing to judge
    (NotApplicableError). It may be `empty` where that is an answer as any other. `when` is a node
    that says whether the list is wanted at all; its output is not part of the question. Fields
    `beside` are shown, too.
    """

    def __init__(
        self,
        instructions: str,
        output_label: str,
        field: str,
        output_type: type[BaseModel],
        wording: Wording = None,
        when: BaseNode | None = None,
        *,
        empty: bool = False,
        beside: Sequence[str] = (),
    ) -> None:
        super().__init__(
            instructions,
            output_label,
            evaluation_params=[field, *beside],
            inputs=[] if when is None else [when],
            output_type=output_type,
            wording=wording,
        )
        (self._list,) = output_type.model_fields
        self._empty = empty

    async def run(self, given: Given, ask: Ask) -> NodeValue:
        source = self.source(given)
        if not all(value for _, value in given.inputs) or is_blank(source):
            return NodeValue(self.output_type.model_validate({self._list: []}))
        # Without the output of `when`: metrics with and without one ask the same question, once.
        question = self.task_question(Given(given.fields, (), given.case))
        answer = await ask(question)
        field = f"`{given.fields[0][0]}`"
        again = None if self._empty else self.again(question, answer, source, field)
        if again is not None:
            answer = await ask(again)
            if asked_again(question, answer, source, field) is not None:
                raise nothing_found(self._list, field)
        return NodeValue(answer.value)

    def source(self, given: Given) -> str:
        """The text that the list is taken from."""
        return as_text(given.fields[0][1])

    def again(
        self, question: Question[Any], answer: Answer[Any], source: str, field: str
    ) -> Question[Any] | None:
        """The question once more, if the answer has nothing of what is wanted."""
        return asked_again(question, answer, source, field)

    def check(self, given: Given, messages: tuple[Message, ...]) -> Check:
        return item_check(self.instructions, messages, self.source(given))


class ClaimsNode(ExtractionNode):
    """Lists statements; that none of them is factual has to be said twice.

    The first question is that of `statements_of_answer`. Weak judges take "factual" for "true": a
    text whose only claim is false would have no claim that could be unfaithful.
    """

    def again(
        self, question: Question[Any], answer: Answer[Any], source: str, field: str
    ) -> Question[Any] | None:
        again = super().again(question, answer, source, field)
        factual = any(statement.factual for statement in answer.value.statements)
        if again is not None or factual or not says_something(source):
            return again
        return question.again(answer.text, _NOT_FACTUAL)


def statements_of_answer(wording: Wording, when: BaseNode | None) -> CodeNode:
    """All statements of the actual output."""

    def each_text(found: Statements) -> NodeValue:
        return each_once([statement.text for statement in found.statements])

    field = "actual_output"
    statements = ExtractionNode(
        STATEMENTS, f"statements of {field}", field, Statements, wording, when
    )
    return CodeNode(each_text, inputs=[statements], output_label="statements")


def claims_of(
    field: str = "actual_output", wording: Wording = None, when: BaseNode | None = None
) -> CodeNode:
    """The claims of a case field: of its statements those that are factual.

    With `wording` a separate question asks for them, as `Claims`.
    """
    if wording is not None:
        extraction = ExtractionNode(STATEMENTS, f"claims of {field}", field, Claims, wording, when)
        return the_list(extraction, "claims")

    def factual_ones(found: Statements) -> NodeValue:
        return each_once([statement.text for statement in found.statements if statement.factual])

    label = f"statements of {field}"
    statements = ClaimsNode(STATEMENTS, label, field, Statements, when=when)
    return CodeNode(factual_ones, inputs=[statements], output_label="claims")


def truths_instructions(limit: int | None) -> str:
    """Instructions to list the facts of a text, at most `limit` of them if there is a limit."""
    return TRUTHS + text_if(limit is not None, f" Give the {limit} most important at most.")


def truths_prompt(limit: int | None, **evidence: Any) -> str:
    """The built-in prompt that asks for the facts of a text."""
    return task_prompt(truths_instructions(limit), limited_type(Truths, limit), **evidence)


@cache
def limited_type(kind: type[BaseModel], limit: int | None) -> type[BaseModel]:
    """An answer type with one list of texts, of at most `limit` of them."""
    if limit is None:
        return kind
    ((name, field),) = kind.model_fields.items()
    extra = field.json_schema_extra
    texts = Annotated[list[str], Field(max_length=limit, json_schema_extra=extra)]
    fields: dict[str, Any] = {name: (texts, ...)}
    return create_model(kind.__name__, __base__=kind, **fields)


def truths_of(
    field: str,
    limit: int | None = None,
    wording: Wording = None,
    when: BaseNode | None = None,
) -> CodeNode:
    """The facts that a case field states, by one question about all of it."""
    answer = limited_type(Truths, limit)
    instructions, label = truths_instructions(limit), f"truths of {field}"
    extraction = ExtractionNode(instructions, label, field, answer, wording, when)
    return the_list(extraction, "truths")


def findings_of(
    instructions: str,
    answer: type[BaseModel],
    beside: Sequence[str],
    wording: Wording,
) -> CodeNode:
    """Findings of one kind in the actual output, as the one list of `answer`; it may be empty."""
    (name,) = answer.model_fields
    field = "actual_output"
    label = f"{name.replace('_', ' ')} of {field}"
    extraction = ExtractionNode(
        instructions, label, field, answer, wording, empty=True, beside=beside
    )
    return the_list(extraction, name)


def questions_of(field: str, instructions: str, limit: int, wording: Wording = None) -> CodeNode:
    """Questions about a case field, at most `limit` of them."""
    answer = limited_type(Questions, limit)
    label = "questions about the source"
    extraction = ExtractionNode(instructions, label, field, answer, wording, empty=True)
    return the_list(extraction, "questions")


def the_list(source: BaseNode, name: str) -> CodeNode:
    """The one list of an answer, as a node."""

    def each_text(found: BaseModel) -> NodeValue:
        return each_once(getattr(found, name))

    return CodeNode(each_text, inputs=[source], output_label=name)


def fixed_list(items: Sequence[str], label: str) -> CodeNode:
    """A list that is the same for every case, as a node."""
    fixed = tuple(items)

    def as_given() -> list[str]:
        return list(fixed)

    return CodeNode(as_given, output_label=label)
