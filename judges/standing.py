"""A judge's standing: what a checkup or a judge card found, kept for the runs that ask it."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Final, Literal

from pydantic import BaseModel, ConfigDict, ValidationError

from dagengine.errors import InputError
from dagengine.judges.default import user_file
from dagengine.question import Judge, display_name, durable_identity, model_of
from dagengine.redaction import public_text
from dagengine.regular_files import read_whole, write_whole
from dagengine.terminal import few, one_line

DAYS: Final = 90
"""A standing that is older says nothing: servers change the model behind a name."""
WORDING: Final = "9384b11953dfe78f"
"""Digest of the easy questions as they are worded now; a test holds it."""


class Standing(BaseModel):
    """What is known of a judge, and since when.

    `identity` is that of the judge in every process, `name` the one for people, `model` the one
    that the server said it answered with (None: it said none). A checkup has the number of easy
    questions `asked`, of valid answers (`answered`), of `right` ones, and whether an equal question
    got an equal text again (`repeats`; None: not known). `says` is the finding in words. Scores of
    a `weak` judge mean little.
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
        line = f"{self.name}{model} {self.says} ({self.source}, {self.date}){means}"
        return one_line(line, 500)


def keep_standing(standing: Standing) -> None:
    """Write a standing beside the settings of the user; raises OSError."""
    write_whole(_file_of(standing.identity), standing.model_dump_json(indent=1) + "\n")


def find_standing(judge: Judge, today: date | None = None) -> Standing | None:
    """Return what `judge check` found of this judge; None if nothing that still holds.

    It holds for equal identity and wording, for 90 days up to `today` (UTC).
    """
    identity = durable_identity(judge)
    if identity is None:
        return None
    try:
        data = read_whole(_file_of(public_text(identity)))
        standing = Standing.model_validate_json(data)
    except (InputError, ValidationError):
        return None  # none is there, or it cannot be read: a checkup writes another one
    matches = (standing.identity, standing.wording) == (public_text(identity), WORDING)
    return standing if matches and is_recent(standing.date, today) else None


def is_recent(day: date, today: date | None = None) -> bool:
    """Return whether a finding of a day still says something on another one (None: today, UTC)."""
    # A clock may be a day behind the one that wrote the date.
    return -1 <= ((today or datetime.now(UTC).date()) - day).days <= DAYS


def unknown_line(judges: Iterable[Judge], known: Iterable[str], words: str | None) -> str | None:
    """Return how to find out what models are worth; None if each is known, or cannot be checked.

    `known` are identities. `words` name the judge to `judge check`; without them its model does.
    """
    names = [
        display_name(judge)
        for judge in judges
        if model_of(judge) and not judge.capabilities.batched
        and public_text(durable_identity(judge) or judge.identity) not in known
    ]  # fmt: skip
    if not names:
        return None
    command = f"dagengine judge check {words or f'--judge {names[0]}'}"
    return f"not known whether {few(names)} can judge; a minute tells: {command}"


def _file_of(identity: str) -> Path:
    digest = hashlib.sha256(identity.encode()).hexdigest()[:32]
    return user_file().parent / "checked" / f"{digest}.json"
