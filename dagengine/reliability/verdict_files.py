"""Verdicts of any judge, from the result files of other tools: rows, a metric and cases for a card.

Read by their shape, not by their names: promptfoo's JSON, a test run of deepeval, logs of inspect
(`.json` and `.eval`), MLflow's table of results, and any table with the columns `case` and
`verdict`, `passed` or `score`. A repeated case is another run of it.
"""

from __future__ import annotations

import json
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dagengine.data.records import table_of
from dagengine.errors import InputError
from dagengine.graph.graph import Metric
from dagengine.metrics import DAGMetric
from dagengine.metrics.dag import DAG, BinaryJudgementNode, NonBinaryJudgementNode, RatingNode
from dagengine.reliability.observations import Observations
from dagengine.test_case import LLMTestCase, TestCase

_LARGEST = 512 * 2**20  # bytes of one file of a log


@dataclass(frozen=True, slots=True)
class Row:
    """One verdict: of a metric about a case, a name or a number, and what people say if it is
    known. `text` is what was judged, `judge` who judged it; both may be empty."""

    case: str
    metric: str
    verdict: str | bool | None = None
    score: float | None = None
    label: Any = None
    text: str = ""
    judge: str = ""


@dataclass(frozen=True, slots=True)
class Collected:
    """What a card is made of: observations about a metric and cases, and labels by case number."""

    observations: Observations
    metric: Metric
    cases: Sequence[TestCase]
    labels: Mapping[int, Any]


def collected(
    path: Path, *, metric: str | None = None, scale: tuple[float, float] = (0.0, 1.0),
    threshold: float | None = None,
) -> Collected:  # fmt: skip
    """The verdicts of a file, for a card without metrics or judges of ours.

    `metric` names one of several. Scores go from the first to the second number of `scale` and pass
    from `threshold` on (0.5 of the way, if none is given). Raises InputError for a file of another
    shape, several metrics of which none is named, and numbers outside of the scale.
    """
    name, rows = _of_metric(path, list(_rows(path)), metric)
    texts = {row.case: row.text for row in rows if row.text}
    cases = {
        row.case: LLMTestCase(input=row.case, name=row.case, actual_output=texts.get(row.case))
        for row in rows
    }
    places = {case: place for place, case in enumerate(cases)}
    several = len({row.judge for row in rows}) > 1
    table = [
        {"case": places[row.case], "verdict": row.verdict, "score": row.score,
         "judge": row.judge if several else ""}
        for row in rows
    ]  # fmt: skip
    seen = Observations.load(table, list(cases.values()), metric=name, scale=scale)
    labels = {places[row.case]: row.label for row in rows if row.label is not None}
    return Collected(seen, _metric(name, rows, scale, threshold), list(cases.values()), labels)


def _of_metric(path: Path, rows: Sequence[Row], metric: str | None) -> tuple[str, list[Row]]:
    """The name of the metric that is meant, and its rows."""
    names = list(dict.fromkeys(row.metric for row in rows))
    if metric is not None and metric not in names:
        raise InputError(f"{path} has no metric {metric!r}; it has {', '.join(map(repr, names))}")
    if metric is None and len(names) > 1:
        raise InputError(
            f"{path} has verdicts of {len(names)} metrics; choose one: --metric {names[0]!r} "
            f"(the others: {', '.join(map(repr, names[1:]))})"
        )
    meant = [row for row in rows if metric in (None, row.metric)]
    if not any(row.verdict is not None or row.score is not None for row in meant):
        raise InputError(f"{path} has no verdict and no score")
    return meant[0].metric or "verdict", meant


def _metric(
    name: str, rows: Sequence[Row], scale: tuple[float, float], threshold: float | None
) -> Metric:
    """A metric with one node that says what the file says."""
    kinds = dict.fromkeys(row.verdict for row in rows if row.verdict is not None)
    low, high = scale
    level = 0.5 if threshold is None else (threshold - low) / (high - low)
    node: Any
    if not kinds:
        node = RatingNode("Given.", ["input"], name=name)
    elif {_plain(kind) for kind in kinds} <= {"true", "false"}:
        then: Any = {True: 10, False: 0}
        node = BinaryJudgementNode("Given.", name=name, evaluation_params=["input"], then=then)
    else:
        verdicts = [str(kind) for kind in kinds]
        step = 10 / max(len(verdicts) - 1, 1)
        then = {verdict: round(place * step, 3) for place, verdict in enumerate(verdicts)}
        # The scores only tell verdicts apart: without a threshold none of them passes or fails.
        node = NonBinaryJudgementNode("Given.", name=name, evaluation_params=["input"], then=then)
        return DAGMetric(name, DAG(node), threshold=None)
    return DAGMetric(name, DAG(node), threshold=level)


_WORDS = {
    **dict.fromkeys(("true", "pass", "passed", "yes", "c", "correct", "1"), True),
    **dict.fromkeys(("false", "fail", "failed", "no", "i", "incorrect", "0"), False),
}


def _plain(value: object) -> str:
    return str(value).casefold()


def _verdict(value: Any) -> tuple[str | bool | None, float | None]:
    """A cell as a verdict or a score: yes and no in all their forms, numbers, names."""
    if value is None or value == "" or value != value:
        return None, None
    if isinstance(value, bool):
        return value, None
    if isinstance(value, int | float):
        return None, float(value)
    return _WORDS.get(_plain(value), str(value)), None


def _rows(path: Path) -> Iterator[Row]:
    if path.suffix.lower() == ".eval":
        yield from _inspect_archive(path)
        return
    if path.suffix.lower() == ".json":
        try:
            data: Any = json.loads(path.read_bytes())
        except OSError as error:
            raise InputError(f"{path}: {error.strerror}") from None
        except (ValueError, RecursionError) as error:
            raise InputError(f"{path} is not JSON: {error}") from None
        for shape in (_promptfoo, _deepeval, _inspect, _mlflow):
            if rows := list(shape(data)):
                yield from rows
                return
    yield from _table(path)


def _promptfoo(data: Any) -> Iterator[Row]:
    """`promptfoo eval -o results.json`: a result per test, prompt and provider."""
    results = data.get("results") if isinstance(data, dict) else None
    rows = results.get("results") if isinstance(results, dict) else results
    for row in rows if isinstance(rows, list) else ():
        if not isinstance(row, dict) or "success" not in row:
            return
        provider = row.get("provider") or {}
        named = provider.get("id", "") if isinstance(provider, dict) else str(provider)
        test = row.get("testIdx", json.dumps(row.get("vars"), sort_keys=True))
        output = (row.get("response") or {}).get("output", "")
        yield Row(
            f"test {test}, prompt {row.get('promptIdx', 0)}, {named}".rstrip(", "), "promptfoo",
            None if row.get("error") and not row.get("gradingResult") else bool(row["success"]),
            text=output if isinstance(output, str) else json.dumps(output),
        )  # fmt: skip


def _deepeval(data: Any) -> Iterator[Row]:
    """A test run of deepeval: cases with the data of their metrics."""
    run: Any = data.get("testRunData", data) if isinstance(data, dict) else {}
    cases: list[Any] = []
    if isinstance(run, dict):
        cases = run.get("testCases") or run.get("test_cases") or []
    for place, case in enumerate(cases):
        results: Sequence[Any] = case.get("metricsData") or case.get("metrics_data") or ()
        for result in results:
            yield Row(
                str(case.get("name") or place), str(result.get("name")),
                None if result.get("error") else bool(result.get("success")),
                text=str(case.get("actualOutput") or case.get("actual_output") or ""),
                judge=str(result.get("evaluationModel") or result.get("evaluation_model") or ""),
            )  # fmt: skip


def _inspect(data: Any) -> Iterator[Row]:
    """A log of inspect: samples with scores, one sample per epoch."""
    samples = data.get("samples") if isinstance(data, dict) else None
    for sample in samples or ():
        yield from _sample(sample)


def _sample(sample: Mapping[str, Any]) -> Iterator[Row]:
    output = (sample.get("output") or {}).get("completion", "")
    for scorer, score in (sample.get("scores") or {}).items():
        verdict, number = _verdict(score.get("value") if isinstance(score, dict) else score)
        yield Row(str(sample.get("id")), str(scorer), verdict, number, text=str(output or ""))


def _inspect_archive(path: Path) -> Iterator[Row]:
    try:
        with zipfile.ZipFile(path) as archive:
            for member in archive.infolist():
                if member.filename.startswith("samples/") and member.file_size < _LARGEST:
                    yield from _sample(json.loads(archive.read(member)))
    except (OSError, ValueError, NotImplementedError, zipfile.BadZipFile) as error:
        raise InputError(f"{path} is not a log of inspect: {error}") from None


def _mlflow(data: Any) -> Iterator[Row]:
    """MLflow's `eval_results_table.json`: columns and data; metrics are `NAME/score`."""
    if not isinstance(data, dict) or not {"columns", "data"} <= data.keys():
        return
    columns = [str(column) for column in data["columns"]]
    scored = [k for k, name in enumerate(columns) if name.endswith(("/score", "/value"))]
    inputs = next((k for k, name in enumerate(columns) if name in ("inputs", "request")), None)
    outputs = next((k for k, name in enumerate(columns) if name in ("outputs", "response")), None)
    for place, row in enumerate(data["data"]):
        case = str(place if inputs is None else row[inputs])
        for column in scored:
            verdict, number = _verdict(row[column])
            name = columns[column].rsplit("/", 1)[0]
            text = "" if outputs is None else str(row[outputs])
            yield Row(case, name, verdict, number, text=text)


def _table(path: Path) -> Iterator[Row]:
    for record in table_of(path, "row").read():
        cells = record.value
        if not isinstance(cells, Mapping) or "case" not in cells:
            raise InputError(
                f"{record.place}: {record.problem or 'no column `case`'}. Verdicts are read from "
                "results of promptfoo, deepeval, inspect and MLflow, and from tables with the "
                "columns `case` and `verdict`, `passed` or `score`"
            )
        verdict, number = _verdict(
            next((cells[name] for name in ("verdict", "passed", "success", "score")
                  if cells.get(name) not in (None, "")), None)
        )  # fmt: skip
        if number is None and cells.get("verdict") in (None, "") and cells.get("score") is not None:
            verdict, number = None, _as_number(cells["score"])
        label = cells.get("label")
        yield Row(
            str(cells["case"]), str(cells.get("metric") or ""), verdict, number,
            None if label in (None, "") else label, str(cells.get("output") or ""),
            str(cells.get("judge") or ""),
        )  # fmt: skip


def _as_number(cell: Any) -> float | None:
    try:
        return float(cell)
    except (TypeError, ValueError):
        return None
