"""How many goldens are wanted and of what sort, and what topics give in place of passages."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from dagengine.errors import InputError
from dagengine.synthesis.pools import Context
from dagengine.synthesis.runs import Generation
from dagengine.synthesis.sources import Sources
from dagengine.synthesis.values import Quota, Report, Seed, whole
from dagengine.test_case import LLMTestCase

MOST = 20
"""Drafts that one question asks for at most."""
_SPARE = 2  # drafts for each golden that is wanted


@dataclass(frozen=True, slots=True)
class Wanted:
    """How many goldens, of what sort, and how many of one context at most.

    A question asks for `drafts` at once.
    """

    quotas: Sequence[Quota]
    per_context: int | None
    drafts: int


def wanted_goldens(sources: Sources, quotas: Sequence[Quota], per_context: int) -> Wanted:
    """The quotas, or as many goldens as the contexts may give."""
    whole("max_goldens_per_context", per_context, 1, MOST)
    drafts = list_of(per_context)
    targets = quotas or [Quota(per_context * len(sources.contexts))]
    return Wanted(targets, per_context, drafts)


def up_to(count: int, sources: Sources, per_context: int) -> list[Quota]:
    """A quota for each document: so many, or as many as its passages may give."""
    counts = Counter(context.source for context in sources.contexts)
    return [
        Quota(min(count, passages * per_context), document=name)
        for name, passages in counts.items()
    ]


def list_of(count: int) -> int:
    """Number of drafts in one question, for that many goldens."""
    return min(MOST, _SPARE * count)


def lists_for(quotas: Sequence[Quota], tries: int, drafts: int) -> int:
    """Number of lists of `drafts` on one topic for the quotas, with so many tries each."""
    counts = Counter[str | None]()
    for quota in quotas:
        counts[quota.document] += quota.count
    anywhere = counts.pop(None, 0)
    return -(-tries * (max(counts.values(), default=0) + anywhere) // drafts)


def evenly(topics: Sequence[str], count: int, name: str) -> list[Quota]:
    """So many goldens over all topics; the first ones get one more where it does not divide."""
    if whole(name, count, 1) < len(topics):
        raise InputError(f"{name} is {count}, and each of {len(topics)} topics needs one at least")
    share, extra = divmod(count, len(topics))
    return [Quota(share + (index < extra), document=topic) for index, topic in enumerate(topics)]


def contexts_of_topics(topics: Sequence[str]) -> Sources:
    """Topics as contexts without passages."""
    return Sources([Context(topic) for topic in topics], Report())


def case_of_a_topic(seed: Seed, drafts: int) -> LLMTestCase:
    """The case of a draft about a topic; each list of drafts has its own question."""
    number, draft = divmod(seed.draft, drafts)
    again = f" (list {number + 1}: nothing that lists before it would hold)" if number else ""
    return Generation.case_of(seed, draft, f"{seed.source}{again}")
