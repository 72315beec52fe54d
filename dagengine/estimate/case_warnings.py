"""Cases to look at before anything is asked: without fields, too long, or shown as examples."""

from __future__ import annotations

import time
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, islice, takewhile
from operator import itemgetter
from typing import Any

from dagengine.compiler.execution_plan import Plan
from dagengine.data.row_readers import CHECKED
from dagengine.errors import InputError
from dagengine.estimate.estimator import MOST_CASES
from dagengine.estimate.lookahead import Lookahead
from dagengine.estimate.paths import answerer_index, with_writers
from dagengine.graph.list_nodes import MapNode, VerdictListNode
from dagengine.graph.node import AskingNode
from dagengine.prompts.evidence import as_text
from dagengine.prompts.lengths.context_overflow import remedy
from dagengine.question import NO_FACTS, Judge, ServerFacts, display_name, facts_of
from dagengine.system.terminal_text import counted
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
) -> list[TooLong]:
    """Hold the questions of the first 2,000 cases against the windows of those that get them.

    `cases` come with their numbers; what is no test case yet is passed over. `judges` are those
    of the plan. Nothing is looked at if no window is known.
    """
    from dagengine.execution.interrupts import sync  # a card of verdicts loads no engine

    needed = {judge.identity for judge in with_writers([judges[index] for index in plan.asked])}
    judges = with_writers(judges)

    async def ask_servers() -> list[ServerFacts]:
        # Not those of judges that answer nothing here
        return [await facts_of(judge) if judge.identity in needed else NO_FACTS for judge in judges]

    facts = sync(ask_servers)
    if all(server.window is None for server in facts):
        return []
    # Lists of one item: no case is called too long because of an answer that is assumed.
    lookahead = Lookahead(plan, judges, 1)
    asked = [answerer_index(unit, unit.judges[0], judges) for unit in plan.units]
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


def missing_fields(plan: Plan, test_cases: Iterable[Any], least: float = 0.0) -> list[str]:
    """One line per field that some (at least this share) of the cases lack: how many, the first."""
    counts, labels, total = Counter[str](), dict[str, str](), 0
    for index, case in enumerate(test_cases):
        total += 1
        for path in plan.fields:
            if read_field(case, path) is None:
                counts[path] += 1
                labels.setdefault(path, case_label(case, index))
    lines: list[str] = []
    for path in plan.fields:
        if (count := counts[path]) and count >= least * total:
            lines.append(f"{count} of {total} cases have no `{path}` (first: {labels[path]})")
    return lines


def concerns(plan: Plan, test_cases: Iterable[Any]) -> list[str]:
    """Warnings of metrics about the first 1,000 cases: each once, with its first case."""
    from dagengine.execution.local_executor import case_problems  # as above

    lines: dict[str, str] = {}
    for label, problem in case_problems(plan, test_cases):
        if problem.severity == "warning":
            lines.setdefault(problem.message, f"{label}: {problem.where}: {problem.message}")
    return list(lines.values())


def fields_before(plan: Plan, test_cases: Iterable[Any], seconds: float = 2.0) -> list[str]:
    """Lines about fields that half or more of the first 1,000 cases lack, read within `seconds`.

    Raises InputError if all of these lack what every path reads, so that no metric can judge them.
    """
    end = time.monotonic() + seconds
    looked_at = islice(test_cases, CHECKED)
    in_time = takewhile(lambda _: time.monotonic() < end, looked_at)
    cases: list[Any] = [case for case in in_time if isinstance(case, CASE_TYPES)]  # no goldens
    absent: list[list[str]] = []
    for metric in plan.metrics:
        required = [path for path, _ in metric.required]
        absent.append([p for p in required if all(read_field(c, p) is None for c in cases)])
    lines = [*missing_fields(plan, cases, 0.5), *concerns(plan, cases)]
    if cases and all(absent) and time.monotonic() < end:
        names = list(dict.fromkeys(chain.from_iterable(absent)))
        raise InputError(
            f"{'; '.join(lines)}: every path reads {', '.join(map(repr, names))}. Name the column "
            f"that has it (--map COLUMN={names[0]}), or use another metric"
        )
    return lines
