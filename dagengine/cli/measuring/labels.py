"""The commands of human labels: `labels plan`."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from typer import Argument, Option

from dagengine.cli.common.command import Commands
from dagengine.cli.common.files import Reads, Writes
from dagengine.cli.common.output import report, say
from dagengine.errors import InputError
from dagengine.system.terminal import counted, text_if

if TYPE_CHECKING:
    from collections.abc import Iterator

    from dagengine.view.queues import LabelPlan

app = Commands(
    "labels", "Plan human labels: how many are needed for what, and which cases are next."
)

_NODES = 8


@app.command()
def plan(
    folder: Annotated[
        Path,
        Argument(metavar="DIR", help="The folder of a run."),
        Writes(  # the file of its rows names a run, too
            lambda run, given: [(run.parent if run.is_file() else run) / "label-plan.json"]
        ),
    ],
    labels: Annotated[
        Path | None,
        Option(
            metavar="FILE", help="Labels of `dagengine view`. Default: labels.jsonl of the run."
        ),
        Reads(),
    ] = None,
    metric: Annotated[str | None, Option(help="Only this metric.")] = None,
    need: Annotated[
        str | None,
        Option(
            metavar="agreement=85", help="The agreement that you need, in per cent. Default: 80."
        ),
    ] = None,
    count: Annotated[int, Option(min=1, help="How many cases to label next.")] = 20,
    chosen: Annotated[
        int | None,
        Option(
            min=0,
            help="How many of them are chosen by path and doubt; the others are drawn at random. "
            "Default: half.",
        ),
    ] = None,
) -> None:
    """Say how many labels are needed for what, and which cases to label next. Makes no judge calls.

    Writes the cases into label-plan.json of the run; `dagengine view` shows them as a queue.
    Cases on which people contradict each other come first, then cases drawn at random, then the
    most doubtful case of every path. Only the random ones say how often the judge is right.

    Exit codes: 0; 2 invalid input, for instance a folder without a run.
    """
    from dagengine.record.labels import LABELS, LabelFile
    from dagengine.record.run import load_run
    from dagengine.reliability.card.verdict import parse_needs
    from dagengine.view.queues import label_plan, write_plan

    line = parse_needs(need).agreement
    run = load_run(folder)
    records = [own for own in run.manifest.metrics if metric in (None, own.name)]
    if not records:
        names = ", ".join(repr(own.name) for own in run.manifest.metrics)
        raise InputError(f"the run has no metric {metric!r}; it has {names}")
    people = LabelFile(labels or run.folder / LABELS).labels()
    plans = [
        label_plan(
            record, run.rows(), people, line=line, count=count, chosen=chosen,
            seed=run.folder.resolve().name,
        )
        for record in records
    ]  # fmt: skip
    for planned in plans:
        say("\n".join([*_lines(planned), ""]))
    report(plans=plans)
    path = write_plan(run.folder, plans)
    total = sum(len(planned.queue) for planned in plans)
    say(f"{counted(total, 'case')} to label: {path}")
    say(f"next: dagengine view {shlex.quote(str(folder))} --open   (then l, labels plan, Start)")


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
    yield ""
    yield (
        f"  next: {len(plan.first)} contradicting, {len(plan.random)} drawn at random, "
        f"{len(plan.chosen)} chosen by path and doubt"
    )


def _threshold_lines(plan: LabelPlan) -> Iterator[str]:
    from dagengine.reliability.fitting import FittedThreshold

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


def _row(what: str, more: int | str) -> str:
    shown_more = more if isinstance(more, str) else f"{more}  "
    return f"  {what[:56]:<56} {shown_more:>14}".rstrip()
