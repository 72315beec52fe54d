"""What a run gives to machines: figures, conditions on them, JUnit, the page of a workflow."""

from __future__ import annotations

import json
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest
from folders.recorded_runs import CASES, judge, polite

from dagengine import evaluate
from dagengine.errors import InputError
from dagengine.gateway import Limits
from dagengine.record import load_run
from dagengine.record.run_fail_if import Costs, Figures, Quantiles, conditions_of, failures
from dagengine.report.tables_and_junit import step_summary, write_junit
from dagengine.report.tally import Tally
from dagengine.results import CaseResult, EvaluationResult, Failure, MetricResult, OutcomeKind

HOSTILE = "</testcase><script>alert(1)</script>\x00\x1b[2J\ud800\ufffe @somebody [x](http://e) `c`"


@pytest.fixture(scope="module")
def result() -> EvaluationResult:
    limits = Limits(prices={"*": (1000.0, 10_000.0)})
    return evaluate(CASES, [polite()], model=judge(), show=False, limits=limits)


def test_the_summary_in_the_folder_is_that_of_the_result(
    tmp_path: Path, result: EvaluationResult
) -> None:
    result.save(tmp_path)
    written = json.loads((tmp_path / "summary.json").read_text())
    assert written.pop("format") == 1
    assert written.pop("exit") == "failed"
    judge = {"identity": "scripted script", "model": None, "standing": None}
    assert written.pop("judges") == [judge]
    assert written == json.loads(json.dumps(result.summary().as_dict()))
    assert result.summary().tags["de"][0].failed == 1


@pytest.mark.parametrize(
    ("condition", "fails"),
    [
        ("Manners.mean<0.6", True),  # 1 and 0
        ("Manners.mean<0.5", False),
        ("Manners.median<=0.5", True),
        ("Manners.no-score>0", True),
        ("pass-rate<0.9", True),
        ("pass-rate.low<0.05", False),
        ("failed>1", False),
        ("cases<3", False),
        ("cases<=3", True),
        ("tokens>440", False),
        ("p95.tokens>300", True),  # 330 for the case that asked three times
        ("p95.cost>0.59", True),  # three calls, each for 0.2
        ("p95.cost>0.61", False),
        ("p50.cost>0.21", False),
    ],
)
def test_a_condition_fails_a_run_exactly_where_it_holds(
    result: EvaluationResult, condition: str, fails: bool
) -> None:
    manifest = result.record.end[0]  # type: ignore[union-attr]
    costs = Costs(manifest)
    for row in result:
        costs.add(row)
    figures = Figures(result.summary(), result.totals, costs)
    lines = failures(conditions_of([condition], ["Manners"]), figures)
    assert bool(lines) == fails
    assert all(line.startswith(f"{condition}: it is ") for line in lines)


@pytest.mark.parametrize(
    ("condition", "words"),
    [
        ("mean", "write a measure, a comparison sign"),
        ("Manners.mean<0.8.1", "not a number"),
        ("Maners.mean<0.8", "did you mean 'Manners'"),
        ("Manners.cost>1", "'cost' is not a measure here; measures are mean"),
        ("mean<1", "'mean' is not a measure here; measures are pass-rate"),
        ("Manners.mean.low<1", r"only pass-rate has \.low"),
        ("p95.mean>1", "measures are cost, tokens"),
        ("pass-rate<50", "pass-rate is from 0 to 1; write 0.5 for 50 %"),
        ("Manners.median<5", "median is from 0 to 1"),
    ],
)
def test_what_is_no_condition_of_the_run_is_refused(condition: str, words: str) -> None:
    with pytest.raises(InputError, match=words):
        conditions_of([condition], ["Manners"])


def test_without_a_price_no_condition_on_money_is_met(tmp_path: Path) -> None:
    result = evaluate(CASES, [polite()], model=judge(), show=False, out=tmp_path)
    costs = Costs(load_run(tmp_path).manifest)
    for row in result:
        costs.add(row)
    figures = Figures(result.summary(), result.totals, costs)
    (line,) = failures(conditions_of(["p95.cost>1"], ["Manners"]), figures)
    assert "no price is known" in line


@pytest.mark.parametrize("share", [0.01, 0.5, 0.95, 0.99])
def test_a_quantile_is_exact_to_half_a_per_cent(share: float) -> None:
    values = [0.0001 * n**2 for n in range(1, 1001)]
    squares, zeros = Quantiles(), Quantiles()
    for value in values:
        squares.add(value)
        zeros.add(0.0)
    at = squares.at(share)
    assert at == pytest.approx(values[round(share * 1000) - 1], rel=0.005)
    assert zeros.at(share) == 0
    assert Quantiles().at(share) is None


def broken() -> list[CaseResult]:
    failure = Failure(OutcomeKind.TIMEOUT, HOSTILE, HOSTILE)
    lost = MetricResult(HOSTILE, None, None, None, failure=failure)
    low = MetricResult(HOSTILE, 0.25, False, HOSTILE, threshold=0.5)
    fine = MetricResult(HOSTILE, 1.0, True, HOSTILE)
    return [CaseResult(n, HOSTILE, (one,)) for n, one in enumerate((fine, low, lost))]


def test_junit_has_a_test_per_case_and_metric_whatever_they_are_called(tmp_path: Path) -> None:
    rows = broken()
    write_junit(tmp_path / "deep" / "j.xml", rows, EvaluationResult(tuple(rows)).summary())
    root = ET.parse(tmp_path / "deep" / "j.xml").getroot()
    assert root.attrib == {"tests": "3", "failures": "1", "errors": "1"}
    cases = list(root.iter("testcase"))
    assert [[child.tag for child in case] for case in cases] == [[], ["failure"], ["error"]]
    assert cases[1][0].attrib["message"].startswith("score 0.25 at </testcase><script>")
    assert cases[2][0].attrib["type"] == "timeout"


def test_the_page_of_a_workflow_shows_hostile_text_as_it_stands() -> None:
    page = step_summary(Tally(broken()), EvaluationResult(()).totals)
    assert "<script" not in page
    assert "&lt;script&gt;" in page
    assert page.startswith("<h3>1 of 3 cases failed; 1 has no score</h3>")
    assert page.count("\n") == 2  # no line of it is Markdown
