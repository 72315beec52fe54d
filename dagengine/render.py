"""Pictures of a metric's graph, for people who review it.

Three views of one graph: as designed, with the path of one case, and with how often a
data set took each edge. Graphviz lays them out: the `dot` program when it is there, else
the Graphviz libraries inside the pygraphviz package.
"""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from textwrap import wrap
from typing import Any

import graphviz

from dagengine.checks import check
from dagengine.errors import GraphError, InputError, MissingExtraError
from dagengine.graph import MetricSpec
from dagengine.results import CaseResult, MetricResult, Step
from dagengine.wiring import Scope, Slot, Wiring

_WIDTH, _LINES = 34, 8
_FONT = "Helvetica,Arial,sans-serif"
_INK, _QUIET, _TAKEN = "#1f2933", "#9aa5b1", "#0b5cad"
_FILL = {
    "task": "#eef2f7",
    "map": "#eef2f7",
    "field": "#f7f7f7",
    "code": "#f3eefb",
    "binary judgement": "#fdf6e3",
    "judgement": "#fdf6e3",
    "rating": "#fdf6e3",
    "metric": "#e8f4f8",
}
# Red over amber to green, each dark enough for no more than a background.
_SCORES = ("#f6b0a8", "#f8c9a0", "#fae29c", "#dbe8a0", "#aedba6")
_FORMATS = frozenset({"svg", "png", "pdf"})


@dataclass(frozen=True)
class Picture:
    """A drawing: DOT and Mermaid text, laid out when it is shown or saved."""

    dot: str
    mermaid: str

    def layout(self, form: str = "svg") -> bytes:
        """The picture as svg, png or pdf; raises MissingExtraError without Graphviz."""
        if shutil.which("dot"):
            return bytes(graphviz.Source(self.dot).pipe(format=form))
        try:
            import pygraphviz
        except ImportError:
            raise MissingExtraError(
                "pictures need Graphviz: pip install pygraphviz (which brings its own), or "
                "install the `dot` program; .dot and .mmd files can be written without"
            ) from None
        return bytes(pygraphviz.AGraph(string=self.dot).draw(format=form, prog="dot"))

    def save(self, path: str | Path) -> str:
        """Write the picture; the suffix decides the format (.svg .png .pdf .dot .mmd)."""
        target = Path(path)
        form = target.suffix.lstrip(".").lower()
        target.parent.mkdir(parents=True, exist_ok=True)
        if form in ("dot", "gv"):
            target.write_text(self.dot, encoding="utf-8")
        elif form in ("mmd", "mermaid", "md"):
            fenced = f"```mermaid\n{self.mermaid}```\n" if form == "md" else self.mermaid
            target.write_text(fenced, encoding="utf-8")
        elif form in _FORMATS:
            target.write_bytes(self.layout(form))
        else:
            known = ", ".join(sorted({*_FORMATS, "dot", "mmd", "md"}))
            raise InputError(f"cannot draw {target.name!r}: the suffix must be one of {known}")
        return str(target)

    def _repr_mimebundle_(self, **kwargs: Any) -> dict[str, str]:
        """What a notebook shows: SVG, or the DOT text where there is no Graphviz."""
        try:
            return {"image/svg+xml": self.layout("svg").decode(), "text/plain": self.dot}
        except MissingExtraError as error:
            return {"text/plain": f"{error}\n\n{self.dot}"}


def draw(
    spec: MetricSpec,
    *,
    result: MetricResult | None = None,
    rows: Iterable[CaseResult] | None = None,
) -> Picture:
    """Draw a metric: as designed, or with one case's `result`, or with many `rows`.

    Raises GraphError when the graph has errors.
    """
    problems, wiring = check(spec)
    if wiring is None or any(problem.severity == "error" for problem in problems):
        raise GraphError(problems)
    if result is not None:
        view = _OnePath(result)
    elif rows is not None:
        found = [m for row in rows for m in row.metrics if m.metric == spec.name]
        view = _Counts(found)
    else:
        view = _Design()
    return Picture(_dot(wiring, view), _mermaid(wiring, view))


class _Design:
    """The tree as designed; other views say more about some nodes and edges."""

    def title(self, spec: MetricSpec) -> str:
        threshold = "no threshold" if spec.threshold is None else f"passes at {spec.threshold:g}"
        return f"{spec.name} ({threshold})"

    def note(self, slot: Slot) -> str:
        """What happened at a node, in a few words."""
        return ""

    def weight(self, before: Slot, verdict: Any, after: Slot) -> float | None:
        """How much an edge was taken, from 0 to 1; None when the view does not say."""
        return None

    def verdict(self, slot: Slot, verdict: Any) -> str:
        """The words on a verdict's edge."""
        return str(verdict)

    def reached(self, slot: Slot) -> bool | None:
        """Whether anything happened at a node; None when the view does not say."""
        return None


class _OnePath(_Design):
    """The path that one case took, and what each node answered."""

    def __init__(self, result: MetricResult) -> None:
        self._result = result
        self._steps = {step.node: step for step in result.steps}
        self._chosen = dict(result.path)
        for step in result.steps:
            if step.verdict is not None:
                self._chosen[step.node] = step.verdict

    def title(self, spec: MetricSpec) -> str:
        failure = self._result.failure
        if failure is not None:
            return f"{spec.name}: {failure.kind} at {failure.node}"
        outcome = {True: ", passed", False: ", failed", None: ""}[self._result.success]
        return f"{spec.name}: score {self._result.score:.3g}{outcome}"

    def note(self, slot: Slot) -> str:
        step = self._steps.get(slot.name)
        return "" if step is None else _answer(step)

    def weight(self, before: Slot, verdict: Any, after: Slot) -> float | None:
        if verdict is None:
            return float(before.name in self._steps and after.name in self._steps)
        return float(before.name in self._chosen and self._chosen[before.name] == verdict)

    def verdict(self, slot: Slot, verdict: Any) -> str:
        taken = slot.name in self._chosen and self._chosen[slot.name] == verdict
        return f"✓ {verdict}" if taken else str(verdict)

    def reached(self, slot: Slot) -> bool | None:
        if slot.kind == "node":
            return slot.name in self._steps
        return None


def _answer(step: Step) -> str:
    if step.outcome != "ok":
        return f"✗ {step.outcome}: {step.reason or ''}"
    if step.verdict is not None:
        return f"→ {step.verdict}: {step.reason or ''}".rstrip(": ")
    if step.score is not None:
        return f"→ {step.score:.3g}"
    return f"→ {step.output or ''}"


class _Counts(_Design):
    """How often a data set took each edge."""

    def __init__(self, results: Sequence[MetricResult]) -> None:
        self._cases = len(results)
        self._failed = sum(result.failure is not None for result in results)
        self._ran: Counter[str] = Counter()
        self._broke: Counter[str] = Counter()
        self._chose: Counter[tuple[str, Any]] = Counter()
        for result in results:
            for step in result.steps:
                ok = step.outcome == "ok"
                (self._ran if ok else self._broke)[step.node] += 1
                if step.verdict is not None:
                    self._chose[step.node, step.verdict] += 1

    def title(self, spec: MetricSpec) -> str:
        failed = f", {self._failed} without a score" if self._failed else ""
        return f"{spec.name}: {self._cases} cases{failed}"

    def note(self, slot: Slot) -> str:
        ran, broke = self._ran[slot.name], self._broke[slot.name]
        failed = f", failed {broke}×" if broke else ""
        return f"ran {ran}×{failed}"

    def weight(self, before: Slot, verdict: Any, after: Slot) -> float | None:
        if not self._cases:
            return 0.0
        if verdict is None:
            return min(self._ran[before.name], self._ran[after.name]) / self._cases
        return self._chose[before.name, verdict] / self._cases

    def verdict(self, slot: Slot, verdict: Any) -> str:
        count, ran = self._chose[slot.name, verdict], self._ran[slot.name]
        share = f" ({count / ran:.0%})" if ran else ""
        return f"{verdict}\n{count}×{share}"

    def reached(self, slot: Slot) -> bool | None:
        return bool(self._ran[slot.name] + self._broke[slot.name]) if slot.kind == "node" else None


def _dot(wiring: Wiring, view: _Design) -> str:
    # Graphviz escapes are off: labels are given as HTML-like text, escaped here.
    graph = graphviz.Digraph(
        name="metric",
        graph_attr={
            "label": _html([_bold(view.title(wiring.scope.spec))]),
            "labelloc": "t",
            "fontname": _FONT,
            "fontsize": "16",
            "fontcolor": _INK,
            "rankdir": "TB",
            "nodesep": "0.35",
            "ranksep": "0.55",
            "bgcolor": "white",
            "pad": "0.3",
        },
        node_attr={"fontname": _FONT, "fontsize": "11", "fontcolor": _INK, "color": "#52606d"},
        edge_attr={"fontname": _FONT, "fontsize": "11", "fontcolor": _INK, "color": "#52606d"},
    )
    names = {slot: f"n{index}" for index, slot in enumerate(wiring.slots)}
    _draw_scope(graph, wiring.scope, names, view)
    for slot in wiring.slots:
        _draw_edges(graph, slot, names, view)
    return str(graph.source)


def _draw_scope(graph: Any, scope: Scope, names: dict[Slot, str], view: _Design) -> None:
    """The nodes of a metric; nested metrics get a frame of their own."""
    for slot in sorted(scope.slots.values(), key=lambda slot: slot.rank):
        graph.node(names[slot], label=_label(slot, view), **_look(slot, view))
        if slot.nested is not None:
            with graph.subgraph(name=f"cluster_{names[slot]}") as frame:
                frame.attr(label=slot.name, color=_QUIET, style="rounded", fontname=_FONT)
                _draw_scope(frame, slot.nested, names, view)


def _label(slot: Slot, view: _Design) -> str:
    if slot.kind == "verdict":
        score = 0 if slot.score is None else round(slot.score * 10)
        return _html([_bold(f"score {score}"), _small("of 10")])
    if slot.node is None:
        return _html([_bold(slot.name), _small("metric")])
    node = slot.node
    parts = [_bold(_wrapped(slot.name.rpartition(" > ")[2])), _small(node.kind)]
    if node.text and node.text != node.title:
        parts.append(_wrapped(node.text))
    if node.evaluation_params:
        parts.append(_small(_wrapped("reads " + ", ".join(node.evaluation_params))))
    note = view.note(slot)
    if note:
        parts.append(f'<font color="{_TAKEN}">{_wrapped(note)}</font>')
    return _html(parts)


def _html(parts: Sequence[str]) -> str:
    return f"<{'<br/>'.join(parts)}>"


def _bold(text: str) -> str:
    return f"<b>{text if '<br/>' in text else escape(text)}</b>"


def _small(text: str) -> str:
    return f'<font point-size="9" color="#52606d">{text}</font>'


def _wrapped(text: str) -> str:
    """Escaped text in lines; control characters have no place in XML."""
    clean = "".join(char if char.isprintable() else " " for char in text)
    lines = wrap(clean, _WIDTH, max_lines=_LINES, placeholder=" …") or [""]
    return "<br/>".join(escape(line) for line in lines)


def _look(slot: Slot, view: _Design) -> dict[str, str]:
    if slot.kind == "verdict":
        score = slot.score or 0.0
        fill = _SCORES[min(int(score * len(_SCORES)), len(_SCORES) - 1)]
        return {"shape": "ellipse", "style": "filled", "fillcolor": fill, "margin": "0.05"}
    kind = slot.node.kind if slot.node else "metric"
    decides = bool(slot.node and slot.node.branches())
    look = {
        "shape": "hexagon" if decides else "box",
        "style": "filled" if decides else "rounded,filled",
        "fillcolor": _FILL.get(kind, "#ffffff"),
        "margin": "0.02,0.02" if decides else "0.15,0.08",
    }
    if slot.grades:
        look["peripheries"] = "2"
    reached = view.reached(slot)
    if reached is False:
        look |= {"fillcolor": "#ffffff", "color": _QUIET, "fontcolor": _QUIET, "style": "dashed"}
    elif reached:
        look |= {"penwidth": "2.2"}
    return look


def _draw_edges(graph: Any, slot: Slot, names: dict[Slot, str], view: _Design) -> None:
    for verdict, target in slot.branches:
        words = [escape(part) for part in view.verdict(slot, verdict).split("\n")]
        words = [line for part in words for line in wrap(part, 24)]
        weight = view.weight(slot, verdict, target)
        label = _html([f" {line} " for line in words])
        graph.edge(names[slot], names[target], label=label, **_stroke(weight))
    pulled = {id(source.slot) for source in slot.sources}
    for target in slot.activates:
        fed = any(source.slot is slot for source in target.sources)
        if not fed and id(target) not in pulled:
            graph.edge(names[slot], names[target], **_stroke(view.weight(slot, None, target)))
    for source in slot.sources:
        look = {"style": "dashed", "arrowhead": "open"}
        if slot in source.slot.activates:
            look = {}
        weight = view.weight(source.slot, None, slot)
        graph.edge(names[source.slot], names[slot], **{**_stroke(weight), **look})


def _stroke(weight: float | None) -> dict[str, str]:
    if weight is None:
        return {}
    if not weight:
        return {"color": _QUIET, "style": "dotted", "fontcolor": _QUIET}
    return {"color": _TAKEN, "penwidth": f"{1.2 + 3 * weight:.2f}"}


def _mermaid(wiring: Wiring, view: _Design) -> str:
    lines = ["flowchart TD"]
    names = {slot: f"n{index}" for index, slot in enumerate(wiring.slots)}
    for slot in wiring.slots:
        lines.append(f"  {names[slot]}{_mermaid_shape(slot, view)}")
        if slot.kind == "verdict":
            fill = _SCORES[min(int((slot.score or 0) * len(_SCORES)), len(_SCORES) - 1)]
            lines.append(f"  style {names[slot]} fill:{fill},color:{_INK}")
    for slot in wiring.slots:
        for verdict, target in slot.branches:
            words = _mermaid_text(view.verdict(slot, verdict))
            lines.append(f'  {names[slot]} -- "{words}" --> {names[target]}')
        for target in slot.activates:
            if all(source.slot is not slot for source in target.sources):
                lines.append(f"  {names[slot]} --> {names[target]}")
        for source in slot.sources:
            arrow = "-->" if slot in source.slot.activates else "-.->"
            lines.append(f"  {names[source.slot]} {arrow} {names[slot]}")
    return "\n".join(lines) + "\n"


def _mermaid_shape(slot: Slot, view: _Design) -> str:
    if slot.kind == "verdict":
        return f'(["score {round((slot.score or 0) * 10)}"])'
    node = slot.node
    parts = [slot.name]
    if node is not None and node.text and node.text != node.title:
        parts.append(node.text)
    if node is not None and node.evaluation_params:
        parts.append("reads " + ", ".join(node.evaluation_params))
    if view.note(slot):
        parts.append(view.note(slot))
    text = "<br/>".join(_mermaid_text(part) for part in parts)
    decides = node is not None and node.branches()
    return f'{{{{"{text}"}}}}' if decides else f'["{text}"]'


def _mermaid_text(text: str) -> str:
    """Text inside a quoted Mermaid label: entities for what would end or mark it up."""
    short = "\n".join(wrap(" ".join(text.split()), 40, max_lines=_LINES, placeholder=" …"))
    for char, entity in (("#", "#35;"), ('"', "#quot;"), ("<", "#lt;"), (">", "#gt;"), ("`", "#96;")):
        short = short.replace(char, entity)
    return short.replace("\n", "<br/>")
