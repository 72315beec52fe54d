"""Second answers: what a case reached once is asked again by itself, and nothing else is."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any, get_args

import anyio
import pytest
from graphs.random_graphs import Script, build, drawings
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from dagengine import Limits
from dagengine.errors import GraphError, UnparseableError
from dagengine.judges import Noise, ScriptedJudge, SimulatedJudge
from dagengine.metrics import DAGMetric
from dagengine.metrics.dag import (
    DAG,
    BinaryJudgementNode,
    CodeNode,
    NonBinaryJudgementNode,
    RatingNode,
    TaskNode,
)
from dagengine.question import Question
from dagengine.reliability import Observations, a_repeat, repeat
from dagengine.reliability.card.node_cards import notes_on
from dagengine.reliability.counterfactual import Counterfactual
from dagengine.reliability.node_blame import attribute
from dagengine.reliability.observations import Condition, Observation
from dagengine.reliability.observed_runs import runs_of
from dagengine.reliability.second_answers import LEAST_ASKED, MOST_MORE, Lack, chosen_cases
from dagengine.results import CaseResult
from dagengine.test_case import LLMTestCase

CASES = [LLMTestCase(name=f"case {n}", input=f"number {n}") for n in range(3)]


def chain() -> DAGMetric:
    """Each of a, b and c is asked where the one before it says yes; b reads a text."""
    c = BinaryJudgementNode("c?", name="c", evaluation_params=["input"], then={True: 10, False: 6})
    text = TaskNode("Say why.", "why", evaluation_params=["input"], name="text")
    b = BinaryJudgementNode("b?", name="b", inputs=[text], then={True: c, False: 3})
    a = BinaryJudgementNode("a?", name="a", evaluation_params=["input"], then={True: b, False: 0})
    return DAGMetric("chain", DAG(a))


Says = Callable[[str, int], Any]


def asked_by(says: Says) -> tuple[Counter[tuple[str, int]], ScriptedJudge]:
    """A judge that says what it is to say at a repetition, and counts by node and repetition."""
    asked: Counter[tuple[str, int]] = Counter()

    def script(question: Question[Any]) -> Any:
        asked[question.name, question.options.repetition] += 1
        return says(question.name, question.options.repetition)

    return asked, ScriptedJudge(script)


def alone(seen: Observations) -> list[Observation]:
    return [row for row in seen if row.alone]


def test_a_node_that_was_reached_once_is_asked_once_more_by_itself() -> None:
    asked, judge = asked_by(
        lambda node, n: f"text {n}" if node == "text" else node == "a" and n == 2
    )
    seen = repeat(CASES[:1], [chain()], times=4, model=judge, texts=True)
    runs = {("a", 0), ("a", 1), ("a", 2), ("a", 3), ("text", 2), ("b", 2)}
    assert asked == Counter({*runs, ("b", 4)})  # on the text of the run that reached it
    (extra,) = alone(seen)
    assert (extra.node, extra.verdict, extra.condition.sample) == ("b", False, 4)
    assert seen.table("chain", "b") == [[None, None, False, None]]
    assert seen.table("chain") == [[0.0, 0.0, 0.3, 0.0]]


def test_the_recorded_text_is_what_the_node_reads_again() -> None:
    shown: list[str] = []

    def script(question: Question[Any]) -> Any:
        if question.name == "b":
            shown.append(question.messages[-1]["content"])
        if question.name == "text":
            return f"the text of run {question.options.repetition}"
        return question.name == "a" and question.options.repetition == 1

    repeat(CASES[:1], [chain()], times=3, model=ScriptedJudge(script))
    assert len(shown) == 2
    assert shown[0] == shown[1]
    assert "the text of run 1" in shown[0]


def test_what_a_second_answer_leads_to_is_asked_twice() -> None:
    def says(node: str, n: int) -> Any:
        return {"a": n == 0, "b": n == 3, "c": n == 4, "text": "words"}[node]

    asked, judge = asked_by(says)
    seen = repeat(CASES[:1], [chain()], times=3, model=judge)
    beyond = {key: count for key, count in asked.items() if key[1] > 2}
    assert beyond == {("b", 3): 1, ("c", 3): 1, ("c", 4): 1}
    assert [(row.node, row.verdict) for row in alone(seen)] == [
        ("b", True), ("c", False), ("c", True)
    ]  # fmt: skip


def test_second_answers_can_be_left_out_and_one_run_has_none() -> None:
    ways: list[dict[str, Any]] = [{"times": 3, "second_answers": False}, {"times": 1}]
    for chosen in ways:
        asked, judge = asked_by(lambda node, n: "words" if node == "text" else n == 0)
        assert not alone(repeat(CASES, [chain()], model=judge, **chosen))
        assert max(n for _, n in asked) < 3


def test_a_second_answer_that_cannot_be_read_is_not_asked_for_again() -> None:
    def says(node: str, n: int) -> Any:
        if node == "b" and n > 2:
            return UnparseableError("no verdict", raw="hm")
        return "words" if node == "text" else node == "a" and n == 0

    asked, judge = asked_by(says)
    seen = repeat(CASES[:1], [chain()], times=3, model=judge, texts=True,
                  limits=Limits(reasks=0))  # fmt: skip
    assert [(row.verdict, row.raw) for row in alone(seen)] == [(None, "hm")]
    assert asked["b", 3] == 1
    assert "b" not in {node for node, _ in _heard(seen)}


def _heard(seen: Observations) -> list[tuple[str, Any]]:
    runs = runs_of(seen, Counterfactual(chain()))
    return [
        (node, reply.verdict)
        for setting in runs.settings
        for said in runs.alone(setting).values()
        for node, reply in said
    ]


def test_code_that_works_on_texts_has_its_questions_asked_again() -> None:
    size = CodeNode(lambda words: min(len(words) / 10, 1), name="size")
    words = TaskNode("List.", "words", [size], ["input"], name="words")
    size.inputs = (words,)
    gate = BinaryJudgementNode(
        "Go on?", name="gate", evaluation_params=["input"], then={True: size, False: 0}
    )
    asked, judge = asked_by(lambda node, n: n == 0 if node == "gate" else "w" * (n + 1))
    seen = repeat(CASES[:1], [DAGMetric("m", DAG(gate))], times=3, model=judge)
    assert asked["words", 3] == 1
    assert [(row.node, row.score) for row in alone(seen)] == [("words", None), ("size", 0.4)]


NOISY = SimulatedJudge(
    {"a": True, "b": True, "c": True, "text": "words"},
    {"a": Noise(flip=0.8), "b": Noise(flip=0.5), "c": Noise(flip=0.1)},
    seed=3,
    name="noisy",
)


def test_an_interrupted_benchmark_asks_no_question_twice(tmp_path: Path) -> None:
    asked: Counter[str] = Counter()

    class Counting:
        identity = "counting"
        durable_identity = "counting"
        capabilities = NOISY.capabilities

        async def answer(self, question: Question[Any]) -> Any:
            await anyio.sleep(0)  # what is under way when the run stops was not answered
            asked[question.key] += 1
            return await NOISY.answer(question)

    def stop(row: CaseResult) -> None:
        if row.index == 2:
            raise RuntimeError("stopped")

    cases = [LLMTestCase(input=f"number {n}") for n in range(60)]
    stored: dict[str, Any] = {"times": 4, "store": tmp_path / "answers.sqlite"}
    with pytest.raises(RuntimeError, match="stopped"):
        repeat(cases, [chain()], model=Counting(), on_row=stop,
               limits=Limits(max_in_flight=2), **stored)  # fmt: skip
    before = sum(asked.values())
    seen = repeat(cases, [chain()], model=Counting(), **stored)
    assert 0 < before < sum(asked.values())
    assert set(asked.values()) == {1}
    assert len(alone(seen)) > 2
    assert list(seen.lines()) == list(repeat(cases, [chain()], times=4, model=NOISY).lines())


@pytest.mark.anyio
async def test_second_answers_do_not_depend_on_timing() -> None:
    class Slow:
        identity = "slow"
        capabilities = NOISY.capabilities

        async def answer(self, question: Question[Any]) -> Any:
            for _ in range(int(question.key[:1], 16)):
                await anyio.sleep(0)
            return await NOISY.answer(question)

    seen = await a_repeat(CASES, [chain()], times=4, model=Slow())
    other = repeat(CASES, [chain()], times=4, model=NOISY, limits=Limits(max_in_flight=1))
    assert list(seen.lines()) == list(other.lines())


def test_saved_and_loaded_observations_give_the_same_shares(tmp_path: Path) -> None:
    cases = [LLMTestCase(input=f"number {n}") for n in range(20)]
    seen = repeat(cases, [chain()], times=4, model=NOISY)
    seen.save(tmp_path / "seen.jsonl")
    replay = Counterfactual(chain())
    live, loaded = (
        attribute(replay, runs.repetitions(runs.settings[0]), (), runs.alone(runs.settings[0]))
        for runs in (
            runs_of(seen, replay), runs_of(Observations.load(tmp_path / "seen.jsonl"), replay)
        )
    )  # fmt: skip
    assert live == loaded
    assert all(answers > 1 for case in live for answers in case.answers.values())


def test_figures_about_whole_runs_do_not_count_second_answers() -> None:
    cases = [LLMTestCase(input=f"number {n}") for n in range(8)]
    with_, without = (
        repeat(cases, [chain()], times=4, model=NOISY, second_answers=second)
        for second in (True, False)
    )
    assert with_.conditions == without.conditions
    assert with_.table("chain") == without.table("chain")
    assert [row for row in with_ if not row.alone] == list(without)
    replay = Counterfactual(chain())
    assert runs_of(with_, replay).cases == runs_of(without, replay).cases


def test_every_setting_has_its_own_second_answers() -> None:
    asked, judge = asked_by(lambda node, n: "words" if node == "text" else node == "a" and n == 0)
    seen = repeat(CASES[:1], [chain()], times=2, temperatures=(0.0, 1.0), model=judge)
    assert [(row.node, row.condition.temperature) for row in alone(seen)] == [
        ("b", 0.0), ("b", 1.0)
    ]  # fmt: skip
    assert asked["b", 2] == 2


def test_ratings_behind_a_gate_get_a_second_answer() -> None:
    rating = RatingNode("How good?", ["input"], name="rating")
    gate = BinaryJudgementNode(
        "Go on?", name="gate", evaluation_params=["input"], then={True: rating, False: 0}
    )
    _, judge = asked_by(lambda node, n: n == 1 if node == "gate" else 3 + n)
    seen = repeat(CASES[:1], [DAGMetric("m", DAG(gate))], times=3, model=judge)
    (extra,) = alone(seen)
    assert (extra.node, extra.score) == ("rating", 0.6)


# Where many cases lack an answer, a random part of them is asked, and counts for the others.

WAYS = SimulatedJudge(
    {"way": "x", "x": True, "y": True, "z": True},
    {"way": Noise(flip=0.6), **dict.fromkeys("xyz", Noise(flip=0.3))},
    seed=1,
)


def three_ways() -> DAGMetric:
    ends = {
        way: BinaryJudgementNode(
            f"{way}?", name=way, evaluation_params=["input"], then={True: 10, False: score}
        )
        for way, score in (("x", 7), ("y", 3), ("z", 0))
    }
    root = NonBinaryJudgementNode("Which?", name="way", evaluation_params=["input"], then=ends)
    return DAGMetric("ways", DAG(root))


def test_of_many_cases_that_lack_an_answer_a_part_is_asked_and_counts_for_all() -> None:
    cases = [LLMTestCase(input=f"number {n}") for n in range(60)]
    seen = repeat(cases, [three_ways()], times=3, model=WAYS)
    assert 0.1 <= len(alone(seen)) / (60 * 3 * 2) <= MOST_MORE + 0.01
    replay = Counterfactual(three_ways())
    runs = runs_of(seen, replay)
    noise = attribute(replay, runs.repetitions(runs.settings[0]), cases, runs.alone(Condition()))
    lacked = [one for one in noise if one.lacked]
    asked = [one for one in lacked if one.known]
    assert LEAST_ASKED < len(asked) < len(lacked) < 60
    assert {one.weight for one in asked} == {len(lacked) / len(asked)}
    assert sum(one.weight for one in noise) == pytest.approx(60)
    assert {one.weight for one in noise if not one.lacked} == {1.0}
    (note,) = [one for one in notes_on(noise) if "second answers" in one]
    assert note.startswith(f"{len(lacked)} cases reached a node once.")
    assert f"random sample of {len(asked)} " in note


def test_every_case_that_lacks_an_answer_is_as_likely_to_be_asked() -> None:
    def drawn(draw: int) -> dict[int, Lack]:
        return {
            case: Lack(("x", "y")[: 1 + case % 2], 1 + case % 2, f"{draw} {case}")
            for case in range(30)
        }

    chosen: Counter[int] = Counter()
    for draw in range(600):
        lacks = drawn(draw)
        found = chosen_cases(lacks, 160)
        assert len(found) == 13  # of 45 calls 20 are an eighth of 160
        assert sum(lacks[case].calls for case in found) in (19, 20)
        chosen.update(found)
    assert {case for case, many in chosen.items() if 200 < many < 320} == set(range(30))
    assert chosen_cases(drawn(0), 360) == list(range(30))
    assert len(chosen_cases(drawn(0), 1)) == LEAST_ASKED


def test_observations_tell_which_cases_share_a_question() -> None:
    _, judge = asked_by(lambda node, n: "words" if node == "text" else True)
    seen = repeat(CASES, [chain()], times=2, model=judge)
    digests = {
        node: {row.question for row in seen if row.node == node} for node in ("a", "b", "c", "")
    }
    assert [len(digests[node]) for node in ("a", "b", "c")] == [3, 1, 3]  # b reads equal texts
    assert digests[""] == {None}


@settings(max_examples=20)
@given(drawings(), st.integers(0, 3))
def test_in_random_graphs_no_node_that_was_reached_has_one_answer(
    drawing: dict[str, Any], seed: int
) -> None:
    script = Script()
    metric = DAGMetric("m", build(drawing, script), combine=drawing["combine"])
    try:
        replay = Counterfactual(metric)
    except GraphError:
        assume(False)
        return
    case = LLMTestCase(input="the input", context=["first", "second"])
    judge = ScriptedJudge(lambda question: _any_answer(question, seed))
    runs = runs_of(repeat([case], [metric], times=3, model=judge), replay)
    for setting in runs.settings:
        found = attribute(replay, runs.repetitions(setting), [case], runs.alone(setting))
        assert all(count > 1 for one in found for count in one.answers.values())


def _any_answer(question: Question[Any], seed: int) -> Any:
    random = Random(f"{seed} {question.key}")
    verdict = question.answer_type.model_fields.get("verdict")
    if verdict is None:
        return f"text {random.random()}"
    return random.choice(get_args(verdict.annotation) or (True, False))
