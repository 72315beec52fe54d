"""`dagengine diff`: what changed between two runs, and why."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer
from typer import Argument, Option

from dagengine.cli.common.files import Reads
from dagengine.cli.common.formats import fail_if_any, print_csv
from dagengine.errors import InputError

if TYPE_CHECKING:
    from dagengine.results.conditions import Condition

MEASURES = {
    "flips": "flips",
    "worse": "worse",
    "better": "better",
    "lost": "lost",
    "gained": "gained",
    "same-question": "same",
}
"""The measures of `--fail-if`: each counts cases of one metric."""
_COLUMNS = (
    *("metric", "case", "old index", "new index", "change", "old score", "new score", "node"),
    *("old answer", "new answer", "cause", "detail"),
)


def diff(
    old: Annotated[Path, Argument(metavar="OLD", help="The folder of the earlier run."), Reads()],
    new: Annotated[Path, Argument(metavar="NEW", help="The folder of the later run."), Reads()],
    metric: Annotated[
        str | None, Option(metavar="NAME", help="Only this metric. Default: all metrics.")
    ] = None,
    card: Annotated[
        Path | None,
        Option(
            metavar="CARD.json",
            help="A judge card (`dagengine benchmark`); it tells how many flips are only noise of "
            "the judge.",
        ),
        Reads(),
    ] = None,
    form: Annotated[
        Literal["table", "json", "csv"],
        Option("--format", help="Text, JSON with everything, or CSV with one line per case."),
    ] = "table",
    limit: Annotated[int, Option(min=0, help="Maximum number of cases to list per metric.")] = 20,
    fail_if: Annotated[
        list[str] | None,
        Option(
            metavar="[METRIC.]MEASURE>NUMBER",
            help=f"Exit with 1 if this condition holds; measures are {', '.join(MEASURES)}. "
            "Repeatable.",
        ),
    ] = None,
) -> None:
    """Compare two runs: which cases flipped, at which node, and why.

    Cases are matched by content, not by order or name. Makes no judge calls.

    Exit codes: 0 compared; 1 a --fail-if condition holds; 2 invalid input.
    """
    from dagengine.cli.tables.diff_table import print_changes
    from dagengine.record.changes.diff import compare_runs
    from dagengine.record.run import load_run
    from dagengine.reliability.card.card_faces import read_card
    from dagengine.reliability.changes.run_report import change_report

    conditions = [condition_of(text) for text in fail_if or ()]
    judge_card = None if card is None else read_card(card)
    compared = compare_runs(load_run(old), load_run(new), metric=metric)
    report = change_report(compared, judge_card)
    if form == "table":
        print_changes(report, limit)
    elif form == "json":
        typer.echo(json.dumps(report, indent=1))
    else:
        print_csv(_COLUMNS, _lines(report["metrics"]))
    failing: list[str] = []
    for condition in conditions:
        measured = [each for each in report["metrics"] if condition.of in ("", each["metric"])]
        if not measured:
            raise InputError(
                f"--fail-if {condition.text!r}: no metric {condition.of!r} is in both runs"
            )
        name = MEASURES[condition.measure]
        for figures in measured:
            # Only flips without a change of definition, evidence or judge are counted by cause.
            count = int(figures["causes"]["same"] if name == "same" else figures[name])
            if condition.holds(count):
                failing.append(f"{condition.text}: {figures['metric']}: {count}")
    fail_if_any(failing)


def condition_of(text: str) -> Condition:
    """Parse a condition; raises InputError for a measure that this command does not have."""
    from dagengine.results.conditions import parse_condition

    condition = parse_condition(text, "'worse>0'")
    if condition.measure not in MEASURES:
        raise InputError(
            f"--fail-if {text!r}: unknown measure {condition.measure!r}; measures are "
            f"{', '.join(MEASURES)}"
        )
    if condition.bound != "value":
        raise InputError(
            f"--fail-if {text!r}: a number of cases has no .{condition.bound}; leave it out"
        )
    return condition


def _lines(metrics: Sequence[Mapping[str, Any]]) -> Iterator[dict[str, Any]]:
    """One line per case that changed."""
    for metric in metrics:
        for change in metric["changes"]:
            values = (
                metric["metric"], change["case"], *change["index"], change["kind"],
                *change["score"], change["node"], *change["answer"], change["cause"],
                change["detail"],
            )  # fmt: skip
            yield dict(zip(_COLUMNS, values, strict=True))
