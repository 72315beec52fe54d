"""Attribution finds the node that a score's noise comes from, and how much of it."""

from __future__ import annotations

import itertools
import math
import random
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Literal, TypeVar

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dagengine.metrics import DAGMetric
from dagengine.metrics.dag import DAG, BinaryJudgementNode, CodeNode, RatingNode, TaskNode
from dagengine.reliability.counterfactual import Counterfactual, NoReplyError, Reply
from dagengine.reliability.node_blame import (
    CaseNoise,
    Unknown,
    attribute,
    blame,
    flip_effect,
    flip_rate,
    independence,
    shapley_effects,
    single_answer_share,
)
from dagengine.reliability.observations import Condition
from dagengine.reliability.observed_runs import Run
from dagengine.test_case import LLMTestCase

T = TypeVar("T")
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


def run(replies: Mapping[str, Reply], score: float) -> Run:
    return Run(Condition(), score, replies=dict(replies))


def simulated(
    replay: Counterfactual, odds: Sequence[Mapping[str, float]], times: int, seed: int
) -> dict[int, list[Run]]:
    """Repetitions in which each node says yes with its own probability, case by case."""
    draws = random.Random(seed)
    runs: dict[int, list[Run]] = {}
    for number, chances in enumerate(odds):
        for _ in range(times):
            latent = {node: YES if draws.random() < p else NO for node, p in chances.items()}
            asked = _Asked(latent)
            score = replay.score(asked, CASE)
            assert score is not None
            runs.setdefault(number, []).append(run(asked.seen, score))
    return runs


class _Asked(dict[str, Reply]):
    """Replies that remember which of them were looked at."""

    def __init__(self, latent: Mapping[str, Reply]) -> None:
        super().__init__(latent)
        self.seen: dict[str, Reply] = {}

    def __getitem__(self, node: str) -> Reply:
        self.seen[node] = super().__getitem__(node)
        return self.seen[node]


def true_parts(replay: Counterfactual, chances: Mapping[str, float]) -> dict[str, float]:
    """Shapley effects by definition: gains in Var(E[score | nodes fixed]) over all orders."""
    parts = dict.fromkeys(chances, 0.0)
    orders = list(itertools.permutations(chances))
    for order in orders:
        for place, node in enumerate(order):
            gain = _explained(replay, chances, order[: place + 1])
            gain -= _explained(replay, chances, order[:place])
            parts[node] += gain / len(orders)
    return parts


def true_shares(replay: Counterfactual, odds: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """Shares of the effects of all cases; populations repeat a few kinds of case alike often."""
    kinds = {tuple(one.items()) for one in odds}
    parts = Counter[str]()
    for one in kinds:
        parts.update(true_parts(replay, dict(one)))
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
    shares = {node: blame(found, node).share for node in "abc"}
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
            run({"a": YES, "b": YES, "c": YES}, 1.0),
            run({"a": YES, "b": YES, "c": NO}, 0.6),
            run({"a": YES, "b": NO}, 0.3),
            run({"a": YES, "b": NO}, 0.3),
        ]
    }
    found = attribute(replay, runs)
    assert flip_effect(found, "c") == pytest.approx(0.4)  # the first two runs
    assert flip_effect(found, "b") == pytest.approx((2 * 0.7 + 2 * 0.3) / 4)
    assert flip_effect(found, "a") is None
    assert found[0].variance == pytest.approx(0.11)  # of 1, 0.6, 0.3 and 0.3


def test_a_judge_without_noise_has_no_shares() -> None:
    replay = Counterfactual(chain())
    steady = [run({"a": YES, "b": YES, "c": YES}, 1.0)] * 5
    found = attribute(replay, {0: steady, 1: steady})
    assert blame(found, "a").unknown is Unknown.STEADY
    assert independence(found) is None
    assert flip_rate(found, "c") == 0


def test_nodes_that_flip_together_are_told_by_the_variance_of_independent_ones() -> None:
    replay = Counterfactual(fan())
    together = [run(dict.fromkeys("abc", yes), float(yes is YES)) for yes in (YES, NO)] * 10
    ratio = independence(attribute(replay, {0: together}))
    assert ratio == pytest.approx(1 / 3, abs=0.02)


def test_a_case_that_ran_once_says_nothing() -> None:
    assert attribute(Counterfactual(chain()), {0: [run({"a": NO}, 0.0)]}) == []


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
    assert {n: blame(found, n).share for n in "abc"} == pytest.approx(truth, abs=0.05)


def test_code_over_an_unknown_text_stands_for_the_questions_it_works_on() -> None:
    size = CodeNode(lambda words: min(len(words) / 10, 1), name="size")
    words = TaskNode("List the words.", "words", [size], ["actual_output"], name="words")
    size.inputs = (words,)
    (speaker,) = Counterfactual(DAGMetric("size", DAG(words))).speakers
    assert (speaker.node, speaker.reads) == ("size", ("words",))


def test_ratings_are_shared_out_like_verdicts() -> None:
    rating = RatingNode("How good?", ["actual_output"], name="rating")
    replay = Counterfactual(DAGMetric("rated", DAG(judged("gate", rating, 0))))
    runs = [run({"gate": YES, "rating": Reply(score=score)}, score) for score in (0.2, 0.4, 0.9)]
    found = attribute(replay, {0: runs})
    assert found[0].parts == {"rating": pytest.approx(found[0].variance)}


def test_a_node_never_asked_on_a_case_answers_there_as_on_the_others() -> None:
    replay = Counterfactual(chain())
    runs = {
        0: [run({"a": NO}, 0.0), run({"a": YES, "b": NO}, 0.3)],
        1: [run({"a": NO}, 0.0), run({"a": NO}, 0.0)],
    }
    assert attribute(replay, runs)[1].modelled == 0
    with pytest.raises(NoReplyError, match="b"):
        replay.score({"a": YES})


def test_too_many_combinations_fix_the_steadiest_nodes_and_say_which() -> None:
    names = [f"n{number:02}" for number in range(14)]
    roots = [judged(name, 10, 0) for name in names]
    replay = Counterfactual(DAGMetric("wide", DAG(root_nodes=roots), combine="max"))
    runs = [run({n: NO if n == name else YES for n in names}, 1.0) for name in (names[0], *names)]
    (found,) = attribute(replay, {0: runs})
    assert found.fixed == ("n12", "n13")


draws = st.lists(st.integers(1, 4), min_size=1, max_size=3).filter(lambda row: sum(row) > 1)


@settings(max_examples=40)
@given(st.lists(draws, min_size=1, max_size=3), st.randoms(use_true_random=False))
def test_effects_are_those_of_pairs_of_draws(
    counts: list[list[int]], random: random.Random
) -> None:
    answers = [range(len(row)) for row in counts]
    score = {place: random.random() for place in itertools.product(*answers)}
    variance, effects = shapley_effects(list(score.values()), counts)
    wanted = _effects_by_definition(score, counts)
    assert effects == pytest.approx(wanted, abs=1e-9)
    assert variance == pytest.approx(math.fsum(wanted), abs=1e-9)


def _effects_by_definition(
    score: Mapping[tuple[int, ...], float], counts: Sequence[Sequence[int]]
) -> list[float]:
    """Gains in E[score · score'] of two runs that share answers, over all orders of sharing."""
    orders = list(itertools.permutations(range(len(counts))))
    effects = [0.0] * len(counts)
    for order in orders:
        for place, axis in enumerate(order):
            gain = _product(score, counts, order[: place + 1])
            gain -= _product(score, counts, order[:place])
            effects[axis] += gain / len(orders)
    return effects


def _product(
    score: Mapping[tuple[int, ...], float], counts: Sequence[Sequence[int]], shared: Sequence[int]
) -> float:
    def weight(axis: int, one: int, other: int) -> float:
        drawn, all_ = counts[axis], sum(counts[axis])
        if axis in shared:
            return drawn[one] / all_ if one == other else 0.0
        return drawn[one] * (drawn[other] - (one == other)) / (all_ * (all_ - 1))

    return math.fsum(
        math.prod(weight(axis, *pair) for axis, pair in enumerate(zip(one, other, strict=True)))
        * score[one] * score[other]
        for one, other in itertools.product(score, repeat=2)
    )  # fmt: skip


# Second answers make the effects unbiased: over all that could have been said, exactly.


def lines_of_chance(
    act: Callable[[Callable[[str], bool]], T], chances: Mapping[str, float]
) -> Iterator[tuple[float, T]]:
    """Everything that `act` can come to as its draws go, each with its probability."""
    waiting: list[list[bool]] = [[]]
    while waiting:
        line = _Line(waiting.pop())
        found = act(line.draw)
        drawn = [yes for _, yes in line.said]
        waiting += [[*drawn[:place], False] for place in range(line.given, len(drawn))]
        yield (
            math.prod(chances[node] if yes else 1 - chances[node] for node, yes in line.said),
            found,
        )


class _Line:
    """Draws as given, and yes from there on."""

    def __init__(self, drawn: Sequence[bool]) -> None:
        self._drawn, self.given = drawn, len(drawn)
        self.said: list[tuple[str, bool]] = []

    def draw(self, node: str) -> bool:
        place = len(self.said)
        self.said.append((node, self._drawn[place] if place < self.given else True))
        return self.said[-1][1]


def expected_parts(chances: Mapping[str, float], second: bool) -> dict[str, float]:
    """The mean of each node's part over everything that two runs and second answers can be."""
    replay = Counterfactual(chain())

    def act(draw: Callable[[str], bool]) -> Mapping[str, float]:
        runs = [_run(draw), _run(draw)]
        alone = list(_second_answers(runs, draw)) if second else []
        repetitions = [run(said, replay.score(said) or 0.0) for said in runs]
        return attribute(replay, {0: repetitions}, alone={0: alone})[0].parts

    totals = dict.fromkeys(chances, 0.0)
    for weight, parts in lines_of_chance(act, chances):
        for node, part in parts.items():
            totals[node] += weight * part
    return totals


def _run(draw: Callable[[str], bool]) -> dict[str, Reply]:
    """One run of the chain: each node that says yes leads to the next."""
    said: dict[str, Reply] = {}
    for node in "abc":
        said[node] = Reply(verdict=draw(node))
        if said[node] == NO:
            break
    return said


def _second_answers(
    runs: Sequence[Mapping[str, Reply]], draw: Callable[[str], bool]
) -> Iterator[tuple[str, Reply]]:
    """Up to two answers of every node that was reached, or that such an answer leads to."""
    reached = False
    for node in "abc":
        said = [run[node] for run in runs if node in run]
        while (said or reached) and len(said) < 2:
            said.append(Reply(verdict=draw(node)))
            yield node, said[-1]
        reached = YES in said


@pytest.mark.parametrize("odds", [(0.8, 0.6, 0.7), (0.3, 0.5, 0.9), (0.5, 0.15, 0.2)])
def test_two_runs_and_second_answers_give_the_true_parts_on_average(
    odds: tuple[float, float, float],
) -> None:
    chances = dict(zip("abc", odds, strict=True))
    truth = true_parts(Counterfactual(chain()), chances)
    assert expected_parts(chances, second=True) == pytest.approx(truth, abs=1e-12)
    assert expected_parts(chances, second=False) != pytest.approx(truth, rel=0.1)


# When a share is not known.


def noise_of(number: int, **entries: Any) -> CaseNoise:
    given = {"variance": 0.1, "modelled": 0.1, "parts": {"a": 0.1}, "flips": {}, "moves": {}}
    return CaseNoise(case=number, repetitions=6, **{**given, **entries})


def test_a_node_that_few_cases_reached_says_how_many_runs_would_tell() -> None:
    seldom = [noise_of(n, answers={"a": 6, "b": 2}) for n in range(4)]
    found = blame([*seldom, *(noise_of(n, answers={"a": 6}) for n in range(4, 40))], "b")
    assert (found.share, found.unknown) == (None, Unknown.REACHED_IN_FEW)
    assert found.why == (
        "4 of 40 cases reached it in 6 runs; its share needs 10, which takes about 15 runs"
    )
    few = blame(seldom, "a")
    assert few.unknown is Unknown.REACHED_IN_FEW
    assert few.why.endswith("its share needs 10 cases that reach it")


def test_without_second_answers_no_share_is_known() -> None:
    cases = [noise_of(n, answers={"a": 6, "b": 1 + (n > 4)}) for n in range(20)]
    assert single_answer_share(cases) == 0.25
    assert {blame(cases, node).unknown for node in "ab"} == {Unknown.ASKED_ONCE}
    assert "25 % of the cases" in blame(cases, "a").why
    assert blame(cases[1:], "a").unknown is Unknown.ASKED_ONCE
    assert blame(cases[2:], "a").unknown is None  # 3 of 18


def test_a_node_that_moved_no_score_has_a_bound_and_leaves_it_to_the_other() -> None:
    cases = [noise_of(n, answers={"a": 6, "b": 6}, reached={"a": 6, "b": 3}) for n in range(20)]
    steady, noisy = blame(cases, "b"), blame(cases, "a")
    assert (steady.share, steady.low, noisy.share, noisy.high) == (0, 0, 1, 1)
    t = 2.093024**2  # of 19 degrees
    most = 10 * t / (20 + t) / 2
    assert steady.high == pytest.approx(most / (most + 2.0), abs=1e-6)
    assert noisy.low == pytest.approx(1 - (steady.high or 0))


def test_noise_of_one_case_only_is_nobodys_share() -> None:
    still = [noise_of(n, modelled=0.0, parts={}, answers={"a": 6, "b": 6}) for n in range(1, 20)]
    found = blame([noise_of(0, answers={"a": 6, "b": 6}), *still], "a")
    assert (found.share, found.unknown) == (None, Unknown.ONE_CASE)


def test_all_of_the_noise_is_that_of_the_only_node() -> None:
    found = blame([noise_of(n, answers={"a": 6}) for n in range(2)], "a")
    assert (found.share, found.low, found.high) == (1, 1, 1)


def test_cases_of_one_group_are_one_case() -> None:
    cases = [
        noise_of(n, parts={"a": 0.02 + 0.005 * (n // 2), "b": 0.03}, answers={"a": 6, "b": 6})
        for n in range(40)
    ]
    alone, grouped = blame(cases, "a"), blame(cases, "a", {n: n // 2 for n in range(40)})
    assert (alone.share, alone.cases, grouped.cases) == (grouped.share, 40, 20)
    assert (grouped.low or 0) < (alone.low or 0) < (alone.high or 0) < (grouped.high or 0)


def test_the_noise_of_no_case_is_none() -> None:
    nothing: list[CaseNoise] = []
    assert flip_rate(nothing, "a") is None
    assert flip_effect(nothing, "a") is None
