"""Below which probability a judge should say that it is unsure, for a promised rate of errors."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Hashable, Sequence
from dataclasses import dataclass

from dagengine.errors import InputError
from dagengine.reliability.statistics.intervals import Unknown
from dagengine.reliability.statistics.sums import groups_of


@dataclass(frozen=True, slots=True)
class Abstention:
    """Verdicts with a probability below `below` are not given.

    Then at most the share `promised` of all cases gets a wrong verdict, on average over samples of
    labels. On the labels `answered` is the share of cases that keep their verdict, and `wrong` the
    share of these that is wrong. `below` is above 1 if no verdict may be given.
    """

    below: float
    promised: float
    answered: float
    wrong: float | None
    items: int


def abstain_below(
    stated: Sequence[tuple[float, bool]],
    promised: float,
    *,
    groups: Sequence[Hashable] | None = None,
) -> Abstention | Unknown:
    """The lowest probability at which a verdict may be given; Unknown with too few labels.

    `stated` has, for each labelled case, the probability (0 to 1) that the judge gave to its
    verdict, and whether the verdict is right. `promised` is the share of all cases (0 to 1) that
    may get a wrong verdict that is not called unsure.

    Conformal risk control (Angelopoulos et al. 2024, https://arxiv.org/abs/2208.02814): the rate on
    n labels plus 1/(n + 1) for the next case must not exceed the promise. It holds if the labelled
    cases and the cases to come are exchangeable: drawn at random from the same traffic, by the same
    judge. With `groups` it holds for the mean over groups. With fewer than 1/promised - 1 labels
    nothing can be promised. Raises InputError for numbers outside of their range.
    """
    if not 0 < promised < 1:
        raise InputError(f"the promised rate lies between 0 and 1, got {promised:g}")
    if any(not 0 <= chance <= 1 for chance, _ in stated):
        raise InputError("probabilities lie between 0 and 1")
    names = groups_of(groups, len(stated))
    sizes = Counter(names)
    items = len(sizes)
    needed = math.ceil(1 / promised - 1e-9) - 1
    if items < needed:
        return Unknown("too few labels", items, needed)
    # From the surest verdict down: what is wrong so far, each group with the weight of one item.
    ranked = sorted(zip(stated, names, strict=True), key=lambda pair: -pair[0][0])
    room = promised * (items + 1) - 1
    below, errors, index = math.nextafter(1.0, 2.0), 0.0, 0
    while index < len(ranked):
        chance = ranked[index][0][0]
        while index < len(ranked) and ranked[index][0][0] == chance:
            (_, right), name = ranked[index]
            errors += 0.0 if right else 1 / sizes[name]
            index += 1
        if errors > room + 1e-9:
            break
        below = chance
    kept = [right for chance, right in stated if chance >= below]
    return Abstention(
        below=below,
        promised=promised,
        answered=len(kept) / len(stated),
        wrong=kept.count(False) / len(kept) if kept else None,
        items=items,
    )
