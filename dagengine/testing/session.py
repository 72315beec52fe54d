"""The evaluations of one pytest session: cases handed over by tests, and their verdicts.

Test bodies run in the main thread, cases are judged in another. Equal questions are asked once in
the whole session, and one set of limits holds for all of it::

    main thread    body 1  body 2  body 3 …                waits
                     | a case        ^                       ^
    its thread       +--- judged ----+--------- verdicts ----+
"""

from __future__ import annotations

import os
import pickle
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import Future
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import chain
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any

import anyio
import pytest

from dagengine.evaluation import print_verbose
from dagengine.execution.cases_and_rows import OnRow
from dagengine.execution.interrupts import JudgesOf
from dagengine.execution.local_executor import Asking, LocalExecutor, Settings
from dagengine.gateway.gateway import Asks, Gateway, Resampled
from dagengine.judges import open_judges
from dagengine.limits import DEFAULT_LIMITS, Limits
from dagengine.question import Judge, durable_identity
from dagengine.results import CaseResult, Waiting
from dagengine.store.answer_journal import Store, as_store
from dagengine.system.threads import LoopThread
from dagengine.test_case import CASE_TYPES
from dagengine.testing.deferral import FixtureGuard, Held, frames_between, traceback_of, wait_for
from dagengine.testing.recordings import Recorder, TestFiles
from dagengine.testing.repeat_votes import SAMPLES, Mark, card_notes, may_change, vote
from dagengine.testing.session_summary import Gate, Summary, excuse
from dagengine.testing.verdicts import Assertion, EvaluationFailed, Pending, Verdict, Votes, message
from dagengine.testing.xdist_workers import Sent

if TYPE_CHECKING:
    from dagengine.testing.session_end import SessionRun


# Lists of metrics that stay compiled; a test that builds its own again compiles again.
_COMPILED = 64
# Seconds between two lines on a judge that does not answer.
_SAY_AGAIN = 15.0
# Tests that may wait for verdicts, for each call that may be in progress.
_WAITING = 4


class Evaluations:
    """What `assert_test` talks to while pytest runs; made when a test first needs it.

    `item` is the test that runs, `held` what it has to report if that waits for verdicts. `known`
    are those of its first attempt, if it runs again. `raised` is the error of the last test that
    failed by a verdict after its whole body had run. At most `window` tests wait.
    """

    def __init__(self, session: pytest.Session) -> None:
        config = session.config
        self._session, self._config = session, config
        self.item: pytest.Item | None = None
        self.held: Held | None = None
        self.known: list[Pending] = []
        self.raised: BaseException | None = None
        processes: int = getattr(config, "workerinput", {}).get("workercount", 1)
        limits = replace(
            DEFAULT_LIMITS, max_in_flight=max(1, DEFAULT_LIMITS.max_in_flight // processes)
        )
        store = config.getoption("evals_store")
        self.summary = Summary()
        kept = None if store is None else as_store(store)
        self._shared = SharedRun(limits, kept)
        self._guard = FixtureGuard(lambda: self.item, self.still_waiting)
        self.files = TestFiles(config)
        self.run: SessionRun | None = None
        if config.getoption("evals_out"):  # few sessions need it, and it takes long to load
            from dagengine.testing.session_end import SessionRun

            self.run = SessionRun()
        self._gates = list(map(Gate.read, config.getoption("evals_min") or ()))
        self._handed_over = 0
        self._say_from = 0.0
        self._cards: set[tuple[str, ...]] = set()
        self.is_cut = False
        self.window = _WAITING * limits.max_in_flight

    def check(self, caller: FrameType, assertion: Assertion) -> None:
        """Have a case judged; raises EvaluationFailed now or, where nobody would catch it, later.

        `caller` is the frame that called `assert_test`.
        """
        __tracebackhide__ = True
        held, frames, metrics = self.held, None, assertion.metrics
        # What a verbose metric prints belongs into the test's own output.
        verbose = any(getattr(metric, "verbose_mode", False) for metric in metrics)
        if held is not None and not Mark.of(held.item).immediate and not verbose:
            frames = frames_between(caller, held.code)
        if held is None or frames is None:
            verdict = self.verdict(assertion)
            print_verbose(metrics, verdict.row)
            error = self.error_of(verdict)
            if error is not None:
                raise error
            return
        future = self._begin(assertion)
        held.verdicts.append(Pending(future, assertion.case, traceback_of(frames)))
        used = [*map(assertion.settings.get, ("model", "app")), metrics, *metrics]
        used += [getattr(metric, "model", None) for metric in metrics]
        self._guard.hold(held.item, future, used)

    def verdict(self, assertion: Assertion) -> Verdict:
        """The verdict, for which the test waits."""
        __tracebackhide__ = True
        verdict = self._first_verdict(assertion)
        if verdict is None:
            future = self._begin(assertion, ahead=True)
            try:
                wait_for(future, self.still_waiting)
            finally:
                future.cancel()
            verdict = future.result()
        if self.item is not None:
            self.count_verdict(self.item, verdict)
        return verdict

    def _first_verdict(self, assertion: Assertion) -> Verdict | None:
        """Verdict of the first attempt at a test, for the same call of an attempt in its place.

        Later attempts ask again.
        """
        if getattr(self.item, "execution_count", 1) > 1:
            return None
        for pending in self.known:
            if pending.case == assertion.case:
                verdict = pending.future.result()
                if [result.metric for result in verdict.row.metrics] == assertion.names:
                    self.known.remove(pending)
                    return verdict
        return None

    def still_waiting(self) -> None:
        """Say in the terminal why a verdict takes long, where a judge has to be asked again."""
        plugins, waiting = self._config.pluginmanager, list[Waiting]()
        for gateway in self._shared.gateways:
            # A call that has just begun is no news.
            waiting += (w for w in gateway.waiting if w.silent is None or w.silent > _SAY_AGAIN)
        reporter: Any = plugins.getplugin("terminalreporter")
        capture: Any = plugins.getplugin("capturemanager")
        now = time.monotonic()
        if not waiting or reporter is None or now < self._say_from:
            return
        from dagengine.report.progress import wait_words

        self._say_from = now + _SAY_AGAIN
        with nullcontext() if capture is None else capture.global_and_fixture_disabled():
            reporter.ensure_newline()
            waits = " · ".join(map(wait_words, waiting))
            reporter.write_line(f"dagengine still waits for verdicts: {waits}")

    def error_of(self, verdict: Verdict) -> BaseException | None:
        """The error that a verdict raises in the test; None when it passed."""
        ignores = self._config.getoption("evals_ignore_errors")
        if ignores and verdict.is_unjudged and not verdict.is_missing:
            return pytest.skip.Exception(message(verdict), _use_item_location=True)
        error = verdict.error
        if isinstance(error, EvaluationFailed):
            error.excuse = excuse(self._gates, verdict)
        return error

    def begin(self, item: pytest.Item) -> None:
        """A test begins, perhaps once more."""
        self.item = item
        self.summary.outcomes.pop(item.nodeid, None)
        if self.run is not None:
            self.run.rows.pop(item.nodeid, None)

    def note_end(self, raised: BaseException) -> None:
        """A test ended by an exception: what it would have asked after that is not known."""
        self.is_cut |= raised is not self.raised

    def count_verdict(self, item: pytest.Item, verdict: Verdict) -> None:
        """Count a verdict that is reported."""
        self.summary.note(item.nodeid, verdict)
        if self.run is not None:
            self.run.note(item.nodeid, verdict.row)

    def pack(self, *, is_whole: bool) -> bytes:
        """Pack `Sent` for the controller; the rows are left in the run folder."""
        if self.run is not None:
            worker = os.environ.get("PYTEST_XDIST_WORKER", "worker")
            out: Any = self._config.getoption("evals_out")
            self.run.save_part(Path(out), worker, self.summary)
        return pickle.dumps(Sent(self.summary, self.files.new(), is_whole))

    def close(self) -> None:
        """End the thread of the session, and sum up what it did."""
        summary = self.summary
        tests = [item.nodeid for item in self._session.items]
        summary.arrange(tests)
        for gateway in self._shared.gateways:
            summary.totals += gateway.totals
            summary.spent += gateway.spent
        if self.run is not None:
            self.run.arrange(tests)
        for recorder in self.files.recorders:
            summary.replayed += recorder.replayed
            summary.missing += recorder.lacking
            summary.notes.update({f"not recorded: {why}": None for why in recorder.unrecorded})
        if not self._shared.close():
            self._config.issue_config_time_warning(
                pytest.PytestWarning("a judge did not end; its thread is left behind"), 2
            )

    @property
    def _attempt(self) -> int:
        """Number of the attempt at its test, from 0 on: reruns and repetitions ask again."""
        rerun = getattr(self.item, "execution_count", 1) - 1
        times: Any = self._config.getoption("evals_repeat")
        parameters = getattr(getattr(self.item, "callspec", None), "params", {})
        repetition: int = parameters.get("dagengine_repetition", 1) - 1
        return int(rerun * times + repetition)

    def _begin(self, assertion: Assertion, *, ahead: bool = False) -> Future[Verdict]:
        """Check everything in the test's thread, then hand the case over."""
        desk = self._shared.desk(assertion.settings)
        asks, recorder = self.files.asking(desk.gateway, self.item, self._attempt)
        engine = self._shared.engine(desk, assertion, asks)
        cases = engine.cases([assertion.case])
        if self.run is not None:
            self.run.define(engine)
        mark = Mark() if self.item is None else Mark.of(self.item)
        if mark.votes > 1:
            asked = [engine.judges[index] for index in engine.plan.asked]
            judges = [durable_identity(judge) or judge.identity for judge in asked]
            names = (*assertion.names, *judges)
            if names not in self._cards:  # its note is kept once
                self._cards.add(names)
                notes = card_notes(self._config.getoption("evals_card"), assertion.metrics, judges)
                self.summary.notes.update(dict.fromkeys(notes))
        self._handed_over += 1
        index = 0 if ahead else self._handed_over
        judging = _Judging(assertion, engine, mark, index, asks, recorder)
        return self._shared.start(desk, partial(judging.verdict, cases), ahead=ahead)


@dataclass(frozen=True, slots=True)
class _Judging:
    """The work on one case in the session's thread: judged once, and again where votes decide.

    `index` is its turn among the cases.
    """

    assertion: Assertion
    engine: LocalExecutor
    mark: Mark
    index: int
    asks: Asks
    recorder: Recorder | None
    lacking: list[Verdict] = field(default_factory=list)

    async def verdict(self, cases: Any) -> Verdict:
        """The verdict on the case; that of a vote which a recording lacks, where there is one."""
        votes = None
        row = await judge_case(self.engine, cases, self.index)
        if self.mark.votes > 1 and isinstance(self.assertion.case, CASE_TYPES):
            failed = may_change(self.engine.plan, self.engine.judges, row)
            votes = await vote(partial(self._again, failed), self.mark) if failed else None
        return self.lacking[0] if self.lacking else self._verdict_of(self.engine, row, votes)

    async def _again(self, failed: Sequence[int], number: int) -> bool | None:
        """Whether what failed passes as another sample."""
        failing = [self.assertion.metrics[index] for index in failed]
        fresh = Resampled(self.asks, number * SAMPLES)
        engine = self.engine.also(failing, gateway=fresh)
        row = await judge_case(engine, engine.cases([self.assertion.case]), self.index)
        verdict = self._verdict_of(engine, row)
        if verdict.is_missing:
            self.lacking.append(verdict)
        unscored = any(metric.failure is not None for metric in row.metrics)
        return None if unscored else row.success

    def _verdict_of(
        self, engine: LocalExecutor, row: CaseResult, votes: Votes | None = None
    ) -> Verdict:
        verdict = Verdict(row, engine.plan, engine.judges, votes)
        if self.recorder is None:
            return verdict
        return replace(verdict, recorded=self.recorder.replays, missed=self.recorder.missed)


async def judge_case(engine: LocalExecutor, cases: Any, index: int) -> CaseResult:
    """The row of the only case; questions of cases with a smaller `index` go first."""
    rows: list[CaseResult] = []
    await engine.run(cases, OnRow(rows.append), first=index)
    return rows[0]


@dataclass(slots=True)
class Desk:
    """A gateway of the session, the turns of cases, and which judges are open."""

    asking: Asking
    gateway: Gateway
    turns: anyio.Semaphore
    opened: set[Judge] = field(default_factory=set[Judge])


class SharedRun:
    """Judges cases one by one, many at a time; use an instance for one session.

    `limits` and `store` hold for every case that names none of its own.
    Cases wait for one of `max_in_flight` turns, so that those that began end first; a case that
    somebody waits for goes ahead of them.
    """

    def __init__(self, limits: Limits, store: Store | None) -> None:
        self._limits, self._store = limits, store
        self._desks: list[Desk] = []
        self._engines: OrderedDict[tuple[Any, ...], tuple[LocalExecutor, list[Any]]] = OrderedDict()
        self._judges, self._thread = JudgesOf(), LoopThread("dagengine evaluations")

    @property
    def gateways(self) -> list[Gateway]:
        """The gateways that were opened, with what was asked, spent and still waits."""
        return [desk.gateway for desk in self._desks]

    def desk(self, settings: Settings) -> Desk:
        """The gateway for these settings, opened when they are first seen; raises InputError."""
        asking = Asking.of(settings)
        asking = replace(asking, store=asking.store or self._store)
        if settings.get("limits") is None:
            asking = replace(asking, limits=self._limits)
        desk = next((desk for desk in self._desks if desk.asking == asking), None)
        if desk is None:
            portal = self._thread.portal
            gateway = portal.call(self._thread.keep, asking.open())
            turns = portal.call(anyio.Semaphore, asking.limits.max_in_flight)
            desk = Desk(asking, gateway, turns)
            self._desks.append(desk)
        return desk

    def engine(self, desk: Desk, assertion: Assertion, asks: Asks) -> LocalExecutor:
        """The metrics compiled, their judges open; cases ask through `asks`, the desk's gateway.

        Keys are read and clients made now, in the caller's environment. Raises what `LocalExecutor`
        raises, and JudgeSetupError.
        """
        listed, settings, at_once = assertion.metrics, assertion.settings, assertion.at_once
        own: Settings = {"model": settings.get("model"), "app": settings.get("app")}
        # An attribute that is replaced is a change, one that is changed in place is none.
        parts: list[Any] = [asks]
        for thing in (own["model"], own["app"], *listed):
            parts += [thing, *chain.from_iterable(getattr(thing, "__dict__", {}).items())]
        key = (at_once, *(part if isinstance(part, str) else id(part) for part in parts))
        if key in self._engines:
            self._engines.move_to_end(key)
            return self._engines[key][0]
        engine = LocalExecutor(listed, own, at_once=at_once, gateway=asks, judges=self._judges)
        for judge in engine.asked_judges:
            if judge not in desk.opened:
                self._thread.portal.call(self._thread.keep, open_judges([judge]))
                self._thread.portal.call(desk.gateway.meet, [judge])
                desk.opened.add(judge)
        self._engines[key] = engine, parts  # which stay alive: no other object gets their ids
        if len(self._engines) > _COMPILED:
            self._engines.popitem(last=False)
        return engine

    def start(
        self, desk: Desk, work: Callable[[], Awaitable[Verdict]], *, ahead: bool = False
    ) -> Future[Verdict]:
        """Begin work on a case, when it is its turn; `ahead` of those that wait for theirs."""

        async def in_turn() -> Verdict:
            if ahead:
                return await work()
            async with desk.turns:
                return await work()

        return self._thread.portal.start_task_soon(in_turn)

    def close(self) -> bool:
        """End the thread and what is in progress in it; False when it does not end in time."""
        return self._thread.close()
