"""What labels are fitted for: thresholds, promised rates of errors, examples."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dagengine.errors import InputError
from dagengine.graph.examples_and_quotes import Example
from dagengine.metrics.dag import BinaryJudgementNode, NonBinaryJudgementNode, RatingNode, TaskNode
from dagengine.reliability.statistics.intervals import Unknown
from dagengine.reliability.threshold_fitting import (
    Abstention,
    FittedThreshold,
    Solved,
    abstain_below,
    fit_threshold,
    pick_examples,
    solved_cases,
)
from dagengine.test_case import LLMTestCase


def apart(size: int, cut: float, noise: float = 0.0) -> list[tuple[float, bool]]:
    """Scores of which people pass those from `cut` on, except for a share of them."""
    random = Random(3)
    scores = [place / size for place in range(size)]
    return [(score, (score >= cut) != (random.random() < noise)) for score in scores]


def fitted(scored: list[tuple[float, bool]], **more: Any) -> FittedThreshold:
    fit = fit_threshold(scored, **more)
    assert isinstance(fit, FittedThreshold)
    return fit


def test_a_threshold_that_tells_labels_apart_is_found_with_its_interval_and_gain() -> None:
    fit = fitted(apart(100, 0.7, 0.05), now=0.5)
    assert fit.low <= 0.7 <= fit.high
    assert fit.low > 0.5
    assert abs(fit.threshold - 0.7) < 0.06
    assert fit.cost < fit.cost_now
    assert fit.is_better


def test_labels_that_do_not_depend_on_the_score_rule_out_little() -> None:
    random = Random(1)
    fit = fitted([(random.random(), random.random() < 0.5) for _ in range(100)])
    assert fit.high - fit.low > 0.5
    assert not fit.is_better


def test_a_threshold_that_is_best_already_stays() -> None:
    assert fitted(apart(60, 0.5), now=0.5).threshold == 0.5
    assert not fitted(apart(60, 0.5), now=0.5).is_better


def test_the_dearer_error_moves_the_threshold() -> None:
    scored = apart(200, 0.5, 0.25)
    strict, lenient = fitted(scored, cost_pass=8), fitted(scored, cost_fail=8)
    assert lenient.threshold < strict.threshold


@given(st.lists(st.tuples(st.sampled_from([0.0, 0.3, 0.5, 1.0]), st.booleans()), min_size=40))
@settings(max_examples=25, deadline=None)
def test_the_interval_holds_the_threshold_and_costs_are_costs(
    scored: list[tuple[float, bool]],
) -> None:
    fit = fit_threshold(scored, cost_pass=2.0)
    if isinstance(fit, Unknown):
        rarer = min(sum(label for _, label in scored), sum(not label for _, label in scored))
        assert rarer < 3
        return
    assert 0 <= fit.low <= fit.threshold <= fit.high <= 1
    assert 0 <= fit.cost <= 2
    assert fit == fit_threshold(scored, cost_pass=2.0)


def test_cases_of_one_group_are_one_item() -> None:
    scored = apart(40, 0.6) * 3
    alone, together = fitted(scored), fitted(scored, groups=[*range(40)] * 3)
    assert (alone.items, together.items) == (120, 40)
    assert together.high - together.low >= alone.high - alone.low
    assert isinstance(fit_threshold(scored, groups=[place % 5 for place in range(120)]), Unknown)


@pytest.mark.parametrize(
    "wrong",
    [
        lambda: fit_threshold(apart(40, 0.5), cost_pass=0),
        lambda: fit_threshold(apart(40, 0.5), groups=[1]),
        lambda: abstain_below([(0.5, True)], 1.0),
        lambda: abstain_below([(1.5, True)], 0.5),
        lambda: abstain_below([(0.5, True)], 0.5, groups=[]),
    ],
)
def test_what_cannot_be_fitted_is_refused(wrong: Any) -> None:
    with pytest.raises(InputError):
        wrong()


def test_too_few_labels_promise_nothing_and_say_how_many_would() -> None:
    assert abstain_below([(0.9, True)] * 18, 0.05) == Unknown("too few labels", 18, 19)
    kept = abstain_below([(0.9, True)] * 19, 0.05)
    assert isinstance(kept, Abstention)
    assert (kept.below, kept.answered, kept.wrong) == (0.9, 1.0, 0.0)


STATED = st.lists(
    st.tuples(st.sampled_from([0.5, 0.6, 0.7, 0.8, 0.9, 1.0]), st.booleans()),
    min_size=25, max_size=60,
)  # fmt: skip


@given(STATED, st.sampled_from([0.05, 0.1, 0.3]))
@settings(deadline=None)
def test_what_is_promised_holds_on_the_labels_with_one_error_more(
    stated: list[tuple[float, bool]], promised: float
) -> None:
    kept = abstain_below(stated, promised)
    if isinstance(kept, Unknown):
        assert len(stated) < 1 / promised - 1
        return
    wrong = [good for chance, good in stated if chance >= kept.below].count(False)
    assert (wrong + 1) / (len(stated) + 1) <= promised + 1e-9
    lower = [chance for chance, _ in stated if chance < kept.below]
    if lower:  # the next verdict down would break the promise
        wrong = [good for chance, good in stated if chance >= max(lower)].count(False)
        assert (wrong + 1) / (len(stated) + 1) > promised


@given(st.integers(0, 10**6))
@settings(max_examples=10, deadline=None)
def test_leaving_out_any_label_keeps_the_rate_of_the_left_out_below_the_promise(seed: int) -> None:
    random = Random(seed)
    stated = [(round(random.random(), 1), random.random() < 0.8) for _ in range(30)]
    errors = 0
    for place, (chance, good) in enumerate(stated):
        kept = abstain_below([*stated[:place], *stated[place + 1 :]], 0.2)
        assert isinstance(kept, Abstention)
        errors += not good and chance >= kept.below
    assert errors / len(stated) <= 0.2


# Examples.


def solved(case: int, text: str, answer: bool, wrong: bool = False) -> Solved:
    return Solved(case, Example({"actual_output": text}, answer), wrong)


def test_examples_are_balanced_varied_and_first_what_the_judge_gets_wrong() -> None:
    given_ = [
        solved(0, "the parcel is late", True),
        solved(1, "the parcel is very late", True, wrong=True),
        solved(2, "we shipped the parcel late again", True),
        solved(3, "a refund was paid today", True),
        solved(4, "go away", False),
        solved(5, "go away now", False),
        solved(6, "none of my business", False, wrong=True),
    ]
    chosen = [example.case for example in pick_examples(given_, 4)]
    assert chosen == [6, 1, 4, 3]
    assert [example.case for example in pick_examples(reversed(given_), 4)] == chosen
    assert len(pick_examples(given_, 20)) == 7
    assert pick_examples(given_, 4, most_characters=10) == [given_[4]]


CASES = [
    LLMTestCase(input="a", actual_output="Thanks."),
    LLMTestCase(input="b", actual_output="Go away."),
    LLMTestCase(input="c", actual_output="Thanks."),
    LLMTestCase(input="d", actual_output="Hm."),
    LLMTestCase(input="e", actual_output="Fine."),
]


def polite(**more: Any) -> BinaryJudgementNode:
    return BinaryJudgementNode("Polite?", then={True: 10, False: 0}, name="Polite", **more)


def test_walked_answers_become_examples_but_never_sealed_or_contradicting_ones() -> None:
    node = polite(evaluation_params=["actual_output"])
    answers = {0: (True,), 1: (False, False), 2: (False,), 3: (True, False), 4: (True,)}
    made = solved_cases(node, answers, CASES, judged={1: True, 4: True}, sealed={4})
    # Cases 0 and 2 show one text with two answers, the people of case 3 differ, case 4 is sealed.
    assert [(example.case, example.wrong) for example in made] == [(1, True)]
    assert made[0].example == Example({"actual_output": "Go away."}, False)


def test_examples_of_a_node_that_reads_others_need_what_these_gave() -> None:
    task = TaskNode("Shorten.", "short", evaluation_params=["actual_output"])
    node = polite(inputs=[task])
    answers = {0: (True,), 1: (False,)}
    assert solved_cases(node, answers, CASES) == []
    (only,) = solved_cases(node, answers, CASES, outputs={1: {"short": "Away."}})
    assert only.example.reads == {"short": "Away."}


def test_walked_ratings_become_points_of_the_scale_and_unknown_verdicts_nothing() -> None:
    numbers = RatingNode("Good?", ["actual_output"], scale=(1, 5))
    words = RatingNode("Good?", ["actual_output"], scale={"poor": 1, "fine": 3})
    verdicts = NonBinaryJudgementNode("Good?", (), ["actual_output"], then={"good": 10, "bad": 0})
    rated = {1: (0.75,), 4: (0.0,)}
    assert [candidate.example.answer for candidate in solved_cases(numbers, rated, CASES)] == [4, 1]
    assert [candidate.example.answer for candidate in solved_cases(words, rated, CASES)] == [
        "fine",
        "poor",
    ]
    kept = solved_cases(verdicts, {1: ("good",), 4: ("other",)}, CASES)
    assert [example.case for example in kept] == [1]
