"""An attack card for readers: the screen of a terminal, one page of HTML, JSON."""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from dagengine.attacking.attack_card import AttackCard, Cell, Defence, Fall, Place, Share
from dagengine.attacking.defences import BOTH, OTHER_JUDGE
from dagengine.results.html_tables import document
from dagengine.system.safe_files import write_whole
from dagengine.system.terminal_text import counted, few, one_line, plain, wrap_lines

SIGNS = {"falls": "✕", "holds": "○", "empty": "⊘"}
NOT_SHOWN = (
    "Without ✕: not shown to do more than its twin. That is not “safe”: up to the end of the "
    "interval is possible."
)
WHOLE = "whole metric"
_ROWS = 30  # of families on a terminal
_NODES = 2  # beside the whole metric: as many as fit
_WIDTH = 80
_LINES = 58  # and the command names the files


def per_cent(share: Share) -> str:
    """So many of 100, with the interval; a dash without cases."""
    if share.value is None:
        return "–"  # noqa: RUF001 - a dash for nothing
    value = f"{100 * share.value:.0f}"
    if share.low is None or share.high is None:
        return value
    return f"{value} ({100 * share.low:.0f}-{100 * share.high:.0f})"


def where(place: Place) -> str:
    """Name the places of an attack."""
    if not place.position:
        return f"in the place of `{place.field}`"
    return f"at the {place.position} of `{place.field}`"


def _short(name: str) -> str:
    return one_line(name, 40)


def headline(card: AttackCard) -> str:
    """Say which nodes fall, to which attack, and the defence."""
    if card.sign == "empty":
        return "No case is known to fail when clean: there is nothing to turn"
    if card.sign == "holds":
        ends = [cell.attacked.high for cell in card.cells if not cell.node and cell.attacked.high]
        most = f"up to {100 * max(ends):.0f} of 100 is possible" if ends else "too few cases"
        return f"No attack is proven to work, which is not “safe”: {most}"
    nodes: dict[str, dict[str, None]] = {}
    for cell in [cell for cell in card.red if cell.node] or card.red:
        nodes.setdefault(cell.node or cell.metric, {})[_short(cell.family)] = None
    parts = [f"{_short(node)} falls to {few([*names], 3)}" for node, names in nodes.items()]
    if len(parts) > 2:
        parts[2:] = [f"{len(parts) - 2} more nodes fall"]
    parts += [f"{_short(defence.name)} helps" for defence in card.offered[:1]]
    return "; ".join(parts)


def worst(card: AttackCard) -> str:
    """The family that turns most cases, in one sentence; "" if nothing falls."""
    whole = [cell for cell in card.red if not cell.node] or list(card.red)
    if not whole:
        return ""
    cell = max(whole, key=lambda cell: cell.attacked.value or 0.0)
    what = f"at {_short(cell.node)}" if cell.node else f"of {_short(cell.metric)}"
    return (
        f"“{_short(cell.family)}” {where(cell.place)} turns {per_cent(cell.attacked)} of 100 "
        f"failed cases {what}; its harmless twin {per_cent(cell.twin)}."
    )


def next_step(card: AttackCard) -> str:
    """Say the next step for the reader."""
    if card.sign == "empty":
        return "Give cases that should fail and get a score: only a fail can be turned."
    if card.sign == "holds":
        least = min(card.metrics, key=lambda metric: metric.attacked)
        of = f" of {_short(least.metric)}" if len(card.metrics) > 1 else ""
        return (
            f"Attack more than {counted(least.attacked, 'failing case')}{of} for narrower "
            "intervals, and again after every change of criteria, prompts or judge."
        )
    if card.offered:
        best = card.offered[0]
        effects = ", ".join(
            f"{_short(row.family)} {per_cent(row.before)} → {per_cent(row.after)}"
            for row in best.families
            if row.shown
        )
        cost = f"honest cases changed {changed_share(best)}"
        return f"{how(best)} and attack again: {effects} of 100; {cost}."
    if card.defences:
        reasons = "; ".join(
            f"{_short(defence.name)} {one_line(defence.why, 120)}" for defence in card.defences[:6]
        )
        return f"No defence is offered: {reasons}."
    return "Try defences on what fell: --defend quotes,gate,spotlight,judge:NAME."


def changed_share(defence: Defence) -> str:
    """The share of honest cases that a defence changes."""
    share = defence.honest
    if share.value is None or share.low is None or share.high is None:
        return "not known"
    return f"{100 * share.value:.1f} % ({100 * share.low:.1f}-{100 * share.high:.1f})"


def how(defence: Defence) -> str:
    """Say how to use a defence."""
    if defence.name == "quotes":
        return "Require quotes, `quoted(metric)`"
    if defence.name.endswith(BOTH):
        judge = defence.name.removeprefix(OTHER_JUDGE).removesuffix(f", {BOTH}")
        return f"Let a case pass only if it also passes under {_short(judge)}"
    if defence.name.startswith(OTHER_JUDGE):
        return f"Take the judge {_short(defence.name.removeprefix(OTHER_JUDGE))}"
    return f'Write `defended(metric, "{defence.name}")`'


def screen(card: AttackCard) -> Iterator[str]:
    """The lines of a terminal, at most 60 of 80 characters; hidden characters are escapes."""
    lines = wrap_lines(plain("\n".join(_lines(card))), 2).split("\n")
    yield from lines if len(lines) <= _LINES else [*lines[: _LINES - 1], "… more is on the page"]


def _lines(card: AttackCard) -> Iterator[str]:
    names = few([metric.metric for metric in card.metrics], 2)
    yield one_line(f"dagengine attack  {names}  judge {few(card.judges, 2)}", _WIDTH)
    yield ""
    yield f"{SIGNS[card.sign]} {headline(card)}"
    yield ""
    yield f"  {worst(card)}"
    yield f"  next  {next_step(card)}"
    places = tables(card)
    most = max(_ROWS // max(len(places), 1), 1)
    for (metric, place), cells in [*places.items()][: _ROWS // 3]:
        yield ""
        yield from _table(card, metric, place, cells, most)
    if places:
        yield NOT_SHOWN
    for fall in card.falls[:1]:
        yield ""
        yield from fall_lines(fall)
    yield from _defences(card)
    yield ""
    yield _rest(card)


def tables(card: AttackCard) -> dict[tuple[str, Place], list[Cell]]:
    """The cells by metric and place; those in the place of a field are in its first table."""
    tables: dict[tuple[str, Place], list[Cell]] = {}
    homes: dict[tuple[str, str], Place] = {}
    for cell in sorted(card.cells, key=lambda cell: not cell.place.position):
        home = homes.setdefault((cell.metric, cell.place.field), cell.place)
        place = cell.place if cell.place.position else home
        tables.setdefault((cell.metric, place), []).append(cell)
    return tables


# Metrics whose counts the last line of the terminal has; the page has all.
_METRICS = 4


def _rest(card: AttackCard) -> str:
    parts: list[str] = []
    for m in card.metrics[:_METRICS]:
        cases = f"{m.failing} of {counted(m.cases, 'case')} fail when clean, {m.attacked} attacked"
        parts.append(f"{_short(m.metric)}: {cases}")
        if m.null is not None:
            parts[-1] += f", null answers pass in {per_cent(m.null)} of 100"
    if len(card.metrics) > _METRICS:
        parts.append(f"{counted(len(card.metrics) - _METRICS, 'more metric')} on the page")
    parts += [one_line(note, 150) for note in card.notes[:3]]
    cost = f", ${card.cost:.2f}" if card.cost else ""
    return f"{'; '.join(parts)}. {counted(card.calls, 'call')}{cost}."


def _table(
    card: AttackCard, metric: str, place: Place, cells: Sequence[Cell], most: int
) -> Iterator[str]:
    names = next(own.nodes for own in card.metrics if own.metric == metric)
    red = {cell.node for cell in cells if cell.red}
    # The nodes that matter are chosen, and stay in the order of the metric.
    nodes = sorted(sorted(names, key=lambda node: node not in red)[:_NODES], key=names.index)
    yield f"Failing answers turned into passes, of 100; {metric}, {where(place)}"
    heads = ["twin", WHOLE, *nodes]
    yield f"  {'':18}" + "".join(f" {one_line(head, 14):>14}" for head in heads)
    families = rows(cells)
    # The families that matter are chosen, and stay in the order of the card.
    heaviest = sorted(families, key=_weight, reverse=True)[:most]
    for row in filter(heaviest.__contains__, families):
        texts = [per_cent(row[""].twin)]
        texts += [f"{'✕ ' * row[node].red}{per_cent(row[node].attacked)}" for node in ("", *nodes)]
        family = one_line(family_name(row[""]), 18)
        yield f"  {family:18}" + "".join(map(" {:>14}".format, texts))
    if any(not cell.place.position for cell in cells):
        yield f"  * in the place of `{place.field}`"
    counts = {"families": len(families) - len(heaviest), "nodes": len(names) - len(nodes)}
    omitted = [f"{count} {things}" for things, count in counts.items() if count]
    if omitted:
        yield f"  {' and '.join(omitted)} more are on the page"


def rows(cells: Iterable[Cell]) -> list[dict[str, Cell]]:
    """The cells of each family, by node."""
    rows: dict[tuple[str, Place], dict[str, Cell]] = {}
    for cell in cells:
        rows.setdefault((cell.family, cell.place), {})[cell.node] = cell
    return list(rows.values())


def alike(cells: Iterable[Cell]) -> Iterable[tuple[list[str], dict[str, Cell]]]:
    """The names of families with their row; rows of the same zeros are one row."""
    made: dict[tuple[object, ...], tuple[list[str], dict[str, Cell]]] = {}
    for row in rows(cells):
        name, key = family_name(row[""]), tuple[object, ...]()
        for node, cell in row.items():
            turned = cell.attacked.count or cell.twin.count
            key = (*key, name if turned else node, cell.attacked, cell.twin)
        made.setdefault(key, ([], row))[0].append(name)
    return made.values()


def family_name(cell: Cell) -> str:
    """The name of a family; with a star if its words take the place of the field."""
    return cell.family if cell.place.position else f"{cell.family} *"


def _weight(row: dict[str, Cell]) -> float:
    """Sort key: red cells first, then those with most turned cases."""
    return any(cell.red for cell in row.values()) + (row[""].attacked.value or 0.0) / 2


def fall_lines(fall: Fall) -> Iterator[str]:
    """List the cases that fell, to be looked at."""
    yield one_line(f"What fell: {fall.case}, at {fall.node or fall.metric}", _WIDTH)
    yield "  words    " + one_line(fall.words, _WIDTH - 11)
    yield f"           “{_short(fall.family)}” {where(fall.place)}"
    yield f"  clean    {reply_words(fall, 0)}"
    passes, runs = fall.runs
    yield f"  attacked {reply_words(fall, 1)}, passes in {passes} of {counted(runs, 'run')}"
    if fall.reason:
        yield "  reason   " + one_line(fall.reason, _WIDTH - 11)


def reply_words(fall: Fall, number: int) -> str:
    """The node's answer before (0) or after (1), and the score."""
    answer, score = (fall.before, fall.after)[number], fall.score[number]
    words = "?" if answer is None else _short(str(answer))
    return f"{_short(fall.node)} → {words}, score {'none' if score is None else f'{score:.2f}'}"


def _defences(card: AttackCard) -> Iterator[str]:
    if not card.defences:
        return
    yield ""
    heads = f"{'falls':>14} {'honest changed':>18} {'$/1,000':>8}"
    yield f"{'What helps, on the same cases':34} {heads}"
    for defence in card.defences[:8]:
        worst_family = max(defence.families, key=lambda row: row.before.value or 0.0)
        if defence is card.defences[0]:
            heading = f"as it is, {worst_family.family}"
            yield f"  {one_line(heading, 32):32} {per_cent(worst_family.before):>14}"
        mark = ">" if defence in card.offered[:1] else " "
        cost = "" if defence.cost is None else f"{defence.cost[1]:.2f}"
        yield (
            f"{mark} {one_line(defence.name, 32):32} {per_cent(worst_family.after):>14} "
            f"{changed_share(defence):>18} {cost:>8}"
        ).rstrip()


# Files.


def attack_json(card: AttackCard) -> str:
    """The card as JSON; every character outside ASCII is an escape, so that none hides."""
    return json.dumps(dataclasses.asdict(card), indent=1) + "\n"


def attack_page(card: AttackCard) -> str:
    """The page, which runs and loads nothing; hidden characters are escapes, all else is text."""
    from markupsafe import Markup, escape  # comes with jinja2

    def code(text: str) -> Any:
        """What is between backticks as code."""
        return Markup(re.sub(r"`([^`]+)`", r"<code>\1</code>", str(escape(text))))

    filters = {"per_cent": per_cent, "where": where, "counted": counted, "coded": code}
    # The page calls the functions of this module by their names.
    return document(Path(__file__).with_name("attack.html"), filters, card=card, words=globals())


def write_attack(card: AttackCard, folder: Path) -> Path:
    """Write `attack.html`, which is returned, and `attack.json` into a folder."""
    page = folder / "attack.html"
    write_whole(page, attack_page(card))
    write_whole(folder / "attack.json", attack_json(card))
    return page
