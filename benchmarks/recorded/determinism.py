"""Repeats recorded judges of other projects and compares what follows with reference values.

    python benchmarks/recorded/determinism.py

The data is looked for where the environment variable DAGENGINE_RECORDED says, else in
`shared/data/recorded` next to the project. The exit code is 0 if every reference value is
met, 1 if one is not, and 2 if the data is not there.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import astuple
from pathlib import Path

from label_agreement import LabelAgreement
from recordings import Folder, data_directory, how_to_get
from replays.determinism_figures import (
    REFERENCE,
    Position,
    Repeatability,
    llmbar_reference,
    of_llmbar,
    of_mtbench,
    of_pairs,
    of_pandalm,
    of_prometheus,
)
from rich.console import Console
from rich.table import Table

_FOLDERS = ("position_bias_rep3", "prometheus_gpt4x3", "mtbench_gpt4", "llmbar", "pandalm")
_WIDTH_OF_A_FILE = 160


def is_there(directory: Path) -> bool:
    """Whether a directory holds all the recordings that are repeated here."""
    return all(Folder(directory / name).is_there for name in _FOLDERS)


def main() -> int:
    """Repeat, print, and return the exit code."""
    directory = data_directory()
    if not is_there(directory):
        print(how_to_get(directory), file=sys.stderr)
        return 2
    pairs, positions = of_pairs(directory)
    repeated = {**of_prometheus(directory), **of_mtbench(directory), **pairs}
    figures, labelled = of_llmbar(directory)
    labelled |= of_pandalm(directory)
    console = Console(width=None if sys.stdout.isatty() else _WIDTH_OF_A_FILE)
    published = llmbar_reference(directory)
    console.print(repeats_table(repeated))
    console.print(positions_table(positions))
    console.print(figures_table(figures, published))
    console.print(labels_table(labelled))
    counts = met(repeated), met_figures(figures, published)
    for what, (equal, of) in zip(("repeated calls", "LLMBar"), counts, strict=True):
        console.print(f"reference values of {what} met: {equal} of {of}", highlight=False)
    return 0 if all(equal == of for equal, of in counts) else 1


def met(found: Mapping[str, Repeatability]) -> tuple[int, int]:
    """How many groups are as in the reference, and how many there are."""
    equal = [name in found and found[name].meets(row) for name, row in REFERENCE.items()]
    return sum(equal), len(equal)


def met_figures(found: Mapping[str, float], reference: Mapping[str, float]) -> tuple[int, int]:
    """How many published figures are met to 1e-9, and how many there are."""
    equal = [abs(found.get(name, -1) - value) < 1e-9 for name, value in reference.items()]
    return sum(equal), len(equal)


def repeats_table(found: Mapping[str, Repeatability]) -> Table:
    """Ours beside the reference, as ours / reference."""
    table = Table("same prompt, several calls", "prompts", "unanimous", "majority share",
                  "pairwise disagreement", "identical text", "met")  # fmt: skip
    for name, ours in found.items():
        reference = REFERENCE[name]
        cells = map(_beside, astuple(ours), astuple(reference))
        table.add_row(name, *cells, "yes" if ours.meets(reference) else "no")
    return table


def positions_table(found: Mapping[str, Position]) -> Table:
    """The same pair in both orders."""
    table = Table("both orders", "comparisons", "same verdict", "first wins among the others")
    for name, ours in found.items():
        table.add_row(name, *map(_shown, astuple(ours)))
    return table


def figures_table(found: Mapping[str, float], published: Mapping[str, float]) -> Table:
    """LLMBar's accuracy over both orders and positional agreement, as ours / published."""
    table = Table("in per cent", "accuracy", "same winner in both orders")
    for start in dict.fromkeys(name.rpartition("/")[0] for name in found):
        names = [f"{start}/{figure}" for figure in ("acc_average", "agreement")]
        table.add_row(start, *(_beside(found[name], published.get(name)) for name in names))
    return table


def labels_table(found: Mapping[str, LabelAgreement]) -> Table:
    """Agreement with people, with chance and the commonest label beside it."""
    table = Table("against people", "verdicts", "accuracy", "kappa", "commonest label")
    for name, ours in found.items():
        shown = (ours.items, ours.accuracy, ours.kappa, ours.baseline)
        table.add_row(name, *map(_shown, shown))
    return table


def _beside(ours: float | None, reference: float | None) -> str:
    return f"{_shown(ours)} / {_shown(reference)}"


def _shown(value: float | None) -> str:
    if value is None:
        return "-"
    return str(value) if isinstance(value, int) else f"{value:.3f}"


if __name__ == "__main__":
    sys.exit(main())
