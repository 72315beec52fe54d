"""What a checkup of a judge found, section by section, and what follows from it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from dagengine.question import NO_FACTS, NO_USAGE, ServerFacts, Usage
from dagengine.record.values import Standing


@dataclass(frozen=True, slots=True)
class NotMeasured:
    """The place of a section that says nothing, with the reason in words."""

    not_measured: str


UNANSWERED = NotMeasured("the judge does not answer")


@dataclass(frozen=True, slots=True)
class Connection:
    """Whether the judge answers: `seconds` until its first answer, or the `problem` in words.

    `listed` are the models that the server names (None: it names none), `model` the one asked for
    (None: the judge has no model).
    """

    seconds: float | None
    problem: str | None = None
    model: str | None = None
    listed: tuple[str, ...] | None = None

    @property
    def is_listed(self) -> bool | None:
        """Return whether the server names this model; None where it names none."""
        if self.model is None or not self.listed:
            return None
        # Ollama calls the model `llama3` by its full name, `llama3:latest`.
        return not {self.model, f"{self.model}:latest"}.isdisjoint(self.listed)


@dataclass(frozen=True, slots=True)
class Structure:
    """How the judge keeps to JSON schemas.

    `mode` is how structure is asked for, `valid` whether a reason with a verdict came back well,
    `enforced` whether the schema holds where the model would rather say something else. The
    bounds `max_length` and `max_items` are true where they were honoured; None is not known.
    `output_tokens` is the length of the answer with a reason.
    """

    mode: str
    valid: bool
    enforced: bool
    max_length: bool | None
    max_items: bool | None
    output_tokens: int


@dataclass(frozen=True, slots=True)
class Thinking:
    """Whether the model thinks before it answers; `tokens` are those of a one-word answer.

    `off` are the parameters of a request that switch it off; None where none did, or none is
    needed.
    """

    thinks: bool
    tokens: int
    off: Mapping[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class Probabilities:
    """What the token probabilities of the judge are worth.

    `mass` is the share (0 to 1) of all probability that fell on the options: the median of the
    easy questions, or that of one yes/no question. None: the judge gives no probabilities.
    `before_schema` says that they are those from before the schema allowed only some answers. `ten`
    is in how many tokens the number 10 is written.
    """

    mass: float | None
    before_schema: bool | None = None
    ten: int | None = None


@dataclass(frozen=True, slots=True)
class Load:
    """Several calls at the same time: tokens per second together, and seconds for the last."""

    calls: int
    tokens_per_second: float
    seconds: float
    failed: int = 0


@dataclass(frozen=True, slots=True)
class Speed:
    """How quickly the judge writes: `alone`, and under each load that was tried.

    Tokens per second; None where the judge counts no tokens. `latency` is that of an answer of
    one token, in seconds. `same` says whether an equal question at temperature 0 got an equal
    text: asked again alone, and beside others. None: not known.
    """

    latency: float
    alone: float | None
    loads: tuple[Load, ...] = ()
    same_again: bool | None = None
    same_beside: bool | None = None

    @property
    def together(self) -> float | None:
        """The most tokens per second that were written under any load."""
        speeds = [load.tokens_per_second for load in self.loads if load.tokens_per_second]
        return max([*speeds, self.alone or 0.0]) or None


@dataclass(frozen=True, slots=True)
class Reading:
    """A long text with three planted words.

    `found` says for each place (a share of the text) whether the word there came back. `expected`
    are the tokens of the prompt, from the tokens per character of a short piece of the same text;
    `reported` are those that the server counted (None: it counts none). `refused` is what the
    server said where it did not take the prompt. `tokens_per_second` is the speed of reading.
    """

    characters: int
    found: tuple[tuple[float, bool], ...] = ()
    expected: int | None = None
    reported: int | None = None
    refused: str | None = None
    tokens_per_second: float | None = None
    of_data: bool = False

    @property
    def cut(self) -> bool | None:
        """True if the server read only a part of the prompt; None where it cannot be known."""
        if self.expected is None or self.reported is None:
            return None
        return self.reported < LEAST_READ * self.expected


LEAST_READ = 0.6
"""A prompt of which less than this share of its tokens was counted was cut."""


@dataclass(frozen=True, slots=True)
class EasyQuestions:
    """Answers to easy yes/no questions, half of them with the answer yes.

    `chance` is the probability that guessing gets at least `right` of `answered` right, `failure`
    what was wrong with the first invalid answer. `mass` is the share of all probability on the
    options (the median), where the judge tells probabilities.
    """

    asked: int
    answered: int
    right: int
    yes: int
    chance: float
    failure: str | None = None
    mass: float | None = None

    @property
    def enough(self) -> bool:
        """Return whether the time sufficed for so many questions that they say something."""
        return self.asked >= ENOUGH

    @property
    def guesses(self) -> bool:
        """Return whether this is no better than guessing, at a level of 5 %."""
        return self.chance > GUESSING


ENOUGH = 10
"""Of fewer questions not even a good result is a result."""
GUESSING = 0.05
"""From this probability on a result may as well be a guess."""


@dataclass(frozen=True, slots=True)
class Advice:
    """The settings that the findings recommend; None is the default.

    `call_timeout` is in seconds, `window` the tokens that a server needs for the longest text,
    `parameters` belong into every request. `odds` says whether probabilities of verdicts can be
    used.
    """

    max_in_flight: int | None = None
    call_timeout: float | None = None
    window: int | None = None
    parameters: Mapping[str, Any] | None = None
    odds: bool = False


@dataclass(frozen=True, slots=True)
class Checkup:
    """All that was found. `problems` say why the judge cannot be used; without any it can.

    `seconds` is the time of the checkup, `usage` the tokens of its calls as the judge counts them.
    `slow` says that it took more time than a minute because the server needs it. `standing` is what
    runs of this judge will say of it (None: too little was answered, or nothing tells it apart).
    """

    judge: str
    connection: Connection
    facts: ServerFacts = NO_FACTS
    structure: Structure | NotMeasured = UNANSWERED
    thinking: Thinking | NotMeasured = UNANSWERED
    probabilities: Probabilities | NotMeasured = UNANSWERED
    speed: Speed | NotMeasured = UNANSWERED
    easy: EasyQuestions | NotMeasured = UNANSWERED
    reading: Reading | NotMeasured = UNANSWERED
    advice: Advice = Advice()
    problems: tuple[str, ...] = ()
    calls: int = 0
    usage: Usage = NO_USAGE
    seconds: float = 0.0
    slow: bool = False
    standing: Standing | None = None

    @property
    def usable(self) -> bool:
        """Return whether nothing speaks against this judge."""
        return not self.problems
