"""What the card says of judges at the extremes: each sentence follows from figures beside it."""

from __future__ import annotations

import io
import math
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import pytest
from graphs.trees import yes_no_metric
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import TypeAdapter
from rich.console import Console

from dagengine.metrics import DAGMetric
from dagengine.metrics.dag import DAG, NonBinaryJudgementNode, RatingNode
from dagengine.reliability.card import card_page, make_card, print_card
from dagengine.reliability.card.card_formats import markdown
from dagengine.reliability.card.differences import between_cards
from dagengine.reliability.card.sentences import answers, estimate, number
from dagengine.reliability.card.types import Figure, JudgeCard, SettingCard
from dagengine.reliability.observations import Condition, Observation
from dagengine.results import OutcomeKind
from dagengine.test_case import LLMTestCase

Said = Callable[[int, int], bool | None]
"""What a judge says of a case in a run; None cannot be read."""

TWELVE = [
    LLMTestCase(input=str(number), additional_metadata={"good": number % 2 == 0})
    for number in range(12)
]


def observed(said: Said, cases: int, times: int) -> Iterator[Observation]:
    for case in range(cases):
        for sample in range(times):
            verdict, at = said(case, sample), Condition(sample)
            if verdict is None:
                yield Observation(case, "worth", "", at, outcome=OutcomeKind.UNPARSEABLE)
                continue
            path = (("good", verdict),)
            yield Observation(case, "worth", "", at, None, float(verdict), path=path)
            yield Observation(case, "worth", "good", at, verdict)


EXTREMES: dict[str, tuple[Said, int, int]] = {
    "constant": (lambda case, sample: True, 12, 4),
    "perfect": (lambda case, sample: case % 2 == 0, 12, 4),
    "always wrong": (lambda case, sample: case % 2 == 1, 12, 4),
    "nothing parses": (lambda case, sample: None, 12, 4),
    "one case": (lambda case, sample: sample % 3 > 0, 1, 6),
    "one run": (lambda case, sample: case % 2 == 0, 12, 1),
    "all ties": (lambda case, sample: sample % 2 == 0, 12, 4),
    "mostly right": (lambda case, sample: (case % 2 == 0) ^ (sample == 3), 12, 4),
    "one run can be read": (lambda case, sample: True if case + sample == 0 else None, 12, 4),
}


@cache
def card(name: str) -> JudgeCard:
    said, cases, times = EXTREMES[name]
    seen = list(observed(said, cases, times))
    return make_card(
        seen, [yes_no_metric()], TWELVE[:cases], ["j"], labels="additional_metadata.good"
    )


def under(name: str) -> SettingCard:
    return card(name).metrics[0].settings[0]


def figures(one: SettingCard) -> Iterator[Figure]:
    yield from one.measures
    for node in one.nodes:
        yield from (node.flip_rate, node.effect, node.share)
        if node.votes is not None:
            yield node.votes.seen_flips


@pytest.mark.parametrize("name", EXTREMES)
def test_every_number_of_a_sentence_is_on_the_card(name: str) -> None:
    assert_said_of_figures(under(name))


def assert_said_of_figures(one: SettingCard) -> None:
    """The numbers of the four answers stand in figures of the card."""
    shown = " ".join(f"{number(f)} {estimate(f)} {f.items} {f.note}" for f in figures(one))
    voting = [(node.node, node.votes) for node in one.nodes if node.votes is not None]
    for name, votes in voting:
        # "More than" names the number of votes below the lowest that may be enough.
        shown += f" {name} {votes} {100 * votes.target:g} {(votes.least or 0) - 2} {len(voting)}"
        shown += f" {sum(v.calls for _, v in voting):.0f}"
        shown += f" {sum((v.most or 0) * v.calls for _, v in voting):.0f}"
        shown += f" {len(voting) - 1}"
    single = one.figure("test-retest")
    if not voting and single is not None and single.value is not None:
        # How many ratings make a mean of 0.9, at both ends (Spearman and Brown).
        ends = [end for end in (single.low, single.high) if end is not None and end > 0]
        shown += " 0.9 " + " ".join(
            str(max(math.ceil(9 * (1 / end - 1) - 1e-9), 1)) for end in ends
        )
    known = set(_numbers(f"{shown} 95"))
    for answer in answers(one):
        assert set(_numbers(str(answer))) <= known | {"99"}, answer


def _numbers(text: str) -> list[str]:
    return re.findall(r"\d+(?:\.\d+)?", text.replace(",", ""))


@pytest.mark.parametrize("name", EXTREMES)
def test_what_is_undefined_says_why_and_the_page_can_be_made(name: str) -> None:
    for one in figures(under(name)):
        assert one.value is not None or one.note, one
    page, summary = card_page(card(name)), markdown(card(name))
    for answer in answers(under(name)):
        assert str(answer) in summary
    assert "nan" not in summary.lower()
    assert page.count("<summary>") >= 4


def test_a_constant_judge_is_sure_up_to_a_bound() -> None:
    again, blame, _, people = map(str, answers(under("constant")))
    assert re.match(
        r"Yes: no two runs of a case differed \(12 cases\); the flip rate is at most \d", again
    )
    assert blame == "None: the score did not vary within any case."
    assert people.startswith("In 50.0 % (")
    assert "Kappa: 0.000" in people


def test_a_perfect_and_an_always_wrong_judge_are_told_apart() -> None:
    assert str(answers(under("perfect"))[3]).startswith("In 100.0 % (")
    assert str(answers(under("always wrong"))[3]).startswith("In 0.0 % (")
    assert "Kappa: -1.000" in str(answers(under("always wrong"))[3])


def test_a_judge_whom_nobody_can_read_is_known_to_nobody() -> None:
    again, blame, price, people = map(str, answers(under("nothing parses")))
    for said in (again, blame, people):
        assert said == "Not known: no run has a score."
    assert price == "Not known: no run has a score."
    assert under("nothing parses").notes == ("48 of 48 runs have no score: 48 unparseable.",)
    names = {one.name for one in under("nothing parses").measures}
    for one in under("nothing parses").people:
        assert (one.value, one.items, one.note) == (None, 0, "no run has a score")
    assert "total-agreement" not in names  # all runs do not agree on a score that is not there


def test_one_run_of_each_case_tells_about_people_and_not_about_noise() -> None:
    again, blame, price, people = map(str, answers(under("one run")))
    for said in (again, blame, price):
        assert "every case ran once" in said
    assert people.startswith("In 100.0 % (")


def test_ties_flip_and_agree_with_nobody() -> None:
    again, _, price, people = map(str, answers(under("all ties")))
    assert "a different result (pass or fail) 66.7 %" in again  # 4 of 6 pairs of 2 and 2
    # Every case has the same verdicts in the same runs: these are no repeats.
    assert price.startswith("Not known: ")
    assert "run" in price
    assert people.startswith("In 0.0 % (")


def test_one_run_is_shown_beside_the_majority_where_it_reaches_less() -> None:
    people = str(answers(under("mostly right"))[3])
    assert re.match(r"In 100.0 % \([^)]*\) of cases \(single run: 75.0 %\)\. Baseline", people)
    assert "one run" not in str(answers(under("perfect"))[3])


def test_a_card_without_an_observation_can_be_shown() -> None:
    empty, screen = make_card([], [yes_no_metric()], TWELVE, ["j"]), io.StringIO()
    print_card(empty, Console(file=screen))
    for shown in (screen.getvalue(), card_page(empty), markdown(empty)):
        assert "12 cases, 0 runs of each" in shown


def test_one_case_has_no_interval_and_says_so() -> None:
    again = answers(under("one case"))[0]
    assert "Two runs of a case give a different result" in again.text
    assert "no interval, n = 1" in again.weak


# Any judge of a few cases: several verdicts, ratings, settings, groups, lost runs, partial labels.


@dataclass(frozen=True)
class Drawn:
    """A population of answers: what each setting says of each case in each run (None: lost)."""

    form: str
    answers: dict[Condition, list[list[int | None]]]
    labels: list[int | None]
    groups: list[int]


SETTINGS = [
    [Condition(0)],
    [Condition(0, judge="x"), Condition(0, judge="y")],
    [Condition(0, temperature=0.0), Condition(0, temperature=0.7), Condition(0, temperature=1.0)],
    [Condition(0, judge=judge, temperature=one) for judge in "xy" for one in (0.0, 1.0)],
    [Condition(0, seed=1), Condition(0, seed=2)],
    [Condition(0, order="given"), Condition(0, order="reversed")],
    [Condition(0), Condition(0, paraphrase="short"), Condition(0, temperature=1.0)],
]
"""What is compared: one setting, and all circumstances that make several."""


@st.composite
def populations(draw: st.DrawFn) -> Drawn:
    form = draw(st.sampled_from(["yes or no", "three verdicts", "a rating"]))
    cases, runs = draw(st.integers(1, 9)), draw(st.integers(1, 4))
    answer = st.sampled_from([0, 0, 0, 1, 1, 2, None])
    table = st.lists(st.lists(answer, min_size=runs, max_size=runs), min_size=cases, max_size=cases)
    at = draw(st.sampled_from(SETTINGS))
    label = st.sampled_from([0, 1, 2, None])
    labels = draw(st.lists(label, min_size=cases, max_size=cases))
    groups = draw(st.lists(st.integers(0, 3), min_size=cases, max_size=cases))
    return Drawn(form, {setting: draw(table) for setting in at}, labels, groups)


def metric_of(form: str) -> DAGMetric:
    if form == "yes or no":
        return yes_no_metric()
    if form == "a rating":
        node: Any = RatingNode("Rate.", name="good", evaluation_params=["input"], scale=(0, 2))
    else:
        node = NonBinaryJudgementNode(
            "Which?", name="good", evaluation_params=["input"], then={"a": 0, "b": 5, "c": 10}
        )
    return DAGMetric("worth", DAG(node), threshold=None if form == "a rating" else 0.5)


def observed_of(drawn: Drawn) -> Iterator[Observation]:
    for setting, table in drawn.answers.items():
        for case, row in enumerate(table):
            for sample, answer in enumerate(row):
                at = replace(setting, sample=sample)
                if answer is None:
                    yield Observation(case, "worth", "", at, outcome=OutcomeKind.UNPARSEABLE)
                    continue
                verdict: Any = {"yes or no": answer > 0, "three verdicts": "abc"[answer]}.get(
                    drawn.form
                )
                score = float(verdict) if verdict in (True, False) else answer / 2
                path = () if verdict is None else (("good", verdict),)
                yield Observation(case, "worth", "", at, None, score, path=path)
                own = score if verdict is None else None
                yield Observation(case, "worth", "good", at, verdict, own)


def differences(card: JudgeCard) -> Iterator[Figure]:
    yield from (one.difference for one in card.metrics[0].between)


@settings(max_examples=12, deadline=None)
@given(populations())
def test_any_card_holds_together_and_says_only_what_it_shows(drawn: Drawn) -> None:
    cases = [
        LLMTestCase(input=str(n), additional_metadata={"of": group})
        for n, group in enumerate(drawn.groups)
    ]
    words: dict[str, list[Any]] = {"yes or no": [False, True, True], "three verdicts": list("abc")}
    meant = words.get(drawn.form, [0, 1, 2])
    labels = {n: meant[one] for n, one in enumerate(drawn.labels) if one is not None}
    made = make_card(
        observed_of(drawn), [metric_of(drawn.form)], cases, ["j"],
        labels=labels or None, labels_random=True, groups="additional_metadata.of",
    )  # fmt: skip
    for one in made.metrics[0].settings:
        assert_said_of_figures(one)
        for found in (*figures(one), *made.metrics[0].across, *differences(made)):
            assert found.value is not None or found.note, found
            low, high = found.low, found.high
            if found.value is not None and low is not None and high is not None:
                assert low - 1e-9 <= found.value <= high + 1e-9, found
    summary = markdown(made)
    assert "nan" not in summary.lower().replace("dominan", "")
    assert "None" not in summary.replace("None: the score", "")
    assert TypeAdapter(JudgeCard).validate_json(TypeAdapter(JudgeCard).dump_json(made)) == made
    assert card_page(made).count("<summary>") >= 5
    between_cards(made, made)
