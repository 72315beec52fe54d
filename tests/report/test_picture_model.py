"""The model of a picture has what the metric has; a large one folds so that it can be read."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from graphs.random_graphs import Script, drawings, metric_of
from hypothesis import given, settings
from hypothesis import strategies as st

from dagengine import evaluate
from dagengine.compiler.checks import check
from dagengine.judges import ScriptedJudge
from dagengine.metrics import DAGMetric, FaithfulnessMetric
from dagengine.metrics.dag import DAG, BinaryJudgementNode, RatingNode
from dagengine.report import Picture, draw
from dagengine.report.pictures.dot import laid_out
from dagengine.report.pictures.folding import LARGE
from dagengine.report.pictures.parts import SHAPES, Model
from dagengine.report.pictures.svg import _shape
from dagengine.results.evaluation_result import EvaluationResult
from dagengine.test_case import LLMTestCase

SCREEN = 1280  # pixels


def tree(nodes: int) -> DAGMetric:
    """A binary tree; the children of node n are 2n + 1 and 2n + 2."""

    def node(place: int) -> BinaryJudgementNode | int:
        if place >= nodes:
            return place % 10
        return BinaryJudgementNode(
            f"Is it {place}?",
            evaluation_params=["input"],
            then={True: node(2 * place + 1), False: node(2 * place + 2)},
            name=f"node {place}",
        )

    root = node(0)
    assert isinstance(root, BinaryJudgementNode)
    return DAGMetric("Tree", DAG(root_node=root))


def run(metric: DAGMetric) -> EvaluationResult:
    """One case that always goes left."""
    judge = ScriptedJudge(lambda question: True)
    return evaluate([LLMTestCase(input="?")], [metric], model=judge, show=False)


def path_of(metric: DAGMetric) -> Picture:
    return draw(metric.spec(), result=run(metric).rows[0].metrics[0])


def names(model: Model) -> dict[str, str]:
    """The whole names of the parts that are nodes, by their keys."""
    return {
        part.key: part.hint.splitlines()[0]
        for part in model.parts
        if part.shape not in ("end", "folded")
    }


def grouped(model: Model) -> list[list[str]]:
    """The names of the nodes in each group."""
    groups = [part for part in model.parts if part.shape == "folded"]
    for part in groups:
        count, _, listed = part.hint.partition(": ")
        assert part.name == (count,)
        assert int(count.split()[0]) == len(listed.split(", "))
    return [part.hint.partition(": ")[2].split(", ") for part in groups]


@settings(max_examples=40, deadline=None)
@given(drawings())
def test_nodes_and_edges_of_the_model_are_those_of_the_metrics_graph(
    drawing: dict[str, Any],
) -> None:
    spec = metric_of(drawing, Script()).spec()
    wiring = check(spec)[1]
    assert wiring is not None
    nodes = [slot for slot in wiring.slots if slot.kind == "node"]
    model = draw(spec, whole=True).model
    key = {name: key for key, name in names(model).items()}
    assert sorted(key) == sorted(slot.name for slot in nodes)
    scores = {part.key: part.name[0].split()[-1] for part in model.parts if part.shape == "end"}
    answers = sorted(
        (arrow.source, arrow.answer[0], scores.get(arrow.target, arrow.target))
        for arrow in model.arrows
        if arrow.answer
    )
    assert answers == sorted(
        (
            key[slot.name],
            str(verdict),
            key.get(target.name, f"{(target.score or 0) * 10:g}"),
        )
        for slot in nodes
        for verdict, target in slot.branches
    )
    feeds = {(arrow.source, arrow.target) for arrow in model.arrows if not arrow.answer}
    reads = {(key[source.slot.name], key[slot.name]) for slot in nodes for source in slot.sources}
    starts = {(key[slot.name], key[child.name]) for slot in nodes for child in slot.activates}
    assert reads <= feeds <= reads | starts


@settings(max_examples=15, deadline=None)
@given(st.integers(1, 90), st.booleans())
def test_what_a_folded_picture_does_not_draw_is_in_its_groups(nodes: int, counted: bool) -> None:
    metric = tree(nodes)
    rows = run(metric).rows if counted else None
    model = draw(metric.spec(), rows=rows).model
    drawn, groups = set(names(model).values()), grouped(model)
    assert drawn.isdisjoint(set[str]().union(*groups))
    assert drawn.union(*groups) == {f"node {place}" for place in range(nodes)}


@pytest.mark.parametrize("nodes", [3, 12, 24, 60])
@pytest.mark.parametrize("view", ["design", "counts", "path"])
def test_a_picture_fits_a_screen_at_its_full_size(nodes: int, view: str) -> None:
    metric = tree(nodes)
    result = None if view == "design" else run(metric)
    row = result.rows[0].metrics[0] if result and view == "path" else None
    picture = draw(metric.spec(), result=row, rows=result.rows if result and not row else None)
    svg = picture.layout("svg").decode()
    assert int(re.findall(r'width="(\d+)"', svg)[0]) <= SCREEN
    assert min(map(int, re.findall(r'font-size="(\d+)"', svg))) >= 11


def test_no_text_reaches_the_border_of_its_node() -> None:
    """Graphviz measures the words; what it makes of them is no narrower than words and room."""
    picture = draw(FaithfulnessMetric().spec())
    placed = json.loads(laid_out(picture.dot, "json0"))["objects"]
    wide = {part["name"]: float(part["width"]) * 72 for part in placed}
    bare = json.loads(laid_out(picture.dot.replace('margin="0.18,0.06"', "margin=0"), "json0"))
    words = {part["name"]: float(part["width"]) * 72 for part in bare["objects"]}
    least = {part.key: wide[part.key] - words[part.key] for part in picture.model.parts}
    asking = [part.key for part in picture.model.parts if part.shape in ("task", "items")]
    assert all(least[key] >= 20 for key in asking)


def test_an_svg_has_the_colours_of_both_lights() -> None:
    svg = draw(tree(3).spec()).layout("svg").decode()
    style, _, drawing = svg.partition("</style>")
    light, dark = style.split("@media(prefers-color-scheme:dark)")
    used = set(re.findall(r"\b([fs]-[a-z-]+)", drawing))
    for text in (light, dark):
        assert used <= set(re.findall(r"svg\.dagengine \.([fs]-[a-z-]+)\{", text))
    assert not re.search(r'(?:fill|stroke)="#', drawing)


def test_every_shape_that_occurs_is_in_the_legend_and_no_two_look_alike() -> None:
    looks = {words: _shape(shape, (0, 0, 30, 17), "", cut=5) for shape, words in SHAPES.items()}
    assert len(set(looks.values())) == len(looks) == 7
    gate = BinaryJudgementNode(
        "Any?", (), ["input"], name="gate", then={True: FaithfulnessMetric()}
    )
    gate.then[False] = RatingNode("How good?", ["input"])
    folded = {"folded"}, draw(tree(60).spec())
    for words, picture in (folded, ({*looks} - {"folded"}, draw(DAGMetric("m", DAG(gate)).spec()))):
        legend = picture.layout("svg").decode().partition('class="legend"')[2]
        shown = {text for text in looks if f">{text}<" in legend}
        assert shown - {"judgement"} == words - {"judgement"}


def test_branches_not_taken_are_groups_that_say_how_many_nodes_they_hide() -> None:
    picture = path_of(tree(60))
    assert set(names(picture.model).values()) == {f"node {n}" for n in (0, 1, 3, 7, 15, 31)}
    assert sum(map(len, grouped(picture.model))) == 60 - 6
    for text in (picture.dot, picture.mermaid):
        assert "28 nodes" in text  # node 2, and all that it leads to


def test_counts_unfold_the_branch_with_most_failures_first() -> None:
    metric = tree(60)
    picture = draw(metric.spec(), rows=run(metric).rows)
    assert {f"node {n}" for n in (0, 1, 3, 7, 15)} <= set(names(picture.model).values())
    assert any(
        "never taken" in line for part in picture.model.parts for line in map(str, part.lines)
    )


def test_a_small_tree_and_the_path_of_it_are_whole() -> None:
    assert len(names(draw(tree(12).spec()).model)) == 12
    assert len(names(path_of(tree(12)).model)) == 12
    assert grouped(draw(tree(LARGE + 1).spec(), whole=True).model) == []


def test_a_metric_inside_leaves_out_and_counts_what_only_reshapes_a_list() -> None:
    gate = BinaryJudgementNode("Any?", (), ["input"], name="gate", then={False: 0})
    gate.then[True] = FaithfulnessMetric()
    model = draw(DAGMetric("m", DAG(gate)).spec()).model
    (frame,) = model.frames
    assert "".join(text for text, _ in frame.words) == "metric, 7 nodes, 5 drawn"
    key = {name: key for key, name in names(model).items()}
    assert {"claims", "truths"}.isdisjoint(key)
    pairs = {(arrow.source, arrow.target) for arrow in model.arrows}
    assert (key["statements of actual_output"], key["support"]) in pairs
    assert (key["gate"], key["something to compare"]) in pairs
    alone = draw(FaithfulnessMetric().spec()).model
    assert len(names(alone)) == 7


def test_a_metric_at_a_leaf_keeps_its_name_and_says_what_it_gave() -> None:
    empathy = DAGMetric("Empathy", DAG(root_node=RatingNode("How warm?", ["input"])))
    gate = BinaryJudgementNode("Sorry?", (), ["input"], then={True: empathy, False: 0}, name="gate")
    metric = DAGMetric("m", DAG(root_node=gate))
    judge = ScriptedJudge({"gate": True, "Empathy": 4, "How warm?": 4})
    result = evaluate([LLMTestCase(input="?")], [metric], model=judge, show=False)
    dot = draw(metric.spec(), result=result.rows[0].metrics[0]).dot
    assert "<b>Empathy</b>" in dot
    assert "→ 0.4" in dot


def test_a_large_tree_keeps_its_size_in_a_notebook() -> None:
    shown = draw(tree(LARGE).spec())._repr_mimebundle_()
    assert shown["text/html"].startswith('<div style="overflow-x:auto"><svg style="max-width:none"')
