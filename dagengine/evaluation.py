"""The doors: metrics in, results out. One implementation, async, with a thin sync door."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from typing import Any, TypeVar

import anyio
import sniffio
from anyio.from_thread import start_blocking_portal

from dagengine.errors import DagengineError, GraphError, InputError, Problem
from dagengine.gateway import DEFAULT_LIMITS, Gateway, Limits, Sink
from dagengine.judges import as_judge, open_judges
from dagengine.plan import HasSpec, Plan, compile_metrics
from dagengine.question import Judge
from dagengine.report import print_table, progress_bar
from dagengine.results import CaseResult, EvaluationResult, Totals
from dagengine.runner import Runner
from dagengine.test_case import CASE_TYPES, TestCase, case_label, read_field

R = TypeVar("R")


def sync(make: Callable[[], Awaitable[R]]) -> R:
    """Run a coroutine function to its end, also from inside a running event loop.

    A running loop is left as it is: the work gets a thread and a loop of its own.
    """

    async def main() -> R:
        return await make()

    if not _inside_a_loop():
        return anyio.run(main)
    with start_blocking_portal() as portal:
        work = portal.start_task_soon(main)
        try:
            return work.result()
        finally:
            work.cancel()  # an interrupt ends the run in the other thread, too


def _inside_a_loop() -> bool:
    try:
        sniffio.current_async_library()
    except sniffio.AsyncLibraryNotFoundError:
        return False
    return True


async def stream(
    test_cases: Iterable[TestCase],
    metrics: Sequence[HasSpec],
    on_row: Callable[[CaseResult], None],
    *,
    model: Any = None,
    limits: Limits | None = None,
    on_attempt: Sink | None = None,
) -> Totals:
    """Run metrics over cases and hand out every row, in data set order.

    `model` is the judge of every metric that names none (see `as_judge`); `on_attempt`
    gets every call to a judge, failed ones included. Memory is bounded by what is in
    flight. Raises GraphError or InputError before the first call, JudgeSetupError when a
    judge cannot work at all; a case never raises.
    """
    if not isinstance(metrics, Sequence) or not metrics:
        raise InputError(f"metrics must be a list of at least one metric, got {metrics!r:.80}")
    if not isinstance(test_cases, Iterable) or isinstance(test_cases, CASE_TYPES):
        raise InputError(f"test_cases must be a list of test cases, got {test_cases!r:.80}")
    plan = compile_metrics(metrics)
    if isinstance(test_cases, Sequence):
        check_cases(plan, test_cases)
    judges = [as_judge(model if own is None else own) for own in plan.models]
    check_judges(plan, judges)
    gateway = Gateway(limits or DEFAULT_LIMITS, on_attempt)
    asked = {judge for unit in plan.units if unit.node.asks for judge in unit.judges}
    try:
        async with open_judges([judges[index] for index in sorted(asked)]):
            await Runner(plan, judges, gateway, on_row).run(_valid(test_cases))
    except BaseExceptionGroup as group:
        raise _only(group) from None
    return gateway.totals


def _only(error: BaseException) -> BaseException:
    """The exception inside nested groups, if all are of one kind, or the group itself."""
    while isinstance(error, BaseExceptionGroup) and len(set(map(type, error.exceptions))) == 1:
        error = error.exceptions[0]
    return error


async def a_evaluate(
    test_cases: Iterable[TestCase],
    metrics: Sequence[HasSpec],
    *,
    model: Any = None,
    limits: Limits | None = None,
    show: bool = True,
    on_row: Callable[[CaseResult], None] | None = None,
    on_attempt: Sink | None = None,
) -> EvaluationResult:
    """Run metrics over cases; one row per case, in order, whatever happened to the others.

    `show` draws a progress bar (on a terminal) and prints the result table. See `stream`
    for the other arguments and for what is raised. Metrics are left untouched.
    """
    rows: list[CaseResult] = []
    total = len(test_cases) if isinstance(test_cases, Sequence) else None
    with progress_bar(total, show) as advance:

        def take(row: CaseResult) -> None:
            rows.append(row)
            advance(row)
            if on_row is not None:
                on_row(row)

        totals = await stream(
            test_cases, metrics, take, model=model, limits=limits, on_attempt=on_attempt
        )
    result = EvaluationResult(tuple(rows), totals)
    if show:
        print_table(result)
    return result


def evaluate(
    test_cases: Iterable[TestCase],
    metrics: Sequence[HasSpec],
    *,
    model: Any = None,
    limits: Limits | None = None,
    show: bool = True,
    on_row: Callable[[CaseResult], None] | None = None,
    on_attempt: Sink | None = None,
) -> EvaluationResult:
    """`a_evaluate` for callers without an event loop (it works inside one, too)."""
    return sync(
        lambda: a_evaluate(
            test_cases,
            metrics,
            model=model,
            limits=limits,
            show=show,
            on_row=on_row,
            on_attempt=on_attempt,
        )
    )


def assert_test(test_case: TestCase, metrics: Sequence[HasSpec], *, model: Any = None) -> None:
    """Raise AssertionError, naming metric, score and reason, unless every metric passes."""
    if not metrics:
        raise InputError("assert_test needs at least one metric")
    row = evaluate([test_case], metrics, model=model, show=False).rows[0]
    failed = [m for m in row.metrics if m.failure is not None or m.success is False]
    if failed:
        lines = [
            f"{m.metric}: {m.failure.kind}: {m.failure.message}"
            if m.failure
            else f"{m.metric}: score {m.score:.4g}, threshold {m.threshold}: {m.reason}"
            for m in failed
        ]
        names = ", ".join(m.metric for m in failed)
        raise AssertionError(f"{row.case} failed {names}\n" + "\n".join(lines))


def _valid(test_cases: Iterable[TestCase]) -> Iterator[TestCase]:
    for index, case in enumerate(test_cases):
        if not isinstance(case, CASE_TYPES):
            raise InputError(f"case {index} is {type(case).__name__}, not a test case")
        yield case


def check_cases(plan: Plan, test_cases: Sequence[TestCase]) -> None:
    """Raise InputError when a field that is read exists in no case's type."""
    kinds = dict.fromkeys(type(case) for case in _valid(test_cases))
    for unit in plan.units:
        for path in unit.reads:
            name = path.partition(".")[0]
            if kinds and not any(name in kind.model_fields for kind in kinds):
                names = " and ".join(sorted(kind.__name__ for kind in kinds))
                first = case_label(test_cases[0], 0)
                raise InputError(
                    f"node {unit.name!r} reads `{path}`, but the test cases ({first}, …) are "
                    f"{names}, which have no such field"
                )


def missing_fields(plan: Plan, test_cases: Sequence[TestCase]) -> list[str]:
    """One line per field that some cases lack: how many, and the first of them."""
    lines: list[str] = []
    for path in plan.fields:
        lacking = [
            case_label(case, index)
            for index, case in enumerate(test_cases)
            if read_field(case, path) is None
        ]
        if lacking:
            count = f"{len(lacking)} of {len(test_cases)}"
            lines.append(f"{count} cases have no `{path}` (first: {lacking[0]})")
    return lines


def check_judges(plan: Plan, judges: Sequence[Judge]) -> None:
    """Raise GraphError when a judge cannot do what a node asks of it."""
    problems: list[Problem] = []
    for unit in plan.units:
        parser = getattr(unit.node, "parser", None)
        for judge in (judges[index] for index in unit.judges):
            able = judge.capabilities.text if parser is not None else judge.capabilities.schema
            if not unit.node.asks or able:
                continue
            what = "plain text for its parser" if parser is not None else "a structured answer"
            message = f"it needs {what}, which {judge.identity} cannot give"
            hint = "use another judge for this metric, or change the node"
            problems.append(Problem("judge-capability", f"node {unit.name!r}", message, hint))
    if problems:
        raise GraphError(problems)


__all__ = ["DagengineError", "a_evaluate", "assert_test", "evaluate", "stream", "sync"]
