"""How nodes and metrics end: outcomes, failures, steps. Plain data.

A failure is data too: never a NaN, never a silent 0, never a bare None.
"""

from __future__ import annotations

import traceback
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from itertools import chain
from pathlib import Path
from typing import Any

from dagengine.prompts.evidence import as_data
from dagengine.prompts.quotes import Quote
from dagengine.question import NO_USAGE, Odds, Usage
from dagengine.system.frozen import quick_init
from dagengine.system.terminal_text import counted
from dagengine.test_case import TestCase, too_short

Verdict = str | bool


class OutcomeKind(StrEnum):
    """How a node, or a metric on one case, ended."""

    OK = "ok"
    SKIPPED = "skipped"
    MISSING_FIELD = "missing_field"
    INVALID_CASE = "invalid_case"
    JUDGE_REFUSED = "judge_refused"
    UNPARSEABLE = "unparseable"
    UNSUPPORTED = "unsupported"
    TRUNCATED = "truncated"
    TOO_LONG = "too_long"
    PROVIDER_ERROR = "provider_error"
    TIMEOUT = "timeout"
    OVER_BUDGET = "over_budget"
    CODE_ERROR = "code_error"


# Characters of a message, and of the raw answer beside it, that a result keeps.
LONGEST = 10_000


def shorten(text: str) -> str:
    """At most `LONGEST` characters of a text; where it is cut, how many there were."""
    if len(text) <= LONGEST:
        return text
    note = f"… ({len(text):,} characters in all)"
    return text[: LONGEST - len(note)] + note


@dataclass(frozen=True, slots=True)
class Failure:
    """Why there is no score: the kind, the node, and what to do.

    `raw` is the judge's answer, if it was invalid. Texts of more than 10,000 characters are
    truncated and end with their length. `asked` are the questions of the node (see `Step`); rows
    have them with the step. `lasting` is that of a ProviderError: the judge answers nobody soon.
    """

    kind: OutcomeKind
    node: str
    message: str
    raw: str | None = None
    asked: tuple[str, ...] = field(default=(), compare=False, repr=False)
    lasting: bool = field(default=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "message", shorten(self.message))
        if self.raw is not None:
            object.__setattr__(self, "raw", shorten(self.raw))

    def __str__(self) -> str:
        return f"{self.kind} at {self.node}: {self.message}"

    @property
    def may_pass(self) -> bool:
        """Whether the same question may get an answer at another time."""
        return self.kind in (OutcomeKind.PROVIDER_ERROR, OutcomeKind.TIMEOUT)

    @classmethod
    def missing_field(cls, paths: Iterable[str], node: str, case: TestCase) -> Failure:
        """A case without fields that a node reads, or with a list that is too short."""
        words = {path: too_short(case, path) for path in paths}
        parts = [f"this metric reads `{path}`, but {why}" for path, why in words.items() if why]
        if names := ", ".join(f"`{path}`" for path, why in words.items() if not why):
            hint = "but this metric reads it; add it to the test case"
            parts.append(f"the case has no {names}, {hint}")
        return cls(OutcomeKind.MISSING_FIELD, node, "; ".join(parts))

    @classmethod
    def of_code(cls, error: BaseException, node: str) -> Failure:
        """An exception of the caller's code: what, and where."""
        frames = traceback.extract_tb(error.__traceback__)
        line = f" ({Path(frames[-1].filename).name} line {frames[-1].lineno})" if frames else ""
        return cls(OutcomeKind.CODE_ERROR, node, f"{type(error).__name__}: {error}{line}")

    def as_dict(self) -> dict[str, Any]:
        """JSON-ready form."""
        row: dict[str, Any] = {"kind": str(self.kind), "node": self.node, "message": self.message}
        return row if self.raw is None else {**row, "raw": self.raw}


# The modes of a judgement that may go to a second judge: the first judge's, or the second one's.
KEPT, ESCALATED = "kept", "escalated"
_WAIT = 0.1  # seconds of waiting that are worth a word


@dataclass(frozen=True, slots=True)
class JudgeCall:
    """One call to a judge, of a question that needed several.

    `seconds` is how long it took, and `waited` how many seconds after the call before it it was
    made. `message` says what was wrong; None for the call that was answered.
    """

    outcome: OutcomeKind
    seconds: float
    waited: float = 0.0
    usage: Usage = NO_USAGE
    message: str | None = None

    def __post_init__(self) -> None:
        if self.message is not None:
            object.__setattr__(self, "message", shorten(self.message))


_ASKED_AGAIN = (OutcomeKind.UNPARSEABLE, OutcomeKind.UNSUPPORTED)


def calls_words(calls: Iterable[tuple[JudgeCall, ...]]) -> str:
    """Events on the way to the answers of a step, in words; "" where nothing did."""
    questions = list(calls)
    every = list(chain.from_iterable(questions))
    if not every:
        return ""
    repeated = list(chain.from_iterable(question[:-1] for question in questions))
    reasks = sum(call.outcome in _ASKED_AGAIN for call in repeated)
    waited = sum(call.waited for call in every)
    parts = [counted(reasks, "re-ask")] if reasks else []
    if retries := len(repeated) - reasks:
        parts.insert(0, "1 retry" if retries == 1 else f"{retries} retries")
    if waited >= _WAIT:
        parts.append(f"{waited:.1f} s waited")
    # What misquotes is an answer all the same, whose verdict may be kept.
    ends = [question[-1] for question in questions]
    lost = any(end.message and end.outcome is not OutcomeKind.UNSUPPORTED for end in ends)
    gave_up = "gave up after " * lost
    return f"{gave_up}{len(every)} calls: {', '.join(parts)}"


@quick_init
@dataclass(frozen=True, slots=True)
class Step:
    """The result of one node on one case.

    `output` is the data that other nodes read from it (text, numbers, lists, dicts). `verdict` is
    set for decisions, `score` (0 to 1) for ratings and scoring code. `mode` says how a rating was
    read (`weighted` or `raw`, and why), or whether a judgement was `kept` or `escalated`.
    `confidence` is the probability (0 to 1) that the judge gave the verdict, if it is known. `mass`
    is the share of all probability (0 to 1) that fell on what the node may answer, where
    `confidence` or `odds` come from the probabilities of tokens. Below a half both are unknown.
    `odds` are the probabilities of all verdicts, of all ratings by their number, or of all scores
    (0 to 1) of code over a list. Some judges do not give them.
    `item_odds` are those of each item of a list. `usage` counts the tokens of the answers that the
    node used, shared and stored answers included. `answers` are the texts of the judge, in the
    order of the questions; result files do not have them. `asked` has the keys of these questions
    in a store: the first 16 hexadecimal digits of each; empty for judges without a durable
    identity.

    `votes` are the votes of the node, in the order of asking: verdicts, ratings, or a list of
    verdicts per vote. None is an unparseable answer (in a list also an item that was settled
    before). `voters` names the judge of each vote.

    `spans` are the ids of the spans that a node over a list of spans went over, in the order of its
    items; of code those that it names as decisive.

    `quotes` are the words that its verdict or rating stands on, each with its piece of the material
    and its places there, if the node quotes; `item_quotes` are those of each item of a list.

    `seconds` is the duration of the node, including retries and time in the queue; a stored answer
    takes almost none. `calls` are those of every question that needed more than one, in the order
    of the questions. They belong to this run and not to the answers: a stored answer, and one that
    an equal question got, needs none.
    """

    node: str
    kind: str
    outcome: OutcomeKind
    output: Any = None
    verdict: Verdict | None = None
    reason: str | None = None
    score: float | None = None
    mode: str | None = None
    usage: Usage = NO_USAGE
    votes: tuple[Any, ...] = ()
    voters: tuple[int, ...] = ()
    answers: tuple[str, ...] = ()
    confidence: float | None = None
    asked: tuple[str, ...] = field(default=(), compare=False)
    odds: Odds | None = None
    item_odds: tuple[Odds | None, ...] = ()
    seconds: float | None = field(default=None, compare=False, repr=False)
    mass: float | None = None
    spans: tuple[str, ...] = ()
    calls: tuple[tuple[JudgeCall, ...], ...] = field(default=(), compare=False, repr=False)
    quotes: tuple[Quote, ...] = ()
    item_quotes: tuple[tuple[Quote, ...], ...] = ()

    @property
    def agreeing(self) -> int:
        """The number of votes for the verdict."""
        mine = (type(self.verdict), self.verdict)
        return sum((type(vote), vote) == mine for vote in self.votes)

    def as_dict(self) -> dict[str, Any]:
        """JSON-ready form without the absent entries, and without what is there twice."""
        row = {name: getattr(self, name) for name in _NAMES if getattr(self, name) is not None}
        # By their texts: 1 and True are equal in Python, and readers would get one for the other.
        if self.verdict is not None:
            row["output"] = self.output  # also None, which a row without an output is not
            if repr(self.output) == repr(implied_output(row)):
                del row["output"]
        if self.usage != NO_USAGE:
            # Not what a provider had in its cache: that depends on the timing.
            used = self.usage
            row["usage"] = {"input_tokens": used.input_tokens, "output_tokens": used.output_tokens}
        if self.odds is not None:
            row["odds"] = _lists_of(self.odds)
        if self.item_odds:
            row["item_odds"] = [*map(_lists_of, self.item_odds)]
        if self.votes:
            row |= {"votes": list(self.votes), "voters": list(self.voters)}
        if self.asked:
            row["asked"] = list(self.asked)
        if self.spans:
            row["spans"] = list(self.spans)
        if self.quotes:
            row["quotes"] = [*map(Quote.as_dict, self.quotes)]
        if self.item_quotes:
            row["item_quotes"] = [[*map(Quote.as_dict, own)] for own in self.item_quotes]
        return {**row, "outcome": str(self.outcome)}


def _lists_of(odds: Odds | None) -> list[Any] | None:
    return None if odds is None else [*map(list, odds)]


_NAMES = ("node", "kind", "output", "verdict", "confidence", "mass", "reason", "score", "mode")


def implied_output(step: Mapping[str, Any]) -> Any:
    """The output of a decision whose row has none: readers saw its verdict and its reason.

    Readers of code that decides saw the verdict alone.
    """
    if step["kind"] == "code":
        return step["verdict"]
    return {name: step[name] for name in ("verdict", "reason") if step.get(name) is not None}


_WRITTEN = 1000  # bits of integers that are written in any case


def step_output(value: Any) -> Any:
    """A node's value as a step shows it; any object, and a step must not fail of it."""
    try:
        shown = as_data(value)
        if isinstance(shown, int) and shown.bit_length() > _WRITTEN:
            str(shown)  # Python writes no integer of more than 4,300 digits
        return shown
    except Exception:  # noqa: BLE001 - keys that are not text, circles, a broken __str__
        return f"<{type(value).__name__} without a text form>"
