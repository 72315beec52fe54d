"""A judge's standing: what a checkup or a judge card found, kept for the runs that ask it."""

from __future__ import annotations

import hashlib
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Final, Literal

from pydantic import BaseModel, ConfigDict, ValidationError

from dagengine.errors import InputError
from dagengine.judges.default import user_file
from dagengine.question import Judge, durable_identity
from dagengine.redaction import public_text
from dagengine.regular_files import read_whole, write_whole
from dagengine.terminal import one_line

DAYS: Final = 90
"""A standing that is older says nothing: servers change the model behind a name."""
WORDING: Final = "9384b11953dfe78f"
"""Digest of the easy questions as they are worded now; a test holds it."""


class Standing(BaseModel):
    """What is known of a judge since a date: `says` in words. Scores of a `weak` one mean little.

    `model` is what the server said it answered with (None: nothing). A checkup has the numbers of
    easy questions, of valid answers and of right ones; `repeats` says whether an equal question got
    an equal text again (None: not known).
    """

    model_config = ConfigDict(frozen=True)

    source: Literal["judge check", "judge card"]
    identity: str
    name: str
    model: str | None = None
    date: date
    dagengine: str
    wording: str
    says: str
    weak: bool
    asked: int | None = None
    answered: int | None = None
    right: int | None = None
    repeats: bool | None = None

    def __str__(self) -> str:
        model = "" if self.model in (None, self.name) else f", as {self.model}"
        means = ": these scores mean little" if self.weak else ""
        return one_line(f"{self.name}{model} {self.says} ({self.source}, {self.date}){means}", 500)


def keep_standing(standing: Standing) -> None:
    """Write a standing beside the settings of the user; raises OSError."""
    write_whole(_file_of(standing.identity), standing.model_dump_json(indent=1) + "\n")


def find_standing(judge: Judge, today: date | None = None) -> Standing | None:
    """Return what `judge check` found of this judge; None if nothing that still holds.

    It holds for equal identity and wording, for 90 days up to `today` (UTC).
    """
    identity = public_text(durable_identity(judge) or "")
    try:
        standing = Standing.model_validate_json(read_whole(_file_of(identity)))
    except (InputError, ValidationError):
        return None  # none is there, or it cannot be read: a checkup writes another one
    matches = (standing.identity, standing.wording) == (identity, WORDING)
    return standing if matches and is_recent(standing.date, today) else None


def is_recent(day: date, today: date | None = None) -> bool:
    """Return whether a finding of a day still says something on another one (None: today, UTC)."""
    # A clock may be a day behind the one that wrote the date.
    return -1 <= ((today or datetime.now(UTC).date()) - day).days <= DAYS


def _file_of(identity: str) -> Path:
    name = f"{hashlib.sha256(identity.encode()).hexdigest()[:32]}.json"
    return user_file().parent / "checked" / name
