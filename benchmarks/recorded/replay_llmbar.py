"""Replays the recorded LLMBar protocols and compares their figures with the published ones.

    python benchmarks/recorded/replay_llmbar.py

The data is looked for where the environment variable DAGENGINE_RECORDED says, else in
`shared/data/recorded` next to the project. The exit code is 0 if everything is equal, 1 if
something differs, and 2 if the data is not there.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping, Sequence

from recordings import data_directory, how_to_get
from replays.llmbar import Recording, Replay, is_there, load, replay, statistics
from rich.console import Console
from rich.table import Table

MEASURES = ("acc_average", "agreement")
WIDTH_OF_A_FILE = 110


def main() -> int:
    """Replay, print, and return the exit code."""
    directory = data_directory()
    if not is_there(directory):
        print(how_to_get(directory), file=sys.stderr)
        return 2
    recording = load(directory)
    replays = [replay(recording, protocol) for protocol in recording.protocols]
    figures = {name: f for done in replays for name, f in statistics(recording, done).items()}
    console = Console(width=None if sys.stdout.isatty() else WIDTH_OF_A_FILE)
    console.print(_table(recording, replays, figures))
    for line in _counts(recording, replays, figures):
        console.print(line, highlight=False)
    return 0 if all(done.complete for done in replays) and figures == recording.published else 1


def _table(recording: Recording, replays: Sequence[Replay], figures: Mapping[str, float]) -> Table:
    table = Table("judge", "protocol", "subset", title="LLMBar, replayed")
    for measure in ("accuracy", "agreement"):
        table.add_column(f"{measure}\nours", justify="right")
        table.add_column(f"{measure}\npublished", justify="right")
    table.add_column("equal?")
    subsets = dict.fromkeys(item.subset for item in recording.items.values())
    for subset in subsets:
        for done in replays:
            table.add_row(*_row(done, subset, figures, recording.published))
        table.add_section()
    return table


def _row(
    done: Replay, subset: str, figures: Mapping[str, float], published: Mapping[str, float]
) -> Iterable[str]:
    names = [f"llmbar/{done.protocol.id}/{subset}/{measure}" for measure in MEASURES]
    yield from (done.protocol.judge, done.protocol.kind, subset)
    for name in names:
        yield f"{figures[name]:.2f}"
        yield f"{published[name]:.2f}" if name in published else "none"
    equal = all(figures[name] == published.get(name) for name in names)
    yield "yes" if equal else "[bold red]no[/]"


def _counts(
    recording: Recording, replays: Sequence[Replay], figures: Mapping[str, float]
) -> Iterable[str]:
    published = recording.published
    equal = sum(figures.get(name) == figure for name, figure in published.items())
    matched = sum(done.matched for done in replays)
    hashes = sum(len(done.second_stage) for done in replays)
    questions = sum(done.questions for done in replays)
    recorded = sum(len(done.recorded) for done in replays)
    yield f"figures equal to the published ones: {equal} of {len(published)}"
    yield f"second-stage prompts matched by hash: {matched} of {hashes}"
    yield f"questions asked: {questions}, calls recorded: {recorded}"
    for done in replays:
        if not done.complete:
            yield _shortfall(done)


def _shortfall(done: Replay) -> str:
    """What keeps a replay from using every recorded call exactly once."""
    unknown = len(done.asked.keys() - done.recorded)
    unused = len(done.recorded - done.asked.keys())
    lines = [f"{done.protocol.id}: {unknown} prompts without a recording, {unused} calls unused"]
    return "\n  ".join([*lines, *done.failures[:3]])


if __name__ == "__main__":
    sys.exit(main())
