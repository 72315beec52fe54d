"""Python's garbage collector while a run goes on."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager

# New objects before the collector looks at them. Its own 700 are one case's: it would look
# through everything again and again, and no call goes out or comes in meanwhile.
_MANY = 50_000


@contextmanager
def rare_collections() -> Iterator[None]:
    """Have the collector work rarely, unless somebody has set it to that already.

    It holds for the whole process, so it is taken back at the end. Of several runs at the
    same time the first one to begin sets it, and takes it back when it ends.
    """
    young, *older = gc.get_threshold()
    if not 0 < young < _MANY:  # 0 is off
        yield
        return
    gc.set_threshold(_MANY, *older)
    try:
        yield
    finally:
        if gc.get_threshold()[0] == _MANY:
            gc.set_threshold(young, *older)
