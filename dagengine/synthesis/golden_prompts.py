"""The prompts of the generators: what the judge is asked to write, and to check."""

from __future__ import annotations

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
