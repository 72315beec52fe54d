"""The command line: run metrics over a file of cases, draw a tree, check a tree."""

from __future__ import annotations

import importlib.metadata
import itertools
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dagengine.errors import DagengineError
from dagengine.plan_command import plan
from dagengine.store_command import app as store_app

if TYPE_CHECKING:
    from dagengine.metrics import BaseMetric
    from dagengine.results import CaseResult
    from dagengine.rows import RowWriter
    from dagengine.tally import Tally

app = typer.Typer(
    name="dagengine",
    help="Judge the output of language models with decision trees.",
    no_args_is_help=True,
    invoke_without_command=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
)

app.add_typer(store_app)

EXIT_FAILED, EXIT_INPUT, EXIT_NO_SCORE, EXIT_INTERRUPTED = 1, 2, 3, 130

Metrics = Annotated[
    str,
    typer.Argument(
        metavar="METRICS.py[:NAME]",
        help="A Python file that defines metrics at module level; NAME picks one of them.",
    ),
]
Data = Annotated[
    Path,
    typer.Option(
        help="Test cases: JSON lines, or a .json, .csv, .tsv or .parquet file, with columns named "
        "like the fields of a test case."
    ),
]
Mapped = Annotated[
    list[str] | None,
    typer.Option(
        "--map",
        metavar="COLUMN=FIELD",
        help="Which field a column is; `COLUMN=` leaves it out. Repeatable.",
    ),
]
Delimiters = Annotated[
    list[str] | None,
    typer.Option(
        "--delimiter",
        metavar="COLUMN=TEXT",
        help="What separates the items of a column of lists; without it they are JSON. Repeatable.",
    ),
]
JudgeName = Annotated[
    str | None,
    typer.Option(
        metavar="MODEL",
        help="Who answers: a model's name (`gpt-4o`), another provider's model "
        "(`anthropic/claude-sonnet-4-5`), or an object in a Python file (`judge.py:judge`). "
        "By default each metric's own judge, else gpt-4o.",
    ),
]
BaseUrl = Annotated[
    str | None,
    typer.Option(help="An OpenAI-compatible server, for instance http://localhost:11434/v1."),
]


@app.command()
def run(
    metrics: Metrics,
    data: Data,
    out: Annotated[Path, typer.Option(help="Folder for results and pictures.")] = Path("out"),
    results: Annotated[
        Path | None,
        typer.Option(help="File for the rows, .jsonl or .parquet; by default OUT/results.jsonl."),
    ] = None,
    mapped: Mapped = None,
    delimiter: Delimiters = None,
    app: Annotated[
        str | None,
        typer.Option(
            metavar="APP.py[:FUNCTION]",
            help="Read the data as goldens and have this function make the outputs.",
        ),
    ] = None,
    app_in_flight: Annotated[
        int, typer.Option(min=1, help="Calls to the app under way at the same time.")
    ] = 16,
    judge: JudgeName = None,
    base_url: BaseUrl = None,
    max_in_flight: Annotated[
        int, typer.Option(min=1, help="Judge calls under way at the same time.")
    ] = 64,
    call_timeout: Annotated[float, typer.Option(help="Seconds for one judge call.")] = 120.0,
    case_timeout: Annotated[
        float | None, typer.Option(help="Seconds for one case; none by default.")
    ] = None,
    case: Annotated[
        int | None,
        typer.Option(help="Index of the case whose path is drawn; by default the longest path."),
    ] = None,
    assert_pass: Annotated[
        bool, typer.Option("--assert", help="Exit with 1 when a case is below its threshold.")
    ] = False,
    store: Annotated[
        Path | None,
        typer.Option(
            help="A file of answers: what it holds is not asked again, what is asked it will hold."
        ),
    ] = None,
    replay: Annotated[
        bool, typer.Option("--replay", help="Take every answer from --store and ask nobody.")
    ] = False,
) -> None:
    """Run metrics over a file of test cases.

    Writes `results.jsonl` (one row per case, in order, as the run goes on) and three pictures
    per metric: the tree, the path of one case, and how often each edge was taken. Prints a
    table.

    An invalid line among the first 1000 of the data stops the run before anything is asked; a
    later one becomes a row without a score (`invalid_case`), and the run goes on.

    Exit codes: 0 every case has a score, 1 a case failed (with --assert), 2 bad input,
    3 a case has no score, 130 interrupted.
    """
    from dagengine.cases import read_cases
    from dagengine.evaluation import stream, sync
    from dagengine.limits import Limits
    from dagengine.loading import load_app, load_judge, load_metrics
    from dagengine.plan import compile_metrics
    from dagengine.report import print_table, progress_bar
    from dagengine.rows import RowWriter
    from dagengine.store import Store
    from dagengine.tally import Tally

    if replay and store is None:
        raise typer.BadParameter("--replay needs --store")
    loaded = load_metrics(metrics)
    caller = None if app is None else load_app(app, app_in_flight)
    columns, delimiters = _pairs("--map", mapped), _pairs("--delimiter", delimiter)
    cases = read_cases(data, map=columns, delimiters=delimiters, goldens=caller is not None)
    total = cases.count()
    if case is not None and total is not None and not 0 <= case < total:
        raise typer.BadParameter(f"there is no case {case}; {data} has {total}")
    model = load_judge(judge, base_url) if judge or base_url else None
    if not replay:
        _require_reachable(model)
    for problem in compile_metrics(loaded).warnings:
        typer.echo(f"warning: {problem}", err=True)
    limits = Limits(
        max_in_flight=max_in_flight, call_timeout=call_timeout, case_timeout=case_timeout
    )
    tally = Tally(case=case)
    with RowWriter(results or out / "results.jsonl") as kept, progress_bar(total, True) as advance:

        def take(row: CaseResult) -> None:
            kept.add(row)
            tally.add(row)
            advance(row)

        try:
            done = sync(
                lambda: stream(
                    cases,
                    loaded,
                    take,
                    app=caller,
                    model=model,
                    limits=limits,
                    store=None if store is None else Store(store, replay=replay),
                )
            )
        except KeyboardInterrupt:
            typer.echo(_interrupted(kept, total), err=True)
            raise typer.Exit(EXIT_INTERRUPTED) from None
    print_table(tally, done)
    typer.echo(f"results: {kept.path}")
    for metric, stem in zip(loaded, _stems(loaded), strict=True):
        _draw_views(metric, tally, out / stem)
    _exit_as(tally, assert_pass)


def _pairs(option: str, given: Sequence[str] | None) -> dict[str, str]:
    """`COLUMN=VALUE` of a repeatable option."""
    pairs = [text.rpartition("=") for text in given or ()]
    for column, _, value in pairs:
        if not column:
            raise typer.BadParameter(f"{option} {value!r}: write COLUMN=…")
    return {column: value for column, _, value in pairs}


def _interrupted(kept: RowWriter, total: int | None) -> str:
    """What is where after an interrupt; rows carry their index, some may be missing."""
    if not kept.count:
        return f"interrupted before the first row; {kept.path} was not touched"
    return f"interrupted: {kept.count} of {total} rows are in {kept.path}"


def _exit_as(tally: Tally, assert_pass: bool) -> None:
    """Leave with the exit code that a run calls for."""
    if tally.unscored:
        raise typer.Exit(EXIT_NO_SCORE)
    if assert_pass and not tally.success:
        raise typer.Exit(EXIT_FAILED)


def _require_reachable(model: Any) -> None:
    """Fail before the first case when nothing answers at the judge's address."""
    from dagengine.evaluation import sync

    reachable = getattr(model, "require_reachable", None)
    if reachable is not None:
        sync(reachable)


def _stems(metrics: Sequence[BaseMetric]) -> list[str]:
    """Parts of file names, one per metric, all different."""
    stems: list[str] = []
    for metric in metrics:
        stem = re.sub(r"\W+", "-", metric.spec().name.lower()).strip("-") or "metric"
        count = next(n for n in itertools.count(1) if _numbered(stem, n) not in stems)
        stems.append(_numbered(stem, count))
    return stems


def _numbered(stem: str, number: int) -> str:
    return stem if number == 1 else f"{stem}-{number}"


def _draw_views(metric: BaseMetric, tally: Tally, stem: Path) -> None:
    """The three pictures of one metric."""
    from dagengine.render import draw

    spec = metric.spec()
    _save(draw(spec), stem.with_name(f"{stem.name}-tree.svg"))
    found = tally.metrics.get(spec.name)
    if found is not None and found.shown is not None:
        case, result = found.shown
        _save(draw(spec, result=result, case=case), stem.with_name(f"{stem.name}-path.svg"))
    _save(draw(spec, rows=tally), stem.with_name(f"{stem.name}-counts.svg"))


def _save(picture: Any, path: Path) -> None:
    """Write a picture; without Graphviz its DOT text, and say how to get the picture."""
    from dagengine.errors import MissingExtraError

    try:
        typer.echo(f"picture: {picture.save(path)}")
    except MissingExtraError as error:
        typer.echo(f"picture: {picture.save(path.with_suffix('.dot'))} ({error})")


@app.command()
def render(
    metrics: Metrics,
    out: Annotated[
        Path, typer.Option(help="The file to write: .svg, .png, .pdf, .dot, .mmd or .md.")
    ] = Path("tree.svg"),
    results: Annotated[
        Path | None,
        typer.Option(help="The rows of a run: draw how often each edge was taken."),
    ] = None,
    case: Annotated[
        int | None, typer.Option(help="With --results: draw the path of the case with this index.")
    ] = None,
) -> None:
    """Draw a metric's tree for review; asks no judge.

    With several metrics in the file, each picture's name gets the metric's name added.
    """
    from dagengine.loading import load_metrics
    from dagengine.render import draw
    from dagengine.rows import read_rows
    from dagengine.tally import Tally

    tally = None if results is None else Tally(read_rows(results), case)
    if case is not None and tally is None:
        raise typer.BadParameter("--case needs --results")
    loaded = load_metrics(metrics)
    for metric, stem in zip(loaded, _stems(loaded), strict=True):
        spec = metric.spec()
        name = out if len(loaded) == 1 else out.with_stem(f"{out.stem}-{stem}")
        if case is None:
            _save(draw(spec, rows=tally), name)
            continue
        found = tally.metrics.get(spec.name) if tally else None
        if found is None or found.shown is None:
            raise typer.BadParameter(f"{results} has no result of {spec.name!r} on case {case}")
        _save(draw(spec, result=found.shown[1], case=found.shown[0]), name)


@app.command()
def recommend() -> None:
    """Ask a few questions about an application and name the metrics that fit; calls nothing."""
    from dagengine.recommending import QUESTIONS, Needs
    from dagengine.recommending import recommend as suggest

    needs = Needs(**{name: typer.confirm(text, default=False) for name, text in QUESTIONS})
    typer.echo("\nfrom dagengine.metrics import …")
    for suggestion in suggest(needs):
        typer.echo(f"  {suggestion.metric:32} {suggestion.why}")


app.command()(plan)


@app.callback()
def about(
    version: Annotated[bool, typer.Option("--version", help="Show the version.")] = False,
) -> None:
    """Judge the output of language models with decision trees."""
    if version:
        typer.echo(importlib.metadata.version("dagengine"))
        raise typer.Exit


@app.command()
def check(
    metrics: Metrics,
    data: Annotated[
        Path | None, typer.Option(help="Also check that these test cases have what is read.")
    ] = None,
    mapped: Mapped = None,
    delimiter: Delimiters = None,
    strict: Annotated[bool, typer.Option(help="Let warnings fail the check, too.")] = False,
) -> None:
    """Check metrics without asking anything: every problem, with what to do about it.

    Exit codes: 0 no errors, 1 errors (with --strict also warnings), 2 unreadable input.
    """
    from dagengine.cases import read_cases
    from dagengine.cases import strict as valid
    from dagengine.checks import check as find_problems
    from dagengine.evaluation import check_cases, missing_fields
    from dagengine.loading import load_metrics
    from dagengine.plan import compile_metrics

    loaded = load_metrics(metrics)
    problems = [problem for metric in loaded for problem in find_problems(metric.spec())[0]]
    for problem in dict.fromkeys(problems):
        typer.echo(f"{problem.severity}: {problem}")
    errors = [problem for problem in problems if problem.severity == "error"]
    if errors or (strict and problems):
        raise typer.Exit(EXIT_FAILED)
    if data is not None:
        columns, delimiters = _pairs("--map", mapped), _pairs("--delimiter", delimiter)
        plan, cases = compile_metrics(loaded), read_cases(data, map=columns, delimiters=delimiters)
        check_cases(plan, cases.check())
        for line in missing_fields(plan, valid(cases)):
            typer.echo(f"warning: {line}")
    names = ", ".join(metric.spec().name for metric in loaded)
    typer.echo(f"ok: {names} ({len(problems)} warnings)")


def main() -> None:
    """Entry point: errors of dagengine become one message, never a traceback."""
    try:
        app()
    except DagengineError as error:
        typer.echo(f"error: {error}", err=True)
        sys.exit(EXIT_INPUT)
    except OSError as error:
        typer.echo(f"error: {error.filename or ''}: {error.strerror or error}", err=True)
        sys.exit(EXIT_INPUT)
