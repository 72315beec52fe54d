"""Would I get this score again? What repeated runs show, and what moves them that should not.

Runs of one setting are compared with each other; runs of several settings by the circumstance that
tells the settings apart; and all of them with the place in a pair or in a list, and the length.
"""

from __future__ import annotations

import operator
import statistics
from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cache, partial
from itertools import chain, combinations, product, starmap
from operator import attrgetter
from typing import Any

from dagengine.errors import InputError
from dagengine.graph.list_nodes import VerdictListNode
from dagengine.graph.nodes import NonBinaryJudgementNode
from dagengine.reliability.card.measures import (
    CIRCUMSTANCES,
    figure,
    figure_of,
    figure_over_sides,
    measure_of,
)
from dagengine.reliability.card.sentences import has
from dagengine.reliability.card.types import Figure
from dagengine.reliability.counterfactual import Counterfactual
from dagengine.reliability.observations import Condition
from dagengine.reliability.observed_runs import Run, Runs
from dagengine.reliability.perturbations import Symmetry
from dagengine.reliability.statistics import accuracy_and_kappa, correlation_and_bias, stability
from dagengine.reliability.statistics.exchangeability import Departure, departures
from dagengine.reliability.statistics.intervals import Interval, Unknown, clusters_of
from dagengine.reliability.statistics.sums import (
    Sums,
    by_row,
    mean,
    mean_score,
    numbers,
    numpy,
    present,
    split_groups,
    stats,
)
from dagengine.results import OutcomeKind, Verdict
from dagengine.system.terminal_text import counted, text_if
from dagengine.test_case import ArenaTestCase, LLMTestCase, TestCase

_SCALE = (0.0, 1.0)

Outcome = Callable[[Run], Hashable]


@cache
def outcome(threshold: float | None) -> Callable[[Run], float | None]:
    """Value that is compared between runs: pass or fail, or the score if there is no threshold."""
    return (lambda run: run.score) if threshold is None else (lambda run: run.meets(threshold))


score = outcome(None)
"""The score of a run, as tables take it."""
_raw = attrgetter("raw")


def _path(run: Run) -> Hashable:
    return None if run.score is None else run.path


def why_not_twice(runs: Runs) -> str:
    """Why nothing can be said about repetition."""
    if all(run.score is None for run in runs.every()):
        return "no run has a score"
    if max(runs.sizes) < 2:
        return "every case ran once; use --times 2 or more"
    return "no case has two runs with a score"


def again(runs: Runs, threshold: float | None) -> Iterator[Figure]:
    """The figures of the first question."""
    scores, groups = runs.table(score), runs.rows
    why = why_not_twice(runs)

    def over(
        name: str, of: Callable[..., Sums], why: str = why,
        table: Sequence[Sequence[Any]] = scores, bounds: Sequence[Sequence[Sequence[Any]]] = (),
    ) -> Figure:  # fmt: skip
        return figure_over_sides(figure(name, side, of, why, groups) for side in (table, *bounds))

    if threshold is None:
        undefined = "the metric has no threshold; see score-flip-rate"
        yield figure_of("flip-rate", None, note=undefined)
    else:
        table: list[Any] = runs.table(outcome(threshold))
        bounds = _without_repeats(table)
        yield over("flip-rate", stability.flip_rate.sums, table=table, bounds=bounds)
        yield over("pass-rate", mean_of_runs, table=table, bounds=_fill_bounds(table))
    yield over("score-flip-rate", stability.flip_rate.sums, bounds=_without_repeats(scores))
    yield over("mean-score", mean_of_runs, "no run has a score", bounds=_fill_bounds(scores))
    yield over("score-spread", partial(stability.score_spread.sums, scale=_SCALE))
    clusters, rows = clusters_of(groups), [*map(numbers, scores)]
    reliability = stability.icc_interval(scores, groups=clusters, scale=_SCALE)
    yield figure_of("test-retest", reliability, note=_no_icc(rows, why))
    slope = stability.drift(scores, groups=clusters)
    yield figure_of("drift", slope, note=_no_drift(rows, slope, why))
    yield over("unscored", stability.missing_rate.sums, "nothing ran")


def mean_of_runs(table: Sequence[Sequence[float | bool | None]]) -> Sums:
    """The mean over cases of the mean of a case's runs; runs without a value are left out."""
    return mean(by_row(mean_score, table))


def _fill_bounds(table: Sequence[Sequence[float | None]]) -> Sequence[Sequence[Sequence[float]]]:
    """The table with its missing results at worst, and at best; nothing if none is missing."""
    if not any(None in row for row in table):
        return ()
    return [[[end if value is None else value for value in row] for row in table]
            for end in _SCALE]  # fmt: skip


def _without_repeats(
    table: Sequence[Sequence[float | None]],
) -> Sequence[Sequence[Sequence[float]]]:
    """The table in which cases that lack two results never flip, and always do."""
    rows = [*map(present, table)]
    lacking = [len(row) < 2 <= len(whole) for row, whole in zip(rows, table, strict=True)]
    if not any(lacking):
        return ()
    return [[ends if lacks else row for row, lacks in zip(rows, lacking, strict=True)]
            for ends in ((0.0, 0.0), _SCALE)]  # fmt: skip


def _no_icc(rows: Sequence[Sequence[float]], why: str) -> str:
    """Reliability needs two cases, two runs of one, and scores that differ somewhere."""
    if sum(map(bool, rows)) == 1:
        return "only one case has scores; two are needed"
    if max(map(len, rows), default=0) < 2:
        return why
    return text_if(len({*chain.from_iterable(rows)}) == 1, "all scores are equal")


def _no_drift(rows: Sequence[Sequence[float]], slope: Interval | Unknown, why: str) -> str:
    """Why no drift is known, if the reason is not the number of cases."""
    if max(map(len, rows), default=0) < 2:
        return why
    if max(len({*row}) for row in rows) < 2:
        return "no case has two different scores"
    alike = isinstance(slope, Unknown) and slope.reason == "no variation"
    return text_if(alike, "all cases change equally from the first run to the last")


_DEPARTURES = {
    "copied from the run before": "answers repeat the run before more often than other runs",
    "copied from the first run": "answers repeat the first run more often than other runs",
    "moved": "results moved from run {run} on",
    "stands apart": "run {run} stands apart from the others",
    "differs from run to run": "results of all cases move together from run to run",
}


@dataclass(frozen=True, slots=True)
class Unlike:
    """How the runs of a case are not repeats of each other, in words.

    `shown` withholds what follows from repeats, and so does a suspected `shock`. Copies that are
    only `suspected` withhold no more than the intervals of flips.
    """

    shown: tuple[str, ...] = ()
    shock: str = ""
    suspected: str = ""

    @property
    def first(self) -> str:
        """Why neither votes nor blame follow; empty if the runs may be repeats."""
        return self.shown[0] if self.shown else self.shock

    def without(self, measure: Figure) -> Figure:
        """The figure without the interval that only holds for repeats."""
        rests = measure_of(measure.name).repeats
        why = self.first or text_if(rests == "suspected", self.suspected)
        return measure.without_interval(f"no interval: {why}") if why and rests else measure


def not_repeats(runs: Runs, threshold: float | None) -> Unlike:
    """Return whether and how the runs of a case are not repeats of each other.

    Honest repeats agree with the run before by chance, too; a copy also has its text. So where
    texts differ although results are equal, only texts tell copies.
    """
    results, texts = runs.table(outcome(threshold)), runs.table(_raw)
    ways = departures(results, groups=runs.rows)
    shocks = [way for way in ways if not way.is_copy]
    if _texts_differ(results, texts):
        of_texts = departures(texts, groups=runs.rows)
        ways = [way for way in of_texts if way.sure and way.is_copy] or shocks
    if not any(way.sure for way in ways) and (cached := _cache_suspicion(texts)):
        return Unlike(shock=cached)
    if not ways or ways[0].sure:
        return Unlike(tuple(map(_in_words, ways)))
    if shocks:
        return Unlike(shock=f"perhaps {_in_words(shocks[0])}; more runs would tell")
    return Unlike(suspected=_SUSPECTED)


def _in_words(departure: Departure) -> str:
    return _DEPARTURES[departure.way].format(run=(departure.run or 0) + 1)


def _texts_differ(
    results: Sequence[Sequence[object]], texts: Sequence[Sequence[str | None]]
) -> bool:
    """Return whether most cases have different texts for one and the same result."""
    differ: list[bool] = []
    for row, raws in zip(results, texts, strict=True):
        if None not in row and None not in raws and len({*row}) < len(row):
            differ.append(len({*zip(row, raws, strict=True)}) > len({*row}))
    return 0 < len(differ) <= 2 * sum(differ)


_SUSPECTED = (
    "runs agree most with the run before: by chance (in 1 of 10 benchmarks) or as copies of a "
    "cache; more runs would tell"
)


def _cache_suspicion(texts: Sequence[Sequence[str | None]]) -> str:
    """Why answers may be those of a cache that holds some of the cases: in words, or nothing.

    Copies of all runs of a case can change places, so no test of shuffled runs sees them. But a
    judge whose other answers are all new would hardly write the same text again and again.
    """
    rows = [row for row in texts if len(row) > 2 and None not in row]
    different = [len({*row}) for row in rows]
    alike, new = different.count(1), sum(map(operator.eq, different, map(len, rows)))
    if min(alike, new) < _LEAST_ALIKE or alike + new < _ALL_BUT_FEW * len(rows):
        return ""
    return (
        f"perhaps answers of a cache: {alike} of {counted(len(rows), 'case')} have one text in all "
        f"runs, and {new} have another one in each"
    )


# With fewer such cases, or more that are neither, a judge may be like that: an answer of few words
# comes again now and then.
_LEAST_ALIKE, _ALL_BUT_FEW = 5, 0.9


def agreement_of_runs(runs: Runs, threshold: float | None) -> Iterator[Figure]:
    """Agreement of the runs of one case in scores, texts and paths."""
    groups, why = runs.rows, why_not_twice(runs)

    def over(name: str, of: Callable[..., Sums], read: Outcome) -> Figure:
        return figure(name, runs.table(read), of, why, groups)

    def in_all(name: str, read: Outcome) -> Figure:
        if len(runs.sizes) > 1:
            note = f"cases have {runs.sizes[0]} to {runs.sizes[-1]} runs; equal numbers are needed"
            return figure_of(name, None, note=note)
        return over(name, stability.total_agreement.sums, read)

    for name, read in ("total", score), ("raw", _raw), ("path", _path):
        if any(value is not None for value in chain.from_iterable(runs.table(read))):
            yield in_all(f"{name}-agreement", read)
    yield over("path-flip-rate", stability.flip_rate.sums, _path)
    yield over("majority-share", stability.majority_share.sums, score)
    bits = over("entropy", stability.entropy.sums, score)
    # Its interval reaches over what so few runs cannot show.
    ends = stability.entropy_interval(runs.table(score), groups=groups)
    yield bits if ends is None else replace(bits, low=ends.low, high=ends.high)
    table = runs.table(outcome(threshold))
    if stability.missing_rate(table):
        yield figure("unscored-effect", table, stability.missing_effect.sums, why, groups)


def rule_effect(runs: Runs, threshold: float | None) -> Iterator[str]:
    """Effect of the rule for runs without a score on the flip rate, if there are any."""
    table = runs.table(outcome(threshold))
    without, among = stability.flip_rate(table), stability.flip_rate(table, missing="own category")
    if stability.missing_rate(table) and without is not None and among is not None:
        yield (
            f"Without the runs that have no score, the flip rate is {100 * without:.1f} %. "
            f"With “no score” as an outcome, it is {100 * among:.1f} %."
        )


def without_score(runs: Runs) -> Iterator[str]:
    """Why runs have no score, if some have none."""
    every = list(runs.every())
    # A run that is well and has no score is of a table that left out a node on its path.
    kinds = {OutcomeKind.OK: "with verdicts that lead to no score", None: "not observed"}
    missing = Counter(
        kinds.get(run.outcome) or str(run.outcome).replace("_", " ")
        for run in every if run.score is None
    )  # fmt: skip
    if missing:
        why = ", ".join(f"{count:,} {kind}" for kind, count in missing.items())
        lost = missing.total()
        yield f"{lost:,} of {counted(len(every), 'run')} {has(lost)} no score: {why}."


def lost_together(runs: Runs, threshold: float | None) -> Iterator[str]:
    """A warning where runs without a score are in few cases, or in cases that flip."""
    rows = [*filter(None, runs.table(outcome(threshold)))]
    missing, sizes = numpy.array([(row.count(None), len(row)) for row in rows] or [(0, 0)]).T
    if not 1 < missing.sum() < sizes.sum():
        return
    # The dispersion of the cases' counts: about 1 where each answer is lost by itself.
    share = missing.sum() / sizes.sum()
    spread = ((missing - sizes * share) ** 2 / (sizes * share * (1 - share))).sum()
    if stats.chi2.sf(spread, len(rows) - 1) < 0.01:
        yield (
            f"Runs without a score are not spread by chance: {missing.sum()} of them are in "
            f"{(missing > 0).sum()} of {counted(len(rows), 'case')}. Figures that leave them out "
            "are of the other cases."
        )


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

    why_apart = "no pair has a verdict in both orders"
    measures = (
        ("position-consistency", correlation_and_bias.position_consistency, why_apart),
        (
            "position-preference",
            correlation_and_bias.position_preference,
            "the orders never disagree",
        ),
        ("first-wins", correlation_and_bias.first_wins, "no pair has a winner in both orders"),
    )
    for order, suffix, level in (
        ("swapped", "", "last verdicts, inputs swapped"),
        ("reversed", "-of-options", "last verdicts, first and last option exchanged"),
    ):
        pairs, groups = split_groups(_in_both_orders(runs, order, partial(names_in, order)))
        for name, of, why in measures if pairs else ():
            yield figure(f"{name}{suffix}", pairs, of.sums, why, groups, level)


def _in_both_orders(
    runs: Runs, order: str, names: Callable[[int, str], Names | None]
) -> Iterator[tuple[tuple[str, str], Hashable]]:
    """Last verdicts in both orders, those for the first as A and for the second as B."""
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
                    yield (_answer_of(run, shown), _answer_of(mirror, shown)), runs.group(case)


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
    lists, groups = split_groups(
        ([float(item == verdict) for item in run.lists[node]], runs.group(case))
        for case, run in runs.each() for node, verdict in named.items() if node in run.lists
    )  # fmt: skip
    if lists:
        nodes = " and ".join(f"“{verdict}” by “{node}”" for node, verdict in named.items())
        why, level = "no list has two items with different verdicts", f"place in a list, {nodes}"
        yield figure("list-bias", lists, correlation_and_bias.list_bias.sums, why, groups, level)


def bias_by_length(
    runs: Runs, cases: Sequence[TestCase], labels: Mapping[int, Any]
) -> Iterator[Figure]:
    """Whether longer answers get higher scores or win, with human labels held constant."""
    pairs = labels.items()
    numbers = {case: float(label) for case, label in pairs if isinstance(label, bool | int | float)}
    answers: dict[int, correlation_and_bias.Measured] = {}
    # With labels, only labelled cases: the partial correlation takes all three of a case.
    for number in (case for case in runs.cases if not numbers or case in numbers):
        case, scores = cases[number], runs.scores(number)
        if scores and isinstance(case, LLMTestCase) and isinstance(case.actual_output, str):
            mean_of, length = statistics.fmean(scores), len(case.actual_output)
            answers[number] = correlation_and_bias.Measured(mean_of, length, numbers.get(number))
    if answers:
        held = text_if(numbers, ", labels held constant")
        level = f"mean scores of cases and lengths of `actual_output` in characters{held}"
        why = "all answers have the same length, or all scores or labels are equal"
        measured, by_case = list(answers.values()), [*map(runs.group, answers)]
        yield figure(
            "length-bias", measured, correlation_and_bias.length_bias.sums, why, by_case, level
        )
    compared, groups = split_groups(_comparisons(runs, cases))
    if compared:
        why = "no comparison of answers of different length has a winner"
        yield figure("longer-wins", compared, correlation_and_bias.longer_wins.sums, why, groups)


def _comparisons(
    runs: Runs, cases: Sequence[TestCase]
) -> Iterator[tuple[correlation_and_bias.Compared, Hashable]]:
    for number, run in runs.each():
        case = cases[number]
        if run.path and isinstance(case, ArenaTestCase) and len(case.contestants) == 2:
            answers = case.contestants.values()
            first, second = (len(answer.actual_output or "") for answer in answers)
            won = dict(zip(case.contestants, (True, False), strict=True))
            first_won = won.get(str(run.path[-1][1]))
            yield correlation_and_bias.Compared(first, second, first_won), runs.group(number)


# Several settings together.


def flips_between_settings(runs: Runs) -> Iterator[Figure]:
    """The flip rate of the score between runs that differ in one circumstance."""
    for name, _, field in CIRCUMSTANCES:
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

    rows, groups = split_groups(_by_judge(runs, judges))

    def over(name: str, of: Callable[..., Sums], read: Outcome, level: str = "") -> Figure:
        table = [[None if run is None else read(run) for run in row] for row in rows]
        return figure(name, table, of, why, groups, level)

    basis = f"{'scores' if threshold is None else 'pass or fail'}, single runs of {len(judges)}"
    name, kappa = "fleiss-kappa", accuracy_and_kappa.fleiss_kappa.sums
    if len(judges) == 2:
        name, kappa = "cohen-kappa", accuracy_and_kappa.cohen_kappa.sums
    alpha = accuracy_and_kappa.krippendorff_alpha.sums
    yield over(name, kappa, outcome(threshold), f"{basis} judges")
    yield over("alpha", alpha, outcome(threshold), f"{basis} judges")
    distances = partial(alpha, level="interval")
    yield over("score-alpha", distances, lambda run: run.score)


def _by_judge(runs: Runs, judges: Sequence[str]) -> Iterator[tuple[list[Run | None], Hashable]]:
    """One row per case and repetition, one column per judge; and the group of every row."""
    rows, bare = defaultdict[Any, dict[str, Run]](dict), cache(partial(replace, judge=""))
    for case, run in runs.each():
        rows[case, bare(run.condition)][run.condition.judge] = run
    for (case, _), row in rows.items():
        yield [*map(row.get, judges)], runs.group(case)
