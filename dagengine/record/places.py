"""Rows and texts of a run folder by their place, without holding them."""

from __future__ import annotations

from array import array
from collections.abc import Mapping
from pathlib import Path
from typing import Any, BinaryIO

from dagengine.data.json_lines import value_of
from dagengine.data.result_rows import row_of
from dagengine.errors import InputError
from dagengine.record.run import Run
from dagengine.record.writer import CASES
from dagengine.results import CaseResult

_OWN = ("index", "hash", "type")  # what a line of cases says beside the fields


class RunFiles:
    """The rows and the texts of one run, each reached by its place from 0 on.

    Eight bytes are held for each line; results in a format without lines are held whole. Use it
    as a context manager, or close it.
    """

    def __init__(self, run: Run) -> None:
        self._rows: Lines | list[CaseResult]
        self._rows = Lines(run.results) if run.results.suffix == ".jsonl" else list(run.rows())
        self._texts = Lines(run.folder / CASES)

    def __enter__(self) -> RunFiles:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the files."""
        self._texts.close()
        if isinstance(self._rows, Lines):
            self._rows.close()

    def __len__(self) -> int:
        return len(self._rows)

    def row(self, place: int) -> CaseResult:
        """The row at a place; raises InputError for a damaged line."""
        if isinstance(self._rows, list):
            return self._rows[place]
        return row_of(self._rows.value(place), self._rows.named(place))

    def fields(self, place: int) -> Mapping[str, Any] | None:
        """The fields of a case; None where no texts were kept."""
        if place >= len(self._texts):
            return None
        found = self._texts.value(place)
        return {name: value for name, value in found.items() if name not in _OWN}


class Lines:
    """The complete lines of a file, by number from 0 on; none where there is no file."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._starts = array("q", [0])
        self._file: BinaryIO | None = path.open("rb") if path.exists() else None
        self.extend()

    def extend(self) -> None:
        """Take in what was added to the file since."""
        if self._file is None:
            return
        self._file.seek(self._starts[-1])
        for line in self._file:
            if line.endswith(b"\n"):
                self._starts.append(self._starts[-1] + len(line))

    def close(self) -> None:
        """Close the file."""
        if self._file is not None:
            self._file.close()

    def __len__(self) -> int:
        return len(self._starts) - 1

    def named(self, number: int) -> str:
        """What messages call a line."""
        return f"{self._path} line {number + 1}"

    def value(self, number: int) -> Any:
        """The JSON of a line; raises InputError for a damaged one."""
        assert self._file is not None
        self._file.seek(self._starts[number])
        line = self._file.read(self._starts[number + 1] - self._starts[number])
        try:
            return value_of(line)
        except (ValueError, RecursionError) as error:
            raise InputError(f"{self.named(number)}: not JSON: {error}") from None
