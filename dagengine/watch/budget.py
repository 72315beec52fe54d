"""What a day may cost: calls or money, counted over all processes of a day."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

from dagengine.errors import InputError
from dagengine.gateway.budget import Account
from dagengine.prompts.json_values import shallow_value
from dagengine.regular_files import is_there, read_whole, write_whole
from dagengine.traces.otlp import DAMAGES

SPENT = "spent.json"


def today_in_utc() -> str:
    """The date as YYYY-MM-DD."""
    return datetime.now(UTC).date().isoformat()


class DailyAccount(Account):
    """Calls and US dollars of the day, which begin anew with the next one (UTC).

    They are in `spent.json` of the run folder after every row. So calls in progress at a kill are
    not counted.
    """

    def __init__(self, folder: Path, today: Callable[[], str] = today_in_utc) -> None:
        """Raises InputError for a file that is damaged."""
        super().__init__()
        self._path, self._today = folder / SPENT, today
        self._day = today()
        if is_there(self._path):
            try:
                spent = shallow_value(read_whole(self._path))
                if spent["day"] == self._day:
                    self.calls, self.spent = int(spent["calls"]), float(spent["dollars"])
                if self.calls < 0 or not 0 <= self.spent < math.inf:
                    raise ValueError(spent)
            except DAMAGES as error:
                raise InputError(f"{self._path} does not say what was spent: {error!r}") from None

    def __enter__(self) -> Account:
        day = self._today()
        if day != self._day:
            self._day, self.calls, self.spent = day, 0, 0.0
        return self

    def save(self) -> None:
        """Write what was spent."""
        with self:
            spent = {"day": self._day, "calls": self.calls, "dollars": round(self.spent, 9)}
            write_whole(self._path, json.dumps(spent) + "\n")
