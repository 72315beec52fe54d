"""Where Graphviz puts the parts of a compact drawing: boxes and curves without words."""

from __future__ import annotations

import json
from collections.abc import Collection, Sequence
from typing import Any

import graphviz

from dagengine.errors import MissingExtraError
from dagengine.report.layout import laid_out
from dagengine.report.page.folding import LARGE, Stub, shown_nodes, stubs_of, top_nodes
from dagengine.report.page.graphs import PageGraph
from dagengine.report.page.values import Box

_NODE, _LEAF, _STUB = 42, (76, 30), (100, 38)  # pixels
_BOLD, _SMALL = 7.4, 6.0  # pixels of a character
_NAME, _VERDICT = 26, 24  # characters that are shown
_PIPE = 10  # pixels between the middle of an edge and its label
_OPENED = 12  # stubs that can be opened one by one
_INCH = 72


def layouts(
    graph: PageGraph, ways: Sequence[tuple[Any, int, int]], cases: int
) -> list[dict[str, Any]]:
    """The whole graph; a large one also folded, and folded with each one of its stubs open.

    Empty if there is no Graphviz, and for a graph that Graphviz cannot lay out.
    """
    whole = set(top_nodes(graph))
    chosen = [(whole, list[Stub]())]
    if len(whole) > LARGE:
        shown = shown_nodes(graph, ways)
        stubs = stubs_of(graph, shown)
        chosen.append((shown, stubs))
        for stub in stubs[:_OPENED]:
            more = shown | set(stub.nodes)
            chosen.append((more, stubs_of(graph, more)))
    try:
        return [_Drawing(graph, nodes, stubs, cases).as_dict() for nodes, stubs in chosen]
    except (MissingExtraError, OSError, ValueError):
        return []


def nested_layouts(graph: PageGraph, cases: int) -> dict[int, dict[str, Any]]:
    """The graphs of metrics under verdicts, by the number of the node that stands for each."""
    inside: dict[int, set[int]] = {}
    for number, node in enumerate(graph.nodes):
        if node.inside is not None and node.kind != "field":
            inside.setdefault(node.inside, set()).add(number)
    try:
        return {
            owner: _Drawing(graph, nodes, [], cases).as_dict() for owner, nodes in inside.items()
        }
    except (MissingExtraError, OSError, ValueError):
        return {}


class _Drawing:
    """One layout: some nodes, and stubs for the others."""

    def __init__(
        self, graph: PageGraph, shown: Collection[int], stubs: Sequence[Stub], cases: int
    ) -> None:
        self._graph, self._shown, self._stubs = graph, shown, stubs
        self._digits = len(f"{cases:,}")
        self._dot = graphviz.Digraph(
            graph_attr={"nodesep": "0.32", "ranksep": "0.3"},
            node_attr={"shape": "box", "fixedsize": "true", "label": ""},
            edge_attr={"dir": "none", "label": ""},
        )
        self._draw()
        found = json.loads(laid_out(str(self._dot.source), "json0"))
        _, _, self._width, self._height = map(float, found["bb"].split(","))
        self._boxes = {part["name"]: self._box(part) for part in found.get("objects", [])}
        self._edges = found.get("edges", [])

    def _draw(self) -> None:
        for number in sorted(self._shown):
            node = self._graph.nodes[number]
            under = len(node.kind.replace("binary ", "")) + self._digits + 3
            wide = max(_BOLD * min(len(node.name), _NAME), _SMALL * under, 70) + 22
            self._place(f"n{number}", wide, _NODE)
        for number in range(len(self._stubs)):
            self._place(f"s{number}", *_STUB)
        for number, answer in enumerate(self._graph.answers):
            if answer.node not in self._shown:
                continue
            if answer.score is not None:
                self._place(f"l{number}", *_LEAF)
            for name in self._targets(number):
                self._dot.edge(f"n{answer.node}", name, id=f"e{number}", **self._label(number))
        for feed in self._graph.feeds:
            if {feed.source, feed.target} <= set(self._shown):
                key = f"f{feed.source}-{feed.target}-{int(feed.runs)}"
                self._dot.edge(f"n{feed.source}", f"n{feed.target}", id=key)

    def _place(self, name: str, width: float, height: float) -> None:
        self._dot.node(name, width=f"{width / _INCH:.4f}", height=f"{height / _INCH:.4f}")

    def _targets(self, number: int) -> list[str]:
        """Where an answer leads in this drawing."""
        answer = self._graph.answers[number]
        found = [f"n{target}" for target in answer.targets if target in self._shown]
        found += [f"s{place}" for place, stub in enumerate(self._stubs) if number in stub.by]
        return found + ([f"l{number}"] if answer.score is not None else [])

    def _label(self, number: int) -> dict[str, str]:
        """Room for the words beside an edge: an empty table of their size."""
        size = f'width="{self._wide(number)}" height="34"'
        table = f'<table border="0" fixedsize="true" {size}><tr><td></td></tr></table>'
        return {"label": f"<{table}>"}

    def _wide(self, number: int) -> int:
        """The width of the words beside an edge, with the way to its middle."""
        verdict = self._graph.answers[number].verdict
        return round(_BOLD * max(min(len(verdict), _VERDICT), 2 * self._digits + 3) + _PIPE)

    def _box(self, part: dict[str, Any]) -> Box:
        x, y = map(float, part["pos"].split(","))
        width, height = (float(part[side]) * _INCH for side in ("width", "height"))
        return _rounded(x - width / 2, self._height - y - height / 2, width, height)

    def as_dict(self) -> dict[str, Any]:
        """JSON-ready form, by the numbers of nodes and answers."""
        graph = self._graph
        edges: list[dict[str, Any] | None] = [None] * len(graph.answers)
        feeds = []
        for edge in self._edges:
            path, key = self._path(edge["pos"]), edge["id"]
            if key.startswith("e"):
                before = edges[int(key[1:])]
                if before is not None:  # an answer with several targets has several curves
                    before["path"] += path
                else:
                    edges[int(key[1:])] = {"path": path, "label": self._words(edge)}
            else:
                source, target, runs = map(int, key[1:].split("-"))
                feeds.append({"from": source, "to": target, "path": path, "runs": bool(runs)})
        hidden = set(top_nodes(graph)) - set(self._shown)
        return {
            "width": round(self._width + 2),
            "height": round(self._height + 2),
            "nodes": [self._boxes.get(f"n{number}") for number in range(len(graph.nodes))],
            "edges": edges,
            "leaves": [self._boxes.get(f"l{number}") for number in range(len(graph.answers))],
            "feeds": feeds,
            "stubs": [
                {
                    "box": self._boxes[f"s{number}"],
                    "nodes": stub.nodes,
                    "answers": [n for n, a in enumerate(graph.answers) if a.node in hidden],
                    "by": stub.by,
                }
                for number, stub in enumerate(self._stubs)
            ],
        }

    def _path(self, pos: str) -> str:
        """The curve as the commands of an SVG path; Graphviz counts from below."""
        points = [point for point in pos.split() if point[0] not in "es"]
        pairs = (tuple(map(float, point.split(","))) for point in points)
        first, *rest = (f"{x:.1f},{self._height - y:.1f}" for x, y in pairs)
        return f"M{first}C{' '.join(rest)}"

    def _words(self, edge: dict[str, Any]) -> tuple[float, float] | None:
        """Where the first line of a label begins."""
        if "lp" not in edge:
            return None
        x, y = map(float, edge["lp"].split(","))
        wide = self._wide(int(edge["id"][1:]))
        left, top, *_ = _rounded(x - wide / 2 + _PIPE, self._height - y - 4, 0, 0)
        return left, top


def _rounded(x: float, y: float, width: float, height: float) -> Box:
    return round(x, 1), round(y, 1), round(width, 1), round(height, 1)
