"""The drafts that contexts give, in an order of the seed; none is handed out twice.

A law: no clock, no I/O. Linear in the number of contexts: every draft is looked at once for each
kind that is asked for.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from random import Random

from dagengine.synthesis.values import PLAIN, Evolution, EvolutionConfig, Passage, Seed


@dataclass(frozen=True, slots=True)
class Context:
    """Passages to ask about; `wider` are those for what takes more than one of them."""

    source: str | None
    passages: tuple[Passage, ...] = ()
    wider: tuple[Passage, ...] = ()


class Kinds:
    """What the drafts of a context may become, by weights and by a seed."""

    def __init__(self, config: EvolutionConfig, seed: int) -> None:
        self._times, self._seed = config.num_evolutions, seed
        weights = {str(kind): weight for kind, weight in config.evolutions.items() if weight > 0}
        self._wide = weights if self._times else {PLAIN: 1.0}
        self._narrow = self._wide.copy()
        self._narrow.pop(Evolution.MULTICONTEXT, None)
        self.names = [*self._wide]

    def _weights(self, context: Context) -> dict[str, float]:
        return self._wide if context.wider else self._narrow

    def fits(self, context: Context, kind: str | None) -> bool:
        """Return whether a draft of the context can be of the kind (None: of any)."""
        weights = self._weights(context)
        return bool(weights) if kind is None else kind in weights

    def seed_of(self, context: Context, draft: int, kind: str | None) -> Seed:
        """Choose the seed of a draft: of the kind that is asked for, else of a drawn one."""
        if not self._times:
            return Seed(context.source, PLAIN, (), context.passages, draft)
        # Seeded by what the draft is about, not by its turn: more documents change no other draft.
        where = [context.source, *(passage.text for passage in context.passages)]
        random = Random(f"{self._seed}\n{draft}\n{where}")
        weights = self._weights(context)
        # Also where the kind is asked for: the further evolutions are those of any other quota.
        draws = random.choices([*weights], [*weights.values()], k=self._times)
        names = (kind or draws[0], *draws[1:])
        passages = context.wider if Evolution.MULTICONTEXT in names else context.passages
        return Seed(context.source, names[0], names, passages, draft)


class _Pool:
    """The drafts of one source: one of every context before any context has its next."""

    def __init__(self, contexts: Sequence[Context], drafts: int, seed: int) -> None:
        mixed = list(contexts)
        # A name that is not UTF-8 cannot be the seed of a generator, except for its quoted form.
        name = (contexts[0].source or "").encode(errors="backslashreplace").decode()
        Random(f"{seed}\n{name}").shuffle(mixed)
        self._drafts = [(context, draft) for draft in range(drafts) for context in mixed]
        self._taken = bytearray(len(self._drafts))
        self._looked_at: dict[str | None, int] = {}
        self.left = len(self._drafts)

    def draw(
        self, kind: str | None, is_open: Callable[[Context], bool]
    ) -> tuple[Context, int] | None:
        """The next draft of a kind; what `is_open` once said no to is not looked at again."""
        for index in range(self._looked_at.get(kind, 0), len(self._drafts)):
            context, draft = self._drafts[index]
            if not self._taken[index] and is_open(context):
                self._taken[index] = True
                self._looked_at[kind] = index + 1
                self.left -= 1
                return context, draft
        self._looked_at[kind] = len(self._drafts)
        return None


class Pools:
    """The drafts of all sources, `drafts` of each context. `is_used_up` ends a context for good."""

    def __init__(
        self,
        by_source: dict[str | None, list[Context]],
        kinds: Kinds,
        is_used_up: Callable[[Context], bool],
        *,
        drafts: int,
        seed: int,
    ) -> None:
        self._kinds, self._is_used_up = kinds, is_used_up
        self._pools = {name: _Pool(contexts, drafts, seed) for name, contexts in by_source.items()}
        self._heaps: dict[str | None, list[tuple[int, int, str | None]]] = {}

    def draw(self, document: str | None, kind: str | None) -> Seed | None:
        """The next draft; without a document, those of all take turns, the least used first."""
        if document is not None:
            return self._draw(document, kind)
        heap = self._heaps.get(kind)
        if heap is None:
            heap = [(-pool.left, n, name) for n, (name, pool) in enumerate(self._pools.items())]
            heapq.heapify(heap)
            self._heaps[kind] = heap
        while heap:
            left, index, source = heap[0]
            now = -self._pools[source].left
            if now != left:  # another kind drew from it, so that it comes later
                heapq.heapreplace(heap, (now, index, source))
                continue
            seed = self._draw(source, kind)
            if seed is not None:
                heapq.heapreplace(heap, (now + 1, index, source))
                return seed
            heapq.heappop(heap)
        return None

    def _draw(self, source: str | None, kind: str | None) -> Seed | None:
        def is_open(context: Context) -> bool:
            return self._kinds.fits(context, kind) and not self._is_used_up(context)

        draw = self._pools[source].draw(kind, is_open)
        return None if draw is None else self._kinds.seed_of(*draw, kind)
