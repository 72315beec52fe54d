"""Which part of a graph is drawn, and where Graphviz puts it: boxes and curves without words.

`_Folding` chooses the nodes, and `_Drawing` lays them out. Stubs are drawn for the other nodes. The
page adds the words itself, so Graphviz only gets empty labels of their width.
"""

from __future__ import annotations

import bisect
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
from dagengine.report.pictures.dot import INCH, Box, Layout
from dagengine.report.pictures.metric_graph import MetricGraph

_NODE, _ITEMS, _LEAF, _STUB = 44, 60, 28, 40  # heights in pixels
_BOLD, _SMALL = 7.4, 6.0  # pixels of a character
_NAME, _VERDICT = 26, 24  # characters that are shown
_GAP = 9  # pixels between the middle of an edge and its label
_BESIDE, _FULL = (544, 560), (1212, 620)  # pixels of a picture beside the list, and above it
_SHARE = 0.9  # of the failures that a picture beside the list has to show
_MOST_OPENED = 12  # stubs that can be opened one by one
_MOST_TRIED = 16  # branches that are tried after the first that has no room
_ENDS = attrgetter("source", "target")
Ways = Sequence[tuple[Any, int, int]]
"""How results went: a `Kind` of results, its cases, and those that failed."""


def layouts(
    graph: MetricGraph, ways: Ways, cases: int
) -> tuple[list[dict[str, Any]], dict[int, dict[str, Any]]]:
    """The drawings of the metric, and one by the number of each node that stands for a metric.

    First the whole graph. If that has no room, then the graph folded to fit, and with each stub
    opened. In the drawing of a node its metric is unfolded.

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
            opened = (chosen | set(stub.nodes) for stub in folded.stubs[:_MOST_OPENED])
            drawings += map(folding.draw, opened)
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
    """Nodes that hang together and are not drawn; `by` are the drawn answers that lead to them."""

    nodes: tuple[int, ...]
    by: tuple[int, ...]


def _drawn_nodes(graph: MetricGraph, owner: int | None = None) -> list[int]:
    """The nodes of a metric itself (None: the outermost), without those that only give a field."""
    own = graph.inner(owner)
    return [number for number in own if graph.nodes[number].kind != "field"] or own


class _Folding:
    """The parts of a graph (sets of nodes) that may be drawn; stubs stand for the rest.

    `parts` are ever larger ones: from the roots on, always the branch with most failures next. If
    nothing failed, that with most cases is next; what no case reached comes last, all at once. A
    node comes with all that it reads.
    """

    def __init__(self, graph: MetricGraph, ways: Ways, cases: int) -> None:
        self._graph, self._ways, self._cases = graph, ways, cases
        taken = set[int]().union(*(way.answers for way, count, _ in ways if count))
        # The answers that no case took; none before the first case.
        self._never = set(range(len(graph.answers))) - taken if taken else set[int]()
        self.parts = [*self._growing_parts()]

    def _growing_parts(self) -> Iterator[set[int]]:
        graph, nodes = self._graph, set(_drawn_nodes(self._graph))
        failures, cases = Counter[int](), Counter[int]()
        for way, count, failed in self._ways:
            failures.update(dict.fromkeys(way.nodes, failed))
            cases.update(dict.fromkeys(way.nodes, count))
        readers: nx.DiGraph[int] = nx.DiGraph()  # from what is read to what reads it
        readers.add_nodes_from(nodes)
        readers.add_edges_from(filter(nodes.issuperset, map(_ENDS, graph.feeds)))
        roots = {node for node in nodes - graph.targets() if not readers.out_degree(node)}

        def with_inputs(shown: set[int]) -> set[int]:
            """Nodes with all that they read, directly or not."""
            return shown.union(*(nx.ancestors(readers, node) for node in shown))

        yield (part := with_inputs(roots or {min(nodes)}))
        # Nodes with more than 0 cases; before the first case all.
        reached = nodes.intersection(+cases) or nodes
        while heads := self._heads(part) & reached:
            worst = max(heads, key=lambda node: (failures[node], cases[node], -node))
            yield (part := with_inputs(part | {worst}))
        if part != nodes:
            yield nodes

    def draw(self, shown: set[int], frames: Sequence[int] = ()) -> _Drawing:
        """The drawing of some nodes, with what is inside of the metrics `frames`."""
        return _Drawing(self._graph, shown, self._cases, self._never, frames)

    @cached_property
    def whole(self) -> _Drawing:
        """The drawing of the whole graph."""
        return self.draw(self.parts[-1])

    def largest(self, room: tuple[int, int]) -> set[int] | None:
        """The largest part whose picture has room (width, height); None if the whole graph has.

        Branches that have no room are left out, so that some after them may be in it.
        """

        def without_room(part: set[int]) -> bool:
            return not self.draw(part).fits(room)

        if self.whole.fits(room):
            return None

        # Parts grow, and so do their pictures: the largest that fits is found by bisection.
        position = max(0, bisect.bisect_left(self.parts, True, key=without_room) - 1)
        chosen, tried = self.parts[position], 0
        for before, after in pairwise(self.parts[position:]):
            branch = after - before
            if tried < _MOST_TRIED and branch & self._heads(chosen):
                tried += 1
                chosen = chosen if without_room(chosen | branch) else chosen | branch
        return chosen

    def _heads(self, shown: set[int]) -> set[int]:
        """The hidden nodes that shown ones lead to, or that run after one."""
        answers = (answer.targets for answer in self._graph.answers if answer.node in shown)
        feeds = (f.target for f in self._graph.feeds if f.runs and f.source in shown)
        return {*chain.from_iterable(answers), *feeds} - shown

    def leaves_out(self, chosen: set[int]) -> bool:
        """Return whether too many failures end at nodes that are not chosen."""
        ends = {None, *chosen}  # A failure before any node has no end to draw.
        failures = sum(failed for *_, failed in self._ways)
        drawn = sum(failed for way, _, failed in self._ways if way.end[0] in ends)
        return bool(failures) and drawn / failures < _SHARE


class _Drawing:
    """One layout: some nodes, and stubs for the others.

    In the place of the nodes `frames` there are those of the metrics that they stand for. What led
    to such a node leads to the first one inside. Answers of a node that no case took (`never`)
    share one pill. A name in the DOT text is a letter and numbers: boxes are n (a node), l (the
    score of an answer), u (a pill) and s (a stub), edges e (of an answer), u (to a pill) and f.
    """

    def __init__(
        self, graph: MetricGraph, part: set[int], cases: int, never: set[int], frames: Sequence[int]
    ) -> None:
        self._graph, self._frames = graph, frames
        inner = {owner: _drawn_nodes(graph, owner) for owner in frames}
        self._shown = part.union(*inner.values()) - set(frames)
        # What is drawn for a node: itself, or the first one inside of its frame.
        self._stand_in = {number: number for number in self._shown}
        targets = graph.targets() | {feed.target for feed in graph.feeds if feed.runs}
        for owner, own in inner.items():
            entrance = next((number for number in own if number not in targets), own[0])
            self._stand_in[owner] = self._stand_in[entrance]
        self.group_untaken(part, never)
        self._answers_to = Counter(chain.from_iterable(set(a.targets) for a in graph.answers))
        self._digits = len(f"{cases:,}")  # of the largest count
        self._dot = graphviz.Digraph(
            graph_attr={"nodesep": "0.17", "ranksep": "0.3"},
            node_attr={"shape": "box", "fixedsize": "true", "label": ""},
            edge_attr={"dir": "none", "label": ""},
        )
        # A frame stands in the one around it, or in the drawing itself. It has room for its name,
        # and for the button that folds it.
        self._clusters = dict[int, graphviz.Digraph]()
        for owner in frames:
            wide = round(_BOLD * min(len(graph.nodes[owner].name), _NAME)) + 60
            attributes = {"margin": "12", "labeljust": "l", **_empty_label(wide)}
            self._clusters[owner] = graphviz.Digraph(f"cluster_{owner}", graph_attr=attributes)
        self.draw()
        for owner, cluster in self._clusters.items():
            self._cluster_of(owner).subgraph(cluster)
        self._layout = Layout(str(self._dot.source))
        self._boxes = {name: _round_box(*box) for name, box in self._layout.boxes().items()}

    def group_untaken(self, part: set[int], never: set[int]) -> None:
        """Put together what no case took: one pill of its node, with the stubs behind it alone."""
        self._untaken: defaultdict[int, list[int]] = defaultdict(list)
        for number in filter(self.leads_away, sorted(never)):
            self._untaken[self._graph.answers[number].node].append(number)
        self._never = set(chain.from_iterable(self._untaken.values()))
        self.stubs, self._untaken_stubs = list[Stub](), list[Stub]()
        for stub in _stubs(self._graph, part):
            behind = self._never.issuperset(stub.by)
            (self._untaken_stubs if behind else self.stubs).append(stub)

    def leads_away(self, number: int) -> bool:
        """Return whether an answer leads somewhere, and to no node of the drawing."""
        answer = self._graph.answers[number]
        leads = bool(answer.targets) or answer.score is not None
        return leads and self._stand_in.keys().isdisjoint(answer.targets)

    def draw(self) -> None:
        self.draw_nodes()
        for number, answer in enumerate(self._graph.answers):
            if answer.node in self._shown and number not in self._never:
                self.draw_answer(number)
        for owner in sorted(self._untaken.keys() & self._shown):
            wide = 96 + 60 * bool(self._untaken_nodes(owner))
            self._add_box(f"u{owner}", wide, _LEAF, self._cluster_of(owner))
            label = _empty_label(self._label_width(self._untaken[owner][0]))
            self._dot.edge(f"n{owner}", f"u{owner}", id=f"u{owner}", **label)
        for feed in self._graph.feeds:
            source, target = self._stand_in.get(feed.source), self._stand_in.get(feed.target)
            if source is not None and target is not None and source != target:
                key = f"f{feed.source}-{feed.target}-{int(feed.runs)}"
                self._dot.edge(f"n{source}", f"n{target}", id=key)

    def draw_nodes(self) -> None:
        # Answers about items lead nowhere and have no score.
        lists = {a.node for a in self._graph.answers if not a.targets and a.score is None}
        for number in sorted(self._shown):
            node = self._graph.nodes[number]
            kind = node.kind.replace("binary ", "")
            second_line = 2 * self._digits + 3 + (0 if kind == "judgement" else len(kind) + 3)
            least, tall = (210, _ITEMS) if number in lists else (104, _NODE)
            wide = max(_BOLD * min(len(node.name), _NAME), _SMALL * second_line) + 26
            self._add_box(f"n{number}", max(wide, least), tall, self._cluster_of(number))
        for number in range(len(self.stubs)):
            self._add_box(f"s{number}", 128 + 6 * self._digits, _STUB, self._dot)

    def draw_answer(self, number: int) -> None:
        answer = self._graph.answers[number]
        # Targets may be in one frame or stub of this drawing.
        drawn = dict.fromkeys(self._stand_in[n] for n in answer.targets if n in self._stand_in)
        targets = [f"n{target}" for target in drawn]
        targets += [f"s{index}" for index, stub in enumerate(self.stubs) if number in stub.by]
        if answer.score is not None:
            wide = _SMALL * (self._digits + 6) + 28
            self._add_box(f"l{number}", wide, _LEAF, self._cluster_of(answer.node))
            targets.append(f"l{number}")
        label = _empty_label(self._label_width(number))
        for name in targets:
            self._dot.edge(f"n{answer.node}", name, id=f"e{number}", **label)

    def _untaken_nodes(self, node: int) -> set[int]:
        """The nodes that only answers of a node lead to that no case took."""
        own = set(self._untaken[node])
        return set[int]().union(*(stub.nodes for stub in self._untaken_stubs if own & set(stub.by)))

    def fits(self, room: tuple[int, int]) -> bool:
        """Return whether the drawing has room in a box of so many pixels."""
        return self._layout.width + 6 <= room[0] and self._layout.height + 6 <= room[1]

    def _add_box(self, name: str, width: float, height: float, cluster: graphviz.Digraph) -> None:
        cluster.node(name, width=f"{width / INCH:.4f}", height=f"{height / INCH:.4f}")

    def _cluster_of(self, node: int) -> graphviz.Digraph:
        """The frame that a node stands in, or the drawing."""
        owner = self._graph.nodes[node].inside
        return self._dot if owner is None else self._clusters.get(owner, self._dot)

    def _label_width(self, number: int) -> int:
        """The width of the words beside an edge, with the way to its middle."""
        shown = min(len(self._label_text(number)), _VERDICT)
        return round(_BOLD * (shown + (self._digits + 1 if self._is_shared(number) else 0)) + _GAP)

    def _label_text(self, number: int) -> str:
        """The words beside an edge; answers that no case took stand together."""
        own = self._untaken[self._graph.answers[number].node] if number in self._never else [number]
        return ", ".join(self._graph.answers[each].verdict for each in own)

    def _is_shared(self, number: int) -> bool:
        """Return whether another answer leads to the same node: then the edge says its count."""
        targets = self._graph.answers[number].targets
        return max(map(self._answers_to.__getitem__, targets), default=0) > 1

    def as_dict(self) -> dict[str, Any]:
        """JSON-ready form, by the numbers of nodes and answers."""
        graph = self._graph
        edges: list[dict[str, Any] | None] = [None] * len(graph.answers)
        feeds, never = [], []
        for edge in self._layout.edges:
            path, key = self.path(edge["pos"]), edge["id"]
            number, *ends = map(int, key[1:].split("-"))
            if key.startswith("f"):
                target, runs = ends
                feeds.append({"from": number, "to": target, "path": path, "runs": bool(runs)})
            elif key.startswith("u"):
                answers, nodes = self._untaken[number], len(self._untaken_nodes(number))
                words = {"answers": answers, "words": self._label_text(answers[0])}
                label = self._label_start(edge, answers[0])
                box = {"box": self._boxes[key], "path": path, "label": label}
                never.append({"node": number, "nodes": nodes, **words, **box})
            elif (before := edges[number]) is not None:
                before["path"] += path  # an answer with several targets has several curves
            else:
                label, shared = self._label_start(edge, number), self._is_shared(number)
                edges[number] = {"path": path, "label": label, "shared": shared}
        return {
            "width": round(self._layout.width + 2),
            "height": round(self._layout.height + 2),
            "nodes": [self._boxes.get(f"n{number}") for number in range(len(graph.nodes))],
            "edges": edges,
            "leaves": [self._boxes.get(f"l{number}") for number in range(len(graph.answers))],
            "feeds": feeds,
            "frames": [
                {"node": owner, "box": self._boxes[f"cluster_{owner}"]}
                for owner in reversed(self._frames)  # the outermost first
            ],
            "never": never,
            "stubs": [
                {"box": self._boxes[f"s{number}"], "nodes": stub.nodes, "by": stub.by}
                for number, stub in enumerate(self.stubs)
            ],
        }

    def path(self, pos: str) -> str:
        """The curve as the commands of an SVG path."""
        first, *rest = (f"{x:.1f},{y:.1f}" for x, y in self._layout.curve(pos)[0])
        return f"M{first}C{' '.join(rest)}"

    def _label_start(self, edge: dict[str, Any], number: int) -> tuple[float, float] | None:
        """Start of the first line of a label."""
        if "lp" not in edge:
            return None
        x, y = self._layout.point(edge["lp"])
        return round(x - self._label_width(number) / 2 + _GAP, 1), round(y + 4, 1)


def _stubs(graph: MetricGraph, shown: set[int]) -> list[Stub]:
    """The rest of the graph, as subtrees that hang together."""
    hidden = set(_drawn_nodes(graph)) - shown
    rest: nx.Graph[int] = nx.Graph()
    rest.add_nodes_from(hidden)
    rest.add_edges_from(filter(hidden.issuperset, map(_ENDS, graph.feeds)))
    for answer in graph.answers:
        ends = zip(repeat(answer.node), answer.targets, strict=False)
        rest.add_edges_from(filter(hidden.issuperset, ends))
    stubs = []
    for group in nx.connected_components(rest):
        by = [
            number
            for number, answer in enumerate(graph.answers)
            if answer.node in shown and not group.isdisjoint(answer.targets)
        ]
        if by:
            stubs.append(Stub(tuple(sorted(group)), tuple(by)))
    return sorted(stubs, key=lambda stub: stub.by)


def _empty_label(width: int) -> dict[str, str]:
    """Attributes of an edge or a cluster that keep room for words of this width (pixels)."""
    size = f'width="{width}" height="18"'
    return {"label": f'<<table border="0" fixedsize="true" {size}><tr><td></td></tr></table>>'}


def _round_box(x: float, y: float, width: float, height: float) -> Box:
    return round(x, 1), round(y, 1), round(width, 1), round(height, 1)
