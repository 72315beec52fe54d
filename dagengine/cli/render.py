"""`dagengine render`: the tree of a metric as a picture; without Graphviz as Mermaid text."""

from __future__ import annotations

import glob
import re
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer import Option

from dagengine.cli.common.files import Given, Reads, Writes, name_in_errors
from dagengine.cli.common.options import MetricOptions
from dagengine.cli.common.output import say, warn
from dagengine.errors import MissingExtraError
from dagengine.system.safe_files import is_there, require_regular
from dagengine.system.terminal_text import free_name, text_if

if TYPE_CHECKING:
    from dagengine.graph.graph import MetricSpec
    from dagengine.record.run_json_types import MetricRecord
    from dagengine.report.pictures.drawing import Picture
    from dagengine.report.tally import Tally

_LONGEST = 100  # bytes of a stem; file systems take 255 in a whole name


def _files(out: Path, given: Given) -> Iterable[Path]:
    """The file of a picture, or one for each metric beside it."""
    yield out
    yield from out.parent.glob(f"{glob.escape(out.stem)}-*{glob.escape(out.suffix)}")


@dataclass(frozen=True, kw_only=True)
class RenderOptions(MetricOptions):
    """The options of `dagengine render`."""

    out: Annotated[Path, Writes(_files)] = Path("tree.svg")
    """The file to write: .svg, .png, .pdf, .dot, .mmd or .md."""
    results: Annotated[Path | None, Reads()] = None
    """A run, or its rows; draw how often each edge was taken."""
    case: str | None = None
    """With --results: draw the path of this case (name or index)."""
    names: Annotated[bool, Option("--names")] = False
    """Draw names without questions and what they read."""
    whole: Annotated[bool, Option("--all")] = False
    """Draw all nodes of a large graph, however wide it gets."""


def render(options: RenderOptions) -> None:
    """Draw the tree of a metric, or those of a run by its folder. Makes no judge calls.

    Each node shows its question, in at most four lines, and what it reads. The whole text is under
    the pointer in an .svg, and in the list of a .md file. A graph of more than 24 nodes is folded
    until it fits a screen; with --results the branches with most failures stay open. With several
    metrics, the name of each metric is added to the name of its picture.
    .svg, .png and .pdf need Graphviz: the extra `draw`, or the program `dot`.
    """
    from dagengine.loading import load_metrics
    from dagengine.record.reader import load_run, rows_at
    from dagengine.record.writer import MANIFEST
    from dagengine.report.pictures.drawing import draw
    from dagengine.report.tally import Tally

    tally = None if options.results is None else Tally(rows_at(options.results), options.case)
    if options.case is not None and tally is None:
        raise typer.BadParameter("--case needs --results")
    specs: Sequence[MetricSpec | MetricRecord]
    if is_there(Path(options.metrics) / MANIFEST):
        specs = load_run(options.metrics).manifest.metrics
    else:
        specs = [metric.spec() for metric in load_metrics(options.metrics)]
    for spec, stem in zip(specs, stems(specs), strict=True):
        path = options.out
        shown: dict[str, Any] = {"rows": tally}
        if len(specs) > 1:
            path = path.with_stem(f"{path.stem}-{stem}")
        if tally is not None:
            summary, wanted = tally.metrics.get(spec.name), options.case is not None
            if summary is None or (wanted and summary.shown is None):
                at = text_if(wanted, f" for a case {options.case!r}")
                raise typer.BadParameter(f"{options.results} has no result of {spec.name!r}{at}")
            if wanted and summary.shown is not None:
                shown = dict(zip(("case", "result"), summary.shown, strict=True))
        save(draw(spec, **shown, names=options.names, whole=options.whole), path)


def stems(metrics: Sequence[MetricSpec | MetricRecord]) -> list[str]:
    """Parts of file names, one per metric, all different; warns of letters that names lack."""
    names: list[str] = []
    for metric in metrics:
        letters, encoding = metric.name.lower(), sys.getfilesystemencoding()
        possible = letters.encode(encoding, "ignore").decode(encoding)
        if possible != letters.encode(errors="ignore").decode():
            lacks = f"file names here are {encoding}, which lacks letters of {metric.name!r}"
            warn(f"{lacks}: its pictures are named without them")
        stem = re.sub(r"\W+", "-", possible).strip("-") or "metric"
        stem = stem.encode()[:_LONGEST].decode(errors="ignore")
        names.append(free_name(stem, names, "-"))
    return names


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
