"""`dagengine diff`: what changed between two runs, and why."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer import Argument, Option

from dagengine.cli.common.files import Reads
from dagengine.cli.common.output import Format, fail_if_any, print_csv
from dagengine.errors import InputError
from dagengine.system.terminal_text import counted, one_line, text_if

if TYPE_CHECKING:
    from dagengine.results.pass_rules import Condition

MEASURES = ("flips", "worse", "better", "lost", "gained", "same-question")
"""The measures of `--fail-if`: each counts cases of one metric."""
_COLUMNS = (
    *("metric", "case", "old index", "new index", "change", "old score", "new score", "node"),
    *("old answer", "new answer", "cause", "detail"),
)

_EDIT = 60  # characters of an old or a new value
_NAME = 200  # characters of a cell
_CAUSES = {
    "definition": "definition changed",
    "evidence": "evidence changed",
    "judge": "judge changed",
    "same": "same question, different answer",
}
_SHORT = {
    "definition": "tree",
    "evidence": "data",
    "judge": "judge",
    "same": "same question answered differently",
}
_KINDS = ("worse", "better", "lost", "gained", "score", "path")


@dataclass(frozen=True, kw_only=True)
class DiffOptions:
    """The options of `dagengine diff`."""

    old: Annotated[Path, Argument(metavar="OLD"), Reads()]
    """The folder of the earlier run."""
    new: Annotated[Path, Argument(metavar="NEW"), Reads()]
    """The folder of the later run."""
    metric: Annotated[str | None, Option(metavar="NAME")] = None
    """Only this metric. Default: all metrics."""
    card: Annotated[Path | None, Option(metavar="CARD.json"), Reads()] = None
    """A judge card (`dagengine benchmark`); it tells how many flips are only noise of the judge."""
    form: Annotated[Format, Option("--format")] = "table"
    """Text, JSON with everything, or CSV with one line per case."""
    limit: Annotated[int, Option(min=0)] = 20
    """Maximum number of cases to list per metric."""
    fail_if: Annotated[list[str] | None, Option(metavar="[METRIC.]MEASURE>NUMBER")] = None
    """Exit with 1 if this condition holds; measures are flips, worse, better, lost, gained,
    same-question. Repeatable.
    """


def diff(options: DiffOptions) -> None:
    """Compare two runs: which cases flipped, at which node, and why.

    Cases are matched by content, not by order or name. Makes no judge calls.

    Exit codes: 0 compared; 1 a --fail-if condition holds; 2 invalid input.
    """
    from dagengine.record.changes.case_pairs import compare_runs
    from dagengine.record.reader import load_run
    from dagengine.reliability.card.card_formats import read_card
    from dagengine.reliability.change_significance import change_report
    from dagengine.results.pass_rules import parse_condition

    parse = partial(parse_condition, example="'worse>0'", measures=MEASURES, counts=MEASURES)
    conditions = list(map(parse, options.fail_if or ()))
    judge_card = None if options.card is None else read_card(options.card)
    runs = load_run(options.old), load_run(options.new)
    report = change_report(compare_runs(*runs, metric=options.metric), judge_card)
    if options.form == "table":
        _print_changes(report, options.limit)
    elif options.form == "json":
        typer.echo(json.dumps(report, indent=1))
    else:
        print_csv(_COLUMNS, _csv_lines(report["metrics"]))
    fail_if_any([line for condition in conditions for line in _failing(condition, report)])


def _failing(condition: Condition, report: Mapping[str, Any]) -> Iterator[str]:
    """Metrics for which a condition holds; raises InputError if it is of none."""
    measured = [each for each in report["metrics"] if condition.of in ("", each["metric"])]
    if not measured:
        raise InputError(
            f"--fail-if {condition.text!r}: no metric {condition.of!r} is in both runs"
        )
    for figures in measured:
        # Only flips without a change of definition, evidence or judge are counted by cause.
        is_cause = condition.measure == "same-question"
        count = int(figures["causes"]["same"] if is_cause else figures[condition.measure])
        if condition.holds(count):
            yield f"{condition.text}: {figures['metric']}: {count}"


def _csv_lines(metrics: Sequence[Mapping[str, Any]]) -> Iterator[tuple[Any, ...]]:
    """One line per case that changed."""
    for metric in metrics:
        for change in metric["changes"]:
            yield (
                metric["metric"], change["case"], *change["index"], change["kind"],
                *change["score"], change["node"], *change["answer"], change["cause"],
                change["detail"],
            )  # fmt: skip


def _print_changes(report: Mapping[str, Any], limit: int) -> None:
    """Print a report of changes (`change_report`), up to `limit` cases of each metric."""
    from rich.console import Console

    out = Console()
    for line in _on_runs(report):
        _say(out, line)
    for metric in report["metrics"]:
        _print_metric(out, metric, limit, several=len(report["metrics"]) > 1)
    if report["agrees"]:
        spent = []
        for name, form in (("seconds", "{:.3g} s"), ("cost", "${:.4f}"), ("calls", "{} calls")):
            old, new = (report[side][name] for side in ("old", "new"))
            if old is not None and new is not None and old != new:
                spent.append(f"{form.format(old)} → {form.format(new)}")
        only = f"differs: only time and cost: {', '.join(spent)}"
        _say(out, only if spent else "nothing differs")


def _say(out: Any, line: str, style: str = "") -> None:
    from rich.text import Text

    out.print(Text(one_line(line, 2000), style=style), highlight=False)


def _on_runs(report: Mapping[str, Any]) -> Iterator[str]:
    """Differences of the runs as a whole."""
    if report["agrees"]:
        yield f"The two runs agree on all {report['cases']['common']:,} cases"
    for side in ("old", "new"):
        if not report[side]["finished"]:
            yield f"the {side} run is not finished: only its finished cases are compared"
    yield from map("new metric: {}".format, report["added_metrics"])
    yield from map("removed metric: {}".format, report["removed_metrics"])
    cases = report["cases"]
    for kind, what in (("new", "new case"), ("missing", "removed case")):
        if cases[kind]:
            names = ", ".join(report[f"{kind}_cases"][:5])
            more = text_if(cases[kind] > 5, ", …")
            yield f"{counted(cases[kind], what)}, not compared: {names}{more}"
    if cases["renamed"]:
        yield f"different name: {counted(cases['renamed'], 'case')}"
    if cases["changed"]:
        yield f"same name or input, but different content: {counted(cases['changed'], 'case')}"


def _print_metric(out: Any, metric: Mapping[str, Any], limit: int, *, several: bool) -> None:
    out.print()
    title = text_if(several, f"{metric['metric']}: ")
    _say(out, title + metric["headline"], "bold")
    from rich.table import Table
    from rich.text import Text

    table = Table.grid(padding=(0, 2))
    changes = [("changed", _change_words(change)) for change in metric["tree"]]
    for name, line in (*_lines(metric), *changes):
        table.add_row(Text(name, style="dim"), Text(one_line(line, 2000)))
    out.print(table)
    if metric["flips"]:
        matrix = Table(title="First node that differs", title_justify="left")
        matrix.add_column("node", overflow="fold", max_width=40)
        for cause in ("definition", "evidence", "judge", "same question"):
            matrix.add_column(cause, justify="right", no_wrap=True)
        for node in metric["nodes"]:
            counts = [f"{node[cause]:,}" if node[cause] else "·" for cause in _CAUSES]
            matrix.add_row(Text(one_line(node["node"] or "(settings)", _NAME)), *counts)
        out.print(matrix)
    shown = sorted(metric["changes"], key=lambda change: _KINDS.index(change["kind"]))
    # Another score or path alone is listed only where nothing has flipped, or was lost or gained.
    shown = [change for change in shown if change["kind"] not in ("score", "path")] or shown
    if shown:
        out.print(_cases(shown[:limit]))
    if len(shown) > limit:
        _say(out, f"{len(shown) - limit:,} more: --limit {len(shown)}, or --format json")


def _change_words(change: Mapping[str, Any]) -> str:
    """A change of the tree: its node, and from which definition to which."""
    line = ": ".join(filter(None, (change["node"], change["what"])))
    if change["kind"] != "definition":
        return line
    if change["old"] != change["new"]:
        return f"{line} ({change['old']!r} → {change['new']!r})"
    parts = [part for key, values in change["data"].items() for part in _edit(key, *values)]
    return ": ".join(filter(None, (line, "; ".join(parts))))


def _edit(key: str, old: Any, new: Any) -> Iterator[str]:
    """The change of one key of a node's document; of `then`, verdict by verdict."""
    if key != "then":
        yield f"{key} {one_line(str(old), _EDIT)} → {one_line(str(new), _EDIT)}"
        return
    before, after = (
        {str(entry.get("verdict")): _target(entry) for entry in entries or ()}
        for entries in (old, new)
    )
    for verdict in before | after:
        ends = before.get(verdict, "none"), after.get(verdict, "none")
        if ends[0] != ends[1]:
            yield f"{verdict}: {ends[0]} → {ends[1]}"


def _target(entry: Mapping[str, Any]) -> str:
    """The score, node or metric that a verdict leads to."""
    child = entry.get("child") or {}
    return str(child.get("ref") or child.get("name") or entry.get("score", "another tree"))


def _lines(metric: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    yield "result", " · ".join(metric["result"])
    if metric["scores"]:
        yield "scores", metric["scores"]
    if metric["flips"]:
        counts = Counter({node["node"]: sum(map(node.get, _CAUSES)) for node in metric["nodes"]})
        nodes = (
            f"{count:,} first differ at {name or 'the settings'}"
            for name, count in counts.most_common()
            if count
        )
        yield "where", ", ".join(nodes)
        causes = [f"{word} {metric['causes'][name]:,}" for name, word in _SHORT.items()]
        yield "cause", " · ".join(causes)
    rest = []
    if metric["other_score"]:
        rest.append(f"{metric['other_score']:,} with a different score, but the same result")
    if metric["other_path"]:
        rest.append(f"{metric['other_path']:,} took a different path to the same result")
    if rest:
        yield "besides", ", ".join(rest)
    if metric["noise"]:
        yield "noise", metric["noise"]["words"]
    elif metric["noise_missing"]:
        yield "noise", f"unknown: {metric['noise_missing']}"


def _cases(changes: Sequence[Mapping[str, Any]]) -> Any:
    from rich.table import Table
    from rich.text import Text

    from dagengine.results.pass_rules import SIGNS

    table = Table(title="Cases", title_justify="left")
    table.add_column("", no_wrap=True)
    table.add_column("case", overflow="fold", max_width=32)
    table.add_column("score", justify="right", no_wrap=True)
    table.add_column("first difference", overflow="fold", ratio=1)
    table.add_column("cause", overflow="fold", ratio=1)
    for change in changes:
        old, new = (SIGNS[state] for state in change["state"])
        scores = ("none" if score is None else f"{score:.2f}" for score in change["score"])
        where = f"{change['node'] or 'settings'}: {' → '.join(change['answer'])}"
        cause = _CAUSES[change["cause"]]
        if change["kind"] == "lost" and change["cause"] == "same":
            cause = "no answer this time"
        cause = ": ".join(filter(None, (cause, change["detail"])))
        texts = (change["case"], where, cause)
        case, *words = (Text(one_line(text, _NAME)) for text in texts)
        table.add_row(f"{old}→{new}", case, " → ".join(scores), *words)
    return table
