"""What a run will ask before it asks anything: a plan and cases in, bounds and likelihoods out.

The bounds hold for the questions of every run in which each metric gets its score. A failure that
cannot be foreseen ends a metric early. Attempts after transient failures and answers asked for
again, as a whole or item by item, come on top. Cases are looked at one by one; of more than
`MOST_CASES` a sample is, and its sums are scaled up.
"""

from __future__ import annotations

import math
import random
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import chain
from operator import attrgetter
from typing import Any, TypeVar

from dagengine.compiler.execution_plan import Plan
from dagengine.estimate.case_classes import CaseClass, CaseClasses
from dagengine.estimate.estimate_types import (
    NO_QUESTIONS,
    Bounds,
    Estimate,
    JudgeEstimate,
    MetricEstimate,
    NodeEstimate,
    Travel,
    WorstPath,
)
from dagengine.estimate.lookahead import Lookahead, UnitEstimate, text_tokens
from dagengine.estimate.paths import (
    Odds,
    PackWalker,
    Path,
    Walker,
    answerer_index,
    with_writers,
    writer_index,
)
from dagengine.judges import as_judge
from dagengine.limits import DEFAULT_LIMITS
from dagengine.prompts.evidence import as_text
from dagengine.prompts.instructions import SERVER_CHARACTERS
from dagengine.question import Judge, display_name
from dagengine.results import CaseResult, Verdict
from dagengine.test_case import TestCase, read_field

T = TypeVar("T")
MOST_CASES = 2_000
"""Up to so many cases are looked at one by one: a second or less for five metrics."""
_NINETY_FIVE = 1.96  # standard errors to either side of a mean: 95 % of normal numbers
# Tokens of a question for a reason, and of its answer.
_REASON_INPUT, _REASON_OUTPUT = 300, 60
# Shorter beginnings of prompts are kept by no server.
_LEAST_KEPT = text_tokens("x" * SERVER_CHARACTERS)
# Equal questions are looked for among this many.
_SEEN = 1_000_000


def verdicts_of(rows: Iterable[CaseResult]) -> Odds:
    """Frequencies of verdicts at each decision of an earlier run."""
    odds: dict[tuple[str, str], Counter[Verdict]] = {}
    for row in rows:
        for result in row.metrics:
            for node, verdict in result.path:
                odds.setdefault((result.metric, node), Counter())[verdict] += 1
    return odds


def estimate(
    plan: Plan,
    cases: Iterable[TestCase],
    *,
    judges: Sequence[Judge] = (),
    items: int = 10,
    odds: Odds | None = None,
    max_in_flight: int = DEFAULT_LIMITS.max_in_flight,
) -> Estimate:
    """Estimate the questions of a plan over cases; ask nothing, and keep a sample of the cases.

    `judges` are those of the plan, in the order of `plan.models`; without them all are taken for
    chat models. `items` is the assumed length of lists that only a judge's answer brings. `odds`
    weigh verdicts (see `verdicts_of`); without them all verdicts of a decision are equally likely.
    For judges that decide, the estimate tells how their questions travel, at most `max_in_flight`
    in one request, and counts their writers, too.
    """
    judges = with_writers(judges)
    classes = CaseClasses(plan, Walker(plan, odds), Lookahead(plan, judges, items))
    sample, total = draw_sample(cases)
    factor = total / len(sample) if sample else 1.0
    packs = PackWalker(plan, judges, odds or {}, max_in_flight) if judges else None
    sums = _SampleSums(plan, classes, judges, factor, packs)
    for case in sample:
        sums.add(case)
    return sums.estimate(total)


def judges_of(plan: Plan, model: Any) -> list[Judge]:
    """The judges of a plan, in its order; `model` judges where it has none."""
    return [as_judge(model if own is None else own) for own in plan.models]


class _SampleSums:
    """Sums over the cases of the sample so far; each case stands for `factor` cases.

    `whole` are all questions but those of `constant` units, which are asked once per run. `worded`
    of all are sure and known word for word.
    """

    def __init__(
        self,
        plan: Plan,
        classes: CaseClasses,
        judges: Sequence[Judge],
        factor: float,
        packs: PackWalker | None,
    ) -> None:
        self.packs, self.travel, self.judges = packs, Travel(), judges
        self.names = [*map(display_name, judges)] or [str(m or "default") for m in plan.models]
        self.plan, self.classes, self.factor = plan, classes, factor
        self.spread = Spread()
        self.depth = self.worded = 0
        self.whole = Bounds()
        self.sums = [_MetricSums() for _ in plan.metrics]
        self.nodes = [_UnitSums() for _ in plan.units]
        self.equal = EqualQuestions()
        self.cached = _CachedPrompts(plan, judges)

    def add(self, case: TestCase) -> None:
        case_class, estimates = self.classes.look(case)
        chances = case_class.chances
        likely = {unit: chances[unit] * estimates[unit].asked.likely for unit in chances}
        self.cached.add(case, likely)
        if self.packs is not None:
            self.travel += self.packs.travel(case, estimates)
        self.spread.add(case_class.whole.likely)
        self.whole += case_class.whole
        self.worded += case_class.worded
        self.depth = max(self.depth, case_class.depth)
        for metric in case_class.reasons:  # all metrics that judge the case
            self.sums[metric].add(metric, case_class, estimates)
        for unit, estimated in estimates.items():
            if unit not in chances:  # no path leads to it
                continue
            if self.plan.units[unit].constant:
                self._add_constant(unit, case_class, estimated)
                continue
            sums, chance = self.nodes[unit], chances[unit]
            sums.bounds += case_class.units[unit]
            sums.input_tokens += chance * estimated.input_tokens
            sums.output_tokens += chance * estimated.output_tokens
            for key in estimated.keys:
                sums.equal += self.equal.meet(key, unit in case_class.sure, chance)
            if estimated.like is not None:
                sums.equal += self.equal.resemble(estimated.like, likely[unit])

    def _add_constant(self, unit: int, case_class: CaseClass, estimated: UnitEstimate) -> None:
        """Count a unit that is asked once per run, if any case needs it."""
        # So tokens are set and not added: the hundredth case that needs it makes it no dearer.
        sums, bounds = self.nodes[unit], case_class.units[unit]
        if unit in case_class.sure and not sums.sure:
            sums.sure = True
            self.worded += len(estimated.keys)
            for key in estimated.keys:
                sums.equal += self.equal.meet(key, True, 1.0)
        sums.chance = chance = 1 - (1 - sums.chance) * (1 - case_class.chances[unit])
        least = max(sums.bounds.least, bounds.least)
        most = _greater(sums.bounds.most, bounds.most)
        sums.bounds = Bounds(least, chance * estimated.asked.likely, most)
        sums.input_tokens = chance * estimated.input_tokens
        sums.output_tokens = chance * estimated.output_tokens

    def estimate(self, cases: int) -> Estimate:
        constant = (self.nodes[unit.index].bounds for unit in self.plan.units if unit.constant)
        asked = sum(constant, self.whole.times(self.factor))
        return Estimate(
            cases=cases,
            asked=asked,
            calls=self.equal.calls(asked, self.worded, self.factor),
            depth=self.depth,
            metrics=tuple(map(self._metric_estimate, range(len(self.sums)))),
            judges=tuple(map(self._judge_estimate, range(len(self.names)))),
            looked_at=self.spread.count,
            margin=self.spread.margin(cases),
            travel=self.travel.times(self.factor),
        )

    def _metric_estimate(self, metric: int) -> MetricEstimate:
        sums, units = self.sums[metric], self.classes.units_of[metric]
        # Code that asks nothing is no line of the table.
        own = (u for u in units if self.nodes[u].bounds.most != 0 or self.plan.units[u].node.asks)
        nodes = [*map(self._node_estimate, own)]
        constant = (node.asked for node in nodes if node.constant)
        likely = sums.bounds.likely / sums.cases if sums.cases else 0.0
        return MetricEstimate(
            metric=self.plan.metrics[metric].spec.name,
            cases=round(sums.cases * self.factor),
            asked=sum(constant, sums.bounds.times(self.factor)),
            case=Bounds(sums.least, likely, sums.most),
            nodes=(*nodes, *self._reason_estimate(metric)),
            worst=self._worst(metric),
            exact=sums.exact,
        )

    def _node_estimate(self, unit: int) -> NodeEstimate:
        part, sums = self.plan.units[unit], self.nodes[unit]
        metrics = dict.fromkeys(map(attrgetter("metric"), self.plan.slots_at(part.slots)))
        names = tuple(self.plan.metrics[number].spec.name for number in metrics)
        panel = "" if part.node.panel is None else part.node.panel.label
        # A constant unit is asked once, so that a sample of the cases tells all of it.
        factor = 1.0 if part.constant else self.factor
        return NodeEstimate(
            part.name, part.node.kind, part.judges[0], sums.bounds.times(factor),
            sums.equal * factor, sums.input_tokens * factor, sums.output_tokens * factor, names,
            part.constant, panel,
        )  # fmt: skip

    def _reason_estimate(self, metric: int) -> Iterator[NodeEstimate]:
        part, bounds = self.plan.metrics[metric], self.sums[metric].reason.times(self.factor)
        if bounds.most:
            tokens = bounds.likely * _REASON_INPUT, bounds.likely * _REASON_OUTPUT
            judge = self.plan.judge_of(self.plan.scopes[part.scope].spec.model)
            judge = writer_index(judge, self.judges)
            yield NodeEstimate(
                "reason", "reason", judge, bounds, 0.0, *tokens, (part.spec.name,), False
            )

    def _worst(self, metric: int) -> WorstPath:
        sums = self.sums[metric]
        if sums.worst is None:
            return WorstPath()
        path, counts = sums.worst
        nodes = [(self.plan.units[u].name, n) for u, n in zip(path.units, counts, strict=True)]
        depth = path.depth
        # The reason is asked for after all else.
        if sums.reason.most:
            nodes, depth = [*nodes, ("reason", 1)], depth + 1
        whole = None if None in counts else sum(count or 0 for _, count in nodes)
        return WorstPath(tuple(nodes), whole, depth)

    def _judge_estimate(self, judge: int) -> JudgeEstimate:
        calls = tokens_in = tokens_out = 0.0
        for unit, sums in zip(self.plan.units, self.nodes, strict=True):
            if not sums.bounds.likely:
                continue
            # A panel gives each of its judges a share of the unit's questions.
            shares = (1.0,) if unit.node.panel is None else unit.node.panel.shares
            weight = sum(
                share
                for voter, share in zip(unit.judges, shares, strict=True)
                if answerer_index(unit, voter, self.judges) == judge
            )
            if weight:
                weight *= 1.0 if unit.constant else self.factor
                # What equal questions answer is no call.
                weight *= max(0.0, 1 - sums.equal / sums.bounds.likely)
                calls += weight * sums.bounds.likely
                tokens_in += weight * sums.input_tokens
                tokens_out += weight * sums.output_tokens
        for reason in chain.from_iterable(map(self._reason_estimate, range(len(self.sums)))):
            if reason.judge == judge:
                calls += reason.asked.likely
                tokens_in += reason.input_tokens
                tokens_out += reason.output_tokens
        packers = (n for n, own in enumerate(self.judges) if own.capabilities.packs is not None)
        # What packs spare is one sum for all judges: it is taken off the first one that packs.
        if judge == next(packers, None):
            tokens_in = max(0.0, tokens_in - self.travel.spared_tokens * self.factor)
        cached = min(tokens_in, max(0.0, self.cached.tokens[judge]) * self.factor)
        return JudgeEstimate(self.names[judge], calls, tokens_in, tokens_out, cached)


@dataclass(slots=True)
class _UnitSums:
    """One unit over the cases so far."""

    bounds: Bounds = NO_QUESTIONS
    input_tokens: float = 0.0
    output_tokens: float = 0.0
    equal: float = 0.0  # questions that an equal one answers
    chance: float = 0.0  # that some case needs a constant unit
    sure: bool = False  # whether some case needs it for sure


@dataclass(slots=True)
class _MetricSums:
    """One metric over the cases so far."""

    cases: int = 0
    bounds: Bounds = NO_QUESTIONS
    reason: Bounds = NO_QUESTIONS
    least: int = 0  # of one case
    most: int | None = 0  # of one case
    worst: tuple[Path, tuple[int | None, ...]] | None = None  # with the most questions by unit
    rank: tuple[float, int] = (-1.0, 0)  # of the worst path: its questions, its depth
    exact: bool = True

    def add(self, metric: int, case: CaseClass, estimates: Mapping[int, UnitEstimate]) -> None:
        reason, paths = case.reasons[metric], case.paths.get(metric)
        bounds = case.metrics.get(metric, NO_QUESTIONS) + reason
        self.least = min(self.least, bounds.least) if self.cases else bounds.least
        self.most = _greater(self.most, bounds.most)
        self.cases += 1
        self.bounds += bounds
        self.reason += reason
        if paths is None:
            return
        self.exact &= paths.exact
        for path in paths.paths:
            counts = tuple(estimates[unit].asked.most for unit in path.units)
            rank = sum(float("inf") if n is None else n for n in counts), path.depth
            if rank > self.rank:
                self.rank, self.worst = rank, (path, counts)


def _greater(left: int | None, right: int | None) -> int | None:
    return None if left is None or right is None else max(left, right)


class _CachedPrompts:
    """The tokens, by judge, that servers need not read again if they keep beginnings of prompts.

    Questions of a case share a beginning as far as they show the same fields. The first question
    with a beginning reads it, and all others find it. This is a bound: a server may keep less.
    """

    def __init__(self, plan: Plan, judges: Sequence[Judge]) -> None:
        self._units = [
            unit for unit in plan.units
            if unit.shares and not unit.constant
            and not (judges and judges[unit.judges[0]].capabilities.decides)
        ]  # fmt: skip
        self.tokens = [0.0] * max(len(plan.models), len(judges))

    def add(self, case: TestCase, likely: Mapping[int, float]) -> None:
        """Count a case; `likely` has the questions of each unit."""
        size_of = cache(lambda path: text_tokens(as_text(read_field(case, path) or "")))
        beginnings: set[tuple[int, tuple[str, ...]]] = set()
        for unit in self._units:
            questions = likely.get(unit.index, 0.0)
            if not questions:
                continue
            shared = sum(map(size_of, unit.shares))
            if shared < _LEAST_KEPT:
                continue
            judge = unit.judges[0]
            self.tokens[judge] += questions * shared
            # The first question that comes as far as a field reads this field.
            for position, path in enumerate(unit.shares, 1):
                beginning = judge, unit.shares[:position]
                if beginning not in beginnings:
                    beginnings.add(beginning)
                    self.tokens[judge] -= min(1.0, questions) * size_of(path)


# Which cases are looked at.


def draw_sample(cases: Iterable[T], most: int = MOST_CASES) -> tuple[list[T], int]:
    """At most so many cases, the same ones every time, and of how many they were drawn.

    Each is as likely as any other. They are read one by one and only those drawn are kept (a
    reservoir: Vitter, "Random sampling with a reservoir", 1985, algorithm R).
    """
    sample, total, dice = list[T](), 0, random.Random(0)
    for total, case in enumerate(cases, 1):
        if total <= most:
            sample.append(case)
        elif (index := int(dice.random() * total)) < most:
            sample[index] = case
    return sample, total


@dataclass(slots=True)
class Spread:
    """How far the cases of a sample differ."""

    count: int = 0
    _sum: float = 0.0
    _squares: float = 0.0

    def add(self, value: float) -> None:
        """Take one more case."""
        self.count += 1
        self._sum += value
        self._squares += value * value

    def margin(self, total: int) -> float:
        """Half the 95 % interval of the sum over all `total` cases, as a share of this sum.

        One case in `count / 3` may be of a kind that the sample lacks (the rule of three). So many
        are counted as if they asked for as much as two usual ones, or for nothing.
        """
        if self.count >= total or not self._sum:
            return 0.0
        mean = self._sum / self.count
        variance = max(0.0, self._squares / self.count - mean * mean)
        error = math.sqrt(variance / self.count * (1 - self.count / total))
        return _NINETY_FIVE * error / mean + 3 / self.count


class EqualQuestions:
    """Finds equal questions among those known word for word: equal ones have one key.

    A question is sure (●), or asked only if decisions lead to it (○). Of three with one key::

        ●  ●  ○
        │  │  └── an earlier one answers it, if it is asked: lowers `likely`, by its chance
        │  └───── a sure one answers it: lowers `most`
        └──────── a call for sure: raises `least`

    With ○ ● ● the first ● is the call, and only the second lowers `most`: what may never be asked
    cannot answer another. Questions that are only like others (`resemble`) lower `likely` alone.
    """

    def __init__(self) -> None:
        self._seen: dict[int, bool] = {}  # by key, whether one of its questions is sure
        self._alike: set[int] = set()
        self.likely = 0.0  # questions that others answer, by their chances
        self._sure = 0  # keys with a sure question
        self._again = 0  # sure questions after a sure one of their key
        self._repeats = 0  # questions that another one may answer, sure or not

    def meet(self, key: int, sure: bool, chance: float) -> float:
        """Note one more question; return how much of it an earlier one answers."""
        was_sure = self._seen.get(key)
        if was_sure is None and len(self._seen) >= _SEEN:  # it may repeat another without room
            self._repeats += 1
            return 0.0
        self._seen[key] = sure or bool(was_sure)
        self._sure += sure and not was_sure
        self._again += sure and bool(was_sure)
        if was_sure is None:
            return 0.0
        self._repeats += 1
        self.likely += chance
        return chance

    def resemble(self, like: int, likely: float) -> float:
        """Note questions whose words are not known; return how many others likely answer."""
        if like in self._alike:
            self.likely += likely
            return likely
        if len(self._alike) < _SEEN:
            self._alike.add(like)
        return 0.0

    def calls(self, asked: Bounds, worded: int, factor: float) -> Bounds:
        """The questions that no equal one answers; `worded` are known and sure to be asked.

        Where the questions noted are those of a sample, `asked` is for `factor` times as many.
        """
        most = asked.most
        # A sample says nothing for sure, and a run with more questions forgets some answers.
        if factor == 1.0 and most is not None and most <= DEFAULT_LIMITS.remembered:
            most -= self._again
        # All keys with a sure question, or all sure questions but those that others may answer.
        least = max(self._sure, worded - self._repeats, 0)
        return Bounds(least, max(asked.likely - self.likely * factor, least), most)
