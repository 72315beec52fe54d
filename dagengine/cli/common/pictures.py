"""The pictures of a run as files: named after their metrics, as text without Graphviz."""

from __future__ import annotations

import itertools
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from dagengine.cli.common.files import name_in_errors
from dagengine.cli.common.streams import say, warn
from dagengine.errors import MissingExtraError
from dagengine.report.pictures.drawing import Picture, draw
from dagengine.system.regular_files import require_regular

if TYPE_CHECKING:
    from dagengine.graph.graph import MetricSpec
    from dagengine.record.values import MetricRecord
    from dagengine.report.tally import Tally

_LONGEST = 100  # bytes of a stem; file systems take 255 in a whole name


def stems(metrics: Sequence[MetricSpec | MetricRecord]) -> list[str]:
    """Parts of file names, one per metric, all different.

    A warning names the metrics with letters that the file system's encoding lacks.
    """
    names: list[str] = []
    for metric in metrics:
        letters, encoding = metric.name.lower(), sys.getfilesystemencoding()
        possible = letters.encode(encoding, "ignore").decode(encoding)
        if possible != letters.encode(errors="ignore").decode():
            lacks = f"file names here are {encoding}, which lacks letters of {metric.name!r}"
            warn(f"{lacks}: its pictures are named without them")
        stem = re.sub(r"\W+", "-", possible).strip("-") or "metric"
        stem = stem.encode()[:_LONGEST].decode(errors="ignore")
        count = next(n for n in itertools.count(1) if _numbered_name(stem, n) not in names)
        names.append(_numbered_name(stem, count))
    return names


def _numbered_name(stem: str, number: int) -> str:
    return stem if number == 1 else f"{stem}-{number}"


def draw_views(specs: Sequence[MetricSpec], tally: Tally, folder: Path) -> None:
    """The pictures of a run's metrics; without Graphviz their Mermaid text, which it says once."""
    missing: MissingExtraError | None = None
    for spec, stem in zip(specs, stems(specs), strict=True):
        pictures = {"tree": draw(spec)}
        summary = tally.metrics.get(spec.name)
        if summary is not None and summary.shown is not None:
            case, result = summary.shown
            pictures["path"] = draw(spec, result=result, case=case)
        pictures["counts"] = draw(spec, rows=tally)
        for view, picture in pictures.items():
            path = folder / f"{stem}-{view}.svg"
            try:
                _save_own(picture, path)
            except MissingExtraError as error:
                missing = error
                _save_own(picture, path.with_suffix(".mmd"))
    if missing is not None:
        say(f"the pictures are written as Mermaid text: {missing}")


def _save_own(picture: Picture, path: Path) -> None:
    """Write a picture of a run folder, where no link may be."""
    require_regular(path)
    save(picture, path)


def save(picture: Picture, path: Path) -> None:
    """Write a picture and say where; raises MissingExtraError without what draws it."""
    with name_in_errors(path):
        say(f"picture: {picture.save(str(path))}")
