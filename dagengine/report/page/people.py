"""What people said about the cases of a run, as the page shows it beside the judge's answers."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from typing import Any

from dagengine.record.labels import LABELS, Label, LabelFile
from dagengine.record.run import Run
from dagengine.report.pictures.graphs import words


class People:
    """Labels by case."""

    def __init__(self, labels: Iterable[Label] = ()) -> None:
        self._by_case: defaultdict[str, list[dict[str, Any]]] = defaultdict(list)
        for label in labels:
            # `answer` is that of a node, `outcome` that of the whole case.
            outcome = label.outcome
            if outcome is not None and not isinstance(outcome, str):
                outcome = f"{outcome:.2f}"
            self._by_case[label.case].append(
                {
                    "who": label.who,
                    "when": label.when,
                    "metric": label.metric,
                    "node": label.node,
                    "answer": None if label.answer is None else words(label.answer),
                    "outcome": outcome,
                    "note": label.note,
                }
            )

    @classmethod
    def of_run(cls, run: Run) -> People:
        """Those who labelled in the folder of a run; raises InputError for a damaged line."""
        return cls(LabelFile(run.folder / LABELS).labels())

    def of(self, case: str | None) -> list[dict[str, Any]]:
        """Labels of the case whose content has this hash, in their order."""
        return self._by_case.get(case or "", [])
