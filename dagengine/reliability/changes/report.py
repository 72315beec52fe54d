"""What changed between two runs as plain data: `dagengine diff --format json`, and the page."""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict
from typing import Any

from dagengine.errors import InputError, MissingExtraError
from dagengine.record.changes.comparison import CAUSES
from dagengine.record.changes.run_comparison import MetricComparison, RunComparison
from dagengine.record.values import Manifest
from dagengine.reliability.card.values import JudgeCard
from dagengine.reliability.changes.chance import Noise, PairedTest, noise, paired_test
from dagengine.terminal import counted


def change_report(found: RunComparison, card: JudgeCard | None = None) -> dict[str, Any]:
    """All of a comparison in a JSON-ready form; `card` is the judge card of the newer run.

    Pairs are old and new; `passed` and `mean` are of the `scored` cases, which have a score in both
    runs. `headline`, `result` and `scores` are sentences that every screen shows. `nodes` contains
    every node that made a flip, with its flips by cause. `changes` contains every flip, lost and
    gained score, then other changes (the first 10,000).
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
        "scored": comparison.scored,
        "headline": _headline(comparison),
        "result": _result(comparison, test, hint),
        "scores": _moved_scores(comparison),
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


def _headline(found: MetricComparison) -> str:
    """The answer in one sentence; scores that were lost or won go first."""
    kinds, moved, cases = found.kinds, _moved_scores(found), f"{found.cases:,}"
    flips = f"flipped: {kinds['worse']:,} worse, {kinds['better']:,} better" if found.flips else ""
    scores = f"; {kinds['score']:,} have a different score" if kinds["score"] else ""
    if moved:
        rest = f"{found.flips:,} {flips}" if flips else f"none flipped{scores}"
        left = f"; of the {found.scored:,} with both scores {rest}" if found.scored else ""
        return moved + left
    if flips:
        return f"{found.flips:,} of {cases} cases {flips}"
    if scores:
        return f"No case of {cases} flipped{scores}"
    if kinds["path"]:
        return f"All {cases} scores are the same; {kinds['path']:,} by a different path"
    return f"All {cases} cases: the same answer at every node, the same score"


def _moved_scores(found: MetricComparison) -> str:
    """Count lost scores, with the main cause, and won ones; empty if there are none."""
    lost = Counter(f"{change.first.new_answer} at {change.first.node or 'the settings'}"
                   for change in found.changes if change.kind == "lost")  # fmt: skip
    ((why, count),) = lost.most_common(1) or [("", 0)]
    most = "" if count == lost.total() else f"{count:,} of them "
    whose = "its" if lost.total() == 1 else "their"
    moved = {
        f"lost {whose} score ({most}{why})": lost.total(),
        "won a score": found.kinds["gained"],
    }
    cases = counted(found.cases, "case")
    return ", ".join(f"{n:,} of {cases} {what}" for what, n in moved.items() if n)


def _result(found: MetricComparison, test: PairedTest | None, hint: str) -> list[str]:
    """Passes and means of the same cases, each before the test that is about it."""
    words = list(test.words) if test else [f"no paired test: {hint}"] if hint else []
    scores = ["none" if mean is None else f"{mean:.2f}" for mean in found.means()]
    parts = [f"mean {' → '.join(scores)}", *words]
    if None not in (found.trees.old.threshold, found.trees.new.threshold):
        old, new = found.passed()
        rate = test is not None and test.what == "pass rate"
        parts = [f"{old:,} → {new:,} passed", *(parts[1:] + parts[:1] if rate else parts)]
    if found.scored < found.cases:
        parts[0] = f"of {counted(found.scored, 'case')} with both scores: {parts[0]}"
    return parts
