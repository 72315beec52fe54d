"""What became of the drafts of a synthesis, for a reviewer: `drafts.jsonl` beside the rows."""

from __future__ import annotations

from collections.abc import Sequence

from pydantic import BaseModel

from dagengine.data.json_lines import read_models
from dagengine.record.run import Run
from dagengine.system.regular_files import is_there
from dagengine.system.terminal import counted

DRAFTS = "drafts.jsonl"
MOST = 5_000
"""Drafts that a page can show as kept and dropped; the page of more shows their rows alone."""


class DraftRecord(BaseModel):
    """One draft: the golden that it became, or why it did not.

    `case` is the number of its row, `text` the input or the scenario as far as it was written.
    Without a `cause` it became a golden: then there are its answer, the sentences that this rests
    on, and its kind. `cause` is the node that rejected it or gave no answer, "near duplicate" or
    "not needed". `why` is what the judge said, `repeats` the text that a near duplicate repeats.
    `source` is the place of its passage.
    """

    case: int
    text: str
    source: str
    kind: str
    cause: str | None = None
    why: str | None = None
    repeats: str | None = None
    answer: str | None = None
    sentences: list[str] = []


def drafts_of(run: Run, most: float = MOST) -> list[DraftRecord] | None:
    """The drafts of a synthesis in the order of their rows.

    None for any other run, and for one of more than `most` drafts. Raises InputError that names a
    damaged line.
    """
    path = run.folder / DRAFTS
    if not is_there(path):
        return None
    drafts: list[DraftRecord] = []
    for draft in read_models(path, DraftRecord, "a draft", whole=run.finished):
        drafts.append(draft)
        if len(drafts) > most:
            return None
    return drafts


def outcome_sentence(drafts: Sequence[DraftRecord]) -> str:
    """One sentence that is the answer."""
    kept = sum(draft.cause is None for draft in drafts)
    return f"{counted(kept, 'golden')} kept of {counted(len(drafts), 'draft')}"
