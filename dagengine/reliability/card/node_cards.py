"""Which node is to blame, what would it cost to be sure, and does it answer as people do?"""

from __future__ import annotations

import math
import statistics
from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import chain, repeat
from typing import Any

from dagengine.errors import InputError
from dagengine.graph.nodes import RatingNode
from dagengine.reliability.card.measures import MEASURES, figure, figure_of
from dagengine.reliability.card.repeats import mean_of_runs
from dagengine.reliability.card.types import Figure, KeyCard, NodeCard, VoteCost
from dagengine.reliability.counterfactual import Counterfactual, Reply, Speaker
from dagengine.reliability.human_labels import CriterionLabels, NodeAnswers, Vote
from dagengine.reliability.node_blame import CaseNoise, attribute, blame, flip_effect, independence
from dagengine.reliability.node_blame import flip_rate as node_flips
from dagengine.reliability.observations import YES_OR_NO, plain_word
from dagengine.reliability.observed_runs import Run, Runs
from dagengine.reliability.statistics.accuracy_and_kappa import accuracy, krippendorff_alpha
from dagengine.reliability.statistics.intervals import quantile_of_t
from dagengine.reliability.statistics.majority_votes import steady_votes
from dagengine.reliability.statistics.stability import majority
from dagengine.reliability.statistics.sums import Sums, indices, numpy, present
from dagengine.results import Verdict
from dagengine.system.terminal_text import counted, text_if
from dagengine.test_case import TestCase


def noise_of(runs: Runs, replay: Counterfactual, cases: Sequence[TestCase]) -> list[CaseNoise]:
    """The noise of every case."""
    return [
        noise
        for setting in runs.settings
        for noise in attribute(replay, runs.repetitions(setting), cases, runs.alone(setting))
    ]


def node_cards(
    replay: Counterfactual, runs: Runs, noise: Sequence[CaseNoise], walked: NodeAnswers, *,
    target: float, cases: int, unlike: str,
) -> tuple[NodeCard, ...]:  # fmt: skip
    """The nodes, those with the greatest share of the noise first.

    `walked` is what people answered who walked the tree. `unlike` says how runs are not repeats of
    each other; neither blame nor votes follow then.
    """
    withheld = figure_of("variance-share", None, note=unlike)
    cards: list[NodeCard] = []
    for speaker in replay.speakers:
        node = speaker.node
        card = _node_card(speaker, runs, noise, target)
        card = replace(card, people=_beside_people(node, runs, replay, walked.get(node, {})))
        if unlike:
            cards.append(replace(card, share=withheld, votes=None))
            continue
        # By case, the node's part of the variance and all of it: what cards are compared by.
        parts = ["0 0"] * cases
        for case in noise:
            part = case.weight * case.parts.get(node, 0.0)
            parts[case.case] = f"{part:.5g} {case.weight * case.modelled:.5g}"
        cards.append(replace(card, parts=tuple(parts)))
    return tuple(sorted(cards, key=lambda card: -(card.share.value or 0.0)))


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
        unsupported=_unsupported_rate(speaker, runs),
    )


def _unsupported_rate(speaker: Speaker, runs: Runs) -> Figure | None:
    """Frequency of verdicts without support; of code, one of the nodes that it reads."""
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
    asked, rows = 0, list[list[Verdict]]()
    for series in chain.from_iterable(settings.values() for settings in runs.cases.values()):
        asking = [run for run in series if node in run.replies]
        asked += len(asking)
        answers = [run.replies[node].verdict for run in asking if run.score is not None]
        rows.append(present(answers))
        if None in answers:
            return None
    clusters = runs.rows if runs.groups else None
    steady = steady_votes(rows, target, groups=clusters)
    if steady is None:
        return None
    majorities = f"majorities of {counted(steady.seen, 'vote')}"
    floor = figure_of("node-flip-rate", steady.floor, majorities)
    why = "every answer is the same"
    agreement = figure("repeat-alpha", rows, krippendorff_alpha.sums, why, clusters)
    return VoteCost(
        target, steady.kind, steady.least, steady.most, steady.runs, steady.seen, floor,
        steady.runs_to_tell, asked / len([*runs.every()]) * len(runs.cases), agreement,
    )  # fmt: skip


def notes_on(noise: Sequence[CaseNoise]) -> Iterator[str]:
    """Notes on what the shares of the noise do not show."""
    ratio = independence(noise)
    if ratio is not None and any(case.answers for case in noise) and not 0.8 <= ratio <= 1.25:
        how = "positively" if ratio < 1 else "negatively"
        yield (
            f"With independent answers, the variance of the score would be {ratio:.2f} times as "
            f"large. So the errors of nodes are {how} correlated. The shares of the noise do not "
            "show this."
        )
    asked = [bool(case.weight) for case in noise if case.lacked]
    if not all(asked):
        yield (
            f"{counted(len(asked), 'case')} reached a node once. A random sample of {sum(asked)} "
            "of them has second answers, and counts for all of them in flips and shares."
        )
    if fixed := sorted(set[str]().union(*(case.fixed for case in noise))):
        yield f"On some cases too many nodes vary. There, these are held fixed: {', '.join(fixed)}."


# Does a node answer as people do, who walked the tree?


def _beside_people(
    node: str, runs: Runs, replay: Counterfactual, people: Mapping[int, Sequence[Vote]]
) -> Figure | None:
    """Share of cases that a node answers as `people` do; None without a case that both answered.

    The answer of most people stands against that of most runs. Where people are split the case is
    left out; where runs are, it counts as a miss. A rating counts as the nearest one of its scale.
    """
    read, pairs, groups = _reading(replay, node), list[tuple[Vote, Any]](), list[Hashable]()
    for case in runs.cases.keys() & people.keys():
        replies = present(run.replies.get(node) for run in runs.of(case))
        judge, person = present(map(read, replies)), majority(people[case])
        if judge and person is not None:
            pairs.append((person, majority(judge)))
            groups.append(runs.group(case))
    return figure("node-accuracy", pairs, accuracy.sums, "", groups) if pairs else None


def _reading(replay: Counterfactual, node: str) -> Callable[[Reply], Vote | None]:
    """Reader of the part of a reply that is compared with a person's answer."""
    units = (unit.node for unit in replay.plan.units if unit.name == node)
    rating = next((asking for asking in units if isinstance(asking, RatingNode)), None)
    if rating is None or not rating.points.steps:
        return lambda reply: reply.verdict
    # Scores go from 0 to 1. The lowest point is first, so a score between two is the lower one.
    low, high = rating.points.ends
    points = [(step - low) / (high - low) for step in sorted({*rating.points.steps.values()})]

    def nearest(reply: Reply) -> float | None:
        score = reply.score
        return None if score is None else min(points, key=lambda point: abs(point - score))

    return nearest


# Which criteria of a rubric are noise?

_LEAST = 5  # cases that a criterion must be in to have a line of its own
_MARGIN = 1.5  # how many times as often as all others a noisy key flips
_SEEN = 3  # independent cases in which it has to flip
_ALL = "all", "criteria"
_SUMS = "flips", "pairs", "variance", "met", "labelled"
"""What a criterion of a case adds to its tag: whether labels are there, and met, among it."""


_Criterion = tuple[int, tuple[str, ...], list[Verdict], list[float]]
"""A case, the keys of one of its criteria, the verdicts of all runs, and what they brought."""


def key_cards(runs: Runs, labels: CriterionLabels) -> tuple[KeyCard, ...]:
    """The tags and the criteria of a rubric, those with the greatest share of the noise first.

    The unclipped score is a sum over criteria. So the variance within a case is the sum of theirs,
    if their answers are independent: (points ÷ all positive points)² · p(1 - p). A criterion has a
    line of its own if it is in five cases or more. Raises InputError for a label of a criterion
    that no criterion of its case fits, or several.
    """
    every = list(criteria_in(runs))
    rows = _rows_of(every, labels, runs)
    if not every:
        return ()
    cases = Counter(key for _, key in dict.fromkeys((case, keys[:2]) for case, keys, *_ in every))
    members = defaultdict[tuple[str, str], list[int]](list)
    for index, (_, (text, name, *tags), *_) in enumerate(every):
        own = [("criterion", name or text)] * (cases[text, name] >= _LEAST)
        for pair in (_ALL, *own, *zip(repeat("tag"), tags)):
            members[pair].append(index)
    # By independent case, for each key: sums over its criteria.
    groups, table = numpy.array(indices(runs.group(case) for case, *_ in every)), numpy.array(rows)
    sums = {key: numpy.zeros((groups.max() + 1, len(_SUMS))) for key in members}
    for key, chosen in members.items():
        numpy.add.at(sums[key], groups[chosen], table[chosen])
    level = 1 - 2 * 0.05 / max(len(sums) - 1, 1)  # of one side, for all keys together
    cards = list[KeyCard]()
    for (kind, name), chosen in members.items():
        flips, pairs, variance, met, labelled = sums[kind, name].T
        answers = {*chain.from_iterable(every[index][2] for index in chosen)}
        cards.append(KeyCard(
            name, kind, cases=len({every[index][0] for index in chosen}),
            flip_rate=_ratio("node-flip-rate", flips, pairs),
            share=_ratio("variance-share", variance, sums[_ALL].T[2]),
            noisy=kind != "all" and is_noisy(sums[kind, name], sums[_ALL], level),
            always=text_if(len(answers) == 1, f"{min(map(str, answers))} in all"),
            people=_ratio("node-accuracy", met, labelled) if labelled.any() else None,
        ))  # fmt: skip
    cards.sort(key=lambda card: (card.kind != "all", -(card.share.value or 0.0)))
    return tuple(cards)


def _rows_of(
    every: Sequence[_Criterion], labels: CriterionLabels, runs: Runs
) -> list[Sequence[float]]:
    """Return what each criterion adds; each label has to fit one criterion of its case."""
    fitting, rows = Counter[tuple[int, str]](), list[Sequence[float]]()
    for case, (text, name, *_), verdicts, gains in every:
        label = next((key for key in (name, text) if key in labels.get(case, {})), "")
        fitting[case, label] += 1
        rows.append(noise_in(verdicts, gains, labels.get(case, {}).get(label, ())))
    for case in labels.keys() & runs.cases.keys():
        for label in labels[case]:
            if (count := fitting[case, label]) != 1:
                fits = f"{count or 'no'} criteria fit it"
                raise InputError(f"a label of case {case} is about {label!r:.60}, but {fits}")
    return rows


def noise_in(
    verdicts: Sequence[Verdict], gains: Sequence[float], labels: Sequence[Vote]
) -> tuple[float, ...]:
    """Sums that one criterion of one case adds; see `_SUMS`."""
    met = {True: "met", False: "unmet"}
    words = map(plain_word, labels)
    person = majority([met[YES_OR_NO[word]] if word in YES_OR_NO else word for word in words])
    judge, pairs = majority(verdicts), len(verdicts) * (len(verdicts) - 1)
    equal = sum(n * (n - 1) for n in Counter(verdicts).values())
    return (
        1 - equal / pairs if pairs else 0.0,
        bool(pairs),
        statistics.variance(gains) if len(gains) > 1 else 0.0,
        person is not None and person == str(judge).casefold(),
        None not in (person, judge),
    )


def criteria_in(runs: Runs) -> Iterator[_Criterion]:
    """Each criterion of each case: its keys, its verdicts in all runs, what they brought."""
    for case, settings in runs.cases.items():
        for series in settings.values():
            for node in dict.fromkeys(node for run in series for node in run.keys):
                asked = [run for run in series if node in run.keys]
                for index, keys in enumerate(asked[0].keys[node]):
                    brought = [run.gains[node][index] for run in asked]
                    verdicts = [run.lists[node][index] for run in asked]
                    yield case, keys, verdicts, present(brought)


def _ratio(name: str, parts: Any, wholes: Any) -> Figure:
    """A ratio of sums over independent cases, with the interval that leaving each out gives."""
    total, whole, counting = float(parts.sum()), float(wholes.sum()), wholes > 0
    level, count = MEASURES[name].level, int(counting.sum())
    if not whole:
        return Figure(name, None, items=count, level=level, note="nothing varied, or ran twice")
    value, counting = total / whole, counting & (wholes < whole)
    left_out = (total - parts[counting]) / (whole - wholes[counting])
    if count < 2 or len(left_out) < count or not left_out.any():
        return Figure(name, value, items=count, level=level)
    half = _error(left_out) * quantile_of_t(0.95, count)
    ends = max(value - half, 0.0), min(value + half, 1.0)
    return Figure(name, value, *ends, items=count, level=level)


def _error(left_out: Any) -> float:
    """The standard error by the jackknife."""
    size = len(left_out)
    return float((size - 1) / math.sqrt(size) * left_out.std(ddof=1))


def is_noisy(own: Any, whole: Any, level: float) -> bool:
    """Whether a key surely flips more than half as often again as all other criteria."""
    rows = numpy.hstack([own[:, :2], whole[:, :2] - own[:, :2]])
    sums = rows.sum(0)
    if (own[:, 0] > 0).sum() < _SEEN or len(rows) < _LEAST or not sums[1] or not sums[3]:
        return False

    def excess(sums: Any) -> Any:
        """By flips and pairs of the key, then of all others."""
        flips, pairs, other_flips, other_pairs = sums.T
        rest = _MARGIN * other_flips / numpy.maximum(other_pairs, 1)
        return flips / numpy.maximum(pairs, 1) - rest

    return bool(excess(sums) > _error(excess(sums - rows)) * quantile_of_t(level, len(rows)))
