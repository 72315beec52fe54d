"""DOT text laid out by Graphviz: the `dot` program, or the libraries inside pygraphviz."""

from __future__ import annotations

import shutil
from typing import Any

import graphviz

from dagengine.errors import MissingExtraError
from dagengine.report.font_warnings import without_font_warnings


def laid_out(dot: str, form: str) -> bytes:
    """The drawing in a form that Graphviz writes (svg, png, pdf, json0).

    Raises MissingExtraError without Graphviz.
    """
    if shutil.which("dot"):
        return bytes(graphviz.Source(dot).pipe(format=form))
    try:
        import pygraphviz
    except ImportError:
        raise MissingExtraError(
            "pictures need Graphviz: pip install pygraphviz (which brings its own), or "
            "install the `dot` program; .dot and .mmd files can be written without"
        ) from None
    with without_font_warnings():
        drawn: Any = pygraphviz.AGraph(string=dot).draw(format=form, prog="dot")
    return bytes(drawn)
