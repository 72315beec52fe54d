"""What repetitions of an evaluation showed: one row per case, node and condition."""

from __future__ import annotations

import dataclasses
import json
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import chain, filterfalse
from operator import attrgetter
from pathlib import Path
from typing import Any

from dagengine.data.case_lookup import Places, named_cells
from dagengine.data.row_readers import Record, table_of
from dagengine.errors import InputError
from dagengine.prompts.json_in_text import shallow_value
from dagengine.results import OutcomeKind, Totals, Verdict
from dagengine.system.safe_files import new_file
from dagengine.system.terminal_text import counted
from dagengine.test_case import TestCase

Vote = str | bool | int | float
Turns = tuple[tuple[str, Verdict], ...]
Scale = tuple[float, float]
"""The lowest and the highest score that there can be."""


@dataclass(frozen=True, slots=True)
class Condition:
    """Under what circumstances a repetition was made.

    `sample` counts repetitions from 0 among conditions that are otherwise equal. `order`,
    `paraphrase` and `judge` are names; "given" and the empty ones stand for the metric as it
    is. `temperature` and `seed` are those asked for, None if nodes keep their own.
    """

    sample: int = 0
    order: str = "given"
    temperature: float | None = None
    seed: int | None = None
    paraphrase: str = ""
    judge: str = ""

    @property
    def setting(self) -> Condition:
        """The condition without its sample: what repetitions have in common."""
        return dataclasses.replace(self, sample=0)


@dataclass(frozen=True, slots=True)
class Observation:
    """What one node, or the metric itself (`node` is empty), did on one case.

    `verdict` and `score` (0 to 1) are those of the step or the metric. `raw` stands for what
    the judge wrote: a digest of it, or the text itself; None if no judge wrote anything.
    `path` lists the (node, verdict) turns that a metric took, in topological order.
    `confidence` is the probability that the judge's tokens gave the verdict of a node, if it is
    known. `weighted` says that the metric's score is an expectation over such probabilities.
    `items` are the verdicts about the items of a list, in the order in which they were shown.
    Criteria of a rubric have `keys`: text, name (or ""), and tags, and `gains`: what each brought
    to the unclipped score (None for a gate, and for what does not count).
    `alone` nodes were asked by themselves, on what an earlier run showed them: such answers belong
    to no run, and tables leave them out. `question` tells the questions asked apart: equal ones are
    one question, of whatever case. `unsupported` says whether a verdict of a node that quotes (of a
    list, that of any item) has neither a true quote nor a named absence; None if there is none.
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
    unsupported: bool | None = None
    keys: tuple[tuple[str, ...], ...] = ()
    gains: tuple[float | None, ...] = ()

    @property
    def vote(self) -> Vote | None:
        """The verdict, else the score; None if there is no answer that could be read."""
        return self.score if self.verdict is None else self.verdict


Reading = Callable[[Observation], Any]
Chosen = Callable[[Condition], bool]


@dataclass(frozen=True)
class Observations(Sequence[Observation]):
    """All observations, by case, then metric, then condition, the metric before its nodes.

    `totals` are the totals of their calls. They are saved and loaded as JSON lines.
    """

    rows: tuple[Observation, ...]
    totals: Totals = field(default_factory=Totals, compare=False)

    def __repr__(self) -> str:
        """Number of observations; a prompt and a notebook have no room for everything."""
        sizes = map(len, (self.cases, self.metrics, self.conditions))
        counts = ", ".join(map(counted, sizes, ("case", "metric", "run")))
        return f"<Observations: {counts}; {counted(self.totals.calls, 'judge call')}>"

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, index: Any) -> Any:
        return self.rows[index]

    def __iter__(self) -> Iterator[Observation]:
        return iter(self.rows)

    @cached_property
    def cases(self) -> tuple[int, ...]:
        """The places of the cases in the data set."""
        return tuple(dict.fromkeys(map(attrgetter("case"), self.rows)))

    @cached_property
    def metrics(self) -> tuple[str, ...]:
        """The names of the metrics."""
        return tuple(dict.fromkeys(map(attrgetter("metric"), self.rows)))

    @cached_property
    def conditions(self) -> tuple[Condition, ...]:
        """The conditions of all runs in the order in which they were declared."""
        return tuple(dict.fromkeys(row.condition for row in self.rows if not row.alone))

    def nodes(self, metric: str) -> tuple[str, ...]:
        """The nodes of a metric that ran in some repetition, in the order of first sight."""
        return tuple(node for of, node in self._index if of == metric and node)

    @cached_property
    def _index(self) -> dict[tuple[str, str], dict[tuple[int, Condition], Observation]]:
        index: dict[tuple[str, str], dict[tuple[int, Condition], Observation]] = {}
        for row in filterfalse(attrgetter("alone"), self.rows):
            index.setdefault((row.metric, row.node), {})[row.case, row.condition] = row
        return index

    def table(
        self, metric: str, node: str = "", of: Reading = attrgetter("vote"),
        where: Chosen | None = None,
    ) -> list[list[Any]]:  # fmt: skip
        """One row per case, one column per condition that `where` takes (None: every condition).

        An entry is what `of` reads off the observation, the vote by default. It is None for an
        unparseable answer, and if a node was not asked because the path went elsewhere. Raises
        InputError for names that do not occur.
        """
        if (metric, node) not in self._index:
            names = ", ".join(map(repr, (*self.metrics, *self.nodes(metric))))
            raise InputError(f"no observation of {node or metric!r}; there are {names}")
        observed, columns = self._index[metric, node], [*filter(where, self.conditions)]
        table: list[list[Any]] = []
        for case in self.cases:
            rows = (observed.get((case, column)) for column in columns)
            table.append([None if row is None else of(row) for row in rows])
        return table

    def save(self, path: str | Path) -> None:
        """Write one JSON object per observation; defaults are left out."""
        with new_file(Path(path)) as file:
            file.writelines(f"{line}\n".encode() for line in self.lines())

    def lines(self) -> Iterator[str]:
        """The lines of the file, equal for equal observations."""
        for row in self.rows:
            # A condition's fields are beside a row's own; what is as usual is left out.
            fields = dict(zip(_ROW, _values_of_row(row), strict=True))
            fields |= zip(_CONDITION, _values_of_condition(row.condition), strict=True)
            yield _JSON.encode({k: value for k, value in fields.items() if value != _DEFAULTS[k]})

    @classmethod
    def load(
        cls,
        source: Any,
        cases: Sequence[TestCase] = (),
        *,
        metric: str = "",
        scale: Scale = (0.0, 1.0),
    ) -> Observations:
        """Read what `save` wrote, or a table of verdicts and scores from elsewhere.

        `source` is a file (CSV, TSV, JSON, JSON lines, Parquet), a data frame or a list of
        dicts. A row of a table is what one node (`node`) or, without it, the metric did on one case
        in one run. `case` is the name of one of `cases`, or its place from 0. `run` counts from 0;
        without the column, rows of one case are its runs in their order. `verdict` is true, false
        or the verdict's name, `passed` or `success` says yes or no, `score` is a number on `scale`;
        it is not read beside the two. A row with none of these is an unparseable answer. If a run
        has no row of the metric, its last node's row is used. A score that is not there follows
        from the verdicts. `metric` names the metric if there is no such column; `judge`, `order`,
        `temperature` and `seed` make settings. Other columns are not read.

        Raises InputError that names an invalid or a repeated row.
        """
        if isinstance(source, str | Path) and _is_saved(Path(source)):
            with Path(source).open(encoding="utf-8") as file:
                return cls(tuple(read_lines(file, str(source))))
        records = list(table_of(source, "row").read())
        if not records:
            raise InputError(
                "the table has no rows: each row must be one verdict or score on a case"
            )
        columns = _columns(records)
        rows = VerdictRows(Places(cases), metric, scale, counted="run" not in columns,
                           alone="node" not in columns)  # fmt: skip
        for record in records:
            rows.add(record.cells(), record.place)
        return cls(tuple(rows.observations()))


_JSON = json.JSONEncoder(separators=(",", ":"))
_DEFAULTS = {
    f.name: f.default for kind in (Observation, Condition) for f in dataclasses.fields(kind)
}
_CONDITION = tuple(f.name for f in dataclasses.fields(Condition))
_ROW = tuple(name for name in _DEFAULTS if name not in (*_CONDITION, "condition"))
_values_of_row, _values_of_condition = attrgetter(*_ROW), attrgetter(*_CONDITION)


def read_lines(lines: Iterable[str], where: str = "observations") -> Iterator[Observation]:
    """Observations from the lines of a file; raises InputError that names an invalid line."""
    interned: dict[Any, Any] = {}
    for number, line in enumerate(lines, 1):
        try:
            fields = shallow_value(line)
            condition = Condition(**{k: fields.pop(k) for k in _CONDITION if k in fields})
            path = tuple((node, verdict) for node, verdict in fields.pop("path", ()))
            outcome = OutcomeKind(fields.pop("outcome", "ok"))
            yield Observation(
                condition=interned.setdefault(condition, condition),
                path=interned.setdefault(path, path),
                outcome=outcome,
                items=tuple(fields.pop("items", ())),
                keys=tuple(map(tuple, fields.pop("keys", ()))),
                gains=tuple(fields.pop("gains", ())),
                **fields,
            )
        except (ValueError, TypeError, AttributeError) as error:
            raise InputError(f"{where}, line {number} is not an observation: {error}") from None


# Tables from elsewhere.

_WORDS = {"true": True, "false": False}
_YES = "true yes y t pass passed correct accept accepted 1"
_NO = "false no n f fail failed incorrect wrong reject rejected 0"
YES_OR_NO = {**dict.fromkeys(_YES.split(), True), **dict.fromkeys(_NO.split(), False)}
_PASSED = ("passed", "success")
_NAMES = ("case", "run", "metric", "node", "verdict", *_PASSED, "score")
SETTINGS = ("judge", "order", "temperature", "seed")
_COLUMNS = (*_NAMES, *SETTINGS)


def plain_word(cell: Any) -> str:
    """A cell as its words are looked up: in small letters, a number without a fraction of 0."""
    try:
        number = float(cell)
    except (ValueError, TypeError):
        return str(cell).strip().casefold()
    return f"{number:g}"


def verdict_and_score(cells: Mapping[str, Any]) -> tuple[Any, Any]:
    """The verdict and the score of a row of verdicts, None for what it does not have.

    Whether it passed wins over its score, which may pass by another threshold. Raises ValueError
    for cells that say neither yes nor no, or not the same.
    """
    verdict = cells.get("verdict")
    names = [name for name in _PASSED if cells.get(name) is not None]
    if not names:
        return verdict, cells.get("score")
    words = [YES_OR_NO.get(plain_word(cells[name])) for name in names]
    if None in words or len({*words, YES_OR_NO.get(plain_word(verdict))} - {None}) > 1:
        cells_shown = ", ".join(
            f"`{name}` {cells[name]!r}" for name in ("verdict", *names) if cells.get(name)
        )
        raise ValueError(f"{cells_shown}: write yes or no, and the same in all of them")
    return words[0] if verdict is None else verdict, None


def _is_saved(path: Path) -> bool:
    """Whether the first line is what `save` writes first: a metric, in no run."""
    if path.suffix.lower() not in (".jsonl", ".ndjson", ".json") or not path.is_file():
        return False
    with path.open(encoding="utf-8", errors="replace") as file:
        line = next((line for line in file if not line.isspace()), "")
    try:
        first = shallow_value(line)
    except ValueError:
        return False
    return isinstance(first, dict) and first.get("node") == "" and "run" not in first


def _columns(records: Sequence[Record]) -> set[str]:
    """The columns that some row fills; raises InputError if none is a verdict or a score."""
    rows = (record.value for record in records if isinstance(record.value, Mapping))
    columns = {*map(str, chain.from_iterable(rows))}
    spelt = {name.strip().casefold() for name in columns}
    if columns and not spelt & {"verdict", "score", *_PASSED}:
        raise InputError(
            f"the table has no column `verdict`, `passed` or `score`; it has "
            f"{', '.join(sorted(columns))}, "
            f"the columns that are read are {', '.join(_COLUMNS)}"
        )
    return spelt


class VerdictRows:
    """Rows of a table as they come, put together by run.

    Without a column `node` (`alone`), every row is a run by itself. `counted` says that rows of one
    case are its runs, in their order.
    """

    def __init__(
        self, cases: Places, metric: str, scale: Scale, *, counted: bool, alone: bool
    ) -> None:
        if not scale[0] < scale[1]:
            raise InputError(f"scale={scale}: give the lowest and the highest score")
        self._cases, self._metric, self._scale = cases, metric, scale
        self._counted, self._alone = counted, alone
        self._runs = defaultdict[tuple[int, str, Condition], dict[str, Observation]](dict)
        self._whole: list[Observation] = []
        self._seen: Counter[tuple[int, str, str, Condition]] = Counter()
        self._taken = defaultdict[tuple[str, str, Condition], set[int]](set)
        # There are few conditions and verdicts, but many rows of each: they share them.
        self._settings: dict[tuple[Any, ...], Condition] = {}
        self._paths: dict[Verdict, Turns] = {}
        self._shares: dict[Any, float] = {}

    def add(self, row: Mapping[str, Any], where: str) -> None:
        """One row by its columns; raises InputError for no verdict, and for the second of a run."""
        try:
            observation = self._observation(named_cells(row, _COLUMNS), where)
        except (ValueError, TypeError) as error:
            raise InputError(f"{where} is not a verdict or score: {error}") from None
        case, metric, node = observation.case, observation.metric, observation.node
        condition = observation.condition
        taken = self._taken[metric, node, condition]
        if case in taken:
            subject = f"node {node!r}" if node else "the metric"
            raise InputError(f"{where}: run {condition.sample} of case {case} has {subject} twice")
        taken.add(case)
        if self._alone:
            self._whole.append(observation)
        else:
            self._runs[case, metric, condition][node] = observation

    def _observation(self, cells: Mapping[str, Any], where: str) -> Observation:
        case = self._cases.of(cells.get("case"), where)
        metric, node = str(cells.get("metric") or self._metric), str(cells.get("node") or "")
        setting = self._setting(cells)
        if self._counted:
            key = (case, metric, node, setting)
            run, self._seen[key] = self._seen[key], self._seen[key] + 1
            setting = self._setting(cells, run)
        verdict, points = verdict_and_score(cells)
        score = None if points is None else self._shares.get(points)
        if score is None is not points:
            score = self._shares[points] = share_of_scale(points, self._scale)
        # True and false, also those of numpy, by their names; all else is a verdict's name.
        named = None if verdict is None else _WORDS.get(str(verdict).lower(), str(verdict))
        outcome = OutcomeKind.UNPARSEABLE if score is None is named else OutcomeKind.OK
        if not self._alone:
            return Observation(case, metric, node, setting, named, score, outcome=outcome)
        path = () if named is None else self._paths.setdefault(named, (("", named),))
        return Observation(case, metric, "", setting, None, score, None, outcome, path)

    def _setting(self, cells: Mapping[str, Any], sample: int = 0) -> Condition:
        run = sample if self._counted else whole_in(cells.get("run"), "run")
        key = (run, *map(cells.get, SETTINGS))
        if key not in self._settings:
            self._settings[key] = dataclasses.replace(setting_of(cells), sample=run)
        return self._settings[key]

    def observations(self) -> Iterator[Observation]:
        """Observations so far, the metric before its nodes."""
        yield from self._whole
        for rows in self._runs.values():
            nodes = list(filter(attrgetter("node"), rows.values()))
            whole = rows.get("") or nodes[-1]
            turns = ((row.node, row.verdict) for row in nodes or [whole])
            path = tuple((node, verdict) for node, verdict in turns if verdict is not None)
            yield dataclasses.replace(whole, node="", verdict=None, path=path)
            for row in nodes:
                # The score beside the verdict of the only node is that of the metric.
                is_whole = row is whole and row.verdict is not None and len(nodes) == 1
                yield dataclasses.replace(row, score=None) if is_whole else row


def setting_of(cells: Mapping[str, Any]) -> Condition:
    """The condition that the cells of `SETTINGS` name; raises ValueError for what is no number."""
    temperature, seed = cells.get("temperature"), cells.get("seed")
    return Condition(
        order=str(cells.get("order") or "given"),
        temperature=None if temperature is None else _number(temperature, "temperature"),
        seed=None if seed is None else whole_in(seed, "seed"),
        judge=str(cells.get("judge") or ""),
    )


def share_of_scale(cell: Any, scale: Scale) -> float:
    """A score from 0 to 1; raises ValueError for no number, and one that is not on the scale."""
    (low, high), score = scale, _number(cell, "score")
    if not low <= score <= high:
        raise ValueError(
            f"score {score:g} is not between {low:g} and {high:g}: "
            "state the range of the scores with `scale` (--scale LOW,HIGH)"
        )
    return (score - low) / (high - low)


def whole_in(cell: Any, name: str) -> int:
    """The whole number in a cell of the column `name`; raises ValueError for anything else."""
    if cell is None:
        raise ValueError(f"`{name}` is empty")
    number = _number(cell, name)
    if number < 0 or number != int(number):
        raise ValueError(f"`{name}` is {cell}, but must be a whole number from 0 on")
    return int(number)


def _number(cell: Any, name: str) -> float:
    try:
        return float(cell)
    except (ValueError, TypeError):
        raise ValueError(f"`{name}` is {cell!r}, but must be a number") from None
