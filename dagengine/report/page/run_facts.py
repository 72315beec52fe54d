"""Facts about a run for its page: data, judges, cost, and files that only some runs have.

A watch leaves its alarms in `alerts.jsonl`, a synthesis the fate of its drafts in `drafts.jsonl`.
"""

from __future__ import annotations

import shlex
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from dagengine.data.written_lines import read_models
from dagengine.record.judge_standing import standing_lines
from dagengine.record.label_file import LABELS
from dagengine.record.reader import Run
from dagengine.record.run_json_types import Manifest
from dagengine.report.page.packed_texts import why_without
from dagengine.report.tally import Tally
from dagengine.results.summary import MetricSummary
from dagengine.system.safe_files import is_there
from dagengine.system.terminal_text import clip, counted

ALERTS, DRAFTS = "alerts.jsonl", "drafts.jsonl"
_MOST_ALARMS = 200  # a page shows the latest
_MOST_DRAFTS = 5_000  # a page with more drafts has none of them, only the rows of the goldens
_LONGEST_SETTING = 200  # characters
# Options of a run that `dagengine benchmark` has, too.
_SHARED_OPTIONS = frozenset(
    ("--data", "--map", "--delimiter", "--judge", "--base-url", "--max-tokens", "--max-in-flight")
)


def run_record(run: Run, cases: int, kept: int, *, served: bool = False) -> dict[str, Any]:
    """The run as the front end has it, without its metrics; `kept` of its `cases` have their texts.

    A page that is `served` stays on the machine of the folder; any other has no full path of it.
    """
    manifest, totals = run.manifest, run.manifest.totals
    folder = _folder_for_page(run.folder, served)
    texts = ("all" if kept == cases else "some") if manifest.texts else "none"
    # The command that compares the judge of the run with the labels in its folder.
    benchmark = ["dagengine", "benchmark", *_benchmark_arguments(manifest)]
    benchmark += ["--labels", str(Path(folder, LABELS))]
    # Metrics are a file, or objects in one: `metrics.py:faithful`.
    words = _split(manifest.command)
    metric_file = next((word for word in words if word.split(":")[0].endswith(".py")), None)
    return {
        "name": manifest.settings.get("identifier") or run.folder.resolve().name,
        "folder": folder,
        "started": manifest.started.isoformat(timespec="seconds"),
        "seconds": manifest.seconds and round(manifest.seconds, 1),
        "finished": run.finished,
        "exit": manifest.exit,
        "error": manifest.error,
        "data": None if manifest.data.file is None else Path(manifest.data.file).name,
        "metricFile": metric_file and Path(metric_file).name,
        "command": manifest.command,
        "benchmark": shlex.join(benchmark),
        "planned": manifest.data.cases,
        "cases": cases,
        "judges": [{"name": judge.name} for judge in manifest.judges],
        "standings": standing_lines(manifest.judges),
        "questions": totals and totals.asked,
        "retried": totals and totals.retried,
        "tokens": totals and round(totals.input_tokens + totals.output_tokens),
        "cached": totals and round(totals.cached_tokens),
        "cost": totals and totals.cost,
        "texts": texts,
        "kept": kept,
        "settings": list(_settings(manifest)),
        "noPrompts": why_without(run),
    }


def _folder_for_page(folder: Path, served: bool) -> str:
    """The folder as commands on a page have it: relative to the working directory, if it can be."""
    if not folder.is_absolute():
        return str(folder)
    if folder.is_relative_to(Path.cwd()):
        return str(folder.relative_to(Path.cwd()))
    return str(folder) if served else folder.name


def _settings(manifest: Manifest) -> Iterator[tuple[str, str]]:
    """Hyperparameters that the caller of the run stated; a long text is cut."""
    settings = manifest.settings.get("hyperparameters")
    for name, value in settings.items() if isinstance(settings, dict) else ():
        yield str(name), clip(" ".join(str(value).split()), _LONGEST_SETTING)


def _benchmark_arguments(manifest: Manifest) -> list[str]:
    """Metrics, cases and judge as the command of the run has them, or words to fill in.

    No other command can read the cases of an app: they are in its record alone.
    """
    words = _split(manifest.command)
    metrics = manifest.settings.get("metrics")
    if words[:2] != ["dagengine", "run"] or not metrics or manifest.settings.get("app"):
        return ["METRICS.py", "--data", "FILE"]
    arguments = [str(metrics)]
    for index, word in enumerate(words):
        name, sign, _ = word.partition("=")
        if name in _SHARED_OPTIONS:
            # `--data=FILE` is one word, `--data FILE` is two.
            arguments += [word] if sign else words[index : index + 2]
    return arguments


def _split(command: str | None) -> list[str]:
    """The words of a command; none if there is no command, or its quotes do not close."""
    try:
        return shlex.split(command or "")
    except ValueError:
        return []


def headline(run: Run, tally: Tally) -> str:
    """The result of a run in one sentence."""
    cases = counted(tally.rows, "case")
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
    """Results, the three largest groups of failed cases, judge and data: pairs of term and text."""
    lines = []
    for metric in tally.summing.result():
        counts = f"{metric.passed:,} passed, {metric.failed:,} failed"
        without = f"{metric.no_score:,} without a score"
        lines.append((metric.metric, f"{counts}, {without}, {_mean(metric)}"))
    for group in tally.places.ranking()[:3]:
        lines.append(("where", f"{group.cases:,} x {group.end}: {group.reason[:300]}"))
    judges = ", ".join(judge.name for judge in run.manifest.judges)
    lines.append(("judge", judges or "no judge"))
    lines.append(("data", f"{run.manifest.data.file or 'cases'}, {counted(tally.rows, 'case')}"))
    return lines


def _mean(metric: MetricSummary) -> str:
    return "no mean" if metric.mean is None else f"mean {metric.mean:.2f}"


class AlarmRecord(BaseModel):
    """One alarm of a watch, as far as it is shown; see `watch.alarm_causes.Alert`."""

    row: int
    metric: str
    group: str
    before: float
    now: float
    cases: int
    cause: str
    again: int = 0
    path: str | None = None
    time: str = ""


def alarms_of(run: Run, day_of: Callable[[int], str | None]) -> list[dict[str, Any]]:
    """The latest alarms of a watch, each with the day of its case; empty for any other run.

    `day_of` gives the day of a case by its number, None without such a case. Raises InputError
    that names a damaged line.
    """
    alarms = read_models(run.folder / ALERTS, AlarmRecord, "an alarm", whole=False)
    # Old questions may be asked again after the last case: their alarm is of the row after it.
    return [
        {**alarm.model_dump(), "day": day_of(alarm.row) or day_of(alarm.row - 1)}
        for alarm in deque(alarms, _MOST_ALARMS)
    ]


class DraftRecord(BaseModel):
    """One draft of a synthesis, which became a golden or was dropped.

    `case` is the number of its row, `text` its input or scenario as far as that was written, and
    `source` says where its passage is. A golden has no `cause`. It has its `kind`, its `answer` and
    the `sentences` of the passage that support the answer. The `cause` of a dropped draft is the
    node that rejected it or gave no answer, "near duplicate" or "not needed". `why` is the judge's
    reason, `repeats` the text that a near duplicate repeats.
    """

    case: int
    text: str
    source: str
    kind: str
    cause: str | None = None
    why: str | None = None
    repeats: str | None = None
    answer: str | None = None
    sentences: list[str] = []


def drafts_of(run: Run, most: float = _MOST_DRAFTS) -> list[DraftRecord] | None:
    """The drafts of a synthesis in the order of their rows.

    None for any other run, and for a synthesis with more than `most` drafts. Raises InputError
    that names a damaged line.
    """
    path = run.folder / DRAFTS
    if not is_there(path):
        return None
    drafts: list[DraftRecord] = []
    for draft in read_models(path, DraftRecord, "a draft", whole=run.finished):
        drafts.append(draft)
        if len(drafts) > most:
            return None
    return drafts


def outcome_sentence(drafts: Sequence[DraftRecord]) -> str:
    """The result of a synthesis in one sentence."""
    kept = sum(draft.cause is None for draft in drafts)
    return f"{counted(kept, 'golden')} kept of {counted(len(drafts), 'draft')}"
