"""A picture as DOT: what Graphviz lays out, and draws by itself as PNG and PDF.

The libraries inside pygraphviz do that, or the `dot` program.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from html import escape
from typing import Any

import graphviz

from dagengine.errors import MissingExtraError
from dagengine.report.pictures.parts import Arrow, Model, Part, fill_of
from dagengine.report.pictures.path_and_counts import (
    ANSWER,
    FONT,
    LIGHT,
    NAME,
    SMALL,
    TITLE,
    Words,
    clean,
)
from dagengine.system.terminal_text import plain

INCH = 72
"""Pixels, or points."""
# What comes closest to the shapes of the SVG among those of Graphviz.
_SHAPES = {
    "judgement": {"shape": "box", "style": "filled,diagonals"},
    "rating": {"shape": "box", "style": "filled,diagonals"},
    "items": {"shape": "box3d", "style": "filled"},
    "task": {"shape": "note", "style": "filled"},
    "code": {"shape": "component", "style": "filled", "margin": "0.25,0.06"},
    "metric": {"shape": "box", "style": "filled", "peripheries": "2"},
    "folded": {"shape": "box", "style": "dashed,rounded"},
    "end": {"shape": "box", "style": "rounded,filled"},
}
_STDERR = 2
_NOISE = "Fontconfig "


def dot_text(model: Model) -> str:
    """The picture as a graph with its words, sizes and colours."""
    font = {"fontname": FONT, "fontsize": str(ANSWER), "fontcolor": LIGHT["ink"]}
    graph = graphviz.Digraph(
        name="metric",
        graph_attr={
            **font,
            "label": _html([_bold(model.name, TITLE), _line(model.facts)]),
            "labelloc": "t",
            "ordering": "out",
            "nodesep": "0.19",
            "ranksep": "0.26",
            "bgcolor": LIGHT["ground"],
            "pad": "0.25",
        },
        node_attr={**font, "color": LIGHT["edge"], "margin": "0.18,0.06"},
        edge_attr={**font, "color": LIGHT["edge"], "arrowsize": "0.7"},
    )
    _draw_frame(graph, model, None)
    for number, arrow in enumerate(model.arrows):
        graph.edge(arrow.source, arrow.target, id=f"e{number}", **_arrow(arrow))
    return str(graph.source)


def _draw_frame(graph: Any, model: Model, frame: str | None) -> None:
    for part in model.inside(frame):
        graph.node(part.key, **_part(part))
    for inner in model.frames_in(frame):
        with graph.subgraph(name=f"cluster_{inner.key}") as cluster:
            title = [f"{_bold(inner.name, NAME)}  {_line(inner.words)}"]
            cluster.attr(label=_html(title), labeljust="l", labelloc="b", margin="14")
            cluster.attr(style="rounded,filled")
            cluster.attr(color=LIGHT["edge"], fillcolor=LIGHT["frame"])
            _draw_frame(cluster, model, inner.key)


def _part(part: Part) -> dict[str, str]:
    look = dict(_SHAPES[part.shape])
    if part.shape != "folded":
        look["fillcolor"] = LIGHT[fill_of(part.shape)]
    if part.shape == "end":
        look["height"], look["width"] = f"{28 / INCH:.3f}", f"{64 / INCH:.3f}"
        colour = "fail" if part.state == "failed" else "ink"
        (name,) = part.name
        tens = f'<font color="{LIGHT[colour]}">{_bold(name, ANSWER)}</font>'
        look["label"] = _html([tens + "".join(map(_line, part.lines))])
        if part.state == "failed":
            look |= {"fillcolor": LIGHT["fail-ground"], "color": LIGHT["fail"]}
    else:
        look["height"] = f"{part.height() / INCH:.3f}"
        look["width"] = f"{104 / INCH:.3f}"
        names = [_bold(line, NAME) for line in part.name]
        notes = [_line(((line, ""),)) for line in part.note]
        look["label"] = _html([*names, *map(_line, part.lines), *notes])
    if part.reached is False:
        look |= {"fillcolor": LIGHT["ground"], "style": "dashed"}
    elif part.reached and part.bar is None:
        look |= {"color": LIGHT["mark"], "penwidth": "2.2"}
    return look


def _arrow(arrow: Arrow) -> dict[str, str]:
    # An answer enters at the middle: the corners of the shapes are cut.
    look = {"style": "dashed", "arrowhead": "open"} if arrow.data else {"headport": "n"}
    if arrow.answer:
        words = [*(_bold(line, ANSWER) for line in arrow.answer), *map(_line, arrow.words)]
        cell = "<br/>".join(words)
        # Room around the words keeps them beside the edge and not on it.
        table = '<table border="0" cellborder="0" cellpadding="4">'
        look["label"] = f"<{table}<tr><td>{cell}</td></tr></table>>"
    if arrow.line == "missed":
        look |= {"style": "dotted"}
    elif arrow.line == "cases" and arrow.share is not None:
        colour = "fail" if 2 * arrow.failed > arrow.share else "bar"
        look |= {"penwidth": f"{1.5 + 4 * arrow.share:.2f}", "color": LIGHT[colour]}
    elif arrow.taken:
        look |= {"penwidth": "3", "color": LIGHT["mark"]}
    return look


def _line(words: Words) -> str:
    return "".join(
        f'<font point-size="{SMALL}" color="{LIGHT[tone or "ink"]}">{_escape(text)}</font>'
        for text, tone in words
    )


def _bold(text: str, size: int) -> str:
    return f'<font point-size="{size}"><b>{_escape(text)}</b></font>'


def _html(lines: Iterable[str]) -> str:
    return f"<{'<br/>'.join(lines)}>"


def _escape(text: str) -> str:
    # Graphviz reads \\N and the like in HTML-like labels, too; a label may not be empty.
    return escape(clean(text)).replace("\\", "\\\\") or " "


Point = tuple[float, float]
Box = tuple[float, float, float, float]
"""Left, top, width and height in pixels."""


class Layout:
    """Where Graphviz put the parts of a drawing, in pixels from above.

    Graphviz counts points from below, and has the middle of a node and its size in inches. What
    shows the drawing may move it by `left` and `down`.
    """

    def __init__(self, dot: str) -> None:
        """Lay out the drawing of a DOT text; raises as `laid_out` does."""
        drawing = json.loads(laid_out(dot, "json0"))
        _, _, self.width, self.height = map(float, drawing["bb"].split(","))
        self.title_height = float(drawing.get("lheight", 0)) * INCH
        self.edges: list[dict[str, Any]] = drawing.get("edges", [])
        self.left = self.down = 0.0
        self._parts = {part["name"]: part for part in drawing.get("objects", [])}

    def point(self, pair: str) -> Point:
        """The point of a pair of numbers."""
        x, y = map(float, pair.split(","))
        return x + self.left, self.height - y + self.down

    def boxes(self) -> dict[str, Box]:
        """The boxes of nodes and frames (`cluster_…`) by their names."""
        return {name: self._box(part) for name, part in self._parts.items()}

    def _box(self, part: dict[str, Any]) -> Box:
        if "bb" in part:  # of a frame
            left, low, right, high = map(float, part["bb"].split(","))
            x, y = self.point(f"{left},{high}")
            return x, y, right - left, high - low
        x, y = self.point(part["pos"])
        wide, tall = float(part["width"]) * INCH, float(part["height"]) * INCH
        return x - wide / 2, y - tall / 2, wide, tall

    def curve(self, pos: str) -> tuple[list[Point], Point | None]:
        """The points of a curve, and that of its arrow, which Graphviz marks with an `e`."""
        tip, points = None, []
        for pair in pos.split():
            if pair.startswith("e,"):
                tip = self.point(pair[2:])
            elif not pair.startswith("s,"):
                points.append(self.point(pair))
        return points, tip


def laid_out(dot: str, form: str) -> bytes:
    """The drawing in a form that Graphviz writes (svg, png, pdf, json0).

    Raises MissingExtraError without Graphviz, OSError for what Graphviz cannot draw.
    """
    try:
        import pygraphviz
    except ImportError:
        return _by_program(dot, form)
    with without_font_warnings():
        drawn: Any = pygraphviz.AGraph(string=dot).draw(format=form, prog="dot")
    return bytes(drawn)


def _by_program(dot: str, form: str) -> bytes:
    if shutil.which("dot") is None:
        # Places as JSON are asked for by what draws an SVG at them.
        wanted = "svg" if form == "json0" else form
        raise MissingExtraError(
            f'a picture as {wanted} needs Graphviz: pip install "dagengine[draw]", or the Graphviz '
            "of the system (apt install graphviz, brew install graphviz); "
            ".mmd, .md and .dot files need neither"
        )
    try:
        return bytes(graphviz.Source(dot).pipe(format=form, quiet=True))
    except subprocess.CalledProcessError as error:
        raise OSError(f"Graphviz: {error}") from None


@contextmanager
def without_font_warnings() -> Iterator[None]:
    """Hold back what is written to the standard error meanwhile; the rest follows at the end.

    The library inside pygraphviz reads the machine's font settings and finds in them what is newer
    than itself. It writes so to the standard error, past Python. Nothing turns that off: an own
    settings file would, and would also choose other fonts.
    """
    try:
        descriptor = os.dup(_STDERR)
    except OSError:  # its reader has closed it
        yield
        return
    with tempfile.TemporaryFile() as buffer:
        os.dup2(buffer.fileno(), _STDERR)
        try:
            yield
        finally:
            os.dup2(descriptor, _STDERR)
            os.close(descriptor)
            buffer.seek(0)
            text = buffer.read().decode(errors="surrogateescape")
            lines = [line for line in text.splitlines() if not line.startswith(_NOISE)]
            if lines:
                print(plain("\n".join(lines)), file=sys.stderr)
