"""`dagengine plan`: estimate the calls, tokens, cost and time of a run before it starts."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast

from typer import Option

from dagengine.cli.common import options as shared
from dagengine.cli.common.files import Reads
from dagengine.cli.common.output import report, wants_json, warn
from dagengine.system.terminal import counted, plain, text_if

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    from dagengine.compiler.plan import Plan
    from dagengine.data.cases import Cases
    from dagengine.estimate.case_warnings import TooLong
    from dagengine.estimate.estimates import Bounds, Estimate, JudgeEstimate, NodeEstimate, Speeds
    from dagengine.graph.graph import Metric
    from dagengine.graph.node import BaseNode
    from dagengine.question import Judge, ServerFacts
    from dagengine.results import CaseResult, Step
    from dagengine.test_case import TestCase

LATENCY = 2.0
TIMES = 20  # that a benchmark asks each question, if nothing else is said
_NO_PRICE = "unknown"
_UNKNOWN_TIME = "not known, `dagengine judge check` measures the speed of a server of your own"
# From here on counts and rough counts are rounded; longer paths are cut in the middle.
_ROUNDED, _ROUGH, _SHOWN = 100_000, 10_000, 8
_CENTS = 0.0001  # US dollars; less than this is not counted


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

    def pace(self, judges: Sequence[Judge]) -> tuple[float | None, Speeds | None]:
        """Seconds of one call, and the measured speed of the default judge if no other is asked.

        How quick somebody's own server is nobody knows: None.
        """
        from dagengine.estimate.estimates import Speeds
        from dagengine.judges.default import tuning_of
        from dagengine.judges.resolve import as_judge
        from dagengine.judges.wire.servers import is_provider

        if self.latency is not None:
            return self.latency, None
        tuning = tuning_of(self.judge, self.base_url)
        speeds = None
        if tuning.write_speed and {judge.identity for judge in judges} == {as_judge().identity}:
            speeds = Speeds(tuning.read_speed, tuning.write_speed)
        for judge in judges:
            address = getattr(judge, "base_url", None)
            has_places = getattr(judge, "places", None) is not None  # a model file
            if has_places or (address is not None and not is_provider(address)):
                return None, speeds
        return LATENCY, speeds


def plan(options: PlanOptions) -> None:
    """Estimate the judge calls, tokens, cost and time of a run. Makes no judge calls.

    Shows the least, the likely and the greatest number of questions. The bounds hold if every
    metric gets a score; retries come on top. Code nodes that read only the case are run, as in the
    run itself.
    """
    from dagengine.compiler.plan import compile_metrics
    from dagengine.data.cases import read_cases, strict
    from dagengine.estimate.case_warnings import example_lines
    from dagengine.estimate.counting import estimate, verdicts_of
    from dagengine.evaluation import fields_before
    from dagengine.execution.local_executor import check_cases
    from dagengine.loading import load_metrics
    from dagengine.question import display_name
    from dagengine.record.run import rows_at

    results = options.results
    loaded = load_metrics(options.metrics, options.quoting())
    compiled = compile_metrics(loaded)
    model, limits, store = options.chosen_judge(), options.limits(), options.store
    judges = judges_of(compiled, model)
    cases = options.cases_in(*options.data, unit=options.unit)
    if cases.count() is None and store is not None:
        cases = read_cases(list(cases))  # of a pipe, which can be read only once
    check_cases(compiled, cases.check())
    compiled, notes = _with_escalations(compiled, results)
    readable: Iterable[Any] = [] if cases.count() is None else cases
    lacking = fields_before(compiled, readable)
    settings: dict[str, Any] = {
        "judges": [judge.identity for judge in judges],
        "items": options.items,
        "odds": verdicts_of(rows_at(results)) if results else None,
        "asked": judges if any(asked.capabilities.decides for asked in judges) else (),
        "max_in_flight": limits.max_in_flight,
    }
    forecast = estimate(compiled, cast("Iterable[TestCase]", strict(cases)), **settings)
    latency, speeds = options.pace(judges)
    answered, lost = (None, []) if store is None else _stored_answers(loaded, cases, model, store)
    names = tuple(map(display_name, judges))
    budget = Assumptions(
        names, options.prices(), latency, limits.max_in_flight, options.items, results is not None,
        answered, speeds,
    )  # fmt: skip
    long = too_long(compiled, enumerate(readable), judges)
    notes += lost + _in_batches(loaded, cases, settings, budget)
    if options.detectable and forecast.cases:
        from dagengine.reliability.card.words import could_be_seen

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


def _in_batches(
    metrics: Sequence[Metric], cases: Cases, settings: Mapping[str, Any], budget: Assumptions
) -> list[str]:
    """A line with the price of rubrics by one call per criterion, and by one for all criteria."""
    from dagengine.compiler.plan import compile_metrics
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


def judges_of(compiled: Plan, model: Any) -> list[Judge]:
    """The judges in the order of the plan, followed by their writers."""
    from dagengine.estimate.walks import with_writers
    from dagengine.judges import as_judge

    return with_writers([as_judge(model if own is None else own) for own in compiled.models])


@dataclass(frozen=True, slots=True)
class Assumptions:
    """What an estimate is compared with.

    `names` are the names of the judges, in the order of the estimate's. `prices` are US dollars per
    million tokens (in, out) by these names, before the public list. `latency` is in seconds per
    call (None: not known, as of a server of one's own that nobody measured). `learnt` says that the
    odds of verdicts come from an earlier run, `answered` how many questions a store answers. With
    `speeds` the time comes from the tokens, and not from calls.
    """

    names: tuple[str, ...]
    prices: Mapping[str, tuple[float, float]]
    latency: float | None
    max_in_flight: int
    items: int = 10
    learnt: bool = False
    answered: int | None = None
    speeds: Speeds | None = None

    def seconds(self, estimate: Estimate) -> float | None:
        """About how many seconds the run takes; None if the speed is not known."""
        if self.speeds is not None:
            return estimate.seconds_at(self.speeds)
        if self.latency is None:
            return None
        return estimate.seconds(self.latency, self.max_in_flight)


def judge_costs(
    estimate: Estimate, budget: Assumptions
) -> list[tuple[str, JudgeEstimate, float | None]]:
    """(name, judge, US dollars or None) of every judge that will be asked."""
    from dagengine.estimate.estimates import cost

    pairs = zip(budget.names, estimate.judges, strict=True)
    return [
        (name, judge, cost(name, judge.input_tokens, judge.output_tokens, budget.prices))
        for name, judge in pairs
        if judge.calls
    ]


def _sampling_note(estimate: Estimate) -> Iterator[str]:
    """Say that the estimate rests on a sample, if it does, and how far it carries."""
    if estimate.sampled:
        yield (
            f"Estimated from a random sample of {estimate.looked_at:,} of {estimate.cases:,} "
            "cases: least, likely and most are scaled up, so they are approximate. The 95 % "
            f"margin of the likely questions is ±{estimate.margin:.1%}. There may be more equal "
            "questions than the sample shows, and so fewer calls."
        )


def assumptions(estimate: Estimate, budget: Assumptions) -> Iterator[str]:
    """Say the assumptions of an estimate."""
    from dagengine.estimate.lookahead import ASSUMED

    if estimate.sampled:
        yield "Retries are extra."
    else:
        yield "Least and most assume that every metric gets a score; retries are extra."
    verdicts = "as frequent as in the earlier run" if budget.learnt else "equally likely"
    yield f"Likely: verdicts are {verdicts}. {ASSUMED.format(items=budget.items)}"
    speeds = budget.speeds
    if speeds is not None:
        read = "" if speeds.read is None else f"{speeds.read:g} tokens/s read and "
        yield f"Time: at {read}{speeds.write:g} tokens/s written, as `judge check` measured."
    elif budget.latency is not None:
        yield f"A call takes {budget.latency:g} s."
    else:
        yield f"Time: {_UNKNOWN_TIME}."
    if budget.answered is not None:
        yield f"The store answers {budget.answered:,} of these questions without a call."


def as_dict(estimate: Estimate, budget: Assumptions) -> dict[str, Any]:
    """JSON-ready form; a `most` of null is a number without a known bound."""
    return {
        **dataclasses.asdict(estimate),
        "judges": [
            {**dataclasses.asdict(judge), "judge": name, "usd": money}
            for name, judge, money in judge_costs(estimate, budget)
        ],
        "uncounted": list(estimate.uncounted),
        "answered": budget.answered,
        "seconds": budget.seconds(estimate),
        "sampled": estimate.sampled,
        "assumptions": [*_sampling_note(estimate), *assumptions(estimate, budget)],
    }


def print_estimate(
    estimate: Estimate,
    budget: Assumptions,
    console: Console | None = None,
    *,
    more: Sequence[str] = (),
) -> None:
    """Print the questions of every node, the worst paths, what all of it takes, and `more`."""
    from rich.console import Console
    from rich.padding import Padding
    from rich.text import Text

    from dagengine.estimate.estimates import cost

    out = console or Console()
    out.print(_questions(estimate))
    for line in _worst(estimate):
        out.print(Padding(line, (0, 0, 0, 1)))

    table = _grid("judge", "likely calls", "tokens in", "from caches", "out", "US dollars")
    unpriced = False
    for name, judge, money in judge_costs(estimate, budget):
        unpriced = unpriced or money is None
        paid = _NO_PRICE if money is None else _dollars(money)
        counts = judge.input_tokens, judge.output_tokens
        least = cost(name, *counts, budget.prices, judge.cached_tokens)
        if money is not None and least is not None and _dollars(least) != paid:
            paid = f"{_dollars(least)} to {paid}"
        tokens = (judge.input_tokens, judge.cached_tokens, judge.output_tokens)
        table.add_row(Text(plain(name)), _number(judge.calls), *map(_rough_number, tokens), paid)
    out.print(table)
    seconds = budget.seconds(estimate)
    time = Text(f"time: {_UNKNOWN_TIME}\n")
    if seconds is not None:
        sizes = ((86_400, "days"), (3_600, "h"), (60, "min"), (1, "s"))
        # A unit is used from two of it on: 90 minutes say more than 1.5 h.
        size, unit = next((pair for pair in sizes if seconds >= 2 * pair[0]), sizes[-1])
        how = f" with {budget.max_in_flight} calls at a time, up to {estimate.depth} in a row\n"
        time = Text.assemble("about ", (f"{seconds / size:.3g} {unit}", "bold"), how)
    out.print(Padding(time, (0, 0, 0, 1)))
    hints = ["No price is known for a judge: give --price IN,OUT."] * unpriced
    for note in [*hints, *_notes(estimate), *assumptions(estimate, budget), *more]:
        out.print(Padding(Text(plain(note), style="dim"), (0, 0, 0, 1)))


def _grid(first: str, *others: str) -> Table:
    from rich import box
    from rich.table import Table

    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0))
    table.add_column(first, overflow="fold")
    for name in others:
        table.add_column(name, justify="right", no_wrap=True)
    return table


def _questions(estimate: Estimate) -> Table:
    from rich.padding import Padding
    from rich.text import Text

    columns = ("per\ncase", "\nleast", "\nlikely", "\nmost", "\nequal", "tokens\nin", "\nout")
    table = _grid(f"\n{counted(estimate.cases, 'case')}", *columns)
    for metric in estimate.metrics:
        least, most = _number(metric.case.least), _number(metric.case.most)
        title = metric.metric
        if metric.cases != estimate.cases:
            of_all = f"{_number(metric.cases)} of {counted(estimate.cases, 'case')}"
            title = f"{title} ({of_all})"
        table.add_row(
            Text(plain(title)),
            least if least == most else f"{least}\N{EN DASH}{most}",
            *_span(metric.asked),
            "",
            *_tokens(metric.nodes),
            style="bold",
        )
        for node in metric.nodes:
            equal_questions = _number(node.equal) if node.equal else ""
            notes = filter(None, (node.node, text_if(node.constant, "once"), node.panel))
            name = Padding(Text(plain(", ".join(notes))), (0, 0, 0, 2))
            table.add_row(name, "", *_span(node.asked), equal_questions, *_tokens((node,)))
    table.add_section()
    equal = max(estimate.asked.likely - estimate.calls.likely, 0)
    table.add_row("all questions", "", *_span(estimate.asked), _number(equal))
    # The least number of calls supposes that questions with words of the judge are all equal, which
    # no run is; it is shown only if a run may come near it.
    difference = estimate.asked.likely - estimate.calls.likely
    supposed = estimate.asked.least - estimate.calls.least > difference + 0.5
    least_calls = text_if(not supposed, _number(estimate.calls.least))
    table.add_row("judge calls", "", least_calls, *_span(estimate.calls)[1:], style="bold")
    travel = estimate.travel
    if travel.requests < travel.questions:
        alone = max(0.0, estimate.calls.likely - travel.questions)
        table.add_row("requests", "", "", _number(alone + travel.requests), "")
    return table


def _worst(estimate: Estimate) -> Iterator[Text]:
    """The path with the most questions of every metric."""
    from rich.text import Text

    for metric in estimate.metrics:
        worst = metric.worst
        if not worst.nodes:
            continue
        names = [name if n == 1 else f"{name} ×{_number(n)}" for name, n in worst.nodes]  # noqa: RUF001
        if len(names) > _SHOWN:
            half = _SHOWN // 2
            names = [*names[:half], f"… {len(names) - 2 * half} more …", *names[-half:]]
        line = Text.assemble(("worst path of ", "dim"), (plain(metric.metric), "bold"), ": ")
        line.append(plain(" → ".join(names)))
        asked = "unbounded" if worst.asked is None else counted(worst.asked, "question")
        line.append(f" ({asked}, {worst.depth} in a row)", style="dim")
        yield line


def _notes(estimate: Estimate) -> Iterator[str]:
    """Notes for the reader of the numbers."""
    yield from _sampling_note(estimate)
    nodes = [node for metric in estimate.metrics for node in metric.nodes]
    if any(node.equal for node in nodes):
        yield "Equal: questions that are expected to repeat another one; they cost nothing."
    if any(len(node.metrics) > 1 for node in nodes):
        yield "Nodes that metrics share run once; each metric lists them, the total counts once."
    if any(judge.cached_tokens for judge in estimate.judges):
        yield (
            "From caches: at most so many tokens need not be read anew, because another question "
            "of the case begins with them, too; at the prices of cached tokens."
        )
    yield from _asking_notes(estimate)
    if any(node.asked.likely for node in nodes if node.asked.most is None):
        yield "?: no upper bound, because it depends on the length of a list that a judge writes."
    for metric in estimate.metrics:
        if not metric.exact:
            yield f"{metric.metric} has too many paths: likely is estimated from a sample of them."


def _asking_notes(estimate: Estimate) -> Iterator[str]:
    """Notes on how questions are sent, and on those that are not counted."""
    travel = estimate.travel
    if travel.questions:
        # Decisions about one case travel together; each request has the texts of the case anew.
        ahead = text_if(travel.unneeded, f"; {_number(travel.unneeded)} more asked ahead, not used")
        alone = travel.state_tokens + travel.spared_tokens
        spared = text_if(travel.spared_tokens, f" (one by one: {_rough_number(alone)})")
        yield (
            f"About {_number(travel.questions)} decisions are sent in {_number(travel.requests)} "
            f"requests{ahead}. Every request contains the texts of its case: "
            f"{_rough_number(travel.state_tokens)} tokens in all{spared}."
        )
    for name in estimate.uncounted:
        yield f"{name} runs its own code, which may ask questions; they are not counted here."


def _span(span: Bounds) -> tuple[str, str, str]:
    return _number(span.least), _number(span.likely), _number(span.most)


def _tokens(nodes: tuple[NodeEstimate, ...]) -> tuple[str, str]:
    paid = sum(node.input_tokens for node in nodes), sum(node.output_tokens for node in nodes)
    return _rough_number(paid[0]), _rough_number(paid[1])


def _number(number: float | None, rounded: int = _ROUNDED) -> str:
    """A count in at most six characters, rounded from `rounded` on."""
    if number is None:
        return "?"
    for size, sign in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if number >= max(size, rounded):
            return f"{number / size:,.{2 if number < 10 * size else 0}f}{sign}"
    return f"{number:,.0f}"


_rough_number = partial(_number, rounded=_ROUGH)


def _dollars(money: float) -> str:
    """An amount with two digits that say something."""
    if money >= 0.1 or not money:
        return f"{money:,.2f}"
    return f"{money:.2g}" if money >= _CENTS else f"under {_CENTS:.4f}"
