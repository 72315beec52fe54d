"""What a terminal shows: a progress bar while a run goes on, a table when it is over."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from dagengine.results import CaseResult, EvaluationResult, MetricResult, Totals

# Rows of a data set printed one by one; more are summed up.
_ROWS = 60
_MESSAGES = 5


@contextmanager
def progress_bar(total: int | None, show: bool) -> Iterator[Callable[[CaseResult], None]]:
    """A bar on the terminal's error stream; quiet when that is not a terminal."""
    if not (show and sys.stderr.isatty()):
        yield lambda row: None
        return
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )

    columns = (
        TextColumn("judging"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[failed]} failed"),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
    )
    failed = 0
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("", total=total, failed=0)

        def advance(row: CaseResult) -> None:
            nonlocal failed
            failed += any(metric.failure is not None for metric in row.metrics)
            bar.update(task, advance=1, failed=failed)

        yield advance


def print_table(result: EvaluationResult, console: Any = None) -> None:
    """Print one line per case and metric, a summary per metric, and what the run cost."""
    from rich.console import Console

    out = console or Console()
    if 0 < len(result.rows) <= _ROWS:
        out.print(_case_table(result.rows))
    out.print(_summary_table(result.rows))
    for line in _failure_lines(result.rows):
        out.print(line, highlight=False, markup=False)
    out.print(cost_line(result.totals), highlight=False)


def _case_table(rows: Sequence[CaseResult]) -> Any:
    from rich.table import Table
    from rich.text import Text

    table = Table(title="Results", title_justify="left")
    table.add_column("#", justify="right", no_wrap=True)
    table.add_column("case", overflow="fold", max_width=32)
    several = any(len(row.metrics) > 1 for row in rows)
    if several:
        table.add_column("metric", overflow="fold", max_width=24)
    table.add_column("score", justify="right", no_wrap=True)
    table.add_column("passed", no_wrap=True)
    table.add_column("path or problem", overflow="fold", ratio=1)
    for row in rows:
        for metric in row.metrics:
            name = [Text(metric.metric)] if several else []
            table.add_row(str(row.index), Text(_short(row.case, 200)), *name, *_cells(metric))
    return table


def _cells(metric: MetricResult) -> list[Any]:
    from rich.text import Text

    if metric.failure is not None:
        text = f"{metric.failure.kind} at {metric.failure.node}: {metric.failure.message}"
        return [Text("-"), Text("error", style="yellow"), Text(_short(text, 200))]
    verdict = {True: ("pass", "green"), False: ("fail", "red"), None: ("", "")}[metric.success]
    path = ", ".join(f"{node}: {chosen}" for node, chosen in metric.path)
    text = path or (metric.reason or "")
    return [
        Text(f"{metric.score:.3f}"),
        Text(verdict[0], style=verdict[1]),
        Text(_short(text, 200)),
    ]


def _short(text: str, width: int) -> str:
    """One line without control characters, which a terminal would obey."""
    line = " ".join("".join(c if c.isprintable() else " " for c in text).split())
    return line if len(line) <= width else line[: width - 1] + "…"


def _summary_table(rows: Sequence[CaseResult]) -> Any:
    from rich.table import Table
    from rich.text import Text

    table = Table(title="Summary", title_justify="left")
    for name in ("metric", "cases", "mean score", "passed", "failed", "no score"):
        table.add_column(name, justify="left" if name == "metric" else "right")
    names = dict.fromkeys(metric.metric for row in rows for metric in row.metrics)
    for name in names:
        found = [m for row in rows for m in row.metrics if m.metric == name]
        scores = [m.score for m in found if m.score is not None]
        mean = f"{sum(scores) / len(scores):.3f}" if scores else "-"
        kinds = Counter(str(m.failure.kind) for m in found if m.failure)
        missing = ", ".join(f"{count} {kind}" for kind, count in sorted(kinds.items())) or "0"
        passed = sum(m.success is True for m in found)
        failed = sum(m.success is False for m in found)
        table.add_row(Text(name), str(len(found)), mean, str(passed), str(failed), missing)
    return table


def _failure_lines(rows: Sequence[CaseResult]) -> list[str]:
    """The commonest failures in words, since a long run has no line per case."""
    first: dict[str, str] = {}
    counts: Counter[str] = Counter()
    for row in rows:
        for metric in row.metrics:
            if metric.failure is not None:
                text = f"{metric.failure.kind} at {metric.failure.node}: {metric.failure.message}"
                counts[text] += 1
                first.setdefault(text, row.case)
    if len(rows) <= _ROWS:
        return []
    return [
        f"{count}x {_short(text, 300)} (first: {first[text]})"
        for text, count in counts.most_common(_MESSAGES)
    ]


def cost_line(totals: Totals) -> str:
    """What a run asked and used, in one line."""
    parts = [f"{totals.asked} questions", f"{totals.calls} judge calls"]
    if totals.shared:
        parts.append(f"{totals.shared} shared with an equal question")
    if totals.retried:
        parts.append(f"{totals.retried} repeated")
    if totals.failed:
        parts.append(f"{totals.failed} failed")
    tokens = totals.usage.input_tokens + totals.usage.output_tokens
    if tokens:
        parts.append(f"{tokens:,} tokens")
    if totals.cost:
        parts.append(f"about ${totals.cost:.4f}")
    return ", ".join(parts)


def print_steps(result: MetricResult, console: Any = None) -> None:
    """Print what every node of one metric said for one case (verbose mode)."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(title=f"{result.metric}: {_headline(result)}", title_justify="left")
    for name in ("node", "kind", "answer", "reason"):
        table.add_column(name, overflow="fold")
    for step in result.steps:
        shown: Any = step.verdict if step.verdict is not None else step.output
        if step.score is not None:
            shown = f"{step.score:.4g} ({step.mode})" if step.mode else f"{step.score:.4g}"
        table.add_row(*(Text(str(x or "")) for x in (step.node, step.kind, shown, step.reason)))
    (console or Console()).print(table)


def _headline(result: MetricResult) -> str:
    if result.failure is not None:
        return f"{result.failure.kind} at {result.failure.node}: {result.failure.message}"
    return f"score {result.score:.4g}"
