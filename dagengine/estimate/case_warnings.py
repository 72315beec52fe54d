"""Cases to look at before anything is asked: too long for a server, or shown as examples."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from operator import attrgetter, itemgetter
from typing import Any

from dagengine.compiler.plan import Plan
from dagengine.estimate.counting import MOST_CASES
from dagengine.estimate.lookahead import Lookahead
from dagengine.estimate.walks import answering
from dagengine.graph.list_nodes import MapNode, VerdictListNode
from dagengine.graph.node import AskingNode
from dagengine.prompts.evidence import as_text
from dagengine.prompts.lengths.window import remedy
from dagengine.question import Judge, ServerFacts, display_name
from dagengine.system.terminal import counted
from dagengine.test_case import CASE_TYPES, TestCase, case_label, field_name, read_field


@dataclass(frozen=True, slots=True)
class TooLong:
    """The cases of which a question needs more tokens than a judge's server reads.

    `cases` of those `looked_at`; `longest` is the number of the case with the longest question,
    which `node` asks and which needs about so many `tokens`, its answer included.
    """

    judge: str
    facts: ServerFacts
    cases: int
    looked_at: int
    longest: int
    node: str
    tokens: int

    def __str__(self) -> str:
        """The meaning for a run, and the one thing to do."""
        many = "case needs" if self.cases == 1 else "cases need"
        return (
            f"{self.cases:,} of {self.looked_at:,} {many} more than the {self.facts.window:,} "
            f"tokens that the server of {self.judge} reads; the longest is case {self.longest} at "
            f"{self.node} with about {self.tokens:,}. {remedy(self.tokens, self.facts)}"
        )


def too_long_cases(
    plan: Plan,
    cases: Iterable[tuple[int, Any]],
    judges: Sequence[Judge],
    facts: Sequence[ServerFacts],
) -> list[TooLong]:
    """Hold the questions of the first 2,000 cases against the windows of those that get them.

    `cases` come with their numbers; what is no test case yet is passed over. `judges` are those
    of the plan, with their writers behind them, and `facts` what their servers say. Nothing is
    looked at if no window is known.
    """
    if all(server.window is None for server in facts):
        return []
    names = [*map(attrgetter("identity"), judges)]
    # Only writers of judges that decide answer in the place of others.
    deciding = judges if any(judge.capabilities.decides for judge in judges) else ()
    # Lists of one item: no case is called too long because of an answer that is assumed.
    lookahead = Lookahead(plan, names, 1, deciding)
    asked = [answering(unit, unit.judges[0], deciding) for unit in plan.units]
    long, looked_at = defaultdict[int, list[tuple[int, int, str]]](list), 0
    for number, case in _only_cases(islice(cases, MOST_CASES)):
        looked_at += 1
        for unit, estimated in lookahead.look(case, range(len(asked))).items():
            judge, tokens = asked[unit], round(estimated.longest)
            window = facts[judge].window
            if window is not None and tokens > window:
                long[judge].append((tokens, number, plan.units[unit].name))
    findings: list[TooLong] = []
    for key, questions in long.items():
        name, count = display_name(judges[key]), len({number for _, number, _ in questions})
        tokens, number, node = max(questions, key=itemgetter(0))
        findings.append(TooLong(name, facts[key], count, looked_at, number, node, tokens))
    return findings


def _only_cases(cases: Iterable[tuple[int, Any]]) -> Iterator[tuple[int, TestCase]]:
    """Pass over what is no test case yet."""
    return (pair for pair in cases if isinstance(pair[1], CASE_TYPES))


# Cases that are shown as solved examples.


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
    shown, looked_at = defaultdict[str, list[str]](list), 0
    for number, case in _only_cases(cases):
        looked_at += 1
        for node in dict.fromkeys(example.node for example in solved if example.is_in(case)):
            shown[node].append(case_label(case, number))
    return [
        f"{counted(len(labels), 'case')} of {looked_at} {'is' if len(labels) == 1 else 'are'} also "
        f"shown as examples of node {node!r} (first: {labels[0]}), which then reads the right "
        "answer; leave them out where figures of the judge are measured"
        for node, labels in shown.items()
    ]
