"""DOT text laid out by Graphviz: the libraries inside pygraphviz, or the `dot` program.

The library inside the pygraphviz package reads the machine's font settings and finds in them what
is newer than itself. It writes so to the process's standard error, past Python. Nothing turns that
off: an own settings file would, and would also choose other fonts.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import graphviz

from dagengine.errors import MissingExtraError
from dagengine.system.terminal import plain

_STDERR = 2
_NOISE = "Fontconfig "


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
    """Hold back what is written to the standard error meanwhile; the rest follows at the end."""
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
