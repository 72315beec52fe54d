"""Replays the recorded scores of RewardBench 2 and compares their figures with the published ones.

    python benchmarks/recorded/replay_rewardbench2.py

The data is looked for where the environment variable DAGENGINE_RECORDED says, else in
`shared/data/recorded` next to the project. The exit code is 0 if every published figure is met, 1
if one is not, and 2 if the data is not there.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations

import numpy as np
from recordings import data_directory, how_to_get
from replays.rewardbench2 import (
    SCORES,
    Scored,
    cascade,
    figures,
    gain,
    in_common,
    is_there,
    load,
    per_cent,
)
from rich.console import Console
from rich.table import Table

from dagengine.reliability.statistics.intervals import Interval
from dagengine.reliability.statistics.paired_comparisons import Comparison

WIDTH_OF_A_FILE = 130
Recorded = Mapping[tuple[str, str], Scored]
BASE, CLAUDE = "base_both_k8", "base_claude_both_k8"
HAIKU, SONNET = (CLAUDE, "claude-haiku-4.5"), (CLAUDE, "claude-sonnet-4.6")
TEMPERATURES = [
    (f"base_full_k8_t{temperature}", "gpt-5.4") for temperature in ("0.0", "0.3", "0.7")
]


def main() -> int:
    """Replay, print, and return the exit code."""
    directory = data_directory()
    if not is_there(directory):
        print(how_to_get(directory), file=sys.stderr)
        return 2
    recorded = load(directory)
    console = Console(width=None if sys.stdout.isatty() else WIDTH_OF_A_FILE)
    compared = list(figures(recorded))
    met = [abs(round(ours, 2) - wanted.value) <= wanted.within for wanted, ours in compared]
    table = _grid("Published: a tie is wrong, per cent", "collection", "judge", "scores", "ours",
                  "published", "within", "met?")  # fmt: skip
    for (wanted, ours), equal in zip(compared, met, strict=True):
        cells = f"{ours:.2f}", f"{wanted.value:.1f}", f"{wanted.within:g}", "yes" if equal else "no"
        table.add_row(wanted.collection, wanted.judge, str(wanted.scores), *cells)
    console.print(table)
    for note in dict.fromkeys(wanted.note for wanted, _ in compared if wanted.note):
        console.print(f"Nano: {note}.", highlight=False)
    console.print(_by_scores(recorded), _gains(recorded), _by_subset(recorded))
    for line in _lines(recorded):
        console.print(line, highlight=False)
    console.print(f"published figures met: {sum(met)} of {len(met)}", highlight=False)
    return 0 if all(met) else 1


def _grid(title: str, *columns: str) -> Table:
    table = Table(title=title)
    for place, column in enumerate(columns):
        table.add_column(column, justify="left" if place < 2 else "right")
    return table


def _by_scores(recorded: Recorded) -> Table:
    """Both rules, and ties at the top, by how many scores are averaged."""
    heads = ("collection", "judge", "right, if a tie is", *map(str, SCORES))
    table = _grid("By the number of scores, per cent", *heads)
    for (collection, judge), scored in recorded.items():
        picks = [scored.picks(count) for count in SCORES]
        for words, name in (("wrong", "wrong"), ("shared", "share"), ("(ties)", "tied")):
            values = [f"{per_cent(getattr(each, name)):.1f}" for each in picks]
            table.add_row(collection, judge, words, *values)
    return table


def _gains(recorded: Recorded) -> Table:
    """What eight scores buy over the first: all of it, and by rule."""
    heads = "a tie is wrong", "a tie is shared: less noise", "the rest: fewer ties"
    title = "Eight scores instead of one, points (paired, 95 %)"
    table = _grid(title, "collection", "judge", *heads)
    for (collection, judge), scored in recorded.items():
        first, last = scored.picks(1), scored.picks(8)
        noise = gain(first.share, last.share)
        ties = gain(first.wrong - first.share, last.wrong - last.share)
        table.add_row(
            collection, judge, *map(_points, (gain(first.wrong, last.wrong), noise, ties))
        )
    return table


def _by_subset(recorded: Recorded) -> Table:
    """Every subset by itself, with eight scores and with one."""
    names = dict.fromkeys(subset for subset, _ in recorded[BASE, "gpt-5.4"].items)
    table = _grid("By subset: one score → eight, a tie is shared", "collection", "judge", *names)
    for (collection, judge), scored in recorded.items():
        subsets = np.array([subset for subset, _ in scored.items])
        first, last = scored.picks(1).share, scored.picks(8).share
        cells = [f"{per_cent(first[subsets == name]):.1f} → {per_cent(last[subsets == name]):.1f}"
                 for name in names]  # fmt: skip
        table.add_row(collection, judge, *cells)
    return table


def _lines(recorded: Recorded) -> Iterator[str]:
    """Temperatures and judges against each other, and the cascade."""
    for before, after in combinations(TEMPERATURES, 2):
        yield _against(recorded, before, after, before[0][-3:], after[0][-3:])
    yield _against(recorded, SONNET, HAIKU, "Sonnet", "Haiku")
    made = cascade(recorded[HAIKU], recorded[SONNET], (3, 8))
    yield (
        f"Cascade, Haiku x 3 → Sonnet x 8 below a margin of {made.margin:.2f}: "
        f"{100 * made.right:.1f} right, {100 * made.escalated:.0f} % escalated, "
        f"{100 * (made.right - made.small):+.1f} against Haiku x 3, "
        f"{100 * (made.right - made.large):+.1f} against Sonnet x 8; "
        f"{100 * made.random:.1f} with as many escalated at random "
        f"(means over 200 sealed halves; {100 * made.there:.1f} right over all items)"
    )


def _against(
    recorded: Recorded, before: tuple[str, str], after: tuple[str, str], *names: str
) -> str:
    """Two collections on the items that they have in common, with eight scores."""
    items: Sequence[tuple[str, str]] = in_common(recorded[before], recorded[after])
    old, new = (recorded[key].of(items).picks().share for key in (before, after))
    return f"{names[0]} → {names[1]}, eight scores, a tie is shared: {_points(gain(old, new))}"


def _points(compared: Comparison) -> str:
    bounds = compared.interval
    assert isinstance(bounds, Interval), "thousands of items differ"
    return f"{100 * bounds.value:+.1f} ({100 * bounds.low:.1f} to {100 * bounds.high:.1f})"


if __name__ == "__main__":
    sys.exit(main())
