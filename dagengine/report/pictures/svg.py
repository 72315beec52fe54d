"""A picture as SVG: drawn where Graphviz put its parts, light and dark in one file."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import astuple
from html import escape

from dagengine.report.pictures.dot import Box, Layout, Point
from dagengine.report.pictures.parts import SHAPES, Arrow, Frame, Model, Part, Shape, fill_of
from dagengine.report.pictures.path_and_counts import (
    ANSWER,
    DARK,
    FONT,
    LIGHT,
    LINE,
    NAME,
    NAME_LINE,
    SMALL,
    TITLE,
    Traffic,
    clean,
    lines_of,
    plain,
    text_width,
)

_EDGE = 24  # pixels between the drawing and the edge of the picture
_CUT, _STACK, _SIDE = 8, 3, 6  # pixels of a cut corner, of a stacked sheet, beside code
_PIPE = (1.5, 12.0)  # pixels of an arrow that no case took, and what all cases add
_BAR = 7  # pixels that a bar is high
_TITLE_WIDTH = 90  # characters
_SAMPLE = (30, 17)  # pixels of a shape in the legend
_WEIGHT: dict[str, str] = dict.fromkeys(("fail", "none"), ' font-weight="700"')
_ENDS = (
    ("passed", "✓ 7", "score of 10, passes"),
    ("failed", "✕ 3", "below the threshold"),
    ("scored", "7", "score of 10"),
)


def svg_text(model: Model, dot: str) -> str:
    """The picture of a model, laid out from its DOT text; raises as `laid_out` does."""
    return _Drawing(model, Layout(dot)).text()


def style() -> str:
    """The colours of both lights as classes: `f-` fills and `s-` draws lines with one."""

    def rules(colours: dict[str, str]) -> str:
        return "".join(
            f"svg.dagengine .f-{name}{{fill:{colour}}}svg.dagengine .s-{name}{{stroke:{colour}}}"
            for name, colour in colours.items()
        )

    return (
        f"svg.dagengine text{{font-family:{FONT}}}svg.dagengine .h{{fill:none}}"
        f"{rules(LIGHT)}@media(prefers-color-scheme:dark){{{rules(DARK)}}}"
    )


class _Drawing:
    """One SVG; its title and its legend stand around what Graphviz laid out."""

    def __init__(self, model: Model, layout: Layout) -> None:
        self._model, self._layout = model, layout
        self._title = lines_of(model.name, _TITLE_WIDTH, 3)
        top = 16.0 + 20 * len(self._title) + 16
        # Graphviz keeps room above for the title, which is drawn further up.
        layout.down = _EDGE + top - layout.title_height
        self._edges = {edge["id"]: edge for edge in layout.edges}
        facts = text_width(plain(model.facts), SMALL)
        title = max(facts, *(text_width(line, TITLE, bold=True) for line in self._title))
        self._legend, inner, self._legend_high = _legend(model, max(layout.width, title))
        self._width = inner + 2 * _EDGE
        layout.left = _EDGE + (inner - layout.width) / 2
        self._boxes = layout.boxes()
        self._legend_at = layout.down + layout.height + 14

    def text(self) -> str:
        model, high = self._model, self._legend_at + self._legend_high
        size = f'width="{self._width:.0f}" height="{high:.0f}"'
        box = f'viewBox="0 0 {self._width:.0f} {high:.0f}"'
        heading, y = list[str](), _EDGE + 8.0
        for line in self._title:
            heading.append(_text(_EDGE, y, [(line, "")], TITLE, anchor="start", bold=True))
            y += 20
        heading.append(_text(_EDGE, y - 1, model.facts, SMALL, anchor="start"))
        return "".join(
            [
                '<?xml version="1.0" encoding="UTF-8"?>\n',
                f'<svg class="dagengine" xmlns="http://www.w3.org/2000/svg" {size} {box} ',
                f'role="img" aria-label="{_escape(model.name)}"><style>{style()}</style>',
                '<defs><pattern id="dagengine-hatch" width="5" height="5" ',
                'patternUnits="userSpaceOnUse" patternTransform="rotate(45)">',
                '<rect width="5" height="5" class="f-fail"/>',
                '<rect width="1.5" height="5" class="f-ground"/></pattern></defs>',
                '<rect class="f-ground" width="100%" height="100%"/>\n',
                *heading,
                "\n",
                *map(self.frame, model.frames),
                *(self.arrow(number, arrow) for number, arrow in enumerate(model.arrows)),
                *map(self.part, model.parts),
                f'<g transform="translate({_EDGE} {self._legend_at:.0f})" class="legend">',
                f'<path d="M0 0H{self._width - 2 * _EDGE:.0f}" class="h s-line"/>',
                *self._legend,
                "</g></svg>\n",
            ]
        )

    # -- parts -----------------------------------------------------------------------------

    def frame(self, frame: Frame) -> str:
        x, y, wide, tall = self._boxes[f"cluster_{frame.key}"]
        box = f'height="{tall:.1f}" width="{wide:.1f}" x="{x:.1f}" y="{y:.1f}" rx="8"'
        inner = f'height="{tall - 6:.1f}" width="{wide - 6:.1f}" x="{x + 3:.1f}" y="{y + 3:.1f}"'
        name = f'<tspan font-size="{NAME}" font-weight="700">{_escape(frame.name)}</tspan>'
        # At the bottom no arrow crosses it: a metric is entered from above.
        words = f'<tspan dx="8">{_pieces(frame.words)}</tspan>'
        attributes = f'x="{x + 14:.1f}" y="{y + tall - 14:.1f}" font-size="{SMALL}" class="f-ink"'
        return (
            f"<g><title>{_escape(frame.name)}</title>"
            f'<rect {box} class="f-frame s-edge" stroke-width="1.25"/>'
            f'<rect {inner} rx="6" class="h s-edge" stroke-width="1.25"/>'
            f"<text {attributes}>{name}{words}</text></g>\n"
        )

    def part(self, part: Part) -> str:
        box = x, y, wide, tall = self._boxes[part.key]
        look = f'class="f-{fill_of(part.shape)} s-edge" stroke-width="1.25"'
        if part.shape == "end" and part.state == "failed":
            stroke = 3 if part.most or (part.reached and part.bar is None) else 1.25
            look = f'class="f-fail-ground s-fail" stroke-width="{stroke}"'
        elif part.reached and self._model.kind == "path":
            look = f'class="f-{fill_of(part.shape)} s-mark" stroke-width="2.5"'
        if part.reached is False and part.shape != "folded":
            look = look.replace("f-fail-ground", "f-ground") + ' stroke-dasharray="3 3"'
        shape = _shape(part.shape, box, look)
        if part.shape == "end":
            tone = {"failed": "fail", "no_score": "none"}.get(str(part.state), "ink")
            name = f'<tspan font-weight="700" class="f-{tone}">{_escape(part.name[0])}'
            text = _escape("".join(map(plain, part.lines)))
            after = f'<tspan font-size="{SMALL}" class="f-soft">{text}</tspan>'
            words = (
                f'<text x="{x + wide / 2:.1f}" y="{y + tall / 2 + 4:.1f}" text-anchor="middle" '
                f'font-size="{ANSWER}">{name}</tspan>{after}</text>'
            )
        else:
            words = self.content(part, box)
        title = f"<title>{_escape(part.hint)}</title>" if part.hint else ""
        return f'<g id="{part.key}" class="node {part.shape}">{title}{shape}{words}</g>\n'

    def content(self, part: Part, box: Box) -> str:
        """The lines of a node in its middle, and its bar at the bottom."""
        x, y, wide, tall = box
        middle, at = (
            x + wide / 2 + _SIDE * (part.shape == "code") / 2,
            y + (tall - part.content) / 2,
        )
        tone = "soft" if part.reached is False else ""
        pieces = []
        for line in part.name:
            at += NAME_LINE
            pieces.append(_text(middle, at - 4, [(line, tone)], NAME, bold=True))
        for words in (*part.lines, *((((line, tone),)) for line in part.note)):
            at += LINE
            pieces.append(_text(middle, at - 4, words, SMALL))
        if part.bar is not None and part.bar.cases:
            pieces.append(_bar(part.bar, (x + 10, at + 3, wide - 20, _BAR)))
        return "".join(pieces)

    # -- arrows ----------------------------------------------------------------------------

    def arrow(self, number: int, arrow: Arrow) -> str:
        edge = self._edges[f"e{number}"]
        points, tip = self._layout.curve(edge["pos"])
        first, *rest = (f"{x:.1f} {y:.1f}" for x, y in points)
        path = f"M{first}C{' '.join(rest)}"
        title = f"<title>{_escape(arrow.hint)}</title>" if arrow.hint else ""
        texts = []
        if "lp" in edge:
            x, y = self._layout.point(edge["lp"])
            at = y - LINE * (len(arrow.answer) + len(arrow.words)) / 2
            faded = arrow.taken is False and arrow.share is None
            for line in arrow.answer:
                at += LINE
                tone = "soft" if faded else ""
                texts.append(_text(x, at - 3, [(line, tone)], ANSWER, bold=not faded))
            for words in arrow.words:
                at += LINE
                texts.append(_text(x, at - 3, words, SMALL))
        drawn = _line(arrow, path, points, tip)
        return f'<g id="e{number}" class="edge">{title}{drawn}{"".join(texts)}</g>\n'


def _line(arrow: Arrow, path: str, points: Sequence[Point], tip: Point | None) -> str:
    """An arrow, or in a count a pipe as wide as the cases, with those that failed as its core."""
    if arrow.line == "cases" and arrow.share is not None:
        end = "" if tip is None else f"L{tip[0]:.1f} {tip[1]:.1f}"
        width = _PIPE[0] + _PIPE[1] * arrow.share
        pieces = f'<path d="{path}{end}" class="h s-flow" stroke-width="{width:.1f}"/>'
        if arrow.failed:
            core = min(width, max(_PIPE[0], _PIPE[1] * arrow.failed))
            pieces += f'<path d="{path}{end}" class="h s-fail" stroke-width="{core:.1f}"/>'
        return pieces
    colour, width, dashes = "edge", 1.5, ' stroke-dasharray="5 3"' if arrow.data else ""
    if arrow.line == "missed":
        width, dashes = 1.25, ' stroke-dasharray="2 4"'
    elif arrow.taken and arrow.share is None:
        colour, width = "mark", 2.5 if arrow.data else 4.0
    line = f'<path d="{path}" class="h s-{colour}" stroke-width="{width}"{dashes}/>'
    return line if tip is None else line + _head(points[-1], tip, colour, width)


def _head(base: Point, tip: Point, colour: str, width: float) -> str:
    """The point of an arrow from the end of its line on."""
    across, down = tip[0] - base[0], tip[1] - base[1]
    length = (across**2 + down**2) ** 0.5 or 1.0
    half = (3.0 + width / 2) / length
    left = base[0] - down * half, base[1] + across * half
    right = base[0] + down * half, base[1] - across * half
    return _polygon(tip, left, right, look=f'class="f-{colour}"')


def _bar(traffic: Traffic, box: Box) -> str:
    """The cases that failed (hatched), have no score and passed, as shares of a bar."""
    x, y, wide, tall = box
    pieces = ""
    looks = ('fill="url(#dagengine-hatch)"', 'class="f-none"', 'class="f-bar"')
    for count, look in zip(astuple(traffic), looks, strict=True):
        width = wide * count / traffic.cases
        if count:
            pieces += f'<rect x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{tall}" {look}/>'
        x += width
    return pieces


def _shape(shape: Shape, box: Box, look: str, cut: float = _CUT) -> str:
    """The outline of a part."""
    x, y, wide, tall = box
    right, low = x + wide, y + tall

    def rect(round_: float, look: str, shift: float = 0.0, less: float = 0.0) -> str:
        corner = f'x="{x + shift:.1f}" y="{y + shift:.1f}"'
        size = f'width="{wide - less:.1f}" height="{tall - less:.1f}"'
        return f'<rect {corner} {size} rx="{round_:g}" {look}/>'

    lines = ""  # inside of the outline
    match shape:
        case "judgement" | "rating":
            outline = _polygon(
                *((x + cut, y), (right - cut, y), (right, y + cut), (right, low - cut)),
                *((right - cut, low), (x + cut, low), (x, low - cut), (x, y + cut)),
                look=look,
            )
            if shape == "rating":  # a ruler along the lower side
                for tick in range(2, 7):
                    lines += f"M{x + wide * tick / 8:.1f} {low:.1f}v{-cut * 0.6:.1f}"
        case "task":
            outline = _polygon(
                *((x, y), (right - cut, y), (right, y + cut), (right, low), (x, low)), look=look
            )
            lines = f"M{right - cut:.1f} {y:.1f}v{cut:g}h{cut:g}"
        case "code":
            outline = rect(0, look)
            lines = f"M{x + _SIDE * cut / _CUT:.1f} {y:.1f}v{tall:.1f}"
        case "items":
            step = _STACK * cut / _CUT
            outline = rect(3, look, 2 * step) + rect(3, look, step) + rect(3, look)
        case "metric":
            outline = rect(6, look) + rect(4, 'class="h s-edge"', 3, 6)
        case "folded":
            outline = rect(8, f'{look} stroke-dasharray="4 3"')
        case "end":
            outline = rect(tall / 2, look)
    return f'{outline}<path d="{lines}" class="h s-edge"/>' if lines else outline


def _legend(model: Model, room: float) -> tuple[list[str], float, float]:
    """Legend of what occurs, in lines as wide as the `room`: pieces, width and height in pixels."""
    pieces, x, y, wide = list[str](), 0.0, 0.0, room
    for sample, words in _samples(model):
        width = 38 + text_width(words, SMALL)
        if x and x + width > room:
            x, y = 0.0, y + 24
        text = _text(38, 12.5, [(words, "soft")], SMALL, anchor="start")
        pieces.append(f'<g transform="translate({x:.0f} {y + 13:.0f})">{sample}{text}</g>')
        wide, x = max(wide, x + width), x + width + 24
    return pieces, wide, y + 38


def _samples(model: Model) -> Iterable[tuple[str, str]]:
    """Shapes, ends and lines of a picture, each in 30 pixels, and what they mean."""
    wide, tall = _SAMPLE
    shapes = {part.shape for part in model.parts} | ({"metric"} if model.frames else set())
    for shape, words in SHAPES.items():
        if shape in shapes:
            look = f'class="f-{fill_of(shape)} s-edge"'
            yield _shape(shape, (0, 0, wide, tall), look, cut=5), words
    states = {part.state for part in model.parts if part.shape == "end"}
    for state, sign, words in _ENDS:
        if state in states:
            tone, look = "", 'class="f-ground s-edge"'
            if state == "failed":
                tone, look = "fail", 'class="f-fail-ground s-fail"'
            sample = _shape("end", (0, 0, wide, tall), look)
            yield sample + _text(wide / 2, 12.5, [(sign, tone)], SMALL), words
    yield from _line_samples(model)


def _line_samples(model: Model) -> Iterable[tuple[str, str]]:
    """The bars and lines of a picture, drawn as there, and what they mean."""
    wide, tall = _SAMPLE
    counts = [astuple(part.bar) for part in model.parts if part.bar is not None]
    traffic = Traffic(*map(any, zip(*counts, strict=True)))
    parts = zip(astuple(traffic), ("failed", "no score", "others"), strict=True)
    if traffic.cases:
        bar = _bar(traffic, (0, (tall - _BAR) / 2, wide, _BAR))
        yield bar, ", ".join(words for count, words in parts if count)
    failed, missed = ", failed in the end" * traffic.failed, ("not", "never")[bool(counts)]
    arrows = (
        (Arrow("", "", share=0.5, failed=0.2 * traffic.failed), f"cases{failed}"),
        (Arrow("", "", taken=True), "path of this case"),
        (Arrow("", ""), "makes it run"),
        (Arrow("", "", data=True), "passes data only"),
        (Arrow("", "", taken=False), f"{missed} taken"),
    )
    lines, y = model.lines(), tall / 2
    for arrow, words in arrows:
        if arrow.line in lines:
            yield _line(arrow, f"M0 {y}H22", [(23, y)], (wide, y)), words
    if model.has_odds:
        yield _text(wide / 2, 12.5, [("%", "soft")], SMALL), "probability of an answer"


def _text(
    x: float,
    y: float,
    words: Iterable[tuple[str, str]],
    size: int,
    *,
    anchor: str = "middle",
    bold: bool = False,
) -> str:
    weight = ' font-weight="700"' if bold else ""
    spans = [(text, tone) for text, tone in words if text]
    attributes = f'x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" font-size="{size}"{weight}'
    if len(spans) == 1:
        ((text, tone),) = spans
        return f'<text {attributes} class="f-{tone or "ink"}">{_escape(text)}</text>'
    return f'<text {attributes} xml:space="preserve">{_pieces(spans)}</text>'


def _pieces(words: Iterable[tuple[str, str]]) -> str:
    return "".join(
        f'<tspan class="f-{tone or "ink"}"{_WEIGHT.get(tone, "")}>{_escape(text)}</tspan>'
        for text, tone in words
    )


def _polygon(*points: Point, look: str) -> str:
    corners = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
    return f'<polygon points="{corners}" {look}/>'


def _escape(text: str) -> str:
    lines = text.split("\n")
    # A surrogate has no place in XML either.
    clear = "\n".join(clean(line, len(line)) for line in lines).encode(errors="replace").decode()
    return escape(clear)
