"""A small and a large judge on the same labelled cases, replayed as the cascade of both."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from dagengine.errors import InputError
from dagengine.gateway.prices import find_price
from dagengine.improvement.rungs import with_escalation
from dagengine.metrics.common.base import BaseMetric
from dagengine.record.run import load_run
from dagengine.reliability.card.people import reading
from dagengine.reliability.clusters import clusters
from dagengine.reliability.counterfactual import Counterfactual, NoReplyError, Reply
from dagengine.reliability.fitting.escalation import UNKNOWN, TwoJudges, Way
from dagengine.reliability.labels import Vote, labels_for, left_out, sources_of
from dagengine.reliability.observations import Condition, Observation
from dagengine.reliability.repetition import a_repeat
from dagengine.reliability.runs import Run, Runs, runs_of
from dagengine.reliability.verdict_files import Collected
from dagengine.results import OutcomeKind
from dagengine.store import Store
from dagengine.terminal import counted
from dagengine.test_case import TestCase, read_field
from dagengine.voting.panels import Escalation

SIDES = ("small", "large")
_ALTERNATIVES = (0, 5, 20)  # alternatives per token: of the node, of `escalated`, of `benchmark`
# Whatever else became of a case is unknown, and not wrong.
_JUDGED = {
    None, OutcomeKind.OK, OutcomeKind.UNPARSEABLE, OutcomeKind.UNSUPPORTED, OutcomeKind.TRUNCATED,
    OutcomeKind.JUDGE_REFUSED,
}  # fmt: skip


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

    def segments(self, fields: Sequence[str], chosen: Sequence[int]) -> dict[str, list[int]]:
        """The places in `chosen` of the cases with each value of each field or column."""
        places: dict[str, list[int]] = {}
        for field in fields:
            for place, number in enumerate(chosen):
                own = self.columns.get(number, {})
                value = own[field] if field in own else read_field(self.cases[number], field)
                for each in value if isinstance(value, list | tuple) else [value]:
                    if each is not None:
                        places.setdefault(f"{field} {each}", []).append(place)
        return places


def replay_tables(collected: Collected, labels: str | None, groups: str | None) -> Replayed:
    """Replay two tables of verdicts, or runs of a metric with one judgement.

    Raises InputError for labels that are no outcome, and for confidences that are no numbers.
    """
    replay = Counterfactual(collected.metric)
    (node,) = {speaker.node for speaker in replay.speakers}
    runs = runs_of(collected.observations, replay)
    small = [(number, row) for number, row in collected.runs if row.at["judge"] == SIDES[0]]
    small.sort(key=lambda pair: (pair[0], pair[1].file, -1 if pair[1].run is None else pair[1].run))
    each = (run for _, own in sorted(runs.cases.items())
            for run in own.get(Condition(judge=SIDES[0]), ()))  # fmt: skip
    for run, (_, row) in zip(each, small, strict=True):
        try:
            run.sure[node] = UNKNOWN if row.confidence is None else float(row.confidence)
            valid = math.isfinite(run.sure[node] or 0.0)
        except (TypeError, ValueError):
            valid = False
        if not valid:
            raise InputError(
                f"{row.where}: `confidence` is {row.confidence!r}, but must be a number, or empty"
            )
    made = _replayed(
        replay, {node}, runs, collected.cases, labels or collected.labels,
        collected.groups if groups is None else None,
    )  # fmt: skip
    columns = {number: row.columns for number, row in reversed(collected.runs)}
    own_groups = {n: str(columns[n].get(groups, n)) for n in made.judged} if groups else made.groups
    return replace(made, columns=columns, groups=own_groups)


def replay_tree(
    metric: BaseMetric,
    rows: Sequence[Observation],
    cases: Sequence[TestCase],
    labels: str,
    groups: str | None,
) -> Replayed:
    """Replay a metric with escalation: each of its judgements is kept, or handed over, by itself.

    Raises InputError for labels that are no outcome.
    """
    replay = Counterfactual(metric)
    handing = {u.name for u in replay.plan.units if isinstance(u.node.panel, Escalation)}
    return _replayed(replay, handing, runs_of(rows, replay), cases, labels, groups)


def _replayed(
    replay: Counterfactual,
    handing: Collection[str],
    runs: Runs,
    cases: Sequence[TestCase],
    source: str | Mapping[int, Any],
    groups: str | None,
) -> Replayed:
    (people,) = sources_of(source, cases, [replay])
    labels = labels_for(people, replay, cases, replay.spec.threshold)
    read = reading(labels.kind, 1.0 if replay.spec.strict else replay.spec.threshold)
    if read is None:
        raise InputError(
            f"{replay.spec.name!r} has no threshold, or its labels are numbers: an escalation is "
            "fitted to labels that say pass or fail, or name verdicts"
        )
    judged: dict[int, TwoJudges] = {}
    for number, label in labels.by_case.items():

        def right(run: Run, label: Vote = label) -> bool:
            return run.score is not None and read(run) == label

        small, large = (
            [run for run in runs.cases.get(number, {}).get(Condition(judge=side), ())
             if run.outcome in _JUDGED]
            for side in SIDES
        )  # fmt: skip
        if small and large:
            size = max(len(small), len(large))
            pairs = [(small[k % len(small)], large[k % len(large)]) for k in range(size)]
            judged[number] = TwoJudges(
                tuple(
                    way
                    for pair in pairs
                    for way in _ways(replay, handing, pair, cases[number], right, {}, ())
                ),
                sum(right(run) for run, _ in pairs) / size,
                sum(right(run) for _, run in pairs) / size,
                sum(len(handing & run.replies.keys()) for _, run in pairs) / size,
                size,
            )
    notes = [*left_out(source, cases, [replay])]
    if lacking := len(labels.by_case) - len(judged):
        every = counted(len(labels.by_case), "labelled case")
        notes.append(f"{lacking} of {every} left out: not judged by both judges")
    reads = replay.plan.fields
    together = clusters(cases, (), groups, [reads])
    return Replayed(cases, labels.by_case, judged, together, reads, notes, {})


def _ways(
    replay: Counterfactual,
    handing: Collection[str],
    pair: tuple[Run, Run],
    case: TestCase,
    right: Callable[[Run], bool],
    replies: Mapping[str, Reply],
    turns: tuple[tuple[float, bool | None], ...],
) -> Iterator[Way]:
    """The ways through a case that go on from what was said so far."""
    try:
        result = replay.result(replies, case)
    except NoReplyError as lack:
        node = lack.node
    else:
        path, score = (result.path, result.score) if result is not None else ((), None)
        yield Way(turns, right(Run(Condition(), score, path)))
        return
    small, large = (run.replies.get(node) for run in pair)
    known = (sure for step, sure in pair[0].sure.items() if replay.name_of(step) == node)
    sure = next((sure for sure in known if sure is not None), UNKNOWN)
    sides: list[tuple[Reply | None, bool | None]] = [(small, False), (large, True)]
    if node not in handing:
        sides = [(small, False)]
    elif small is None:  # what only the large judge was asked has no confidence
        sides = [(large, True)]
    elif small == large:
        sides = [(small, None)]
    for reply, side in sides:
        longer = (*turns, (sure, side)) if node in handing else turns
        if reply is None:
            yield Way(longer, False, node)
        else:
            more = {**replies, node: reply}
            yield from _ways(replay, handing, pair, case, right, more, longer)


# What judges said, in runs and stores.


def observe_run(
    path: Path, metric: BaseMetric, cases: Sequence[TestCase], judge: str
) -> Iterator[Observation]:
    """The observations of one metric in a run; cases are known by their content."""
    numbers: dict[str | None, list[int]] = {}
    for number, case in enumerate(cases):
        numbers.setdefault(case.content_hash(), []).append(number)
    name, at = metric.spec().name, Condition(judge=judge)
    for row in load_run(path).rows():
        for result in (result for result in row.metrics if result.metric == name):
            for number in numbers.get(row.hash, ()):
                yield Observation(
                    number, name, "", at, None, result.score, "", result.outcome, result.path
                )
                for step in result.steps:
                    yield Observation(
                        number, name, step.node, at, step.verdict, step.score, "", step.outcome,
                        confidence=step.confidence,
                    )  # fmt: skip


async def observe_store(
    store: Path, metric: BaseMetric, cases: Sequence[TestCase], judge: str, model: Any
) -> list[Observation]:
    """What a store has of a judge, by the questions with the most confidences; asks nothing."""
    known: list[list[Observation]] = []
    for alternatives in _ALTERNATIVES:
        seen = await a_repeat(
            cases, [with_escalation(metric, None)], times=1, second_answers=False, model=model,
            store=Store(store, replay=True), top_logprobs=alternatives,
        )  # fmt: skip
        known.append([row for row in seen if row.outcome in _JUDGED])
    counts = [(sum(row.confidence is not None for row in rows), len(rows)) for rows in known]
    best = max(range(len(known)), key=lambda k: counts[k][:: 1 if judge == SIDES[0] else -1])
    return [replace(row, condition=Condition(judge=judge)) for row in known[best]]


def judge_of(path: Path) -> tuple[str | None, float | None]:
    """The model of a run, and US dollars of one of its answers; None for what is not known."""
    run = load_run(path)
    model = run.manifest.judges[0].model if run.manifest.judges else None
    price = find_price(model, {})
    used = [step.usage for row in run.rows() for result in row.metrics for step in result.steps]
    paid = [price.of(usage) for usage in used if usage.input_tokens] if price else []
    return model, sum(paid) / len(paid) if paid else None
