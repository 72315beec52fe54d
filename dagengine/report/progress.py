"""The progress of a run: a bar on a terminal, otherwise a line every minute.

How long a run will still take is told from the questions that the plan leaves.
"""

from __future__ import annotations

import importlib.util
import sys
import threading
import time
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from itertools import chain, repeat
from typing import Any, NamedTuple, Protocol

from dagengine.compiler.execution_plan import Plan
from dagengine.results import CaseResult, Totals, Waiting
from dagengine.system.terminal_text import counted, text_if

# Seconds between two looks at the numbers: on a terminal or in a notebook, and in a log.
_SHOWN, _LOGGED = 0.25, 60.0
_WIDTH = 20  # of the bar
# A slot may make live what stands before it in the plan; a few rounds are near enough.
_ROUNDS = 3
# Seconds over which the speed of a run is taken, and at least so many answers: of a slow judge four
# may come at the same time every two minutes.
_WINDOW, _ANSWERS = 30.0, 20


class Watched(Protocol):
    """A run that is looked at."""

    @property
    def plan(self) -> Plan: ...

    @property
    def totals(self) -> Totals: ...

    @property
    def waiting(self) -> Sequence[Waiting]: ...


class Progress:
    """What is known of a run while it continues: `add` takes every case that is finished."""

    def __init__(self, run: Watched, total: int | None) -> None:
        self.run = run
        self.total = total
        self.finished = 0
        self._failures = Counter[str]()
        self._began = time.monotonic()
        self._remaining = Remaining(total, likely_questions(run.plan))

    def add(self, row: CaseResult) -> None:
        """Take a finished case, even if its row cannot be handed out yet."""
        self.finished += 1
        self._failures.update(str(m.failure.kind) for m in row.metrics if m.failure is not None)
        self._remaining.add(row)

    @property
    def seconds(self) -> float:
        """Seconds since the run began."""
        return time.monotonic() - self._began

    def counts(self) -> str:
        """Finished cases, the time so far and the time that is left."""
        seconds, left = self.seconds, None
        self._remaining.see(seconds, self.run.totals)
        if self.finished != self.total:
            waits = (wait.seconds for wait in self.run.waiting)
            left = self._remaining.at(seconds, self.run.totals, max(waits, default=0.0))
        of_all = "" if self.total is None else f"/{self.total:,}"
        about = "" if left is None else f", about {duration(left)} left"
        return f"{self.finished:,}{of_all} cases, {duration(seconds)}{about}"

    def news(self) -> str:
        """Counts of questions, and problems."""
        seconds = self.seconds
        tokens = self._remaining.tokens(seconds)
        return news(self.run.totals, seconds, self._failures, self.run.waiting, tokens)


@contextmanager
def progress_bar(
    run: Watched, total: int | None, show: bool
) -> Iterator[Callable[[CaseResult], None]]:
    """Show the progress of a run; yields a function that takes every finished case.

    A bar on a terminal and in a notebook; otherwise (a log), a line every minute.
    """
    if not show:
        yield lambda row: None
        return
    progress = Progress(run, total)
    if sys.stderr.isatty() or (_in_notebook() and importlib.util.find_spec("ipywidgets")):
        from rich.console import Console

        with bar(progress, Console(stderr=True)):
            yield progress.add
        return
    line, every = "dagengine: {counts}; {news}\n", _LOGGED
    # A notebook shows a stream as it comes, so a line is written over; a log keeps every line.
    if _in_notebook():
        line, every = "\r{counts}; {news}\x1b[K", _SHOWN * 4
    with _lines(progress, line, every):
        yield progress.add


def _in_notebook() -> bool:
    """Return whether this is the kernel of a notebook, whose streams are shown as they come."""
    kernel: Any = sys.modules.get("ipykernel.kernelapp")
    return kernel is not None and kernel.IPKernelApp.initialized()


@contextmanager
def bar(progress: Progress, console: Any) -> Iterator[None]:
    """The bar itself, on any console."""
    from rich.live import Live

    shown, rate = partial(_drawing, progress), 1 / _SHOWN
    live = Live(get_renderable=shown, console=console, refresh_per_second=rate, transient=True)
    with live:
        live.refresh()
        yield


def _drawing(progress: Progress) -> Any:
    from rich.console import Group
    from rich.progress_bar import ProgressBar
    from rich.table import Table
    from rich.text import Text

    above = Table.grid(padding=(0, 1))
    drawn = ProgressBar(progress.total, progress.finished, _WIDTH, pulse=progress.total is None)
    above.add_row(drawn, Text(progress.counts(), no_wrap=True, overflow="ellipsis"))
    return Group(above, Text(progress.news(), style="dim"))


@contextmanager
def _lines(progress: Progress, line: str, every: float) -> Iterator[None]:
    """Write a line `every` so many seconds, from a thread: nothing may come for hours."""
    over = threading.Event()

    def write() -> None:
        while not over.wait(every):
            text = line.format(counts=progress.counts(), news=progress.news())
            print(text, end="", file=sys.stderr, flush=True)

    writing = threading.Thread(target=write, name="dagengine progress", daemon=True)
    writing.start()
    try:
        yield
    finally:
        over.set()
        writing.join()
        if line.startswith("\r"):
            print("\r\x1b[K", end="", file=sys.stderr, flush=True)


def news(
    totals: Totals,
    seconds: float,
    failures: Counter[str],
    waiting: Sequence[Waiting] = (),
    tokens: float | None = None,
) -> str:
    """Calls, their rate and those in progress, the cached share, cost, waits, failures by kind.

    `tokens` are those of answers per second, if they are known.
    """
    calls, rate = totals.calls, totals.calls / max(seconds, 1e-9)
    parts = [f"{counted(calls, 'call')}, {rate:.3g}/s", f"{totals.in_flight} at a time"]
    if tokens:
        parts.append(f"{tokens:,.0f} tokens/s" if tokens >= 10 else f"{tokens:.2g} tokens/s")
    if totals.cached:
        parts.append(f"{totals.cached / totals.asked:.0%} from the store")
    if totals.retried:
        parts.append(f"{totals.retried:,} retried")
    if totals.cost:
        parts.append(f"${totals.cost:.2f}")
    parts += [wait_words(wait) for wait in waiting if wait.silent is None]
    parts += [f"{count:,} {kind}" for kind, count in failures.most_common()]
    parts += [wait_words(wait) for wait in waiting if wait.silent is not None]
    return ", ".join(parts)


def wait_words(waiting: Waiting) -> str:
    """Reasons why questions wait: the next call after an error, or an answer that does not come."""
    if waiting.silent is not None:
        answers = counted(waiting.count, "answer")
        return f"waiting for {answers} since {duration(waiting.silent)} ({waiting.why})"
    count = f"{waiting.count:,} wait{text_if(waiting.count == 1, 's')}"
    soon = "now" if waiting.seconds < 0.05 else f"in {duration(waiting.seconds)}"
    return f"{count} ({waiting.why}, next {soon})"


def duration(seconds: float) -> str:
    """A length of time for people: `0.4 s`, `12 s`, `3 min 20 s`, `2 h 05 min`."""
    if seconds < 0.95:
        return f"{seconds:.1f} s"
    whole = round(seconds)
    minutes, rest = divmod(whole, 60)
    if minutes < 1:
        return f"{rest} s"
    if minutes < 10 and rest:
        return f"{minutes} min {rest:02} s"
    return f"{minutes} min" if minutes < 60 else f"{minutes // 60} h {minutes % 60:02} min"


def likely_questions(plan: Plan) -> float:
    """About how many questions a case asks, every verdict being equally likely.

    A node counts as one question, however long its list may be: rows soon tell.
    """
    chances = before = [0.0] * len(plan.slots)
    for _ in range(_ROUNDS):
        chances, before = before, [0.0] * len(plan.slots)
        for slot in plan.slots:
            own = chances[slot.index] = min(1.0, chances[slot.index] + slot.root)
            share = own / max(1, len(slot.branches))
            targets = zip(chain.from_iterable(slot.branches.values()), repeat(share), strict=False)
            for target, chance in chain(targets, zip(slot.activates, repeat(own), strict=False)):
                (chances if target > slot.index else before)[target] += chance
    units = defaultdict[int, float](float)
    for slot in plan.slots:
        units[slot.unit] = max(units[slot.unit], chances[slot.index])
    return sum(units[unit.index] for unit in plan.units if unit.node.asks and not unit.constant)


def questions_of(row: CaseResult) -> int:
    """Number of questions answered for a row; metrics that share a node share its answers."""
    steps = {(step.node, step.answers) for metric in row.metrics for step in metric.steps}
    return sum(len(answers) for _, answers in steps)


class _Seen(NamedTuple):
    """What was answered after some seconds: questions, and tokens of answers."""

    at: float
    done: int
    tokens: int


class Remaining:
    """The seconds that a run will still take.

    `add` takes finished rows, `at` the counts at some moment. Before there are rows the plan
    says how many questions a case asks, afterwards it counts as one row more.
    """

    def __init__(self, total: int | None, per_case: float) -> None:
        """`total` cases (None: not known); each is likely to ask `per_case` questions."""
        self._total = total
        self._asked = per_case
        self._rows = 1
        self._seen: deque[_Seen] = deque()

    def add(self, row: CaseResult) -> None:
        """Take a finished row."""
        self._asked += questions_of(row)
        self._rows += 1

    def at(self, seconds: float, totals: Totals, least: float = 0.0) -> float | None:
        """The seconds left after so many, `least` or more; None as long as there is no telling."""
        self.see(seconds, totals)
        pace = self._pace(seconds)
        if self._total is None or pace is None:
            return None
        left = max(0.0, self._asked / self._rows * self._total - answer_count(totals))
        return max(least, left / pace[0])

    def see(self, seconds: float, totals: Totals) -> None:
        """Take note of the counts after so many seconds."""
        seen = self._seen
        done = answer_count(totals)
        # Nothing new: the moment of the last answer stays, so that a judge that stopped shows as a
        # gap.
        if seen and seen[-1].done == done:
            return
        seen.append(_Seen(seconds, done, totals.usage.output_tokens))
        while len(seen) > 2 and seen[1].at < seconds - _WINDOW and seen[1].done + _ANSWERS <= done:
            seen.popleft()

    def tokens(self, seconds: float) -> float | None:
        """Tokens of answers per second, as servers count them; None if nobody says."""
        _, tokens = self._pace(seconds) or (0.0, 0.0)
        return tokens or None

    def _pace(self, seconds: float) -> tuple[float, float] | None:
        """Answers and tokens per second; None before the first, and when none came for long."""
        if len(self._seen) < 2:
            return None
        first, last = self._seen[0], self._seen[-1]
        took = last.at - first.at
        if not took or seconds - last.at >= max(_WINDOW, 2 * took / (len(self._seen) - 1)):
            return None
        return (last.done - first.done) / took, (last.tokens - first.tokens) / took


def answer_count(totals: Totals) -> int:
    """The questions that have their answer, wherever it came from."""
    calls = totals.calls - totals.failed - totals.in_flight
    return totals.shared + totals.cached + calls
