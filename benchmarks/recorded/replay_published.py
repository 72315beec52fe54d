"""Replays recorded judges of other projects and compares the figures with the published ones.

    python benchmarks/recorded/replay_published.py

The data is looked for where the environment variable DAGENGINE_RECORDED says, else in
`shared/data/recorded` next to the project. The exit code is 0 if everything is equal, 1 if
something differs or a published figure is not computed, and 2 if the data is not there.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping, Sequence

from recordings import data_directory, how_to_get
from replays.published import (
    IMPOSSIBLE,
    digits_of,
    is_reference,
    is_there,
    published,
    replays,
    same,
)
from replays.replaying import Replay
from rich.console import Console
from rich.table import Table

WIDTH_OF_A_FILE = 160


def main() -> int:
    """Replay, print, and return the exit code."""
    directory = data_directory()
    if not is_there(directory):
        print(how_to_get(directory), file=sys.stderr)
        return 2
    wanted, done = published(directory), replays(directory)
    console = Console(width=None if sys.stdout.isatty() else WIDTH_OF_A_FILE)
    console.print(_table(wanted, done))
    for line in _lines(wanted, done):
        console.print(line, highlight=False, markup=False)
    equal = all(same(*pair, digits_of(name)) for name, pair in _pairs(wanted, done).items())
    return 0 if equal and all(replay.complete for replay in done) else 1


def _pairs(
    wanted: Mapping[str, float], done: Sequence[Replay]
) -> dict[str, tuple[float | None, float | None]]:
    """Ours and the published one by name; what only one side has is there as well."""
    ours = {name: figure for replay in done for name, figure in replay.figures.items()}
    return {name: (ours.get(name), wanted.get(name)) for name in {**ours, **wanted}}


def _table(wanted: Mapping[str, float], done: Sequence[Replay]) -> Table:
    table = Table("figure", title="Recorded judges, replayed")
    for side in ("ours", "published\nor stored"):
        table.add_column(side, justify="right")
    table.add_column("equal?")
    table.add_column("computed by")
    metrics = {name: replay.metric for replay in done for name in replay.figures}
    for name, (ours, theirs) in _pairs(wanted, done).items():
        digits = digits_of(name)
        shown = (_shown(ours, digits), _shown(theirs, digits), _answer(same(ours, theirs, digits)))
        table.add_row(name, *shown, metrics.get(name, "nothing"))
    table.add_section()
    for replay in done:
        for name, check in replay.checks.items():
            shown = (str(check.equal), str(check.of), _answer(check.equal == check.of))
            table.add_row(f"{name}, records", *shown, replay.metric)
    return table


def _shown(figure: float | None, digits: int) -> str:
    return "none" if figure is None else f"{figure:.{digits}f}"


def _answer(equal: bool) -> str:
    return "yes" if equal else "[bold red]no[/]"


def _lines(wanted: Mapping[str, float], done: Sequence[Replay]) -> Iterable[str]:
    pairs = _pairs(wanted, done)
    met = [is_reference(name) for name in wanted if same(*pairs[name], digits_of(name))]
    references = sum(map(is_reference, wanted))
    yield f"figures equal to the published ones: {met.count(False)} of {len(wanted) - references}"
    yield f"reference values of the recordings met: {met.count(True)} of {references}"
    used = sum(len(replay.recorded & replay.asked.keys()) for replay in done)
    yield f"recorded calls used: {used} of {sum(len(replay.recorded) for replay in done)}"
    for replay in done:
        if not replay.complete:
            yield _shortfall(replay)
    yield "not to be had from these recordings:"
    for what, why in IMPOSSIBLE.items():
        yield f"  {what}: {why}"


def _shortfall(replay: Replay) -> str:
    """What keeps a replay from being the recorded one."""
    unknown = len(replay.asked.keys() - replay.recorded)
    unused = len(replay.recorded - replay.asked.keys())
    differing = sum(check.of - check.equal for check in replay.checks.values())
    counts = f"{unknown} questions without a recording, {unused} calls unused"
    first = f"{replay.folder}: {counts}, {differing} records that differ"
    return "\n  ".join([first, *replay.failures[:3]])


if __name__ == "__main__":
    sys.exit(main())
