"""The command line: run metrics over a file of cases, draw a tree, check a tree."""

from __future__ import annotations

import importlib.metadata
import itertools
import json
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import IO, TYPE_CHECKING, Annotated, Any

import typer

from dagengine.benchmark_command import benchmark
from dagengine.errors import DagengineError
from dagengine.plan_command import plan

if TYPE_CHECKING:
    from dagengine.graph import MetricSpec
    from dagengine.metrics import BaseMetric
    from dagengine.results import CaseResult, EvaluationResult

app = typer.Typer(
    name="dagengine",
    help="Judge the output of language models with decision trees.",
    no_args_is_help=True,
    invoke_without_command=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
)

EXIT_FAILED, EXIT_INPUT, EXIT_NO_SCORE, EXIT_INTERRUPTED = 1, 2, 3, 130

Metrics = Annotated[
    str,
    typer.Argument(
        metavar="METRICS.py[:NAME]",
        help="A Python file that defines metrics at module level; NAME picks one of them.",
    ),
]
Data = Annotated[
    Path, typer.Option(help="Test cases, one JSON object per line with the fields of a test case.")
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
) -> None:
    """Run metrics over a file of test cases.

    Writes `results.jsonl` (one row per case, in order, as the run goes on) and three pictures
    per metric: the tree, the path of one case, and how often each edge was taken. Prints a
    table.

    Exit codes: 0 every case has a score, 1 a case failed (with --assert), 2 bad input,
    3 a case has no score, 130 interrupted.
    """
    from dagengine.evaluation import evaluate
    from dagengine.gateway import Limits
    from dagengine.loading import load_cases, load_judge, load_metrics
    from dagengine.plan import compile_metrics

    loaded = load_metrics(metrics)
    cases = load_cases(data)
    if case is not None and not 0 <= case < len(cases):
        raise typer.BadParameter(f"there is no case {case}; {data} has {len(cases)}")
    model = load_judge(judge, base_url) if judge or base_url else None
    _require_reachable(model)
    for problem in compile_metrics(loaded).warnings:
        typer.echo(f"warning: {problem}", err=True)
    limits = Limits(
        max_in_flight=max_in_flight, call_timeout=call_timeout, case_timeout=case_timeout
    )
    results = out / "results.jsonl"
    with _Rows(results) as kept:
        try:
            done = evaluate(cases, loaded, model=model, limits=limits, on_row=kept.add)
        except KeyboardInterrupt:
            typer.echo(kept.after_interrupt(len(cases)), err=True)
            raise typer.Exit(EXIT_INTERRUPTED) from None
    typer.echo(f"results: {results}")
    for metric, stem in zip(loaded, _stems(loaded), strict=True):
        _draw_views(metric, list(done.rows), case, out / stem)
    _exit_as(done, assert_pass)


def _exit_as(done: EvaluationResult, assert_pass: bool) -> None:
    """Leave with the exit code that a result calls for."""
    if any(metric.failure is not None for row in done.rows for metric in row.metrics):
        raise typer.Exit(EXIT_NO_SCORE)
    if assert_pass and not done.success:
        raise typer.Exit(EXIT_FAILED)


def _require_reachable(model: Any) -> None:
    """Fail before the first case when nothing answers at the judge's address."""
    from dagengine.evaluation import sync

    reachable = getattr(model, "require_reachable", None)
    if reachable is not None:
        sync(reachable)


class _Rows:
    """Rows written as they come. An earlier file is kept until there is a first row."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file: IO[str] | None = None
        self.count = 0

    def __enter__(self) -> _Rows:
        return self

    def __exit__(self, *_: object) -> None:
        if self._file is not None:
            self._file.close()

    def after_interrupt(self, total: int) -> str:
        """What is where after an interrupt; rows carry their index, some may be missing."""
        if not self.count:
            return f"interrupted before the first row; {self._path} was not touched"
        return f"interrupted: {self.count} of {total} rows are in {self._path}"

    def add(self, row: CaseResult) -> None:
        """Write one row, for good."""
        if self._file is None:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            # A lone surrogate comes out as the JSON escape it needs to be.
            self._file = self._path.open("w", encoding="utf-8", errors="backslashreplace")
        self._file.write(json.dumps(row.as_dict(), ensure_ascii=False) + "\n")
        self._file.flush()
        self.count += 1


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


def _draw_views(metric: BaseMetric, rows: list[CaseResult], case: int | None, stem: Path) -> None:
    """The three pictures of one metric."""
    from dagengine.render import draw

    spec = metric.spec()
    _save(draw(spec), stem.with_name(f"{stem.name}-tree.svg"))
    shown = _shown_row(spec, rows, case)
    if shown is not None:
        result = next(m for m in shown.metrics if m.metric == spec.name)
        _save(draw(spec, result=result, case=shown.case), stem.with_name(f"{stem.name}-path.svg"))
    _save(draw(spec, rows=rows), stem.with_name(f"{stem.name}-counts.svg"))


def _shown_row(spec: MetricSpec, rows: list[CaseResult], case: int | None) -> CaseResult | None:
    if case is not None:
        found = [row for row in rows if row.index == case]
        if not found:
            raise typer.BadParameter(f"there is no case {case}; there are {len(rows)}")
        return found[0]

    def steps(row: CaseResult) -> int:
        return sum(len(m.steps) for m in row.metrics if m.metric == spec.name)

    return max(rows, key=steps, default=None)


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
        typer.Option(help="A results.jsonl: draw how often each edge was taken."),
    ] = None,
    case: Annotated[
        int | None, typer.Option(help="With --results: draw the path of the case with this index.")
    ] = None,
) -> None:
    """Draw a metric's tree for review; asks no judge.

    With several metrics in the file, each picture's name gets the metric's name added.
    """
    from dagengine.loading import load_metrics, load_results
    from dagengine.render import draw

    rows = None if results is None else load_results(results)
    if case is not None and rows is None:
        raise typer.BadParameter("--case needs --results")
    loaded = load_metrics(metrics)
    for metric, stem in zip(loaded, _stems(loaded), strict=True):
        spec = metric.spec()
        name = out if len(loaded) == 1 else out.with_stem(f"{out.stem}-{stem}")
        if case is None:
            _save(draw(spec, rows=rows), name)
        else:
            row = _shown_row(spec, rows or [], case)
            found = [m for m in row.metrics if m.metric == spec.name] if row else []
            if not found:
                raise typer.BadParameter(f"{results} has no result of {spec.name!r}")
            _save(draw(spec, result=found[0], case=row.case if row else ""), name)


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
app.command()(benchmark)


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
    strict: Annotated[bool, typer.Option(help="Let warnings fail the check, too.")] = False,
) -> None:
    """Check metrics without asking anything: every problem, with what to do about it.

    Exit codes: 0 no errors, 1 errors (with --strict also warnings), 2 unreadable input.
    """
    from dagengine.checks import check as find_problems
    from dagengine.evaluation import check_cases, missing_fields
    from dagengine.loading import load_cases, load_metrics
    from dagengine.plan import compile_metrics

    loaded = load_metrics(metrics)
    problems = [problem for metric in loaded for problem in find_problems(metric.spec())[0]]
    for problem in dict.fromkeys(problems):
        typer.echo(f"{problem.severity}: {problem}")
    errors = [problem for problem in problems if problem.severity == "error"]
    if errors or (strict and problems):
        raise typer.Exit(EXIT_FAILED)
    if data is not None:
        plan, cases = compile_metrics(loaded), load_cases(data)
        check_cases(plan, cases)
        for line in missing_fields(plan, cases):
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
