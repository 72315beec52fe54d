"""Which node is to blame, what would it cost to be sure, and does it answer as people do?"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import replace
from functools import partial

from dagengine.graph.nodes import RatingNode
from dagengine.reliability.attribution import (
    CaseNoise,
    attribute,
    flip_effect,
    independence,
)
from dagengine.reliability.attribution import flip_rate as node_flips
from dagengine.reliability.blame import blame
from dagengine.reliability.card.again import mean_of_runs
from dagengine.reliability.card.figures import figure, shown
from dagengine.reliability.card.values import Figure, NodeCard, VoteCost
from dagengine.reliability.counterfactual import Counterfactual, Reply, Speaker
from dagengine.reliability.labels import NodeAnswers, Vote
from dagengine.reliability.runs import Run, Runs
from dagengine.reliability.statistics.confusion import accuracy
from dagengine.reliability.statistics.correlations import majority
from dagengine.reliability.statistics.inter_rater import krippendorff_alpha
from dagengine.reliability.statistics.measures import MEASURES
from dagengine.reliability.statistics.sums import Sums
from dagengine.reliability.statistics.votes import steady_votes
from dagengine.terminal import counted
from dagengine.test_case import TestCase


def noise_of(runs: Runs, replay: Counterfactual, cases: Sequence[TestCase]) -> list[CaseNoise]:
    """The noise of every case."""
    return [
        noise
        for setting in runs.settings
        for noise in attribute(replay, runs.repetitions(setting), cases, runs.alone(setting))
    ]


def node_cards(
    speakers: Sequence[Speaker],
    runs: Runs,
    noise: Sequence[CaseNoise],
    target: float,
    cases: int,
    unlike: str = "",
) -> tuple[NodeCard, ...]:
    """The nodes, those with the greatest share of the noise first.

    `unlike` says how runs are not repeats of each other; neither blame nor votes follow then.
    """
    if unlike:
        withheld = shown("variance-share", None, note=unlike)
        single = (_node_card(speaker, runs, noise, target) for speaker in speakers)
        return tuple(replace(card, share=withheld, votes=None) for card in single)
    cards: list[NodeCard] = []
    for speaker in speakers:
        # By case, the node's part of the variance and all of it: what cards are compared by.
        parts = ["0 0"] * cases
        for case in noise:
            part, whole = (
                case.weight * case.parts.get(speaker.node, 0.0),
                case.weight * case.modelled,
            )
            parts[case.case] = f"{part:.5g} {whole:.5g}"
        card = _node_card(speaker, runs, noise, target)
        cards.append(replace(card, parts=tuple(parts)))
    return tuple(sorted(cards, key=lambda node: -(node.share.value or 0.0)))


def _node_card(speaker: Speaker, runs: Runs, noise: Sequence[CaseNoise], target: float) -> NodeCard:
    node = speaker.node
    groups = [runs.group(case.case) for case in noise]

    def over(name: str, of: Callable[..., Sums], why: str) -> Figure:
        return figure(name, noise, partial(of, node=node), why, groups)

    cause = blame(noise, node, runs.groups)
    share = Figure(
        "variance-share", cause.share, cause.low, cause.high,
        items=cause.cases, level=MEASURES["variance-share"].level, note=cause.why,
    )  # fmt: skip
    if cause.low is not None and cause.high is not None and cause.high - cause.low > WIDE:
        # A share of so wide an interval would be read as a finding: only the ends are said.
        ends = f"it is between {100 * cause.low:.0f} and {100 * cause.high:.0f} %"
        share = replace(share, value=None, low=None, high=None, note=f"too few cases vary: {ends}")
    return NodeCard(
        node,
        speaker.kind,
        speaker.reads,
        over("node-flip-rate", node_flips.sums, "never asked twice"),
        over("flip-effect", flip_effect.sums, "no two runs first differ here"),
        share,
        _votes(node, runs, target),
        unsupported=_unsupported(speaker, runs),
    )


def _unsupported(speaker: Speaker, runs: Runs) -> Figure | None:
    """How often a verdict of the node has no support; of code, one of the nodes that it reads."""
    nodes = speaker.reads or (speaker.node,)

    def in_run(run: Run) -> bool | None:
        answers = [run.unsupported[node] for node in nodes if node in run.unsupported]
        return any(answers) if answers else None

    table = runs.table(in_run)
    if all(answer is None for row in table for answer in row):
        return None
    return figure("unsupported-rate", table, mean_of_runs, "", runs.rows)


WIDE = 0.5
"""An interval of a share that is wider than this is no answer: the figure is not known."""


def _votes(node: str, runs: Runs, target: float) -> VoteCost | None:
    """Votes for a consistent verdict; ratings, code and nodes that ran once have none."""
    asking = [
        [run for run in series if node in run.replies]
        for settings in runs.cases.values()
        for series in settings.values()
    ]
    rows = [
        [run.replies[node].verdict for run in series if run.score is not None] for series in asking
    ]
    if any(verdict is None for row in rows for verdict in row):
        return None
    clusters = runs.rows if runs.groups else None
    steady = steady_votes(rows, target, groups=clusters)
    if steady is None:
        return None
    asked, count = sum(map(len, asking)), sum(1 for _ in runs.every())
    floor = shown("node-flip-rate", steady.floor, f"majorities of {counted(steady.seen, 'vote')}")
    groups = clusters or range(len(rows))
    agreement = figure(
        "repeat-alpha", rows, krippendorff_alpha.sums, "every answer is the same", groups
    )
    return VoteCost(
        target, steady.kind, steady.least, steady.most, steady.runs, steady.seen, floor,
        steady.runs_to_tell, asked / count * len(runs.cases), agreement,
    )  # fmt: skip


def notes_on(noise: Sequence[CaseNoise]) -> Iterator[str]:
    """What the shares of the noise do not show."""
    ratio = independence(noise)
    answered = any(case.answers for case in noise)
    if ratio is not None and answered and not 0.8 <= ratio <= 1.25:
        how = "positively" if ratio < 1 else "negatively"
        yield (
            f"With independent answers, the variance of the score would be {ratio:.2f} times as "
            f"large. So the errors of nodes are {how} correlated. The shares of the noise do not "
            "show this."
        )
    lacked = [case for case in noise if case.lacked]
    asked = sum(1 for case in lacked if case.weight)
    if asked < len(lacked):
        yield (
            f"{counted(len(lacked), 'case')} reached a node once. A random sample of {asked} of "
            "them has second answers, and counts for all of them in flips and shares."
        )
    fixed = sorted({node for case in noise for node in case.fixed})
    if fixed:
        yield f"On some cases too many nodes vary. There, these are held fixed: {', '.join(fixed)}."


# Does a node answer as people do, who walked the tree?


def beside_people(
    nodes: Sequence[NodeCard], runs: Runs, replay: Counterfactual, told: NodeAnswers
) -> tuple[NodeCard, ...]:
    """The nodes, each with how often it answers as people do.

    `told` is what people answered, by node and case. A case counts where both answered the node:
    the answer of most people against that of most runs. Where people are split it is left out;
    where runs are, it counts as a miss. A rating counts as the nearest one of its scale.
    """
    cards: list[NodeCard] = []
    for card in nodes:
        read = _reading(replay, card.node)
        people, pairs = told.get(card.node, {}), list[tuple[Vote, Vote | None]]()
        groups: list[Hashable] = []
        for case, settings in runs.cases.items():
            replies = [run.replies.get(card.node) for row in settings.values() for run in row]
            votes = [read(reply) for reply in replies if reply is not None]
            judge = [vote for vote in votes if vote is not None]
            person = majority(people.get(case, ()))
            if judge and person is not None:
                pairs.append((person, majority(judge)))  # None where its runs are split
                groups.append(runs.group(case))
        agreement = figure("node-accuracy", pairs, accuracy.sums, "", groups) if pairs else None
        cards.append(replace(card, people=agreement))
    return tuple(cards)


def _reading(replay: Counterfactual, node: str) -> Callable[[Reply], Vote | None]:
    """What of a reply is compared with a person's answer."""
    units = (unit for unit in replay.plan.units if unit.name == node)
    rating = next((unit.node for unit in units if isinstance(unit.node, RatingNode)), None)
    points: list[float] = []
    if rating is not None:
        # Scores go from 0 to 1. The lowest point is first, so a score between two is the lower one.
        low, high = rating.points.ends
        points = [
            (number - low) / (high - low) for number in sorted({*rating.points.steps.values()})
        ]
    if not points:
        return lambda reply: reply.verdict

    def nearest(reply: Reply) -> float | None:
        score = reply.score
        return None if score is None else min(points, key=lambda point: abs(point - score))

    return nearest
