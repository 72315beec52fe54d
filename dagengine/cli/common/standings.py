"""What is known of the judges of a run: how to find it out, and what a judge card says."""

from __future__ import annotations

import shlex
from datetime import UTC, date, datetime
from itertools import repeat
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dagengine.record.values import Manifest


def words_of_judge(metrics: str, judge: str | None, base_url: str | None) -> str:
    """The arguments of `judge check` for the judge of a run: what named it, else its metrics."""
    from dagengine.redaction import public_text

    options = {"--judge": judge, "--base-url": base_url and public_text(base_url)}
    words = [word for name, value in options.items() if value for word in (name, value)]
    return shlex.join(words or [metrics])


def with_card(
    manifest: Manifest, path: Path, today: date | None = None
) -> tuple[Manifest, str | None]:
    """The manifest of a run whose judges have what a card says of them, or why it says nothing.

    It holds for equal metrics and judges, up to 90 days after its file was written. Raises
    InputError for a file that is no card.
    """
    from dagengine.record.definition import DAYS, is_recent
    from dagengine.record.values import Standing
    from dagengine.redaction import public_text
    from dagengine.reliability.card.files import read_card
    from dagengine.reliability.card.values import every_setting
    from dagengine.reliability.card.verdict import verdict

    card, day = read_card(path), datetime.fromtimestamp(path.stat().st_mtime, UTC).date()
    if not is_recent(day, today):
        return manifest, f"{path} is of {day}, older than {DAYS} days: it says nothing of this run"
    bound, judges = card.binding, []
    hashes = {record.name: record.hash for record in manifest.metrics}
    names = [name for name in bound.metrics if bound.metric_hash(name) == hashes.get(name)]
    # Settings name judges in the order of their identities; "" are the metrics' own judges.
    jury = dict.fromkeys(setting.condition.judge for setting in card.settings)
    asked_as = dict(
        zip(map(public_text, bound.judges), jury if any(jury) else repeat(""), strict=False)
    )
    first = {setting.condition.judge: setting.name for setting in reversed(card.settings)}
    for judge in manifest.judges:
        setting = first.get(asked_as.get(judge.identity, "\0"))
        about = (pair for pair in every_setting(card) if pair[0].metric in names)
        verdicts = [
            (metric.metric, verdict(card, metric, under))
            for metric, under in about
            if under.setting == setting
        ]
        standing = Standing(
            source="judge card",
            identity=judge.identity,
            name=judge.model or judge.identity,
            date=day,
            dagengine=bound.version,
            wording=card.sha256[:16],
            says="; ".join(f"{name}: {advice.headline}" for name, advice in verdicts),
            weak=any(advice.kind in ("no", "stop") for _, advice in verdicts),
        )
        judges.append(judge.model_copy(update={"standing": standing}) if verdicts else judge)
    if tuple(judges) == manifest.judges:
        differing = "judges" if names else "metrics"
        return manifest, f"{path} says nothing of this run: it is of other {differing}"
    return manifest.model_copy(update={"judges": tuple(judges)}), None
