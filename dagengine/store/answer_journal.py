"""One file of questions and answers: cache, journal to resume from, and replay.

An answer is handed on only after it is in the file. So whatever shows in a result survives the end
of the process, however it ends (a power cut may cost the last moments). Equal questions to equal
judges find it again: in this run, in a later one, in another process.
"""

from __future__ import annotations

import itertools
import logging
import os
import shlex
import sqlite3
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager, closing, nullcontext, suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TypeVar

import anyio
import anyio.lowlevel
import anyio.to_thread
from pydantic import BaseModel

from dagengine.errors import InputError, JudgeError, JudgeFailure, RecordingMissError
from dagengine.question import Answer, DurableNames, Judge, Question, judge_name
from dagengine.store.cache_misses import (
    COMPARED,
    REWORDED,
    QuestionParts,
    Words,
    code_of,
    compare,
    explain_miss,
    lost_answers,
    require_distinct,
    stored_questions,
    words_of,
)
from dagengine.store.claims import LOOKS, Ask, Claims, Wait
from dagengine.store.database import (
    AnswerEntry,
    DamagedError,
    connect,
    connect_to_read,
    entry_of,
    explain_errors,
    failure_entry,
    failure_of,
    find,
    insert,
    key_of,
    revive,
    storable_text,
    transaction,
)
from dagengine.system.terminal_text import counted, text_if

T = TypeVar("T", bound=BaseModel)
_log = logging.getLogger(__name__)

_JUDGES = """SELECT name, code, count(*) FROM answers JOIN judges ON judges.id = answers.judge
    GROUP BY judges.id"""
_LOST = (
    "%s: %s of %s not used: stored with other headers, another query or another client, which may "
    "change answers; its questions are asked again"
)
_EDITED = (
    "%s has changed since answers of %r were stored: %s used as stored. To ask again, give the "
    "judge another name, or remove them: dagengine store prune %s --judge %s"
)
_NEW_WORDS = (
    "%s: %s of %r not used: stored when it was put in other words, or for another metric with a "
    "node of this name; its questions are asked again"
)
_NAMELESS = (
    "answers of the judge %r are not stored, because it has no durable_identity: "
    'a name is enough, as in ScriptedJudge(…, name="my judge")'
)
_CODE = """INSERT INTO judges (name, code) VALUES (?, ?)
    ON CONFLICT (name) DO UPDATE SET code = excluded.code"""
# Seconds that a read may wait, which it does in the event loop. Writers never block readers;
# only a process that opens or closes the file does, for moments.
_READING = 1.0


@dataclass(frozen=True, slots=True)
class Store:
    """A file of answers, created at first use; several processes may share it.

    With `replay`, all answers come from the file: no judge is called, and a question without a
    stored answer fails with RecordingMissError. The file is then only read. `patience` is the
    number of seconds that a write waits for other processes, and that a question waits for another
    process that is asking it. The file must be on a local disk: network file systems do not
    synchronize several writers. Where `rewords`, nodes are put in other words on purpose, and
    nobody is told of the answers to the earlier ones.
    """

    path: str | os.PathLike[str]
    replay: bool = False
    patience: float = 60.0
    rewords: bool = False

    def absolute(self) -> Store:
        """The same file for a process in another folder."""
        return replace(self, path=os.path.abspath(self.path))

    @asynccontextmanager
    async def open(self) -> AsyncIterator[OpenStore]:
        """The store in use by one run; raises InputError for a file that cannot be used.

        If the file fails later (a full disk), everything inside is cancelled and then InputError is
        raised. Answers that are not kept would be paid for again.
        """
        path, writer = Path(self.path), None
        if not self.replay:
            writer = await anyio.to_thread.run_sync(connect, path, self.patience)
        try:
            # Two connections: reads go on beside a write, which may wait for other processes.
            with closing(connect_to_read(path, min(self.patience, _READING))) as reader:
                answers = OpenStore(self, reader, writer)
                try:
                    with answers.scope:
                        yield answers
                finally:
                    answers.close()
        finally:
            if writer is not None:
                with anyio.CancelScope(shield=True):  # it moves the last writes to their place
                    await anyio.to_thread.run_sync(writer.close)
        if answers.failure is not None:
            raise answers.failure


def as_store(store: Store | str | os.PathLike[str]) -> Store:
    """A store from what a caller passes as `store=`: a path, or a Store."""
    if isinstance(store, Store):
        return store
    if isinstance(store, str | os.PathLike):
        return Store(store)
    raise InputError(f"store must be a path or a Store, got {store!r:.80}")


class OpenStore:
    """An open store; without a `writer` it is only read."""

    def __init__(
        self, store: Store, reader: sqlite3.Connection, writer: sqlite3.Connection | None
    ) -> None:
        self._store, self._path = store, Path(store.path)
        self._reader = reader
        self.replays = writer is None
        self._writing = None if writer is None else (Journal(writer), Claims(self._path))
        self._names = DurableNames(partial(_log.warning, _NAMELESS))
        self._in_use: set[str] = set()
        self._codes: dict[str, str | None] = {}
        self._damaged: set[bytes] = set()
        self._words: dict[tuple[str | None, object], Words] = {}  # of nodes that have asked
        self.scope = anyio.CancelScope()
        self.failure: InputError | None = None

    @property
    def damaged(self) -> int:
        """Number of stored answers that could not be read, and gave way to new ones."""
        return len(self._damaged)

    async def meet(self, judges: Iterable[Judge]) -> None:
        """Say which stored answers the judges of a run lost, and which are of other code.

        Raises InputError for judges that are apart in the run, and must be apart in the store, too.
        """
        pairs = [(judge, self._names.of(judge) or "") for judge in judges]
        require_distinct(pairs)
        self._in_use |= {storable_text(name) for _, name in pairs}
        with explain_errors(self._path):
            rows = self._reader.execute(_JUDGES).fetchall()
            counts = {name: count for name, _, count in rows}
            self._codes = {name: code for name, code, _ in rows} | self._codes
            for judge, durable in pairs:
                name = storable_text(durable or getattr(judge, "former_identity", None) or "")
                if lost := lost_answers(name, counts, self._in_use):
                    _log.warning(_LOST, self._path, counted(lost, "answer"), judge_name(name))
                code = code_of(judge) if durable else None
                if code is None or self._writing is None:
                    continue
                if self._codes.get(name) is None:
                    self._codes[name] = code[1]
                    await self._writing[0].keep_code(name, code[1])
                elif self._codes[name] != code[1]:
                    count, path = counted(counts.get(name, 0), "answer"), str(self._path)
                    where = shlex.quote(path), shlex.quote(name)
                    _log.warning(_EDITED, code[0], name, count, *where)

    async def get(
        self, judge: Judge, question: Question[T], ask: Ask[T], waiting: Wait = None
    ) -> Answer[T]:
        """The stored answer, or the one that `ask` gets, which is then stored.

        A stored answer that cannot be read counts as none: the new one takes its place. That the
        judge refused, or answered what cannot be used, is kept for replays: every other run asks
        again. Other failures of `ask` are not stored. Other processes are waited for in `waiting`.
        Raises RecordingMissError in a replay.
        """
        name = self._names.of(judge)
        node = name, question.asker or question.name
        key, stored = key_of(name or "", question), list[QuestionParts]()
        try:
            with explain_errors(self._path):
                if node not in self._words:
                    self._words[node] = words_of(question)
                    stored = stored_questions(self._reader, name or "", question.name)
                answer = self._find(key, question) if name is not None else None
                if answer is not None:
                    return answer
                if self._writing is None:
                    # How the question ended when it was asked; else that it was not.
                    words = self._words_beside(node)
                    why = explain_miss(self._reader, name or judge.identity, question, words)
                    raise self._failure(key) or RecordingMissError(
                        f"{self._path} has no answer for the node {question.name!r}: {why}"
                    )
            if name is None:
                return await ask()
            journal, claims = self._writing
            asked = partial(self._ask_and_store, journal, key, name, question, ask)
            if judge.capabilities.batched:  # a batch may take a day
                answer = await asked()
            else:
                answer = await self._ask_with_claim(claims, key, question, asked, waiting)
        except InputError as error:
            # A run whose answers are not kept would pay for all of them again: it ends. The cancel
            # reaches this task at the checkpoint, so no node takes the error for one of its own.
            # What comes later is not in that scope everywhere, and finds a closed file: the first
            # failure is the reason.
            self.failure = self.failure or error
            self.scope.cancel()
            await anyio.lowlevel.checkpoint()
            raise self.failure from self.failure.__cause__
        if stored and not self._store.rewords:
            self._note_words(question, stored, node)
        return answer

    def _note_words(
        self, question: Question[T], stored: list[QuestionParts], node: tuple[str | None, object]
    ) -> None:
        """Warn of stored answers in other words; other nodes have said by now which are theirs."""
        why, count = compare(question, stored, self._words_beside(node))
        if why == REWORDED:
            answers = text_if(count == COMPARED, "at least ") + counted(count, "answer")
            _log.warning(_NEW_WORDS, self._path, answers, question.name)

    def _words_beside(self, node: tuple[str | None, object]) -> list[Words]:
        """Words of the other nodes that have asked."""
        return [words for (_, asker), words in self._words.items() if asker != node[1]]

    async def _ask_with_claim(
        self, claims: Claims, key: bytes, question: Question[T], ask: Ask[T], waiting: Wait
    ) -> Answer[T]:
        """Ask, unless another process that asks the same question is faster.

        That one may have been stopped, or wait for something itself: patience has an end.
        """
        until = anyio.current_time() + self._store.patience
        looks = itertools.chain(LOOKS, itertools.repeat(LOOKS[-1]))
        while True:
            with claims.of(key) as mine:
                # Others may have stored it since the last look.
                with explain_errors(self._path):
                    answer = self._find(key, question)
                if answer is not None:
                    return answer
                if mine or anyio.current_time() >= until:
                    return await ask()
            with waiting or nullcontext():
                await anyio.sleep(next(looks))

    def close(self) -> None:
        """Let other processes ask what is not answered."""
        if self._writing is not None:
            self._writing[1].close()

    def _find(self, key: bytes, question: Question[T]) -> Answer[T] | None:
        try:
            fields = find(self._reader, key)
        except DamagedError:
            self._damaged.add(key)
            return None
        if fields is None:
            return None
        return revive(question, fields, "replayed" if self.replays else "cached")

    async def _ask_and_store(
        self, journal: Journal, key: bytes, name: str, question: Question[T], ask: Ask[T]
    ) -> Answer[T]:
        """Ask and store the answer; also when that is the judge's own failure."""
        try:
            answer = await ask()
        except JudgeFailure as error:
            entry = failure_entry(key, name, question, error)
            with explain_errors(self._path):
                await journal.add(entry._replace(over=self._failure(key) is not None))
            raise
        kept = entry_of(key, name, question, answer)
        if kept is None:
            _log.warning("an answer to %r cannot be stored: it has no JSON form", question.name)
            return answer
        with explain_errors(self._path):
            # Where another process was faster, its answer is the one. What is there and cannot be
            # read any more gives way; nothing else does.
            for over in (False, True):
                if await journal.add(kept._replace(over=over)):
                    return answer
                stored = self._find(key, question)
                if stored is not None:
                    return stored
        return answer

    def _failure(self, key: bytes) -> JudgeError | None:
        with suppress(DamagedError):
            fields = find(self._reader, key)
            return failure_of(fields) if fields is not None else None
        return None


class _Batch:
    """Entries that are committed together."""

    __slots__ = ("all_new", "done", "entries", "error")

    def __init__(self) -> None:
        self.entries: list[AnswerEntry] = []
        self.done = anyio.Event()
        self.all_new = False
        self.error: sqlite3.Error | None = None


class Journal:
    """Commits entries in a thread, as many at once as came while the last ones were."""

    def __init__(self, db: sqlite3.Connection) -> None:
        self._db = db
        self._turn = anyio.Lock()
        self._thread = anyio.CapacityLimiter(1)  # the caller's code may fill the common one
        self._batch = _Batch()

    async def keep_code(self, judge: str, code: str) -> None:
        """Keep the digest of a judge's code beside its name; raises what sqlite raises."""

        def keep() -> None:
            with transaction(self._db):
                self._db.execute(_CODE, (judge, code))

        async with self._turn:
            await anyio.to_thread.run_sync(keep, limiter=self._thread)

    async def add(self, entry: AnswerEntry) -> bool:
        """Return when the entry is safe; False when it, or one beside it, was there before.

        Raises what sqlite raises. When cancelled, the entry is stored all the same.
        """
        batch = self._batch
        batch.entries.append(entry)
        if len(batch.entries) == 1:
            with anyio.CancelScope(shield=True):  # others rely on it
                async with self._turn:
                    self._batch = _Batch()
                    try:
                        new = await anyio.to_thread.run_sync(
                            insert, self._db, batch.entries, limiter=self._thread
                        )
                        batch.all_new = new == len(batch.entries)
                    except sqlite3.Error as error:
                        batch.error = error
                    finally:
                        batch.done.set()
        else:
            await batch.done.wait()
        if batch.error is not None:
            raise batch.error
        return batch.all_new
