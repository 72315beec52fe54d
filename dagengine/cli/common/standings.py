"""What is known of the judges of a run: how to find it out, and what a judge card says."""

from __future__ import annotations

import shlex
from datetime import UTC, date, datetime
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dagengine.record.values import Manifest
    from dagengine.reliability.card.values import JudgeCard
    from dagengine.reliability.card.verdict import Verdict


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

    It holds for equal metrics and the only judge, up to 90 days after its file was written. Raises
    InputError for a file that is no card.
    """
    from dagengine.record.definition import DAYS, is_recent
    from dagengine.record.values import Standing
    from dagengine.redaction import public_text
    from dagengine.reliability.card.card_faces import read_card

    card, day = read_card(path), datetime.fromtimestamp(path.stat().st_mtime, UTC).date()
    if not is_recent(day, today):
        return manifest, f"{path} is of {day}, older than {DAYS} days: it says nothing of this run"
    bound, several = card.binding, len({setting.condition.judge for setting in card.settings}) > 1
    verdicts = _verdicts(card, manifest)
    identities = [] if several or not verdicts else list(map(public_text, bound.judges))
    records = {judge.identity: judge for judge in manifest.judges}
    for identity in records.keys() & set(identities):
        standing = Standing(
            source="judge card",
            identity=identity,
            name=records[identity].model or identity,
            date=day,
            dagengine=bound.version,
            wording=card.sha256[:16],
            says="; ".join(f"{name}: {advice.headline}" for name, advice in verdicts.items()),
            weak=any(advice.kind in ("no", "stop") for advice in verdicts.values()),
        )
        records[identity] = records[identity].model_copy(update={"standing": standing})
    if tuple(records.values()) == manifest.judges:
        differing = "judges" if verdicts else "metrics"
        return manifest, f"{path} says nothing of this run: it is of other {differing}"
    return manifest.model_copy(update={"judges": tuple(records.values())}), None


def _verdicts(card: JudgeCard, manifest: Manifest) -> dict[str, Verdict]:
    """Verdicts of a card on the metrics of a run that have the same definition."""
    from dagengine.reliability.card.verdict import verdict

    hashes = {record.name: record.hash for record in manifest.metrics}
    bound = card.binding
    measured = [m for m in card.metrics if bound.metric_hash(m.metric) == hashes.get(m.metric)]
    return {m.metric: verdict(card, m, under) for m in measured for under in m.settings[:1]}
