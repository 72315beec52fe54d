"""Which cases of a run a person is asked to label, and how many labels are needed for what.

A queue is a random sample of all cases, or of those that failed or are unsure, or it is planned.
Half of a plan is drawn at random, in the order of the random sample: only these cases say how often
the judge is right over all. The others are chosen because they tell more of its mistakes: the most
doubtful of every path through the tree. Cases on which people contradict each other come first: how
far people agree is the most that any judge can reach.
"""

from __future__ import annotations

import json
import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, filterfalse, repeat, takewhile, zip_longest
from operator import attrgetter, itemgetter
from pathlib import Path
from random import Random
from typing import Any, Literal

from dagengine.errors import InputError
from dagengine.record.label_file import Label
from dagengine.record.run_json_types import MetricRecord
from dagengine.reliability.statistics.accuracy_and_kappa import accuracy
from dagengine.reliability.statistics.intervals import Interval, Unknown, bootstrap
from dagengine.reliability.statistics.paired_comparisons import labels_to_decide, labels_within
from dagengine.reliability.threshold_fitting import (
    Abstention,
    FittedThreshold,
    abstain_below,
    fit_threshold,
)
from dagengine.results import CaseResult, MetricResult, OutcomeKind
from dagengine.system.safe_files import is_there, read_whole, write_whole
from dagengine.view.next_question import answer_in

Queue = Literal["random", "failed", "unsure", "planned"]
QUEUES: tuple[Queue, ...] = ("random", "failed", "unsure", "planned")
PLAN = "label-plan.json"
"""The file of a run folder with the cases to label next."""
_PARTS = ("first", "random", "chosen")  # of a plan, in the order of labelling
WIDTHS = (0.10, 0.05, 0.03)
_GUESS = 0.8  # the agreement that is assumed before there are labels
Judged = tuple[CaseResult, MetricResult]
_ENOUGH = 10  # labels from which on their own agreement counts


def is_failed(result: MetricResult) -> bool:
    """Return whether a case has no score, or one below the threshold."""
    return result.state in ("failed", "no_score")


def is_unsure(result: MetricResult) -> bool:
    """Return whether the votes of some node were split."""
    return any(len(set(map(repr, step.votes))) > 1 for step in result.steps)


def sample(places: Sequence[int], count: int, seed: str) -> list[int]:
    """A random sample of `count` places (all, when there are no more), equal for equal seeds.

    The places are in the order in which they are to be labelled: those of a smaller sample
    with the same seed come first. Raises InputError for a count below 1.
    """
    if count < 1:
        raise InputError(f"a sample has at least one case, got {count}")
    mixed = list(places)
    # All are mixed instead of `count` drawn: so a larger sample begins with the smaller one.
    Random(seed).shuffle(mixed)
    return mixed[:count]


@dataclass(frozen=True, slots=True)
class NodeLabels:
    """What people answered to a node: how many cases, and on how many the judge says the same.

    `reached` is the share of the run's cases in which the node answered. `more` is about how many
    more cases have to be labelled for its agreement ± 10 points.
    """

    node: str
    labels: int
    right: int
    reached: float
    more: int


@dataclass(frozen=True, slots=True)
class Contradiction:
    """A case that people label differently, and the first node where they part."""

    case: str
    index: int
    outcomes: tuple[str, ...]
    node: str | None


@dataclass(frozen=True, slots=True)
class LabelPlan:
    """What is labelled of a metric's cases, what more is needed, and which cases are next.

    `labels` are cases with a label of which `right` agree with the judge; of the random ones
    `random_labels` and `random_right`. `agreement` is that of the random ones if they are enough,
    else of all. `within` has the labels still needed for each half width, `to_decide` those that
    probably tell on which side of `line` the agreement is (None: 640 do not). `several` cases
    have labels of several people. `stale` labels are of another definition of the metric. The
    cases to label are numbers in the data: `first` the contradictions, then `random`, `chosen`.
    `abstention` is asked for by a promised rate of errors (None: by none).
    """

    metric: str
    cases: int
    labels: int
    right: int
    random_labels: int
    random_right: int
    agreement: Interval | None
    line: float
    within: tuple[tuple[float, int], ...]
    to_decide: int | None
    several: int
    stale: int
    contradictions: tuple[Contradiction, ...]
    nodes: tuple[NodeLabels, ...]
    threshold: FittedThreshold | Unknown | None
    abstention: Abstention | Unknown | None
    first: tuple[int, ...]
    random: tuple[int, ...]
    chosen: tuple[int, ...]

    @property
    def queue(self) -> tuple[int, ...]:
        """The cases to label, in their order."""
        return tuple(dict.fromkeys((*self.first, *self.random, *self.chosen)))


def label_plan(
    record: MetricRecord,
    rows: Iterable[CaseResult],
    labels: Sequence[Label],
    *,
    line: float = 0.8,
    count: int = 20,
    chosen: int | None = None,
    costs: tuple[float, float] = (1.0, 1.0),
    promised: float | None = None,
    seed: str = "",
) -> LabelPlan:
    """Plan the next labels of one metric of a run.

    `line` is the agreement that is demanded (0 to 1), `count` how many cases are next, `chosen` how
    many of them are not random (None: half). `costs` are those of passing a case that people fail,
    and of failing one that they pass. `promised` is the share of cases (0 to 1) that may get a
    wrong verdict that is not called unsure. `seed` is that of the random sample: in `view` the
    name of the run. Raises InputError if there is no case, and for numbers outside of their range.
    """
    results = [
        (row, result) for row in rows for result in row.metrics if result.metric == record.name
    ]
    if not results:
        raise InputError(f"the run has no result of {record.name!r}")
    people = _People(record, results, labels)
    order = sample(range(len(results)), len(results), seed)
    hits = people.hits
    # The random sample is walked from its beginning: what is labelled there without a gap. Cases
    # behind the gap were chosen because they are doubtful, and would make the judge look worse.
    tried = {position for position, (row, _) in enumerate(results) if row.hash in people.tried}
    walked = list(filter(hits.__contains__, takewhile(tried.__contains__, order)))
    of_random = [hits[position] for position in walked]
    counted = of_random if len(of_random) >= _ENOUGH else [*hits.values()]
    share = _share(sum(counted), len(counted))
    pairs = list(zip(repeat(True), counted, strict=False))
    several, contradictions = people.contradictions()
    free = list(filterfalse(tried.__contains__, order))
    more = count // 2 if chosen is None else min(chosen, count)
    doubtful = _doubtful(results, free[count - more :], more)
    return LabelPlan(
        metric=record.name,
        cases=len(results),
        labels=len(hits),
        right=sum(hits.values()),
        random_labels=len(of_random),
        random_right=sum(of_random),
        agreement=bootstrap(pairs, accuracy) if len(pairs) > 1 else None,
        line=line,
        within=tuple(
            (half, max(labels_within(share, half) - len(of_random), 0)) for half in WIDTHS
        ),
        to_decide=labels_to_decide(share, len(counted), line) if counted else None,
        several=several,
        stale=people.stale,
        contradictions=tuple(contradictions),
        nodes=tuple(people.nodes()),
        threshold=people.threshold(record.threshold, costs),
        abstention=people.abstention(walked, promised),
        first=tuple(contradiction.index for contradiction in contradictions),
        random=tuple(results[position][0].index for position in free[: count - more]),
        chosen=tuple(doubtful),
    )


def _share(right: int, labels: int) -> float:
    """The agreement that labels show, or a guess where they are few."""
    return right / labels if labels >= _ENOUGH else _GUESS


class _People:
    """The labels of one metric: ends of walks and answers to nodes, by case and person.

    `agreed` is the majority of the labels of each case, by its position (None for a tie), and
    `hits` says whether the judge says the same of a case that both pass or fail.
    """

    def __init__(
        self, record: MetricRecord, results: Sequence[Judged], labels: Sequence[Label]
    ) -> None:
        now = record.definitions()
        self.stale, self._results = 0, results
        self._ends: dict[str, dict[str, str | float]] = defaultdict(dict)
        self._answers: dict[str, dict[str, dict[str, Any]]] = defaultdict(dict)
        self.tried = set[str]()  # cases, also those of which a person could not tell
        for label in labels:
            if label.metric != record.name:
                continue
            self.stale += label.outcome is not None and label.definition != record.hash
            if label.definition != now.get(label.node):
                continue
            self.tried.add(label.case)
            if label.outcome is not None:
                self._ends[label.case][label.who] = label.outcome
            if label.node and label.answer is not None:
                self._answers[label.case].setdefault(label.node, {})[label.who] = label.answer
        self.agreed, self.hits = dict[int, str | float | None](), dict[int, bool]()
        for position, (row, result) in enumerate(results):
            if own := self._ends.get(row.hash or ""):
                outcome = self.agreed[position] = _majority(own.values())
                if outcome in ("pass", "fail") and result.success is not None:
                    self.hits[position] = (outcome == "pass") == result.success

    def contradictions(self) -> tuple[int, list[Contradiction]]:
        """Number of cases with several people's labels, and those on which they differ."""
        several, differing = 0, list[Contradiction]()
        for row, _ in self._results:
            outcomes = self._ends.get(row.hash or "", {})
            several += len(outcomes) > 1
            if len(set(outcomes.values())) > 1:
                nodes = self._answers[row.hash or ""].items()
                parts = (node for node, votes in nodes if len(set(votes.values())) > 1)
                votes_of = tuple(f"{who}: {outcome}" for who, outcome in outcomes.items())
                differing.append(Contradiction(row.case, row.index, votes_of, next(parts, None)))
        return several, differing

    def nodes(self) -> Iterator[NodeLabels]:
        """The nodes that people were asked at, those that need most labels first."""
        asked, right, reached = Counter[str](), Counter[str](), Counter[str]()
        for row, result in self._results:
            steps = {step.node: step for step in result.steps if step.outcome == OutcomeKind.OK}
            for step in steps.values():
                reached[step.node] += step.kind != "code" and step.verdict is not None
            for node, votes in self._answers.get(row.hash or "", {}).items():
                most = _majority(votes.values())
                if node in steps and most is not None:
                    asked[node] += 1
                    right[node] += answer_in(steps[node]) == most
        for node in sorted(+reached, key=lambda name: (asked[name], name)):
            share = _share(right[node], asked[node])
            often = reached[node] / len(self._results)
            missing = max(labels_within(share, WIDTHS[0]) - asked[node], 0)
            yield NodeLabels(node, asked[node], right[node], often, math.ceil(missing / often))

    def threshold(
        self, now: float | None, costs: tuple[float, float]
    ) -> FittedThreshold | Unknown | None:
        """The threshold that labels ask for; None for a metric whose scores leave no choice."""
        scores = {result.score for _, result in self._results} - {None}
        if now is None or len(scores) < 3:
            return None
        scored = list[tuple[float, bool]]()
        for position, outcome in self.agreed.items():
            score = self._results[position][1].score
            if outcome in ("pass", "fail") and score is not None:
                scored.append((score, outcome == "pass"))
        return fit_threshold(scored, now=now, cost_pass=costs[0], cost_fail=costs[1])

    def abstention(
        self, drawn: Sequence[int], promised: float | None
    ) -> Abstention | Unknown | None:
        """The confidence below which a result is unsure, from cases that were drawn at random.

        A result has that of its least sure node, and 0 if none is known. None without a promise.
        """
        if promised is None:
            return None
        stated = list[tuple[float, bool]]()
        for position in drawn:
            steps = self._results[position][1].steps
            sure = [step.confidence for step in steps if step.confidence is not None]
            stated.append((min(sure, default=0.0), self.hits[position]))
        fit = abstain_below(stated, promised)
        if isinstance(fit, Abstention) and not any(confidence for confidence, _ in stated):
            return Unknown("undefined", len(stated), detail="no confidence is known")
        return fit


def _majority(votes: Iterable[Any]) -> Any:
    """The vote that most people gave; None for a tie."""
    best = Counter(votes).most_common(2)
    return None if len(best) == 2 and best[0][1] == best[1][1] else best[0][0]


def _doubtful(results: Sequence[Judged], positions: Iterable[int], count: int) -> list[int]:
    """The numbers of so many cases: of every path the most doubtful, paths of few cases first."""
    paths: dict[Any, list[tuple[float, int, int]]] = defaultdict(list)
    for position in positions:
        row, result = results[position]
        # How little the result is worth, from 0 to 1. Without a score it is worth nothing; split
        # votes, a low probability and a score near its threshold make it doubtful.
        doubts = [float(result.failure is not None or result.score is None)]
        for step in result.steps:
            if step.confidence is not None:
                doubts.append(1 - step.confidence)
            if step.votes:
                counts = Counter(map(repr, step.votes))
                doubts.append(1 - max(counts.values()) / len(step.votes))
        if result.score is not None and result.threshold is not None:
            doubts.append((0.5 - abs(result.score - result.threshold) / 2) / 2)
        key = (result.path, result.failure and str(result.failure.kind))
        paths[key].append((-max(doubts), position, row.index))
    ranked = list(map(sorted, sorted(paths.values(), key=lambda own: (len(own), own[0][1]))))
    # One case of every path in turn, or a path of many cases would take all places.
    turns = chain.from_iterable(zip_longest(*ranked))
    return [turn[2] for turn in turns if turn is not None][:count]


def write_plan(folder: Path, plans: Sequence[LabelPlan]) -> Path:
    """Write the cases to label next into the folder of a run; raises InputError where it cannot."""
    path = folder / PLAN
    parts = attrgetter(*_PARTS)
    metrics = {plan.metric: dict(zip(_PARTS, parts(plan), strict=True)) for plan in plans}
    try:
        write_whole(path, json.dumps({"metrics": metrics}, indent=1, ensure_ascii=False) + "\n")
    except OSError as error:
        raise InputError(f"cannot write {path}: {error.strerror or error}") from error
    return path


def planned_cases(folder: Path, metric: str) -> list[int]:
    """The numbers of the cases that were planned for a metric; raises InputError without a plan."""
    path = folder / PLAN
    if not is_there(path):
        raise InputError(f"{path.name} is not there: write it with `dagengine labels plan`")
    try:
        parts = itemgetter(*_PARTS)(json.loads(read_whole(path))["metrics"][metric])
        numbers = list(chain.from_iterable(parts))
    except (ValueError, LookupError, TypeError, RecursionError) as error:
        raise InputError(f"{path.name} has no plan for {metric!r:.80}") from error
    if not all(type(number) is int and number >= 0 for number in numbers):
        raise InputError(f"{path.name}: cases are numbers from 0 on")
    return list(dict.fromkeys(numbers))
