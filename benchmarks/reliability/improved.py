"""Does `improve` find what is wrong, and leave alone what is not? Known populations, many seeds.

    python benchmarks/reliability/improved.py [SEEDS] [POPULATION…]

A tree of three questions judges answers whose truth is known. For each population: in how many
seeds the planted node is named, a change is accepted (and which), and the sealed part proves it;
the true gain of what was accepted; and how often the interval on the sealed part holds the true
gain.

Answers are drawn without the engine (`Drawn`): what is measured are the decisions, and a search
of 200 cases then takes a second. `search` with `engine=True` goes the whole way, as tests do.
"""

from __future__ import annotations

import asyncio
import re
import statistics
import sys
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from random import Random
from typing import Any, Literal
from unittest import mock

from dagengine.graph.graph import Graph, Metric
from dagengine.improvement import Improvement, improve
from dagengine.improvement.experiment import Judged, LabelledExperiment
from dagengine.improvement.rewriters import ONE, Task
from dagengine.improvement.search import run_search
from dagengine.improvement.search_plan import Search
from dagengine.judges import Noise, SimulatedJudge
from dagengine.metrics import DAGMetric
from dagengine.metrics.dag import DAG, BinaryJudgementNode, NonBinaryJudgementNode
from dagengine.question import Question
from dagengine.reliability.counterfactual import Reply
from dagengine.reliability.human_labels import Labels
from dagengine.reliability.observations import Condition
from dagengine.reliability.observed_runs import Run
from dagengine.reliability.statistics.intervals import Interval
from dagengine.reliability.statistics.paired_comparisons import Comparison
from dagengine.results import MetricResult, OutcomeKind, Step, Totals
from dagengine.test_case import LLMTestCase, read_field

_POPULATION = 6000
RULE = "quoted words of a customer do not count"
CRITERIA = {
    "Complete": "Is every question answered?",
    "Full": "Is each answer given in full?",
    "Tone": "Is the answer polite?",
    "Sources": "Does the answer name its sources?",
}
ODD = {"Complete": "two", "Full": "short", "Tone": "quoted", "Sources": "linked"}
"""What a case has where the judge misreads a criterion that does not say the rule."""


@dataclass(frozen=True)
class Population:
    """What is wrong with a judge, and what labels say.

    `odd` is the share of cases that the nodes in `bad` misread, until the rule stands in the
    criterion. `noise` is the flip rate of every answer, `drift` that per repetition. `edit` is what
    a rewriter writes. `blind` labels know nothing of the text. With `full` answers are to be full,
    too. That is asked "together" with completeness in one node, and the judge overlooks it in odd
    cases (in one question for all, too), or "apart", and the judge misreads it in odd cases unless
    it is asked with completeness. Such mistakes mostly let cases pass, and then final labels do not
    tell which node made them. So people walk the tree there.
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
    full: Literal["", "together", "apart"] = ""


POPULATIONS: dict[str, Population] = {
    "bad criterion": Population(),
    "bad criterion, 100 labels": Population(labels=100),
    "useless edits": Population(edit="think well"),
    "labels by chance": Population(blind=True),
    "noise only": Population(bad=(), noise=0.12),
    "bad threshold": Population(bad=(), threshold=0.9),
    "two that compensate": Population(bad=("Tone", "Sources")),
    "drifting judge": Population(drift=0.05),
    "two in one node": Population(
        ("Complete",), 1.0, edit="think well", labels=400, full="together"
    ),
    "two in one, chance": Population(("Complete",), 1.0, blind=True, labels=400, full="together"),
    "two apart": Population(("Full",), 0.5, edit="think well", full="apart"),
    "two apart, chance": Population(("Full",), 0.5, blind=True, full="apart"),
}


def tree(population: Population) -> DAGMetric:
    """The tree: complete (and full), then the tone in three grades, then sources."""
    sources = BinaryJudgementNode(
        CRITERIA["Sources"], evaluation_params=["actual_output"], then={True: 10, False: 3},
        name="Sources",
    )  # fmt: skip
    tone = NonBinaryJudgementNode(
        CRITERIA["Tone"], evaluation_params=["actual_output"],
        then={"good": sources, "fair": 8, "bad": 0}, name="Tone",
    )  # fmt: skip
    full = BinaryJudgementNode(
        CRITERIA["Full"], evaluation_params=["actual_output"], then={True: tone, False: 0},
        name="Full",
    )  # fmt: skip
    asked = ("Complete", "Full") if population.full == "together" else ("Complete",)
    complete = BinaryJudgementNode(
        " ".join(CRITERIA[name] for name in asked), evaluation_params=["actual_output"],
        then={True: full if population.full == "apart" else tone, False: 0}, name="Complete",
    )  # fmt: skip
    return DAGMetric("Quality", DAG(complete), threshold=population.threshold)


def text_of(random: Random, number: int, population: Population) -> str:
    """An answer in which its truth stands."""
    parts = [
        f"complete={random.random() < 0.85}",
        f"tone={random.choices(('good', 'fair', 'bad'), (0.6, 0.1, 0.3))[0]}",
        f"sources={random.random() < 0.75}",
    ]
    if population.full:
        parts.append(f"full={random.random() < 0.6}")
    odd = {ODD[name]: None for name in CRITERIA if name != "Full" or population.full}
    parts += [word for word in odd if random.random() < population.odd]
    return f"answer {number}: {' '.join(parts)}"


def truth(text: str, node: str) -> Any:
    """What a careful reader answers."""
    found = re.search(rf"{node.lower()}=(\w+)", text)
    assert found is not None
    return found[1] if node == "Tone" else found[1] == "True"


def passes(text: str) -> bool:
    """What a careful reader says of the whole."""
    if "full=False" in text or not truth(text, "Complete") or truth(text, "Tone") == "bad":
        return False
    return truth(text, "Tone") == "fair" or bool(truth(text, "Sources"))


def believed(population: Population) -> Callable[[Question[Any]], Any]:
    """What the judge answers apart from noise."""

    def answer(question: Question[Any]) -> Any:
        text = question.messages[-1]["content"]
        if question.name in ("New criterion", "Two criteria"):
            shown = re.search(r"<<<BEGIN input>>>\n(.*?)\n<<<END", text, re.DOTALL)
            assert shown is not None
            if question.name == "Two criteria":
                return halves_of(shown[1])
            turn = " now" * text.count("write another edit")
            return f"{shown[1].rstrip('?')}; {population.edit}{turn}?"
        return believed_at(population, question.name, text, text)

    return answer


def believed_at(population: Population, node: str, criterion: str, text: str) -> Any:
    """What the judge answers at a node apart from noise."""
    if node == "Whole":
        overlooked = population.full == "together" and re.search(rf"\b{ODD['Complete']}\b", text)
        return passes(text.replace("full=False", "full=True") if overlooked else text)
    asked = [name for name, words in CRITERIA.items() if words.rstrip("?") in criterion]
    truths = [truth(text, name) for name in asked]
    right = truths[0] if len(asked) == 1 else all(truths)
    misread = [
        name for name in asked if name in population.bad and re.search(rf"\b{ODD[name]}\b", text)
    ]
    if not misread or RULE in criterion:
        return right
    if len(asked) > 1 or population.full == "together":
        overlooks = len(asked) > 1 and population.full == "together"
        return truths[0] if overlooks else right
    return ("bad" if right != "bad" else "good") if asked == ["Tone"] else not right


def halves_of(criterion: str) -> str:
    """What a rewriter makes of a criterion that is to be split."""
    asked = [words for words in CRITERIA.values() if words in criterion]
    return " AND ".join(asked) if len(asked) > 1 else ONE


def metric_nodes(root: Any) -> list[Any]:
    """The nodes from a root on."""
    return [node for node in Graph(root).nodes() if node.kind != "verdict"]


class Drawn(LabelledExperiment):
    """Draws the repetitions of a metric from the simulated judge, as its engine would ask it."""

    population: Population
    seed: int

    async def judge(self, metric: Metric, chosen: Sequence[int]) -> Judged:
        """Walk the tree for every case and repetition."""
        root = metric.spec().graph.root_nodes[0]
        leads = {
            node: {b.verdict: b.target for b in node.branches()} for node in metric_nodes(root)
        }
        runs = {
            number: [self._run(root, leads, number, sample) for sample in range(self.times)]
            for number in chosen
        }
        return Judged(metric, runs, {number: self._first(number, runs) for number in chosen}, self)

    def _run(self, root: Any, leads: Mapping[Any, Any], number: int, sample: int) -> Run:
        text, node = read_field(self.cases[number], "actual_output"), root
        run = Run(Condition(sample))
        while True:
            votes = 1 if node.panel is None else 3
            drawn = [self._answer(text, node, sample + 1000 * vote) for vote in range(votes)]
            verdict = max(drawn, key=drawn.count)
            run.replies = {**run.replies, node.title: Reply(verdict)}
            run.path = (*run.path, (node.title, verdict))
            target = leads[node][verdict]
            if isinstance(target, int):
                run.score = target / 10
                return run
            node = target

    def _answer(self, text: str, node: Any, sample: int) -> Any:
        right = believed_at(self.population, node.title, node.text, text)
        flip = self.population.noise + self.population.drift * (sample % 1000)
        draw = Random(f"{self.seed} {text} {node.text} {sample}").random()
        if draw >= flip:
            return right
        others = [verdict for verdict in node.verdicts() if verdict != right]
        return others[int(draw / flip * len(others))]

    def _first(self, number: int, runs: Mapping[int, Sequence[Run]]) -> MetricResult:
        run = runs[number][0]
        steps = tuple(
            Step(node, "judgement", OutcomeKind.OK, verdict=verdict) for node, verdict in run.path
        )
        return MetricResult("Quality", run.score, None, None, path=run.path, steps=steps)


@dataclass(frozen=True)
class Editor:
    """A rewriter that always writes the same edit, each time with another last word."""

    edit: str

    async def rewrite(self, task: Task, settings: Mapping[str, Any]) -> tuple[str | None, Totals]:
        """The edit, or both halves."""
        if task.split:
            return halves_of(task.criterion), Totals()
        turn = " now" * ("another" in task.complaint)
        return f"{task.criterion.rstrip('?')}; {self.edit}{turn}?", Totals()


def search(
    population: Population, seed: int, *, engine: bool = False, **settings: Any
) -> tuple[Improvement, list[str]]:
    """One search on a sample, and its texts."""
    random = Random(f"{population} {seed}")
    texts = [text_of(random, n, population) for n in range(population.labels)]
    labels = {
        n: (random.random() < 0.6)
        if population.blind
        else passes(text) != (random.random() < population.people)
        for n, text in enumerate(texts)
    }
    cases = [LLMTestCase(input="Write.", actual_output=text) for text in texts]
    metric = tree(population)
    if engine:
        noise = Noise(flip=population.noise, drift=population.drift)
        nodes = dict.fromkeys((*CRITERIA, "Whole"), noise)
        judge = SimulatedJudge(believed(population), nodes, seed=seed, name=f"simulated {seed}")
        return improve(cases, metric, labels, model=judge, **settings), texts
    drawn = type("Of", (Drawn,), {"population": population, "seed": seed})
    whole = Search.of(cases, metric, labels, **settings)
    if population.full:
        whole = replace(whole, answers=walked(metric, texts))
    with mock.patch("dagengine.improvement.search.LabelledExperiment", drawn):
        return asyncio.run(run_search(whole, {}, rewriter=Editor(population.edit))), texts


def walked(metric: Metric, texts: Sequence[str]) -> dict[str, dict[int, tuple[Any, ...]]]:
    """What careful people answer at the nodes that they come to."""
    root = metric.spec().graph.root_nodes[0]
    answers: defaultdict[str, dict[int, tuple[Any, ...]]] = defaultdict(dict)
    for number, text in enumerate(texts):
        node: Any = root
        while not isinstance(node, int):
            right = believed_at(Population(bad=()), node.title, node.text, text)
            answers[node.title][number] = (right,)
            node = next(b.target for b in node.branches() if b.verdict == right)
    return dict(answers)


def true_gain(population: Population, done: Improvement) -> float:
    """What the accepted changes gain in the whole population, by another large sample."""
    return _mean_right(population, done.metric) - _mean_right(population, tree(population))


def _mean_right(population: Population, metric: Metric) -> float:
    random = Random("population")
    texts = [text_of(random, n, population) for n in range(_POPULATION)]
    labels = {n: passes(text) for n, text in enumerate(texts)}
    cases = [LLMTestCase(input="Write.", actual_output=text) for text in texts]
    kind = type("Of", (Drawn,), {"population": population, "seed": -1})
    drawn = kind(
        settings={}, times=2, cases=cases, labels=Labels("pass", labels, {}, ()), groups={}
    )
    judged = asyncio.run(drawn.judge(metric, range(_POPULATION)))
    right = statistics.fmean(judged.right().values())
    # People err, too: what agrees with them is less.
    return right * (1 - 2 * population.people) + population.people


def table(seeds: int, names: list[str]) -> None:
    """A row per population."""
    print("population                  named  not known  accepted  proved  false  held    gain  by")
    for name in names or POPULATIONS:
        population = POPULATIONS[name]
        named = unknown = accepted = proved = false = held = opened = 0
        gains: list[float] = []
        known: dict[str, float] = {}
        rungs = Counter[str]()
        for seed in range(seeds):
            done, _ = search(population, seed)
            blamed = done.blame
            named += blamed is not None and blamed.node in population.bad
            unknown += blamed is None or blamed.node is None
            accepted += bool(done.accepted)
            rungs.update(change.rung for change in done.accepted)
            proved += done.proved
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
            f"  {', '.join(f'{rung} {count}' for rung, count in rungs.most_common())}",
            flush=True,
        )


if __name__ == "__main__":
    table(int(sys.argv[1]) if len(sys.argv) > 1 else 100, sys.argv[2:])
