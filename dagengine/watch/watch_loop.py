"""A watch at work: traces are read, sampled, judged and recorded, until it ends.

::

    files ──poll──▶ pending ──quiet──▶ sampled? ──▶ engine ──▶ record ──▶ alarms
                                                      ▲                     │
                                                      └── old questions ◀───┘

While the judge does not answer nothing is read or recorded. A case that met this is kept and asked
again, now and then, until the judge is back.

The record is the only truth about what was judged: a process that is started again reads it, gives
every row to the alarms as if it came now, and then goes on with the traces that have no row.
"""

from __future__ import annotations

import dataclasses
import math
import time
from collections import Counter, defaultdict, deque
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import anyio
import anyio.to_thread

from dagengine.data.column_mapping import Item
from dagengine.data.written_lines import JsonLines
from dagengine.errors import InputError
from dagengine.execution.cases_and_rows import OnRow, RunObserver
from dagengine.execution.local_executor import LocalExecutor, Settings
from dagengine.execution.node_run import sole_error
from dagengine.gateway.gateway import Resampled
from dagengine.graph.graph import Metric
from dagengine.reliability.statistics.sums import present
from dagengine.report.page.run_facts import ALERTS
from dagengine.results import CaseResult, OutcomeKind
from dagengine.results.metric_results import GROUPED, WATCHED
from dagengine.results.summary import escalated_line
from dagengine.system.terminal_text import counted
from dagengine.test_case import InvalidCase, LLMTestCase, is_known_field
from dagengine.traces.formats import DAMAGES
from dagengine.traces.spans_to_cases import CaseUnit, parts_in, trace_case
from dagengine.watch.alarm_causes import Again, Alert, ScoreChange, alarm_of
from dagengine.watch.alarms import ALPHA, BASELINE, Alarms, SeriesDeparture
from dagengine.watch.confidence_sequences import Bettor
from dagengine.watch.file_tail import DAMAGED, Folder, Pending
from dagengine.watch.growing import DailyAccount, GrowingRun, OldCases, mend_and_read, score_changes
from dagengine.watch.trace_sampling import PERIODS, JudgedTrace, Sampling, group_digest, trace_share

AGAIN = "again.jsonl"
_AT_ONCE = 64  # traces that are decided before files are read again
_FEW = 10  # old questions that are asked together, without an alarm
_MANY, _MOST = 200, 800  # old questions asked together for the cause of an alarm, and in all
_KINDS = ("judged", "no score", "unasked", "not sampled")  # what becomes of a trace
_PAUSE = 60.0  # seconds between two times that scores are sent, at least
_FIRST_PAUSE, _LONGEST_PAUSE = 5.0, 60.0  # seconds before a judge that does not answer is asked
_LONG = 600.0  # seconds without an answer after which a watch until idle leaves its last cases
_STRIKES = 3  # times that the judge answers others and not a case, until this is the case's row
_SAMPLES = 1024  # sample numbers left for the old questions that are asked at one time
_OFF = (
    "this stream is not exchangeable, so alarms are off: the promise of 5 % would not hold. "
    "Neighbours in the baseline are more alike than chance allows; --groups FIELD counts the cases "
    "of a sender, a conversation or a day as one"
)

Sleep = Callable[[float], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class WatchSettings:
    """How a stream is watched; times are in seconds.

    A trace is ready when its root has ended and nothing came for `quiet`. `again` is the number of
    old questions that are asked again for every new one (0: never, and nothing is known of the
    judge). `baseline` is a number of cases, `rates` are means that are known, by metric. The watch
    ends after `seconds`, or `until_idle`: when nothing is left to do. Else it never ends.
    Cases with an equal value of the field `groups` are a group: alarms count its mean as one
    number. `hour` and `day` are those of the trace.
    """

    sampling: Sampling = field(default_factory=Sampling)
    quiet: float = 10.0
    poll: float = 1.0
    baseline: int = BASELINE
    rates: dict[str, float] = field(default_factory=dict[str, float])
    again: float = 0.05
    seconds: float | None = None
    until_idle: bool = False
    groups: str | None = None


def _trace_of(item: Any) -> str:
    """The id of the trace of a case, also of an `InvalidCase`."""
    case = getattr(item, "test_case", item)
    return str((case.additional_metadata or {}).get("trace_id"))


class Watch(RunObserver):
    """One process that watches; `run` it once, inside of `sole_writer` of the folder."""

    in_order = False

    def __init__(
        self,
        metrics: Sequence[Metric],
        settings: Settings,
        source: Folder,
        how: WatchSettings,
        account: DailyAccount | None = None,
        *,
        say: Callable[[str], None] = print,
        check: Callable[[CaseResult], None] | None = None,
        send: Callable[[], object] | None = None,
        clock: Callable[[], float] = time.monotonic,
        sleep: Sleep = anyio.sleep,
    ) -> None:
        """Raises GraphError or InputError for metrics that cannot be run.

        `check` sees every new row and may raise. `send` writes the scores of the folder to where
        the traces are; it is called in a thread now and then.
        """
        self._metrics, self.engine = metrics, LocalExecutor(metrics, settings)
        if account is not None:
            self.engine.join(account)
        self._source, self._how, self._account = source, how, account
        self._say, self._check, self._send = say, check, send
        self._clock, self._sleep = clock, sleep
        self.metrics = [metric.spec.name for metric in self.engine.plan.metrics]
        unknown = [name for name in how.rates if name not in self.metrics]
        if unknown:
            raise InputError(
                f"--baseline names the metric {unknown[0]!r}; there are {', '.join(self.metrics)}"
            )
        self._pending = Pending()
        self._alarms = Alarms(self.metrics, how.sampling.least, how.baseline, how.rates)
        groups = how.groups
        if groups is not None and groups not in PERIODS and not is_known_field(groups):
            raise InputError(
                f"--groups {groups!r}: name a field of the cases, such as "
                f"additional_metadata.session_id, or {' or '.join(PERIODS)}"
            )
        self._alone = 0  # cases without a group
        self._off: tuple[str, ...] = ()  # metrics without alarms
        self._departures: deque[SeriesDeparture] = deque()  # alarms to be explained
        # Sums for the mean score of the whole traffic: a case counts 1 / its probability (Hájek).
        self._scores, self._weights = defaultdict[str, float](float), defaultdict[str, float](float)
        self._bettors = {name: Bettor() for name in self.metrics}
        self._news = anyio.Event()  # of a new row, or of the end of new cases
        self._over = False  # no new case comes
        self.read = 0  # spans and log records of traces that were not decided before
        self._asked_again = 0
        self.counts = Counter[str]()
        self._waiting: dict[str, int] = {}
        self._open = 0  # cases that are in the engine
        self._ended = anyio.Event()  # of one of them
        self._held: deque[Item] = deque()  # cases to ask again, as the judge did not answer
        self._strikes = Counter[str]()  # by trace
        self._away: datetime | None = None  # since when the judge does not answer
        self.alerts: list[Alert] = []  # of this process

    async def run(self, record: GrowingRun, *, remembers: bool = True) -> None:
        """Watch until the end; without texts in the record it `remembers` no old cases.

        Raises InputError for a record that is damaged, and what judges raise.
        """
        self._record, self._folder = record, record.folder
        self._old = OldCases(self._folder) if remembers and self._how.again else None
        self._known: set[tuple[int, str, str]] = set()
        self._folder.mkdir(parents=True, exist_ok=True)
        alerts = mend_and_read(self._folder / ALERTS, Alert)
        again = mend_and_read(self._folder / AGAIN, Again)
        self._alert_lines = JsonLines(self._folder / ALERTS, emptied=False)
        self._again_lines = JsonLines(self._folder / AGAIN, emptied=False)
        with ExitStack() as stack:
            for file in (self._pending, self._alert_lines, self._again_lines):
                stack.callback(file.close)
            self._replay(alerts, again)
            try:
                with record:
                    await self._work()
            except BaseExceptionGroup as group:
                raise sole_error(group) from None
            self._waiting = {
                "not quiet yet": self._pending.count(ended=True),
                "without the end of a root": self._pending.count(ended=False),
                "late spans left out": self._pending.late,
                "waiting for the judge": len(self._held),
            }

    async def _work(self) -> None:
        async with self.engine.open(), anyio.create_task_group() as beside:
            if self._send is not None:
                beside.start_soon(self._send_scores, self._send)
            async with anyio.create_task_group() as group:
                group.start_soon(self._look_back)
                await self.engine.run(self._cases(), self)
                self._over = True
                self._news.set()
            beside.cancel_scope.cancel()

    async def _send_scores(self, send: Callable[[], object]) -> None:
        """Send at most every minute, and at most a tenth of the time: all rows are read for it."""
        pause = _PAUSE
        while True:
            await self._sleep(pause)
            began = self._clock()
            await anyio.to_thread.run_sync(send)
            pause = max(_PAUSE, 10 * (self._clock() - began))

    # What was before

    def _replay(self, alerts: list[Alert], again: list[Again]) -> None:
        """Go through the record as if its rows came now."""
        self._known.update(alert.key for alert in alerts)
        self._record.take_up(self._count)
        for line in again:
            self._asked_again += 1
            self._compare(line.pairs)
        asked = [line.row + 1 for line in again[-1:]]
        # What is older than a drift, another judge has answered.
        drifts = [alert.row for alert in alerts if alert.cause == "judge"]
        if self._old is not None:
            self._old.skip_to(max([0, *asked, *drifts]))

    def _count(self, row: CaseResult) -> None:
        """Count a row of the record: the end of its trace, and its scores in means and alarms."""
        trace = (row.trace or {}).get("trace_id")
        if trace is not None:
            self._pending.decide(trace)
        judged = JudgedTrace.of(row)
        kinds = {result.outcome for result in row.metrics}
        if OutcomeKind.OVER_BUDGET in kinds:
            self.counts["unasked"] += 1
        else:
            self.counts["judged" if judged and judged.scores else "no score"] += 1
        if judged is None:
            return
        for metric, score in judged.scores.items():
            self._scores[metric] += score / judged.probability
            self._weights[metric] += 1 / judged.probability
            if judged.share < self._how.sampling.least:
                self._bettors[metric].add(score)
        self._departures += [
            departure for departure in self._alarms.add(judged) if departure.key not in self._known
        ]
        if self._alarms.off != self._off:
            self._off = self._alarms.off
            for name in self._off:
                self._say(f"{name}: {_OFF}")

    # New traces

    async def _cases(self) -> AsyncIterator[Item]:
        """The cases to judge, as their traces become ready."""
        began = latest = self._clock()
        end = math.inf if self._how.seconds is None else began + self._how.seconds
        while True:
            async for case in self._held_cases(end):
                yield case
            if self._held:  # the end came first
                return
            read = await anyio.to_thread.run_sync(self._poll)
            now = self._clock()
            latest = now if read else latest
            ready: list[Item] = []
            if not self._source.behind:
                ready = await anyio.to_thread.run_sync(self._ready, now, _AT_ONCE)
            self._open += len(ready)
            for case in ready:
                yield case
            if now >= end:
                return
            if not read and not ready and not self._source.behind:
                quiet = now - latest >= max(self._how.quiet, 2 * self._how.poll)
                left = self._pending.count(ended=True) + self._open + len(self._held)
                if self._how.until_idle and quiet and not left:
                    return
                await self._sleep(self._how.poll)

    async def _held_cases(self, end: float) -> AsyncIterator[Item]:
        """The cases that the judge did not answer: now and then one, and all once it has answered.

        Some are left at the `end`, and after `_LONG` if the watch is to end when it is idle.
        """
        pause, failed, began = _FIRST_PAUSE, set[str](), self._clock()
        while self._held and self._clock() < end:
            await self._sleep(min(pause, end - self._clock()))
            pause = min(2 * pause, _LONGEST_PAUSE)
            self.engine.gateway.run.try_again()
            held, self._held = self._held, deque()
            # All have failed. If it is the cases that no judge could answer, a new one can tell.
            if failed.issuperset(map(_trace_of, held)):
                await anyio.to_thread.run_sync(self._poll)
                new = await anyio.to_thread.run_sync(self._ready, self._clock(), 1)
                held.extendleft(new)
                if self._how.until_idle and not new and self._clock() - began > _LONG:
                    self._held = held
                    return
            case, judged = held.popleft(), self.counts["judged"]
            self._open += 1
            yield case
            while self._open:
                await self._ended.wait()
            # The case is held again if it failed. Then it is the last of all to try again.
            failed.update(map(_trace_of, self._held))
            self._held.extendleft(reversed(held))
            if self.counts["judged"] > judged or not self._held:
                self._strikes.update(failed)
                failed, began = set(), self._clock()
                self._is_back()
                held, self._held = self._held, deque()
                self._open += len(held)
                for case in held:
                    yield case

    def _is_back(self) -> None:
        if self._away is not None:
            self._say("the judge answers again")
            self._away = None

    def _must_ask_again(self, row: CaseResult) -> bool:
        """Return whether to ask a case again: its row only says that the judge does not answer."""
        failures = present(result.failure for result in row.metrics)
        why = next((failure.message for failure in failures if failure.lasting), None)
        if why is None:
            return False
        if self._away is None:
            self._away = datetime.now(UTC)
            self._say(f"{self._status()}; nothing is read until it does: {why}")
        return self._strikes[_trace_of(row.test_case)] < _STRIKES

    def _status(self) -> str:
        return f"the judge does not answer since {self._away:%Y-%m-%d %H:%M:%S} UTC"

    def _poll(self) -> int:
        count = self._pending.add(self._source.poll(), self._clock())
        self.read += count
        return count

    def _ready(self, now: float, most: int) -> list[Item]:
        """The cases of some traces that are ready and sampled."""
        cases: list[Item] = []
        sampling = self._how.sampling
        for trace, records in self._pending.take(now - self._how.quiet, most):
            (item,) = map(trace_case, parts_in(records, CaseUnit()))
            case = item.test_case if isinstance(item, InvalidCase) else item
            if not isinstance(case, LLMTestCase):  # a trace that is refused has a row, too
                case = LLMTestCase(input="", additional_metadata={"trace_id": trace})
            stratum = sampling.stratum(case)
            probability = sampling.probability(stratum)
            # By the name of the trace and not by chance: a restart samples the same traces.
            if trace_share(trace) >= probability:
                self.counts["not sampled"] += 1
                continue
            values = (stratum, repr(probability), str(len(case.input)))
            metadata = (case.additional_metadata or {}) | dict(zip(WATCHED, values, strict=True))
            if self._how.groups is not None:
                group = group_digest(case, self._how.groups)
                self._alone += group is None
                metadata |= {} if group is None else {GROUPED: group}
            case = case.model_copy(update={"additional_metadata": metadata})
            if isinstance(item, InvalidCase):
                cases.append(dataclasses.replace(item, test_case=case))
            else:
                cases.append(case)
        return cases

    def row_finished(self, row: CaseResult) -> None:
        """Write a row at once: a stream has no order but that in which rows are finished."""
        if self._check is not None:
            self._check(row)
        self._open -= 1
        self._ended.set()
        self._ended = anyio.Event()
        if self._must_ask_again(row):
            self._held.append(row.test_case)
            return
        row = dataclasses.replace(row, index=self._record.count)
        self._record.add(row)
        if self._account is not None:
            self._account.save()
        self._count(row)
        self._news.set()

    # Old questions

    async def _look_back(self) -> None:
        """Ask old questions again, a few now and then and many at an alarm, and name causes."""
        while True:
            while self._departures:
                departure = self._departures.popleft()
                pairs: list[ScoreChange] = []
                while True:
                    more = await self._ask_again(_MANY, departure.latest[0].row)
                    pairs += [pair for pair in more if pair.metric == departure.metric]
                    alert = alarm_of(departure, pairs)
                    # Until the cause is clear, or nothing is left to ask, or enough was asked.
                    if alert.cause != "not known" or not more or len(pairs) >= _MOST:
                        break
                self._raise(alert)
            # An alarm that comes meanwhile goes first.
            while self.counts["judged"] * self._how.again >= self._asked_again + _FEW:
                if self._departures or not await self._ask_again(_FEW):
                    break
            if not self._departures:
                if self._over:
                    return
                self._news = anyio.Event()
                await self._news.wait()

    async def _ask_again(self, most: int, before: float = math.inf) -> list[ScoreChange]:
        """Ask the next questions of rows `before` one; write and return the changes of scores."""
        if self._old is None:
            return []
        asked = self._record.count
        try:
            old = list(self._old.take(most, before))
        except DAMAGES as error:
            raise InputError(f"{self._folder} has a damaged case or row: {error!s:.200}") from None
        asks = Resampled(self.engine.gateway, (asked + 1) * _SAMPLES)
        engine = self.engine.also(self._metrics, gateway=asks)
        # What all cases have in common was asked once and is not the judge's opinion of a case.
        engine.preload(await self.engine.constants())
        while True:
            rows: list[CaseResult] = []
            await engine.run([case for _, case in old], OnRow(rows.append))
            if self._account is not None:
                self._account.save()
            if not any(map(self._must_ask_again, rows)):
                break
            if self._over:  # nobody waits until the judge is back
                return []
            await self._sleep(_FIRST_PAUSE)
            self.engine.gateway.run.try_again()
        self._is_back()
        changes: list[ScoreChange] = []
        for (row, _), new in zip(old, rows, strict=True):
            pairs = score_changes(row, new, asked)
            self._again_lines.write(dataclasses.asdict(Again(row.index, pairs)))
            self._asked_again += 1
            self._compare(pairs)
            changes += pairs
        return changes

    def _compare(self, pairs: Iterable[ScoreChange]) -> None:
        """Raise an alarm if the changes show that the judge is not as it was."""
        for pair in pairs:
            drift = self._alarms.add_change(pair.metric, pair.change, pair.row)
            if drift is not None:
                change, count = drift
                self._raise(Alert(pair.asked, pair.metric, group="judge", before=0.0, now=change,
                                  cases=0, cause="judge", again=count))  # fmt: skip

    def _raise(self, alert: Alert) -> None:
        """Write and say an alarm, unless it is in the record."""
        if alert.key in self._known:
            return
        self._known.add(alert.key)
        self.alerts.append(alert)
        moment = {"time": datetime.now(UTC).isoformat()}
        self._alert_lines.write(moment | dataclasses.asdict(alert))
        self._say(str(alert))
        if alert.cause == "judge" and self._old is not None:
            self._old.skip_to(self._record.count)  # what is older, another judge has answered

    # In the end

    def lines(self) -> list[str]:
        """Lines on the traces, and the means of the whole traffic."""
        counts = {name: self.counts[name] for name in _KINDS} | self._waiting
        parts = [f"{count} {what}" for what, count in counts.items() if count]
        lines = ["traces: " + (", ".join(parts) or "none")]
        if self._away:
            lines.append(self._status())
        for name in self.metrics:
            if self._weights[name]:
                mean = self._scores[name] / self._weights[name]
                low, high = self._bettors[name].interval(ALPHA)
                lines.append(
                    f"{name}: mean {mean:.3f} of the traffic ({low:.3f} to {high:.3f} at all times)"
                )
        lines += [f"{name}: {_OFF}" for name in self._off]
        if self._alone:
            cases = counted(self._alone, "case")
            lines.append(f"{cases} without {self._how.groups}: each is alone")
        lines += filter(None, map(escalated_line, self._record.figures().summary))
        for flaw, count in self._source.flaws.items():
            first = self._source.first[flaw]
            noun = "record" if flaw == DAMAGED else "line"
            lines.append(f"{counted(count, noun)} left out: {flaw} (first in {first})")
        return lines
