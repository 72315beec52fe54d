"""Pictures of a metric's graph, for people who review it.

Three views of one graph: as designed, with the path of one case, and with how often a
data set took each edge. Graphviz lays them out: the `dot` program when it is there, else
the Graphviz libraries inside the pygraphviz package.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from textwrap import wrap
from typing import Any

import graphviz

from dagengine.checks import check
from dagengine.errors import GraphError, InputError, MissingExtraError
from dagengine.graph import MetricSpec
from dagengine.mermaid import mermaid_text
from dagengine.results import CaseResult, MetricResult
from dagengine.views import (
    INK,
    LINES,
    Counts,
    Design,
    OnePath,
    picture_names,
    score_colour,
)
from dagengine.wiring import Scope, Slot, Wiring

_WIDTH = 34
_FONT = "Helvetica,Arial,sans-serif"
_QUIET, _TAKEN = "#9aa5b1", "#0b5cad"
_FILL = {
    "task": "#eef2f7",
    "map": "#eef2f7",
    "field": "#f7f7f7",
    "code": "#f3eefb",
    "binary judgement": "#fdf6e3",
    "judgement": "#fdf6e3",
    "rating": "#fdf6e3",
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
        if shutil.which("dot"):
            return bytes(graphviz.Source(self.dot).pipe(format=form))
        try:
            import pygraphviz
        except ImportError:
            raise MissingExtraError(
                "pictures need Graphviz: pip install pygraphviz (which brings its own), or "
                "install the `dot` program; .dot and .mmd files can be written without"
            ) from None
        return bytes(pygraphviz.AGraph(string=self.dot).draw(format=form, prog="dot"))

    def save(self, path: str | Path) -> str:
        """Write the picture; the suffix decides the format (.svg .png .pdf .dot .mmd)."""
        target = Path(path)
        form = target.suffix.lstrip(".").lower()
        target.parent.mkdir(parents=True, exist_ok=True)
        if form in ("dot", "gv"):
            target.write_text(self.dot, encoding="utf-8")
        elif form in ("mmd", "mermaid", "md"):
            fenced = f"```mermaid\n{self.mermaid}```\n" if form == "md" else self.mermaid
            target.write_text(fenced, encoding="utf-8")
        elif form in _FORMATS:
            target.write_bytes(self.layout(form))
        else:
            known = ", ".join(sorted({*_FORMATS, "dot", "mmd", "md"}))
            raise InputError(f"cannot draw {target.name!r}: the suffix must be one of {known}")
        return str(target)

    def _repr_mimebundle_(self, **kwargs: Any) -> dict[str, str]:
        """What a notebook shows: SVG, or the DOT text where there is no Graphviz."""
        try:
            return {"image/svg+xml": self.layout("svg").decode(), "text/plain": self.dot}
        except MissingExtraError as error:
            return {"text/plain": f"{error}\n\n{self.dot}"}


def draw(
    spec: MetricSpec,
    *,
    result: MetricResult | None = None,
    rows: Iterable[CaseResult] | None = None,
) -> Picture:
    """Draw a metric: as designed, or with one case's `result`, or with many `rows`.

    Raises GraphError when the graph has errors.
    """
    problems, wiring = check(spec)
    if wiring is None or any(problem.severity == "error" for problem in problems):
        raise GraphError(problems)
    view = Design()
    if result is not None:
        view = OnePath(result)
    elif rows is not None:
        found = [m for row in rows for m in row.metrics if m.metric == spec.name]
        view = Counts(found)
    return Picture(_dot(wiring, view), mermaid_text(wiring, view))


def _dot(wiring: Wiring, view: Design) -> str:
    # Graphviz escapes are off: labels are given as HTML-like text, escaped here.
    graph = graphviz.Digraph(
        name="metric",
        graph_attr={
            "label": _html([_bold(_escaped(view.title(wiring.scope.spec)))]),
            "labelloc": "t",
            "fontname": _FONT,
            "fontsize": "16",
            "fontcolor": INK,
            "rankdir": "TB",
            "ordering": "out",
            "nodesep": "0.35",
            "ranksep": "0.55",
            "bgcolor": "white",
            "pad": "0.3",
        },
        node_attr={"fontname": _FONT, "fontsize": "11", "fontcolor": INK, "color": "#52606d"},
        edge_attr={"fontname": _FONT, "fontsize": "11", "fontcolor": INK, "color": "#52606d"},
    )
    names = picture_names(wiring)
    _draw_scope(graph, wiring.scope, names, view)
    for slot in wiring.slots:
        _draw_edges(graph, slot, names, view)
    return str(graph.source)


def _draw_scope(graph: Any, scope: Scope, names: dict[Slot, str], view: Design) -> None:
    """The nodes of a metric; nested metrics get a frame of their own."""
    for slot in sorted(scope.slots.values(), key=lambda slot: slot.rank):
        graph.node(names[slot], label=_label(slot, view), **_look(slot, view))
        if slot.nested is not None and len(slot.nested.slots) > 1:
            with graph.subgraph(name=f"cluster_{names[slot]}") as frame:
                frame.attr(
                    label=_html([_escaped(_own_name(slot))]),
                    color=_QUIET,
                    style="rounded",
                    fontname=_FONT,
                )
                _draw_scope(frame, slot.nested, names, view)


def _label(slot: Slot, view: Design) -> str:
    if slot.kind == "verdict":
        score = 0 if slot.score is None else round(slot.score * 10)
        return _html([_bold(f"score {score}"), _small("of 10")])
    if slot.node is None:
        return _html([_bold(_escaped(_own_name(slot))), _small("metric")])
    node = slot.node
    own_words = node.name or node.output_label
    title = _own_name(slot) if own_words else node.text
    parts = [_bold(_wrapped(title or node.kind)), _small(node.kind)]
    if own_words and node.text:
        parts.append(_wrapped(node.text))
    if node.evaluation_params:
        parts.append(_small(_wrapped("reads " + ", ".join(node.evaluation_params))))
    note = view.note(slot)
    if note:
        parts.append(f'<font color="{_TAKEN}">{_wrapped(note)}</font>')
    return _html(parts)


def _own_name(slot: Slot) -> str:
    """The name without those of the metrics around it."""
    return slot.name.removeprefix(slot.scope.prefix())


def _html(parts: Sequence[str]) -> str:
    return f"<{'<br/>'.join(parts)}>"


def _bold(text: str) -> str:
    return f"<b>{text}</b>"


def _small(text: str) -> str:
    return f'<font point-size="9" color="#52606d">{text}</font>'


def _wrapped(text: str, width: int = _WIDTH) -> str:
    """Escaped text in lines; control characters have no place in XML."""
    lines = wrap(_clean(text), width, max_lines=LINES, placeholder=" …") or [""]
    return "<br/>".join(map(_escaped, lines))


def _clean(text: str) -> str:
    return "".join(char if char.isprintable() else " " for char in text)


def _escaped(text: str) -> str:
    # Graphviz reads \\N and the like in HTML-like labels, too.
    return escape(_clean(text)).replace("\\", "\\\\")


def _look(slot: Slot, view: Design) -> dict[str, str]:
    if slot.kind == "verdict":
        fill = score_colour(slot.score)
        return {"shape": "ellipse", "style": "filled", "fillcolor": fill, "margin": "0.05"}
    kind = slot.node.kind if slot.node else "metric"
    decides = bool(slot.node and slot.node.branches())
    look = {
        "shape": "box",
        "style": "filled,diagonals" if decides else "rounded,filled",
        "fillcolor": _FILL.get(kind, "#ffffff"),
        "margin": "0.18,0.1",
    }
    if slot.grades:
        look["peripheries"] = "2"
    reached = view.reached(slot)
    if reached is False:
        look |= {"fillcolor": "#ffffff", "color": _QUIET, "fontcolor": _QUIET, "style": "dashed"}
    elif reached:
        look |= {"penwidth": "2.2"}
    return look


def _draw_edges(graph: Any, slot: Slot, names: dict[Slot, str], view: Design) -> None:
    for verdict, target in slot.branches:
        parts = [_clean(part) for part in view.verdict(slot, verdict).split("\n")]
        words = [_escaped(line) for part in parts for line in wrap(part, 24)]
        weight = view.weight(slot, verdict, target)
        label = _html([f" {line} " for line in words])
        graph.edge(names[slot], names[target], label=label, **_stroke(weight))
    pulled = {id(source.slot) for source in slot.sources}
    for target in slot.activates:
        fed = any(source.slot is slot for source in target.sources)
        if not fed and id(target) not in pulled and names[target] != names[slot]:
            graph.edge(names[slot], names[target], **_stroke(view.weight(slot, None, target)))
    for source in slot.sources:
        look = {"style": "dashed", "arrowhead": "open"}
        if slot in source.slot.activates:
            look = {}
        weight = view.weight(source.slot, None, slot)
        graph.edge(names[source.slot], names[slot], **{**_stroke(weight), **look})


def _stroke(weight: float | None) -> dict[str, str]:
    if weight is None:
        return {}
    if not weight:
        return {"color": _QUIET, "style": "dotted", "fontcolor": _QUIET}
    return {"color": _TAKEN, "penwidth": f"{1.2 + 3 * weight:.2f}"}
