"""What a page says of its run: where the data came from, who judged, what it took."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Any

from dagengine.question import judge_name as short_name
from dagengine.record.definition import standing_lines
from dagengine.record.labels import LABELS
from dagengine.record.prompts import why_without
from dagengine.record.run import Run
from dagengine.record.values import JudgeRecord, Manifest

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
    # As commands on a page have it: from here, and without a place of the machine
    folder = str(run.folder)
    if run.folder.is_absolute() and run.folder.is_relative_to(Path.cwd()):
        folder = str(run.folder.relative_to(Path.cwd()))
    elif run.folder.is_absolute() and not served:
        folder = run.folder.name
    seconds = None
    if manifest.ended is not None:
        seconds = round((manifest.ended - manifest.started).total_seconds(), 1)
    texts = "none" if not manifest.texts else "all" if kept == cases else "some"
    # The command that holds the judge of a run against the labels in its folder. What the run was
    # told of its cases and its judge is told again. Of a run that no command started only the
    # folder is known
    words = ["dagengine", "benchmark", *(_repeated(manifest) or ["METRICS.py", "--data", "FILE"])]
    # What the caller says the run was made with; a long text by its beginning
    record = manifest.settings.get("hyperparameters")
    settings = record if isinstance(record, dict) else {}
    flat = {str(name): " ".join(str(value).split()) for name, value in settings.items()}
    metric_files = [word for word in _words(manifest.command) if word.split(":")[0].endswith(".py")]
    return {
        "name": manifest.settings.get("identifier") or run.folder.resolve().name,
        "folder": folder,
        "started": manifest.started.isoformat(timespec="seconds"),
        "seconds": seconds,
        "finished": run.finished,
        "exit": manifest.exit,
        "error": manifest.error,
        "data": None if manifest.data.file is None else Path(manifest.data.file).name,
        "metricFile": Path(metric_files[0]).name if metric_files else None,
        "command": manifest.command,
        "benchmark": shlex.join([*words, "--labels", str(Path(folder, LABELS))]),
        "planned": manifest.data.cases,
        "cases": cases,
        "judges": [{"name": judge_name(judge)} for judge in manifest.judges],
        "standings": standing_lines(manifest.judges),
        "questions": None if totals is None else totals.asked,
        "retried": None if totals is None else totals.retried,
        "tokens": None if totals is None else round(totals.input_tokens + totals.output_tokens),
        "cached": None if totals is None else round(totals.cached_tokens),
        "cost": None if totals is None else totals.cost,
        "texts": texts,
        "kept": kept,
        "hidden": list(manifest.redacted),
        "settings": [
            (name, text if len(text) <= _LONGEST else f"{text[: _LONGEST - 1]}…")
            for name, text in flat.items()
        ],
        "noPrompts": why_without(run),
    }


def _repeated(manifest: Manifest) -> list[str] | None:
    """The metrics of the command of a run, and its options about cases and judge; None for others.

    The cases of an app are in its record alone: they are no data for another command.
    """
    words = _words(manifest.command)
    metrics = manifest.settings.get("metrics")
    if words[:2] != ["dagengine", "run"] or not metrics or manifest.settings.get("app"):
        return None
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


def judge_name(judge: JudgeRecord) -> str:
    """The model, or the identity without its settings."""
    return judge.model or short_name(judge.identity)
