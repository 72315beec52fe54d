"""Which recording belongs to a test, and what its questions go through."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from dagengine.gateway.gateway import Asks, Gateway, Resampled
from dagengine.testing.recorded.recorder import Mode, Recorder
from dagengine.testing.recorded.recordings import Recording

FOLDER = "recordings"


def recording_of(test_file: Path) -> Path:
    """Path of the recording of a test file: in a folder beside it."""
    return test_file.parent / FOLDER / f"{test_file.stem}.jsonl"


class TestFiles:
    """The recordings of one session, each read when the first of its tests asks.

    `mode` is what the user asked for; without one, recordings are replayed where CI is set.
    """

    __test__ = False

    def __init__(self, config: pytest.Config) -> None:
        self._mode: Mode | None = config.getoption("evals", None)
        self._recordings: dict[Path, Recording] = {}
        self._asks: dict[Any, tuple[Asks, Recorder | None]] = {}

    @property
    def recorders(self) -> list[Recorder]:
        """Everything that answers were taken from, or put into."""
        recorders = (recorder for _, recorder in self._asks.values())
        return list(dict.fromkeys(recorder for recorder in recorders if recorder is not None))

    def asking(
        self, gateway: Gateway, item: pytest.Item | None, attempt: int = 0
    ) -> tuple[Asks, Recorder | None]:
        """The layer that a test asks through, and its recorder; later attempts ask again."""
        path = None if item is None else recording_of(item.path)
        key = (gateway, path, attempt)
        if key not in self._asks:
            if attempt:
                before, recorder = self.asking(gateway, item)
                self._asks[key] = Resampled(before, attempt), recorder
            else:
                recorder = None
                replays = path is not None and os.environ.get("CI") and path.exists()
                mode: Mode = self._mode or ("replay" if replays else "live")
                if path is not None and mode != "live":  # an ordinary run records nothing
                    recorder = Recorder(gateway, self._recording(path), mode)
                self._asks[key] = recorder or gateway, recorder
        return self._asks[key]

    def _recording(self, path: Path) -> Recording:
        if path not in self._recordings:
            self._recordings[path] = Recording.read(path)
        return self._recordings[path]

    def new(self) -> list[Recording]:
        """What this process recorded, to be added in another one."""
        return [replace(recording, answers={}) for recording in self._recordings.values()]

    def add(self, recordings: Iterable[Recording]) -> None:
        """Add what another process recorded."""
        for recording in recordings:
            self._recording(recording.path).add_new(recording)

    def save(self, *, is_whole: bool) -> list[tuple[Path, int]]:
        """Write the recordings that changed; returns their paths, and how many answers changed.

        Only where the whole file ran (`is_whole`) a refreshed one loses what nobody asked for.
        """
        if self._mode not in ("record", "refresh"):
            return []
        return [
            (path, len(recording.new))
            for path, recording in sorted(self._recordings.items())
            if recording.save(only_used=self._mode == "refresh" and is_whole)
        ]
