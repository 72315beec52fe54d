"""A question to a judge, and its answer: plain values that know nothing of graphs."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cache, cached_property
from json.encoder import encode_basestring
from typing import Any, Generic, Literal, Protocol, TypedDict, TypeVar, cast, runtime_checkable

from pydantic import BaseModel

from dagengine.errors import CopiedError, UnparseableError, UnsupportedQuoteError
from dagengine.system.frozen import quick_init

T = TypeVar("T", bound=BaseModel, covariant=True)
_JSON = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"))


Kind = Literal["predicate", "choice", "score"]
Odds = tuple[tuple[Any, float], ...]
"""What an answer may be, each with its probability (0 to 1).

Together they are 1. If some options are not known exactly, each has the least that its probability
may be, and what is missing from 1 is unknown. Empty odds are wholly unknown.
"""


@dataclass(frozen=True, slots=True)
class Option:
    """One answer that may be given, and when it applies, where that is said."""

    value: str | bool
    description: str | None = None


YES_NO = (Option(True), Option(False))


@quick_init
@dataclass(frozen=True, slots=True, eq=False)
class Decision:
    """A question whose answer is one of some options, as its node describes it.

    `predicate` is true or false, `choice` one of the options, `score` one of ordered levels, the
    worst first. `instructions` say what is to be decided. `case` is the test case, or None if there
    is none. `fields` are what the question is about, as (path, value). `material` is what it reads
    besides: (label, value) of earlier nodes, or an item of a list. With a `text` this is all that
    is shown, in the place of the case.
    """

    kind: Kind
    instructions: str
    options: tuple[Option, ...]
    case: Any = None
    fields: tuple[tuple[str, Any], ...] = ()
    material: tuple[tuple[str, Any], ...] = ()
    text: str | None = None


class Message(TypedDict):
    """One chat message."""

    role: Literal["system", "user", "assistant"]
    content: str


REPETITIONS = 1 << 20
"""How many repetitions there may be; the samples of a repetition are this far apart."""


# The settings in the identity of options: these always, the bounds only where they are set.
_ALWAYS = ("temperature", "seed", "top_logprobs", "sample", "max_tokens")
_BOUNDS = ("max_characters", "max_items")


@dataclass(frozen=True, slots=True, repr=False)
class Options:
    """How a question is sampled.

    `sample` tells apart repetitions of one question, which must never share an answer. Its
    remainder by `REPETITIONS` is the repetition of the whole evaluation. `top_logprobs` asks for
    that many alternatives per token (0: none).

    `max_characters` is the most characters of every text in the answer, `max_items` the most items
    of every list. None: 400 characters of a reason, 300 of an item and 600 of any other text, and
    24 items; texts and lists may be longer if the question shows more than 600 characters. The
    built-in prompts and the schemas name these bounds. Those of an answer type itself stay.
    `max_tokens` is sent as it is. None: what the bounds need at most; nothing to OpenAI itself.
    Raises ValueError for a value out of its range.
    """

    temperature: float | None = 0.0
    seed: int | None = None
    top_logprobs: int = 0
    sample: int = 0
    max_tokens: int | None = None
    max_characters: int | None = None
    max_items: int | None = None

    def __post_init__(self) -> None:
        if not 0 <= self.top_logprobs <= 20:
            raise ValueError(f"top_logprobs must lie in 0..20, got {self.top_logprobs}")
        if self.sample < 0:
            raise ValueError(f"sample must not be negative, got {self.sample}")
        for name in ("max_tokens", *_BOUNDS):
            most = getattr(self, name)
            if most is not None and (not isinstance(most, int) or most < 1):
                raise ValueError(f"{name} must be a whole number from 1 on, got {most!r:.80}")

    def __repr__(self) -> str:
        """Identity of options in stored answers, as it was before there were bounds."""
        settings = list[str]()
        for name in (*_ALWAYS, *_BOUNDS):
            value = getattr(self, name)
            if name in _ALWAYS or value is not None:
                settings.append(f"{name}={value!r}")
        return f"Options({', '.join(settings)})"

    @property
    def repetition(self) -> int:
        """Index of the repetition of an evaluation, counted from 0."""
        return self.sample % REPETITIONS


DEFAULT_OPTIONS = Options()
_DEFAULT_TEXT = repr(DEFAULT_OPTIONS)
REPEATED = 50_000
"""How many characters of an answer that does not fit are shown to the judge again."""
_BEGINNING = 100  # of an answer without an end
# After a copy of the prompt. Small models also copy what they are told not to copy.
_READ, _NOW = "I have read the material.", "Good. Now do what was asked for with it."
_SHORTER = (
    "That answer was too long and has no end. Answer the same question again, much shorter: in "
    "exactly the form that was asked for, in a few words, and without repeating anything."
)


Span = tuple[int, int]
"""Where something is in a text: its start and its end."""


class Parser(Protocol):
    """Reads an answer's fields out of plain text; raises UnparseableError when it cannot.

    Its `repr` is part of the question's key, so it must contain everything that matters. It must be
    the same in every process, so that stored answers are found again.
    """

    def __call__(self, text: str, /) -> Mapping[str, Any]: ...


@runtime_checkable
class LocatingParser(Parser, Protocol):
    """A parser that says where it found the value; ratings are weighted by the token there."""

    def span(self, text: str, /) -> Span | None: ...


@dataclass(frozen=True)
class FirstMatch:
    """A parser for models that answer in prose: the first pattern that is found decides.

    `patterns` are (regular expression, value) pairs tried in order; a value of None
    stands for the pattern's first group. The whole text is kept as the reason.
    """

    patterns: tuple[tuple[str, str | bool | int | None], ...]
    field: str = "verdict"

    def __call__(self, text: str, /) -> Mapping[str, Any]:
        for pattern, value in self.patterns:
            if match := re.search(pattern, text):
                return {"reason": text, self.field: match.group(1) if value is None else value}
        raise _unparseable((pattern for pattern, _ in self.patterns), text)

    def span(self, text: str, /) -> Span | None:
        """Span of the first group of the deciding pattern, or all of it if it has no group."""
        for pattern, _ in self.patterns:
            if match := re.search(pattern, text):
                start, end = match.span(min(match.re.groups, 1))
                return (start, end) if start < end else None
        return None


@dataclass(frozen=True)
class EveryMatch:
    """A parser for lists in prose: whatever a pattern finds (its first group, if any) is an item.

    For instance `^- (.+)$` with the flag `(?m)` in front takes the lines with a dash. A text in
    which nothing is found is not an empty list but unparseable.
    """

    pattern: str
    field: str = "output"

    def __call__(self, text: str, /) -> Mapping[str, Any]:
        matches = list(re.finditer(self.pattern, text))
        if not matches:
            raise _unparseable([self.pattern], text)
        # The first group of a pattern that has one, else all that matched.
        return {self.field: [match.group(min(match.re.groups, 1)) for match in matches]}


def _unparseable(patterns: Iterable[str], text: str) -> UnparseableError:
    tried = ", ".join(map(repr, patterns))
    return UnparseableError(f"none of the patterns {tried} is in the answer", raw=text)


Check = Callable[[Any], str | None]
"""Says what is wrong with the value of an answer that fits its type; None if nothing is."""


@dataclass(frozen=True, slots=True)
class Warmth:
    """Where a server has read the beginning of a question before.

    `key` names the beginning for providers that route by it, `slot` is that of a server that keeps
    beginnings by slot.
    """

    key: str
    slot: int | None = None


@dataclass(frozen=True)
class Question(Generic[T]):
    """What a judge is asked.

    `messages` is the whole prompt, `answer_type` the pydantic model of a valid answer.
    With a `parser` the answer is plain text that the parser turns into that model;
    without one it is JSON that follows the model's schema. `name` says who asks (for messages and
    ledgers), `asker` for which metric and node of the run. `decision` describes it to judges that
    give no text. `check` says what no type can: that an answer copies the prompt. `quotes` says
    which quotes of an answer are not in the material.
    `max_tokens` is what the run allows for an answer where `options` do not say it. `shares` are
    the fields of the case that other questions of the plan begin with, too, and `warmth` says where
    their beginning is warm. They are not part of the question's identity, so equal questions must
    have equal checks.
    """

    messages: tuple[Message, ...]
    answer_type: type[T]
    options: Options = DEFAULT_OPTIONS
    parser: Parser | None = None
    name: str = field(default="", compare=False)
    asker: tuple[str, str] | None = field(default=None, compare=False)
    decision: Decision | None = field(default=None, compare=False, repr=False)
    # What a run allows must not part equal questions of two runs: only `options` are in the key.
    max_tokens: int | None = field(default=None, compare=False)
    shares: tuple[str, ...] = field(default=(), compare=False)
    warmth: Warmth | None = field(default=None, compare=False)
    check: Check | None = field(default=None, compare=False, repr=False)
    quotes: Check | None = field(default=None, compare=False, repr=False)

    @cached_property
    def prompt(self) -> str:
        """The messages as JSON."""
        return f"[{','.join(map(_message_json, self.messages))}]"

    @property
    def canonical(self) -> bytes:
        """The bytes that say everything about the question; equal ones are one question."""
        shape = f"{schema_json(self.answer_type)}{self.parser or ''!r}"
        options = _DEFAULT_TEXT if self.options is DEFAULT_OPTIONS else repr(self.options)
        # Lone surrogates occur in real text and have no UTF-8 form of their own.
        return f"{self.prompt}\n{shape}\n{options}".encode(errors="surrogatepass")

    @cached_property
    def key(self) -> str:
        """SHA-256 (hex) of the canonical bytes."""
        return hashlib.sha256(self.canonical).hexdigest()

    def with_notes(self, **notes: Any) -> Question[T]:
        """The same question with other values of fields that are no part of its identity.

        They are `asker`, `shares`, `warmth` and `max_tokens`; properties stay computed.
        """
        twin = object.__new__(type(self))
        # `replace` takes ten times as long.
        twin.__dict__.update(self.__dict__, **notes)
        return twin

    @property
    def token_limit(self) -> int | None:
        """The most tokens of the answer, where somebody set them."""
        most = self.options.max_tokens
        return self.max_tokens if most is None else most

    def require_fit(self, answer: Answer[Any]) -> None:
        """Raise CopiedError when the check finds that an answer copies the prompt.

        Raise UnsupportedQuoteError when it quotes what is not in the material.
        """
        # A copy comes first: its quotes are in the material, since it is the material.
        if self.check is not None and (copied := self.check(answer.value)) is not None:
            raise CopiedError(copied, answer.text, answer.usage.counts)
        if self.quotes is not None and (misquoted := self.quotes(answer.value)) is not None:
            raise misquoting(misquoted, answer)

    def again(self, raw: str, complaint: str) -> Question[T]:
        """The same question after an answer that did not fit, with what was wrong with it.

        Of a very long answer the judge is shown the beginning.
        """
        return self._after(raw[:REPEATED], complaint)

    def without_copy(self) -> Question[T]:
        """The same question after an answer that copies the prompt, which is not shown.

        Measured on 11 such answers of a model of 135M parameters: with the copy shown it copies
        again 11 times, told only what not to copy 4 times, and so once.
        """
        return self._after(_READ, _NOW)

    def shorter(self, raw: str) -> Question[T]:
        """The same question after an answer without an end, of which only the beginning is shown.

        A model that sees more of a loop goes on with it.
        """
        return self._after(raw.strip()[:_BEGINNING] + " …", _SHORTER)

    def _after(self, shown: str, reply: str) -> Question[T]:
        """The same question after an answer, and what is said to it."""
        answer: Message = {"role": "assistant", "content": shown}
        return replace(self, messages=(*self.messages, answer, {"role": "user", "content": reply}))


def _message_json(message: Message) -> str:
    """A message as JSON; of two texts it is put together without its own encoder."""
    if tuple(message) != ("role", "content") or type(message["content"]) is not str:
        return _JSON.encode(message)
    role, content = message["role"], message["content"]
    return f'{{"role":{encode_basestring(role)},"content":{encode_basestring(content)}}}'


@cache
def schema_of(answer_type: type[BaseModel]) -> dict[str, Any]:
    """The JSON schema of an answer type, made once."""
    return answer_type.model_json_schema()


@cache
def schema_json(answer_type: type[BaseModel]) -> str:
    """The JSON schema as text, in declaration order (equal in every process)."""
    return _JSON.encode(schema_of(answer_type))


@dataclass(frozen=True, slots=True)
class Usage:
    """Tokens that a call used, as the provider counted them.

    `cached_tokens` are those of `input_tokens` that the provider had in its cache.
    """

    input_tokens: int = 0
    output_tokens: int = 0
    cached_tokens: int = 0

    @property
    def counts(self) -> tuple[int, int]:
        """The tokens as errors carry them: (input, output)."""
        return self.input_tokens, self.output_tokens

    def __add__(self, other: Usage) -> Usage:
        if self is NO_USAGE:
            return other
        if other is NO_USAGE:
            return self
        return Usage(
            self.input_tokens + other.input_tokens,
            self.output_tokens + other.output_tokens,
            self.cached_tokens + other.cached_tokens,
        )


NO_USAGE = Usage()


@dataclass(frozen=True, slots=True)
class TokenChoice:
    """One token of an answer and its most likely alternatives, as (token, log-probability)."""

    token: str
    alternatives: tuple[tuple[str, float], ...]


Origin = Literal["live", "cached", "replayed"]
PART = "part"
"""The mode of an answer that does not fit as a whole, but a part of it is used."""


@quick_init
@dataclass(frozen=True, slots=True)
class Answer(Generic[T]):
    """A valid answer, or the valid part of one (`mode` is then `PART`).

    `tokens` are present when the provider gave log-probabilities; joined they are `raw`. Their
    alternatives may be left out where they tell nothing, as in the middle of a reason.
    `mode` is the way in which the structure was asked for (for instance `json_schema`).
    `odds` are the probabilities of all that the answer might have been, from judges that give
    them. `mass` is the share of all probability (0 to 1) that fell on these, where odds come from
    the probabilities of tokens; below a half there are no odds. `origin` says who gave it, the
    judge or a store; it is not part of what was answered. Nor is `cost`: US dollars, where the
    model itself says what its call cost.
    """

    value: T
    raw: str = ""
    tokens: tuple[TokenChoice, ...] | None = None
    usage: Usage = NO_USAGE
    mode: str = "direct"
    odds: Odds | None = None
    origin: Origin = field(default="live", compare=False)
    cost: float | None = field(default=None, compare=False)
    mass: float | None = None

    @property
    def text(self) -> str:
        """The judge's text, or the value as JSON where it gave none."""
        return self.raw or self.value.model_dump_json()

    @property
    def chances(self) -> Odds | None:
        """The odds; empty if the judge gives odds and those of this answer are not known."""
        return () if self.odds is None and self.mass is not None else self.odds


def misquoting(problem: str, answer: Answer[Any]) -> UnsupportedQuoteError:
    """The error for an answer that fits but for its quotes."""
    return UnsupportedQuoteError(problem, answer.text, answer.usage.counts, answer)


@dataclass(frozen=True, slots=True)
class Packs:
    """How questions about one state travel together: by `Judge.answer_all`, in one request.

    At most so many `questions` and `characters` (the state counts once); up to `ahead` questions
    of a case may ride along that nobody asks yet.
    """

    questions: int
    characters: int
    ahead: int = 0


@dataclass(frozen=True, slots=True)
class Capabilities:
    """What a judge can do; checked before the first question.

    `schema`: structured answers; `text`: plain answers for a parser; `repeatable`: whether
    asking again may bring another answer. `logprobs`: whether it may give token probabilities
    where they are asked for. That is never a condition. Without them the question is answered all
    the same. A rating then counts as it is (its mode is `raw`). `caches_prefixes`: whether it pays
    to let one of many prompts with a long common beginning go ahead of the others. `elastic`: it
    takes any number of questions at once, so that there is nothing to find out carefully.
    `batched`: questions are collected and answered together, hours later perhaps, so that there is
    no deadline for one of them. `decides`: it answers only decisions, in the form of
    `prompts.decisions`. It then has a `writer`, the judge for all that is not a decision (or None).
    `packs`: how its questions may travel together; None: each alone.
    """

    schema: bool = True
    text: bool = True
    logprobs: bool = False
    repeatable: bool = True
    caches_prefixes: bool = False
    elastic: bool = False
    batched: bool = False
    decides: bool = False
    packs: Packs | None = None


class Judge(Protocol):
    """Anything that answers questions.

    `answer` makes one attempt and raises a `JudgeError` when it fails: retries, re-asks,
    limits and deadlines belong to the gateway. `identity` tells apart judges that may
    answer differently (model, endpoint, parameters); it has to hold in this process only.

    A judge whose answers may be stored has one more attribute, `durable_identity`. It is the same
    in later processes, and contains no secret, since it is written down. Without it, or where it is
    None, answers are not stored (see `durable_identity`).
    """

    @property
    def identity(self) -> str: ...

    @property
    def capabilities(self) -> Capabilities: ...

    async def answer(self, question: Question[T]) -> Answer[T]: ...


@runtime_checkable
class SizedJudge(Protocol):
    """A judge that loads its model for a run, with room for prompts as long as those to come."""

    def make_room(self, material: int) -> None:
        """Before the judge is opened: the most bytes of a case that one question shows."""
        ...


@dataclass(frozen=True, slots=True)
class ServerFacts:
    """What a judge's server says of itself before the first question; None where it does not say.

    `server` is the kind of server (`llama.cpp`, `Ollama`, `vLLM`, `LM Studio`; `model file`: served
    by a process of the run; empty: unknown).
    `window` is the number of tokens that the prompt and the answer of one call may have together.
    `slots` is how many calls the server works on at the same time; others wait there.
    """

    server: str = ""
    window: int | None = None
    slots: int | None = None


NO_FACTS = ServerFacts()


async def facts_of(judge: Judge) -> ServerFacts:
    """Facts that the server of an open judge states; nothing for judges without a server.

    Judges that know say it in a coroutine method `facts()`, which asks once and never raises.
    """
    facts = getattr(judge, "facts", None)
    return NO_FACTS if facts is None else cast("ServerFacts", await facts())


def durable_identity(judge: Judge) -> str | None:
    """Identity of a judge that is the same in every process; None without one."""
    identity: str | None = getattr(judge, "durable_identity", None)
    return identity


class DurableNames:
    """The durable identities of judges, as they were when each was first asked for.

    A judge may read its endpoint from the environment, which can change during a run. `unnamed` is
    called once with the identity of each judge that has none.
    """

    def __init__(self, unnamed: Callable[[str], object] = lambda identity: None) -> None:
        self._names: dict[str, str | None] = {}
        self._unnamed = unnamed

    def of(self, judge: Judge) -> str | None:
        """The durable identity of a judge; None if nothing tells it apart in another process."""
        identity = judge.identity
        if identity not in self._names:
            name = self._names[identity] = durable_identity(judge)
            if name is None:
                self._unnamed(identity)
        return self._names[identity]


def model_of(judge: Judge) -> str | None:
    """The name of the model that a judge asks, by which it has a price; None if it has none."""
    model = getattr(judge, "model", None)
    return model if isinstance(model, str) else None


def display_name(judge: Judge) -> str:
    """Name of a judge for people: its model, or else its identity for reading."""
    return model_of(judge) or judge_name(judge.identity)


def judge_name(identity: str) -> str:
    """A judge's identity without its settings and without what holds in one process, for reading.

    Settings are behind " with ", a comma or a bracket, the number of an object comes last, and the
    module of a file that was loaded by its path comes first.
    """
    name = re.split(r" with |, | \(", identity, maxsplit=1)[0]
    words = re.sub(r"^dagengine_user_\w+\.|(?<=\S)\s+[0-9a-f]{9,}$", "", name).split()
    return " ".join(dict.fromkeys(words))  # a simulated judge without a name is one once
