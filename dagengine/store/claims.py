"""Which process asks a question: of several that share a store the first one, while it lives.

A claim is a lock on one byte of an empty file beside the store, at a place that the question's
key decides. The system gives it back when the process ends, however it ends, so no claim
outlives its owner. If there are no such locks (Windows, a folder that cannot be written) every
process asks for itself, and the store keeps the first answer.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from dagengine.file_locks import available, lock, lock_whole, unlock
from dagengine.regular_files import descriptor

# Seconds between looks for the answer to a question that another process asks.
LOOKS = (0.01, 0.02, 0.05, 0.1, 0.2)
# Places of locks: as many as the smallest offset of a file in use has room for.
_PLACES = 1 << 62


class Claims:
    """The questions that this process asks, for others to see."""

    def __init__(self, store: Path) -> None:
        self._path = store.with_name(f"{store.name}-asking")
        self._file: int | None = None
        self._held: dict[int, int] = {}
        if available:
            with suppress(OSError):
                self._file = descriptor(self._path, os.O_RDWR | os.O_CREAT)

    @contextmanager
    def of(self, key: bytes) -> Iterator[bool]:
        """Try to claim a question; gives whether it may be asked here, now."""
        offset = int.from_bytes(key[:8], "big") % _PLACES
        mine = self._lock(offset)
        try:
            yield mine
        finally:
            if mine:
                self._held[offset] -= 1
                if not self._held[offset]:
                    del self._held[offset]
                    if self._file is not None:
                        with suppress(OSError):
                            unlock(self._file, offset)

    def _lock(self, place: int) -> bool:
        if self._held.get(place):  # locks of one process do not hold against itself
            self._held[place] += 1
            return True
        if self._file is not None:
            try:
                if not lock(self._file, place):
                    return False
            except OSError:  # a file system without locks
                self._close()
        self._held[place] = 1
        return True

    def close(self) -> None:
        """Give all claims back, and remove the file unless another process has claims."""
        if self._file is not None:
            # Only who holds every place may remove the file: another process would go on with locks
            # in a file that nobody else can open.
            with suppress(OSError):
                lock_whole(self._file)
                self._path.unlink()
        self._close()

    def _close(self) -> None:
        if self._file is not None:
            os.close(self._file)
            self._file = None
