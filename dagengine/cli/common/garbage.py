"""Python's garbage collector in a command: what is imported stays, and is not looked through.

Its looks at modules and classes, which never become garbage, were a quarter of the time until the
first question. Its last look came when all was done.
"""

from __future__ import annotations

import gc
import sys
from collections.abc import Iterator
from contextlib import contextmanager

# New objects before the collector looks at them: more than are imported, and, at work, those of
# some hundred cases, as `execution.local_executor` has it.
_IMPORTED, _AT_WORK = 500_000, 50_000


@contextmanager
def collector_at_rest() -> Iterator[None]:
    """Let a process begin and end without the collector; only for one that is ours alone."""
    usual = gc.get_threshold()
    gc.set_threshold(_IMPORTED, *usual[1:])
    try:
        yield
    finally:
        if "duckdb" not in sys.modules:  # its bindings report what the collector has not taken
            gc.freeze()  # the end of the process takes everything
        gc.set_threshold(*usual)


def collector_at_work() -> None:
    """From here on look at what is new, and leave alone what has been imported by now.

    Nothing happens where the collector is not at rest.
    """
    young, *older = gc.get_threshold()
    if young == _IMPORTED:
        gc.freeze()
        gc.set_threshold(_AT_WORK, *older)
