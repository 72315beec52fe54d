"""`dagengine show`: select cases of a run; print a table, JSON or CSV."""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from typer import Argument, Option

from dagengine.cli.common.files import Writes, name_in_errors
from dagengine.cli.common.output import Format, print_csv, print_json, say, warn
from dagengine.errors import InputError
from dagengine.system.safe_files import is_there, new_file
from dagengine.system.terminal_text import counted, text_if

if TYPE_CHECKING:
    from dagengine.record.reader import Run
    from dagengine.report.case_selection import Selected, Selection
    from dagengine.results.metric_results import CaseResult

_MOST_ROWS = 50  # of a table; with --worst as many as are asked for


@dataclass(frozen=True, kw_only=True)
class ShowOptions:
    """The options of `dagengine show`."""

    folder: Annotated[Path, Argument(metavar="DIR")]
    """The folder of a run."""
    failed: Annotated[bool, Option("--failed")] = False
    """Cases that failed a metric."""
    no_score: Annotated[bool, Option("--no-score")] = False
    """Cases without a score for at least one metric."""
    metric: str | None = None
    """Only the results of this metric."""
    case: str | None = None
    """One case, by name or index, with all its steps."""
    at: Annotated[list[str] | None, Option(metavar="NODE[=ANSWER]")] = None
    """Cases in which this node ran, or gave this answer. Repeatable."""
    not_at: Annotated[list[str] | None, Option(metavar="NODE[=ANSWER]")] = None
    """Cases in which this node did not run, or did not give this answer. Repeatable."""
    text: Annotated[str | None, Option(metavar="WORD")] = None
    """Cases with this word in a text or a reason."""
    worst: Annotated[int | None, Option(min=1)] = None
    """Only this number of cases, the worst first."""
    times: Annotated[bool, Option("--times")] = False
    """Also show the duration of cases and nodes."""
    texts: Annotated[bool, Option("--texts")] = False
    """Also the texts of the cases (csv)."""
    tree: Annotated[bool, Option("--tree")] = False
    """The metrics themselves, as a tree file has them."""
    format: Format = "table"
    """Output format."""
    as_cases: Annotated[Path | None, Option(metavar="FILE"), Writes()] = None
    """Write the selected test cases as a data set (JSON lines)."""

    def selection(self) -> Selection:
        """The conditions that these options set."""
        from dagengine.report.case_selection import Selection

        return Selection(
            failed=self.failed,
            no_score=self.no_score,
            metric=self.metric,
            case=self.case,
            at=tuple(self.at or ()),
            not_at=tuple(self.not_at or ()),
            text=self.text,
        )


def show(options: ShowOptions) -> None:
    """Show the summary of a run, or the cases that match all options.

    A case is shown if it matches every option that you give.

    Exit codes: 0 also if no case matches; 2 invalid input, for instance a case that does not exist.
    """
    from dagengine.record.case_costs import times_of
    from dagengine.record.reader import load_run
    from dagengine.report.case_selection import Selected, Selection

    if options.texts and options.format != "csv":
        raise InputError("--texts is for --format csv; of one case --case shows the texts")
    run, conditions = load_run(options.folder), options.selection()
    if not run.finished:
        why = run.manifest.exit or "the run is in progress, or was killed"
        words = filter(None, ("not finished", why, run.manifest.error))
        say(": ".join(words), err=True)
    if options.tree:
        _print_trees(run, options.metric)
        return
    selected = Selected(run, conditions)
    rows = selected if options.worst is None else selected.worst(options.worst)
    if options.as_cases is not None:
        _write_cases(run, rows, options.as_cases)
    elif options.format == "json":
        print_json({**row.as_dict(), "times": times_of(row)} for row in rows)
    elif options.format == "csv":
        _print_csv(run, rows, options.texts)
    elif conditions == Selection() and options.worst is None and not options.times:
        _print_whole(run, rows)
    else:
        _print_rows(run, rows, options)


def _print_trees(run: Run, metric: str | None) -> None:
    from dagengine.trees import text_of

    trees = list[Any]()
    for record in run.manifest.records(metric):
        trees.append(record.tree or {"name": record.name, "refused": "not recorded"})
    say(text_of(trees[0] if len(trees) == 1 else trees).rstrip("\n"))


def _print_whole(run: Run, rows: Iterable[CaseResult]) -> None:
    """Print the summary of all cases, or the drafts of a synthesis, and what the run used."""
    from dagengine.record.judge_standing import standing_lines
    from dagengine.report.page.run_facts import drafts_of
    from dagengine.report.tables_and_junit import print_drafts, print_summary
    from dagengine.report.tally import Tally

    drafts = drafts_of(run, most=math.inf)
    if drafts is None:
        print_summary(Tally(rows), standings=standing_lines(run.manifest.judges))
    else:
        print_drafts(drafts)
    if (used := run.manifest.totals) is not None:
        tokens = used.input_tokens + used.output_tokens
        money = "no price known" if used.cost is None else f"about ${used.cost:.4f}"
        asked = f"{counted(used.asked, 'question')}, {counted(used.calls, 'judge call')}"
        say(f"{asked}, {counted(tokens, 'token')}, {money}")


def _print_csv(run: Run, rows: Iterable[CaseResult], texts: bool) -> None:
    """Print a line per result, with `texts` also a column for each field of the cases."""
    from dagengine.record.reader import RunFiles
    from dagengine.report.case_selection import require_texts
    from dagengine.results.evaluation_result import COLUMNS, flat

    if not texts:
        print_csv(COLUMNS, (flat(row, result).values() for row in rows for result in row.metrics))
        return
    require_texts(run)
    with RunFiles(run) as files:

        def texts_of(row: CaseResult) -> dict[str, str]:
            position = files.place_of(row.index)
            fields = None if position is None else files.fields(position)
            return {name: _as_text(value) for name, value in (fields or {}).items()}

        def lines() -> Iterator[Iterable[Any]]:
            for row in rows:
                fields = texts_of(row)
                for result in row.metrics:
                    yield map((fields | flat(row, result)).get, columns)

        # The head names every field, so the rows are read twice and never held.
        columns = dict.fromkeys(COLUMNS)
        for row in rows:
            columns |= dict.fromkeys(texts_of(row))
        print_csv([*columns], lines())


def _write_cases(run: Run, rows: Iterable[CaseResult], path: Path) -> None:
    from dagengine.data.written_lines import line_of
    from dagengine.report.case_selection import fields_of

    cases = fields_of(run, [row.index for row in rows])
    first = list(itertools.islice(cases, 1))  # raises before there is a file
    count = 0
    with name_in_errors(path), new_file(path) as file:
        for case in itertools.chain(first, cases):
            file.write(line_of(case))
            count += 1
    warn(*(f"{field} is hidden in these cases" for field in run.manifest.redacted))
    say(f"{counted(count, 'case')}: {path}")


def _print_rows(run: Run, rows: Selected | list[CaseResult], options: ShowOptions) -> None:
    """Print rows in a table, or the case that was asked for with all its steps."""
    from dagengine.report.page.run_facts import DRAFTS
    from dagengine.report.tables_and_junit import print_cases

    noun = "draft" if is_there(run.folder / DRAFTS) else "case"
    table, count = (rows, len(rows)) if isinstance(rows, list) else rows.first(_MOST_ROWS)
    counts = run.manifest.counts
    whole = "" if counts is None else f" of {counts.cases:,}"
    if not table:
        say(f"no {noun}{whole} matches all options")
        return
    if options.case is not None:
        for row in table:
            _print_case(run, row, options.times)
        return
    plural = text_if(count != 1 or whole, "s")  # `1 of 36 cases`
    print_cases(table, f"{count:,}{whole} {noun}{plural}", times=options.times)
    if count > len(table):
        say(f"{count - len(table):,} more: --worst N chooses, --format csv prints all")


def _print_case(run: Run, row: CaseResult, times: bool) -> None:
    """Print one case whole: its texts, and all that its nodes said."""
    from dagengine.report.case_selection import fields_of
    from dagengine.report.tables_and_junit import print_steps, seconds_words

    nodes = (node for metric in run.manifest.metrics for node in metric.nodes)
    # A rating is printed as a part of the best one of its node.
    best = {node.name: max(node.scale.values()) for node in nodes if node.scale}
    took = f" ({seconds_words(row.seconds)})" if times and row.seconds is not None else ""
    say(f"{row.index} {row.case}{took}")
    for fields in fields_of(run, [row.index]) if run.manifest.texts else ():
        for name, value in fields.items():
            say(f"  {name}: {_as_text(value)}")
    for result in row.metrics:
        print_steps(result, times=times, best=best)


def _as_text(value: Any) -> str:
    """A field of a case; lists and objects are JSON, as in the data."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
