"""How a session ends: workers send, the others sum up, write recordings, and check gates."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from dagengine.testing.gates import Gate
from dagengine.testing.recorded.files import TestFiles
from dagengine.testing.summary import Summary


@dataclass(slots=True)
class Ending:
    """What is said at the end, and whether every gate holds."""

    lines: list[str] = field(default_factory=list[str])
    holds: bool = True


def is_whole(session: pytest.Session, deselected: bool) -> bool:
    """Whether every test of every file ran that was begun with."""
    config = session.config
    narrowed = ("lf", "stepwise")
    return not (
        deselected
        or session.shouldfail
        or session.shouldstop
        or any("::" in str(argument) for argument in config.args)
        or any(config.getoption(name, False) for name in narrowed)
    )


def end(config: pytest.Config, summary: Summary, files: TestFiles, *, is_whole: bool) -> Ending:
    """Write recordings, check gates, and say what the evaluations came to."""
    ending = Ending(summary.lines())
    for path, count in files.save(is_whole=is_whole):
        ending.lines.append(f"recorded: {_shown(path)} ({count} new or changed answers)")
    gates: Sequence[str] = config.getoption("evals_min") or ()
    for text in gates:
        holds, line = Gate.read(text).check(summary.all)
        ending.lines.append(line)
        ending.holds &= holds
    return ending


def end_of_workers(config: pytest.Config, sent: Sequence[dict[str, Any]], died: bool) -> Ending:
    """The same from what workers sent; nothing where none of them had an evaluation."""
    if not sent:
        return Ending()
    summary, files = Summary(), TestFiles(config)
    for data in sent:
        summary.add(data["summary"])
        files.add(data["recordings"])
    whole = not died and all(data["whole"] for data in sent)
    return end(config, summary, files, is_whole=whole)


def _shown(path: Path) -> str:
    shown = os.path.relpath(path)
    return str(path) if shown.startswith("..") else shown
