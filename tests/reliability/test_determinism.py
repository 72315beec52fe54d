"""What recorded judges show of themselves, computed by repeating them: the reference values."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from pathlib import Path

import determinism
import pytest
from determinism import is_there, met, met_figures
from label_agreement import agreement
from recordings import DATA_VARIABLE, Folder, data_directory, how_to_get, key
from replays import determinism_figures, determinism_sources, llmbar
from replays.determinism_figures import (
    REFERENCE,
    Position,
    Repeatability,
    llmbar_reference,
    position,
    repeatability,
)
from replays.determinism_sources import (
    CHOICES,
    pairwise,
    recorded_judge,
    repeat_pairs,
    rubric_rating,
)

from dagengine import compile_metrics
from dagengine.metrics import DAGMetric
from dagengine.reliability import repeat
from dagengine.test_case import ArenaTestCase, LLMTestCase

needs_data = pytest.mark.skipif(not is_there(data_directory()), reason=how_to_get(data_directory()))


def of_one_judge(directory: Path) -> llmbar.Recording:
    whole = llmbar.load(directory)
    own = {name: one for name, one in whole.protocols.items() if name.startswith("GPT-4/")}
    return replace(whole, protocols=own)


def reference_of_one_judge(directory: Path) -> dict[str, float]:
    wanted = llmbar_reference(directory).items()
    return {name: value for name, value in wanted if name.startswith("llmbar/GPT-4/")}


@pytest.fixture(scope="module", autouse=True)
def one_judge_of_llmbar() -> Iterator[None]:
    """All judges of LLMBar are replayed where the published figures are proved."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(determinism_sources, "load_llmbar", of_one_judge)
        patch.setattr(determinism, "llmbar_reference", reference_of_one_judge)
        yield


# Every recording is repeated once; the script prints what the tests look at.
of_llmbar = cache(determinism_figures.of_llmbar)
of_mtbench = cache(determinism_figures.of_mtbench)
of_pairs = cache(determinism_figures.of_pairs)
of_pandalm = cache(determinism_figures.of_pandalm)
of_prometheus = cache(determinism_figures.of_prometheus)


def pairs() -> tuple[dict[str, Repeatability], dict[str, Position]]:
    return of_pairs(data_directory())


# With the recorded data.


@needs_data
def test_repeated_calls_show_the_reference_values() -> None:
    found = {**of_prometheus(data_directory()), **of_mtbench(data_directory()), **pairs()[0]}
    assert found.keys() == REFERENCE.keys()
    for name, ours in found.items():
        assert ours.meets(REFERENCE[name]), (name, ours)
    assert met(found) == (11, 11)


@needs_data
@pytest.mark.parametrize("protocol", CHOICES)
def test_every_recorded_choice_is_the_stored_verdict_in_both_orders(protocol: str) -> None:
    folder = Folder(data_directory() / "position_bias_rep3")
    rows = folder.judgements(protocol)
    seen = repeat_pairs(folder, protocol)
    places = {name: n for n, name in enumerate(dict.fromkeys(row["item"] for row in rows))}
    ours = {
        (o.case, o.condition.judge, o.condition.order, o.condition.sample): o.verdict
        for o in seen
        if o.node == "verdict"
    }
    orders = {"AB": "given", "BA": "swapped"}
    stored = {
        (places[row["item"]], row["judge"]["model"], orders[call["order"]], call["sample"]):
            {"tie": "C"}.get(call.get("verdict"), call.get("verdict"))
        for row in rows
        for call in row["calls"]
    }  # fmt: skip
    assert ours == stored
    assert seen.totals.calls == len(stored)


@needs_data
def test_positions_are_those_of_both_orders() -> None:
    positions = pairs()[1]
    assert {one.comparisons for one in positions.values()} == {288, 216}
    # Claude 3 Haiku all but always takes the second response of a pair of designs.
    worst = positions["position_bias/DevBench/claude-3-haiku-20240307"]
    assert worst.consistent is not None
    assert worst.first is not None
    assert worst.consistent < 0.2
    assert worst.first < 0.02


@needs_data
def test_llmbar_shows_the_published_accuracies_and_agreements() -> None:
    figures, labelled = of_llmbar(data_directory())
    published = reference_of_one_judge(data_directory())
    assert figures.keys() == published.keys()
    assert met_figures(figures, published) == (20, 20)
    for name, one in labelled.items():
        assert one.accuracy * 100 == pytest.approx(figures[f"{name}/acc_average"])
        assert one.kappa is not None


@needs_data
def test_agreement_with_people_comes_with_chance_and_the_commonest_label() -> None:
    found = of_pandalm(data_directory())["pandalm"]
    assert (found.items, round(found.accuracy, 4)) == (999, 0.6677)
    assert found.kappa is not None
    assert found.kappa < found.accuracy
    assert found.baseline < found.accuracy


@needs_data
def test_the_script_prints_every_table_and_succeeds(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for repeated in (of_llmbar, of_mtbench, of_pairs, of_pandalm, of_prometheus):
        monkeypatch.setattr(determinism, repeated.__name__, repeated)
    assert determinism.main() == 0
    printed = capsys.readouterr().out
    assert "reference values of repeated calls met: 11 of 11" in printed
    assert "reference values of LLMBar met: 20 of 20" in printed
    assert all(name in printed for name in REFERENCE)


# Without it.


def test_the_script_says_what_is_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv(DATA_VARIABLE, str(tmp_path))
    assert determinism.main() == 2
    assert capsys.readouterr().err == f"{how_to_get(tmp_path)}\n"


@pytest.mark.parametrize("metric", [*map(pairwise, CHOICES), rubric_rating()])
def test_graphs_compile_without_warnings(metric: DAGMetric) -> None:
    assert compile_metrics([metric]).warnings == ()


def test_a_recorded_judge_answers_by_prompt_and_repetition_in_both_orders() -> None:
    case = ArenaTestCase(
        name="it",
        contestants={n: LLMTestCase(input="q", actual_output=f"by {n}") for n in "AB"},
    )
    texts = {
        key("it: by A\n\nor\n\nby B", 0): "Choice: A",
        key("it: by A\n\nor\n\nby B", 1): "Choice: B",
        key("it: by B\n\nor\n\nby A", 0): "Choice: A",
        key("it: by B\n\nor\n\nby A", 1): "None.",
    }
    seen = repeat([case], [pairwise("DevBench/option2")], times=2, orders=("given", "swapped"),
                  model=recorded_judge(texts))  # fmt: skip
    assert seen.table("pairwise", "verdict") == [["A", "B", "B", None]]


def test_repeatability_counts_what_is_missing_as_a_vote_of_its_own() -> None:
    found = repeatability([["A", "A", None], ["A", "A", "A"]], [["x", "y", "z"], ["x", "x", "x"]])
    assert found == Repeatability(2, 0.5, (2 / 3 + 1) / 2, (1 - 1 / 3) / 2, 0.5)


def test_a_reference_is_met_to_three_decimals_in_all_it_says() -> None:
    reference = Repeatability(2, 0.5, 0.833, 0.333)
    assert Repeatability(2, 0.5, 0.83333, 0.33349, 1.0).meets(reference)
    assert not Repeatability(2, 0.5, 0.83333, 0.33351).meets(reference)
    assert not Repeatability(3, 0.5, 0.83333, 0.33333).meets(reference)
    assert not Repeatability(2, None, 0.83333, 0.33333).meets(reference)


def test_positions_that_differ_are_those_of_a_preferred_place() -> None:
    given, swapped = [["A", "A", "B", "C", None]], [["A", "B", "A", "A", None]]
    assert position(given, swapped) == Position(5, 0.2, 0.5)


def test_kappa_is_what_is_left_of_accuracy_beyond_chance() -> None:
    found = agreement([("A", "A"), ("A", "B"), ("B", "B"), ("B", "B")])
    assert (found.items, found.accuracy, found.kappa, found.baseline) == (4, 0.75, 0.5, 0.5)
    assert agreement([("A", "A"), ("A", "A")]).kappa is None
