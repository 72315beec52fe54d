"""Which process asks a question, of several that share a store.

It is the first one, while it lives. Locks say so, which the system gives back when a process ends,
however it ends. So no claim outlives its owner.
"""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path
from typing import TypeVar

from pydantic import BaseModel

from dagengine.question import Answer
from dagengine.system.file_locks import available, lock, lock_whole, unlock
from dagengine.system.safe_files import descriptor

T = TypeVar("T", bound=BaseModel)
Ask = Callable[[], Awaitable[Answer[T]]]
Wait = AbstractContextManager[None] | None
"""Is entered while a question waits for another process that asks the same."""

# Seconds between looks for the answer to a question that another process asks.
LOOKS = (0.01, 0.02, 0.05, 0.1, 0.2)
# Offsets of locks: as many as the smallest offset of a file in use has room for.
_OFFSETS = 1 << 62


class Claims:
    """The questions that this process asks, for others that share its store to see.

    A claim is a lock on one byte of an empty file beside the store, at a place that the question's
    key decides. If there are no such locks (Windows, a folder that cannot be written) every process
    asks for itself, and the store keeps the first answer.
    """

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
        offset = int.from_bytes(key[:8], "big") % _OFFSETS
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
