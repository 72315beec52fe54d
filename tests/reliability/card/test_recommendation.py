"""What to do with a judge: verdicts about judges whose truth is known, each with one next step."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from html.parser import HTMLParser
from io import StringIO
from pathlib import Path
from random import Random
from typing import Any

import pytest
from graphs.trees import yes_no_metric
from rich.console import Console

pytest.importorskip("scipy")

from dagengine.errors import InputError
from dagengine.reliability.card import make_card, print_card, read_card, write_card
from dagengine.reliability.card.card_formats import card_page
from dagengine.reliability.card.card_maker import check_labels
from dagengine.reliability.card.fail_if import condition, failures
from dagengine.reliability.card.recommendation import DEMANDS, Verdict, parse_needs, verdict
from dagengine.reliability.card.types import JudgeCard, Needs, SettingCard
from dagengine.reliability.observations import Condition, Observation
from dagengine.reliability.statistics.accuracy_and_kappa import labels_to_settle
from dagengine.reliability.statistics.exchangeability import departures
from dagengine.reliability.statistics.paired_comparisons import labels_to_decide, labels_within
from dagengine.results import OutcomeKind
from dagengine.test_case import LLMTestCase


def card_of(
    table: Sequence[Sequence[bool | None]], labels: Any = None,
    texts: Sequence[Sequence[str]] | None = None, **settings: Any,
) -> JudgeCard:  # fmt: skip
    """The card of verdicts by case and run; None could not be parsed."""
    seen: list[Observation] = []
    for case, row in enumerate(table):
        for run, said in enumerate(row):
            at = Condition(run)
            if said is None:
                seen.append(Observation(case, "good", "", at, outcome=OutcomeKind.UNPARSEABLE))
            else:
                path = (("good", said),)
                raw = None if texts is None else texts[case][run]
                seen.append(Observation(case, "good", "", at, None, float(said), raw, path=path))
                seen.append(Observation(case, "good", "good", at, said))
    cases = [LLMTestCase(input=str(case)) for case in range(len(table))]
    return make_card(seen, [yes_no_metric("good")], cases, ["drawn"], labels=labels, **settings)


def said_of(card: JudgeCard) -> Verdict:
    return verdict(card, card.metrics[0], card.metrics[0].settings[0])


def under(card: JudgeCard) -> SettingCard:
    return card.metrics[0].settings[0]


def states_of(card: JudgeCard) -> dict[str, str]:
    """The state of each demand with the votes of the verdict."""
    votes = said_of(card).votes
    voted = next(row for row in under(card).voted if row.votes == votes)
    return {demand.name: demand.state(voted, card.needs) for demand in DEMANDS}


def judged(
    cases: int, runs: int, wrong: Callable[[Random], float], seed: int = 1
) -> tuple[list[list[bool | None]], dict[int, bool]]:
    """Verdicts of a judge that is wrong with a chance of its own in every case, and the truth."""
    random = Random(seed)
    truth = [random.random() < 0.6 for _ in range(cases)]
    table: list[list[bool | None]] = []
    for good in truth:
        chance = wrong(random)
        table.append([good ^ (random.random() < chance) for _ in range(runs)])
    return table, dict(enumerate(truth))


def test_a_good_judge_is_to_be_used_and_says_what_that_costs() -> None:
    table, truth = judged(200, 6, lambda random: float(random.random() < 0.05))
    card = card_of(table, truth, price=0.001)
    made = said_of(card)
    assert (made.kind, made.row, str(made)) == ("use", "8", "✓ Use it")
    assert "$1.00 per 1,000 cases" in made.step
    assert not failures(card, [condition("verdict!=use")])


def test_votes_are_sold_where_they_were_seen_to_be_enough() -> None:
    table, truth = judged(400, 12, lambda _: 0.06)
    made = said_of(card_of(table, truth, price=0.001))
    assert made.row == "9"
    assert made.headline.startswith("Use it with 3 votes at good: +$2.00 per 1,000 cases")
    assert "$1.00 per 1,000 cases becomes $3.00" in made.step


def test_the_best_of_several_judges_has_to_be_good_beside_the_luck_of_being_chosen() -> None:
    """Of four judges the luckiest looks better than it is: all intervals hold together."""
    table, truth = judged(250, 6, lambda random: float(random.random() < 0.16))
    alone = card_of(table, truth)
    seen: list[Observation] = []
    for place, case in itertools.product(range(4), range(len(table))):
        for run, said in enumerate(table[case]):
            at = Condition(run, judge=f"judge {place}")
            seen.append(Observation(case, "good", "", at, None, float(bool(said))))
            seen.append(Observation(case, "good", "good", at, said))
    cases = [LLMTestCase(input=str(case)) for case in range(len(table))]
    judges = [f"judge {place}" for place in range(4)]
    together = make_card(seen, [yes_no_metric("good")], cases, judges, labels=truth)
    one, four = under(alone).voted[0], under(together).voted[0]
    for name in ("agreement", "kappa", "flips"):
        wide, narrow = getattr(four, name), getattr(one, name)
        assert wide.value == narrow.value
        assert wide.low <= narrow.low
        assert wide.high > narrow.high
        assert (wide.confidence, narrow.confidence) == (pytest.approx(1 - 0.05 / 4), 0.95)
    assert said_of(alone).row == "8"
    assert said_of(together).row == "11"
    page = card_page(together)
    assert "All intervals hold for the 4 settings together" in page


def test_forty_cases_are_enough_for_a_good_judge_that_never_flips() -> None:
    """Two wrong cases leave 83 to 99 % right; behind eight equal runs at most 4.7 % flips hide."""
    truth = {case: True if case < 2 else case % 4 > 0 for case in range(40)}
    table: list[list[bool | None]] = [[truth[case] ^ (case < 2)] * 8 for case in range(40)]
    made = said_of(card_of(table, truth))
    assert (made.kind, made.row) == ("use", "8")
    few = said_of(card_of([row[:3] for row in table], truth))
    assert (few.kind, few.row) == ("open", "12")  # three runs hide more: 6.2 %


def test_nobody_pays_for_votes_while_fewer_may_be_enough() -> None:
    """Forty cases show that three votes are steady, and leave open whether one is."""
    drawn = (
        judged(40, 8, lambda random: 0.99 if random.random() < 0.05 else 0.01, seed)
        for seed in range(6)
    )
    advice = (said_of(card_of(table, truth, price=0.001)) for table, truth in drawn)
    made = next(made for made in advice if made.row == "10")
    assert str(made) == "○ Not known yet whether 1 vote is enough; 3 are"
    assert made.votes == 1
    assert "or add 40 cases: 320 questions, $0.32" in made.step
    assert "Or pay: Set 3 votes at good. $1.00 per 1,000 cases becomes $3.00" in made.step


def test_a_reason_names_the_votes_that_its_figures_are_of() -> None:
    """One vote flips in 18 % of pairs: only a figure of three votes is near a target of 5 %."""
    table, truth = judged(60, 8, lambda random: 0.1, 3)
    made = said_of(card_of(table, truth))
    assert (made.row, made.votes) == ("12", 3)
    assert made.why.startswith("Undecided with 3 votes: flips 4")
    assert "or add 60 cases" in made.step


@pytest.mark.parametrize(
    ("wrong", "row"),
    [(lambda random: 0.5, "3"), (lambda random: float(random.random() < 0.45), "4")],
    ids=["coin", "hardly right"],
)
def test_a_judge_that_tells_nothing_is_not_to_be_used(
    wrong: Callable[[Random], float], row: str
) -> None:
    table, truth = judged(200, 6, wrong)
    card = card_of(table, truth)
    assert said_of(card).kind == "no"
    assert said_of(card).row.startswith(row)
    assert failures(card, [condition("verdict!=use")])


def test_a_judge_that_always_passes_is_no_better_than_that() -> None:
    random = Random(2)
    truth = {case: random.random() < 0.8 for case in range(200)}
    made = said_of(card_of([[True] * 4] * 200, truth))
    assert made.headline == "Do not use: no better than always “pass”"


def test_steady_without_labels_asks_for_labels_and_right_without_runs_for_runs() -> None:
    steady = said_of(card_of([[True] * 4] * 60 + [[False] * 4] * 60))
    assert (steady.row, steady.headline) == ("11", "Steady, but nobody compared it with people")
    assert "Label 62 cases drawn at random" in steady.step
    table, truth = judged(200, 1, lambda random: float(random.random() < 0.05))
    once = said_of(card_of(table, truth))
    assert (once.row, once.headline) == ("12", "Right, but steadiness was not measured")
    assert "7 more times: 1,400 questions, no price known" in once.step


@pytest.mark.parametrize("seed", range(4))
def test_the_order_of_exchangeable_runs_changes_no_demand(seed: int) -> None:
    table, truth = judged(36, 7, lambda random: random.choice((0.0, 0.1, 0.4)), seed)
    table[3][2] = None
    mixed = [Random(seed).sample(row, len(row)) for row in table]
    first, second = under(card_of(table, truth)), under(card_of(mixed, truth))
    assert len(first.voted) == 2
    for one, two in zip(first.voted, second.voted, strict=True):
        assert (one.agreement, one.kappa) == (two.agreement, two.kappa)


def test_lines_are_the_owners() -> None:
    assert parse_needs("agreement=85,kappa=.3,flips=2") == Needs(0.85, 0.3, 0.02)
    assert parse_needs(None, 0.1) == Needs(flips=0.1)
    for stray in ("accuracy=80", "flips=a", "agreement=120", "agreement=0.8", "kappa=2"):
        with pytest.raises(InputError, match="--need"):
            parse_needs(stray)
    table, truth = judged(200, 6, lambda random: float(random.random() < 0.05))
    strict = card_of(table, truth, needs=Needs(agreement=0.99))
    assert said_of(strict).kind == "no"
    assert "you need 99" in said_of(strict).headline


def test_the_terminal_takes_one_screen_and_the_card_is_read_back(tmp_path: Path) -> None:
    table, truth = judged(100, 12, lambda random: random.choice((0.0, 0.3)))
    card = card_of(table, truth)
    console = Console(width=100, record=True, file=StringIO())
    print_card(card, console)
    shown = console.export_text()
    assert len(shown.splitlines()) <= 60
    assert str(said_of(card))[:40] in shown
    write_card(card, tmp_path / "card.json")
    assert read_card(tmp_path / "card.json") == card


def test_a_notebook_shows_the_page_of_a_card_in_a_frame_of_its_own() -> None:
    table, truth = judged(20, 4, lambda random: 0.0)
    card = card_of(table, {case: truth[case] for case in range(10)})
    names = tuple(replace(key, name=f'"><script>{key.name}') for key in card.cases)
    card = replace(card, cases=names)
    tags: list[tuple[str, dict[str, str | None]]] = []

    class Tags(HTMLParser):
        def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
            tags.append((tag, dict(attrs)))

    Tags().feed(card._repr_html_() or "")
    ((tag, attributes),) = tags
    assert (tag, attributes["title"]) == ("iframe", "Judge card")
    assert attributes["srcdoc"] == card_page(card)
    assert str(said_of(card)) in (attributes["srcdoc"] or "")
    assert repr(card) == "<JudgeCard of good: 20 cases, 4 runs each>"


# Runs that are not repeats.


def noisy(random: Random, cases: int = 120, runs: int = 6) -> list[list[bool | None]]:
    odds = [random.choice((0.0, 0.0, 0.2, 0.5)) for _ in range(cases)]
    return [[random.random() >= chance for _ in range(runs)] for chance in odds]


def test_repeats_are_seldom_said_not_to_be_repeats() -> None:
    alarms = sum(
        any(departure.sure for departure in departures(noisy(Random(seed), 40, 5)))
        for seed in range(30)
    )
    assert alarms <= 3


def test_cases_of_one_group_change_places_together() -> None:
    """What a run makes of a dialogue is the same in all its turns: no departure of that run."""

    def grouped(random: Random, copied: float) -> list[list[bool]]:
        table: list[list[bool]] = []
        for _ in range(30):
            row: list[bool] = []
            for run in range(6):
                again = run > 0 and random.random() < copied
                row.append(row[-1] if again else random.random() < 0.5)
            table += [row] * 8
        return table

    groups = [place // 8 for place in range(240)]
    for seed in range(3):
        independent = grouped(Random(seed), 0.0)
        assert any(departure.sure for departure in departures(independent))
        assert not any(departure.sure for departure in departures(independent, groups=groups))
        (copies, *_) = departures(grouped(Random(seed), 0.7), groups=groups)
        assert (copies.way, copies.sure) == ("copied from the run before", True)


def test_copied_answers_stop_the_card() -> None:
    random = Random(3)
    table = noisy(random, 200)
    for row in table:
        for run in range(1, len(row)):
            if random.random() < 0.7:
                row[run] = row[run - 1]
    card = card_of(table, dict.fromkeys(range(200), True))
    made = said_of(card)
    assert (made.kind, made.row) == ("stop", "2")
    assert "answers repeat the run before" in made.headline
    assert all(node.votes is None and node.share.value is None for node in under(card).nodes)
    flips = under(card).figure("flip-rate")
    assert flips is not None
    assert flips.value is not None
    assert flips.low is None
    assert flips.high is None


def noise_like_copies() -> tuple[list[list[bool | None]], dict[int, bool]]:
    """Repeats of which each happens to agree with the run before more often than with others."""
    table = noisy(Random(18), 40)  # the first of many seeds
    ways = [(departure.way, departure.sure) for departure in departures(table)]
    assert ways == [("copied from the run before", False)]
    return table, dict.fromkeys(range(40), True)


def test_copies_that_are_only_suspected_are_said_to_be_chance_or_copies() -> None:
    table, truth = noise_like_copies()
    flips = under(card_of(table, truth)).voted[0].flips
    assert (flips.low, under(card_of(table, truth)).departures) == (None, ())
    assert "by chance (in 1 of 10 benchmarks) or as copies of a cache" in flips.note


def test_texts_that_differ_where_results_are_equal_show_that_nothing_was_copied() -> None:
    table, truth = noise_like_copies()
    reasons = [[f"{said}, {case} {run}" for run, said in enumerate(row)]
               for case, row in enumerate(table)]  # fmt: skip
    card = card_of(table, truth, texts=reasons)
    assert under(card).voted[0].flips.low is not None
    assert under(card).departures == ()


def test_a_cache_of_some_cases_shows_in_their_texts() -> None:
    """All runs of a cached case are alike, so shuffled runs look the same."""
    table = noisy(Random(7), 60)
    for row in table[:20]:
        row[1:] = [row[0]] * (len(row) - 1)
    texts = [[f"{case} {0 if case < 20 else run}" for run in range(len(row))]
             for case, row in enumerate(table)]  # fmt: skip
    card = card_of(table, dict.fromkeys(range(60), True), texts=texts)
    flips = under(card).voted[0].flips
    assert flips.low is None
    assert flips.note.endswith("20 of 60 cases have one text in all runs, and 40 have another one "
                               "in each")  # fmt: skip
    assert all(node.votes is None for node in under(card).nodes)


def test_copied_texts_stop_the_card_also_where_results_hardly_vary() -> None:
    """Results of 12 cases are too few to show copies; their reasons are not."""
    random = Random(2)
    table, reasons = (
        noisy(random, 12),
        [[f"{case} {run}" for run in range(6)] for case in range(12)],
    )
    for row, written in zip(table, reasons, strict=True):
        for run in range(1, 6):
            if random.random() < 0.6:
                row[run], written[run] = row[run - 1], written[run - 1]
    truth = dict.fromkeys(range(12), True)
    assert not any(departure.sure for departure in departures(table))
    made = said_of(card_of(table, truth, texts=reasons))
    assert (made.kind, made.row) == ("stop", "2")
    assert "answers repeat the run before" in made.headline


def test_a_judge_that_always_answers_alike_is_no_cache() -> None:
    table: list[list[bool | None]] = [[case % 3 > 0] * 8 for case in range(40)]
    reasons = [[f"the same reason of case {case}"] * 8 for case in range(40)]
    for texts in (None, reasons):
        setting = under(card_of(table, {case: case % 3 > 0 for case in range(40)}, texts=texts))
        assert setting.departures == ()
        assert setting.voted[0].flips.high is not None


def test_a_shock_that_is_only_suspected_withholds_votes_and_blame_but_no_verdict() -> None:
    table, truth = judged(60, 8, lambda random: 0.15, 197)  # the first of many seeds
    assert [(part.way, part.sure) for part in departures(table)] == [("stands apart", False)]
    card = card_of(table, truth)
    (warning,) = under(card).warnings
    assert warning.startswith("perhaps run ")
    assert warning.endswith("stands apart from the others; more runs would tell")
    assert under(card).departures == ()
    assert said_of(card).kind != "stop"
    assert [voted.votes for voted in under(card).voted] == [1]
    assert under(card).voted[0].flips.low is None
    (node,) = under(card).nodes
    assert (node.share.value, node.share.note, node.votes) == (None, warning, None)


def test_a_run_that_stands_apart_is_named_and_asked_again() -> None:
    random = Random(4)
    table = noisy(random)
    for row in table:
        row[3] = random.random() < 0.5
    card = card_of(table)
    assert under(card).departures[0] == "run 4 stands apart from the others"
    assert said_of(card).step == "Ask that run again: 120 questions, no price known."


# Rules that all figures share.


def test_missing_answers_are_counted_both_ways_in_every_figure() -> None:
    """Four of twenty cases could never be parsed; the others pass, as people say."""
    kinds: tuple[tuple[bool | None, int], ...] = ((True, 8), (False, 8), (None, 4))
    table = [[verdict, verdict] for verdict, count in kinds for _ in range(count)]
    truth = {case: case < 8 or case > 17 for case in range(20)}
    card = card_of(table, truth)
    for name, value in (("accuracy", 1.0), ("pass-rate", 0.5)):
        figure = under(card).figure(name)
        assert figure is not None
        assert figure.value == value
        assert figure.low is not None
        assert figure.high is not None
    accuracy = under(card).figure("accuracy")
    assert accuracy is not None
    assert (accuracy.low or 1) < 0.65 < 1 == accuracy.high
    assert "not spread by chance" in under(card).warnings[0]


def test_cases_that_ran_differently_often_count_with_as_many_runs() -> None:
    random = Random(5)
    table: list[list[bool | None]] = []
    for case in range(200):
        hard = case % 2 == 1
        table.append([random.random() >= (0.4 if hard else 0.0) for _ in range(9 if hard else 2)])
    accuracy = under(card_of(table, dict.fromkeys(range(200), True))).figure("accuracy")
    assert accuracy is not None
    assert "majority of a case's first 1 run," in accuracy.level
    assert accuracy.value == pytest.approx(0.8, abs=0.07)


def test_labels_of_the_first_cases_are_no_random_sample() -> None:
    table, truth = judged(150, 1, lambda random: 0.1)
    first = {case: label for case, label in truth.items() if case < 50}
    (refused,) = under(card_of(table, first, labels_random=True)).corrected
    assert refused.estimate.value is None
    assert "place in the file" in refused.estimate.note
    drawn = dict(Random(1).sample(sorted(truth.items()), 50))
    (known,) = under(card_of(table, drawn, labels_random=True)).corrected
    assert known.estimate.value is not None


def test_labels_on_a_part_decide_only_if_the_part_was_drawn() -> None:
    table, truth = judged(180, 6, lambda random: 0.0)
    first = {case: label for case, label in truth.items() if case < 60}
    drawn = dict(Random(1).sample(sorted(truth.items()), 60))
    unstated = said_of(card_of(table, drawn))
    assert unstated.kind == "open"
    assert "add --labels-random" in unstated.step
    assert said_of(card_of(table, first, labels_random=True)).kind == "open"
    assert said_of(card_of(table, drawn, labels_random=True)).kind == "use"


def test_labels_that_are_numbers_are_not_called_missing() -> None:
    table, truth = judged(40, 6, lambda random: 0.0)
    made = said_of(card_of(table, {case: 1 + 3.5 * good for case, good in truth.items()}))
    assert "labels are numbers" in made.why
    assert "as pass or fail" in made.step


def test_labels_are_forecast_for_the_demand_that_is_open_and_settle_it() -> None:
    """Agreement is met and kappa open, as few cases fail: followed, the step settles most cards."""
    settled = steps = 0
    for seed in range(24):
        random = Random(seed)
        truth = {case: random.random() < 0.9 for case in range(700)}
        table: list[list[bool | None]] = [[good ^ (random.random() < 0.04)] * 4
                                          for good in truth.values()]  # fmt: skip
        small = {case: truth[case] for case in range(50)}
        card = card_of(table[:50], small)
        made = said_of(card)
        if states_of(card) != {"flips": "met", "agreement": "met", "kappa": "open"}:
            continue
        (now,) = labels_of_step(made.step)
        more = labels_to_settle(under(card).confusion.counts, 0.8, 0.4)  # type: ignore[union-attr]
        assert now == min(more or 50, 50)
        assert "no price known" in made.step
        steps += 1
        count = 50 + (more or 640)
        after = said_of(card_of(table[:count], {case: truth[case] for case in range(count)}))
        settled += after.kind in ("use", "no")
    assert steps >= 8
    assert settled >= 0.7 * steps


def labels_of_step(step: str) -> list[int]:
    return [int(number) for number in re.findall(r"Label (?:the )?(\d+) ", step)]


def test_nobody_is_told_to_label_more_cases_than_there_are() -> None:
    for cases in (6, 12, 40):
        for share in (0.0, 0.5, 1.0):
            table, truth = judged(cases, 6, lambda random: random.choice((0.0, 0.0, 0.3)), cases)
            part = {case: truth[case] for case in range(round(share * cases))}
            made = said_of(card_of(table, part or None, price=None))
            assert all(1 <= number <= cases for number in labels_of_step(made.step)), made.step
            assert f"{made.headline} {made.step}".count("no price known") <= 1


def test_what_is_missed_is_said_with_what_mends_it_before_any_label() -> None:
    table, truth = judged(12, 10, lambda random: 0.2, 3)
    card = card_of(table, truth)
    made = said_of(card)
    assert states_of(card)["flips"] == "missed"
    assert made.headline.startswith("One vote is not enough: flips ")
    assert made.why.startswith("Missed: flips ")
    assert made.step.index("votes") < made.step.index("abel ")


def test_labels_for_a_width_and_to_decide() -> None:
    assert labels_within(0.5, 0.1) == 97
    assert labels_to_decide(0.94, 50, 0.85) in (20, 40, 80)
    assert labels_to_decide(0.80, 200, 0.8) is None
    with pytest.raises(InputError):
        labels_within(0.5, 0)


def test_a_tie_of_people_is_told_before_anything_is_asked() -> None:
    cases = [LLMTestCase(input=str(case)) for case in range(3)]
    labels: dict[int, Any] = {0: ["pass", "fail"], 1: ["fail", "pass", "fail"], 2: "pass"}
    (line,) = check_labels([yes_no_metric("good")], cases, labels)
    assert line == "1 case left out: as many people say one label as another"
    table: list[list[bool | None]] = [[True] * 3] * 3
    assert line in card_of(table, labels).rules
