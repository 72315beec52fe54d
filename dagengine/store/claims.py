"""Which process asks a question, of several that share a store, or a run without one.

It is the first one, while it lives. Locks say so, which the system gives back when a process ends,
however it ends. So no claim outlives its owner.
"""

from __future__ import annotations

import itertools
import json
import mmap
import os
import struct
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import (
    AbstractAsyncContextManager,
    AbstractContextManager,
    asynccontextmanager,
    contextmanager,
    nullcontext,
    suppress,
)
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, TypeVar

import anyio
from pydantic import BaseModel

from dagengine.question import Answer, DurableNames, Judge, Question
from dagengine.store.database import entry_of, key_of, revive
from dagengine.system.file_locks import available, hold_byte, lock, lock_whole, unlock
from dagengine.system.safe_files import descriptor

T = TypeVar("T", bound=BaseModel)
Ask = Callable[[], Awaitable[Answer[T]]]
Wait = AbstractContextManager[None] | None
"""Is entered while a question waits for another process that asks the same."""

# Seconds between looks for the answer to a question that another process asks.
LOOKS = (0.01, 0.02, 0.05, 0.1, 0.2)
# Offsets of locks: as many as the smallest offset of a file in use has room for.
_OFFSETS = 1 << 62
_PLACE = struct.Struct("<16sIIQ")  # the key's beginning, process, bytes of the answer, from where
_BUCKET = 8 * _PLACE.size  # bytes
_BUCKETS = 1 << 17
_EMPTY = bytes(_PLACE.size)
# Seconds that a question waits for the process that asks it: that one may have been stopped.
_PATIENCE = 60.0


class Claims:
    """The questions that this process asks, for others that share its store to see.

    A claim is a lock on one byte of an empty file beside the store, at a place that the question's
    key decides. If there are no such locks (Windows, a folder that cannot be written) every process
    asks for itself, and the store keeps the first answer.
    """

    def __init__(self, store: Path) -> None:
        self._path = store.with_name(f"{store.name}-asking")
        self._file: int | None = None
        self._held: dict[int, int] = {}
        if available:
            with suppress(OSError):
                self._file = descriptor(self._path, os.O_RDWR | os.O_CREAT)

    @contextmanager
    def of(self, key: bytes) -> Iterator[bool]:
        """Try to claim a question; gives whether it may be asked here, now."""
        offset = int.from_bytes(key[:8], "big") % _OFFSETS
        mine = self._lock(offset)
        try:
            yield mine
        finally:
            if mine:
                self._held[offset] -= 1
                if not self._held[offset]:
                    del self._held[offset]
                    if self._file is not None:
                        with suppress(OSError):
                            unlock(self._file, offset)

    def _lock(self, place: int) -> bool:
        if self._held.get(place):  # locks of one process do not hold against itself
            self._held[place] += 1
            return True
        if self._file is not None:
            try:
                if not lock(self._file, place):
                    return False
            except OSError:  # a file system without locks
                self._close()
        self._held[place] = 1
        return True

    def close(self) -> None:
        """Give all claims back, and remove the file unless another process has claims."""
        if self._file is not None:
            # Only who holds every place may remove the file: another process would go on with locks
            # in a file that nobody else can open.
            with suppress(OSError):
                lock_whole(self._file)
                self._path.unlink()
        self._close()

    def _close(self) -> None:
        if self._file is not None:
            os.close(self._file)
            self._file = None


class _Place(NamedTuple):
    """A place of the table: where it begins, and what it says."""

    at: int
    key: bytes
    process: int
    length: int
    begin: int


@dataclass(slots=True)
class Claim:
    """What was `heard` of a question from another process, and the `data` of its answer here."""

    heard: bytes = b""
    data: bytes = b""


class CommonAnswers(ABC):
    """The answers that the processes of one run share; used as an open store.

    The first one that has a question asks it. Judges without a durable identity are asked in every
    process.
    """

    replays = False
    damaged = 0

    def __init__(self) -> None:
        self._names = DurableNames()

    async def get(
        self, judge: Judge, question: Question[T], ask: Ask[T], waiting: Wait = None
    ) -> Answer[T]:
        """The answer that a process of this run has, or the one that `ask` gets."""
        name = self._names.of(judge)
        if name is None:
            return await ask()
        key = key_of(name, question)
        async with self._turn(key, waiting or nullcontext()) as claim:
            if claim.heard:
                fields = json.loads(claim.heard.decode(errors="surrogatepass"))
                stored = revive(question, fields, "cached")
                if stored is not None:
                    return stored
            answer = await ask()
            entry = entry_of(key, name, question, answer)
            claim.data = b"" if entry is None else entry.answer.encode(errors="surrogatepass")
            return answer

    @abstractmethod
    def _turn(
        self, key: bytes, waiting: AbstractContextManager[None]
    ) -> AbstractAsyncContextManager[Claim]:
        """Wait until another process has answered, or this one may ask; then tell the others."""


class SharedAnswers(CommonAnswers):
    """Common answers of the processes of one machine, where the run has no store.

    A folder holds a table of all questions, which every process maps into its memory, and the
    answers of each process in its own file. A place in the table says who asks a question, or where
    its answer stands. Nothing of it outlives the run, so nothing is made safe, which is cheap. In
    its buckets new questions take the places of old ones: of very many questions only the latest
    are known, and an old one is asked again.

    Its files are closed with the process.
    """

    def __init__(self, folder: Path) -> None:
        """`folder` exists, and every process of the run gets the same one."""
        super().__init__()
        self._folder = folder
        self._process = os.getpid()
        self._table_file = _open_file(folder / "table")
        # Every process holds the byte of its number as long as it lives.
        self._alive = _open_file(folder / "alive")
        lock(self._alive, self._process)
        os.truncate(self._table_file, _BUCKETS * _BUCKET)
        self._table = mmap.mmap(self._table_file, 0)
        self._own = _open_file(self._answers_of(self._process))
        self._end = os.fstat(self._own).st_size

    @asynccontextmanager
    async def _turn(
        self, key: bytes, waiting: AbstractContextManager[None]
    ) -> AsyncIterator[Claim]:
        waited, claim = 0.0, Claim()
        looks = itertools.chain(LOOKS, itertools.repeat(LOOKS[-1]))
        place, mine = self._claim(key)
        while not mine and not place.length and waited < _PATIENCE:
            wait = next(looks)
            with waiting:
                await anyio.sleep(wait)
            waited += wait
            place, mine = self._claim(key)
        if not mine and place.length:
            with self._answers_of(place.process).open("rb") as file:
                file.seek(place.begin)
                claim.heard = file.read(place.length)
        try:
            yield claim
        finally:
            if mine:  # a failure empties the place, so that another process may ask
                data, begin = claim.data, self._end
                self._end += os.pwrite(self._own, data, begin)
                record = _PLACE.pack(place.key, self._process, len(data), begin) if data else _EMPTY
                with hold_byte(self._table_file, place.at // _BUCKET * _BUCKET):
                    now = _PLACE.unpack_from(self._table, place.at)
                    if now[:2] == (place.key, self._process):  # no other question took the place
                        self._table[place.at : place.at + _PLACE.size] = record

    def _claim(self, key: bytes) -> tuple[_Place, bool]:
        """The place of a question, and whether it is for this process to ask it."""
        # The key decides the bucket, and the lock is on that bucket alone, so that processes which
        # ask different questions do not wait for each other:
        #
        #     bucket    [key|process|length|begin], eight times
        #     length 0  the process is asking, unless it has ended: then the question is free again
        #     length n  the answer stands in that process's file, `n` bytes from `begin` on
        short = key[:16]
        bucket = int.from_bytes(key[16:20], "big") % _BUCKETS * _BUCKET
        with hold_byte(self._table_file, bucket):
            slots = self._table[bucket : bucket + _BUCKET]
            at = slots.find(short)
            while at % _PLACE.size and at > 0:  # by chance, in the middle of other places
                at = slots.find(short, at + 1)
            if at < 0:
                begins = range(0, len(slots), _PLACE.size)
                empty = (at for at in begins if slots.startswith(_EMPTY, at))
                at = next(empty, short[0] * _PLACE.size % _BUCKET)
            place = _Place(bucket + at, *_PLACE.unpack_from(slots, at))
            if place.key == short and (place.length or not self._is_gone(place.process)):
                return place, False
            mine = _Place(place.at, short, self._process, 0, 0)
            _PLACE.pack_into(self._table, place.at, *mine[1:])
            return mine, True

    def _is_gone(self, process: int) -> bool:
        """Return whether a process has ended."""
        if process == self._process or not lock(self._alive, process):
            return False
        unlock(self._alive, process)
        return True

    def _answers_of(self, process: int) -> Path:
        return self._folder / f"{process}.answers"


def _open_file(path: Path) -> int:
    return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
