"""The commands of human labels: `labels plan`."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from typer import Argument, Option

from dagengine.cli.common.commands_and_help import Commands
from dagengine.cli.common.files import Given, Reads, Writes
from dagengine.cli.common.options import two_numbers
from dagengine.cli.common.output import report, say
from dagengine.errors import InputError
from dagengine.system.terminal_text import counted, text_if

if TYPE_CHECKING:
    from dagengine.reliability.statistics.intervals import Unknown
    from dagengine.reliability.threshold_fitting import Abstention
    from dagengine.view.label_queues import LabelPlan

app = Commands(
    "labels", "Plan human labels: how many are needed for what, and which cases are next."
)

_NODES = 8


def _plan_file(run: Path, given: Given) -> Iterator[Path]:
    yield (run.parent if run.is_file() else run) / "label-plan.json"  # its rows name a run, too


@dataclass(frozen=True, kw_only=True)
class PlanOptions:
    """The options of `dagengine labels plan`."""

    folder: Annotated[Path, Argument(metavar="DIR"), Writes(_plan_file)]
    """The folder of a run."""
    labels: Annotated[Path | None, Option(metavar="FILE"), Reads()] = None
    """Labels of `dagengine view`. Default: labels.jsonl of the run."""
    metric: str | None = None
    """Only this metric."""
    need: Annotated[str | None, Option(metavar="agreement=85")] = None
    """The agreement that you need, in per cent. Default: 80."""
    count: Annotated[int, Option(min=1)] = 20
    """How many cases to label next."""
    chosen: Annotated[int | None, Option(min=0)] = None
    """How many of them are chosen by path and doubt; the others are drawn at random. Default: half.
    """
    costs: Annotated[str | None, Option(metavar="PASS,FAIL")] = None
    """What it costs to pass a case that people fail, and to fail one that they pass, for the
    threshold. Default: 1,1.
    """
    wrong: Annotated[float | None, Option(metavar="PERCENT", min=0, max=100)] = None
    """The share of cases that may get a wrong verdict: says below which confidence a verdict has to
    be called unsure for it.
    """


@app.command()
def plan(options: PlanOptions) -> None:
    """Say how many labels are needed for what, and which cases to label next. Makes no judge calls.

    Writes the cases into label-plan.json of the run; `dagengine view` shows them as a queue.
    Cases on which people contradict each other come first, then cases drawn at random, then the
    most doubtful case of every path. Only the random ones say how often the judge is right.

    Exit codes: 0; 2 invalid input, for instance a folder without a run.
    """
    from dagengine.record.label_file import LABELS, LabelFile
    from dagengine.record.reader import load_run
    from dagengine.reliability.card.recommendation import parse_needs
    from dagengine.view.label_queues import label_plan, write_plan

    line = parse_needs(options.need).agreement
    costs = two_numbers(options.costs or "1,1", "--costs is PASS,FAIL")
    if not all(costs):
        raise InputError(f"--costs must be two numbers above 0, not {options.costs!r}")
    promised = None if options.wrong is None else options.wrong / 100
    run = load_run(options.folder)
    records = run.manifest.records(options.metric)
    people = LabelFile(options.labels or run.folder / LABELS).labels()
    plans = [
        label_plan(
            record, run.rows(), people, line=line, count=options.count, chosen=options.chosen,
            costs=costs, promised=promised, seed=run.folder.resolve().name,
        )
        for record in records
    ]  # fmt: skip
    for planned in plans:
        say("\n".join([*_lines(planned), ""]))
    report(plans=plans)
    path = write_plan(run.folder, plans)
    total = sum(len(planned.queue) for planned in plans)
    say(f"{counted(total, 'case')} to label: {path}")
    folder = shlex.quote(str(options.folder))
    say(f"next: dagengine view {folder} --open   (then l, labels plan, Start)")


def _labels_to_decide(plan: LabelPlan) -> tuple[str, str | int]:
    """Certainty of the number of labels that tell the side of the line, and the number."""
    if plan.agreement is None:
        return "", "label some first"
    if plan.to_decide is None:
        return "", "over 640: too close"
    if plan.agreement.low > plan.line:
        return "", "0: it is above"
    if plan.agreement.high < plan.line:
        return "", "0: it is below"
    return " (likely)", plan.to_decide


def _lines(plan: LabelPlan) -> Iterator[str]:
    yield f"{plan.metric}: {plan.labels} of {counted(plan.cases, 'case')} have a label"
    if plan.stale:
        yield f"  {counted(plan.stale, 'label')} of another definition of the metric left out"
    if plan.contradictions:
        yield (
            f"  first: people differ on {len(plan.contradictions)} of "
            f"{counted(plan.several, 'case')} with several labels; no judge can agree with both"
        )
        for differing in plan.contradictions[:5]:
            at = text_if(differing.node, f", at {differing.node}")
            yield f"    {differing.case}: {', '.join(differing.outcomes)}{at}"
    if plan.agreement is not None:
        low, high = 100 * plan.agreement.low, 100 * plan.agreement.high
        are_random = plan.agreement.items == plan.random_labels
        of = ("cases, not all random", "random cases")[are_random]
        yield (
            f"  the judge agrees with people on {100 * plan.agreement.value:.0f} % of "
            f"{plan.agreement.items} {of} ({low:.0f} to {high:.0f} %)"
        )
    yield ""
    yield f"  {'to know':<56} {'more labels':>12}"
    unlabelled = plan.cases - plan.labels
    for half, more in plan.within:
        mark = ("  ", " *")[more > unlabelled]
        yield _row(f"agreement within ± {100 * half:.0f} points", f"{more}{mark}")
    likely, needed = _labels_to_decide(plan)
    yield _row(f"whether agreement is above {100 * plan.line:g} %{likely}", needed)
    for node in plan.nodes[:_NODES]:
        seen = f"{node.right} of {node.labels} right" if node.labels else "no label"
        yield _row(f"node {node.node} within ± 10 points ({seen})", node.more)
    if plan.within[-1][1] > unlabelled:
        yield "  * more than this run has without a label: it takes a larger run"
    yield from _threshold_lines(plan)
    yield from _abstention_lines(plan.abstention)
    yield ""
    yield (
        f"  next: {len(plan.first)} contradicting, {len(plan.random)} drawn at random, "
        f"{len(plan.chosen)} chosen by path and doubt"
    )


def _threshold_lines(plan: LabelPlan) -> Iterator[str]:
    from dagengine.reliability.threshold_fitting import FittedThreshold

    fit = plan.threshold
    if fit is None:
        return
    if not isinstance(fit, FittedThreshold):
        more = max((fit.needed or fit.items + 20) - fit.items, 0)
        yield _row("which threshold fits the labels", more)
        return
    best = f"{fit.threshold:.2f}" if fit.is_better else "none"
    yield (
        f"  the labels leave open thresholds from {fit.low:.2f} to {fit.high:.2f}; {best} is shown "
        f"to be better than the present {fit.now:g}"
    )


def _abstention_lines(fit: Abstention | Unknown | None) -> Iterator[str]:
    from dagengine.reliability.threshold_fitting import Abstention

    if isinstance(fit, Abstention):
        unsure = (
            "every verdict" if fit.below > 1 else f"a verdict below a confidence of {fit.below:g}"
        )
        yield (
            f"  call {unsure} unsure: on average at most {100 * fit.promised:g} % of cases get a "
            f"wrong one, and {100 * fit.answered:.0f} % of the {fit.items} random cases keep theirs"
        )
    elif fit is not None and fit.needed is not None:
        yield _row("below which confidence a verdict is unsure", fit.needed - fit.items)
    elif fit is not None:
        yield "  no confidence of a node is known: run with options=Options(top_logprobs=5)"


def _row(what: str, more: int | str) -> str:
    shown_more = more if isinstance(more, str) else f"{more}  "
    return f"  {what[:56]:<56} {shown_more:>14}".rstrip()
