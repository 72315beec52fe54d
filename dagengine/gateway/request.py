"""One question on its way to an answer, and what is kept of the judge that gives it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from dagengine.gateway.budget import Entry, Estimates
from dagengine.gateway.call_priorities import Urgency
from dagengine.gateway.packs.packing import Participant, Pause
from dagengine.gateway.packs.prompt_cache import StickyPlaces
from dagengine.gateway.rate_limiter import Call, JudgeLimiter
from dagengine.gateway.window.truncated_prompts import WholePrompts
from dagengine.question import NO_FACTS, Judge, Question, ServerFacts
from dagengine.results import JudgeCall
from dagengine.results.prices import Price


@dataclass(slots=True)
class JudgeState:
    """What a gateway keeps of `judges` of one identity that are asked in one way, with one key."""

    name: str  # in the ledger: the same in every process if the judge is `durable`
    durable: str | None  # an identity that other processes know, too
    limiter: JudgeLimiter  # its limits, and its calls in progress
    price: Price | None
    judges: list[Judge] = field(default_factory=list[Judge])
    secrets: tuple[str, ...] = ()  # of all `judges`: hidden in every answer
    prompts: WholePrompts | None = None  # for a server that may cut prompts without saying so
    facts: ServerFacts = NO_FACTS  # what the server says of itself
    sticky: StickyPlaces | None = None  # of a server whose places keep the beginnings of prompts
    caches: bool = False  # whether it has reported cached tokens
    estimates: Estimates = field(default_factory=Estimates)  # tokens of questions and answers


@dataclass(slots=True, eq=False)
class Request:
    """One question to one judge: the context of all stages of the gateway (see `retry_pipeline`).

    Whoever asks gives the first four. The gateway adds the next four, from `state` to `pause`. The
    stages note the rest.
    """

    judge: Judge
    question: Question[Any]  # what stands before the gateway may put another in its place
    rank: int = 0  # that of the case: where questions wait, smaller ranks go first
    participant: Participant | None = None  # the node that asks, if it may share calls
    state: JudgeState = field(init=False)
    entry: Entry = field(init=False)  # in the ledger
    urgency: Urgency = field(init=False)
    pause: Pause | None = None  # lets packs leave while this question waits
    attempts: int = 0  # calls so far
    late: bool = False  # whether a call had no answer in time, so that the next gets more time
    reasks: int = 0  # how often it was asked again because an answer did not fit
    ran_away: bool = False  # whether an answer had no end
    doubtful: bool = False  # whether an answer quoted what is not there, or said more after its end
    call: Call | None = None  # the one that succeeded: in progress until its answer is stored
    # Calls for the result, in order. If the first call succeeds, it is not among them.
    calls: list[JudgeCall] = field(default_factory=list[JudgeCall])
    ended_at: float = 0.0  # `time.perf_counter` at the end of the last of `calls`
