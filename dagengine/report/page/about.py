"""What a page says of its run: data, judges, what it took, and what stands beside its rows.

A watch leaves alarms in `alerts.jsonl`, a synthesis what became of its drafts in `drafts.jsonl`.
"""

from __future__ import annotations

import shlex
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from dagengine.data.json_lines import read_models
from dagengine.record.labels import LABELS
from dagengine.record.run import Run
from dagengine.record.standings import standing_lines
from dagengine.record.values import Manifest
from dagengine.report.page.texts import why_without
from dagengine.report.tally import Tally
from dagengine.results.summary import MetricSummary
from dagengine.system.regular_files import is_there
from dagengine.system.terminal import clip, counted

ALERTS, DRAFTS = "alerts.jsonl", "drafts.jsonl"
_ALARMS = 200  # alarms that are shown, the latest
MOST = 5_000
"""Drafts that a page can show as kept and dropped; the page of more shows their rows alone."""
_LONGEST = 200  # characters of a setting
# Options of a run that `dagengine benchmark` has, too.
_SAME = frozenset(
    ("--data", "--map", "--delimiter", "--judge", "--base-url", "--max-tokens", "--max-in-flight")
)


def run_record(run: Run, cases: int, kept: int, *, served: bool = False) -> dict[str, Any]:
    """The run as the front end has it, without its metrics; `kept` rows have their texts.

    A page that is `served` is read on the machine where the folder is; any other may travel.
    """
    manifest, totals = run.manifest, run.manifest.totals
    folder = _folder_words(run.folder, served)
    seconds = manifest.seconds
    texts = "none" if not manifest.texts else "all" if kept == cases else "some"
    # The command that holds the judge of a run against the labels in its folder. What the run was
    # told of its cases and its judge is told again. Of a run that no command started only the
    # folder is known
    words = ["dagengine", "benchmark", *_command_words(manifest)]
    files = (word for word in _words(manifest.command) if word.split(":")[0].endswith(".py"))
    return {
        "name": manifest.settings.get("identifier") or run.folder.resolve().name,
        "folder": folder,
        "started": manifest.started.isoformat(timespec="seconds"),
        "seconds": None if seconds is None else round(seconds, 1),
        "finished": run.finished,
        "exit": manifest.exit,
        "error": manifest.error,
        "data": None if manifest.data.file is None else Path(manifest.data.file).name,
        "metricFile": next((Path(file).name for file in files), None),
        "command": manifest.command,
        "benchmark": shlex.join([*words, "--labels", str(Path(folder, LABELS))]),
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


def _folder_words(folder: Path, served: bool) -> str:
    """The folder as commands on a page have it: from here, and without a place of the machine."""
    if folder.is_absolute() and folder.is_relative_to(Path.cwd()):
        return str(folder.relative_to(Path.cwd()))
    return folder.name if folder.is_absolute() and not served else str(folder)


def _settings(manifest: Manifest) -> Iterator[tuple[str, str]]:
    """Settings that the caller says the run was made with; a long text by its beginning."""
    settings = manifest.settings.get("hyperparameters")
    for name, value in settings.items() if isinstance(settings, dict) else ():
        yield str(name), clip(" ".join(str(value).split()), _LONGEST)


def _command_words(manifest: Manifest) -> list[str]:
    """The metrics of the command of a run, and its options about cases and judge.

    The cases of an app are in its record alone: they are no data for another command.
    """
    words = _words(manifest.command)
    metrics = manifest.settings.get("metrics")
    if words[:2] != ["dagengine", "run"] or not metrics or manifest.settings.get("app"):
        return ["METRICS.py", "--data", "FILE"]
    arguments = [str(metrics)]
    for index, word in enumerate(words):
        name, sign, _ = word.partition("=")
        if name in _SAME:
            arguments += [word] if sign else words[index : index + 2]
    return arguments


def _words(command: str | None) -> list[str]:
    try:
        return shlex.split(command or "")
    except ValueError:
        return []


def headline(run: Run, tally: Tally) -> str:
    """One sentence that is the answer."""
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
    """Result, judge and data as pairs of a term and a text."""
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
    """One alarm of a watch, as far as it is shown; see `watch.causes.Alert`."""

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
    """The latest alarms of a watch, each with the day of the case at which it was raised.

    `day_of` knows the day of a case by its number. None were raised in any other run. Raises
    InputError that names a damaged line.
    """
    alarms = read_models(run.folder / ALERTS, AlarmRecord, "an alarm", whole=False)
    # What old questions show was found after the last case that there was.
    return [
        {**alarm.model_dump(), "day": day_of(alarm.row) or day_of(alarm.row - 1)}
        for alarm in deque(alarms, _ALARMS)
    ]


class DraftRecord(BaseModel):
    """One draft: the golden that it became, or why it did not.

    `case` is the number of its row, `text` the input or the scenario as far as it was written.
    Without a `cause` it became a golden: then there are its answer, the sentences that this rests
    on, and its kind. `cause` is the node that rejected it or gave no answer, "near duplicate" or
    "not needed". `why` is what the judge said, `repeats` the text that a near duplicate repeats.
    `source` is the place of its passage.
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


def drafts_of(run: Run, most: float = MOST) -> list[DraftRecord] | None:
    """The drafts of a synthesis in the order of their rows.

    None for any other run, and for one of more than `most` drafts. Raises InputError that names a
    damaged line.
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
    """One sentence that is the answer."""
    kept = sum(draft.cause is None for draft in drafts)
    return f"{counted(kept, 'golden')} kept of {counted(len(drafts), 'draft')}"
