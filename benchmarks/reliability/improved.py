"""Does `improve` find what is wrong, and leave alone what is not? Known populations, many seeds.

    python benchmarks/reliability/improved.py [SEEDS] [POPULATION…]

A tree of three questions judges answers whose truth is known. For each population: in how many
seeds the planted node is named, a change is accepted, and the sealed part proves it; the true gain
of what was accepted; and how often the interval on the sealed part holds the true gain.
"""

from __future__ import annotations

import re
import statistics
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from random import Random
from typing import Any

from dagengine.improvement import Improvement, improve
from dagengine.judges import Noise, SimulatedJudge
from dagengine.metrics import DAGMetric
from dagengine.metrics.dag import DAG, BinaryJudgementNode, NonBinaryJudgementNode
from dagengine.question import Question
from dagengine.reliability.statistics.comparisons import Comparison
from dagengine.reliability.statistics.intervals import Interval
from dagengine.test_case import LLMTestCase

RULE = "quoted words of a customer do not count"
CRITERIA = {
    "Complete": "Is every question answered?",
    "Tone": "Is the answer polite?",
    "Sources": "Does the answer name its sources?",
}
ODD = {"Complete": "two", "Tone": "quoted", "Sources": "linked"}
"""What a case has where the judge misreads a criterion that does not say the rule."""


@dataclass(frozen=True)
class Population:
    """What is wrong with a judge, and what labels say.

    `odd` is the share of cases that the nodes in `bad` misread, until the rule stands in the
    criterion. `noise` is the flip rate of every answer, `drift` that per repetition. `edit` is what
    a rewriter writes. `cut` is a threshold that is wrong, `blind` labels know nothing of the text.
    """

    bad: tuple[str, ...] = ("Tone",)
    odd: float = 0.3
    noise: float = 0.03
    drift: float = 0.0
    edit: str = RULE
    blind: bool = False
    threshold: float = 0.5
    people: float = 0.03
    labels: int = 200


POPULATIONS: dict[str, Population] = {
    "bad criterion": Population(),
    "bad criterion, 100 labels": Population(labels=100),
    "useless edits": Population(edit="think well"),
    "labels by chance": Population(blind=True),
    "noise only": Population(bad=(), noise=0.12),
    "bad threshold": Population(bad=(), threshold=0.9),
    "two that compensate": Population(bad=("Tone", "Sources")),
    "drifting judge": Population(drift=0.05),
}


def tree(threshold: float) -> DAGMetric:
    """The tree: complete, then the tone in three grades, then sources."""
    sources = BinaryJudgementNode(
        CRITERIA["Sources"], evaluation_params=["actual_output"], then={True: 10, False: 3},
        name="Sources",
    )  # fmt: skip
    tone = NonBinaryJudgementNode(
        CRITERIA["Tone"], evaluation_params=["actual_output"],
        then={"good": sources, "fair": 8, "bad": 0}, name="Tone",
    )  # fmt: skip
    complete = BinaryJudgementNode(
        CRITERIA["Complete"], evaluation_params=["actual_output"], then={True: tone, False: 0},
        name="Complete",
    )  # fmt: skip
    return DAGMetric("Quality", DAG(complete), threshold=threshold)


def text_of(random: Random, number: int, odd: float) -> str:
    """An answer in which its truth stands."""
    parts = [
        f"complete={random.random() < 0.85}",
        f"tone={random.choices(('good', 'fair', 'bad'), (0.6, 0.1, 0.3))[0]}",
        f"sources={random.random() < 0.75}",
    ]
    parts += [word for word in ODD.values() if random.random() < odd]
    return f"answer {number}: {' '.join(parts)}"


def truth(text: str, node: str) -> Any:
    """What a careful reader answers."""
    found = re.search(rf"{node.lower()}=(\w+)", text)
    assert found is not None
    return found[1] if node == "Tone" else found[1] == "True"


def passes(text: str) -> bool:
    """What a careful reader says of the whole."""
    if not truth(text, "Complete") or truth(text, "Tone") == "bad":
        return False
    return truth(text, "Tone") == "fair" or bool(truth(text, "Sources"))


def believed(population: Population) -> Callable[[Question[Any]], Any]:
    """What the judge answers apart from noise."""

    def answer(question: Question[Any]) -> Any:
        text = question.messages[-1]["content"]
        if question.name == "New criterion":
            criterion = re.search(r"<<<BEGIN input>>>\n(.*?)\n<<<END", text, re.DOTALL)
            assert criterion is not None
            turn = " now" * text.count("write another edit")
            return f"{criterion[1].rstrip('?')}; {population.edit}{turn}?"
        if question.name == "Whole":
            return passes(text)
        right = truth(text, question.name)
        misread = question.name in population.bad and re.search(rf"\b{ODD[question.name]}\b", text)
        if not misread or RULE in text:
            return right
        return ("bad" if right != "bad" else "good") if question.name == "Tone" else not right

    return answer


def search(population: Population, seed: int, **settings: Any) -> tuple[Improvement, list[str]]:
    """One search on a sample, and its texts."""
    random = Random(f"{population} {seed}")
    texts = [text_of(random, n, population.odd) for n in range(population.labels)]
    labels = {
        n: (random.random() < 0.6)
        if population.blind
        else passes(text) != (random.random() < population.people)
        for n, text in enumerate(texts)
    }
    noise = Noise(flip=population.noise, drift=population.drift)
    nodes = dict.fromkeys((*CRITERIA, "Whole"), noise)
    judge = SimulatedJudge(believed(population), nodes, seed=seed, name=f"simulated {seed}")
    cases = [LLMTestCase(input="Write.", actual_output=text) for text in texts]
    done = improve(cases, tree(population.threshold), labels, model=judge, **settings)
    return done, texts


def true_gain(population: Population, done: Improvement) -> float:
    """What the accepted changes gain in the whole population, by another large sample."""
    whole = replace(population, labels=1500)
    return _mean_right(whole, done.metric) - _mean_right(whole, tree(population.threshold))


def _mean_right(population: Population, metric: Any) -> float:
    from dagengine import evaluate

    random = Random("population")
    texts = [text_of(random, n, population.odd) for n in range(population.labels)]
    noise = Noise(flip=population.noise, drift=population.drift)
    nodes = dict.fromkeys((*CRITERIA, "Whole"), noise)
    judge = SimulatedJudge(believed(population), nodes, name="population")
    cases = [LLMTestCase(input="Write.", actual_output=text) for text in texts]
    rows = evaluate(cases, [metric], model=judge, show=False).rows
    right = [row.metrics[0].success == passes(text) for row, text in zip(rows, texts, strict=True)]
    # People err, too: what agrees with them is less.
    return statistics.fmean(right) * (1 - 2 * population.people) + population.people


def table(seeds: int, names: list[str]) -> None:
    """A row per population."""
    print(
        "population                  named  not known  accepted  proved  false  held  gain  calls"
    )
    for name in names or POPULATIONS:
        population = POPULATIONS[name]
        named = unknown = accepted = proved = false = held = opened = 0
        gains: list[float] = []
        calls: list[int] = []
        known: dict[str, float] = {}
        for seed in range(seeds):
            done, _ = search(population, seed)
            blamed = done.blame
            named += blamed is not None and blamed.node in population.bad
            unknown += blamed is None or blamed.node is None
            accepted += bool(done.accepted)
            proved += done.proved
            calls.append(done.totals.calls)
            sealed = done.sealed
            if sealed is None or not isinstance(sealed.gain, Comparison):
                continue
            key = done.accepted[-1].definition
            gain = known[key] = known[key] if key in known else true_gain(population, done)
            if population.blind:
                gain = 0.0
            gains.append(gain)
            false += gain <= 0.005
            interval = sealed.gain.interval
            if isinstance(interval, Interval):
                opened += 1
                held += interval.low <= gain <= interval.high
        print(
            f"{name:27} {named:5} {unknown:10} {accepted:9} {proved:7} {false:6}"
            f" {held:3}/{opened:<3} {statistics.fmean(gains) if gains else 0:+.3f}"
            f" {statistics.fmean(calls):6.0f}",
            flush=True,
        )


if __name__ == "__main__":
    table(int(sys.argv[1]) if len(sys.argv) > 1 else 100, sys.argv[2:])
