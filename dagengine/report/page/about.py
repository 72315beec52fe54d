"""What a page says of its run: where the data came from, who judged, what it took."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Any

from dagengine.question import judge_name as short_name
from dagengine.record.prompts import why_without
from dagengine.record.run import Run
from dagengine.record.values import JudgeRecord

_LONGEST = 200  # characters of a setting


def run_record(run: Run, cases: int, kept: int) -> dict[str, Any]:
    """The run as the front end has it, without its metrics; `kept` rows have their texts."""
    manifest, totals = run.manifest, run.manifest.totals
    seconds = None
    if manifest.ended is not None:
        seconds = round((manifest.ended - manifest.started).total_seconds(), 1)
    texts = "none" if not manifest.texts else "all" if kept == cases else "some"
    return {
        "name": manifest.settings.get("identifier") or run.folder.resolve().name,
        "folder": str(run.folder),
        "started": manifest.started.isoformat(timespec="seconds"),
        "seconds": seconds,
        "finished": run.finished,
        "exit": manifest.exit,
        "error": manifest.error,
        "data": None if manifest.data.file is None else Path(manifest.data.file).name,
        "metricFile": _metric_file(manifest.command),
        "command": manifest.command,
        "planned": manifest.data.cases,
        "cases": cases,
        "judges": [{"name": judge_name(judge)} for judge in manifest.judges],
        "questions": None if totals is None else totals.asked,
        "tokens": None if totals is None else round(totals.input_tokens + totals.output_tokens),
        "cost": None if totals is None else totals.cost,
        "texts": texts,
        "kept": kept,
        "hidden": list(manifest.redacted),
        "settings": _settings(manifest.settings.get("hyperparameters")),
        "noPrompts": why_without(run),
    }


def _settings(given: Any) -> list[tuple[str, str]]:
    """What the caller says the run was made with; a long text by its beginning."""
    found = given if isinstance(given, dict) else {}
    return [(str(name), _short(value)) for name, value in found.items()]


def _short(value: Any) -> str:
    text = " ".join(str(value).split())
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 1]}…"


def judge_name(judge: JudgeRecord) -> str:
    """The model, or the identity without its settings."""
    return judge.model or short_name(judge.identity)


def _metric_file(command: str | None) -> str | None:
    try:
        words = shlex.split(command or "")
    except ValueError:
        return None
    found = [Path(word).name for word in words if word.split(":")[0].endswith(".py")]
    return found[0] if found else None
