"""A judge card on a terminal."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from dagengine.reliability.card.conditions import Difference
from dagengine.reliability.card.values import Figure, JudgeCard, MetricCard
from dagengine.reliability.card.words import (
    QUESTIONS,
    answers,
    headline,
    interval,
    number,
    title,
    votes_of,
)
from dagengine.report.terminal import plain

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table


def print_card(card: JudgeCard, console: Console | None = None) -> None:
    """Print the answers to the four questions, metric by metric."""
    from rich.console import Console
    from rich.text import Text

    out = console or Console()
    out.print(Text(plain(f"{' and '.join(card.binding.judges)}: {headline(card)}")))
    for metric in card.metrics:
        out.print()
        out.print(Text(plain(metric.metric), style="bold"))
        again, blame, price, people = answers(metric)
        for question, answer, table in (
            (QUESTIONS[0], again, _measures(metric.again)),
            (QUESTIONS[1], blame, _nodes(metric)),
            (QUESTIONS[2], price, None),
            (QUESTIONS[3], people, _measures(metric.people)),
        ):
            out.print(Text.assemble((f"{question} ", "bold"), plain(answer)))
            if table is not None and table.row_count:
                out.print(table)
        if metric.more:
            out.print(Text("More measures", style="bold"))
            out.print(_measures(metric.more))
        for note in metric.notes:
            out.print(Text(plain(note), style="dim"))


def print_differences(found: Sequence[Difference], console: Console | None = None) -> None:
    """Print measures of two cards side by side; those that are surely apart are marked."""
    from rich.console import Console
    from rich.text import Text

    table = _grid("metric", "measure", "before", "", "after", "", "")
    for one in found:
        shown = one.new or one.old
        assert shown is not None
        name = f"{one.node}: {title(shown)}" if one.node else title(shown)
        mark = "apart" if one.apart else ""
        names = Text(plain(one.metric)), Text(plain(name))
        table.add_row(*names, *_cells(one.old), *_cells(one.new), mark)
    (console or Console()).print(table)


def _cells(measure: Figure | None) -> tuple[str, str]:
    return ("", "") if measure is None else (number(measure), interval(measure))


def _grid(*columns: str) -> Table:
    from rich import box
    from rich.table import Table

    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0))
    for column in columns:
        table.add_column(column, overflow="fold")
    return table


def _measures(measures: Sequence[Figure]) -> Table:
    from rich.text import Text

    table = _grid("measure", "value", "95 % interval", "n")
    for one in measures:
        bounds = f"undefined: {one.note}" if one.value is None else interval(one)
        table.add_row(Text(plain(title(one))), number(one), Text(plain(bounds)), str(one.items))
    return table


def _nodes(metric: MetricCard) -> Table:
    from rich.text import Text

    table = _grid("node", "of the noise", "95 % interval", "flips", "a flip moves", "votes")
    for node in metric.nodes:
        table.add_row(
            Text(plain(node.node)), number(node.share), interval(node.share),
            number(node.flip_rate), number(node.effect), votes_of(node),
        )  # fmt: skip
    return table
