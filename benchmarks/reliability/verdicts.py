"""How often verdicts of the judge card are wrong, on judges whose truth is known.

    python benchmarks/reliability/verdicts.py [--seeds 100] [--cases 40 --cases 120] [--named good]

Wrong is "use it" where a demand is truly missed with that many votes, votes that are sold where
fewer truly meet all demands, "do not use" where some number of votes that was seen truly meets all
of them, "rewrite" of a node that is not at fault, and runs called no repeats. "Not known" is never
wrong; its share is printed. Judges at a line are the hardest: there every verdict but "not known"
is wrong half of the time by luck alone.
"""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import Annotated

import typer

from dagengine.compiler.definitions import definitions, digest
from dagengine.metrics import DAGMetric
from dagengine.metrics.dag import DAG, BinaryJudgementNode
from dagengine.record.labels import LABELS, Label, LabelFile
from dagengine.reliability.card import make_card
from dagengine.reliability.card.values import JudgeCard, Needs
from dagengine.reliability.card.verdict import Verdict, verdict
from dagengine.reliability.counterfactual import Counterfactual
from dagengine.reliability.observations import Condition, Observation
from dagengine.test_case import LLMTestCase

Odds = Mapping[float, float]
"""Share of cases by the chance of a wrong answer."""


@dataclass(frozen=True)
class Node:
    """A question: how many cases get a yes in truth, and how often the judge is wrong about them.

    `on_no` are the odds of cases whose true answer is no, if they differ.
    """

    yes: float
    odds: Odds
    on_no: Odds | None = None

    def kinds(self) -> Iterator[tuple[float, bool, float]]:
        """Share of cases, the true answer, and the chance that the judge says yes."""
        for chance, share in self.odds.items():
            yield self.yes * share, True, 1 - chance
        for chance, share in (self.on_no or self.odds).items():
            yield (1 - self.yes) * share, False, chance


@dataclass(frozen=True)
class Judge:
    """A tree of questions that passes a case if the answer to each is yes; a no ends it.

    Rewriting `fault` would help, and no other node. People walk the tree of a judge that is
    `walked`; of others they label cases.
    """

    nodes: tuple[Node, ...]
    fault: str = ""
    walked: bool = False

    def kinds(self) -> Iterator[tuple[float, bool, float]]:
        """Share of cases, whether they pass in truth, and how often the judge passes them."""
        for parts in itertools.product(*(node.kinds() for node in self.nodes)):
            yield (
                math.prod(share for share, _, _ in parts), all(truth for _, truth, _ in parts),
                math.prod(chance for _, _, chance in parts),
            )  # fmt: skip

    def meets(self, votes: int, needs: Needs) -> bool:
        """Whether so many votes truly meet all demands."""
        kinds = [(share, good, _majority(chance, votes)) for share, good, chance in self.kinds()]
        flips = math.fsum(share * 2 * passes * (1 - passes) for share, _, passes in kinds)
        right = math.fsum(share * (passes if good else 1 - passes) for share, good, passes in kinds)
        prevalence = math.fsum(share for share, good, _ in kinds if good)
        passing = math.fsum(share * passes for share, _, passes in kinds)
        chance = prevalence * passing + (1 - prevalence) * (1 - passing)
        kappa = (right - chance) / (1 - chance)
        slack = 1e-9
        return (
            flips <= needs.flips + slack and right >= needs.agreement - slack
            and kappa >= needs.kappa - slack
        )  # fmt: skip

    def wronged(self, made: Verdict, seen: Sequence[int], needs: Needs) -> bool:
        """Whether a verdict about this judge is wrong."""
        if made.kind == "open":
            return False
        if made.kind == "use":
            return not self.meets(1, needs)
        if made.kind == "use_with":
            fewer = any(self.meets(votes, needs) for votes in seen if votes < made.votes)
            return fewer or not self.meets(made.votes, needs)
        if made.kind == "stop":
            return True
        words = f"{made.headline} {made.step}"
        stray = "Rewrite" in words and f"Rewrite {self.fault}" not in words
        return stray or any(self.meets(votes, needs) for votes in seen)


NAMES = ("good", "polite")
SURE: Odds = {0.0: 1.0}
JUDGES: dict[str, Judge] = {
    "good": Judge((Node(0.7, {0.0: 0.95, 1.0: 0.05}),)),
    "good, a little noise": Judge((Node(0.7, {0.01: 0.95, 0.99: 0.05}),)),
    "coin": Judge((Node(0.7, {0.5: 1.0}),)),
    "always yes": Judge((Node(0.75, SURE, {1.0: 1.0}),)),
    "bad node": Judge(
        (Node(0.85, {0.01: 1.0}), Node(0.7, {0.0: 0.6, 1.0: 0.4})), "polite", walked=True
    ),
    "flipping node": Judge((Node(0.85, {0.01: 1.0}), Node(0.7, {0.15: 1.0})), "polite"),
    "noise that votes mend": Judge((Node(0.7, {0.06: 1.0}),)),
    "flips just above the line": Judge((Node(0.7, {0.03: 1.0}),)),
    "a ninth coins, flips just above the line": Judge((Node(0.7, {0.0: 0.89, 0.5: 0.11}),)),
    "agreement just above the line": Judge((Node(0.6, {0.0: 0.82, 1.0: 0.18}),)),
    "agreement at the line": Judge((Node(0.6, {0.0: 0.8, 1.0: 0.2}),)),
    "agreement just below the line": Judge((Node(0.6, {0.0: 0.78, 1.0: 0.22}),)),
    "a fifth coins": Judge((Node(0.7, {0.0: 0.8, 0.5: 0.2}),)),
    "weak": Judge((Node(0.6, {0.02: 0.72, 0.98: 0.28}),)),
}


def _majority(chance: float, votes: int) -> float:
    """The chance that most of so many votes pass a case."""
    return math.fsum(math.comb(votes, k) * chance**k * (1 - chance) ** (votes - k)
                     for k in range(votes // 2 + 1, votes + 1))  # fmt: skip


def metric_of(judge: Judge) -> DAGMetric:
    """A tree with a node for each question."""
    then: BinaryJudgementNode | int = 10
    for name in reversed(NAMES[: len(judge.nodes)]):
        then = BinaryJudgementNode(
            f"Is `input` {name}?", name=name, evaluation_params=["input"],
            then={True: then, False: 0},
        )  # fmt: skip
    assert not isinstance(then, int)
    return DAGMetric("good", DAG(then), threshold=0.5)


def card_of(judge: Judge, cases: int, runs: int, random: Random, folder: Path) -> JudgeCard:
    """The card of one benchmark."""
    metric = metric_of(judge)
    data = [LLMTestCase(input=str(case)) for case in range(cases)]
    observations: list[Observation] = []
    walks: list[list[bool]] = []
    for case in range(cases):
        drawn = [_drawn(node, random) for node in judge.nodes]
        walks.append(_until_no(truth for truth, _ in drawn))
        for run in range(runs):
            answers = _until_no(random.random() < chance for _, chance in drawn)
            observations += _observed(case, Condition(run), answers)
    labels: dict[int, bool] | Path = {case: all(walk) for case, walk in enumerate(walks)}
    if judge.walked:
        labels = folder / LABELS
        labels.unlink(missing_ok=True)
        LabelFile(labels).add(_labels(metric, data, walks))
    return make_card(observations, [metric], data, ["drawn"], labels=labels)


def _drawn(node: Node, random: Random) -> tuple[bool, float]:
    """The truth of one case, and the chance of a yes."""
    kinds = list(node.kinds())
    _, truth, chance = random.choices(kinds, [share for share, _, _ in kinds])[0]
    return truth, chance


def _until_no(answers: Iterator[bool]) -> list[bool]:
    walk: list[bool] = []
    for answer in answers:
        walk.append(answer)
        if not answer:
            break
    return walk


def _observed(case: int, at: Condition, answers: Sequence[bool]) -> Iterator[Observation]:
    """What one run of the metric leaves."""
    path = tuple(zip(NAMES, answers, strict=False))
    yield Observation(case, "good", "", at, None, float(all(answers)), path=path)
    yield from (Observation(case, "good", name, at, answer) for name, answer in path)


def _labels(
    metric: DAGMetric, data: Sequence[LLMTestCase], walks: Sequence[Sequence[bool]]
) -> Iterator[Label]:
    """What a person who is never wrong says on the way through the tree."""
    plan = Counterfactual(metric).plan
    hashes = definitions(plan, plan.metrics[0])
    for place, (case, walk) in enumerate(zip(data, walks, strict=True)):
        ends = [*zip(NAMES, walk, strict=False), ("", None)]
        for node, answer in ends:
            yield Label(
                id=f"{place} {node}", who="Ana", when="2026-01-01T00:00:00Z",
                case=case.content_hash(), index=place, name=str(place), metric="good", node=node,
                definition=hashes[node] if node else digest(hashes), answer=answer,
                outcome=None if node else ("pass" if all(walk) else "fail"),
            )  # fmt: skip


def main(
    seeds: Annotated[int, typer.Option(min=1)] = 100,
    runs: int = 8,
    cases: Annotated[list[int], typer.Option(min=8)] = [40, 120],  # noqa: B006
    named: Annotated[list[str] | None, typer.Option(help="Only judges of these names.")] = None,
) -> None:
    """Print for every judge and number of cases how often verdicts are wrong, or not known."""
    wrong_at_all = cards = 0
    seen = range(1, runs // 2 + 1, 2)
    with TemporaryDirectory() as folder:
        for name, size in itertools.product(named or JUDGES, cases):
            judge, rows, wrong = JUDGES[name], Counter[str](), Counter[str]()
            for seed in range(seeds):
                random = Random(f"{name} {size} {seed}")
                card = card_of(judge, size, runs, random, Path(folder))
                made = verdict(card, card.metrics[0], card.metrics[0].settings[0])
                row = f"{made.kind} {made.row}"
                rows[row] += 1
                wrong[row] += judge.wronged(made, seen, card.needs)
            unknown = sum(count for row, count in rows.items() if row.startswith("open"))
            print(
                f"{name}, {size} cases x {runs} runs: {wrong.total()} of {seeds} wrong "
                f"{dict(+wrong)}, {unknown} not known; {dict(rows)}",
                flush=True,
            )
            wrong_at_all, cards = wrong_at_all + wrong.total(), cards + seeds
    print(f"wrong in all: {wrong_at_all} of {cards} ({100 * wrong_at_all / cards:.1f} %)")


if __name__ == "__main__":
    typer.run(main)
