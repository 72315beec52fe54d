"""Which cases a server's window is too small for, before anything is asked."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import islice
from operator import itemgetter
from typing import Any, cast

from dagengine.compiler.plan import Plan
from dagengine.estimate.counting import MOST_CASES
from dagengine.estimate.lookahead import Lookahead
from dagengine.estimate.packs import answering
from dagengine.prompts.lengths.window import remedy
from dagengine.question import Judge, ServerFacts, display_name
from dagengine.test_case import CASE_TYPES, TestCase


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
    names = [judge.identity for judge in judges]
    deciding = any(judge.capabilities.decides for judge in judges)
    # Lists of one item: no case is called too long because of an answer that is assumed.
    lookahead = Lookahead(plan, names, 1, judges if deciding else ())
    units = range(len(plan.units))
    asked = [
        answering(unit, unit.judges[0], judges) if deciding else unit.judges[0]
        for unit in plan.units
    ]
    long: dict[int, list[tuple[int, int, str]]] = {}
    looked_at = 0
    for number, case in islice(cases, MOST_CASES):
        if not isinstance(case, CASE_TYPES):
            continue
        looked_at += 1
        for unit, estimated in lookahead.look(cast("TestCase", case), units).items():
            judge, tokens = asked[unit], round(estimated.longest)
            window = facts[judge].window
            if window is not None and tokens > window:
                long.setdefault(judge, []).append((tokens, number, plan.units[unit].name))
    findings: list[TooLong] = []
    for key, questions in long.items():
        name, count = display_name(judges[key]), len({number for _, number, _ in questions})
        tokens, number, node = max(questions, key=itemgetter(0))
        findings.append(TooLong(name, facts[key], count, looked_at, number, node, tokens))
    return findings
