"""One picture of a metric, before it has a form: parts, arrows and frames with their words.

DOT, SVG and Mermaid are written from it, each part by part. It is made from the metric's graph (as
the record has it), from what a view marks there, and from which part is drawn.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from operator import attrgetter
from typing import Literal

from dagengine.report.pictures.folding import Folds, nodes_of
from dagengine.report.pictures.metric_graph import Answer, Feed, MetricGraph, Node
from dagengine.report.pictures.path_and_counts import (
    LINE,
    NAME,
    NAME_LINE,
    SMALL,
    Traffic,
    View,
    Words,
    cases_words,
    lines_of,
    plain,
    text_width,
)
from dagengine.results.pass_rules import SIGNS, State, passes, state_of
from dagengine.system.terminal_text import counted

Shape = Literal["judgement", "rating", "items", "task", "code", "metric", "folded", "end"]
"""What a part is: each has a shape of its own, and says it in words, too."""

SHAPES: dict[Shape, str] = {
    "judgement": "judgement",
    "rating": "rating",
    "items": "verdict per item",
    "task": "task",
    "code": "code",
    "metric": "metric",
    "folded": "folded",
}
"""What a legend says of shapes."""

_FILLS = {"rating": "judgement", "items": "judgement", "folded": "ground", "end": "ground"}
_KINDS = {"binary judgement": "judgement", "verdict list": "verdict per item", "map": "per item"}
Stroke = Literal["cases", "taken", "runs", "data", "missed"]
"""What the line of an arrow says: each kind has a look of its own."""

_NAME_WIDTH, _NOTE_WIDTH, _NARROW = 26, 38, 28  # characters of a line
_FEW = 12  # nodes; more have narrow lines, so that more of them stand side by side
_NAME_LINES, _NOTE_LINES, _SOFT_LINES, _QUESTION_LINES = 5, 6, 3, 4
_ANSWER_WIDTH = 24
_ROOM = 26  # pixels beside the text of a node
_LEAST = (104, 44)  # pixels of a node
_BAR = 12  # height of a bar


@dataclass(frozen=True, slots=True)
class Part:
    """A node, a group of nodes that are not drawn, or the score at the end of a path.

    `reached` is None where the view does not say. `bar` has the cases that came by. `state` is
    that of an end; `most` marks the one with most failures. `hint` is what a pointer shows.
    """

    key: str
    shape: Shape
    name: tuple[str, ...]
    lines: tuple[Words, ...] = ()
    note: tuple[str, ...] = ()
    reached: bool | None = None
    bar: Traffic | None = None
    frame: str | None = None
    state: State | None = None
    most: bool = False
    hint: str = ""

    def size(self) -> tuple[float, float]:
        """About how wide and high it is drawn, in pixels."""
        widths = [text_width(line, NAME, bold=True) for line in self.name]
        widths += [text_width(line, SMALL) for line in (*map(plain, self.lines), *self.note)]
        return max(_LEAST[0], max(widths, default=0.0) + _ROOM), self.height()

    def height(self) -> float:
        """Height of a node around its content, in pixels."""
        return max(_LEAST[1], self.content + 14)

    @property
    def content(self) -> int:
        """Height of its lines and its bar, in pixels."""
        lines = len(self.lines) + len(self.note)
        return NAME_LINE * len(self.name) + LINE * lines + _BAR * (self.bar is not None)


def fill_of(shape: Shape) -> str:
    """The name of the colour that fills a shape."""
    return _FILLS.get(shape, shape)


@dataclass(frozen=True, slots=True)
class Arrow:
    """What leads from one part to another.

    `answer` has the lines of the answer that leads there, `words` what else is said of it. An arrow
    that hands on `data` does not make its target run. `share` is the share of all cases that
    took it (0 to 1) and `failed` that of those that failed in the end (None: the view does not
    count). `taken` says whether a case took it.
    """

    source: str
    target: str
    hint: str = ""
    answer: tuple[str, ...] = ()
    words: tuple[Words, ...] = ()
    data: bool = False
    share: float | None = None
    failed: float = 0.0
    taken: bool | None = None

    @property
    def line(self) -> Stroke:
        """The kind of its line."""
        if self.share == 0 or self.taken is False:
            return "missed"
        if self.data:
            return "data"
        if self.share is not None:
            return "cases"
        return "taken" if self.taken else "runs"


@dataclass(frozen=True, slots=True)
class Frame:
    """A metric inside the metric: its name, and in `words` what else stands there."""

    key: str
    name: str
    words: Words
    outer: str | None = None


@dataclass(slots=True)
class Model:
    """A picture without a form; `questions` are those of its nodes, by their names."""

    name: str
    facts: Words
    kind: Literal["design", "path", "counts"]
    has_odds: bool
    parts: list[Part] = field(default_factory=list)
    arrows: list[Arrow] = field(default_factory=list)
    frames: list[Frame] = field(default_factory=list)
    questions: list[tuple[str, str]] = field(default_factory=list)

    def inside(self, frame: str | None) -> Iterator[Part]:
        """The parts that are directly in a frame (None: in no frame)."""
        return (part for part in self.parts if part.frame == frame)

    def frames_in(self, frame: str | None) -> Iterator[Frame]:
        """The frames that are directly in a frame (None: in no frame)."""
        return (inner for inner in self.frames if inner.outer == frame)

    def lines(self) -> set[Stroke]:
        """The kinds of lines that occur."""
        return {arrow.line for arrow in self.arrows}


class ModelMaker:
    """Makes the model of one picture; nodes are called by their numbers."""

    def __init__(self, graph: MetricGraph, view: View, names: bool) -> None:
        """With `names` the nodes show neither their questions nor what they read."""
        self._graph = graph
        self._view = view
        self._names = names
        self._wide = _NOTE_WIDTH if len(graph.nodes) <= _FEW else _NARROW
        self._parts = {number: self.part(number) for number in range(len(graph.nodes))}

    def model(self, whole: bool) -> Model:
        """The picture of the metric, folded if it is large unless all of it is wanted."""
        graph, view = self._graph, self._view
        self._folds = self.fold_parts(whole)
        self._dropped = set(self.carriers())
        model = Model(graph.metric.name, (), view.kind, view.has_odds)
        for number in range(len(graph.nodes)):
            if self._hides(number):
                continue
            frame = self._frame_of(number)
            if number in self._folds.opened:
                model.frames.append(self.frame(number, frame))
            else:
                model.parts.append(replace(self._parts[number], frame=frame))
        for head, group in self._folds.groups.items():
            model.parts.append(self.group(head, group))
        self.draw_answers(model)
        self.draw_feeds(model)
        model.facts = self.facts(model.parts)
        for node in graph.nodes:
            if node.question and node.kind not in ("code", "field"):
                model.questions.append((self._own_name(node), node.question))
        return model

    def carriers(self) -> Iterator[int]:
        """Steps inside of a metric that only hand on one list in another form."""
        decides = {answer.node for answer in self._graph.answers}
        for number, node in enumerate(self._graph.nodes):
            carries = node.kind in ("code", "field") and len(node.inputs) == 1
            used = node.reads or node.grades or number in decides
            if node.inside is not None and carries and not used:
                yield number

    def _hides(self, number: int) -> bool:
        return number in self._dropped or not self._folds.shows(number)

    def facts(self, parts: Sequence[Part]) -> Words:
        """Words beside the name: what passes, and the cases of a run or the nodes."""
        threshold, total = self._graph.metric.threshold, nodes_of(self._graph)
        limit = "no threshold" if threshold is None else f"passes at {threshold:g}"
        drawn = sum(part.shape not in ("end", "folded") for part in parts)
        whole = drawn == total and self._view.kind != "design"
        size = "" if whole else f" · {counted(total, 'node')}"
        size += f", {drawn} drawn" if drawn < total else ""
        if self._view.facts:
            return ((f"{limit} · ", "soft"), *self._view.facts, (size, "soft"))
        return ((f"{limit}{size}", "soft"),)

    def fold_parts(self, whole: bool) -> Folds:
        graph, view = self._graph, self._view
        self._whole = Folds(graph, lambda number: self._parts[number].size())
        if whole:
            return self._whole
        if view.kind == "path":
            reached = {number for number, mark in view.nodes.items() if mark.reached}
            return self._whole.to_show(reached)
        return self._whole.to_fit(self.weight)

    def weight(self, number: int) -> tuple[int, ...]:
        """Failures and cases that came by a node; without a run the nodes behind it."""
        traffic = self._view.nodes[number].traffic
        if traffic is not None:
            return traffic.failed, traffic.cases
        return (self._whole.size_of({number, *self._whole.behind(number)}),)

    # -- nodes -----------------------------------------------------------------------------

    def part(self, number: int) -> Part:
        node, mark = self._graph.nodes[number], self._view.nodes[number]
        name, reads = self._own_name(node), ", ".join(node.reads)
        title, task = _task_lines(name, node, self._wide)
        if self._names:
            title, task, reads = lines_of(name, _NAME_WIDTH, _NAME_LINES), [], ""
        kind = _KINDS.get(node.kind, node.kind)
        if node.scale:
            steps = list(node.scale)
            kind = f"{kind} {steps[0]} to {steps[-1]}"
        if number in self._graph.owners():
            kind = f"{kind} · {counted(nodes_of(self._graph, number), 'node')}"
        if mark.traffic is None:
            lines = _soft(" · reads ".join(filter(None, (kind, reads))), self._wide)
        else:
            below: Words = ((f"{kind} · ", "soft"), *cases_words(mark.traffic))
            lines = [below, *_soft(reads and f"reads {reads}", self._wide)]
        lines += [*task, *mark.words, *_soft(node.panel or "", self._wide)]
        if node.examples:
            lines.append(((counted(node.examples, "example"), "soft"),))
        note = lines_of(mark.note, self._wide, _NOTE_LINES) if mark.note else []
        return Part(
            key=f"n{number}",
            shape=self.shape(number),
            name=tuple(title),
            lines=tuple(lines),
            note=tuple(note),
            reached=mark.reached,
            bar=mark.traffic,
            hint=_hint(node, name),
        )

    def _frame_of(self, number: int) -> str | None:
        inside = self._graph.nodes[number].inside
        return None if inside is None else f"f{inside}"

    def _own_name(self, node: Node) -> str:
        """The name without those of the metrics around it."""
        if node.inside is None:
            return node.name
        return node.name.removeprefix(f"{self._graph.nodes[node.inside].name} > ")

    def shape(self, number: int) -> Shape:
        node = self._graph.nodes[number]
        if node.kind == "metric":
            return "metric"
        if not node.judges:
            return "code"
        if any(answer.node == number for answer in self._graph.answers):
            return "judgement"
        if node.kind == "task":
            return "task"
        return "rating" if node.grades or node.scale else "items"

    def frame(self, number: int, outer: str | None) -> Frame:
        node, mark = self._graph.nodes[number], self._view.nodes[number]
        inner = self._graph.inner(number)
        drawn = sum(at not in self._dropped for at in inner)
        text = f"metric, {counted(len(inner), 'node')}"
        text += f", {drawn} drawn" if drawn < len(inner) else ""
        words: Words = ((text, "soft"),)
        if mark.traffic is not None:
            words = (*words, (" · ", "soft"), *cases_words(mark.traffic))
        return Frame(f"f{number}", self._own_name(node), words, outer)

    def group(self, head: int, group: set[int]) -> Part:
        traffic = self._view.nodes[head].traffic
        name = counted(self._folds.size_of(group), "node")
        first = lines_of(self._own_name(self._graph.nodes[head]), _NAME_WIDTH, 1)[0]
        reached = any(self._view.nodes[number].reached for number in group)
        line: Words = ((f"from {first}", "soft"),)
        if traffic is not None:
            line = cases_words(traffic) if traffic.cases else (("never taken", "soft"),)
        names = [self._own_name(self._graph.nodes[number]) for number in sorted(group)]
        return Part(
            key=f"s{head}",
            shape="folded",
            name=(name,),
            lines=(line,),
            reached=None if self._view.kind == "design" else reached,
            bar=traffic if traffic is not None and traffic.cases else None,
            hint=f"{name}: {', '.join(names)}",
        )

    # -- arrows ----------------------------------------------------------------------------

    def _place(self, number: int) -> str | None:
        """The part that stands for a node where something leads to it; None if nothing does.

        A metric in a frame is entered at its first node.
        """
        if number in self._folds.groups:
            return f"s{number}"
        if not self._folds.shows(number):
            return None
        if number not in self._folds.opened:
            return f"n{number}"
        inner = self._graph.inner(number)
        fed = self._graph.targets() | {feed.target for feed in self._graph.feeds}
        return self._place(next((at for at in inner if at not in fed), inner[0]))

    def draw_answers(self, model: Model) -> None:
        ends = list[Part]()
        for number, answer in enumerate(self._graph.answers):
            if self._hides(answer.node):
                continue
            targets = list(filter(None, map(self._place, answer.targets)))
            if answer.score is not None:
                ends.append(self.end(number, answer))
                targets.append(ends[-1].key)
            model.arrows += (self.arrow(number, answer, target) for target in targets)
        failures = [part.bar.failed if part.bar else 0 for part in ends]
        worst = max(failures, default=0) or None  # without a failure no end is the worst
        for part, failed in zip(ends, failures, strict=True):
            model.parts.append(replace(part, most=failed == worst))
        if self._view.kind == "counts":
            # A number of cases is said once: in the part, unless several answers lead there.
            parents = Counter(map(attrgetter("target"), model.arrows))
            for at, arrow in enumerate(model.arrows):
                if parents[arrow.target] == 1:
                    model.arrows[at] = replace(arrow, words=())

    def arrow(self, number: int, answer: Answer, target: str) -> Arrow:
        mark, cases = self._view.answers[number], max(self._view.cases, 1)
        arrow = Arrow(
            source=f"n{answer.node}",
            target=target,
            hint=f"{self._own_name(self._graph.nodes[answer.node])} → {answer.verdict}",
            answer=tuple(lines_of(answer.verdict, _ANSWER_WIDTH, _NAME_LINES)),
            words=mark.words,
            taken=mark.reached,
        )
        if (traffic := mark.traffic) is None:
            return arrow
        share, failed = traffic.cases / cases, traffic.failed / cases
        return replace(arrow, words=(cases_words(traffic),), share=share, failed=failed)

    def end(self, number: int, answer: Answer) -> Part:
        metric, mark = self._graph.metric, self._view.answers[number]
        state = state_of(answer.score, passes(answer.score, metric.threshold))
        sign = "" if state == "scored" else f"{SIGNS[state]} "
        tens = f"{(answer.score or 0.0) * 10:g}"
        side = "below {:g}" if state == "failed" else "from {:g} on"
        limit = "" if metric.threshold is None else f": {side.format(metric.threshold)}"
        after = " of 10" if mark.traffic is None else f" · {mark.traffic.cases:,}"
        return Part(
            key=f"l{number}",
            shape="end",
            name=(f"{sign}{tens}",),
            lines=(((after, "soft"),),),
            reached=mark.reached,
            bar=mark.traffic,
            frame=self._frame_of(answer.node),
            state=state,
            hint=f"score {tens} of 10{limit}",
        )

    def draw_feeds(self, model: Model) -> None:
        drawn, cases = set[tuple[str | None, str | None]](), max(self._view.cases, 1)
        for feed in self.feeds():
            source, target = self._place(feed.source), self._place(feed.target)
            folded = not self._folds.groups.keys().isdisjoint((feed.source, feed.target))
            if source is None or target is None or source == target:
                continue
            if (source, target) in drawn or source.startswith("s") or (folded and not feed.runs):
                continue
            drawn.add((source, target))
            before, behind = self._view.nodes[feed.source], self._view.nodes[feed.target]
            taken, share, failed = None, None, 0.0
            if behind.reached is not None:
                taken = bool(before.reached and behind.reached)
            if behind.traffic is not None and before.traffic is not None:
                share = min(before.traffic.cases, behind.traffic.cases) / cases
                failed = min(before.traffic.failed, behind.traffic.failed) / cases
            model.arrows.append(
                Arrow(source, target, data=not feed.runs, share=share, failed=failed, taken=taken)
            )

    def feeds(self) -> Iterator[Feed]:
        """Feeds between the parts shown, past the steps that are left out."""
        feeds = self._graph.feeds
        for feed in feeds:
            waiting = [] if feed.source in self._dropped else [feed.target]
            while waiting:
                target = waiting.pop()
                if target in self._dropped:
                    waiting += (after.target for after in feeds if after.source == target)
                else:
                    yield Feed(feed.source, target, feed.runs)


def _task_lines(name: str, node: Node, width: int) -> tuple[list[str], list[Words]]:
    """The name of a node and its question, both in lines.

    The name of a node that was given none is the beginning of its question, which replaces it.
    """
    question = " ".join((node.question or "").split())
    asked = lines_of(question, width, _QUESTION_LINES)
    if name == question or (name.endswith("…") and question.startswith(name[:-1])):
        return asked, []
    return lines_of(name, _NAME_WIDTH, _NAME_LINES), [((line, ""),) for line in asked if line]


def _soft(text: str, width: int) -> list[Words]:
    """Lines of what matters less; none of an empty text."""
    return [((line, "soft"),) for line in lines_of(text, width, _SOFT_LINES) if line]


def _hint(node: Node, name: str) -> str:
    """All that a node was written with."""
    question = None if node.question == name else node.question
    reads = ", ".join((*node.reads, *node.inputs))
    examples = counted(node.examples, "example") if node.examples else ""
    parts = (name, node.kind, question, reads and f"reads {reads}", node.panel, examples)
    return "\n".join(filter(None, parts))
