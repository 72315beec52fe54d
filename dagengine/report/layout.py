"""DOT text laid out by Graphviz: the libraries inside pygraphviz, or the `dot` program."""

from __future__ import annotations

import shutil
import subprocess
from typing import Any

import graphviz

from dagengine.errors import MissingExtraError
from dagengine.report.font_warnings import without_font_warnings


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
