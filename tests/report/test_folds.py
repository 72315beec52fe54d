"""Pictures of large trees: what nothing came by is one stub."""

from __future__ import annotations

import re

import pytest

from dagengine import evaluate
from dagengine.judges import ScriptedJudge
from dagengine.metrics import DAGMetric
from dagengine.metrics.dag import DAG, BinaryJudgementNode, RatingNode
from dagengine.report import Picture, draw
from dagengine.report.folds import LARGE
from dagengine.results.evaluation import EvaluationResult
from dagengine.test_case import LLMTestCase


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


def test_branches_not_taken_are_stubs_that_say_how_many_nodes_they_hide() -> None:
    picture = path_of(tree(60))
    for text in (picture.dot, picture.mermaid):
        hidden = [int(count) for count in re.findall(r'"\+(\d+) nodes?"', text)]
        shown = {int(place) for place in re.findall(r"node (\d+)", text)}
        assert shown == {0, 1, 3, 7, 15, 31}
        assert sum(hidden) == 60 - len(shown)
        assert "+7 nodes: a part that no case reached" in text


def test_counts_fold_what_no_case_came_by() -> None:
    metric = tree(60)
    picture = draw(metric.spec(), rows=run(metric).rows)
    assert '"+28 nodes"' in picture.dot  # node 2, and all that it leads to
    assert "blue: taken" in picture.dot


def test_the_design_of_a_large_tree_and_the_path_of_a_small_one_are_whole() -> None:
    large, small = tree(60), tree(LARGE)
    assert draw(large.spec()).mermaid.count("Is it") == 60
    assert path_of(small).mermaid.count("Is it") == LARGE


@pytest.mark.parametrize("form", ["svg", "png"])
def test_a_folded_picture_can_be_laid_out(form: str) -> None:
    assert len(path_of(tree(60)).layout(form)) > 1000


def test_a_metric_at_a_leaf_keeps_its_name_and_says_what_it_gave() -> None:
    empathy = DAGMetric("Empathy", DAG(root_node=RatingNode("How warm?", ["input"])))
    gate = BinaryJudgementNode("Sorry?", (), ["input"], then={True: empathy, False: 0}, name="gate")
    metric = DAGMetric("m", DAG(root_node=gate))
    judge = ScriptedJudge({"gate": True, "Empathy": 4, "How warm?": 4})
    result = evaluate([LLMTestCase(input="?")], [metric], model=judge, show=False)
    dot = draw(metric.spec(), result=result.rows[0].metrics[0]).dot
    assert "<b>Empathy</b>" in dot
    assert "→ 0.4" in dot
