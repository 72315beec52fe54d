"""The headline and the lines of a page where no script runs."""

from __future__ import annotations

from dagengine.record.run import Run
from dagengine.report.page.about import judge_name
from dagengine.report.tally import Tally
from dagengine.results.summary import MetricSummary
from dagengine.terminal import counted


def headline(run: Run, tally: Tally) -> str:
    """One sentence that is the answer."""
    cases = f"{tally.rows:,} case{'' if tally.rows == 1 else 's'}"
    metrics = tally.summing.result().metrics
    if not run.finished:
        return f"Not finished: {cases} so far"
    if len(metrics) != 1:
        return f"{cases}, {len(metrics)} metrics"
    (metric,) = metrics
    if metric.no_score == metric.cases:
        return "No case has a score"
    missing = f", {metric.no_score:,} without a score" if metric.no_score else ""
    if metric.failed or missing:
        return f"{metric.failed:,} of {cases} failed{missing}"
    return f"All {cases} passed" if metric.passed else f"{cases}, {_mean(metric)}"


def plain_lines(run: Run, tally: Tally) -> list[tuple[str, str]]:
    """Result, judge and data as pairs of a term and a text."""
    lines = []
    for metric in tally.summing.result():
        counts = f"{metric.passed:,} passed, {metric.failed:,} failed"
        without = f"{metric.no_score:,} without a score"
        lines.append((metric.metric, f"{counts}, {without}, {_mean(metric)}"))
    for group in tally.places.ranking()[:3]:
        lines.append(("where", f"{group.cases:,} x {group.end}: {group.reason[:300]}"))
    judges = ", ".join(judge_name(judge) for judge in run.manifest.judges)
    lines.append(("judge", judges or "no judge"))
    lines.append(("data", f"{run.manifest.data.file or 'cases'}, {counted(tally.rows, 'case')}"))
    return lines


def _mean(metric: MetricSummary) -> str:
    return "no mean" if metric.mean is None else f"mean {metric.mean:.2f}"
