"""What should not change a score but may: the setting, place in a pair or in a list, length."""

from __future__ import annotations

import operator
import statistics
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from itertools import combinations, product, starmap
from typing import Any

from dagengine.errors import InputError
from dagengine.graph.list_nodes import VerdictListNode
from dagengine.graph.nodes import NonBinaryJudgementNode
from dagengine.reliability.card.bounded_figures import figure
from dagengine.reliability.card.repeats import Outcome, outcome, score
from dagengine.reliability.card.values import Figure
from dagengine.reliability.counterfactual import Counterfactual
from dagengine.reliability.observations import Condition
from dagengine.reliability.perturbations import Symmetry
from dagengine.reliability.runs import Run, Runs
from dagengine.reliability.statistics.inter_rater import (
    cohen_kappa,
    fleiss_kappa,
    krippendorff_alpha,
)
from dagengine.reliability.statistics.measures import mean_score
from dagengine.reliability.statistics.preferences import (
    Compared,
    Measured,
    first_wins,
    length_bias,
    list_bias,
    longer_wins,
    position_consistency,
    position_preference,
)
from dagengine.reliability.statistics.sums import Sums, mean, present
from dagengine.results import Verdict
from dagengine.test_case import ArenaTestCase, LLMTestCase, TestCase

Names = tuple[Verdict, Verdict]
"""The verdicts for what is shown first and for what is shown second, in the order as given."""


def position_bias(
    runs: Runs, replay: Counterfactual, cases: Sequence[TestCase], symmetry: Symmetry
) -> Iterator[Figure]:
    """Consistency and preference where another order was repeated beside the given one."""
    # The first and the last option of every decision whose options are in an order
    options: dict[str, Names] = {}
    for unit in replay.plan.units:
        verdicts = [branch.verdict for branch in unit.node.branches()]
        if isinstance(unit.node, NonBinaryJudgementNode) and len(verdicts) > 1:
            options[unit.name] = verdicts[0], verdicts[-1]

    def names_in(order: str, case: int, last: str) -> Names | None:
        if order == "reversed":
            return options.get(replay.name_of(last))
        with suppress(InputError):  # nothing says what was shown first
            return symmetry.names(cases[case])
        return None

    for order, suffix, level in (
        ("swapped", "", "last verdicts, inputs swapped"),
        ("reversed", "-of-options", "last verdicts, first and last option exchanged"),
    ):
        pairs, groups = _in_both_orders(runs, order, partial(names_in, order))
        for name, of, why in _OF_ORDERS if pairs else ():
            yield figure(f"{name}{suffix}", pairs, of, why, groups, level)


_OF_ORDERS: tuple[tuple[str, Callable[..., Sums], str], ...] = (
    ("position-consistency", position_consistency.sums, "no pair has a verdict in both orders"),
    ("position-preference", position_preference.sums, "the orders never disagree"),
    ("first-wins", first_wins.sums, "no pair has a winner in both orders"),
)


def _in_both_orders(
    runs: Runs, order: str, names: Callable[[int, str], Names | None]
) -> tuple[list[tuple[str, str]], list[Hashable]]:
    """Last verdicts in both orders, those for the first as A and for the second as B."""
    pairs: list[tuple[str, str]] = []
    groups: list[Hashable] = []
    for case, settings in runs.cases.items():
        for setting, row in settings.items():
            if setting.order != "given":
                continue
            mirrored = settings.get(replace(setting, order=order), ())
            for run, mirror in zip(row, mirrored, strict=False):
                # Verdicts of different nodes are not answers to one question in two orders.
                if not run.path or not mirror.path or run.path[-1][0] != mirror.path[-1][0]:
                    continue
                shown = names(case, run.path[-1][0])
                if shown is not None:
                    pairs.append((_answer_of(run, shown), _answer_of(mirror, shown)))
                    groups.append(runs.group(case))
    return pairs, groups


def _answer_of(run: Run, names: Names) -> str:
    verdict = run.path[-1][1]
    return {names[0]: "A", names[1]: "B"}.get(verdict, str(verdict))


def bias_by_place(runs: Runs, replay: Counterfactual) -> Iterator[Figure]:
    """Whether verdicts correlate with the place in a list, for nodes that judge lists."""
    named = {
        unit.name: unit.node.verdicts[0]
        for unit in replay.plan.units
        if isinstance(unit.node, VerdictListNode) and not unit.node.of_criteria
    }
    lists: list[list[float | None]] = []
    groups: list[Hashable] = []
    for case, run in runs.each():
        for node, verdict in named.items():
            if node in run.lists:
                lists.append([float(item == verdict) for item in run.lists[node]])
                groups.append(runs.group(case))
    if lists:
        nodes = " and ".join(f"“{verdict}” by “{node}”" for node, verdict in named.items())
        why = "no list has two items with different verdicts"
        yield figure("list-bias", lists, list_bias.sums, why, groups, f"place in a list, {nodes}")


def bias_by_length(
    runs: Runs, cases: Sequence[TestCase], labels: Mapping[int, Any]
) -> Iterator[Figure]:
    """Whether longer answers get higher scores or win, with human labels held constant."""
    pairs = labels.items()
    numbers = {case: float(label) for case, label in pairs if isinstance(label, bool | int | float)}
    answers: dict[int, Measured] = {}
    # With labels, only labelled cases: the partial correlation takes all three of a case.
    for number in (case for case in runs.cases if not numbers or case in numbers):
        case, scores = cases[number], runs.scores(number)
        if scores and isinstance(case, LLMTestCase) and isinstance(case.actual_output, str):
            length = len(case.actual_output)
            answers[number] = Measured(statistics.fmean(scores), length, numbers.get(number))
    if answers:
        held = ", labels held constant" if numbers else ""
        level = f"mean scores of cases and lengths of `actual_output` in characters{held}"
        why = "all answers have the same length, or all scores or labels are equal"
        measured, by_case = list(answers.values()), [*map(runs.group, answers)]
        yield figure("length-bias", measured, length_bias.sums, why, by_case, level)
    compared, groups = _comparisons(runs, cases)
    if compared:
        why = "no comparison of answers of different length has a winner"
        yield figure("longer-wins", compared, longer_wins.sums, why, groups)


def _comparisons(runs: Runs, cases: Sequence[TestCase]) -> tuple[list[Compared], list[Hashable]]:
    comparisons: list[Compared] = []
    groups: list[Hashable] = []
    for number, run in runs.each():
        case = cases[number]
        if run.path and isinstance(case, ArenaTestCase) and len(case.contestants) == 2:
            lengths = [len(answer.actual_output or "") for answer in case.contestants.values()]
            won = dict(zip(case.contestants, (True, False), strict=True))
            comparisons.append(Compared(lengths[0], lengths[1], won.get(str(run.path[-1][1]))))
            groups.append(runs.group(number))
    return comparisons, groups


# Several settings together.

CIRCUMSTANCES = {
    "position": "order",
    "judge": "judge",
    "temperature": "temperature",
    "seed": "seed",
    "paraphrase": "paraphrase",
}
"""Circumstances of a run, by the name that measures have, with their field of a condition."""


def flips_between_settings(runs: Runs) -> Iterator[Figure]:
    """The flip rate of the score between runs that differ in one circumstance."""
    for name, field in CIRCUMSTANCES.items():
        if len({getattr(setting, field) for setting in runs.settings}) < 2:
            continue
        items = [_flips_between(settings, field) for settings in runs.cases.values()]
        groups = [*map(runs.group, runs.cases)]
        yield figure(f"{name}-flip-rate", items, mean, "no case has such a pair", groups)


def _flips_between(settings: Mapping[Condition, Sequence[Run]], field: str) -> float | None:
    """The share of pairs of runs with different scores, among settings that differ in `field`."""
    rates: list[float] = []
    for (setting, runs), (counterpart, counterpart_runs) in combinations(settings.items(), 2):
        if replace(setting, **{field: getattr(counterpart, field)}) != counterpart:
            continue
        pairs = [*product(present(map(score, runs)), present(map(score, counterpart_runs)))]
        if pairs:
            rates.append(1 - sum(starmap(operator.eq, pairs)) / len(pairs))
    return mean_score(rates)


def agreement_of_judges(runs: Runs, threshold: float | None) -> Iterator[Figure]:
    """Agreement of several judges beyond chance, single run against single run."""
    judges = list(dict.fromkeys(setting.judge for setting in runs.settings))
    if len(judges) < 2:
        return
    why = "only one outcome occurs, so chance alone always agrees"

    rows, cases = _by_judge(runs, judges)
    groups = [*map(runs.group, cases)]

    def over(name: str, of: Callable[..., Sums], read: Outcome, level: str = "") -> Figure:
        table = [[None if run is None else read(run) for run in row] for row in rows]
        return figure(name, table, of, why, groups, level)

    basis = f"{'scores' if threshold is None else 'pass or fail'}, single runs of {len(judges)}"
    name, kappa = ("cohen-kappa", cohen_kappa) if len(judges) == 2 else _FLEISS
    yield over(name, kappa.sums, outcome(threshold), f"{basis} judges")
    yield over("alpha", krippendorff_alpha.sums, outcome(threshold), f"{basis} judges")
    distances = partial(krippendorff_alpha.sums, level="interval")
    yield over("score-alpha", distances, lambda run: run.score)


_FLEISS = ("fleiss-kappa", fleiss_kappa)


def _by_judge(runs: Runs, judges: Sequence[str]) -> tuple[list[list[Run | None]], list[int]]:
    """One row per case and repetition, one column per judge; and the case of every row."""
    rows: dict[tuple[int, Condition], dict[str, Run]] = {}
    bare = {at: replace(at, judge="") for at in {run.condition for run in runs.every()}}
    for case, run in runs.each():
        rows.setdefault((case, bare[run.condition]), {})[run.condition.judge] = run
    table = [[row.get(judge) for judge in judges] for row in rows.values()]
    return table, [case for case, _ in rows]
