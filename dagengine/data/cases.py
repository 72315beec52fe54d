"""Test cases and goldens from any source (`read_cases`), and the parts of a data set (`Shard`).

A row that is not a test case becomes an `InvalidCase` in its place. So one invalid line near the
end of a long file costs one row of the results and not the run. The first rows are checked before
the first call (`Cases.check`).
"""

from __future__ import annotations

import itertools
import re
from collections.abc import AsyncIterable, AsyncIterator, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypedDict, TypeVar, Unpack, overload

from dagengine.data.column_mapping import Converter, Item, no_case, suggest_mapping
from dagengine.data.golden import GOLDEN_TYPES, ConversationalGolden, Golden
from dagengine.data.row_readers import Record, Table, table_by, table_of
from dagengine.data.tool_presets import preset_called
from dagengine.errors import InputError
from dagengine.test_case import CASE_TYPES, InvalidCase, TestCase

T = TypeVar("T")


class Cases:
    """Test cases read lazily: iterate as often as the source allows."""

    def __init__(self, table: Table, convert: Converter) -> None:
        self._table = table
        self._convert = replace(convert, typed=table.typed, plain=table.plain)

    @property
    def name(self) -> str:
        """The file that they are read from; empty for what is in memory."""
        return self._table.name

    def __iter__(self) -> Iterator[Item]:
        return map(self._convert, self._records())

    def _records(self) -> Iterator[Record]:
        """The records; raises InputError for a file, or a pipe, that has none."""
        record = None
        for record in self._table.read():
            yield record
        if record is None and self.name:
            raise InputError(f"{self.name} has no test cases")

    def count(self) -> int | None:
        """The number of rows, valid or not; None when only reading them would tell."""
        return self._table.count()

    def check(self) -> list[Item]:
        """Check the first 1000 rows (of a list: all), and return the cases in them.

        Raises InputError for the first invalid row, for an empty file and for a mapped column that
        no row has. A source that can be read only once is left alone, and gives no case.
        """
        if self._table.checkable == 0:
            return []
        records = list(itertools.islice(self._records(), self._table.checkable))
        self._convert.check_columns(records)
        items = list(map(self._convert, records))
        try:
            return list(valid_cases(items))
        except InputError as error:
            raise InputError(f"{error}{suggest_mapping(self._convert, records)}") from None


class AsyncCases:
    """Test cases of an async source, read once, as they come."""

    def __init__(self, source: AsyncIterable[Any], convert: Converter) -> None:
        self._source = source
        self._rows: AsyncIterator[Any] | None = None
        self._convert = convert
        self._number = itertools.count()

    def __aiter__(self) -> AsyncCases:
        return self

    async def __anext__(self) -> Item:
        # A source that nobody reads is not begun.
        if self._rows is None:
            self._rows = aiter(self._source)
        row = await anext(self._rows)
        return self._convert(Record(f"case {next(self._number)}", row))

    async def aclose(self) -> None:
        """Let an async generator clean up."""
        close = getattr(self._rows, "aclose", None)
        if close is not None:
            await close()


class _Reading(TypedDict, total=False):  # the keyword arguments of `read_cases`
    map: Mapping[str, str | None] | None
    delimiters: Mapping[str, str] | None
    goldens: bool
    others: bool
    preset: str | None


@overload
def read_cases(source: str | Path | Iterable[Any], **reading: Unpack[_Reading]) -> Cases: ...
@overload
def read_cases(source: AsyncIterable[Any], **reading: Unpack[_Reading]) -> AsyncCases: ...
def read_cases(
    source: Any,
    *,
    map: Mapping[str, str | None] | None = None,
    delimiters: Mapping[str, str] | None = None,
    goldens: bool = False,
    others: bool = True,
    preset: str | None = None,
) -> Cases | AsyncCases:
    """Read test cases from a JSONL, JSON, CSV, TSV or Parquet file, or from an object in memory.

    `source` is a path, a pandas DataFrame or one split of a Hugging Face data set. It may also be
    an iterable (also an async one) of test cases or dicts. Rows with `turns` are conversations, and
    rows with `contestants` are arena cases. Columns have the names of the fields of a test case.
    Other columns are mapped: `map={"question": "input"}`, or `{"label":
    "additional_metadata.label"}` for a key of an object. `{"inputs.question": "input"}` reaches
    inside of a column. `map={"notes": None}` ignores one. A list in a text cell is JSON, or is
    split at the delimiter of the column (`delimiters={"context": ";"}`, `""` if a cell is one
    item). With `goldens`, rows are read as goldens. Without `others`, only the columns in `map` are
    read. A `preset` (`"ragas"`, `"promptfoo"`, `"openai"`, `"healthbench"`) maps the columns of the
    files of that tool or data set. Packages offer others (entry points of `dagengine.readers`).

    Raises InputError for a source that cannot be read, an unknown field in `map`, and an unknown
    preset.
    """
    if isinstance(source, Cases | AsyncCases):
        return source
    if isinstance(source, (*CASE_TYPES, *GOLDEN_TYPES)):
        raise InputError(f"test_cases must be a list of test cases, got {source!r:.80}")
    if isinstance(source, type) or hasattr(source, "spec"):  # a class, or a metric
        raise InputError(f"test_cases must be a list of test cases: {no_case(source)}")
    fields = {column: field or None for column, field in (map or {}).items()}  # "" is as None
    convert = Converter(fields, dict(delimiters or {}), goldens, others, preset)
    if isinstance(source, AsyncIterable):
        return AsyncCases(source, convert)
    read_file = preset_called(preset).read  # packages may offer a function instead of columns
    if read_file and isinstance(source, str | Path):
        return Cases(table_by(read_file, Path(source), str(preset)), convert)
    return Cases(table_of(source), convert)


def valid_cases(items: Iterable[Item]) -> Iterator[TestCase | Golden | ConversationalGolden]:
    """The cases; raises InputError at the first invalid row, and skips traces without texts."""
    for item in items:
        if not isinstance(item, InvalidCase):
            yield item
        elif not item.nothing_to_judge:
            raise InputError(str(item))


@dataclass(frozen=True, slots=True)
class Shard:
    """One of `count` parts: every `count`-th case. Raises InputError for a `number` beyond them."""

    number: int = 1
    count: int = 1

    def __post_init__(self) -> None:
        if not 1 <= self.number <= self.count:
            raise InputError(
                f"there is no shard {self}: shards go from 1/{self.count} to "
                f"{self.count}/{self.count}"
            )

    @classmethod
    def parse(cls, text: str) -> Shard:
        """Read a shard as people type it, `2/4`; raises InputError for anything else."""
        if not re.fullmatch(r"\d{1,9}/\d{1,9}", text, re.ASCII):
            raise InputError(
                f"write a shard as I/N, for instance 2/4 (the second of four), not {text}"
            )
        number, _, count = text.partition("/")
        return cls(int(number), int(count))

    def __str__(self) -> str:
        return f"{self.number}/{self.count}"

    @property
    def first(self) -> int:
        """The index, from 0, of its first case."""
        return self.number - 1

    def part_of(self, items: Iterable[T]) -> Iterator[T]:
        """The items that are in this shard, of the `items` of all shards."""
        return itertools.islice(items, self.first, None, self.count)

    def size(self, total: int | None) -> int | None:
        """The number of items in this shard, if all shards have `total` together."""
        return None if total is None else len(range(self.first, total, self.count))
