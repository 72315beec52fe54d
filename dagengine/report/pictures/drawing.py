"""Pictures of a metric's graph, for a reviewer.

Three views of one graph: as designed, with the path of one case, and with how often a data set
took each edge. Graphviz lays them out: the libraries inside the pygraphviz package (the extra
`draw`), else the `dot` program. DOT and Mermaid text need neither.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from dagengine.compiler.execution_plan import compile_metrics
from dagengine.errors import InputError, MissingExtraError
from dagengine.graph.graph import MetricSpec
from dagengine.graph.rewriting import SpecMetric
from dagengine.record.run_json import metrics_of
from dagengine.record.run_json_types import MetricRecord
from dagengine.report.pictures.dot import dot_text, laid_out
from dagengine.report.pictures.mermaid import mermaid_text, questions_text
from dagengine.report.pictures.metric_graph import MetricGraph
from dagengine.report.pictures.parts import Model, ModelMaker
from dagengine.report.pictures.path_and_counts import View, counts, one_path
from dagengine.report.pictures.svg import svg_text
from dagengine.report.tally import MetricTally, Tally
from dagengine.results import CaseResult, MetricResult
from dagengine.system.safe_files import write_whole

_FORMATS = frozenset({"svg", "png", "pdf"})


@dataclass(frozen=True)
class Picture:
    """A drawing: DOT and Mermaid text, laid out when it is shown or saved."""

    model: Model = field(repr=False)

    @cached_property
    def dot(self) -> str:
        """The picture as DOT text."""
        return dot_text(self.model)

    @cached_property
    def mermaid(self) -> str:
        """The picture as Mermaid text."""
        return mermaid_text(self.model)

    def layout(self, form: str = "svg") -> bytes:
        """The picture as svg, png or pdf; raises MissingExtraError without Graphviz.

        An SVG has the colours of both lights and follows the reader's setting. PNG and PDF are
        drawn by Graphviz itself: the same parts and words, in plainer shapes and light colours.
        """
        if form == "svg":
            return svg_text(self.model, self.dot).encode()
        return laid_out(self.dot, form)

    def save(self, path: str | Path) -> str:
        """Write the picture; the suffix decides the format (.svg .png .pdf .dot .mmd .md).

        A .md file also lists the questions. Raises InputError for another suffix, MissingExtraError
        for .svg, .png and .pdf without Graphviz.
        """
        target = Path(path)
        form = target.suffix.lstrip(".").lower()
        if form in _FORMATS:
            content = self.layout(form)
        elif form in ("dot", "gv"):
            content = self.dot.encode()
        elif form in ("mmd", "mermaid"):
            content = self.mermaid.encode()
        elif form == "md":
            questions = questions_text(self.model)
            after = f"\n{questions}" if questions else ""
            content = f"```mermaid\n{self.mermaid}```\n{after}".encode()
        else:
            suffixes = ", ".join(sorted({*_FORMATS, "dot", "mmd", "md"}))
            raise InputError(f"cannot draw {target.name!r}: the suffix must be one of {suffixes}")
        write_whole(target, content)
        return str(target)

    def _repr_mimebundle_(self, **kwargs: Any) -> dict[str, str]:
        """Picture for a notebook: SVG, or the Mermaid text if there is no Graphviz.

        A notebook shrinks a wide SVG until nobody can read it; in HTML it can be scrolled.
        """
        try:
            svg = self.layout("svg").decode()
        except MissingExtraError as error:
            return {"text/plain": f"{error}\n\n{self.mermaid}"}
        return {"text/html": self.html(), "image/svg+xml": svg, "text/plain": self.dot}

    def html(self) -> str:
        """The SVG at its full size, in a box that scrolls; raises as `layout` does."""
        _, _, svg = self.layout("svg").decode().partition("\n")
        wide = svg.replace("<svg ", '<svg style="max-width:none" ', 1)
        return f'<div style="overflow-x:auto">{wide}</div>'


def draw(
    spec: MetricSpec | MetricRecord,
    *,
    result: MetricResult | None = None,
    case: str = "",
    rows: Iterable[CaseResult] | Tally | None = None,
    names: bool = False,
    whole: bool = False,
) -> Picture:
    """Draw a metric: as designed, or with one case's `result`, or with many `rows`.

    `case` names the case in the title; `rows` may have been tallied already. Every node shows its
    question and what it reads, in at most four lines, unless only `names` are wanted; an SVG has
    the whole text under the pointer. A graph of more than 24 nodes is folded until it fits a
    screen, unless the `whole` graph is wanted.

    Raises GraphError when the graph has errors.
    """
    if isinstance(spec, MetricRecord):
        record = spec
    else:
        (record,) = metrics_of(compile_metrics(SpecMetric(spec)))
    graph = MetricGraph.of(record)
    view = View()
    if result is not None:
        view = one_path(graph, result, case)
    elif rows is not None:
        tally = rows if isinstance(rows, Tally) else Tally(rows)
        view = counts(graph, tally.metrics.get(spec.name, MetricTally()))
    return Picture(ModelMaker(graph, view, names).model(whole))
