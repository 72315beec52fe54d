"""Graphviz without the warnings of its font library.

The library inside the pygraphviz package reads the machine's font settings and finds in them what
is newer than itself. It writes so to the process's standard error, past Python. Nothing turns that
off: an own settings file would, and would also choose other fonts.
"""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager

from dagengine.terminal import plain

_STDERR = 2
_NOISE = "Fontconfig "


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
