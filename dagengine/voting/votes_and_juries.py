"""Several answers in place of one: votes, juries, and a better judge where the first is unsure.

A panel runs a node several times, each time under another sample index or with another judge,
and makes one value of what comes back. It only decides; the runner asks.

A stopping rule looks at the votes so far and says how many more could settle the outcome at the
very least. All of these are asked in parallel. So a rule costs no more calls than one vote after
the other would, in the fewest rounds.

Answers that cannot be read are not votes; when none can be read the first such failure is the
outcome. Any other failure is the outcome at once: infrastructure is never outvoted. Between
equal verdicts the one that was voted first wins, which is what one vote alone would have said.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from itertools import chain, compress, zip_longest
from operator import attrgetter, mul
from typing import Any, Protocol

from dagengine.errors import InputError
from dagengine.graph.node_values import Ballot, Judgement, NodeValue, Poll, QuestionCount
from dagengine.question import NO_USAGE
from dagengine.results import Failure, OutcomeKind, Step
from dagengine.results.outcomes import ESCALATED, KEPT
from dagengine.system.terminal_text import text_if

Vote = str | bool | int | float
Outcomes = Sequence[NodeValue | Failure]
Column = list[Vote | None]
# An answer that cannot be read, or whose quotes are not in the material.
_NO_VOTE = (OutcomeKind.UNPARSEABLE, OutcomeKind.UNSUPPORTED)
# For forecasts: the assumed share of votes that agree with the majority.
_AGREEING = 0.9
# What is known of ratings from 0 to 1 before the first: so many, with this deviation.
_PRIOR_RATINGS, _PRIOR_DEVIATION = 2, 0.3
# For forecasts: the assumed share of judgements of which a cheap judge is unsure.
_UNSURE = 0.25
_ALTERNATIVES = 5


class Rule(Protocol):
    """A stopping rule; hashable plain data."""

    def __hash__(self) -> int: ...

    def more(self, votes: Sequence[Vote | None], left: int) -> int:
        """The least number of further votes that could settle the outcome (0: it is settled).

        `votes` are those cast so far, None those that could not be read; `left` may follow.
        """
        ...


@dataclass(frozen=True, slots=True)
class Curtailed:
    """Stops when the lead cannot be overtaken: gives the verdict of all votes, with fewer calls."""

    def more(self, votes: Sequence[Vote | None], left: int) -> int:
        return _until(math.inf, votes, left)


@dataclass(frozen=True, slots=True)
class Sprt:
    """Wald's sequential probability ratio test between the two leading verdicts.

    It stops when the leading verdict is ahead by `lead` votes, or cannot be overtaken. If a single
    vote is wrong with probability `noise`, the verdict at that lead is wrong with probability
    `error` at most. Both are in (0, 0.5). Where all votes were cast, the majority decides. (Wald
    1945, https://doi.org/10.1214/aoms/1177731118.)
    """

    noise: float = 0.2
    error: float = 0.01

    def __post_init__(self) -> None:
        for name in ("noise", "error"):
            if not 0 < getattr(self, name) < 0.5:
                raise InputError(f"{name} must lie between 0 and 0.5, got {getattr(self, name)!r}")

    @property
    def lead(self) -> int:
        """The lead at which the test stops: log odds wanted over log odds of one vote."""
        return math.ceil(_log_odds(self.error) / _log_odds(self.noise))

    def more(self, votes: Sequence[Vote | None], left: int) -> int:
        return _until(self.lead, votes, left)


def _log_odds(wrong: float) -> float:
    return math.log((1 - wrong) / wrong)


def _until(target: float, votes: Sequence[Vote | None], left: int) -> int:
    """Votes for the leading verdict until its lead is `target`, or cannot be overtaken."""
    # True and 1 are equal in Python, but not votes for the same verdict.
    cast = Counter((type(vote), vote) for vote in votes if vote is not None)
    runner_up, leader = [0, 0, *sorted(cast.values())][-2:]
    lead = leader - runner_up
    to_safety = (left - lead) // 2 + 1
    return int(max(0, min(target - lead, to_safety, left)))


@dataclass(frozen=True, slots=True)
class StandardError:
    """Stops when the standard error of the mean rating is at most `target`.

    `target` is in the unit of the votes (scores from 0 to 1); at least `least` ratings are cast. A
    few ratings are often equal by chance, and their deviation of 0 would stop the vote. So the
    deviation is estimated with a prior of two ratings that deviate by 0.3 (a scaled inverse
    chi-squared prior; Gelman et al. 2013, Bayesian Data Analysis, 2.6). With skewed ratings, any
    stopping rule has a small bias; only a fixed number of votes has none.
    """

    target: float = 0.05
    least: int = 5

    def __post_init__(self) -> None:
        if not self.target > 0 or self.least < 2:
            raise InputError(
                f"StandardError needs a positive target and at least two ratings, got {self!r}"
            )

    def error(self, votes: Sequence[Vote | None]) -> float | None:
        """The standard error of the mean that these ratings achieve; None without any."""
        squares, count = _deviations(votes)
        return self._error(squares, count) if count else None

    def more(self, votes: Sequence[Vote | None], left: int) -> int:
        squares, count = _deviations(votes)
        for extra in range(left):  # at best all of them are equal to the mean
            enough = count + extra >= self.least
            if enough and self._error(squares, count + extra) <= self.target:
                return extra
        return left

    def _error(self, squares: float, count: int) -> float:
        prior = _PRIOR_RATINGS * _PRIOR_DEVIATION**2
        return math.sqrt((prior + squares) / (_PRIOR_RATINGS + count - 1) / count)


def _deviations(votes: Sequence[Vote | None]) -> tuple[float, int]:
    """The sum of squared deviations from the mean, and the number of ratings."""
    ratings = [float(vote) for vote in votes if vote is not None]
    mean = math.fsum(ratings) / max(len(ratings), 1)
    return math.fsum((rating - mean) ** 2 for rating in ratings), len(ratings)


@lru_cache(1_000)
def likely_votes(rule: Rule, most: int) -> float:
    """The expected number of votes if one in ten disagreed with the others."""
    # Only the counts of votes matter to a rule of two outcomes, so orders with equal ones are one.
    chances, expected = {(0, 0): 1.0}, 0.0
    for cast in range(most):
        following: dict[tuple[int, int], float] = {}
        for (agree, differ), chance in chances.items():
            if not rule.more([True] * agree + [False] * differ, most - cast):
                continue
            expected += chance
            for split, share in (
                ((agree + 1, differ), _AGREEING),
                ((agree, differ + 1), 1 - _AGREEING),
            ):
                following[split] = following.get(split, 0.0) + chance * share
        chances = following
    return expected


def hard(outcomes: Outcomes) -> Failure | None:
    """The first failure that is no vote without a value."""
    failures = (outcome for outcome in outcomes if isinstance(outcome, Failure))
    return next((failure for failure in failures if failure.kind not in _NO_VOTE), None)


def final(outcomes: Outcomes) -> Failure | None:
    """The failure that ends a vote, if there is one."""
    failure, first = hard(outcomes), outcomes[0]
    if failure is None and isinstance(first, Failure) and not values_of(outcomes):
        return first
    return failure


def values_of(outcomes: Outcomes) -> list[NodeValue]:
    """The outcomes that are values."""
    return [outcome for outcome in outcomes if isinstance(outcome, NodeValue)]


def columns_of(outcomes: Outcomes) -> list[Column]:
    """All votes on each item; None if an answer could not be read."""
    rows: list[Column] = []
    for outcome in outcomes:
        if isinstance(outcome, Failure):
            rows.append([])
        elif outcome.verdict is None and isinstance(outcome.value, list):
            rows.append(list(map(attrgetter("verdict"), outcome.value)))
        else:
            rows.append([outcome.score if outcome.verdict is None else outcome.verdict])
    return list(map(list, zip_longest(*rows)))


def aggregate(
    outcomes: Outcomes,
    voters: Iterable[int],
    weights: Sequence[float] = (),
    columns: Sequence[Column] | None = None,
) -> NodeValue:
    """One value from several (at least one is a value), with all the votes.

    The majority (by item), with the reason of the first vote for it; or the mean rating.
    `weights` are those of the outcomes; `columns` hold the votes that count, by item.
    """
    values = values_of(outcomes)
    columns = columns_of(outcomes) if columns is None else columns
    weights = weights or [1.0] * len(outcomes)
    leaders: Sequence[Any] = outcomes  # a failure has no vote, so none leads
    winner: NodeValue
    votes: list[Any]
    if values[0].verdict is not None:
        winner, votes = leaders[leading(columns[0], weights)], columns[0]
    elif isinstance(values[0].value, list):
        items, votes = _item_majorities(leaders, columns, weights)
        winner = NodeValue(items, spans=values[0].spans)
    else:
        winner = _mean_rating(outcomes, weights)
        votes = [outcome.value if isinstance(outcome, NodeValue) else None for outcome in outcomes]
    usage = sum(map(attrgetter("usage"), values), NO_USAGE)
    questions = tuple(chain.from_iterable(map(attrgetter("asked"), outcomes)))
    return replace(winner, votes=tuple(votes), voters=tuple(voters), usage=usage, asked=questions)


def _item_majorities(
    outcomes: Sequence[Any], columns: Sequence[Column], weights: Sequence[float]
) -> tuple[list[Judgement], list[Any]]:
    """The majority judgement of each item, and the votes of each outcome on all items."""
    items: list[Judgement] = []
    for item, column in enumerate(columns):
        judgement = outcomes[leading(column, weights)].value[item]
        # Odds of one ballot are not those of the vote.
        items.append(judgement.model_copy(update={"odds": None}))
    # A column ends where its item was settled: later votes on the item do not count.
    votes: list[Any] = []
    for *row, outcome in zip_longest(*columns, outcomes):
        votes.append(None if isinstance(outcome, Failure) else row)
    return items, votes


def _mean_rating(outcomes: Outcomes, weights: Sequence[float]) -> NodeValue:
    """The weighted mean of the ratings, with the reason of the rating nearest to it."""
    values = values_of(outcomes)
    shares = list(compress(weights, (isinstance(outcome, NodeValue) for outcome in outcomes)))
    total = math.fsum(shares)
    score = math.fsum(map(mul, shares, (value.score or 0.0 for value in values))) / total
    rating = math.fsum(map(mul, shares, map(attrgetter("value"), values))) / total
    # A mean has no reason of its own. That of the vote next to it contradicts it least.
    nearest = min(values, key=lambda value: abs(value.value - rating))
    return replace(
        nearest,
        value=rating,
        score=min(max(score, 0.0), 1.0),
        mode=f"mean of {len(values)} ({nearest.mode})",
    )


def leading(votes: Sequence[Vote | None], weights: Sequence[float]) -> int:
    """The index of the first vote for the verdict with most votes."""
    keys = list(zip(map(type, votes), votes, strict=True))
    sums: dict[tuple[type, Vote | None], float] = {}
    for key, weight in zip(keys, weights, strict=False):
        if key[1] is not None:
            sums[key] = sums.get(key, 0.0) + weight
    return keys.index(max(sums, key=sums.__getitem__))


@dataclass(frozen=True, slots=True)
class RepeatVotes:
    """The same judge again, up to `most` times, until `rule` calls the outcome settled.

    With `by_item`, for nodes that ask about each item of a list, only open items are asked.
    """

    most: int
    rule: Rule
    temperature: float | None = None
    by_item: bool = False
    models = (None,)
    shares = (1.0,)

    def __post_init__(self) -> None:
        _check_count(self.most)

    @property
    def label(self) -> str:
        return "1 vote" if self.most == 1 else f"up to {self.most} votes"

    def total_questions(self, single: QuestionCount) -> QuestionCount:
        batch = self.rule.more((), self.most)
        count = _times(single, batch, likely_votes(self.rule, self.most), self.most)
        return replace(count, in_a_row=single.in_a_row * (self.most - batch + 1))

    def poll(self) -> Poll:
        outcomes: list[NodeValue | Failure] = []
        columns: list[Column] = []
        open_votes = [self.rule.more((), self.most)]
        while batch := min(filter(None, open_votes), default=0):
            start, open_items = len(outcomes), None
            if self.by_item and start:
                open_items = frozenset(compress(range(len(open_votes)), open_votes))
            outcomes += yield [
                Ballot(0, sample, self.most, open_items, self.temperature)
                for sample in range(start, start + batch)
            ]
            if (failure := final(outcomes)) is not None:
                return failure
            # Ballots are asked in batches: what one settles, a later one of its batch cannot undo.
            columns = list(map(self._until_settled, columns_of(outcomes)))
            cast, open_votes = len(outcomes), []
            for column in columns:
                # A column that is shorter than the votes cast was settled and needs no more.
                is_open = len(column) == cast
                open_votes.append(is_open and self.rule.more(column, self.most - cast))
        winner = aggregate(outcomes, [0] * len(outcomes), (), columns)
        is_rating = winner.verdict is None and winner.score is not None
        if is_rating and isinstance(self.rule, StandardError):
            error = self.rule.error(columns[0])
            winner = replace(winner, mode=f"{winner.mode}, standard error {error:.3f}")
        return winner

    def _until_settled(self, votes: Column) -> Column:
        """The votes that count: none after those that settled the outcome."""
        for count in range(1, len(votes)):
            if not self.rule.more(votes[:count], self.most - count):
                return votes[:count]
        return votes


@dataclass(frozen=True, slots=True)
class Jury:
    """Several judges, each asked once and all at once; `weights` are those of their votes."""

    models: tuple[Any, ...]
    weights: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        judges, weights = len(self.models), len(self.weights)
        if judges < 2:
            raise InputError(f"a jury needs at least two judges, got {judges}")
        if weights not in (0, judges):
            raise InputError(f"a jury of {judges} judges needs as many weights, got {weights}")
        if not all(math.isfinite(weight) and weight > 0 for weight in self.weights):
            raise InputError(f"the weights of a jury must be positive, got {self.weights!r}")

    @property
    def label(self) -> str:
        return f"jury of {len(self.models)}" + text_if(self.weights, ", weighted")

    @property
    def shares(self) -> tuple[float, ...]:
        return (1 / len(self.models),) * len(self.models)

    def total_questions(self, single: QuestionCount) -> QuestionCount:
        return _times(single, len(self.models), len(self.models), len(self.models))

    def poll(self) -> Poll:
        seats = range(len(self.models))
        # A judge that sits twice has two votes and not one that counts twice.
        ids = list(map(id, self.models))
        repeated = [ids[:seat].count(ids[seat]) for seat in seats]
        samples = max(repeated) + 1
        outcomes = yield [Ballot(seat, repeated[seat], samples) for seat in seats]
        if (failure := final(outcomes)) is not None:
            return failure
        return aggregate(outcomes, seats, self.weights)


@dataclass(frozen=True, slots=True)
class Escalation:
    """A second judge where the metric's judge is unsure; then the second one decides alone.

    The first is unsure if its `votes` differ, if it gives one of the verdicts `unsure`, or if its
    answer is unparseable. It is also unsure if the probability of its verdict is less than `below`,
    or unknown because the judge gives no token probabilities.
    """

    to: Any
    below: float | None = None
    votes: int = 1
    unsure: tuple[str | bool, ...] = ()
    temperature: float | None = None
    share: float = field(default=_UNSURE, compare=False)  # for forecasts

    def __post_init__(self) -> None:
        _check_count(self.votes)
        if self.below is not None and not 0 < self.below <= 1:
            raise InputError(f"below must be a probability, got {self.below!r}")
        if self.below is None and self.votes == 1 and not self.unsure:
            raise InputError(
                "say when the judge is unsure: below= (a probability), votes= (two or more) or "
                "unsure= (verdicts)"
            )

    @property
    def models(self) -> tuple[Any, ...]:
        return (None, self.to)

    @property
    def label(self) -> str:
        signs = list(map(str, self.unsure))
        if self.votes > 1:
            signs.insert(0, f"{self.votes} votes differ")
        if self.below is not None:
            signs.insert(0, f"probability below {self.below:g}")
        return f"unsure ({' or '.join(signs)}) → {_name_of(self.to)}"

    @property
    def shares(self) -> tuple[float, ...]:
        own = self.votes / (self.votes + self.share)
        return own, 1 - own

    def total_questions(self, single: QuestionCount) -> QuestionCount:
        count = _times(single, self.votes, self.votes + self.share, self.votes + 1)
        return replace(count, in_a_row=2 * single.in_a_row)

    def with_share_of(self, steps: Iterable[Step]) -> Escalation:
        """The panel with the share that escalated in an earlier run of it, or of its first judge.

        As it is if nothing is known of that.
        """
        below, escalations = self.below, list[bool]()
        for step in steps:
            if step.mode in (KEPT, ESCALATED):
                escalations.append(step.mode == ESCALATED)
            elif below is not None and step.confidence is not None:
                escalations.append(step.confidence < below)
        return replace(self, share=sum(escalations) / len(escalations)) if escalations else self

    def poll(self) -> Poll:
        alternatives = 0 if self.below is None else _ALTERNATIVES
        answers = yield [
            Ballot(0, sample, self.votes, None, self.temperature, alternatives)
            for sample in range(self.votes)
        ]
        # An answer that cannot be read is a sign of doubt, too, and goes to the second judge. Only
        # a failure of another kind (no key, no server) would be the same there or say nothing of
        # the case.
        if (failure := hard(answers)) is not None:
            return failure
        if not self._is_unsure(answers):
            return replace(aggregate(answers, [0] * self.votes), mode=KEPT)
        (second,) = yield [Ballot(1)]
        if isinstance(second, Failure):
            return second
        # What was asked and used is of all; the value is the second judge's alone.
        every = aggregate([*answers, second], [0] * self.votes + [1])
        return replace(
            second, mode=ESCALATED, votes=every.votes, voters=every.voters, usage=every.usage,
            asked=every.asked,
        )  # fmt: skip

    def _is_unsure(self, outcomes: Outcomes) -> bool:
        values = values_of(outcomes)
        if len(values) < len(outcomes) or len({value.verdict for value in values}) > 1:
            return True
        for value in values:
            if value.verdict in self.unsure:
                return True
            if self.below is not None and (value.confidence or 0.0) < self.below:
                return True
        return False


@dataclass(frozen=True, slots=True)
class Delegate:
    """Another judge in the place of the metric's."""

    to: Any
    shares = (1.0,)

    @property
    def models(self) -> tuple[Any, ...]:
        return (self.to,)

    @property
    def label(self) -> str:
        return _name_of(self.to)

    def total_questions(self, single: QuestionCount) -> QuestionCount:
        return single

    def poll(self) -> Poll:
        (outcome,) = yield [Ballot()]
        return outcome


def _check_count(votes: int) -> None:
    if not isinstance(votes, int) or votes < 1:
        raise InputError(f"votes must be a whole number from 1 on, got {votes!r}")


def _name_of(model: Any) -> str:
    return model if isinstance(model, str) else getattr(model, "identity", type(model).__name__)


def _times(single: QuestionCount, least: int, likely: float, most: int) -> QuestionCount:
    top = None if single.most is None else single.most * most
    return replace(single, least=single.least * least, likely=single.likely * likely, most=top)
