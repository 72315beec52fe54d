"""What is shown at the end of a run: a table, a summary and the cost on a terminal.

Build servers get JUnit XML, which has a test per case and metric, and the summary on the page of a
GitHub workflow.
"""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from itertools import compress
from operator import attrgetter
from pathlib import Path
from typing import Any, Literal

from dagengine.errors import more_on
from dagengine.prompts.evidence import as_text
from dagengine.report.page.run_facts import DraftRecord, outcome_sentence
from dagengine.report.pictures.metric_graph import Contest
from dagengine.report.tally import Tally
from dagengine.results.html_tables import cell, number, table
from dagengine.results.metric_results import CaseResult, MetricResult
from dagengine.results.outcomes import OutcomeKind, Step, calls_words
from dagengine.results.pass_rules import SIGNS
from dagengine.results.summary import EndCounts, Summary, escalated_line, worst_result
from dagengine.results.usage_totals import Totals, cost_line
from dagengine.system.safe_files import new_file
from dagengine.system.terminal_text import counted, few, one_line, plain, standard_console, text_if

_PLACES = 8  # ends that are printed
_NAME = 200  # characters of a name
_REASON = 1000  # characters of a reason; `show --case` prints all of it
_PLACE = 80
_STYLES = {"failed": "red", "no_score": "magenta"}
VARIABLE = "GITHUB_STEP_SUMMARY"
_FORBIDDEN = re.compile(r"[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def print_table(
    tally: Tally, totals: Totals, console: Any = None, standings: Sequence[str] = ()
) -> None:
    """Print the results of a run: figures, the worst cases, where cases failed, and the cost.

    A few dozen lines for a run of any size. `standings` say what is known of its judges.
    """
    out = console or standard_console()
    print_summary(tally, out, standings)
    out.print(cost_line(totals), highlight=False)


def print_summary(tally: Tally, console: Any = None, standings: Sequence[str] = ()) -> None:
    """Print the results of a run, without the cost."""
    out = console or standard_console()
    summary = tally.summing.result()
    headline, lines = headline_of(summary), list[str]()
    several = len(summary.metrics) > 1
    for name, metric in tally.metrics.items():
        if metric.wins and len(tally.metrics) == 1:
            headline = wins_line(metric.wins) + "".join(headline.partition(";")[1:])
        elif metric.wins:
            lines.append(f"{one_line(name, _NAME)}: {wins_line(metric.wins)}")
    out.print(plain(headline), style="bold", highlight=False, markup=False)
    _print_lines(out, standings)
    out.print(_summary_table(summary))
    lines += filter(None, map(escalated_line, summary))
    lines += (f"{one_line(m.metric, _NAME)}: {m.points}" for m in summary if m.points is not None)
    _print_lines(out, lines)
    if tally.rows:
        worst = tally.worst.rows
        shown = "The cases" if len(worst) == summary.cases else f"The {len(worst)} worst cases"
        out.print(_cases_table(worst, f"{shown}, worst first", several, out.width))
    _print_lines(out, _place_lines(tally.places, several))
    if (warning := tally.masses.warning) is not None:
        _print_lines(out, [f"warning: {warning}"])


def _print_lines(out: Any, lines: Iterable[str]) -> None:
    for line in lines:
        out.print(plain(line), highlight=False, markup=False)


def print_drafts(drafts: Sequence[DraftRecord]) -> None:
    """Print what became of the drafts of a synthesis, and the commonest causes of those dropped."""
    out = standard_console()
    out.print(outcome_sentence(drafts), style="bold", highlight=False)
    for cause, count in Counter(draft.cause for draft in drafts).most_common():
        if cause is None:
            continue
        first = next(draft for draft in drafts if draft.cause == cause)
        why = first.why or (f"repeats {first.repeats!r}" if first.repeats else "")
        about = f": {one_line(why, _REASON)}" if why else ""
        shown = f" (first: {one_line(first.text, _PLACE)})" if first.text else ""
        _print_lines(out, [f"{count:,}x dropped, {one_line(cause, _NAME)}{about}{shown}"])


def print_cases(rows: Sequence[CaseResult], title: str, *, times: bool) -> None:
    """Print rows as the worst cases of a run are; with `times` how long each took."""
    out = standard_console()
    several = any(len(row.metrics) > 1 for row in rows)
    out.print(_cases_table(rows, title, several, out.width, times=times))


def wins_line(wins: Counter[str]) -> str:
    """Say who won an arena, and in how many cases the second one did."""
    of = counted(wins.total(), "case")
    contestants = sorted(wins.keys() - {Contest.TIE}, key=lambda name: (-wins[name], name))
    first, *losers = contestants
    most = wins[first]
    if not most:
        return f"No winner: all {of} are ties"
    lead = [name for name in contestants if wins[name] == most]
    if len(lead) > 1:
        return f"No winner: {few(lead)} won {most:,} of {of} each"
    second = f", {losers[0]} {wins[losers[0]]:,}" if losers else ""
    return f"{first} won {most:,} of {of}{second}"


def headline_of(summary: Summary) -> str:
    """The answer in one sentence."""
    total, failed, missing = summary.cases, summary.failed, summary.no_score
    if total and missing == total and not failed:
        some = any(tally.no_score < tally.cases for tally in summary)
        return f"⊘ No case has {'all its scores' if some else 'a score'}"
    without = f"; {missing:,} {'has' if missing == 1 else 'have'} no score" if missing else ""
    rate = summary.pass_rate
    if rate is None:
        return f"{counted(total, 'case')}{without}"
    if not failed and not missing:
        return f"All {total:,} cases passed" if total != 1 else "The case passed"
    return f"{failed:,} of {counted(total, 'case')} failed{without}"


def _summary_table(summary: Summary) -> Any:
    from rich.table import Table
    from rich.text import Text

    table = Table(title="Summary", title_justify="left")
    heads = ("mean", "median", "spread", "passed", "failed", "no score")
    longest = max((len(tally.metric) for tally in summary), default=0)
    table.add_column("metric", overflow="fold", min_width=min(longest, 12), max_width=40)
    for name in heads:
        table.add_column(name, justify="right")
    for tally in summary:
        means = (tally.mean, tally.median, tally.spread)
        figures = ["-" if figure is None else f"{figure:.3f}" for figure in means]
        passed, rate = "-", tally.pass_rate
        if rate is not None:
            # A tenth of a percent is a case from a thousand cases on.
            digits = 1 if tally.cases >= 1000 else 0
            share, *limits = (f"{part:.{digits}%}" for part in (rate.value, rate.low, rate.high))
            scored = f" of {tally.passed + tally.failed:,} scored" if tally.no_score else ""
            passed = f"{tally.passed:,}{scored} = {share}\n({' to '.join(limits)})"
        counts = (passed, f"{tally.failed:,}", f"{tally.no_score:,}")
        table.add_row(Text(one_line(tally.metric, _NAME)), *figures, *counts)
    return table


def _cases_table(
    rows: Sequence[CaseResult], title: str, several: bool, width: int, times: bool = False
) -> Any:
    """A row per case: its worst metric, where that ended, and why; long texts are wrapped."""
    from rich.table import Table

    index = max((len(str(row.index)) for row in rows), default=1)
    named = (width - index) // 5
    rest = width - index - named * (1 + several) - 6 - 3 * (5 + several) - 1 - 10 * times
    columns: dict[str, tuple[int, Literal["left", "right"]]] = {
        "": (1, "left"),
        "#": (index, "right"),
        "case": (named, "left"),
        "worst metric": (named, "left"),
        "score": (5, "right"),
        "time": (7, "right"),
        "ended at, and why": (max(rest, 10), "left"),
    }
    wanted = {"worst metric": several, "time": times}
    shown = [wanted.get(head, True) for head in columns]
    table, numbers = Table(title=title, title_justify="left"), dict[str, int]()
    for head, (most, side) in compress(columns.items(), shown):
        table.add_column(head, justify=side, overflow="fold", max_width=most)
    for row in rows:
        table.add_row(*compress(_cells(row, numbers), shown))
    return table


def _cells(row: CaseResult, numbers: dict[str, int]) -> list[Any]:
    """The cells of a row; a long text that an earlier row has (`numbers`) is not said again."""
    from rich.text import Text

    worst, style = worst_result(row), ""
    metric = score = ending = ""
    if worst is not None:
        metric, style = worst.metric, _STYLES.get(worst.state, "")
        score = "none" if worst.score is None else f"{worst.score:.3f}"
        end, why = str(worst.end), worst.why
        for step in worst.steps:
            if contest := Contest.of(step.output):
                orders = Counter(winner for _, winner in contest.votes)[contest.winner]
                end = f"{contest.winner}, {orders} of {counted(len(contest.votes), 'order')}"
                why = contest.reason
        first = numbers.setdefault(why, row.index)
        if first != row.index and len(why) > _PLACE:
            why = f"as # {first}"
        ending = f"{end}{text_if(why, ': ')}{why}"
    return [
        Text(SIGNS[row.state if worst is None else worst.state], style=style),
        Text(str(row.index)),
        Text(one_line(row.case, _NAME)),
        Text(one_line(metric, _NAME)),
        Text(score, style=style),
        Text("" if row.seconds is None else seconds_words(row.seconds)),
        Text(one_line(ending, _REASON)),
    ]


def _place_lines(places: EndCounts, several: bool) -> list[str]:
    """Places where cases failed or got no score: the commonest ends, each with a reason."""
    ranked = places.ranking()
    lines = []
    for group in ranked[:_PLACES]:
        # The metric is named if there are several, and the end does not name it.
        metric = f" of {group.end.metric}" if several and group.end.answer else ""
        end = f"{SIGNS[group.end.state]} {one_line(f'{group.end}{metric}', _PLACE)}"
        why = f"{text_if(group.reason, ': ')}{one_line(group.reason, _REASON)}"
        first = one_line(group.first, _PLACE)
        reason = f"{why} (first: {first})" if group.shared else f" (for instance {first}{why})"
        lines.append(f"{group.cases:,}x {end}{reason}")
    more = len(ranked) - _PLACES
    if more > 0:
        lines.append(f"{more} more ends")
    if kinds := {group.end.answer for group in ranked} & set(OutcomeKind):
        lines.append(more_on(kinds))
    return lines


def print_steps(
    result: MetricResult,
    console: Any = None,
    *,
    times: bool = False,
    best: Mapping[str, float] | None = None,
) -> None:
    """Print what every node of one metric said about one case, for an audit (verbose mode).

    With `times`, also how long each node took, if it is known. `best` are the highest numbers of
    scales, by the names of their nodes.
    """
    from rich.padding import Padding
    from rich.text import Text

    out = console or standard_console()
    headline = str(result.failure)
    if result.failure is None:
        passed = {True: ", passed", False: ", not passed", None: ""}[result.success]
        asked = "" if result.threshold is None else f", threshold {result.threshold:.4g}"
        headline = f"score {result.score:.4g}{asked}{passed}"
    out.print(Text(plain(f"{result.metric}: {headline}"), style="bold"))
    for step in result.steps:
        took = f", {seconds_words(step.seconds)}" if times and step.seconds is not None else ""
        kind = (f"({plain(step.kind)}{took})", "dim")
        out.print(Text.assemble(f"● {plain(step.node)} ", kind))
        if way := calls_words(step.calls):
            out.print(Padding(Text(plain(way), style="dim"), (0, 0, 0, 4), expand=False))
            # What was wrong with the calls of a step that were made again
            failed = (call for calls in step.calls for call in calls if call.message is not None)
            for call in failed:
                line = f"{call.outcome}: {one_line(call.message or '', _REASON)}"
                out.print(Padding(Text(plain(line), style="dim"), (0, 0, 0, 6), expand=False))
        for line in _step_lines(step, (best or {}).get(step.node)):
            out.print(Padding(Text(plain(line)), (0, 0, 0, 4), expand=False))


def seconds_words(seconds: float) -> str:
    """A time as a person reads it."""
    if seconds < 1:
        return f"{seconds * 1000:.0f} ms"
    return f"{seconds:.1f} s" if seconds < 600 else f"{seconds / 60:,.0f} min"


def _step_lines(step: Step, best: float | None) -> list[str]:
    """Answer of a step, as numbered items where it is a list; a rating as it was given."""
    if step.outcome != "ok":
        return [f"{step.outcome}: {step.reason or 'no reason given'}"]
    if step.verdict is not None or step.score is not None:
        quotes = [one_line(str(quote), _REASON) for quote in step.quotes]
        return [_answer_words(step, best), *(step.reason or "").splitlines(), *quotes]
    output = step.output
    if isinstance(output, dict) and len(output) == 1:
        (output,) = output.values()
    if isinstance(output, list):
        lines = [f"{number}. {_plain(item)}" for number, item in enumerate(output, 1)]
        for index, own in reversed([*enumerate(step.item_quotes, 1)]):
            lines[index:index] = (f"   {one_line(str(quote), _REASON)}" for quote in own)
        return lines
    return [] if output is None else _plain(output).splitlines()


def _answer_words(step: Step, best: float | None) -> str:
    mode = f" ({step.mode})" if step.mode else ""
    if step.verdict is not None:
        return f"{step.verdict}{mode}"
    if step.kind == "rating" and isinstance(step.output, int | float):
        of = "" if best is None else f" of {best:g}"
        return f"{step.output:.4g}{of} → {step.score:.2f}{mode}"
    return f"{step.score:.4g}{mode}"


def _plain(value: Any) -> str:
    """Data as a person reads it: a verdict with its reason, fields by name."""
    match value:
        case {"verdict": verdict, "criterion": criterion}:
            won = f", {value['won']:g} of {value['points']:g} points" if "won" in value else ""
            return f"{verdict}{won}: {criterion} ({value.get('reason') or '-'})"
        case {"verdict": verdict, "reason": reason} if len(value) == 2:
            return f"{verdict}: {reason}"
        case dict():
            return ", ".join(f"{name}: {_plain(part)}" for name, part in value.items())
        case list():
            return "; ".join(map(_plain, value))
    return as_text(value)


def write_junit(path: str | Path, rows: Iterable[CaseResult], summary: Summary) -> None:
    """Write the rows, whose `summary` is known, one by one; raises as `new_file`.

    A result below its threshold is a failure, one without a score an error.
    """
    from xml.sax.saxutils import XMLGenerator
    from xml.sax.xmlreader import AttributesImpl

    def attributes(texts: dict[str, str]) -> AttributesImpl:
        return AttributesImpl(dict(zip(texts, map(_clean, texts.values()), strict=True)))

    with new_file(Path(path)) as file:
        xml = XMLGenerator(file, "utf-8", short_empty_elements=True)
        # Readers of JUnit expect the counts before the first test: so the summary is known already.
        kinds = {"tests": "cases", "failures": "failed", "errors": "no_score"}
        counts = {n: str(sum(map(attrgetter(kind), summary))) for n, kind in kinds.items()}
        xml.startDocument()
        xml.startElement("testsuites", attributes(counts))
        xml.startElement("testsuite", attributes({"name": "dagengine", **counts}))
        for row in rows:
            for result in row.metrics:
                name = {"classname": result.metric, "name": f"{row.index} {row.case}"}
                xml.startElement("testcase", attributes(name))
                if kind := {"failed": "failure", "no_score": "error"}.get(result.state):
                    score = "" if result.score is None else f"score {result.score:.4g} at "
                    why = {"message": f"{score}{result.end}", "type": str(result.outcome)}
                    xml.startElement(kind, attributes(why))
                    xml.characters(_clean(result.why))
                    xml.endElement(kind)
                xml.endElement("testcase")
        xml.endElement("testsuite")
        xml.endElement("testsuites")
        xml.endDocument()


def _clean(text: str) -> str:
    """Text that XML may hold, with what hides in it made visible."""
    return _FORBIDDEN.sub("�", plain(text))


def add_step_summary(tally: Tally, totals: Totals, standings: Sequence[str] = ()) -> None:
    """Append the summary to the file that the variable names; nothing without it."""
    name = os.environ.get(VARIABLE)
    if name:
        with Path(name).open("a", encoding="utf-8") as file:
            file.write(step_summary(tally, totals, standings))


def step_summary(tally: Tally, totals: Totals, standings: Sequence[str] = ()) -> str:
    """The headline, the judges' `standings`, the figures and where cases failed.

    It is HTML that holds no Markdown.
    """
    summary = tally.summing.result()
    figures = [
        [_code(counts.metric), str(counts.cases), number(counts.mean), str(counts.passed),
         str(counts.failed), str(counts.no_score)]
        for counts in summary
    ]  # fmt: skip
    spots = [
        [str(group.cases), SIGNS[group.end.state], _code(str(group.end)), _code(group.reason)]
        for group in tally.places.ranking()[:_PLACES]
    ]
    text = f"<h3>{cell(headline_of(summary))}</h3>"
    text += "".join(f"<p>{cell(line)}</p>" for line in standings)
    text += table(("metric", "cases", "mean", "passed", "failed", "no score"), figures)
    if spots:
        text += table(("cases", "", "ended at", "reason of the first"), spots)
    return f"{text}<p>{cell(cost_line(totals))}</p>\n\n"


def _code(text: str) -> str:
    """Text that is shown as it is: no link, no mention, no mark-up."""
    return f"<code>{cell(text)}</code>"
