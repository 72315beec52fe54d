"""Verdicts of any judge, from the result files of other tools: rows, a metric and cases for a card.

Read by their shape, not by their names: promptfoo's JSON, a test run of deepeval, logs of inspect
(`.json` and `.eval`), MLflow's table of results, runs of ours, and any table with the columns
`case` and `verdict`, `passed` or `score`. Two rows are runs of one case if the file numbers its
runs, or if all texts that it has of the two are equal; else they are two cases.
"""

from __future__ import annotations

import json
import math
import struct
import sys
import zipfile
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import chain, filterfalse
from operator import itemgetter
from pathlib import Path
from typing import Any

from pydantic.alias_generators import to_camel

from dagengine.data.case_numbers import JUDGED, Places, is_gap, named_cells
from dagengine.data.json_lines import without_nulls
from dagengine.data.readers import open_content, suffix_of, table_of
from dagengine.errors import InputError, MissingExtraError
from dagengine.graph.graph import Metric
from dagengine.metrics import DAGMetric
from dagengine.metrics.dag import DAG, BinaryJudgementNode, NonBinaryJudgementNode, RatingNode
from dagengine.prompts.evidence import as_text
from dagengine.prompts.json_values import shallow_value
from dagengine.record.run import Run, run_at
from dagengine.reliability.labels import one_each
from dagengine.reliability.observations import (
    NO_CELLS,
    SETTINGS,
    YES_OR_NO,
    Condition,
    Observations,
    Scale,
    VerdictRows,
    plain_word,
    setting_of,
    share_of_scale,
    verdict_and_score,
    whole_in,
)
from dagengine.reliability.statistics.sums import needs, present
from dagengine.system.terminal import text_if
from dagengine.test_case import LLMTestCase, TestCase

_LARGEST = 512 * 2**20  # bytes of one file of a log
NumberedRows = Sequence[tuple[int, "Row"]]
"""Rows, each after the number of its case."""


@dataclass(frozen=True, slots=True)
class Row:
    """One verdict: of a metric about a case, a name or a number, and what people say of it.

    `texts` is what was judged, by field, `task` the data set of the case, `run` the number of the
    run if the file has it, `at` the settings by name, `file` the number of the file in its folder.
    `candidate` names the one of several candidates of the case that is scored. `confidence` is how
    sure the judge was of the verdict, `columns` has the columns of the row that are no results.
    """

    case: str
    metric: str
    verdict: Any = None
    score: Any = None
    label: Any = None
    texts: Mapping[str, Any] = field(default_factory=dict)
    task: str = ""
    run: Any = None
    at: Mapping[str, Any] = field(default_factory=dict)
    file: int = 0
    where: str = "a row"
    candidate: str = ""
    confidence: Any = None
    columns: Mapping[str, Any] = field(default_factory=dict)

    @property
    def key(self) -> tuple[str, str, str]:
        """The case: its task, its name, and all texts that there are unless the run is numbered.

        Candidates of one case have texts of their own.
        """
        alike = self.run is not None or self.candidate or not self.texts
        texts = "" if alike else json.dumps(self.texts, sort_keys=True, default=str)
        return self.task, self.case, texts

    @property
    def labels(self) -> list[Any]:
        """The labels of all people."""
        return self.label if isinstance(self.label, list) else [self.label]

    def without_gaps(self) -> Row:
        """The row with the texts that there are."""
        texts = {name: text for name, text in self.texts.items() if text not in _NO_TEXT}
        return self if len(texts) == len(self.texts) else replace(self, texts=texts)


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

    `groups` is the field that cases have in common which were asked the same; None without any.
    `runs` are the rows that are runs, each after the number of its case. If cases have candidates,
    `contests` are their scores, and there are no observations.
    """

    observations: Observations
    metric: Metric
    cases: Sequence[TestCase]
    labels: Mapping[int, Any]
    groups: str | None = None
    runs: NumberedRows = ()
    contests: Contests | None = None

    @property
    def settings(self) -> tuple[Condition, ...]:
        """The settings of the verdicts, or of the scores of candidates."""
        scores = () if self.contests is None else self.contests.scores
        return (*self.observations.conditions, *scores)


def read_verdicts(
    path: Path, *, metric: str | None = None, scale: Scale = (0.0, 1.0),
    threshold: float | None = None,
) -> Collected:  # fmt: skip
    """The verdicts of a file, for a card without metrics or judges of ours.

    `metric` names one of several. Scores go from the first to the second number of `scale` and pass
    from `threshold` on (0.5 of the way, if none is given). Raises InputError for a file of another
    shape, several metrics of which none is named, numbers outside of the scale, and several
    verdicts on a case that are not shown to be its runs.
    """
    return _collection(*_of_metric(path, metric), scale, threshold)


def read_two_files(small: Path, large: Path, metric: str | None = None) -> Collected:
    """The verdicts of two judges about the same cases, as those of the judges `small` and `large`.

    Raises as `read_verdicts` does, and InputError for a file with several settings of its judge.
    """
    names, rows = list[str](), list[Row]()
    for judge, path in (("small", small), ("large", large)):
        name, own = _of_metric(path, metric)
        names.append(name)
        if len(settings := {str(row.at) for row in own}) > 1:
            raise InputError(
                f"{path} has verdicts under {len(settings)} settings ({', '.join(SETTINGS)}): "
                "keep the rows of one"
            )
        rows += (replace(row, at={"judge": judge}) for row in own)
    return _collection(names[0], rows)


def _collection(
    name: str, rows: Sequence[Row], scale: Scale = (0.0, 1.0), threshold: float | None = None
) -> Collected:
    """Rows of one metric as what a card is made of."""
    indices: dict[tuple[str, str, str], int] = {}
    numbered_rows = [(indices.setdefault(row.key, len(indices)), row) for row in rows]
    numbered = any(row.run is not None for row in rows)
    # Numbers of runs begin anew in each file.
    turn = {run: at for at, run in enumerate(sorted({(row.file, row.run) for row in rows}))}
    labels: dict[int, list[Any]] = defaultdict(list)
    for case, row in numbered_rows:
        labels[case] += row.labels
    runs = list(_runs(numbered_rows, labels.values()))
    contests = None
    verdicts = VerdictRows(Places(()), name, scale, counted=not numbered, alone=True)
    if any(row.candidate for row in rows):
        contests = _contests(runs, scale, turn if numbered else {})
        labels = _right_candidates(numbered_rows, contests.names)
    else:
        # A judge that is the only one is no setting.
        sole = {"judge": ""} if len({row.at.get("judge") or "" for _, row in runs}) == 1 else {}
        for case, row in runs:
            cells = {**NO_CELLS, **row.at, **sole, "case": case, "run": turn[row.file, row.run],
                     "verdict": row.verdict, "score": row.score}  # fmt: skip
            verdicts.add(cells, row.where)
    cases = list(_cases(numbered_rows))
    return Collected(
        Observations(tuple(verdicts.observations())), _metric(name, rows, scale, threshold),
        cases, dict(filter(itemgetter(1), one_each(labels).items())),
        "input" if 1 < len({case.input for case in cases}) < len(cases) else None, runs, contests,
    )  # fmt: skip


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
    values: dict[str, dict[int, str]] = {}
    varying: set[str] = set()
    for case, row in rows:
        for name, text in row.columns.items():
            if name.strip().casefold() in _COLUMNS or not isinstance(text, str):
                continue
            if values.setdefault(name, {}).setdefault(case, text) != text:
                varying.add(name)
    fields = defaultdict[int, dict[str, str]](dict)
    for name in filterfalse(varying.__contains__, values):
        for case, text in values[name].items():
            fields[case][name] = text
    return fields


def _runs(rows: NumberedRows, labels: Iterable[list[Any]]) -> Iterator[tuple[int, Row]]:
    """The rows that are runs, after the numbers of their cases.

    One that repeats a verdict beside another person's label is none. Raises InputError for a second
    row of a case that nothing shows to be another run of it.
    """
    people = any(len({str(label) for label in own if label is not None}) > 1 for own in labels)
    settings: dict[int, str] = {}  # rows share what they have in common
    first: dict[int, Row] = {}
    for case, row in rows:
        setting = settings.get(id(row.at)) or settings.setdefault(id(row.at), str(row.at))
        key = hash((case, row.candidate, row.file, row.run, setting))
        before = first.setdefault(key, row)
        if (before.case, before.candidate, before.run) != (row.case, row.candidate, row.run):
            before = row  # two keys may have one hash
        same = (row.verdict, row.score) == (before.verdict, before.score)
        proved = row.run is None and bool(row.texts)
        if before is row or (proved and not (people and same and row.label is not None)):
            yield case, row
        elif row.label is None or not same:
            raise InputError(
                f"{row.where}: a second verdict on the case {row.case!r} (the first is in "
                f"{before.where}); nothing shows that they are two runs: number the runs from 0 in "
                "a column `run`, or add what was judged (`input`, `output`)"
            )


def _of_metric(path: Path, metric: str | None) -> tuple[str, list[Row]]:
    """The name of the metric that is meant, and its rows."""
    rows = list(_rows(path))
    names = list(dict.fromkeys(row.metric for row in rows))
    if metric is not None and metric not in names:
        raise InputError(f"{path} has no metric {metric!r}; it has {', '.join(map(repr, names))}")
    if metric is None and len(names) > 1:
        raise InputError(
            f"{path} has verdicts of {len(names)} metrics or nodes; choose one: "
            f"--metric {names[0]!r} (the others: {', '.join(map(repr, names[1:]))})"
        )
    meant = [row.without_gaps() for row in rows if metric in (None, row.metric)]
    if all(row.verdict is row.score is None for row in meant):
        raise InputError(f"{path} has no verdict and no score")
    return meant[0].metric or "verdict", meant


_NO_TEXT: tuple[Any, ...] = (None, "", [])


# Candidates of a case.


def _right_candidates(rows: NumberedRows, names: Sequence[Sequence[str]]) -> dict[int, list[Any]]:
    """The name of the right candidate of each case, which has a label.

    A label names it in every row of the case, or says yes or no of the candidate of its row.
    """
    labels: dict[int, dict[str, str]] = {}
    for case, row in rows:
        if not is_gap(row.label):
            labels.setdefault(case, {})[row.candidate] = str(row.label).removesuffix(".0")
    right: dict[int, list[Any]] = {}
    for case, own in labels.items():
        named = [*{*own.values()}.intersection(names[case])]
        if len({*own.values()}) > 1 or not named:
            named = [name for name, label in own.items() if YES_OR_NO.get(plain_word(label))]
        if len(named) != 1:
            row = dict(reversed(rows))[case]
            raise InputError(
                f"{row.where}: the labels of the case {row.case!r} name {len(named)} right "
                f"candidates; write the name of one in all of its rows, or yes and no"
            )
        right[case] = named
    return right


def _contests(runs: NumberedRows, scale: Scale, turn: Mapping[Any, int]) -> Contests:
    """The scores of candidates; without numbers (`turn`), rows of a candidate are its runs."""
    if (bare := next((row for _, row in runs if not row.candidate), None)) is not None:
        raise InputError(f"{bare.where}: `candidate` is empty, but other rows name theirs")
    names: dict[int, dict[str, int]] = {}
    seen = Counter[tuple[Any, ...]]()
    cells: dict[Condition, list[tuple[int, int, int, float]]] = {}
    for case, row in runs:
        own = names.setdefault(case, {})
        candidate = own.setdefault(row.candidate, len(own))
        try:
            setting = setting_of(row.at)
            verdict, score = row.verdict, row.score
            if isinstance(verdict, str):
                raise ValueError(f"`verdict` is {verdict!r}, but candidates need scores")
            score = verdict if score is None else score
            share = math.nan if score is None else share_of_scale(score, scale)
        except ValueError as error:
            raise InputError(f"{row.where} is not a score: {error}") from None
        run = turn.get((row.file, row.run), seen[case, candidate, setting])
        seen[case, candidate, setting] += not turn
        cells.setdefault(setting, []).append((case, candidate, run, share))
    alone = next((row for case, row in runs if len(names[case]) < 2), None)
    if alone is not None:
        raise InputError(
            f"{alone.where}: the case {alone.case!r} has one candidate; two are needed"
        )
    candidates = [[*names[case]] for case in range(len(names))]
    return Contests(candidates, _score_arrays(cells, [*map(len, candidates)]))


def _score_arrays(
    cells: Mapping[Condition, Sequence[tuple[int, int, int, float]]], candidates: Sequence[int]
) -> dict[Condition, Any]:
    """Scores by case, candidate and run; `candidates` has their number for each case."""
    numpy = needs("numpy")
    width = max(run for own in cells.values() for _, _, run, _ in own) + 1
    scores: dict[Condition, Any] = {}
    for setting, filled in cells.items():
        case, candidate, run, share = map(numpy.array, zip(*filled, strict=True))
        scores[setting] = numpy.full((len(candidates), max(candidates), width), numpy.nan)
        scores[setting][case, candidate, run] = share
    if width == 1:  # each seed asked once: seeds are repeats of one setting
        merged: dict[Condition, list[Any]] = {}
        for setting, own in scores.items():
            merged.setdefault(replace(setting, seed=None), []).append(own)
        if len(merged) < len(scores):
            scores = {at: numpy.concatenate(parts, 2) for at, parts in merged.items()}
    for array in scores.values():
        for case, count in enumerate(candidates):
            array[case, count:] = -numpy.inf
    return scores


def _metric(name: str, rows: Sequence[Row], scale: Scale, threshold: float | None) -> Metric:
    """A metric with one node that says what the file says, and reads what it has of the cases."""
    reads = ["input"]
    if any(row.texts for row in rows):
        # Columns without a meaning were not judged.
        reads = ["additional_metadata"]
        if rows[0].columns.keys() - _COLUMNS:
            reads = ["additional_metadata.texts"]
    kinds = dict.fromkeys(present(row.verdict for row in rows))
    low, high = scale
    level = 0.5 if threshold is None else (threshold - low) / (high - low)
    node: Any
    if not kinds:
        node = RatingNode("Given.", reads, name=name)
    elif all(isinstance(kind, bool) for kind in kinds):
        then: Any = {True: 10, False: 0}
        node = BinaryJudgementNode("Given.", name=name, evaluation_params=reads, then=then)
    else:
        verdicts = [*map(str, kinds)]
        step = 10 / max(len(verdicts) - 1, 1)
        then = {verdict: round(index * step) for index, verdict in enumerate(verdicts)}
        # The scores only tell verdicts apart: without a threshold none of them passes or fails.
        node = NonBinaryJudgementNode("Given.", name=name, evaluation_params=reads, then=then)
        return DAGMetric(name, DAG(node), threshold=None)
    return DAGMetric(name, DAG(node), threshold=level)


_WORDS = {**YES_OR_NO, "c": True, "i": False}
_PARTLY = {"c": 1.0, "p": 0.5, "i": 0.0, "n": 0.0}
"""inspect's letters as scores: correct, partly correct, incorrect, no answer."""


def _verdict(value: Any) -> tuple[str | bool | None, float | None]:
    """A cell as a verdict or a score: yes and no in all their forms, numbers, names."""
    if is_gap(value):
        return None, None
    if isinstance(value, bool):
        return value, None
    if isinstance(value, int | float):
        return None, float(value)
    return _WORDS.get(plain_word(value), str(value)), None


def _rows(path: Path) -> Iterator[Row]:
    """The rows of a file, or of all files and runs of a folder: each of them is one more run."""
    if (run := run_at(path)) is not None:
        yield from _of_run(run)
        return
    if path.is_dir():
        files = [file for file in sorted(path.iterdir()) if suffix_of(file) in _SUFFIXES
                 or run_at(file) is not None]  # fmt: skip
        if not files:
            raise InputError(f"{path} has no run and no result files ({', '.join(_SUFFIXES)})")
        for number, file in enumerate(files):
            yield from map(partial(replace, file=number), _rows(file))
        return
    if path.suffix.lower() == ".eval":
        yield from _inspect(
            _members(path, "samples/"), next(_members(path, "header.json"), {}).get("eval") or {}
        )
        return
    if suffix_of(path) == ".json":
        try:
            with open_content(path) as content:
                data: Any = shallow_value(content.read())
        except OSError as error:
            raise InputError(f"{path}: {error.strerror}") from None
        except ValueError as error:
            raise InputError(f"{path} is not JSON: {error}") from None
        if isinstance(data, dict):
            yield from _of_object(path, data)
            return
    yield from _table(path)


_SUFFIXES = (".json", ".jsonl", ".csv", ".tsv", ".parquet", ".eval")


def _of_run(run: Run) -> Iterator[Row]:
    """A run of ours: what each metric said of each case, lost scores as lost verdicts."""
    judge = ", ".join(judge.model or judge.identity for judge in run.manifest.judges)
    # Two cases of one run are two cases, also where they have the same name.
    names = Counter(row.case for row in run.rows())
    at = {"judge": judge}
    for row, case in run.with_cases():
        name = row.case if names[row.case] == 1 else f"case {row.index}"
        texts = {name: (case or {}).get(name) for name in JUDGED}
        about = (case or {}).get("additional_metadata") or {}
        for result in row.metrics:
            score = result.score if result.success is None else None
            made = Row(name, result.metric, result.success, score, texts=texts, at=at)
            if (candidate := about.get("candidate")) is not None:
                # One of several answers to an input: its score counts, not whether it passes.
                asked, label = as_text(texts["input"] or name), about.get("label")
                made = replace(made, case=asked, candidate=str(candidate), verdict=None,
                               score=result.score, label=label)  # fmt: skip
            yield made


def _of_object(path: Path, data: Mapping[str, Any]) -> Iterator[Row]:
    """A file that is one JSON object: which tool wrote it is told by its keys."""
    results, run = data.get("results"), data.get("testRunData", data)
    results = results.get("results") if isinstance(results, dict) else results
    if isinstance(results, list):
        yield from chain.from_iterable(map(_promptfoo, results))
    elif isinstance(run, dict) and {"testCases", "test_cases"} & run.keys():
        yield from _deepeval(run)
    elif "samples" in data or {"eval", "plan"} <= data.keys():
        yield from _inspect(data.get("samples") or (), data.get("eval") or {})
    elif {"columns", "data"} <= data.keys():
        for index, row in enumerate(data["data"]):
            yield from _mlflow(index, dict(zip(map(str, data["columns"]), row, strict=True)))
    else:
        raise InputError(f"{path}: {_SHAPES}")


_SHAPES = (
    "verdicts are read from runs, from results of promptfoo, deepeval, inspect and MLflow, and "
    "from tables with the columns `case` and `verdict`, `passed` or `score`"
)
_NO_CASE = f"no column `case`; {_SHAPES}"


def _promptfoo(row: Any) -> Iterator[Row]:
    """A result of `promptfoo eval -o results.json`, of one test, prompt and provider."""
    if not isinstance(row, Mapping) or "success" not in row:
        return
    # `--repeat` counts its repeats as further tests; the variables tell that they are one.
    test = json.dumps(row["vars"], sort_keys=True) if row.get("vars") else row.get("testIdx")
    provider = _provider_name(row.get("provider"))
    case = f"{test}, prompt {row.get('promptIdx', 0)}, {provider}".rstrip(", ")
    texts = {
        "input": row.get("vars") or (row.get("prompt") or {}).get("raw"),
        "actual_output": (row.get("response") or {}).get("output"),
    }
    yield from _number_metrics(
        Row(case, metric, verdict, texts=texts, at={"judge": judge})
        for metric, verdict, judge in _assertions(row)
    )


def _number_metrics(rows: Iterable[Row]) -> Iterator[Row]:
    """Rows about one case; a name that a metric has already gets a number: it is no other run."""
    names = Counter[str]()
    for row in rows:
        names[row.metric] += 1
        number = text_if(names[row.metric] > 1, f" {names[row.metric]}")
        yield replace(row, metric=row.metric + number)


def _assertions(row: Mapping[str, Any]) -> Iterator[tuple[str, bool | None, str]]:
    """Metric, verdict and judge of each assertion, and of the whole test if it has several.

    The result of an assertion does not name it if its judge failed: no verdict was given.
    """
    grading = row.get("gradingResult") or {}
    parts = grading.get("componentResults") or ()
    stated = (row.get("testCase") or {}).get("assert") or ()
    for index, part in enumerate(parts):
        assertion = part.get("assertion") or (stated[index] if index < len(stated) else {})
        yield (
            str(assertion.get("metric") or assertion.get("type") or ""),
            part.get("pass") if part.get("assertion") else None,
            _provider_name(assertion.get("provider")),
        )
    if len(parts) != 1:
        unjudged = not all(part.get("assertion") for part in parts)
        failed = unjudged if grading else row.get("error")
        yield "promptfoo", None if failed else bool(row["success"]), ""


def _provider_name(provider: Any) -> str:
    name = provider.get("id") if isinstance(provider, dict) else provider
    return str(name or "")


def _deepeval(run: Mapping[str, Any]) -> Iterator[Row]:
    """A test run of deepeval: cases with the data of their metrics."""
    keys = ("testCases", "test_cases", "conversationalTestCases")
    cases: Iterable[Mapping[str, Any]] = chain.from_iterable(run.get(key) or () for key in keys)
    for index, case in enumerate(cases):
        texts = {name: case.get(to_camel(name), case.get(name)) for name in JUDGED}
        results: Sequence[Any] = case.get("metricsData") or case.get("metrics_data") or ()
        yield from _number_metrics(
            Row(
                str(case.get("name") or index), str(result.get("name")),
                None if result.get("error") else result.get("success"), texts=texts,
                at={"judge": result.get("evaluationModel") or result.get("evaluation_model")},
            )
            for result in results
        )  # fmt: skip


def _inspect(samples: Iterable[Mapping[str, Any]], log: Mapping[str, Any]) -> Iterator[Row]:
    """Samples of a log of inspect, one per epoch; a scorer may give several values.

    `log` says which task it is of, and which model answered: another model is another setting.
    """
    samples = sorted(samples, key=lambda sample: sample.get("epoch") or 0)
    table = [dict(_inspect_values(sample.get("scores") or {})) for sample in samples]
    scorers = dict.fromkeys(chain.from_iterable(table))
    partly = {name for name in scorers if "p" in (plain_word(own.get(name)) for own in table)}
    for sample, values in zip(samples, table, strict=True):
        texts = {
            "input": sample.get("input"),
            "actual_output": (sample.get("output") or {}).get("completion"),
            "expected_output": sample.get("target"),
        }
        for scorer in scorers:  # a sample that ended with an error has no scores, but is a run
            value = values.get(scorer)
            if scorer in partly:
                value = _PARTLY.get(plain_word(value), value)
            yield Row(
                str(sample.get("id")), scorer, *_verdict(value), texts=texts,
                task=str(log.get("task") or ""), run=sample.get("epoch") or 1,
                at={"judge": str(log.get("model") or "")},
            )  # fmt: skip


def _inspect_values(scores: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """The values of a sample, by the names of its scorers."""
    for scorer, score in scores.items():
        value = score.get("value") if isinstance(score, dict) else score
        if isinstance(value, dict):
            yield from ((f"{scorer}/{name}", each) for name, each in value.items())
        else:
            yield scorer, value


def _members(path: Path, begin: str) -> Iterator[Mapping[str, Any]]:
    try:
        with zipfile.ZipFile(path) as archive:
            for member in archive.infolist():
                if member.filename.startswith(begin) and member.file_size < _LARGEST:
                    yield shallow_value(_unpack(archive, member))
    except (OSError, ValueError, zipfile.BadZipFile) as error:
        raise InputError(f"{path} is not a log of inspect: {error}") from None


def _unpack(archive: zipfile.ZipFile, member: zipfile.ZipInfo) -> bytes:
    """A file of an archive, which inspect packs by Zstandard: Python reads that from 3.14 on."""
    try:
        return archive.read(member)
    except NotImplementedError:
        try:
            import pyarrow
        except ModuleNotFoundError:
            raise MissingExtraError(
                f"{archive.filename} is packed by Zstandard: pip install 'dagengine[parquet]', or "
                "write it as JSON (inspect log convert --to json)"
            ) from None
    source: Any = archive.fp
    source.seek(member.header_offset + 26)  # the local header ends with two names of own lengths
    name, extra = struct.unpack("<HH", source.read(4))
    source.seek(member.header_offset + 30 + name + extra)
    packed = pyarrow.py_buffer(source.read(member.compress_size))
    with pyarrow.CompressedInputStream(packed, "zstd") as stream:
        unpacked: bytes = stream.read(_LARGEST)
    return unpacked


def _mlflow(place: int, row: Mapping[str, Any]) -> Iterator[Row]:
    """A row of MLflow's results: of `genai.evaluate` with assessments, else `NAME/score`."""
    request = next(filter(None, map(row.get, ("request", "inputs"))), place)
    case = request if isinstance(request, str) else json.dumps(request, sort_keys=True)
    answer = next(filter(None, map(row.get, ("response", "outputs", "predictions"))), None)
    texts = {"input": case, "actual_output": answer}
    if row.get("trace") or isinstance(row.get("assessments"), list):
        trace = json.loads(row["trace"]) if isinstance(row.get("trace"), str) else {}
        assessments = (trace.get("info") or {}).get("assessments") or row.get("assessments")
        yield from _feedback(case, texts, assessments or ())
        return
    for column, cell in row.items():
        name, _, kind = column.rpartition("/")
        if name and kind in ("score", "value"):
            yield Row(case, name, *_verdict(cell), texts=texts)


def _feedback(
    case: str, texts: Mapping[str, Any], assessments: Iterable[Mapping[str, Any]]
) -> Iterator[Row]:
    """Feedback of scorers; feedback of people under the same name is the label."""
    people: dict[str, list[Any]] = {}
    judged: list[tuple[str, str, Any]] = []
    for assessment in assessments:
        source = assessment.get("source") or {}
        if (feedback := assessment.get("feedback")) is None:
            continue  # an expectation: what the answer should be, not what somebody said of it
        name = str(assessment.get("assessment_name"))
        if source.get("source_type") == "HUMAN":
            people.setdefault(name, []).append(feedback.get("value"))
        else:
            judged.append((name, str(source.get("source_id") or ""), feedback.get("value")))
    for name, judge, value in judged:
        label, at = people.get(name), {"judge": judge}
        yield Row(case, name, *_verdict(value), label=label, texts=texts, at=at)


def _table(path: Path) -> Iterator[Row]:
    settings: dict[tuple[Any, ...], dict[str, Any]] = {}  # few, of many rows
    shared: dict[tuple[Any, ...], dict[str, Any]] = {}
    for index, record in enumerate(table_of(path, "row").read()):
        raw = record.cells(_NO_CASE)
        cells, verdict, score, run = _read_cells(raw, record.place)
        if "case" not in cells:
            rows = [*_promptfoo(raw)] or [*_mlflow(index, raw)]
            yield from rows
            if rows or "trace" in raw:
                continue
            raise InputError(f"{record.place}: {_NO_CASE}")
        if (case := cells["case"]) is None:
            raise InputError(f"{record.place}: `case` is empty or missing")
        filled = without_nulls(cells)
        label = filled.get("label")
        names = map(str, _part_of(filled, ("metric", "node")).values())
        at = _part_of(filled, SETTINGS)
        texts = _part_of(filled, filter(JUDGED.__contains__, filled))
        yield Row(
            sys.intern(str(case).removesuffix(".0")), "/".join(names), verdict, score,
            sys.intern(label) if isinstance(label, str) else label,
            {"actual_output": filled["output"]} | texts if "output" in filled else texts or _NONE,
            run=run, at=settings.setdefault(tuple(at.items()), at), where=record.place,
            candidate=sys.intern(str(filled.get("candidate", "")).removesuffix(".0")),
            confidence=filled.get("confidence"), columns=_columns(raw, shared),
        )  # fmt: skip


def _read_cells(
    raw: Mapping[str, Any], place: str
) -> tuple[dict[str, Any], str | bool | None, Any, int | None]:
    """The cells of a row by the names that have a meaning; its verdict, its score and its run."""
    try:
        cells = named_cells(raw, _COLUMNS)
        verdict, score = verdict_and_score(cells)
        run = whole_in(cells["run"], "run") if "run" in cells else None
    except ValueError as error:
        raise InputError(f"{place}: {error}") from None
    verdict, number = _verdict(verdict)
    return cells, verdict, score if number is None else number, run


def _columns(
    raw: Mapping[str, Any], shared: dict[tuple[Any, ...], dict[str, Any]]
) -> dict[str, Any]:
    """The columns that are no results; rows with equal ones share them."""
    about = tuple((name, cell) for name, cell in raw.items() if name not in _RESULTS)
    try:
        return shared.setdefault(about, dict(about))
    except TypeError:  # a list
        return dict(about)


def _part_of(cells: Mapping[str, Any], names: Iterable[str]) -> dict[str, Any]:
    return {name: cells[name] for name in names if name in cells}


_RESULTS = ("run", "verdict", "passed", "success", "score", "label", "confidence")
_NONE: Mapping[str, Any] = {}
_COLUMNS = (
    "case", "candidate", "metric", "node", "verdict", "passed", "success", "score", "label", "run",
    "output", "confidence", *SETTINGS, *JUDGED,
)  # fmt: skip
