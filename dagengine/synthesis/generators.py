"""The generators: metrics whose graphs write a golden, and turn it down where it is no good.

A generator is a metric like any other. It reads a case that contains the passages and what is to be
made of them. Its tasks write. Its judgements are the filters: a verdict that rejects a draft leads
to 0. Its last node is a code node called "Golden" whose value is the golden. So it is checked,
drawn, planned, stored, resumed and replayed as metrics are.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from pydantic import BaseModel

from dagengine.errors import NotApplicableError
from dagengine.graph.graph import Graph
from dagengine.graph.node import BaseNode
from dagengine.graph.node_values import NodeValue
from dagengine.graph.nodes import BinaryJudgementNode, CodeNode, FieldNode, TaskNode
from dagengine.metrics.dag import DAGMetric
from dagengine.question import Options
from dagengine.synthesis.near_duplicates import ALIKE_WORDS, TextPair, words_in
from dagengine.synthesis.synthesis_types import Evolution, StylingConfig
from dagengine.test_case import LLMTestCase
from dagengine.voting.metric_rewrites import answered_by

GOLDEN = "Golden"
"""The name of a generator's last node."""
CHOOSE, REWRITE = "Choose draft", "Rewrite"
EMBEDDING = "Embedding"
"""The name of the node that gives the vector of a golden's text."""
DUPLICATES, LIKENESS, SAME = "Duplicates", "Alike", "Same answer"
"""The names of the graph that confirms duplicates, and of its two nodes."""
_QUOTED = 10  # words in a row that are more than an accident
_PLACE = "additional_metadata"
_LONG = Options(max_characters=2_000)  # what is written here may be longer than what is read

# The prompts: what the judge is asked to write, and to check.

CHANGES: dict[Evolution, str] = {
    Evolution.REASONING: "Answering must take several steps of thought that build on one another.",
    Evolution.MULTICONTEXT: (
        "Answering must take facts from more than one of the passages, put together."
    ),
    Evolution.CONCRETIZING: (
        "Replace what is general by something specific: a person, a number, a situation."
    ),
    Evolution.CONSTRAINED: "Add one condition that a right answer must respect.",
    Evolution.COMPARATIVE: "Answering must compare two or more things on a stated point.",
    Evolution.HYPOTHETICAL: "Put it into a supposed situation that the answer must follow from.",
    Evolution.IN_BREADTH: "Ask about a rarer matter of the same field that is just as hard.",
}

_GROUNDED = "Everything that is needed for the answer must stand in `context`."

# Prompts for a list of `count` drafts.
DRAFTS_FROM_CONTEXT = (
    "Write {count} different inputs that somebody could send to an application which knows "
    "what `context` says. Each asks about one thing, can be understood without seeing "
    f"`context`, does not mention it, and does not repeat its sentences. {_GROUNDED} Give "
    "fewer when `context` does not hold enough."
)
DRAFTS_FROM_SCRATCH = (
    "Write {count} different inputs that somebody could send to an application, all about "
    "the topic. They differ in what they want, not only in their words."
)
DRAFTS_LIKE = (
    "Write {count} new inputs that the sender of `input` could also have sent: of the same "
    "kind, as hard, in the same tone, about another matter of the same field. Do not reword "
    "`input`."
)
DRAFTS_OF_SCENARIOS = (
    "Write {count} different situations in which a person begins a conversation with an "
    "assistant that knows what the material says. Each names who the person is, what they "
    "want, and what stands in their way, in two or three sentences."
)

REWRITTEN = (
    "Rewrite `draft` as the person would have written it: natural, no longer than needed, "
    "with the same meaning. It must be understood by somebody who sees nothing else: no "
    "'the text', 'the passage', 'the context', 'above'. Give the new text only."
)

ANSWERABLE = "Does `context` alone hold everything that a full and right answer to `input` needs?"
NEEDS_CONTEXT = (
    "Could an educated person answer `input` rightly and fully without looking anything up?"
)
ONE_QUESTION = "Does `input` want exactly one thing?"
SELF_CONTAINED = (
    "Can `input` be understood by somebody who sees nothing else? No: it speaks of a text, a "
    "passage, a table or a section that the reader has to have before them, or of 'it' or 'they' "
    "without saying who."
)
LEAKED = "Does `input` itself state or imply what `expected_output` says?"
PLAUSIBLE = "Would a person in the situation `scenario` really turn to such an assistant?"

BLIND = "Answer `input`. Use `context` only. If it does not hold the answer, say that it does not."
CLOSED_BOOK = "Answer `input` from what you know. If you do not know, say so."
AGREES = (
    "Do `expected_output` and `other_answer` give the same answer to `input`? Words, length and "
    "further detail do not matter; a contradiction does, and so does an answer that is missing."
)

SAME_ANSWER = (
    "Do `first` and `second` ask for the same thing, so that whoever answers the one fully has "
    "also answered the other? Words, order and length do not matter. No: they differ in a person, "
    "a thing, a place, a time, a number or a condition, one wants more than the other, or one "
    "wants the opposite."
)

ANSWER_FROM_CONTEXT = (
    "Answer `input`. It is answered from `context` alone: say nothing that does not follow from "
    "it. In `supporting_sentences` give the sentences of `context` that the answer rests on, "
    "copied letter by letter."
)
ANSWER_FROM_KNOWLEDGE = "Write the answer that an expert would give to `input`."

OUTCOME = (
    "Say in one or two sentences how a good conversation that starts from `scenario` ends: what "
    "the person has then, or knows then."
)
PERSON = "Describe the person in `scenario` in one sentence: who they are and how they write."


def evolving(grounded: bool) -> str:
    """Prompt for a harder version of a draft."""
    rules = f" {_GROUNDED}" * grounded
    return (
        "Rewrite `draft` so that it follows `change`. Keep it one input, in the same form, not "
        f"more than twice as long.{rules} Give the new text only."
    )


def style_input(prompt: str, style: StylingConfig) -> str:
    """Add to a prompt how inputs look."""
    return _add(
        prompt,
        {
            "Who asks, and why": style.scenario,
            "What the application does": style.task,
            "The form of the input": style.input_format,
        },
    )


def style_answer(prompt: str, style: StylingConfig) -> str:
    """Add to a prompt how answers look."""
    return _add(prompt, {"The form of the answer": style.expected_output_format})


def _add(prompt: str, facts: dict[str, str | None]) -> str:
    lines = "\n".join(f"{name}: {text}" for name, text in facts.items() if text)
    return f"{prompt}\n\n{lines}" if lines else prompt


class Supported(BaseModel):
    """An answer, and the sentences that it rests on."""

    answer: str
    supporting_sentences: list[str]


def from_contexts(
    drafts: int,
    evolutions: int,
    style: StylingConfig,
    *,
    expected: bool = True,
    second: Any = None,
    cheap: Sequence[Any] = (),
    embedder: Any = None,
) -> Any:
    """Goldens about passages; reads `context` and the metadata that `cases` writes.

    `second` answers blind, and has to agree; `cheap` are the judges that try without the passages.
    Both need expected outputs. `embedder` gives the vector of an input.
    """
    parts = _Parts(drafts, style, embedder, ["context"])
    final = parts.final(parts.draft(DRAFTS_FROM_CONTEXT), evolutions)
    if not expected:
        return parts.metric(_filters(final, parts.leaf(golden, [final])))
    answer = TaskNode(
        style_answer(ANSWER_FROM_CONTEXT, style), "expected_output",
        evaluation_params=parts.reads, inputs=[final], output_type=Supported, options=_LONG,
        name="Expected output",
    )  # fmt: skip
    inputs: list[BaseNode] = [final, answer]
    if second is not None:
        parts.judges["Blind answer"] = second
    for number, judge in enumerate(cheap, 1):
        # A judge that knows the answer without the passages makes the golden an easy one.
        name = f"Closed book {number}"
        parts.judges[name] = judge
        alone = TaskNode(CLOSED_BOOK, "other_answer", inputs=[final], name=name)
        agreeing = TaskNode(
            AGREES, f"closed_book_{number}", inputs=[final, answer, alone],
            output_type=bool, name=f"{name} agrees",
        )  # fmt: skip
        inputs.append(agreeing)
    leaf = parts.leaf(answered_golden, inputs)
    blind = TaskNode(
        BLIND, "other_answer", evaluation_params=parts.reads, inputs=[final], name="Blind answer"
    )
    agrees = _filter(AGREES, "Blind answer agrees", [final, answer, blind], yes=leaf)
    leaked = _filter(LEAKED, "Leaks the answer", [final, answer], no=agrees)
    supported = CodeNode(
        is_supported, evaluation_params=parts.reads, inputs=[answer], then={True: leaked, False: 0},
        name="Supported by its sentences",
    )  # fmt: skip
    return parts.metric(_filters(final, supported))


def from_scratch(
    drafts: int,
    evolutions: int,
    style: StylingConfig,
    *,
    expected: bool = True,
    like: bool = False,
    embedder: Any = None,
) -> Any:
    """Goldens about a topic, or like a golden that is there; nothing to check answers against."""
    parts = _Parts(drafts, style, embedder)
    topic = FieldNode("input", output_label="input" if like else "topic")
    draft = parts.draft(DRAFTS_LIKE if like else DRAFTS_FROM_SCRATCH, inputs=[topic])
    final = parts.final(draft, evolutions)
    inputs: list[BaseNode] = [final]
    if expected:
        inputs.append(
            TaskNode(
                style_answer(ANSWER_FROM_KNOWLEDGE, style), "expected_output",
                inputs=[final], options=_LONG, name="Expected output",
            )
        )  # fmt: skip
    leaf = parts.leaf(plainly_answered if expected else golden, inputs)
    return parts.metric(_plain_filters(final, leaf))


def of_conversations(
    drafts: int, style: StylingConfig, *, grounded: bool, embedder: Any = None
) -> Any:
    """Conversational goldens: a situation, how it ends well, and who the person is."""
    parts = _Parts(drafts, style, embedder, ["context"] if grounded else ["input"])
    scenario = parts.draft(DRAFTS_OF_SCENARIOS, "scenario")
    outcome = TaskNode(
        OUTCOME, "expected_outcome", evaluation_params=parts.reads, inputs=[scenario],
        options=_LONG, name="Expected outcome",
    )  # fmt: skip
    person = TaskNode(
        PERSON, "user_description", inputs=[scenario], options=_LONG, name="User description"
    )
    leaf = parts.leaf(conversation, [scenario, outcome, person])
    return parts.metric(_filter(PLAUSIBLE, "Plausible", [scenario], yes=leaf))


def duplicates(alike: float, judge: Any = None) -> Any:
    """Return whether two texts ask for the same answer: 1 if `judge` says so.

    Reads what `pair_case` writes. Likeness (`alike` is the least cosine) only decides whether the
    question is asked.
    """

    def are_alike(likeness: dict[str, float]) -> bool:
        return likeness["words"] >= ALIKE_WORDS or likeness["meaning"] >= alike

    texts = [FieldNode("input", output_label="first"),
             FieldNode(f"{_PLACE}.second", output_label="second")]  # fmt: skip
    question = BinaryJudgementNode(SAME_ANSWER, inputs=texts, then={True: 10, False: 0}, name=SAME)
    nominated = CodeNode(
        are_alike, evaluation_params=[f"{_PLACE}.likeness"], then={True: question, False: 0},
        name=LIKENESS,
    )  # fmt: skip
    return DAGMetric(DUPLICATES, Graph(nominated), model=judge)


def pair_case(pair: TextPair) -> LLMTestCase:
    """The case that `duplicates` reads."""
    left_text, right_text = pair.texts
    likeness = {"words": pair.words, "meaning": pair.meaning}
    return LLMTestCase(
        input=left_text, additional_metadata={"second": right_text, "likeness": likeness}
    )


@dataclass(frozen=True, slots=True)
class _Parts:
    """The parts that generators have in common; their drafts are made of the fields in `reads`.

    `judges` are those that some nodes have of their own, by name.
    """

    drafts: int
    style: StylingConfig
    embedder: Any
    reads: Sequence[str] = ()
    judges: dict[str, Any] = field(default_factory=dict[str, Any])

    def draft(self, prompt: str, label: str = "draft", inputs: Sequence[BaseNode] = ()) -> CodeNode:
        """One draft of a list, so that one question gives the drafts of several goldens."""
        drafts = TaskNode(
            style_input(prompt.format(count=self.drafts), self.style), "drafts",
            evaluation_params=self.reads, inputs=inputs, output_type=list[str],
            options=replace(_LONG, max_items=self.drafts), name="Draft",
        )  # fmt: skip
        return CodeNode(
            choose_draft, evaluation_params=[f"{_PLACE}.draft"], inputs=[drafts],
            output_label=label, name=CHOOSE,
        )  # fmt: skip

    def final(self, draft: BaseNode, evolutions: int) -> TaskNode:
        """The draft, evolved and put into its final words; readers know it as `input`."""
        for number in range(evolutions):
            change = FieldNode(f"{_PLACE}.evolutions.{number}", output_label="change")
            draft = TaskNode(
                evolving(bool(self.reads)), "draft", evaluation_params=self.reads,
                inputs=[draft, change], options=_LONG, name=f"Evolve {number + 1}",
            )  # fmt: skip
        prompt = style_input(REWRITTEN, self.style)
        return TaskNode(prompt, "input", inputs=[draft], options=_LONG, name=REWRITE)

    def leaf(self, make: Callable[..., NodeValue], inputs: Sequence[BaseNode]) -> CodeNode:
        """The last node; it also reads the vector of the first text, if there is an embedder."""
        if self.embedder is not None:
            self.judges[EMBEDDING] = self.embedder
            vector = TaskNode(
                "Embed the text.", "vector", inputs=inputs[:1], output_type=list[float],
                name=EMBEDDING,
            )  # fmt: skip
            inputs = [*inputs, vector]
        return CodeNode(make, inputs=inputs, name=GOLDEN)

    def metric(self, root: BaseNode) -> Any:
        """The metric with this root."""
        metric: Any = DAGMetric("Goldens", Graph(root))
        for name, judge in self.judges.items():
            metric = answered_by(metric, judge, [name])
        return metric


def _filters(final: TaskNode, then: BaseNode) -> BaseNode:
    """Filters of an input about passages; the first of the filters."""
    quotes = CodeNode(
        quotes_passage, evaluation_params=["context"], inputs=[final], then={True: 0, False: then},
        name="Quotes the passage",
    )  # fmt: skip
    single = _plain_filters(final, quotes)
    needs = _filter(NEEDS_CONTEXT, "Answerable without context", [final], no=single)
    return _filter(ANSWERABLE, "Answerable", [final], yes=needs, evaluation_params=["context"])


def _plain_filters(final: TaskNode, then: BaseNode) -> BaseNode:
    """Filters that look at an input alone."""
    contained = _filter(SELF_CONTAINED, "Self-contained", [final], yes=then)
    return _filter(ONE_QUESTION, "One thing", [final], yes=contained)


def _filter(
    criteria: str,
    name: str,
    inputs: Sequence[BaseNode],
    *,
    yes: BaseNode | int = 0,
    no: BaseNode | int = 0,
    **more: Any,
) -> BaseNode:
    """A question whose one answer turns the draft down."""
    then = {True: yes, False: no}
    return BinaryJudgementNode(criteria, inputs=inputs, then=then, name=name, **more)


def choose_draft(draft: int, drafts: list[str]) -> str:
    if draft >= len(drafts):
        raise NotApplicableError(f"the judge wrote {len(drafts)} drafts")
    if not drafts[draft].strip():
        raise NotApplicableError("the draft is empty")
    return drafts[draft]


def quotes_passage(context: list[str], text: str) -> bool:
    """Whether so many words in a row are those of a passage that it is more than an accident."""
    words = words_in(text)
    # A sign of a script without blanks is about half a word.
    size = 2 * _QUOTED if sum(len(word) == 1 for word in words) * 2 > len(words) else _QUOTED
    runs = _runs(words, size)
    return bool(runs) and any(runs & _runs(words_in(passage), size) for passage in context)


def _runs(words: list[str], size: int) -> set[tuple[str, ...]]:
    return {tuple(words[at : at + size]) for at in range(len(words) - size + 1)}


def is_supported(context: list[str], answer: Supported) -> bool:
    """Return whether there are supporting sentences and all are in the passages."""
    passages = list(map(_even, context))
    sentences = [_even(sentence) for sentence in answer.supporting_sentences if sentence.strip()]
    return bool(sentences) and all(
        len(words_in(sentence)) > 1 and any(sentence in passage for passage in passages)
        for sentence in sentences
    )


def _even(text: str) -> str:
    return " ".join(text.split()).lower()


# A vector, if there is one, is for the near duplicates and no part of a golden.


def golden(text: str, *_: list[float]) -> NodeValue:
    return NodeValue({"input": text}, score=1.0)


def plainly_answered(text: str, answer: str, *_: list[float]) -> NodeValue:
    return NodeValue({"input": text, "expected_output": answer}, score=1.0)


def answered_golden(text: str, answer: Supported, *more: bool | list[float]) -> NodeValue:
    value: dict[str, Any] = {
        "input": text,
        "expected_output": answer.answer,
        "supporting_sentences": answer.supporting_sentences,
    }
    blind = [vote for vote in more if isinstance(vote, bool)]
    if blind:
        value["answered_without_context"] = [sum(blind), len(blind)]
    return NodeValue(value, score=1.0)


def conversation(scenario: str, outcome: str, person: str, *_: list[float]) -> NodeValue:
    value = {"scenario": scenario, "expected_outcome": outcome, "user_description": person}
    return NodeValue(value, score=1.0)
