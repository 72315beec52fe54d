"""When the traces of a run began, how they were sampled, and the alarms about them: by the day."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

from pydantic import BaseModel

from dagengine.data.json_lines import read_models
from dagengine.record.run import Run
from dagengine.results.rows import STARTED, WATCHED
from dagengine.system.regular_files import is_there

ALERTS = "alerts.jsonl"
_MOST = 200  # alarms that are shown, the latest
_DAY = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")
Group = tuple[str | None, str | None, float]


def group_of(ids: Mapping[str, Any]) -> Group:
    """The day of a trace (UTC, YYYY-MM-DD), its stratum, and the probability that it was judged.

    `ids` are those of its row. Both are None for a case that is of no trace, or was not sampled.
    """
    day = _DAY.match(ids.get(STARTED, ""))
    stratum, probability, _ = map(ids.get, WATCHED)
    try:
        share = float(probability or 1)
    except ValueError:  # a field that is hidden
        share = 1.0
    return None if day is None else day[0], stratum, share if 0 < share <= 1 else 1.0


class AlarmRecord(BaseModel):
    """One alarm of a watch, as far as it is shown; see `watch.values.Alert`."""

    row: int
    metric: str
    group: str
    before: float
    now: float
    cases: int
    cause: str
    again: int = 0
    path: str | None = None
    time: str = ""


def alarms_of(run: Run, day_of: Callable[[int], str | None]) -> list[dict[str, Any]]:
    """The latest alarms of a watch, each with the day of the case at which it was raised.

    `day_of` knows the day of a case by its number. None were raised in any other run. Raises
    InputError that names a damaged line.
    """
    path = run.folder / ALERTS
    alarms: list[AlarmRecord] = []
    if is_there(path):
        alarms = list(read_models(path, AlarmRecord, "an alarm", whole=False))
    # What old questions show was found after the last case that there was.
    return [
        {**alarm.model_dump(), "day": day_of(alarm.row) or day_of(alarm.row - 1)}
        for alarm in alarms[-_MOST:]
    ]
