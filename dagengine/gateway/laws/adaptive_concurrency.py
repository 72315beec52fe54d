"""How many calls a judge can take at once, found out from what it rejects.

A control law without clock or I/O. It counts in *rounds*: as many finished calls as may
be in progress, which is about one round trip. It grows with each success until the first
rejections (slow start), then steps back. It creeps towards the number that was too much, and waits
below it for a while. Then it tries beyond it in growing steps (the idea of binary increase: Xu,
Harfoush, Rhee, "Binary increase congestion control", INFOCOM 2004). What was too much is read off
the last rejection of a burst: so many calls were still in progress.

Some servers reject calls whatever the load. Stepping back does not help there, so it is
undone when the calls that started after it fare as badly as those before.
"""

from __future__ import annotations

from dataclasses import dataclass

# Calls at the beginning: so many, or an eighth of the most if that is more.
_START, _SHARE = 16, 8
_FAST = 3  # calls more for each success, until the first rejection
_BACK = 0.8  # of the calls in progress at the rejection
_FAR_BACK = 0.5  # when that was not enough
_SLACK = 20  # one rejection in so many calls is no reason to step back
_HOLD = 12  # clean rounds just below the number that was too much, at first
_LONGEST_HOLD = 200
_MILD = 0.35  # a share of rejections that may have nothing to do with the load
_SAMPLE = 96  # fewer finished calls than this say little about a small share,
_PLENTY = 8  # but so many rejections among them say enough
_TRUST = 48  # rounds for which rejections are then taken to be independent of the load


@dataclass(slots=True)
class _Trial:
    """What stepping back has to prove: that there are fewer rejections now."""

    limit: int
    too_many: int | None
    sample: int = _SAMPLE
    is_last: bool = False


class AdaptiveConcurrency:
    """The number of calls that one judge may have in progress: `limit`, from 1 to `ceiling`.

    `serial` numbers the calls: whoever starts one counts it up. `note_success` and `note_rejection`
    take the number of the call. So calls started before the last step back are not compared with it
    a second time. Calls that end in any other way need not be told.
    """

    def __init__(self, ceiling: int, start: int | None = None) -> None:
        self.limit = min(start or max(_START, ceiling // _SHARE), ceiling)
        self._ceiling = ceiling
        self.serial = 0
        self._epoch = 0  # the last serial number before the last step back
        self._known: int | None = None  # what was too much; None during slow start
        self._least = 0  # no rejection of a call from before the last step back says less
        self._proven = 0  # what was taken since, or before if that was less
        self._step = 1
        self._held, self._hold = 0, _HOLD
        self._good = self._bad = 0  # finished calls of this round
        self._trial: _Trial | None = None
        self._trusted = 0

    def note_success(self, serial: int, in_flight: int) -> None:
        """An answer came; `in_flight` counts the calls in progress, this one included."""
        if serial <= self._epoch:
            return
        self._good += 1
        saturated = in_flight >= self.limit
        if self._known is None and saturated and self.limit < self._ceiling:
            self._proven = self._proven or self.limit
            self.limit = min(self._ceiling, self.limit + _FAST)
        self._count(saturated)

    def note_rejection(self, serial: int, in_flight: int) -> bool:
        """The judge rejected a call for overload; returns whether that holds for all its calls.

        That is so unless trying out a greater number explains it. It is also not so if rejections
        prove, or are known, to be independent of the load.
        """
        if serial <= self._epoch:
            # Another call from before the step back: so many were still too much.
            least = max(self._least, self.limit - 1)
            if self._known is not None and least < in_flight < self._known:
                self._known = in_flight
                self.limit = min(self.limit, max(1, in_flight - 1))
            return False
        self._bad += 1
        # More calls may be in progress than the judge was ever seen to take.
        slack, trying = self.limit // _SLACK, 0 < self._proven < self.limit
        if self._trial or self._trusted:
            heavy = self._bad > _MILD * max(self.limit, self._good + self._bad)
        else:
            heavy = self._bad > slack and not trying
            if self._bad > max(1, slack) or self._step > 1:
                self._retreat(min(self.limit, in_flight))
        self._count(saturated=True)
        return heavy

    def _retreat(self, too_much: int) -> None:
        """Rejections: give up what was being tried out, or really have fewer calls."""
        too_many, probing = self._known, self._step > 1
        if not probing:
            self._trial = _Trial(self.limit, too_many)
        self._step_back(too_much, _BACK)
        if probing and too_many is not None:
            self.limit = max(self.limit, min(too_many, too_much) - 1)

    def _step_back(self, too_much: int, factor: float) -> None:
        self._known, self._least = too_much, int(too_much * _FAR_BACK)
        self.limit = max(1, int(too_much * factor))
        self._proven = min(self._proven, self.limit)
        self._epoch = self.serial
        self._good = self._bad = self._trusted = 0
        self._pause()

    def _pause(self) -> None:
        """Wait longer each time that going beyond what was too much did not work."""
        if self._step > 1:
            self._hold = min(_LONGEST_HOLD, 2 * self._hold)
        self._step, self._held = 1, 0

    def _count(self, saturated: bool) -> None:
        """Draw the consequences when a round is complete."""
        total, bad = self._good + self._bad, self._bad
        trial = self._trial
        if total < max(self.limit, trial.sample if trial else 0) and not (trial and bad >= _PLENTY):
            return
        self._good = self._bad = 0
        if self._trusted:
            share = bad / total
            self._trusted -= 1
            if share > _MILD or (share and not self._trusted):
                self._retreat(self.limit)
            else:
                self._grow(saturated)
        elif self._trial and bad:
            # Stepping back has not helped: step back further, or see that it is no use
            if (bad / total) > _MILD:
                self._trial = _Trial(self.limit, self._known, sample=0)
                self._step_back(self.limit, _FAR_BACK)
            elif not self._trial.is_last:
                self._trial.is_last, self._trial.sample = True, _SAMPLE
                self._step_back(self.limit, _FAR_BACK)
            else:
                self.limit, self._known = self._trial.limit, self._trial.too_many
                self._trial, self._trusted = None, _TRUST
        elif bad:  # a few: one call fewer, and what was too much comes closer
            too_many = self.limit if self._known is None else self._known
            self._known = (too_many + self.limit) // 2
            self.limit = max(1, self.limit - 1)
            self._pause()
        else:
            self._trial = None
            self._grow(saturated)

    def _grow(self, saturated: bool) -> None:
        """A clean round: towards what was too much, a pause below it, then beyond it."""
        too_many = self._known
        if too_many is None or not saturated:
            return
        self._proven = self.limit
        if self.limit < too_many - 1:
            self.limit += max(1, (too_many - 1 - self.limit) // 2)
        elif self.limit < too_many and self._held < _HOLD:
            self._held += 1
        else:
            if self.limit > too_many:  # it is no longer too much
                self._hold = _HOLD
            self.limit += self._step
            self._step *= 2
        self.limit = min(self.limit, self._ceiling)
