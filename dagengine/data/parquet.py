"""Parquet files, a batch at a time (needs the extra `parquet`)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

from dagengine.errors import InputError, MissingExtraError

# Rows in memory at a time, when reading and when writing.
BATCH = 2048


def _library(name: str) -> Any:
    try:
        return import_module(name)
    except ModuleNotFoundError:
        raise MissingExtraError(
            'Parquet files need pyarrow: pip install "dagengine[parquet]"'
        ) from None


def _opened(path: Path) -> Any:
    parquet = _library("pyarrow.parquet")
    try:
        return parquet.ParquetFile(path)
    except _library("pyarrow").ArrowInvalid as error:
        raise InputError(f"{path} is not a Parquet file: {error}") from None


def parquet_rows(path: Path) -> Iterator[dict[str, Any]]:
    """The rows of a file as dicts, lazily."""
    with _opened(path) as file:
        for batch in file.iter_batches(BATCH):
            yield from batch.to_pylist()


def count_parquet_rows(path: Path) -> int:
    """The number of rows, from the file's footer."""
    with _opened(path) as file:
        return int(file.metadata.num_rows)


class ParquetWriter:
    """Rows written in row groups. `close` makes the file readable, so call it always."""

    def __init__(self, path: Path, columns: Sequence[tuple[str, str]]) -> None:
        """`columns` are names and Arrow types; cells that a row lacks are null."""
        arrow = _library("pyarrow")
        self._schema = arrow.schema([(name, arrow.type_for_alias(kind)) for name, kind in columns])
        self._table = arrow.Table
        self._writer = _library("pyarrow.parquet").ParquetWriter(path, self._schema)
        self._pending: list[dict[str, Any]] = []

    def write(self, row: dict[str, Any]) -> None:
        """Take one row; every so many rows become a row group of the file."""
        self._pending.append(row)
        if len(self._pending) >= BATCH:
            self._flush()

    def _flush(self) -> None:
        if self._pending:
            rows, self._pending = self._pending, []
            self._writer.write_table(self._table.from_pylist(rows, schema=self._schema))

    def close(self) -> None:
        """Write what is pending and the footer."""
        try:
            self._flush()
        finally:
            self._writer.close()
