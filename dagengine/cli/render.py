"""`dagengine render`: the tree of a metric as a picture; without Graphviz as Mermaid text."""

from __future__ import annotations

import glob
import itertools
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from typer import Option

from dagengine.cli.common.files import Reads, Writes, name_in_errors
from dagengine.cli.common.options import Metrics
from dagengine.cli.common.output import say, warn
from dagengine.errors import MissingExtraError
from dagengine.system.regular_files import is_there, require_regular

if TYPE_CHECKING:
    from dagengine.graph.graph import MetricSpec
    from dagengine.record.values import MetricRecord
    from dagengine.report.pictures.drawing import Picture
    from dagengine.report.tally import Tally

_LONGEST = 100  # bytes of a stem; file systems take 255 in a whole name


def render(
    metrics: Metrics,
    out: Annotated[
        Path,
        Option(help="The file to write: .svg, .png, .pdf, .dot, .mmd or .md."),
        Writes(
            # Its file, or one for each metric beside it.
            lambda out, given: [
                out,
                *out.parent.glob(f"{glob.escape(out.stem)}-*{glob.escape(out.suffix)}"),
            ]
        ),
    ] = Path("tree.svg"),
    results: Annotated[
        Path | None, Option(help="A run, or its rows; draw how often each edge was taken."), Reads()
    ] = None,
    case: Annotated[
        str | None, Option(help="With --results: draw the path of this case (name or index).")
    ] = None,
    names: Annotated[
        bool, Option("--names", help="Draw names without questions and what they read.")
    ] = False,
    whole: Annotated[
        bool, Option("--all", help="Draw all nodes of a large graph, however wide it gets.")
    ] = False,
) -> None:
    """Draw the tree of a metric, or those of a run by its folder. Makes no judge calls.

    Each node shows its question, in at most four lines, and what it reads. The whole text is under
    the pointer in an .svg, and in the list of a .md file. A graph of more than 24 nodes is folded
    until it fits a screen; with --results the branches with most failures stay open. With several
    metrics, the name of each metric is added to the name of its picture.
    .svg, .png and .pdf need Graphviz: the extra `draw`, or the program `dot`.
    """
    from dagengine.loading import load_metrics
    from dagengine.record.run import load_run, rows_at
    from dagengine.record.writer import MANIFEST
    from dagengine.report.pictures.drawing import draw
    from dagengine.report.tally import Tally

    tally = None if results is None else Tally(rows_at(results), case)
    if case is not None and tally is None:
        raise typer.BadParameter("--case needs --results")
    specs: Sequence[MetricSpec | MetricRecord]
    if is_there(Path(metrics) / MANIFEST):
        specs = load_run(metrics).manifest.metrics
    else:
        specs = [metric.spec() for metric in load_metrics(metrics)]
    for spec, stem in zip(specs, stems(specs), strict=True):
        name = out if len(specs) == 1 else out.with_stem(f"{out.stem}-{stem}")
        if case is None:
            save(draw(spec, rows=tally, names=names, whole=whole), name)
            continue
        summary = tally.metrics.get(spec.name) if tally else None
        if summary is None or summary.shown is None:
            raise typer.BadParameter(
                f"{results} has no result of {spec.name!r} for a case {case!r}"
            )
        label, result = summary.shown
        picture = draw(spec, result=result, case=label, names=names, whole=whole)
        save(picture, name)


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
    from dagengine.report.pictures.drawing import draw

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
