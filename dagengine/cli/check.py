"""`dagengine check`: what is wrong with metrics, and with cases for them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from typer import Option

from dagengine.cli.common import options as shared
from dagengine.cli.common.files import Reads
from dagengine.cli.common.output import EXIT_FAILED, Format, print_lines, say
from dagengine.errors import Problem, more_on
from dagengine.system.terminal import counted, text_if

if TYPE_CHECKING:
    from dagengine.compiler.plan import Plan
    from dagengine.data.cases import Cases


def check(
    metrics: shared.Metrics,
    data: Annotated[
        list[Path] | None,
        Option(
            help="Also check that these test cases have the fields that the metrics read. Of "
            "traces (`--map otel`) also shows how one of them becomes a case."
        ),
        Reads(),
    ] = None,
    mapped: shared.Mapped = None,
    delimiter: shared.Delimiters = None,
    unit: shared.UnitOfTraces = "trace",
    strict: Annotated[bool, Option(help="Also fail on warnings.")] = False,
    format: Annotated[Format, Option(help="Output format.")] = Format.TABLE,
) -> None:
    """Find the problems of metrics and say how to fix them. Makes no judge calls.

    Exit codes: 0 no errors; 1 errors (with --strict also warnings); 2 invalid input.
    """
    from dagengine.compiler.checks import check as find_problems
    from dagengine.compiler.plan import compile_metrics, name_problems
    from dagengine.judges import as_judge
    from dagengine.loading import load_metrics
    from dagengine.question import display_name

    loaded = load_metrics(metrics, on_copy=say if format is Format.TABLE else None)
    names = [metric.spec().name for metric in loaded]
    listed_problems = chain.from_iterable(find_problems(metric.spec())[0] for metric in loaded)
    problems = list(dict.fromkeys([*name_problems(names), *listed_problems]))
    fatal = ("error", "warning")[: 1 + strict]

    def fails() -> bool:
        return any(problem.severity in fatal for problem in problems)

    if not fails():  # a tree with errors cannot be compiled: nothing can be said of the data
        plan = compile_metrics(loaded)
        if format is Format.TABLE:
            for model in filter(None, plan.models):
                # By its name alone: a model file may be on another machine.
                name = model if isinstance(model, str) else display_name(as_judge(model))
                say(f"asks a judge of its own: {name:.80}")
        if data:
            columns = shared.ColumnOptions(mapped=mapped, delimiter=delimiter)
            problems += _data_problems(plan, columns.cases_in(*data, unit=unit), format)
        if format is not Format.TABLE and not fails():
            problems.append(_reading_order(plan))
    _print_problems(problems, format, text_if(not fails(), f"ok: {', '.join(names)}"))
    if fails():
        raise typer.Exit(EXIT_FAILED)


def _data_problems(plan: Plan, cases: Cases, format: Format) -> Iterator[Problem]:
    """Problems of cases for metrics; of traces, also print how they become cases.

    Raises InputError for cases that cannot be read.
    """
    from dagengine.data.cases import strict
    from dagengine.estimate.case_warnings import example_lines
    from dagengine.evaluation import concerns, missing_fields
    from dagengine.execution.local_executor import check_cases
    from dagengine.traces.trace_cases import TraceCases

    if isinstance(cases, TraceCases) and format is Format.TABLE:
        for line in cases.mapping():
            say(line)
    check_cases(plan, cases.check())
    for line in (*missing_fields(plan, strict(cases)), *concerns(plan, strict(cases))):
        yield Problem("missing-field", cases.name, line, "", "warning")
    for line in example_lines(plan, enumerate(strict(cases))):
        yield Problem("example-in-data", cases.name, line, "", "warning")


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
            say(f"{last} ({counted(len(problems), 'warning')})")
        return
    lines = [{name: getattr(problem, name) for name in _FINDING} for problem in problems]
    print_lines(format, _FINDING, lines)


_OF_DATA = ("missing-field", "example-in-data")
_FINDING = ("severity", "code", "where", "message", "hint")
