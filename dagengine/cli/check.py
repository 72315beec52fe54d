"""`dagengine check`: what is wrong with metrics, and with cases for them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from dagengine.cli.common import options as shared
from dagengine.cli.common.files import Reads
from dagengine.cli.common.output import EXIT_FAILED, Format, print_csv, print_json, say
from dagengine.errors import Problem, more_on
from dagengine.system.terminal_text import counted

if TYPE_CHECKING:
    from dagengine.compiler.execution_plan import Plan
    from dagengine.data.cases import Cases

_OF_CASES = ("missing-field", "example-in-data")  # whose messages say where, without a hint
_COLUMNS = ("severity", "code", "where", "message", "hint")


@dataclass(frozen=True, kw_only=True)
class CheckOptions(shared.TraceOptions, shared.MetricOptions):
    """The options of `dagengine check`."""

    data: Annotated[list[Path] | None, Reads()] = None
    """Also check that these test cases have the fields that the metrics read. Of traces (`--map
    otel`) also shows how one of them becomes a case.
    """
    strict: bool = False
    """Also fail on warnings."""
    format: Format = "table"
    """Output format."""


def check(options: CheckOptions) -> None:
    """Find the problems of metrics and say how to fix them. Makes no judge calls.

    Exit codes: 0 no errors; 1 errors (with --strict also warnings); 2 invalid input.
    """
    from dagengine.compiler.checks import check as find_problems
    from dagengine.compiler.execution_plan import compile_metrics, name_problems
    from dagengine.judges import as_judge
    from dagengine.loading import load_metrics
    from dagengine.question import display_name

    is_table = options.format == "table"
    metrics = load_metrics(options.metrics, on_copy=say if is_table else None)
    names = [metric.spec().name for metric in metrics]
    problems = [*name_problems(names)]
    for metric in metrics:
        problems += find_problems(metric.spec())[0]
    problems = list(dict.fromkeys(problems))  # metrics may share nodes
    fatal = ("error", "warning") if options.strict else ("error",)

    def fails() -> bool:
        return any(problem.severity in fatal for problem in problems)

    if not fails():  # without a compiled plan nothing can be said of the cases
        plan = compile_metrics(metrics)
        if is_table:
            for model in filter(None, plan.models):
                # By its name alone: a model file may be on another machine.
                name = model if isinstance(model, str) else display_name(as_judge(model))
                say(f"asks a judge of its own: {name:.80}")
        if options.data:
            cases = options.cases_in(*options.data, unit=options.unit)
            problems += _case_problems(plan, cases, is_table)
        if not is_table and not fails():  # a note for programs, which people would only skip
            problems.append(_reading_order(plan))
    _print_problems(problems, options.format)
    if fails():
        raise typer.Exit(EXIT_FAILED)
    if is_table:
        say(f"ok: {', '.join(names)} ({counted(len(problems), 'warning')})")


def _case_problems(plan: Plan, cases: Cases, is_table: bool) -> Iterator[Problem]:
    """Problems of cases for metrics; raises InputError for cases that cannot be read."""
    from dagengine.data.cases import valid_cases
    from dagengine.estimate.case_warnings import concerns, example_lines, missing_fields
    from dagengine.execution.local_executor import check_cases
    from dagengine.traces.trace_files import TraceCases

    if isinstance(cases, TraceCases) and is_table:
        for line in cases.mapping():
            say(line)
    check_cases(plan, cases.check())
    for line in (*missing_fields(plan, valid_cases(cases)), *concerns(plan, valid_cases(cases))):
        yield Problem("missing-field", cases.name, line, "", "warning")
    for line in example_lines(plan, enumerate(valid_cases(cases))):
        yield Problem("example-in-data", cases.name, line, "", "warning")


def _reading_order(plan: Plan) -> Problem:
    """The note on the order of a case's fields in prompts, and on what questions share."""
    from dagengine.prompts.evidence import canonical_place

    asking = [unit for unit in plan.units if unit.node.asks]
    fields = {path for unit in asking for path in unit.reads}
    order = ", ".join(sorted(fields, key=canonical_place)) or "no field"
    sharing = sum(bool(unit.shares) for unit in asking)
    message = (
        f"prompts show {order}, in this order; {sharing} of {len(asking)} nodes share a beginning"
    )
    return Problem("reading-order", "the plan", message, "", "note")


def _print_problems(problems: Sequence[Problem], format: Format) -> None:
    lines = map(attrgetter(*_COLUMNS), problems)
    if format == "json":
        print_json(dict(zip(_COLUMNS, line, strict=True)) for line in lines)
        return
    if format == "csv":
        print_csv(_COLUMNS, lines)
        return
    for problem in problems:
        line = problem.message if problem.code in _OF_CASES else problem
        say(f"{problem.severity}: {line}")
    if problems:
        say(more_on(problem.code for problem in problems))
