"""Which of the questions to come an earlier one answers.

A question that is known word for word has a key; a decision on the way may or may not lead to
it. Three cases that come to one key, ● for sure and ○ perhaps, tell different bounds of the
calls different things::

    case 1   case 2   case 3
      ●        ●        ○       one call is certain: `least` is 1 (`_sure`)
               │        │
               │        └── only if it comes: lowers `likely`, by its chance
               └─────────── certain to come, certain to be answered: lowers `most` (`_again`)

With ○ ● ● the first ● is the certain call, and nothing lowers `most` but the second: what may
never be asked cannot answer another. `_repeats` counts every question that came to a known key (or
found no room here). Without them the known ones still need a call each: that is the other bound
below `least`. What is known only to be like another (`resemble`) moves `likely` alone.
"""

from __future__ import annotations

from dagengine.estimate.estimates import Bounds
from dagengine.gateway.gateway import DEFAULT_LIMITS

# Equal questions are looked for among this many.
_SEEN = 1_000_000


class EqualQuestions:
    """Finds equal questions among those known word for word (see the drawing above)."""

    def __init__(self) -> None:
        self._seen: dict[int, bool] = {}  # whether one of them is certain to be asked
        self._alike: set[int] = set()
        self.likely = 0.0
        self._sure = self._again = self._repeats = 0

    def meet(self, key: int, sure: bool, chance: float) -> float:
        """Note one more question; returns how much of it an earlier one answers."""
        before = self._seen.get(key)
        if before is not None or len(self._seen) < _SEEN:
            self._seen[key] = sure or bool(before)
            self._sure += sure and not before
        self._again += sure and bool(before)
        if before is None:
            self._repeats += key not in self._seen
            return 0.0
        self._repeats += 1
        self.likely += chance
        return chance

    def resemble(self, like: int, likely: float) -> float:
        """Note questions that are not known; returns how many earlier ones likely answer."""
        if like in self._alike:
            self.likely += likely
            return likely
        if len(self._alike) < _SEEN:
            self._alike.add(like)
        return 0.0

    def calls(self, asked: Bounds, worded: int, factor: float = 1.0) -> Bounds:
        """The questions that no equal one answers; `worded` are known and sure to be asked.

        Where the questions noted are those of a sample, `asked` is for `factor` times as many.
        """
        most = asked.most
        if factor == 1.0 and most is not None and most <= DEFAULT_LIMITS.remembered:
            most -= self._again
        least = max(self._sure, worded - self._repeats, 0)
        return Bounds(least, max(asked.likely - self.likely * factor, least), most)
