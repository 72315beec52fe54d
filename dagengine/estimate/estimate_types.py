"""What a run will ask, as values: bounds and likelihoods by node, metric and judge."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import astuple, dataclass, replace
from operator import add, attrgetter

from dagengine.results.prices import find_price

Prices = Mapping[str, tuple[float, float]]


@dataclass(frozen=True, slots=True)
class Speeds:
    """How quickly a judge was measured to be, in tokens per second of all calls together.

    Without a speed of `read` prompts take no time.
    """

    read: float | None
    write: float


@dataclass(frozen=True, slots=True)
class Bounds:
    """A number of questions: at least, likely, at most (None: no bound is known)."""

    least: int = 0
    likely: float = 0.0
    most: int | None = 0

    def __add__(self, other: Bounds) -> Bounds:
        most = None if self.most is None or other.most is None else self.most + other.most
        return Bounds(self.least + other.least, self.likely + other.likely, most)

    def times(self, factor: float) -> Bounds:
        """The same for `factor` times as many cases."""
        most = self.most and math.ceil(self.most * factor)
        return Bounds(math.floor(self.least * factor), self.likely * factor, most)

    def by_chance(self, share: float) -> Bounds:
        """The same if each question is asked with a chance of `share` (0 to 1)."""
        return Bounds(0, self.likely * share, self.most)

    def __contains__(self, count: int) -> bool:
        return self.least <= count and (self.most is None or count <= self.most)


NO_QUESTIONS = Bounds()


@dataclass(frozen=True, slots=True)
class NodeEstimate:
    """One node over all cases: its questions, and about how many tokens they take.

    Equal questions answer `equal` of the likely ones. `metrics` are all that share it. A `constant`
    node is asked once per run. `panel` names its other judges, or says how often it is asked.
    """

    node: str
    kind: str
    judge: int
    asked: Bounds
    equal: float
    input_tokens: float
    output_tokens: float
    metrics: tuple[str, ...]
    constant: bool
    panel: str = ""

    def by_chance(self, share: float, judge: int) -> NodeEstimate:
        """The same if each question is asked, of another judge, with a chance of `share`."""
        tokens = self.input_tokens * share, self.output_tokens * share
        asked = self.asked.by_chance(share)
        return replace(
            self, judge=judge, asked=asked, input_tokens=tokens[0], output_tokens=tokens[1]
        )


@dataclass(frozen=True, slots=True)
class WorstPath:
    """The path with the most questions: (node, questions) in order; None is without bound.

    `depth` counts the questions that wait for one another.
    """

    nodes: tuple[tuple[str, int | None], ...] = ()
    asked: int | None = 0
    depth: int = 0


@dataclass(frozen=True, slots=True)
class MetricEstimate:
    """One metric as if it ran alone. `case` is per case that it applies to (of `cases`).

    Without `exact` there were too many paths to follow: bounds are safe, likelihoods sampled.
    """

    metric: str
    cases: int
    asked: Bounds
    case: Bounds
    nodes: tuple[NodeEstimate, ...]
    worst: WorstPath
    exact: bool


@dataclass(frozen=True, slots=True)
class JudgeEstimate:
    """One judge, by its name for people, over all metrics; tokens are those of the likely calls.

    At most so many `cached_tokens` of the input come from caches of prompts: another question of
    the case begins with them, too. A server without such a cache reads all of them anew.
    """

    judge: str
    calls: float
    input_tokens: float
    output_tokens: float
    cached_tokens: float = 0.0

    def cost(self, prices: Prices, cached: float = 0.0) -> float | None:
        """US dollars; None if the judge has no price.

        `prices` of the caller, in US dollars per million tokens, go before the public ones. So many
        `cached` tokens of the input come from a cache.
        """
        price = find_price(self.judge, prices)
        if price is None:
            return None
        kept = price.input if price.cached is None else price.cached
        new, written = self.input_tokens - cached, self.output_tokens
        return (new * price.input + cached * kept + written * price.output) / 1_000_000


@dataclass(frozen=True, slots=True)
class Travel:
    """How the decisions of a run travel: likely `questions` in likely `requests`.

    `unneeded` are questions asked ahead in vain. `state_tokens` are those of the states that are
    sent, one with every request; `spared_tokens` those that requests of single questions would
    send besides.
    """

    questions: float = 0.0
    requests: float = 0.0
    unneeded: float = 0.0
    state_tokens: float = 0.0
    spared_tokens: float = 0.0

    def __add__(self, other: Travel) -> Travel:
        return Travel(*map(add, astuple(self), astuple(other)))

    def times(self, factor: float) -> Travel:
        """The same for `factor` times as many."""
        return Travel(*(figure * factor for figure in astuple(self)))


@dataclass(frozen=True, slots=True)
class Estimate:
    """All metrics over all cases.

    `asked` counts questions (`Totals.asked`), `calls` those of them that no equal question
    answers. `depth` is the longest row of questions that wait for one another.

    If only `looked_at` of the cases were looked at, their numbers are scaled up. `least` and `most`
    are then not bounds but what the sample has; only `calls.least` is still a bound. In 95 of 100
    samples, `likely` questions lie within `margin` of the truth, as a share of them. `travel` says
    how the questions to decision models travel.
    """

    cases: int
    asked: Bounds
    calls: Bounds
    depth: int
    metrics: tuple[MetricEstimate, ...]
    judges: tuple[JudgeEstimate, ...]
    looked_at: int
    margin: float = 0.0
    travel: Travel = Travel()

    @property
    def sampled(self) -> bool:
        """Return whether it comes from some of the cases."""
        return self.looked_at < self.cases

    @property
    def tokens(self) -> tuple[float, float]:
        """The tokens of the likely calls, and of their answers."""
        read, written = attrgetter("input_tokens"), attrgetter("output_tokens")
        return sum(map(read, self.judges)), sum(map(written, self.judges))

    @property
    def uncounted(self) -> tuple[str, ...]:
        """The metrics whose own code may ask, by name: how often cannot be told before."""
        return tuple(
            metric.metric
            for metric in self.metrics
            if any(node.asked.most is None and not node.asked.likely for node in metric.nodes)
        )

    def besides(self, other: Estimate, share: float, judge: int) -> Estimate:
        """With the questions of `other` besides, all to the judge at the place `judge` of this one.

        They follow all others. Each is asked with a chance of `share` (0 to 1), so that none is
        sure.
        """
        asked = other.asked.by_chance(share)
        read, written = other.tokens
        metrics = list(self.metrics)
        for metric in other.metrics:
            alone = metric.asked.by_chance(share / max(1, self.cases))
            nodes = tuple(node.by_chance(share, judge) for node in metric.nodes)
            of_all = metric.asked.by_chance(share)
            metrics.append(replace(metric, cases=self.cases, asked=of_all, case=alone, nodes=nodes))
        judges = list(self.judges)
        own = judges[judge]
        judges[judge] = replace(
            own,
            calls=own.calls + asked.likely,
            input_tokens=own.input_tokens + read * share,
            output_tokens=own.output_tokens + written * share,
        )
        return replace(
            self,
            asked=self.asked + asked,
            calls=self.calls + other.calls.by_chance(share),
            depth=self.depth + other.depth,
            metrics=tuple(metrics),
            judges=tuple(judges),
        )

    def seconds(self, latency: float, max_in_flight: int) -> float:
        """About how many seconds a run takes when every call takes `latency` seconds."""
        return latency * max(self.depth, self.calls.likely / max_in_flight)

    def seconds_at(self, speeds: Speeds) -> float:
        """About how many seconds a run takes whose judges read and write at these speeds."""
        read, written = self.tokens
        return read / (speeds.read or math.inf) + written / speeds.write

    def cost(self, prices: Prices) -> float | None:
        """US dollars of the likely calls; None if a judge that is asked has no price."""
        paid = 0.0
        for judge in self.judges:
            money = judge.cost(prices) if judge.calls else 0.0
            if money is None:  # a part of the price would pass for all of it
                return None
            paid += money
        return paid
