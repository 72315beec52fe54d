"""One question on its way to an answer, and what is kept of the judge that gives it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from dagengine.gateway.budget import Entry, Estimates
from dagengine.gateway.limiter import Call, JudgeLimiter
from dagengine.gateway.packs.packing import Participant, Pause
from dagengine.gateway.packs.prompt_cache import StickyPlaces
from dagengine.gateway.waiting import Urgency
from dagengine.gateway.window.whole_prompts import WholePrompts
from dagengine.question import NO_FACTS, Judge, Question, ServerFacts
from dagengine.results import JudgeCall
from dagengine.results.prices import Price


@dataclass(slots=True)
class JudgeState:
    """What a gateway keeps of one judge; judges of one identity, way and key share it.

    `name` is what the ledger calls it: the same in every process, if there is such a name
    (`durable`). `limiter` has its limits and its calls. `prompts` sees to it that they are read
    whole, where a server may cut them and not say so. The `secrets` of all `judges` are hidden in
    its answers. `facts` are what its server says of itself, with its `sticky` places if these keep
    beginnings of prompts; `caches` says that it reported cached tokens.
    """

    name: str
    durable: str | None
    limiter: JudgeLimiter
    price: Price | None
    judges: list[Judge] = field(default_factory=list[Judge])
    secrets: tuple[str, ...] = ()
    prompts: WholePrompts | None = None
    facts: ServerFacts = NO_FACTS
    sticky: StickyPlaces | None = None
    caches: bool = False
    estimates: Estimates = field(default_factory=Estimates)


@dataclass(slots=True, eq=False)
class Request:
    """One question to one judge: the context of all stages of the gateway (see `pipeline`).

    Who asks gives the first four: where questions wait, those with a smaller `rank` (that of their
    case) go first; with a `participant` (the node which asks) it travels with others of its case.
    What stands before the gateway may put another question. The gateway adds the judge's `state`,
    the `entry` of its ledger and the `urgency`. The stages note the rest: how many calls there were
    (`attempts`), and whether one was `late`, so that the next gets more time; how often it was
    asked again because an answer did not fit (`reasks`), and whether one had no end (`ran_away`) or
    quoted what is not there (`doubtful`); the `call` that succeeded, which keeps its place until
    the answer is stored. `calls` are all of them but a first one that was answered, the last of
    which ended at `ended_at` by the clock.
    """

    judge: Judge
    question: Question[Any]
    rank: int = 0
    participant: Participant | None = None
    state: JudgeState = field(init=False)
    entry: Entry = field(init=False)
    urgency: Urgency = field(init=False)
    pause: Pause | None = None
    attempts: int = 0
    late: bool = False
    reasks: int = 0
    ran_away: bool = False
    doubtful: bool = False
    call: Call | None = None
    calls: list[JudgeCall] = field(default_factory=list[JudgeCall])
    ended_at: float = 0.0
