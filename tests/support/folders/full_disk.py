"""Disks without room: a file that stands on one."""

from __future__ import annotations

from pathlib import Path
from typing import BinaryIO, cast

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

    monkeypatch.setattr("dagengine.data.json_lines.open_to_write", opened)
