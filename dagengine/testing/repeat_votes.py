"""A verdict that knows its noise: a case that failed is judged again until the votes decide.

Only metrics that failed are asked again, and only where another answer could change the outcome.
A stopping rule of `dagengine.voting` says when enough votes are cast, and with what probability
they are right. What passes at first is not asked again, so votes never make a passed case fail.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from dagengine.compiler.execution_plan import Plan
from dagengine.errors import InputError, did_you_mean
from dagengine.execution.node_run import together
from dagengine.graph.graph import Metric
from dagengine.question import Judge
from dagengine.results import CaseResult
from dagengine.testing.verdicts import Decision, Votes
from dagengine.voting.votes_and_juries import Curtailed, Rule, Sprt

# Votes ask for samples so far apart that no rerun asks for the same.
SAMPLES = 1_000
_RULES: Mapping[str, Rule] = {"sprt": Sprt(), "majority": Curtailed()}


@dataclass(frozen=True, slots=True)
class Mark:
    """`@pytest.mark.evals`: how the evaluations of a test are made.

    `votes` is how often a case that fails is judged at most, the first time included.
    `pass_rule` says when votes decide: `"sprt"` (`Sprt()`, the default), `"majority"`
    (`Curtailed()`), or a rule of `dagengine.voting`. `immediate` waits for each verdict in place.
    """

    votes: int = 1
    pass_rule: Rule = _RULES["sprt"]
    immediate: bool = False

    @classmethod
    def of(cls, item: pytest.Item) -> Mark:
        """The mark of a test; raises InputError for what it does not know."""
        mark = item.get_closest_marker("evals")
        if mark is None:
            return cls()
        names = list(cls.__dataclass_fields__)
        if mark.args:
            raise _wrong(item, f"takes names, such as votes=7, and no {mark.args[0]!r}")
        for name in mark.kwargs:
            if name not in names:
                meant, listed = did_you_mean(name, names), ", ".join(names)
                raise _wrong(item, f"has no argument {name!r}; {meant or 'it has'} ({listed})")
        return cls(**_require_arguments(item, dict(mark.kwargs)))


def _wrong(item: pytest.Item, problem: str) -> InputError:
    return InputError(f"{item.nodeid}: @pytest.mark.evals {problem}")


def _require_arguments(item: pytest.Item, arguments: dict[str, Any]) -> dict[str, Any]:
    """The arguments of a mark; raises InputError for values of the wrong kind."""
    votes, rule = arguments.get("votes", 1), arguments.get("pass_rule", "sprt")
    if isinstance(votes, bool) or not isinstance(votes, int) or votes < 1:
        raise _wrong(item, f"votes must be a whole number from 1 on, got {votes!r}")
    if not isinstance(arguments.get("immediate", False), bool):
        raise _wrong(item, f"immediate must be True or False, got {arguments['immediate']!r}")
    if isinstance(rule, str) and rule not in _RULES:
        rules = ", ".join(map(repr, _RULES))
        raise _wrong(item, f"pass_rule must be {rules} or a rule of dagengine.voting, got {rule!r}")
    rule = _RULES[rule] if isinstance(rule, str) else rule
    if not callable(getattr(rule, "more", None)):
        raise _wrong(item, f"pass_rule must be a rule of dagengine.voting, got {rule!r:.80}")
    if "pass_rule" in arguments and votes == 1:
        raise _wrong(item, "pass_rule says when votes decide: give votes=, too")
    if votes > 1 and isinstance(rule, Sprt) and votes < rule.lead:
        raise _wrong(item, f"votes={votes} cannot decide by {rule}, which needs a lead of "
                     f"{rule.lead}: give more votes, or a larger error")  # fmt: skip
    return {**arguments, "pass_rule": rule}


def may_change(plan: Plan, judges: Sequence[Judge], row: CaseResult) -> list[int]:
    """The places of the metrics that failed, where every one of them may say something else.

    Empty where one of them makes no judge calls, asks a judge that repeats itself, or has no score.
    """
    if any(result.failure is not None for result in row.metrics):
        return []
    changing = set[int]()
    for slot in plan.slots:
        if slot.unit >= 0:
            unit = plan.units[slot.unit]
            repeats = any(judges[index].capabilities.repeatable for index in unit.judges)
            # A node of the kind `metric` is a caller's code: it may ask whom it likes.
            if unit.node.kind == "metric" or (unit.node.asks and repeats):
                changing.add(slot.metric)
    failed = [index for index, result in enumerate(row.metrics) if result.success is False]
    return failed if changing.issuperset(failed) else []


async def vote(again: Callable[[int], Awaitable[bool | None]], mark: Mark) -> Votes:
    """Judge a case that failed again, until the rule is content or all votes are cast.

    `again` gives whether it passes as that sample; None if a metric got no score.
    """
    ballots: list[bool | None] = [False]
    while more := mark.pass_rule.more(ballots, mark.votes - len(ballots)):
        ballots += await together(lambda _, n: again(n), range(len(ballots), len(ballots) + more))
    return decide_votes(ballots, mark.pass_rule)


def decide_votes(ballots: Sequence[bool | None], rule: Rule) -> Votes:
    """Decide votes by a rule."""
    failed, passed = ballots.count(False), ballots.count(True)
    lead = abs(failed - passed)
    verdict: Decision = "failed" if failed > passed else "passed"
    if not isinstance(rule, Sprt):
        return Votes(failed, passed, verdict if lead else "unsure")
    # The odds that a lead is right, where each vote is wrong with the rule's `noise`.
    p = 1 / (1 + (rule.noise / (1 - rule.noise)) ** lead)
    return Votes(failed, passed, verdict if lead >= rule.lead else "unsure", p)


def card_notes(path: str | None, metrics: Sequence[Metric], judges: Sequence[str]) -> list[str]:
    """The note on the judge card that a rule's assumption on noise should come from."""
    names = [metric.spec().name for metric in metrics]
    if path is None:
        return [
            "votes: no judge card says how noisy this judge is (dagengine benchmark makes one, "
            "--evals-card names it); the rule's own assumption holds"
        ]
    from dagengine.reliability.card.card_formats import read_card
    from dagengine.reliability.fingerprint import Binding, bind, changes

    card = read_card(Path(path)).binding
    now = bind(metrics, judges, ())
    measured = {name: nodes for name, nodes in card.metrics.items() if name in names}
    old = Binding(card.version, measured, card.judges, now.data, now.cases)
    return [f"votes: the judge card {path} is stale: {line}" for line in changes(old, now)]
