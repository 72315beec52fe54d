"""Tables for a notebook, and pages: texts are escaped, and what hides in them is made visible."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any

from dagengine.errors import load_extra
from dagengine.system.terminal_text import clip, one_line, plain

_CELL, _TEXT = 80, 300  # characters


def number(value: float | None) -> str:
    """A score or a figure; what is not there is a word."""
    return "none" if value is None else f"{value:.3f}"


def cell(value: str) -> str:
    """A name, on one line."""
    return escape(one_line(value, _CELL))


def text(value: str) -> str:
    """A longer text."""
    return escape(plain(clip(value, _TEXT)))


def table(heads: Sequence[str], lines: Iterable[Sequence[str]]) -> str:
    """A table of cells that are HTML already."""

    def row(kind: str, cells: Iterable[str]) -> str:
        # Notebooks put cells to the right unless each of them says otherwise.
        return "".join(f'<{kind} style="text-align: left">{cell}</{kind}>' for cell in cells)

    body = "".join(f"<tr>{row('td', line)}</tr>" for line in lines)
    return f"<table><thead><tr>{row('th', heads)}</tr></thead><tbody>{body}</tbody></table>"


def document(template: Path, filters: Mapping[str, Any], **values: Any) -> str:
    """A page that runs and loads nothing, of a template that extends `document.html`.

    Its values are text: markup is escaped, and hidden characters are shown as escapes.
    """
    jinja2 = load_extra("jinja2", "this page needs", "benchmark")
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader([template.parent, Path(__file__).parent]),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        # What is marked as HTML stays so: the escape of a hidden character is no markup.
        finalize=lambda value: type(value)(plain(value)) if isinstance(value, str) else value,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= filters
    page: str = environment.get_template(template.name).render(values)
    return page
