"""Graphs as Mermaid text, which code hosts draw in pull requests."""

from __future__ import annotations

from textwrap import wrap

from dagengine.compiler.slots import Slot
from dagengine.compiler.wiring import Wiring
from dagengine.report.folds import Folds, reached_slots
from dagengine.report.views import (
    INK,
    LINES,
    Design,
    legend_of,
    picture_names,
    score_colour,
)


def mermaid_text(wiring: Wiring, view: Design) -> str:
    """The graph as a Mermaid flowchart."""
    lines = ["flowchart TD"]
    names = picture_names(wiring)
    folds = Folds(wiring.slots, reached_slots(wiring.slots, view))
    names |= {slot: folds.name(slot) for slot in wiring.slots if slot in folds}
    lines += [f'  {name}["{words}"]' for name, words in folds.stubs().items()]
    drawn = [slot for slot in wiring.slots if slot not in folds]
    for slot in drawn:
        if slot.scope.owner is not None and names[slot] == names[slot.scope.owner]:
            continue
        lines.append(f"  {names[slot]}{_shape(slot, view)}")
        if slot.kind == "verdict":
            fill = score_colour(slot.score)
            lines.append(f"  style {names[slot]} fill:{fill},color:{INK}")
    for slot in drawn:
        for verdict, target in slot.branches:
            words = _quoted(view.verdict(slot, verdict))
            lines.append(f'  {names[slot]} -- "{words}" --> {names[target]}')
        for target in slot.activates:
            fed = any(source.slot is slot for source in target.sources)
            if not fed and target not in folds and names[target] != names[slot]:
                lines.append(f"  {names[slot]} --> {names[target]}")
        for source in slot.sources:
            arrow = "-->" if slot in source.slot.activates else "-.->"
            if source.slot not in folds:
                lines.append(f"  {names[source.slot]} {arrow} {names[slot]}")
    legend = legend_of(wiring.slots, "dotted", bool(folds.counts))
    if legend:
        place = len(wiring.slots)
        lines.append(f'  n{place}["{"<br/>".join(legend)}"]')
        lines.append(f"  style n{place} fill:none,stroke:none,color:{INK}")
    return "\n".join(lines) + "\n"


def _shape(slot: Slot, view: Design) -> str:
    if slot.kind == "verdict":
        return f'(["score {round((slot.score or 0) * 10)}"])'
    node = slot.node
    own_words = node is None or node.name or node.output_label
    parts = [slot.name]
    if node is not None and node.text:
        parts = [slot.name, node.text] if own_words else [node.text]
    if slot.fields:
        parts.append("reads " + ", ".join(slot.fields))
    if node is not None and node.panel is not None:
        parts.append(node.panel.label)
    if view.note(slot):
        parts.append(view.note(slot))
    text = "<br/>".join(_quoted(part) for part in parts)
    decides = node is not None and node.branches()
    return f'{{{{"{text}"}}}}' if decides else f'["{text}"]'


def _quoted(text: str) -> str:
    """Text inside a quoted Mermaid label: entities for what would end or mark it up."""
    clean = "".join(char if char.isprintable() else " " for char in text)
    short = "\n".join(wrap(" ".join(clean.split()), 40, max_lines=LINES, placeholder=" …"))
    for char, entity in (
        ("#", "#35;"),
        ("&", "#amp;"),
        ('"', "#quot;"),
        ("<", "#lt;"),
        (">", "#gt;"),
        ("`", "#96;"),
    ):
        short = short.replace(char, entity)
    return short.replace("\n", "<br/>")
