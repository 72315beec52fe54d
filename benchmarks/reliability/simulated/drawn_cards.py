"""Whole cards of judges whose odds are known case by case: every figure beside its truth.

The answers are drawn, not asked, so that many seeds of large benchmarks are cheap. The truth is
enumerated over the kinds of cases of a population: what a judge says of them and what people say.
"""

from __future__ import annotations

import itertools
import math
import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from random import Random

from rows import Answer, Trial

from dagengine.metrics import DAGMetric
from dagengine.metrics.dag import DAG, BinaryJudgementNode
from dagengine.reliability.card import make_card
from dagengine.reliability.card.types import Figure, JudgeCard
from dagengine.reliability.observations import Condition, Observation
from dagengine.results import OutcomeKind
from dagengine.test_case import LLMTestCase

Odds = Mapping[float, float]
"""How the chance of a wrong answer is spread: chance to share of cases."""

MIXTURES: dict[str, Odds] = {
    "sure": {0.0: 1},
    "all at .1": {0.1: 1},
    "all at .4": {0.4: 1},
    "coins": {0.5: 1},
    "a fifth coins": {0.0: 0.8, 0.5: 0.2},
    "sure, noisy and coins": {0.0: 0.6, 0.15: 0.25, 0.3: 0.1, 0.5: 0.05},
    "mostly right, some surely wrong": {0.02: 0.7, 0.25: 0.2, 1.0: 0.1},
}
PEOPLE = 3


@dataclass(frozen=True)
class Population:
    """Cases of which the share `prevalence` passes in truth, judged and labelled with errors.

    A person's label is wrong with the chance `noise`, an answer is lost with the chance `lost`,
    and from the first run to the last the chance to pass rises by `moved`. Of all cases the
    share `labelled` has labels, `people` of each.
    """

    odds: str
    prevalence: float = 0.75
    noise: float = 0.0
    moved: float = 0.0
    lost: float = 0.0
    labelled: float = 1.0
    people: int = 1

    @property
    def name(self) -> str:
        """What is not as usual."""
        said = {
            f"{self.prevalence:g} pass": True,
            f"{self.noise:.0%} of labels wrong": self.noise,
            f"drift of {self.moved:g}": self.moved,
            f"{self.lost:.0%} lost": self.lost,
            f"labels on {self.labelled:.0%}": self.labelled < 1,
            f"{self.people} people": self.people > 1,
        }
        return ", ".join([self.odds, *(text for text, there in said.items() if there)])

    def kinds(self) -> Iterator[tuple[float, bool, float]]:
        """Share of cases, whether they pass in truth, and how often the judge passes them."""
        for wrong, share in MIXTURES[self.odds].items():
            yield share * self.prevalence, True, 1 - wrong
            yield share * (1 - self.prevalence), False, wrong

    def passing(self, chance: float, runs: int) -> list[float]:
        """The chance to pass, run by run."""
        places = [self.moved * (run / max(runs - 1, 1) - 0.5) for run in range(runs)]
        return [min(max(chance + place, 0.0), 1.0) for place in places]


def populations() -> Iterator[tuple[Population, int, int]]:
    """Populations with their numbers of cases and runs: every value of each stands somewhere."""
    yield Population("sure"), 20, 3
    yield Population("sure", 0.95), 100, 3
    yield Population("all at .1"), 10, 3
    yield Population("all at .1", 0.95), 300, 3
    yield Population("all at .1", 0.5, noise=0.1, people=PEOPLE), 40, 5
    yield Population("all at .4", 0.5), 20, 3
    yield Population("all at .4", 0.75, moved=0.2), 100, 5
    yield Population("coins", 0.9), 40, 3
    yield Population("coins", 0.5), 20, 19
    yield Population("a fifth coins", 0.75), 10, 19
    yield Population("a fifth coins", 0.9, noise=0.05), 40, 9
    yield Population("a fifth coins", 0.75, lost=0.1), 40, 5
    yield Population("sure, noisy and coins", 0.95), 40, 5
    yield Population("sure, noisy and coins", 0.9, labelled=0.4), 100, 3
    yield Population("sure, noisy and coins", 0.5, moved=0.1), 40, 9
    yield Population("sure, noisy and coins", 0.75, noise=0.2, people=PEOPLE), 100, 3
    yield Population("mostly right, some surely wrong", 0.75), 20, 5
    yield Population("mostly right, some surely wrong", 0.9), 100, 3
    yield Population("mostly right, some surely wrong", 0.95, labelled=0.2), 300, 3


# What is drawn.


def metric() -> DAGMetric:
    """1 for yes and 0 for no."""
    then = {True: 10, False: 0}
    node = BinaryJudgementNode("Good?", name="good", evaluation_params=["input"], then=then)
    return DAGMetric("good", DAG(node), threshold=0.5)


def drawn(population: Population, cases: int, runs: int, random: Random) -> JudgeCard:
    """The card of one benchmark."""
    kinds = list(population.kinds())
    seen: list[Observation] = []
    labels: dict[int, list[bool]] = {}
    chosen: Sequence[int] = range(cases)
    if population.labelled < 1:
        chosen = random.sample(chosen, math.ceil(population.labelled * cases))
    for case in range(cases):
        _, good, chance = random.choices(kinds, [share for share, _, _ in kinds])[0]
        for run, passes in enumerate(population.passing(chance, runs)):
            lost, verdict = random.random() < population.lost, random.random() < passes
            seen += answered(case, Condition(run), None if lost else verdict)
        if case in chosen:
            wrong = [random.random() < population.noise for _ in range(population.people)]
            labels[case] = [good ^ one for one in wrong]
    data = [LLMTestCase(input=str(case)) for case in range(cases)]
    partly = population.labelled < 1
    return make_card(seen, [metric()], data, ["drawn"], labels=labels, labels_random=partly)


def answered(case: int, at: Condition, verdict: bool | None) -> Iterator[Observation]:
    """What one run of the metric leaves."""
    if verdict is None:
        yield Observation(case, "good", "", at, outcome=OutcomeKind.UNPARSEABLE)
        return
    path = (("good", verdict),)
    yield Observation(case, "good", "", at, None, float(verdict), path=path)
    yield Observation(case, "good", "good", at, verdict)


def figures(card: JudgeCard) -> Iterator[tuple[str, Figure]]:
    """Those of the only setting, by name; of labels with the label."""
    under = card.metrics[0].settings[0]
    for one in under.measures:
        of = " of pass" if "“pass”" in one.level else " of fail" if "“fail”" in one.level else ""
        yield f"{one.name}{of}", one
    yield from ((one.name, one) for one in (under.nodes[0].flip_rate, under.nodes[0].share))


# The truth.


def truths(population: Population, runs: int) -> dict[str, float]:
    """Every figure whose truth can be enumerated, by name."""
    found = _of_runs(population, runs)
    if not population.lost:
        found |= _of_counts(population, runs) | _of_labels(population, runs)
    return found


def _over(population: Population, of: Callable[[float], float]) -> float:
    return math.fsum(share * of(chance) for share, _, chance in population.kinds())


def _of_runs(population: Population, runs: int) -> dict[str, float]:
    def passes(chance: float) -> float:
        return statistics.fmean(population.passing(chance, runs))

    def flips(chance: float) -> float:
        pairs = itertools.combinations(population.passing(chance, runs), 2)
        return statistics.fmean(a * (1 - b) + b * (1 - a) for a, b in pairs)

    passing, flipping = _over(population, passes), _over(population, flips)
    same = dict.fromkeys(("pass-rate", "mean-score"), passing)
    same |= dict.fromkeys(
        ("flip-rate", "score-flip-rate", "path-flip-rate", "node-flip-rate"), flipping
    )
    return {**same, "unscored": population.lost}


def _of_counts(population: Population, runs: int) -> dict[str, float]:
    """Figures of how many of a case's runs pass."""

    def over(of: Callable[[int], float]) -> float:
        return _over(
            population,
            lambda chance: math.fsum(
                share * of(count)
                for count, share in enumerate(_counts(population.passing(chance, runs)))
            ),
        )

    found = {
        "drift": _over(population, lambda p: _slope(population.passing(p, runs))),
        "score-spread": over(lambda k: math.sqrt(k * (runs - k) / (runs * (runs - 1)))),
        "total-agreement": over(lambda k: float(k in (0, runs))),
        "majority-share": over(lambda k: max(k, runs - k) / runs),
    }
    if population.moved:
        return found
    within = _over(population, lambda p: p * (1 - p))
    mean = _over(population, lambda p: p)
    whole = mean * (1 - mean)
    found["entropy"] = _over(population, _bits)
    if within and whole:
        found["test-retest"] = 1 - within / whole
    return found


def _counts(chances: Sequence[float]) -> list[float]:
    """The distribution of the number of runs that pass."""
    found = [1.0]
    for chance in chances:
        found = [
            (found[k] if k < len(found) else 0.0) * (1 - chance)
            + (found[k - 1] * chance if k else 0.0)
            for k in range(len(found) + 1)
        ]
    return found


def _slope(chances: Sequence[float]) -> float:
    """By least squares on places from -1/2 to 1/2, as the card has it."""
    places = [run / (len(chances) - 1) - 0.5 for run in range(len(chances))]
    return statistics.linear_regression(places, chances).slope


def _bits(p: float) -> float:
    return -math.fsum(q * math.log2(q) for q in (p, 1 - p) if q)


def _of_labels(population: Population, runs: int) -> dict[str, float]:
    """Figures of people's majority against the judge's, and of people among themselves."""
    heard = _counts([1 - population.noise] * population.people)
    met = math.fsum(heard[population.people // 2 + 1 :])
    joint = {(label, said): 0.0 for label in (True, False) for said in (True, False)}
    once = 0.0
    for share, good, chance in population.kinds():
        passing = population.passing(chance, runs)
        said = math.fsum(_counts(passing)[runs // 2 + 1 :])
        single = statistics.fmean(passing)
        for label in (True, False):
            weight = share * (met if label == good else 1 - met)
            joint[label, True] += weight * said
            joint[label, False] += weight * (1 - said)
            once += weight * (single if label else 1 - single)
    found = {"single-run-accuracy": once, **_of_table(joint)}
    if population.labelled < 1:
        found["corrected-pass-rate"] = joint[True, True] + joint[True, False]
    if population.people > 1:
        agree = 1 - 2 * population.noise * (1 - population.noise)
        found["ceiling"] = (1 + math.sqrt(2 * agree - 1)) / 2
    return found


def _of_table(joint: Mapping[tuple[bool, bool], float]) -> dict[str, float]:
    labels = [joint[k, True] + joint[k, False] for k in (True, False)]
    verdicts = [joint[True, k] + joint[False, k] for k in (True, False)]
    agree = joint[True, True] + joint[False, False]
    chance = math.fsum(a * b for a, b in zip(labels, verdicts, strict=True))
    mean = (labels[0] + verdicts[0]) / 2
    rates = [joint[True, True] / labels[0], joint[False, False] / labels[1]]
    return {
        "accuracy": agree,
        "kappa": (agree - chance) / (1 - chance),
        "ac1": (agree - 2 * mean * (1 - mean)) / (1 - 2 * mean * (1 - mean)),
        "baseline": max(labels),
        "balanced-accuracy": statistics.fmean(rates),
        "sensitivity of pass": rates[0],
        "specificity of pass": rates[1],
    }


# Two judges on the same cases.


def pairs() -> Iterator[tuple[Population, Population, int, int]]:
    """Judges that differ, with numbers of cases and runs."""
    yield Population("all at .1"), Population("a fifth coins"), 40, 5
    yield Population("sure, noisy and coins", 0.9), Population("all at .4", 0.9), 20, 3
    yield Population("all at .1", 0.5), Population("all at .1", 0.5), 100, 3


def judged(one: Population, other: Population, cases: int, runs: int, random: Random) -> JudgeCard:
    """One card of two judges."""
    seen: list[Observation] = []
    labels: dict[int, bool] = {}
    for case in range(cases):
        labels[case] = random.random() < one.prevalence
        for name, judge in (("x", one), ("y", other)):
            odds = MIXTURES[judge.odds]
            wrong = random.choices(list(odds), list(odds.values()))[0]
            for run in range(runs):
                verdict = labels[case] ^ (random.random() < wrong)
                seen += answered(case, Condition(run, judge=name), verdict)
    data = [LLMTestCase(input=str(case)) for case in range(cases)]
    return make_card(seen, [metric()], data, ["x", "y"], labels=labels)


def between(one: Population, other: Population, runs: int) -> dict[str, float]:
    """Differences of the two, and how far they agree."""
    first, second = truths(one, runs), truths(other, runs)
    names = ("flip-rate", "pass-rate", "mean-score", "accuracy", "single-run-accuracy")
    found = {f"difference of {name}": second[name] - first[name] for name in names}
    # Both are right, or both are wrong.
    right = [math.fsum(share * (1 - p) for p, share in MIXTURES[j.odds].items())
             for j in (one, other)]  # fmt: skip
    agree = right[0] * right[1] + (1 - right[0]) * (1 - right[1])
    passing = [first["pass-rate"], second["pass-rate"]]
    both = passing[0] * passing[1] + (1 - passing[0]) * (1 - passing[1])
    mean = statistics.fmean(passing)
    found["judge-flip-rate"] = 1 - agree
    found["cohen-kappa"] = (agree - both) / (1 - both)
    found["alpha"] = 1 - (1 - agree) / (2 * mean * (1 - mean))
    return found


def compared(card: JudgeCard) -> Iterator[tuple[str, Figure]]:
    """The figures across settings."""
    metric = card.metrics[0]
    yield from ((one.name, one) for one in metric.across)
    yield from ((f"difference of {one.difference.name}", one.difference) for one in metric.between)


# Trials.


def trials() -> Iterator[Trial]:
    """One card of each population, and of pairs of judges; each figure is a row."""
    for population, cases, runs in populations():
        truth = truths(population, runs)

        def answers(
            random: Random,
            population: Population = population, cases: int = cases, runs: int = runs,
        ) -> dict[str, Answer]:  # fmt: skip
            return dict(figures(drawn(population, cases, runs, random)))

        yield Trial(f"{population.name}, {cases}x{runs}", truth, answers)
    for one, other, cases, runs in pairs():

        def differences(
            random: Random,
            one: Population = one, other: Population = other, cases: int = cases, runs: int = runs,
        ) -> dict[str, Answer]:  # fmt: skip
            return dict(compared(judged(one, other, cases, runs, random)))

        name = f"two judges, {one.odds} and {other.odds}, {cases}x{runs}"
        yield Trial(name, between(one, other, runs), differences)
