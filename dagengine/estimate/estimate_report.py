"""An estimate on a terminal, and as data: questions, worst paths, tokens, money and time."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from rich import box
from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from dagengine.estimate.estimate_types import Bounds, Estimate, JudgeEstimate, NodeEstimate, Speeds
from dagengine.estimate.lookahead import ASSUMED
from dagengine.system.terminal_text import counted, plain, text_if

_NO_PRICE = "unknown"
_UNKNOWN_TIME = "not known, `dagengine judge check` measures the speed of a server of your own"
# From here on counts and rough counts are rounded; longer paths are cut in the middle.
_ROUNDED, _ROUGH, _SHOWN = 100_000, 10_000, 8
_CENTS = 0.0001  # US dollars; less than this is not counted


@dataclass(frozen=True, slots=True)
class Assumptions:
    """What an estimate is compared with.

    `prices` are US dollars per million tokens (in, out) by the names of judges, before the public
    list. `latency` is in seconds per call (None: not known, as of a server of one's own that nobody
    measured). `learnt` says that the odds of verdicts come from an earlier run, `answered` how many
    questions a store answers. With `speeds` the time comes from the tokens, and not from calls.
    """

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

    def costs(self, estimate: Estimate) -> Iterator[tuple[JudgeEstimate, float | None]]:
        """Every judge that will be asked, with US dollars or None."""
        return ((judge, judge.cost(self.prices)) for judge in estimate.judges if judge.calls)


def as_dict(estimate: Estimate, budget: Assumptions) -> dict[str, Any]:
    """JSON-ready form; a `most` of null is a number without a known bound."""
    return {
        **dataclasses.asdict(estimate),
        "judges": [
            {**dataclasses.asdict(judge), "usd": money} for judge, money in budget.costs(estimate)
        ],
        "uncounted": list(estimate.uncounted),
        "answered": budget.answered,
        "seconds": budget.seconds(estimate),
        "sampled": estimate.sampled,
        "assumptions": [*_sampling_note(estimate), *_assumed(estimate, budget)],
    }


def print_estimate(
    estimate: Estimate,
    budget: Assumptions,
    console: Console | None = None,
    *,
    more: Sequence[str] = (),
) -> None:
    """Print the questions of every node, the worst paths, what all of it takes, and `more`."""
    out = console or Console()
    out.print(_questions(estimate))

    def write(line: Text) -> None:
        out.print(Padding(line, (0, 0, 0, 1)))

    for line in _worst(estimate):
        write(line)
    table = _grid("judge", "likely calls", "tokens in", "from caches", "out", "US dollars")
    unpriced = False
    for judge, money in budget.costs(estimate):
        unpriced = unpriced or money is None
        paid = _NO_PRICE if money is None else _dollars(money)
        least = judge.cost(budget.prices, judge.cached_tokens)
        if money is not None and least is not None and _dollars(least) != paid:
            paid = f"{_dollars(least)} to {paid}"
        tokens = (judge.input_tokens, judge.cached_tokens, judge.output_tokens)
        table.add_row(
            Text(plain(judge.judge)), _number(judge.calls), *map(_rough_number, tokens), paid
        )
    out.print(table)
    seconds = budget.seconds(estimate)
    time = Text(f"time: {_UNKNOWN_TIME}\n")
    if seconds is not None:
        sizes = ((86_400, "days"), (3_600, "h"), (60, "min"), (1, "s"))
        # A unit is used from two of it on: 90 minutes say more than 1.5 h.
        size, unit = next((pair for pair in sizes if seconds >= 2 * pair[0]), sizes[-1])
        how = f" with {budget.max_in_flight} calls at a time, up to {estimate.depth} in a row\n"
        time = Text.assemble("about ", (f"{seconds / size:.3g} {unit}", "bold"), how)
    write(time)
    hints = ["No price is known for a judge: give --price IN,OUT."] * unpriced
    for note in [*hints, *_notes(estimate), *_assumed(estimate, budget), *more]:
        write(Text(plain(note), style="dim"))


def _grid(first: str, *others: str) -> Table:
    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0))
    table.add_column(first, overflow="fold")
    for name in others:
        table.add_column(name, justify="right", no_wrap=True)
    return table


def _questions(estimate: Estimate) -> Table:
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


def _sampling_note(estimate: Estimate) -> Iterator[str]:
    """Say that the estimate rests on a sample, if it does, and how far it carries."""
    if estimate.sampled:
        yield (
            f"Estimated from a random sample of {estimate.looked_at:,} of {estimate.cases:,} "
            "cases: least, likely and most are scaled up, so they are approximate. The 95 % "
            f"margin of the likely questions is ±{estimate.margin:.1%}. There may be more equal "
            "questions than the sample shows, and so fewer calls."
        )


def _assumed(estimate: Estimate, budget: Assumptions) -> Iterator[str]:
    """Say the assumptions of an estimate."""
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
