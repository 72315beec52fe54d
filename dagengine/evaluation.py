"""The doors: metrics in, results out. One implementation, async, with a thin sync door."""

from __future__ import annotations

import atexit
import os
from collections import Counter
from collections.abc import AsyncIterable, Awaitable, Callable, Iterable, Sequence
from contextlib import nullcontext
from typing import Any, TypeVar

import anyio
import sniffio
from anyio.from_thread import start_blocking_portal

from dagengine.cases import AsyncCases, Cases, Item, read_cases
from dagengine.errors import DagengineError, GraphError, InputError, Problem
from dagengine.gateway import Gateway, Sink
from dagengine.golden import CASE_OF, GOLDEN_TYPES, App, as_app
from dagengine.judges import as_judge, open_judges
from dagengine.limits import DEFAULT_LIMITS, Limits
from dagengine.plan import HasSpec, Plan, compile_metrics
from dagengine.question import Judge
from dagengine.report import print_table, progress_bar
from dagengine.results import CaseResult, EvaluationResult, Totals
from dagengine.runner import Runner
from dagengine.store import Store, as_store
from dagengine.tally import Tally
from dagengine.test_case import TestCase, case_label, read_field

R = TypeVar("R")
# What can be evaluated: whatever `read_cases` takes, and data sets.
Source = Iterable[Any] | AsyncIterable[Any]
AnyApp = App | Callable[[Any], Any]
StoreLike = Store | str | os.PathLike[str]


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
    test_cases: Source,
    metrics: Sequence[HasSpec],
    on_row: Callable[[CaseResult], None],
    *,
    app: AnyApp | None = None,
    model: Any = None,
    limits: Limits | None = None,
    on_attempt: Sink | None = None,
    store: StoreLike | None = None,
) -> Totals:
    """Run metrics over cases and hand out every row, in data set order.

    `test_cases` is whatever `read_cases` takes, or a data set; a source that makes one wait
    should be an async iterator, so that earlier cases are judged meanwhile. `app` completes
    goldens (see `App`). `model` is the judge of every metric that names none (see
    `as_judge`); `on_attempt` gets every call to a judge, failed ones included. `store` is a
    file of answers (a path or a Store): what it holds is not asked again, what is asked it
    will hold.

    Rows are not kept, and memory is bounded by what is in flight. Raises GraphError or
    InputError before the first call, InputError later when the store fails, JudgeSetupError
    when a judge cannot work at all. A case never raises: an invalid row among the first ones
    of a file is an InputError, a later one an `invalid_case` outcome. When the source itself
    fails half-way, what came before is finished and handed out, and then InputError names
    the row.
    """
    if not isinstance(metrics, Sequence) or not metrics:
        raise InputError(f"metrics must be a list of at least one metric, got {metrics!r:.80}")
    plan, caller = compile_metrics(metrics), as_app(app)
    cases = _cases(test_cases, caller)
    if isinstance(cases, Cases):
        items = cases.check()
        check_cases(plan, items)
        _check_goldens(items, caller)
    judges = [as_judge(model if own is None else own) for own in plan.models]
    check_judges(plan, judges)
    kept = None if store is None else as_store(store)
    asked = sorted({unit.judge for unit in plan.units if unit.node.asks})
    needed = [] if kept and kept.replay else [judges[index] for index in asked]
    try:
        async with kept.open() if kept else nullcontext() as stored, open_judges(needed):
            gateway = Gateway(limits or DEFAULT_LIMITS, on_attempt, stored)
            gateway.expect(needed)
            await Runner(plan, judges, gateway, on_row, caller).run(cases)
    except BaseExceptionGroup as group:
        raise _only(group) from None
    return gateway.totals


def _only(error: BaseException) -> BaseException:
    """The exception inside nested groups, if all are of one kind, or the group itself."""
    while isinstance(error, BaseExceptionGroup) and len(set(map(type, error.exceptions))) == 1:
        error = error.exceptions[0]
    return error


async def a_evaluate(
    test_cases: Source,
    metrics: Sequence[HasSpec],
    *,
    app: AnyApp | None = None,
    model: Any = None,
    limits: Limits | None = None,
    show: bool = True,
    on_row: Callable[[CaseResult], None] | None = None,
    on_attempt: Sink | None = None,
    store: StoreLike | None = None,
) -> EvaluationResult:
    """Run metrics over cases; one row per case, in order, whatever happened to the others.

    All rows are kept: for more than fits in memory there is `stream`. `show` draws a
    progress bar (on a terminal) and prints the result table. See `stream` for the other
    arguments and for what is raised. Metrics are left untouched.
    """
    rows: list[CaseResult] = []
    cases = _cases(test_cases, app)
    total = cases.count() if show and isinstance(cases, Cases) else None
    with progress_bar(total, show) as advance:

        def take(row: CaseResult) -> None:
            rows.append(row)
            advance(row)
            if on_row is not None:
                on_row(row)

        totals = await stream(
            cases,
            metrics,
            take,
            app=app,
            model=model,
            limits=limits,
            on_attempt=on_attempt,
            store=store,
        )
    if show:
        print_table(Tally(rows), totals)
    return EvaluationResult(tuple(rows), totals)


def evaluate(
    test_cases: Source,
    metrics: Sequence[HasSpec],
    *,
    app: AnyApp | None = None,
    model: Any = None,
    limits: Limits | None = None,
    show: bool = True,
    on_row: Callable[[CaseResult], None] | None = None,
    on_attempt: Sink | None = None,
    store: StoreLike | None = None,
) -> EvaluationResult:
    """`a_evaluate` for callers without an event loop (it works inside one, too)."""
    return sync(
        lambda: a_evaluate(
            test_cases,
            metrics,
            app=app,
            model=model,
            limits=limits,
            show=show,
            on_row=on_row,
            on_attempt=on_attempt,
            store=store,
        )
    )


def assert_test(
    test_case: TestCase,
    metrics: Sequence[HasSpec],
    run_async: bool = True,
    *,
    model: Any = None,
) -> None:
    """Raise AssertionError, naming metric, score and reason, unless every metric passes.

    Without `run_async` the judge is asked one question at a time.
    """
    if not metrics:
        raise InputError("assert_test needs at least one metric")
    limits = DEFAULT_LIMITS if run_async else Limits(max_in_flight=1)
    row = evaluate([test_case], metrics, model=model, limits=limits, show=False).rows[0]
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


def on_test_run_end(function: Callable[[], Any]) -> Callable[[], Any]:
    """Decorator: call `function` once, when the program (or pytest) ends."""
    return atexit.register(function)


def _cases(source: Any, app: AnyApp | None) -> Cases | AsyncCases:
    """The cases of a source; of a data set its test cases, and its goldens for an app."""
    goldens = getattr(source, "goldens", None)
    if goldens and (app is not None or not len(source)):
        source = [*source, *goldens]
    cases: Cases | AsyncCases = read_cases(source)
    return cases


def _check_goldens(items: Sequence[Item], app: App | None) -> None:
    """Raise InputError when goldens have no app, or an app has no goldens."""
    some = any(isinstance(item, GOLDEN_TYPES) for item in items)
    if some and app is None:
        raise InputError("goldens have no output yet: give app=, the function that makes it")
    if items and not some and app is not None:
        raise InputError("an app completes goldens, but the cases are test cases")


def check_cases(plan: Plan, items: Sequence[Item]) -> None:
    """Raise InputError when a field that is read exists in no case's type."""
    kinds: dict[Any, None] = dict.fromkeys(CASE_OF.get(type(item), type(item)) for item in items)
    for unit in plan.units:
        for path in unit.reads:
            name = path.partition(".")[0]
            if kinds and not any(name in kind.model_fields for kind in kinds):
                names = " and ".join(sorted(kind.__name__ for kind in kinds))
                raise InputError(
                    f"node {unit.name!r} reads `{path}`, but the test cases "
                    f"({items[0].name or 'case 0'}, …) are {names}, which have no such field"
                )


def missing_fields(plan: Plan, test_cases: Iterable[Any]) -> list[str]:
    """One line per field that some test cases lack: how many, and the first of them."""
    counts, first, total = Counter[str](), dict[str, str](), 0
    for index, case in enumerate(test_cases):
        total += 1
        for path in plan.fields:
            if read_field(case, path) is None:
                counts[path] += 1
                first.setdefault(path, case_label(case, index))
    return [
        f"{counts[path]} of {total} cases have no `{path}` (first: {first[path]})"
        for path in plan.fields
        if counts[path]
    ]


def check_judges(plan: Plan, judges: Sequence[Judge]) -> None:
    """Raise GraphError when a judge cannot do what a node asks of it."""
    problems: list[Problem] = []
    for unit in plan.units:
        judge, parser = judges[unit.judge], getattr(unit.node, "parser", None)
        able = judge.capabilities.text if parser is not None else judge.capabilities.schema
        if unit.node.asks and not able:
            what = "plain text for its parser" if parser is not None else "a structured answer"
            message = f"it needs {what}, which {judge.identity} cannot give"
            hint = "use another judge for this metric, or change the node"
            problems.append(Problem("judge-capability", f"node {unit.name!r}", message, hint))
    if problems:
        raise GraphError(problems)


__all__ = [
    "DagengineError",
    "a_evaluate",
    "assert_test",
    "evaluate",
    "on_test_run_end",
    "stream",
    "sync",
]
