"""What a judge asks a server for, and the law by which it asks for less.

Everything that a server may lack is a demand: structured answers and their schema's keywords,
log-probabilities and how many, a temperature, a system message, a limit of tokens. A rejection
says at most that a demand *may* be too much. So the demand is a hypothesis::

    rejected ──▶ the same question without the demand ──rejected──▶ without another one,
                      │ works                                       or the first error
                      ▼
    this question is answered; all others are asked without the demand
    * at once if the words name it, and no question has worked with it,
    * else after a second question was rejected with it, and worked without it

Which demand is tried: one that the server's words name. Where nobody knows the words: one whose
absence helped another question, then each in turn, the cheapest first. The last is done once for a
judge, and only for demands with which no question has worked. So an error of one case in words
that nobody knows never changes the requests of others. No clock, no I/O.
"""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Iterable, Sequence, Set
from dataclasses import dataclass
from functools import reduce
from itertools import filterfalse
from typing import Any, Final, NamedTuple

from dagengine.judges.wire.dialects.error_responses import Complaint

TOKEN_LIMITS: Final = ("max_tokens", "max_completion_tokens")
"""How a request may call the most tokens of its answer, in the order of their age."""
CACHE_KEY: Final = "prompt_cache_key"
MODES: Final = ("JSON_SCHEMA", "TOOLS", "JSON")
"""Ways of asking for structure, from the least intrusive: the last pastes the schema in."""
ROOM: Final = 16_384
"""Tokens for thoughts, beside those of the answer."""
_CONFIRMED: Final = 2  # questions that worked without a demand, and not with it
_REPEATED: Final = 3  # equal answers of status 500 before they count as a rejection
_FEW_ALTERNATIVES: Final = 5


class Demands(NamedTuple):
    """What requests ask for. `mode` counts in `MODES`; `keywords` are those of a bounded schema.

    `alternatives` are the most log-probabilities of a token. `limit_name` is what requests call the
    most tokens of an answer; from `too_many` of them on none are named. `thoughts` are tokens
    beside those of the answer. Without `system` the instructions begin the user's message.
    """

    mode: int = 0
    keywords: bool = True
    logprobs: bool = True
    alternatives: float = math.inf
    temperature: bool = True
    seed: bool = True
    cache_key: bool = True
    system: bool = True
    limit_name: str = TOKEN_LIMITS[0]
    too_many: float = math.inf
    thoughts: int = 0


class Lowering(NamedTuple):
    """A demand, by its field, with a lower value."""

    field: str
    value: Any


# What servers call the demands. Words are looked for outside of quotations, codes everywhere.
_NAMES: Final = (
    ("cache_key", r"prompt_?cache_?key|\bcache_?key"),
    ("seed", r"\bseed\b"),
    ("alternatives", r"top_?logprobs|top_?n_?tokens"),
    (
        "keywords",
        r"max_?length|min_?length|max_?items|min_?items|\bpattern\b|additional_?properties|\$defs"
        r"|\$ref|\banyof\b|\boneof\b|keywords?\b|unimplemented|xgrammar|outlines|llguidance|grammar"
        r"|guided|response_?schema|structured[_ ]outputs?|(?:schema|structured)[^.]{0,60}"
        r"(?:invalid|unsupported|not support\w*|complex|feature|too (?:deep|large|many))",
    ),
    ("temperature", r"\btemperature\b"),
    (
        "system",
        r"\bsystem[_ ]?(?:role|message|prompt|instruction)|\brole\b[^.]{0,30}\bsystem\b"
        r"|['\"`]system['\"`]|developer instruction|roles? must alternate|alternate user"
        r"|chat[_ ]?template|template ?error|\bjinja|first message[^.]{0,40}user"
        r"|only (?:supports? )?user and assistant",
    ),
    ("logprobs", r"log[_ ]?-?prob"),
    (
        "mode",
        r"response_?format|json_?schema|json[ _](?:mode|object|schema)|tool_?choice|\btools?\b"
        r"|function[_ ]?call|structured|guided|grammar|response_?schema|response_?mime",
    ),
)
_PATTERNS: Final = {name: re.compile(words, re.IGNORECASE) for name, words in _NAMES}
# The order in which they are lowered where nobody knows the words: the cheapest first.
_CHEAPEST: Final = (
    *("cache_key", "seed", "keywords", "alternatives", "system", "temperature", "limit"),
    *("logprobs", "mode"),
)
_LIMIT: Final = re.compile(
    r"max_?(?:completion_|new_|output_)?tokens|in the completion", re.IGNORECASE
)
_OTHER_NAME: Final = re.compile(
    r"instead|unsupported|not supported|unrecognized|unknown", re.IGNORECASE
)
_NUMBER: Final = re.compile(r"(?<![\w.])\d{1,3}(?![\w.]*\d)")


@dataclass(slots=True)
class RequestDemands:
    """What a request demands, by the `fields` of its demands, and what is asked if it is rejected.

    `limit` are the tokens that it names and that may be left out, and `alternatives` the
    log-probabilities of a token.
    """

    demands: Demands
    fields: Set[str]
    limit: int | None = None
    alternatives: int = 0

    def named_lowerings(self, complaint: Complaint) -> list[Lowering]:
        """The lower demands that a server's words name, of those that the request has."""
        words = complaint.said
        lowerings = self.limit_lowerings(words)
        fields = {field for field, pattern in _PATTERNS.items() if pattern.search(words)}
        numbers = list(map(int, _NUMBER.findall(complaint.words)))
        if "logprobs" in fields and numbers:
            fields.add("alternatives")
        fields &= self.fields
        if "alternatives" in fields:
            fewer = [number for number in numbers if 0 < number < self.alternatives]
            lowerings.append(Lowering("alternatives", max(fewer, default=_FEW_ALTERNATIVES)))
        for field in filter((fields - {"alternatives"}).__contains__, _PATTERNS):
            lowerings += self._lower(field)
        return lowerings

    def limit_lowerings(self, words: str) -> list[Lowering]:
        """The lower demands for the limit of tokens that a server's words name."""
        lowerings = list[Lowering]()
        if "limit" in self.fields and _LIMIT.search(words):
            if TOKEN_LIMITS[1] in words and _OTHER_NAME.search(words):
                lowerings += self._lower("limit")
            if self.limit is not None:
                lowerings.append(Lowering("too_many", self.limit))
        return lowerings

    def ladder(self) -> list[Lowering]:
        """Every demand of the request, a step lower, the cheapest first."""
        rungs = list[Lowering]()
        for field in filter(self.fields.__contains__, _CHEAPEST):
            rungs += self._lower(field)
        if self.limit is not None:
            rungs.append(Lowering("too_many", self.limit))
        return rungs

    def _lower(self, field: str) -> list[Lowering]:
        if field == "mode":
            return [Lowering("mode", mode) for mode in range(self.demands.mode + 1, len(MODES))]
        if field == "limit":
            is_old = self.demands.limit_name == TOKEN_LIMITS[0]
            return [Lowering("limit_name", TOKEN_LIMITS[1])] if is_old else []
        return [Lowering(field, {"alternatives": _FEW_ALTERNATIVES}.get(field, False))]


class Hypotheses:
    """What one judge has learned of its server, and how it asks all questions: `standing`."""

    def __init__(self) -> None:
        self.standing = Demands()
        self.proven: set[str] = set()
        """Demands, by their fields, with which some question has worked as they stand."""
        self.useless: set[Lowering] = set()
        """Steps that did not help when nobody knew the words."""
        self.helped: dict[Lowering, set[str]] = {}
        """Steps that helped, with some of the questions that they helped."""
        self._cured: set[str] = set()  # what servers said of demands that they lack
        self._repeated = ("", 0)

    def note_success(self, asked: Collection[str]) -> None:
        """Note that a question with these demands was answered."""
        self.proven.update(asked)
        self._repeated = ("", 0)

    def is_rejection(self, complaint: Complaint) -> bool:
        """Return whether a complaint may be about a demand: some statuses, and a repeated 500.

        It is not if its words name a demand that the request did not have.
        """
        is_named = any(pattern.search(complaint.said) for pattern in _PATTERNS.values())
        if is_named or complaint.is_known:
            return False
        if complaint.status != 500:
            return complaint.status in (400, 404, 422)
        message, times = self._repeated
        times = times * (message == complaint.shape) + 1
        self._repeated = complaint.shape, times
        return times >= _REPEATED or complaint.shape in self._cured

    def note_help(self, key: str, complaint: str, steps: Iterable[Lowering], named: bool) -> None:
        """Note that a question worked with these steps, and was rejected without them.

        `named` says that the words of all rejections named the demands.
        """
        self._cured.add(complaint)
        for step in steps:
            keys = self.helped.setdefault(step, set())
            if len(keys) < _CONFIRMED:
                keys.add(key)
            sure = named and _demand(step) not in self.proven
            if sure or len(keys) >= _CONFIRMED:
                self.standing = lower_demand(self.standing, step)
                self.proven.discard(_demand(step))


class Trial:
    """The question with a key, which was rejected: the `demands` to ask it with next."""

    def __init__(self, law: Hypotheses, key: str) -> None:
        self.demands = self._start = law.standing
        self._law, self._key = law, key
        self._steps = list[Lowering]()
        self._tried = set[Lowering]()
        self._shapes, self._named = list[str](), list[bool]()  # words, and if they name a demand

    @property
    def explores(self) -> bool:
        """True if it tries demands that no words name; one question at a time should do so."""
        return not any(self._named)

    def lower(self, shape: str, named: Sequence[Lowering], rungs: Sequence[Lowering]) -> bool:
        """Take the next step after a rejection; False if there is none left.

        `shape` are its words without numbers: a step that left them as they were is taken back.
        `named` are the steps that the words name, `rungs` those to try where no words help.
        """
        if self._steps and shape == self._shapes[-1]:
            vain = self._steps.pop()
            if self.explores:
                self._law.useless.add(vain)
        self._shapes.append(shape)
        self._named.append(bool(named))
        return self._take(self._steps_without_words(rungs) if self.explores else named)

    def reconsider(self, rungs: Sequence[Lowering]) -> bool:
        """Take what helped another question meanwhile; False if nothing is left to try."""
        self._tried.discard(self._steps.pop())
        return self._take(self._steps_without_words(rungs))

    def note_success(self, asked: Collection[str]) -> None:
        """Note that the question was answered with `demands`, whose fields are `asked`."""
        self._law.note_success(set(asked).difference(map(_demand, self._steps)))
        if self._steps:
            self._law.note_help(self._key, self._shapes[0], self._steps, all(self._named))

    def _take(self, steps: Iterable[Lowering]) -> bool:
        """Take the first step that was not tried; False if there is none."""
        step = next(filterfalse(self._tried.__contains__, steps), None)
        if step is None:
            return False
        self._tried.add(step)
        self._steps.append(step)
        self.demands = reduce(lower_demand, self._steps, self._start)
        return True

    def _steps_without_words(self, rungs: Sequence[Lowering]) -> list[Lowering]:
        """The steps without words: what helped others first, never what has proved to work."""
        law = self._law
        open_rungs = [rung for rung in rungs if _demand(rung) not in law.proven]
        fields = {rung.field for rung in open_rungs}
        helped = [step for step in law.helped if step.field in fields]
        helped.sort(key=lambda step: -len(law.helped[step]))
        return [*helped, *filterfalse(law.useless.__contains__, open_rungs)]


def _demand(step: Lowering) -> str:
    """The demand that a step lowers, as requests call it."""
    return {"limit_name": "limit", "too_many": "limit"}.get(step.field, step.field)


def lower_demand(demands: Demands, step: Lowering) -> Demands:
    """Demands with one of them lowered; never raised again."""
    value = step.value
    if step.field == "mode":
        value = max(value, demands.mode)
    if step.field in ("too_many", "alternatives"):
        value = min(value, getattr(demands, step.field))
    return demands._replace(**{step.field: value})
