"""Is a recorded judge ever made worse on the sealed part? LLMBar, with the protocols as criteria.

    python benchmarks/recorded/improved_llmbar.py

Every evaluator begins with each of its protocols; the "rewritten criteria" are its other protocols,
whose answers are recorded. The two orders of presentation are two repetitions. The exit code is 1
if an accepted change is worse on the sealed part, 2 if the data is not there.
"""

from __future__ import annotations

import asyncio
import sys
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from unittest import mock

from recordings import Folder, data_directory, how_to_get

from dagengine.graph.graph import Metric
from dagengine.improvement.judged import Asking, Judged
from dagengine.improvement.rewriters import Task
from dagengine.improvement.search import Search
from dagengine.improvement.words import decision, percent, points
from dagengine.metrics import DAGMetric
from dagengine.metrics.dag import DAG, NonBinaryJudgementNode
from dagengine.reliability.counterfactual import Reply
from dagengine.reliability.observations import Condition
from dagengine.reliability.runs import Run
from dagengine.reliability.statistics.comparisons import Comparison
from dagengine.results import MetricResult, OutcomeKind, Step, Totals
from dagengine.test_case import LLMTestCase

Answers = Mapping[str, Sequence[str | None]]
"""The recorded winners in both orders, by item."""


class Recorded(Asking):
    """Takes the repetitions of a protocol from the recording."""

    protocols: Mapping[str, Answers]

    async def judge(self, metric: Metric, chosen: Sequence[int]) -> Judged:
        """The recorded answers of the protocol that is the criterion."""
        (node,) = metric.spec().graph.nodes()
        answers = self.protocols[node.text]
        runs = {n: [*map(self._run, range(2), answers[str(self.cases[n].name)])] for n in chosen}
        first = {n: self._result(own[0]) for n, own in runs.items()}
        return Judged(metric, runs, first, Totals())

    def _run(self, sample: int, winner: str | None) -> Run:
        run = Run(Condition(sample))
        if winner is not None:
            run.score, run.path = float(winner == "A"), (("Winner", winner),)
            run.replies["Winner"] = Reply(winner)
        return run

    def _result(self, run: Run) -> MetricResult:
        steps = [
            Step(node, "judgement", OutcomeKind.OK, verdict=winner) for node, winner in run.path
        ]
        return MetricResult("LLMBar", run.score, None, None, path=run.path, steps=tuple(steps))


@dataclass
class Others:
    """A rewriter that proposes the other protocols, one after the other."""

    names: list[str] = field(default_factory=list)

    async def rewrite(self, task: Task, settings: Mapping[str, Any]) -> tuple[str | None, Totals]:
        """The next protocol."""
        return (self.names.pop(0) if self.names else None), Totals()


def main() -> int:
    """Search from every protocol of every evaluator."""
    folder = Folder(data_directory() / "llmbar")
    if not folder.is_there:
        print(how_to_get(folder.path), file=sys.stderr)
        return 2
    items = folder.items()
    recorded: dict[str, dict[str, dict[str, list[str | None]]]] = defaultdict(dict)
    for row in folder.judgements():
        evaluator, _, protocol = row["protocol"].partition("/")
        result = row["result"]
        winners = [result.get("AB"), result.get("BA")]
        recorded[evaluator].setdefault(protocol, {})[row["item"]] = [
            winner if winner in ("A", "B") else None for winner in winners
        ]
    cases = [LLMTestCase(name=name, input=name, actual_output="") for name in items]
    labels = {n: row["labels"]["preferred"] for n, row in enumerate(items.values())}
    worse = 0
    print(f"{len(cases)} items")
    for evaluator, protocols in recorded.items():
        for start in protocols:
            node = NonBinaryJudgementNode(
                start, evaluation_params=["input"], then={"A": 10, "B": 0}, name="Winner"
            )
            metric = DAGMetric("LLMBar", DAG(node))
            others = [name for name in protocols if name != start]
            search = Search.of(cases, metric, labels, times=2, proposals=len(others), node="Winner")
            kind = type("Of", (Recorded,), {"protocols": protocols})
            with mock.patch("dagengine.improvement.search.Asking", kind):
                result = asyncio.run(search.run({}, rewriter=Others(others)))
            print(f"{evaluator}/{start}: right {percent(result.right)}")
            for candidate in result.candidates:
                if candidate.rung == "criterion" and not candidate.skipped:
                    name = candidate.detail["criterion"]
                    print(f"    {name:20} {points(candidate.gain):18} {decision(candidate)}")
            if result.sealed is not None and isinstance(result.sealed.gain, Comparison):
                print(f"    sealed: {points(result.sealed.gain)}, proved: {result.proved}")
                worse += result.sealed.gain.value < 0
    print(f"accepted changes that are worse on the sealed part: {worse}")
    return int(worse > 0)


if __name__ == "__main__":
    sys.exit(main())
