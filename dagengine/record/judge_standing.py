"""The standing of a judge: what a checkup has shown of it, kept beside the settings of the user."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Final

from pydantic import ValidationError

from dagengine.errors import InputError
from dagengine.judges.default import user_file
from dagengine.question import Judge, display_name, durable_identity, model_of
from dagengine.record.run_json_types import JudgeRecord, Standing
from dagengine.redaction import public_text
from dagengine.system.safe_files import read_whole, write_whole
from dagengine.system.terminal_text import few

DAYS: Final = 90
"""Days for which a standing holds: servers change the model behind a name."""
WORDING: Final = "9384b11953dfe78f"
"""Digest of the questions of a checkup as they are worded now; a test compares it."""


def keep_standing(standing: Standing) -> None:
    """Write a standing beside the settings of the user; raises OSError."""
    write_whole(_standing_file(standing.identity), standing.model_dump_json(indent=1) + "\n")


def find_standing(judge: Judge, today: date | None = None) -> Standing | None:
    """Return the standing that `judge check` has kept of a judge; None if none holds any more.

    It holds for an equal identity, for equal questions, and for 90 days up to `today` (UTC).
    """
    identity = public_text(durable_identity(judge) or "")  # a judge without one has no standing
    try:
        standing = Standing.model_validate_json(read_whole(_standing_file(identity)))
    except (InputError, ValidationError):
        return None  # none is there, or it cannot be read: a checkup writes another one
    matches = (standing.identity, standing.wording) == (identity, WORDING)
    return standing if matches and is_recent(standing.date, today) else None


def is_recent(day: date, today: date | None = None) -> bool:
    """Return whether a standing of a `day` still holds `today` (UTC; None: by the clock)."""
    # A clock may be a day behind the one that wrote the date.
    return -1 <= ((today or datetime.now(UTC).date()) - day).days <= DAYS


def standing_lines(
    records: Iterable[JudgeRecord], asked: Iterable[Judge] = (), words: str | None = None
) -> list[str]:
    """The standings in the records, and a line on how to check `asked` judges that have none.

    `words` are the options that name these judges to `judge check` (None: `--judge` and a name).
    """
    standings = {record.identity: str(record.standing) for record in records if record.standing}
    judges = (judge for judge in asked if model_of(judge) and not judge.capabilities.batched)
    lines = list(standings.values())
    if names := [display_name(judge) for judge in judges if identity_of(judge) not in standings]:
        hint = f"dagengine judge check {words or '--judge ' + names[0]}"
        lines.append(f"not known whether {few(names)} can judge; a minute tells: {hint}")
    return lines


def identity_of(judge: Judge) -> str:
    """Name of a judge in a record: the name it has in every process, if it has one."""
    return public_text(durable_identity(judge) or judge.identity)


def _standing_file(identity: str) -> Path:
    name = f"{hashlib.sha256(identity.encode()).hexdigest()[:32]}.json"
    return user_file().parent / "checked" / name
