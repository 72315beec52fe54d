"""The judge card: what was measured about metrics under a judge, as plain data.

A card answers four questions: would I get this score again, which node is to blame, what
would it cost to be sure, and does the judge agree with people? It is bound to what was
measured, so that a card about something else says so.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from pydantic import TypeAdapter, ValidationError

from dagengine.errors import InputError
from dagengine.reliability.fingerprint import Binding
from dagengine.reliability.statistics.calibration import ReliabilityBin
from dagengine.reliability.statistics.intervals import bootstrap
from dagengine.reliability.statistics.sums import Sums

T = TypeVar("T")

FORMAT = 1


@dataclass(frozen=True, slots=True)
class Figure:
    """One number, with what it takes to read it.

    `value` is None where the measure is undefined; `note` then says why. `low` and `high`
    bound it with the stated `confidence` (None: no interval is known). `items` is how many
    of what `level` names it is computed over.
    """

    name: str
    value: float | None
    low: float | None = None
    high: float | None = None
    confidence: float = 0.95
    items: int = 0
    level: str = ""
    note: str = ""


def figure(
    name: str,
    items: Sequence[T],
    statistic: Callable[[Sequence[T]], Sums | float | None],
    level: str,
    note: str,
    groups: Sequence[Hashable] | None = None,
) -> Figure:
    """A statistic of items with its interval; `note` says why it may be undefined.

    Items of equal `groups`, which are the cases, stay together when resampling.
    """
    found = statistic(items)
    value = found.value() if isinstance(found, Sums) else found
    count = len(items if groups is None else set(groups))
    if value is None:
        return Figure(name, None, items=count, level=level, note=note)
    bounds = bootstrap(items, statistic, groups=groups)
    if bounds is None:
        return Figure(name, value, items=count, level=level)
    return Figure(name, value, bounds.low, bounds.high, bounds.level, bounds.items, level)


@dataclass(frozen=True, slots=True)
class VoteCost:
    """What steady answers of one node cost.

    `votes` of every question make its majority verdict differ between two runs at most as
    often as `target` says (None: not with any number up to `most`). `calls` and `voted` are
    questions for all cases once, asked singly and with these votes.
    """

    target: float
    votes: int | None
    most: int
    calls: float
    voted: float | None


@dataclass(frozen=True, slots=True)
class NodeCard:
    """One node: how often it flips, what a flip moves, its share of the noise, votes.

    `reads` names what code that is not computed anew works on: its noise is theirs.
    """

    node: str
    kind: str
    reads: tuple[str, ...]
    flip_rate: Figure
    effect: Figure
    share: Figure
    votes: VoteCost | None = None


@dataclass(frozen=True, slots=True)
class CaseSpread:
    """The scores of one case: (score, how often), lowest first, and their deviation."""

    case: str
    scores: tuple[tuple[float, int], ...]
    deviation: float


@dataclass(frozen=True, slots=True)
class Calibration:
    """How often an event happened, by the probability that was stated for it."""

    event: str
    bins: tuple[ReliabilityBin, ...]


@dataclass(frozen=True, slots=True)
class MetricCard:
    """One metric: measures of repetition and of agreement, nodes, and scores by case.

    `people` is empty without labels; `more` are the measures that answer none of the four
    questions by themselves. `calls` are questions that one run asks, on average per case.
    """

    metric: str
    threshold: float | None
    again: tuple[Figure, ...]
    nodes: tuple[NodeCard, ...]
    people: tuple[Figure, ...]
    spread: tuple[CaseSpread, ...]
    calls: float
    notes: tuple[str, ...] = ()
    more: tuple[Figure, ...] = ()
    calibration: tuple[Calibration, ...] = ()

    @property
    def measures(self) -> tuple[Figure, ...]:
        """Every measure but those of single nodes."""
        return (*self.again, *self.people, *self.more)

    def figures(self) -> Iterator[Figure]:
        """Every measure, those of nodes included."""
        yield from self.measures
        for node in self.nodes:
            yield from (node.flip_rate, node.effect, node.share)

    def figure(self, name: str) -> Figure | None:
        """The measure of that name, not those of single nodes."""
        return next((m for m in self.measures if m.name == name), None)


@dataclass(frozen=True, slots=True)
class JudgeCard:
    """All of it. `times` is the number of repetitions under each of `settings`."""

    binding: Binding
    times: int
    settings: tuple[str, ...]
    metrics: tuple[MetricCard, ...]
    rules: tuple[str, ...] = ()
    format: int = FORMAT

    @property
    def sha256(self) -> str:
        """The hash of what the card is bound to."""
        return self.binding.sha256


_ADAPTER = TypeAdapter(JudgeCard)


def write_card(card: JudgeCard, path: Path) -> None:
    """Write a card as JSON; equal cards give equal bytes."""
    path.write_bytes(_ADAPTER.dump_json(card, indent=1) + b"\n")


def read_card(path: Path) -> JudgeCard:
    """A card from its JSON; raises InputError when it is none, or of a later format."""
    if not path.is_file():
        raise InputError(f"there is no judge card {path}")
    try:
        card = _ADAPTER.validate_json(path.read_bytes())
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        place = ".".join(str(step) for step in first["loc"]) or "the file"
        raise InputError(f"{path} is not a judge card: {place}: {first['msg']}") from None
    if card.format != FORMAT:
        raise InputError(f"{path} has format {card.format}; this version reads {FORMAT}")
    return card
