"""Verdicts and scores that were collected elsewhere, as observations."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from dagengine.data.records import Record, table_of
from dagengine.errors import InputError
from dagengine.reliability.observations import Condition, Observation, Observations
from dagengine.results import OutcomeKind, Verdict
from dagengine.test_case import TestCase

_WORDS = {"true": True, "false": False}
_COLUMNS = "case, run, metric, node, verdict, score, judge, order, temperature, seed"
Place = tuple[int, str, Condition]


def load_table(
    path: str | Path, cases: Sequence[TestCase] = (), *, metric: str = ""
) -> Observations:
    """Observations from a table of verdicts and scores: CSV, TSV, JSON, JSON lines or Parquet.

    A row is what one node (`node`) or, without it, the metric did on one case (`case`: its place
    from 0, or the name of one of `cases`) in one run (`run`, from 0). `verdict` is true, false or
    the verdict's name, `score` a number from 0 to 1; a row with neither is an answer that could
    not be read. A node's row with a score counts for the metric as well where the run has no row
    of the metric. `metric` names the metric where the table has no such column; `judge`,
    `order`, `temperature` and `seed` make settings. Raises InputError naming the row that is
    none of this.
    """
    names = {case.name: number for number, case in enumerate(cases) if case.name}
    runs: dict[Place, list[Observation]] = {}
    for record in table_of(path).read():
        one = _observed(record, names, metric)
        runs.setdefault((one.case, one.metric, one.condition), []).append(one)
    return Observations(tuple(row for rows in runs.values() for row in _run(rows)))


def _observed(record: Record, names: Mapping[str, int], metric: str) -> Observation:
    row = record.value
    if not isinstance(row, Mapping):
        raise InputError(f"{record.place}: {record.problem or 'not a row of columns'}")
    try:
        return _of(row, names, metric)
    except (KeyError, ValueError, TypeError) as error:
        what = f"there is no column {error}" if isinstance(error, KeyError) else str(error)
        raise InputError(
            f"{record.place} is no verdict or score: {what}; the columns are {_COLUMNS}"
        ) from None


def _of(row: Mapping[str, Any], names: Mapping[str, int], metric: str) -> Observation:
    name = str(row["case"])
    score = None if row.get("score") is None else float(row["score"])
    if score is not None and not 0 <= score <= 1:
        raise ValueError(f"score {score:g} is not between 0 and 1")
    verdict = row.get("verdict")
    lost = score is None and verdict is None
    return Observation(
        case=names[name] if name in names else int(name),
        metric=str(row.get("metric") or metric),
        node=str(row.get("node") or ""),
        condition=Condition(
            sample=int(row["run"]),
            order=str(row.get("order") or "given"),
            temperature=None if row.get("temperature") is None else float(row["temperature"]),
            seed=None if row.get("seed") is None else int(row["seed"]),
            judge=str(row.get("judge") or ""),
        ),
        verdict=None if verdict is None else _verdict(verdict),
        score=score,
        outcome=OutcomeKind.UNPARSEABLE if lost else OutcomeKind.OK,
    )


def _verdict(value: Any) -> Verdict:
    return value if isinstance(value, bool) else _WORDS.get(str(value).lower(), str(value))


def _run(rows: Sequence[Observation]) -> Iterator[Observation]:
    """The metric's observation with its path, then those of the nodes."""
    nodes = [row for row in rows if row.node]
    whole = next((row for row in rows if not row.node), None) or (nodes[-1] if nodes else rows[0])
    path = tuple((row.node, row.verdict) for row in nodes if row.verdict is not None)
    if not nodes and whole.verdict is not None:
        path = (("", whole.verdict),)
    yield Observation(
        whole.case, whole.metric, "", whole.condition, None, whole.score, None, whole.outcome, path
    )
    for row in nodes:
        plain = row.verdict is not None and len(nodes) == 1 and row is whole
        yield Observation(
            row.case, row.metric, row.node, row.condition, row.verdict,
            None if plain else row.score, None, row.outcome,
        )  # fmt: skip
