"""Order for caches of prompts: questions that begin alike are asked where and while it is warm.

Providers keep the beginning of a prompt for some minutes, and charge a fraction for it if another
prompt begins alike, but only once the first call has ended
(https://platform.openai.com/docs/guides/prompt-caching). So the first of a case leads, and the
others wait for it and then go at once. llama.cpp keeps what each of its places read last. There the
questions of a case go one after the other to one place, and cases go side by side.

The plan knows which questions begin alike (`Question.shares`). Where a server keeps nothing,
nothing waits.
"""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Final

import anyio
from pydantic import BaseModel

from dagengine.gateway.call_priorities import Resting, Urgency
from dagengine.prompts.instructions import KEPT_CHARACTERS, SERVER_CHARACTERS, shared_end
from dagengine.question import Judge, Question, ServerFacts, schema_json

# A beginning that no question used for so long may be gone at the provider.
WARM_SECONDS = 240.0
_KEPT = 10_000
# Servers of one's own that keep beginnings, and those that do so by place.
_KEEPING: Final = frozenset({"llama.cpp", "model file", "vLLM"})
_BY_PLACE: Final = frozenset({"llama.cpp", "model file"})


def least_shared(judge: Judge, facts: ServerFacts, *, caches: bool) -> int | None:
    """Characters from which on a judge's server keeps what questions begin with; None: never.

    `caches` says that it was seen to keep some.
    """
    if not judge.capabilities.caches_prefixes:
        return None
    if facts.server in _KEEPING:
        return SERVER_CHARACTERS
    hosted: bool = getattr(judge, "hosted", False)
    return KEPT_CHARACTERS if hosted or caches else None


def beginning_of(question: Question[Any], least: int, *, with_schema: bool) -> bytes | None:
    """A digest of what a question begins with as others do; None if it is shorter than `least`.

    Providers put the schema of the answer before the prompt: there it is a part of the beginning.
    """
    end = shared_end(question, least)
    if not end:
        return None
    system, user = (message["content"] for message in question.messages[:2])
    answer_type: type[BaseModel] = question.answer_type
    schema = schema_json(answer_type) if with_schema else ""
    text = f"{schema}\0{system}\0{user[:end]}"
    return hashlib.blake2b(text.encode(errors="surrogatepass"), digest_size=16).digest()


class PromptCacheOrder:
    """Which beginnings of prompts are warm, and which are being warmed by a first call."""

    def __init__(self, resting: Resting | None = None) -> None:
        """Calls that wait count as `resting`."""
        self._resting = resting or Resting()
        self._warm: OrderedDict[tuple[str, bytes], float] = OrderedDict()
        self._leading: dict[tuple[str, bytes], tuple[anyio.Event, Urgency]] = {}

    @asynccontextmanager
    async def turn(self, judge: str, beginning: bytes, urgency: Urgency) -> AsyncIterator[None]:
        """Wait until a call whose prompt begins like this may start; the body is the call.

        The first call is as urgent as the most urgent of those that wait for it. When it fails,
        the next one goes ahead in its place.
        """
        key = judge, beginning
        # Without a leader and not warm: whoever comes first leads. Those that wait look again after
        # it, since it may have failed; then one of them leads, and the rest wait once more.
        while not self._is_warm(key) and key in self._leading:
            landed, leader = self._leading[key]
            leader.lend(urgency.rank)
            with self._resting:
                await landed.wait()
        if self._is_warm(key):
            yield
            self._keep(key)
            return
        landed = anyio.Event()
        self._leading[key] = landed, urgency
        try:
            yield
            self._keep(key)
        finally:
            del self._leading[key]
            landed.set()

    def _is_warm(self, key: tuple[str, bytes]) -> bool:
        last_use = self._warm.get(key)
        return last_use is not None and anyio.current_time() - last_use < WARM_SECONDS

    def _keep(self, key: tuple[str, bytes]) -> None:
        self._warm[key] = anyio.current_time()
        self._warm.move_to_end(key)
        if len(self._warm) > _KEPT:
            self._warm.popitem(last=False)


def sticky_places(facts: ServerFacts, resting: Resting) -> StickyPlaces | None:
    """The places of a server that keeps beginnings by place; None for any other."""
    if facts.server not in _BY_PLACE or not facts.slots:
        return None
    return StickyPlaces(facts.slots, resting)


class StickyPlaces:
    """The places of one server: which beginning each read last, and which are at work.

    A question goes to the place that is warm for it, also if it has to wait there. Without such a
    place it takes the free one that was used longest ago. Of those that wait, the most urgent goes
    first.
    """

    def __init__(self, places: int, resting: Resting) -> None:
        self._resting = resting
        # By place, the one that was used longest ago first; a place has one beginning at a time.
        self._read: OrderedDict[int, bytes | None] = OrderedDict.fromkeys(range(places))
        self._busy: set[int] = set()
        self._waiting: dict[anyio.Event, tuple[bytes, Urgency]] = {}

    @asynccontextmanager
    async def turn(self, beginning: bytes, urgency: Urgency) -> AsyncIterator[int]:
        """Wait for the place of a question; the body is the call."""
        while (slot := self._place_for(beginning, urgency)) is None:
            moved = anyio.Event()
            self._waiting[moved] = beginning, urgency
            try:
                with self._resting:
                    await moved.wait()
            except BaseException:
                self._look_again()  # others may have let it go first
                raise
            finally:
                del self._waiting[moved]
        self._busy.add(slot)
        self._read[slot] = beginning
        self._read.move_to_end(slot)
        try:
            yield slot
        finally:
            self._busy.discard(slot)
            self._look_again()

    def _look_again(self) -> None:
        for moved in self._waiting:
            moved.set()

    def _place_for(self, beginning: bytes, urgency: Urgency) -> int | None:
        """The place where a question may be asked now."""
        warm = next((slot for slot, text in self._read.items() if text == beginning), None)
        if warm is not None:
            return None if warm in self._busy else warm
        # A question that finds no warm place takes a cold one, but none that somebody waits for,
        # and only if there is one for each more urgent question that is cold as well:
        #
        #     place   0: A, busy     1: B, free     2: C, free      waiting: A (case 1), D (case 2)
        #
        # E of case 3 sees two cold places, and D before it: it takes the second. With one cold
        # place it would wait, although that place is free: D is about to take it.
        waited_for = {awaited for awaited, _ in self._waiting.values()}
        free = [slot for slot in self._read if slot not in self._busy]
        cold = [slot for slot in free if self._read[slot] not in waited_for]
        earlier = 0
        for awaited, waiting in self._waiting.values():
            if awaited not in self._read.values() and waiting.rank < urgency.rank:
                earlier += 1
        return cold[earlier] if earlier < len(cold) else None
