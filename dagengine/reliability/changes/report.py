"""What changed between two runs as plain data: `dagengine diff --format json`, and the page."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from dagengine.errors import InputError, MissingExtraError
from dagengine.record.changes.comparison import CAUSES
from dagengine.record.changes.run_comparison import MetricComparison, RunComparison
from dagengine.record.values import Manifest
from dagengine.reliability.card.values import JudgeCard
from dagengine.reliability.changes.chance import Noise, PairedTest, noise, paired_test


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
        "metrics": [_metric(comparison, card) for comparison in found.metrics],
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


def _metric(comparison: MetricComparison, card: JudgeCard | None) -> dict[str, Any]:
    # Tests need an extra and noise a fitting card: without them the rest is still reported.
    test: PairedTest | None = None
    foretold: dict[str, Any] | None = None
    hint = silent = ""
    try:
        test = paired_test(comparison)
    except MissingExtraError as error:
        hint = str(error)
    if card is not None:
        try:
            expected: Noise = noise(card, comparison)
            foretold = {**asdict(expected), "words": expected.words(comparison.flips, test)}
        except (InputError, MissingExtraError) as error:
            silent = str(error)
    # Nodes that decide or made a flip, in topological order; "" is the metric itself.
    parting = {node for node, _ in comparison.first}
    order, decides = comparison.trees.order, comparison.trees.decides
    nodes = [""] if "" in parting else []
    nodes += [name for name in order if name in parting or decides(name)]
    return {
        "metric": comparison.name,
        "cases": comparison.cases,
        "threshold": [comparison.trees.old.threshold, comparison.trees.new.threshold],
        "passed": comparison.passed(),
        "without_score": comparison.without_score(),
        "mean": comparison.means(),
        "flips": comparison.flips,
        **{kind: comparison.kinds[kind] for kind in ("worse", "better", "lost", "gained")},
        "other_score": comparison.kinds["score"],
        "other_path": comparison.kinds["path"],
        "same": comparison.same,
        "causes": comparison.by_cause(),
        "nodes": [
            {"node": name, **{cause: comparison.first[name, cause] for cause in CAUSES}}
            for name in nodes
        ],
        "tree": [asdict(change) for change in comparison.tree_changes()],
        "test": None
        if test is None
        else {**asdict(test), "chance": test.chance, "words": list(test.words)},
        "test_missing": hint,
        "noise": foretold,
        "noise_missing": silent,
        "changes": [
            {
                "kind": change.kind,
                "case": change.case,
                "index": [change.old_index, change.new_index],
                "state": [change.old_state, change.new_state],
                "score": [change.old_score, change.new_score],
                "node": change.first.node,
                "answer": [change.first.old_answer, change.first.new_answer],
                "cause": change.first.cause,
                "detail": change.first.detail,
            }
            for change in comparison.changes
        ],
    }
