"""Settings and cards against each other: never pooled, compared by case, corrected for many."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from random import Random

import pytest
from graphs.trees import yes_no_metric

from dagengine.errors import InputError
from dagengine.metrics import DAGMetric
from dagengine.metrics.dag import DAG, NonBinaryJudgementNode
from dagengine.reliability.card import make_card, read_card, write_card
from dagengine.reliability.card.differences import between_cards
from dagengine.reliability.card.fail_if import failures, parse, undecided_lines, worse
from dagengine.reliability.card.sentences import could_be_seen
from dagengine.reliability.card.types import Contrast, JudgeCard
from dagengine.reliability.observations import Condition, Observation, Observations
from dagengine.reliability.observed_runs import clusters, constant_questions
from dagengine.test_case import LLMTestCase

Said = Callable[[int, int], bool]
CASES = [
    LLMTestCase(
        input=str(n), additional_metadata={"good": n % 2 == 0, "of": n // 2, "stars": n % 5}
    )
    for n in range(40)
]


def observed(said: Said, at: Condition, times: int = 2, cases: int = 40) -> Iterator[Observation]:
    for case in range(cases):
        for sample in range(times):
            verdict, one = said(case, sample), replace(at, sample=sample)
            path = (("good", verdict),)
            yield Observation(case, "worth", "", one, None, float(verdict), path=path)
            yield Observation(case, "worth", "good", one, verdict)


def right(case: int, sample: int) -> bool:
    return case % 2 == 0


def card(*rows: Iterator[Observation], **settings: object) -> JudgeCard:
    seen = [one for row in rows for one in row]
    given = {"labels": "additional_metadata.good", **settings}
    return make_card(seen, [yes_no_metric()], CASES, ["j"], **given)  # type: ignore[arg-type]


def named(found: tuple[Contrast, ...], name: str) -> Contrast:
    return next(one for one in found if one.difference.name == name)


def test_a_perfect_and_an_always_wrong_judge_each_keep_their_own_figures() -> None:
    both = card(
        observed(right, Condition(judge="right")),
        observed(lambda case, sample: not right(case, sample), Condition(judge="wrong")),
    )
    (found,) = both.metrics
    accuracies = [under.figure("accuracy") for under in found.settings]
    assert [one and one.value for one in accuracies] == [1.0, 0.0]
    difference = named(found.between, "accuracy")
    assert (difference.one, difference.other) == ("right", "wrong")
    assert difference.difference.value == -1.0
    assert difference.corrected is not None
    assert difference.corrected < 1e-6
    assert both.settings[0].times == 2


def test_seeds_that_ran_once_each_are_repeats() -> None:
    rows = [
        observed(lambda case, sample, s=seed: (case + s) % 3 > 0, Condition(seed=seed), 1)  # type: ignore[misc]
        for seed in (1, 2, 3)
    ]
    found = card(*rows)
    assert [one.name for one in found.settings] == ["as given"]
    assert found.times == 3
    flips = found.metrics[0].figure("flip-rate")
    assert flips is not None
    assert flips.value == pytest.approx(2 / 3)


def wrong_on(share: int, of: int) -> Said:
    """Wrong on the first cases of every so many."""
    return lambda case, sample: right(case, sample) != (case % of < share)


def test_repaired_errors_are_found_by_case_where_intervals_overlap(tmp_path: Path) -> None:
    old = card(observed(wrong_on(3, 10), Condition()))
    new = card(observed(wrong_on(1, 10), Condition()))
    for place, one in enumerate((old, new)):
        write_card(one, tmp_path / f"{place}.json")
    old, new = (read_card(tmp_path / f"{place}.json") for place in (0, 1))
    accuracy = named(between_cards(old, new), "accuracy")
    assert accuracy.difference.value == pytest.approx(0.2)
    assert accuracy.difference.level == "by case, 40 cases on both sides"
    assert accuracy.p == pytest.approx(2 * 0.5**8 - 0.5**8)  # 8 of 8: the mid-p of McNemar
    before, after = (one.metrics[0].figure("accuracy") for one in (old, new))
    assert before is not None
    assert after is not None
    assert (before.high or 0) > (after.low or 1)  # the intervals overlap


def test_lines_that_count_are_named_and_corrected_together() -> None:
    old = card(observed(wrong_on(3, 10), Condition()))
    new = card(observed(wrong_on(1, 10), Condition()))
    (alone,) = between_cards(old, new, ["accuracy"])
    assert alone.corrected == alone.p
    every = named(between_cards(old, new), "accuracy")
    assert every.corrected is not None
    assert every.p is not None
    assert every.corrected > every.p
    assert worse(between_cards(new, old, ["accuracy"]), [parse("accuracy<0")])
    assert not worse(between_cards(old, new, ["accuracy"]), [parse("accuracy<0")])


def test_cards_of_other_cases_are_compared_unpaired_and_say_so() -> None:
    draws = Random(0)
    old = card(observed(lambda case, sample: draws.random() < 0.5, Condition()))
    other = [replace(one, key=f"other {one.key}", about=f"{one.key}") for one in old.cases]
    flips = named(between_cards(old, replace(old, cases=tuple(other))), "flip-rate")
    assert not flips.paired
    assert flips.difference.level == "unpaired: no case is on both sides"
    with pytest.raises(InputError, match="no metric and setting in common"):
        between_cards(old, replace(old, metrics=()))


def test_a_bound_that_no_judge_could_reach_is_no_failure_but_cannot_be_told() -> None:
    perfect = card(observed(right, Condition()))
    assert failures(perfect, [parse("kappa.low<0.95")]) == []
    (line,) = undecided_lines(perfect, [parse("kappa.low<0.95")])
    assert "too few cases (n = 40): even a judge without errors would have kappa.low 0." in line
    assert undecided_lines(perfect, [parse("kappa.low<0.6")]) == []


def test_the_plan_says_what_so_many_cases_and_runs_could_show() -> None:
    said = could_be_seen(100, 5)
    # √(7.85 · 0.17 / 107.85); 7.85 · (0.17 - 0.05²) / 0.05².
    least = "100 cases with 5 runs each can detect a difference of about 11.1 points"
    assert least in said
    assert "5 points: 778 cases run once, or 526 run 5 times" in said


# Cases that depend on each other.


def test_cases_of_one_document_are_one_group_in_every_interval() -> None:
    draws = Random(1)
    flipping = {n: draws.random() < 0.2 for n in range(20)}
    seen = list(observed(lambda case, s: bool(s) and flipping[case // 2], Condition()))
    alone = card(iter(seen)).metrics[0].figure("flip-rate")
    grouped = card(iter(seen), groups="additional_metadata.of")
    flips = grouped.metrics[0].figure("flip-rate")
    assert alone is not None
    assert flips is not None
    assert (alone.items, flips.items) == (40, 20)
    assert flips.value == alone.value
    width = [(one.high or 0) - (one.low or 0) for one in (alone, flips)]
    assert width[1] > 1.2 * width[0]
    assert any("20 independent cases and groups" in rule for rule in grouped.rules)
    with pytest.raises(InputError, match=r"no case has a value at `additional_metadata\.none`"):
        card(iter(seen), groups="additional_metadata.none")


def test_cases_that_were_asked_one_question_are_one_group() -> None:
    seen = [
        Observation(case, "m", "node", Condition(), True, question=question)
        for case, question in ((0, "a"), (1, "b"), (2, "a"), (3, "c"), (4, "c"))
    ]
    found = clusters(CASES, seen)
    assert found[0] == found[2] != found[3] == found[4]
    assert 1 not in found
    # What all cases are asked, such as the question for steps, ties none together.
    common = [replace(one, question="steps") for one in seen]
    assert clusters(CASES, common) == {}
    # But the card says that no interval shows what its answer does.
    assert constant_questions(common) == ("node",)
    assert constant_questions(seen) == constant_questions(common[:1]) == ()
    steps = (replace(one, question="steps") for one in observed(right, Condition()))
    assert any("share one question of “good”" in rule for rule in card(steps).rules)


def test_cases_that_are_equal_in_what_is_read_are_one_group_in_loaded_verdicts_too() -> None:
    """As runs, where equal texts are one question, whatever the cases are called."""
    texts = [f"text {n % 20}" for n in range(40)]
    cases = [LLMTestCase(name=str(n), input=text) for n, text in enumerate(texts)]
    cases.append(LLMTestCase(name="blank", input="text  0"))
    rows = [{"case": str(n), "verdict": n % 20 > 3} for n in range(41)]
    rows[-1]["case"] = "blank"
    found = make_card(
        Observations.load(rows, cases, metric="worth"), [yes_no_metric()], cases, ["it"]
    )
    rate = found.metrics[0].figure("pass-rate")
    assert rate is not None
    assert rate.items == 21
    assert any("2 texts equal others but for blanks" in rule for rule in found.rules)


def test_numbers_are_correlated_within_documents_too() -> None:
    found = card(
        observed(lambda case, sample: case % 5 > 1, Condition()),
        labels="additional_metadata.stars", groups="additional_metadata.of",
    )  # fmt: skip
    within = found.metrics[0].figure("within-group-spearman")
    assert within is not None
    assert within.value == 1.0


# Labels on a part of the cases.


def test_the_pass_rate_is_corrected_by_labels_only_where_they_are_said_to_be_random() -> None:
    # Every second pair of cases: 15 of 20 pass, by the judge half of them.
    labels = {4 * (n // 2) + n % 2: n % 4 > 0 for n in range(20)}
    seen = list(observed(right, Condition()))
    (refused,) = card(iter(seen), labels=labels).metrics[0].settings[0].corrected
    assert refused.estimate.value is None
    assert "if they are, add --labels-random" in refused.estimate.note
    (found,) = card(iter(seen), labels=labels, labels_random=True).metrics[0].settings[0].corrected
    assert found.judge == 0.5
    assert found.estimate.value == pytest.approx(0.75)
    assert found.estimate.low is not None
    assert found.estimate.high is not None
    assert 0 < found.estimate.low < 0.75 < found.estimate.high < 1
    assert (found.labelled, found.judged) == (20, 40)


def test_labels_that_fit_one_of_two_metrics_leave_the_other_without() -> None:
    kind = NonBinaryJudgementNode(
        "Which?", name="which", evaluation_params=["input"], then={"red": 10, "blue": 0}
    )
    metrics = [yes_no_metric(), DAGMetric("colour", DAG(kind))]
    seen = list(observed(right, Condition(), 1))
    labels = dict.fromkeys(range(40), "red")
    worth, colour = make_card(seen, metrics, CASES, ["j"], labels=labels).metrics
    (accuracy,) = worth.settings[0].people
    assert accuracy.note == "no label is a possible outcome of this metric"
    assert [one.means for one in colour.labels] == ["red"]


def steady(chances: list[float], seed: int, cases: int = 40) -> Iterator[Observation]:
    """Runs of cases with these chances to pass, one after the other."""
    draws = Random(seed)
    return observed(
        lambda case, _: draws.random() < chances[case % len(chances)], Condition(), 4, cases
    )


def test_kappa_reliability_and_shares_are_compared_on_the_same_cases() -> None:
    old, new = card(steady([0.7, 0.3], 1)), card(steady([0.95, 0.05], 2))
    found = between_cards(old, new)
    for name in ("kappa", "test-retest"):
        one = named(found, name)
        assert one.difference.value is not None
        assert one.difference.value > 0.2
        assert one.p is not None
        assert one.difference.low is not None
    share = named(found, "variance-share")
    assert share.one == "worth (old card), node good"
    assert share.other == "worth (new card), node good"
    assert share.difference.value == 0  # the only node has all of the noise on both
    with pytest.raises(InputError, match="entropy cannot be compared; use one of flip-rate, "):
        between_cards(old, new, ["entropy"])


def of_system(
    name: str, rate: float, random: bool = True, labelled: Sequence[int] = range(0, 200, 2)
) -> JudgeCard:
    """200 answers to the same inputs, half of them labelled; the judge is wrong in a tenth."""
    draws = Random(name)
    good = [draws.random() < rate for _ in range(200)]
    said = [truth ^ (draws.random() < 0.1) for truth in good]
    cases = [LLMTestCase(input=str(n), actual_output=name) for n in range(200)]
    seen = observed(lambda case, _: said[case], Condition(), 1, 200)
    labels = {case: good[case] for case in labelled}
    return make_card(seen, [yes_no_metric()], cases, ["j"], labels=labels, labels_random=random)


def test_two_systems_are_compared_by_their_inputs_and_corrected_by_labels() -> None:
    found = between_cards(of_system("weak", 0.6), of_system("good", 0.9))
    passing, by_people = named(found, "pass-rate"), named(found, "corrected-pass-rate")
    assert passing.paired
    assert passing.difference.level == "by input, 200 inputs on both sides"
    assert by_people.difference.value == pytest.approx(0.3, abs=0.12)
    assert by_people.difference.low is not None
    assert by_people.difference.low > 0
    assert by_people.corrected is not None
    assert by_people.corrected < 0.05
    unstated = between_cards(of_system("weak", 0.6, random=False), of_system("good", 0.9))
    assert all(one.difference.name != "corrected-pass-rate" for one in unstated)


def test_labels_that_a_card_does_not_believe_to_be_random_correct_no_difference() -> None:
    cards = of_system("weak", 0.6, labelled=range(100)), of_system("good", 0.9)
    (first,) = cards[0].metrics[0].settings[0].corrected
    assert "place in the file" in first.estimate.note
    for old, new in (cards, cards[::-1]):
        by_people = named(between_cards(old, new), "corrected-pass-rate")
        assert by_people.difference.value is by_people.p is None
        assert "place in the file" in by_people.difference.note
