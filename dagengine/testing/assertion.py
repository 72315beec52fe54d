"""`assert_test`: a case against its metrics, in a test or anywhere else; a hook for the end."""

from __future__ import annotations

import atexit
import os
import re
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack

from dagengine.errors import DagengineError
from dagengine.evaluation import names_first, print_verbose
from dagengine.execution.cases_and_rows import OnRow
from dagengine.execution.interrupts import sync
from dagengine.execution.local_executor import LocalExecutor, Settings
from dagengine.gateway.inner_metrics import current_host
from dagengine.graph.graph import Metric, as_metrics
from dagengine.results import CaseResult
from dagengine.test_case import TestCase
from dagengine.testing.verdicts import Assertion, EvaluationFailed, Verdict
from dagengine.unknown_arguments import check_names, names_of

if TYPE_CHECKING:
    from dagengine.testing.session import Evaluations


@names_first()
def assert_test(
    test_case: TestCase,
    metrics: Sequence[Metric],
    run_async: bool = True,
    **settings: Unpack[Settings],
) -> None:
    """Judge a test case; raise AssertionError with score, metric and node unless all metrics pass.

    In pytest, the case is judged while other tests run, and the test fails later, when its verdict
    is known. Code after this call must not rely on the verdict. If your code could catch the
    exception (`pytest.raises`, `try`, `with`), the call waits for the verdict; see docs/testing.md.

    Without `run_async` one node runs at a time and asks one question at a time. `settings` are
    those of `Settings`: `model`, `app`, `limits`, `store`, `on_attempt`, `tracer`. Raises what
    `evaluate` raises, and AnswerMissingError if a replayed answer is not recorded.
    """
    __tracebackhide__ = True
    session = _session()
    try:
        assertion = Assertion(test_case, as_metrics(metrics), settings, at_once=run_async)
        if session is not None:
            session.check(sys._getframe(2), assertion)  # frame 1 is the wrapper of `names_first`
            return
        verdict = _judge_alone(assertion)
    except (DagengineError, EvaluationFailed, TypeError) as error:
        # Without our frames the traceback ends at the caller's line, which is what is wrong.
        raise error.with_traceback(None) from error.__cause__
    if (failure := verdict.error) is not None:
        raise failure


def assert_at_once(
    test_case: TestCase, metrics: Sequence[Metric], **settings: Unpack[Settings]
) -> CaseResult:
    """The fixture `dagengine_case`: the row of a case, judged now, also if it fails.

    Raises AnswerMissingError, too.
    """
    __tracebackhide__ = True
    names = names_of(assert_at_once, Settings.__annotations__)
    check_names("dagengine_case() has no argument", settings, names)
    session = _session()
    judge = _judge_alone if session is None else session.verdict
    verdict = judge(Assertion(test_case, as_metrics(metrics), settings))
    if verdict.is_missing and (failure := verdict.error) is not None:
        raise failure
    return verdict.row


def _session() -> Evaluations | None:
    """The evaluations of the pytest session that this code belongs to, if it belongs to one."""
    if current_host() is not None:
        return None  # the code of a node belongs to the run of its metric, in a test too
    plugin: Any = sys.modules.get("dagengine.testing.plugin")  # only pytest imports it
    session: Evaluations | None = plugin and plugin.current()
    return session


def _judge_alone(assertion: Assertion) -> Verdict:
    """Judge a case in a run of its own."""
    rows: list[CaseResult] = []
    engine = LocalExecutor(assertion.metrics, assertion.settings, at_once=assertion.at_once)
    sync(lambda: engine.judge(engine.cases([assertion.case]), OnRow(rows.append)))
    print_verbose(assertion.metrics, rows[0])
    return Verdict(rows[0], engine.plan, engine.judges)


def on_test_run_end(function: Callable[[], Any]) -> Callable[[], Any]:
    """Decorator: call `function` once, when the program (or pytest) ends.

    Of the processes of one pytest-xdist run the last one to end calls it.
    """
    run = os.environ.get("PYTEST_XDIST_TESTRUNUID")
    if run is None:
        return atexit.register(function)
    name = re.sub(r"\W", "-", f"{run}-{function.__module__}.{function.__qualname__}")
    folder = Path(tempfile.gettempdir(), f"dagengine-{name}")
    folder.mkdir(exist_ok=True)
    # One file per process that still runs. No process ends before all of them have made theirs:
    # every process collects all tests before the first test begins.
    mark = folder / str(os.getpid())
    mark.touch()

    def call_if_last() -> None:
        mark.unlink(missing_ok=True)
        for peer in folder.glob("*"):
            try:
                if os.name != "nt":  # on Windows this call would end the process
                    os.kill(int(peer.name), 0)  # only asks whether it runs
            except PermissionError:  # it runs, and is somebody else's
                pass
            except ProcessLookupError:  # it was killed, and left its mark
                peer.unlink(missing_ok=True)
        try:
            folder.rmdir()
        except OSError:  # another process still runs, or was the last
            return
        function()

    atexit.register(call_if_last)
    return function
