"""Labels that people gave by walking the tree, as the benchmark takes them."""

from __future__ import annotations

from pathlib import Path

import pytest
from runs import but, cases, judge_of, record, support_metric

from dagengine.errors import InputError
from dagengine.record.labels import LABELS, LabelFile
from dagengine.reliability import repeat
from dagengine.reliability.card import make_card
from dagengine.reliability.card.build import check_labels
from dagengine.view.labelling import At, Labelling
from dagengine.view.opened import OpenRun

SAID = but(("Tone", "answer 1", "rude"), ("Next step", "answer 3", False))


@pytest.fixture
def labels(tmp_path: Path) -> Path:
    """Ana agrees with the judge but for case 2, Ben on case 0 alone does not."""
    folder = record(tmp_path / "run", SAID, over=4)
    with OpenRun(folder) as run:
        labelling = Labelling(run, LabelFile(folder / LABELS))
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


def test_labels_given_to_another_tree_are_left_out_and_said(labels: Path) -> None:
    changed = support_metric("Is there a concrete step?")
    assert check_labels([support_metric()], cases(4), labels) == []
    with pytest.raises(InputError, match="5 of 5 labels were given to another definition"):
        check_labels([changed], cases(4), labels)
    with pytest.raises(InputError, match="no finished walk on a case of this data set"):
        check_labels([support_metric()], cases(9)[5:], labels)
