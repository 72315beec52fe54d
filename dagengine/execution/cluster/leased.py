"""A worker's side of what all workers have in common: what it has of it, and what it needs."""

from __future__ import annotations

import math
import time
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractContextManager, asynccontextmanager
from typing import Any

import anyio

from dagengine.execution.cluster.leases import AMOUNT, CALLS, MONEY, PLACES, QUESTION, SHARE
from dagengine.gateway.budget import Account, RateLimit
from dagengine.gateway.limiter import JudgeLimiter, Limiter
from dagengine.gateway.limits import Limits
from dagengine.store.claims import CommonAnswers, Turn

Say = Callable[..., None]
"""Says something to whoever has the `Leases`: a kind, a name and values."""

# Seconds between two looks at what is not needed any more.
_LOOK = 0.25
# Seconds that a slice of a budget should last.
_SLICE = 0.5
# Seconds that a question waits for the worker that asks it: that one may have been stopped.
_PATIENCE = 60.0


class _Amount:
    """What was lent of an amount; `used` says how much of it is spent, or may be."""

    def __init__(self, name: str, say: Say, used: Callable[[], float]) -> None:
        self._name, self._say, self._used = name, say, used
        self.lent = 0.0
        self._wish, self._since = 0.0, -math.inf
        self._answered: anyio.Event | None = None
        self._refused = False
        self._wanted = self._promised = 0.0  # in all, for a call that asks, or has its answer

    async def more(self, need: float) -> bool:
        """Return whether it is worth to look again for so much more than there was."""
        if self._answered is not None:
            await self._answered.wait()
            return True
        answered = self._answered = anyio.Event()
        quick = time.monotonic() - self._since < _SLICE
        self._wish = max(need, self._wish * (2 if quick else 0.5))
        self._wanted = self.lent + need
        self._say(AMOUNT, self._name, need, self._wish)
        try:
            await answered.wait()
            return not self._refused
        finally:  # whoever asked takes it now, or does not want it any more
            self._wanted = self._promised = 0.0

    def hear(self, value: float) -> None:
        """So much more was lent (0: there is no more); below zero: others need it."""
        if value < 0:
            # What was lent for a call stays until that call has had its turn. Otherwise two workers
            # may take the last of it from one another for ever, and neither makes a call.
            spare = max(0.0, self.lent - max(self._used(), self._promised))
            self.lent -= spare
            if spare and self._wanted:
                self._say(AMOUNT, self._name, self._wanted - self.lent, self._wish)
            self._say(AMOUNT, self._name, spare)
            return
        self.lent += value
        self._promised = self._wanted
        self._refused, self._since = not value, time.monotonic()
        if self._answered is not None:
            self._answered.set()
            self._answered = None


class LeasedAccount(Account):
    """An account that spends what was lent to this worker, and asks for more before it is short."""

    where = " by this worker"

    def __init__(self, limits: Limits, say: Say) -> None:
        super().__init__()
        self.amounts: dict[str, _Amount] = {}
        if limits.max_calls is not None:
            self.amounts[CALLS] = _Amount(CALLS, say, lambda: self.calls)
        if limits.budget is not None:
            self.amounts[MONEY] = _Amount(MONEY, say, lambda: self.spent + self.reserved)

    def missing(self, limits: Limits, amount: float) -> str | None:
        """The limit that this worker would exceed by another call of that cost."""
        needs = {CALLS: self.calls + 1, MONEY: self.spent + self.reserved + amount}
        for name, lease in self.amounts.items():
            if needs[name] > lease.lent + 1e-9:
                return name
        return None

    async def extend(self, missing: str, amount: float) -> bool:
        """Ask for more; False when all of it is spent, or reserved by other workers."""
        lease = self.amounts[missing]
        used = self.calls + 1 if missing == CALLS else self.spent + self.reserved + amount
        return await lease.more(used - lease.lent)


class _Share:
    """What this worker has of a share: `apply` uses so much of it, and gives how much is in use."""

    def __init__(
        self,
        name: str,
        say: Say,
        demand: Callable[[], tuple[float, float]],
        apply: Callable[[float], float],
    ) -> None:
        """`demand` gives the least that is of any use, and how much this worker could use."""
        self._name, self._say, self._demand, self._apply = name, say, demand, apply
        self._held = self._owed = self._last = 0.0
        self._asked = False

    def look(self, *, spare: bool = False) -> None:
        """Ask for what is missing; give back what was `spare` since the last look."""
        least, demand = self._demand()
        usable = self._held - self._owed
        if demand > usable and not self._asked:
            self._asked = True
            self._say(SHARE, self._name, least, demand - usable)
        elif spare:
            unused = usable - max(demand, self._last)
            self._last = demand
            if unused > 0.1 * usable:
                self._owed += unused
                self.settle()

    def settle(self) -> None:
        """Give back what is owed and not in use."""
        used = self._apply(self._held - self._owed)
        back = min(self._owed, self._held - used)
        if back > 0:
            self._held -= back
            self._owed -= back
            self._say(SHARE, self._name, back)

    def hear(self, value: float) -> None:
        """So much more was lent; below zero: so much is to be given back."""
        if value > 0:
            self._asked = False
            self._held += value
        else:
            # What was given back meanwhile may be what others ask for.
            self._owed = min(self._held, self._owed - value)
        self.settle()
        self.look()


class Leased(CommonAnswers):
    """What one worker has of what is common to all, for one run.

    It is the store of answers, the account and the limits of the worker's engine.
    """

    def __init__(self, limits: Limits, say: Say) -> None:
        """`say` tells whoever has the `Leases` of the run."""
        super().__init__()
        self._say, self._limits = say, limits
        self.account = LeasedAccount(limits, say)
        self._limiter: Limiter
        self._shares: dict[str, _Share] = {}
        self._questions: dict[bytes, tuple[anyio.Event, list[bytes]]] = {}

    def hear(self, kind: str, name: Any, value: Any) -> None:
        """Take a message from the owner of the `Leases`."""
        if kind == SHARE:
            self._shares[name].hear(value)
        elif kind == AMOUNT:
            self.account.amounts[name].hear(value)
        elif name in self._questions:
            heard, answers = self._questions[name]
            answers.append(value)
            heard.set()

    async def keep(self) -> None:
        """Give back what is not needed any more, until cancelled."""
        while True:
            await anyio.sleep(_LOOK)
            for share in self._shares.values():
                share.look(spare=True)

    # -- limits ----------------------------------------------------------------------------------

    def limit(self, limiter: Limiter) -> None:
        """Have a limiter allow only what this worker has; nothing at first."""
        self._limiter = limiter
        limiter.lease = self
        self._shares[PLACES] = _Share(PLACES, self._say, limiter.demand, limiter.resize)
        limiter.resize(0)

    def meet(self, judge: JudgeLimiter) -> None:
        """The same for the rates of a judge."""
        for name, rate in judge.rates.items():
            # Judges of one identity come in one order in all workers.
            count = sum(share.startswith(f"{name} {judge.name}") for share in self._shares)
            self._share_rate(f"{name} {judge.name}{'+' * count}", judge, rate)

    def _share_rate(self, name: str, judge: JudgeLimiter, rate: RateLimit) -> None:
        taken, since, used = rate.taken, time.monotonic(), 0.0

        def demand() -> tuple[float, float]:
            nonlocal taken, since, used
            if judge.waiting.things and rate.opens_at() > anyio.current_time():
                return 0.0, math.inf
            now = time.monotonic()
            if now - since >= _LOOK:
                used = 60 * (rate.taken - taken) / (now - since)
                taken, since = rate.taken, now
            return 0.0, min(used, rate.per_minute)  # more only if a call waited for it

        def apply(per_minute: float) -> float:
            rate.change(per_minute)
            self._limiter.admit()
            return 0.0

        self._shares[name] = _Share(name, self._say, demand, apply)
        rate.change(0.0)

    def look(self) -> None:
        """A call waits: for a place or a rate that others have, perhaps."""
        for share in self._shares.values():
            share.look()

    def give_back(self) -> None:
        """A place became free that is asked back."""
        self._shares[PLACES].settle()

    # -- answers ---------------------------------------------------------------------------------

    @asynccontextmanager
    async def _turn(self, key: bytes, waiting: AbstractContextManager[None]) -> AsyncIterator[Turn]:
        heard, answers = self._questions[key] = anyio.Event(), list[bytes]()
        turn = Turn()
        self._say(QUESTION, key)
        try:
            with waiting, anyio.move_on_after(_PATIENCE):
                await heard.wait()
            turn.heard = b"".join(answers[:1])
            yield turn
        finally:
            del self._questions[key]
            if not (answers and answers[0]):
                self._say(QUESTION, key, turn.data)  # a failure lets another worker ask
