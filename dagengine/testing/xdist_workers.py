"""What the workers of pytest-xdist send, and the tests whose reports died with one."""

from __future__ import annotations

import time
from queue import Empty
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest

if TYPE_CHECKING:
    from dagengine.testing.recordings import Recording
    from dagengine.testing.session_summary import Summary

KEY = "dagengine"
"""Under which a worker sends what its evaluations came to."""
_PATIENCE = 5.0  # seconds that workers have, after an interrupt, to report what is finished


class Sent(NamedTuple):
    """What the evaluations of a worker came to; `whole` as `is_whole` says it."""

    summary: Summary
    recordings: list[Recording]
    whole: bool


class Workers:
    """Takes what workers send, and notices tests whose reports died with a worker."""

    def __init__(self) -> None:
        self.sent: list[bytes] = []  # `Sent`, unpacked when no worker is waited for
        self.died: list[str] = []
        self.collected: dict[str, None] = {}
        self._reported: set[str] = set()

    @pytest.hookimpl(optionalhook=True)
    def pytest_xdist_node_collection_finished(self, ids: list[str]) -> None:
        self.collected.update(dict.fromkeys(ids))

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any, error: object) -> None:
        if error:
            self.died.append(str(node.gateway.id))
        output = getattr(node, "workeroutput", None) or {}
        if KEY in output:
            self.sent.append(output[KEY])

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        # A test that waits for its verdict may have reported its setup.
        if report.when != "setup" or not report.passed:
            self._reported.add(report.nodeid)

    def drain(self, config: pytest.Config) -> None:
        """After an interrupt, take the reports that workers held back, and what they sum up.

        An interrupt ends pytest-xdist's own loop, which would take them; it reaches workers, too.
        """
        session: Any = config.pluginmanager.get_plugin("dsession")
        waiting, until = set(session._active_nodes), time.monotonic() + _PATIENCE
        while waiting:
            try:
                name, arguments = session.queue.get(timeout=max(0.0, until - time.monotonic()))
            except Empty:
                return
            if name == "testreport":
                session.worker_testreport(**arguments)
            elif name in ("workerfinished", "errordown"):
                waiting.discard(arguments["node"])
                self.pytest_testnodedown(arguments["node"], None)

    def report_lost(self, session: pytest.Session) -> None:
        """Report every test as failed that a worker ran, and that it did not live to report.

        pytest-xdist takes a test for done when its body is; it runs others again.
        """
        if not self.died or session.shouldfail or session.shouldstop:
            return
        names = ", ".join(self.died)
        for test in (name for name in self.collected if name not in self._reported):
            path = test.split("::")[0]
            text = f"worker {names!r} died before the verdict of {test!r} was there; run it again"
            # With the words in which pytest-xdist reports the test that a worker died of.
            when: Any = "???"
            report = pytest.TestReport(test, (path, None, path), {}, "failed", text, when)
            session.config.hook.pytest_runtest_logreport(report=report)
