"""Locks between processes; the system frees them when their process ends.

Locks on bytes of a file do not hold inside one process. Windows has none of this kind: `available`
is False there. `one_writer` holds everywhere, also between threads.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from importlib import import_module
from pathlib import Path
from types import ModuleType

from dagengine.errors import InputError
from dagengine.system.safe_files import descriptor

try:
    import fcntl
except ModuleNotFoundError:  # pragma: no cover - Windows
    _fcntl: ModuleType | None = None
else:
    _fcntl = fcntl

available = _fcntl is not None
_FAR = 1 << 30  # a byte behind all that is read: on Windows a locked byte cannot be
_PAUSE = 0.05  # seconds between two looks at a lock that cannot be waited for
_held: set[int] = set()  # descriptors of the locks of this process


def lock(file: int, place: int) -> bool:
    """Lock one byte of an open file; False when another process holds it. OSError otherwise."""
    assert _fcntl is not None
    try:
        _fcntl.lockf(file, _fcntl.LOCK_EX | _fcntl.LOCK_NB, 1, place)
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
def one_writer(target: Path, *, folder: bool = False, wait: bool = False) -> Iterator[None]:
    """Hold a file, or a `folder`, as its only writer among all processes and threads.

    While another one holds it, this waits for its end if it is to `wait`. Otherwise it raises
    InputError, which names the process. The lock is on a small file of its own, `.writing`. Raises
    OSError if that cannot be made. On a file system without locks nothing is held.
    """
    lock_path = target / ".writing" if folder else target.with_name(f".{target.name}.writing")
    new_folder = not lock_path.parent.exists()
    lock_path.parent.mkdir(parents=True, exist_ok=True)
    file = _lock(lock_path, target, wait)
    _held.add(file)
    try:
        yield
    finally:
        if file in _held:  # not so in a fork of this process
            _held.discard(file)
            _let_go(lock_path, file)
        if new_folder:
            with suppress(OSError):  # it is not empty any more
                lock_path.parent.rmdir()


def _lock(place: Path, target: Path, wait: bool) -> int:
    """The open file of a lock that this process has now."""
    while True:
        file = descriptor(place, os.O_RDWR | os.O_CREAT)
        try:
            if not lock_file(file, wait=wait):
                process = os.read(file, 20)
                by = f" (process {int(process)})" if process.isdigit() else ""
                raise InputError(
                    f"{target} is being written by another run{by}; wait until it has ended, or "
                    "choose another place for this one"
                )
            with suppress(FileNotFoundError):
                if os.path.samestat(os.fstat(file), os.lstat(place)):
                    with suppress(OSError):  # the number only makes messages better
                        os.truncate(file, 0)
                        os.write(file, str(os.getpid()).encode())
                    return file
        except BaseException:
            os.close(file)
            raise
        os.close(file)  # the writer before removed it after it was opened here


def _let_go(place: Path, file: int) -> None:
    with suppress(OSError):  # Windows removes no file that is open
        place.unlink()
        os.close(file)
        return
    os.close(file)
    with suppress(OSError):
        place.unlink()


def lock_file(file: int, *, wait: bool = False) -> bool:
    """Lock an open file until it is closed, between threads, too; False when another has it."""
    if _fcntl is None:  # pragma: no cover - Windows
        return _lock_far_byte(file, wait)
    try:
        _fcntl.flock(file, _fcntl.LOCK_EX | (0 if wait else _fcntl.LOCK_NB))
    except BlockingIOError:
        return False
    except OSError:  # a file system without locks: every call gets it
        return True
    return True


def _lock_far_byte(file: int, wait: bool) -> bool:  # pragma: no cover - Windows
    try:
        msvcrt = import_module("msvcrt")
    except ModuleNotFoundError:  # a system without locks
        return True
    while True:
        os.lseek(file, _FAR, os.SEEK_SET)
        try:
            msvcrt.locking(file, msvcrt.LK_NBLCK, 1)
            return True
        except OSError:
            if not wait:
                return False
            time.sleep(_PAUSE)
        finally:
            os.lseek(file, 0, os.SEEK_SET)


def _forget_held() -> None:
    """In a fork: close its copies of the locks, or they would outlive the process that has them."""
    for file in _held:
        with suppress(OSError):
            os.close(file)
    _held.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_held)
