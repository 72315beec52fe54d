"""How many calls in progress are worth having, found out from how long answers take.

A control law without clock or I/O. A server with few places rejects nothing: further calls wait
there, no answer comes sooner, and late ones run into their time limit. So the law grows only while
throughput grows. By Little's law answers per second are the calls in progress divided by the
seconds of one answer. Twice as many calls bring a quarter more answers if an answer then takes at
most 1.6 times as long. When it takes longer, the law goes back to the number from which on answers
took longer, and tries again after a while.

Tasks take longer than judgements. So seconds are compared with the usual seconds of the same kind
of answer, as medians over *rounds*. Only calls tell that began behind enough others, and those
without an answer yet count as slower than the others.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable
from functools import partial
from statistics import fmean
from typing import NamedTuple

_START = 4
_SHARE = 8  # an eighth of the ceiling is tried at once where that costs little
_GAIN = 1.25  # so many times the answers per second, for twice the calls
_PROFIT = 1 - math.log2(_GAIN)
_WORSE = 2**_PROFIT
# What is tried next, by the share of the time limit that answers take now: so many times the calls.
# Even if all that is more had to wait, answers would come within half of the limit; a single call
# more may make it three quarters.
_STEPS = ((1 / 8, 4.0), (1 / 4, 2.0), (3 / 8, 1.25))
_CRITICAL = 0.5  # of the time limit
_QUICK, _SCALE = 1 / 200, 120.0  # below this share of the limit answers are equally quick
_HOLD, _LONGEST_HOLD = 2, 32  # rounds before what brought nothing is tried again
_CAREFUL = 12  # answers of a round, at least, once there was a reason to step back
_FADING = 0.75  # of how long answers took is remembered after a round
_FEW = 2  # late answers that may have nothing to do with the number of calls


class _Sample(NamedTuple):
    """An answer: its kind, the calls in progress when it was asked for, and how long it took."""

    kind: object
    level: int
    seconds: float


class ThroughputLimit:
    """The number of calls that one judge is worth having in progress: `limit`.

    Judges that are given more than it lets through bring no more answers per second. `time_limit`
    is how many seconds a call may take (None: as many as it likes); it may change. `epoch` counts
    the steps back: calls tell nothing that began before the last one.
    """

    def __init__(
        self, ceiling: int, time_limit: float | None = None, start: int | None = None
    ) -> None:
        """`ceiling` is the most, `start` (4, or `ceiling` if that is less) the number at first."""
        self.time_limit = math.inf if time_limit is None else time_limit
        self._ceiling = ceiling
        self._start = min(start or _START, ceiling)
        self._quick = _QUICK * min(self.time_limit, _SCALE)
        self.epoch = 0
        self.restart()

    def restart(self) -> None:
        """Begin again: the judge was away, and nothing that is known of it may still hold."""
        self.epoch += 1
        self.limit = self._start
        self._usual: dict[object, float] = {}  # seconds by kind of answer,
        self._level = 0  # with so many calls in progress
        self._round: list[_Sample] = []
        self._late = 0
        self._longest = 0.0
        self._waiting = 1.0  # so many times as long as with few calls an answer takes now
        self._held, self._hold = 0, _HOLD
        self._has_stepped_back = False

    def note_answer(self, kind: object, level: int, epoch: int, seconds: float) -> None:
        """An answer of some kind took so long; its call began in this epoch.

        `level` calls were in progress then, this one included.
        """
        # Calls that began as one of no more than so many tell nothing of the limit.
        floor = self._level if self._is_trying else self.limit // 2
        if epoch != self.epoch or level <= floor:
            return
        seconds = max(seconds, self._quick)
        self._round.append(_Sample(kind, level, seconds))
        if len(self._round) >= self._enough(seconds):
            samples, self._round, self._late = self._round, [], 0
            self._draw_consequences(samples)

    def late(self, epoch: int) -> None:
        """A call that began in this epoch had no answer within its time."""
        if epoch != self.epoch:
            return
        self._late += 1
        if self._late >= max(_FEW, self.limit // 4):
            half = max(1, self.limit // 2)
            self._step_back(min(half, self._level) if self._level and self._is_trying else half)

    @property
    def _is_trying(self) -> bool:
        return self._level < self.limit

    def _enough(self, seconds: float) -> int:
        """The answers that make a round; where a wrong step costs little, half of what is new."""
        quick = seconds <= _STEPS[0][0] * self.time_limit
        if self._has_stepped_back and self.limit >= self._start:
            return max(self.limit, _CAREFUL)
        if not (self._is_trying and quick):
            return self.limit
        return max(2, (self.limit - self._level) // 2 + 1)

    def _draw_consequences(self, samples: list[_Sample]) -> None:
        """A round is complete: keep what was tried or go back, and try more when it is time."""
        # The calls that were added, of which the quickest half has answered.
        new_calls = 0 if self._has_stepped_back else self.limit - self._level
        middle = partial(_middle, share=max(0.5, new_calls / 2 / len(samples)))
        slower = self._slowdown(samples, middle)
        long = sorted(sample.seconds for sample in samples)[math.ceil(0.9 * len(samples)) - 1]
        self._longest = longest = max(long, _FADING * self._longest)
        halfway = (self._level + self.limit) / 2
        level = halfway if new_calls else fmean(sample.level for sample in samples)
        if self._level and self._is_trying and slower > (level / self._level) ** _PROFIT:
            self._step_back(max(self._level, int(_GAIN * level / (slower * self._waiting))))
            return
        worse = slower > _WORSE and longest > _CRITICAL * self.time_limit
        if worse and self.limit > self._start and not self._is_trying:
            self._step_back(max(self._start, self.limit // 2))
            return
        if self._is_trying or slower < 1 / _WORSE:  # what was tried holds, or it is quicker now
            self._held, self._hold = 0, _HOLD
        self._learn(samples, slower, middle)
        self._level = self.limit
        self._held -= self._held > 0
        if not self._held:
            self.limit = min(self._ceiling, self._next(longest / self.time_limit))

    def _slowdown(self, samples: list[_Sample], middle: Callable[[list[float]], float]) -> float:
        """The factor by which answers take longer than usual; 1 where nothing is usual."""
        usual = self._usual
        ratios = [sample.seconds / usual[sample.kind] for sample in samples if sample.kind in usual]
        return middle(ratios) if ratios else 1.0

    def _learn(
        self, samples: list[_Sample], slower: float, middle: Callable[[list[float]], float]
    ) -> None:
        """Take over what is usual now; what was not seen in this round changes with the rest.

        With the same number of calls as before, one round is not all that is known.
        """
        by_kind = defaultdict[object, list[float]](list)
        for sample in samples:
            by_kind[sample.kind].append(sample.seconds)
        if not self._is_trying:
            slower = math.sqrt(slower)
        self._waiting = max(1.0, self._waiting * slower)
        usual = {kind: seconds * slower for kind, seconds in self._usual.items()}
        for kind, seconds in by_kind.items():
            former = None if self._is_trying else self._usual.get(kind)
            current = middle(seconds)
            usual[kind] = math.sqrt((former or current) * current)
        self._usual = usual

    def _next(self, share: float) -> int:
        """The number to try next, when answers take this share of the time limit.

        At most as many as can wait in a queue without being late. After late answers that cannot
        be kept, or it would never go back to where it started: but it is not tried soon.
        """
        if self.limit < self._start:
            risky = share * (self.limit + 1) > self.limit
            if risky and self._hold < _LONGEST_HOLD:
                self._held = self._hold = _LONGEST_HOLD
                return self.limit
            return self.limit + 1
        steps = _STEPS[self._has_stepped_back :]
        factor = next((factor for most, factor in steps if share <= most), 1.0)
        if factor == _STEPS[0][1]:
            harmless = int(self.limit * _STEPS[0][0] * factor / share) if share else self._ceiling
            return max(int(factor * self.limit), min(self._ceiling // _SHARE, harmless))
        return self.limit + math.ceil((factor - 1) * self.limit)

    def _step_back(self, limit: int) -> None:
        self._has_stepped_back = True
        self.epoch += 1
        self.limit = self._level = limit
        self._round, self._late = [], 0
        self._held, self._hold = self._hold, min(_LONGEST_HOLD, 2 * self._hold)


def _middle(seconds: list[float], share: float) -> float:
    """The least of what at least this share of the values is not above; the median at a half."""
    return sorted(seconds)[min(len(seconds) - 1, int(share * len(seconds)))]
