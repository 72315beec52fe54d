"""One of several equal parts of a data set: every n-th case, so that long and short ones mix."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TypeVar

from dagengine.errors import InputError

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Shard:
    """The part `number` (1, 2, …) of `count` parts; raises InputError for one there is not."""

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
        """From what people type: `2/4`; raises InputError for anything else."""
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
        """The index of its first case; every `count`-th from there on belongs to it."""
        return self.number - 1

    def part_of(self, items: Iterable[T]) -> Iterator[T]:
        """Its items of all."""
        return itertools.islice(items, self.first, None, self.count)

    def size(self, total: int | None) -> int | None:
        """Number of items, of so many, in this shard."""
        return None if total is None else len(range(self.first, total, self.count))
