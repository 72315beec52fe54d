"""A judge card on a terminal."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from operator import attrgetter
from typing import TYPE_CHECKING

from dagengine.reliability.card.answers import QUESTIONS, answers
from dagengine.reliability.card.values import (
    Contrast,
    Figure,
    JudgeCard,
    MetricCard,
    NodeCard,
    SettingCard,
    every_setting,
)
from dagengine.reliability.card.verdict import DEMANDS, MARKS, SIGNS, Verdict, errors, verdict
from dagengine.reliability.card.words import (
    CONTEST_HEADS,
    bought,
    bounded_or_unknown,
    compared_together,
    contest_rows,
    contest_title,
    corrected_said,
    difference,
    disagreement,
    headline,
    interval,
    judges_of,
    node_votes,
    number,
    place,
    position_biases,
    scores_needed,
    segment,
    title,
    understood,
    visible,
    what_n_is,
)
from dagengine.reliability.statistics.measures import measure_of
from dagengine.terminal import counted, plain, standard_console

if TYPE_CHECKING:
    from rich.console import Console, RenderableType
    from rich.table import Table
    from rich.text import Text


_KEYS = 30  # tags and criteria that are listed
SHOWN = 5
"""Disagreements on the first screen, and settings whose curves are."""


def print_card(card: JudgeCard, console: Console | None = None, *, verbose: bool = False) -> None:
    """Print the verdict of every metric and setting and what it rests on; `verbose`: all figures.

    One metric under one setting takes at most 60 lines.
    """
    from rich.text import Text

    out = console or standard_console()
    out.print(_text(f"{judges_of(card)}: {headline(card)}"))
    unders = list(every_setting(card))
    for metric, under in unders:
        made = verdict(card, metric, under)
        if len(unders) > 1:
            out.print(_text(f"\n{place(card, metric, under)}", style="dim"))
        out.print(_text(f"{'' if len(unders) > 1 else chr(10)}{made}", style="bold"))
        out.print(_text(f"  {made.why}"))
        out.print(_text(f"  next: {made.step}"))
        if under.contest is not None:
            out.print(*_contest(under, verbose or len(unders) <= SHOWN), sep="\n")
    if len(unders) > 1:
        out.print(_comparison_lines(card))
        out.print(_text(compared_together(card), style="dim"))
    else:
        metric, under = unders[0]
        made = verdict(card, metric, under)
        for sentence in errors(under):
            out.print(_text(f"  {sentence}"))
        out.print(_demands(card, made, under))
        out.print(*_below(card, metric, under), sep="\n")
    for metric, under in unders if verbose else ():
        out.print(_text(f"\n{place(card, metric, under)}", style="bold"))
        for question, answer in zip(QUESTIONS, answers(under), strict=True):
            style = "yellow" if answer.weak else ""
            out.print(Text.assemble((f"{question} ", "bold"), (plain(str(answer)), style)))
        out.print(_text(f"\nFigures of {place(card, metric, under)}", style="bold"))
        out.print(*_figures(under), sep="\n")
    for metric in card.metrics if verbose else ():
        out.print(*_together(metric), sep="\n")


def _contest(under: SettingCard, whole: bool) -> Iterator[RenderableType]:
    """Show what several scores of each candidate buy; the curve only if `whole`."""
    assert under.contest is not None
    if whole:
        yield _text(f"\n{contest_title(under)}", style="bold")
        table = _grid(*CONTEST_HEADS)
        for cells in contest_rows(under.contest):
            table.add_row(*map(_text, cells))
        yield table
    yield from map(_text, bought(under.contest))
    yield _text(scores_needed(under.contest))


def _demands(card: JudgeCard, made: Verdict, under: SettingCard) -> Table:
    """Every number of votes that was seen, with the state of each demand."""
    needs = card.needs
    heads = (f"{demand.title.split()[0]} (need {'≤' if demand.most else '≥'} {demand.line(needs)})"
             for demand in DEMANDS)  # fmt: skip
    table = _grid("", "scores" if under.contest else "votes", *heads)
    for voted in under.voted:
        cells = [f"{bounded_or_unknown(demand.figure(voted))} {MARKS[demand.state(voted, needs)]}"
                 for demand in DEMANDS]  # fmt: skip
        chosen = voted.votes == made.votes and made.kind in ("use", "use_with")
        table.add_row(">" if chosen else "", str(voted.votes), *map(_text, cells))
    return table


def _comparison_lines(card: JudgeCard) -> Table:
    """Metrics and settings beside each other, with one vote."""
    heads = (demand.title.split()[0] for demand in DEMANDS)
    table = _grid("setting", *heads, "questions per case", "verdict")
    for metric, under in every_setting(card):
        first = under.voted[0] if under.voted else None
        cells = [bounded_or_unknown(demand.figure(first)) if first else "" for demand in DEMANDS]
        made = verdict(card, metric, under)
        table.add_row(_text(place(card, metric, under)), *map(_text, cells),
                      f"{under.calls:.2g}", _text(f"{SIGNS[made.kind]} {made.kind}"))  # fmt: skip
    return table


def _below(card: JudgeCard, metric: MetricCard, under: SettingCard) -> Iterator[RenderableType]:
    """Direction of its errors, where people and judge differ, what to label, what n is."""
    for part in under.segments:
        yield _text(segment(part))
    for bias in position_biases(metric):
        yield _text(bias)
    if under.disagreements:
        count = len(under.disagreements)
        most = f"; the {SHOWN} surest" if count > SHOWN else ""
        yield _text(f"\nPeople and the judge disagree on {counted(count, 'case')}{most}",
                    style="bold")  # fmt: skip
        for differs in under.disagreements[:SHOWN]:
            yield _text(f"  {disagreement(differs)}")
    if names := [card.cases[number].name for number in under.unlabelled]:
        yield _text(f"Label next: {', '.join(names)} (the first five drawn at random)")
    yield from (_text(note, style="yellow") for note in (*under.departures, *under.warnings))
    yield _text(what_n_is(card, under), style="dim")
    yield _text("All figures: card.html, or --verbose", style="dim")


def _text(text: str, style: str = "") -> Text:
    """Text without characters that a terminal would obey."""
    from rich.text import Text

    return Text(plain(text), style=style)


def _figures(under: SettingCard) -> Iterator[RenderableType]:
    yield _measures(under.again)
    if under.nodes:
        heads = ("share of the noise", "95 % interval", "flip rate", "score change per flip")
        table = _grid("node", *heads, "votes")
        for node in under.nodes:
            table.add_row(
                _text(node.node), number(node.share), interval(node.share), number(node.flip_rate),
                number(node.effect), node_votes(node),
            )  # fmt: skip
        yield table
    if under.keys:
        columns = ("share of the noise", "flip rate", "95 % interval", "agrees", "cases", "")
        table = _grid("criteria", *columns)
        for key in under.keys[:_KEYS]:
            people = "" if key.people is None else number(key.people)
            table.add_row(
                _text(f"{key.kind} {key.key}"), number(key.share), number(key.flip_rate),
                interval(key.flip_rate), people, str(key.cases),
                _text("noisy" if key.noisy else key.always),
            )  # fmt: skip
        yield table
    if any(node.unsupported for node in under.nodes):
        yield _by_node("unsupported verdicts", under, attrgetter("unsupported"))
    if under.people:
        yield _measures(under.people)
    if any(node.people for node in under.nodes):
        yield _by_node("accuracy against people", under, attrgetter("people"))
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

    (console or standard_console()).print(_contrasts(found))


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
        about = f" ({measure.level})" if measure_of(measure.name).per_label else ""
        table.add_row(
            _text(title(measure) + about), number(measure), _text(bounds), str(measure.items)
        )
    return table


def _by_node(
    name: str, under: SettingCard, figure_of: Callable[[NodeCard], Figure | None]
) -> Table:
    table = _grid("node", name, "95 % interval", "n")
    for node in under.nodes:
        if (figure := figure_of(node)) is not None:
            table.add_row(_text(node.node), number(figure), interval(figure), str(figure.items))
    return table
