"""Which node is to blame, and what would it cost to be sure?"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial

from dagengine.reliability.attribution import (
    CaseNoise,
    attribute,
    flip_effect,
    independence,
)
from dagengine.reliability.attribution import flip_rate as node_flips
from dagengine.reliability.blame import Blame, blame
from dagengine.reliability.card.figures import figure, shown
from dagengine.reliability.card.values import Figure, NodeCard, VoteCost
from dagengine.reliability.counterfactual import Counterfactual, Speaker
from dagengine.reliability.runs import Runs
from dagengine.reliability.statistics.sums import Sums
from dagengine.reliability.statistics.votes import steady_votes
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
) -> tuple[NodeCard, ...]:
    """The nodes, those with the greatest share of the noise first."""
    found = [
        replace(_node_card(speaker, runs, noise, target), parts=_parts(speaker.node, noise, cases))
        for speaker in speakers
    ]
    return tuple(sorted(found, key=lambda node: -(node.share.value or 0.0)))


def _node_card(speaker: Speaker, runs: Runs, noise: Sequence[CaseNoise], target: float) -> NodeCard:
    node = speaker.node
    groups = [runs.group(one.case) for one in noise]

    def over(name: str, of: Callable[..., Sums], level: str, why: str) -> Figure:
        return figure(name, noise, partial(of, node=node), level, why, groups)

    asked, part = "pairs of answers to one question", "pairs of runs that part here"
    return NodeCard(
        node,
        speaker.kind,
        speaker.reads,
        over("node-flip-rate", node_flips.sums, asked, "never asked twice"),
        over("flip-effect", flip_effect.sums, part, "no two runs part here"),
        _share(blame(noise, node, runs.groups)),
        _votes(node, runs, target),
    )


def _parts(node: str, noise: Sequence[CaseNoise], cases: int) -> tuple[str, ...]:
    """The node's part of the variance of every case, and all of it."""
    found = ["0 0"] * cases
    for one in noise:
        found[one.case] = f"{one.parts.get(node, 0.0):.5g} {one.modelled:.5g}"
    return tuple(found)


def _share(found: Blame) -> Figure:
    level = "variance within cases"
    return Figure(
        "variance-share", found.share, found.low, found.high,
        items=found.cases, level=level, note=found.why,
    )  # fmt: skip


def _votes(node: str, runs: Runs, target: float) -> VoteCost | None:
    """Votes for a steady verdict; ratings and code have none, nor has what ran once."""
    rows = [
        [run.replies[node].verdict for run in found if node in run.replies]
        for settings in runs.cases.values()
        for found in settings.values()
    ]
    if any(verdict is None for row in rows for verdict in row):
        return None
    clusters = runs.rows if runs.groups else None
    steady = steady_votes(rows, target, groups=clusters)
    if steady is None:
        return None
    asked, count = sum(map(len, rows)), sum(1 for _ in runs.every())
    floor = shown("node-flip-rate", steady.floor, f"majorities of {steady.seen} votes")
    return VoteCost(
        target, steady.kind, steady.least, steady.most, steady.runs, steady.seen, floor,
        steady.runs_to_tell, asked / count * len(runs.cases),
    )  # fmt: skip


def notes_on(noise: Sequence[CaseNoise]) -> Iterator[str]:
    """What the shares of the noise do not show."""
    ratio = independence(noise)
    if ratio is not None and not 0.8 <= ratio <= 1.25:
        how = "together" if ratio < 1 else "against each other"
        yield (
            f"Independent answers would vary {ratio:.2f} times as much as the score did: nodes "
            f"err {how}, and the shares of the variance do not show that."
        )
    fixed = sorted({node for one in noise for node in one.fixed})
    if fixed:
        yield f"On some cases too many nodes vary; held fixed there: {', '.join(fixed)}."
