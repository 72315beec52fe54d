"""From the outcomes of several runs of one node to one value.

Answers that cannot be read are not votes; when none can be read the first such failure is the
outcome. Any other failure is the outcome at once: infrastructure is never outvoted. Between
equal verdicts the one that was voted first wins, which is what one vote alone would have said.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import chain, zip_longest
from operator import attrgetter, mul
from typing import Any

from dagengine.graph.values import Judgement, NodeValue
from dagengine.question import NO_USAGE
from dagengine.results import Failure, OutcomeKind
from dagengine.voting.stopping import Vote

Outcomes = Sequence[NodeValue | Failure]
Column = list[Vote | None]
# An answer that cannot be read, or whose quotes are not in the material.
_NO_VOTE = (OutcomeKind.UNPARSEABLE, OutcomeKind.UNSUPPORTED)


def hard(outcomes: Outcomes) -> Failure | None:
    """The first failure that is no vote without a value."""
    for outcome in outcomes:
        if isinstance(outcome, Failure) and outcome.kind not in _NO_VOTE:
            return outcome
    return None


def final(outcomes: Outcomes) -> Failure | None:
    """The failure that ends a vote, if there is one."""
    failure, first = hard(outcomes), outcomes[0]
    if failure is None and isinstance(first, Failure) and not values_of(outcomes):
        return first
    return failure


def values_of(outcomes: Outcomes) -> list[NodeValue]:
    """The outcomes that are values."""
    return [outcome for outcome in outcomes if isinstance(outcome, NodeValue)]


def columns_of(outcomes: Outcomes) -> list[Column]:
    """All votes on each item; None if an answer could not be read."""
    rows: list[list[Vote | None]] = []
    for outcome in outcomes:
        if not isinstance(outcome, NodeValue):
            rows.append([])
        elif outcome.verdict is not None:
            rows.append([outcome.verdict])
        elif isinstance(outcome.value, list):
            rows.append(list(map(attrgetter("verdict"), outcome.value)))
        else:
            rows.append([outcome.score])
    return list(map(list, zip_longest(*rows)))


def aggregate(
    outcomes: Outcomes,
    columns: Sequence[Column],
    voters: Iterable[int],
    weights: Sequence[float] = (),
) -> NodeValue:
    """One value from several (at least one is a value), with all the votes.

    The majority (by item), with the reason of the first vote for it; or the mean rating.
    `columns` hold the votes that count, by item; `weights` are those of the outcomes.
    """
    values = values_of(outcomes)
    weights = weights or [1.0] * len(outcomes)
    votes: list[Any]
    if values[0].verdict is not None:
        winner, votes = _value(outcomes[leading(columns[0], weights)]), columns[0]
    elif isinstance(values[0].value, list):
        winner, votes = _item_majorities(outcomes, columns, weights)
        winner = replace(winner, spans=values[0].spans)
    else:
        winner = _mean_rating(outcomes, weights)
        votes = [outcome.value if isinstance(outcome, NodeValue) else None for outcome in outcomes]
    usage = sum(map(attrgetter("usage"), values), NO_USAGE)
    questions = tuple(chain.from_iterable(map(attrgetter("asked"), outcomes)))
    return replace(winner, votes=tuple(votes), voters=tuple(voters), usage=usage, asked=questions)


def _item_majorities(
    outcomes: Outcomes, columns: Sequence[Column], weights: Sequence[float]
) -> tuple[NodeValue, list[Any]]:
    """The majority judgement of each item, and the votes of each outcome on all items."""
    items: list[Judgement] = []
    for item, column in enumerate(columns):
        judgement = _value(outcomes[leading(column, weights)]).value[item]
        # Odds of one ballot are not those of the vote.
        items.append(judgement.model_copy(update={"odds": None}))
    # A column ends where its item was settled: later votes on the item do not count.
    votes: list[Any] = []
    for *row, outcome in zip_longest(*columns, outcomes):
        votes.append(None if isinstance(outcome, Failure) else row)
    return NodeValue(items), votes


def _mean_rating(outcomes: Outcomes, weights: Sequence[float]) -> NodeValue:
    """The weighted mean of the ratings, with the reason of the rating nearest to it."""
    values, shares = values_of(outcomes), list[float]()
    for outcome, weight in zip(outcomes, weights, strict=False):
        if isinstance(outcome, NodeValue):
            shares.append(weight)
    total = math.fsum(shares)
    score = math.fsum(map(mul, shares, [value.score or 0.0 for value in values])) / total
    rating = math.fsum(map(mul, shares, map(attrgetter("value"), values))) / total
    # A mean has no reason of its own. That of the vote next to it contradicts it least.
    nearest = min(values, key=lambda value: abs(value.value - rating))
    return replace(
        nearest,
        value=rating,
        score=min(max(score, 0.0), 1.0),
        mode=f"mean of {len(values)} ({nearest.mode})",
    )


def leading(votes: Sequence[Vote | None], weights: Sequence[float]) -> int:
    """The index of the first vote for the verdict with most votes."""
    sums: dict[tuple[type, Vote], float] = {}
    first_votes: dict[tuple[type, Vote], int] = {}
    for index, (vote, weight) in enumerate(zip(votes, weights, strict=False)):
        if vote is not None:
            key = type(vote), vote
            sums[key] = sums.get(key, 0.0) + weight
            first_votes.setdefault(key, index)
    return first_votes[max(sums, key=lambda key: sums[key])]


def _value(outcome: NodeValue | Failure) -> NodeValue:
    assert isinstance(outcome, NodeValue)
    return outcome
