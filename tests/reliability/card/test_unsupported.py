"""Unsupported verdicts on the judge card: how many there are, and if they are worse."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any, Literal

import pytest
from rich.console import Console

from dagengine.graph import CodeNode, MapNode, NodeValue
from dagengine.judges import ScriptedJudge
from dagengine.metrics import DAGMetric
from dagengine.metrics.dag import DAG, BinaryJudgementNode
from dagengine.question import Question
from dagengine.reliability import Observations, repeat
from dagengine.reliability.card import card_page, make_card, read_card, write_card
from dagengine.reliability.card.card_formats import markdown, print_card
from dagengine.reliability.card.fail_if import failures, parse
from dagengine.reliability.card.types import Figure, JudgeCard, NodeCard, SettingCard
from dagengine.test_case import LLMTestCase

SHARE, TIMES = 0.3, 4
CASES = [
    LLMTestCase(
        input=f"question {number:02d}",
        actual_output=f"answer {number:02d}",
        additional_metadata={"good": number % 2 == 0},
    )
    for number in range(40)
]


def tree(**settings: Any) -> DAGMetric:
    """Kind, then short; only `short` decides."""
    shown = {"evaluation_params": ["input", "actual_output"], **settings}
    short = BinaryJudgementNode("Is it short?", then={True: 10, False: 0}, name="short", **shown)
    kind = BinaryJudgementNode("Is it kind?", then={True: short, False: 0}, name="kind", **shown)
    return DAGMetric("manners", DAG(kind), threshold=0.5)


def misquoted(case: int, run: int) -> bool:
    """Whether the judge misquotes at `short` in that answer about that case."""
    return Random(100 * case + run).random() < SHARE


class Judge:
    """Misquotes at `short` in a known share of its answers; `verdict` is what it says there."""

    def __init__(self, verdict: Callable[[int, bool], bool], text: str = "no such words") -> None:
        self._verdict, self._text = verdict, text
        self._asked: Counter[int] = Counter()

    def __call__(self, question: Question[Any]) -> Any:
        asked = str(question.messages)
        case = int(re.findall(r"question (\d\d)", asked)[0])
        true = [{"piece": "actual_output", "text": f"answer {case:02d}"}]
        if "short" not in asked:
            return {"quotes": true, "absent": "", "verdict": True, "reason": "."}
        if len(question.messages) == 2:  # asked again it quotes the same
            self._asked[case] += 1
        wrong = misquoted(case, self._asked[case])
        false = [{"piece": "actual_output", "text": self._text}] if self._text else []
        verdict = self._verdict(case, wrong)
        return {"quotes": false if wrong else true, "absent": "", "verdict": verdict, "reason": "."}


def right(case: int, wrong: bool) -> bool:
    return case % 2 == 0


def right_where_it_quotes(case: int, wrong: bool) -> bool:
    return (case % 2 == 0) is not wrong


def observed(metric: DAGMetric, judge: Any) -> Observations:
    return repeat(CASES, [metric], times=TIMES, model=ScriptedJudge(judge), second_answers=False)


def carded(metric: DAGMetric, seen: Observations, cases: int = len(CASES)) -> JudgeCard:
    labels = {number: case.additional_metadata["good"] for number, case in enumerate(CASES[:cases])}  # type: ignore[index]
    return make_card(seen, [metric], CASES, ["judge"], labels=labels)


def under(card: JudgeCard) -> SettingCard:
    return card.metrics[0].settings[0]


def node(card: JudgeCard, name: str) -> NodeCard:
    return next(node for node in under(card).nodes if node.node == name)


def effect(card: JudgeCard) -> Figure | None:
    return under(card).figure("unsupported-effect")


def said(card: JudgeCard) -> str:
    return " ".join(note for note in under(card).notes if "unsupported verdict" in note)


@pytest.mark.parametrize("unsupported", ["keep", "fail"])
@pytest.mark.parametrize("text", ["no such words", ""])
def test_the_rate_at_a_node_is_that_of_the_judge(
    unsupported: Literal["keep", "fail"], text: str
) -> None:
    metric = tree(quote="required", unsupported=unsupported)
    card = carded(metric, observed(metric, Judge(right, text)))
    rate, never = node(card, "short").unsupported, node(card, "kind").unsupported
    assert rate is not None
    assert never is not None
    drawn = [misquoted(case, run) for case in range(40) for run in range(1, TIMES + 1)]
    assert rate.value == pytest.approx(sum(drawn) / len(drawn))
    assert rate.low is not None
    assert rate.high is not None
    assert rate.low < SHARE < rate.high
    assert rate.items == 40
    assert never.value == 0
    assert never.high is not None
    assert 0 < never.high < 0.15
    lines = failures(card, [parse("unsupported-rate>0.2")])
    assert len(lines) == 1
    assert "node 'short'" in lines[0]
    assert not failures(card, [parse("unsupported-rate>0.5")])


def test_with_if_any_an_answer_without_quotes_has_support() -> None:
    metric = tree(quote="if_any", unsupported="keep")
    card = carded(metric, observed(metric, Judge(right, "")))
    rate = node(card, "short").unsupported
    assert rate is not None
    assert rate.value == 0


def test_results_on_unsupported_verdicts_are_compared_with_the_others() -> None:
    metric = tree(quote="required", unsupported="keep")
    answers = [(case, run) for case in range(40) for run in range(1, TIMES + 1)]
    bad = sum(misquoted(case, run) for case, run in answers)

    def lucky(case: int, wrong: bool) -> bool:
        # Right in two thirds of the cases where it misquotes, and in nine tenths of the others.
        return (case % 2 == 0) is (case % 3 != 0 if wrong else case % 10 != 0)

    card = carded(metric, observed(metric, Judge(lucky)))
    hits = sum(misquoted(case, run) and case % 3 != 0 for case, run in answers)
    others = sum(not misquoted(case, run) and case % 10 != 0 for case, run in answers)
    assert f"are right in {hits} of {bad}, the others in {others} of {160 - bad}." in said(card)
    measure = effect(card)
    assert measure is not None
    value = hits / bad - others / (160 - bad)
    assert measure.value == pytest.approx(value)
    assert measure.low is not None
    assert measure.high is not None
    assert -1 <= measure.low < value < measure.high < 0.1


def test_a_judge_that_is_wrong_exactly_where_it_misquotes_has_no_interval() -> None:
    metric = tree(quote="required", unsupported="keep")
    card = carded(metric, observed(metric, Judge(right_where_it_quotes)))
    bad = sum(misquoted(case, run) for case in range(40) for run in range(1, TIMES + 1))
    assert f"are right in 0 of {bad}, the others in {160 - bad} of {160 - bad}." in said(card)
    measure = effect(card)
    assert measure is not None
    assert (measure.value, measure.low, measure.high) == (-1, None, None)


def test_the_difference_is_not_known_from_few_results() -> None:
    metric = tree(quote="required", unsupported="keep")
    card = carded(metric, observed(metric, Judge(right_where_it_quotes)), cases=4)
    measure = effect(card)
    assert measure is not None
    assert measure.value is None
    assert "Whether they are worse is not known: there are fewer than 10 results" in said(card)


def test_nothing_rests_on_verdicts_that_end_the_metric() -> None:
    metric = tree(quote="required")
    card = carded(metric, observed(metric, Judge(right)))
    assert effect(card) is None
    assert not said(card)


def test_observations_keep_it_in_files(tmp_path: Path) -> None:
    metric = tree(quote="required", unsupported="keep")
    seen = observed(metric, Judge(right))
    seen.save(tmp_path / "seen.jsonl")
    loaded = Observations.load(tmp_path / "seen.jsonl")
    assert loaded.rows == seen.rows
    assert {row.unsupported for row in loaded if row.node == "short"} == {True, False}
    assert carded(metric, loaded) == carded(metric, seen)


def test_every_face_of_the_card_shows_it(tmp_path: Path) -> None:
    metric = tree(quote="required", unsupported="keep")
    card = carded(metric, observed(metric, Judge(right_where_it_quotes)))
    console = Console(width=400)
    with console.capture() as shown:
        print_card(card, console, verbose=True)
    for face in (card_page(card), markdown(card), shown.get()):
        assert "unsupported verdict" in face
        assert said(card)[:60] in face
    write_card(card, tmp_path / "card.json")
    assert read_card(tmp_path / "card.json") == card
    rows = json.loads((tmp_path / "card.json").read_text())["metrics"][0]["settings"][0]["nodes"]
    assert all(row["unsupported"]["name"] == "unsupported-rate" for row in rows)


def test_a_card_without_quotes_does_not_mention_them(tmp_path: Path) -> None:
    def judge(question: Question[Any]) -> Any:
        answer = Judge(right)(question)
        return {"verdict": answer["verdict"], "reason": "."}

    seen = observed(tree(), judge)
    assert all(row.unsupported is None for row in seen)
    assert not any("unsupported" in line for line in seen.lines())
    card = carded(tree(), seen)
    write_card(card, tmp_path / "card.json")
    text = (tmp_path / "card.json").read_text()
    for face in (text, card_page(card), markdown(card)):
        assert "unsupported" not in face
    # What quotes changes nothing else: an observation less its field makes the same card.
    metric = tree(quote="required", unsupported="keep")
    quoting = observed(metric, Judge(right))
    plain = [replace(row, unsupported=None) for row in quoting]
    bare, full = (
        make_card(plain, [metric], CASES, ["j"]),
        make_card(quoting, [metric], CASES, ["j"]),
    )
    nodes = tuple(replace(node, unsupported=None) for node in under(full).nodes)
    assert replace(under(full), nodes=nodes) == under(bare)


def test_a_list_is_unsupported_if_the_verdict_on_an_item_is() -> None:
    """Code that grades a list has the rate of the node that judged it."""

    def judge(question: Question[Any]) -> Any:
        asked = str(question.messages)
        # Of every third case nothing is quoted for the second of two items.
        bare = "second" in asked and int(re.findall(r"chunk (\d\d)", asked)[0]) % 3 == 0
        text = re.findall(r"(?:first|second) chunk \d\d", asked)[0]
        quotes = [] if bare else [{"piece": "", "text": text}]
        return {"quotes": quotes, "absent": "", "verdict": True, "reason": "."}

    hours = MapNode(
        "Is it about hours?", "retrieval_context", "hours", answer=bool, item_label="chunk",
        quote="required", unsupported="keep", evaluation_params=["input"],
    )  # fmt: skip
    score = CodeNode(
        lambda hours: NodeValue(1.0, score=float(all(item.verdict for item in hours))),
        inputs=[hours],
        name="score",
    )
    metric = DAGMetric("Map", DAG(score))
    cases = [
        LLMTestCase(input="q", retrieval_context=[f"first chunk {n:02d}", f"second chunk {n:02d}"])
        for n in range(12)
    ]
    seen = repeat(cases, [metric], times=2, model=ScriptedJudge(judge), second_answers=False)
    kept = [row.unsupported for row in seen if row.node == "hours"]
    assert Counter(kept) == {True: 8, False: 16}
    card = make_card(seen, [metric], cases, ["judge"])
    rates = {node.node: node.unsupported for node in under(card).nodes}
    assert [rate and rate.value for rate in rates.values()] == [pytest.approx(1 / 3)], rates
