"""What people say about the cases: labels of a field or a file, and what they mean to a metric."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import chain, filterfalse
from operator import itemgetter
from pathlib import Path
from typing import Any, Literal, TypeVar

from dagengine.compiler.metric_hashes import definitions, digest
from dagengine.data.case_lookup import Places, is_gap, named_cells
from dagengine.data.row_readers import Record, suffix_of, table_of
from dagengine.errors import InputError
from dagengine.record.label_file import Label, LabelFile, is_label_file
from dagengine.reliability.counterfactual import Counterfactual
from dagengine.reliability.observations import YES_OR_NO, plain_word
from dagengine.reliability.statistics.sums import mean_score, present
from dagengine.system.terminal_text import counted
from dagengine.test_case import ArenaTestCase, TestCase, case_label, read_field

Vote = str | bool | int | float
V = TypeVar("V", bound=Vote)
Kind = Literal["pass", "verdict", "number"]
Source = str | Path | Mapping[int, Any]
"""Where labels are: a case field (a dotted path), a file, or labels by the number of the case."""
Given = Mapping[int, tuple[Vote, ...]]
"""What people said, by the number of the case: one label per person."""
CriterionLabels = dict[int, dict[str, list[Vote]]]
"""What people said of criteria, by the number of the case and the name or text of the criterion."""
NodeAnswers = Mapping[str, Given]
"""What people answered to nodes, by the name of the node: verdicts, and ratings from 0 to 1."""

_NEEDED = "a row of labels needs the columns `case` and `label`"
_COLUMNS = ("case", "name", "label", "metric", "run", "criterion")
_SUFFIXES = {".csv", ".tsv", ".json", ".jsonl", ".ndjson", ".parquet", ".txt", ".xls", ".xlsx"}
# What people write who give no label.
_NO_LABEL = frozenset(
    ("not applicable", "no label", "not labeled", "not labelled", "cannot tell", "n/a", "#n/a",
     "na", "<na>", "nan", "none", "null", "nil", "-", "--", "?", "??", ".", "unknown", "unlabeled",
     "unlabelled", "missing", "empty", "skip", "skipped", "tbd", "pending")
)  # fmt: skip
# The ends of usual scales: of labels that are one of two such numbers the higher one passes.
_LOWEST, _HIGHEST = {-1.0, 0.0, 1.0}, {1.0, 3.0, 4.0, 5.0, 7.0, 10.0, 100.0}


@dataclass(frozen=True, slots=True)
class LabelMeaning:
    """How a human label was read, and how many cases have it.

    `means` is "pass", "fail", a verdict, a number, or empty: no outcome of the metric.
    """

    label: str
    means: str
    cases: int


@dataclass(frozen=True, slots=True)
class Labels:
    """Human labels as outcomes of one metric.

    `by_case` is the label of each case: the one that most people gave, or the mean of numbers;
    cases without a majority are left out. `people` are all of them, in the order of the people.
    `kind` says what of a run they are compared with: pass or fail, the last verdict, the score.
    `scale` has the ends of labels that are numbers, if they were stated.
    """

    kind: Kind
    by_case: Mapping[int, Vote]
    people: Mapping[int, tuple[Vote, ...]]
    meanings: tuple[LabelMeaning, ...]
    scale: tuple[float, float] | None = None

    @property
    def kinds(self) -> tuple[Vote, ...]:
        """The labels that there are, also if nobody gave one of them; empty if not known."""
        return (True, False) if self.kind == "pass" else ()


class HumanLabels:
    """What a source says of cases, read once: labels of cases and of criteria, or walks of people.

    A list is one label per person. A file (CSV, TSV, JSON, JSON lines, Parquet) has the columns
    `case` or `name` (the name of a case, or its place counted from 0) and `label`. Several rows
    for a case are labels of several people; beside a column `run`, `one_each` holds. Rows with a
    `criterion` are about this one alone. People walked the tree in a file that `dagengine view`
    wrote. Without a source nobody said anything. `of_cases` says whether there should be labels of
    whole cases: not without a source, and not if all are of criteria.
    """

    def __init__(self, cases: Sequence[TestCase], source: Source | None) -> None:
        """Raises InputError for a file of something else, and for rows of an unknown case."""
        self._cases, self._source = cases, source
        self._walks: list[Label] | None = None
        self.criteria: CriterionLabels = {}
        self._cells: Mapping[int, Any] = {}
        if isinstance(source, Mapping):
            self._cells = source
        elif source is not None and is_label_file(Path(source)):
            self._walks = LabelFile(source).labels()
        elif source is not None and suffix_of(Path(source)) in _SUFFIXES:
            records = table_of(Path(source)).read()
            self._cells, self.criteria = _labels_in(source, records, Places(cases))
        elif source is not None:
            self._cells = {n: read_field(case, str(source)) for n, case in enumerate(cases)}
        self.of_cases = source is not None and (bool(self._cells) or not self.criteria)

    @cached_property
    def by_case(self) -> Given:
        """The labels of whole cases; raises InputError if no case has one."""
        votes = {number: tuple(_votes(value)) for number, value in self._cells.items()}
        labelled = dict(filter(itemgetter(1), votes.items()))
        if not labelled:
            first = case_label(self._cases[0], 0) if self._cases else "none"
            raise InputError(f"no case has a label at `{self._source}` (the first case is {first})")
        return labelled

    def for_metrics(self, replays: Sequence[Counterfactual]) -> list[Given]:
        """The labels for each metric: those of walks are about one metric, all others about each.

        What says that there is no label (`N/A`) is none, unless it is a verdict of the metric.
        Walks have one label per person, of the cases that they are about by their content (also
        copies). Those of another definition of a metric are left out (`left_out`). Raises
        InputError if no case has a label, and if walks have none and no answer to a node.
        """
        if self._walks is None:
            sources: list[Given] = []
            for replay in replays:
                gaps = self._gaps(replay).__contains__
                votes = {n: tuple(filterfalse(gaps, own)) for n, own in self.by_case.items()}
                sources.append(dict(filter(itemgetter(1), votes.items())))
            return sources
        people = [self._answers_of_people(replay) for replay in replays]
        if not any(answers for own in people for answers in own.values()):
            names = ", ".join(repr(replay.spec.name) for replay in replays)
            stale = "".join(f"; {line}" for line in self.left_out(replays))
            raise InputError(
                f"{self._source} has no finished walk on a case of this data set that fits the "
                f"current definition of {names}{stale}"
            )
        return [own.get("", {}) for own in people]

    def walked(self, replay: Counterfactual) -> NodeAnswers:
        """People's answers to the nodes of a metric: one answer per person and case.

        Only walks tell; for all other sources it is empty.
        Answers to another definition of a node, and "cannot tell", are left out. A node in several
        places of the metric is one node, and a person's last answer to it counts.
        """
        return dict(filter(itemgetter(0), self._answers_of_people(replay).items()))

    def left_out(self, replays: Sequence[Counterfactual]) -> Iterator[str]:
        """Lines for labels that do not count: `N/A`, and those of other definitions of metrics."""
        for replay in replays if self._walks else ():
            now, name = metric_hash(replay), replay.spec.name
            ends = (label for label in self._walks or () if label.outcome is not None)
            own = [label.definition for label in ends if label.metric == name]
            if stale := len(own) - own.count(now):
                yield (
                    f"{stale} of {counted(len(own), 'label')} left out: given to another "
                    f"definition of {name!r}"
                )
        if self._walks is not None or not self.of_cases:
            return
        # A metric may have a verdict of such a name.
        for gaps in dict.fromkeys(tuple(self._gaps(replay).items()) for replay in replays):
            if words := ", ".join(f"{label!r} ({count})" for label, count in gaps):
                total = counted(sum(dict(gaps).values()), "label")
                yield f"{total} left out, as they say that there is none: {words}"

    def _gaps(self, replay: Counterfactual) -> Counter[Vote]:
        """Labels that say that there is none and are no verdicts, by how often they are there."""
        verdicts, every = _verdicts(replay, self._cases), chain.from_iterable(self.by_case.values())
        empty = (label for label in every if plain_word(label) in _NO_LABEL)
        return Counter(label for label in empty if verdict_named(label, verdicts) is None)

    def _answers_of_people(self, replay: Counterfactual) -> NodeAnswers:
        """People's answers to nodes as they are defined now; "" stands for how cases ended."""
        if not self._walks:
            return {}
        hashes = definitions(replay.plan, replay.plan.metrics[0])
        now = {**hashes, "": digest(hashes)}
        numbers = defaultdict[str, list[int]](list)  # copies of a case share its labels
        for number, case in enumerate(self._cases):
            numbers[case.content_hash()].append(number)
        people = defaultdict[str, defaultdict[int, dict[str, Vote]]](lambda: defaultdict(dict))
        for label in self._walks:
            vote = label.answer if label.node else label.outcome
            fits = label.metric == replay.spec.name and label.definition == now.get(label.node)
            if vote is not None and fits:
                own = people[label.node and replay.name_of(label.node)]
                for number in numbers.get(label.case, ()):
                    own[number][label.who] = vote
        return {
            node: {number: tuple(votes.values()) for number, votes in by_case.items()}
            for node, by_case in people.items()
        }


def _labels_in(
    source: str | Path, records: Iterable[Record], places: Places
) -> tuple[Mapping[int, list[Any]], CriterionLabels]:
    """The labels in the rows of a file, by the number of the case: of cases, and of criteria."""
    labels, criteria = defaultdict[int, list[Any]](list), CriterionLabels()
    columns, read, metrics = dict[str, None](), set[str](), set[str]()
    for record in records:
        number, row = _row_of(record, places)
        columns |= dict.fromkeys(record.value)
        if (criterion := row.get("criterion")) is not None:
            votes = [v for v in _votes(row.get("label")) if plain_word(v) not in _NO_LABEL]
            criteria.setdefault(number, {}).setdefault(str(criterion), []).extend(votes)
            continue
        labels[number].append(row.get("label"))  # several rows are labels of several people
        read.update(row)
        metrics.add(str(row.get("metric")))
    if labels and "label" not in read:
        raise InputError(f"{source} has no column `label`; it has {', '.join(columns)}")
    if len(metrics) > 1:
        raise InputError(f"{source} has labels of several metrics (column `metric`): keep one")
    return (one_each(labels) if "run" in read else labels), criteria


def labels_among(
    source: str | Path, cases: Sequence[TestCase]
) -> tuple[str | Mapping[int, Any], str]:
    """The labels in a file that are about these cases, and a line about those that are not.

    One file may have the labels of several tables of verdicts. All other sources stay as they are.
    Raises InputError for what `HumanLabels` refuses.
    """
    if suffix_of(Path(source)) not in _SUFFIXES or is_label_file(Path(source)):
        return str(source), ""
    places, read = Places(cases), list(table_of(Path(source)).read())
    kept: list[Record] = []
    for record in read:
        row = record.value if isinstance(record.value, Mapping) else {}
        name = next(iter(named_cells(row, ("case", "name")).values()), None)
        if places.has_name(name):
            kept.append(record)
    labels, _ = _labels_in(source, kept, places)
    if not labels or len(kept) == len(read):
        return str(source), ""
    absent = counted(len(read) - len(kept), "label")
    return labels, f"{absent} of {source} left out: no such case here"


def _votes(value: object) -> Iterator[Vote]:
    """The labels in a cell: none, one, or a list of them."""
    if isinstance(value, list | tuple):
        for label in value:
            yield from _votes(label)
    elif isinstance(value, bool | int | float):
        if value == value:  # a column of numbers with gaps has NaN for no label
            yield value
    elif value is not None and (text := str(value).strip()):
        yield text


def one_each(rows: Mapping[int, list[Any]]) -> dict[int, list[Any]]:
    """The labels of rows that are runs, too: where no case has two labels, one label for each.

    Then they were repeated with every run. Else each row has the label of another person.
    """
    filled = {case: [*filterfalse(is_gap, own)] for case, own in rows.items()}
    if any(len({*map(str, own)}) > 1 for own in filled.values()):
        return filled
    return {case: own[:1] for case, own in filled.items()}


def _row_of(record: Record, places: Places) -> tuple[int, Mapping[str, Any]]:
    """The number of the case that a row is about, and the cells that have a meaning."""
    row = record.cells(_NEEDED)
    try:
        cells = named_cells(row, _COLUMNS)
        column = next((name for name in ("case", "name") if name in cells), None)
        if column is not None:
            return places.of(cells[column], record.place), cells
    except ValueError as error:
        raise InputError(f"{record.place}: {error}") from None
    there = f"; it has {', '.join(map(str, row))}" if row else ""
    raise InputError(f"{record.place}: {_NEEDED}{there}")


def labels_for(given: Given, replay: Counterfactual, cases: Sequence[TestCase]) -> Labels:
    """Meaning of labels for a metric; raises InputError if none is a possible outcome."""
    counts = Counter(label for labels in given.values() for label in dict.fromkeys(labels))
    passes = replay.spec.strict or replay.spec.threshold is not None
    kind, means = _understood(list(counts), _verdicts(replay, cases), passes)
    if not {*means.values()} - {None}:
        raise InputError(_refusal(counts, replay, cases))
    people: dict[int, tuple[Vote, ...]] = {}
    by_case: dict[int, Vote] = {}
    for number, labels in given.items():
        votes = map(means.__getitem__, labels)
        people[number] = tuple(present(votes))
        if (agreed := _agreement(labels, means, kind)) is not None:
            by_case[number] = agreed
    # 1 and "1" read alike, so they are one label for the reader of a card.
    meant: Counter[tuple[str, Vote | None]] = Counter()
    for label, count in counts.items():
        meant[str(label), means[label]] += count
    meanings: list[LabelMeaning] = []
    for (text, meaning), count in meant.items():
        words = "" if meaning is None else outcome_name(meaning)
        meanings.append(LabelMeaning(text, words, count))
    return Labels(kind, by_case, people, tuple(meanings))


def outcome_name(outcome: object) -> str:
    """An outcome of a metric, in words."""
    if isinstance(outcome, bool):
        return "pass" if outcome else "fail"
    if isinstance(outcome, int | float):
        return f"{outcome:g}"
    return str(outcome or "no outcome")


def on_scale(labels: Labels, scale: tuple[float, float]) -> Labels:
    """Labels with the stated ends of their scale; raises InputError for numbers outside of it."""
    if labels.kind != "number":
        return labels
    low, high = scale
    numbers = [*map(float, chain(*labels.people.values()))]
    if not low <= min(numbers) <= max(numbers) <= high or low == high:
        raise InputError(
            f"--label-scale {low:g},{high:g}: the labels go from {min(numbers):g} to "
            f"{max(numbers):g}; state the lowest and the highest label there can be"
        )
    return replace(labels, scale=scale)


def _understood(
    labels: Sequence[Vote], verdicts: Sequence[str], passes: bool
) -> tuple[Kind, dict[Vote, Vote | None]]:
    """The kind that fits most labels: verdicts by name, then yes or no, then numbers."""
    numbers = {label: _number(label) for label in labels}
    values = {number for number in numbers.values() if number is not None}
    answers: dict[Vote, Vote | None] = {label: YES_OR_NO.get(plain_word(label)) for label in labels}
    # Two numbers and nothing else are no and yes, if they are what scales usually end with and
    # the metric passes or fails at all.
    if passes and len(values) == 2 == len({*numbers.values()}):
        least, most = min(values), max(values)
        if least in _LOWEST and most in _HIGHEST:
            answers = {label: number == most for label, number in numbers.items()}
    readings: list[tuple[Kind, dict[Vote, Vote | None]]] = [
        ("verdict", {label: verdict_named(label, verdicts) for label in labels}),
        ("pass", answers),
        ("number", {**numbers}),
    ]
    return min(readings, key=lambda reading: [*reading[1].values()].count(None))


def verdict_named(label: Vote, verdicts: Sequence[V]) -> V | None:
    """The verdict that a label names, be it in another form of yes or no (also 1.0 and 0.0)."""
    if not isinstance(label, str):
        return None
    named = {str(verdict).casefold(): verdict for verdict in verdicts}
    if label.casefold() in named:
        return named[label.casefold()]
    words = {YES_OR_NO[name]: verdict for name, verdict in named.items() if name in YES_OR_NO}
    word = YES_OR_NO.get(plain_word(label))
    return None if word is None else words.get(word)


def _number(label: Vote) -> float | None:
    try:
        number = float(label)
    except ValueError:
        return None
    return number if math.isfinite(number) else None


def _agreement(
    labels: Iterable[Vote], means: Mapping[Vote, Vote | None], kind: Kind
) -> Vote | None:
    """Common label of people: the mean of numbers, else what most say; None for a tie.

    A label that is not an outcome counts as one that the metric never gives.
    """
    if kind == "number":
        numbers: Iterable[Any] = present(map(means.__getitem__, labels))
        return mean_score(map(float, numbers))
    counts: Counter[Vote] = Counter(label if (m := means[label]) is None else m for label in labels)
    best, *next_best = counts.most_common(2)
    return None if next_best and best[1] == next_best[0][1] else best[0]


def _verdicts(replay: Counterfactual, cases: Sequence[TestCase]) -> list[str]:
    """Every verdict in words that a path of the metric may end with."""
    plan = replay.plan
    verdicts = dict[str, None]()
    for verdict, targets in chain.from_iterable(slot.branches.items() for slot in plan.slots):
        kinds = {plan.slots[number].kind for number in targets} or {"verdict"}
        if isinstance(verdict, str) and "verdict" in kinds:
            verdicts[verdict] = None
    arenas = (case.contestants for case in cases if isinstance(case, ArenaTestCase))
    if contestants := dict.fromkeys(chain.from_iterable(arenas)):
        verdicts |= {**contestants, "tie": None}
    return list(verdicts)


def _refusal(counts: Mapping[Vote, int], replay: Counterfactual, cases: Sequence[TestCase]) -> str:
    verdicts = _verdicts(replay, cases)
    outcomes = ["pass or fail"] * (replay.spec.threshold is not None)
    outcomes += filter(None, [", ".join(map(repr, verdicts)), "a score"])
    shown = ", ".join(map(repr, list(counts)[:5]))
    return (
        f"no label is a possible outcome of the metric {replay.spec.name!r}: the labels are "
        f"{shown}, but it ends with {' or '.join(outcomes)}; write yes or no, "
        "pass or fail, 1 or 0, numbers, or the names of verdicts"
    )


def metric_hash(replay: Counterfactual) -> str:
    """Hash of the metric as it is defined now, as in a run's record."""
    return digest(definitions(replay.plan, replay.plan.metrics[0]))
