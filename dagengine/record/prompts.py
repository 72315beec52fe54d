"""Questions as they were sent, out of the store of a run: rows say under which keys they are."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from dagengine.errors import InputError
from dagengine.question import Message
from dagengine.record.run import Run
from dagengine.results import CaseResult
from dagengine.store.file import UNREADABLE, connect_to_read, question_by, unpack
from dagengine.store.notices import question_parts

Prompt = list[Message]
RowKeys = list[list[tuple[str, ...]]]
"""The keys of what was asked in one row: by metric, then by step."""
_PATIENCE = 1.0  # seconds, where another run has the store locked


class Prompts:
    """The questions of one store, by the keys of steps; see `open_prompts`."""

    def __init__(self, db: sqlite3.Connection) -> None:
        self._db = db

    def of(self, keys: RowKeys) -> list[list[list[Prompt]]]:
        """Prompts of the steps of a row, equal prompts of a step once.

        What is not in the store is left out.
        """
        return [[*map(self._prompts_of, steps)] for steps in keys]

    def _prompts_of(self, keys: Iterable[str]) -> list[Prompt]:
        prompts: list[Prompt] = []
        for key in dict.fromkeys(keys):
            with suppress(*UNREADABLE, sqlite3.Error):
                if (packed := question_by(self._db, key)) is not None:
                    messages: list[Any] = list(question_parts(unpack(packed)).messages)
                    prompt: Prompt = [
                        {"role": m["role"], "content": m["content"]} for m in messages
                    ]
                    if prompt not in prompts:
                        prompts.append(prompt)
        return prompts


def keys_of(row: CaseResult, metrics: Iterable[str]) -> RowKeys:
    """The keys of a row, by metric in the order that is given."""
    results = {result.metric: result.steps for result in row.metrics}
    return [[step.asked for step in results.get(name, ())] for name in metrics]


@contextmanager
def open_prompts(run: Run) -> Iterator[Prompts | None]:
    """The store of a run, to be read; None if its prompts must not or cannot be shown."""
    path = None if why_without(run) else store_of(run)
    if path is None:
        yield None
        return
    db = connect_to_read(path, _PATIENCE)
    try:
        yield Prompts(db)
    finally:
        db.close()


def why_without(run: Run) -> str | None:
    """Why no prompt of a run can be shown, in words; None if they can.

    A prompt has the texts of its case in it: what the record hides or leaves out must not come
    back through the store.
    """
    manifest = run.manifest
    if manifest.store is None:
        return "run with --store to see them here"
    if not manifest.texts:
        return "left out by --no-texts"
    if manifest.redacted:
        return f"hidden by --redact {', '.join(manifest.redacted)}"
    path = store_of(run)
    if path is None:
        return f"the store {Path(manifest.store).name} was moved or deleted"
    try:
        connect_to_read(path, _PATIENCE).close()
    except InputError as error:
        return str(error)
    return None


def store_of(run: Run) -> Path | None:
    """The file of the store: where the run had it, or in the folder; None if there is none."""
    store = run.manifest.store
    if store is None:
        return None
    # A folder that was moved or copied often has its store in it, or beside it.
    paths = Path(store), run.folder / Path(store).name, run.folder.parent / Path(store).name
    return next((path for path in paths if path.is_file()), None)
