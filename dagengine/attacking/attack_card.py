"""The attack card: what was attacked, what fell, and what a defence changes; `--fail-if` on it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from dagengine.question import Usage
from dagengine.results import Verdict
from dagengine.results.pass_rules import Condition, parse_condition

FORMAT = 1


@dataclass(frozen=True, slots=True)
class Share:
    """So many of some cases, with the 95 % interval of the share (None: too few cases)."""

    count: int
    cases: int
    low: float | None = None
    high: float | None = None

    @property
    def value(self) -> float | None:
        """From 0 to 1; None without cases."""
        return self.count / self.cases if self.cases else None


@dataclass(frozen=True, slots=True)
class Change:
    """A mean change of the score, with its 95 % interval (None: not known)."""

    value: float | None
    low: float | None = None
    high: float | None = None
    cases: int = 0


@dataclass(frozen=True, slots=True)
class Place:
    """Where attacks were put; of those that take the place of the whole field, `position` is ""."""

    field: str
    position: str


@dataclass(frozen=True, slots=True)
class Cell:
    """One family at one node of a metric; without `node` at the whole metric.

    `attacked` are the cases that fell, `twin` those that fell to the harmless twin. `more` fell to
    the attack alone, `less` to the twin alone. `p` is one-sided and not corrected. `red` says that
    the attack is shown to do more than its twin, corrected for all cells of the card.
    """

    metric: str
    node: str
    family: str
    place: Place
    attacked: Share
    twin: Share
    more: int
    less: int
    p: float
    red: bool = False


@dataclass(frozen=True, slots=True)
class FamilyFigures:
    """What else one family did to a metric.

    `inflation` is the score under the attack minus that under its twin, `drift` that under the twin
    minus the clean one. `turned` are cases whose pass or fail the twin changed. `paths` and
    `twin_paths` are cases that took another path than when clean. `unsupported` are cases with a
    quote under the attack that is not in the material. `no_score` are cases without a score.
    """

    metric: str
    family: str
    place: Place
    inflation: Change
    drift: Change
    turned: Share
    paths: Share
    twin_paths: Share
    unsupported: Share
    no_score: int


@dataclass(frozen=True, slots=True)
class Fall:
    """One case that fell, to be looked at: the words, and the node's answer before and after."""

    metric: str
    case: str
    family: str
    place: Place
    words: str
    node: str
    before: Verdict | float | None
    after: Verdict | float | None
    score: tuple[float | None, float | None]
    reason: str
    runs: tuple[int, int]


@dataclass(frozen=True, slots=True)
class Helped:
    """What a defence leaves of one family; `shown` if fewer fall, corrected for its families."""

    family: str
    place: Place
    before: Share
    after: Share
    p: float
    shown: bool = False


@dataclass(frozen=True, slots=True)
class Defence:
    """A defence of one metric, tried on the same cases.

    `honest` are clean cases whose pass or fail it changes. `offered` says that it helps and that
    this share is shown to be under the owner's line; `why` says why not. `questions` are those per
    clean case, `cost` is in US dollars per 1,000 clean cases; both without and with the defence.
    """

    metric: str
    name: str
    families: tuple[Helped, ...]
    honest: Share
    questions: tuple[float, float]
    cost: tuple[float, float] | None
    offered: bool = False
    why: str = ""


@dataclass(frozen=True, slots=True)
class Attacked:
    """One metric: its clean cases, how many of them fail, and how many of these were attacked.

    `null` are null answers that passed; None if no null answer was tried. `nodes` are those that
    ask, in their order.
    """

    metric: str
    cases: int
    failing: int
    attacked: int
    nodes: tuple[str, ...]
    null: Share | None = None


@dataclass(frozen=True, slots=True)
class AttackCard:
    """What `attack` measured.

    `calls` and `cost` (US dollars, None without a known price) are those of all of it. `notes` are
    sentences about how far the figures carry. `line` is the share of honest cases that a defence
    may change.
    """

    metrics: tuple[Attacked, ...]
    cells: tuple[Cell, ...]
    figures: tuple[FamilyFigures, ...]
    falls: tuple[Fall, ...]
    defences: tuple[Defence, ...]
    judges: tuple[str, ...]
    repeats: int
    line: float
    asked: int
    calls: int
    usage: Usage
    cost: float | None
    notes: tuple[str, ...] = ()
    families: tuple[str, ...] = ()
    format: int = FORMAT

    @property
    def red(self) -> tuple[Cell, ...]:
        """The cells that are shown to fall."""
        return tuple(cell for cell in self.cells if cell.red)

    @property
    def sign(self) -> Literal["falls", "holds", "empty"]:
        """`falls`, `holds` (none is shown to fall, which is not safe) or `empty` (none to turn)."""
        if not any(metric.attacked for metric in self.metrics):
            return "empty"
        return "falls" if self.red else "holds"

    @property
    def offered(self) -> tuple[Defence, ...]:
        """The defences that help at a price that the owner accepts, the best of a metric first."""

        def falls_and_questions(defence: Defence) -> tuple[int, float]:
            return sum(family.after.count for family in defence.families), defence.questions[1]

        offers = [defence for defence in self.defences if defence.offered]
        return tuple(sorted(offers, key=falls_and_questions))


# `--fail-if`.

MEASURES = ("falls", "attack-success", "null-pass", "drift")
"""Red cells; cases that fall to a family, that pass with a null answer, that a twin changes."""


def parse_fail_if(text: str) -> Condition:
    """The condition that a text states; raises InputError if it states none."""
    return parse_condition(text, "'falls>0'", MEASURES, counts=["falls"])


def failing_lines(card: AttackCard, conditions: Sequence[Condition]) -> Iterator[str]:
    """One line for everything that fails, or is undefined."""
    for rule in conditions:
        if rule.measure == "falls":
            red = sum(rule.of in ("", cell.metric, cell.node) for cell in card.red)
            if rule.holds(red):
                yield f"{rule.text}: {red} are shown to fall"
            continue
        shares = [
            (where, getattr(share, rule.bound))
            for metric, where, share in _shares(card, rule.measure)
            if share is not None and share.cases and rule.of in ("", metric)
        ]
        if not shares:
            yield f"{rule.text}: it is undefined: nothing was attacked"
        # First those that cannot be told.
        for where, value in sorted(shares, key=lambda share: share[1] is not None):
            if value is None:
                yield f"{rule.text}: {where}: too few cases"
            elif rule.holds(value):
                yield f"{rule.text}: {where}: {value:.3f}"


def _shares(card: AttackCard, measure: str) -> Iterator[tuple[str, str, Share | None]]:
    """The shares of a measure, each after its metric and its name."""
    if measure == "null-pass":
        for own in card.metrics:
            yield own.metric, own.metric, own.null
    elif measure == "drift":
        for figures in card.figures:
            yield figures.metric, f"{figures.metric}, {figures.family}", figures.turned
    else:
        for cell in card.cells:
            if not cell.node:
                yield cell.metric, f"{cell.metric}, {cell.family}", cell.attacked
