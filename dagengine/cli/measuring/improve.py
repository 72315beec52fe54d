"""`dagengine improve`: make one node better by human labels, and show what that gains."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from typer import Option

from dagengine.cli.common import options as shared
from dagengine.cli.common.files import Given, Reads, Writes, sole
from dagengine.cli.common.judge_access import saying_how_to_go_on
from dagengine.cli.common.output import outlive_reader, report, say, warn
from dagengine.system.terminal_text import counted, one_line, wrap_lines

if TYPE_CHECKING:
    from dagengine.improvement.folder import PatchFolder
    from dagengine.improvement.improvement_report import Candidate, Improvement
    from dagengine.improvement.rewriters import Rewriter
    from dagengine.improvement.search_plan import Search


def _output_files(out: Path, given: Given) -> Iterable[Path]:
    from dagengine.improvement.folder import WRITTEN

    if not given.get("plan_only"):
        yield from (out / name for name in (*WRITTEN, "run.json"))  # a run is in it, too


@dataclass(frozen=True, kw_only=True)
class ImproveOptions(shared.ColumnOptions, shared.LimitOptions, shared.MetricOptions):
    """The options of one search, as they were typed."""

    data: Annotated[Path, Option(), Reads()]
    """Test cases in a file, as for `run`."""
    labels: Annotated[str, Option(metavar="FIELD|FILE")]
    """Human labels: a case field, a file with the columns `case` and `label`, or the `labels.jsonl`
    of `dagengine view`, which also says which node is to blame.
    """
    rewriter: Annotated[str | None, Option(metavar="MODEL"), Reads()] = None
    """Who rewrites criteria. Default: the judge."""
    groups: shared.Groups = None
    node: str | None = None
    """The node to change. Default: the one that causes most wrong results."""
    times: Annotated[int, Option(min=1)] = 3
    """How many times each question is asked."""
    proposals: Annotated[int, Option(min=0, max=9)] = 2
    """How many rewritten criteria are tried."""
    sealed: shared.SealedShare = 0.4
    out: Annotated[Path, Option(metavar="DIR"), Writes(_output_files)] = Path("improve")
    """The folder for the patch, the page and the record."""
    plan_only: shared.PlanOnly = False


def improve(options: ImproveOptions) -> None:
    """Change one node so that the metric agrees better with people, and show that it does.

    Splits the labelled cases: a sealed part is looked at once, in the end. Names the node that
    causes most wrong results, then tries changes, cheapest first: threshold and scores, votes,
    examples from labels, a rewritten criterion, two questions as one or one as two, the whole tree
    as one question. Accepts a change only if its gain on held-out cases is more than the noise of
    the judge and the number of tries explain. Writes a patch, and changes nothing in place.

    Without --store, answers are kept in DIR/answers.db. An interrupted search continues there, and
    no answered question is asked again.

    Exit codes: 0 done, whether or not a change is proved; 2 invalid input, or a limit is reached;
    130 interrupted.
    """
    from dagengine.improvement.folder import RECORD, PatchFolder
    from dagengine.improvement.rewriters import JudgeRewriter
    from dagengine.improvement.search_plan import Search, plan_lines
    from dagengine.loading import load_judge
    from dagengine.reliability.statistics.intervals import require_benchmark_extra

    require_benchmark_extra()
    cases = list(options.cases_in(options.data))
    search = Search.of(
        cases, shared.sole_metric(options.metrics), options.labels, groups=options.groups,
        node=options.node, times=options.times, proposals=options.proposals, sealed=options.sealed,
    )  # fmt: skip
    model, limits, folder = options.chosen_judge(), options.limits(), PatchFolder(options.out)
    plan = search.plan(model=model, prices=limits.prices)
    for name, calls in plan_lines(plan):
        say(wrap_lines(f"  {name:26} {calls:>34}", 27))
    bounds = "upper bounds, for the most expensive node"
    say(wrap_lines(f"{bounds}; p values are corrected for {plan.tries} tries"))
    # Each look at the sealed part makes it a little less unseen, in whatever folder it was.
    if looks := folder.looks(search.split.sha256, beside=True):
        changes = counted(len(looks), "change")
        warn(f"the sealed part was opened before, for {changes} in folders beside")
    report(plan=plan)
    if options.plan_only:
        return
    outlive_reader()
    options.out.mkdir(parents=True, exist_ok=True)
    settings = {"model": model, "store": options.store or folder.store, "limits": limits}
    rewriter = JudgeRewriter()  # by default it asks the judge of the search
    if options.rewriter is not None:
        rewriter = JudgeRewriter(load_judge(options.rewriter, options.base_url))
    with sole(options.out / RECORD):
        _run(search, options.metrics, rewriter, folder, settings)


def _run(
    search: Search, target: str, rewriter: Rewriter, folder: PatchFolder, settings: dict[str, Any]
) -> None:
    """Search, write the files of the folder, and print what was found and what to do next."""
    from dagengine.execution.interrupts import sync
    from dagengine.improvement import improvement_report
    from dagengine.improvement.folder import PAGE, RECORD
    from dagengine.improvement.search import run_search

    async def search_and_write() -> tuple[Improvement, str | None]:
        note_look = partial(folder.look, search.split.sha256)  # that the sealed part is opened
        result = await run_search(
            search, settings, rewriter=rewriter, on_candidate=_say_candidate, on_look=note_look
        )
        return result, await folder.leave(result, target, search.metric, search.cases, settings)

    say("")
    with saying_how_to_go_on(settings["store"]):
        result, patch = sync(search_and_write)  # the command that applies the change, or its file
    report(**json.loads((folder.path / RECORD).read_bytes()))
    # The most important comes first: the headline, its grounds, the next step; the change is last.
    say(
        wrap_lines(f"\n{improvement_report.headline(result)}\n\n  {improvement_report.why(result)}")
    )
    say(f"  next  {improvement_report.step(result, patch)}\n")
    for warning in improvement_report.warnings(result):
        say(wrap_lines(f"  warning: {warning}", 2), err=True)
    for name, text in improvement_report.facts(result):
        say(wrap_lines(f"  {name:8} {text}", 9))
    marks = {"kept": "{}", "gone": "[-{}-]", "new": "{{+{}+}}"}  # as `git diff --word-diff` prints
    for candidate in result.accepted:
        if parts := [marks[kind].format(text) for kind, text in improvement_report.edit(candidate)]:
            say(wrap_lines(f"\n  {candidate.where}: {' '.join(parts)}", 2))
    say(f"\npage: {folder.path / PAGE} (also {RECORD}, run.json)")


def _say_candidate(candidate: Candidate) -> None:
    from dagengine.improvement import improvement_report

    gain = "" if candidate.skipped else f"{improvement_report.points(candidate.gain):>15}  "
    line = f"  {one_line(candidate.what, 26):26} {one_line(candidate.where, 12):12} {gain}"
    say(wrap_lines(line + improvement_report.decision(candidate), 27))
