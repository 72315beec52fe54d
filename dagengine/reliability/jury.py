"""The value of a jury: how well its judges agree, and how many independent ones they equal."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import chain, repeat
from operator import attrgetter

from dagengine.errors import InputError
from dagengine.reliability.statistics.accuracy_and_kappa import krippendorff_alpha
from dagengine.reliability.statistics.sums import mean_score
from dagengine.results import CaseResult, Step
from dagengine.voting.votes_and_juries import Vote, leading

Table = Sequence[Sequence[Vote | None]]


@dataclass(frozen=True, slots=True)
class JuryReport:
    """One jury over all items that it voted on; each item of a list counts.

    `agreement` contains, by judge, the share (0 to 1) of its votes that are those of the majority.
    It is None for ratings and without votes. `correlation` (up to 1) is that between the judges'
    votes, or between their mistakes where the truth was given. `effective` is the number of
    independent judges that would be worth as much. Both are None if they are undefined: if
    every item has fewer than two votes, or if all votes are equal.
    """

    judges: int
    items: int
    agreement: tuple[float | None, ...]
    correlation: float | None
    effective: float | None


def effective_votes(votes: int, correlation: float) -> float:
    """Kish's effective number of `votes`: n / (1 + (n - 1) rho), never more than n.

    (Kish 1965, Survey Sampling; the design effect of a cluster.) Raises InputError for a
    correlation outside of [-1, 1].
    """
    if votes < 1 or not -1 <= correlation <= 1:
        raise InputError(
            f"use at least 1 vote and a correlation from -1 to 1, got {votes} and {correlation}"
        )
    return votes / (1 + (votes - 1) * max(correlation, 0.0))


def vote_table(rows: Iterable[CaseResult], metric: str, node: str) -> list[list[Vote | None]]:
    """The votes of a node's panel: a row per case (per item, for lists), a column per vote.

    None is an answer that could not be read, or an item that was settled before.
    """
    table: list[list[Vote | None]] = []
    for result in chain.from_iterable(map(attrgetter("metrics"), rows)):
        steps: Iterable[Step] = result.steps if result.metric == metric else ()
        for step in steps:
            if step.node == node and any(isinstance(vote, list | tuple) for vote in step.votes):
                by_item = (repeat(None) if vote is None else vote for vote in step.votes)
                table += map(list, zip(*by_item, strict=False))
            elif step.node == node and step.votes:
                table.append(list(step.votes))
    return table


def jury_report(
    rows: Iterable[CaseResult], metric: str, node: str, truth: Sequence[Vote | None] | None = None
) -> JuryReport:
    """Report how useful the jury of one node was over a run.

    Good judges agree because they are right. With `truth` (the correct verdict per row of
    `vote_table`, None if unknown), the correlation is that of their errors. Only common errors
    limit a jury. Raises InputError if there are no votes, or if the number of truths differs from
    the number of rows.
    """
    table = vote_table(rows, metric, node)
    if not table:
        raise InputError(f"no result of {metric!r} has votes on a node {node!r}")
    judged: Table = table
    if truth is not None:
        if len(truth) != len(table):
            raise InputError(f"{len(table)} rows of votes need as many truths, got {len(truth)}")
        judged = [
            [None if vote is None or right is None else vote != right for vote in votes]
            for votes, right in zip(table, truth, strict=True)
        ]
    judges = len(table[0])
    agreements: list[float | None] = []
    for judge in range(judges):
        # The result is that of all judges with equal weights, this one among them.
        votes = [row for row in table if isinstance(row[judge], str | bool)]
        same = [row[judge] == row[leading(row, [1.0] * len(row))] for row in votes]
        agreements.append(mean_score(same))
    coefficient = correlation(judged)
    return JuryReport(
        judges=judges,
        items=len(table),
        agreement=tuple(agreements),
        correlation=coefficient,
        effective=None if coefficient is None else effective_votes(judges, max(coefficient, -1.0)),
    )


def correlation(table: Table) -> float | None:
    """The intraclass correlation of votes on one item: Krippendorff's alpha.

    Verdicts differ by 0 or 1, ratings by the square of their distance. Items with fewer than
    two votes do not count. None if no two votes differ: then alpha is undefined.
    """
    verdicts = any(isinstance(vote, str | bool) for row in table for vote in row)
    return krippendorff_alpha(table, level="nominal" if verdicts else "interval")
