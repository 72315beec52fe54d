"""What the card finds out about simulated judges; the benchmark's command counts in full."""

from __future__ import annotations

import re

import pytest

pytest.importorskip("scipy")

import recovered
from rows import Row, Trial, held
from simulated import drawn_cards, other_noise
from simulated.asked_cards import SCENARIOS, Scenario, recover
from typer.testing import CliRunner

SEEDS, CASES, TIMES = 6, 16, 5
OF_REPEATS = ("flip-rate", "score-flip-rate", "score-spread", "test-retest", "drift")
CHANGING = ("a step in the middle of the run", "drift and wrong labels")
NO_REPEATS = r"no interval: (perhaps )?(results|answers|runs?) "
DRAWN = {trial.name: trial for trial in drawn_cards.trials()}


@pytest.mark.parametrize("scenario", SCENARIOS, ids=[one.name for one in SCENARIOS])
def test_judges_that_are_asked_are_found_out(scenario: Scenario) -> None:
    for row in recover(scenario, SEEDS, CASES, TIMES):
        # A share of the noise that so few cases leave open is refused, with what it lies between.
        between = [list(map(float, re.findall(r"\d+", note))) for note in row.refused
                   if note.startswith("too few cases vary: it is between ")]  # fmt: skip
        assert not between or row.name.startswith("variance-share"), row.name
        # Too few cases for an interval is an answer, too, but not the usual one.
        assert row.known + len(between) >= SEEDS - 2, row.name
        inside = sum(low - 0.5 <= 100 * row.truth <= high + 0.5 for low, high in between)
        assert row.held + inside >= 0.8 * (row.known + len(between)), row.name
        if row.name.startswith("variance-share"):
            assert abs(row.bias) < 0.05


@pytest.mark.parametrize(
    "name",
    [
        "sure, 0.75 pass, 20x3",
        "all at .1, 0.5 pass, 10% of labels wrong, 3 people, 40x5",
        "sure, noisy and coins, 0.5 pass, drift of 0.1, 40x9",
        "a fifth coins, 0.75 pass, 10% lost, 40x5",
        "two judges, all at .1 and a fifth coins, 40x5",
    ],
)
def test_every_figure_of_a_drawn_card_holds_the_truth(name: str) -> None:
    for row in held(DRAWN[name], 3):
        assert row.known == 0 or row.share >= 0.5, row.name
        assert not row.fails, row.name


def test_noise_of_other_kinds_is_recovered_too() -> None:
    # What holds for repeats alone is refused where the runs are shown to be none.
    refused: dict[str, int] = {}
    for trial in other_noise.trials(step=5):
        for row in held(trial, 3):
            # What is undefined where all labels, or all scores, are one has no interval.
            undefined = row.name.startswith(("kappa", "baseline", "drift, always"))
            if row.name.startswith(OF_REPEATS) and any(kind in row.name for kind in CHANGING):
                assert row.known + len(row.refused) == 3, row.name
                assert all(re.match(NO_REPEATS, note) for note in row.refused), row.refused
                refused[row.name] = len(row.refused)
            else:
                assert row.known == 3 or undefined, row.name
            assert not row.known or row.share >= 0.5, row.name
    assert refused["flip-rate, a step in the middle of the run, 100x3"] > 2


def test_a_row_fails_only_where_luck_is_no_reason() -> None:
    def row(held: int) -> Row:
        return Row("a figure", 0.5, held, 300, 300, 0.1, 0.0)

    assert row(263).fails
    assert not row(264).fails
    assert not Row("not known", 0.5, 0, 0, 300, 0.1, 0.0).fails


def test_an_estimator_that_is_off_shows() -> None:
    from dagengine.reliability.statistics.intervals import Interval

    off = Trial("off", {"it": 0.5}, lambda _: {"it": Interval(0.7, 0.6, 0.8, 0.95, "t", 9)})
    (found,) = held(off, 30)
    assert found.share == 0
    assert found.fails
    assert found.bias == pytest.approx(0.2)


def test_the_command_refuses_a_table_it_does_not_know() -> None:
    import typer

    app = typer.Typer()
    app.command()(recovered.main)
    found = CliRunner().invoke(app, ["--only", "cads"])
    assert found.exit_code == 2
    assert "cads" in found.output
