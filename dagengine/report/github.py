"""The summary of a run on the page of a GitHub workflow, when the run is a step of one."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from dagengine.report.tables import headline_of
from dagengine.report.tally import Tally
from dagengine.results.html import cell, number, table
from dagengine.results.passing import SIGNS
from dagengine.results.totals import Totals, cost_line

VARIABLE = "GITHUB_STEP_SUMMARY"
_PLACES = 8


def add_step_summary(tally: Tally, totals: Totals, standings: Sequence[str] = ()) -> None:
    """Append the summary to the file that the variable names; nothing without it."""
    name = os.environ.get(VARIABLE)
    if name:
        with Path(name).open("a", encoding="utf-8") as file:
            file.write(step_summary(tally, totals, standings))


def step_summary(tally: Tally, totals: Totals, standings: Sequence[str] = ()) -> str:
    """The headline, the judges' `standings`, the figures and where cases failed.

    It is HTML that holds no Markdown.
    """
    summary = tally.summing.result()
    figures = [
        [_code(counts.metric), str(counts.cases), number(counts.mean), str(counts.passed),
         str(counts.failed), str(counts.no_score)]
        for counts in summary
    ]  # fmt: skip
    spots = [
        [str(group.cases), SIGNS[group.end.state], _code(str(group.end)), _code(group.reason)]
        for group in tally.places.ranking()[:_PLACES]
    ]
    parts = [
        f"<h3>{cell(headline_of(summary))}</h3>",
        *(f"<p>{cell(line)}</p>" for line in standings),
        table(("metric", "cases", "mean", "passed", "failed", "no score"), figures),
        table(("cases", "", "ended at", "reason of the first"), spots) if spots else "",
        f"<p>{cell(cost_line(totals))}</p>",
    ]
    return "".join(parts) + "\n\n"


def _code(text: str) -> str:
    """Text that is shown as it is: no link, no mention, no mark-up."""
    return f"<code>{cell(text)}</code>"
