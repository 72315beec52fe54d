"""A judge card as JSON, as one page of HTML without scripts, on a terminal and as Markdown.

The terminal and Markdown show the same blocks of text.
"""

from __future__ import annotations

import html
import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from pydantic import TypeAdapter, ValidationError

from dagengine.errors import InputError, require_format
from dagengine.reliability.card import sentences
from dagengine.reliability.card.measures import measure_of
from dagengine.reliability.card.recommendation import DEMANDS, MARKS, SIGNS, errors, verdict
from dagengine.reliability.card.sentences import QUESTIONS, answers, detectable_difference
from dagengine.reliability.card.types import (
    FORMAT,
    Contest,
    Contrast,
    Figure,
    JudgeCard,
    MetricCard,
    SettingCard,
    every_setting,
    page_form,
)
from dagengine.results.html_tables import document
from dagengine.system.safe_files import write_whole
from dagengine.system.terminal_text import counted, plain, standard_console, text_if

if TYPE_CHECKING:
    from rich.console import Console, RenderableType


_KEYS = 30  # tags and criteria that are listed
SHOWN = 5
"""Disagreements on the first screen, and settings whose curves are."""


# Rows of the strip plot; the cases with the greatest spread come first.
SHOWN_CASES = 20
_ADAPTER = TypeAdapter(JudgeCard)


# A file, and the page.


def write_card(card: JudgeCard, path: str | Path) -> None:
    """Write a card as JSON; equal cards give equal bytes."""
    write_whole(Path(path), _ADAPTER.dump_json(card, indent=1) + b"\n")


def read_card(path: str | Path) -> JudgeCard:
    """A card from its JSON; raises InputError if it is not valid, or of another format."""
    path = Path(path)
    if not path.is_file():
        raise InputError(f"there is no judge card {path}")
    text = path.read_bytes()
    _require_format(text, path)
    try:
        return _ADAPTER.validate_json(text)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        key_path = ".".join(map(str, first["loc"])) or "the file"
        raise InputError(f"{path} is not a judge card: {key_path}: {first['msg']}") from None


def _require_format(text: bytes, path: Path) -> None:
    try:
        data: Any = json.loads(text)
    except (ValueError, RecursionError):  # the reader of the card says so
        return
    version = data.get("format", FORMAT) if isinstance(data, dict) else FORMAT
    if version == 1:
        raise InputError(
            f"{path} has format 1, which pooled all judges and temperatures and had no outcomes "
            "by case: make the card again (with --store this makes no new calls)"
        )
    require_format(data, FORMAT, str(path))
    if version != FORMAT:
        raise InputError(f"{path} has format {version}, but this version reads format {FORMAT}")


@page_form
def card_page(card: JudgeCard) -> str:
    """The page; equal cards give equal pages."""
    filters = {
        "at": _at,
        "tied": lambda text: text.replace(" %", "\N{NO-BREAK SPACE}%"),
        # Quoted names may be cut off on the page; the title has them whole.
        "clipped": lambda text: re.sub("“([^”]+)”", r'“<b title="\1">\1</b>”', html.escape(text)),
        "counted": counted,
        # The area of a dot grows with its share of the runs.
        "dot": lambda count, of: f"{2.5 + 4.5 * (count / max(of, 1)) ** 0.5:.1f}",
    }
    return document(
        Path(__file__).with_name("card.html"),
        filters,
        card=card,
        words=sentences,
        settings=[
            (metric, under, answers(under), verdict(card, metric, under))
            for metric, under in every_setting(card)
        ],
        signs=SIGNS,
        marks=MARKS,
        demands=DEMANDS,
        errors=errors,
        contest_title=_contest_title,
        contest_table=_contest_table,
        beside_each_other=_beside_each_other,
        contrasts=_contrasts,
        surest=SHOWN,
        shown=SHOWN_CASES,
    )


def _at(value: float | None, measure: Figure | None = None) -> str:
    """Position of a value on its axis, in per cent of the width, with a margin of 2."""
    low = -1.0 if measure is not None and sentences.is_signed(measure) else 0.0
    share = ((value or 0.0) - low) / (1 - low)
    return f"{2 + 96 * min(max(share, 0.0), 1.0):.2f}%"


# Blocks of text.


class Line(NamedTuple):
    """A sentence, after a `lead` in bold; the style is bold for a heading."""

    text: str
    style: str = ""
    lead: str = ""


class Grid(NamedTuple):
    """A table of texts; a terminal has no room for the last `wide` columns."""

    heads: Sequence[str]
    rows: Sequence[Sequence[str]]
    wide: int = 0


Block = Line | Grid


def print_card(card: JudgeCard, console: Console | None = None, *, verbose: bool = False) -> None:
    """Print the verdict of every metric and setting and what it rests on; `verbose`: all figures.

    One metric under one setting takes at most 60 lines.
    """
    out = console or standard_console()
    for block in chain(_first_screen(card, verbose), _all_figures(card) if verbose else ()):
        out.print(_on_terminal(block))


def print_contrasts(found: Sequence[Contrast]) -> None:
    """Print differences, one per line."""
    standard_console().print(_on_terminal(_contrasts(found)))


def markdown(card: JudgeCard) -> str:
    """The verdicts and all figures of a card as Markdown."""
    return "\n".join(map(_in_markdown, _document(card)))


# Two media.


def _on_terminal(block: Block) -> RenderableType:
    """Return a block without characters that a terminal would obey."""
    from rich import box
    from rich.table import Table
    from rich.text import Text

    if isinstance(block, Line):
        parts = ((plain(block.lead), "bold"), (plain(block.text), block.style))
        return Text.assemble(*parts) if block.lead else Text(plain(block.text), style=block.style)
    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0))
    shown = len(block.heads) - block.wide
    for head in block.heads[:shown]:
        table.add_column(head, overflow="fold")
    for row in block.rows:
        table.add_row(*map(Text, map(plain, row[:shown])))
    return table


def _in_markdown(block: Block) -> str:
    if isinstance(block, Line):
        heading = text_if(block.style == "bold", "## ")
        lead = text_if(block.lead, f"**{plain(block.lead.strip())}** ")
        return f"{heading}{lead}{plain(block.text).strip()}".rstrip() + "\n"
    rows = (block.heads, ["---"] * len(block.heads), *block.rows)
    return "".join(f"| {' | '.join(map(_cell, row))} |\n" for row in rows)


def _cell(text: str) -> str:
    return plain(text).replace("|", "\\|").replace("\n", " ")


# What they show.


def _document(card: JudgeCard) -> Iterator[Block]:
    """All that Markdown has of a card."""
    yield Line("# Judge card")
    yield Line(f"Judge: {sentences.judges_of(card)}. {sentences.headline(card)}.")
    for metric, under in every_setting(card):
        made = verdict(card, metric, under)
        yield Line(sentences.place(card, metric, under), "bold")
        yield Line("", lead=str(made))
        yield Line(made.why)
        yield Line(f"Next: {made.step}")
        yield from _contest(under, True)
        if seen := detectable_difference(under):
            yield Line(seen)
    yield from _all_figures(card)
    yield from map(Line, card.rules)
    yield Line(f"Bound to sha256 {card.sha256} (dagengine {card.binding.version}).")


def _first_screen(card: JudgeCard, verbose: bool) -> Iterator[Block]:
    """First screen of a terminal: verdicts, and what the only one rests on."""
    yield Line(f"{sentences.judges_of(card)}: {sentences.headline(card)}")
    unders = list(every_setting(card))
    several = len(unders) > 1
    for metric, under in unders:
        made = verdict(card, metric, under)
        if several:
            yield Line(f"\n{sentences.place(card, metric, under)}", "dim")
        yield Line(text_if(not several, "\n") + str(made), "bold")
        yield Line(f"  {made.why}")
        yield Line(f"  next: {made.step}")
        yield from _contest(under, verbose or len(unders) <= SHOWN)
    if several:
        yield _beside_each_other(card)
        yield Line(sentences.compared_together(card), "dim")
    elif unders:
        yield from _what_it_rests_on(card, *unders[0])


def _contest(under: SettingCard, whole: bool) -> Iterator[Block]:
    """Show what several scores of each candidate buy; the curve only if `whole`."""
    if under.contest is None:
        return
    if whole:
        yield Line(f"\n{_contest_title(under.contest)}", "bold")
        yield _contest_table(under.contest)
    yield from map(Line, sentences.bought(under.contest))
    yield Line(sentences.scores_needed(under.contest))


def _contest_title(contest: Contest) -> str:
    return f"Right in per cent of cases: best of {contest.candidates} by the mean of k scores"


def _contest_table(contest: Contest) -> Grid:
    """A row for each number of scores; the last one is short of nothing."""
    rows: list[Sequence[str]] = []
    for row in contest.curve:
        figures = [row.wrong, row.share, replace(row.ties, low=None, high=None), row.short]
        cells = [sentences.estimate(figure).replace(" %", "") for figure in figures]
        if row.scores == len(contest.curve):
            cells[-1] = ""
        rows.append((str(row.scores), *cells))
    return Grid(("k", "a tie is wrong", "a tie is shared", "ties", "short of all k"), rows)


def _beside_each_other(card: JudgeCard) -> Grid:
    """Metrics and settings beside each other, with one vote."""
    rows: list[Sequence[str]] = []
    for metric, under in every_setting(card):
        cells = [""] * len(DEMANDS)
        if under.voted:
            cells = [
                sentences.bounded_or_unknown(demand.figure(under.voted[0])) for demand in DEMANDS
            ]
        kind = verdict(card, metric, under).kind
        rows.append((sentences.place(card, metric, under), *cells, f"{under.calls:.2g}",
                     f"{SIGNS[kind]} {kind}"))  # fmt: skip
    heads = (demand.title.split()[0] for demand in DEMANDS)
    return Grid(("setting", *heads, "questions per case", "verdict"), rows)


def _what_it_rests_on(card: JudgeCard, metric: MetricCard, under: SettingCard) -> Iterator[Block]:
    """The demands by votes, direction of errors, disagreements, what to label, what n is."""
    for sentence in errors(under):
        yield Line(f"  {sentence}")
    yield _demands(card, metric, under)
    yield from map(Line, map(sentences.segment, under.segments))
    yield from map(Line, sentences.position_biases(metric))
    if under.disagreements:
        yield Line(f"\n{sentences.disagreements_title(under, SHOWN)}", "bold")
        for differs in under.disagreements[:SHOWN]:
            yield Line(f"  {sentences.disagreement(differs)}")
    if under.unlabelled:
        yield Line(sentences.labels_next(card, under))
    for note in (*under.departures, *under.warnings):
        yield Line(note, "yellow")
    yield Line(sentences.what_n_is(card, under), "dim")
    yield Line("All figures: card.html, or --verbose", "dim")


def _demands(card: JudgeCard, metric: MetricCard, under: SettingCard) -> Grid:
    """Every number of votes that was seen, with the state of each demand."""
    heads, made = ["", "scores" if under.contest else "votes"], verdict(card, metric, under)
    for demand in DEMANDS:
        sign = "≤" if demand.most else "≥"
        heads.append(f"{demand.title.split()[0]} (need {sign} {demand.line(card.needs)})")
    rows: list[Sequence[str]] = []
    for voted in under.voted:
        states = (f"{sentences.bounded_or_unknown(demand.figure(voted))} "
                  f"{MARKS[demand.state(voted, card.needs)]}" for demand in DEMANDS)  # fmt: skip
        rows.append((">" * made.chooses(voted), str(voted.votes), *states))
    return Grid(heads, rows)


def _all_figures(card: JudgeCard) -> Iterator[Block]:
    for metric, under in every_setting(card):
        yield Line(f"\n{sentences.place(card, metric, under)}", "bold")
        for question, answer in zip(QUESTIONS, answers(under), strict=True):
            yield Line(str(answer), text_if(answer.weak, "yellow"), f"{question} ")
        yield Line(f"\nFigures of {sentences.place(card, metric, under)}", "bold")
        yield from _figures(under)
    for metric in card.metrics:
        yield from _together(metric)


def _figures(under: SettingCard) -> Iterator[Block]:
    yield _measures(under.again)
    if under.nodes:
        heads = ("share of the noise", "95 % interval", "flip rate", "score change per flip")
        yield Grid(("node", *heads, "votes"), [
            (node.node, sentences.number(node.share), sentences.interval(node.share),
             sentences.number(node.flip_rate), sentences.number(node.effect),
             sentences.votes_of(node.votes)) for node in under.nodes
        ])  # fmt: skip
    if under.keys:
        columns = ("share of the noise", "flip rate", "95 % interval", "agrees", "cases", "")
        yield Grid(("criteria", *columns), [
            (f"{key.kind} {key.key}", sentences.number(key.share), sentences.number(key.flip_rate),
             sentences.interval(key.flip_rate),
             "" if key.people is None else sentences.number(key.people), str(key.cases),
             "noisy" if key.noisy else key.always) for key in under.keys[:_KEYS]
        ])  # fmt: skip
    yield from _by_node("unsupported verdicts", under, "unsupported")
    if under.people:
        yield _measures(under.people)
    yield from _by_node("accuracy against people", under, "people")
    yield from map(Line, map(sentences.corrected_said, under.corrected))
    if under.more:
        yield Line("More measures", "bold")
        yield _measures(under.more)
    for note in under.notes:
        yield Line(note, "dim")


def _together(metric: MetricCard) -> Iterator[Block]:
    if metric.across:
        yield Line(f"{metric.metric}: settings together", "bold")
        yield _measures(metric.across)
    if metric.between:
        yield Line(f"{metric.metric}: settings compared", "bold")
        yield _contrasts(metric.between)
    if metric.labels:
        yield Line(sentences.understood(metric), "dim")


def _contrasts(contrasts: Sequence[Contrast]) -> Grid:
    rows = [(sentences.title(contrast.difference), contrast.one, contrast.other,
             sentences.difference(contrast), sentences.visible(contrast))
            for contrast in contrasts]  # fmt: skip
    return Grid(("measure", "from", "to", "difference", "smallest detectable"), rows)


def _measures(measures: Sequence[Figure]) -> Grid:
    rows: list[Sequence[str]] = []
    for measure in measures:
        bounds = (
            f"undefined: {measure.note}" if measure.value is None else sentences.interval(measure)
        )
        about = text_if(measure_of(measure.name).per_label, f" ({measure.level})")
        name, count = sentences.title(measure) + about, str(measure.items)
        rows.append((name, sentences.number(measure), bounds, count, measure.level))
    return Grid(("measure", "value", "95 % interval", "n", "level"), rows, wide=1)


def _by_node(name: str, under: SettingCard, figure: str) -> Iterator[Grid]:
    """A figure of the nodes that have it."""
    rows = [(node.node, sentences.number(measure), sentences.interval(measure), str(measure.items))
            for node in under.nodes if (measure := getattr(node, figure)) is not None]  # fmt: skip
    if rows:
        yield Grid(("node", name, "95 % interval", "n"), rows)
