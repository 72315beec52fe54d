"""`dagengine plan`: estimate the calls, tokens, cost and time of a run before it starts."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast

from typer import Option

from dagengine.cli.common import options as shared
from dagengine.cli.common.benchmark_options import TIMES
from dagengine.cli.common.files import Reads
from dagengine.cli.common.formats import report, wants_json
from dagengine.cli.common.streams import warn

if TYPE_CHECKING:
    from dagengine.cli.tables.plan_table import Assumptions
    from dagengine.compiler.plan import Plan
    from dagengine.data.cases import Cases
    from dagengine.estimate.case_warnings import TooLong
    from dagengine.estimate.estimates import Speeds
    from dagengine.graph.graph import Metric
    from dagengine.graph.node import BaseNode
    from dagengine.question import Judge, ServerFacts
    from dagengine.results import CaseResult, Step
    from dagengine.test_case import TestCase

LATENCY = 2.0


@dataclass(frozen=True, kw_only=True)
class PlanOptions(shared.CaseOptions, shared.QuoteOptions, shared.JudgeOptions):
    """The options of one estimate, as they were typed."""

    store: Annotated[
        Path | None, Option(help="Count how many questions this store already answers."), Reads()
    ] = None
    results: Annotated[
        Path | None,
        Option(help="An earlier run, or its rows; its verdicts give the probabilities."),
        Reads(),
    ] = None
    items: Annotated[
        int, Option(min=1, help="Assumed length of the lists that a judge writes.")
    ] = 10
    latency: Annotated[
        float | None,
        Option(
            min=0,
            help="Assumed duration of one call, in seconds. Default: the speed that `judge check` "
            "saved, else 2; of a server of your own it is not known.",
        ),
    ] = None
    detectable: Annotated[
        bool,
        Option(
            "--detectable",
            help="Also say which difference between two judges this number of cases can detect.",
        ),
    ] = False


def plan(options: PlanOptions) -> None:
    """Estimate the judge calls, tokens, cost and time of a run. Makes no judge calls.

    Shows the least, the likely and the greatest number of questions. The bounds hold if every
    metric gets a score; retries come on top. Code nodes that read only the case are run, as in the
    run itself.
    """
    from dagengine.cli.tables.plan_table import Assumptions, as_dict, print_estimate
    from dagengine.compiler.lowering import compile_metrics
    from dagengine.data.cases import read_cases, strict
    from dagengine.estimate.case_warnings import example_lines
    from dagengine.estimate.counting import estimate, verdicts_of
    from dagengine.evaluation import fields_before
    from dagengine.execution.local_executor import check_cases
    from dagengine.loading import load_metrics
    from dagengine.record.run import rows_at

    results = options.results
    loaded = load_metrics(options.metrics, options.quoting())
    compiled = compile_metrics(loaded)
    model, limits, store = options.chosen_judge(), options.limits(), options.store
    names, identities = judges_of(compiled, model)
    judges = all_judges(compiled, model)
    cases = options.cases_in(options.data, unit=options.unit)
    if cases.count() is None and store is not None:
        cases = read_cases(list(cases))  # of a pipe, which can be read only once
    check_cases(compiled, cases.check())
    compiled, notes = _with_escalations(compiled, results)
    readable: Iterable[Any] = [] if cases.count() is None else cases
    lacking = fields_before(compiled, readable)
    settings: dict[str, Any] = {
        "judges": identities,
        "items": options.items,
        "odds": verdicts_of(rows_at(results)) if results else None,
        "asked": judges if any(asked.capabilities.decides for asked in judges) else (),
        "max_in_flight": limits.max_in_flight,
    }
    forecast = estimate(compiled, cast("Iterable[TestCase]", strict(cases)), **settings)
    latency, speeds = _pace(options, judges)
    answered, lost = (None, []) if store is None else _stored_answers(loaded, cases, model, store)
    budget = Assumptions(
        tuple(names), shared.prices(options.price), latency, limits.max_in_flight, options.items,
        results is not None, answered, speeds,
    )  # fmt: skip
    long = too_long(compiled, enumerate(readable), judges)
    notes += lost + in_batches(loaded, cases, settings, budget)
    if options.detectable and forecast.cases:
        from dagengine.reliability.card.four_questions import could_be_seen

        notes.append(could_be_seen(forecast.cases, 1, more=TIMES))
    warnings = [*map(str, (*lacking, *long, *example_lines(compiled, enumerate(readable))))]
    report(**as_dict(forecast, budget), notes=notes, too_long=long, warnings=warnings)
    print_estimate(forecast, budget, more=notes)
    if not wants_json():  # the document has them
        warn(*warnings)


def _with_escalations(compiled: Plan, results: Path | None) -> tuple[Plan, list[str]]:
    """The plan with the shares of judgements that escalated in an earlier run, and lines on them.

    The nodes of the metrics stay as they are: what is assumed is part of this plan alone.
    """
    from dagengine.record.run import rows_at
    from dagengine.voting.panels import Escalation

    steps: dict[str, list[Step]] = {}
    for row in rows_at(results) if results else ():
        for step in (step for result in row.metrics for step in result.steps):
            steps.setdefault(step.node, []).append(step)
    units, lines = list(compiled.units), list[str]()
    for index, unit in enumerate(units):
        if isinstance(panel := unit.node.panel, Escalation):
            node = copy.copy(unit.node)
            node.panel = seen = panel.with_share_of(steps.get(unit.name, ()))
            units[index] = dataclasses.replace(unit, node=node)
            how = "assumed: --results RUN tells" if seen is panel else "as in the run"
            lines.append(f"{unit.name}: {seen.share:.0%} of judgements escalate ({how}).")
    return dataclasses.replace(compiled, units=tuple(units)), lines


def in_batches(
    metrics: Sequence[Metric], cases: Cases, settings: Mapping[str, Any], budget: Assumptions
) -> list[str]:
    """A line with the price of rubrics by one call per criterion, and by one for all criteria."""
    from dagengine.cli.tables.plan_table import judge_costs
    from dagengine.compiler.lowering import compile_metrics
    from dagengine.data.cases import strict
    from dagengine.estimate.counting import estimate
    from dagengine.graph.rewriting import Rewriting, SpecMetric
    from dagengine.metrics.rubrics import RubricNode

    prices, rubrics = [], list[Any]()
    for words, size in (("one call per criterion", 1), ("one call for all criteria", None)):

        def batch(node: BaseNode, size: int | None = size) -> None:
            if isinstance(node, RubricNode):
                node.per_call = size
                rubrics.append(node)

        rewriting = Rewriting([batch])
        copies = [SpecMetric(rewriting.spec(metric.spec())) for metric in metrics]
        if not rubrics:
            return []
        readable = cast("Iterable[TestCase]", strict(cases))
        forecast = estimate(compile_metrics(copies), readable, **settings)
        costs = [money for _, _, money in judge_costs(forecast, budget)]
        paid = "" if None in costs else f", {sum(filter(None, costs)):,.2f} US dollars"
        prices.append(f"{words}: {forecast.calls.likely:,.0f} calls{paid}")
    return [
        f"Rubrics by {'; by '.join(prices)}, and 1 to 6.5 points of accuracy less as published."
    ]


def too_long(
    compiled: Plan, cases: Iterable[tuple[int, Any]], judges: Sequence[Judge]
) -> list[TooLong]:
    """The cases, by their numbers, whose questions a server's window is too small for.

    Local servers are asked for their windows, those of judges that answer nothing here are not.
    """
    from dagengine.estimate.case_warnings import too_long_cases
    from dagengine.execution.interrupts import sync
    from dagengine.prompts.decisions import writer_of
    from dagengine.question import NO_FACTS, facts_of

    asked = [judges[index] for index in compiled.asked]
    writers = [writer for writer in map(writer_of, asked) if writer is not None]
    names = {judge.identity for judge in (*asked, *writers)}

    async def judge_facts() -> list[ServerFacts]:
        return [await facts_of(judge) if judge.identity in names else NO_FACTS for judge in judges]

    return too_long_cases(compiled, cases, judges, sync(judge_facts))


def _pace(options: PlanOptions, judges: Sequence[Judge]) -> tuple[float | None, Speeds | None]:
    """Seconds of one call, and the measured speed of the default judge if no other is asked.

    How quick somebody's own server is nobody knows: None.
    """
    from dagengine.estimate.estimates import Speeds
    from dagengine.judges.default import tuning_of
    from dagengine.judges.resolve import as_judge
    from dagengine.judges.wire.servers import is_provider

    if options.latency is not None:
        return options.latency, None
    tuning = tuning_of(options.judge, options.base_url)
    speeds = None
    if tuning.write_speed and {judge.identity for judge in judges} == {as_judge().identity}:
        speeds = Speeds(tuning.read_speed, tuning.write_speed)
    for judge in judges:
        address = getattr(judge, "base_url", None)
        has_places = getattr(judge, "places", None) is not None  # a model file
        if has_places or (address is not None and not is_provider(address)):
            return None, speeds
    return LATENCY, speeds


def _stored_answers(
    metrics: Sequence[Any], cases: Cases, model: Any, path: Path
) -> tuple[int, list[str]]:
    """Number of questions that a store answers, and lines on nodes whose words it does not have."""
    from dagengine.evaluation import stream
    from dagengine.execution.interrupts import sync
    from dagengine.store.answers import Store
    from dagengine.store.notices import REWORDED

    kept, lost = Store(path, replay=True), dict[str, None]()

    def look(row: CaseResult) -> None:
        failures = (result.failure for result in row.metrics if result.failure)
        lost.update((failure.message, None) for failure in failures if REWORDED in failure.message)

    done = sync(lambda: stream(cases, metrics, look, model=model, store=kept))
    return done.cached, [*lost]


def all_judges(compiled: Plan, model: Any) -> list[Judge]:
    """The judges in the order of the plan, followed by their writers."""
    from dagengine.estimate.packs import with_writers
    from dagengine.judges import as_judge

    return with_writers([as_judge(model if own is None else own) for own in compiled.models])


def judges_of(compiled: Plan, model: Any) -> tuple[list[str], list[str]]:
    """The names and the identities of the judges, in the order of the plan, then of writers."""
    from dagengine.question import display_name

    judges = all_judges(compiled, model)
    return [*map(display_name, judges)], [judge.identity for judge in judges]
