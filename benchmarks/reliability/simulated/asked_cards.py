"""Whole cards of simulated judges that are asked, as users ask: questions through the engine."""

from __future__ import annotations

import itertools
import math
import statistics
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from multiprocessing import get_context
from random import Random
from typing import Any

from rows import Row, Trial, held

from dagengine.gateway import Limits
from dagengine.judges import Noise, SimulatedJudge
from dagengine.metrics import DAGMetric
from dagengine.metrics.dag import DAG, BinaryJudgementNode, NonBinaryJudgementNode
from dagengine.question import Question
from dagengine.reliability import repeat
from dagengine.reliability.card import make_card
from dagengine.reliability.card.types import Figure, JudgeCard, MetricCard
from dagengine.test_case import LLMTestCase

OPTIONS = ("good", "fair", "poor")
SCORES = {"good": 1.0, "fair": 0.5, "poor": 0.0}
ORDERS = (OPTIONS, OPTIONS[::-1])
Chances = Mapping[Any, float]


@dataclass(frozen=True)
class Scenario:
    """A simulated benchmark, and the truth of the figures on its card by name."""

    name: str
    card: Callable[[int, int, int], JudgeCard]
    truth: Callable[[int], Mapping[str, float]]


def recover(scenario: Scenario, seeds: int, cases: int, times: int) -> list[Row]:
    """Every figure of a scenario whose truth is known."""
    trial = Trial(
        scenario.name, scenario.truth(times),
        lambda random: dict(
            _figures(scenario.card(random.randrange(10**6), cases, times).metrics[0])
        ),
    )  # fmt: skip
    return held(trial, seeds)


def asked_rows(seeds: int, jobs: int, named: str = "") -> list[Row]:
    """All scenarios whose names hold `named`, with 40 cases and 8 runs."""
    places = [place for place, one in enumerate(SCENARIOS) if named in one.name]
    with ProcessPoolExecutor(jobs, get_context("spawn")) as pool:
        found = pool.map(_recovered, places, [seeds] * len(places))
        return [row for rows in found for row in rows]


def _recovered(place: int, seeds: int) -> list[Row]:
    return recover(SCENARIOS[place], seeds, cases=40, times=8)


def _figures(card: MetricCard) -> Iterator[tuple[str, Figure]]:
    """Those of the first setting, and those across settings."""
    first = card.settings[0]
    yield from ((one.name, one) for one in (*first.measures, *card.across))
    for node in first.nodes:
        for one in (node.flip_rate, node.share):
            yield f"{one.name} of {node.node}", one


# A tree: is it fit, and how good is it? Both orders of the options, two kinds of cases.

FIT, GRADE = Noise(flip=0.05), Noise(flip=0.25, first=0.15)
KINDS = ("good", "fair")


def tree() -> DAGMetric:
    """1, 0.5 or 0 for what is fit, and 0 for what is not."""
    grade = NonBinaryJudgementNode(
        "How good?", name="grade", evaluation_params=["input"],
        then={option: int(10 * SCORES[option]) for option in OPTIONS},
    )  # fmt: skip
    fit = BinaryJudgementNode(
        "Fit?", name="fit", evaluation_params=["input"], then={True: grade, False: 0}
    )
    return DAGMetric("tree", DAG(fit), threshold=0.5)


def drawn(seed: int, count: int, kinds: Sequence[str]) -> list[LLMTestCase]:
    """Cases of random kinds; the last word is the kind."""
    random = Random(seed)
    return [LLMTestCase(input=f"case {n} is {random.choice(kinds)}") for n in range(count)]


def kind_of(question: Question[Any], kinds: Sequence[str]) -> str:
    """The kind of the case that a question is about."""
    text = question.messages[-1]["content"]
    return next(kind for kind in kinds if f"is {kind}\n" in f"{text}\n")


def tree_card(seed: int, cases: int, times: int) -> JudgeCard:
    def truth(question: Question[Any]) -> Any:
        return True if question.name == "fit" else kind_of(question, KINDS)

    noise = {"fit": FIT, "grade": GRADE}
    judge = SimulatedJudge(truth, noise, seed=seed, probabilities=True)
    data = drawn(seed, cases, KINDS)
    settings: dict[str, Any] = {"orders": ("given", "reversed"), "top_logprobs": 5}
    seen = repeat(data, [tree()], times=times, model=judge, **settings)
    return make_card(seen, [tree()], data, ["simulated"])


def tree_truth(times: int) -> dict[str, float]:
    """By enumeration of all answers, under the first setting."""
    fit = FIT.chances(True, (True, False))[True]
    both = [GRADE.chances(kind, order) for kind in KINDS for order in ORDERS]
    grades = both[::2]  # in the order as given
    paths = [{"unfit": 1 - fit, **{o: fit * g[o] for o in OPTIONS}} for g in grades]
    scores = [_pooled(path, {**SCORES, "unfit": 0.0}) for path in paths]
    pairs = [(both[0], both[1]), (both[2], both[3])]
    passing = [_pooled(score, {s: s >= 0.5 for s in score}) for score in scores]
    shares = [_shares(fit, grade) for grade in grades]
    whole = math.fsum(a + b for a, b in shares)
    return {
        "flip-rate": _mean(map(_differ, passing)),
        "score-flip-rate": _mean(map(_differ, scores)),
        "path-flip-rate": _mean(map(_differ, paths)),
        "total-agreement": _mean(_all_equal(score, times) for score in scores),
        "path-agreement": _mean(_all_equal(path, times) for path in paths),
        "node-flip-rate of fit": FIT.flip_rate(True, (True, False)),
        "node-flip-rate of grade": _mean(map(_differ, grades)),
        "variance-share of fit": math.fsum(a for a, _ in shares) / whole,
        "variance-share of grade": math.fsum(b for _, b in shares) / whole,
        "position-consistency-of-options": _mean(_same(*pair) for pair in pairs),
        "first-wins-of-options": _first_wins(pairs),
        "repeat-brier": _mean(_brier(path) for path in paths),
    }


def _mean(values: Any) -> float:
    return statistics.fmean(values)


def _pooled(chances: Chances, of: Mapping[Any, Any]) -> Chances:
    found: Counter[Any] = Counter()
    for answer, chance in chances.items():
        found[of[answer]] += chance  # type: ignore[assignment]
    return dict(found)


def _differ(chances: Chances) -> float:
    return 1 - math.fsum(p * p for p in chances.values())


def _all_equal(chances: Chances, times: int) -> float:
    return math.fsum(p**times for p in chances.values())


def _same(one: Chances, other: Chances) -> float:
    return math.fsum(one[option] * other[option] for option in OPTIONS)


def _first_wins(pairs: Sequence[tuple[Chances, Chances]]) -> float:
    """Among comparisons decided for the first or the last option in both orders."""
    first, last = OPTIONS[0], OPTIONS[-1]
    decided = won = 0.0
    for given, turned in pairs:
        for one, other in itertools.product((first, last), repeat=2):
            chance = given[one] * turned[other]
            decided += chance
            won += chance * ((one == first) + (other == last)) / 2
    return won / decided


def _brier(chances: Chances) -> float:
    return math.fsum(p * p * (1 - p) for p in chances.values())


def _shares(fit: float, grades: Chances) -> tuple[float, float]:
    """Shapley effects of both nodes: half of what each explains alone, and half of the rest."""
    mean = math.fsum(grades[o] * SCORES[o] for o in OPTIONS)
    spread = math.fsum(grades[o] * (SCORES[o] - mean) ** 2 for o in OPTIONS)
    alone_fit, alone_grade = fit * (1 - fit) * mean**2, fit**2 * spread
    together = fit * (1 - fit) * spread
    return alone_fit + together / 2, alone_grade + together / 2


# One question: several judges, unreadable answers, answers in common.


def single(threshold: float = 0.5) -> DAGMetric:
    """1 for yes and 0 for no."""
    node = BinaryJudgementNode(
        "So?", name="so", evaluation_params=["input"], then={True: 10, False: 0}
    )
    return DAGMetric("single", DAG(node), threshold=threshold)


YES_NO = ("so", "other")


def _true(question: Question[Any]) -> bool:
    return kind_of(question, YES_NO) == "so"


WRONG = {"x": 0.1, "y": 0.25}


def judges_card(seed: int, cases: int, times: int) -> JudgeCard:
    """Two judges about as many true as false things."""
    judges = {
        name: SimulatedJudge(_true, Noise(flip=flip), seed=2 * seed + place, name=name)
        for place, (name, flip) in enumerate(WRONG.items())
    }
    data = drawn(seed, cases, YES_NO)
    seen = repeat(data, [single()], times=times, judges=judges)
    return make_card(seen, [single()], data, list(judges))


def judges_truth(times: int) -> dict[str, float]:
    x, y = WRONG.values()
    agree = x * y + (1 - x) * (1 - y)
    kappa = (agree - 0.5) / 0.5  # both say yes half of the time
    flips = 2 * x * (1 - x)
    return {"judge-flip-rate": 1 - agree, "cohen-kappa": kappa, "alpha": kappa, "flip-rate": flips}


UNREADABLE = Noise(flip=0.2, unparseable=0.1)


def unreadable_card(seed: int, cases: int, times: int) -> JudgeCard:
    judge = SimulatedJudge(_true, UNREADABLE, seed=seed)
    data = drawn(seed, cases, YES_NO)
    seen = repeat(data, [single()], times=times, model=judge, limits=Limits(reasks=0))
    return make_card(seen, [single()], data, ["simulated"])


def unreadable_truth(times: int) -> dict[str, float]:
    every = UNREADABLE.flip_rate(True, (True, False))
    return {"unscored": 0.1, "flip-rate": 0.32, "unscored-effect": every - 0.32}


COMMON = Noise(flip=0.3, repetitions=0.4)


def common_card(seed: int, cases: int, times: int) -> JudgeCard:
    judge = SimulatedJudge(_true, COMMON, seed=seed)
    data = drawn(seed, cases, YES_NO)
    seen = repeat(data, [single()], times=times, model=judge)
    return make_card(seen, [single()], data, ["simulated"])


def common_truth(times: int) -> dict[str, float]:
    flips = COMMON.flip_rate(True, (True, False))
    return {"flip-rate": flips, "node-flip-rate of so": flips}


SCENARIOS = (
    Scenario("a tree in two orders", tree_card, tree_truth),
    Scenario("two judges", judges_card, judges_truth),
    Scenario("unreadable answers", unreadable_card, unreadable_truth),
    Scenario("repetitions in common", common_card, common_truth),
)
