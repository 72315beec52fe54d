"""The card of a rubric: which tags and criteria flip, what that does to the score, and labels."""

from __future__ import annotations

import random
import statistics
from pathlib import Path
from typing import Any

import pytest

from dagengine.errors import InputError
from dagengine.judges import ScriptedJudge
from dagengine.metrics import RubricMetric
from dagengine.prompts.instructions import parts_of
from dagengine.question import Question
from dagengine.reliability import Observations, repeat
from dagengine.reliability.card.card_maker import make_card
from dagengine.reliability.card.node_cards import key_cards
from dagengine.reliability.card.sentences import answers
from dagengine.reliability.card.types import JudgeCard, KeyCard
from dagengine.reliability.observations import Condition
from dagengine.reliability.observed_runs import Run, Runs
from dagengine.test_case import LLMTestCase

TAGS, CASES, CRITERIA = 4, 60, 10


def drawn(seed: int, noise: float | None, runs: int = 3) -> Runs:
    """Runs of a judge that errs in 2 to 5 %, and in `noise` on the criteria of one tag."""
    draw = random.Random(f"{seed} {noise}")
    cases = {}
    for case in range(CASES):
        keys = tuple((f"{case} {k}", "", f"tag {draw.randrange(TAGS)}") for k in range(CRITERIA))
        points = [5, *(draw.choice([-8, -3, 2, 7]) for _ in keys[1:])]
        possible = sum(p for p in points if p > 0)
        truth = [draw.random() < 0.5 for _ in keys]
        errs = [noise if noise and k[2] == "tag 0" else draw.uniform(0.02, 0.05) for k in keys]
        series = []
        for sample in range(runs):
            met = [yes != (draw.random() < e) for yes, e in zip(truth, errs, strict=True)]
            verdicts = tuple("met" if yes else "unmet" for yes in met)
            gains = tuple(p / possible * m for p, m in zip(points, met, strict=True))
            parts: dict[str, Any] = {
                "keys": {"v": keys},
                "lists": {"v": verdicts},
                "gains": {"v": gains},
            }
            series.append(Run(Condition(sample=sample), **parts))
        cases[case] = {Condition(): series}
    return Runs("R", cases)


@pytest.mark.parametrize("noise", [0.35, 0.15, None])
def test_a_planted_noisy_tag_is_named_and_no_other(noise: float | None) -> None:
    named = [
        [card.key for card in key_cards(drawn(seed, noise), {}) if card.noisy] for seed in range(25)
    ]
    planted, others = (
        sum("tag 0" in keys for keys in named),
        sum(keys != ["tag 0"] for keys in named),
    )
    if noise is None:
        assert sum(map(bool, named)) <= 1
    else:
        assert planted >= 24
        assert others <= 1


def test_shares_are_those_of_points_and_variances_of_verdicts() -> None:
    runs = drawn(1, 0.35, runs=8)
    shares = {card.key: card.share.value for card in key_cards(runs, {})}
    parts: dict[str, float] = {}
    for settings in runs.cases.values():
        (series,) = settings.values()
        for index, (_, _, tag) in enumerate(series[0].keys["v"]):
            gains = [run.gains["v"][index] or 0.0 for run in series]
            weight = max(map(abs, gains))
            p = sum(gain != 0 for gain in gains) / len(gains)
            parts[tag] = parts.get(tag, 0.0) + weight**2 * p * (1 - p)
            assert statistics.pvariance(gains) == pytest.approx(weight**2 * p * (1 - p))
    whole = sum(parts.values())
    assert shares["criteria"] == 1
    for tag, part in parts.items():
        assert shares[tag] == pytest.approx(part / whole)


RUBRIC = [
    {"criterion": "names the period", "points": 5, "name": "period", "tags": ["facts"]},
    {"criterion": "is warm", "points": 3, "tags": ["tone"]},
    {"criterion": "must not lie", "gate": True},
]


def card_of(labels: Any = None, observations: Any = None, **more: Any) -> tuple[JudgeCard, Any]:
    metric = RubricMetric("R", RUBRIC, **more)
    cases = [LLMTestCase(name=f"c{n}", input="?", actual_output=f"answer {n}") for n in range(12)]
    counts: dict[str, int] = {}

    def judge(question: Question[Any]) -> str:
        _, evidence = parts_of(question.messages)
        text, key = evidence[-1].text, f"{evidence[0].text} {evidence[-1].text}"
        counts[key] = counts.get(key, 0) + 1
        if text == "is warm":
            return ["met", "unmet"][counts[key] % 2]
        return "met" if text != "names the period" or int(evidence[0].text[7:]) % 2 else "unmet"

    seen = observations or repeat(cases, [metric], model=ScriptedJudge(judge), times=4, show=False)
    return make_card(seen, [metric], cases, ["script"], labels=labels), seen


def keys_of(card: JudgeCard) -> dict[str, KeyCard]:
    return {key.key: key for key in card.metrics[0].settings[0].keys}


def test_a_card_names_the_noisy_criterion_and_those_that_never_vary(tmp_path: Path) -> None:
    card, seen = card_of()
    keys = keys_of(card)
    assert keys["is warm"].noisy
    assert keys["is warm"].share.value == 1
    assert not keys["period"].noisy
    assert keys["period"].flip_rate.value == 0
    assert keys["must not lie"].always == "met in all"
    assert keys["facts"].cases == 12
    under = card.metrics[0].settings[0]
    assert "“is warm” flips in 66.7 %" in str(answers(under)[1])
    assert under.figure("list-bias") is None
    seen.save(tmp_path / "observations.jsonl")
    again, _ = card_of(observations=Observations.load(tmp_path / "observations.jsonl"))
    assert keys_of(again) == keys


def test_labels_of_criteria_are_held_against_the_majority_of_runs(tmp_path: Path) -> None:
    path = tmp_path / "labels.csv"
    rows = [f"c{n},period,{'yes' if n % 2 else 'met'}" for n in range(12)]
    path.write_text("\n".join(["case,criterion,label", *rows, "c0,must not lie,n/a"]) + "\n")
    card, _ = card_of(str(path))
    keys = keys_of(card)
    people = keys["period"].people
    assert people is not None
    assert people.value == 0.5
    assert keys["must not lie"].people is None
    path.write_text("case,criterion,label\nc0,is cold,yes\n")
    with pytest.raises(InputError, match="'is cold', but no criteria fit it"):
        card_of(str(path))
