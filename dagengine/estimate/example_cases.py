"""Which cases of a data set are solved already: shown as examples to a node that judges them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, cast

from dagengine.compiler.plan import Plan
from dagengine.graph.list_nodes import MapNode, VerdictListNode
from dagengine.graph.node import AskingNode
from dagengine.prompts.evidence import as_text
from dagengine.terminal import counted
from dagengine.test_case import CASE_TYPES, TestCase, case_label, field_name, read_field


@dataclass(frozen=True, slots=True)
class _Solved:
    """An example of a node: texts by field, and the text of an item of a list that is a field."""

    node: str
    texts: tuple[tuple[str, str], ...]
    item: tuple[str, str] | None

    def is_in(self, case: TestCase) -> bool:
        """Return whether a case has all that the example shows of a case."""
        if self.item is not None:
            path, text = self.item
            items = read_field(case, path)
            if not isinstance(items, list) or text not in map(as_text, items):
                return False
        return all(as_text(read_field(case, path)) == text for path, text in self.texts)


def _solved_examples(plan: Plan) -> Iterator[_Solved]:
    """Yield the examples that show something of a case."""
    for unit in plan.units:
        asking = unit.node
        if not isinstance(asking, AskingNode):
            continue
        listed = asking.over if isinstance(asking, MapNode | VerdictListNode) else None
        lone = unit.reads[0] if len(unit.reads) == 1 and not unit.sources else None
        for example in asking.examples:
            # A bare text stands for the one thing that the node reads, or for an item of its list.
            field = asking.only or (lone if isinstance(example.reads, str) else None)
            values = dict(example.values(unit.reads, field))
            texts = tuple((path, as_text(values[path])) for path in unit.reads if path in values)
            item = None
            if isinstance(listed, str) and asking.only in values:
                item = field_name(listed), as_text(values[asking.only])
            if texts or item:
                yield _Solved(unit.name, texts, item)


def example_lines(plan: Plan, cases: Iterable[tuple[int, Any]]) -> list[str]:
    """One line per node that is shown the right answers of some cases: how many, and the first.

    `cases` come with their numbers; what is no test case yet is passed over.
    """
    solved = list(_solved_examples(plan))
    if not solved:
        return []
    shown: dict[str, list[str]] = {}
    looked_at = 0
    for number, case in cases:
        if isinstance(case, CASE_TYPES):
            case = cast("TestCase", case)
            looked_at += 1
            for node in dict.fromkeys(example.node for example in solved if example.is_in(case)):
                shown.setdefault(node, []).append(case_label(case, number))
    return [
        f"{counted(len(labels), 'case')} of {looked_at} {'is' if len(labels) == 1 else 'are'} also "
        f"shown as examples of node {node!r} (first: {labels[0]}), which then reads the right "
        "answer; leave them out where figures of the judge are measured"
        for node, labels in shown.items()
    ]
