"""Pictures say what a reviewer must see, survive every text, and come out the same each time."""

from __future__ import annotations

import json
import os
import re
import sys
import unicodedata
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from html import unescape
from pathlib import Path
from textwrap import wrap
from typing import Any
from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st
from programs.hash_seeds import printed
from servers.decision_server import DecisionServer

from dagengine import evaluate
from dagengine.errors import GraphError, InputError, MissingExtraError
from dagengine.judges import DecisionJudge, ScriptedJudge
from dagengine.metrics import DAGMetric
from dagengine.metrics.dag import (
    DAG,
    BinaryJudgementNode,
    CodeNode,
    NonBinaryJudgementNode,
    RatingNode,
    TaskNode,
    VerdictNode,
)
from dagengine.report import Picture, draw
from dagengine.report.pictures.dot import laid_out
from dagengine.report.pictures.path_and_counts import clean, lines_of
from dagengine.results import EvaluationResult
from dagengine.test_case import LLMTestCase

SVG = "{http://www.w3.org/2000/svg}"
LONG = (
    "Does the summary say, in words that a person who was not at the meeting can follow, what "
    "was decided, who does it and until when?"
)


@dataclass(frozen=True)
class Drawn:
    """What an SVG shows: texts of nodes and edges by their keys in the model."""

    title: str
    nodes: dict[str, str]
    edges: list[tuple[str, str, str]]
    frames: list[str]
    lines: list[str]
    groups: dict[str, ElementTree.Element]

    @property
    def text(self) -> str:
        return " ".join(self.lines)

    def find(self, words: str) -> str:
        """The key of the one node that shows `words`."""
        (name,) = [name for name, text in self.nodes.items() if words in text]
        return name

    def leaving(self, words: str) -> list[str]:
        """Texts of the edges that leave the node that shows `words`, from left to right."""
        start = self.find(words)
        places = [(_left(edge), " ".join(_lines(edge))) for edge in self.arrows(start)]
        return [text for _, text in sorted(places)]

    def arrows(self, start: str, end: str = "") -> list[ElementTree.Element]:
        """The drawings of the edges that leave a node (for another one)."""
        pairs = enumerate((source, target) for source, target, _ in self.edges)
        return [self.groups[f"e{n}"] for n, (s, t) in pairs if s == start and end in ("", t)]

    def group(self, words: str) -> ElementTree.Element:
        """The drawing of the node that shows `words`."""
        return self.groups[self.find(words)]


def _left(edge: ElementTree.Element) -> float:
    return min((float(text.get("x") or 0) for text in edge.iter(f"{SVG}text")), default=0.0)


def _lines(group: ElementTree.Element) -> list[str]:
    texts = ("".join(text.itertext()) for text in group.iter(f"{SVG}text"))
    return [" ".join(text.split()) for text in texts]


def read(picture: Picture) -> Drawn:
    """The SVG of a picture, parsed."""
    root = ElementTree.fromstring(picture.layout("svg"))
    groups = {group.get("id") or "": group for group in root.iter(f"{SVG}g")}
    texts = {key: " ".join(_lines(group)) for key, group in groups.items()}
    frames = [group for group in root.findall(f"{SVG}g") if not group.get("class")]
    arrows = enumerate(picture.model.arrows)
    return Drawn(
        title=" ".join("".join(text.itertext()) for text in root.findall(f"{SVG}text")),
        nodes={part.key: texts[part.key] for part in picture.model.parts},
        edges=[(arrow.source, arrow.target, texts[f"e{number}"]) for number, arrow in arrows],
        frames=[" ".join(_lines(group)) for group in frames],
        lines=_lines(root),
        groups=groups,
    )


def headings_metric(name: str = "Headings") -> DAGMetric:
    order = NonBinaryJudgementNode(
        "Are the headings in order?",
        then={"Yes": 10, "Two are out of order": 4, "All out of order": 2},
        name="Heading order",
    )
    present = BinaryJudgementNode(
        "Are all three headings there?", [VerdictNode(False, score=0), order], name="All there"
    )
    extract = TaskNode(
        "Extract all headings in `actual_output`",
        "Summary headings",
        [present, order],
        ["actual_output", "input"],
    )
    return DAGMetric(name, DAG(extract), threshold=0.8)


def headings_judge(question: Any) -> Any:
    text = question.messages[-1]["content"]
    if question.name == "Summary headings":
        return "none" if "empty" in text else "intro, body"
    if question.name == "All there":
        return {"reason": "I looked for three.", "verdict": "none" not in text}
    return {"reason": "I compared them.", "verdict": "Two are out of order"}


def run(metric: DAGMetric, judge: Any, outputs: list[str | None]) -> EvaluationResult:
    cases = [LLMTestCase(input="a", actual_output=output) for output in outputs]
    return evaluate(cases, [metric], model=ScriptedJudge(judge), show=False)


def path_picture(metric: DAGMetric, judge: Any, output: str | None = "a text") -> Picture:
    (result,) = run(metric, judge, [output]).rows[0].metrics
    return draw(metric.spec(), result=result)


def counts_picture(metric: DAGMetric, judge: Any, outputs: list[str | None]) -> Picture:
    return draw(metric.spec(), rows=run(metric, judge, outputs).rows)


# -- three views ---------------------------------------------------------------------------


def test_the_design_shows_names_kinds_verdicts_and_which_scores_pass() -> None:
    picture = draw(headings_metric().spec())
    drawn = read(picture)
    assert drawn.title == "Headings passes at 0.8 · 3 nodes"
    assert drawn.nodes[drawn.find("Summary headings")] == (
        "Summary headings task · reads actual_output, input Extract all headings in `actual_output`"
    )
    asked = "All there judgement Are all three headings there?"
    assert drawn.nodes[drawn.find("All there")] == asked
    assert drawn.leaving("All there") == ["False", "True"]
    assert drawn.leaving("Heading order") == ["Yes", "Two are out of order", "All out of order"]
    ends = sorted(text for key, text in drawn.nodes.items() if key.startswith("l"))
    assert ends == ["✓ 10 of 10", "✕ 0 of 10", "✕ 2 of 10", "✕ 4 of 10"]
    mermaid = picture.mermaid.splitlines()
    assert mermaid[1] == 'title: "Headings (passes at 0.8 · 3 nodes)"'
    (failing,) = [line.split() for line in mermaid if line.endswith(" bad")]
    assert len(failing[1].split(",")) == 3


def test_a_question_is_in_the_node_under_the_pointer_and_in_the_list_of_a_page(
    tmp_path: Path,
) -> None:
    picture = draw(headings_metric().spec())
    hint = read(picture).group("Summary headings").findtext(f"{SVG}title") or ""
    assert hint.splitlines() == [
        "Summary headings",
        "task",
        "Extract all headings in `actual_output`",
        "reads actual_output, input",
    ]
    page = Path(picture.save(tmp_path / "tree.md")).read_text(encoding="utf-8")
    assert "\n1. **Summary headings**: Extract all headings in \\`actual\\_output\\`\n" in page
    assert "\n2. **All there**: Are all three headings there?\n" in page
    path = headings_metric().render(str(tmp_path / "names.mmd"), names=True)
    assert "Extract" not in Path(path).read_text(encoding="utf-8")
    drawn = read(headings_metric().picture(names=True))
    assert drawn.nodes[drawn.find("All there")] == "All there judgement"
    dag = DAG(headings_metric().dag.root_nodes[0])
    assert "Extract" in dag.mermaid()
    assert "Extract" not in dag.picture(names=True).mermaid


def test_the_path_of_a_case_has_the_odds_of_the_verdicts_that_were_asked() -> None:
    metric = headings_metric()
    chances: dict[int, tuple[float, ...]] = {2: (0.8, 0.2), 3: (0.003, 0.997, 0.0)}
    writer = ScriptedJudge(headings_judge)
    with DecisionServer(lambda state, asked: chances[len(asked.options)]) as server:
        judge = DecisionJudge(base_url=server.base_url, writer=writer)
        cases = [LLMTestCase(input="a", actual_output="a text")]
        (result,) = evaluate(cases, [metric], model=judge, show=False).rows[0].metrics
    picture = draw(metric.spec(), result=result)
    drawn = read(picture)
    assert drawn.leaving("All there") == ["False 20%", "True 80%"]
    assert drawn.leaving("Heading order") == [
        "Yes <1%",
        "Two are out of order >99%",
        "All out of order 0%",
    ]
    assert "probability of an answer" in drawn.lines
    assert '== "True · 80%" ==>' in picture.mermaid
    chances[2] = (0.3, 0.7)  # what was not asked has no odds
    with DecisionServer(lambda state, asked: chances[len(asked.options)]) as server:
        judge = DecisionJudge(base_url=server.base_url, writer=writer, speculate="never")
        (result,) = evaluate(cases, [metric], model=judge, show=False).rows[0].metrics
    drawn = read(draw(metric.spec(), result=result))
    assert drawn.leaving("All there") == ["False 70%", "True 30%"]
    assert drawn.leaving("Heading order") == ["Yes", "Two are out of order", "All out of order"]


def test_judges_without_odds_leave_the_picture_as_it_was() -> None:
    drawn = read(path_picture(headings_metric(), headings_judge))
    assert "%" not in drawn.text


def test_edges_that_make_a_node_run_look_unlike_those_that_hand_on_data() -> None:
    last = BinaryJudgementNode("Good?", [VerdictNode(True, 10), VerdictNode(False, 0)], name="last")
    gate = BinaryJudgementNode("Long?", (), ["input"], then={True: last, False: 1}, name="gate")
    words = TaskNode("List the words.", "words", [last], ["input"])
    picture = draw(DAGMetric("m", DAG(root_nodes=[gate, words])).spec())
    drawn = read(picture)
    ends = [drawn.find(name) for name in ("gate", "words", "last")]
    looks = {line.split(" [")[0].strip(): line for line in picture.dot.splitlines() if "->" in line}
    assert "dashed" not in looks[f"{ends[0]} -> {ends[2]}"]
    assert "style=dashed" in looks[f"{ends[1]} -> {ends[2]}"]
    assert f"  {ends[1]} -.-> {ends[2]}" in picture.mermaid.splitlines()
    assert {"makes it run", "passes data only"} <= set(drawn.lines)
    assert "solid arrow: makes it run, dotted arrow: passes data only" in mermaid_text(picture)


def test_mermaid_without_arrows_that_hand_on_data_only_needs_no_legend() -> None:
    judgement = BinaryJudgementNode("Good?", (), ["input"], then={True: 1, False: 0})
    picture = DAGMetric("m", DAG(judgement)).picture()
    assert "data only" not in picture.mermaid


def test_the_design_says_when_there_is_no_threshold() -> None:
    metric = headings_metric()
    metric.threshold = None
    assert read(draw(metric.spec())).title == "Headings no threshold · 3 nodes"
    assert "of 10" in read(draw(metric.spec())).text
    assert "✕ 0" not in read(draw(metric.spec())).text


def test_an_edge_joins_every_reader_to_what_it_reads() -> None:
    drawn = read(draw(headings_metric().spec()))
    task, present, order = map(drawn.find, ("Summary headings", "All there", "Heading order"))
    pairs = [(start, end) for start, end, _ in drawn.edges]
    assert pairs.count((task, present)) == 1
    assert pairs.count((task, order)) == 1
    assert pairs.count((present, order)) == 1


def named_node(criteria: str, name: str | None = "Clear") -> DAGMetric:
    then = {True: 10, False: 0}
    return DAGMetric(
        "Notes", DAG(BinaryJudgementNode(criteria, (), ["input"], then=then, name=name))
    )


@pytest.mark.parametrize("name", ["Clear", None])
def test_a_question_of_four_lines_is_whole_and_stands_there_once(name: str | None) -> None:
    picture = draw(named_node(LONG, name).spec())
    drawn = read(picture)
    assert drawn.text.count(LONG) == 1
    assert max(map(len, drawn.lines)) <= 40  # the legend included
    assert squeezed(mermaid_text(picture)).count(squeezed(LONG)) == 1


@pytest.mark.parametrize("length", [200, 700, 20_000])
def test_a_longer_question_is_cut_after_four_lines_and_whole_under_the_pointer_and_in_a_list(
    tmp_path: Path, length: int
) -> None:
    metric = named_node("word " * (length // 5) + "end.")
    drawn = read(draw(metric.spec()))
    assert [line for line in drawn.lines if line.startswith("word")] == [
        *["word word word word word word word"] * 3,
        "word word word word word word word …",
    ]
    question = metric.dag.root_nodes[0].text
    assert question in (drawn.group("Clear").findtext(f"{SVG}title") or "").splitlines()
    assert question in Path(metric.render(str(tmp_path / "tree.md"))).read_text(encoding="utf-8")


@given(st.text(st.sampled_from("abc_ \n"), max_size=90), st.integers(2, 40), st.integers(1, 5))
def test_lines_are_as_many_as_a_plain_wrap_makes_and_no_word_is_broken_to_make_them_even(
    text: str, width: int, most: int
) -> None:
    lines = lines_of(text, width, most)
    plain = wrap(clean(text), width, max_lines=most, placeholder=" …") or [""]
    assert len(lines) == len(plain)
    assert max(map(len, lines)) <= max(map(len, plain))
    if max(map(len, text.split()), default=0) <= width and "…" not in plain[-1]:
        assert " ".join(lines).split() == text.split()


def test_the_legend_is_no_wider_than_the_tree_and_has_only_what_occurs() -> None:
    def legend(picture: Picture) -> list[str]:
        (group,) = (
            group
            for group in ElementTree.fromstring(picture.layout("svg")).iter(f"{SVG}g")
            if group.get("class") == "legend"
        )
        return [line for line in _lines(group) if line[:1] not in "✓✕7"]

    ends = ["score of 10, passes", "below the threshold"]
    small = named_node("Polite?")
    assert legend(draw(small.spec())) == ["judgement", *ends, "makes it run"]
    small.threshold = None
    assert legend(draw(small.spec())) == ["judgement", "score of 10", "makes it run"]
    metric = headings_metric()
    arrows = ["makes it run", "passes data only"]
    assert legend(draw(metric.spec())) == ["judgement", "task", *ends, *arrows]
    taken = ["path of this case", "passes data only", "not taken"]
    assert legend(path_picture(metric, headings_judge)) == ["judgement", "task", *ends, *taken]
    counted = ["failed", "cases, failed in the end", "passes data only", "never taken"]
    picture = counts_picture(metric, headings_judge, ["a text"])
    assert legend(picture) == ["judgement", "task", *ends, *counted]
    for shown in (draw(metric.spec()), picture, draw(small.spec())):
        tree = float(json.loads(laid_out(shown.dot, "json0"))["bb"].split(",")[2])
        svg = shown.layout("svg").decode()
        widest = max(tree, 200)  # the widest words of a legend
        assert float(re.findall(r'width="(\d+)"', svg)[0]) <= widest + 50
        assert not re.search(r"(?:✕|⊘) failed", mermaid_text(shown)) or shown is picture


@pytest.mark.parametrize("verdicts", [("b", "a", "c"), ("c", "b", "a"), ("a", "c", "b")])
def test_verdicts_stand_in_the_order_of_their_declaration(verdicts: tuple[str, ...]) -> None:
    then = {verdict: place for place, verdict in enumerate(verdicts)}
    judgement = NonBinaryJudgementNode(
        "Which?", evaluation_params=["input"], then=then, name="Which one"
    )
    picture = draw(DAGMetric("Order", DAG(judgement)).spec())
    drawn = read(picture)
    assert drawn.leaving("Which one") == list(verdicts)
    scores = [drawn.group(f" {place} of") for place in range(len(verdicts))]
    centres = [float(next(group.iter(f"{SVG}rect")).get("x") or 0) for group in scores]
    assert centres == sorted(centres)
    found = re.findall(r'-- "(.)" -->', picture.mermaid)
    assert found == list(verdicts)


def taken(edge: ElementTree.Element) -> bool:
    """Whether an edge is drawn as part of the path of a case."""
    return "s-mark" in ElementTree.tostring(edge, encoding="unicode")


def test_the_path_is_marked_and_says_what_was_answered() -> None:
    drawn = read(path_picture(headings_metric(), headings_judge))
    assert drawn.title == "Headings passes at 0.8 · ✕ score 0.4, failed"
    for name, answer in (("All there", "True"), ("Heading order", "Two are out of order")):
        edges = drawn.arrows(drawn.find(name))
        assert [" ".join(_lines(edge)) for edge in edges if taken(edge)] == [answer]
    assert drawn.nodes[drawn.find("Summary headings")].endswith("`actual_output` → intro, body")
    order = drawn.nodes[drawn.find("Heading order")]
    assert order.endswith("→ Two are out of order I compared them.")


def test_a_failed_case_ends_at_a_score_that_says_so() -> None:
    drawn = read(path_picture(headings_metric(), headings_judge))
    end = drawn.group("4 of 10")
    assert drawn.nodes[drawn.find("4 of 10")] == "✕ 4 of 10"
    assert "f-fail-ground" in ElementTree.tostring(end, encoding="unicode")
    assert "✓ 4" not in drawn.text


def test_what_is_not_on_the_path_is_dashed() -> None:
    drawn = read(path_picture(headings_metric(), headings_judge, "empty"))
    assert drawn.title == "Headings passes at 0.8 · ✕ score 0, failed"
    names = ("Summary headings", "All there", "Heading order")
    assert [dashed(drawn.group(name)) for name in names] == [False, False, True]
    assert not any(map(taken, drawn.arrows(drawn.find("Heading order"))))


def test_the_path_is_marked_in_mermaid_too() -> None:
    picture = path_picture(headings_metric(), headings_judge)
    thick = re.findall(r'== "(.+)" ==>', picture.mermaid)
    assert sorted(thick) == ["True", "Two are out of order"]
    assert "→ True I looked for three." in mermaid_text(picture)


def test_two_verdicts_that_lead_to_one_node_are_two_edges_of_which_one_is_marked() -> None:
    last = RatingNode("How good?", ["input"], name="Rated")
    first = BinaryJudgementNode(
        "Long?", evaluation_params=["input"], then={True: last, False: last}, name="Long"
    )
    metric = DAGMetric("Joined", DAG(first))
    drawn = read(path_picture(metric, {"Long": False, "Rated": 7}))
    assert drawn.leaving("Long") == ["True", "False"]
    assert [taken(edge) for edge in drawn.arrows(drawn.find("Long"))] == [False, True]
    assert "→ 0.7" in drawn.nodes[drawn.find("Rated")]


def test_a_failed_case_says_where_and_why() -> None:
    judge: Mapping[str, Any] = {"Summary headings": "intro"}
    picture = path_picture(headings_metric(), judge)
    drawn = read(picture)
    assert drawn.title == "Headings passes at 0.8 · ⊘ provider_error at All there"
    assert "⊘ provider_error" in drawn.nodes[drawn.find("All there")]
    assert "⊘ provider_error" in mermaid_text(picture)


def test_cases_and_failures_stand_in_the_nodes_that_they_came_by() -> None:
    outputs: list[str | None] = ["a text", "a text", "a text", "empty"]
    picture = counts_picture(headings_metric(), headings_judge, outputs)
    drawn = read(picture)
    assert drawn.title == "Headings passes at 0.8 · 4 cases, ✕ 4 failed, 100% of them"
    asked = "Are all three headings there?", "Are the headings in order?"
    assert drawn.nodes[drawn.find("All there")] == f"All there judgement · 4 ✕ 4 {asked[0]}"
    assert drawn.nodes[drawn.find("Heading order")] == f"Heading order judgement · 3 ✕ 3 {asked[1]}"
    ends = sorted(text for key, text in drawn.nodes.items() if key.startswith("l"))
    assert ends == ["✓ 10 · 0", "✕ 0 · 1", "✕ 2 · 0", "✕ 4 · 3"]
    assert drawn.leaving("All there") == ["False", "True"]  # a count is said once
    assert "All there judgement · 4 ✕ 4" in mermaid_text(picture)
    bars = [drawn.group(name).findall(f"{SVG}rect") for name in ("All there", "Heading order")]
    assert [[bar.get("fill") for bar in found] for found in bars] == [["url(#dagengine-hatch)"]] * 2


def test_answers_that_lead_to_one_node_say_how_many_cases_took_each() -> None:
    last = BinaryJudgementNode("Good?", (), ["input"], then={True: 10, False: 0}, name="Last")
    first = BinaryJudgementNode(
        "Long?", (), ["actual_output"], then={True: last, False: last}, name="First"
    )

    def judge(question: Any) -> bool:
        return question.name == "First" and "long" in question.messages[-1]["content"]

    picture = counts_picture(DAGMetric("M", DAG(first)), judge, ["long", "short", "short"])
    assert read(picture).leaving("First") == ["True 1 ✕ 1", "False 2 ✕ 2"]


def test_cases_without_a_score_are_counted_in_the_title_and_at_their_node() -> None:
    def judge(question: Any) -> Any:
        text = " ".join(message["content"] for message in question.messages)
        if question.name == "All there" and "broken" in text:
            return {"reason": "", "verdict": "perhaps"}
        return "broken" if "odd" in text else headings_judge(question)

    picture = counts_picture(headings_metric(), judge, ["a text", "odd", "odd"])
    drawn = read(picture)
    cases = "3 cases, ✕ 1 failed, 33% of them, ⊘ 2 without a score"
    assert drawn.title == f"Headings passes at 0.8 · {cases}"
    assert "⊘ 2 without an answer" in drawn.nodes[drawn.find("All there")]


def test_counts_of_no_cases_can_be_drawn() -> None:
    drawn = read(draw(headings_metric().spec(), rows=[]))
    assert drawn.title == "Headings passes at 0.8 · 0 cases"
    assert drawn.nodes[drawn.find("All there")].startswith("All there judgement · 0 Are")


# -- nested metrics ------------------------------------------------------------------------


def nested_metric(inner: str = "Headings") -> DAGMetric:
    root = BinaryJudgementNode(
        "Is it long?", evaluation_params=["input"], name="Is long", then={False: 0}
    )
    root.then[True] = headings_metric(inner)
    return DAGMetric("Outer", DAG(root))


def test_a_nested_metric_is_drawn_in_a_frame_with_its_nodes() -> None:
    drawn = read(draw(nested_metric().spec()))
    assert drawn.frames == ["Headingsmetric, 3 nodes"]
    for words in ("Summary headings", "All there", "Heading order"):
        assert drawn.find(words)
    assert "Headings > " not in drawn.text


def test_a_metric_is_entered_at_its_first_node() -> None:
    picture = draw(nested_metric().spec())
    drawn = read(picture)
    ends = [end for start, end, words in drawn.edges if start == drawn.find("Is long")]
    assert drawn.find("Summary headings") in ends
    (frame,) = picture.model.frames
    assert f'subgraph {frame.key}["Headings · metric, 3 nodes"]' in picture.mermaid
    assert frame.key not in {end for _, end, _ in drawn.edges}


def test_the_path_goes_on_inside_a_nested_metric() -> None:
    def judge(question: Any) -> Any:
        return True if question.name == "Is long" else headings_judge(question)

    drawn = read(path_picture(nested_metric(), judge))
    names = {"Is long": "True", "All there": "True", "Heading order": "Two are out of order"}
    for name, answer in names.items():
        edges = drawn.arrows(drawn.find(name))
        assert [" ".join(_lines(edge)) for edge in edges if taken(edge)] == [answer]


def dashed(element: ElementTree.Element) -> bool:
    return "stroke-dasharray" in ElementTree.tostring(element, encoding="unicode")


@pytest.mark.parametrize("verdict", [True, False])
def test_the_edge_into_a_nested_metric_is_drawn_as_taken_when_it_was(verdict: bool) -> None:
    def judge(question: Any) -> Any:
        return verdict if question.name == "Is long" else headings_judge(question)

    metric = nested_metric()
    for picture in (path_picture(metric, judge), counts_picture(metric, judge, ["a text"])):
        drawn = read(picture)
        (edge,) = drawn.arrows(drawn.find("Is long"), drawn.find("Summary headings"))
        assert dashed(edge) is not verdict


# -- every text ----------------------------------------------------------------------------

AWKWARD = {
    "markup": "<b>a</b> < b & c > d; &lt; &amp; <br/> <!-- x -->",
    "quotes": "\"double\" 'single' `tick` ```fence``` #35; #quot; #",
    "brackets": "{x} {{y}} [z] (w) |v| \\N \\n \\ end -->",
    "newlines": "one\ntwo\r\nthree\ttabs",
    "control": "a\x00b\x07c\x1b[31md\x7fe\x85f",
    "emoji": "fine 🙂 👩‍👩‍👧 漢字かな Ünïcödé",
    "rtl": "שלום עולם مرحبا \u202eback\u202c",
    "long": "x" * 23 + "&" + "y" * 22 + "<" + "z" * 60,
    "arrow": "score > 5 > 4",
    "angle": "<whole>",
}


def squeezed(text: str) -> str:
    """What must survive of a text: its printable characters, however it was wrapped."""
    return "".join(char for char in text if char.isprintable() and not char.isspace())


def mermaid_text(picture: Picture) -> str:
    """The text a reader sees: title and labels of nodes and edges, decoded as Mermaid does."""
    name = r"[a-z]+\d*"
    label = r'(?:\(\[|\{\{|\[\[|\[/|\[\(|\[|\()"([^"]*)"(?:\]\)|\}\}|\]\]|[/\\]\]|\)\]|\]|\))'
    shown = [re.compile(rf" +(?:subgraph )?{name}{label}")]
    shown.append(re.compile(rf"  {name} (?:(?:--|-\.|==) \"([^\"]*)\" )?(?:-->|-?\.->|==>) {name}"))
    seen: list[str] = []
    first, title, end, kind, *lines = picture.mermaid.splitlines()
    assert [first, end, kind] == ["---", "---", "flowchart TD"]
    seen.append(json.loads(title.removeprefix("title: ")))
    for line in lines:
        if re.fullmatch(rf" +(style {name} \S+|end|classDef \w+ .+|class [\w,]+ \w+)", line):
            continue
        found = next((match for form in shown if (match := form.fullmatch(line))), None)
        assert found, f"Mermaid would not read {line!r}"
        text = (found[1] or "").replace("<br/>", " ")
        assert "<" not in text
        seen.append(unescape(re.sub(r"#(\d+);|#(\w+);", _entity, text)))
    return " ".join(" ".join(seen).split())


def _entity(found: re.Match[str]) -> str:
    return f"&#{found[1]};" if found[1] else f"&{found[2]};"


Place = Callable[[str], Picture]


def in_metric_name(text: str) -> Picture:
    judgement = BinaryJudgementNode("Q?", evaluation_params=["input"], then={True: 10, False: 0})
    return draw(DAGMetric(text, DAG(judgement)).spec())


def in_nested_name(text: str) -> Picture:
    return draw(nested_metric(text).spec())


def in_node_name(text: str) -> Picture:
    judgement = BinaryJudgementNode(
        "Q?", evaluation_params=["input"], then={True: 10, False: 0}, name=text
    )
    return draw(DAGMetric("M", DAG(judgement)).spec())


def in_output_label(text: str) -> Picture:
    judgement = BinaryJudgementNode("Q?", then={True: 10, False: 0})
    return draw(DAGMetric("M", DAG(TaskNode("Do it", text, [judgement], ["input"]))).spec())


def in_criteria(text: str) -> Picture:
    judgement = BinaryJudgementNode(
        text, evaluation_params=["input", "actual_output"], then={True: 10, False: 0}, name="N"
    )
    return draw(DAGMetric("M", DAG(judgement)).spec())


def in_criteria_without_a_name(text: str) -> Picture:
    judgement = BinaryJudgementNode(text, evaluation_params=["input"], then={True: 10, False: 0})
    return draw(DAGMetric("M", DAG(judgement)).spec())


def in_verdict(text: str) -> Picture:
    judgement = NonBinaryJudgementNode(
        "Q?", evaluation_params=["input"], then={text: 10, "other": 0}
    )
    return draw(DAGMetric("M", DAG(judgement)).spec())


def in_reason(text: str) -> Picture:
    judgement = BinaryJudgementNode(
        "Q?", evaluation_params=["input"], then={True: 10, False: 0}, name="N"
    )
    metric = DAGMetric("M", DAG(judgement))
    return path_picture(metric, {"N": {"reason": text, "verdict": True}})


def in_output(text: str) -> Picture:
    judgement = BinaryJudgementNode("Q?", then={True: 10, False: 0}, name="N")
    metric = DAGMetric("M", DAG(TaskNode("Do it", "out", [judgement], ["input"])))
    return path_picture(metric, {"out": text, "N": True})


PLACES: tuple[Place, ...] = (
    in_metric_name,
    in_nested_name,
    in_node_name,
    in_output_label,
    in_criteria,
    in_criteria_without_a_name,
    in_verdict,
    in_reason,
    in_output,
)


@pytest.mark.parametrize("text", AWKWARD.values(), ids=AWKWARD)
@pytest.mark.parametrize("place", PLACES)
def test_every_text_survives_in_the_svg(place: Place, text: str) -> None:
    assert squeezed(text) in squeezed(read(place(text)).text)


@pytest.mark.parametrize("text", AWKWARD.values(), ids=AWKWARD)
@pytest.mark.parametrize("place", [place for place in PLACES if place is not in_metric_name])
def test_every_text_survives_in_mermaid(place: Place, text: str) -> None:
    picture = place(text)
    assert squeezed(text) in squeezed(mermaid_text(picture))
    rest = picture.mermaid.replace("\n", "")
    assert [char for char in rest if unicodedata.category(char) == "Cc"] == []


def test_a_function_without_a_name_is_shown_as_python_calls_it() -> None:
    metric = DAGMetric("M", DAG(CodeNode(lambda text: 0.5, (), ["input"])))
    assert "<lambda> code" in read(draw(metric.spec())).text


def test_backticks_in_a_criterion_cannot_close_the_fence_of_a_markdown_file(
    tmp_path: Path,
) -> None:
    text = Path(in_criteria("```\n# Not a heading\n```").save(tmp_path / "tree.md")).read_text()
    assert text.startswith("```mermaid\n---\n")
    assert re.findall("^```.*$", text, re.MULTILINE) == ["```mermaid", "```"]


# -- the same each time --------------------------------------------------------------------

PRINTED = """
import hashlib
from test_render import counts_picture, headings_judge, headings_metric, nested_metric, sixty
from dagengine.report import draw

pictures = [
    draw(headings_metric().spec()),
    draw(nested_metric().spec()),
    draw(sixty().spec()),
    counts_picture(headings_metric(), headings_judge, ["a text", "empty"]),
]
for picture in pictures:
    print(picture.dot, picture.mermaid, hashlib.sha256(picture.layout("svg")).hexdigest())
"""


def test_pictures_are_the_same_with_every_hash_seed() -> None:
    assert len(set(printed(PRINTED, Path(__file__).parent))) == 1


# -- size and files ------------------------------------------------------------------------


def sixty() -> DAGMetric:
    """A task and 59 judgements, each with two that follow or two scores."""
    nodes = [
        BinaryJudgementNode(f"{LONG} ({n})", evaluation_params=["input"], name=f"Question {n}")
        for n in range(59)
    ]
    for n, node in enumerate(nodes):
        after = nodes[2 * n + 1 : 2 * n + 3]
        node.then = dict(zip((True, False), after, strict=True)) if after else {True: 10, False: 0}
    return DAGMetric("Sixty", DAG(TaskNode("List the facts", "Facts", [nodes[0]], ["input"])))


def test_sixty_nodes_are_drawn_on_wish() -> None:
    picture = draw(sixty().spec(), whole=True)
    drawn = read(picture)
    for n in range(59):
        asked = drawn.nodes[drawn.find(f"Question {n} judgement")]
        assert asked.removeprefix(f"Question {n} judgement · reads input ").startswith(LONG[:80])
    assert len(drawn.nodes) == 60 + 60
    assert picture.layout("png").startswith(b"\x89PNG\r\n\x1a\n")
    assert "Question 58" in mermaid_text(picture)


@pytest.mark.parametrize(
    ("name", "start"),
    [
        ("tree.svg", b"<?xml"),
        ("deep/er/tree.PNG", b"\x89PNG"),
        ("tree.pdf", b"%PDF"),
        ("tree.dot", b"digraph metric {"),
        ("tree.mmd", b"---\ntitle: "),
        ("tree.md", b"```mermaid\n"),
    ],
)
def test_the_suffix_decides_what_is_written(tmp_path: Path, name: str, start: bytes) -> None:
    path = headings_metric().render(str(tmp_path / name))
    assert Path(path) == tmp_path / name
    assert Path(path).read_bytes().startswith(start)


def test_an_unknown_suffix_is_an_error_that_lists_the_known_ones(tmp_path: Path) -> None:
    for name in ("tree.jpg", "tree"):
        with pytest.raises(InputError, match=r"svg") as caught:
            headings_metric().render(str(tmp_path / name))
        assert "mmd" in str(caught.value)
    assert list(tmp_path.iterdir()) == []


def test_a_graph_with_errors_is_not_drawn_and_one_with_warnings_is() -> None:
    judgement = BinaryJudgementNode("Q?", evaluation_params=["input"], then={True: 11, False: 0})
    with pytest.raises(GraphError, match="score-range"):
        draw(DAGMetric("M", DAG(judgement)).spec())
    judgement.then[True] = 1
    assert read(draw(DAGMetric("M", DAG(judgement)).spec())).title == "M passes at 0.5 · 1 node"


def test_a_graph_draws_itself(tmp_path: Path) -> None:
    dag = DAG(headings_metric().dag.root_nodes[0])
    assert "Heading order" in dag.mermaid()
    assert "Heading order" in dag.picture().dot
    assert Path(dag.render(str(tmp_path / "tree.svg"))).is_file()


# -- without Graphviz ----------------------------------------------------------------------


@pytest.mark.usefixtures("without_graphviz")
def test_without_graphviz_the_error_names_the_remedies(tmp_path: Path) -> None:
    for form in ("svg", "png", "pdf"):
        with pytest.raises(MissingExtraError, match=f"a picture as {form} needs") as caught:
            headings_metric().render(str(tmp_path / "new" / f"tree.{form}"))
        for remedy in ('pip install "dagengine[draw]"', "apt", "brew", ".mmd, .md and .dot"):
            assert remedy in str(caught.value)
    assert list(tmp_path.iterdir()) == []


@pytest.fixture
def program(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A `dot` on the path that says how it was called, beside no pygraphviz."""
    monkeypatch.setitem(sys.modules, "pygraphviz", None)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    place = tmp_path / "dot"
    place.write_text('#!/bin/sh\necho "dot $*"; cat\n')
    place.chmod(0o755)
    return place


def test_without_pygraphviz_the_program_draws(program: Path) -> None:
    picture = draw(headings_metric().spec())
    drawn = picture.layout("png").decode()
    assert drawn.startswith("dot -Kdot -Tpng\n")
    assert drawn.rstrip().endswith(picture.dot.rstrip())


def test_what_the_program_cannot_draw_is_an_error_in_its_words(program: Path) -> None:
    program.write_text("#!/bin/sh\ncat > /dev/null; echo too wide >&2; exit 1\n")
    with pytest.raises(OSError, match="too wide"):
        draw(headings_metric().spec()).layout()


@pytest.mark.usefixtures("without_graphviz")
def test_without_graphviz_text_can_be_written(tmp_path: Path) -> None:
    for form in ("dot", "mmd", "md"):
        path = headings_metric().render(str(tmp_path / f"tree.{form}"))
        assert "Heading order" in Path(path).read_text(encoding="utf-8")


def test_a_notebook_shows_the_picture() -> None:
    shown = headings_metric()._repr_mimebundle_(include=None, exclude=None)
    assert "Heading order" in ElementTree.tostring(
        ElementTree.fromstring(shown["image/svg+xml"].encode()), encoding="unicode"
    )
    assert "Heading order" in shown["text/plain"]


@pytest.mark.usefixtures("without_graphviz")
def test_a_notebook_shows_the_text_without_graphviz() -> None:
    shown = headings_metric().dag._repr_mimebundle_()  # type: ignore[attr-defined]
    assert set(shown) == {"text/plain"}
    for text in (shown["text/plain"], unescape(headings_metric()._repr_html_())):
        assert 'pip install "dagengine[draw]"' in text
        assert "flowchart TD" in text
        assert "Heading order" in text
