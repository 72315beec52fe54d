"""What changed between two runs as plain data: `dagengine diff --format json`, and the page."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

from dagengine.errors import InputError, MissingExtraError
from dagengine.record.changes.comparison import CAUSES, CaseChange
from dagengine.record.changes.run_comparison import MetricComparison, RunComparison
from dagengine.record.values import Manifest
from dagengine.reliability.card.values import JudgeCard
from dagengine.reliability.changes.chance import Noise, noise, paired_test


def change_report(found: RunComparison, card: JudgeCard | None = None) -> dict[str, Any]:
    """All of a comparison in a JSON-ready form; `card` is the judge card of the newer run.

    Pairs are old and new. `nodes` contains every node that made a flip, with its flips by cause.
    `changes` contains every flip, lost and gained score, then other changes (the first 10,000).
    """
    return {
        "old": _run(found.old),
        "new": _run(found.new),
        "agrees": found.agrees,
        "cases": {
            "common": found.cases,
            "renamed": found.renamed,
            "changed": found.changed,
            "new": found.counts["new"],
            "missing": found.counts["missing"],
        },
        "new_cases": found.new_cases,
        "missing_cases": found.missing_cases,
        "added_metrics": found.added,
        "removed_metrics": found.removed,
        "metrics": [_metric(one, card) for one in found.metrics],
    }


def _run(run: Manifest) -> dict[str, Any]:
    seconds = None if run.ended is None else (run.ended - run.started).total_seconds()
    totals = run.totals
    return {
        "started": run.started.isoformat(),
        "finished": run.finished,
        "judges": [judge.identity for judge in run.judges],
        "data": run.data.file,
        "seconds": seconds,
        "cost": None if totals is None else totals.cost,
        "calls": None if totals is None else totals.calls,
    }


def _metric(found: MetricComparison, card: JudgeCard | None) -> dict[str, Any]:
    test, hint = _test(found)
    foretold, silent = _noise(found, card)
    return {
        "metric": found.name,
        "cases": found.cases,
        "threshold": [found.trees.old.threshold, found.trees.new.threshold],
        "passed": found.passed(),
        "without_score": found.without_score(),
        "mean": found.means(),
        "flips": found.flips,
        **{kind: found.kinds[kind] for kind in ("worse", "better", "lost", "gained")},
        "other_score": found.kinds["score"],
        "other_path": found.kinds["path"],
        "same": found.same,
        "causes": found.by_cause(),
        "nodes": list(_nodes(found)),
        "tree": [asdict(one) for one in found.tree_changes()],
        "test": test,
        "test_missing": hint,
        "noise": foretold,
        "noise_missing": silent,
        "changes": [_change(one) for one in found.changes],
    }


def _nodes(found: MetricComparison) -> Iterator[dict[str, Any]]:
    """Flips by cause of the nodes that decide, in topological order; "" is the metric itself."""
    at = {node for node, _ in found.first}
    known = [name for name in found.trees.order if name in at or found.trees.decides(name)]
    for name in ([""] if "" in at else []) + known:
        yield {"node": name, **{cause: found.first[name, cause] for cause in CAUSES}}


def _change(one: CaseChange) -> dict[str, Any]:
    return {
        "kind": one.kind,
        "case": one.case,
        "index": [one.old_index, one.new_index],
        "state": [one.old_state, one.new_state],
        "score": [one.old_score, one.new_score],
        "node": one.first.node,
        "answer": [one.first.old_answer, one.first.new_answer],
        "cause": one.first.cause,
        "detail": one.first.detail,
    }


def _test(found: MetricComparison) -> tuple[dict[str, Any] | None, str]:
    try:
        test = paired_test(found)
    except MissingExtraError as error:
        return None, str(error)
    return None if test is None else {**asdict(test), "chance": test.chance}, ""


def _noise(found: MetricComparison, card: JudgeCard | None) -> tuple[dict[str, Any] | None, str]:
    if card is None:
        return None, ""
    try:
        one: Noise = noise(card, found)
    except (InputError, MissingExtraError) as error:
        return None, str(error)
    return {**asdict(one), "expected": one.expected, "of_flips": one.of(found.flips)}, ""
