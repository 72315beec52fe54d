"""Writes a table of `benchmarks/results/judges.md`: requests for one case of every metric.

    python docs/make_request_table.py

For a case with two contexts, four turns or two contestants, by judges that find two of whatever
is to be listed. Counted in runs with judges of this process; a test holds the table to it.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "tests" / "support")]

from graphs.contract import case_for, make, metric_classes  # noqa: E402
from graphs.hostile import two_of_each  # noqa: E402
from graphs.packing_judge import PackingJudge  # noqa: E402
from graphs.shapes import summary_tree  # noqa: E402

from dagengine import evaluate  # noqa: E402
from dagengine.judges import ScriptedJudge  # noqa: E402
from dagengine.metrics import (  # noqa: E402
    AnswerRelevancyMetric,
    ContextualPrecisionMetric,
    ContextualRecallMetric,
    ContextualRelevancyMetric,
    DAGMetric,
    FaithfulnessMetric,
)
from dagengine.question import Packs, Question  # noqa: E402

PAGE = ROOT / "benchmarks" / "results" / "judges.md"
BEGIN, END = "<!-- requests: begin -->", "<!-- requests: end -->"
FIVE = (
    AnswerRelevancyMetric,
    FaithfulnessMetric,
    ContextualPrecisionMetric,
    ContextualRecallMetric,
    ContextualRelevancyMetric,
)
HEAD = ("metrics", "chat model", "decisions alone", "packed", "packed and speculated")
SETTINGS = (None, Packs(400, 128_000), Packs(400, 128_000, 32))


def _write(question: Question[Any]) -> Any:
    return two_of_each(question, 0)


def requests_of(metrics: Sequence[Any]) -> list[int]:
    """Requests for one case: of a chat model, and of a decision model with its writer."""
    case = case_for(metrics[0])
    models: list[Any] = [ScriptedJudge(_write)]
    models += [PackingJudge(packs=packs, writer=ScriptedJudge(_write)) for packs in SETTINGS]
    found = []
    for model in models:
        done = evaluate([case], metrics, model=model, show=False)
        assert not [one.failure for one in done.rows[0].metrics if one.failure]
        found.append(done.totals.requests)
    return found


def rows() -> list[tuple[str, list[int]]]:
    """Every metric that asks, then some together."""
    found = [(f"`{kind.__name__}`", requests_of([make(kind)])) for kind in metric_classes()]
    asking = [(name, numbers) for name, numbers in found if any(numbers)]
    tree = requests_of([DAGMetric("tree", summary_tree())])
    five = requests_of([kind() for kind in FIVE])
    return [*asking, ("a task and two decisions in a row", tree), ("five RAG metrics", five)]


def table() -> str:
    """The table in Markdown."""
    lines = ["| " + " | ".join(HEAD) + " |", "|---" + "|---:" * (len(HEAD) - 1) + "|"]
    lines += [f"| {name} | " + " | ".join(map(str, numbers)) + " |" for name, numbers in rows()]
    return "\n".join(lines)


def main() -> None:
    """Put the table into the page."""
    before, _, rest = PAGE.read_text(encoding="utf-8").partition(BEGIN)
    _, _, after = rest.partition(END)
    PAGE.write_text(f"{before}{BEGIN}\n\n{table()}\n\n{END}{after}", encoding="utf-8")


if __name__ == "__main__":
    main()
