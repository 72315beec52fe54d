"""Comparisons of runs that are open, as the page asks for them."""

from __future__ import annotations

from pathlib import Path

from folders.runs import but, cases, judge_of, record, support_metric, usual

from dagengine.reliability import repeat
from dagengine.reliability.card import make_card
from dagengine.view.compared_runs import Comparisons, OpenRun, history


def test_a_comparison_is_kept_and_says_what_the_card_foretells(tmp_path: Path) -> None:
    metric = support_metric()
    seen = repeat(cases(3), [metric], model=judge_of(usual), times=2)
    comparisons = Comparisons(make_card(seen, [metric], cases(3), ["scripted"]))
    folders = [
        record(tmp_path / "a"), record(tmp_path / "b", but(("Tone", "answer 1", "rude")))
    ]  # fmt: skip
    with OpenRun(folders[0]) as old, OpenRun(folders[1]) as new:
        found = comparisons.changes(old, new)
        assert comparisons.changes(old, new) is found
        (metric_changes,) = found["metrics"]
        assert metric_changes["flips"] == 1
        assert metric_changes["noise"]["words"].startswith(
            "not more flips than asking again alone would give (the card: 0.0 % of cases flip"
        )
        assert comparisons.changes(new, new)["agrees"]
        for _ in range(9):  # the latest stay, also when there are many
            comparisons.changes(old, old)
        assert comparisons.changes(old, new) is found
        assert [line["passed"] for line in history([old, new])] == [4, 3]
