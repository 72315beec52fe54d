"""One run: compiled metrics, their judges, one gateway, and the cases that go through."""

from __future__ import annotations

import gc
import itertools
import os
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager, nullcontext
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, TypedDict

from dagengine.compiler.execution_plan import Plan, compile_metrics
from dagengine.data.app import App, as_app
from dagengine.data.cases import AsyncCases, Cases, read_cases
from dagengine.data.column_mapping import Item
from dagengine.data.golden import CASE_OF, GOLDEN_TYPES
from dagengine.data.row_readers import CHECKED
from dagengine.errors import GraphError, InputError, Problem
from dagengine.execution.cases_and_rows import RunObserver, Source
from dagengine.execution.interrupts import JudgesOf
from dagengine.execution.node_run import sole_error
from dagengine.execution.run_once import Outcome, RunOnce
from dagengine.execution.runner import Runner
from dagengine.gateway.budget import Account
from dagengine.gateway.gateway import Asks, Gateway
from dagengine.gateway.inner_metrics import current_host, joined_threads
from dagengine.gateway.otel_spans import NO_SPANS, NoSpans, Spans
from dagengine.gateway.rate_limiter import Lease
from dagengine.gateway.retry_pipeline import Once, Sink
from dagengine.graph.first_questions import example_question
from dagengine.graph.graph import Metric
from dagengine.graph.node import AskingNode
from dagengine.limits import DEFAULT_LIMITS, Limits
from dagengine.prompts.decisions import writer_of
from dagengine.prompts.evidence import as_text
from dagengine.question import Judge, Question, SizedJudge, judge_name
from dagengine.results import Spent, Totals, Waiting
from dagengine.store.answer_journal import Store, as_store
from dagengine.system.terminal_text import text_if
from dagengine.system.threads import in_daemon_thread
from dagengine.test_case import CASE_TYPES, case_label, has_field, read_field
from dagengine.unknown_arguments import check_names, names_of

AnyApp = App | Callable[[Any], Any]


class Settings(TypedDict, total=False):
    """How a run is made; every entry may be left out.

    `model` is the judge of every metric that names none (see `as_judge`). `app` completes
    goldens (see `App`). `limits` is a `Limits`. `store` is a file of answers (a path or a
    `Store`): what it holds is not asked again, what is asked it will hold. `on_attempt` gets every
    call to a judge, failed ones included. What it raises is raised once, after the last row. The
    attribute `result` of the exception is what `evaluate` would have returned. `tracer` is an
    OpenTelemetry tracer: there is a span for every case, node and call.
    """

    model: Any
    app: AnyApp | None
    limits: Limits | None
    store: Store | str | os.PathLike[str] | None
    on_attempt: Sink | None
    tracer: Any


def check_settings(door: Callable[..., Any], settings: Iterable[str]) -> None:
    """Raise TypeError for a name that a function taking `**settings` does not have."""
    names = names_of(door, Settings.__annotations__)
    check_names(f"{door.__name__}() has no argument", settings, names)


@dataclass(frozen=True, slots=True)
class Asking:
    """What a gateway is made of, by the settings of a run.

    `account` and `leased` are what it has in common with other processes of the run. A judge that
    is given up is tried again if it `returns`.
    """

    limits: Limits
    store: Store | None = None
    sink: Sink | None = None
    spans: NoSpans = NO_SPANS
    account: Account | None = None
    leased: Lease | None = None
    returns: bool = False
    once: Once | None = None

    @classmethod
    def of(cls, settings: Settings, *, at_once: bool = True) -> Asking:
        """Raises InputError for a value of the wrong kind."""
        limits, store = _limits_of(settings.get("limits")), settings.get("store")
        sink, tracer = settings.get("on_attempt"), settings.get("tracer")
        if sink is not None and not callable(sink):
            raise InputError(f"on_attempt must be a function of one Attempt, got {sink!r:.80}")
        if tracer is not None and not callable(getattr(tracer, "start_span", None)):
            raise InputError(f"tracer must be an OpenTelemetry tracer, got {tracer!r:.80}")
        return cls(
            limits if at_once else replace(limits, max_in_flight=1),
            None if store is None else as_store(store),
            sink,
            Spans(tracer) if tracer is not None else NO_SPANS,
        )

    @asynccontextmanager
    async def open(self) -> AsyncIterator[Gateway]:
        """The gateway, its store open; raises InputError when the store fails, also later."""
        async with self.store.open() if self.store else nullcontext() as store:
            yield Gateway(
                self.limits, self.sink, store, self.spans, self.account, self.leased,
                returns=self.returns, once=self.once,
            )  # fmt: skip


def _limits_of(limits: object) -> Limits:
    if limits is None or isinstance(limits, Limits):
        return limits or DEFAULT_LIMITS
    names = limits if isinstance(limits, Mapping) else ("max_calls",)
    shown = ", ".join(f"{name}=…" for name in names)
    raise InputError(
        f"limits must be a Limits object, for instance Limits({shown}), got {limits!r:.80}"
    )


def _refuse_own(settings: Settings) -> None:
    """Raise InputError for what an evaluation inside a node cannot have for itself."""
    own = ("limits", "store", "on_attempt", "tracer")
    refused = [name for name in own if settings.get(name) is not None]
    if refused:
        raise InputError(
            f"this code is part of an outer run and uses that run's {refused[0]}: leave out "
            f"{refused[0]}= here, and give it to the run"
        )


class Figures:
    """The figures of a run at any time, from any thread."""

    @property
    def gateway(self) -> Asks:
        """The way of its questions, and of those of other metrics while it is open."""
        raise NotImplementedError

    @property
    def totals(self) -> Totals:
        """The sums of what was asked and used so far."""
        return self.gateway.run.totals

    @property
    def spent(self) -> tuple[Spent, ...]:
        """The same by metric, node and judge."""
        return self.gateway.run.spent

    @property
    def waiting(self) -> Sequence[Waiting]:
        """The questions that wait to be asked again at this moment."""
        return self.gateway.run.waiting

    @property
    def limits(self) -> Limits:
        """The limits of the whole run; those of an engine may be set: of money, calls and cases."""
        return self.gateway.run.limits

    @limits.setter
    def limits(self, limits: Limits) -> None:
        self.gateway.run.change_limits(limits)


class LocalExecutor(Figures):
    """Metrics ready to judge cases; inside `open()` any number of sources may be run.

    What is asked is remembered over all of them, and one set of limits holds for all.
    Raises GraphError or InputError, before the first call, for what cannot work.
    """

    def __init__(
        self,
        metrics: Sequence[Metric] | Metric,
        settings: Settings,
        *,
        at_once: bool = True,
        gateway: Asks | None = None,
        judges: JudgesOf | None = None,
        returns: bool = False,
    ) -> None:
        """Without `at_once` one node runs at a time, and asks one question at a time.

        With a `gateway` it asks through this one, which is open and whose limits, store and
        ledger hold. `judges` are those of others who ask through it. A judge that is given up is
        tried again if it `returns`.
        """
        self.plan = compile_metrics(metrics)
        self._host = current_host() if gateway is None else None
        if self._host is not None:
            _refuse_own(settings)
        self._settings, self._judge_of = settings, judges or JudgesOf()
        model = settings.get("model")
        if model is None and self._host is not None:
            model = self._host.judge
        self._app = as_app(settings.get("app"))
        self.judges = [self._judge_of(model if own is None else own) for own in self.plan.models]
        check_judges(self.plan, self.judges)
        self._asking = replace(
            Asking.of(settings, at_once=at_once), returns=returns, once=self._judge_of.once
        )
        self._at_once = at_once
        self._lent = gateway or self._host
        self._gateway: Asks = self._lent or Gateway(self._asking.limits)
        self._constants = RunOnce(self.plan)
        self._sink_error: Exception | None = None

    @property
    def gateway(self) -> Asks:
        return self._gateway

    @property
    def store(self) -> str | None:
        """The file of answers, if there is one."""
        store = self._asking.store
        return None if store is None else str(store.path)

    @property
    def waits_for_cases(self) -> bool:
        """Cases may come from an async source."""
        return True

    @property
    def asked_judges(self) -> list[Judge]:
        """The judges that the run may call, which are none in a replay."""
        store = self._asking.store
        if self._gateway.replays or (store is not None and store.replay):
            return []
        judges = [self.judges[index] for index in self.plan.asked]
        writers = (writer for writer in map(writer_of, judges) if writer is not None)
        return list(dict.fromkeys([*judges, *writers]))

    def also(
        self, metrics: Sequence[Metric] | Metric, *, gateway: Asks | None = None
    ) -> LocalExecutor:
        """Other metrics in the same run: its gateway, or what stands before it, and its judges."""
        return LocalExecutor(
            metrics,
            {"model": self._settings.get("model"), "app": self._settings.get("app")},
            at_once=self._at_once,
            gateway=gateway or self._gateway,
            judges=self._judge_of,
        )

    @contextmanager
    def at_work(self) -> Iterator[None]:
        """Change the process as it has to be while cases are judged."""
        foreign = any(unit.foreign for unit in self.plan.units)
        with rare_collections(), joined_threads() if foreign else nullcontext():
            yield

    @asynccontextmanager
    async def open(self) -> AsyncIterator[None]:
        """Open the store and the judges' sessions; inside a node, join the node's run.

        Raises InputError, also later, when the store fails, JudgeSetupError when a judge
        cannot work at all; at the end, once, what `on_attempt` raised.
        """
        try:
            async with self._open_gateway() as self._gateway:
                needed = self.asked_judges
                async with self._judge_of.open(needed):
                    await self._gateway.run.meet(needed)
                    yield
        except BaseExceptionGroup as group:
            raise sole_error(group) from None

    @contextmanager
    def keeping(self, result: Callable[[], Any]) -> Iterator[None]:
        """Let an error of `on_attempt`, which comes after all rows, carry them as `result`."""
        try:
            yield
        except Exception as error:
            if error is self._sink_error:
                error.add_note("on_attempt raised this; every row is in this error's `result`")
                error.__dict__["result"] = result()
            raise

    @asynccontextmanager
    async def _open_gateway(self) -> AsyncIterator[Asks]:
        """The gateway of the run that this one is part of, or one of its own."""
        if self._lent is not None:
            if self._host is not None:
                self._host.require_open()
            yield self._lent
            return
        async with self._asking.open() as gateway:
            yield gateway
        self._sink_error = gateway.sink_error
        if self._sink_error is not None:
            raise self._sink_error

    async def constants(self) -> dict[int, Outcome]:
        """Values of nodes that no case reaches, asked now, by the number of their unit.

        For `preload` in an engine of the same metrics in another process. Nothing in a replay:
        every process reads the same answers from the file.
        """
        if self._gateway.replays:
            return {}
        with self.at_work():
            return await self._constants.every(self.judges, self._gateway)

    def preload(self, constants: Mapping[int, Outcome]) -> None:
        """Take over what `constants` gave in another process."""
        self._constants.preload(constants)

    def join(self, account: Account, leased: Lease | None = None) -> None:
        """Have the account, and the leases, of several processes; before `open`."""
        self._asking = replace(self._asking, account=account, leased=leased)

    async def judge(self, cases: Any, observer: RunObserver, first: int = 0, step: int = 1) -> None:
        """Open, judge every case, and close; raises what `open` and `run` raise.

        Inside a node it works on the event loop of the node's run, from whatever loop.
        """

        async def work() -> None:
            async with self.open():
                with self.at_work():
                    await self.run(cases, observer, first, step)
                    await observer.all_judged()

        if self._host is None or self._host.loop.is_here:
            await work()
        else:
            await in_daemon_thread(partial(self._host.call, work))

    async def run(self, cases: Any, observer: RunObserver, first: int = 0, step: int = 1) -> None:
        """Judge every case; rows come in the order of the cases, numbered from `first` on
        in steps of `step`.

        Raises InputError when the cases cannot have what is read, or when their source breaks
        off: what came before is handed out first.
        """
        with self.at_work():
            await self.serve(cases, observer, self._gateway, first, step)

    async def serve(
        self, cases: Any, observer: RunObserver, gateway: Asks, first: int = 0, step: int = 1
    ) -> None:
        """`run` for any source, which asks through a gateway."""
        runner = Runner(
            self.plan, self.judges, gateway, observer, self._app,
            spans=gateway.run.spans, constants=self._constants, first=first,
            step=step, at_once=self._at_once,
        )  # fmt: skip
        try:
            await runner.run(cases)
        except BaseExceptionGroup as group:
            raise sole_error(group) from None

    def cases(self, source: Source) -> Cases | AsyncCases:
        """The cases of a source; raises InputError if they cannot be judged."""
        cases = cases_of(source, with_goldens=self._app is not None)
        if isinstance(cases, Cases):
            items = cases.check()
            check_cases(self.plan, items)
            some = any(isinstance(item, GOLDEN_TYPES) for item in items)
            if some and self._app is None:
                raise InputError("goldens have no output: give app=, the function that produces it")
            if items and not some and self._app is not None:
                raise InputError(
                    "app= is for goldens, but the cases are test cases; leave out app="
                )
            _make_room(self.plan, self.asked_judges, items)
        return cases


def cases_of(source: Any, *, with_goldens: bool) -> Cases | AsyncCases:
    """The cases of a source, or a single one; of a data set also its goldens, for an app."""
    if isinstance(source, (*CASE_TYPES, *GOLDEN_TYPES)):
        source = [source]
    first = source[0] if isinstance(source, list | tuple) and source else source
    if isinstance(first, Metric):  # both arguments were swapped
        raise InputError(
            f"{first!r:.60} is a metric, not a test case: test cases come first, then metrics"
        )
    goldens = getattr(source, "goldens", None)
    if goldens and (with_goldens or not len(source)):
        source = [*source, *goldens]
    cases: Cases | AsyncCases = read_cases(source)
    return cases


def check_cases(plan: Plan, items: Sequence[Item]) -> None:
    """Raise InputError for a field that no case's type has, and for what `case_problems` finds."""
    kinds: set[Any] = {CASE_OF.get(kind, kind) for kind in set(map(type, items))}
    for unit in plan.units:
        for path in unit.reads:
            if kinds and not any(has_field(kind, path) for kind in kinds):
                names = " and ".join(sorted(kind.__name__ for kind in kinds))
                raise InputError(
                    f"node {unit.name!r} reads `{path}`, but the test cases "
                    f"({items[0].name or 'case 0'}, …) are {names}, which have no such field"
                )
    for label, problem in case_problems(plan, items):
        if problem.severity == "error":
            hint = text_if(problem.hint, f"; {problem.hint}")
            raise InputError(f"{label}: {problem.where}: {problem.message}{hint}")


def case_problems(plan: Plan, items: Iterable[Any]) -> Iterator[tuple[str, Problem]]:
    """The problems that metrics find in the first 1,000 cases, each with the name of its case."""
    finders = dict.fromkeys(scope.spec.case_problems for scope in plan.scopes)
    for find in filter(None, finders):
        for index, item in enumerate(itertools.islice(items, CHECKED)):
            for problem in find(item):
                yield case_label(item, index), problem


def _make_room(plan: Plan, judges: Sequence[Judge], items: Sequence[Item]) -> None:
    """Say how long prompts will be to judges that load their models for the run."""
    rooms = [judge.make_room for judge in judges if isinstance(judge, SizedJudge)]
    if rooms:
        cases = [item for item in items if isinstance(item, CASE_TYPES)]
        reads = {unit.reads for unit in plan.units if unit.node.asks}
        material = 0  # bytes of what the longest prompt shows of its case
        for case, paths in itertools.product(cases, reads):
            texts = [as_text(v) for path in paths if (v := read_field(case, path)) is not None]
            material = max(material, len("".join(texts).encode(errors="surrogatepass")))
        for make_room in rooms:
            make_room(material)


def check_judges(plan: Plan, judges: Sequence[Judge]) -> None:
    """Raise GraphError when a judge cannot do what a node asks of it."""
    problems: list[Problem] = []

    def add(where: str, judge: Judge, why: str | None) -> None:
        hint = "use another judge for this metric, or change the node"
        if judge.capabilities.decides:
            hint = (
                "give the judge a writer (DecisionJudge(…, writer='gpt-4o'), or by name "
                "decisions/MODEL+gpt-4o), or use another judge"
            )
        if why is not None:
            problems.append(Problem("judge-capability", where, why, hint))

    for unit in plan.units:
        if isinstance(unit.node, AskingNode):
            for index in unit.judges:
                judge = judges[index]
                add(f"node {unit.name!r}", judge, _refusal(judge, unit.node, unit.metric))
    for metric in plan.metrics:
        spec, judge = metric.spec, judges[plan.judge_of(metric.spec.model)]
        if spec.judged_reason and spec.include_reason and writer_of(judge) is None:
            name = judge_name(judge.identity)
            why = f"judged_reason=True needs a written reason, but {name} gives no text"
            add(f"metric {spec.name!r}", judge, why)
    if problems:
        raise GraphError(problems)


def _refusal(judge: Judge, node: AskingNode, metric: str) -> str | None:
    """Why a judge answers none of a node's questions, as far as an example of them shows it."""
    if judge.capabilities.decides:
        writer = writer_of(judge)
        if not node.writes:
            return None
        if writer is None:
            name = judge_name(judge.identity)
            return f"metric {metric!r}: it needs text, which {name} cannot give"
        judge = writer
    able = judge.capabilities.schema if node.parser is None else judge.capabilities.text
    if not able:
        answer = "a structured answer" if node.parser is None else "plain text for its parser"
        return f"it needs {answer}, which {judge.identity} cannot give"
    refuses: Callable[[Question[Any]], str | None] | None = getattr(judge, "refuses", None)
    example = example_question(node)
    return refuses(example) if refuses and example else None


# New objects before the collector looks at them. Its own 700 are one case's: it would look
# through everything again and again, and no call goes out or comes in meanwhile.
_MANY = 50_000


@contextmanager
def rare_collections() -> Iterator[None]:
    """Have the collector work rarely, unless the program has set that already.

    It holds for the whole process, so it is taken back at the end. Of several runs at the
    same time the first one to begin sets it, and takes it back when it ends.
    """
    young, *older = gc.get_threshold()
    if not 0 < young < _MANY:  # 0 is off
        yield
        return
    gc.set_threshold(_MANY, *older)
    try:
        yield
    finally:
        if gc.get_threshold()[0] == _MANY:
            gc.set_threshold(young, *older)
