"""A watch at work: traces are read, sampled, judged and recorded, until it ends.

::

    files ──poll──▶ pending ──quiet──▶ sampled? ──▶ engine ──▶ record ──▶ alarms
                                                      ▲                     │
                                                      └── old questions ◀───┘

The record is the only truth about what was judged: a process that is started again reads it, gives
every row to the alarms as if it came now, and then goes on with the traces that have no row.
"""

from __future__ import annotations

import dataclasses
import math
import time
from collections import Counter, deque
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from typing import Any

import anyio
import anyio.to_thread

from dagengine.data.converter import Item
from dagengine.data.json_lines import JsonLines, complete_lines, value_of
from dagengine.errors import InputError
from dagengine.execution.engine import Engine, Settings
from dagengine.execution.executor import OnRow, RunObserver
from dagengine.execution.node_run import only
from dagengine.gateway.gateway import Resampled
from dagengine.graph.graph import Metric
from dagengine.judges import as_judge
from dagengine.question import Judge
from dagengine.regular_files import is_there
from dagengine.report.page.days import ALERTS
from dagengine.results import CaseResult, OutcomeKind
from dagengine.results.rows import WATCHED
from dagengine.terminal import counted
from dagengine.test_case import InvalidCase, LLMTestCase
from dagengine.traces.mapping import Unit, cases_of
from dagengine.watch.again import OldCases, pairs_of
from dagengine.watch.alarms import ALPHA, BASELINE, Alarms
from dagengine.watch.budget import DailyAccount
from dagengine.watch.causes import explained
from dagengine.watch.growing import GrowingRun, cut
from dagengine.watch.pending import Pending
from dagengine.watch.sampling import Sampling, share_of
from dagengine.watch.sequences import Bettor
from dagengine.watch.tailing import Folder
from dagengine.watch.values import Alert, Departure, Judged, Pair, TrafficMean

AGAIN = "again.jsonl"
_AT_ONCE = 64  # traces that are decided before files are read again
_FEW = 10  # old questions that are asked together
_MANY, _MOST = 200, 800  # old questions for the cause of an alarm, more while it is not clear
_KINDS = ("judged", "no score", "unasked", "not sampled")  # what becomes of a trace
_PAUSE = 60.0  # seconds between two times that scores are sent, at least
_SAMPLES = 1024  # between the samples of two times that an old question is asked again

Sleep = Callable[[float], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class WatchSettings:
    """How a stream is watched; times are in seconds.

    A trace is ready when its root has ended and nothing came for `quiet`. `again` is the number of
    old questions that are asked again for every new one (0: never, and nothing is known of the
    judge). `baseline` is a number of cases, `rates` are means that are known, by metric. The watch
    ends after `seconds`, or `until_idle`: when nothing is left to do. Else it never ends.
    """

    sampling: Sampling = field(default_factory=Sampling)
    quiet: float = 10.0
    poll: float = 1.0
    baseline: int = BASELINE
    rates: dict[str, float] = field(default_factory=dict[str, float])
    again: float = 0.05
    seconds: float | None = None
    until_idle: bool = False


class Watch(RunObserver):
    """One process that watches; `run` it once, inside of `sole_writer` of the folder."""

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
        judges: dict[int, Judge] = {}

        def judge_of(model: Any) -> Judge:  # old questions go to the same judges
            if id(model) not in judges:
                judges[id(model)] = as_judge(model)
            return judges[id(model)]

        self._engine_of = partial(Engine, metrics, settings, judge_of=judge_of)
        self.engine = self._engine_of()
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
        self._departures: deque[Departure] = deque()
        self._means = {name: TrafficMean() for name in self.metrics}
        self._bettors = {name: Bettor() for name in self.metrics}
        self._news = anyio.Event()
        self._over = False
        self._read = 0
        self._asked_again = 0
        self.counts = Counter[str]()
        self._waiting: dict[str, int] = {}
        self.alerts: list[Alert] = []  # of this process

    async def run(self, record: GrowingRun, *, remembers: bool = True) -> None:
        """Watch until the end; without texts in the record it `remembers` no old cases.

        Raises InputError for a record that is damaged, and what judges raise.
        """
        self._record, self._folder = record, record.folder
        self._old = OldCases(self._folder) if remembers and self._how.again else None
        self._known: set[tuple[int, str, str]] = set()
        self._folder.mkdir(parents=True, exist_ok=True)
        earlier = []
        for path in (self._folder / ALERTS, self._folder / AGAIN):
            cut(path, lambda line, place: True)  # half a line that a kill has left
            lines = complete_lines(path, whole=True) if is_there(path) else ()
            earlier.append([value_of(line) for _, line in lines])
        self._alert_lines = JsonLines(self._folder / ALERTS, emptied=False)
        self._again_lines = JsonLines(self._folder / AGAIN, emptied=False)
        with ExitStack() as stack:
            for file in (self._pending, self._alert_lines, self._again_lines):
                stack.callback(file.close)
            self._take_up(*earlier)
            try:
                with record:
                    await self._work()
            except BaseExceptionGroup as group:
                raise only(group) from None
            self._waiting = {
                "not quiet yet": self._pending.count(ended=True),
                "without the end of a root": self._pending.count(ended=False),
                "late spans left out": self._pending.late,
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

    def _take_up(self, alerts: list[dict[str, Any]], again: list[dict[str, Any]]) -> None:
        """Go through the record as if its rows came now."""
        drifts: list[int] = []
        for line in alerts:
            alert = Alert.of({name: value for name, value in line.items() if name != "time"})
            self._known.add(alert.key)
            drifts += [alert.row] if alert.cause == "judge" else []
        self._record.take_up(self._take)
        last = -1
        for line in again:
            last = line["row"]
            self._asked_again += 1
            self._compare([Pair(**pair) for pair in line["pairs"]])
        if self._old is not None:
            self._old.skip_to(max([last + 1, *drifts]))

    def _take(self, row: CaseResult) -> None:
        """Let a row that is in the record count."""
        trace = (row.trace or {}).get("trace_id")
        if trace is not None:
            self._pending.decide(trace)
        judged = Judged.of(row)
        kinds = {result.outcome for result in row.metrics}
        if OutcomeKind.OVER_BUDGET in kinds:
            self.counts["unasked"] += 1
        else:
            self.counts["judged" if judged and judged.scores else "no score"] += 1
        if judged is None:
            return
        for metric, score in judged.scores.items():
            self._means[metric].add(score, judged.probability)
            if judged.share < self._how.sampling.least:
                self._bettors[metric].add(score)
        self._departures += [
            departure for departure in self._alarms.add(judged) if departure.key not in self._known
        ]

    # New traces

    async def _cases(self) -> AsyncIterator[Item]:
        """The cases to judge, as their traces become ready."""
        began = latest = self._clock()
        while True:
            read = await anyio.to_thread.run_sync(self._poll)
            now = self._clock()
            latest = now if read else latest
            ready: list[Item] = []
            if not self._source.behind:
                ready = await anyio.to_thread.run_sync(self._ready, now)
            for case in ready:
                yield case
            if self._how.seconds is not None and now - began >= self._how.seconds:
                return
            if not read and not ready and not self._source.behind:
                quiet = now - latest >= max(self._how.quiet, 2 * self._how.poll)
                if self._how.until_idle and quiet and not self._pending.count(ended=True):
                    return
                await self._sleep(self._how.poll)

    def _poll(self) -> int:
        before = self._read
        self._read += self._pending.add(self._source.poll(), self._clock())
        return self._read - before

    def _ready(self, now: float) -> list[Item]:
        """The cases of some traces that are ready and sampled."""
        cases: list[Item] = []
        sampling = self._how.sampling
        for trace, records in self._pending.take(now - self._how.quiet, _AT_ONCE):
            (item,) = cases_of(records, Unit())
            case = item.test_case if isinstance(item, InvalidCase) else item
            if not isinstance(case, LLMTestCase):  # a trace that is refused has a row, too
                case = LLMTestCase(input="", additional_metadata={"trace_id": trace})
            stratum = sampling.stratum(case)
            probability = sampling.probability(stratum)
            # By the name of the trace and not by chance: a restart samples the same traces.
            if share_of(trace) >= probability:
                self.counts["not sampled"] += 1
                continue
            values = (stratum, repr(probability), str(len(case.input)))
            ids = (case.additional_metadata or {}) | dict(zip(WATCHED, values, strict=True))
            case = case.model_copy(update={"additional_metadata": ids})
            if isinstance(item, InvalidCase):
                cases.append(dataclasses.replace(item, test_case=case))
            else:
                cases.append(case)
        return cases

    def finished(self, row: CaseResult) -> None:
        """Write a row at once: a stream has no order but that in which rows are finished."""
        if self._check is not None:
            self._check(row)
        row = dataclasses.replace(row, index=self._record.count)
        self._record.add(row)
        if self._account is not None:
            self._account.save()
        self._take(row)
        self._news.set()

    # Old questions

    async def _look_back(self) -> None:
        """Ask old questions again, a few now and then and many at an alarm, and name causes."""
        while True:
            while self._departures:
                departure = self._departures.popleft()
                pairs: list[Pair] = []
                while True:
                    more = await self._ask_again(_MANY, departure.latest[0].row)
                    pairs += [pair for pair in more if pair.metric == departure.metric]
                    alert = explained(departure, pairs)
                    # Until the cause is clear, or nothing is left to ask, or enough was asked.
                    if alert.cause != "not known" or not more or len(pairs) >= _MOST:
                        break
                self._raise(alert)
            while self.counts["judged"] * self._how.again >= self._asked_again + _FEW:
                if self._departures or not await self._ask_again(_FEW):
                    break
            if self._departures:
                continue
            if self._over:
                return
            self._news = anyio.Event()
            await self._news.wait()

    async def _ask_again(self, most: int, before: float = math.inf) -> list[Pair]:
        """Ask the next old questions; their changes, which are in the folder then."""
        if self._old is None:
            return []
        asked = self._record.count
        old = list(self._old.take(most, before))
        rows: list[CaseResult] = []
        asks = Resampled(self.engine.gateway, (asked + 1) * _SAMPLES)
        engine = self._engine_of(gateway=asks)
        # What all cases have in common was asked once and is not the judge's opinion of a case.
        engine.preload(await self.engine.constants())
        await engine.run([case for _, case in old], OnRow(rows.append))
        if self._account is not None:
            self._account.save()
        changes: list[Pair] = []
        for (row, _), new in zip(old, rows, strict=True):
            pairs = pairs_of(row, new, asked)
            line = {"row": row.index, "pairs": [dataclasses.asdict(pair) for pair in pairs]}
            self._again_lines.write(line)
            self._asked_again += 1
            self._compare(pairs)
            changes += pairs
        return changes

    def _compare(self, pairs: Iterable[Pair]) -> None:
        """Raise an alarm if the changes show that the judge is not as it was."""
        for pair in pairs:
            drift = self._alarms.add_change(pair.metric, pair.change, pair.row)
            if drift is not None:
                change, count = drift
                self._raise(
                    Alert(pair.asked, pair.metric, "judge", 0.0, change, 0, "judge", again=count)
                )

    def _raise(self, alert: Alert) -> None:
        if alert.key in self._known:
            return
        self._known.add(alert.key)
        self.alerts.append(alert)
        self._alert_lines.write({"time": datetime.now(UTC).isoformat(), **alert.as_dict()})
        self._say(str(alert))
        if alert.cause == "judge" and self._old is not None:
            self._old.skip_to(self._record.count)  # what is older, another judge has answered

    # In the end

    @property
    def read(self) -> int:
        """How many spans and log records belong to traces that were not decided before."""
        return self._read

    def lines(self) -> list[str]:
        """What became of the traces, and the means of the whole traffic."""
        counts = {name: self.counts[name] for name in _KINDS} | self._waiting
        parts = [f"{count} {what}" for what, count in counts.items() if count]
        lines = ["traces: " + (", ".join(parts) or "none")]
        for name in self.metrics:
            mean = self._means[name].mean
            if mean is not None:
                low, high = self._bettors[name].interval(ALPHA)
                lines.append(
                    f"{name}: mean {mean:.3f} of the traffic ({low:.3f} to {high:.3f} at all times)"
                )
        for flaw, count in self._source.flaws.items():
            first = self._source.first[flaw]
            lines.append(f"{counted(count, 'line')} left out: {flaw} (first in {first})")
        return lines
