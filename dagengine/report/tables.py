"""What a terminal shows when a run is over: a table, a summary, and what it cost."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from dagengine.prompts.evidence import as_text
from dagengine.report.tally import Tally
from dagengine.report.terminal import one_line, plain
from dagengine.results import CaseResult, MetricResult, Step, Totals

_MESSAGES = 5
_NAME = 200  # characters of a name or a cell


def print_table(tally: Tally, totals: Totals, console: Any = None) -> None:
    """Print one line per case and metric, a summary per metric, and what the run cost."""
    from rich.console import Console

    out = console or Console()
    short = tally.rows == len(tally.head)
    if tally.head and short:
        out.print(_case_table(tally.head))
    out.print(_summary_table(tally))
    for line in () if short else _failure_lines(tally):
        out.print(line, highlight=False, markup=False)
    out.print(cost_line(totals), highlight=False)


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
            name = [Text(one_line(metric.metric, _NAME))] if several else []
            table.add_row(str(row.index), Text(one_line(row.case, _NAME)), *name, *_cells(metric))
    return table


def _cells(metric: MetricResult) -> list[Any]:
    from rich.text import Text

    if metric.failure is not None:
        text = str(metric.failure)
        return [Text("-"), Text("error", style="yellow"), Text(one_line(text, _NAME))]
    verdict = {True: ("pass", "green"), False: ("fail", "red"), None: ("", "")}[metric.success]
    path = ", ".join(f"{node}: {chosen}" for node, chosen in metric.path)
    text = path or (metric.reason or "")
    return [
        Text(f"{metric.score:.3f}"),
        Text(verdict[0], style=verdict[1]),
        Text(one_line(text, _NAME)),
    ]


def _summary_table(tally: Tally) -> Any:
    from rich.table import Table
    from rich.text import Text

    table = Table(title="Summary", title_justify="left")
    for name in ("metric", "cases", "mean score", "passed", "failed", "no score"):
        table.add_column(name, justify="left" if name == "metric" else "right")
    for name, found in tally.metrics.items():
        mean = "-" if found.mean is None else f"{found.mean:.3f}"
        kinds = sorted((str(kind), count) for kind, count in found.kinds.items())
        missing = ", ".join(f"{count} {kind}" for kind, count in kinds) or "0"
        counts = (str(found.passed), str(found.failed))
        table.add_row(Text(one_line(name, _NAME)), str(found.cases), mean, *counts, missing)
    return table


def _failure_lines(tally: Tally) -> list[str]:
    """The commonest failures in words, since a long run has no line per case."""
    return [
        f"{count}x {one_line(text, 300)} (first: {one_line(tally.first[text], _NAME)})"
        for text, count in tally.messages.most_common(_MESSAGES)
    ]


def cost_line(totals: Totals) -> str:
    """What a run asked and used, in one line."""
    parts = [f"{totals.asked} questions", f"{totals.calls} judge calls"]
    if totals.cached:
        parts.append(f"{totals.cached} from the store ({totals.cached / totals.asked:.0%})")
    if totals.damaged:
        parts.append(f"{totals.damaged} damaged in the store and asked anew")
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
    """Print what every node of one metric said for one case, to be audited (verbose mode)."""
    from rich.console import Console
    from rich.padding import Padding
    from rich.text import Text

    out = console or Console()
    out.print(Text(plain(f"{result.metric}: {_headline(result)}"), style="bold"))
    for step in result.steps:
        out.print(Text.assemble(f"● {plain(step.node)} ", (f"({plain(step.kind)})", "dim")))
        for line in _said(step):
            out.print(Padding(Text(plain(line)), (0, 0, 0, 4), expand=False))


def _said(step: Step) -> list[str]:
    """What a step said, as numbered items where it is a list."""
    if step.outcome != "ok":
        return [f"{step.outcome}: {step.reason or 'no reason given'}"]
    if step.verdict is not None or step.score is not None:
        score = "" if step.score is None else f"{step.score:.4g}"
        shown = score if step.verdict is None else str(step.verdict)
        mode = f" ({step.mode})" if step.mode else ""
        return [f"{shown}{mode}", *(step.reason or "").splitlines()]
    found = step.output
    if isinstance(found, dict) and len(found) == 1:
        (found,) = found.values()
    if isinstance(found, list):
        return [f"{place}. {_plain(item)}" for place, item in enumerate(found, 1)]
    return [] if found is None else _plain(found).splitlines()


def _plain(value: Any) -> str:
    """Data as a person reads it: a verdict with its reason, fields by name."""
    if isinstance(value, dict) and set(value) == {"verdict", "reason"}:
        return f"{value['verdict']}: {value['reason']}"
    if isinstance(value, dict):
        return ", ".join(f"{name}: {_plain(part)}" for name, part in value.items())
    if isinstance(value, list):
        return "; ".join(_plain(part) for part in value)
    return as_text(value)


def _headline(result: MetricResult) -> str:
    if result.failure is not None:
        return str(result.failure)
    passed = {True: ", passed", False: ", not passed", None: ""}[result.success]
    asked = "" if result.threshold is None else f", threshold {result.threshold:.4g}"
    return f"score {result.score:.4g}{asked}{passed}"
