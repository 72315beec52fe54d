"""What the workers of a run have in common, and who has which part of it. No clock, no I/O.

A coordinator or a scheduler has one `Leases`, and hands it what workers say. There are three kinds:

- a *share* is lent and comes back: calls at once, requests and tokens a minute of each judge
- an *amount* is spent: calls and US dollars, lent in slices, of which the unspent part comes back
- a *question* is asked by the first worker who has it, and the others get its answer

What a worker had when it died is free again. Only of amounts nobody knows what was spent: the slice
counts as spent. Slices are small, and a budget is never exceeded because a worker died.
"""

from __future__ import annotations

import math
from collections import OrderedDict, defaultdict, deque
from collections.abc import Callable, Iterable, Mapping
from typing import Any

Send = Callable[[str, str, Any, Any], None]
"""Tells a worker something: worker, kind of lease, name, value."""

SHARE, AMOUNT, QUESTION = "share", "amount", "question"
PLACES, CALLS, MONEY = "max_in_flight", "max_calls", "budget"
"""The share of calls at once, and the amounts: the fields of `Limits`."""

_SMALL = 1e-9  # dollars, or parts of a call: less than that is an error of addition


class SharedQuantity:
    """A quantity that workers use and give back: those who want more get what others do not use.

    A worker that has less than it needs at least comes first. Others give back for it, those who
    have most first. Nobody else has to give back more than what is above a fair part.
    """

    def __init__(self, total: float, workers: int, *, whole: bool) -> None:
        self._free = total
        self._total, self._workers, self._whole = total, workers, whole
        self._held: dict[str, float] = {}
        self._owed: defaultdict[str, float] = defaultdict(float)  # asked back, not yet here
        self._wants: dict[str, tuple[float, float]] = {}

    def want(self, worker: str, least: float, wish: float) -> None:
        """A worker needs `least` in all (0: half a fair part), and wishes for so much more."""
        self._wants[worker] = least, wish

    def back(self, worker: str, amount: float) -> None:
        """A worker gives some of it back."""
        if worker not in self._held:  # it has died
            return
        self._held[worker] -= amount
        self._owed[worker] = max(0.0, self._owed[worker] - amount)
        self._free += amount

    def drop_worker(self, worker: str) -> None:
        """A worker has died, or needs nothing any more."""
        self._free += self._held.pop(worker, 0.0)
        self._owed.pop(worker, None)
        self._wants.pop(worker, None)

    def moves(self) -> list[tuple[str, float]]:
        """Messages to workers: so much more or, below zero, so much is asked back."""
        fair = self._total / max(self._workers, len(self._held.keys() | self._wants))
        fair = max(1.0, fair // 1) if self._whole else fair
        moves: list[tuple[str, float]] = []

        def need_of(worker: str) -> float:
            least = min(self._wants[worker][0] or fair / 2, self._total)
            return least - self._held.get(worker, 0.0)

        for worker in sorted(self._wants, key=lambda worker: need_of(worker) <= _SMALL):
            need, wish = need_of(worker), self._wants[worker][1]
            has = self._held.get(worker, 0.0)
            if need > self._free + _SMALL:
                # While somebody has too little to do anything, nobody else gets more. What comes
                # back adds up for the first of them. Otherwise two packs of eight calls might have
                # four places each, and wait for ever.
                return moves + self._ask_back(worker, need, 0.0)
            if need > _SMALL:
                granted = min(self._free, max(need, min(wish, fair - has)))
            elif self._free > _SMALL:
                granted = min(self._free, wish)
            else:
                moves += self._ask_back(worker, min(wish, fair - has), fair)
                continue
            self._free -= granted
            self._held[worker] = has + granted
            del self._wants[worker]
            moves.append((worker, granted))
        return moves

    def _ask_back(self, worker: str, amount: float, above: float) -> list[tuple[str, float]]:
        """Ask others for what they have `above` so much, until the worker can get the amount."""
        missing = amount - self._free - sum(self._owed.values())
        moves: list[tuple[str, float]] = []
        for owner in sorted(self._held, key=lambda owner: self._owed[owner] - self._held[owner]):
            part = min(missing, self._held[owner] - self._owed[owner] - above)
            part = math.ceil(part - _SMALL) if self._whole else part
            if owner != worker and part > _SMALL:
                self._owed[owner] += part
                missing -= part
                moves.append((owner, -part))
        return moves


class SpentAmount:
    """An amount that is spent: lent in slices. What is lent never adds up to more than there is."""

    def __init__(self, total: float, workers: int) -> None:
        self._free, self._workers = total, workers
        self._wants: dict[str, tuple[float, float]] = {}
        self._fresh: set[str] = set()  # lent since it was last asked what it does not need
        self._asked: set[str] = set()

    def want(self, worker: str, need: float, wish: float) -> None:
        """A worker needs so much more for its next call; a slice that suits it is `wish`."""
        self._wants[worker] = need, wish

    def back(self, worker: str, amount: float) -> None:
        """The answer to what was asked back: what no call in progress may need."""
        if worker in self._asked:  # it has not died
            self._free += amount
            self._asked.discard(worker)

    def drop_worker(self, worker: str) -> None:
        """A worker has died: what it had counts as spent."""
        for amounts in (self._fresh, self._asked):
            amounts.discard(worker)
        self._wants.pop(worker, None)

    def moves(self) -> list[tuple[str, float]]:
        """Messages to workers: so much more (0: there is no more), or give back (-1)."""
        moves: list[tuple[str, float]] = []
        while self._wants:
            worker, (need, wish) = next(iter(self._wants.items()))
            borrowers = self._fresh - {worker}
            if need <= self._free + _SMALL:
                # Ever smaller slices towards the end, so that every worker works until it is near.
                granted = max(need, min(wish, self._free / (2 * self._workers)))
                self._free -= granted
                self._fresh.add(worker)
                moves.append((worker, granted))
            elif self._asked or borrowers:
                if not self._asked:
                    self._asked, self._fresh = borrowers, self._fresh - borrowers
                    moves += [(borrower, -1.0) for borrower in sorted(borrowers)]
                return moves
            else:
                moves.append((worker, 0.0))
            del self._wants[worker]
        return moves


class CommonQuestions:
    """Who asks which question, who waits for it, and the latest answers, up to `size` kB."""

    def __init__(self, size: int) -> None:
        self._room = size
        self._asking: dict[bytes, deque[str]] = {}  # who asks, then those who wait
        self._kept: OrderedDict[bytes, bytes] = OrderedDict()

    def want(self, worker: str, key: bytes) -> bytes | None:
        """The answer; empty if the worker is to ask; None if it has to wait for another one."""
        answer = self._kept.get(key)
        if answer is not None:
            self._kept.move_to_end(key)
            return answer
        workers = self._asking.setdefault(key, deque())
        workers.append(worker)
        return b"" if len(workers) == 1 else None

    def back(self, worker: str, key: bytes, answer: bytes) -> list[tuple[str, bytes]]:
        """A worker has an answer for all, or, if it is empty, does not ask or wait any more.

        Returns what has to be said to whom: the answer, or that it is now to ask (empty).
        """
        workers = self._asking.get(key, deque())
        if worker not in workers:
            return []
        first = workers[0] == worker
        workers.remove(worker)
        if not answer:
            if not workers:
                del self._asking[key]
            return [(workers[0], b"")] if first and workers else []
        del self._asking[key]
        self._kept[key] = answer
        self._room -= _weight(answer)
        while self._room < 0:
            self._room += _weight(self._kept.popitem(last=False)[1])
        return [(waiting, answer) for waiting in workers]

    def drop_worker(self, worker: str) -> list[tuple[str, bytes, bytes]]:
        """A worker has died: the next ones ask what it asked. As `back`, with the key."""
        keys = [key for key, workers in self._asking.items() for _ in range(workers.count(worker))]
        news = [(heir, key, answer) for key in keys for heir, answer in self.back(worker, key, b"")]
        return [(heir, key, answer) for heir, key, answer in news if heir != worker]


def _weight(answer: bytes) -> int:
    return 1 + len(answer) // 1000


class Leases:
    """All that the workers of one run have in common."""

    def __init__(
        self, shares: Mapping[str, float], amounts: Mapping[str, float], kept: int, workers: int
    ) -> None:
        """The totals by their names, kB of answers to keep, and the workers at the beginning.

        A share of a judge is called by the name of its total, a space and the judge.
        """
        self._totals, self._workers = shares, workers
        self._shares: dict[str, SharedQuantity] = {}
        self._amounts = {name: SpentAmount(total, workers) for name, total in amounts.items()}
        self._questions = CommonQuestions(kept)

    def hear(self, send: Send, worker: str, kind: str, name: Any, *values: Any) -> None:
        """Take a worker's message, and send others what follows from it.

        A share or an amount is wanted (two values, as in `want`) or given back (one value), a
        question, whose name is its key, is wanted (no value) or answered (one value).
        """
        if kind == QUESTION:
            if values:
                for waiting, text in self._questions.back(worker, name, *values):
                    send(waiting, kind, name, text)
            elif (answer := self._questions.want(worker, name)) is not None:
                send(worker, kind, name, answer)
            return
        if kind == SHARE and name not in self._shares:  # it begins when it is first wanted
            total, whole = self._totals[name.partition(" ")[0]], name == PLACES
            self._shares[name] = SharedQuantity(total, self._workers, whole=whole)
        quantity = self._shares[name] if kind == SHARE else self._amounts[name]
        if len(values) == 2:
            quantity.want(worker, *values)
        else:
            quantity.back(worker, *values)
        _say(send, kind, name, quantity.moves())

    def drop_worker(self, send: Send, worker: str) -> None:
        """A worker has died: others get what it had, and ask what it asked."""
        for kind, quantities in ((SHARE, self._shares), (AMOUNT, self._amounts)):
            for name, quantity in quantities.items():
                quantity.drop_worker(worker)
                _say(send, kind, name, quantity.moves())
        for waiting, key, answer in self._questions.drop_worker(worker):
            send(waiting, QUESTION, key, answer)


def _say(send: Send, kind: str, name: str, moves: Iterable[tuple[str, float]]) -> None:
    for worker, value in moves:
        send(worker, kind, name, value)
