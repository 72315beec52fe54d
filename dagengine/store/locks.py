"""Locks on bytes of a file between processes; the system frees them when their process ends.

They do not hold inside one process. Windows has none of this kind: `available` is False there.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType

try:
    import fcntl
except ModuleNotFoundError:  # pragma: no cover - Windows
    _fcntl: ModuleType | None = None
else:
    _fcntl = fcntl

available = _fcntl is not None


def lock(file: int, place: int, *, wait: bool = False) -> bool:
    """Lock one byte of an open file; False when another process holds it. OSError otherwise."""
    assert _fcntl is not None
    try:
        _fcntl.lockf(file, _fcntl.LOCK_EX | (0 if wait else _fcntl.LOCK_NB), 1, place)
    except (BlockingIOError, PermissionError):
        return False
    return True


def unlock(file: int, place: int) -> None:
    """Give a byte back."""
    assert _fcntl is not None
    _fcntl.lockf(file, _fcntl.LOCK_UN, 1, place)


def lock_whole(file: int) -> None:
    """Lock every byte of a file; raises OSError when another process holds one."""
    assert _fcntl is not None
    _fcntl.lockf(file, _fcntl.LOCK_EX | _fcntl.LOCK_NB)


@contextmanager
def locked(file: int, place: int) -> Iterator[None]:
    """Hold one byte of a file, waiting for it; for moments only."""
    lock(file, place, wait=True)
    try:
        yield
    finally:
        unlock(file, place)
