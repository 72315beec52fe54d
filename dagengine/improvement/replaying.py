"""A small and a large judge on the same labelled cases, replayed as the cascade of both."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Any

from dagengine.errors import InputError
from dagengine.gateway.prices import find_price
from dagengine.graph.graph import Metric
from dagengine.improvement.rungs import with_escalation
from dagengine.metrics.common.base import BaseMetric
from dagengine.record.run import load_run
from dagengine.reliability.card.label_agreement import reading
from dagengine.reliability.clusters import clusters
from dagengine.reliability.counterfactual import Counterfactual, NoReplyError, Reply
from dagengine.reliability.fitting.escalation import UNKNOWN, TwoJudges, Way
from dagengine.reliability.labels import Vote, labels_for, left_out, sources_of
from dagengine.reliability.observations import Condition, Observation
from dagengine.reliability.repetition import a_repeat
from dagengine.reliability.runs import Run, runs_of
from dagengine.reliability.verdict_files import Collected
from dagengine.results import OutcomeKind
from dagengine.store import Store
from dagengine.system.terminal import counted
from dagengine.test_case import TestCase, read_field
from dagengine.voting.panels import Escalation

SIDES = ("small", "large")
_ALTERNATIVES = (0, 5, 20)  # alternatives per token: of the node, of `escalated`, of `benchmark`
# Whatever else became of a case is unknown, and not wrong.
_JUDGED = {
    None, OutcomeKind.OK, OutcomeKind.UNPARSEABLE, OutcomeKind.UNSUPPORTED, OutcomeKind.TRUNCATED,
    OutcomeKind.JUDGE_REFUSED,
}  # fmt: skip
JudgedTurns = tuple[tuple[float, bool | None], ...]


@dataclass(frozen=True, slots=True)
class Replayed:
    """The labelled cases that both judges judged (`judged`), by number.

    `reads` are the paths of what the metric reads, `columns` the rows of tables by case.
    """

    cases: Sequence[TestCase]
    labels: Mapping[int, Vote]
    judged: Mapping[int, TwoJudges]
    groups: Mapping[int, Hashable]
    reads: Collection[str]
    notes: Sequence[str]
    columns: Mapping[int, Mapping[str, Any]]

    def segments(self, fields: Iterable[str], chosen: Sequence[int]) -> dict[str, list[int]]:
        """The cases with each value of each field or column, by their index in `chosen`."""
        segments: dict[str, list[int]] = {}
        for field in fields:
            for index, number in enumerate(chosen):
                own = self.columns.get(number, {})
                value = own[field] if field in own else read_field(self.cases[number], field)
                for item in value if isinstance(value, list | tuple) else [value]:
                    if item is not None:
                        segments.setdefault(f"{field} {item}", []).append(index)
        return segments


def replay_judges(
    metric: Metric,
    rows: Iterable[Observation],
    cases: Sequence[TestCase],
    source: str | Mapping[int, Any],
    groups: str | None = None,
    columns: Mapping[int, Mapping[str, Any]] | None = None,
) -> Replayed:
    """Replay what two judges (`SIDES`) said of labelled cases.

    Each judgement of a metric with escalation is kept or handed over by itself; without it all
    are. `source` has the labels, `groups` names a field or a column. Raises InputError for labels
    that are no outcome.
    """
    replay, columns = Counterfactual(metric), columns or {}
    handing = {u.name for u in replay.plan.units if isinstance(u.node.panel, Escalation)}
    handing = handing or {speaker.node for speaker in replay.speakers}
    runs = runs_of(rows, replay)
    (people,) = sources_of(source, cases, [replay])
    labels = labels_for(people, replay, cases, replay.spec.threshold)
    reader = reading(labels.kind, 1.0 if replay.spec.strict else replay.spec.threshold)
    if reader is None:
        raise InputError(
            f"{replay.spec.name!r} has no threshold, or its labels are numbers: an escalation is "
            "fitted to labels that say pass or fail, or name verdicts"
        )
    judged: dict[int, TwoJudges] = {}
    for number in sorted(labels.by_case.keys() & runs.cases.keys()):
        right = partial(_is_right, reader, labels.by_case[number])
        case = _both(replay, handing, runs.cases[number], cases[number], right)
        if case is not None:
            judged[number] = case
    notes = [*left_out(source, cases, [replay])]
    if lacking := len(labels.by_case) - len(judged):
        every = counted(len(labels.by_case), "labelled case")
        notes.append(f"{lacking} of {every} left out: not judged by both judges")
    reads = replay.plan.fields
    named = {n: str(row[groups]) for n, row in columns.items() if groups and groups in row}
    together = named or clusters(cases, (), groups, [reads])
    return Replayed(cases, labels.by_case, judged, together, reads, notes, columns)


def _is_right(read: Callable[[Run], Vote | None], label: Vote, run: Run) -> bool:
    return run.score is not None and read(run) == label


def _both(
    replay: Counterfactual,
    handing: Collection[str],
    settings: Mapping[Condition, Sequence[Run]],
    case: TestCase,
    right: Callable[[Run], bool],
) -> TwoJudges | None:
    """One case under both judges, by the runs of each; None without a run of either."""
    small, large = (
        [run for run in settings.get(Condition(judge=side), ()) if run.outcome in _JUDGED]
        for side in SIDES
    )
    if not small or not large:
        return None
    indices = range(max(len(small), len(large)))
    pairs = [(small[k % len(small)], large[k % len(large)]) for k in indices]
    ways = tuple(
        Way(turns, right(run), lacks)
        for pair in pairs
        for turns, run, lacks in _ways(replay, handing, pair, case)
    )
    shares = [sum(map(right, runs)) / len(runs) for runs in zip(*pairs, strict=True)]
    share = sum(len(handing & run.replies.keys()) for _, run in pairs) / len(pairs)
    return TwoJudges(ways, shares[0], shares[1], share, len(pairs))


def _ways(
    replay: Counterfactual,
    handing: Collection[str],
    pair: tuple[Run, Run],
    case: TestCase,
    replies: Mapping[str, Reply] = MappingProxyType({}),
    turns: JudgedTurns = (),
) -> Iterator[tuple[JudgedTurns, Run, str]]:
    """The ways that go on from what was said so far: their turns, their end, and what they lack."""
    try:
        result = replay.result(replies, case)
    except NoReplyError as lack:
        node = lack.node
    else:
        end = Run(Condition()) if result is None else Run(Condition(), result.score, result.path)
        yield turns, end, ""
        return
    small, large = (run.replies.get(node) for run in pair)
    sides: list[tuple[Reply | None, bool | None]] = [(small, False), (large, True)]
    if node not in handing:
        sides = [(small, False)]
    elif small is None:  # what only the large judge was asked has no confidence
        sides = [(large, True)]
    elif small == large:
        sides = [(small, None)]
    stated = (sure for step, sure in pair[0].sure.items() if replay.name_of(step) == node)
    sure = next((probability for probability in stated if probability is not None), UNKNOWN)
    for reply, side in sides:
        longer = (*turns, (sure, side)) if node in handing else turns
        if reply is None:
            yield longer, Run(Condition()), node
        else:
            yield from _ways(replay, handing, pair, case, {**replies, node: reply}, longer)


# What judges said: in files of verdicts, in runs, in stores.


def observe_verdicts(collected: Collected) -> Iterator[Observation]:
    """The verdicts of a file with their confidences; raises InputError if one is no number."""
    for observation, (_, row) in zip(collected.observations, collected.runs, strict=True):
        try:
            sure = None if row.confidence is None else float(row.confidence)
        except (TypeError, ValueError):
            sure = math.nan
        if sure is not None and not math.isfinite(sure):
            raise InputError(
                f"{row.where}: `confidence` is {row.confidence!r}, but must be a number, or empty"
            )
        yield observation
        verdict = observation.path[-1][1] if observation.path else None
        yield replace(
            observation, node=observation.metric, verdict=verdict, path=(), confidence=sure
        )


def observe_run(
    path: Path, metric: BaseMetric, cases: Sequence[TestCase], judge: str
) -> Iterator[Observation]:
    """The observations of one metric in a run; cases are known by their content."""
    numbers: dict[str | None, list[int]] = {}
    for number, case in enumerate(cases):
        numbers.setdefault(case.content_hash(), []).append(number)
    for row in load_run(path).rows():
        for result in (own for own in row.metrics if own.metric == metric.spec().name):
            for number in numbers.get(row.hash, ()):
                whole = Observation(
                    number, result.metric, "", Condition(judge=judge), None, result.score, "",
                    result.outcome, result.path,
                )  # fmt: skip
                yield whole
                for step in result.steps:
                    yield replace(
                        whole, node=step.node, verdict=step.verdict, score=step.score,
                        outcome=step.outcome, confidence=step.confidence, path=(),
                    )  # fmt: skip


async def observe_store(
    store: Path, metric: BaseMetric, cases: Sequence[TestCase], judge: str, model: Any
) -> list[Observation]:
    """Observations of a judge in a store, by the questions with most confidences."""
    stored: list[list[Observation]] = []
    for alternatives in _ALTERNATIVES:
        observations = await a_repeat(
            cases, [with_escalation(metric, None)], times=1, second_answers=False, model=model,
            store=Store(store, replay=True), top_logprobs=alternatives,
        )  # fmt: skip
        stored.append([row for row in observations if row.outcome in _JUDGED])
    counts = [(sum(row.confidence is not None for row in rows), len(rows)) for rows in stored]
    best = max(range(len(stored)), key=lambda k: counts[k][:: 1 if judge == SIDES[0] else -1])
    return [replace(row, condition=Condition(judge=judge)) for row in stored[best]]


def judge_of(path: Path) -> tuple[str | None, float | None]:
    """The model of a run, and US dollars of one of its answers; None for what is not known."""
    run = load_run(path)
    model = run.manifest.judges[0].model if run.manifest.judges else None
    price = find_price(model, {})
    usages = [step.usage for row in run.rows() for result in row.metrics for step in result.steps]
    paid = [price.of(usage) for usage in usages if usage.input_tokens] if price else []
    return model, sum(paid) / len(paid) if paid else None
