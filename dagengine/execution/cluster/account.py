"""One account for several processes of a machine: what they have spent together."""

from __future__ import annotations

import mmap
import os
import struct
from pathlib import Path
from types import TracebackType

from dagengine.gateway.budget import Account
from dagengine.store.locks import lock, unlock

_SUMS = struct.Struct("<Qdd")


class SharedAccount(Account):
    """An account whose sums are in a file; they are read and changed under a lock.

    What a process had reserved when it was killed stays reserved: the calls were in progress, and
    are likely to be paid.
    """

    def __init__(self, path: Path) -> None:
        super().__init__()
        self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        os.truncate(self._file, _SUMS.size)
        self._sums = mmap.mmap(self._file, 0)

    def __enter__(self) -> SharedAccount:
        lock(self._file, 0, wait=True)
        self.calls, self.reserved, self.spent = _SUMS.unpack_from(self._sums)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        _SUMS.pack_into(self._sums, 0, self.calls, self.reserved, self.spent)
        unlock(self._file, 0)

    def close(self) -> None:
        """Let go of the file."""
        self._sums.close()
        os.close(self._file)
