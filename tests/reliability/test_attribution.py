"""Attribution finds the node that a score's noise comes from, and how much of it."""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Mapping, Sequence
from typing import Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dagengine.metrics import DAGMetric
from dagengine.metrics.dag import DAG, BinaryJudgementNode, CodeNode, RatingNode, TaskNode
from dagengine.reliability.attribution import (
    CaseNoise,
    Repetition,
    attribute,
    flip_effect,
    flip_rate,
    independence,
    shapley_effects,
    variance_share,
)
from dagengine.reliability.counterfactual import Counterfactual, NoReplyError, Reply
from dagengine.test_case import LLMTestCase

YES, NO = Reply(verdict=True), Reply(verdict=False)
CASE = LLMTestCase(input="question", actual_output="answer")


def judged(
    name: str, yes: object, no: object, reads: Sequence[str] = ("input",)
) -> BinaryJudgementNode:
    return BinaryJudgementNode(
        f"{name}?", then={True: yes, False: no}, name=name, evaluation_params=reads
    )


def chain() -> DAGMetric:
    """a and b and c: 1 where all hold; 0.6, 0.3 and 0 where c, b or a does not."""
    c = judged("c", 10, 6)
    b = judged("b", c, 3)
    return DAGMetric("chain", DAG(judged("a", b, 0)))


def fan(combine: Literal["mean", "min"] = "mean") -> DAGMetric:
    roots = [judged(name, 10, 0) for name in "abc"]
    return DAGMetric("fan", DAG(root_nodes=roots), combine=combine)


def simulated(
    replay: Counterfactual, odds: Sequence[Mapping[str, float]], times: int, seed: int
) -> dict[int, list[Repetition]]:
    """Repetitions in which each node says yes with its own probability, case by case."""
    draws = random.Random(seed)
    runs: dict[int, list[Repetition]] = {}
    for number, chances in enumerate(odds):
        for _ in range(times):
            latent = {node: YES if draws.random() < p else NO for node, p in chances.items()}
            asked = _Asked(latent)
            score = replay.score(asked, CASE)
            assert score is not None
            runs.setdefault(number, []).append(Repetition(dict(asked.seen), score))
    return runs


class _Asked(dict[str, Reply]):
    """Replies that remember which of them were looked at."""

    def __init__(self, latent: Mapping[str, Reply]) -> None:
        super().__init__(latent)
        self.seen: dict[str, Reply] = {}

    def __getitem__(self, node: str) -> Reply:
        self.seen[node] = super().__getitem__(node)
        return self.seen[node]


def true_shares(replay: Counterfactual, odds: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """Shapley effects by definition: gains in Var(E[score | nodes fixed]) over all orders."""
    parts = dict.fromkeys(odds[0], 0.0)
    for chances in (dict(pairs) for pairs in {tuple(one.items()) for one in odds}):
        orders = list(itertools.permutations(chances))
        for order in orders:
            for place, node in enumerate(order):
                gain = _explained(replay, chances, order[: place + 1])
                gain -= _explained(replay, chances, order[:place])
                parts[node] += gain / len(orders)
    return {node: part / math.fsum(parts.values()) for node, part in parts.items()}


def _explained(replay: Counterfactual, chances: Mapping[str, float], fixed: Sequence[str]) -> float:
    """Var(E[score | the answers of `fixed`])."""
    means: dict[tuple[bool, ...], list[tuple[float, float]]] = {}
    for answers in itertools.product((True, False), repeat=len(chances)):
        said = dict(zip(chances, answers, strict=True))
        weight = math.prod(p if said[node] else 1 - p for node, p in chances.items())
        score = replay.score({node: Reply(verdict=yes) for node, yes in said.items()}, CASE)
        assert score is not None
        means.setdefault(tuple(said[node] for node in fixed), []).append((weight, score))
    cells = [
        (math.fsum(w for w, _ in cell), math.fsum(w * s for w, s in cell))
        for cell in means.values()
    ]
    mean = math.fsum(total for _, total in cells)
    return math.fsum(total**2 / weight for weight, total in cells if weight) - mean**2


@pytest.mark.parametrize("metric", [chain(), fan(), fan("min")], ids=["chain", "mean", "min"])
@pytest.mark.parametrize("seed", range(2))
def test_the_noisy_node_is_found_with_its_share_within_five_points(
    metric: DAGMetric, seed: int
) -> None:
    replay = Counterfactual(metric)
    noise = random.Random(seed)
    odds = [
        {"a": 1 - 0.03 * noise.random(), "b": 0.55 + 0.3 * noise.random(), "c": 0.9}
        for _ in range(8)
    ] * 10
    found = attribute(replay, simulated(replay, odds, 20, seed))
    shares = {node: variance_share(found, node) for node in "abc"}
    assert shares == pytest.approx(true_shares(replay, odds), abs=0.05)
    assert max(shares, key=lambda node: shares[node] or 0) == "b"
    assert math.fsum(share or 0 for share in shares.values()) == pytest.approx(1)
    assert independence(found) == pytest.approx(1, abs=0.1)


def test_flip_rates_are_those_of_the_answers_that_were_given() -> None:
    replay = Counterfactual(chain())
    odds = [{"a": 0.8, "b": 0.5, "c": 1.0}] * 300
    found = attribute(replay, simulated(replay, odds, 20, 7))
    assert flip_rate(found, "a") == pytest.approx(2 * 0.8 * 0.2, abs=0.02)
    assert flip_rate(found, "b") == pytest.approx(0.5, abs=0.02)  # of those that were asked
    assert flip_rate(found, "c") == 0


def test_a_flip_moves_the_score_by_the_mean_difference_of_runs_that_part_there() -> None:
    replay = Counterfactual(chain())
    runs = {
        0: [
            Repetition({"a": YES, "b": YES, "c": YES}, 1.0),
            Repetition({"a": YES, "b": YES, "c": NO}, 0.6),
            Repetition({"a": YES, "b": NO}, 0.3),
            Repetition({"a": YES, "b": NO}, 0.3),
        ]
    }
    found = attribute(replay, runs)
    assert flip_effect(found, "c") == pytest.approx(0.4)  # the first two runs
    assert flip_effect(found, "b") == pytest.approx((2 * 0.7 + 2 * 0.3) / 4)
    assert flip_effect(found, "a") is None
    assert found[0].variance == pytest.approx(0.11)  # of 1, 0.6, 0.3 and 0.3


def test_a_judge_without_noise_has_no_shares() -> None:
    replay = Counterfactual(chain())
    steady = [Repetition({"a": YES, "b": YES, "c": YES}, 1.0)] * 5
    found = attribute(replay, {0: steady, 1: steady})
    assert variance_share(found, "a") is None
    assert independence(found) is None
    assert flip_rate(found, "c") == 0


def test_nodes_that_flip_together_are_told_by_the_variance_of_independent_ones() -> None:
    replay = Counterfactual(fan())
    together = [Repetition(dict.fromkeys("abc", yes), float(yes is YES)) for yes in (YES, NO)] * 10
    ratio = independence(attribute(replay, {0: together}))
    assert ratio == pytest.approx(1 / 3)


def test_a_case_that_ran_once_says_nothing() -> None:
    assert attribute(Counterfactual(chain()), {0: [Repetition({"a": NO}, 0.0)]}) == []


def test_code_that_counts_verdicts_hands_its_noise_on_to_these() -> None:
    votes = CodeNode(
        lambda a, b, c: a.verdict + b.verdict + c.verdict >= 2,
        then={True: 10, False: 0},
        name="votes",
    )
    judges = [judged(name, votes, votes) for name in "abc"]
    votes.inputs = tuple(judges)
    replay = Counterfactual(DAGMetric("majority", DAG(root_nodes=judges)))
    assert [speaker.node for speaker in replay.speakers] == ["a", "b", "c"]
    odds = [{"a": 0.5, "b": 0.9, "c": 0.9}] * 60
    found = attribute(replay, simulated(replay, odds, 20, 3), [CASE] * 60)
    truth = true_shares(replay, odds)
    assert {n: variance_share(found, n) for n in "abc"} == pytest.approx(truth, abs=0.05)


def test_code_over_an_unknown_text_stands_for_the_questions_it_works_on() -> None:
    size = CodeNode(lambda words: min(len(words) / 10, 1), name="size")
    words = TaskNode("List the words.", "words", [size], ["actual_output"], name="words")
    size.inputs = (words,)
    (speaker,) = Counterfactual(DAGMetric("size", DAG(words))).speakers
    assert (speaker.node, speaker.reads) == ("size", ("words",))


def test_ratings_are_shared_out_like_verdicts() -> None:
    rating = RatingNode("How good?", ["actual_output"], name="rating")
    replay = Counterfactual(DAGMetric("rated", DAG(judged("gate", rating, 0))))
    runs = [
        Repetition({"gate": YES, "rating": Reply(score=score)}, score) for score in (0.2, 0.4, 0.9)
    ]
    found = attribute(replay, {0: runs})
    assert variance_share(found, "rating") == pytest.approx(1)
    assert found[0].modelled == pytest.approx(found[0].variance * 2 / 3)


def test_a_node_never_asked_on_a_case_answers_there_as_on_the_others() -> None:
    replay = Counterfactual(chain())
    runs = {
        0: [Repetition({"a": NO}, 0.0), Repetition({"a": YES, "b": NO}, 0.3)],
        1: [Repetition({"a": NO}, 0.0), Repetition({"a": NO}, 0.0)],
    }
    assert attribute(replay, runs)[1].modelled == 0
    with pytest.raises(NoReplyError, match="b"):
        replay.score({"a": YES})


def test_too_many_combinations_fix_the_steadiest_nodes_and_say_which() -> None:
    names = [f"n{number:02}" for number in range(14)]
    roots = [judged(name, 10, 0) for name in names]
    replay = Counterfactual(DAGMetric("wide", DAG(root_nodes=roots), combine="max"))
    runs = [
        Repetition({n: NO if n == name else YES for n in names}, 1.0) for name in (names[0], *names)
    ]
    (found,) = attribute(replay, {0: runs})
    assert found.fixed == ("n12", "n13")


weights = st.lists(st.floats(0.01, 1), min_size=1, max_size=3).map(
    lambda raw: [value / math.fsum(raw) for value in raw]
)


@given(st.lists(weights, min_size=1, max_size=3), st.randoms(use_true_random=False))
def test_effects_are_never_negative_and_add_up_to_the_variance(
    odds: list[list[float]], draws: random.Random
) -> None:
    chances = [math.prod(row) for row in itertools.product(*odds)]
    scores = [draws.random() for _ in chances]
    mean = math.fsum(p * s for p, s in zip(chances, scores, strict=True))
    wanted = math.fsum(p * (s - mean) ** 2 for p, s in zip(chances, scores, strict=True))
    variance, effects = shapley_effects(scores, odds)
    assert variance == pytest.approx(wanted, abs=1e-12)
    assert math.fsum(effects) == pytest.approx(wanted, abs=1e-12)
    assert all(effect >= 0 for effect in effects)


def test_the_noise_of_no_case_is_none() -> None:
    nothing: list[CaseNoise] = []
    assert flip_rate(nothing, "a") is None
    assert flip_effect(nothing, "a") is None
