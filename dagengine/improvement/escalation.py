"""Below which confidence a second judge should decide: replayed, fitted, proved on other cases.

A cascade hands a judgement to the large judge if the confidence of the small one is below a
threshold. It has to be better than the small judge alone, and better than handing over as many
judgements by chance: else the confidence says nothing, and any mixture of the two does as well.
"""

from __future__ import annotations

import math
import sys
from collections import Counter
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import compress, pairwise
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

from dagengine.errors import InputError
from dagengine.graph.graph import Metric
from dagengine.improvement.candidates import with_escalation
from dagengine.improvement.experiment import dependent_groups, reader_of
from dagengine.metrics.common.base import BaseMetric
from dagengine.record.reader import load_run
from dagengine.reliability.counterfactual import Counterfactual, NoReplyError, Reply
from dagengine.reliability.human_labels import HumanLabels, Vote, labels_for
from dagengine.reliability.observations import Condition, Observation
from dagengine.reliability.observed_runs import Run, clusters, runs_of
from dagengine.reliability.repetition import a_repeat
from dagengine.reliability.statistics.intervals import Interval, Unknown, bootstrap, mean_of
from dagengine.reliability.statistics.paired_comparisons import (
    Comparison,
    compare_repeated,
    is_gain,
    prove_more_often,
)
from dagengine.reliability.statistics.sums import mean, mean_score, numpy
from dagengine.reliability.verdict_cases import Collected
from dagengine.results import OutcomeKind
from dagengine.results.prices import find_price
from dagengine.store import Store
from dagengine.system.terminal_text import counted
from dagengine.test_case import TestCase, read_field
from dagengine.voting.votes_and_juries import Escalation

NEVER, UNKNOWN = -math.inf, -sys.float_info.max
"""The threshold of the small judge alone, and the confidence of a verdict without one."""
_CUTS, _LEAST_SEGMENT = 200, 20
SIDES = ("small", "large")
_ALTERNATIVES = (0, 5, 20)  # alternatives per token: of the node, of `escalated`, of `benchmark`
# Whatever else became of a case is unknown, and not wrong.
_JUDGED = {
    None, OutcomeKind.OK, OutcomeKind.UNPARSEABLE, OutcomeKind.UNSUPPORTED, OutcomeKind.TRUNCATED,
    OutcomeKind.JUDGE_REFUSED,
}  # fmt: skip


JudgedTurns = tuple[tuple[float, bool | None], ...]
"""By judgement: the small judge's confidence, and whether the large one's verdict was taken."""


class Way(NamedTuple):
    """One way of a cascade through a case, and whether its result is `right`.

    A turn is no judge's alone (None) if both say the same. The way leads to a node `lacks` that
    nobody asked.
    """

    turns: JudgedTurns
    right: bool
    lacks: str = ""


class TwoJudges(NamedTuple):
    """A labelled case under both judges, with the `ways` of all its `runs`.

    `small` and `large` are the shares of right results of each judge alone (0 to 1), `asked` is the
    number of judgements of the large one alone.
    """

    ways: tuple[Way, ...]
    small: float
    large: float
    asked: float = 1.0
    runs: int = 1


class FittedEscalation(NamedTuple):
    """The cheapest threshold within a distance of the best accuracy (0 to 1), as all around it are.

    `NEVER` is the threshold of the small judge alone.
    """

    below: float
    low: float
    high: float
    best: float


@dataclass(frozen=True, slots=True)
class Proof:
    """A threshold on cases that it was not fitted on.

    `accuracy` and `price` (US dollars per case; empty without prices) are by arm: `small`,
    `cascade`, `chance` (as many handed over by chance) and `large`. `gains` has what the cascade
    gains over the others. `share` is that of judgements handed over. `lacking` counts the cases
    that lead to a node that nobody asked, by node; they count as wrong.
    """

    accuracy: Mapping[str, Interval | Unknown]
    price: Mapping[str, Interval | Unknown]
    gains: Mapping[str, Comparison | Unknown]
    share: float
    lacking: Mapping[str, int]

    @property
    def proved(self) -> bool:
        """Whether it is shown to be better than the small judge alone, and than chance."""
        return is_gain(self.gains["small"]) and is_gain(self.gains["chance"])


class Cascade:
    """Labelled cases under both judges, and what a threshold makes of them.

    `groups` names the cases that depend on each other; None: all are independent.
    """

    def __init__(
        self, cases: Sequence[TwoJudges], groups: Sequence[Hashable] | None = None
    ) -> None:
        self.cases, self.groups = cases, groups
        self.ways = [(number, way) for number, case in enumerate(cases) for way in case.ways]
        self._case = numpy.array([number for number, _ in self.ways], dtype=int)
        self._weight = 1 / numpy.array([case.runs for case in cases])[self._case]
        self._right = numpy.array([way.right for _, way in self.ways], dtype=float)
        turns = [(k, *turn) for k, (_, way) in enumerate(self.ways) for turn in way.turns]
        # Both judges say the same: no side, which is not a number.
        turn, self.sure, is_large = numpy.array(turns, dtype=float).reshape(-1, 3).T
        self._turn, self._is_large, self._is_small = turn.astype(int), is_large == 1, is_large == 0

    def at(self, below: float) -> tuple[Any, Any, Any, Any]:
        """By case: right results, judgements, those handed over, those without a confidence."""
        handed = self.sure < below
        unlike = (handed & self._is_small) | (~handed & self._is_large)
        self.taken = self._by_way(unlike) == 0
        asked, over = self._by_way(handed | True), self._by_way(handed)
        unknown = self._by_way(handed & (self.sure == UNKNOWN))
        right, asked, over, unknown = (
            self._by_case(each * self.taken) for each in (self._right, asked, over, unknown)
        )
        return right, asked, over, unknown

    def by_chance(self, share: float) -> Any:
        """The expected share of right results of each case, if chance hands over this share.

        Of judgements with a confidence: those without one are always handed over.
        """
        chance = numpy.where(self.sure == UNKNOWN, 1.0, share)
        chance[self._is_small] = 1 - chance[self._is_small]
        chance[~self._is_small & ~self._is_large] = 1.0
        values = self._right.copy()
        numpy.multiply.at(values, self._turn, chance)
        return self._by_case(values)

    def _by_way(self, turns: Any) -> Any:
        return numpy.bincount(self._turn, turns, len(self.ways))

    def _by_case(self, values: Any) -> Any:
        return numpy.bincount(self._case, values * self._weight, len(self.cases))


def fit_escalation(
    cascade: Cascade, *, distance: float = 0.005, prices: tuple[float, float] = (0.0, 1.0)
) -> FittedEscalation:
    """The cheapest of up to 200 thresholds whose accuracy is within `distance` of the best.

    `prices` are US dollars of one judgement, of the small judge and of the large one.
    """
    cuts = [NEVER, *_cuts(sorted({float(sure) for sure in cascade.sure if sure != UNKNOWN}))]
    right, asked, handed, _ = numpy.array(list(map(cascade.at, cuts))).mean(2).T
    far = right < right.max() - distance - 1e-12
    at = int(numpy.where(far, math.inf, prices[0] * asked + prices[1] * handed).argmin())
    low = max(numpy.flatnonzero(far[:at]), default=-1) + 1
    high = at + min(numpy.flatnonzero(far[at:]), default=len(cuts) - at) - 1
    return FittedEscalation(cuts[at], cuts[low], cuts[high], float(right.max()))


def _cuts(sure: Sequence[float]) -> list[float]:
    """Thresholds between neighbouring confidences, and above the highest one."""
    # Above the highest everything is handed over; of probabilities 1 is the highest threshold.
    ends = [*sure, 1.0 if 0 <= sure[-1] <= 1 else sure[-1] + 1] if sure else []
    pairs = list(pairwise(ends))
    step = max(1, len(pairs) / _CUTS)
    chosen = {pairs[int(k * step)] for k in range(int(len(pairs) / step))} | {*pairs[-1:]}
    return sorted(_between(low, high) for low, high in chosen if low < high)


def _between(low: float, high: float) -> float:
    """The number of fewest digits above `low` and up to `high`, near the middle of both."""
    rounded = (round((low + high) / 2, digits) for digits in range(1, 17))
    return next((number for number in rounded if low < number <= high), high)


def prove_escalation(
    cascade: Cascade, below: float, *, prices: tuple[float, float] | None = None
) -> Proof:
    """Prove a threshold beside the small judge, the large one, and chance.

    Gains are those of `compare_repeated`. Chance hands over the share that the cascade does on the
    same cases, and the error of that is in the interval: a case counts with its influence on the
    difference, which for one judgement per case is the covariance of being handed over and of what
    that gains.
    """
    groups = cascade.groups
    alone, asked_small, _, _ = cascade.at(NEVER)
    right, asked, handed, unknown = cascade.at(below)
    taken = compress(cascade.ways, cascade.taken)
    lacks = sorted({(way.lacks, case) for case, way in taken if way.lacks})
    large, asked_large = numpy.array([(case.large, case.asked) for case in cascade.cases]).T
    free, chosen = asked - unknown, handed - unknown
    share = float(chosen.sum() / (free.sum() or 1.0))
    ends = max(share - 1e-3, 0.0), min(share + 1e-3, 1.0)
    slope = (cascade.by_chance(ends[1]) - cascade.by_chance(ends[0])).mean() / (ends[1] - ends[0])
    chance = cascade.by_chance(share) + slope * (chosen - share * free) / (free.mean() or 1.0)
    arms = {
        "small": (alone, asked_small, 0 * handed), "cascade": (right, asked, handed),
        "chance": (chance, asked, handed), "large": (large, 0 * asked, asked_large),
    }  # fmt: skip

    def mean_by_case(values: Any) -> Interval | Unknown:
        each, middle = values.tolist(), float(values.mean())
        if min(each) == max(each):  # the price of one judgement each
            return Interval(middle, middle, middle, 0.95, "t", len(each))
        return mean_of(each, groups=groups)

    accuracy, price, gains = dict[str, Interval | Unknown](), dict[str, Interval | Unknown](), {}
    for name, (own, few, many) in arms.items():
        resampled = name != "chance" and bootstrap(own.tolist(), mean, groups=groups)
        accuracy[name] = resampled or mean_by_case(own)
        if prices:
            price[name] = mean_by_case(prices[0] * few + prices[1] * many)
        pairs = [*zip(own.tolist(), right.tolist(), strict=True)]
        gains[name] = compare_repeated(pairs, groups=groups)
    over = float(handed.sum() / (asked.sum() or 1.0))
    return Proof(accuracy, price, gains, over, Counter(node for node, _ in lacks))


def worse_segments(
    cases: Sequence[TwoJudges], segments: Mapping[str, Sequence[int]]
) -> list[tuple[str, int, float]]:
    """The segments in which the large judge is shown to be worse, corrected for their number.

    `segments` has the indices of the cases of each; those of fewer than 20 are left out. Returns
    name, number of cases, and how much worse it is there (0 to 1).
    """
    changes = numpy.array([case.small - case.large for case in cases])
    large, counts = list[tuple[str, int, float]](), list[tuple[int, int]]()
    for name, numbers in segments.items():
        if len(numbers) >= _LEAST_SEGMENT:
            own = changes[list(numbers)]
            large.append((name, len(own), float(own.sum() / len(own))))
            counts.append((int((own > 0).sum()), int((own < 0).sum())))
    return [*compress(large, prove_more_often(counts))]


# A small and a large judge on the same labelled cases, replayed as the cascade of both.


@dataclass(frozen=True, slots=True)
class Replayed:
    """The labelled cases that both judges judged (`judged`), by number.

    `reads` are the paths of what the metric reads, `columns` the rows of tables by case.
    """

    cases: Sequence[TestCase]
    labels: Mapping[int, Vote]
    judged: Mapping[int, TwoJudges]
    groups: Mapping[int, Hashable]
    reads: Collection[str]
    notes: Sequence[str]
    columns: Mapping[int, Mapping[str, Any]]

    def cascade(self, chosen: Sequence[int]) -> Cascade:
        """Some of the cases, as a cascade."""
        judged = [self.judged[number] for number in chosen]
        return Cascade(judged, dependent_groups(chosen, self.groups))

    def segments(self, fields: Iterable[str], chosen: Sequence[int]) -> dict[str, list[int]]:
        """The cases with each value of each field or column, by their index in `chosen`."""
        segments: dict[str, list[int]] = {}
        for field in fields:
            for index, number in enumerate(chosen):
                own = self.columns.get(number, {})
                value = own[field] if field in own else read_field(self.cases[number], field)
                for item in value if isinstance(value, list | tuple) else [value]:
                    if item is not None:
                        segments.setdefault(f"{field} {item}", []).append(index)
        return segments


def replay_judges(
    metric: Metric,
    rows: Iterable[Observation],
    cases: Sequence[TestCase],
    source: str | Mapping[int, Any],
    groups: str | None = None,
    columns: Mapping[int, Mapping[str, Any]] | None = None,
) -> Replayed:
    """Replay what two judges (`SIDES`) said of labelled cases.

    Each judgement of a metric with escalation is kept or handed over by itself; without it all
    are. `source` has the labels, `groups` names a field or a column. Raises InputError for labels
    that are no outcome.
    """
    replay, columns = Counterfactual(metric), columns or {}
    handing = {u.name for u in replay.plan.units if isinstance(u.node.panel, Escalation)}
    handing = handing or {speaker.node for speaker in replay.speakers}
    runs = runs_of(rows, replay)
    human = HumanLabels(cases, source)
    (people,) = human.for_metrics([replay])
    labels = labels_for(people, replay, cases)
    reader = reader_of(metric, labels, "an escalation is fitted to")

    def is_right(label: Vote, run: Run) -> bool:
        return run.score is not None and reader(run) == label

    judged: dict[int, TwoJudges] = {}
    for number in sorted(labels.by_case.keys() & runs.cases.keys()):
        right = partial(is_right, labels.by_case[number])
        case = _both(replay, handing, runs.cases[number], cases[number], right)
        if case is not None:
            judged[number] = case
    notes = [*human.left_out([replay])]
    if lacking := len(labels.by_case) - len(judged):
        every = counted(len(labels.by_case), "labelled case")
        notes.append(f"{lacking} of {every} left out: not judged by both judges")
    reads = replay.plan.fields
    named = {n: str(row[groups]) for n, row in columns.items() if groups and groups in row}
    together = named or clusters(cases, (), groups, [reads])
    return Replayed(cases, labels.by_case, judged, together, reads, notes, columns)


def _both(
    replay: Counterfactual,
    handing: Collection[str],
    settings: Mapping[Condition, Sequence[Run]],
    case: TestCase,
    right: Callable[[Run], bool],
) -> TwoJudges | None:
    """One case under both judges, by the runs of each; None without a run of either."""
    small, large = (
        [run for run in settings.get(Condition(judge=side), ()) if run.outcome in _JUDGED]
        for side in SIDES
    )
    if not small or not large:
        return None
    indices = range(max(len(small), len(large)))
    pairs = [(small[k % len(small)], large[k % len(large)]) for k in indices]
    ways = tuple(
        Way(turns, right(run), lacks)
        for pair in pairs
        for turns, run, lacks in _ways(replay, handing, pair, case)
    )
    shares = [sum(map(right, runs)) / len(runs) for runs in zip(*pairs, strict=True)]
    share = sum(len(handing & run.replies.keys()) for _, run in pairs) / len(pairs)
    return TwoJudges(ways, shares[0], shares[1], share, len(pairs))


def _ways(
    replay: Counterfactual,
    handing: Collection[str],
    pair: tuple[Run, Run],
    case: TestCase,
    replies: Mapping[str, Reply] = MappingProxyType({}),
    turns: JudgedTurns = (),
) -> Iterator[tuple[JudgedTurns, Run, str]]:
    """The ways that go on from what was said so far: their turns, their end, and what they lack."""
    try:
        result = replay.result(replies, case)
    except NoReplyError as lack:
        node = lack.node
    else:
        end = Run(Condition()) if result is None else Run(Condition(), result.score, result.path)
        yield turns, end, ""
        return
    small, large = (run.replies.get(node) for run in pair)
    sides: list[tuple[Reply | None, bool | None]] = [(small, False), (large, True)]
    if node not in handing:
        sides = [(small, False)]
    elif small is None:  # what only the large judge was asked has no confidence
        sides = [(large, True)]
    elif small == large:
        sides = [(small, None)]
    stated = (sure for step, sure in pair[0].sure.items() if replay.name_of(step) == node)
    sure = next((probability for probability in stated if probability is not None), UNKNOWN)
    for reply, side in sides:
        longer = (*turns, (sure, side)) if node in handing else turns
        if reply is None:
            yield longer, Run(Condition()), node
        else:
            yield from _ways(replay, handing, pair, case, {**replies, node: reply}, longer)


# What judges said: in files of verdicts, in runs, in stores.


def observe_verdicts(collected: Collected) -> Iterator[Observation]:
    """The verdicts of a file with their confidences; raises InputError if one is no number."""
    for observation, (_, row) in zip(collected.observations, collected.runs, strict=True):
        try:
            sure = None if row.confidence is None else float(row.confidence)
        except (TypeError, ValueError):
            sure = math.nan
        if sure is not None and not math.isfinite(sure):
            raise InputError(
                f"{row.where}: `confidence` is {row.confidence!r}, but must be a number, or empty"
            )
        yield observation
        verdict = observation.path[-1][1] if observation.path else None
        yield replace(
            observation, node=observation.metric, verdict=verdict, path=(), confidence=sure
        )


def observe_run(
    path: Path, metric: BaseMetric, cases: Sequence[TestCase], judge: str
) -> Iterator[Observation]:
    """The observations of one metric in a run; cases are known by their content."""
    numbers: dict[str | None, list[int]] = {}
    for number, case in enumerate(cases):
        numbers.setdefault(case.content_hash(), []).append(number)
    for row in load_run(path).rows():
        for result in (own for own in row.metrics if own.metric == metric.spec().name):
            for number in numbers.get(row.hash, ()):
                whole = Observation(
                    number, result.metric, "", Condition(judge=judge), None, result.score, "",
                    result.outcome, result.path,
                )  # fmt: skip
                yield whole
                for step in result.steps:
                    yield replace(
                        whole, node=step.node, verdict=step.verdict, score=step.score,
                        outcome=step.outcome, confidence=step.confidence, path=(),
                    )  # fmt: skip


async def observe_store(
    store: Path, metric: BaseMetric, cases: Sequence[TestCase], judge: str, model: Any
) -> list[Observation]:
    """Observations of a judge in a store, by the questions with most confidences."""
    stored: list[list[Observation]] = []
    for alternatives in _ALTERNATIVES:
        observations = await a_repeat(
            cases, [with_escalation(metric, None)], times=1, second_answers=False, model=model,
            store=Store(store, replay=True), top_logprobs=alternatives,
        )  # fmt: skip
        stored.append([row for row in observations if row.outcome in _JUDGED])
    counts = [(sum(row.confidence is not None for row in rows), len(rows)) for rows in stored]
    best = max(range(len(stored)), key=lambda k: counts[k][:: 1 if judge == SIDES[0] else -1])
    return [replace(row, condition=Condition(judge=judge)) for row in stored[best]]


def judge_of(path: Path) -> tuple[str | None, float | None]:
    """The model of a run, and US dollars of one of its answers; None for what is not known."""
    run = load_run(path)
    model = run.manifest.judges[0].model if run.manifest.judges else None
    price = find_price(model, {})
    if price is None:
        return model, None
    usages = (step.usage for row in run.rows() for result in row.metrics for step in result.steps)
    return model, mean_score(price.of(usage) for usage in usages if usage.input_tokens)
