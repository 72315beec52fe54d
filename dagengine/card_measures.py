"""From repeated runs to the measures of a judge card, each with interval, level and number."""

from __future__ import annotations

import itertools
import math
import statistics
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace

from dagengine.attribution import (
    CaseNoise,
    attribute,
    flip_effect,
    flip_rate,
    independence,
    variance_share,
)
from dagengine.card import CaseSpread, JudgeCard, Measure, MetricCard, NodeCard, Votes, measure
from dagengine.fingerprint import bind
from dagengine.people import compare_with_labels
from dagengine.plan import HasSpec
from dagengine.repeated_runs import Run, Runs, runs_of
from dagengine.repeats import Condition, Observation
from dagengine.replay import Replay, Speaker
from dagengine.statistics import majority_share, pairwise_disagreement
from dagengine.test_case import TestCase, case_label
from dagengine.votes import leading_share, votes_needed

MOST_VOTES = 99
RULES = (
    "A run without a score counts in `unscored` and nowhere else.",
    "Repetitions are compared within one case and one setting; then cases are averaged.",
    "Shares of the variance take the nodes of a case to answer independently of each other.",
)


def make_card(
    observations: Iterable[Observation],
    metrics: Sequence[HasSpec],
    cases: Sequence[TestCase],
    judges: Sequence[str],
    *,
    labels: str | None = None,
    target: float = 0.05,
) -> JudgeCard:
    """The card of a benchmark.

    `judges` are the identities of those who answered. `labels` is the path of the case
    field that holds what people say, `target` the flip rate that votes are counted for.
    """
    seen = list(observations)
    replays = [Replay(metric) for metric in metrics]
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
            _metric_card(runs, replay, cases, labels, target)
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


def _metric_card(
    runs: Runs, replay: Replay, cases: Sequence[TestCase], labels: str | None, target: float
) -> MetricCard:
    noise = _noise(runs, replay, cases)
    total = sum(len(run.asked) for run in runs.every())
    spec = replay.spec
    threshold = 1.0 if spec.strict else spec.threshold
    return MetricCard(
        metric=spec.name,
        threshold=threshold,
        again=tuple(_again(runs, threshold)),
        nodes=tuple(_node_card(speaker, runs, noise, target) for speaker in replay.speakers),
        people=() if labels is None else compare_with_labels(runs, threshold, cases, labels),
        spread=tuple(_spread(runs, cases)),
        calls=total / max(sum(1 for _ in runs.every()), 1),
        notes=tuple(_notes(noise)),
    )


# Would I get this score again?


def _again(runs: Runs, threshold: float | None) -> Iterable[Measure]:
    pairs = "pairs of runs of one case"

    def over(name: str, of: Callable[[Sequence[Run]], float | None], level: str) -> Measure:
        items = _per_case(runs, of)
        return measure(name, items, _mean, level, "no case has two runs with a score")

    if threshold is None:
        why = "the metric has no threshold; see score-flip-rate"
        yield Measure("flip-rate", None, level=f"pass or fail, {pairs}", note=why)
    else:
        yield over(
            "flip-rate",
            lambda found: pairwise_disagreement([s >= threshold for s in _scores(found)]),
            f"pass or fail, {pairs}",
        )
    yield over("score-flip-rate", lambda r: pairwise_disagreement(_scores(r)), f"scores, {pairs}")
    yield over("path-flip-rate", _path_flips, f"paths, {pairs}")
    yield over("total-agreement", _all_equal, "cases of which all runs gave one score")
    yield over("majority-share", _majority, "runs of one case")
    yield over("score-spread", _deviation, "standard deviation of the scores of one case")
    yield from _across(runs)
    yield measure(
        "unscored",
        [[run.score is None for s in found.values() for run in s] for found in runs.cases.values()],
        lambda items: _mean([flag for item in items for flag in item]),
        "runs without a score",
        "there is no run",
    )


_CHANGED = {
    "position": "order",
    "judge": "judge",
    "temperature": "temperature",
    "paraphrase": "paraphrase",
}


def _across(runs: Runs) -> Iterable[Measure]:
    """How often the score differs between runs of which one circumstance was changed."""
    for name, field in _CHANGED.items():
        if len({getattr(setting, field) for setting in runs.settings}) < 2:
            continue
        items = [_crossed(settings, field) for settings in runs.cases.values()]
        known = [item for item in items if item is not None]
        level = f"scores, pairs of runs of one case that differ in {field}"
        yield measure(f"{name}-flip-rate", known, _mean, level, "no case has such a pair")


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
    return _mean(rates)


def _per_case(runs: Runs, of: Callable[[Sequence[Run]], float | None]) -> list[float]:
    """A value per case that has one: the mean over its settings."""
    found = ([of(setting) for setting in case.values()] for case in runs.cases.values())
    known = ([value for value in values if value is not None] for values in found)
    return [math.fsum(values) / len(values) for values in known if values]


def _mean(values: Sequence[float]) -> float | None:
    return math.fsum(values) / len(values) if values else None


def _scores(runs: Sequence[Run]) -> list[float]:
    return [run.score for run in runs if run.score is not None]


def _path_flips(runs: Sequence[Run]) -> float | None:
    return pairwise_disagreement([run.path for run in runs if run.score is not None])


def _all_equal(runs: Sequence[Run]) -> float | None:
    scores = _scores(runs)
    return float(len(set(scores)) == 1) if len(scores) > 1 else None


def _majority(runs: Sequence[Run]) -> float | None:
    scores = _scores(runs)
    return majority_share(scores) if len(scores) > 1 else None


def _deviation(runs: Sequence[Run]) -> float | None:
    scores = _scores(runs)
    return statistics.stdev(scores) if len(scores) > 1 else None


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


def _noise(runs: Runs, replay: Replay, cases: Sequence[TestCase]) -> list[list[CaseNoise]]:
    """Per case, the noise under each setting."""
    found: dict[int, list[CaseNoise]] = {}
    for setting in runs.settings:
        for noise in attribute(replay, runs.repetitions(setting), cases):
            found.setdefault(noise.case, []).append(noise)
    return list(found.values())


def _node_card(
    speaker: Speaker, runs: Runs, noise: Sequence[Sequence[CaseNoise]], target: float
) -> NodeCard:
    node = speaker.node

    def over(
        name: str, of: Callable[[Sequence[CaseNoise], str], float | None], level: str, why: str
    ) -> Measure:
        return measure(
            name, noise, lambda items: of([n for i in items for n in i], node), level, why
        )

    return NodeCard(
        node,
        speaker.kind,
        speaker.reads,
        over("node-flip-rate", flip_rate, "pairs of answers to one question", "never asked twice"),
        over("flip-effect", flip_effect, "pairs of runs that part here", "no two runs part here"),
        over("variance-share", variance_share, "variance within cases", "the score never varied"),
        _votes(node, runs, target),
    )


def _votes(node: str, runs: Runs, target: float) -> Votes | None:
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
    return Votes(target, votes, MOST_VOTES, calls, None if votes is None else calls * votes)


def _notes(noise: Sequence[Sequence[CaseNoise]]) -> Iterable[str]:
    flat = [one for case in noise for one in case]
    ratio = independence(flat)
    if ratio is not None and not 0.8 <= ratio <= 1.25:
        how = "together" if ratio < 1 else "against each other"
        yield (
            f"Independent answers would vary {ratio:.2f} times as much as the score did: nodes "
            f"err {how}, and the shares of the variance do not show that."
        )
    fixed = sorted({node for one in flat for node in one.fixed})
    if fixed:
        yield f"On some cases too many nodes vary; held fixed there: {', '.join(fixed)}."
