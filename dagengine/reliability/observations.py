"""What repetitions of an evaluation showed: one row per case, node and condition."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from dagengine.errors import InputError
from dagengine.results import OutcomeKind, Totals, Verdict

Vote = str | bool | int | float
Turns = tuple[tuple[str, Verdict], ...]


@dataclass(frozen=True, slots=True)
class Condition:
    """Under what circumstances a repetition was made.

    `sample` counts repetitions from 0 among conditions that are otherwise equal. `order`,
    `paraphrase` and `judge` are names; "given" and the empty ones stand for the metric as it
    is. `temperature` and `seed` are those asked for, None where nodes keep their own.
    """

    sample: int = 0
    order: str = "given"
    temperature: float | None = None
    seed: int | None = None
    paraphrase: str = ""
    judge: str = ""


@dataclass(frozen=True, slots=True)
class Observation:
    """What one node, or the metric itself (`node` is empty), did on one case.

    `verdict` and `score` (0 to 1) are those of the step or the metric. `raw` stands for what
    the judge wrote: a digest of it, or the text itself; None where no judge wrote anything.
    `path` lists the (node, verdict) turns that a metric took, in topological order.
    `confidence` is the probability that the judge's tokens gave the verdict of a node, where it
    is known; `weighted` says that the metric's score is an expectation over such probabilities.
    `items` are the verdicts about the items of a list, in the order in which they were shown.
    `alone` nodes were asked by themselves, on what an earlier run showed them: such answers
    belong to no run, and tables leave them out. `question` tells the questions asked apart:
    equal ones are one question, of whatever case.
    """

    case: int
    metric: str
    node: str
    condition: Condition
    verdict: Verdict | None = None
    score: float | None = None
    raw: str | None = None
    outcome: OutcomeKind = OutcomeKind.OK
    path: Turns = ()
    confidence: float | None = None
    weighted: bool = False
    items: tuple[Verdict, ...] = ()
    alone: bool = False
    question: str | None = None

    @property
    def vote(self) -> Vote | None:
        """The verdict, else the score; None where there is no answer that could be read."""
        return self.score if self.verdict is None else self.verdict


Reading = Callable[[Observation], Any]
Chosen = Callable[[Condition], bool]


def vote_of(observation: Observation) -> Vote | None:
    """The vote of an observation, as tables hold it."""
    return observation.vote


def every(condition: Condition) -> bool:
    """Takes all conditions."""
    return True


@dataclass(frozen=True)
class Observations(Sequence[Observation]):
    """All observations, by case, then metric, then condition, the metric before its nodes.

    `totals` sums up the calls that were made for them. Saved and loaded as JSON lines.
    """

    rows: tuple[Observation, ...]
    totals: Totals = field(default_factory=Totals, compare=False)

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, index: Any) -> Any:
        return self.rows[index]

    def __iter__(self) -> Iterator[Observation]:
        return iter(self.rows)

    @cached_property
    def cases(self) -> tuple[int, ...]:
        """The places of the cases in the data set."""
        return tuple(dict.fromkeys(row.case for row in self.rows))

    @cached_property
    def metrics(self) -> tuple[str, ...]:
        """The names of the metrics."""
        return tuple(dict.fromkeys(row.metric for row in self.rows))

    @cached_property
    def conditions(self) -> tuple[Condition, ...]:
        """The conditions of all runs in the order in which they were declared."""
        return tuple(dict.fromkeys(row.condition for row in self.rows if not row.alone))

    def nodes(self, metric: str) -> tuple[str, ...]:
        """The nodes of a metric that ran in some repetition, in the order of first sight."""
        return tuple(node for of, node in self._index if of == metric and node)

    @cached_property
    def _index(self) -> dict[tuple[str, str], dict[tuple[int, Condition], Observation]]:
        found: dict[tuple[str, str], dict[tuple[int, Condition], Observation]] = {}
        for row in (row for row in self.rows if not row.alone):
            found.setdefault((row.metric, row.node), {})[row.case, row.condition] = row
        return found

    def table(
        self, metric: str, node: str = "", of: Reading = vote_of, where: Chosen = every
    ) -> list[list[Any]]:
        """One row per case, one column per condition that `where` takes.

        An entry is what `of` reads off the observation, the vote by default. It is None where
        there was no answer that could be read, and where a node was not asked because the
        path went elsewhere; `votes` leaves the latter out. Raises InputError for names that
        do not occur.
        """
        found = self._of(metric, node)
        columns = [condition for condition in self.conditions if where(condition)]
        return [
            [None if (seen := found.get((case, column))) is None else of(seen)
             for column in columns]
            for case in self.cases
        ]  # fmt: skip

    def votes(
        self, metric: str, node: str = "", of: Reading = vote_of, where: Chosen = every
    ) -> list[list[Any]]:
        """As `table`, but a row holds only the repetitions in which the node was asked.

        Rows differ in length and columns do not belong together; cases in which the node
        was never asked have no row.
        """
        rows: dict[int, list[Any]] = {}
        for (case, condition), seen in self._of(metric, node).items():
            if where(condition):
                rows.setdefault(case, []).append(of(seen))
        return list(rows.values())

    def _of(self, metric: str, node: str) -> dict[tuple[int, Condition], Observation]:
        if (metric, node) not in self._index:
            known = ", ".join(repr(name) for name in (*self.metrics, *self.nodes(metric)))
            raise InputError(f"nothing was observed of {node or metric!r}; there is {known}")
        return self._index[metric, node]

    def save(self, path: str | Path) -> None:
        """Write one JSON object per observation; defaults are left out."""
        with Path(path).open("w", encoding="utf-8") as file:
            file.writelines(f"{line}\n" for line in self.lines())

    def lines(self) -> Iterator[str]:
        """The lines of the file, equal for equal observations."""
        return (_JSON.encode(_as_dict(row)) for row in self.rows)

    @classmethod
    def load(cls, path: str | Path) -> Observations:
        """Read what `save` wrote; raises InputError naming the line that is none of it."""
        with Path(path).open(encoding="utf-8") as file:
            return cls(tuple(read_lines(file, str(path))))


_JSON = json.JSONEncoder(separators=(",", ":"))
_DEFAULTS = {
    f.name: f.default for kind in (Observation, Condition) for f in dataclasses.fields(kind)
}


def _as_dict(row: Observation) -> dict[str, Any]:
    """A row without what is as usual; its condition's fields stand beside its own."""
    found = {f.name: getattr(row, f.name) for f in dataclasses.fields(row) if f.name != "condition"}
    found |= {f.name: getattr(row.condition, f.name) for f in dataclasses.fields(Condition)}
    return {name: value for name, value in found.items() if value != _DEFAULTS[name]}


def read_lines(lines: Iterable[str], where: str = "observations") -> Iterator[Observation]:
    """Observations from the lines of a file; raises InputError naming the line that is none."""
    known: dict[Any, Any] = {}
    names = {f.name for f in dataclasses.fields(Condition)}
    for number, line in enumerate(lines, 1):
        try:
            given = json.loads(line)
            condition = Condition(**{k: given.pop(k) for k in list(given) if k in names})
            path = tuple((node, verdict) for node, verdict in given.pop("path", ()))
            outcome = OutcomeKind(given.pop("outcome", "ok"))
            yield Observation(
                condition=known.setdefault(condition, condition),
                path=known.setdefault(path, path),
                outcome=outcome,
                items=tuple(given.pop("items", ())),
                **given,
            )
        except (ValueError, TypeError, AttributeError) as error:
            raise InputError(f"{where}, line {number} is no observation: {error}") from None
