"""Quotas of goldens: filled until each is met, or nothing is left that may be tried.

A law: no clock, no I/O. The same seed and the same outcomes give the same drafts. Those that
contexts give come in an order of the seed; none is handed out twice. Linear in the number of
contexts: every draft is looked at once for each kind that is asked for.
"""

from __future__ import annotations

import heapq
import math
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from random import Random

from dagengine.errors import InputError, did_you_mean
from dagengine.synthesis.synthesis_types import (
    PLAIN,
    Difficulty,
    Evolution,
    EvolutionConfig,
    Passage,
    Quota,
    QuotaYield,
    Seed,
    whole,
)
from dagengine.system.terminal_text import counted, few, text_if

MOST = 20
"""Drafts that one question asks for at most."""
_SPARE = 2  # drafts for each golden that is wanted
# If little of a quota was kept, it is not asked for more than so many times what is missing.
_MOST_AT_ONCE = 4
_Draft = tuple["Context", int]  # so many drafts of the context come before it
_Sort = tuple[str | None, str | None]  # a document and a kind, None for any


@dataclass(frozen=True, slots=True)
class Context:
    """Passages to ask about; `wider` are those for what takes more than one of them."""

    source: str | None
    passages: tuple[Passage, ...] = ()
    wider: tuple[Passage, ...] = ()


def random_by(*seeds: object) -> Random:
    """Make a generator of random numbers that is equal for equal seeds.

    A name that is not UTF-8 cannot be a seed, except for its quoted form.
    """
    text = "\n".join(map(str, seeds))
    return Random(text.encode(errors="backslashreplace").decode())


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
        random = random_by(self._seed, draft, where)
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
        random_by(seed, contexts[0].source or "").shuffle(mixed)
        self._drafts = [(context, draft) for draft in range(drafts) for context in mixed]
        self._taken = bytearray(len(self._drafts))
        self._looked_at: dict[str | None, int] = {}
        self.left = len(self._drafts)

    def draw(self, is_open: Callable[[Context], bool], kind: str | None) -> _Draft | None:
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


def up_to(count: int, contexts: Sequence[Context], per_context: int) -> list[Quota]:
    """A quota for each document: so many, or as many as its passages may give."""
    passages = Counter(context.source for context in contexts)
    return [Quota(min(count, n * per_context), document=name) for name, n in passages.items()]


def evenly(topics: Sequence[str], count: int, name: str) -> list[Quota]:
    """So many goldens over all topics; the first ones get one more where it does not divide."""
    if whole(name, count, 1) < len(topics):
        raise InputError(f"{name} is {count}, and each of {len(topics)} topics needs one at least")
    share, extra = divmod(count, len(topics))
    return [Quota(share + (index < extra), document=topic) for index, topic in enumerate(topics)]


def drafts_for(count: int) -> int:
    """Number of drafts in one question, for that many goldens."""
    return min(MOST, _SPARE * count)


def lists_for(quotas: Sequence[Quota], tries: int, drafts: int) -> int:
    """Number of lists of `drafts` on one topic for the quotas, with so many tries each."""
    counts = Counter[str | None]()
    for quota in quotas:
        counts[quota.document] += quota.count
    anywhere = counts.pop(None, 0)
    return -(-tries * (max(counts.values(), default=0) + anywhere) // drafts)


class Filling:
    """Fills quotas from contexts; each context gives `drafts` drafts.

    At most `tries` drafts are tried for each golden that a quota wants. At most `per_context`
    goldens of one context are kept (None: any number). Raises InputError for quotas that nothing
    can meet.
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
        self.yields = list(map(QuotaYield, quotas))
        self._tries, self._per_context = tries, per_context
        self._kept = Counter[Passage]()  # goldens by the first passage of their context
        by_source: dict[str | None, list[Context]] = {}
        for context in contexts:
            by_source.setdefault(context.source, []).append(context)
        self._kinds = kinds = Kinds(config, seed)
        for quota in quotas:
            _check(quota, by_source, kinds, measured)
        _check_room(quotas, contexts, kinds, min(drafts, per_context or drafts))
        self._pools = {name: _Pool(group, drafts, seed) for name, group in by_source.items()}
        self._heaps: dict[str | None, list[tuple[int, int, str | None]]] = {}
        self._wanting: dict[str | None, list[tuple[int, QuotaYield]]] = {}  # by document, in order
        for number, tally in enumerate(self.yields):
            self._wanting.setdefault(tally.quota.document, []).append((number, tally))

    def next(self) -> list[Seed]:
        """The drafts of the next round; empty when there is nothing to do, or nothing left."""
        seeds: list[Seed] = []
        for tally in self.yields:
            missing = goal = tally.quota.count - tally.kept
            if tally.tried and missing > 0:
                # As many as it takes at the rate so far, of which few drafts say little.
                rate = max(tally.kept / tally.tried, 1 / _MOST_AT_ONCE)
                goal = math.ceil(missing / rate)
            goal = min(goal, self._tries * tally.quota.count - tally.tried)
            if goal <= 0 and tally.kept < tally.quota.count:
                tally.ended = f"no more than {self._tries} for each golden"
            for _ in range(goal):
                document, kind = tally.quota.document, tally.quota.kind
                seed = self._draw_any(kind) if document is None else self._draw(document, kind)
                if seed is None:
                    tally.ended = "there was nothing left to ask about"
                    break
                seeds.append(seed)
                tally.tried += 1
        return seeds

    def _draw_any(self, kind: str | None) -> Seed | None:
        """The next draft of all documents, which take turns, the least used first."""
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
            elif (seed := self._draw(source, kind)) is not None:
                heapq.heapreplace(heap, (now + 1, index, source))
                return seed
            else:
                heapq.heappop(heap)
        return None

    def _draw(self, source: str | None, kind: str | None) -> Seed | None:
        def is_open(context: Context) -> bool:
            return self._kinds.fits(context, kind) and not self._is_used_up(context)

        draw = self._pools[source].draw(is_open, kind)
        return None if draw is None else self._kinds.seed_of(*draw, kind)

    def _is_used_up(self, context: Context) -> bool:
        if self._per_context is None or not context.passages:
            return False
        return self._kept[context.passages[0]] >= self._per_context

    def keep(self, seed: Seed, difficulty: Difficulty | None) -> bool:
        """Return whether a golden is wanted; it then counts for the first quota that it fits."""
        if self._is_used_up(Context(seed.source, seed.passages)):
            return False
        wanting = (self._wanting.get(document, ()) for document in {seed.source, None})
        for _, tally in heapq.merge(*wanting):
            quota = tally.quota
            fits = quota.kind in (None, seed.kind) and quota.difficulty in (None, difficulty)
            if fits and tally.kept < quota.count:
                tally.kept += 1
                self._kept.update(seed.passages[:1])
                return True
        return False


def _check(
    quota: Quota, by_source: dict[str | None, list[Context]], kinds: Kinds, measured: bool
) -> None:
    if quota.document is not None and quota.document not in by_source:
        names = [name for name in by_source if name is not None]
        near = did_you_mean(quota.document, names) or f"there are {few(names)}"
        raise InputError(f"a quota names {quota.document!r}, which gave no text; {near}")
    if quota.kind is not None and quota.kind not in kinds.names:
        why = "every draft is evolved, but never in this way"
        if kinds.names == [PLAIN]:
            why = "num_evolutions is 0"
        raise InputError(f"no golden can be of the kind {quota.kind!r}: {why}")
    if quota.difficulty is not None and not measured:
        raise InputError("quotas by difficulty need difficulty_models= to measure it with")


def _check_room(
    quotas: Sequence[Quota], contexts: Sequence[Context], kinds: Kinds, each: int
) -> None:
    """Whether the contexts, with at most `each` goldens of one, are enough for the quotas."""
    counts = Counter[_Sort]()
    for quota in quotas:
        # All sorts that a golden of this one counts for.
        sorts = {(a, b) for a in (quota.document, None) for b in (quota.kind, None)}
        counts.update(dict.fromkeys(sorts, quota.count))
    room = Counter[_Sort]()
    asked_for = {kind for _, kind in counts}
    for context in contexts:
        for kind in asked_for:
            if kinds.fits(context, kind):
                room.update({(context.source, kind): 1, (None, kind): 1})
    for (document, kind), count in counts.items():
        fitting = room[document, kind]
        if count <= fitting * each:
            continue
        goldens = counted(count, "golden")
        goldens += text_if(kind, f" of the kind {kind}") + text_if(document, f" about {document!r}")
        # Every other kind takes a single passage: without room it is two that go together.
        only = kind or ", ".join(kinds.names)
        why = f"{only} takes two passages that go together, and there are none"
        if fitting:
            why = (
                f"passages there are {fitting}, and of each at most {each} goldens are kept "
                "(max_goldens_per_context, --per-context); want fewer, or raise that"
            )
        raise InputError(f"{goldens} cannot be: {why}")
