"""JSON lines as they are written: every line whole, at whatever moment the process ends."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError
from pydantic_core import from_json

from dagengine.errors import InputError
from dagengine.prompts.json_values import shallow_value
from dagengine.system.regular_files import open_to_read, open_to_write, write_all

T = TypeVar("T", bound=BaseModel)
_JSON = json.JSONEncoder(ensure_ascii=False, default=str, allow_nan=False)


def line_of(row: Mapping[str, Any]) -> bytes:
    """The line of one object, with its end; a number that is not finite is null."""
    try:
        text = _JSON.encode(row)
    except ValueError:
        text = _JSON.encode(finite(row))
    # A lone surrogate comes out as the JSON escape it needs to be.
    return f"{text}\n".encode(errors="backslashreplace")


def finite(value: Any) -> Any:
    """A value of JSON with null in the place of the numbers that JSON has no form for."""
    if isinstance(value, str):
        return value
    if isinstance(value, dict):
        return {key: finite(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [finite(inner) for inner in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def value_of(line: bytes) -> Any:
    """The value in a line; raises ValueError for text that is not JSON, or nested too deeply."""
    try:
        return from_json(line)
    except ValueError:  # lone surrogates, which it refuses and this project writes
        return shallow_value(line)


class JsonLines:
    """Writes one JSON object per line; every line is complete, even when the process is killed.

    What JSON has no form for is written as its text.
    """

    def __init__(self, path: Path, *, emptied: bool = True) -> None:
        """A file that is not `emptied`, whose lines are whole, is continued."""
        self._file = open_to_write(path, emptied=emptied)
        self.size = 0 if emptied else path.stat().st_size  # bytes of whole rows

    def write(self, row: Mapping[str, Any]) -> None:
        """Write one object; raises OSError, and then the lines before it are whole."""
        self.write_line(line_of(row))

    def write_line(self, line: bytes) -> None:
        """Write what `line_of` has made of an object; raises OSError as `write` does."""
        try:
            write_all(self._file, line)
        except OSError:
            # Half a line would become one with the next, and both would be lost to readers.
            with suppress(OSError):
                self._file.truncate(self.size)
            raise
        self.size += len(line)

    def close(self) -> None:
        """Close the file."""
        self._file.close()


def complete_lines(path: Path, *, whole: bool) -> Iterator[tuple[str, bytes]]:
    """The lines of a file that are not blank, each after its place.

    Unless it is `whole`, no half line at its end. Raises InputError for what is no regular file.
    """
    with open_to_read(path) as file:
        for number, line in enumerate(file, 1):
            if not line.isspace() and (whole or line.endswith(b"\n")):
                yield f"{path} line {number}", line


def read_models(path: Path, kind: type[T], what: str, *, whole: bool) -> Iterator[T]:
    """The lines of a file as values of a kind, see `complete_lines`.

    Raises InputError, which names the line, for one that is not `what` it should be.
    """
    for position, line in complete_lines(path, whole=whole):
        try:
            yield kind.model_validate_json(line)
        except ValidationError as error:
            raise InputError(f"{position}: not {what}: {error.errors()[0]['msg']}") from None
