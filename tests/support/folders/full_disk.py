"""Disks without room: a file that stands on one."""

from __future__ import annotations

import errno
import io
from pathlib import Path
from typing import Any, BinaryIO, cast

import pytest

from dagengine.system.safe_files import open_to_write


def on_full_device(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """Let lines for a file of this name go to a device that takes none.

    A link to it does not do: none is followed.
    """

    def opened(path: Path, *, emptied: bool = True) -> BinaryIO:
        if path.name == name:
            return cast(BinaryIO, open("/dev/full", "wb", buffering=0))
        return open_to_write(path, emptied=emptied)

    monkeypatch.setattr("dagengine.data.written_lines.open_to_write", opened)


class SmallDisk(io.FileIO):
    """A file on a disk with room for some bytes: the last write that fits takes only a part."""

    room = 0

    def write(self, data: Any) -> int:
        part = bytes(data)[: self.room]
        if not part:
            raise OSError(errno.ENOSPC, "No space left on device")
        self.room -= len(part)
        return super().write(part)


def on_small_disk(monkeypatch: pytest.MonkeyPatch, name: str, room: int) -> None:
    """Let lines that are added to a file of this name go to a disk with little room."""

    def opened(path: Path, *, emptied: bool = True) -> BinaryIO:
        if path.name != name:
            return open_to_write(path, emptied=emptied)
        file = SmallDisk(path, "a+")
        file.room = room
        return cast(BinaryIO, file)

    monkeypatch.setattr("dagengine.data.written_lines.open_to_write", opened)
