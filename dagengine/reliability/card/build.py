"""From repeated runs to the measures of a judge card, each with interval, level and number."""

from __future__ import annotations

import itertools
import math
import statistics
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial

from dagengine.graph.graph import Metric
from dagengine.reliability.attribution import (
    CaseNoise,
    attribute,
    flip_effect,
    independence,
)
from dagengine.reliability.attribution import flip_rate as node_flips
from dagengine.reliability.blame import Blame, blame
from dagengine.reliability.card.agreement import agreement_of_judges, agreement_of_runs, outcome
from dagengine.reliability.card.bias import bias_by_length, bias_by_place, position_bias
from dagengine.reliability.card.calibration import stated
from dagengine.reliability.card.labels import Vote, compare_with_labels, labels_of
from dagengine.reliability.card.values import (
    CaseSpread,
    Figure,
    JudgeCard,
    MetricCard,
    NodeCard,
    VoteCost,
    figure,
)
from dagengine.reliability.counterfactual import Counterfactual, Speaker
from dagengine.reliability.fingerprint import bind
from dagengine.reliability.perturbations import Symmetry
from dagengine.reliability.repetition import Condition, Observation
from dagengine.reliability.runs import Run, Runs, runs_of
from dagengine.reliability.statistics.consistency import (
    effect_of_missing,
    flip_rate,
    missing_rate,
)
from dagengine.reliability.statistics.spread import icc, score_spread
from dagengine.reliability.statistics.sums import Sums, mean
from dagengine.reliability.statistics.votes import leading_share, votes_needed
from dagengine.test_case import TestCase, case_label

MOST_VOTES = 99
RULES = (
    "A run without a score counts in `unscored` and nowhere else.",
    "Repetitions are compared within one case and one setting; then cases are averaged.",
    "Shares of the variance take the nodes of a case to answer independently of each other.",
)


def make_card(
    observations: Iterable[Observation],
    metrics: Sequence[Metric],
    cases: Sequence[TestCase],
    judges: Sequence[str],
    *,
    labels: str | None = None,
    target: float = 0.05,
    symmetry: Symmetry | None = None,
) -> JudgeCard:
    """The card of a benchmark.

    `judges` are the identities of those who answered. `labels` is the path of the case
    field that holds what people say, `target` the flip rate that votes are counted for,
    `symmetry` what was swapped. Raises InputError when no case has a label.
    """
    seen = list(observations)
    replays = [Counterfactual(metric) for metric in metrics]
    found = [runs_of(seen, replay) for replay in replays]
    settings = tuple(dict.fromkeys(setting for runs in found for setting in runs.settings))
    times = max(
        (len(r) for runs in found for c in runs.cases.values() for r in c.values()), default=0
    )
    return JudgeCard(
        binding=bind(metrics, judges, cases),
        times=times,
        settings=tuple(_described(setting) for setting in settings),
        metrics=tuple(
            _Maker(runs, replay, cases, labels, symmetry or Symmetry()).card(target)
            for runs, replay in zip(found, replays, strict=True)
        ),
        rules=RULES,
    )


def _described(setting: Condition) -> str:
    parts = {
        "order": setting.order,
        "temperature": setting.temperature,
        "seed": setting.seed,
        "paraphrase": setting.paraphrase,
        "judge": setting.judge,
    }
    return ", ".join(f"{name} {value}" for name, value in parts.items() if value not in (None, ""))


@dataclass(frozen=True)
class _Maker:
    """What the card of one metric is made of."""

    runs: Runs
    replay: Counterfactual
    cases: Sequence[TestCase]
    path: str | None
    symmetry: Symmetry

    @cached_property
    def labels(self) -> Mapping[int, Vote]:
        return {} if self.path is None else labels_of(self.runs.cases, self.cases, self.path)

    @property
    def threshold(self) -> float | None:
        return 1.0 if self.replay.spec.strict else self.replay.spec.threshold

    def card(self, target: float) -> MetricCard:
        runs, threshold = self.runs, self.threshold
        noise = _noise(runs, self.replay, self.cases)
        found = list(stated(runs, threshold, self.labels))
        every = list(runs.every())
        return MetricCard(
            metric=self.replay.spec.name,
            threshold=threshold,
            again=tuple(_again(runs, threshold)),
            nodes=tuple(_node_card(one, runs, noise, target) for one in self.replay.speakers),
            people=compare_with_labels(runs, threshold, self.labels) if self.labels else (),
            spread=tuple(_spread(runs, self.cases)),
            calls=sum(len(run.asked) for run in every) / max(len(every), 1),
            notes=tuple(_notes(noise, runs, threshold)),
            more=(*self.more(), *(one for kind in found for one in kind.figures())),
            calibration=tuple(kind.calibration() for kind in found),
        )

    def more(self) -> Iterator[Figure]:
        """The measures that stand behind the four questions."""
        yield from agreement_of_runs(self.runs, self.threshold)
        yield from agreement_of_judges(self.runs, self.threshold)
        yield from position_bias(self.runs, self.replay, self.cases, self.symmetry)
        yield from bias_by_place(self.runs, self.replay)
        yield from bias_by_length(self.runs, self.cases, self.labels)


# Would I get this score again?


def _again(runs: Runs, threshold: float | None) -> Iterable[Figure]:
    pairs = "pairs of runs of one case"
    scores = runs.table(lambda run: run.score)
    cases = runs.rows
    why = "no case has two runs with a score"

    def over(name: str, of: Callable[..., Sums], level: str) -> Figure:
        return figure(name, scores, of, level, why, cases)

    if threshold is None:
        undefined = "the metric has no threshold; see score-flip-rate"
        yield Figure("flip-rate", None, level=f"pass or fail, {pairs}", note=undefined)
    else:
        table = runs.table(lambda run: run.passed(threshold))
        yield figure("flip-rate", table, flip_rate.sums, f"pass or fail, {pairs}", why, cases)
    yield over("score-flip-rate", flip_rate.sums, f"scores, {pairs}")
    yield over("score-spread", score_spread.sums, "runs of one case, averaged over cases")
    yield over("test-retest", icc.sums, "one score's share of the variance between cases")
    yield from _across(runs)
    yield over("unscored", missing_rate.sums, "all runs")


_CHANGED = {
    "position": "order",
    "judge": "judge",
    "temperature": "temperature",
    "seed": "seed",
    "paraphrase": "paraphrase",
}


def _across(runs: Runs) -> Iterable[Figure]:
    """How often the score differs between runs of which one circumstance was changed."""
    for name, field in _CHANGED.items():
        if len({getattr(setting, field) for setting in runs.settings}) < 2:
            continue
        items = [_crossed(settings, field) for settings in runs.cases.values()]
        level = f"scores, pairs of runs of one case that differ in {field}"
        yield figure(f"{name}-flip-rate", items, mean, level, "no case has such a pair")


def _crossed(settings: Mapping[Condition, Sequence[Run]], field: str) -> float | None:
    """The share of pairs of runs with different scores, among settings that differ in `field`."""
    rates: list[float] = []
    for (one, some), (other, more) in itertools.combinations(settings.items(), 2):
        if replace(one, **{field: getattr(other, field)}) != other:
            continue
        first, second = Counter(_scores(some)), Counter(_scores(more))
        pairs = first.total() * second.total()
        if pairs:
            equal = sum(count * second[score] for score, count in first.items())
            rates.append(1 - equal / pairs)
    return math.fsum(rates) / len(rates) if rates else None


def _scores(runs: Sequence[Run]) -> list[float]:
    return [run.score for run in runs if run.score is not None]


def _spread(runs: Runs, cases: Sequence[TestCase]) -> Iterable[CaseSpread]:
    """Scores by case, the most spread first."""
    found: list[CaseSpread] = []
    for number, settings in runs.cases.items():
        scores = [score for setting in settings.values() for score in _scores(setting)]
        counts = tuple((score, scores.count(score)) for score in sorted(set(scores)))
        spread = statistics.pstdev(scores) if scores else 0.0
        found.append(CaseSpread(case_label(cases[number], number), counts, spread))
    return sorted(found, key=lambda case: -case.deviation)


# Which node is to blame, and what would it cost to be sure?


def _noise(runs: Runs, replay: Counterfactual, cases: Sequence[TestCase]) -> list[CaseNoise]:
    """The noise of every case under every setting."""
    return [
        noise
        for setting in runs.settings
        for noise in attribute(replay, runs.repetitions(setting), cases, runs.alone(setting))
    ]


def _node_card(speaker: Speaker, runs: Runs, noise: Sequence[CaseNoise], target: float) -> NodeCard:
    node = speaker.node
    cases = [one.case for one in noise]

    def over(name: str, of: Callable[..., Sums], level: str, why: str) -> Figure:
        return figure(name, noise, partial(of, node=node), level, why, cases)

    asked, part = "pairs of answers to one question", "pairs of runs that part here"
    return NodeCard(
        node,
        speaker.kind,
        speaker.reads,
        over("node-flip-rate", node_flips.sums, asked, "never asked twice"),
        over("flip-effect", flip_effect.sums, part, "no two runs part here"),
        _share(blame(noise, node)),
        _votes(node, runs, target),
    )


def _share(found: Blame) -> Figure:
    level = "variance within cases"
    return Figure(
        "variance-share", found.share, found.low, found.high,
        items=found.cases, level=level, note=found.why,
    )  # fmt: skip


def _votes(node: str, runs: Runs, target: float) -> VoteCost | None:
    """Votes for a steady verdict; ratings and code have none."""
    shares: list[float] = []
    asked = count = 0
    for settings in runs.cases.values():
        for found in settings.values():
            said = [run.replies[node].verdict for run in found if node in run.replies]
            if any(verdict is None for verdict in said):
                return None
            share = leading_share(said)
            shares += [] if share is None else [share]
            asked += len(said)
            count += len(found)
    if not shares:
        return None
    calls = asked / count * len(runs.cases)
    votes = votes_needed(shares, target, MOST_VOTES)
    return VoteCost(target, votes, MOST_VOTES, calls, None if votes is None else calls * votes)


def _notes(noise: Sequence[CaseNoise], runs: Runs, threshold: float | None) -> Iterable[str]:
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
    yield from _rule_effect(runs, threshold)


def _rule_effect(runs: Runs, threshold: float | None) -> Iterable[str]:
    """What the rule for runs without a score does to the flip rate, when there are any."""
    found = effect_of_missing(runs.table(outcome(threshold)), flip_rate)
    if found.missing and found.dropped is not None and found.own_category is not None:
        yield (
            f"Runs without a score are left out: the flip rate is {100 * found.dropped:.1f} %; "
            f"counted as an outcome of their own they would make it "
            f"{100 * found.own_category:.1f} %."
        )
