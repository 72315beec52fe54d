"""How a session ends: it says what came of it, writes recordings and its run, and checks gates."""

from __future__ import annotations

import os
import pickle
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from dagengine.errors import DagengineError
from dagengine.system.regular_files import noting_writes
from dagengine.system.terminal import replaced_line
from dagengine.testing.gates import Gate
from dagengine.testing.recorded.recorder import TestFiles
from dagengine.testing.session_summary import Summary

if TYPE_CHECKING:
    from dagengine.testing.session_run import SessionRun
    from dagengine.testing.xdist import Sent

# What few sessions need takes long to load: it is imported where it is used.

Lines = Iterator[tuple[bool, str]]
"""Lines, and whether what they say is as it must be."""


@dataclass(slots=True)
class Ending:
    """What is said at the end, and which of it keeps the session from being a success."""

    lines: list[str] = field(default_factory=list[str])
    failing: list[str] = field(default_factory=list[str])

    def take(self, lines: Iterable[tuple[bool, str]]) -> None:
        """Add lines; what cannot be done is one, and keeps nothing else from being done."""
        try:
            for holds, line in lines:
                self._add(line, holds)
        except DagengineError as error:
            self._add(f"error: {error}", False)

    def _add(self, line: str, holds: bool) -> None:
        self.lines.append(line)
        if not holds:
            self.failing.append(line)

    def report(self, config: pytest.Config) -> None:
        """Write what does not hold into the JUnit file, as tests that failed.

        pytest has written the file by then: gates come after the fixtures of the session.
        """
        plugins = config.pluginmanager.get_plugins()
        junit: Any = next((plugin for plugin in plugins if type(plugin).__name__ == "LogXML"), None)
        if junit is None or not self.failing:
            return
        for number, line in enumerate(self.failing, 1):
            name = f"evaluations::gate {number}"
            report = pytest.TestReport(
                name, ("evaluations", None, name), {}, "failed", line, when="call"
            )
            junit.pytest_runtest_logreport(report)
        junit.pytest_sessionfinish()


def check_options(config: pytest.Config) -> None:
    """Raise what is wrong with the options of gates, before anything runs."""
    for text in config.getoption("evals_min") or ():
        Gate.read(text)
    baseline: str | None = config.getoption("evals_baseline")
    if baseline is not None:
        from dagengine.testing.gates import require_run

        require_run(Path(baseline))
    card: str | None = config.getoption("evals_card")
    if card is not None:
        from dagengine.reliability.card.card_faces import read_card

        read_card(Path(card))


def is_whole(session: pytest.Session, left_out: bool) -> bool:
    """Whether all of every test ran, of every file that was begun with.

    `left_out` says whether tests were deselected, or ended before their last evaluation.
    """
    config = session.config
    return not (
        left_out
        or session.shouldfail
        or session.shouldstop
        or any("::" in str(argument) for argument in config.args)
        or any(config.getoption(name, False) for name in ("lf", "stepwise"))
    )


def end(
    config: pytest.Config,
    summary: Summary,
    files: TestFiles,
    run: SessionRun | None,
    *,
    is_whole: bool,
) -> Ending:
    """Write recordings and the run, check gates, and say what the evaluations came to."""
    ending = Ending(summary.lines())
    for path, count in files.save(is_whole=is_whole):
        shown = os.path.relpath(path)
        shown = str(path) if shown.startswith("..") else shown
        ending.take([(True, f"recorded: {shown} ({count} new or changed answers)")])
    out, baseline = config.getoption("evals_out"), config.getoption("evals_baseline")
    if baseline is not None:  # which may be the folder that is written next
        from dagengine.testing.gates import against

        ending.take(against(Path(baseline), summary.all))
    if out is not None and run is not None:
        with noting_writes() as written:
            run.save(Path(out), summary.totals)
        ending.take([(True, f"run folder: {Path(out)}")])
        ending.take((True, line) for line in [replaced_line(written)] if line)
    gates: Sequence[str] = config.getoption("evals_min") or ()
    ending.take(Gate.read(text).check(summary.all) for text in gates)
    return ending


def end_of_workers(
    config: pytest.Config, sent: Sequence[bytes], tests: Sequence[str], died: bool
) -> Ending:
    """The same from what workers sent, in the order of the tests."""
    summary, files = Summary(), TestFiles(config)
    workers: list[Sent] = [*map(pickle.loads, sent)]
    for worker in workers:
        summary.add(worker.summary)
        files.add(worker.recordings)
    summary.arrange(tests)
    whole = not died and all(worker.whole for worker in workers)
    out: str | None = config.getoption("evals_out")
    run = None
    if out is not None:
        from dagengine.testing.session_run import SessionRun

        run = SessionRun.gather(Path(out), tests)
    return end(config, summary, files, run, is_whole=whole)
