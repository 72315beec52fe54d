"""A command that asks judges: access, memory, and how it goes on after an interrupt."""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from dagengine.cli.common.output import EXIT_INTERRUPTED, say
from dagengine.errors import JudgeSetupError

if TYPE_CHECKING:
    from dagengine.results import Attempt, Totals
    from dagengine.results.metric_results import CaseResult

# Python's garbage collector need not look through modules and classes, which never become garbage:
# that was a quarter of the time until the first question. Its last look came when all was done.
# New objects before it looks at them: more than are imported, and, at work, those of some hundred
# cases, as `execution.local_executor` has it.
_IMPORTED, _AT_WORK = 500_000, 50_000


class Access:
    """Ends a run whose judge accepts no call, as it is given up: every row would say the same."""

    def __init__(self, accepted: Callable[[], bool]) -> None:
        self._accepted = accepted  # whether a call was accepted so far
        self._granted = self._ended = False
        self._error: JudgeSetupError | None = None
        self._held: list[tuple[CaseResult, Callable[[CaseResult], object]]] = []

    def check(self, row: CaseResult) -> None:
        """Raise JudgeSetupError if the judge is given up for good, and no call was accepted.

        A first refusal may be about its question: it is kept for `end`. Once raised, every row
        raises it: while the run ends, calls in progress are cancelled.
        """
        from dagengine.gateway.laws.circuit_breaker import FOR_GOOD
        from dagengine.judges.wire.dialects.error_responses import HINTS

        self._granted = self._granted or (not self._ended and self._accepted())
        for result in row.metrics:
            if self._granted or result.failure is None:
                continue
            message = result.failure.message
            if self._error is None and (message.endswith(HINTS) or FOR_GOOD in message):
                self._error = JudgeSetupError(f"the judge accepts no call: {message}")
            self._ended = self._ended or FOR_GOOD in message
        if self._ended and self._error is not None:
            raise self._error

    def hand_on(self, row: CaseResult, take: Callable[[CaseResult], object]) -> None:
        """Hand on a row, and those before it; none yet after a refusal that may be of all calls.

        So a run that ends leaves an earlier one as it was. Raises JudgeSetupError as `check` does.
        """
        self.check(row)
        self._held.append((row, take))
        if self._error is None or self._granted:
            self._let_go()

    def end(self) -> None:
        """Hand on what is left; raises JudgeSetupError if calls were refused, and none accepted."""
        self._granted = self._granted or (not self._ended and self._accepted())
        if self._error is not None and not self._granted:
            raise self._error
        self._let_go()

    def _let_go(self) -> None:
        rows, self._held = self._held, []
        for row, take in rows:
            take(row)


def any_accepted(totals: Totals) -> bool:
    """Whether a judge, or a store, has answered."""
    return totals.calls - totals.failed - totals.in_flight + totals.cached > 0


class CountedAccess(Access):
    """The access of a run that tells of every call; `done` counts its rows."""

    def __init__(self) -> None:
        super().__init__(lambda: self._any)
        self._any, self.done = False, 0

    def note(self, attempt: Attempt) -> None:
        """Note how a call ended."""
        self._any = self._any or attempt.outcome == "ok"

    def count(self, row: CaseResult) -> None:
        """Count a row; raises what `check` raises."""
        self.check(row)
        self.done += 1


@contextmanager
def saying_how_to_go_on(
    store: Path | None, left: Callable[[], str] = lambda: "interrupted"
) -> Iterator[None]:
    """End an interrupted command with what is left of its work, and how to continue."""
    try:
        yield
    except KeyboardInterrupt:
        say(f"{left()}; {go_on(store)}", err=True)
        raise typer.Exit(EXIT_INTERRUPTED) from None


def go_on(store: Path | None) -> str:
    """The message of an interrupted command: how to continue."""
    if store is None:
        return "use --store FILE, so that the next run does not ask answered questions again"
    return f"run the same command to continue: the answers so far are in {store}"


@contextmanager
def collector_at_rest() -> Iterator[None]:
    """Let a process begin and end without the collector; only for one that is ours alone."""
    usual = gc.get_threshold()
    gc.set_threshold(_IMPORTED, *usual[1:])
    try:
        yield
    finally:
        if "duckdb" not in sys.modules:  # its bindings report what the collector has not taken
            gc.freeze()  # the end of the process takes everything
        gc.set_threshold(*usual)


def collector_at_work() -> None:
    """Wake a collector at rest: it looks at what is new, and leaves alone what is imported."""
    young, *older = gc.get_threshold()
    if young == _IMPORTED:
        gc.freeze()
        gc.set_threshold(_AT_WORK, *older)
