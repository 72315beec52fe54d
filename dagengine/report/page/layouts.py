"""Which part of a graph is drawn, and where Graphviz puts it: boxes and curves without words."""

from __future__ import annotations

import bisect
import json
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain, pairwise, repeat
from operator import attrgetter
from typing import Any

import graphviz
import networkx as nx

from dagengine.errors import MissingExtraError
from dagengine.report.pictures.dot import laid_out
from dagengine.report.pictures.graphs import MetricGraph

_NODE, _ITEMS, _LEAF, _STUB = 44, 60, 28, 40  # heights in pixels
_BOLD, _SMALL = 7.4, 6.0  # pixels of a character
_NAME, _VERDICT = 26, 24  # characters that are shown
_GAP = 9  # pixels between the middle of an edge and its label
_BESIDE, _FULL = (544, 560), (1212, 620)  # the picture beside the list, and above it
_SHARE = 0.9  # of the failures that a picture beside the list has to show
_OPENED = 12  # groups that can be opened one by one
_TRIED = 16  # branches that are tried after the first that has no room
_INCH = 72
_ENDS = attrgetter("source", "target")
Box = tuple[float, float, float, float]
"""Left, top, width and height in pixels."""


def layouts(
    graph: MetricGraph, ways: Sequence[tuple[Any, int, int]], cases: int
) -> tuple[list[dict[str, Any]], dict[int, dict[str, Any]]]:
    """The whole graph; if that has no room also folded to fit, and with each group open.

    Then the picture in which a metric under a verdict is unfolded, by the number of the node that
    stands for it. `ways` are (way, cases, failed), see `MetricKinds.as_drawn`.

    A picture fits by folding and is never shrunk: beside the list of ends, or, if that leaves out
    more than a tenth of the failures, over the full width. Empty if there is no Graphviz, and for a
    graph that Graphviz cannot lay out.
    """
    folding = _Folding(graph, ways, cases)
    try:
        chosen = folding.largest(_BESIDE)
        if chosen is not None and folding.leaves_out(chosen):
            chosen = folding.largest(_FULL)
        drawings = [folding.whole]
        if chosen is not None:
            drawings.append(folded := folding.draw(chosen))
            for stub in folded.stubs[:_OPENED]:
                drawings.append(folding.draw(chosen | set(stub.nodes)))
        inside = {}
        for owner in sorted(graph.owners()):
            frames = graph.around(owner)
            base = chosen if chosen is not None and frames[-1] in chosen else folding.parts[-1]
            inside[owner] = folding.draw(base, frames).as_dict()
        return list(map(_Drawing.as_dict, drawings)), inside
    except (MissingExtraError, OSError, ValueError):
        return [], {}


@dataclass(frozen=True, slots=True)
class Stub:
    """Nodes that are not drawn, and the answers that lead into them."""

    nodes: tuple[int, ...]
    by: tuple[int, ...]


def _drawn_nodes(graph: MetricGraph, owner: int | None = None) -> list[int]:
    """The nodes of a metric (None: the outermost) that ask or decide.

    Those of nested metrics are behind one of these; what only hands on a field of the case is
    in no picture.
    """
    own = graph.inner(owner)
    return [number for number in own if graph.nodes[number].kind != "field"] or own


class _Folding:
    """The parts of a graph that may be drawn: the branches with most failures, the rest as stubs.

    `parts` are ever larger ones: from the roots on, always the branch with most failures next.
    Where nothing failed the branch with most cases is next; what no case reached comes last, all at
    once. What hands data on comes with the node that reads it.
    """

    def __init__(
        self, graph: MetricGraph, ways: Sequence[tuple[Any, int, int]], cases: int
    ) -> None:
        self._graph, self._ways, self._cases = graph, ways, cases
        taken = set[int]().union(*(way.answers for way, count, _ in ways if count))
        # The answers that no case took; none before the first case.
        self._never = set(range(len(graph.answers))) - taken if taken else set[int]()
        self.parts = [*self._growing_parts()]

    def _growing_parts(self) -> Iterator[set[int]]:
        graph, top = self._graph, set(_drawn_nodes(self._graph))
        failed, came = Counter[int](), Counter[int]()
        for way, cases, failures in self._ways:
            failed.update(dict.fromkeys(way.nodes, failures))
            came.update(dict.fromkeys(way.nodes, cases))
        reads: nx.DiGraph[int] = nx.DiGraph()
        reads.add_nodes_from(top)
        reads.add_edges_from(filter(top.issuperset, map(_ENDS, graph.feeds)))
        gated = graph.targets()
        roots = {node for node in top if node not in gated and not reads.out_degree(node)}

        def with_inputs(shown: set[int]) -> set[int]:
            """Nodes with all that they read, directly or not."""
            return shown.union(*(nx.ancestors(reads, node) for node in shown))

        yield (part := with_inputs(roots or {min(top)}))
        reached = top.intersection(+came) or top
        while ahead := self._heads(part) & reached:
            worst = max(ahead, key=lambda node: (failed[node], came[node], -node))
            yield (part := with_inputs(part | {worst}))
        if part != top:
            yield top

    def draw(self, shown: set[int], frames: Sequence[int] = ()) -> _Drawing:
        """The drawing of some nodes, with what is inside of the metrics `frames`."""
        return _Drawing(self._graph, shown, self._cases, self._never, frames)

    @cached_property
    def whole(self) -> _Drawing:
        """The drawing of the whole graph."""
        return self.draw(self.parts[-1])

    def largest(self, room: tuple[int, int]) -> set[int] | None:
        """The largest part whose picture has room: branch after branch, past those without.

        None if the whole graph has room.
        """

        def without_room(part: set[int]) -> bool:
            return not self.draw(part).fits(room)

        if self.whole.fits(room):
            return None

        # Parts grow, and so do their pictures: the largest that fits is found by bisection.
        position = max(0, bisect.bisect_left(self.parts, True, key=without_room) - 1)
        chosen, tried = self.parts[position], 0
        for before, after in pairwise(self.parts[position:]):
            more = after - before
            if tried < _TRIED and more & self._heads(chosen):
                tried += 1
                chosen = chosen if without_room(chosen | more) else chosen | more
        return chosen

    def _heads(self, shown: set[int]) -> set[int]:
        """The hidden nodes that shown ones lead to, or that run after one."""
        answers = (answer.targets for answer in self._graph.answers if answer.node in shown)
        feeds = (f.target for f in self._graph.feeds if f.runs and f.source in shown)
        return {*chain.from_iterable(answers), *feeds} - shown

    def leaves_out(self, chosen: set[int]) -> bool:
        """Return whether the ends of too many failures are not drawn."""
        # One that broke off before any node has no end to draw.
        drawn = {None, *chosen}
        failures = sum(failed for *_, failed in self._ways)
        there = sum(failed for way, _, failed in self._ways if way.end[0] in drawn)
        return bool(failures) and there / failures < _SHARE


class _Drawing:
    """One layout: some nodes, and stubs for the others.

    In the place of the nodes `frames` there are those of the metrics that they stand for. What led
    to such a node leads to the first one inside.
    """

    def __init__(
        self,
        graph: MetricGraph,
        shown: set[int],
        cases: int,
        never: set[int],
        frames: Sequence[int],
    ) -> None:
        self._graph, self._frames = graph, frames
        inner = {owner: _drawn_nodes(graph, owner) for owner in frames}
        self._shown = shown.union(*inner.values()) - set(frames)
        # What is drawn for a node: itself, or the first one inside of its frame.
        self._at = dict(zip(self._shown, self._shown, strict=True))
        led = graph.targets() | {feed.target for feed in graph.feeds if feed.runs}
        for owner, own in inner.items():
            entrance = next((number for number in own if number not in led), own[0])
            self._at[owner] = self._at[entrance]
        self.group(shown, never)
        # How many answers lead to each node
        self._entries = Counter(chain.from_iterable(set(a.targets) for a in graph.answers))
        self._digits = len(f"{cases:,}")
        self._dot = graphviz.Digraph(
            graph_attr={"nodesep": "0.17", "ranksep": "0.3"},
            node_attr={"shape": "box", "fixedsize": "true", "label": ""},
            edge_attr={"dir": "none", "label": ""},
        )
        # A frame stands in the one around it, or in the drawing itself. It has room for its name,
        # and for the button that folds it.
        self._parts = dict[int, graphviz.Digraph]()
        for owner in frames:
            wide = round(_BOLD * min(len(graph.nodes[owner].name), _NAME)) + 60
            self._parts[owner] = graphviz.Digraph(
                f"cluster_{owner}", graph_attr={"margin": "12", "labeljust": "l", **_room_for(wide)}
            )
        self.draw()
        for owner, part in self._parts.items():
            self._around(owner).subgraph(part)
        drawing = json.loads(laid_out(str(self._dot.source), "json0"))
        _, _, self._width, self._height = map(float, drawing["bb"].split(","))
        self._boxes = {part["name"]: self.box(part) for part in drawing.get("objects", [])}
        self._edges = drawing.get("edges", [])

    def group(self, shown: set[int], never: set[int]) -> None:
        """Put together what no case took: one pill of its node, with the groups behind it alone."""
        self._untaken: defaultdict[int, list[int]] = defaultdict(list)
        for number in filter(self.leads_away, sorted(never)):
            self._untaken[self._graph.answers[number].node].append(number)
        self._never = set(chain.from_iterable(self._untaken.values()))
        self.stubs, self._hidden = list[Stub](), list[Stub]()
        for stub in _stubs(self._graph, shown):
            hidden = self._never.issuperset(stub.by)
            (self._hidden if hidden else self.stubs).append(stub)

    def leads_away(self, number: int) -> bool:
        """Return whether an answer leads somewhere, and to no node of the drawing."""
        answer = self._graph.answers[number]
        leads = bool(answer.targets) or answer.score is not None
        return leads and self._at.keys().isdisjoint(answer.targets)

    def draw(self) -> None:
        self.draw_nodes()
        for number, answer in enumerate(self._graph.answers):
            if answer.node in self._shown and number not in self._never:
                self.draw_answer(number)
        for owner in sorted(self._untaken.keys() & self._shown):
            wide = 96 + 60 * bool(self._groups(owner))
            self._place(f"u{owner}", wide, _LEAF, self._around(owner))
            label = _room_for(self._wide(self._untaken[owner][0]))
            self._dot.edge(f"n{owner}", f"u{owner}", id=f"u{owner}", **label)
        for feed in self._graph.feeds:
            source, target = self._at.get(feed.source), self._at.get(feed.target)
            if source is not None and target is not None and source != target:
                key = f"f{feed.source}-{feed.target}-{int(feed.runs)}"
                self._dot.edge(f"n{source}", f"n{target}", id=key)

    def draw_nodes(self) -> None:
        lists = {a.node for a in self._graph.answers if not a.targets and a.score is None}
        for number in sorted(self._shown):
            node = self._graph.nodes[number]
            kind = node.kind.replace("binary ", "")
            under = 2 * self._digits + 3 + (0 if kind == "judgement" else len(kind) + 3)
            least, tall = (210, _ITEMS) if number in lists else (104, _NODE)
            wide = max(_BOLD * min(len(node.name), _NAME), _SMALL * under) + 26
            self._place(f"n{number}", max(wide, least), tall, self._around(number))
        for number in range(len(self.stubs)):
            self._place(f"s{number}", 128 + 6 * self._digits, _STUB, self._dot)

    def draw_answer(self, number: int) -> None:
        answer = self._graph.answers[number]
        # Targets may be in one frame or stub of this drawing.
        drawn = dict.fromkeys(self._at[target] for target in answer.targets if target in self._at)
        targets = [f"n{target}" for target in drawn]
        targets += [f"s{index}" for index, stub in enumerate(self.stubs) if number in stub.by]
        if answer.score is not None:
            wide = _SMALL * (self._digits + 6) + 28
            self._place(f"l{number}", wide, _LEAF, self._around(answer.node))
            targets.append(f"l{number}")
        label = _room_for(self._wide(number))
        for name in targets:
            self._dot.edge(f"n{answer.node}", name, id=f"e{number}", **label)

    def _groups(self, node: int) -> set[int]:
        """The nodes that only answers of a node lead to that no case took."""
        own = set(self._untaken[node])
        return set[int]().union(*(stub.nodes for stub in self._hidden if own & set(stub.by)))

    def fits(self, room: tuple[int, int]) -> bool:
        """Return whether the drawing has room in a box of so many pixels."""
        return self._width + 6 <= room[0] and self._height + 6 <= room[1]

    def _place(self, name: str, width: float, height: float, part: graphviz.Digraph) -> None:
        part.node(name, width=f"{width / _INCH:.4f}", height=f"{height / _INCH:.4f}")

    def _around(self, node: int) -> graphviz.Digraph:
        """The frame that a node stands in, or the drawing."""
        owner = self._graph.nodes[node].inside
        return self._dot if owner is None else self._parts.get(owner, self._dot)

    def _wide(self, number: int) -> int:
        """The width of the words beside an edge, with the way to its middle."""
        shown = min(len(self._verdicts(number)), _VERDICT)
        return round(_BOLD * (shown + (self._digits + 1 if self._is_shared(number) else 0)) + _GAP)

    def _verdicts(self, number: int) -> str:
        """The words beside an edge; answers that no case took stand together."""
        own = self._untaken[self._graph.answers[number].node] if number in self._never else [number]
        return ", ".join(self._graph.answers[each].verdict for each in own)

    def _is_shared(self, number: int) -> bool:
        """Whether another answer leads to the same node: then the edge says its own count."""
        targets = self._graph.answers[number].targets
        return max(map(self._entries.__getitem__, targets), default=0) > 1

    def box(self, part: dict[str, Any]) -> Box:
        if "bb" in part:  # of a frame
            left, low, right, high = map(float, part["bb"].split(","))
            return _round_box(left, self._height - high, right - left, high - low)
        x, y = map(float, part["pos"].split(","))
        width, height = (float(part[side]) * _INCH for side in ("width", "height"))
        return _round_box(x - width / 2, self._height - y - height / 2, width, height)

    def as_dict(self) -> dict[str, Any]:
        """JSON-ready form, by the numbers of nodes and answers."""
        graph = self._graph
        edges: list[dict[str, Any] | None] = [None] * len(graph.answers)
        feeds, never = [], []
        for edge in self._edges:
            path, key = self.path(edge["pos"]), edge["id"]
            number, *ends = map(int, key[1:].split("-"))
            if key.startswith("f"):
                target, runs = ends
                feeds.append({"from": number, "to": target, "path": path, "runs": bool(runs)})
            elif key.startswith("u"):
                answers = self._untaken[number]
                words = {"answers": answers, "words": self._verdicts(answers[0])}
                box = {"box": self._boxes[key], "path": path}
                label = self._words(edge, answers[0])
                groups = len(self._groups(number))
                never.append({"node": number, "nodes": groups, **words, **box, "label": label})
            elif (before := edges[number]) is not None:
                before["path"] += path  # an answer with several targets has several curves
            else:
                label, shared = self._words(edge, number), self._is_shared(number)
                edges[number] = {"path": path, "label": label, "shared": shared}
        hidden = set(_drawn_nodes(graph)) - self._at.keys()
        return {
            "width": round(self._width + 2),
            "height": round(self._height + 2),
            "nodes": [self._boxes.get(f"n{number}") for number in range(len(graph.nodes))],
            "edges": edges,
            "leaves": [self._boxes.get(f"l{number}") for number in range(len(graph.answers))],
            "feeds": feeds,
            "frames": [
                {"node": owner, "box": self._boxes[f"cluster_{owner}"]}
                for owner in reversed(self._frames)
            ],
            "never": never,
            "stubs": [
                {
                    "box": self._boxes[f"s{number}"],
                    "nodes": stub.nodes,
                    "answers": [n for n, a in enumerate(graph.answers) if a.node in hidden],
                    "by": stub.by,
                }
                for number, stub in enumerate(self.stubs)
            ],
        }

    def path(self, pos: str) -> str:
        """The curve as the commands of an SVG path; Graphviz counts from below."""
        points = [point for point in pos.split() if point[0] not in "es"]
        pairs = (tuple(map(float, point.split(","))) for point in points)
        first, *rest = (f"{x:.1f},{self._height - y:.1f}" for x, y in pairs)
        return f"M{first}C{' '.join(rest)}"

    def _words(self, edge: dict[str, Any], number: int) -> tuple[float, float] | None:
        """Start of the first line of a label."""
        if "lp" not in edge:
            return None
        x, y = map(float, edge["lp"].split(","))
        left, top, *_ = _round_box(x - self._wide(number) / 2 + _GAP, self._height - y + 4, 0, 0)
        return left, top


def _stubs(graph: MetricGraph, shown: set[int]) -> list[Stub]:
    """The rest of the graph, as subtrees that hang together."""
    hidden = set(_drawn_nodes(graph)) - shown
    parts: nx.Graph[int] = nx.Graph()
    parts.add_nodes_from(hidden)
    parts.add_edges_from(filter(hidden.issuperset, map(_ENDS, graph.feeds)))
    for answer in graph.answers:
        ends = zip(repeat(answer.node), answer.targets, strict=False)
        parts.add_edges_from(filter(hidden.issuperset, ends))
    stubs = []
    for group in nx.connected_components(parts):
        by = [
            number
            for number, answer in enumerate(graph.answers)
            if answer.node in shown and not group.isdisjoint(answer.targets)
        ]
        if by:
            stubs.append(Stub(tuple(sorted(group)), tuple(by)))
    return sorted(stubs, key=lambda stub: stub.by)


def _room_for(width: int) -> dict[str, str]:
    """An empty table in the place of words of this width."""
    size = f'width="{width}" height="18"'
    return {"label": f'<<table border="0" fixedsize="true" {size}><tr><td></td></tr></table>>'}


def _round_box(x: float, y: float, width: float, height: float) -> Box:
    return round(x, 1), round(y, 1), round(width, 1), round(height, 1)
