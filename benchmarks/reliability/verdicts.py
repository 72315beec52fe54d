"""How often verdicts of the judge card are wrong, on judges whose truth is known.

    python benchmarks/reliability/verdicts.py [--seeds 100] [--cases 40 --cases 120] [--named good]
    python benchmarks/reliability/verdicts.py --drawn [--seeds 60] [--cases 60] [--runs 6]

Wrong is "use it" where a demand is truly missed with that many votes, votes that are sold where
fewer truly meet all demands, "do not use" where some number of votes that was seen truly meets all
of them, "rewrite" of a node that is not at fault, and runs called no repeats. "Not known" is never
wrong; its share is printed. Judges at a line are the hardest: there every verdict but "not known"
is wrong half of the time by luck alone.

`--drawn` takes what real benchmarks are like: no answers, runs that are no repeats, groups, several
judges, labels that are no random part, answers that are missing because of the verdict. Their truth
is that of a large sample, without shocks, copies and losses.
"""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import Annotated, Any

import numpy as np
import typer
from simulated.examined import (
    LARGE,
    Draw,
    Drawn,
    Kind,
    breakage,
    copies,
    made_of,
    noisy,
    unequal_groups,
    update,
)
from simulated.examined import metric as examined_metric

from dagengine.compiler.metric_hashes import definitions, digest
from dagengine.metrics import DAGMetric
from dagengine.metrics.dag import DAG, BinaryJudgementNode
from dagengine.record.label_file import LABELS, Label, LabelFile
from dagengine.reliability.card import make_card
from dagengine.reliability.card.recommendation import Verdict, verdict
from dagengine.reliability.card.types import JudgeCard, Needs
from dagengine.reliability.counterfactual import Counterfactual
from dagengine.reliability.observations import Condition, Observation
from dagengine.reliability.statistics.sums import needs
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


@dataclass(frozen=True)
class Benchmark:
    """Judges on the same cases, each drawn by its own function; `grouped` cases share a field.

    `unlike` runs are no repeats, or there are none: then a verdict that stops is right, and one
    that does not stop is judged by what the judge would have said otherwise.
    """

    judges: tuple[Draw, ...]
    unlike: bool = False
    called_random: bool = False

    def card(self, cases: int, runs: int, random: Random) -> JudgeCard:
        """The card of one benchmark."""
        seed = random.randrange(2**32)
        seen: list[Observation] = []
        names = [f"judge {place}" for place in range(len(self.judges))]
        drawn = [made_of(Kind("", draw, lambda _: {}), Random(seed), cases, runs)
                 for draw in self.judges]  # fmt: skip
        for named, made in zip(names, drawn, strict=True):
            seen += [replace(row, condition=replace(row.condition, judge=named))
                     for row in made.seen]  # fmt: skip
        made = drawn[-1]  # all judge the same cases
        return make_card(
            seen, [examined_metric("yes or no")], made.data, names, labels=made.labels,
            groups=made.groups, labels_random=self.called_random,
        )  # fmt: skip

    def wronged(self, place: int, made: Verdict, seen: Sequence[int], needs: Needs) -> bool:
        """Whether a verdict about the judge at a place is wrong."""
        if made.kind == "open":
            return False
        if made.kind == "stop":
            return not self.unlike
        meets = {votes: meets_by_sample(self.judges[place], votes, needs) for votes in seen}
        if made.kind == "no":
            return any(meets.values())
        return not meets[made.votes] or any(meets[votes] for votes in seen if votes < made.votes)


@cache
def meets_by_sample(draw: Draw, votes: int, needs: Needs) -> bool:
    """Whether so many votes meet all demands in a large sample."""
    drawn = draw(np.random.default_rng(1), LARGE, 2 * votes)
    whole = drawn.said if drawn.whole is None else drawn.whole
    one, again = (2 * part.sum(1) > votes for part in (whole[:, :votes], whole[:, votes:]))
    truth = drawn.labels.astype(bool)
    right, passes, good = (one == truth).mean(), one.mean(), truth.mean()
    chance = passes * good + (1 - passes) * (1 - good)
    kappa = (right - chance) / (1 - chance) if chance < 1 else 0.0
    return bool(
        (one != again).mean() <= needs.flips and right >= needs.agreement and kappa >= needs.kappa
    )


def judge(
    agreement: float, noise: float = 0.0, *, lost: tuple[float, float] = (0, 0),
    hard: tuple[float, float] = (0, 0), shock: Callable[[Any, Any], Any] | None = None,
    groups: int = 1, own: int = 0,
) -> Draw:  # fmt: skip
    """A judge that is for good wrong about so many cases, beside its noise; 60 % should pass.

    `lost` is the share of answers without a verdict where it says pass, and fail; `hard` the share
    of cases that are noisy instead, and the share of their answers that are lost. Cases of one of
    `groups` of so many on average are right or wrong together, large groups more often wrong.
    Judges with another `own` are wrong about other cases.
    """

    def draw(random: np.random.Generator, cases: int, runs: int) -> Drawn:
        truth = random.random(cases) < 0.6
        sizes = random.choice([1, groups, 2 * groups - 1], size=cases)
        of = np.repeat(np.arange(cases), sizes)[:cases]
        size = sizes[of]
        harder = np.where(sizes > groups, 1.2, 0.7) if groups > 1 else 1.0
        random = np.random.default_rng([own, int(random.integers(2**32))])
        wrong = (random.random(cases) < (1 - agreement) * harder)[of]
        unsure = random.random(cases) < hard[0]
        flipped = random.random((cases, runs)) < np.where(unsure, 0.3, noise)[:, None]
        whole = (truth ^ wrong)[:, None] ^ flipped
        said = whole if shock is None else shock(random, whole)
        gone = random.random((cases, runs)) < np.where(said, *lost)
        gone |= random.random((cases, runs)) < np.where(unsure, hard[1], 0)[:, None]
        shown = np.where(gone, np.nan, said) if gone.any() else said
        return Drawn(shown, truth, of if size.max() > 1 else None, whole=whole)

    return draw


def labelled_where(easy: float, later: float, *, first: bool) -> Draw:
    """A third of the cases has labels: the first third, or that which is easy to judge.

    `easy` and `later` are the shares of these, and of the others, of which the judge is right.
    """

    def draw(random: np.random.Generator, cases: int, runs: int) -> Drawn:
        chosen = np.arange(cases) < cases / 3 if first else random.random(cases) < 1 / 3
        truth = random.random(cases) < 0.6
        right = random.random(cases) < np.where(chosen, easy, later)
        said = np.repeat((truth == right)[:, None], runs, 1)
        return Drawn(said, truth, labelled=chosen)

    return draw


def _silent(random: np.random.Generator, cases: int, runs: int) -> Drawn:
    whole = np.ones((cases, runs), bool)
    return Drawn(np.full(whole.shape, np.nan), random.random(cases) < 0.6, whole=whole)


BENCHMARKS: dict[str, Benchmark] = {
    "no answer can be read": Benchmark((_silent,), unlike=True),
    "good repeats that vary": Benchmark((judge(0.96, 0.02),)),
    "weak repeats that vary": Benchmark((judge(0.8, 0.1),)),
    "good judge, one run broken": Benchmark((judge(0.96, 0.01, shock=breakage),), unlike=True),
    "good judge, updated half-way": Benchmark((judge(0.96, 0.01, shock=update),), unlike=True),
    "noisy judge, 70 % copied": Benchmark((judge(0.9, 0.1, shock=copies),), unlike=True),
    "cases that differ in noise, 70 % copied": Benchmark((noisy(copies),), unlike=True),
    "cases that differ in noise, one run broken": Benchmark((noisy(breakage),), unlike=True),
    "cases that differ in noise, updated half-way": Benchmark((noisy(update),), unlike=True),
    "unequal groups, 78 %, line 80": Benchmark((judge(0.78, groups=5),)),
    "unequal groups, 83 %, line 80": Benchmark((judge(0.83, groups=5),)),
    "unequal groups, large ones harder": Benchmark((unequal_groups,)),
    "four judges: 78, 78, 77, 76 %": Benchmark(
        tuple(judge(share, own=own) for own, share in enumerate((0.78, 0.78, 0.77, 0.76)))
    ),
    "eight judges: all 79.5 %": Benchmark(tuple(judge(0.795, own=own) for own in range(8))),
    "three judges: 95, 90, 76 %": Benchmark(
        tuple(judge(share, own=own) for own, share in enumerate((0.95, 0.9, 0.76)))
    ),
    "first third labelled, easy there": Benchmark((labelled_where(0.97, 0.65, first=True),)),
    "the same, called random": Benchmark(
        (labelled_where(0.97, 0.65, first=True),), called_random=True
    ),
    "easy cases labelled, nothing tells": Benchmark((labelled_where(0.97, 0.65, first=False),)),
    "half of the fails lost": Benchmark((judge(0.76, lost=(0, 0.5)),)),
    "noisy cases lost": Benchmark((judge(0.97, hard=(0.2, 0.8)),)),
    "a fifth lost of a good judge's fails": Benchmark((judge(0.96, lost=(0, 0.2)),)),
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
    named: Annotated[list[str] | None, typer.Option(help="Only those of these names.")] = None,
    drawn: Annotated[bool, typer.Option("--drawn", help="Benchmarks like real ones.")] = False,
) -> None:
    """Print for every judge and number of cases how often verdicts are wrong, or not known."""
    wrong_at_all = cards = 0
    seen = range(1, runs // 2 + 1, 2)
    with TemporaryDirectory() as folder:
        for name, size in itertools.product(named or (BENCHMARKS if drawn else JUDGES), cases):
            rows, wrong = Counter[str](), Counter[str]()
            wronged = 0
            for seed in range(seeds):
                random = Random(f"{name} {size} {seed}")
                card = (
                    BENCHMARKS[name].card(size, runs, random) if drawn
                    else card_of(JUDGES[name], size, runs, random, Path(folder))
                )  # fmt: skip
                bad = False
                for place, under in enumerate(card.metrics[0].settings):
                    made = verdict(card, card.metrics[0], under)
                    row = f"{made.kind} {made.row}"
                    rows[row] += 1
                    false = (
                        BENCHMARKS[name].wronged(place, made, seen, card.needs) if drawn
                        else JUDGES[name].wronged(made, seen, card.needs)
                    )  # fmt: skip
                    wrong[row] += false
                    bad = bad or false
                wronged += bad
            unknown = sum(count for row, count in rows.items() if row.startswith("open"))
            most = (
                needs("scipy.stats")
                .binomtest(wronged, seeds, alternative="less")
                .proportion_ci(0.95)
                .high
            )
            print(
                f"{name}, {size} cases x {runs} runs: {wronged} of {seeds} cards wrong "
                f"(at most {100 * most:.1f} %) {dict(+wrong)}, {unknown} not known; {dict(rows)}",
                flush=True,
            )
            wrong_at_all, cards = wrong_at_all + wronged, cards + seeds
    print(f"wrong in all: {wrong_at_all} of {cards} ({100 * wrong_at_all / cards:.1f} %)")


if __name__ == "__main__":
    typer.run(main)
