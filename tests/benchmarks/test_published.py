"""Recorded judges of other projects as graphs: their published figures from their own calls."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import replay_published
from recordings import (
    DATA_VARIABLE,
    Folder,
    data_directory,
    first_token,
    how_to_get,
    key,
    likeliest,
)
from replays import published
from replays.published import digits_of, is_reference, is_there, same
from replays.published_graphs import (
    Ranked,
    Ranking,
    agreement,
    comparison,
    faithfulness,
    first_wins,
    metric,
    preference,
    ranked_preference,
    relevance,
    rubric_metrics,
    shown_order,
    stated_rating,
    token_preference,
)
from replays.replaying import Check, Replay, judged, made_of

from dagengine import compile_metrics
from dagengine.judges import Recording
from dagengine.metrics import FaithfulnessMetric
from dagengine.metrics.common.base import DrawnMetric
from dagengine.metrics.dag import BaseNode, CodeNode, TaskNode
from dagengine.question import TokenChoice
from dagengine.results import MetricResult, OutcomeKind
from dagengine.test_case import ArenaTestCase, LLMTestCase

SOURCES = list(published.REPLAYS)
CALLS = {
    "faithfulness": 989,
    "relevance": 300,
    "rubric": 2007,
    "tokens": 4011,
    "rankings": 803,
    "mtbench": 650,
    "prometheus": 960,
    "pandalm": 999,
}

needs_data = pytest.mark.skipif(not is_there(data_directory()), reason=how_to_get(data_directory()))
per_source = pytest.mark.parametrize("source", SOURCES)


@cache
def replayed(source: str) -> Replay:
    folder, replay = published.REPLAYS[source]
    return replay(recorded(folder))


@cache
def wanted() -> dict[str, float]:
    return published.published(data_directory())


def recorded(folder: str) -> Folder:
    return Folder(data_directory() / folder)


# With the recorded data.


@needs_data
def test_every_published_figure_is_computed_and_nothing_else() -> None:
    ours = {name for source in SOURCES for name in replayed(source).figures}
    assert ours == wanted().keys()
    assert sum(map(is_reference, ours)) == 12
    stored = json.loads((data_directory() / "EXPECTED.json").read_text(encoding="utf-8"))
    others = {name for name in stored if not name.startswith("llmbar/")}
    assert {name for name in ours if not is_reference(name)} == others
    assert len(others) == 30


@needs_data
@per_source
def test_figures_are_the_published_ones(source: str) -> None:
    for name, ours in replayed(source).figures.items():
        assert same(ours, wanted()[name], digits_of(name)), (name, ours, wanted()[name])


@needs_data
@per_source
def test_every_record_is_the_stored_one(source: str) -> None:
    for name, check in replayed(source).checks.items():
        assert check.equal == check.of > 0, name


@needs_data
@per_source
def test_every_recorded_call_is_used_and_nothing_else_is_asked(source: str) -> None:
    done = replayed(source)
    assert done.failures == ()
    assert done.asked.keys() == done.recorded
    assert len(done.recorded) == CALLS[source]
    # Only LLM-Rubric's calls are read twice: as they stand, and weighted.
    assert set(done.asked.values()) == {2 if source == "rubric" else 1}
    assert done.complete


@needs_data
def test_numbers_of_records() -> None:
    checks = {name: c.of for source in SOURCES for name, c in replayed(source).checks.items()}
    assert checks["wikieval/faithfulness"] == 100
    assert checks["wikieval/statement verdicts"] == 889
    assert checks["wikieval/weighted scores (within 0.002)"] == 300
    assert checks["mtbench/ratings"] == 650
    assert checks["prometheus/ratings"] == 960
    assert checks["pandalm/verdicts"] == 999
    compared = [count for name, count in checks.items() if name.endswith("/preferences")]
    assert sorted(compared) == [803, 805, 805, 805, 805, 805]


@needs_data
def test_answers_without_a_call_are_those_that_equal_the_baseline() -> None:
    folder = recorded("alpaca_eval")
    items, rows = folder.items(), folder.judgements()
    equal = {
        row["id"]
        for row in rows
        if len({answer["text"] for answer in items[row["item"]]["responses"].values()}) == 1
    }
    assert equal == {row["id"] for row in rows if not row["calls"]}
    assert len(equal) == 14


@needs_data
def test_the_order_drawn_is_the_recorded_one_but_for_a_ranking_without_a_second() -> None:
    # That record's order seems to have been inferred from its preference: the source's other
    # judges saw the same two answers in the order drawn, and only it explains the preference.
    folder = recorded("alpaca_eval")
    items = folder.items()
    calls = [(row, call) for row in folder.judgements() for call in row["calls"]]
    other = [
        (row, call)
        for row, call in calls
        if shown_order(items[row["item"]]["input"]) != call["order"]
    ]
    assert len(calls) == 4814
    assert len(other) == 1
    ranks = [entry["rank"] for entry in json.loads(other[0][1]["text"])["ordered_models"]]
    assert ranks == [1, 1]
    assert other[0][0]["result"]["preference"] == 1


@needs_data
def test_the_script_prints_one_table_and_succeeds(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    done = [replayed(source) for source in SOURCES]
    monkeypatch.setattr(replay_published, "replays", lambda directory: done)
    assert replay_published.main() == 0
    printed = capsys.readouterr().out
    assert "figures equal to the published ones: 30 of 30" in printed
    assert "reference values of the recordings met: 12 of 12" in printed
    assert "recorded calls used: 10719 of 10719" in printed
    assert all(what in printed for what in published.IMPOSSIBLE)
    computed = [line for line in printed.splitlines() if " yes " in line]
    assert len(computed) == 42 + 14
    assert all("DAGMetric: " in line or "GEval: " in line for line in computed)


@needs_data
@pytest.mark.parametrize("value", [66.78, None])
def test_the_script_fails_when_a_figure_differs_or_is_missing(
    value: float | None, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    name = "pandalm/WeOpenML/PandaLM-7B-v1/accuracy"
    done = [replayed(source) for source in SOURCES]
    other = {key: figure for key, figure in wanted().items() if key != name}
    monkeypatch.setattr(replay_published, "replays", lambda directory: done)
    monkeypatch.setattr(
        replay_published,
        "published",
        lambda directory: other if value is None else {**other, name: value},
    )
    assert replay_published.main() == 1
    assert ("66.78" if value else "none") in capsys.readouterr().out


Edit = Callable[[dict[str, Any]], None]


_FIRST = {"relevance": "direct_score_imperative_1-5", "rankings": "alpaca_eval_cot_gpt4_turbo_fn"}
"""The protocol that is replayed where it is not the first of its folder."""


def edited(tmp_path: Path, folder: str, edit: Edit, protocol: str) -> Folder:
    """A folder of some hundred items in which the first judgement of a protocol was changed."""
    copy = tmp_path / folder
    copy.mkdir()
    rows = recorded(folder).rows("judgements")
    edited_row = next(row for row in rows if row["protocol"].startswith(protocol) and row["calls"])
    edit(edited_row)
    items = {row["id"]: row for row in recorded(folder).rows("items")}
    judged_items = list(dict.fromkeys(row["item"] for row in rows))
    kept = {edited_row["item"], *judged_items[:: max(len(judged_items) // 100, 1)]}
    parents = {items[name].get("parent") for name in kept}
    for kind, part in (
        ("judgements", [row for row in rows if row["item"] in kept]),
        ("items", [row for name, row in items.items() if name in kept | parents]),
    ):
        lines = (json.dumps(row) for row in part)
        (copy / f"{kind}.jsonl").write_text("\n".join(lines), encoding="utf-8")
    return Folder(copy)


@needs_data
@per_source
def test_an_unreadable_call_fails_and_nothing_else_does(source: str, tmp_path: Path) -> None:
    def garble(row: dict[str, Any]) -> None:
        call = row["calls"][-1]
        call.update(text="[error]", top_logprobs={"The": -0.1}, token_probs={"[": 1.0}, score="x")

    folder, replay = published.REPLAYS[source]
    done = replay(edited(tmp_path, folder, garble, _FIRST.get(source, "")))
    differing = {c.of - c.equal for c in done.checks.values()}
    assert not done.complete
    # PandaLM counts what cannot be read as a tie; MT-Bench's failures are to be expected.
    assert len(done.failures) <= 2
    assert bool(done.failures) is (source not in ("pandalm", "mtbench"))
    assert max(differing) <= 20
    assert any(differing)


# Without it.


def test_the_script_says_what_is_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv(DATA_VARIABLE, str(tmp_path))
    assert replay_published.main() == 2
    assert capsys.readouterr().err == f"{how_to_get(tmp_path)}\n"


METRICS: list[DrawnMetric] = [
    faithfulness(),
    *(relevance(scale) for scale in ("1-5", "1-10", "0-1")),
    *rubric_metrics(),
    preference(token_preference),
    preference(ranked_preference),
    stated_rating(0),
    agreement(),
    comparison(),
]


@pytest.mark.parametrize("metric", METRICS, ids=lambda metric: metric.__name__)
def test_graphs_compile_without_warnings(metric: DrawnMetric) -> None:
    assert compile_metrics([metric]).warnings == ()


@pytest.mark.parametrize("metric", METRICS, ids=lambda metric: metric.__name__)
def test_all_nodes_are_the_products_own(metric: DrawnMetric) -> None:
    modules = {type(node).__module__ for node in metric.spec().graph.nodes()}
    assert all(module.startswith("dagengine.") for module in modules)


CASE = LLMTestCase(name="it", input="Why?", actual_output="So.")
Calls = Mapping[str, str | Recording]


def result(metric: DrawnMetric, calls: Calls, case: Any = CASE) -> MetricResult:
    done = judged([case], [metric], {key(name): call for name, call in calls.items()})
    return done.results(metric.__name__)["it"]


def arena(first: str, second: str, instruction: str = "Why?") -> ArenaTestCase:
    contestants = {
        name: LLMTestCase(input=instruction, actual_output=text)
        for name, text in (("A", first), ("B", second))
    }
    return ArenaTestCase(name="it", contestants=contestants)


def test_faithfulness_is_the_share_of_supported_statements() -> None:
    calls = {
        "the statements of it": 'Here you are:\n["It is {name}.", "It is not."]\nDone.',
        "it: It is {name}.": "Verdict: 1",
        "it: It is not.": "Verdict: 0\n\nBecause it is.",
    }
    assert result(faithfulness(), calls).score == 0.5


def test_what_is_whole_of_a_list_of_statements_that_was_cut_off_counts() -> None:
    calls = {"the statements of it": '["It is.", "It is n', "it: It is.": "Verdict: 1"}
    assert result(faithfulness(), calls).score == 1


def test_an_answer_without_statements_is_no_score() -> None:
    calls = {"the statements of it": "I cannot do that."}
    assert result(faithfulness(), calls).outcome is OutcomeKind.UNPARSEABLE


def test_relevance_is_weighted_over_whole_tokens() -> None:
    call = likeliest({"1": 0.25, "10": 0.75}, "10\n\n  Explanation: 3 of 4")
    found = result(relevance("1-10"), {"1-10 of it": call})
    assert found.mode == "weighted"
    assert found.score == pytest.approx((0.25 * 1 + 0.75 * 10 - 1) / 9)


def test_the_answer_as_it_stands_and_the_expected_one_are_read_from_one_call() -> None:
    metrics = [one for one in rubric_metrics() if one.__name__.endswith("Q0")]
    call = likeliest({"1": 0.0, "2": 0.7, "3": 0.3})
    done = judged([CASE], metrics, {key("Q0 of it"): call})
    scores = {name: done.results(name)["it"].score for name in ("argmax Q0", "Q0")}
    assert scores == {"argmax Q0": pytest.approx(1 / 3), "Q0": pytest.approx(1.3 / 3)}


def test_the_likeliest_token_stands_for_a_text_that_was_not_kept() -> None:
    call = likeliest({"1": 0.0, "2": 0.7, "3": 0.3})
    assert call.text == "2"
    assert call.tokens is not None
    assert call.tokens[0].token == "2"
    assert dict(call.tokens[0].alternatives)["1"] == -math.inf
    # Of 1 and 10 the longer one is the token that 10 begins with.
    assert likeliest({"1": 0.9, "10": 0.1}, "10 points").tokens == (
        TokenChoice("10", (("1", math.log(0.9)), ("10", math.log(0.1)))),
        TokenChoice(" points", ()),
    )


def one_token(shares: Mapping[str, float], text: str = "Neither") -> Recording:
    return first_token(text, text, {name: math.log(share) for name, share in shares.items()})


def test_a_preference_is_what_the_first_token_says() -> None:
    shown_first = metric("token", token_preference("AB"))

    def found(call: Recording) -> MetricResult:
        return result(shown_first, {"the better one of it as one token": call})

    assert found(one_token({"Neither": 0.6, "m": 0.1, "M": 0.3})).score == pytest.approx(0.75)
    assert found(one_token({"M": 0.01})).score == 1
    assert found(one_token({"M": 0.5, "M ": 0.004, '"m': 0.004}, text="M")).score == 1
    assert found(one_token({"M ": 1.0})).outcome is OutcomeKind.UNPARSEABLE
    assert found(Recording("Neither")).outcome is OutcomeKind.UNPARSEABLE


INSTRUCTIONS = {order: next(t for t in map(str, range(99)) if shown_order(t) == order) for order in
                ("AB", "BA")}  # fmt: skip


@pytest.mark.parametrize(("order", "score"), [("AB", 0.75), ("BA", 0.25)])
def test_a_preference_is_the_models_in_both_orders(order: str, score: float) -> None:
    calls = {"the better one of it as one token": one_token({"m": 0.2, "M": 0.6}, "M")}
    case = arena("no", "yes", INSTRUCTIONS[order])
    assert result(preference(token_preference), calls, case).score == pytest.approx(score)


@pytest.mark.parametrize(("order", "score"), [("AB", 0), ("BA", 1)])
def test_a_ranking_is_read_in_both_orders(order: str, score: float) -> None:
    ranks = [{"model": "M", "rank": 2}, {"model": "m", "rank": 1}]
    text = json.dumps({"concise_explanation": "So.", "ordered_models": ranks})
    case = arena("no", "yes", INSTRUCTIONS[order])
    calls = {"the ranks in it": text}
    assert result(preference(ranked_preference), calls, case).score == score


@pytest.mark.parametrize("compare", [token_preference, ranked_preference])
def test_nobody_is_asked_about_two_equal_answers(compare: Callable[[str], BaseNode]) -> None:
    assert result(preference(compare), {}, arena("same", "same")).score == 0.5


def test_the_rank_of_the_first_answer_decides() -> None:
    both = [Ranked(model="m", rank=1), Ranked(model="M", rank=1)]
    neither = [Ranked(model="M", rank=2), Ranked(model="m", rank=2)]
    assert first_wins(Ranking(concise_explanation="", ordered_models=both))
    assert not first_wins(Ranking(concise_explanation="", ordered_models=neither))


@pytest.mark.parametrize(("text", "score"), [("Rating: [[8.5]] [1]", 7.5 / 9), ("[8]", None)])
def test_numbers_in_prose(text: str, score: float | None) -> None:
    assert result(stated_rating(0), {"Why?": text}).score == score


def test_repetitions_have_recordings_of_their_own() -> None:
    calls = {key("Why?", n): f"Good. [RESULT] {score}" for n, score in enumerate((5, 4, 5))}
    done = judged([CASE], [agreement()], calls)
    assert done.results("agreement")["it"].score == pytest.approx(2 / 3)
    assert done.asked == dict.fromkeys(calls, 1)


@pytest.mark.parametrize(
    ("text", "score"), [("1\n\n### Reason: 2", 1), ("2", 0), ("0", 0.5), ("", 0.5), ("12", 0.5)]
)
def test_verdicts_of_pandalm(text: str, score: float) -> None:
    assert result(comparison(), {"it": text}, arena("no", "yes")).score == score


def test_a_question_without_a_recording_is_a_failure() -> None:
    done = judged([CASE], [relevance("1-5")], {})
    assert len(done.failures()) == 1
    assert "nothing was recorded" in done.failures()[0]


def test_figures_are_equal_as_far_as_they_were_printed() -> None:
    assert same(0.12344, 0.1234, 4)
    assert not same(0.12351, 0.1234, 4)
    assert not same(None, 0.1, 4)
    assert not same(0.1, None, 4)


def test_a_replay_is_complete_only_with_equal_records() -> None:
    assert Replay("any", checks={"ratings": Check(3, 3)}).complete
    assert not Replay("any", checks={"ratings": Check(2, 3)}).complete
    assert not Replay("any", recorded=frozenset({"a"})).complete
    assert not Replay("any", asked={"a": 1}).complete
    assert not Replay("any", failures=("a",)).complete


def test_a_metric_is_told_by_its_class_and_the_nodes_that_ask() -> None:
    asked = TaskNode("Rate it.", "rating", evaluation_params=["input"], output_type=float)
    assert made_of(metric("m", CodeNode(float, inputs=[asked]))) == "DAGMetric: TaskNode"
    assert (
        made_of(FaithfulnessMetric())
        == "FaithfulnessMetric: ClaimsNode, ExtractionNode, VerdictListNode"
    )
