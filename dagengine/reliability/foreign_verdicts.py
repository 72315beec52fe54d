"""Verdicts of any judge as rows, from the result files of other tools and from runs of ours.

Files are read by their shape, not by their names: promptfoo's JSON, a test run of deepeval, logs of
inspect (`.json` and `.eval`), MLflow's table of results, runs of ours, and any table with the
columns `case` and `verdict`, `passed` or `score`.
"""

from __future__ import annotations

import json
import struct
import sys
import zipfile
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import chain, repeat
from operator import attrgetter
from pathlib import Path
from typing import Any

from pydantic.alias_generators import to_camel

from dagengine.data.case_lookup import JUDGED, is_gap, named_cells
from dagengine.data.row_readers import open_content, suffix_of, table_of
from dagengine.data.written_lines import without_nulls
from dagengine.errors import InputError, MissingExtraError
from dagengine.prompts.evidence import as_text
from dagengine.prompts.json_in_text import shallow_value
from dagengine.record.reader import Run, run_at
from dagengine.reliability.observations import (
    SETTINGS,
    YES_OR_NO,
    plain_word,
    verdict_and_score,
    whole_in,
)
from dagengine.system.terminal_text import text_if

_LARGEST = 512 * 2**20  # bytes of one file of a log
_SUFFIXES = (".json", ".jsonl", ".csv", ".tsv", ".parquet", ".eval")
_SHAPES = (
    "verdicts are read from runs, from results of promptfoo, deepeval, inspect and MLflow, and "
    "from tables with the columns `case` and `verdict`, `passed` or `score`"
)
_NO_CASE = f"no column `case`; {_SHAPES}"
_RESULTS = ("run", "verdict", "passed", "success", "score", "label", "confidence")
COLUMNS = ("case", "candidate", "metric", "node", *_RESULTS, "output", *SETTINGS, *JUDGED)
"""The columns of a table that have a meaning."""
_NO_TEXT: tuple[Any, ...] = (None, "", [])
_NONE: Mapping[str, Any] = {}  # many rows share it
_LETTERS = {"c": True, "i": False}
"""inspect's letters as verdicts: correct, incorrect."""
_PARTLY = {"c": 1.0, "p": 0.5, "i": 0.0, "n": 0.0}
"""inspect's letters as scores: correct, partly correct, incorrect, no answer."""


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


def rows_of(path: Path) -> Iterator[Row]:
    """The rows of a file, or of all files and runs of a folder: each of them is one more run.

    Raises InputError for a file of another shape, and for a row without a case.
    """
    if (run := run_at(path)) is not None:
        yield from _of_run(run)
        return
    if path.is_dir():
        files = [file for file in sorted(path.iterdir()) if suffix_of(file) in _SUFFIXES
                 or run_at(file) is not None]  # fmt: skip
        if not files:
            raise InputError(f"{path} has no run and no result files ({', '.join(_SUFFIXES)})")
        for number, file in enumerate(files):
            yield from map(partial(replace, file=number), rows_of(file))
        return
    if path.suffix.lower() == ".eval":
        log = next(_members(path, "header.json"), {}).get("eval") or {}
        yield from _inspect(_members(path, "samples/"), log)
    else:
        yield from _of_json(path) if suffix_of(path) == ".json" else _table(path)


def _of_run(run: Run) -> Iterator[Row]:
    """A run of ours: what each metric said of each case, lost scores as lost verdicts."""
    at = {"judge": ", ".join(judge.model or judge.identity for judge in run.manifest.judges)}
    # Two cases of one run are two cases, also where they have the same name.
    names = Counter(map(attrgetter("case"), run.rows()))
    for row, case in run.with_cases():
        fields = case or {}
        name = row.case if names[row.case] == 1 else f"case {row.index}"
        texts = {path: fields.get(path) for path in JUDGED}
        about = fields.get("additional_metadata") or {}
        for result in row.metrics:
            made = Row(name, result.metric, result.success, texts=texts, at=at)
            if (candidate := about.get("candidate")) is not None:
                # One of several answers to an input: its score counts, not whether it passes.
                made = replace(
                    made, case=as_text(texts["input"] or name), candidate=str(candidate),
                    verdict=None, score=result.score, label=about.get("label"),
                )  # fmt: skip
            elif result.success is None:
                made = replace(made, score=result.score)
            yield made


def _of_json(path: Path) -> Iterator[Row]:
    """The rows of a JSON file: the object of a tool, or a list, which is a table."""
    try:
        with open_content(path) as content:
            data: Any = shallow_value(content.read())
    except OSError as error:
        raise InputError(f"{path}: {error.strerror}") from None
    except ValueError as error:
        raise InputError(f"{path} is not JSON: {error}") from None
    yield from _of_object(path, data) if isinstance(data, dict) else _table(path)


def _of_object(path: Path, data: Mapping[str, Any]) -> Iterator[Row]:
    """The rows of one JSON object: which tool wrote it is told by its keys."""
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


def _promptfoo(row: Any) -> Iterator[Row]:
    """A result of `promptfoo eval -o results.json`, of one test, prompt and provider."""
    if not isinstance(row, Mapping) or "success" not in row:
        return
    # `--repeat` counts its repeats as further tests; the variables tell that they are one.
    test = json.dumps(row["vars"], sort_keys=True) if row.get("vars") else row.get("testIdx")
    provider = _provider_name(row.get("provider"))
    case = f"{test}, prompt {row.get('promptIdx', 0)}, {provider}".rstrip(", ")
    texts = {
        "input": row.get("vars") or _inner(row, "prompt", "raw"),
        "actual_output": _inner(row, "response", "output"),
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
    parts = _inner(row, "gradingResult", "componentResults") or ()
    stated = _inner(row, "testCase", "assert") or ()
    for part, as_stated in zip(parts, chain(stated, repeat({})), strict=False):
        assertion = part.get("assertion") or as_stated
        yield (
            str(assertion.get("metric") or assertion.get("type") or ""),
            part.get("pass") if part.get("assertion") else None,
            _provider_name(assertion.get("provider")),
        )
    if len(parts) != 1:
        unjudged = not all(part.get("assertion") for part in parts)
        failed = unjudged if row.get("gradingResult") else row.get("error")
        yield "promptfoo", None if failed else bool(row["success"]), ""


def _inner(fields: Mapping[str, Any], name: str, key: str) -> Any:
    """The value at `key` of the object at `name`; None without such an object."""
    return (fields.get(name) or {}).get(key)


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
            "actual_output": _inner(sample, "output", "completion"),
            "expected_output": sample.get("target"),
        }
        for scorer in scorers:  # a sample that ended with an error has no scores, but is a run
            letters = _PARTLY if scorer in partly else _LETTERS
            value = values.get(scorer)
            verdict, score = _verdict(letters.get(plain_word(value), value))
            yield Row(
                str(sample.get("id")), scorer, verdict, score, texts=texts,
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
        assessments = _inner(trace, "info", "assessments") or row.get("assessments")
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
    """The rows of a table with the columns `COLUMNS`, of promptfoo's or of MLflow's."""
    settings: dict[tuple[Any, ...], dict[str, Any]] = {}  # few, of many rows
    shared: dict[tuple[Any, ...], dict[str, Any]] = {}
    for index, record in enumerate(table_of(path, "row").read()):
        raw = record.cells(_NO_CASE)
        cells = _read_cells(raw, record.place)
        if "case" not in cells:
            rows = [*_promptfoo(raw)] or [*_mlflow(index, raw)]
            yield from rows
            if rows or "trace" in raw:
                continue
            raise InputError(f"{record.place}: {_NO_CASE}")
        if cells["case"] is None:
            raise InputError(f"{record.place}: `case` is empty or missing")
        filled = without_nulls(cells)
        label = filled.get("label")
        names = map(str, _part_of(filled, ("metric", "node")).values())
        at = _part_of(filled, SETTINGS)
        texts = _part_of(filled, JUDGED)
        yield Row(
            sys.intern(str(filled["case"]).removesuffix(".0")), "/".join(names),
            filled.get("verdict"), filled.get("score"),
            sys.intern(label) if isinstance(label, str) else label,
            {"actual_output": filled["output"]} | texts if "output" in filled else texts or _NONE,
            run=filled.get("run"), at=settings.setdefault(tuple(at.items()), at),
            where=record.place,
            candidate=sys.intern(str(filled.get("candidate", "")).removesuffix(".0")),
            confidence=filled.get("confidence"), columns=_columns(raw, shared),
        )  # fmt: skip


def _read_cells(raw: Mapping[str, Any], place: str) -> dict[str, Any]:
    """The cells of a row by the names that have a meaning; verdict, score and run are read."""
    try:
        cells = named_cells(raw, COLUMNS)
        verdict, score = verdict_and_score(cells)
        if "run" in cells:
            cells["run"] = whole_in(cells["run"], "run")
    except ValueError as error:
        raise InputError(f"{place}: {error}") from None
    verdict, number = _verdict(verdict)
    return {**cells, "verdict": verdict, "score": score if number is None else number}


def _part_of(cells: Mapping[str, Any], names: Iterable[str]) -> dict[str, Any]:
    return {name: cells[name] for name in names if name in cells}


def _columns(
    raw: Mapping[str, Any], shared: dict[tuple[Any, ...], dict[str, Any]]
) -> dict[str, Any]:
    """The columns that are no results; rows with equal ones share them."""
    about = tuple((name, cell) for name, cell in raw.items() if name not in _RESULTS)
    try:
        return shared.setdefault(about, dict(about))
    except TypeError:  # a list
        return dict(about)


def _verdict(value: Any) -> tuple[str | bool | None, float | None]:
    """A cell as a verdict or a score: yes and no in all their forms, numbers, names."""
    if is_gap(value):
        return None, None
    if isinstance(value, bool):
        return value, None
    if isinstance(value, int | float):
        return None, float(value)
    return YES_OR_NO.get(plain_word(value), str(value)), None
