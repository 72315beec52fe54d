"""The command line: run, plan, check and draw metrics, maintain a store."""

from __future__ import annotations

import errno
import glob
import importlib.metadata
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, NoReturn

import typer

from dagengine.cli.common.collector import collector_at_rest
from dagengine.cli.common.command import Commands
from dagengine.cli.common.files import Reads, Writes
from dagengine.cli.common.formats import Format, print_csv, print_json
from dagengine.cli.common.options import (
    EXIT_FAILED,
    EXIT_INPUT,
    Delimiters,
    Mapped,
    Metrics,
    UnitOfTraces,
    cases_of,
)
from dagengine.cli.common.streams import flushed, open_streams, say
from dagengine.cli.explain import explain
from dagengine.cli.looking.diff import diff
from dagengine.cli.looking.index import index
from dagengine.cli.looking.merge import merge
from dagengine.cli.looking.show import show
from dagengine.cli.looking.sql import sql
from dagengine.cli.looking.view import view
from dagengine.cli.measuring.attack import attack
from dagengine.cli.measuring.benchmark import benchmark
from dagengine.cli.measuring.improve import improve
from dagengine.cli.measuring.judge import app as judge_app
from dagengine.cli.measuring.judge import doors
from dagengine.cli.measuring.labels import app as labels_app
from dagengine.cli.migrate import migrate
from dagengine.cli.plan import plan
from dagengine.cli.run import run
from dagengine.cli.store import app as store_app
from dagengine.cli.synthesize import synthesize
from dagengine.cli.test import app as test_app
from dagengine.cli.traces import send, watch
from dagengine.errors import DagengineError, Problem, more_on
from dagengine.terminal import counted

if TYPE_CHECKING:
    from dagengine.compiler.plan import Plan

app = Commands(
    name="dagengine",
    help="Judge the output of language models with decision trees.",
    no_args_is_help=True,
    invoke_without_command=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
    context_settings={"help_option_names": ["-h", "--help"]},
)

app.add_typer(store_app)
app.add_typer(judge_app)
app.add_typer(doors)
app.add_typer(labels_app)
app.add_typer(test_app)
app.command()(run)
app.command()(merge)
app.command()(plan)
app.command()(migrate)
app.command()(benchmark)
app.command()(attack)
app.command()(diff)
app.command()(explain)
app.command()(improve)
app.command()(index)
app.command()(send)
app.command()(show)
app.command()(sql)
app.command()(synthesize)
app.command()(view)
app.command()(watch)


@app.command()
def render(
    metrics: Metrics,
    out: Annotated[
        Path,
        typer.Option(help="The file to write: .svg, .png, .pdf, .dot, .mmd or .md."),
        Writes(
            # Its file, or one for each metric beside it.
            lambda out, given: [
                out,
                *out.parent.glob(f"{glob.escape(out.stem)}-*{glob.escape(out.suffix)}"),
            ]
        ),
    ] = Path("tree.svg"),
    results: Annotated[
        Path | None,
        typer.Option(help="A run, or its rows; draw how often each edge was taken."),
        Reads(),
    ] = None,
    case: Annotated[
        str | None,
        typer.Option(help="With --results: draw the path of this case (name or index)."),
    ] = None,
    questions: Annotated[
        bool, typer.Option("--questions", help="Write the question of each node into it.")
    ] = False,
    whole: Annotated[
        bool, typer.Option("--all", help="Draw all nodes of a large graph, however wide it gets.")
    ] = False,
) -> None:
    """Draw the tree of a metric. Makes no judge calls.

    A graph of more than 24 nodes is folded until it fits a screen; with --results the branches with
    most failures stay open. An .svg shows the question of a node under the pointer, a .md file
    lists them. With several metrics, the name of each metric is added to the name of its picture.
    .svg, .png and .pdf need Graphviz: the extra `draw`, or the program `dot`.
    """
    from dagengine.cli.common.pictures import save, stems
    from dagengine.loading import load_metrics
    from dagengine.record.run import rows_at
    from dagengine.report.pictures.drawing import draw
    from dagengine.report.tally import Tally

    tally = None if results is None else Tally(rows_at(results), case)
    if case is not None and tally is None:
        raise typer.BadParameter("--case needs --results")
    specs = [metric.spec() for metric in load_metrics(metrics)]
    for spec, stem in zip(specs, stems(specs), strict=True):
        name = out if len(specs) == 1 else out.with_stem(f"{out.stem}-{stem}")
        if case is None:
            save(draw(spec, rows=tally, questions=questions, whole=whole), name)
            continue
        summary = tally.metrics.get(spec.name) if tally else None
        if summary is None or summary.shown is None:
            raise typer.BadParameter(
                f"{results} has no result of {spec.name!r} for a case {case!r}"
            )
        label, result = summary.shown
        picture = draw(spec, result=result, case=label, questions=questions, whole=whole)
        save(picture, name)


@app.command()
def recommend(
    what: Annotated[
        Literal["metrics"], typer.Argument(help="What to recommend; the only choice is metrics.")
    ] = "metrics",
    write: Annotated[
        Path | None,
        typer.Option("--write", help="Write the metrics into this new Python file."),
        Writes(),
    ] = None,
) -> None:
    """Recommend metrics: ask you a few questions about your application."""
    from dagengine.metrics.recommend import QUESTIONS, Needs, program
    from dagengine.metrics.recommend import recommend as suggest

    if write is not None and write.exists():
        raise typer.BadParameter(f"{write} already exists; choose a new file")
    needs = Needs(**{name: typer.confirm(text, default=False) for name, text in QUESTIONS})
    say("\nfrom dagengine.metrics import …")
    for suggestion in suggest(needs):
        say(f"  {suggestion.metric:32} {suggestion.why}")
    if write is not None:
        write.write_text(program(needs), encoding="utf-8")
        say(f"{write} has them; try: dagengine check {write}")


@app.callback()
def about(
    version: Annotated[bool, typer.Option("--version", help="Show the version.")] = False,
) -> None:
    """Judge the output of language models with decision trees."""
    if version:
        say(importlib.metadata.version("dagengine"))
        raise typer.Exit


@app.command()
def check(
    metrics: Metrics,
    data: Annotated[
        list[Path] | None,
        typer.Option(
            help="Also check that these test cases have the fields that the metrics read. Of "
            "traces (`--map otel`) also shows how one of them becomes a case."
        ),
        Reads(),
    ] = None,
    mapped: Mapped = None,
    delimiter: Delimiters = None,
    unit: UnitOfTraces = "trace",
    strict: Annotated[bool, typer.Option(help="Also fail on warnings.")] = False,
    format: Annotated[Format, typer.Option(help="Output format.")] = Format.TABLE,
) -> None:
    """Find the problems of metrics and say how to fix them. Makes no judge calls.

    Exit codes: 0 no errors; 1 errors (with --strict also warnings); 2 invalid input.
    """
    from dagengine.compiler.checks import check as find_problems
    from dagengine.compiler.lowering import compile_metrics, name_problems
    from dagengine.data.cases import strict as valid
    from dagengine.estimate.example_cases import shown_as_examples
    from dagengine.evaluation import missing_fields
    from dagengine.execution.engine import check_cases
    from dagengine.loading import load_metrics
    from dagengine.traces.reading import TraceCases

    loaded = load_metrics(metrics)
    tree_problems = [problem for metric in loaded for problem in find_problems(metric.spec())[0]]
    names = [metric.spec().name for metric in loaded]
    problems = list(dict.fromkeys([*name_problems(names), *tree_problems]))
    failing = any(strict or problem.severity == "error" for problem in problems)
    # A tree with errors cannot be compiled: nothing can be said of the data.
    if data and not failing:
        compiled = compile_metrics(loaded)
        cases = cases_of(data, mapped, delimiter, unit=unit)
        if isinstance(cases, TraceCases) and format is Format.TABLE:
            for line in cases.mapping():
                say(line)
        check_cases(compiled, cases.check())
        missing = missing_fields(compiled, valid(cases))
        problems += [Problem("missing-field", cases.name, line, "", "warning") for line in missing]
        solved = shown_as_examples(compiled, enumerate(valid(cases)))
        problems += [Problem("example-in-data", cases.name, line, "", "warning") for line in solved]
    if format is not Format.TABLE and not failing:
        problems.append(_reading_order(compile_metrics(loaded)))
    _print_problems(problems, format, "" if failing else f"ok: {', '.join(names)}")
    if failing:
        raise typer.Exit(EXIT_FAILED)


def _reading_order(plan: Plan) -> Problem:
    """In which order prompts show the fields of a case, and what questions share."""
    from dagengine.prompts.evidence import canonical_place

    asking = [unit for unit in plan.units if unit.node.asks]
    fields = {path for unit in asking for path in unit.reads}
    order = ", ".join(sorted(fields, key=canonical_place)) or "no field"
    sharing = sum(bool(unit.shares) for unit in asking)
    message = (
        f"prompts show {order}, in this order; {sharing} of {len(asking)} nodes share a beginning"
    )
    return Problem("reading-order", "the plan", message, "", "note")


def _print_problems(problems: Sequence[Problem], format: Format, last: str) -> None:
    if format is Format.TABLE:
        for problem in problems:
            line = problem.message if problem.code in _OF_DATA else problem
            say(f"{problem.severity}: {line}")
        if problems:
            say(more_on(problem.code for problem in problems))
        if last:
            count = sum(problem.code not in _OF_DATA for problem in problems)
            say(f"{last} ({counted(count, 'warning')})")
        return
    lines = [{name: getattr(problem, name) for name in _FINDING} for problem in problems]
    if format is Format.JSON:
        print_json(lines)
    else:
        print_csv(_FINDING, lines)


_OF_DATA = ("missing-field", "example-in-data")
_FINDING = ("severity", "code", "where", "message", "hint")


def main() -> None:
    """Entry point: every error becomes one message and an exit code, never a traceback."""
    open_streams()
    with collector_at_rest():
        try:
            app()
        except DagengineError as error:
            _fail(str(error))
        except OSError as error:
            # Files are named where they are written; what has no name then is the output.
            place = error.filename or ("standard output" if error.errno == errno.ENOSPC else None)
            _fail(f"{place}: {error.strerror}" if place else str(error))
        except SystemExit as end:
            lost = flushed()
            if lost is not None and lost.errno != errno.EPIPE:
                _fail(f"standard output: {lost.strerror}")
            raise end


def _fail(message: str) -> NoReturn:
    say(f"error: {message}", err=True)
    flushed()
    sys.exit(EXIT_INPUT)
