"""What every metric shares, and the base class of a caller's metrics."""

from __future__ import annotations

import copy
import inspect
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping
from functools import partial
from html import escape
from typing import Any, Self, TypeVar

import anyio
import sniffio

from dagengine.errors import DagengineError, GraphError, MissingExtraError, metric_failed
from dagengine.graph.current_node import node_at_work
from dagengine.graph.graph import Graph, MetricSpec
from dagengine.graph.node import BaseNode
from dagengine.graph.node_values import Ask, Given, NodeValue, QuestionCount
from dagengine.report.pictures.drawing import Picture, draw
from dagengine.results import MetricResult
from dagengine.results.html_tables import cell
from dagengine.results.pass_rules import passes
from dagengine.system.terminal_text import one_line, plain
from dagengine.system.threads import in_daemon_thread
from dagengine.trees.schema import parameters_of
from dagengine.trees.writing import Written
from dagengine.unknown import Answering
from dagengine.unknown_arguments import check_names

R = TypeVar("R")

_NAME = 60  # characters of a name in a `repr`


def wait_for(make: Callable[[], Awaitable[R]], *, lasting: bool = False) -> R:
    """Run a coroutine function to its end (see `execution.sync`), loading the engine for it."""
    from dagengine.execution.interrupts import sync

    return sync(make, lasting=lasting)


class BaseMetric(Answering):
    """Base class of metrics.

    Your own metric overrides `measure` (and `a_measure` for concurrency), sets `score`, `reason`,
    `success` and `error` on itself and returns the score. Then it works in `evaluate` and under a
    verdict of a decision tree. It runs on a shallow copy of itself, so that concurrent cases do not
    interfere.

    If it sets `success`, that counts. If it sets only `score`, `threshold` and `strict_mode`
    decide.

    Metrics that it measures are part of the run: they use its judge, limits, store and totals. If
    they have no `model`, they use the `model` of this metric. This also holds in threads and thread
    pool jobs that the code starts, until the case is judged.

    `score`, `reason`, `success`, `error` and `result` show the last `measure` only, as do
    `verbose_logs` and `evaluation_cost`. The cost is in US dollars, or None if the judge has no
    known price.
    """

    # A number, or None for no pass or fail; a caller's metric may compare with it as it likes.
    threshold: Any = 0.5
    model: Any = None
    include_reason: bool = True
    strict_mode: bool = False
    async_mode: bool = True
    verbose_mode: bool = False

    score: float | None = None
    reason: str | None = None
    success: bool | None = None
    error: str | None = None
    result: MetricResult | None = None
    verbose_logs: str | None = None
    evaluation_cost: float | None = None

    @property
    def __name__(self) -> str:  # pyright: ignore[reportIncompatibleVariableOverride]
        return str(self.__dict__.get("name") or type(self).__name__)

    def spec(self) -> MetricSpec:
        """The metric as the compiler takes it."""
        # The threshold; None for one of another unit, which the metric's own code knows
        own = type(self).is_successful is not BaseMetric.is_successful
        number = isinstance(self.threshold, int | float)
        return MetricSpec(
            name=self.__name__,
            graph=Graph(root_node=MeasureNode(self)),
            threshold=None if own and number and not 0 <= self.threshold <= 1 else self.threshold,
            strict=bool(self.strict_mode),
            model=self.model,
            include_reason=bool(self.include_reason),
        )

    # Any: a caller's metric narrows the parameter to the kind of case they judge.
    def measure(self, test_case: Any, *args: Any, **private: Any) -> float:
        """Judge one case and return its score in [0, 1].

        Works with and without a running event loop. Keyword arguments that begin with an
        underscore, such as deepeval's `_show_indicator`, are ignored; others raise TypeError.
        Raises MetricFailedError if the case ends without a score, GraphError if the metric does
        not compile.
        """
        _require_private(args, private)
        alone = type(self).measure is BaseMetric.measure  # not called by an override of it
        return wait_for(
            lambda: self.a_measure(test_case) if alone else self._judge(test_case), lasting=True
        )

    async def a_measure(self, test_case: Any, *args: Any, **private: Any) -> float:
        """`measure` for callers with an event loop."""
        _require_private(args, private)
        kind = type(self)
        # Only `measure` is overridden, and it may block: in a thread it does not hold up the event
        # loop.
        if kind.a_measure is BaseMetric.a_measure and kind.measure is not BaseMetric.measure:
            return await in_daemon_thread(lambda: self.measure(test_case))
        return await self._judge(test_case)

    async def _judge(self, test_case: Any) -> float:
        """The score of one case by the metric's graph, whatever overrides of `measure` do."""
        from dagengine.evaluation import judged_case  # whoever only builds metrics needs no engine

        graph = _Graph(self)
        try:
            row, totals = await judged_case(test_case, [graph], {}, at_once=bool(self.async_mode))
            self.evaluation_cost = totals.cost
        except DagengineError as error:
            self._show(None, None, str(error))
            raise
        result = row.metrics[0]
        failure = result.failure
        self._show(result, result.score, failure.message if failure else None)
        if self.verbose_mode:
            from dagengine.report.tables_and_junit import print_steps

            print_steps(result)
        if failure is not None or result.score is None:
            kind, node = (str(failure.kind), failure.node) if failure else ("no score", None)
            raise metric_failed(result.metric, node, kind, plain(self.error or ""))
        return result.score

    def _show(self, result: MetricResult | None, score: float | None, error: str | None) -> None:
        """Point the view attributes at one result, all of them together."""
        self.result, self.score, self.error = result, score, error
        for name in ("reason", "success", "verbose_logs"):
            setattr(self, name, getattr(result, name, None))

    def is_successful(self) -> bool | None:
        """Return whether the last `measure` met the threshold (1 in strict mode).

        None if there is no threshold. A `success` that the metric's own code set decides instead.
        If that code changed only the score of the graph, the threshold decides again.
        """
        if self.error is not None or self.score is None:
            return None if self.threshold is None and not self.strict_mode else False
        result = self.result
        moved = result is not None and result.score != self.score and result.success is self.success
        if self.threshold is None or (self.success is not None and not moved):
            return self.success
        return passes(self.score, 1.0 if self.strict_mode else self.threshold)


# Names by which libraries part metrics by what they judge; here any metric reads what it names.
BaseConversationalMetric = BaseArenaMetric = BaseMetric


class _Graph:
    """The graph of a metric, also of one whose own `measure` does more than ask it."""

    def __init__(self, metric: BaseMetric) -> None:
        self.metric = metric

    def spec(self) -> MetricSpec:
        # An override of `measure` has put `BaseMetric.spec` in front (`__init_subclass__`): the
        # first other one is that of the graph.
        for kind in type(self.metric).__mro__:
            of_graph: Callable[[BaseMetric], MetricSpec] = vars(kind).get("spec", BaseMetric.spec)
            if of_graph is not BaseMetric.spec:
                return of_graph(self.metric)
        return BaseMetric.spec(self.metric)


def _require_private(args: Collection[Any], given: Iterable[str]) -> None:
    """Raise TypeError for anything but names that begin with an underscore."""
    if args:
        raise TypeError(f"measure() takes one test case, got {1 + len(args)} arguments")
    names = [name for name in given if not name.startswith("_")]
    if {"model", "judge"}.intersection(names):
        raise TypeError("measure() takes no judge: it is an argument of the metric, model=…")
    check_names("measure() has no argument", names, ["test_case"])


class FullSignature:
    """All settings of a metric, for help and notebooks, which else would show those of `__new__`.

    They are looked up when somebody asks: the metrics of a catalogue would all do it at import.
    """

    def __get__(self, metric: object, kind: type[Any]) -> inspect.Signature:
        parameters = list(parameters_of(kind).values())
        try:
            return inspect.Signature(parameters)
        except ValueError:  # no signature has a required argument behind an optional one
            by_name = inspect.Parameter.KEYWORD_ONLY
            return inspect.Signature([each.replace(kind=by_name) for each in parameters])


class DrawnMetric(Written, BaseMetric):
    """Base class of metrics that have a graph to look at.

    Raises TypeError for a setting that the metric does not have. If your subclass overrides
    `measure` or `a_measure`, its code judges the case, and `super().measure(…)` runs the graph.
    """

    __signature__ = FullSignature()

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        # What a subclass measures by code of its own, that code decides: the graph of its base
        # would go past it.
        if {"measure", "a_measure"} & vars(cls).keys() and "spec" not in vars(cls):
            cls.spec = BaseMetric.spec  # type: ignore[method-assign]

    def __new__(cls, *args: Any, **settings: Any) -> Self:
        check_names(f"{cls.__name__} has no setting", settings, parameters_of(cls))
        return super().__new__(cls)

    def spec_of(self, name: str, graph: Graph, **more: Any) -> MetricSpec:
        """The specification of a graph with the settings of the metric, and `more`."""
        settings = ("threshold", "model", "include_reason", "judged_reason", "expected")
        own = {setting: getattr(self, setting) for setting in settings}
        return MetricSpec(name, graph, strict=self.strict_mode, **own, **more)

    def __repr__(self) -> str:
        """Its name and what passes; a graph that does not compile is none of its business."""
        passes = "no threshold" if self.threshold is None else f"passes at {self.threshold:g}"
        return f"<{type(self).__name__} {one_line(self.__name__, _NAME)!r}: {passes}>"

    def _repr_html_(self) -> str:
        """HTML for notebooks: the name, what passes, and the graph with its questions."""
        head = f"<p>{cell(repr(self)[1:-1])}</p>"
        try:
            picture = self.picture()
        except GraphError as error:
            return f"{head}<pre>{escape(plain(str(error)))}</pre>"
        try:
            return f"{head}{picture.html()}"
        except MissingExtraError as error:
            text = plain("\n\n".join((str(error), picture.mermaid)))
            return f"{head}<pre>{escape(text)}</pre>"

    def picture(self, *, names: bool = False) -> Picture:
        """The metric's graph as designed, with the questions of its nodes or only their `names`."""
        return draw(self.spec(), names=names)

    def render(self, path: str, *, names: bool = False) -> str:
        """Write `picture` as .svg, .png, .pdf, .dot or .mmd, and return the path."""
        return self.picture(names=names).save(path)


class MeasureNode(BaseNode):
    """A metric that computes its score itself, as the only node of its graph."""

    kind = "metric"
    grades = True
    whole_case = True

    def __init__(self, metric: BaseMetric) -> None:
        super().__init__(name=metric.__name__)
        self.metric = metric

    def questions(self, known: Mapping[str, Any], items: int) -> QuestionCount:
        """Unknown: the metric's code decides which judge it asks, and how often."""
        return QuestionCount(0, 0, None)

    async def run(self, given: Given, ask: Ask) -> NodeValue:
        metric, kind = self._fresh(), type(self.metric)
        if kind.a_measure is not BaseMetric.a_measure:
            metric, returned = await self._run_a_measure(given.case)
        elif kind.measure is not BaseMetric.measure:
            returned = await in_daemon_thread(lambda: metric.measure(given.case))
        else:
            raise TypeError(f"{kind.__name__} overrides neither measure nor a_measure")
        if metric.error is not None:
            raise RuntimeError(metric.error)
        score = metric.score if returned is None else returned
        # Without a `success`, the base class would only compare the score with the threshold, as
        # the run does itself: then the metric's own code has decided nothing.
        passed: bool | None = None
        if metric.success is not None or kind.is_successful is not BaseMetric.is_successful:
            passed = metric.is_successful()
        return NodeValue(score, reason=metric.reason, success=passed)

    # One object for all cases would show results of the case before, or of a concurrent one.
    def _fresh(self) -> BaseMetric:
        """A copy in which nothing of an earlier case is left."""
        metric = copy.copy(self.metric)
        metric.score = metric.reason = metric.success = metric.error = None
        return metric

    async def _run_a_measure(self, case: Any) -> tuple[BaseMetric, float | None]:
        """The metric after its own `a_measure`, and what that returned.

        If it waits for another metric without `await`, it would keep the run's event loop from
        answering. Then it begins again in a thread, on a loop that it may block.
        """
        # Code of this kind may catch the refusal of the call that would have blocked, or wrap it
        # into an error of its own. So it is the host that says whether it happened, not the
        # exception.
        host, metric = node_at_work.get(), self._fresh()
        returned: float | None = None
        try:
            returned = await metric.a_measure(case)
        except Exception:
            if host is None or not host.blocked:
                raise
        if host is None or not host.blocked:
            return metric, returned
        metric, backend = self._fresh(), sniffio.current_async_library()
        again = partial(metric.a_measure, case)
        return metric, await in_daemon_thread(lambda: anyio.run(again, backend=backend))
