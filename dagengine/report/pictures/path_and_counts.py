"""Three views of a graph: its design, the path of one case, the counts of many; colours and sizes.

A view has a mark for each node and answer: lines of words, and how many cases came by. Pictures of
every format have the light colours; an SVG has the dark ones, too. Long texts are cut.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from operator import attrgetter
from textwrap import wrap
from typing import Literal

from dagengine.prompts.evidence import as_text
from dagengine.report.pictures.metric_graph import MetricGraph
from dagengine.report.tally import MetricTally
from dagengine.results import MetricResult, Step
from dagengine.results.pass_rules import SIGNS, STATES, State
from dagengine.system.terminal_text import clip, counted

Tone = Literal["", "soft", "fail", "none", "mark"]
"""The role of a text, by its colour: plain, less important, a failure, no score, the path taken."""
Words = tuple[tuple[str, Tone], ...]
"""One line: pieces of text, each with its tone."""

_COLOURS = {  # light, dark
    "ground": ("#ffffff", "#11161c"),
    "ink": ("#1f2933", "#e4e9ee"),
    "soft": ("#52606d", "#a3b1be"),
    "edge": ("#8795a1", "#7b8a98"),
    "line": ("#d9e0e6", "#2d3843"),
    "flow": ("#b8c4cf", "#465563"),
    "bar": ("#9fb3c4", "#5d7285"),
    "mark": ("#0b5394", "#84bcf2"),
    "fail": ("#b3261e", "#ff9484"),
    "fail-ground": ("#fbeae7", "#41221f"),
    "none": ("#6b3fa0", "#c9aef8"),
    "judgement": ("#fdf8e4", "#2a2716"),
    "task": ("#eef3f6", "#1b2630"),
    "code": ("#f3effb", "#251f35"),
    "metric": ("#eaf4fa", "#16293a"),
    "frame": ("#f8fafb", "#151c23"),
}
LIGHT = {name: light for name, (light, _) in _COLOURS.items()}
DARK = {name: dark for name, (_, dark) in _COLOURS.items()}
FONT = "Helvetica,Arial,sans-serif"
NAME, SMALL, ANSWER, TITLE = 13, 11, 12, 16  # pixels
LINE, NAME_LINE = 14, 16  # pixels, heights of lines

_LONGEST_TEXT, _LONGEST_CASE = 600, 60  # characters of a text, of the name of a case
_TONES: dict[State, Tone] = {"failed": "fail", "no_score": "none", "passed": "", "scored": ""}


def clean(text: str, longest: int = _LONGEST_TEXT) -> str:
    """A text of at most `longest` characters, without control characters.

    XML allows none of these, and Graphviz no label of more than 16,384 characters.
    """
    return "".join(char if char.isprintable() else " " for char in clip(text, longest))


def lines_of(text: str, width: int, most: int) -> list[str]:
    """A text in at most `most` lines of at most `width` characters.

    Lines are about equally long, unless the text is cut.
    """
    short = clean(text)
    lines = wrap(short, width, max_lines=most, placeholder=" …") or [""]
    if len(lines) == 1:
        return lines
    # Take the smallest width that needs no more lines. It breaks no word.
    least = max(width // 2, *map(len, short.split()))
    for narrow in range(least, width):
        if len(even := wrap(short, narrow)) <= len(lines):
            return even
    return lines


def plain(words: Words) -> str:
    """A line without its tones."""
    return "".join(text for text, _ in words)


def text_width(text: str, size: int, bold: bool = False) -> float:
    """An estimate of the width of a line in pixels, rather too high than too low.

    Letters of Chinese, Japanese and Korean (from U+1100 on) are as wide as high.
    """
    narrow = sum(char < "\u1100" for char in text)
    return size * (narrow * (0.58 if bold else 0.51) + (len(text) - narrow))


@dataclass(frozen=True, slots=True)
class Traffic:
    """Numbers of cases that came by a node or an answer, by the state in which they ended."""

    failed: int = 0
    unscored: int = 0
    rest: int = 0

    @property
    def cases(self) -> int:
        """All of them."""
        return self.failed + self.unscored + self.rest


@dataclass(frozen=True, slots=True)
class Mark:
    """The mark of a view on one node or answer: lines of `words` beside its name, a longer `note`.

    `reached` says whether a case came by, `traffic` how many. A view of the design has neither.
    """

    reached: bool | None = None
    traffic: Traffic | None = None
    words: tuple[Words, ...] = ()
    note: str = ""


@dataclass(slots=True)
class View:
    """Marks by the numbers of a graph's nodes and answers.

    `facts` are beside the title, `cases` is the number of all cases (of counts), and `has_odds`
    says that answers show probabilities.
    """

    kind: Literal["design", "path", "counts"] = "design"
    facts: Words = ()
    nodes: defaultdict[int, Mark] = field(default_factory=lambda: defaultdict(Mark))
    answers: defaultdict[int, Mark] = field(default_factory=lambda: defaultdict(Mark))
    cases: int = 0
    has_odds: bool = False


def one_path(graph: MetricGraph, result: MetricResult, case: str = "") -> View:
    """The path that one case took, and what each node answered."""
    steps = result.by_node()
    chosen = dict(result.path)  # and what nodes beside the path answered
    chosen |= {step.node: step.verdict for step in result.steps if step.verdict is not None}
    view = View("path", _outcome(result, case))
    failure = result.failure
    for number, node in enumerate(graph.nodes):
        if (step := steps.get(node.name)) is not None:
            view.nodes[number] = Mark(True, words=_answer_words(step), note=_note(step))
        elif failure is not None and failure.node == node.name:
            view.nodes[number] = Mark(False, note=f"⊘ {failure.kind}: {failure.message}")
        else:
            view.nodes[number] = Mark(False)
    for number, answer in enumerate(graph.answers):
        name = graph.nodes[answer.node].name
        taken = name in chosen and str(chosen[name]) == answer.verdict
        view.answers[number] = Mark(taken, words=_chance_words(steps.get(name), answer.verdict))
    view.has_odds = any(mark.words for mark in view.answers.values())
    _mark_metrics(graph, view)
    return view


def counts(graph: MetricGraph, tally: MetricTally) -> View:
    """The cases that came by each part, and how many of them failed in the end."""
    whole = _traffic(tally.states)
    pieces: list[tuple[str, Tone]] = [(counted(whole.cases, "case"), "")]
    if whole.failed:
        pieces.extend([(", ", ""), (f"{SIGNS['failed']} {whole.failed:,} failed", "fail")])
        pieces.append((f", {whole.failed / whole.cases:.0%} of them", ""))
    if whole.unscored:
        unscored = f"{SIGNS['no_score']} {whole.unscored:,} without a score"
        pieces.extend([(", ", ""), (unscored, "none")])
    view = View("counts", tuple(pieces), cases=whole.cases)
    for number, node in enumerate(graph.nodes):
        traffic = _traffic(tally.came.get(node.name, _NOBODY))
        unanswered, items = tally.broke[node.name], tally.items.get(node.name)
        words: tuple[Words, ...] = ()
        if unanswered:
            words = _line(f"{SIGNS['no_score']} {unanswered:,} without an answer", "none")
        if items is not None:
            words = (*words, _items_words(items))
        view.nodes[number] = Mark(traffic.cases > 0, traffic, words)
    taken = {(node, str(verdict)): tally.came[node, verdict] for node, verdict in tally.chose}
    for number, answer in enumerate(graph.answers):
        name = graph.nodes[answer.node].name
        traffic = _traffic(taken.get((name, answer.verdict), _NOBODY))
        view.answers[number] = Mark(traffic.cases > 0, traffic)
    _mark_metrics(graph, view)
    return view


def cases_words(traffic: Traffic) -> Words:
    """A number of cases, and how many of them failed or have no score."""
    pieces: list[tuple[str, Tone]] = [(f"{traffic.cases:,}", "soft")]
    if traffic.failed:
        pieces.append((f" {SIGNS['failed']} {traffic.failed:,}", "fail"))
    if traffic.unscored:
        pieces.append((f" {SIGNS['no_score']} {traffic.unscored:,}", "none"))
    return tuple(pieces)


def _chance_words(step: Step | None, verdict: str) -> tuple[Words, ...]:
    """The probability of an answer in whole percents, if it is known.

    Votes have none, since the odds of a step are those of one question. Only exactly 0 and 1 are
    shown as 0 % and 100 %.
    """
    if step is None or step.verdict is None or step.votes:
        return ()
    chance = {str(answer): share for answer, share in step.odds or ()}.get(verdict)
    if chance is None:
        return ()
    if 0 < chance < 0.005:
        return _line("<1%", "soft")
    return _line(">99%" if 0.995 <= chance < 1 else f"{chance:.0%}", "soft")


def _note(step: Step) -> str:
    """The reason of a node's answer, or the text that it wrote."""
    if step.outcome != "ok" or step.verdict is not None:
        return step.reason or ""
    written = step.score is None and step.output is not None
    return f"→ {as_text(step.output)}" if written else ""


def _outcome(result: MetricResult, case: str) -> Words:
    """The name of the case, and how it ended."""
    name: Words = ((f"{lines_of(case, _LONGEST_CASE, 1)[0]}: ", ""),) if case else ()
    if result.failure is not None:
        text = f"{SIGNS['no_score']} {result.failure.kind} at {result.failure.node}"
        return (*name, (text, "none"))
    verdict = {"failed": ", failed", "passed": ", passed"}.get(result.state, "")
    sign = "" if result.state == "scored" else f"{SIGNS[result.state]} "
    return (*name, (f"{sign}score {result.score:.3g}{verdict}", _TONES[result.state]))


def _mark_metrics(graph: MetricGraph, view: View) -> None:
    """Let nodes that stand for metrics be reached by what came by the nodes inside."""
    for number in reversed(range(len(graph.nodes))):  # inner nodes come after outer ones
        owner = graph.nodes[number].inside
        if owner is None:
            continue
        inner, outer = view.nodes[number], view.nodes[owner]
        # One case may come by several inner nodes: the largest number is the least that came.
        traffics = filter(None, (inner.traffic, outer.traffic))
        traffic = max(traffics, key=attrgetter("cases"), default=None)
        reached = bool(outer.reached or inner.reached)
        view.nodes[owner] = replace(outer, reached=reached, traffic=traffic)


def _answer_words(step: Step) -> tuple[Words, ...]:
    """The answer of a node in one short line; a long answer is in its note."""
    votes = ""
    if step.votes:
        agreeing = f"{step.agreeing} of " if step.verdict is not None else ""
        votes = f" ({agreeing}{len(step.votes)} votes)"
    if step.outcome != "ok":
        return _line(f"⊘ {step.outcome}", "none")
    if step.verdict is not None:
        return _line(f"→ {step.verdict}{votes}", "mark")
    if step.score is not None:
        return _line(f"→ {step.score:.3g}{votes}", "mark")
    return _line(votes.strip(), "mark") if votes else ()


def _line(text: str, tone: Tone) -> tuple[Words, ...]:
    """The lines of a mark that has one line of one tone."""
    return (((text, tone),),)


_NOBODY: Mapping[State, int] = dict.fromkeys(STATES, 0)


def _traffic(states: Mapping[State, int]) -> Traffic:
    return Traffic(states["failed"], states["no_score"], states["passed"] + states["scored"])


def _items_words(items: Counter[str]) -> Words:
    """Verdicts on the items of lists, the most frequent first."""
    signs: dict[str, tuple[str, Tone]] = {"no": ("✕ ", "fail"), "False": ("✕ ", "fail")}
    pieces: list[tuple[str, Tone]] = [(f"{items.total():,} items:", "soft")]
    for verdict, count in items.most_common(4):
        sign, tone = signs.get(verdict, ("? " if verdict == "idk" else "", "soft"))
        pieces.append((f" {sign}{count:,} {verdict}", tone))
    return tuple(pieces)
