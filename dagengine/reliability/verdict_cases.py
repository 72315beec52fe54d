"""The verdicts of a file as what a card is made of: observations, a metric, cases and labels.

Two rows are runs of one case if the file numbers its runs, or if all texts that it has of the two
are equal; else they are two cases.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import filterfalse
from operator import attrgetter, itemgetter
from pathlib import Path
from typing import Any

from dagengine.data.case_lookup import Places, is_gap
from dagengine.errors import InputError
from dagengine.graph.graph import Metric
from dagengine.metrics import DAGMetric
from dagengine.metrics.dag import DAG, BinaryJudgementNode, NonBinaryJudgementNode, RatingNode
from dagengine.prompts.evidence import as_text
from dagengine.reliability.foreign_verdicts import COLUMNS, Row, rows_of
from dagengine.reliability.human_labels import one_each
from dagengine.reliability.observations import (
    SETTINGS,
    YES_OR_NO,
    Condition,
    Observations,
    Scale,
    VerdictRows,
    plain_word,
    setting_of,
    share_of_scale,
)
from dagengine.reliability.observed_runs import seeds_as_repeats
from dagengine.reliability.statistics.sums import indices, numpy, present
from dagengine.test_case import LLMTestCase

NumberedRows = Sequence[tuple[int, Row]]
"""Rows, each after the number of its case."""
_UNIT: Scale = (0.0, 1.0)


@dataclass(frozen=True, slots=True)
class Contests:
    """Several scores of each of several candidates, by case.

    `names` are those of the candidates of each case. Under each setting, `scores` has an array of
    cases, candidates and runs: scores from 0 to 1, nan for a missing one, and -inf for a candidate
    that a case does not have.
    """

    names: Sequence[Sequence[str]]
    scores: Mapping[Condition, Any]


@dataclass(frozen=True, slots=True)
class Collected:
    """What a card is made of: observations about a metric and cases, and labels by case number.

    `runs` are the rows that are runs, each after the number of its case. If cases have candidates,
    `contests` are their scores, and there are no observations.
    """

    observations: Observations
    metric: Metric
    cases: Sequence[LLMTestCase]
    labels: Mapping[int, Any]
    runs: NumberedRows
    contests: Contests | None

    @property
    def groups(self) -> str | None:
        """The field that cases have in common which were asked the same; None without any."""
        inputs = len({case.input for case in self.cases})
        return "input" if 1 < inputs < len(self.cases) else None


def read_verdicts(
    path: Path, *, metric: str | None = None, scale: Scale = _UNIT, threshold: float | None = None
) -> Collected:
    """The verdicts of a file, for a card without metrics or judges of ours.

    `metric` names one of several. Scores go from the first to the second number of `scale` and pass
    from `threshold` on (0.5 of the way, if none is given). Raises InputError for a file of another
    shape, several metrics of which none is named, numbers outside of the scale, and several
    verdicts on a case that are not shown to be its runs.
    """
    return _collection(*_rows_of_metric(path, metric), scale, threshold)


def read_two_files(small: Path, large: Path, metric: str | None = None) -> Collected:
    """The verdicts of two judges about the same cases, as those of the judges `small` and `large`.

    Raises as `read_verdicts` does, and InputError for a file with several settings of its judge.
    """
    names, rows = list[str](), list[Row]()
    for judge, path in (("small", small), ("large", large)):
        name, own = _rows_of_metric(path, metric)
        names.append(name)
        if len(settings := {str(row.at) for row in own}) > 1:
            raise InputError(
                f"{path} has verdicts under {len(settings)} settings ({', '.join(SETTINGS)}): "
                "keep the rows of one"
            )
        rows += (replace(row, at={"judge": judge}) for row in own)
    return _collection(names[0], rows)


def _rows_of_metric(path: Path, metric: str | None) -> tuple[str, list[Row]]:
    """The name of a metric of a file (None: of its only one), and its rows."""
    rows = list(rows_of(path))
    names = list(dict.fromkeys(map(attrgetter("metric"), rows)))
    if metric is not None and metric not in names:
        raise InputError(f"{path} has no metric {metric!r}; it has {', '.join(map(repr, names))}")
    if metric is None and len(names) > 1:
        raise InputError(
            f"{path} has verdicts of {len(names)} metrics or nodes; choose one: "
            f"--metric {names[0]!r} (the others: {', '.join(map(repr, names[1:]))})"
        )
    own = [row.without_gaps() for row in rows if metric in (None, row.metric)]
    if all(row.verdict is row.score is None for row in own):
        raise InputError(f"{path} has no verdict and no score")
    return own[0].metric or "verdict", own


def _collection(
    name: str, rows: Sequence[Row], scale: Scale = _UNIT, threshold: float | None = None
) -> Collected:
    """Rows of one metric as what a card is made of."""
    numbered_rows = list(zip(indices(map(attrgetter("key"), rows)), rows, strict=True))
    labels = defaultdict[int, list[Any]](list)
    for case, row in numbered_rows:
        labels[case] += row.labels
    runs = list(_runs(numbered_rows, labels.values()))
    # Each file numbers its runs anew. If none does, rows of a case are its runs in their order.
    run_numbers: dict[tuple[int, Any], int] = {}
    files_and_runs = {*map(attrgetter("file", "run"), rows)}
    if any(run is not None for _, run in files_and_runs):
        run_numbers = {run: number for number, run in enumerate(sorted(files_and_runs))}
    contests = None
    verdicts = VerdictRows(Places(()), name, scale, counted=not run_numbers, alone=True)
    if any(row.candidate for row in rows):
        contests = _contests(runs, scale, run_numbers)
        labels = _right_candidates(numbered_rows, contests.names)
    else:
        judges = {row.at.get("judge") or "" for _, row in runs}
        for case, row in runs:
            cells = {**row.at, "case": case, "run": run_numbers.get((row.file, row.run)),
                     "verdict": row.verdict, "score": row.score}  # fmt: skip
            if len(judges) == 1:
                cells["judge"] = ""  # the only judge is no setting
            verdicts.add(cells, row.where)
    return Collected(
        Observations(tuple(verdicts.observations())), _metric(name, rows, scale, threshold),
        list(_cases(numbered_rows)), dict(filter(itemgetter(1), one_each(labels).items())),
        runs, contests,
    )  # fmt: skip


def _runs(rows: NumberedRows, labels: Iterable[list[Any]]) -> Iterator[tuple[int, Row]]:
    """The rows that are runs, after the numbers of their cases.

    One that repeats a verdict beside another person's label is none. Raises InputError for a second
    row of a case that nothing shows to be another run of it: neither a number nor equal texts, by
    which rows became one case.
    """
    people = any(len({*map(str, present(own))}) > 1 for own in labels)
    first: dict[tuple[Any, ...], Row] = {}
    for case, row in rows:
        key = case, row.candidate, row.file, row.run, str(row.at)
        before = first.setdefault(key, row)
        repeats = (row.verdict, row.score) == (before.verdict, before.score)
        of_a_person = repeats and row.label is not None
        is_run = row.run is None and bool(row.texts) and not (people and of_a_person)
        if before is row or is_run:
            yield case, row
        elif not of_a_person:
            raise InputError(
                f"{row.where}: a second verdict on the case {row.case!r} (the first is in "
                f"{before.where}); nothing shows that they are two runs: number the runs from 0 in "
                "a column `run`, or add what was judged (`input`, `output`)"
            )


def _cases(rows: NumberedRows) -> Iterator[LLMTestCase]:
    """The cases by their numbers, each as the earliest of its rows has it."""
    tasks = len({row.task for _, row in rows}) > 1
    fields = _fields_of_cases(rows)
    for case, row in sorted(dict(reversed(rows)).items()):
        name = f"{row.task}/{row.case}" if tasks else row.case
        output = row.texts.get("actual_output")
        yield LLMTestCase(
            name=name,
            input=as_text(row.texts.get("input", name)),
            actual_output=None if output is None else as_text(output),
            additional_metadata={"texts": dict(row.texts)} | fields[case],
        )


def _fields_of_cases(rows: NumberedRows) -> Mapping[int, dict[str, str]]:
    """The columns without a meaning that have one text for each case, by the number of the case."""
    values = defaultdict[str, dict[int, str]](dict)
    varying: set[str] = set()
    for case, row in rows:
        for name, text in row.columns.items():
            if name.strip().casefold() in COLUMNS or not isinstance(text, str):
                continue
            if values[name].setdefault(case, text) != text:
                varying.add(name)
    fields = defaultdict[int, dict[str, str]](dict)
    for name in filterfalse(varying.__contains__, values):
        for case, text in values[name].items():
            fields[case][name] = text
    return fields


def _metric(name: str, rows: Sequence[Row], scale: Scale, threshold: float | None) -> Metric:
    """A metric with one node that says what the file says, and reads what it has of the cases."""
    reads = ["input"]
    if any(row.texts for row in rows):
        # Columns without a meaning were not judged.
        reads = ["additional_metadata"]
        if rows[0].columns.keys() - COLUMNS:
            reads = ["additional_metadata.texts"]
    kinds = dict.fromkeys(present(row.verdict for row in rows))
    low, high = scale
    level = 0.5 if threshold is None else (threshold - low) / (high - low)
    arguments: Any = {"name": name, "evaluation_params": reads}
    node: RatingNode | BinaryJudgementNode | NonBinaryJudgementNode
    if not kinds:
        node = RatingNode("Given.", **arguments)
    elif all(isinstance(kind, bool) for kind in kinds):
        node = BinaryJudgementNode("Given.", then={True: 10, False: 0}, **arguments)
    else:
        # The scores only tell verdicts apart: without a threshold none of them passes or fails.
        step = 10 / max(len(kinds) - 1, 1)
        then = {str(verdict): round(index * step) for index, verdict in enumerate(kinds)}
        node = NonBinaryJudgementNode("Given.", then=then, **arguments)
        return DAGMetric(name, DAG(node), threshold=None)
    return DAGMetric(name, DAG(node), threshold=level)


# Candidates of a case.


def _right_candidates(
    rows: NumberedRows, names: Sequence[Sequence[str]]
) -> defaultdict[int, list[Any]]:
    """The name of the right candidate of each case with a label, as the only one of a list.

    A label names it in every row of the case, or says yes or no of the candidate of its row.
    """
    labels = defaultdict[int, dict[str, str]](dict)
    for case, row in rows:
        if not is_gap(row.label):
            labels[case][row.candidate] = str(row.label).removesuffix(".0")
    right = defaultdict[int, list[Any]](list)
    for case, own in labels.items():
        texts = {*own.values()}
        named = [*texts.intersection(names[case])]
        if len(texts) > 1 or not named:
            named = [name for name, label in own.items() if YES_OR_NO.get(plain_word(label))]
        if len(named) != 1:
            row = dict(reversed(rows))[case]
            raise InputError(
                f"{row.where}: the labels of the case {row.case!r} name {len(named)} right "
                f"candidates; write the name of one in all of its rows, or yes and no"
            )
        right[case] = named
    return right


def _contests(runs: NumberedRows, scale: Scale, run_numbers: Mapping[Any, int]) -> Contests:
    """The scores of candidates; without `run_numbers` rows of a candidate are its runs."""
    names = defaultdict[int, dict[str, int]](dict)
    rows_before = Counter[tuple[Any, ...]]()
    cells = defaultdict[Condition, list[tuple[int, int, int, float]]](list)
    for case, row in runs:
        if not row.candidate:
            raise InputError(f"{row.where}: `candidate` is empty, but other rows name theirs")
        candidate = names[case].setdefault(row.candidate, len(names[case]))
        score = row.verdict if row.score is None else row.score
        try:
            setting = setting_of(row.at)
            if isinstance(row.verdict, str):
                raise ValueError(f"`verdict` is {row.verdict!r}, but candidates need scores")
            share = math.nan if score is None else share_of_scale(score, scale)
        except ValueError as error:
            raise InputError(f"{row.where} is not a score: {error}") from None
        run = run_numbers.get((row.file, row.run), rows_before[case, candidate, setting])
        rows_before[case, candidate, setting] += 1
        cells[setting].append((case, candidate, run, share))
    if (alone := next((row for case, row in runs if len(names[case]) < 2), None)) is not None:
        raise InputError(
            f"{alone.where}: the case {alone.case!r} has one candidate; two are needed"
        )
    candidates = [[*names[case]] for case in range(len(names))]
    return Contests(candidates, _score_arrays(cells, [*map(len, candidates)]))


def _score_arrays(
    cells: Mapping[Condition, Sequence[tuple[int, int, int, float]]], candidates: Sequence[int]
) -> dict[Condition, Any]:
    """Scores by case, candidate and run; `candidates` has their number for each case."""
    width = max(run for own in cells.values() for _, _, run, _ in own) + 1
    scores: dict[Condition, Any] = {}
    for setting, filled in cells.items():
        case, candidate, run, share = map(numpy.array, zip(*filled, strict=True))
        scores[setting] = numpy.full((len(candidates), max(candidates), width), numpy.nan)
        scores[setting][case, candidate, run] = share
    if width == 1:
        pooled = seeds_as_repeats({at: [array] for at, array in scores.items()})
        scores = {at: numpy.concatenate(parts, 2) for at, parts in pooled.items()}
    for array in scores.values():
        for case, count in enumerate(candidates):
            array[case, count:] = -numpy.inf
    return scores
