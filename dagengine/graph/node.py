"""What every node has: what it reads, where it leads, what it asks."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any, ClassVar, Literal, TypeVar

from pydantic import BaseModel

from dagengine.errors import InputError
from dagengine.graph.argument_checks import (
    as_callable,
    as_nodes,
    field_paths,
    of_kind,
    text_or_none,
    verdict_targets,
)
from dagengine.graph.examples_and_quotes import (
    DECIDED_STEP,
    Example,
    Quotes,
    SolvedExamples,
    Unsupported,
    examples_given,
    sources_in_words,
    verdict_in,
)
from dagengine.graph.node_values import Ask, Given, NodeValue, Panel, QuestionCount, Work
from dagengine.prompts.decisions import PROMPTED
from dagengine.prompts.evidence import Evidence
from dagengine.prompts.instructions import PromptTemplate, messages_for, with_bounds, with_examples
from dagengine.prompts.quotes import (
    Quote,
    QuoteCheck,
    QuoteMode,
    QuotingParser,
    quoted_type,
    quoting_words,
)
from dagengine.question import (
    DEFAULT_OPTIONS,
    Answer,
    Check,
    Decision,
    Message,
    Options,
    Parser,
    Question,
)
from dagengine.test_case import LLMTestCaseParams
from dagengine.unknown import Answering

T = TypeVar("T", bound=BaseModel)
N = TypeVar("N", bound="BaseNode")


@dataclass(frozen=True, slots=True)
class Branch:
    """One verdict of a decision and what it leads to."""

    verdict: Any
    target: Any
    bare: bool = False


def shorten(text: str, width: int) -> str:
    """`text` on one line, cut to `width` characters with an ellipsis."""
    line = " ".join(text.split())
    return line if len(line) <= width else line[: width - 1].rstrip() + "…"


class BaseNode(Answering):
    """Base of all nodes.

    `evaluation_params` are the case fields that the node reads. `inputs` are the nodes that it
    reads; each of them runs when this node runs. `children` are the nodes that get its output.
    `name` (or `label`) is its name in messages and pictures. In a conversation, `evaluation_params`
    name fields of turns, for instance `content`. `turn_window` limits them to some turns: the first
    and the last one, both included, counted from 0, or below 0 from the end: `(-3, -1)` is the last
    three turns, or as many as there are.
    """

    kind: ClassVar[str] = "node"
    asks: ClassVar[bool] = False  # puts questions to a judge
    grades: ClassVar[bool] = False  # gives a score when nothing follows it
    whole_case: ClassVar[bool] = False  # reads the case itself, not only named fields
    panel: Panel | None = None
    # What rewrites of a graph put around `run`, the innermost first. So rewrites of rewrites need
    # not know of each other: `(a, b)` makes `b(a(run))`, and `b` sees what `a` made of the node.
    around: tuple[Callable[[Work], Work], ...] = ()

    @property
    def vote(self) -> Literal["verdict", "verdicts", "items", "rating", None]:
        """Object of a vote of several judges; None without one.

        A verdict, the verdicts of a list, the verdicts of items with one question each, or a
        rating.
        """
        return None

    def __init__(
        self,
        *,
        name: str | None = None,
        label: str | None = None,
        output_label: str | None = None,
        children: Iterable[BaseNode] = (),
        evaluation_params: Iterable[str | LLMTestCaseParams] | None = None,
        inputs: Iterable[BaseNode] = (),
        then: Mapping[Any, Any] | None = None,
        turn_window: tuple[int, int] | None = None,
    ) -> None:
        if None not in (name, label) and name != label:
            raise InputError(f"name= and label= are the same setting: give {name!r} or {label!r}")
        self.name = text_or_none("name", name) if label is None else text_or_none("label", label)
        self.output_label = text_or_none("output_label", output_label)
        self.children: list[BaseNode] = as_nodes("children", children)
        self.evaluation_params: tuple[str, ...] = field_paths(evaluation_params or (), turn_window)
        self.inputs: tuple[BaseNode, ...] = tuple(as_nodes("inputs", inputs))
        self.then: dict[Any, Any] = verdict_targets(then or {})
        for child in self.children:
            self.require_child(child)

    @property
    def label(self) -> str | None:
        """The node's name."""
        return self.name

    def add_node(self, child: N) -> N:
        """Add a child, which gets the output of this node; returns the child. Raises TypeError for
        anything else.

        Whether a verdict fits is asked when the graph is made of the finished nodes.
        """
        self._require_node(child)
        self.children.append(child)
        return child

    def _require_node(self, child: object) -> BaseNode:
        if isinstance(child, BaseNode):
            return child
        raise TypeError(f"{type(self).__name__}: a child is a node, not {child!r:.60}")

    def require_child(self, child: object) -> None:
        """Raise TypeError for something that is not a node, InputError for a verdict of nothing."""
        node = self._require_node(child)
        if node.kind == "verdict":
            name = self.name or type(self).__name__
            raise InputError(
                f"{name} does not decide, so it cannot have {node.title}: put the verdict under "
                "the judgement that decides it"
            )

    @property
    def title(self) -> str:
        """Name of this node in messages, steps and pictures."""
        return self.name or self.output_label or shorten(self.text, 60) or self.kind

    @property
    def text(self) -> str:
        """The node's words: its instructions, its criteria, or the name of its function."""
        return ""

    @property
    def template(self) -> PromptTemplate | None:
        """The prompt that the node was given; None for the built-in one."""
        return None

    @property
    def writes(self) -> bool:
        """Whether it asks questions that need text, which only a judge that writes can answer."""
        return False

    @property
    def quotes(self) -> bool:
        """Whether its verdicts, or its rating, can quote the material."""
        return False

    @property
    def exemplary(self) -> Sequence[Any]:
        """The answers that its examples may have; empty if its prompts take no examples."""
        return ()

    def prompt_names(self, read: Iterable[str]) -> set[str]:
        """The names by which the node's prompt may show what it reads."""
        return set(read)

    def score_of(self, answer: Any) -> float | None:
        """The score (0 to 1) that another answer of a node that grades would have had."""
        return None

    def branches(self) -> tuple[Branch, ...]:
        """Verdicts and their targets in declaration order."""
        return ()

    def successors(self) -> tuple[BaseNode, ...]:
        """Children that are handed on to, without verdicts."""
        return tuple(child for child in self.children if getattr(child, "kind", "") != "verdict")

    def questions(self, known: Mapping[str, Any], items: int) -> QuestionCount:
        """Number of questions of the node once it runs, as far as is known before the run.

        `known` holds what the node reads, by field path and by label, without the values that
        only the run brings. A list that is not in it counts as `items` items.
        """
        return QuestionCount.exactly(int(self.asks))

    def all_questions(self, known: Mapping[str, Any], items: int) -> QuestionCount:
        """As `questions`, with those that the panel adds."""
        asked = self.questions(known, items)
        return asked if self.panel is None else self.panel.total_questions(asked)

    async def run(self, given: Given, ask: Ask) -> NodeValue:
        """Do the node's work for one case; raises JudgeError, and what a caller's code raises."""
        raise TypeError(f"{type(self).__name__} nodes do not run")

    @property
    def work(self) -> Work:
        """`run` inside everything in `around`."""
        work: Work = self.run
        for wrap in self.around:
            work = wrap(work)
        return work

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.title!r}>"


class AskingNode(BaseNode):
    """A node that asks its judge.

    `prompt` replaces the built-in prompt, `parser` reads the answer out of plain text, and
    `options` say how the judge samples. `wording` is a function from what the node reads to the
    whole prompt. It also replaces the built-in prompt, and has to fence the text itself.

    `quote` is for nodes that judge. With "required" every verdict quotes what it stands on, or says
    what the material lacks. With "if_any" it may quote nothing. The quotes have to be in the case,
    in the fields `quote_from` (default: all that the node reads), which are then shown. A judge
    that quotes anything else is asked once more. What becomes of its verdict then says
    `unsupported`: "fail" ends the metric with the outcome `unsupported`, "keep" marks the quotes. A
    judge that only decides has its writer give the quotes, by a question of its own.

    `examples` are for nodes that judge, too: solved examples, which every prompt shows in their
    order, after the material and before the step.
    """

    asks = True
    # Attributes of a node only if they are set: definitions of others stay as they are.
    examples: tuple[Example, ...] = ()
    quoting: Quotes | None = None
    quote_from: tuple[str, ...] = ()

    def __init__(
        self,
        *,
        prompt: PromptTemplate | None = None,
        parser: Parser | None = None,
        options: Options = DEFAULT_OPTIONS,
        wording: Callable[[Given], str] | None = None,
        quote: QuoteMode | None = None,
        quote_from: Iterable[str | LLMTestCaseParams] = (),
        unsupported: Unsupported = "fail",
        examples: Iterable[Example] = (),
        **common: Any,
    ) -> None:
        super().__init__(**common)
        written = 'a template: PromptTemplate("…")'
        self.wording = as_callable("wording", wording)
        self.prompt = of_kind("prompt", prompt, PromptTemplate | None, written)
        self.parser = as_callable("parser", parser)
        self.options = of_kind("options", options, Options, "Options(temperature=…)")
        if isinstance(quote_from, str):
            raise InputError(f"quote_from takes a list: [{str(quote_from)!r}]")
        sources = field_paths(quote_from)
        if sources:
            self.quote_from = sources
        quoting = Quotes.of(quote, unsupported)
        if quoting is not None:
            self.quote_with(quoting)
        solved = examples_given(examples)
        if solved:
            self.show_examples(solved)

    def show_examples(self, examples: tuple[Example, ...]) -> None:
        """Let its prompts show these examples and no others; raises InputError if they cannot."""
        if self.prompted:
            raise InputError(
                f"{self.name or self.kind}: examples are for the built-in prompt; write them into "
                "your own"
            )
        if examples:
            self.examples = examples
        else:
            # Taken away and not set to (): a definition is made of the attributes that a node has.
            # One whose examples are removed shall be the node that never had any.
            vars(self).pop("examples", None)

    def names_in_examples(self, read: Iterable[str]) -> list[str]:
        """Names that its examples may have, of all that the node reads."""
        return list(read)

    @property
    def only(self) -> str | None:
        """The name of what it reads, if that is one thing."""
        names = [
            *self.evaluation_params,
            *(node.output_label or node.title for node in self.inputs),
        ]
        return names[0] if len(names) == 1 else None

    @property
    def solved(self) -> SolvedExamples:
        """Its examples as prompts show them."""
        answer = "rating" if self.vote == "rating" else "verdict"
        return SolvedExamples(self.examples, self.evaluation_params, self.only, answer)

    def quotable(self, given: Given) -> list[Evidence]:
        """Pieces that its verdict may quote."""
        return given.quotable(self.quote_from)

    def quote_with(self, quoting: Quotes) -> None:
        """Let its verdicts quote, if it has any (`quotes`)."""
        # Once only. Of two such parsers the outer one would blank the lines with quotes, and the
        # inner one find none: its empty list would take the place of the quotes.
        if self.quoting is None and self.parser is not None:
            self.parser = QuotingParser(self.parser)
        self.quoting = quoting
        # What may be quoted is shown: nobody quotes word for word what he has not seen.
        more = [path for path in self.quote_from if path not in self.evaluation_params]
        self.evaluation_params = (*self.evaluation_params, *more)

    @property
    def template(self) -> PromptTemplate | None:
        return self.prompt

    @property
    def writes(self) -> bool:
        return True

    @property
    def prompted(self) -> bool:
        """Whether the prompt is the caller's own."""
        return self.wording is not None or self.prompt is not None

    def question(
        self, given: Given, instructions: str, shape: type[T], decision: Decision | None = None
    ) -> Question[T]:
        """The question for one case; `decision` describes it if it is one."""
        messages = self.messages(given, instructions, given.evidence())
        return self.put(messages, shape, decision, self.parser)

    def put(
        self,
        messages: tuple[Message, ...],
        shape: type[T],
        decision: Decision | None = None,
        parser: Parser | None = None,
        check: Check | None = None,
        quotes: QuoteCheck | None = None,
    ) -> Question[T]:
        """A question of this node; a decision shows a prompt of the caller's own, and no more.

        A prompt of the caller's own says by itself how long the answer may be, and what to quote.
        """
        if quotes is not None and not self.prompted:
            pieces = chain.from_iterable(quotes.pieces)
            sources = sources_in_words(
                pieces, whole=not (self.quote_from or self.evaluation_params)
            )
            each, as_lines = len(quotes.pieces) != 1, parser is not None
            words = quoting_words(quotes.mode, sources, each=each, as_lines=as_lines)
            *rest, last = messages
            messages = (*rest, {**last, "content": f"{last['content']}\n\n{words}"})
        if parser is None and not self.prompted:
            messages = with_bounds(messages, shape, self.options)
        if decision is not None and self.examples:
            words, material = decision.instructions, (*decision.material, *self.solved.material())
            decision = replace(decision, instructions=with_examples(words), material=material)
        if decision is not None and self.prompted:
            # A judge that decides gets a state and a question, and no messages. The caller's prompt
            # has everything in it already, so it becomes the state, and the rest is left out.
            text = "\n\n".join(message["content"] for message in messages)
            decision = replace(decision, instructions=PROMPTED, text=text, fields=(), material=())
        return Question(
            messages, shape, self.options, parser, self.title, decision=decision, check=check,
            quotes=quotes,
        )  # fmt: skip

    async def judged(
        self,
        ask: Ask,
        given: Given,
        messages: tuple[Message, ...],
        shape: type[BaseModel],
        decision: Decision | None,
    ) -> tuple[Answer[Any], tuple[Quote, ...]]:
        """The answer to a question for one verdict or rating, and what it quotes."""
        if self.quoting is None:
            return await ask(self.put(messages, shape, decision, self.parser)), ()
        # A judge that writes quotes first and then judges by what it quoted. One that only decides
        # gives no text: its writer is told the verdict, and looks for what bears it out.
        #
        #     writes     question ──▶ {quotes, reason, verdict}
        #     decides    question ──▶ verdict ──▶ question for the writer ──▶ {quotes}
        quoting, pieces = self.quoting, self.quotable(given)
        if ask.decides and decision is not None:
            answer = await ask(self.put(messages, shape, decision))
            quoted = await ask(self.quotes_of(quoting, answer, decision, pieces))
        else:
            shape, check = quoted_type(shape, quoting.mode), quoting.check([pieces])
            question = self.put(messages, shape, decision, self.parser, quotes=check)
            answer = quoted = await ask(question)
        (quotes,) = quoting.in_answer(quoted, [pieces])
        return answer, quotes

    def quotes_of(
        self,
        quoting: Quotes,
        answer: Answer[Any],
        decision: Decision,
        pieces: Sequence[Evidence],
        shown: Sequence[Evidence] = (),
    ) -> Question[Any]:
        """Question to a writing judge after one that only decides.

        It is `shown` the pieces that may be quoted, and maybe more.
        """
        step = DECIDED_STEP.format(decision.instructions, verdict_in(answer.value))
        messages = messages_for(step, shown or pieces)
        return self.put(messages, quoting.alone, quotes=quoting.check([pieces]))

    def messages(
        self, given: Given, instructions: str, evidence: Sequence[Evidence]
    ) -> tuple[Message, ...]:
        """The prompt: `wording` or `prompt` where given, else instructions and fenced evidence."""
        if self.wording is not None:
            return ({"role": "user", "content": self.wording(given)},)
        if self.prompt is not None:
            return self.prompt.fill(given.texts())
        return messages_for(*self.with_solved(instructions, evidence))

    def with_solved(
        self, step: str, evidence: Sequence[Evidence]
    ) -> tuple[str, Sequence[Evidence]]:
        """A step and what it shows, with the examples of the node."""
        if not self.examples:
            return step, evidence
        return with_examples(step), [*evidence, *self.solved.evidence()]
