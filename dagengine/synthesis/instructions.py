"""The words of the generators: what the judge is asked to write, and to check."""

from __future__ import annotations

from collections.abc import Iterable

from dagengine.synthesis.values import Evolution, StylingConfig

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
_ANSWERS = "It is answered from `context` alone"


def drafts_from_context(count: int, style: StylingConfig) -> str:
    """Asks for a list of inputs about passages."""
    return _join(
        f"Write {count} different inputs that somebody could send to an application which knows "
        "what `context` says. Each asks about one thing, can be understood without seeing "
        f"`context`, does not mention it, and does not repeat its sentences. {_GROUNDED} Give "
        "fewer when `context` does not hold enough.",
        _style(style),
    )


def drafts_from_scratch(count: int, style: StylingConfig) -> str:
    """Asks for a list of inputs about a topic."""
    return _join(
        f"Write {count} different inputs that somebody could send to an application, all about "
        "the topic. They differ in what they want, not only in their words.",
        _style(style),
    )


def drafts_like(count: int, style: StylingConfig) -> str:
    """Asks for a list of inputs that are like one that is there."""
    return _join(
        f"Write {count} new inputs that the sender of `input` could also have sent: of the same "
        "kind, as hard, in the same tone, about another matter of the same field. Do not reword "
        "`input`.",
        _style(style),
    )


def drafts_of_scenarios(count: int, style: StylingConfig) -> str:
    """Asks for a list of situations from which conversations start."""
    return _join(
        f"Write {count} different situations in which a person begins a conversation with an "
        "assistant that knows what the material says. Each names who the person is, what they "
        "want, and what stands in their way, in two or three sentences.",
        _style(style),
    )


def evolving(grounded: bool) -> str:
    """Asks for a harder version of a draft."""
    rules = f" {_GROUNDED}" if grounded else ""
    return (
        "Rewrite `draft` so that it follows `change`. Keep it one input, in the same form, not "
        f"more than twice as long.{rules} Give the new text only."
    )


def rewriting(style: StylingConfig) -> str:
    """Asks for the final words of an input."""
    return _join(
        "Rewrite `draft` as the person would have written it: natural, no longer than needed, "
        "with the same meaning. It must be understood by somebody who sees nothing else: no "
        "'the text', 'the passage', 'the context', 'above'. Give the new text only.",
        _style(style),
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


def context_answer_prompt(style: StylingConfig) -> str:
    """Asks for an answer and the sentences of the passages that support it."""
    return _join(
        f"Answer `input`. {_ANSWERS}: say nothing that does not follow from it. In "
        "`supporting_sentences` give the sentences of `context` that the answer rests on, copied "
        "letter by letter.",
        _format(style),
    )


def knowledge_answer_prompt(style: StylingConfig) -> str:
    """Asks for an answer without passages."""
    return _join("Write the answer that an expert would give to `input`.", _format(style))


OUTCOME = (
    "Say in one or two sentences how a good conversation that starts from `scenario` ends: what "
    "the person has then, or knows then."
)
PERSON = "Describe the person in `scenario` in one sentence: who they are and how they write."


def _style(style: StylingConfig) -> str:
    return _join(
        f"Who asks, and why: {style.scenario}" if style.scenario else "",
        f"What the application does: {style.task}" if style.task else "",
        f"The form of the input: {style.input_format}" if style.input_format else "",
        between="\n",
    )


def _format(style: StylingConfig) -> str:
    form = style.expected_output_format
    return f"The form of the answer: {form}" if form else ""


def _join(*parts: str, between: str = "\n\n") -> str:
    texts: Iterable[str] = filter(None, parts)
    return between.join(texts)
