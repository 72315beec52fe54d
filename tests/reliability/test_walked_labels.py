"""Labels that people gave by walking the tree, as the benchmark takes them."""

from __future__ import annotations

from pathlib import Path

import pytest
from folders.runs import but, cases, judge_of, record, support_metric
from rich.console import Console

from dagengine.errors import InputError
from dagengine.record.label_file import LABELS
from dagengine.reliability import repeat
from dagengine.reliability.card import make_card
from dagengine.reliability.card.card_formats import card_page, markdown, print_card
from dagengine.reliability.card.card_maker import check_labels
from dagengine.reliability.card.fail_if import failures, parse
from dagengine.reliability.card.sentences import answers
from dagengine.reliability.counterfactual import Counterfactual
from dagengine.reliability.human_labels import HumanLabels
from dagengine.view.compared_runs import OpenRun
from dagengine.view.labelling import At, Labelling

SAID = but(("Tone", "answer 1", "rude"), ("Next step", "answer 3", False))


@pytest.fixture
def labels(tmp_path: Path) -> Path:
    """Ana agrees with the judge but for case 2, Ben on case 0 alone does not."""
    folder = record(tmp_path / "run", SAID, over=4)
    with OpenRun(folder) as run:
        labelling = Labelling(run)
        for who, place, tone in (("Ana", 0, 1), ("Ana", 1, 2), ("Ana", 2, 2), ("Ben", 0, 2)):
            at = At(who, "Support quality", place)
            for node, choice in (("Kind", 1), ("Next step", 1), ("Tone", tone)):
                labelling.answer(at, node, choice)
        at = At("Ana", "Support quality", 3)
        labelling.answer(at, "Kind", 1)
        labelling.answer(at, "Next step", 2)
        labelling.undo(at)
        labelling.answer(at, "Next step", 2)
    return folder / LABELS


def test_walks_are_labels_of_their_metric_by_content_and_person(labels: Path) -> None:
    metric, other = support_metric(), support_metric()
    other.name = "Another"
    given = list(reversed(cases(4)))
    seen = repeat(given, [metric, other], model=judge_of(SAID), times=2)
    card = make_card(seen, [metric, other], given, ["scripted"], labels=labels)
    accuracy = card.metrics[0].figure("accuracy")
    assert accuracy is not None
    # Case 0 is left out, on which the two people differ; the judge has case 2 otherwise.
    assert accuracy.value == pytest.approx(2 / 3)
    assert {(one.label, one.means, one.cases) for one in card.metrics[0].labels} == {
        ("pass", "pass", 1), ("fail", "fail", 4)
    }  # fmt: skip
    assert card.metrics[1].labels == ()


def test_each_node_is_held_against_the_answers_of_people(labels: Path) -> None:
    """Ben and Ana differ on the tone of case 0, and nobody came to the tone of case 3."""
    metric = support_metric()
    seen = repeat(cases(4), [metric], model=judge_of(SAID), times=2)
    card = make_card(seen, [metric], cases(4), ["scripted"], labels=labels)
    nodes = {one.node: one.people for one in card.metrics[0].settings[0].nodes}
    found = {name: (one.value, one.items) for name, one in nodes.items() if one is not None}
    assert found == {"Kind": (1.0, 4), "Next step": (1.0, 4), "Tone": (0.5, 2)}
    page, text = card_page(card), markdown(card)
    assert "Accuracy of each node against people" in page
    assert "| Tone | 50.0 %" in text
    with (console := Console(width=120)).capture() as printed:
        print_card(card, console, verbose=True)
    assert "accuracy against people" in printed.get()
    (line,) = failures(card, [parse("node-accuracy<0.6")])
    assert "node 'Tone': 50.0 %" in line


def test_answers_to_another_definition_of_a_node_do_not_count(labels: Path) -> None:
    changed = Counterfactual(support_metric("Is there a concrete step?"))
    assert set(HumanLabels(cases(4), labels).walked(changed)) == {"Kind", "Tone"}
    assert HumanLabels(cases(9)[5:], labels).walked(changed) == {"Kind": {}, "Tone": {}}


def test_a_rating_counts_as_the_nearest_of_its_scale(tmp_path: Path) -> None:
    """People and judge rate kindness by the points from 0 to 10; the judge says 8 of them."""
    said = but(("Tone", "answer", "apologetic"))
    folder = record(tmp_path / "run", said, over=2)
    with OpenRun(folder) as run:
        labelling = Labelling(run)
        for place, points in ((0, 8), (1, 7)):
            at = At("Ana", "Support quality", place)
            for node, choice in (("Kind", 1), ("Next step", 1), ("Tone", 3)):
                labelling.answer(at, node, choice)
            labelling.answer(at, "Empathy", points + 1)
    metric = support_metric()
    seen = repeat(cases(2), [metric], model=judge_of(said), times=2)
    card = make_card(seen, [metric], cases(2), ["scripted"], labels=folder / LABELS)
    nodes = {one.node: one.people for one in card.metrics[0].settings[0].nodes}
    assert nodes["Empathy"] is not None
    assert (nodes["Empathy"].value, nodes["Empathy"].items) == (0.5, 2)


def test_labels_given_to_another_tree_are_left_out_and_said(labels: Path) -> None:
    changed = support_metric("Is there a concrete step?")
    tie = "1 case left out: as many people say one label as another"
    assert check_labels([support_metric()], cases(4), labels) == [tie]
    (line,) = check_labels([changed], cases(4), labels)
    assert line.startswith("5 of 5 labels left out: given to another definition")
    with pytest.raises(InputError, match="no finished walk on a case of this data set"):
        check_labels([support_metric()], cases(9)[5:], labels)


def test_nodes_that_stayed_are_held_against_people_where_the_tree_is_another(labels: Path) -> None:
    changed = support_metric("Is there a concrete step?")
    seen = repeat(cases(4), [changed], model=judge_of(SAID), times=2)
    under = make_card(seen, [changed], cases(4), ["it"], labels=labels).metrics[0].settings[0]
    assert {one.node for one in under.nodes if one.people is not None} == {"Kind", "Tone"}
    assert str(answers(under)[3]) == (
        "Not known: no finished walk fits the current definition of the metric."
    )
