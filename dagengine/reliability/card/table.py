"""A judge card on a terminal."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from dagengine.reliability.card.answers import QUESTIONS, answers
from dagengine.reliability.card.values import (
    Contrast,
    Figure,
    JudgeCard,
    MetricCard,
    SettingCard,
    every_setting,
)
from dagengine.reliability.card.words import (
    PER_LABEL,
    corrected_said,
    difference,
    headline,
    interval,
    judges_of,
    node_votes,
    number,
    place,
    title,
    understood,
    visible,
)
from dagengine.terminal import plain

if TYPE_CHECKING:
    from rich.console import Console, RenderableType
    from rich.table import Table
    from rich.text import Text


def print_card(card: JudgeCard, console: Console | None = None) -> None:
    """Print the four answers of every metric and setting first, then the figures behind them."""
    from rich.console import Console
    from rich.text import Text

    out = console or Console()
    out.print(_text(f"{judges_of(card)}: {headline(card)}"))
    for metric, under in every_setting(card):
        out.print(_text(f"\n{place(card, metric, under)}", style="bold"))
        for question, answer in zip(QUESTIONS, answers(under), strict=True):
            style = "yellow" if answer.weak else ""
            out.print(Text.assemble((f"{question} ", "bold"), (plain(str(answer)), style)))
    for metric, under in every_setting(card):
        out.print(_text(f"\nFigures of {place(card, metric, under)}", style="bold"))
        out.print(*_figures(under), sep="\n")
    for metric in card.metrics:
        out.print(*_together(metric), sep="\n")


def _text(text: str, style: str = "") -> Text:
    """Text without characters that a terminal would obey."""
    from rich.text import Text

    return Text(plain(text), style=style)


def _figures(under: SettingCard) -> Iterator[RenderableType]:
    yield _measures(under.again)
    if under.nodes:
        yield _nodes(under)
    if under.people:
        yield _measures(under.people)
    if any(node.people for node in under.nodes):
        yield _nodes_and_people(under)
    yield from (_text(corrected_said(figure)) for figure in under.corrected)
    if under.more:
        yield _text("More measures", style="bold")
        yield _measures(under.more)
    yield from (_text(note, style="dim") for note in under.notes)


def _together(metric: MetricCard) -> Iterator[RenderableType]:
    if metric.across:
        yield _text(f"{metric.metric}: settings together", style="bold")
        yield _measures(metric.across)
    if metric.between:
        yield _text(f"{metric.metric}: settings compared", style="bold")
        yield _contrasts(metric.between)
    if metric.labels:
        yield _text(understood(metric), style="dim")


def print_contrasts(found: Sequence[Contrast], console: Console | None = None) -> None:
    """Print differences, one per line."""
    from rich.console import Console

    (console or Console()).print(_contrasts(found))


def _contrasts(contrasts: Sequence[Contrast]) -> Table:
    table = _grid("measure", "from", "to", "difference", "smallest detectable")
    for contrast in contrasts:
        name = title(contrast.difference)
        table.add_row(
            _text(name),
            _text(contrast.one),
            _text(contrast.other),
            _text(difference(contrast)),
            visible(contrast),
        )
    return table


def _grid(*columns: str) -> Table:
    from rich import box
    from rich.table import Table

    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0))
    for column in columns:
        table.add_column(column, overflow="fold")
    return table


def _measures(measures: Sequence[Figure]) -> Table:
    table = _grid("measure", "value", "95 % interval", "n")
    for measure in measures:
        bounds = f"undefined: {measure.note}" if measure.value is None else interval(measure)
        about = f" ({measure.level})" if measure.name in PER_LABEL else ""
        table.add_row(
            _text(title(measure) + about), number(measure), _text(bounds), str(measure.items)
        )
    return table


def _nodes_and_people(under: SettingCard) -> Table:
    table = _grid("node", "accuracy against people", "95 % interval", "n")
    for node in under.nodes:
        if (figure := node.people) is not None:
            table.add_row(_text(node.node), number(figure), interval(figure), str(figure.items))
    return table


def _nodes(under: SettingCard) -> Table:
    table = _grid(
        "node", "share of the noise", "95 % interval", "flip rate", "score change per flip", "votes"
    )
    for node in under.nodes:
        table.add_row(
            _text(node.node), number(node.share), interval(node.share), number(node.flip_rate),
            number(node.effect), node_votes(node),
        )  # fmt: skip
    return table
