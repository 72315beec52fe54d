"""The pictures of a run as files: named after their metrics, with a hint where one fails."""

from __future__ import annotations

import itertools
import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from dagengine.cli.common.files import named
from dagengine.cli.common.streams import say
from dagengine.errors import MissingExtraError
from dagengine.report.render import Picture, draw

if TYPE_CHECKING:
    from dagengine.graph.graph import MetricSpec
    from dagengine.report.tally import Tally

_LONGEST = 100  # bytes of a stem; file systems take 255 in a whole name


def stems(metrics: Sequence[MetricSpec]) -> list[str]:
    """Parts of file names, one per metric, all different."""
    found: list[str] = []
    for metric in metrics:
        stem = re.sub(r"\W+", "-", metric.name.lower()).strip("-") or "metric"
        stem = stem.encode()[:_LONGEST].decode(errors="ignore")
        count = next(n for n in itertools.count(1) if _numbered(stem, n) not in found)
        found.append(_numbered(stem, count))
    return found


def _numbered(stem: str, number: int) -> str:
    return stem if number == 1 else f"{stem}-{number}"


def draw_views(spec: MetricSpec, tally: Tally, stem: Path) -> None:
    """The three pictures of one metric: its tree, one case's path, and the edges' counts."""
    save(draw(spec), stem.with_name(f"{stem.name}-tree.svg"))
    found = tally.metrics.get(spec.name)
    if found is not None and found.shown is not None:
        case, result = found.shown
        save(draw(spec, result=result, case=case), stem.with_name(f"{stem.name}-path.svg"))
    save(draw(spec, rows=tally), stem.with_name(f"{stem.name}-counts.svg"))


def save(picture: Picture, path: Path) -> None:
    """Write a picture; without Graphviz its DOT text, and say how to get the picture."""
    with named(path):
        try:
            say(f"picture: {picture.save(str(path))}")
        except MissingExtraError as error:
            say(f"picture: {picture.save(str(path.with_suffix('.dot')))} ({error})")
