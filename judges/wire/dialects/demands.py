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
from functools import reduce
from typing import Any, Final, NamedTuple

from dagengine.judges.wire.dialects.failures import Complaint

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
_NAMES: Final[tuple[tuple[str, str], ...]] = (
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
_PATTERNS: Final = tuple((name, re.compile(words, re.IGNORECASE)) for name, words in _NAMES)
_LIMIT: Final = re.compile(
    r"max_?(?:completion_|new_|output_)?tokens|in the completion", re.IGNORECASE
)
_OTHER_NAME: Final = re.compile(
    r"instead|unsupported|not supported|unrecognized|unknown", re.IGNORECASE
)
_NUMBER: Final = re.compile(r"(?<![\w.])\d{1,3}(?![\w.]*\d)")


def named_in(
    complaint: Complaint,
    demands: Demands,
    asked: Set[str],
    limit: int | None = None,
    alternatives: int = 0,
) -> list[Lowering]:
    """The lower demands that a server's words name, of those that a request has.

    `asked` are the fields of the demands of the request; `limit` are the tokens that it named and
    that may be left out, and `alternatives` the log-probabilities of a token.
    """
    said = complaint.said
    lowerings = list[Lowering]()
    if "limit" in asked and _LIMIT.search(said):
        other_name = demands.limit_name == TOKEN_LIMITS[0] and _OTHER_NAME.search(said)
        if other_name and TOKEN_LIMITS[1] in said:
            lowerings.append(Lowering("limit_name", TOKEN_LIMITS[1]))
        lowerings += [] if limit is None else [Lowering("too_many", limit)]
    named = {field for field, pattern in _PATTERNS if pattern.search(said)}
    numbers = [int(digits) for digits in _NUMBER.findall(complaint.words)]
    fewer = [number for number in numbers if 0 < number < alternatives]
    if "alternatives" in asked and ("alternatives" in named or ("logprobs" in named and numbers)):
        lowerings.append(Lowering("alternatives", max(fewer, default=_FEW_ALTERNATIVES)))
    for field, _ in _PATTERNS:
        if field in named & asked - {"alternatives"}:
            lowerings += _lower(field, demands)
    return lowerings


def speaks_of_demands(complaint: Complaint) -> bool:
    """Return whether words name a demand, whichever: then others are not tried in vain."""
    return any(pattern.search(complaint.said) for _, pattern in _PATTERNS)


def ladder(demands: Demands, asked: Collection[str], limit: int | None) -> list[Lowering]:
    """Every demand of a request, a step lower, the cheapest first."""
    rungs = list[Lowering]()
    for field in ("cache_key", "seed", "keywords", "alternatives", "system", "temperature"):
        rungs += _lower(field, demands) if field in asked else []
    if "limit" in asked and demands.limit_name == TOKEN_LIMITS[0]:
        rungs.append(Lowering("limit_name", TOKEN_LIMITS[1]))
    for field in ("logprobs", "mode"):
        rungs += _lower(field, demands) if field in asked else []
    return rungs if limit is None else [*rungs, Lowering("too_many", limit)]


def _lower(field: str, demands: Demands) -> list[Lowering]:
    if field == "mode":
        return [Lowering("mode", mode) for mode in range(demands.mode + 1, len(MODES))]
    return [Lowering(field, _FEW_ALTERNATIVES if field == "alternatives" else False)]


class Hypotheses:
    """What one judge has learned of its server, and how it asks all questions: `standing`."""

    def __init__(self) -> None:
        self.standing = Demands()
        self.proven: set[str] = set()
        """Demands, by their fields, with which some question has worked as they stand."""
        self.useless: set[Lowering] = set()
        """Steps that did not help when nobody knew the words."""
        self._helped: dict[Lowering, set[str]] = {}
        self._cured: set[str] = set()  # what servers said of demands that they lack
        self._repeated = ("", 0)

    def trial(self, key: str) -> Trial:
        """The question with this key, on its way through lower demands."""
        return Trial(self, key)

    def worked(self, asked: Collection[str]) -> None:
        """Note that a question with these demands was answered."""
        self.proven.update(asked)
        self._repeated = ("", 0)

    def is_rejection(self, complaint: Complaint) -> bool:
        """Return whether a complaint may be about a demand: some statuses, and a repeated 500."""
        if speaks_of_demands(complaint) or complaint.is_known:
            return False
        if complaint.status != 500:
            return complaint.status in (400, 404, 422)
        message, times = self._repeated
        times = times + 1 if message == complaint.shape else 1
        self._repeated = complaint.shape, times
        return times >= _REPEATED or complaint.shape in self._cured

    def helped(self) -> list[Lowering]:
        """Steps that helped some question, those first that helped most."""
        return sorted(self._helped, key=lambda step: -len(self._helped[step]))

    def note_help(self, key: str, complaint: str, steps: Iterable[Lowering], named: bool) -> None:
        """Note that a question worked with these steps, and was rejected without them.

        `named` says that the words of all rejections named the demands.
        """
        self._cured.add(complaint)
        for step in steps:
            keys = self._helped.setdefault(step, set())
            if len(keys) < _CONFIRMED:
                keys.add(key)
            sure = named and _demand(step) not in self.proven
            if sure or len(keys) >= _CONFIRMED:
                self.standing = lowered(self.standing, step)
                self.proven.discard(_demand(step))


class Trial:
    """One question that was rejected: the `demands` to ask it with next.

    `explores` while it tries demands that no words name; one question at a time should do so.
    """

    def __init__(self, law: Hypotheses, key: str) -> None:
        self.demands = law.standing
        self.explores = False
        self._law, self._key = law, key
        self._start = law.standing
        self._steps = list[Lowering]()
        self._tried = set[Lowering]()
        self._complaint = self._first = ""
        self._words = False  # whether any of them named a demand
        self._named = True  # whether all of them did

    def lower(self, shape: str, named: Sequence[Lowering], rungs: Sequence[Lowering]) -> bool:
        """Take the next step after a rejection; False if there is none left.

        `shape` are its words without numbers: a step that left them as they were is taken back.
        `named` are the steps that the words name, `rungs` those to try where no words help.
        """
        if self._steps and shape == self._complaint:
            vain = self._steps.pop()
            if self.explores:
                self._law.useless.add(vain)
        self._complaint = shape
        self._first = self._first or shape
        self._words = self._words or bool(named)
        self._named = self._named and bool(named)
        self.explores = not self._words
        step = self._unnamed(rungs) if self.explores else self._untried(named)
        if step is None:
            return False
        self._take(step)
        return True

    def reconsider(self, rungs: Sequence[Lowering]) -> bool:
        """Take what helped another question meanwhile; False if nothing is left to try."""
        self._tried.discard(self._steps.pop())
        better = self._unnamed(rungs)
        if better is not None:
            self._take(better)
        return better is not None

    def work(self, asked: Collection[str]) -> None:
        """Note that the question was answered with `demands`, whose fields are `asked`."""
        self._law.worked(set(asked).difference(map(_demand, self._steps)))
        self._law.note_help(self._key, self._first, self._steps, self._named)

    def _take(self, step: Lowering) -> None:
        self._tried.add(step)
        self._steps.append(step)
        self.demands = reduce(lowered, self._steps, self._start)

    def _unnamed(self, rungs: Sequence[Lowering]) -> Lowering | None:
        """The next step without words: what helped others first, never what has proved to work."""
        law = self._law
        open_rungs = [rung for rung in rungs if _demand(rung) not in law.proven]
        fields = {rung.field for rung in open_rungs}
        helped = [step for step in law.helped() if step.field in fields]
        return self._untried([*helped, *(rung for rung in open_rungs if rung not in law.useless)])

    def _untried(self, steps: Iterable[Lowering]) -> Lowering | None:
        return next((step for step in steps if step not in self._tried), None)


def _demand(step: Lowering) -> str:
    """The demand that a step lowers, as requests call it."""
    return "limit" if step.field in ("limit_name", "too_many") else step.field


def lowered(demands: Demands, step: Lowering) -> Demands:
    """Demands with one of them lowered; never raised again."""
    value = step.value
    if step.field == "mode":
        value = max(value, demands.mode)
    if step.field in ("too_many", "alternatives"):
        value = min(value, getattr(demands, step.field))
    return demands._replace(**{step.field: value})
