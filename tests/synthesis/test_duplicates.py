"""Duplicates among goldens: vectors and words only nominate, and a judge confirms."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import anyio
import pytest

from dagengine import Limits, evaluate
from dagengine.errors import RefusedError
from dagengine.judges import ScriptedJudge
from dagengine.question import Question
from dagengine.synthesis.generators import duplicates, pair_case
from dagengine.synthesis.near_duplicates import TextPair
from dagengine.synthesis.passages import text_sources
from dagengine.synthesizer import EvolutionConfig, Quota, Synthesizer

NO_EVOLUTION = EvolutionConfig(num_evolutions=0)

PAIRS = [
    json.loads(line)
    for line in (Path(__file__).parents[2] / "benchmarks/reliability/golden_pairs.jsonl")
    .read_text()
    .splitlines()
]
TOPIC_OF = {
    pair[kind]: topic
    for topic, pair in enumerate(PAIRS)
    for kind in ("text", "paraphrase", "other", "near")
}


def evidence(question: Question[Any]) -> str:
    return question.messages[1]["content"]


def told(goldens: list[Any]) -> str:
    return json.dumps([golden.model_dump(mode="json") for golden in goldens])


def shown_pair(question: Question[Any]) -> tuple[str, ...]:
    """The two inputs that a judge is asked about."""
    return tuple(line for line in evidence(question).splitlines() if line in TOPIC_OF)


class Oracle:
    """Drafts four questions on each topic, which all have one vector, and knows which are one."""

    def __init__(self, confirm: Callable[[tuple[str, ...]], Any] | None = None) -> None:
        self.compared: list[tuple[str, ...]] = []
        self.keys: list[str] = []
        self._confirm = confirm or self.is_paraphrase

    @staticmethod
    def is_paraphrase(texts: tuple[str, ...]) -> bool:
        return any(set(texts) == {pair["text"], pair["paraphrase"]} for pair in PAIRS)

    async def answer(self, question: Question[Any]) -> Any:
        self.keys.append(question.key)
        for _ in range(int(question.key[:2], 16) % 5):
            await anyio.lowlevel.checkpoint()
        if question.name == "Draft":
            topic = int(re.findall(r"Topic (\d+)", evidence(question))[0])
            return [text for text, number in TOPIC_OF.items() if number == topic]
        if question.name == "Rewrite":
            return evidence(question).splitlines()[1]
        if question.name == "Same answer":
            self.compared.append(shown_pair(question))
            return self._confirm(self.compared[-1])
        return question.name not in ("Answerable without context", "Leaks the answer")

    @staticmethod
    def vector(question: Question[Any]) -> list[float]:
        (text,) = (line for line in evidence(question).splitlines() if line in TOPIC_OF)
        near = 0.01 * [*TOPIC_OF].index(text)
        return [float(TOPIC_OF[text] == number) + near for number in range(len(PAIRS))]

    def settings(self) -> dict[str, Any]:
        return {
            "model": ScriptedJudge(self.answer, name="oracle"),
            "embedder": ScriptedJudge(self.vector, name="vectors"),
            "evolution_config": NO_EVOLUTION,
            "show": False,
        }

    async def goldens(self, topics: int, **more: Any) -> Any:
        """Goldens of so many topics, and at most four of each."""
        contexts = [[f"Topic {number}"] for number in range(topics)]
        return await Synthesizer(**self.settings(), **more).a_generate_goldens_from_contexts(
            contexts, include_expected_output=False, max_goldens_per_context=4
        )


@pytest.mark.anyio
async def test_only_inputs_that_a_judge_calls_one_are_one_golden_at_any_timing() -> None:
    made = []
    for in_flight, topics in ((64, len(PAIRS)), (64, 6), (1, 6), (3, 6)):
        oracle = Oracle()
        made.append(await oracle.goldens(topics, limits=Limits(max_in_flight=in_flight)))
        inputs = {golden.input for golden in made[-1]}
        for pair in PAIRS[:topics]:  # nothing that differs is dropped, and one of two that are one
            assert {pair["other"], pair["near"]} <= inputs
            assert len({pair["text"], pair["paraphrase"]} & inputs) == 1
        report = made[-1].report
        assert report.fell == {"near duplicate": topics}
        assert report.confirmed == topics
        assert report.nominated == len(oracle.compared) <= 3 * 4 * topics
        assert len({frozenset(texts) for texts in oracle.compared}) == len(oracle.compared)
        assert (
            f"{report.nominated} pairs of inputs look alike; {topics} of them ask for the same, "
            "says the judge"
        ) in report.lines()
    assert told(made[1]) == told(made[2]) == told(made[3])
    assert "Embedding" not in made[0][0].additional_metadata["synthesis"]["answers"]


@pytest.mark.anyio
async def test_a_pair_that_is_not_confirmed_or_gets_no_answer_stays() -> None:
    def refuses(texts: tuple[str, ...]) -> bool:
        if PAIRS[0]["text"] in texts:
            raise RefusedError("not these two")
        return False

    made = await Oracle(refuses).goldens(2)
    assert len(made) == 8
    assert (made.report.fell, made.report.confirmed) == ({}, 0)
    (failed,) = made.report.unconfirmed.values()
    assert 1 <= failed < made.report.nominated
    assert (
        f"{failed} of {made.report.nominated} pairs got no answer, so both inputs stay: "
        "judge_refused at Same answer (not these two)"
    ) in made.report.lines()


def test_what_asks_for_the_same_as_a_draft_that_fell_for_a_golden_falls_too() -> None:
    compared: list[set[int]] = []

    def answer(question: Question[Any]) -> Any:
        text = evidence(question)
        if question.name == "Draft":
            return [f"Do I get back what I paid number {number}?" for number in range(6)]
        if question.name == "Rewrite":
            return text.splitlines()[1]
        if question.name == "Same answer":
            compared.append(set(map(int, re.findall(r"number (\d)", text))))
            return True
        return question.name not in ("Answerable without context", "Leaks the answer")

    def vector(question: Question[Any]) -> list[float]:
        return [1.0, int(re.findall(r"number (\d)", evidence(question))[0]) / 10]

    made = Synthesizer(
        ScriptedJudge(answer, name="yes"), embedder=ScriptedJudge(vector, name="vectors"),
        evolution_config=NO_EVOLUTION, show=False,
    ).generate_goldens_from_contexts(
        [["Refunds take 14 days."]], include_expected_output=False, max_goldens_per_context=6
    )  # fmt: skip
    assert [golden.input[-2] for golden in made] == ["0"]
    assert {0, 5} not in compared  # it is not among the nearest
    assert made.report.fell == {"near duplicate": 5}


@pytest.mark.anyio
async def test_drafts_are_compared_with_goldens_of_earlier_rounds() -> None:
    oracle = Oracle()
    made = await Synthesizer(**oracle.settings()).a_generate_goldens_from_contexts(
        [["Topic 0"]], include_expected_output=False, quotas=[Quota(2)], max_goldens_per_context=2
    )
    # The first two are one, so that a second round brings the third, compared with the first.
    assert [golden.input for golden in made] == [PAIRS[0]["text"], PAIRS[0]["other"]]
    assert {frozenset(texts) for texts in oracle.compared} >= {
        frozenset((PAIRS[0]["text"], PAIRS[0][kind])) for kind in ("paraphrase", "other")
    }


@pytest.mark.anyio
async def test_a_synthesis_that_ends_while_it_compares_goes_on_and_asks_nothing_twice(
    tmp_path: Path,
) -> None:
    oracle = Oracle()
    whole = await oracle.goldens(2, store=tmp_path / "whole.db")
    asked, compared = len(oracle.keys), len(oracle.compared)
    oracle = Oracle()
    vectors = 8
    short = Limits(max_calls=asked + vectors - compared + 3)
    stopped = await oracle.goldens(2, store=tmp_path / "a.db", limits=short)
    assert len(oracle.compared) == 3
    assert sum(stopped.report.unconfirmed.values()) == compared - 3
    assert len(stopped) >= len(whole)  # nothing is dropped on a guess
    again = await oracle.goldens(2, store=tmp_path / "a.db")
    assert told(again) == told(whole)
    assert len(oracle.keys) == len(set(oracle.keys)) == asked


@pytest.mark.parametrize(
    ("words", "meaning", "says", "score", "asked"),
    [
        (0.8, 0.0, True, 1.0, 1),
        (0.0, 0.8, True, 1.0, 1),
        (0.79, 0.79, True, 0.0, 0),
        (1.0, 1.0, False, 0.0, 1),
    ],
)
def test_likeness_asks_and_only_the_judge_says_yes(
    words: float, meaning: float, says: bool, score: float, asked: int
) -> None:
    pair = TextPair((0, 1), ("When does it open?", "When does it close?"), words, meaning)
    run = evaluate(
        [pair_case(pair)], [duplicates(0.8)], model=ScriptedJudge(lambda question: says),
        show=False,
    )  # fmt: skip
    assert (run.scores("Duplicates"), run.totals.calls) == ([score], asked)


def test_a_plan_counts_what_is_asked_about_pairs() -> None:
    oracle, contexts = Oracle(), [["Topic 0"], ["Topic 1"]]
    made = Synthesizer(**oracle.settings(), max_tries=1)
    generation = made._from_contexts(text_sources(contexts, None), False, [Quota(8)], 4)
    plan = generation.plan()
    (pairs,) = (metric for metric in plan.metrics if metric.metric == "Duplicates")
    assert (pairs.asked.least, pairs.asked.most) == (0, 0 + 1 + 2 + 5 * 3)
    assert not oracle.keys
    goldens = made.generate_goldens_from_contexts(
        contexts, include_expected_output=False, quotas=[Quota(8)], max_goldens_per_context=4
    )
    assert goldens.report.nominated in pairs.asked
    assert made.totals.asked in plan.asked
