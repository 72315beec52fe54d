"""The criteria of a rubric, as objects and as the dicts and texts that data sets have."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from functools import partial
from operator import itemgetter
from typing import Any, Final, Self

from pydantic import BaseModel, ConfigDict, model_serializer

from dagengine.errors import InputError, did_you_mean

MET, UNMET, UNSURE = "met", "unmet", "cannot tell"
_MOST: Final = 1e9
# What data sets call the parts of a criterion; the first name is ours.
_SPELLINGS: Final = {
    "criterion": ("criterion", "requirement", "text", "value"),
    "points": ("points", "weight"),
    "levels": ("levels", "options", "choices"),
    "name": ("name",),
    "tags": ("tags",),
    "gate": ("gate",),
}
_OWN: Final = {spelling: name for name, every in _SPELLINGS.items() for spelling in every}


class RubricItem(BaseModel):
    """One criterion of a rubric: what is looked for in the answer, and its points.

    `points` are won if the answer meets the criterion; they are negative for what an answer must
    not do (from -10⁹ to 10⁹). `levels` gives labels in place of met and unmet, each with its share
    of the points (0 to 1), for instance `{"rude": 0, "neutral": 0.5, "warm": 1}`. A `gate` has no
    points and no levels: if the answer does not meet it, its score is 0. With `points=-1` a gate
    must not be met. `tags` group criteria; `name` identifies one in labels and comparisons. Raises
    InputError for anything else.
    """

    model_config = ConfigDict(frozen=True)
    criterion: str
    points: float = 1
    name: str | None = None
    tags: tuple[str, ...] = ()
    levels: dict[str, float] | None = None
    gate: bool = False

    def __init__(
        self,
        criterion: str,
        points: float = 1,
        *,
        name: str | None = None,
        tags: Iterable[str] = (),
        levels: Mapping[str, float] | None = None,
        gate: bool = False,
    ) -> None:
        worth = _number("points", points, -_MOST, _MOST)
        if not isinstance(gate, bool):
            raise InputError(f"gate must be True or False, got {gate!r:.60}")
        if gate and (abs(worth) != 1 or levels is not None):
            extra = "levels" if levels is not None else f"points {points:g}"
            raise InputError(
                f"a gate has no points and no levels, but {criterion!r:.60} has {extra}; only "
                "points=-1 is allowed, for what an answer must not do"
            )
        if isinstance(tags, str) or not isinstance(tags, Iterable):
            raise InputError(f"tags must be a list of texts, got {tags!r:.60}")
        fields: dict[str, Any] = {
            "criterion": _text("criterion", criterion),
            "points": worth,
            "name": None if name is None else _text("name", name),
            "tags": tuple(dict.fromkeys(map(partial(_text, "tag"), tags))),
            "levels": None if levels is None else levels_of(levels),
            "gate": gate,
        }
        super().__init__(**fields)

    @classmethod
    def of(cls, given: Any) -> Self:
        """A criterion from an object, a text, or a dict as data sets have it; raises InputError."""
        if isinstance(given, cls):
            return given
        if isinstance(given, str):
            return cls(given)
        if not isinstance(given, Mapping):
            raise InputError(f"a criterion is a RubricItem, a dict or a text, got {given!r:.80}")
        spelt: dict[str, str] = {}
        values: dict[str, Any] = {}
        for spelling, value in given.items():
            name = _OWN.get(spelling, "")
            if not name:
                near = did_you_mean(str(spelling), _OWN) or f"there are {', '.join(_OWN)}"
                raise InputError(f"a criterion has no {spelling!r}; {near}")
            if name in spelt:
                pair = f"{spelt[name]!r} and {spelling!r}"
                raise InputError(f"a criterion has {pair}, which are the same: keep one of them")
            spelt[name] = spelling
            if value is not None:  # a column that a row leaves empty is none
                ladder = _LADDERS.get(spelling)
                values[name] = value if ladder is None else ladder(value)
        if "criterion" not in values:
            raise InputError(f"a criterion without a text: write 'criterion', got {given!r:.80}")
        return cls(**values)

    def __deepcopy__(self, memo: dict[int, Any] | None = None) -> Self:
        return self

    @model_serializer
    def _without_defaults(self) -> dict[str, Any]:
        worth = {} if self.gate and self.points > 0 else {"points": self.points}
        fields = {"name": self.name, "tags": self.tags, "levels": self.levels, "gate": self.gate}
        return {"criterion": self.criterion, **worth, **dict(filter(itemgetter(1), fields.items()))}

    @property
    def key(self) -> str:
        """The name, else the text."""
        return self.name or self.criterion

    @property
    def verdicts(self) -> tuple[str, ...]:
        """The verdicts that a judge may give, without the one of a judge that cannot tell."""
        return (MET, UNMET) if self.levels is None else tuple(self.levels)

    def won(self, verdict: str) -> float:
        """The points of a verdict other than "cannot tell"."""
        if self.levels is not None:
            return self.points * self.levels[verdict]
        return self.points if verdict == MET else 0.0

    @property
    def worst(self) -> float:
        """The lowest number of points that a verdict brings."""
        return min(map(self.won, self.verdicts))

    @property
    def best(self) -> float:
        """The highest number of points that a verdict brings."""
        return max(map(self.won, self.verdicts))

    def passes(self, verdict: str) -> bool:
        """Whether the answer is let through, if this is a gate."""
        return (verdict == MET) == (self.points > 0)


def items_of(given: Any) -> list[RubricItem]:
    """The criteria in a list, or in the JSON text of one; raises InputError that names the place.

    A list in the cell of a table is such a text.
    """
    rubric = given
    if isinstance(given, str):
        with suppress(ValueError):
            rubric = json.loads(given)
    if isinstance(rubric, str | Mapping) or not isinstance(rubric, Iterable):
        raise InputError(f"a rubric is a list of criteria, got {given!r:.80}")
    items: list[RubricItem] = []
    for number, item in enumerate(rubric, 1):
        try:
            items.append(RubricItem.of(item))
        except (InputError, TypeError) as error:
            raise InputError(f"criterion number {number}: {error}") from None
    return items


def _text(name: str, given: Any) -> str:
    if not isinstance(given, str) or not given.strip():
        raise InputError(f"the {name} must be a text that says something, got {given!r:.60}")
    return given


def _number(name: str, given: Any, low: float, high: float) -> float:
    number = isinstance(given, int | float) and not isinstance(given, bool)
    if not number or not low <= given <= high:  # also NaN, which is in no range
        raise InputError(f"{name} must be a number from {low:g} to {high:g}, got {given!r:.60}")
    return float(given)


def levels_of(given: Any) -> dict[str, float]:
    """Labels with their shares of the points; raises InputError for anything else."""
    if not isinstance(given, Mapping) or len(given) < 2:
        raise InputError(
            f"levels must give a share of the points for two labels or more, got {given!r:.60}"
        )
    levels = {_text("label", k): _number(f"the level {k!r}", v, 0, 1) for k, v in given.items()}
    if UNSURE in levels:
        raise InputError(f"{UNSURE!r} is no label of a level: unsure= of the metric allows it")
    return levels


def levels_of_options(given: Any) -> Any:
    """The levels in `[{label, value}, …]`."""
    levels = {o.get("label"): o.get("value") for o in given if isinstance(o, Mapping)}
    if len(levels) < len(given):
        raise InputError(f"options are [{{label, value}}, …], each label once, got {given!r:.60}")
    return levels


def levels_of_choices(given: Any) -> Any:
    """An even ladder of labels, the worst first."""
    if isinstance(given, str) or len(set(given)) < max(2, len(given)):
        raise InputError(f"choices are two labels or more, the worst first, got {given!r:.60}")
    return dict(zip(given, (step / (len(given) - 1) for step in range(len(given))), strict=True))


_LADDERS: Final[Mapping[str, Callable[[Any], Any]]] = {
    "options": levels_of_options,
    "choices": levels_of_choices,
}
