"""Which case of one run is which case of another: by content first, then by what is left of it."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Hashable, Iterable, Iterator, Mapping
from typing import Literal

Side = Literal[0, 1]
"""The old run and the new one."""
Place = int
"""Where a case is in its run, from 0 on."""


class Alignment:
    """Pairs equal keys of two runs that are read side by side.

    Cases with one key are paired in their order: the second copy of a case with the second
    copy. Only what still waits for its partner is kept. So two runs over one data set need no
    memory, and a shuffled data set needs a number for each case.
    """

    def __init__(self) -> None:
        self._waiting: tuple[dict[Hashable, deque[Place]], ...] = ({}, {})

    @property
    def idle(self) -> bool:
        """Return whether no case waits for its partner."""
        return not (self._waiting[0] or self._waiting[1])

    def offer(self, side: Side, place: Place, key: Hashable) -> tuple[Place, Place] | None:
        """The pair that this case completes, as old and new place; None while it waits."""
        # Copies of a case (`a` twice on each side) are paired in their order. With the new run read
        # beside the old one, at most those wait that are out of step:
        #
        #     old   a  b  a        a waits ─▶ (0, 1); b waits ─▶ (1, 0); a waits ─▶ (2, 2)
        #     new   b  a  a
        waiting = self._waiting[1 - side]
        if key in waiting:
            partner = waiting[key].popleft()
            if not waiting[key]:
                del waiting[key]
            return (partner, place) if side == 1 else (place, partner)
        self._waiting[side].setdefault(key, deque()).append(place)
        return None

    def left(self, side: Side) -> list[Place]:
        """Places of the cases that found no partner, in order."""
        return sorted(index for waiting in self._waiting[side].values() for index in waiting)


def pairs_of_keys(
    old: Mapping[Place, Hashable | None], new: Mapping[Place, Hashable | None]
) -> Iterator[tuple[Place, Place]]:
    """Cases that are alone with their key in both runs; a key of None is none."""
    # Where two cases of one side have the key, either may be the partner. A wrong pair would be
    # shown as a change that never was, so such cases stay unpaired.
    alone = (_alone(old.values()), _alone(new.values()))
    partners = {key: index for index, key in old.items() if key in alone[0]}
    for index, key in new.items():
        if key in alone[1] and key in partners:
            yield partners[key], index


def _alone(keys: Iterable[Hashable | None]) -> set[Hashable]:
    return {key for key, count in Counter(keys).items() if count == 1 and key is not None}
