"""The answers that the processes of one run share where it has no store, as long as it lasts.

A folder holds a table of all questions, which every process maps into its memory, and the answers
of each process in its own file. A place in the table says who asks a question, or where its
answer stands. Nothing of it outlives the run, so nothing is made safe, which keeps it cheap.

The table has a fixed size. In its buckets new questions take the places of old ones. So of very
many questions only the latest are known, and an old one is asked again.
"""

from __future__ import annotations

import itertools
import json
import mmap
import os
import struct
from collections.abc import Awaitable, Callable
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import NamedTuple, TypeVar

import anyio
from pydantic import BaseModel

from dagengine.file_locks import hold_byte, lock, unlock
from dagengine.question import Answer, DurableNames, Judge, Question
from dagengine.store.claims import LOOKS
from dagengine.store.rows import entry_of, key_of, revive

T = TypeVar("T", bound=BaseModel)

_PLACE = struct.Struct("<16sIIQ")  # the key's beginning, process, bytes of the answer, from where
_BUCKET = 8 * _PLACE.size  # bytes
_BUCKETS = 1 << 17
_EMPTY = bytes(_PLACE.size)
# Seconds that a question waits for the process that asks it: that one may have been stopped.
_PATIENCE = 60.0


class _Place(NamedTuple):
    """A place of the table: where it begins, and what it says."""

    at: int
    key: bytes
    process: int
    length: int
    begin: int


class SharedAnswers:
    """What one process sees of the shared answers; may be used as an open store.

    Its files are closed with the process. Judges without a durable identity are asked in every
    process.
    """

    replays = False
    damaged = 0

    def __init__(self, folder: Path) -> None:
        """`folder` exists, and every process of the run gets the same one."""
        self._folder = folder
        self._names = DurableNames()
        self._process = os.getpid()
        self._table_file = _open_file(folder / "table")
        # Every process holds the byte of its number as long as it lives.
        self._alive = _open_file(folder / "alive")
        lock(self._alive, self._process)
        os.truncate(self._table_file, _BUCKETS * _BUCKET)
        self._table = mmap.mmap(self._table_file, 0)
        self._own = _open_file(self._answers_of(self._process))
        self._end = os.fstat(self._own).st_size

    async def get(
        self,
        judge: Judge,
        question: Question[T],
        ask: Callable[[], Awaitable[Answer[T]]],
        waiting: AbstractContextManager[None] | None = None,
    ) -> Answer[T]:
        """The answer that a process of this run has, or the one that `ask` gets.

        It waits inside `waiting` for a process that asks the same.
        """
        name = self._names.of(judge)
        if name is None:
            return await ask()
        key, waited = key_of(name, question), 0.0
        for wait in itertools.chain(LOOKS, itertools.repeat(LOOKS[-1])):
            place, mine = self._claim(key)
            if mine:
                return await self._ask_for_all(place, name, key, question, ask)
            if place.length:
                with self._answers_of(place.process).open("rb") as file:
                    file.seek(place.begin)
                    text = file.read(place.length).decode(errors="surrogatepass")
                answer = revive(question, json.loads(text), "cached")
                if answer is not None:
                    return answer
            if place.length or waited >= _PATIENCE:
                return await ask()
            with waiting or nullcontext():
                await anyio.sleep(wait)
            waited += wait
        raise AssertionError("unreachable")

    async def _ask_for_all(
        self,
        place: _Place,
        name: str,
        key: bytes,
        question: Question[T],
        ask: Callable[[], Awaitable[Answer[T]]],
    ) -> Answer[T]:
        """Ask for all processes, and hand the answer on."""
        entry = None
        try:
            answer = await ask()
            entry = entry_of(key, name, question, answer)
            return answer
        finally:
            # A failure empties the place, so that another process may ask.
            data = b"" if entry is None else entry.answer.encode(errors="surrogatepass")
            begin, self._end = self._end, self._end + os.pwrite(self._own, data, self._end)
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
