"""Documents in HTML: pages that run nothing and load nothing, all with one look."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from dagengine.terminal import plain


def document(template: Path, filters: dict[str, Callable[..., Any]], **values: Any) -> str:
    """A page of a template that extends `document.html`, with its filters and values.

    All values are text: markup is escaped, and hidden characters are shown as escapes.
    """
    import jinja2

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
    return environment.get_template(template.name).render(values)
