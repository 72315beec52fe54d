"""Reports leave in the order of the tests, whenever their verdicts come.

A processor starts instructions early, finishes them in any order and *retires* them in order.
So bodies run in order and never wait here. Verdicts arrive in any order, and a report that is
finished waits for the one before it::

    main thread   [setup body teardown] [setup body teardown] [ … ] [ … ]       waits
                       | a case             |                                     ^
    their reports      held                 held behind it     held               |
                       +--- its verdict ----------------------------------> logged, in order

When a failure stops the run (`-x`), what was started behind it is thrown away unreported, as if
it had never run. That makes `-x`, `--maxfail`, `--lf`, `--sw` and JUnit right without a line for
any of them.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from _pytest.runner import call_and_report, check_interactive_exception

from dagengine.testing.deferral import Held, plugin_of_class, wait_for, without_timer
from dagengine.testing.session import Evaluations
from dagengine.testing.verdicts import AnswerMissingError, EvaluationFailed, Pending

CALL = pytest.StashKey[pytest.CallInfo[Any]]()
"""The call of a test's body, which a failing verdict changes."""


class Buffer:
    """Runs tests and holds their reports back; an instance belongs to one pytest session.

    pytest-rerunfailures owns the protocol of its tests and decides by their reports. So the first
    attempt is speculation. If it passed, it is reported like any other. If it failed, it is
    forgotten. When all bodies have run, the test goes through that plugin, with the verdicts that
    are known for its first attempt.
    """

    def __init__(self, session: pytest.Session) -> None:
        self._session = session
        self.evaluations = Evaluations(session)
        self._queue: deque[Held] = deque()
        self._bodies_are_over = False
        self.runs_again = False
        # pytest-xdist gives its worker no public name: it is known by its class.
        self._worker: Any = plugin_of_class(session.config, "WorkerInteractor")

    @property
    def _stopping(self) -> bool:
        return bool(self._session.shouldfail or self._session.shouldstop)

    def run(self, item: pytest.Item, nextitem: pytest.Item | None) -> None:
        """Run one test, unless an earlier one that is reported now stops the session."""
        self.retire()
        # A subtest is reported past this buffer, in the midst of the body: then no test may wait
        # before it. Those of pytest are a fixture, those of unittest a name that the body calls.
        code = getattr(getattr(item, "function", None), "__code__", None)
        has_subtests = "subtests" in getattr(item, "fixturenames", ()) or (
            code is not None and "subTest" in code.co_names
        )
        most_waiting = 0 if has_subtests else self.evaluations.window - 1
        if len(self._queue) > most_waiting:
            with without_timer(item):
                self.retire(down_to=most_waiting)
        if self._stopping:
            return
        plugin = item.config.pluginmanager.get_plugin("rerunfailures")
        count = getattr(plugin, "get_reruns_count", None)
        index = getattr(self._worker, "item_index", None)
        held = self.evaluations.held = Held(item, code, index, reruns=bool(count and count(item)))
        self._queue.append(held)
        try:
            self._run(held, nextitem)
            held.is_over = True
        finally:
            self.evaluations.held = None
        self.retire()

    def _run(self, held: Held, nextitem: pytest.Item | None) -> None:
        """Do what pytest's own `runtestprotocol` does, but pass every event to `_emit`."""
        item: Any = held.item
        self._emit(held, "start")
        has_request = hasattr(item, "_request")
        if has_request and not item._request:  # it runs again
            item._initrequest()
        try:
            if self._phase(held, "setup").passed and not item.config.getoption("setuponly", False):
                self._phase(held, "call")
            # Teardown of everything, so that its errors are reported (pytest #11706).
            rest = None if self._stopping else nextitem
            self._phase(held, "teardown", nextitem=rest)
        finally:
            if has_request:
                # As pytest, let go of the fixtures; the report of a late verdict needs them again.
                held.funcargs = item.funcargs
                item._request = False
                item.funcargs = None
        self._emit(held, "finish")

    def _phase(self, held: Held, when: Any, **given: Any) -> pytest.TestReport:
        report: pytest.TestReport = call_and_report(held.item, when, log=False, **given)
        self._emit(held, report)
        return report

    def _emit(self, held: Held, event: pytest.TestReport | str) -> None:
        """Log an event at once, as pytest would, if its test waits for nothing; else keep it."""
        if held is self._queue[0] and not held.verdicts and not held.reruns:
            self._log(held, event)
        else:
            held.events.append(event)

    def _log(self, held: Held, event: pytest.TestReport | str) -> None:
        item = held.item
        if event == "start":
            item.ihook.pytest_runtest_logstart(nodeid=item.nodeid, location=item.location)
        elif event == "finish":
            item.ihook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)
        else:
            with self._as_running(held):
                item.ihook.pytest_runtest_logreport(report=event)

    @contextmanager
    def _as_running(self, held: Held) -> Iterator[None]:
        """Have pytest-xdist take this test for the one that runs: it refuses reports of others."""
        if self._worker is None or held.index is None:
            yield
            return
        running, self._worker.item_index = self._worker.item_index, held.index
        try:
            yield
        finally:
            self._worker.item_index = running

    def retire(self, down_to: int | None = None) -> None:
        """Report the tests at the head that are ready; with `down_to`, wait for all but so many."""
        while self._queue and self._queue[0].is_over:
            head = self._queue[0]
            if not head.is_judged:
                if down_to is None or len(self._queue) <= down_to:
                    return
                for pending in head.verdicts:
                    wait_for(pending.future, self.evaluations.still_waiting)
                    if self._fails(pending):
                        break
            # A test that may run again is reported now only if it passed: what failed waits until
            # all bodies have run.
            if not (head.reruns and (head.has_failed or any(map(self._fails, head.verdicts)))):
                self._report(head)
            elif self._bodies_are_over:
                self._run_again(head)
            else:
                return

    def _run_again(self, head: Held) -> None:
        """Run a test by the protocol of pytest-rerunfailures, which reports it, too."""
        stopping = self._stopping
        self._queue.popleft()
        self.runs_again, self.evaluations.known = True, [*head.verdicts]
        try:
            with self._as_running(head):
                head.item.ihook.pytest_runtest_protocol(item=head.item, nextitem=None)
        finally:
            self.runs_again, self.evaluations.known = False, []
        if self._stopping and not stopping:
            self._drop()

    def _report(self, head: Held) -> None:
        """Report one test; throw away what is behind it if that stops the session."""
        stopping = self._stopping
        self._queue.popleft()
        failure = self._first_failure(head)
        for pending in head.verdicts:
            if pending.future.exception() is None:
                self.evaluations.count_verdict(head.item, pending.future.result())
            if failure is not None and pending is failure[0] and not _is_excused(failure[1]):
                break  # `_first_failure` gave up the verdicts after it
        for event in head.events:
            if failure is not None and not isinstance(event, str) and event.when == "call":
                event = self._failed_report(head, *failure, event)
            self._log(head, event)
        if self._stopping and not stopping:
            self._drop()
            if self.evaluations.held is None:
                self._tear_down(head)

    def _tear_down(self, head: Held) -> None:
        """Tear down what is still set up, and report it if that fails (pytest #11706)."""
        state = self._session._setupstate
        if state.stack:
            call = pytest.CallInfo.from_call(lambda: state.teardown_exact(None), when="teardown")
            if call.excinfo is not None:
                report = head.item.ihook.pytest_runtest_makereport(item=head.item, call=call)
                self._log(head, report)

    def _first_failure(self, head: Held) -> tuple[Pending, BaseException] | None:
        """Return the first failing verdict in the order of the test's calls, and its error.

        The verdicts after it are given up. A verdict that is excused, since a gate decides about
        it, is returned only if nothing else failed.
        """
        excused: tuple[Pending, BaseException] | None = None
        for index, pending in enumerate(head.verdicts):
            error = self._error(pending)
            if error is not None and _is_excused(error):
                excused = excused or (pending, error)
            elif error is not None:
                for later in head.verdicts[index + 1 :]:
                    later.future.cancel()
                return pending, error
        return None if head.has_failed else excused

    def _error(self, pending: Pending) -> BaseException | None:
        error = pending.future.exception()
        return error or self.evaluations.error_of(pending.future.result())

    def _fails(self, pending: Pending) -> bool:
        """Return whether a verdict makes its test fail."""
        error = self._error(pending)
        return error is not None and not _is_excused(error)

    def _failed_report(
        self, held: Held, pending: Pending, error: BaseException, first: pytest.TestReport
    ) -> pytest.TestReport:
        """The report of a body in which the verdict was raised, in place of the first one.

        It is made by pytest and its plugins again, so that xfail and the like decide again.
        """
        item: Any = held.item
        call = item.stash[CALL]
        body_error = call.excinfo
        # Else `Evaluations.note_end` notes that not all was asked: so it is where later verdicts
        # were given up.
        if pending is held.verdicts[-1] or _is_excused(error):
            self.evaluations.raised = error
        error.__traceback__ = pending.traceback
        call.excinfo = pytest.ExceptionInfo.from_exception(error)
        call.stop, call.duration = time.time(), time.time() - call.start
        # Plugins that make reports read the fixtures of the test, which `_run` has taken from it.
        item.funcargs = held.funcargs
        try:
            report: pytest.TestReport = item.ihook.pytest_runtest_makereport(item=item, call=call)
        finally:
            item.funcargs = None
        # What other phases captured is not of the body.
        more = [section for section in report.sections if not section[0].startswith("Captured ")]
        report.sections = [*first.sections, *more]
        if body_error is not None and not first.skipped:
            report.sections.append(("The body then went on, and failed", str(body_error.exconly())))
        if check_interactive_exception(call, report):
            item.ihook.pytest_exception_interact(node=item, call=call, report=report)
        return report

    def _drop(self) -> None:
        """Throw away, unreported, all tests that wait."""
        self.evaluations.summary.dropped += len(self._queue)
        for held in self._queue:
            for pending in held.verdicts:
                pending.future.cancel()
        self._queue.clear()

    def finish(self) -> None:
        """Wait for everything, and report it; all bodies have run."""
        self._bodies_are_over = True
        try:
            # pytest refuses to set up a test while collectors of another one are set up.
            if any(held.reruns for held in self._queue):
                self._session._setupstate.teardown_exact(None)
            self.retire(down_to=0)
        except KeyboardInterrupt:
            self.flush()
            raise
        self.flush()  # a test that ended the session inside its body is still at the head

    def flush(self) -> None:
        """Report every test whose verdicts are there, also behind one without; drop the rest."""
        for held in list(self._queue):
            if held.is_judged and held in self._queue:  # a report may have dropped it
                self._queue.remove(held)
                self._queue.appendleft(held)  # `_report` takes the test at the head
                self._report(held)
        for held in self._queue:
            if not held.is_over:  # its body has begun; what came of it is not known
                for event in held.events:
                    if isinstance(event, str) or event.when == "setup":
                        self._log(held, event)
        self._drop()


def _is_excused(error: BaseException) -> bool:
    """Return whether a gate decides in place of the test that a verdict makes fail."""
    return bool(getattr(error, "excuse", ""))


def evaluation_of(
    item: pytest.Item, call: pytest.CallInfo[Any]
) -> EvaluationFailed | AnswerMissingError | None:
    """Return the error of a verdict that made a call fail, and hide its class from the report.

    pytest shows only the first words of a failure: they should not be the name of a class.
    """
    # A unittest keeps what it raised at its item until the report is made.
    kept: Any = getattr(item, "_excinfo", None)
    raised: Any = call.excinfo or (kept or [None])[0]
    error = getattr(raised, "value", None)
    if not isinstance(error, EvaluationFailed | AnswerMissingError):
        return None
    kind = type(error)
    raised._striptext = f"{kind.__module__}.{kind.__qualname__}: "
    return error
