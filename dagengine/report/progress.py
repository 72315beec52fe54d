"""What a terminal shows while a run goes on."""

from __future__ import annotations

import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from dagengine.results import CaseResult, Totals

# How often the numbers change, in seconds: reading them costs next to nothing, drawing more.
_EVERY = 0.25


@contextmanager
def progress_bar(
    total: int | None, show: bool, totals: Callable[[], Totals]
) -> Iterator[Callable[[CaseResult], None]]:
    """A bar on the terminal's error stream; quiet when that is not a terminal.

    `totals` says what was asked and used so far; what is yielded takes every row.
    """
    if not (show and sys.stderr.isatty()):
        yield lambda row: None
        return
    from rich.console import Console

    with bar(total, totals, Console(stderr=True)) as advance:
        yield advance


@contextmanager
def bar(
    total: int | None, totals: Callable[[], Totals], console: Any, every: float = _EVERY
) -> Iterator[Callable[[CaseResult], None]]:
    """The bar itself, on any console; its numbers change `every` so many seconds."""
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )

    columns = (
        MofNCompleteColumn(),
        BarColumn(bar_width=20),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
        TextColumn("{task.fields[news]}", markup=False),
    )
    failures = Counter[str]()
    started = told = time.monotonic()
    with Progress(*columns, console=console, transient=True) as shown:
        task = shown.add_task("", total=total, news="")

        def advance(row: CaseResult) -> None:
            nonlocal told
            failures.update(str(m.failure.kind) for m in row.metrics if m.failure is not None)
            now = time.monotonic()
            if now - told >= every:
                told = now
                shown.update(task, news=news(totals(), now - started, failures))
            shown.update(task, advance=1)

        yield advance


def news(totals: Totals, seconds: float, failures: Counter[str]) -> str:
    """Calls per second, calls under way, the cached share, retries, cost, failures by kind."""
    parts = [f"{totals.calls / max(seconds, 1e-9):.3g} calls/s", f"{totals.in_flight} in flight"]
    if totals.cached:
        parts.append(f"{totals.cached / totals.asked:.0%} from the store")
    if totals.retried:
        parts.append(f"{totals.retried} repeated")
    if totals.cost:
        parts.append(f"${totals.cost:.2f}")
    parts += [f"{count} {kind}" for kind, count in failures.most_common()]
    return ", ".join(parts)
