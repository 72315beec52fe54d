"""Parquet files, a batch at a time (needs the extra `parquet`)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from dagengine.data.strict_json import FlawError
from dagengine.errors import InputError, load_extra
from dagengine.system.safe_files import open_to_write

# Rows in memory at a time, when reading and when writing.
BATCH = 2048


def _library(name: str) -> Any:
    return load_extra(name, "Parquet files need", "parquet")


def require_unlike(where: str, columns: Sequence[str]) -> None:
    """Raise InputError if two columns have one name: only one of them would be read."""
    if len(set(columns)) < len(columns):
        twice = next(name for name in columns if columns.count(name) > 1)
        raise InputError(f"{where}: two columns have the same name, {twice!r:.80}")


@contextmanager
def _open_file(path: Path) -> Iterator[Any]:
    """The file while it is read; what the library finds wrong with it is an InputError."""
    parquet, errors = _library("pyarrow.parquet"), _library("pyarrow").ArrowException
    try:
        # Opened here: what looks like an address (`llama3.1:8b`) is a path.
        with path.open("rb") as opened, parquet.ParquetFile(opened) as file:
            require_unlike(str(path), file.schema_arrow.names)
            yield file
    except (errors, OSError, UnicodeDecodeError) as error:
        raise InputError(
            f"{path} is not a Parquet file, or is damaged; write it again ({error})"
        ) from None


def parquet_rows(path: Path) -> Iterator[dict[str, Any] | FlawError]:
    """The rows of a file as dicts, lazily; one that cannot be read is a FlawError."""
    with _open_file(path) as file:
        for batch in file.iter_batches(BATCH):
            yield from batch_rows(batch)


def batch_rows(batch: Any) -> list[Any]:
    """The rows of a batch of Arrow; a cell that Python has no value for costs its row alone.

    That is a text that is not UTF-8, a date beyond Python's, a map with a key twice. The library
    reads a batch whole or not at all. So a batch with a flaw is halved until the flaw is alone.
    """
    try:
        return list(batch.to_pylist(maps_as_pydicts="strict"))
    except (ValueError, OverflowError, KeyError) as error:
        if batch.num_rows == 1:
            return [FlawError(f"a cell cannot be read: {error}")]
        half = batch.num_rows // 2
        return [*batch_rows(batch.slice(0, half)), *batch_rows(batch.slice(half))]


def count_rows(path: Path) -> int:
    """The number of rows, from the file's footer."""
    with _open_file(path) as file:
        return int(file.metadata.num_rows)


class ParquetWriter:
    """Rows written in row groups. `close` makes the file readable, so call it always."""

    def __init__(self, path: Path, columns: Iterable[tuple[str, str]], **options: Any) -> None:
        """`columns` are names and Arrow types, `options` those of Arrow's own writer."""
        arrow = _library("pyarrow")
        self._schema = arrow.schema([(name, arrow.type_for_alias(kind)) for name, kind in columns])
        self._batch = arrow.RecordBatch
        self._file = open_to_write(path)
        # Opened here: what looks like an address (`llama3.1:8b/…`) is a path.
        library = _library("pyarrow.parquet")
        self._writer = library.ParquetWriter(self._file, self._schema, **options)
        self._pending: list[dict[str, Any]] = []

    def write(self, row: dict[str, Any]) -> None:
        """Take one row, in which cells may lack; so many rows become a row group of the file."""
        self._pending.append(row)
        if len(self._pending) >= BATCH:
            self._flush()

    def _flush(self) -> None:
        # Emptied first: `close` flushes once more after a write that failed, and shall not fail.
        if self._pending:
            rows, self._pending = self._pending, []
            self._writer.write_batch(self._batch.from_pylist(rows, schema=self._schema))

    def write_columns(self, columns: dict[str, list[Any]]) -> None:
        """Write columns of equal length as one row group."""
        self._writer.write_batch(self._batch.from_pydict(columns, self._schema))

    def close(self, **marks: str) -> None:
        """Write what is pending and the footer, which holds the `marks`."""
        try:
            self._flush()
            if marks:
                self._writer.add_key_value_metadata(marks)
        finally:
            self._writer.close()
            self._file.close()
