"""RewardBench 2 as recorded: published figures, both rules for ties, and the cascade by margin."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest
import replay_rewardbench2
from recordings import DATA_VARIABLE, data_directory, how_to_get
from replays import rewardbench2
from replays.rewardbench2 import Scored, cascade, figures, gain, in_common, is_there, load, per_cent

from dagengine.reliability.statistics.intervals import Interval

needs_data = pytest.mark.skipif(not is_there(data_directory()), reason=how_to_get(data_directory()))
GPT = "base_both_k8", "gpt-5.4"


@cache
def recorded() -> dict[tuple[str, str], Scored]:
    return load(data_directory())


@needs_data
def test_figures_are_the_published_ones() -> None:
    for wanted, ours in figures(recorded()):
        assert round(ours, 2) == pytest.approx(wanted.value, abs=wanted.within + 1e-9), wanted


@needs_data
def test_an_item_is_named_by_its_subset_too() -> None:
    items = recorded()[GPT].items
    assert len(set(items)) == 1730
    assert len({name for _, name in items}) < 1730


@needs_data
@pytest.mark.parametrize(
    ("judge", "wrong", "share"),
    [
        (GPT, [71.7, 77.3, 78.4, 79.4, 81.5], [79.7, 81.8, 82.2, 82.5, 83.3]),
        (("base_both_k8", "gpt-5.4-mini"), [64.8, 73.0, 74.8, 76.8, 79.2],
         [74.4, 78.5, 78.9, 79.6, 80.8]),
        (replay_rewardbench2.HAIKU, [72.3, 78.9, 80.7, 82.1, 84.8], [79.6, 83.1, 83.8, 84.4, 85.9]),
    ],
)  # fmt: skip
def test_both_rules_for_ties_give_the_noted_figures(
    judge: tuple[str, str], wrong: list[float], share: list[float]
) -> None:
    picks = [recorded()[judge].picks(scores) for scores in (1, 2, 3, 4, 8)]
    assert [round(per_cent(each.wrong), 1) for each in picks] == wrong
    assert [round(per_cent(each.share), 1) for each in picks] == share


@needs_data
def test_most_of_what_eight_scores_buy_is_that_means_tie_less_often() -> None:
    first, last = recorded()[GPT].picks(1), recorded()[GPT].picks(8)
    for before, after, value, low, high in (
        (first.wrong, last.wrong, 9.8, 8.3, 11.3),
        (first.share, last.share, 3.6, 2.4, 4.6),
    ):
        bounds = gain(before, after).interval
        assert isinstance(bounds, Interval)
        ends = [100 * end for end in (bounds.value, bounds.low, bounds.high)]
        assert ends == pytest.approx([value, low, high], abs=0.15)
    assert [round(per_cent(each.tied), 1) for each in (first, last)] == [20.4, 4.5]


@needs_data
def test_the_cascade_is_better_than_both_judges_and_than_chance() -> None:
    haiku, sonnet = (recorded()[key] for key in (replay_rewardbench2.HAIKU,
                                                 replay_rewardbench2.SONNET))  # fmt: skip
    assert len(in_common(haiku, sonnet)) == 1763
    made = cascade(haiku, sonnet, (3, 8))
    assert made.margin == pytest.approx(2 / 3)
    assert 100 * made.there == pytest.approx(86.6, abs=0.05)
    assert 100 * (made.right - made.large) == pytest.approx(2.1, abs=0.15)
    assert 100 * made.random == pytest.approx(84.0, abs=0.15)


def test_a_margin_that_says_nothing_gains_nothing_over_chance() -> None:
    random = np.random.default_rng(1)
    items = [("s", str(place)) for place in range(2000)]

    def judge(right: float) -> Scored:
        best = np.where(random.random(2000) < right, 0, 1)
        scores = np.ones((2000, 4, 8))
        scores[np.arange(2000), best] += random.integers(1, 4, 2000)[:, None]
        return Scored(items, scores)

    made = cascade(judge(0.8), judge(0.8), (1, 1))
    assert abs(made.right - made.random) < 0.01


@needs_data
def test_the_script_prints_every_table_and_says_that_all_is_met(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert replay_rewardbench2.main() == 0
    printed = capsys.readouterr().out
    assert "published figures met: 11 of 11" in printed
    assert "less noise" in printed


@needs_data
def test_a_figure_that_is_not_met_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    wanted = rewardbench2.PUBLISHED[0]
    missed = rewardbench2.Published(wanted.collection, wanted.judge, 1, wanted.value + 0.2)
    monkeypatch.setattr(rewardbench2, "PUBLISHED", (missed,))
    assert replay_rewardbench2.main() == 1


def test_without_the_data_the_script_says_how_to_get_the_data(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv(DATA_VARIABLE, "nowhere")
    assert replay_rewardbench2.main() == 2
    assert DATA_VARIABLE in capsys.readouterr().err
