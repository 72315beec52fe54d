"""A judge card: measures of known runs, what it is bound to, conditions, and the page."""

from __future__ import annotations

import html
import json
import math
import re
from collections.abc import Sequence
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from servers.decision_server import Asked, DecisionServer

from dagengine.errors import InputError
from dagengine.judges import DecisionJudge, ScriptedJudge
from dagengine.metrics import ContextualPrecisionMetric, DAGMetric
from dagengine.metrics.dag import DAG, BinaryJudgementNode, NonBinaryJudgementNode, RatingNode
from dagengine.question import Question
from dagengine.reliability import Observations, repeat
from dagengine.reliability.card import card_page, make_card, read_card, write_card
from dagengine.reliability.card.card_formats import markdown
from dagengine.reliability.card.fail_if import failures, parse
from dagengine.reliability.card.recommendation import verdict as verdict_of
from dagengine.reliability.card.sentences import QUESTIONS, answers, title
from dagengine.reliability.card.types import Figure, JudgeCard, MetricCard, Setting, SettingCard
from dagengine.reliability.fingerprint import bind, changes
from dagengine.reliability.observations import Condition, Observation
from dagengine.results import OutcomeKind
from dagengine.test_case import ArenaTestCase, LLMTestCase

CASES = [
    LLMTestCase(
        name=f"case <{number}>",
        input=str(number),
        additional_metadata={"good": good, "stars": stars},
    )
    for number, (good, stars) in enumerate([(True, 4), (True, 5), (False, 1), (False, 2)])
]


def tree(criteria: str = "Is it kind?", threshold: float | None = 0.5) -> DAGMetric:
    short = BinaryJudgementNode(
        "Is it short?", then={True: 10, False: 6}, name="short", evaluation_params=["input"]
    )
    kind = BinaryJudgementNode(
        criteria, then={True: short, False: 0}, name="kind", evaluation_params=["input"]
    )
    return DAGMetric("manners", DAG(kind), threshold=threshold)


def run_of(case: int, condition: Condition, kind: bool, short: bool = True) -> list[Observation]:
    """What one run of the tree leaves behind."""
    score = (1.0 if short else 0.6) if kind else 0.0
    path = (("kind", kind), ("short", short)) if kind else (("kind", kind),)
    ok = OutcomeKind.OK
    found = [Observation(case, "manners", "", condition, None, score, None, ok, path)]
    for node, verdict in path:
        found.append(Observation(case, "manners", node, condition, verdict, None, None, ok))
    return found


def runs(kinds: Sequence[Sequence[bool]]) -> list[Observation]:
    """One row of verdicts about kindness per case."""
    return [
        seen
        for case, row in enumerate(kinds)
        for sample, kind in enumerate(row)
        for seen in run_of(case, Condition(sample), kind)
    ]


NOISY = [[True] * 4, [True, True, True, False], [False] * 4, [False, True, False, False]]


@pytest.fixture(scope="module")
def card() -> JudgeCard:
    return make_card(runs(NOISY), [tree()], CASES, ["judge 1"], labels="additional_metadata.good")


def value(card: JudgeCard, name: str) -> float | None:
    found = card.metrics[0].figure(name)
    assert found is not None
    return found.value


def test_every_measure_of_repetition_is_that_of_the_runs(card: JudgeCard) -> None:
    assert value(card, "flip-rate") == pytest.approx((0 + 0.5 + 0 + 0.5) / 4)
    assert value(card, "score-flip-rate") == pytest.approx(0.25)
    assert value(card, "path-flip-rate") == pytest.approx(0.25)
    assert value(card, "total-agreement") == 0.5
    assert value(card, "majority-share") == pytest.approx((1 + 0.75 + 1 + 0.75) / 4)
    assert value(card, "score-spread") == pytest.approx(0.25)
    assert value(card, "unscored") == 0
    flips = card.metrics[0].figure("flip-rate")
    assert flips is not None
    assert flips.low is not None
    assert flips.high is not None
    assert 0 <= flips.low < 0.25 < flips.high
    assert flips.items == 4


def test_the_noise_is_put_to_the_node_that_flips(card: JudgeCard) -> None:
    kind, short = card.metrics[0].settings[0].nodes
    assert (kind.node, kind.share.value, kind.flip_rate.value) == ("kind", None, 0.25)
    assert "its share needs 10 cases" in kind.share.note
    assert kind.effect.value == 1.0
    assert (short.node, short.share.value, short.flip_rate.value) == ("short", None, 0.0)


BESIDE = ("accuracy", "kappa", "balanced-accuracy", "baseline")


def test_accuracy_stands_with_kappa_and_the_trivial_baseline(card: JudgeCard) -> None:
    assert [value(card, name) for name in BESIDE] == [1.0, 1.0, 1.0, 0.5]
    # The majority flatters.
    assert value(card, "single-run-accuracy") == pytest.approx((1 + 0.75 + 1 + 0.75) / 4)


def test_a_judge_that_always_says_yes_is_as_good_as_the_baseline() -> None:
    always = make_card(
        runs([[True] * 3] * 4), [tree()], CASES, ["judge"], labels="additional_metadata.good"
    )
    assert [value(always, name) for name in BESIDE] == [0.5, 0.0, 0.5, 0.5]
    assert value(always, "single-run-accuracy") == 0.5


def test_numbers_that_people_gave_are_held_against_mean_scores() -> None:
    rated = make_card(runs(NOISY), [tree()], CASES, ["judge"], labels="additional_metadata.stars")
    found = {measure.name: measure.value for measure in rated.metrics[0].settings[0].people}
    assert found["spearman"] == pytest.approx(0.8)  # scores 1, 0.75, 0, 0.25; stars 4, 5, 1, 2
    assert set(found) == {"pearson", "spearman", "kendall"}


def test_labels_that_no_case_has_are_an_input_error() -> None:
    with pytest.raises(InputError, match=r"no case has a label at `additional_metadata\.none`"):
        make_card(runs(NOISY), [tree()], CASES, ["j"], labels="additional_metadata.none")


def test_runs_without_a_score_are_left_out_and_the_effect_of_that_is_shown() -> None:
    seen = [one for one in runs(NOISY) if one.case or one.condition.sample < 2]
    seen += [
        Observation(0, "manners", "", Condition(s), None, None, None, OutcomeKind.UNPARSEABLE)
        for s in (2, 3)
    ]
    found = make_card(seen, [tree()], CASES, ["judge"])
    assert value(found, "unscored") == pytest.approx(2 / 16)
    assert value(found, "flip-rate") == pytest.approx(0.25)
    counted, note = found.metrics[0].settings[0].notes
    assert counted == "2 of 16 runs have no score: 2 unparseable."
    # Two of four runs of the first case: 4 of its 6 pairs differ.
    assert "the flip rate is 25.0 %. With “no score” as an outcome" in note
    assert f"{100 * (4 / 6 + 0.5 + 0 + 0.5) / 4:.1f} %" in note


def test_a_change_of_order_is_measured_across_runs() -> None:
    seen = [
        one
        for sample in range(3)
        for order, kind in (("given", True), ("swapped", False))
        for case in range(2)
        for one in run_of(case, Condition(sample, order), kind or case == 1)
    ]
    found = make_card(seen, [tree()], CASES, ["judge"])
    assert value(found, "position-flip-rate") == pytest.approx(0.5)
    assert value(found, "flip-rate") == 0
    assert [one.name for one in found.settings] == ["order as given", "inputs swapped"]


ARENA = [
    ArenaTestCase(
        contestants={
            n: LLMTestCase(input="q", actual_output=n * size + str(k))
            for n, size in (("A", 3), ("B", 9))
        }
    )
    for k in range(4)
]


def duel(sample: int, order: str, case: int, winner: str) -> list[Observation]:
    at = Condition(sample, order)
    score = float(winner == "A")
    return [
        Observation(case, "duel", "", at, None, score, None, OutcomeKind.OK, (("who", winner),)),
        Observation(case, "duel", "who", at, winner),
    ]


def test_position_and_length_are_measured_where_two_contestants_were_swapped() -> None:
    node = NonBinaryJudgementNode(
        "Who?",
        name="who",
        evaluation_params=["contestants.A.actual_output"],
        then={"A": 10, "B": 0},
    )
    metric = DAGMetric("duel", DAG(node))
    winners = [("A", "A"), ("A", "B"), ("A", "B"), ("B", "A")]  # given, swapped
    seen = [
        one
        for case, pair in enumerate(winners)
        for order, winner in zip(("given", "swapped"), pair, strict=True)
        for sample in range(2)
        for one in duel(sample, order, case, winner)
    ]
    found = make_card(seen, [metric], ARENA, ["judge"])
    assert value(found, "position-consistency") == 0.25
    assert value(found, "position-preference") == pytest.approx(2 / 3)
    assert value(found, "first-wins") == pytest.approx((0.5 + 1 + 1 + 0) / 4)
    given, swapped = (one.figure("longer-wins") for one in found.metrics[0].settings)
    assert given is not None
    assert swapped is not None
    assert (given.value, swapped.value) == (0.25, 0.5)  # B is the longer one
    first = found.metrics[0].figure("first-wins")
    assert first is not None
    assert (first.items, first.level) == (4, "last verdicts, inputs swapped")


def test_agreement_between_judges_is_beyond_chance_and_by_single_runs() -> None:
    def seen(judges: Sequence[str]) -> list[Observation]:
        said = {"x": NOISY, "y": NOISY, "z": [[not kind for kind in row] for row in NOISY]}
        return [
            one
            for judge in judges
            for case, row in enumerate(said[judge])
            for sample, kind in enumerate(row)
            for one in run_of(case, Condition(sample, judge=judge), kind)
        ]

    same = make_card(seen("xy"), [tree()], CASES, ["x", "y"])
    assert value(same, "cohen-kappa") == pytest.approx(1)
    assert value(same, "score-alpha") == pytest.approx(1)
    opposed = make_card(seen("xz"), [tree()], CASES, ["x", "z"])
    assert value(opposed, "cohen-kappa") == pytest.approx(-1)
    three = make_card(seen("xyz"), [tree()], CASES, ["x", "y", "z"])
    assert value(three, "fleiss-kappa") == pytest.approx(-1 / 3)
    assert three.metrics[0].figure("cohen-kappa") is None


def test_what_the_rule_for_runs_without_a_score_does_is_a_figure_with_a_level() -> None:
    lost = OutcomeKind.UNPARSEABLE
    broken = [replace(one, score=None, path=(), outcome=lost) if not one.node and one.case == 1
              and not one.condition.sample else one for one in runs(NOISY)]  # fmt: skip
    found = make_card(broken, [tree()], CASES, ["judge"])
    # Case 1 flips in 2 of 3 pairs without the missing run, and in 5 of 6 with it.
    assert value(found, "unscored-effect") == pytest.approx((5 / 6 - 2 / 3) / 4)
    assert make_card(runs(NOISY), [tree()], CASES, ["j"]).metrics[0].figure(
        "unscored-effect"
    ) is None  # fmt: skip


def test_scores_that_follow_the_length_show_and_labels_are_held_constant() -> None:
    cases = [case.model_copy(update={"actual_output": "x" * (9 - 4 * (n > 1) + n % 2)})
             for n, case in enumerate(CASES)]  # fmt: skip
    found = make_card(
        runs([[True] * 2, [True] * 2, [False] * 2, [False] * 2]), [tree()], cases, ["j"]
    )
    assert (value(found, "length-bias") or 0) > 0.9
    held = make_card(runs(NOISY), [tree()], cases, ["j"], labels="additional_metadata.good")
    level = held.metrics[0].figure("length-bias")
    assert level is not None
    assert "labels held constant" in level.level


def test_verdicts_that_go_with_the_place_in_a_list_show(tmp_path: Path) -> None:
    def answer(question: Question[Any]) -> Any:
        last = 3 if question.options.sample % 2 else 2
        return {"verdicts": [
            {"reason": "r", "verdict": "yes" if number < last else "no", "number": number}
            for number in range(1, 5)
        ]}  # fmt: skip

    cases = [LLMTestCase(input=f"{n}", expected_output="e", retrieval_context=["a", "b", "c", "d"])
             for n in range(3)]  # fmt: skip
    metric = ContextualPrecisionMetric()
    seen = repeat(cases, [metric], times=2, model=ScriptedJudge(answer))
    seen.save(tmp_path / "seen.jsonl")
    found = make_card(Observations.load(tmp_path / "seen.jsonl"), [metric], cases, ["j"])
    figure = found.metrics[0].figure("list-bias")
    assert figure is not None
    # Places -3, -1, 1, 3 (halves) against yes, no, no, no and yes, yes, no, no.
    assert figure.value == pytest.approx(-(1.5 + 2.0) / math.sqrt(10 * (0.75 + 1.0)))
    assert figure.items == 3
    assert figure.level == "place in a list, “yes” by “usefulness”"
    assert make_card(runs(NOISY), [tree()], CASES, ["j"]).metrics[0].figure("list-bias") is None


def sure(probability: float) -> list[Observation]:
    """Runs whose verdicts were given with a probability, where the judge has any."""
    return [
        replace(one, confidence=probability if one.node == "kind" else 1.0) if one.node else one
        for one in runs(NOISY)
    ]


def test_stated_probabilities_are_held_against_the_next_run_and_against_people() -> None:
    found = make_card(sure(0.8), [tree()], CASES, ["j"], labels="additional_metadata.good")
    repeat, people = found.metrics[0].settings[0].calibration
    # Of 4 runs in a ring one other answer makes two pairs that differ: 12 of 16 agree.
    (bin_,) = repeat.bins
    assert bin_.stated == pytest.approx(0.8)
    assert (bin_.answers, bin_.observed) == (16, 0.75)
    assert value(found, "repeat-calibration-error") == 0  # 5 points of four cases are noise
    (bin_,) = people.bins
    assert bin_.observed == pytest.approx(14 / 16)
    assert value(found, "label-brier") == pytest.approx((14 * 0.04 + 2 * 0.64) / 16)
    assert "next run takes the same path" in card_page(found)


def test_the_odds_of_a_decision_judge_are_held_against_the_next_run_and_people() -> None:
    kind = {"0": 0.9, "1": 0.9, "2": 0.9, "3": 0.25}  # by case; the third is wrong

    def decide(state: Any, asked: Asked) -> Sequence[float]:
        chance = 0.75 if "short" in asked.instructions else kind[json.loads(state)["input"]]
        return chance, 1 - chance

    with DecisionServer(decide) as server:
        seen = repeat(CASES, [tree()], times=2, model=DecisionJudge(base_url=server.base_url))
    found = make_card(seen, [tree()], CASES, ["j"], labels="additional_metadata.good")
    repeated, people = found.metrics[0].settings[0].calibration
    # A path is as likely as its verdicts together: 0.9 times 0.75, and 0.75 where it is not kind.
    for held in (repeated, people):
        assert [one.stated for one in held.bins] == pytest.approx([0.675, 0.75])
        assert [one.answers for one in held.bins] == [6, 2]
    assert [one.observed for one in repeated.bins] == [1, 1]
    assert [one.observed for one in people.bins] == pytest.approx([2 / 3, 1])
    brier = (4 * 0.325**2 + 2 * 0.675**2 + 2 * 0.25**2) / 8
    assert value(found, "label-brier") == pytest.approx(brier)


def test_a_card_shows_whether_answers_depend_on_what_else_is_in_a_request() -> None:
    def carried_away(answers: Any) -> Any:
        """Every predicate is true where it is not alone."""
        return [{**one, "probability": 0.9} for one in answers] if len(answers) > 1 else answers

    found = []
    for spoil in (lambda answers: answers, carried_away):
        with DecisionServer(lambda state, asked: (0.2, 0.8), spoil=spoil) as server:
            judges = {
                "packed": DecisionJudge(base_url=server.base_url),
                "alone": DecisionJudge(base_url=server.base_url, pack=False),
            }
            metric = DAGMetric("either", DAG(root_nodes=[asked_of("a"), asked_of("b")]))
            seen = repeat(CASES, [metric], times=2, judges=judges)
        found.append((seen.table("either"), make_card(seen, [metric], CASES, list(judges))))
    (steady, same), (moved, other) = found
    assert steady == [[0.0, 0.0, 0.0, 0.0]] * 4
    assert moved == [[1.0, 1.0, 0.0, 0.0]] * 4
    difference = {one.difference.name: one.difference.value for one in other.metrics[0].between}
    assert difference["pass-rate"] == -1
    assert not any(one.difference.value for one in same.metrics[0].between)


def asked_of(name: str) -> BinaryJudgementNode:
    return BinaryJudgementNode(
        f"Is it {name}?", then={True: 10, False: 0}, name=name, evaluation_params=["input"]
    )


def test_without_probabilities_nothing_is_said_about_them(card: JudgeCard) -> None:
    assert card.metrics[0].settings[0].calibration == ()
    assert card.metrics[0].figure("repeat-brier") is None
    assert "Stated probabilities" not in card_page(card)


def test_a_weighted_score_is_the_probability_of_a_yes() -> None:
    weighted = [replace(one, weighted=True, score=0.9) if not one.node else one for one in
                runs([[True] * 2] * 4)]  # fmt: skip
    found = make_card(weighted, [tree()], CASES, ["j"], labels="additional_metadata.good")
    (people,) = found.metrics[0].settings[0].calibration
    (bin_,) = people.bins
    assert bin_.stated == pytest.approx(0.9)
    assert bin_.observed == 0.5


def test_every_measure_has_a_title_a_level_and_a_place_on_page_and_summary(card: JudgeCard) -> None:
    page, summary = card_page(card), markdown(card)
    for one in card.metrics[0].settings[0].measures:
        assert title(one) != one.name or one.name == "accuracy"
        assert one.level
        assert html.escape(title(one), quote=True).replace("&#x27;", "&#39;") in page
        assert f"| {title(one)}" in summary
        assert f"| {one.level} |" in summary


def test_without_a_threshold_pass_or_fail_is_undefined_and_says_why() -> None:
    found = make_card(runs(NOISY), [tree(threshold=None)], CASES, ["judge"])
    measure = found.metrics[0].figure("flip-rate")
    assert measure is not None
    assert measure.value is None
    assert "no threshold" in measure.note
    (line,) = failures(found, [parse("flip-rate>0.5")])
    assert "undefined: the metric has no threshold" in line


def test_what_steady_verdicts_cost_is_counted_in_questions(card: JudgeCard) -> None:
    kind, short = (node.votes for node in card.metrics[0].settings[0].nodes)
    assert kind is not None
    assert short is not None
    assert (kind.calls, short.calls) == (4.0, 2.0)  # half of the runs go on to the second
    assert (kind.kind, kind.runs, kind.seen, kind.seen_flips.value) == ("not known", 4, 1, 0.25)
    assert (short.kind, short.seen_flips.value) == ("not known", 0)
    assert card.metrics[0].settings[0].calls == 1.5


def test_ratings_have_no_votes_but_a_share() -> None:
    metric = DAGMetric("rated", DAG(RatingNode("How good?", ["input"], name="rating")))
    ok = OutcomeKind.OK
    seen = [
        Observation(0, "rated", node, Condition(s), None, score, None, ok)
        for s, score in enumerate((0.2, 0.7))
        for node in ("", "rating")
    ]
    (node,) = make_card(seen, [metric], CASES, ["judge"]).metrics[0].settings[0].nodes
    assert node.votes is None
    assert node.share.value == 1.0


# What a card is bound to.


def test_equal_metrics_judges_and_data_are_bound_alike() -> None:
    assert bind([tree()], ["j"], CASES) == bind([tree()], ["j"], list(CASES))
    assert changes(bind([tree()], ["j"], CASES), bind([tree()], ["j"], CASES)) == []


def test_a_stale_card_names_what_changed() -> None:
    now = bind([tree("Is it polite?", threshold=0.8)], ["k"], CASES[:3])
    assert changes(bind([tree()], ["j"], CASES), replace(now, version="9")) == [
        "metric 'manners': its settings changed",
        "metric 'manners': node 'kind' changed",
        "judge: j → k",
        "data: 4 cases → 3 cases, not the same",
        f"dagengine: {now.version} → 9",
    ]


def test_a_verdict_that_leads_elsewhere_is_a_change() -> None:
    one, other = tree(), tree()
    (kind,) = other.spec().graph.root_nodes
    kind.then[False] = 1
    assert changes(bind([one], [], CASES), bind([other], [], CASES)) == [
        "metric 'manners': node 'kind' changed"
    ]


def test_a_card_is_the_same_after_writing_and_reading(card: JudgeCard, tmp_path: Path) -> None:
    write_card(card, tmp_path / "card.json")
    assert read_card(tmp_path / "card.json") == card


def test_a_file_that_is_no_card_says_what_is_wrong(card: JudgeCard, tmp_path: Path) -> None:
    file = tmp_path / "card.json"
    with pytest.raises(InputError, match="there is no judge card"):
        read_card(file)
    file.write_text('{"times": 3}')
    with pytest.raises(InputError, match="not a judge card: binding: Field required"):
        read_card(file)
    write_card(replace(card, format=99), file)
    with pytest.raises(InputError, match="has the format 99"):
        read_card(file)


def test_a_card_of_the_format_that_pooled_settings_says_what_to_do(tmp_path: Path) -> None:
    (tmp_path / "card.json").write_text('{"format": 1, "times": 3}')
    with pytest.raises(
        InputError, match=r"pooled all judges and temperatures.*make the card again"
    ):
        read_card(tmp_path / "card.json")


def test_outcomes_are_one_line_per_case_and_no_text(card: JudgeCard) -> None:
    outcomes = card.metrics[0].settings[0].outcomes
    assert outcomes.scores == ("1 1 1 1", "1 1 1 0", "0 0 0 0", "0 1 0 0")
    assert outcomes.right == ("1111", "1110", "1111", "1011")
    assert outcomes.hits == "1111"


def test_a_judge_that_drifts_shows_by_how_much() -> None:
    """Half of the cases turn from no to yes halfway through the runs."""
    kinds = [[False, False, bool(case % 2), bool(case % 2)] for case in range(4)]
    drifted = make_card(runs(kinds), [tree()], CASES, ["judge"]).metrics[0].figure("drift")
    assert drifted is not None
    # The slope of 0, 0, 1, 1 on -1/2, -1/6, 1/6, 1/2 is 1.2.
    assert drifted.value == pytest.approx(0.6)
    assert drifted.low is not None
    assert drifted.high is not None
    assert drifted.low < 0.6 < drifted.high


# Conditions and comparisons.


@pytest.mark.parametrize(
    ("text", "fails"),
    [
        ("flip-rate>0.2", 1),
        ("flip-rate > 0.25", 0),
        ("flip-rate>=0.25", 1),
        ("node-flip-rate>0.2", 1),
        ("variance-share<0.5", 2),  # not known of four cases
        ("kappa<0.5", 0),
        ("unscored<=0", 1),
        ("pearson<0.9", 1),
    ],
)
def test_conditions_are_held_against_every_measure_of_that_name(
    card: JudgeCard, text: str, fails: int
) -> None:
    assert len(failures(card, [parse(text)])) == fails


@pytest.mark.parametrize(
    "text", ["flip-rate", "flips>0.1", "flip-rate>x", "flip-rate=0.1", "flip-rate>1.2.3"]
)
def test_conditions_that_mean_nothing_are_input_errors(text: str) -> None:
    with pytest.raises(InputError, match="--fail-if"):
        parse(text)


def test_a_bound_of_the_interval_can_be_the_condition() -> None:
    bounded = Figure("flip-rate", 0.1, 0.05, 0.2, items=9)
    under = SettingCard("as given", (bounded,), (), (), (), 1.0)
    setting = Setting("as given", Condition(), 2)
    found = JudgeCard(bind([tree()], [], CASES), 2, (setting,), (MetricCard("m", 0.5, (under,)),))
    assert failures(found, [parse("flip-rate.high>0.15")])
    assert not failures(found, [parse("flip-rate.low>0.05")])


# The page.


class _Page(HTMLParser):
    def __init__(self, page: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: set[str] = set()
        self.links: list[str] = []
        self.text: list[str] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.links += [text for name, text in attrs if name in ("src", "href") and text]
        if tag not in ("meta", "link", "br"):
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text.append(data)


def test_the_page_says_the_verdict_then_answers_four_questions_and_fetches_nothing(
    card: JudgeCard,
) -> None:
    page = _Page(card_page(card))
    assert page.open == []
    assert "script" not in page.tags
    assert page.links == ["data:,"]
    text = " ".join(" ".join(page.text).split())
    metric, under = card.metrics[0], card.metrics[0].settings[0]
    places = [text.index(str(verdict_of(card, metric, under))), *map(text.index, QUESTIONS)]
    assert places == sorted(places)
    unfolded = re.sub(r"<(details|style).*?</\1>", " ", card_page(card), flags=re.S)
    assert len(re.sub(r"<[^>]+>", " ", unfolded).split()) <= 600
    for answer in answers(card.metrics[0].settings[0]):
        assert answer.text in text
    assert card.sha256 in text
    assert "case <1>" in text


def test_the_page_names_judges_without_their_programmers_text() -> None:
    identity = "openai gpt-4o at https://api with {'temperature': 0, 'noise': Noise(flip=0.04)}"
    page = card_page(make_card(runs(NOISY), [tree()], CASES, [identity]))
    assert "openai gpt-4o at https://api" in page
    assert "Noise(" not in page
    assert "with {" not in page


def test_the_page_is_readable_in_the_dark_and_on_paper(card: JudgeCard) -> None:
    style = card_page(card).partition("</style>")[0]
    assert "@media screen and (prefers-color-scheme: dark)" in style
    assert "@media print" in style
    # Every colour that is drawn is a variable, so that none stays dark on dark.
    drawn = style.partition("* { box-sizing")[2]
    assert re.findall(r"#[0-9a-f]{3,6}\b", drawn) == []


def test_the_page_never_draws_outside_of_its_axes(card: JudgeCard) -> None:
    places = re.findall(r'(?:x1|x2|cx|x)="(-?[\d.]+)%"', card_page(card))
    assert places
    assert all(2 <= float(place) <= 98 for place in places)


def test_the_summary_says_what_the_page_says(card: JudgeCard) -> None:
    summary = markdown(card)
    for answer in answers(card.metrics[0].settings[0]):
        assert str(answer) in summary
    assert card.sha256 in summary


def test_a_judge_that_never_differs_is_told_so() -> None:
    steady = make_card(runs([[True] * 3] * 3), [tree()], CASES, ["judge"])
    again, blame, price, people = map(str, answers(steady.metrics[0].settings[0]))
    assert again.startswith(
        "Yes: no two runs of a case differed (3 cases); the flip rate is at most "
    )
    assert blame == "None: the score did not vary within any case."
    assert price.startswith("Not known from 3 runs: the votes that “kind” needs for 5 % flips.")
    assert people == "Not known: no labels were given."
    assert "undefined" in card_page(steady)
