"""A picture as Mermaid text, which code hosts draw in pull requests."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator

from dagengine.report.pictures.parts import Model, Shape, Stroke
from dagengine.report.pictures.path_and_counts import clean, lines_of, plain

_WIDTH, _LINES = 40, 24  # characters of a line, lines of a text
_SHAPES: dict[Shape, tuple[str, str]] = {
    "judgement": ("{{", "}}"),
    "rating": ("[/", "\\]"),
    "items": ("[[", "]]"),
    "task": ("[/", "/]"),
    "code": ("[", "]"),
    "metric": ("[(", ")]"),
    "folded": ("(", ")"),
    "end": ("([", "])"),
}
_DOTTED = ("-.", ".->", "-.->")
# Before the words of an arrow, behind them, and in their place.
_STROKES: dict[Stroke, tuple[str, str, str]] = {
    "taken": ("==", "==>", "==>"),
    "data": _DOTTED,
    "missed": _DOTTED,
}
_ENTITIES = str.maketrans(
    {"#": "#35;", "&": "#amp;", '"': "#quot;", "<": "#lt;", ">": "#gt;", "`": "#96;", "\n": "<br/>"}
)
# Strokes only: these colours can be seen in both lights of a page.
_CLASSES = {
    "bad": "stroke:#b3261e,stroke-width:2px",
    "taken": "stroke:#3f83c4,stroke-width:3px",
    "quiet": "stroke-dasharray:3 3",
}


def mermaid_text(model: Model) -> str:
    """The picture as a Mermaid flowchart with its title."""
    title = " ".join(clean(f"{model.name} ({plain(model.facts)})").split())
    lines = ["---", f"title: {json.dumps(title, ensure_ascii=False)}", "---", "flowchart TD"]
    lines += _frame(model, None, "  ")
    for arrow in model.arrows:
        begin, end, bare = _STROKES.get(arrow.line, ("--", "-->", "-->"))
        texts = filter(None, (" ".join(arrow.answer), *map(plain, arrow.words)))
        words = " · ".join(map(_quote, texts))
        stroke = f'{begin} "{words}" {end}' if words else bare
        lines.append(f"  {arrow.source} {stroke} {arrow.target}")
    keys: dict[str, list[str]] = {}
    for part in model.parts:
        # A part has one class: what was never reached is quiet even if it is a failing end.
        if part.reached is not False and part.shape == "end" and part.state == "failed":
            keys.setdefault("bad", []).append(part.key)
        elif part.reached and part.bar is None:
            keys.setdefault("taken", []).append(part.key)
        elif part.reached is False or part.shape == "folded":
            keys.setdefault("quiet", []).append(part.key)
    lines += [f"  classDef {kind} {_CLASSES[kind]}" for kind in keys]
    lines += [f"  class {','.join(parts)} {kind}" for kind, parts in keys.items()]
    legend = "<br/>".join(_legend(model))
    if legend:
        lines += [f'  legend["{legend}"]', "  style legend fill:none,stroke:none"]
    return "\n".join(lines) + "\n"


def questions_text(model: Model) -> str:
    """The questions of a picture as a numbered Markdown list; empty if its nodes have none."""
    return "".join(
        f"{number}. **{_escape_markdown(name)}**: {_escape_markdown(question)}\n"
        for number, (name, question) in enumerate(model.questions, 1)
        if name != question
    )


def _frame(model: Model, frame: str | None, indent: str) -> Iterator[str]:
    for part in model.inside(frame):
        before, after = _SHAPES[part.shape]
        if part.shape == "end":
            label = _quote(" ".join(part.name) + "".join(map(plain, part.lines)))
        else:
            lines = (" ".join(part.name), *map(plain, part.lines), " ".join(part.note))
            label = "<br/>".join(map(_quote, filter(None, lines)))
        yield f'{indent}{part.key}{before}"{label}"{after}'
    for inner in model.frames_in(frame):
        yield f'{indent}subgraph {inner.key}["{_quote(f"{inner.name} · {plain(inner.words)}")}"]'
        yield from _frame(model, inner.key, f"{indent}  ")
        yield f"{indent}end"


def _legend(model: Model) -> Iterator[str]:
    """Legend of the lines that occur, if there are several kinds."""
    lines, missed = model.lines(), {"counts": "never taken"}.get(model.kind, "not taken")
    meanings: dict[Stroke, str] = {
        "taken": "thick arrow: the path of this case",
        "runs": "solid arrow: makes it run",
        "missed": f"dotted arrow: {missed}",
        "data": "dotted arrow: passes data only",
    }
    if any(part.bar and part.bar.failed for part in model.parts):
        yield "✕ failed in the end"
    if len(lines) > 1:
        yield ", ".join(words for line, words in meanings.items() if line in lines)
    if model.has_odds:
        yield "%: probability of an answer"


def _quote(text: str) -> str:
    """Text inside a quoted Mermaid label: entities for what would end or mark it up."""
    short = "\n".join(lines_of(" ".join(clean(text).split()), _WIDTH, _LINES))
    return short.translate(_ENTITIES)


def _escape_markdown(text: str) -> str:
    """Text of one line that Markdown shows as it is."""
    line = " ".join(clean(text, len(text)).split())
    return re.sub(r"[\\`*_{}\[\]<>#|!]", r"\\\g<0>", line)
