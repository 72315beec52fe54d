"""The simulated judge errs as often as it says, and the same way every time."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from itertools import combinations
from typing import Any

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dagengine import PromptTemplate, evaluate
from dagengine.errors import InputError, UnparseableError
from dagengine.gateway import Limits
from dagengine.judges import Noise, SimulatedJudge
from dagengine.metrics import DAGMetric
from dagengine.metrics.dag import (
    DAG,
    CodeNode,
    NonBinaryJudgementNode,
    RatingNode,
    TaskNode,
    VerdictListNode,
)
from dagengine.prompts import Evidence, messages_for
from dagengine.prompts.answer_types import judgement_type, list_type, output_type, rating_type
from dagengine.question import Options, Question
from dagengine.reliability import repeat
from dagengine.results import OutcomeKind
from dagengine.test_case import LLMTestCase

OPTIONS = ("good", "fair", "poor")
CASES = [LLMTestCase(input=f"item {n}") for n in range(400)]


def one_node(**settings: Any) -> DAGMetric:
    node = NonBinaryJudgementNode("How?", name="how", evaluation_params=["input"],
                                  then={"good": 10, "fair": 5, "poor": 0}, **settings)  # fmt: skip
    return DAGMetric("m", DAG(node))


Table = list[list[Any]]


def seen_of(noise: Noise, times: int = 4) -> Table:
    """The verdicts of whole runs, by case and repetition; None could not be parsed."""
    judge = SimulatedJudge({"how": "fair"}, noise, seed=1)
    seen = repeat(CASES, [one_node()], times=times, model=judge, limits=Limits(reasks=0))
    return seen.table("m", "how")


def answers_of(noise: Noise, times: int = 4, node: str = "how") -> Table:
    """What the judge says when nobody is between: its answers, by case and repetition."""
    judge = SimulatedJudge({"how": "fair", "what": "fair"}, noise, seed=1)
    shape = judgement_type(OPTIONS)

    async def answer(case: LLMTestCase, sample: int) -> Any:
        messages = messages_for(f"{node}?", [Evidence("input", case.input)])
        try:
            asked = Question(messages, shape, Options(sample=sample), name=node)
            verdict: Any = (await judge.answer(asked)).value
            return verdict.verdict
        except UnparseableError:
            return None

    async def table() -> Table:
        return [[await answer(case, sample) for sample in range(times)] for case in CASES]

    return anyio.run(table)


def differing(table: Sequence[Sequence[Any]]) -> float:
    pairs = [one != other for row in table for one, other in combinations(row, 2)]
    return statistics.fmean(pairs)


def close(value: float, expected: float, count: int) -> bool:
    """Within four standard errors of a share of `count` independent draws."""
    return abs(value - expected) <= 4 * math.sqrt(0.25 / count)


@pytest.mark.parametrize(
    "noise",
    [
        Noise(flip=0.2),
        Noise(flip=0.1, first=0.3),
        Noise(flip=0.2, unparseable=0.15),
        Noise(flip=0.0, drift=0.1),
        Noise(flip=0.3, repetitions=0.5),
        Noise(flip=0.3, first=0.2, drift=0.05, unparseable=0.1, repetitions=0.3, nodes=0.1),
    ],
)
def test_answers_are_wrong_and_flip_as_often_as_stated(noise: Noise) -> None:
    as_stated(answers_of(noise), noise)


def test_answers_in_runs_are_wrong_and_flip_as_often_as_stated() -> None:
    noise = Noise(flip=0.3, first=0.2, drift=0.05, unparseable=0.1, repetitions=0.3, nodes=0.1)
    as_stated(seen_of(noise), noise)


def as_stated(table: Table, noise: Noise) -> None:
    right = statistics.fmean(vote == "fair" for row in table for vote in row)
    assert close(right, noise.accuracy("fair", OPTIONS, 4), len(CASES))
    assert close(differing(table), noise.flip_rate("fair", OPTIONS, 4), len(CASES))
    missing = statistics.fmean(vote is None for row in table for vote in row)
    assert close(missing, noise.unparseable, len(CASES))


@pytest.mark.parametrize("share", [0.0, 0.25, 1.0])
def test_mistakes_are_correlated_between_repetitions_as_stated(share: float) -> None:
    table = answers_of(Noise(flip=0.4, repetitions=share))
    wrong = [[float(vote != "fair") for vote in row[:2]] for row in table]
    found = statistics.correlation(*map(list, zip(*wrong, strict=True)))
    assert abs(found - share) < 0.2


@pytest.mark.parametrize("share", [0.0, 0.5, 1.0])
def test_mistakes_are_correlated_between_nodes_as_stated(share: float) -> None:
    noise = Noise(flip=0.4, nodes=share)
    tables = [answers_of(noise, 1, node) for node in ("how", "what")]
    wrong = [[float(row[0] != "fair") for row in table] for table in tables]
    assert abs(statistics.correlation(*wrong) - share) < 0.2


def test_a_judge_that_drifts_gets_worse() -> None:
    noise = Noise(flip=0.0, drift=0.2)
    assert [noise.wrong(n) for n in (0, 1, 5, 9)] == [0.0, 0.2, 1.0, 1.0]
    table = answers_of(noise, 6)
    assert {row[0] for row in table} == {"fair"}
    assert "fair" not in {row[5] for row in table}


def test_who_prefers_the_first_place_prefers_another_verdict_when_options_are_reversed() -> None:
    judge = SimulatedJudge({"how": "fair"}, Noise(first=1.0))
    seen = repeat(CASES[:2], [one_node()], times=1, orders=("given", "reversed"), model=judge)
    assert seen.table("m", "how") == [["good", "poor"]] * 2


noises = st.builds(
    Noise,
    flip=st.floats(0, 1),
    first=st.floats(0, 1),
    drift=st.floats(-0.5, 0.5),
    unparseable=st.floats(0, 1),
    repetitions=st.floats(0, 0.25),
    nodes=st.floats(0, 0.25),
)


@given(noises, st.sampled_from(OPTIONS), st.integers(0, 30), st.floats(0, 1, exclude_max=True))
def test_spans_make_up_a_whole_and_chances_are_their_lengths(
    noise: Noise, truth: str, repetition: int, draw: float
) -> None:
    spans = noise.spans(truth, OPTIONS, repetition)
    assert [a.high for a in spans[:-1]] == [b.low for b in spans[1:]]
    assert (spans[0].low, spans[-1].high) == (0.0, 1.0)
    assert math.isclose(sum(noise.chances(truth, OPTIONS, repetition).values()), 1)
    assert noise.answer(draw, truth, OPTIONS, repetition) in (None, *OPTIONS)
    assert -1e-9 <= noise.flip_rate(truth, OPTIONS, 3) <= 1


def test_flip_rates_in_closed_form() -> None:
    # Two answers agree when both are right or both are the same mistake.
    assert math.isclose(Noise(flip=0.2).flip_rate(True, (True, False)), 2 * 0.2 * 0.8)
    three = 1 - 0.7**2 - 2 * 0.15**2
    assert math.isclose(Noise(flip=0.3).flip_rate("fair", OPTIONS), three)
    assert math.isclose(Noise(flip=0.3, repetitions=0.4).flip_rate("fair", OPTIONS), 0.6 * three)
    assert Noise(flip=0.3, repetitions=1.0).flip_rate("fair", OPTIONS) == 0
    assert math.isclose(Noise(drift=1.0).flip_rate("fair", OPTIONS, 2), 1)


@pytest.mark.parametrize(
    "settings",
    [{"flip": 1.1}, {"first": -0.1}, {"repetitions": 0.5, "nodes": 0.5}, {"drift": math.nan}],
)
def test_chances_that_are_none_are_errors(settings: dict[str, float]) -> None:
    with pytest.raises(InputError):
        Noise(**settings)


def test_a_truth_outside_the_options_and_a_single_repetition_are_errors() -> None:
    with pytest.raises(InputError, match="the truth 'great' is not one of"):
        Noise().spans("great", OPTIONS)
    with pytest.raises(InputError, match="two repetitions"):
        Noise().flip_rate("fair", OPTIONS, 1)


def question(shape: Any, name: str = "q", sample: int = 0) -> Question[Any]:
    return Question(({"role": "user", "content": "c"},), shape, Options(sample=sample), name=name)


def answered(judge: SimulatedJudge, asked: Question[Any]) -> Any:
    return anyio.run(judge.answer, asked).value


def test_every_type_of_answer_is_given() -> None:
    truth = {"judge": True, "rate": 3, "task": "facts", "list": ["no", "yes"], "count": [1, 2]}
    judge = SimulatedJudge(truth)
    assert answered(judge, question(judgement_type(None), "judge")).verdict is True
    assert answered(judge, question(rating_type(1, 5), "rate")).score == 3
    assert answered(judge, question(output_type(str), "task")).output == "facts"
    assert answered(judge, question(output_type(list[int]), "count")).output == [1, 2]
    found = answered(judge, question(list_type(("yes", "no"), 2), "list")).verdicts
    assert [(one.number, one.verdict) for one in found] == [(1, "no"), (2, "yes")]


def test_every_type_of_answer_may_be_wrong() -> None:
    truth = {"judge": True, "rate": 3, "task": "facts", "list": ["no", "yes"]}
    judge = SimulatedJudge(truth, Noise(flip=1.0))
    assert answered(judge, question(judgement_type(None), "judge")).verdict is False
    assert answered(judge, question(rating_type(1, 5), "rate")).score in (1, 2, 4, 5)
    assert answered(judge, question(output_type(str), "task")).output == "facts (in other words)"
    found = answered(judge, question(list_type(("yes", "no"), 2), "list")).verdicts
    assert [one.verdict for one in found] == ["yes", "no"]


def test_only_the_noisy_node_errs_and_truth_may_be_a_function() -> None:
    task = TaskNode("Extract", "facts", evaluation_params=["input"])
    last = RatingNode("How?", inputs=[task], name="how", scale=(1, 5))
    judge = SimulatedJudge(
        lambda asked: 5 if "score" in asked.answer_type.model_fields else "facts",
        {"how": Noise(flip=1.0)},
    )
    steps = evaluate(CASES[:1], [DAGMetric("m", DAG(last))], model=judge, show=False)
    found = {step.node: step for step in steps.rows[0].metrics[0].steps}
    assert found["facts"].output == "facts"
    assert found["how"].output != 5


def test_an_unreadable_answer_stays_unreadable_when_asked_again() -> None:
    judge = SimulatedJudge({"how": "fair"}, Noise(unparseable=0.5), seed=2)
    done = evaluate(CASES, [one_node()], model=judge, limits=Limits(reasks=3), show=False)
    kinds = [row.metrics[0].outcome for row in done.rows]
    assert close(kinds.count(OutcomeKind.UNPARSEABLE) / len(CASES), 0.5, len(CASES))
    with pytest.raises(UnparseableError):
        answered(
            SimulatedJudge({"q": True}, Noise(unparseable=1.0)), question(judgement_type(None))
        )


def test_equal_seed_question_and_sample_give_equal_answers() -> None:
    def table(seed: int) -> list[list[Any]]:
        judge = SimulatedJudge({"how": "fair"}, Noise(flip=0.5), seed=seed)
        return repeat(CASES[:50], [one_node()], times=3, model=judge).table("m", "how")

    assert table(1) == table(1) != table(2)


def test_judges_are_told_apart_by_what_makes_their_answers() -> None:
    truth = {"how": "fair"}
    judges = [
        SimulatedJudge(truth),
        SimulatedJudge(truth, seed=1),
        SimulatedJudge(truth, Noise(flip=0.1)),
        SimulatedJudge(truth, name="other"),
    ]
    assert len({judge.durable_identity for judge in judges}) == 4
    assert SimulatedJudge(truth).durable_identity == judges[0].durable_identity
    assert SimulatedJudge(truth).identity != judges[0].identity


def test_lists_of_verdicts_and_what_follows_from_them() -> None:
    each = VerdictListNode("Ok?", "context", "each", verdicts=("yes", "no"), name="each")

    def share(found: list[Any]) -> float:
        return statistics.fmean(one.verdict == "yes" for one in found)

    metric = DAGMetric("m", DAG(CodeNode(share, inputs=[each])))
    case = LLMTestCase(input="q", context=[f"c{n}" for n in range(200)])
    judge = SimulatedJudge({"each": ["yes"] * 200}, Noise(flip=0.3))
    (scores,) = repeat([case], [metric], times=2, model=judge).table("m")
    assert all(close(score, 0.7, 200) for score in scores)
    assert scores[0] != scores[1]


def test_a_question_in_prose_is_declined_before_anything_is_asked() -> None:
    from dagengine.errors import GraphError
    from dagengine.question import FirstMatch

    metric = one_node(prompt=PromptTemplate("{input}"), parser=FirstMatch((("x", "fair"),)))
    with pytest.raises(GraphError, match="plain text"):
        evaluate(CASES[:1], [metric], model=SimulatedJudge({"how": "fair"}), show=False)
