"""Questions about one case that travel in one request, and when they leave. No clock.

Every question keeps its own key, place, budget, entry in the ledger and answer. A pack is made
after all of these and right before the judge. It leaves when nothing else of its case can bring
another question for it::

    node at work ──asks a chat model──▶ holds the packs of its case until it has its answer
         │
         └──asks a decision model──▶ rests ──nothing holds any more──▶ the pack leaves

So how many requests a case takes depends on the case alone, not on timing. What waits for
questions of others (equal ones, those of its own code) rests, too: no pack waits for one
that waits for it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Protocol

import anyio

from dagengine.errors import JudgeError, ProviderError, TooLongError, UnsupportedError
from dagengine.gateway.budget import Budget
from dagengine.gateway.call_priorities import Urgency
from dagengine.gateway.rate_limiter import UNSAID, Call, JudgeLimiter, Limiter
from dagengine.gateway.single_flight import SingleFlight
from dagengine.prompts.decisions import state_text
from dagengine.question import NO_USAGE, Answer, Judge, Packs, Question, Usage
from dagengine.results.prices import Price

Ahead = tuple[Judge, list[Question[Any]]]
"""What a node would ask that nobody wants yet, and its judge."""
_Lot = tuple[int, str, int]
Outcome = Answer[Any] | JudgeError
# A request that is refused as it stands may be too much of one: its questions may pass.
_TOO_MUCH = frozenset({400, 413, 422})


class Participant:
    """A node at work on a case: packs stay as long as one of its strands may bring a question.

    A strand is what it does at one time; of several questions at once each is one.
    """

    __slots__ = ("_strands", "packing")

    def __init__(self, packing: Packing) -> None:
        """`packing` has counted the node since it was ready."""
        self.packing = packing
        self._strands = 1

    def rest(self) -> None:
        """A strand waits for what may wait for packs."""
        self._strands -= 1
        if not self._strands:
            self.packing.begin_rest()

    def resume(self) -> None:
        """A strand continues."""
        self._strands += 1
        if self._strands == 1:
            self.packing.end_rest()

    def split(self, strands: int) -> None:
        """So many strands more; less where the number is negative."""
        self._strands += strands
        if strands < 0 and not self._strands:
            self.packing.begin_rest()

    def end(self) -> None:
        """The node has ended."""
        if self._strands <= 0:  # it was stopped where it rested
            self.packing.end_rest()
        self.packing.finish()


class Pause:
    """One question of a strand, which rests until its pack leaves."""

    __slots__ = ("_rests", "participant")

    def __init__(self, participant: Participant) -> None:
        self.participant = participant
        self._rests = False

    def rest(self) -> None:
        """Hold nothing up."""
        if not self._rests:
            self._rests = True
            self.participant.rest()

    def resume(self) -> None:
        """Hold packs up again."""
        if self._rests:
            self._rests = False
            self.participant.resume()


@dataclass(slots=True, eq=False)
class PackEntry:
    """One question that waits for its pack."""

    sender: PackSender
    question: Question[Any]
    tokens: int
    urgency: Urgency
    pause: Pause
    moved: anyio.Event = field(default_factory=anyio.Event)
    pack: Pack | None = None


class Packing:
    """The packs of one case. `ahead` are answers that came before they were asked for, by key."""

    def __init__(
        self,
        riders: Callable[[int], Iterable[Ahead]] = lambda most: (),
        parked: Callable[[int], None] = lambda change: None,
    ) -> None:
        """`riders` gives what nodes may ask later that would ask up to so many questions.

        `parked` is told when a node begins (1) or ends (-1) to wait for packs.
        """
        self._riders, self._parked = riders, parked
        self._busy = 0
        self._waiting: list[PackEntry] = []
        self.ahead: dict[tuple[str, str], tuple[Answer[Any], float]] = {}
        self._ahead_so_far = 0

    def ready(self) -> None:
        """A node is ready to start, and may bring a question."""
        self._busy += 1

    def finish(self) -> None:
        """A node brings no question any more."""
        self._busy -= 1
        self._look()

    def begin_rest(self) -> None:
        """A node waits for what may wait for packs."""
        self._parked(1)
        self.finish()

    def end_rest(self) -> None:
        """A node continues."""
        self._parked(-1)
        self._busy += 1

    def _look(self) -> None:
        # Woken, not sent: tasks that were started before, but did not run yet, come first and may
        # still bring a question. Those that wait look again when it is their turn.
        if not self._busy:
            for entry in self._waiting:
                entry.moved.set()

    async def join(self, entry: PackEntry, most: int) -> Pack:
        """The pack of a question, once it leaves, with at most so many questions."""
        entry.pause.rest()
        self._waiting.append(entry)
        try:
            while entry.pack is None:
                entry.moved = anyio.Event()
                self._look()
                # Even where nothing holds: what is running now may still bring questions.
                await entry.moved.wait()
                if entry.pack is None and not self._busy:
                    self._depart(most)
        except BaseException:
            if entry.pack is None:
                self._waiting.remove(entry)
            else:
                entry.pack.abandon(entry)
            raise
        return entry.pack

    def _depart(self, most: int) -> None:
        """Let everybody who waits leave, in as few requests as there can be."""
        # In an order that does not depend on who came first: what is sent is the same every time.
        entries, self._waiting = sorted(self._waiting, key=lambda entry: entry.question.key), []
        lots: dict[_Lot, list[Pack]] = {}
        for entry in entries:
            packs = lots.setdefault(_lot(entry.sender.judge, entry.question), [])
            if not packs or not packs[-1].takes(entry.question):
                packs.append(Pack(self, entry, most))
            packs[-1].add(entry)
            entry.pack = packs[-1]
        self._fill(lots, {entry.question.key for entry in entries})
        for entry in entries:
            entry.pause.resume()
            entry.moved.set()

    def _fill(self, lots: Mapping[_Lot, list[Pack]], keys: set[str]) -> None:
        """Let what nodes may ask later ride along if there is room; `keys` are of what leaves."""
        most = max(packs[0].sender.packs.ahead for packs in lots.values())
        if most <= self._ahead_so_far:
            return
        for judge, questions in self._riders(most - self._ahead_so_far):
            packs = lots.get(_lot(judge, questions[0]))
            if packs is None:
                continue
            pack, sender = packs[-1], packs[-1].sender
            unasked = [question for question in questions if question.key not in keys]
            new = [q for q in unasked if sender.key(q) not in self.ahead and not sender.knows(q)]
            if self._ahead_so_far + len(new) <= sender.packs.ahead and pack.takes(*new):
                pack.carry(new)
                keys.update(question.key for question in new)
                self._ahead_so_far += len(new)


class Pack:
    """Questions that leave together: first they get their places, then they are sent.

    What has to be done once is done by one of those who wait, and by another if that one is
    cancelled.
    """

    def __init__(self, packing: Packing, first: PackEntry, most: int) -> None:
        self.sender = first.sender
        self.entries: list[PackEntry] = []
        self.riders: list[Question[Any]] = []
        self.size = len(state_text(first.question))
        self._most = min(most, self.sender.packs.questions)
        self._packing = packing
        self._once: SingleFlight[Any] = SingleFlight(2)
        self._call: Call | None = None
        self._aboard: list[PackEntry] = []
        self._complete = anyio.Event()
        self._freed = False

    def takes(self, *questions: Question[Any]) -> bool:
        """Return whether there is room for some more, all about the same."""
        count = len(self.entries) + len(self.riders) + len(questions)
        size = self.size + sum(map(_size, questions))
        is_one_lot = len({_lot(self.sender.judge, question) for question in questions}) < 2
        return is_one_lot and count <= self._most and size <= self.sender.packs.characters

    def add(self, entry: PackEntry) -> None:
        """Take one more question."""
        self.entries.append(entry)
        self.size += _size(entry.question)

    def carry(self, questions: Iterable[Question[Any]]) -> None:
        """Take questions that nobody wants yet."""
        for question in questions:
            self.riders.append(question)
            self.size += _size(question)

    async def enter(self, entry: PackEntry) -> Call:
        """Wait for the places of all; each gives back its own. Raises ProviderError."""
        try:
            call: Call = await self._once.get("enter", self._enter)
        except BaseException:
            self.abandon(entry)
            raise
        return call

    async def _enter(self) -> Call:
        count = len(self.entries) + len(self.riders)
        tokens = sum(entry.tokens for entry in self.entries)
        urgency = min((entry.urgency for entry in self.entries), key=lambda turn: turn.rank)
        call = await self.sender.limiter.enter(
            self.sender.judge_limiter, tokens, urgency, count, self.entries[0].question
        )
        self._call = call
        for _ in range(count - len(self.entries) - len(self.riders)):  # who went meanwhile
            self.sender.leave(call)
        return call

    async def answer(self, entry: PackEntry) -> Answer[Any]:
        """The answer to one of the questions, once all of them are aboard; raises JudgeError."""
        # Each question passes its own budget and limits first; the request is made by whoever asks
        # for it first, and leaves when the last one is aboard, or has dropped out.
        self._aboard.append(entry)
        self._look()
        outcomes: dict[int, Outcome] = await self._once.get("send", self._send)
        outcome = outcomes[id(entry)]
        if isinstance(outcome, JudgeError):
            raise outcome
        return outcome

    def abandon(self, entry: PackEntry) -> None:
        """Go on without a question that was cancelled before it went aboard."""
        # The places of all may be there already, also before it has heard of its pack: its own
        # goes back, once.
        had_place = entry in self.entries
        self.drop(entry)
        if had_place and self._call is not None:
            self.sender.leave(self._call)

    def drop(self, entry: PackEntry) -> None:
        """Go on without a question; what is in progress already stays so."""
        for entries in (self.entries, self._aboard):
            if entry in entries:
                entries.remove(entry)
        if not self.entries:
            self._free_riders()
        self._look()

    def _look(self) -> None:
        if len(self._aboard) == len(self.entries):
            self._complete.set()

    async def _send(self) -> dict[int, Outcome]:
        await self._complete.wait()
        entries = list(self._aboard)
        questions = [*(entry.question for entry in entries), *self.riders]
        start = anyio.current_time()
        outcomes = await self.sender.send(questions, len(self.riders))
        seconds = anyio.current_time() - start
        for question, outcome in zip(self.riders, outcomes[len(entries) :], strict=True):
            if isinstance(outcome, Answer):
                self._packing.ahead[self.sender.key(question)] = outcome, seconds
        self._free_riders()
        return dict(zip(map(id, entries), outcomes, strict=False))

    def _free_riders(self) -> None:
        if self._call is None or self._freed:
            return
        self._freed = True
        for _ in self.riders:
            self.sender.leave(self._call)


class PackingJudge(Judge, Protocol):
    """A judge whose questions about one state may travel together (`Capabilities.packs`)."""

    async def answer_all(
        self, questions: Sequence[Question[Any]], *, on_request: Callable[[], None], ahead: int
    ) -> list[Outcome]:
        """Send questions and return their outcomes; raises JudgeError if all failed alike.

        `on_request` is called for every request that is made. Nobody wants the last `ahead`
        questions yet: where they would cost requests of their own they are UnsupportedErrors.
        """
        ...


@dataclass(slots=True)
class PackCounts:
    """What travelled in packs, over a run.

    `questions` are the calls that did, `requests` those that were made for them; `ahead` were
    asked before anybody wanted them, `consumed` of these were wanted. `usage` is that of `ahead`.
    """

    questions: int = 0
    requests: int = 0
    ahead: int = 0
    consumed: int = 0
    usage: Usage = NO_USAGE


@dataclass(frozen=True, slots=True)
class PackSender:
    """What the packs of one judge need of the gateway.

    `packs` says how much a request may hold. `in_time` ends what takes too long; `knows` says
    whether the answer to a question is there, or in progress.
    """

    judge: PackingJudge
    packs: Packs
    judge_limiter: JudgeLimiter
    limiter: Limiter
    budget: Budget
    price: Price | None
    counts: PackCounts
    knows: Callable[[Question[Any]], bool]
    in_time: Callable[[Judge, Callable[[], Awaitable[list[Outcome]]]], Awaitable[list[Outcome]]]

    def key(self, question: Question[Any]) -> tuple[str, str]:
        """Key of a question of this judge."""
        return self.judge_limiter.name, question.key

    def leave(self, call: Call) -> None:
        """Give one place back."""
        self.limiter.leave(self.judge_limiter, call, UNSAID)

    async def send(self, questions: Sequence[Question[Any]], ahead: int) -> list[Outcome]:
        """Send questions and return their outcomes; nobody wants the last `ahead` of them yet."""
        outcomes = await self._outcomes(questions, ahead)
        for outcome in outcomes[len(questions) - ahead :]:
            if isinstance(outcome, UnsupportedError):
                continue
            usage = outcome.usage if isinstance(outcome, Answer) else Usage(*outcome.tokens)
            self.counts.ahead += 1
            self.counts.usage += usage
            self.budget.charge(0.0, None if self.price is None else self.price.of(usage))
        return outcomes

    async def _outcomes(self, questions: Sequence[Question[Any]], ahead: int = 0) -> list[Outcome]:
        """Send one request; if that is too much, one without what comes ahead, then halves."""
        make = partial(self.judge.answer_all, questions, on_request=self._count, ahead=ahead)
        outcomes: list[Outcome]
        try:
            outcomes = await self.in_time(self.judge, make)
        except JudgeError as error:
            outcomes = [error] * len(questions)
        if len(questions) < 2 or not all(map(_is_too_much, outcomes)):
            return outcomes
        if ahead:
            return [*await self._outcomes(questions[:-ahead]), *outcomes[-ahead:]]
        half = len(questions) // 2
        first = await self._outcomes(questions[:half])
        return first + await self._outcomes(questions[half:])

    def _count(self) -> None:
        self.counts.requests += 1


def _is_too_much(outcome: Outcome) -> bool:
    rejected = isinstance(outcome, ProviderError) and outcome.status in _TOO_MUCH
    return rejected or isinstance(outcome, TooLongError)


def _lot(judge: Judge, question: Question[Any]) -> _Lot:
    """Key of questions that may travel together; repetitions are answered by themselves."""
    return id(judge), state_text(question), question.options.sample


def _size(question: Question[Any]) -> int:
    return len(question.messages[1]["content"])
