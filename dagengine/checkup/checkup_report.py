"""What a checkup of a judge found, section by section: as values, and in words."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal

from dagengine.errors import did_you_mean
from dagengine.prompts.probabilities.options import LEAST_MASS, mass_words
from dagengine.question import NO_FACTS, NO_USAGE, ServerFacts, Usage
from dagengine.record.run_json_types import Standing
from dagengine.system.terminal_text import counted, few, text_if

Status = Literal["ok", "warning", "fails", "-"]
Words = Iterator[tuple[Status, str]]
"""The lines of a section in a report, each with its state."""
_MODES: Final = {
    "json_schema": "as JSON schema",
    "tools": "as a call of a tool (the server rejects JSON schemas)",
    "json": "in the words of the prompt (the server rejects JSON schemas and tools)",
}
LEAST_READ = 0.6
"""A prompt of which less than this share of its tokens was counted was cut."""
ENOUGH = 10
"""Of fewer questions not even a good result is a result."""
GUESSING = 0.05
"""From this probability on a result may as well be a guess."""


@dataclass(frozen=True, slots=True)
class NotMeasured:
    """The place of a section that says nothing, with the reason in words."""

    not_measured: str

    def words(self) -> Words:
        """Say why there is nothing to say."""
        yield "-", f"not measured: {self.not_measured}"

    repeats = words


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

    @property
    def other_models(self) -> str:
        """The models that the server names, in words, and the nearest to the one asked for."""
        models = self.listed or ()
        near = did_you_mean(self.model or "", models)
        return f"The server has {few(models, 8)}; {near}".rstrip("; ")

    def words(self) -> Words:
        """Say how the judge answers, and its problem if it does not."""
        if self.problem is not None:
            yield "fails", self.problem
        else:
            yield "ok", f"the first answer came after {_seconds(self.seconds)}"

    def model_words(self) -> Words:
        """Say whether the server names the model."""
        if not self.model:
            return
        if self.is_listed:
            yield "ok", self.model
        elif self.is_listed is None:
            yield "-", f"{self.model}; the server lists no models"
        else:  # some servers answer with the model that they have, whatever was asked for
            hint = f"is not listed, but something answers. {self.other_models}"
            yield "warning", f"{self.model} {hint}"


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

    def words(self) -> Words:
        """Say what a schema is worth, and its bounds."""
        mode = _MODES.get(self.mode, f"mode {self.mode}")
        if self.enforced:
            yield "ok", f"holds, asked for {mode}"
        elif self.valid:
            wish = "is only a wish: the model keeps to it when it wants to"
            yield "warning", f"{wish}; asked for {mode}"
        else:
            yield "fails", "answers are no valid JSON: the server ignores the schema"
        if not self.valid and self.enforced:
            yield "warning", "but a reason with a verdict did not end within its tokens"

        def bounds(kept: bool) -> str:
            pairs = {"maxLength": self.max_length, "maxItems": self.max_items}.items()
            return " and ".join(name for name, is_kept in pairs if is_kept is kept)

        if broken := bounds(kept=False):
            yield "warning", f"bounds are not honoured: {broken}; max_tokens ends answers"
        elif self.max_items:
            yield "ok", f"bounds are honoured: {bounds(kept=True)}"


@dataclass(frozen=True, slots=True)
class Thinking:
    """Whether the model thinks before it answers; `tokens` are those of a one-word answer.

    `off` are the parameters of a request that switch it off; None where none did, or none is
    needed.
    """

    thinks: bool
    tokens: int
    off: Mapping[str, Any] | None = None

    def words(self) -> Words:
        """Say whether an answer costs thoughts."""
        if not self.thinks:
            yield "ok", "none before an answer"
        elif self.off is not None:
            yield "ok", f"can be switched off: {json.dumps(dict(self.off))}; so it was for the rest"
        else:
            yield "warning", f"{self.tokens} tokens for an answer of one word, not switched off"


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

    def words(self) -> Words:
        """Say how much of all probability is on the verdicts."""
        if self.mass is None:
            yield "-", "the judge gives none"
            return
        share = f"{mass_words(self.mass)} of all probability is on the verdicts"
        if self.mass >= LEAST_MASS:
            yield "ok", share
        else:
            yield "warning", f"only {share}: odds are unknown"
        if self.before_schema is not None:
            when = ("after", "before")[self.before_schema]
            yield "ok", f"they are those from {when} the schema"
        if self.ten == 1:
            yield "ok", "the number 10 is one token"
        elif self.ten is not None:
            yield "ok", f'the number 10 is {self.ten} tokens; after "1" one more is read'


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

    def words(self) -> Words:
        """Say how quickly the judge writes, under every load."""
        if self.alone is None:
            yield "-", f"the judge counts no tokens; an answer takes {_seconds(self.latency)}"
            return
        first = _seconds(self.latency)
        yield "ok", f"writes {self.alone:,.0f} tokens/s alone, after {first} for the first"
        for load in self.loads:
            text = f"{load.calls} at a time: {load.tokens_per_second:,.0f} tokens/s together"
            text += text_if(load.failed, f"; {load.failed} of them failed")
            yield _mark(not load.failed), text

    def repeats(self) -> Words:
        """Say whether an equal question gets an equal text."""
        again, beside = self.same_again, self.same_beside
        if again is None:
            yield "-", "not measured: the judge gave no text"
        elif not again:
            yield "warning", "an equal question at temperature 0 got another text"
        elif beside is False:
            yield "warning", "the same text again alone, but another one beside other calls"
        else:
            yield "ok", "the same text again at temperature 0"


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

    def words(self) -> Words:
        """Say how much of the text the judge read, and which words it saw there."""
        bad: Status
        long, bad = f"a text, {self.characters:,} characters", "warning"
        if self.of_data:
            long, bad = f"the longest test case, {self.characters:,} characters", "fails"
        if self.refused is not None:
            yield bad, f"{long}: refused ({self.refused})"
            return
        if self.cut:
            yield (
                bad,
                f"{long}: CUT, {self.reported:,} of about {self.expected:,} tokens were read",
            )
        else:
            if self.reported is not None:
                long += f", {self.reported:,} tokens read"
            if self.tokens_per_second is not None:
                long += f" at {self.tokens_per_second:,.0f} tokens/s"
            yield "ok", long
        hits = [f"{share:.0%}" for share, hit in self.found if hit]
        missed = [f"{share:.0%}" for share, hit in self.found if not hit]
        depths = text_if(missed, "not ") + f"at {', '.join(missed or hits)}"
        words = f"found {len(hits)} of {len(self.found)} words planted there ({depths})"
        yield _mark(not missed), words


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

    def words(self) -> Words:
        """Say how many answers are right, and how likely that is by chance."""
        if not self.answered:
            yield "fails", f"no valid answer to {counted(self.asked, 'question')}: {self.failure}"
            return
        result = f"{self.right} of {self.answered} easy questions right"
        if not self.enough:
            yield "-", f"{result}: too few answers in the time to say more"
            return
        always = {0: "; it always says no", self.answered: "; it always says yes"}.get(self.yes, "")
        if self.guesses:
            yield "fails", f"{result}: no better than guessing{always}"
        else:
            yield _mark(self.right == self.answered), result
        yield "-", f"by guessing one gets {self.right} or more with probability {self.chance:.2g}"
        if self.answered < self.asked:
            missing = counted(self.asked - self.answered, "answer")
            yield "warning", f"{missing} not valid: {self.failure}"


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

    def as_dict(self) -> dict[str, Any]:
        """JSON-ready form; a part that was not measured is `{"not_measured": "why"}`."""
        standing = self.standing and self.standing.model_dump(mode="json")
        return {"usable": self.usable, **dataclasses.asdict(self), "standing": standing}

    def lines(self) -> Iterator[tuple[str, Status, str]]:
        """Lines of the report: part (of its first line), state and words."""
        yield from _part("answers", self.connection.words())
        if self.connection.problem is not None:
            return
        yield from _part("knows", self.easy.words())
        yield from _part("model", self.connection.model_words())
        facts = self.facts
        if facts.server:
            yield "server", "ok", facts.server
        else:
            yield "server", "-", "it does not say what it is"
        if facts.window is None:
            yield "window", "-", "the server does not say how many tokens it reads"
        else:
            yield "window", "ok", f"{facts.window:,} tokens for a prompt and its answer"
        if facts.slots is not None:
            yield "places", "ok", f"{counted(facts.slots, 'call')} at a time"
        yield from _part("schema", self.structure.words())
        yield from _part("thinking", self.thinking.words())
        yield from _part("probability", self.probabilities.words())
        yield from _part("speed", self.speed.words())
        yield from _part("repeats", self.speed.repeats())
        yield from _part("reading", self.reading.words())


def _part(name: str, words: Words) -> Iterator[tuple[str, Status, str]]:
    for number, (status, text) in enumerate(words):
        yield name * (not number), status, text


def _mark(is_good: bool) -> Status:
    return "ok" if is_good else "warning"


def _seconds(seconds: float | None) -> str:
    value = seconds or 0.0
    return f"{value:.2g} s" if value < 10 else f"{value:.0f} s"
