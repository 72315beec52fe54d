"""Pictures of a metric's graph, for a reviewer.

Three views of one graph: as designed, with the path of one case, and with how often a
data set took each edge. Graphviz lays them out: the libraries inside the pygraphviz package
(the extra `draw`), else the `dot` program. DOT and Mermaid text need neither.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from textwrap import wrap
from typing import Any

import graphviz

from dagengine.compiler.checks import check
from dagengine.compiler.slots import Scope, Slot
from dagengine.compiler.wiring import Wiring
from dagengine.errors import GraphError, InputError, MissingExtraError
from dagengine.graph.graph import MetricSpec
from dagengine.report.folds import Folds, reached_slots
from dagengine.report.layout import laid_out
from dagengine.report.mermaid import mermaid_text
from dagengine.report.tally import MetricTally, Tally
from dagengine.report.views import (
    INK,
    LINES,
    Counts,
    Design,
    OnePath,
    legend_of,
    picture_names,
    score_colour,
)
from dagengine.results import CaseResult, MetricResult

_WIDTH, _WIDE = 34, 12
_LONGEST = 600  # characters of a label
_FONT = "Helvetica,Arial,sans-serif"
_QUIET, _PALE, _TAKEN = "#9aa5b1", "#6b7785", "#0b5cad"
_ASKS = "#fdf6e3"  # whatever judges
_FILL = {
    "task": "#eef2f7",
    "map": "#eef2f7",
    "field": "#f7f7f7",
    "code": "#f3eefb",
    "metric": "#e8f4f8",
}
_FORMATS = frozenset({"svg", "png", "pdf"})


@dataclass(frozen=True)
class Picture:
    """A drawing: DOT and Mermaid text, laid out when it is shown or saved."""

    dot: str
    mermaid: str

    def layout(self, form: str = "svg") -> bytes:
        """The picture as svg, png or pdf; raises MissingExtraError without Graphviz."""
        return laid_out(self.dot, form)

    def save(self, path: str | Path) -> str:
        """Write the picture; the suffix decides the format (.svg .png .pdf .dot .mmd .md).

        Raises InputError for another suffix, MissingExtraError for .svg, .png and .pdf without
        Graphviz.
        """
        target = Path(path)
        content = self._content(target)
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(content)
        return str(target)

    def _content(self, target: Path) -> bytes:
        form = target.suffix.lstrip(".").lower()
        if form in _FORMATS:
            return self.layout(form)
        if form in ("dot", "gv"):
            return self.dot.encode()
        if form in ("mmd", "mermaid"):
            return self.mermaid.encode()
        if form == "md":
            return f"```mermaid\n{self.mermaid}```\n".encode()
        known = ", ".join(sorted({*_FORMATS, "dot", "mmd", "md"}))
        raise InputError(f"cannot draw {target.name!r}: the suffix must be one of {known}")

    def _repr_mimebundle_(self, **kwargs: Any) -> dict[str, str]:
        """What a notebook shows: SVG, or the Mermaid text if there is no Graphviz."""
        try:
            return {"image/svg+xml": self.layout("svg").decode(), "text/plain": self.dot}
        except MissingExtraError as error:
            return {"text/plain": f"{error}\n\n{self.mermaid}"}


def draw(
    spec: MetricSpec,
    *,
    result: MetricResult | None = None,
    case: str = "",
    rows: Iterable[CaseResult] | Tally | None = None,
) -> Picture:
    """Draw a metric: as designed, or with one case's `result`, or with many `rows`.

    `case` names the case in the title; `rows` may have been tallied already.

    Raises GraphError when the graph has errors.
    """
    problems, wiring = check(spec)
    if wiring is None or any(problem.severity == "error" for problem in problems):
        raise GraphError(problems)
    view = Design()
    if result is not None:
        view = OnePath(result, case)
    elif rows is not None:
        tally = rows if isinstance(rows, Tally) else Tally(rows)
        view = Counts(tally.metrics.get(spec.name, MetricTally()))
    return Picture(_dot(wiring, view), mermaid_text(wiring, view))


def _dot(wiring: Wiring, view: Design) -> str:
    slots = wiring.slots
    reached = reached_slots(slots, view)
    folds = Folds(slots, reached)
    # A wide tree fits a page or a screen better when it grows sideways.
    leaves = sum(slot.grades and slot not in folds for slot in slots)
    font = {"fontname": _FONT, "fontsize": "11", "fontcolor": INK, "color": "#52606d"}
    graph = graphviz.Digraph(
        name="metric",
        graph_attr={
            "label": _html([_bold(_escaped(view.title(wiring.scope.spec)))]),
            "labelloc": "t",
            "fontname": _FONT,
            "fontsize": "16",
            "fontcolor": INK,
            "rankdir": "TB" if leaves <= _WIDE else "LR",
            "ordering": "out",
            "nodesep": "0.35",
            "ranksep": "0.55",
            "bgcolor": "white",
            "pad": "0.3",
        },
        node_attr=font,
        edge_attr=font,
    )
    names = picture_names(wiring)
    names |= {slot: folds.name(slot) for slot in slots if slot in folds}
    _draw_scope(graph, wiring.scope, names, view, reached, folds)
    for name, words in folds.stubs().items():
        look = {"shape": "box", "style": "dashed,rounded", "color": _QUIET, "fontcolor": _PALE}
        graph.node(name, label=words, **look)
    for slot in slots:
        if slot not in folds:
            _draw_edges(graph, slot, names, view, folds)
    _draw_legend(graph, [*view.legend, *legend_of(slots, "dashed", bool(folds.counts))])
    return str(graph.source)


def _draw_legend(graph: Any, lines: Sequence[str]) -> None:
    if not lines:
        return
    with graph.subgraph(graph_attr={"rank": "sink"}) as last:
        last.node("legend", label=_html([_small(line, _PALE) for line in lines]), shape="plain")


def _draw_scope(
    graph: Any,
    scope: Scope,
    names: dict[Slot, str],
    view: Design,
    reached: dict[Slot, bool | None],
    folds: Folds,
) -> None:
    """The nodes of a metric; nested metrics get their own frame."""
    for slot in sorted(scope.slots.values(), key=lambda slot: slot.rank):
        if slot in folds:
            continue
        here = reached.get(slot)
        graph.node(names[slot], label=_label(slot, view, here), **_look(slot, here))
        if slot.nested is not None and len(slot.nested.slots) > 1:
            with graph.subgraph(name=f"cluster_{names[slot]}") as frame:
                title = _html([_escaped(_own_name(slot))])
                frame.attr(label=title, color=_QUIET, style="rounded", fontname=_FONT)
                frame.attr(fontsize="11", labeljust="l")
                _draw_scope(frame, slot.nested, names, view, reached, folds)


def _label(slot: Slot, view: Design, reached: bool | None) -> str:
    pale = _PALE if reached is False else "#52606d"
    if slot.kind == "verdict":
        score = 0 if slot.score is None else round(slot.score * 10)
        sign = view.sign if reached else ""
        return _html([_bold(f"{sign}score {score}"), _small("of 10", pale)])
    title = None
    if slot.nested is not None and len(slot.nested.slots) == 1:
        title = _own_name(slot)
        (slot,) = slot.nested.slots.values()  # drawn in the place of its metric
        reached = view.reached(slot)
    if slot.node is None:
        return _html([_bold(_escaped(_own_name(slot))), _small("metric", pale)])
    node = slot.node
    own_words = title or node.name or node.output_label
    if own_words:
        parts = [_bold(_wrapped(title or _own_name(slot))), _small(node.kind, pale)]
        parts += [_wrapped(node.text)] if node.text else []
    else:
        parts = [_wrapped(node.text or node.kind), _small(node.kind, pale)]
    if slot.fields:
        parts.append(_small(_wrapped("reads " + ", ".join(slot.fields)), pale))
    if node.panel is not None:
        parts.append(_small(_wrapped(node.panel.label), pale))
    note = view.note(slot)
    if note:
        parts.append(f'<font color="{_TAKEN if reached else _PALE}">{_wrapped(note)}</font>')
    return _html(parts)


def _own_name(slot: Slot) -> str:
    """The name without those of the metrics around it."""
    return slot.name.removeprefix(slot.scope.prefix())


def _html(parts: Sequence[str]) -> str:
    return f"<{'<br/>'.join(parts)}>"


def _bold(text: str) -> str:
    return f"<b>{text}</b>"


def _small(text: str, colour: str) -> str:
    return f'<font point-size="9.5" color="{colour}">{text}</font>'


def _wrapped(text: str) -> str:
    """Escaped text in lines."""
    lines = wrap(_clean(text), _WIDTH, max_lines=LINES, placeholder=" …") or [""]
    return "<br/>".join(map(_escaped, lines))


def _clean(text: str) -> str:
    """Text without control characters, which have no place in XML, and no longer than one reads.

    Graphviz takes no label of more than 16,384 characters.
    """
    cut = text if len(text) <= _LONGEST else f"{text[: _LONGEST - 1]}…"
    return "".join(char if char.isprintable() else " " for char in cut)


def _escaped(text: str) -> str:
    # Graphviz reads \\N and the like in HTML-like labels, too.
    return escape(_clean(text)).replace("\\", "\\\\")


def _look(slot: Slot, reached: bool | None) -> dict[str, str]:
    if slot.kind == "verdict":
        look = {"shape": "ellipse", "style": "filled", "margin": "0.05"}
        look["fillcolor"] = score_colour(slot.score)
    else:
        decides = bool(slot.node and slot.node.branches())
        look = {"shape": "box", "margin": "0.18,0.1"}
        look["style"] = "filled,diagonals" if decides else "rounded,filled"
        other = _ASKS if slot.node and slot.node.asks else "#ffffff"
        look["fillcolor"] = _FILL.get(slot.node.kind if slot.node else "metric", other)
        look |= {"peripheries": "2"} if slot.grades else {}
    if reached is False:
        look |= {"fillcolor": "#ffffff", "color": _QUIET, "fontcolor": _PALE, "style": "dashed"}
    elif reached:
        look |= {"penwidth": "2.2"}
    return look


def _draw_edges(graph: Any, slot: Slot, names: dict[Slot, str], view: Design, folds: Folds) -> None:
    for verdict, target in slot.branches:
        parts = [_clean(part) for part in view.verdict(slot, verdict).split("\n")]
        words = [_escaped(line) for part in parts for line in wrap(part, 24)]
        weight = view.weight(slot, verdict, target)
        label = _beside(words)
        graph.edge(names[slot], names[target], label=label, **_stroke(weight))
    pulled = {id(source.slot) for source in slot.sources}
    for target in slot.activates:
        fed = any(source.slot is slot for source in target.sources)
        known = fed or id(target) in pulled or target in folds
        if not known and names[target] != names[slot]:
            graph.edge(names[slot], names[target], **_stroke(view.weight(slot, None, target)))
    for source in slot.sources:
        if source.slot in folds:
            continue
        look = {"style": "dashed", "arrowhead": "open"}
        if slot in source.slot.activates:
            look = {}
        weight = view.weight(source.slot, None, slot)
        graph.edge(names[source.slot], names[slot], **{**_stroke(weight), **look})


def _beside(words: Sequence[str]) -> str:
    """The words of an edge, with room around them: they are beside it and not on it."""
    cell = "<br/>".join(words)
    return f'<<table border="0" cellborder="0" cellpadding="5"><tr><td>{cell}</td></tr></table>>'


def _stroke(weight: float | None) -> dict[str, str]:
    if weight is None:
        return {}
    if not weight:
        return {"color": _QUIET, "style": "dotted", "fontcolor": _PALE}
    return {"color": _TAKEN, "penwidth": f"{1.2 + 3 * weight:.2f}"}
