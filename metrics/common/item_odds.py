"""How likely each score of a list is, from the odds of its items' verdicts.

The verdicts of items are taken to be independent of each other given the case, as decision models
claim. If one misreading affects several items, the true spread is wider. An item without odds
counts as it stands. What the odds of an item leave unknown is missing from those of the scores.
Pure functions of values.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Collection, Sequence

from dagengine.graph.values import Judgement
from dagengine.prompts.probabilities.masses import unknown_of
from dagengine.question import Odds
from dagengine.results import Verdict

MOST_ENUMERATED = 10
"""Items of a list all of whose combinations are worked out: 2 to the power of this."""
_LEAST = 1e-12  # a score less likely than this is left out


def share_odds(judgements: Sequence[Judgement], good: Collection[Verdict]) -> Odds | None:
    """The odds of each share (0 to 1) of items with a good verdict; None without any odds.

    The number of good items is Poisson-binomial: worked out exactly, one item after another.
    """
    if not _any_odds(judgements):
        return None
    counts = [1.0]
    for chance, miss in (_chances(judgement, good) for judgement in judgements):
        # So many good items come from as many before a miss, or from one fewer before a hit.
        pairs = zip([*counts, 0.0], [0.0, *counts], strict=True)
        counts = [count * miss + fewer * chance for count, fewer in pairs]
    return tuple(
        (count / len(judgements), mass) for count, mass in enumerate(counts) if mass > _LEAST
    )


def order_odds(
    judgements: Sequence[Judgement],
    good: Collection[Verdict],
    score: Callable[[Sequence[bool]], float],
) -> Odds | None:
    """The odds of each score (0 to 1) that depends on which items are good.

    `score` takes, in the order of the items, whether each one is good. None without any odds,
    and for more than `MOST_ENUMERATED` items, whose combinations are too many.
    """
    if not _any_odds(judgements) or len(judgements) > MOST_ENUMERATED:
        return None
    chances = [_chances(judgement, good) for judgement in judgements]
    odds: dict[float, float] = {}
    for combination in itertools.product((True, False), repeat=len(chances)):
        pairs = zip(chances, combination, strict=True)
        mass = math.prod(chance if hit else miss for (chance, miss), hit in pairs)
        if mass > _LEAST:
            number = score(combination)
            odds[number] = odds.get(number, 0.0) + mass
    return tuple(sorted(odds.items()))


def _any_odds(judgements: Sequence[Judgement]) -> bool:
    return any(judgement.odds is not None for judgement in judgements)


def _chances(judgement: Judgement, good: Collection[Verdict]) -> tuple[float, float]:
    """Probabilities of a good verdict and of another one, as far as they are known."""
    if judgement.odds is None:
        hit = float(judgement.verdict in good)
        return hit, 1 - hit
    hit = min(1.0, math.fsum(chance for verdict, chance in judgement.odds if verdict in good))
    return hit, max(0.0, 1 - hit - unknown_of(judgement.odds))
