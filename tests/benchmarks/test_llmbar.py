"""LLMBar's evaluator protocols as graphs: every published figure from the recorded calls alone."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import pytest
import replay_llmbar
from recordings import DATA_VARIABLE, data_directory, how_to_get
from replays.llmbar import Recording, Replay, is_there, load, replay, statistics
from replays.llmbar_graphs import (
    ORDERS,
    UNPARSED,
    Protocol,
    Stage,
    conflicting,
    explanation_for,
    higher,
    joined,
    metrics_for,
    prompt_template,
    swapped,
    verdict_reader,
)

from dagengine import compile_metrics, evaluate
from dagengine.judges import ScriptedJudge
from dagengine.metrics.dag import Judgement
from dagengine.question import Options
from dagengine.test_case import ArenaTestCase, LLMTestCase

PROTOCOLS = [
    f"{judge}/{kind}"
    for judge in ("GPT-4", "ChatGPT", "LLaMA2")
    for kind in ("Vanilla", "CoT", "Swap_CoT", "Metrics_Reference", "Rating")
    if (judge, kind) != ("LLaMA2", "Rating")
]

needs_data = pytest.mark.skipif(not is_there(data_directory()), reason=how_to_get(data_directory()))
per_protocol = pytest.mark.parametrize("protocol", PROTOCOLS)


@cache
def recorded() -> Recording:
    return load(data_directory())


@cache
def replayed(protocol: str) -> Replay:
    return replay(recorded(), protocol)


# With the recorded data.


@needs_data
def test_the_protocols_are_those_of_the_recording() -> None:
    assert list(recorded().protocols) == PROTOCOLS
    assert len(recorded().published) == 2 * 2 * len(PROTOCOLS) == 56


@needs_data
@per_protocol
def test_figures_are_the_published_ones(protocol: str) -> None:
    start = f"llmbar/{protocol}/"
    published = {k: v for k, v in recorded().published.items() if k.startswith(start)}
    assert len(published) == 4
    assert statistics(recorded(), replayed(protocol)) == published


@needs_data
@per_protocol
def test_every_recorded_call_is_used_exactly_once(protocol: str) -> None:
    done = replayed(protocol)
    assert done.failures == ()
    assert done.asked == dict.fromkeys(done.recorded, 1)
    assert done.questions == len(done.recorded)
    assert done.complete


@needs_data
@per_protocol
def test_every_winner_is_the_recorded_one(protocol: str) -> None:
    for run in recorded().runs_of(protocol):
        wanted = {order: run["result"].get(order, UNPARSED) for order in ORDERS}
        assert replayed(protocol).winners[run["item"]] == wanted


@needs_data
@per_protocol
def test_second_stage_prompts_have_the_recorded_hashes(protocol: str) -> None:
    done = replayed(protocol)
    assert done.matched == len(done.second_stage)
    assert bool(done.second_stage) == protocol.endswith("Swap_CoT")


@needs_data
@per_protocol
def test_a_template_survives_being_split_into_messages(protocol: str) -> None:
    for stage in recorded().protocols[protocol].stages.values():
        template = prompt_template(stage.template)
        unfilled = {name: f"{{{name}}}" for name in template.placeholders()}
        assert joined(template.fill(unfilled)) == stage.template


@needs_data
@per_protocol
def test_graphs_compile_without_warnings(protocol: str) -> None:
    assert compile_metrics(metrics_for(recorded().protocols[protocol])).warnings == ()


@needs_data
def test_totals() -> None:
    replays = [replayed(protocol) for protocol in PROTOCOLS]
    assert sum(done.matched for done in replays) == 372
    assert sum(done.questions for done in replays) == 8328
    assert sum(done.asked.total() for done in replays) == 8328


@needs_data
def test_the_script_prints_one_table_and_succeeds(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(replay_llmbar, "replay", lambda recording, protocol: replayed(protocol))
    assert replay_llmbar.main() == 0
    printed = capsys.readouterr().out
    assert "figures equal to the published ones: 56 of 56" in printed
    assert "matched by hash: 372 of 372" in printed
    assert "questions asked: 8328, calls recorded: 8328" in printed


@needs_data
def test_the_script_fails_when_a_figure_differs(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    protocol, figure = "GPT-4/Vanilla", "llmbar/GPT-4/Vanilla/Natural/agreement"
    other = {**recorded().published, figure: 12.5}
    one = {protocol: recorded().protocols[protocol]}
    changed = Recording(recorded().items, one, recorded().runs, other)
    monkeypatch.setattr(replay_llmbar, "load", lambda directory: changed)
    assert replay_llmbar.main() == 1
    assert "12.50" in capsys.readouterr().out


@needs_data
def test_a_call_without_its_recording_is_reported() -> None:
    run = next(iter(recorded().runs_of("GPT-4/Vanilla")))
    rest = tuple({**r, "calls": r["calls"][1:]} if r is run else r for r in recorded().runs)
    whole = recorded()
    done = replay(Recording(whole.items, whole.protocols, rest, whole.published), "GPT-4/Vanilla")
    assert not done.complete
    assert len(done.failures) == 1
    assert done.winners[run["item"]] == {"AB": "failed", "BA": run["result"]["BA"]}


# Without it.


def test_the_script_says_what_is_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv(DATA_VARIABLE, str(tmp_path))
    assert replay_llmbar.main() == 2
    assert capsys.readouterr().err == f"{how_to_get(tmp_path)}\n"


@pytest.mark.parametrize(
    ("first", "second", "wins"),
    [("7", "6", "first"), ("6", "7", "second"), ("6", "6", "second"), ("good", "6", "first")],
)
def test_ratings(first: str, second: str, wins: str) -> None:
    assert higher(first, second) == wins


@pytest.mark.parametrize(
    ("shown_ab", "shown_ba", "wanted"),
    [("A", "B", True), ("B", "A", True), ("A", "A", False), ("A", UNPARSED, False)],
)
def test_conflicts(shown_ab: str, shown_ba: str, wanted: bool) -> None:
    assert conflicting(Judgement(verdict=shown_ab), Judgement(verdict=shown_ba)) is wanted


def test_an_explanation_from_the_other_order_has_its_names_swapped() -> None:
    assert swapped("Output (a) beats output (b), not (a)") == "Output (b) beats output (a), not (a)"
    shown_ab = Judgement(verdict="A", reason="Output (a) is better.")
    shown_ba = Judgement(verdict="B", reason="Output (a) is best.")
    assert explanation_for("A", "AB")(shown_ab, shown_ba) == "Output (a) is better."
    assert explanation_for("B", "AB")(shown_ab, shown_ba) == "Output (b) is best."
    assert explanation_for("B", "BA")(shown_ab, shown_ba) == "Output (a) is best."


def test_verdicts_name_contestants_whatever_the_order() -> None:
    patterns = ("first", "second")
    assert verdict_reader(patterns, "BA")("the first")["verdict"] == "B"
    assert verdict_reader(patterns, "BA")("the second\nline")["verdict"] == "A"
    assert verdict_reader(patterns, "AB")("")["verdict"] == UNPARSED


MARKED = "<|im_start|>system\n{0}\n<|im_end|>\n<|im_start|>user\n{1}\n<|im_end|>"


def two_stages() -> Protocol:
    """A protocol like Swap_CoT, with prompts short enough to read."""
    shown = "{input}|{output_1}|{output_2}"
    patterns = ("Output \\(a\\) wins", "Output \\(b\\) wins")
    debate = f"{shown}|{{explanation_1}}|{{explanation_2}}"
    judge = MARKED.replace("{0}", "Judge.").replace("{1}", shown)
    decide = MARKED.replace("{0}", "Decide.").replace("{1}", debate)
    first = Stage("verdict", judge, patterns, Options())
    again = Stage("synthesize", decide, patterns, Options())
    return Protocol("any/Swap_CoT", {"verdict": first, "synthesize": again})


CASE = ArenaTestCase(
    contestants={
        "A": LLMTestCase(input="Say {output_2}.", actual_output="yes"),
        "B": LLMTestCase(input="Say {output_2}.", actual_output="no"),
    }
)


@pytest.mark.parametrize(
    ("first", "asked", "scores"),
    [
        ({"AB": "Output (a) wins", "BA": "Output (b) wins"}, 2, [1.0, 1.0]),
        ({"AB": "Output (a) wins", "BA": "neither wins"}, 2, [1.0, 0.5]),
        ({"AB": "Output (a) wins", "BA": "Output (a) wins!"}, 4, [0.0, 1.0]),
    ],
)
def test_the_second_stage_is_asked_on_conflict_only(
    first: dict[str, str], asked: int, scores: list[float]
) -> None:
    again = {"synthesize AB": "Output (b) wins", "synthesize BA": "Output (b) wins"}
    judge = ScriptedJudge({**{f"verdict {o}": text for o, text in first.items()}, **again})
    done = evaluate([CASE], metrics_for(two_stages()), model=judge, show=False)
    assert [result.score for result in done.rows[0].metrics] == scores
    assert done.totals.asked == asked
