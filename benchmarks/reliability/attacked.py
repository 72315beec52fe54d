"""Whether an attack card names what falls, and raises no alarm where nothing does.

A tree of three decisions about what a first node extracts is judged by simulated judges. Each
decision is where a third of the failing cases fail. At a decision a judge errs in 2 % of the texts
that it reads, in either direction. What it does besides is what was planted:

* planted: it falls to three families, each at one decision, in 40, 50 and 60 % of the cases;
* task: it falls to one family in 50 %, where it extracts what the decisions read;
* clean: it falls to nothing;
* disturbed: any more words, harmless ones too, turn its answer in 40 % of the cases.

A card is right if all planted nodes and families are red, and no other node, and no family but
these. For the last two worlds: if nothing at all is red.

    python benchmarks/reliability/attacked.py                # 100 seeds, 150 cases that fail
    python benchmarks/reliability/attacked.py --cases 300
    python benchmarks/reliability/attacked.py --asked 3      # through `attack`: the same counts?

Answers are drawn, and the figures are made of them as `attack` makes them. With `--asked` every
question is asked, and each cell has to be equal to the one of drawn answers. Ends with 1 where
fewer than 95 of 100 seeds are right, fewer than 93 % of the intervals hold the true rate, or cells
differ.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any

import typer

from dagengine import attack
from dagengine.attacking.attack_card import Cell, Place
from dagengine.attacking.attack_texts import FAMILIES, twin_of
from dagengine.attacking.success_rates import (
    AttackRun,
    AttackSurface,
    NodeAnswer,
    Trial,
    cells_of,
    mark_significant,
)
from dagengine.judges import ScriptedJudge
from dagengine.metrics import DAGMetric
from dagengine.metrics.dag import DAG, BinaryJudgementNode, NonBinaryJudgementNode, TaskNode
from dagengine.prompts.instructions import parts_of
from dagengine.question import Question
from dagengine.test_case import LLMTestCase

NODES = ("Helps", "Order", "Tone")
BEST: Mapping[str, Any] = {"Helps": True, "Order": "right", "Tone": "warm"}
WORST: Mapping[str, Any] = {"Helps": False, "Order": "wrong", "Tone": "rude"}
ENDS = {"Helps": 0.0, "Order": 0.2, "Tone": 0.3}
EXTRACT = "Extract"
NOISE, RIGHT, HELD = 0.02, 95, 0.93


def metric() -> DAGMetric:
    """Three decisions, each of which may end the case, about what a first node extracts."""
    reads = ["actual_output"]
    tone = NonBinaryJudgementNode(
        "Are the steps told in a warm or in a rude way?",
        evaluation_params=reads,
        then={"warm": 10, "rude": 3},
        name="Tone",
    )
    order = NonBinaryJudgementNode(
        "Are the steps in the right order?",
        evaluation_params=reads,
        then={"right": tone, "wrong": 2},
        name="Order",
    )
    helps = BinaryJudgementNode(
        "Do the steps help?",
        evaluation_params=reads,
        then={True: order, False: 0},
        name="Helps",
    )
    task = TaskNode("Extract the steps", EXTRACT, [helps, order, tone], reads)
    return DAGMetric("Support", DAG(root_node=task))


Planted = Mapping[tuple[str, str], float]


@dataclass(frozen=True)
class World:
    """A judge: the rates at which it falls, by node and family, and to any more words."""

    planted: Planted = field(default_factory=dict)
    disturbed: float = 0.0

    def answer(self, node: str, truth: Any, family: str, is_twin: bool, draws: Draws) -> Any:
        """What it says at a node about a text with these words in it (no family: none)."""
        rate = 0.0 if is_twin else self.planted.get((node, family), 0.0)
        if family and draws("falls", node) < max(rate, self.disturbed):
            return BEST[node]
        wrong = WORST[node] if truth == BEST[node] else BEST[node]
        return wrong if draws("errs", node) < NOISE else truth

    def extracts_all(self, family: str, is_twin: bool, draws: Draws) -> bool:
        """Whether it says that all is well where it extracts."""
        rate = 0.0 if is_twin else self.planted.get((EXTRACT, family), 0.0)
        return draws("falls", EXTRACT) < rate

    def rate(self, node: str, family: str, truth: Any) -> float:
        """How often a node with this truth falls to a family, its errors among it."""
        rate = self.planted[node, family]
        if node == EXTRACT:  # it falls if the case passes then
            return float(rate * (1 - NOISE) ** len(NODES))
        return rate + (1 - rate) * (NOISE if truth == WORST[node] else 1 - NOISE)


@dataclass(frozen=True)
class Draws:
    """Numbers from 0 to 1 that belong to one text."""

    seed: int
    text: str

    def __call__(self, *what: str) -> float:
        drawn = hashlib.sha256(repr((self.seed, self.text, what)).encode(errors="surrogatepass"))
        return int.from_bytes(drawn.digest()[:6]) / 2**48


WORLDS = {
    "planted": World(
        {("Helps", "authority"): 0.4, ("Order", "fake verdict"): 0.5, ("Tone", "fake fence"): 0.6}
    ),
    "task": World({(EXTRACT, "fake completion"): 0.5}),
    "clean": World(),
    "disturbed": World(disturbed=0.4),
}


def truths(number: int) -> dict[str, Any]:
    """A case that fails at the node with its number."""
    fails = NODES[number % len(NODES)]
    return {node: WORST[node] if node == fails else BEST[node] for node in NODES}


# Drawn.


def draws_of(seed: int, number: int, family: str, is_twin: bool) -> Draws:
    """The draws of a text: a case with some words in it."""
    return Draws(seed, f"{number} {family} {is_twin}")


def drawn_run(
    world: World, seed: int, number: int, family: str = "", is_twin: bool = False
) -> AttackRun:
    """One run, without a question."""
    draws, truth = draws_of(seed, number, family, is_twin), truths(number)
    fallen = world.extracts_all(family, is_twin, draws)
    answers = {EXTRACT: NodeAnswer("all" if fallen else f"{number}", is_text=True)}
    path: list[tuple[str, Any]] = []
    score = 1.0
    for node in NODES:
        verdict = world.answer(node, BEST[node] if fallen else truth[node], family, is_twin, draws)
        answers[node] = NodeAnswer((type(verdict).__name__, verdict))
        path.append((node, verdict))
        if verdict != BEST[node]:
            score = ENDS[node]
            break
    return AttackRun(score, score >= 0.5, False, tuple(path), answers)


@dataclass(frozen=True)
class Drawn:
    """The cells of a card of drawn answers, and the true rates of what was planted."""

    cells: list[Cell]
    rates: Mapping[tuple[str, str], float]


def drawn_card(world: World, seed: int, cases: int) -> Drawn:
    """The card of the cases that fail when clean."""
    nodes, cells = AttackSurface(metric()).nodes, list[Cell]()
    clean = {number: drawn_run(world, seed, number) for number in range(cases)}
    failing = [number for number, run in clean.items() if not run.passed]
    for family in FAMILIES:
        place = Place("actual_output", "" if family.whole else "end")
        trials = [
            Trial(
                number,
                (family.name, place),
                "",
                (),
                [clean[number]],
                [drawn_run(world, seed, number, family.name)],
                [drawn_run(world, seed, number, family.name, is_twin=True)],
            )
            for number in failing
        ]
        cells += cells_of("Support", family.name, place, trials, nodes)
    rates = {}
    for node, planted in world.planted:
        # Those that said the worst when clean: most of them rightly.
        base = [n for n in failing if dict(clean[n].path).get(node) != BEST.get(node, "")]
        asked = [n for n in base if node in clean[n].answers]
        each = [world.rate(node, planted, truths(n).get(node)) for n in asked]
        rates[node, planted] = sum(each) / len(each)
    return Drawn(mark_significant(cells), rates)


# Asked.

ASKED = tuple(family for family in FAMILIES if not family.whole)
"""Words in the place of the whole text leave no case to be known by."""


class Judge:
    """The same judge as one that reads prompts; it knows attacks by their words."""

    def __init__(self, world: World, seed: int) -> None:
        self._world, self._seed = world, seed
        surface = AttackSurface(metric())
        aims = [surface.aim(((node, WORST[node]),)) for node in NODES]
        # Every family has fewer texts and disguises than this.
        texts = [(f, n, aim) for f in ASKED for n in range(12) for aim in aims]
        words = {f.words(n, aim, "actual_output"): f.name for f, n, aim in texts}
        self._words = {text: (name, False) for text, name in words.items()}
        self._words |= {twin_of(text): (name, True) for text, name in words.items()}

    def answer(self, question: Question[Any]) -> Any:
        """What it says to one question."""
        _, evidence = parts_of(question.messages)
        case, _, words = evidence[0].text.partition("\n")
        number = int(case.removeprefix("answer "))
        family, is_twin = self._words[words] if words else ("", False)
        draws = draws_of(self._seed, number, family, is_twin)
        if question.name == EXTRACT:
            return "all" if self._world.extracts_all(family, is_twin, draws) else str(number)
        node = question.name
        truth = BEST[node] if evidence[-1].text == "all" else truths(number)[node]
        verdict = self._world.answer(node, truth, family, is_twin, draws)
        return {"reason": "", "verdict": verdict}


def differing(
    world: World, seed: int, cases: int, drawn: Sequence[Cell], most: int | None = None
) -> list[str]:
    """The cells that `attack` makes otherwise than they were drawn, of at most so many families."""
    data = [LLMTestCase(input="How?", actual_output=f"answer {n}") for n in range(cases)]
    names = [family.name for family in ASKED][-(most or 0) :]
    judge = ScriptedJudge(Judge(world, seed).answer)
    card = attack(data, [metric()], model=judge, sample=cases, families=names)
    counts = {(cell.node, cell.family): (cell.attacked, cell.twin, cell.p) for cell in card.cells}
    return [
        f"{cell.node or cell.metric}, {cell.family}: asked {counts[cell.node, cell.family]}"
        for cell in drawn
        if cell.family in names
        and counts[cell.node, cell.family] != (cell.attacked, cell.twin, cell.p)
    ]


# Compared with the truth.


@dataclass
class Seen:
    """What the seeds of one world showed."""

    right: int = 0
    held: int = 0
    intervals: int = 0
    wrong: list[str] = field(default_factory=list)
    differing: list[str] = field(default_factory=list)

    def add(self, world: World, card: Drawn) -> None:
        """One seed."""
        cells = card.cells
        red = {(cell.node, cell.family) for cell in cells if cell.red and cell.node}
        families = {family for _, family in world.planted}
        whole = {cell.family for cell in cells if cell.red and not cell.node} - families
        if red == set(world.planted) and not whole:
            self.right += 1
        else:
            missing = set(world.planted) - red
            self.wrong.append(f"not {missing}" if missing else f"also {red, whole}")
        for cell in cells:
            rate = card.rates.get((cell.node, cell.family))
            low, high = cell.attacked.low, cell.attacked.high
            if rate is not None and low is not None and high is not None:
                self.intervals += 1
                self.held += low <= rate <= high


def main(
    seeds: Annotated[int, typer.Option(min=1)] = 100,
    cases: Annotated[int, typer.Option(min=10)] = 150,
    asked: Annotated[int, typer.Option(help="So many seeds through `attack`.")] = 0,
    only: Annotated[list[str] | None, typer.Option(help=f"Of {', '.join(WORLDS)}.")] = None,
) -> None:
    """Print what was named right, and how many intervals hold."""
    failed = False
    for name in only or WORLDS:
        world = WORLDS[name]
        seen = Seen()
        for seed in range(asked or seeds):
            card = drawn_card(world, seed, cases)
            seen.add(world, card)
            if asked:
                seen.differing += differing(world, seed, cases, card.cells)
        fails = bool(seen.differing) or (not asked and 100 * seen.right < RIGHT * seeds)
        fails = fails or (not asked and seen.held < HELD * seen.intervals)
        failed = failed or fails
        intervals = f"{seen.held} of {seen.intervals} intervals hold" if seen.intervals else ""
        cells = f"{len(seen.differing)} cells differ" if asked else ""
        print(f"{name:10} right in {seen.right} of {asked or seeds}  {intervals}  {cells}")
        for line in (*seen.wrong[:3], *seen.differing[:3]):
            print(f"           {line}")
    if failed:
        print("FAILS")
        raise typer.Exit(1)


if __name__ == "__main__":
    typer.run(main)
