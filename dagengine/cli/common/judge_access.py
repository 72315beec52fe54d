"""Whether a judge accepts calls at all: a wrong key or an unknown model ends a command."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from dagengine.errors import JudgeSetupError

if TYPE_CHECKING:
    from dagengine.results import Totals
    from dagengine.results.rows import CaseResult


class Access:
    """Ends a run whose judge accepts no call: every row would say the same.

    `accepted` tells whether a call was accepted so far.
    """

    def __init__(self, accepted: Callable[[], bool]) -> None:
        self._accepted = accepted
        self._granted = False
        self._error: JudgeSetupError | None = None

    def check(self, row: CaseResult) -> None:
        """Raise JudgeSetupError if a key or a model was refused, and no call was accepted.

        From then on every row raises it: while the run ends, calls in progress are cancelled.
        """
        from dagengine.judges.wire.dialects.failures import HINTS

        self._granted = self._granted or (self._error is None and self._accepted())
        for result in () if self._granted else row.metrics:
            message = "" if result.failure is None else result.failure.message
            if self._error is None and message.endswith(HINTS):
                self._error = JudgeSetupError(f"the judge accepts no call: {message}")
        if self._error is not None:
            raise self._error


def any_accepted(totals: Totals) -> bool:
    """Whether a judge, or a store, has answered."""
    return totals.calls - totals.failed - totals.in_flight + totals.cached > 0
