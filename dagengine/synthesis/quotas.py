"""Which drafts to try next: until every quota is met, or nothing is left that may be tried.

A law: no clock, no I/O. The same seed and the same outcomes give the same drafts.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from random import Random

from dagengine.errors import InputError, did_you_mean
from dagengine.synthesis.values import (
    PLAIN,
    Difficulty,
    Evolution,
    EvolutionConfig,
    Passage,
    Quota,
    QuotaYield,
    Seed,
)

# A quota of which little was kept is not asked for more than so many times what is missing.
_MOST_AT_ONCE = 4


@dataclass(frozen=True, slots=True)
class Context:
    """Passages to ask about; `wider` are those for what takes more than one of them."""

    source: str | None
    passages: tuple[Passage, ...] = ()
    wider: tuple[Passage, ...] = ()


class Filling:
    """Fills quotas from contexts, of which each gives `drafts` drafts.

    At most `tries` drafts are tried for each golden that a quota wants, and at most
    `per_context` goldens of one context are kept (None: any number). Raises InputError for
    quotas that nothing can meet.
    """

    def __init__(
        self,
        quotas: Sequence[Quota],
        contexts: Sequence[Context],
        config: EvolutionConfig,
        *,
        drafts: int,
        tries: int,
        seed: int,
        per_context: int | None = None,
        measured: bool = False,
    ) -> None:
        self.yields = [QuotaYield(quota) for quota in quotas]
        self._config, self._tries, self._seed = config, tries, seed
        self._per_context = per_context
        self._kept = Counter[Passage]()  # goldens by the first passage of their context
        self._pools = {
            source: list(self._pool([one for one in contexts if one.source == source], drafts))
            for source in dict.fromkeys(one.source for one in contexts)
        }
        for quota in quotas:
            self._check(quota, measured)

    def _pool(self, contexts: list[Context], drafts: int) -> Iterator[tuple[Context, int]]:
        """Contexts in an order of the seed; every one is asked about before any a second time."""
        Random(f"{self._seed}\n{contexts[0].source}").shuffle(contexts)
        for draft in reversed(range(drafts)):  # it is taken from the end
            for context in reversed(contexts):
                yield context, draft

    def _check(self, quota: Quota, measured: bool) -> None:
        if quota.document is not None and quota.document not in self._pools:
            names = [name for name in self._pools if name is not None]
            near = did_you_mean(quota.document, names) or f"there are {', '.join(names)}"
            raise InputError(f"a quota names {quota.document!r}, which gave no text; {near}")
        if quota.kind is not None and quota.kind not in self._kinds():
            why = "num_evolutions is 0" if quota.kind != PLAIN else "every draft is evolved"
            raise InputError(f"no golden is of the kind {quota.kind!r}: {why}")
        if quota.difficulty is not None and not measured:
            raise InputError("quotas by difficulty need difficulty_models= to measure it with")

    def _kinds(self) -> list[str]:
        if not self._config.num_evolutions:
            return [PLAIN]
        return [str(kind) for kind, weight in self._config.evolutions.items() if weight > 0]

    def next(self) -> list[Seed]:
        """The drafts of the next round; empty when there is nothing to do, or nothing left."""
        seeds: list[Seed] = []
        for one in self.yields:
            wanted = self._wanted(one)
            if wanted <= 0 and one.kept < one.quota.count:
                one.ended = f"no more than {self._tries} for each golden"
            for _ in range(wanted):
                found = self._draw(one.quota)
                if found is None:
                    one.ended = "there was nothing left to ask about"
                    break
                seeds.append(found)
                one.tried += 1
        return seeds

    def _wanted(self, one: QuotaYield) -> int:
        missing = one.quota.count - one.kept
        left = self._tries * one.quota.count - one.tried
        if not one.tried or missing <= 0:
            return min(missing, left)
        rate = max(one.kept / one.tried, 1 / _MOST_AT_ONCE)
        return min(math.ceil(missing / rate), left)

    def _draw(self, quota: Quota) -> Seed | None:
        """The next draft for a quota; without a document those of all take turns."""
        sources: list[str | None] = (
            [quota.document] if quota.document is not None else self._by_size()
        )
        for source in sources:
            pool = self._pools[source]
            for place in reversed(range(len(pool))):
                if self._is_used_up(pool[place][0].passages):
                    continue
                seed = self._seed_of(*pool[place], quota.kind)
                if seed is not None:
                    del pool[place]
                    return seed
        return None

    def _is_used_up(self, passages: Sequence[Passage]) -> bool:
        if self._per_context is None or not passages:
            return False
        return self._kept[passages[0]] >= self._per_context

    def _by_size(self) -> list[str | None]:
        """The sources, the least used first."""
        return sorted(self._pools, key=lambda source: -len(self._pools[source]))

    def _seed_of(self, context: Context, draft: int, kind: str | None) -> Seed | None:
        """What a draft of a context is to become; None when it cannot be of the kind."""
        weights = {
            one: weight
            for one, weight in self._config.evolutions.items()
            if weight > 0 and (context.wider or one != Evolution.MULTICONTEXT)
        }
        times = self._config.num_evolutions
        if not times:
            return Seed(context.source, PLAIN, (), context.passages, draft)
        if not weights or (kind is not None and kind not in weights):
            return None
        drawn = self._drawn(weights, context, draft, times)
        names = (kind or drawn[0], *drawn[1:])
        wide = Evolution.MULTICONTEXT in names
        passages = context.wider if wide else context.passages
        return Seed(context.source, names[0], names, passages, draft)

    def _drawn(
        self, weights: Mapping[Evolution, float], context: Context, draft: int, times: int
    ) -> list[str]:
        where = [context.source, *(passage.text for passage in context.passages)]
        random = Random(f"{self._seed}\n{draft}\n{where}")
        return [str(one) for one in random.choices([*weights], [*weights.values()], k=times)]

    def keep(self, seed: Seed, difficulty: Difficulty | None) -> bool:
        """Whether a golden is wanted; it then counts for the first quota that it fits."""
        if self._is_used_up(seed.passages):
            return False
        for one in self.yields:
            quota = one.quota
            fits = (
                quota.document in (None, seed.source)
                and quota.kind in (None, seed.kind)
                and quota.difficulty in (None, difficulty)
            )
            if fits and one.kept < quota.count:
                one.kept += 1
                self._kept.update(seed.passages[:1])
                return True
        return False
