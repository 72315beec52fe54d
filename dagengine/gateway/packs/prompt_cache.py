"""Order for prompt caches of providers: the first of many prompts with one beginning goes ahead.

Providers keep the beginning of a prompt (1,024 tokens and more) for some minutes. They charge a
fraction for it if another prompt begins alike, but only once the first call has ended
(https://platform.openai.com/docs/guides/prompt-caching). Followers therefore wait for it; once it
has landed they all go at once.
"""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

import anyio

from dagengine.gateway.urgency import Urgency
from dagengine.gateway.waits import Resting
from dagengine.question import Message

# Providers cache from 1,024 tokens on. English text has about four characters per token, other text
# fewer. So a prefix of this length is long enough everywhere.
PREFIX_CHARACTERS = 4_500
# A prefix that no question used for so long may be gone at the provider.
WARM_SECONDS = 240.0
_KEPT = 10_000


def prefix_of(messages: Sequence[Message]) -> bytes | None:
    """A digest of the beginning that a cache would keep, None when the prompt is too short."""
    if sum(len(message["content"]) for message in messages) < PREFIX_CHARACTERS:
        return None
    left, parts = PREFIX_CHARACTERS, list[str]()
    for message in messages:
        parts.append(f"{message['role']}\0{message['content'][:left]}\0")
        left -= len(message["content"])
        if left <= 0:
            text = "".join(parts)
            return hashlib.blake2b(text.encode(errors="surrogatepass"), digest_size=16).digest()
    return None


class PromptCacheOrder:
    """Which beginnings of prompts are warm, and which are being warmed by a first call."""

    def __init__(self, resting: Resting | None = None) -> None:
        """Calls that wait count as `resting`."""
        self._resting = resting or Resting()
        self._warm: OrderedDict[tuple[str, bytes], float] = OrderedDict()
        self._leading: dict[tuple[str, bytes], tuple[anyio.Event, Urgency]] = {}

    @asynccontextmanager
    async def turn(self, judge: str, prefix: bytes, urgency: Urgency) -> AsyncIterator[None]:
        """Wait until a call whose prompt begins like this may start; the body is the call.

        The first call is as urgent as the most urgent of those that wait for it. When it fails,
        the next one goes ahead in its place.
        """
        key = judge, prefix
        while not self._is_warm(key) and key in self._leading:
            landed, leader = self._leading[key]
            leader.lend(urgency.place)
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
        used = self._warm.get(key)
        return used is not None and anyio.current_time() - used < WARM_SECONDS

    def _keep(self, key: tuple[str, bytes]) -> None:
        self._warm[key] = anyio.current_time()
        self._warm.move_to_end(key)
        if len(self._warm) > _KEPT:
            self._warm.popitem(last=False)
