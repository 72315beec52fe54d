"""Recorded judges of other projects as graphs: their published figures from their own calls."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import published
import pytest
import replay_published
from published import digits_of, is_reference, is_there, same
from published_graphs import (
    FirstTokenNode,
    PlainRatingNode,
    Ranked,
    Ranking,
    TextList,
    agreement_graph,
    faithfulness_graph,
    first_wins,
    number,
    preference_graph,
    ranked_preference,
    rating_graph,
    rubric_graphs,
    shown_order,
    stated,
    token_preference,
    verdict_graph,
)
from recordings import (
    DATA_VARIABLE,
    Call,
    CallJudge,
    Check,
    Folder,
    Replay,
    Run,
    data_directory,
    how_to_get,
    key,
    likeliest,
    run,
)

from dagengine import PromptTemplate, compile_metrics
from dagengine.errors import UnparseableError
from dagengine.metrics import DAGMetric
from dagengine.metrics.dag import DAG, BaseNode
from dagengine.question import TokenChoice
from dagengine.results import MetricResult, OutcomeKind
from dagengine.test_case import ArenaTestCase, LLMTestCase

FOLDERS = list(published.REPLAYS)
CALLS = {
    "wikieval_rag_chain": 1289,
    "llm_rubric_logprobs": 2007,
    "alpaca_eval": 4814,
    "mtbench_gpt4": 650,
    "prometheus_gpt4x3": 960,
    "pandalm": 999,
}

needs_data = pytest.mark.skipif(not is_there(data_directory()), reason=how_to_get(data_directory()))
per_folder = pytest.mark.parametrize("folder", FOLDERS)


@cache
def replayed(folder: str) -> Replay:
    return published.REPLAYS[folder](Folder(data_directory() / folder))


@cache
def wanted() -> dict[str, float]:
    return published.published(data_directory())


def recorded(folder: str) -> Folder:
    return Folder(data_directory() / folder)


# With the recorded data.


@needs_data
def test_every_published_figure_is_computed_and_nothing_else() -> None:
    ours = {name for folder in FOLDERS for name in replayed(folder).figures}
    assert ours == wanted().keys()
    assert sum(map(is_reference, ours)) == 12
    stored = json.loads((data_directory() / "EXPECTED.json").read_text(encoding="utf-8"))
    others = {name for name in stored if not name.startswith("llmbar/")}
    assert {name for name in ours if not is_reference(name)} == others
    assert len(others) == 30


@needs_data
@per_folder
def test_figures_are_the_published_ones(folder: str) -> None:
    for name, ours in replayed(folder).figures.items():
        assert same(ours, wanted()[name], digits_of(name)), (name, ours, wanted()[name])


@needs_data
@per_folder
def test_every_record_is_the_stored_one(folder: str) -> None:
    for name, check in replayed(folder).checks.items():
        assert check.equal == check.of > 0, name


@needs_data
@per_folder
def test_every_recorded_call_is_used_and_nothing_else_is_asked(folder: str) -> None:
    done = replayed(folder)
    assert done.failures == ()
    assert done.asked.keys() == done.recorded
    assert len(done.recorded) == CALLS[folder]
    # Only LLM-Rubric's calls are read twice: as they stand, and weighted.
    assert set(done.asked.values()) == {2 if folder == "llm_rubric_logprobs" else 1}
    assert done.complete


@needs_data
def test_numbers_of_records() -> None:
    checks = {name: c.of for folder in FOLDERS for name, c in replayed(folder).checks.items()}
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
def test_the_script_prints_one_table_and_succeeds(capsys: pytest.CaptureFixture[str]) -> None:
    assert replay_published.main() == 0
    printed = capsys.readouterr().out
    assert "figures equal to the published ones: 30 of 30" in printed
    assert "reference values of the recordings met: 12 of 12" in printed
    assert "recorded calls used: 10719 of 10719" in printed
    assert all(what in printed for what in published.IMPOSSIBLE)


@needs_data
@pytest.mark.parametrize("value", [66.78, None])
def test_the_script_fails_when_a_figure_differs_or_is_missing(
    value: float | None, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    name = "pandalm/WeOpenML/PandaLM-7B-v1/accuracy"
    done = [replayed(folder) for folder in FOLDERS]
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


def edited(tmp_path: Path, folder: str, edit: Edit) -> Folder:
    """A folder whose first judgement was changed."""
    source = data_directory() / folder
    copy = tmp_path / folder
    copy.mkdir()
    (copy / "items.jsonl").symlink_to(source / "items.jsonl")
    first, _, rest = (source / "judgements.jsonl").read_text(encoding="utf-8").partition("\n")
    row = json.loads(first)
    edit(row)
    (copy / "judgements.jsonl").write_text(f"{json.dumps(row)}\n{rest}", encoding="utf-8")
    return Folder(copy)


@needs_data
@per_folder
def test_an_unreadable_call_fails_and_nothing_else_does(folder: str, tmp_path: Path) -> None:
    def garble(row: dict[str, Any]) -> None:
        call = row["calls"][-1]
        call.update(text="[error]", top_logprobs={"The": -0.1}, token_probs={"x": 1.0}, score="x")

    done = published.REPLAYS[folder](edited(tmp_path, folder, garble))
    differing = {c.of - c.equal for c in done.checks.values()}
    assert not done.complete
    # PandaLM counts what cannot be read as a tie; MT-Bench's failures are to be expected.
    assert len(done.failures) <= 2
    assert bool(done.failures) is (folder not in ("pandalm", "mtbench_gpt4"))
    assert max(differing) <= 20
    assert any(differing)


# Without it.


def test_the_script_says_what_is_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv(DATA_VARIABLE, str(tmp_path))
    assert replay_published.main() == 2
    assert capsys.readouterr().err == f"{how_to_get(tmp_path)}\n"


GRAPHS: dict[str, BaseNode] = {
    "faithfulness": faithfulness_graph(),
    **{scale: rating_graph(scale) for scale in ("1-5", "1-10", "0-1")},
    **rubric_graphs(),
    "one token": preference_graph(token_preference),
    "ranking": preference_graph(ranked_preference),
    "number": stated(PromptTemplate("{input}"), r"(\d+)", 1, 10, ["input"]),
    "agreement": agreement_graph(),
    "verdict": verdict_graph(),
}


@pytest.mark.parametrize("name", GRAPHS)
def test_graphs_compile_without_warnings(name: str) -> None:
    assert compile_metrics([DAGMetric(name, DAG(GRAPHS[name]))]).warnings == ()


CASE = LLMTestCase(name="it", input="Why?", actual_output="So.")


def judged(root: BaseNode, calls: Mapping[str, Call], case: Any = CASE) -> MetricResult:
    done: Run = run([case], {"metric": root}, {key(name): call for name, call in calls.items()})
    return done.results("metric")["it"]


def arena(first: str, second: str, instruction: str = "Why?") -> ArenaTestCase:
    contestants = {
        name: LLMTestCase(input=instruction, actual_output=text)
        for name, text in (("A", first), ("B", second))
    }
    return ArenaTestCase(name="it", contestants=contestants)


def test_faithfulness_is_the_share_of_supported_statements() -> None:
    calls = {
        "the statements of it": Call('Here you are:\n["It is {name}.", "It is not."]\nDone.'),
        "it: It is {name}.": Call("Verdict: 1"),
        "it: It is not.": Call("Verdict: 0\n\nBecause it is."),
    }
    assert judged(faithfulness_graph(), calls).score == 0.5


def test_no_statements_cost_no_verdict() -> None:
    assert judged(faithfulness_graph(), {"the statements of it": Call("[]")}).score == 1


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ('["a", "b"]', ["a", "b"]),
        ('So:\n["a [1]", "\\u00e9"] - that is all.', ["a [1]", "é"]),
        ('["a \\"b\\""\n"c"]', ['a "b"', "c"]),
        ('["a", "b", "cut o', ["a", "b"]),
    ],
)
def test_lists_of_texts(text: str, found: list[str]) -> None:
    assert TextList()(text) == {"output": found}


def test_a_text_without_a_list_is_unparseable() -> None:
    with pytest.raises(UnparseableError, match="no list"):
        TextList()("I cannot do that.")


def test_a_plain_rating_is_weighted_over_whole_tokens() -> None:
    call = likeliest({"1": 0.25, "10": 0.75}, "10\n\n  Explanation: 3 of 4")
    result = judged(rating_graph("1-10"), {"it from 1-10": call})
    assert result.mode == "weighted"
    assert result.score == pytest.approx((0.25 * 1 + 0.75 * 10 - 1) / 9)


def test_a_plain_rating_without_probabilities_is_the_number() -> None:
    result = judged(rating_graph("1-5"), {"it from 1-5": Call("4 of 5")})
    assert result.score == 0.75
    assert result.mode == "raw (the judge gave no token probabilities)"


def test_a_plain_rating_that_is_not_one_token_is_not_weighted() -> None:
    call = Call("10", TokenChoice("1", (("1", -0.1), ("9", -2.0))))
    result = judged(rating_graph("1-10"), {"it from 1-10": call})
    assert result.score == 1
    assert result.mode is not None
    assert result.mode.startswith("raw")


def test_a_plain_rating_outside_its_scale_is_no_score() -> None:
    result = judged(rating_graph("1-5"), {"it from 1-5": Call("7")})
    assert result.score is None
    assert result.outcome is OutcomeKind.UNPARSEABLE


def test_the_likeliest_token_stands_for_a_text_that_was_not_kept() -> None:
    call = likeliest({"1": 0.0, "2": 0.7, "3": 0.3})
    assert call.text == "2"
    assert call.first is not None
    assert call.first.token == "2"
    assert dict(call.first.alternatives)["1"] == -math.inf
    # Of 1 and 10 the longer one is the token that 10 begins with.
    assert likeliest({"1": 0.9, "10": 0.1}, "10 points").first == TokenChoice(
        "10", (("1", math.log(0.9)), ("10", math.log(0.1)))
    )


def first_token(alternatives: Mapping[str, float]) -> Call:
    logs = tuple((token, math.log(share)) for token, share in alternatives.items())
    return Call("Neither", TokenChoice("Neither", logs))


def test_a_preference_is_what_the_first_token_says() -> None:
    node = FirstTokenNode(
        "?", {"m": 0.0, "M": 1.0}, evaluation_params=["name"], prompt=PromptTemplate("{name}")
    )
    both = {"it": first_token({"Neither": 0.6, "m": 0.1, "M": 0.3})}
    assert judged(node, both).score == pytest.approx(0.75)
    assert judged(node, {"it": first_token({"M": 0.01})}).score == 1
    assert judged(node, {"it": first_token({"M ": 1.0})}).outcome is OutcomeKind.UNPARSEABLE
    assert judged(node, {"it": Call("m")}).outcome is OutcomeKind.UNPARSEABLE


INSTRUCTIONS = {order: next(t for t in map(str, range(99)) if shown_order(t) == order) for order in
                ("AB", "BA")}  # fmt: skip


@pytest.mark.parametrize(("order", "score"), [("AB", 0.75), ("BA", 0.25)])
def test_a_preference_is_the_models_in_both_orders(order: str, score: float) -> None:
    calls = {"the better one of it as one token": first_token({"m": 0.2, "M": 0.6})}
    case = arena("no", "yes", INSTRUCTIONS[order])
    assert judged(preference_graph(token_preference), calls, case).score == pytest.approx(score)


@pytest.mark.parametrize(("order", "score"), [("AB", 0), ("BA", 1)])
def test_a_ranking_is_read_in_both_orders(order: str, score: float) -> None:
    ranks = [{"model": "M", "rank": 2}, {"model": "m", "rank": 1}]
    text = json.dumps({"concise_explanation": "So.", "ordered_models": ranks})
    case = arena("no", "yes", INSTRUCTIONS[order])
    graph = preference_graph(ranked_preference)
    assert judged(graph, {"the ranks in it": Call(text)}, case).score == score


@pytest.mark.parametrize("compare", [token_preference, ranked_preference])
def test_nobody_is_asked_about_two_equal_answers(compare: Callable[[str], BaseNode]) -> None:
    assert judged(preference_graph(compare), {}, arena("same", "same")).score == 0.5


def test_the_rank_of_the_first_answer_decides() -> None:
    both = [Ranked(model="m", rank=1), Ranked(model="M", rank=1)]
    neither = [Ranked(model="M", rank=2), Ranked(model="m", rank=2)]
    assert first_wins(Ranking(concise_explanation="", ordered_models=both))
    assert not first_wins(Ranking(concise_explanation="", ordered_models=neither))


@pytest.mark.parametrize(("text", "score"), [("Rating: [[8.5]] [1]", 7.5 / 9), ("[8]", None)])
def test_numbers_in_prose(text: str, score: float | None) -> None:
    graph = stated(PromptTemplate("{input}"), r"\[\[(\d+(?:\.\d+)?)\]\]", 1, 10, ["input"])
    assert judged(graph, {"Why?": Call(text)}).score == score


def test_repetitions_have_recordings_of_their_own() -> None:
    calls = {key("Why?", n): Call(f"Good. [RESULT] {score}") for n, score in enumerate((5, 4, 5))}
    done = run([CASE], {"agreement": agreement_graph()}, calls)
    assert done.results("agreement")["it"].score == pytest.approx(2 / 3)
    assert done.asked == dict.fromkeys(calls, 1)


@pytest.mark.parametrize(
    ("text", "score"), [("1\n\n### Reason: 2", 1), ("2", 0), ("0", 0.5), ("", 0.5), ("12", 0.5)]
)
def test_verdicts_of_pandalm(text: str, score: float) -> None:
    assert judged(verdict_graph(), {"it": Call(text)}, arena("no", "yes")).score == score


def test_a_question_without_a_recording_is_a_failure() -> None:
    done = run([CASE], {"rating": rating_graph("1-5")}, {})
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


def test_a_judge_that_replays_says_what_it_can() -> None:
    assert CallJudge({}).capabilities.logprobs
    assert not CallJudge({}).capabilities.repeatable


def test_parsers_and_nodes_say_what_they_are() -> None:
    assert repr(TextList()) == "TextList(field='output')"
    assert PlainRatingNode("Good?", prompt=PromptTemplate("?")).text == "Good?"
    assert number("x", "score").field == "score"
