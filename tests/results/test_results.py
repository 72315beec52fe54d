"""Results as a person meets them: short at the prompt, bounded in a file, exact about names."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest
from graphs.trees import yes_no
from hypothesis import given, settings
from hypothesis import strategies as st

from dagengine import Limits, evaluate
from dagengine.data import RowWriter, read_rows
from dagengine.errors import InputError
from dagengine.judges import ScriptedJudge
from dagengine.metrics import DAGMetric
from dagengine.metrics.dag import DAG, CodeNode
from dagengine.record import load_run
from dagengine.record.run_fail_if import Figures, conditions_of, failures
from dagengine.report.tables_and_junit import headline_of, step_summary
from dagengine.report.tally import Tally
from dagengine.results import (
    CaseResult,
    EvaluationResult,
    Failure,
    MetricResult,
    OutcomeKind,
    Step,
    Totals,
)
from dagengine.test_case import LLMTestCase
from dagengine.testing.session_summary import Gate, Outcome
from dagengine.testing.session_summary import Summary as Session

STEPS = tuple(Step(f"node {n}", "task", OutcomeKind.OK, output="x" * 1000) for n in range(20))
PASSED = MetricResult("Kind", 1.0, True, "why", threshold=0.5, steps=STEPS)
SHORT = MetricResult("Short", 0.25, False, "why", threshold=0.5, steps=STEPS)
SCORED = MetricResult("Scored", 0.5, None, "why", steps=STEPS)
LATE = MetricResult("Late", None, None, None, failure=Failure(OutcomeKind.TIMEOUT, "n", "late"))


NOTHING = replace(LATE, failure=Failure(OutcomeKind.SKIPPED, "n", "nothing to judge"))


@settings(max_examples=60, deadline=None)
@given(*[st.integers(0, 6)] * 4, st.sampled_from([0.1, 0.5, 0.9, 1.0]))
def test_one_rule_of_pass_rates_is_shown_everywhere_and_one_gates_everywhere(
    passed: int, failed: int, late: int, nothing: int, least: float
) -> None:
    counts = ((PASSED, passed), (SHORT, failed), (LATE, late), (NOTHING, nothing))
    results = [replace(kind, metric="Kind") for kind, count in counts for _ in range(count)]
    rows = [CaseResult(number, f"c{number}", (each,)) for number, each in enumerate(results)]
    evaluated = EvaluationResult(tuple(rows), Totals())
    summary = evaluated.summary()
    scored, due = passed + failed, passed + failed + late
    for part in (summary, *summary):
        shown = None if part.pass_rate is None else part.pass_rate.value
        assert shown == (passed / scored if scored else None)
        assert part.expected == due
    session = Session()
    session.outcomes["t"] = [
        Outcome("t", n, "c", (), "Kind", each.score, each.success, str(each.outcome))
        for n, each in enumerate(results)
    ]
    words = "".join(session.lines())
    assert not scored or f"{passed} of {scored}" in words
    for count, kind in ((late, "timeout"), (nothing, "skipped")):
        assert (f"{count} {kind}" in words) == (count > 0)
    # A gate fails where no case has a result, or where more lack a score than the rate allows.
    misses = not scored or passed < least * due
    holds, why = Gate.read(f"Kind>={least}").check(session.all)
    assert (not holds) == (misses if due else True)
    assert not (late and due) or f"{late} without a score" in why
    for text in (f"pass-rate<{least}", f"Kind.pass-rate<{least}") if results else ():
        figures = Figures(summary, Totals(), None)  # type: ignore[arg-type]
        lines = failures(conditions_of([text], ["Kind"]), figures)
        assert bool(lines) == misses
        assert not (lines and scored and late) or f"{late} without a score" in lines[0]


def test_results_are_shown_in_one_line_that_says_what_matters() -> None:
    row = CaseResult(3, "refund", (PASSED, LATE))
    result = EvaluationResult((row, CaseResult(4, "b", (PASSED,))), Totals(asked=7, calls=5))
    assert repr(PASSED) == "<MetricResult 'Kind': score 1, passed>"
    assert repr(SHORT) == "<MetricResult 'Short': score 0.25, not passed>"
    assert repr(SCORED) == "<MetricResult 'Scored': score 0.5>"
    assert repr(LATE) == "<MetricResult 'Late': 'timeout at n: late'>"
    assert repr(row) == (
        "<CaseResult 3 'refund': 'Kind' score 1, passed; 'Late' 'timeout at n: late'>"
    )
    assert repr(result) == (
        "<EvaluationResult: 2 cases, 1 passed, 1 without a score; 7 questions, 5 judge calls>"
    )
    assert repr(EvaluationResult(())) == (
        "<EvaluationResult: 0 cases, 0 passed; 0 questions, 0 judge calls>"
    )


def test_a_repr_stays_short_and_harmless_whatever_names_hold() -> None:
    long = "\x1b[2J\u202e" + "n" * 16_000
    failed = MetricResult(long, None, None, None, failure=Failure(OutcomeKind.TIMEOUT, long, long))
    row = CaseResult(0, long, (failed,) * 50)
    for shown in (repr(failed), repr(row), repr(EvaluationResult((row,)))):
        assert len(shown) < 2000
        assert shown.isprintable()
    assert "45 more" in repr(row)


def test_scores_of_a_metric_that_did_not_run_are_an_error_with_the_near_miss() -> None:
    result = EvaluationResult((CaseResult(0, "a", (PASSED, LATE)),))
    assert result.scores("Late") == [None]
    with pytest.raises(InputError, match=r"no metric 'kind'; did you mean 'Kind'\?"):
        result.scores("kind")
    with pytest.raises(InputError, match="no metric 'other'; it had 'Kind', 'Late'"):
        result.scores("other")
    with pytest.raises(InputError, match=r"did you mean 'Kind'\?"):
        result[0][["Kind"]]
    assert EvaluationResult(()).scores("Kind") == []


def test_texts_of_a_failure_are_shortened_with_their_length_said() -> None:
    failure = Failure(OutcomeKind.UNPARSEABLE, "n", "m" * 20_000, "{" * 2_000_000)
    assert failure.raw is not None
    assert len(failure.raw) == len(failure.message) == 10_000
    assert failure.raw.endswith("… (2,000,000 characters in all)")
    assert failure.message.endswith("m… (20,000 characters in all)")
    whole = Failure(OutcomeKind.UNPARSEABLE, "n", "m" * 10_000, "{" * 10_000)
    assert whole.raw == "{" * 10_000
    assert whole.message == "m" * 10_000


def test_a_shortened_failure_is_read_back_as_it_was_written(tmp_path: Path) -> None:
    failure = Failure(OutcomeKind.UNPARSEABLE, "n", "m" * 20_000, "{" * 20_000)
    row = CaseResult(0, "a", (MetricResult("K", None, None, None, failure=failure),))
    path = tmp_path / "rows.jsonl"
    with RowWriter(path) as rows:
        rows.add(row)
    assert list(read_rows(path)) == [row]
    assert re.search(r"20,000 characters in all", json.dumps(row.as_dict()))


def test_a_case_ended_where_its_score_was_given() -> None:
    steps = (
        Step("a", "judgement", OutcomeKind.OK, verdict="low", reason="of a"),
        Step("b", "judgement", OutcomeKind.OK, verdict="high", reason="of b"),
        Step("c", "rating", OutcomeKind.OK, score=0.2, reason="of c"),
    )
    path = (("a", "low"), ("b", "high"))
    last = MetricResult("m", 0.2, False, "all", threshold=0.5, path=path, steps=steps)
    assert (str(last.end), last.why) == ("b → high", "of b")
    first = replace(last, ended=("a", "low"))
    assert (str(first.end), first.why) == ("a → low", "of a")
    leaf = replace(last, ended=("c", None))
    assert (str(leaf.end), leaf.why) == ("c below 0.5", "of c")
    alone = replace(leaf, path=())
    assert (str(alone.end), alone.why) == ("m below 0.5", "of c")
    assert all("ended" in one.as_dict() for one in (first, leaf, alone))
    assert "ended" not in last.as_dict()


def test_a_case_that_fails_one_metric_and_lacks_the_score_of_another_failed_everywhere(
    tmp_path: Path,
) -> None:
    metrics = [
        DAGMetric("half", DAG(CodeNode(lambda text: 0.4, [], ["actual_output"])), threshold=0.5),
        DAGMetric("known", DAG(CodeNode(lambda text: 1.0, [], ["expected_output"])), threshold=0.5),
    ]
    case = LLMTestCase(input="i", actual_output="o", name="both")
    result = evaluate([case], metrics, show=False, out=tmp_path / "run")
    assert result[0].state == "failed"
    summary = result.summary()
    assert (summary.failed, summary.no_score, summary.passed) == (1, 1, 0)
    assert summary.pass_rate is not None
    assert summary.pass_rate.value == 0
    assert repr(summary).splitlines() == [
        "<Summary of 1 case",
        "  half: 1 case, 1 failed, pass rate 0 % (0 to 79), mean 0.40",
        "  known: 1 case, 1 no score>",
    ]
    assert repr(summary["known"]) == "<MetricSummary 'known': 1 case, 1 no score>"
    run = load_run(tmp_path / "run")
    assert run.manifest.exit == "failed"
    assert run.manifest.counts is not None
    assert (run.manifest.counts.failed, run.manifest.counts.no_score) == (1, 1)
    written = json.loads((tmp_path / "run" / "summary.json").read_text())
    assert (written["failed"], written["no_score"]) == (1, 1)
    said = "1 of 1 case failed; 1 has no score"
    assert headline_of(summary) == said
    assert said in step_summary(Tally(result.rows), result.totals)
    metrics[0].threshold = 0.1
    one_lacks = evaluate([case], metrics, show=False).summary()
    assert headline_of(one_lacks) == "⊘ No case has all its scores"
    assert headline_of(evaluate([case], metrics[1:], show=False).summary()).endswith(" a score")


@pytest.mark.parametrize(
    ("attribute", "words"),
    [
        ("total_cost", "result.cost"),
        ("to_csv", r"result.to_pandas\(\)"),
        ("tokens", "result.totals.usage"),
        ("failures", r"result.failed\(\)"),
        ("to_dataframe", r"result.to_pandas\(\)"),
        ("nothing", "no attribute 'nothing'; it has .*summary"),
    ],
)
def test_a_result_says_where_that_is_which_it_does_not_have(attribute: str, words: str) -> None:
    with pytest.raises(AttributeError, match=words):
        getattr(EvaluationResult(()), attribute)


def test_a_result_has_the_cost_and_the_calls_of_its_run() -> None:
    totals = Totals(calls=3, cost=0.5)
    result = EvaluationResult((), totals)
    assert (result.cost, result.calls) == (0.5, 3)
    with pytest.raises(TypeError, match=r"row.case == 'Tone'\) is one by name"):
        result["Tone"]


@pytest.mark.parametrize("attribute", ["score", "reason", "path"])
def test_a_row_says_that_its_metrics_have_scores_and_reasons(attribute: str) -> None:
    with pytest.raises(AttributeError, match=rf"row\[METRIC\].{attribute}, or row.metrics"):
        getattr(CaseResult(0, "a", (PASSED, SHORT)), attribute)


def test_a_row_has_the_result_of_a_metric_by_its_name() -> None:
    row = CaseResult(0, "a", (PASSED, SHORT))
    assert (row[PASSED.metric], row[SHORT.metric]) == (PASSED, SHORT)
    with pytest.raises(InputError, match=f"no metric 'Tone'; it had '{PASSED.metric}'"):
        row["Tone"]


def test_a_data_frame_says_how_often_a_result_was_asked_again() -> None:
    pytest.importorskip("pandas")
    answers = iter(["nonsense", True, True])
    metric = DAGMetric("Worth", DAG(yes_no()))
    cases = [LLMTestCase(input="a"), LLMTestCase(input="b")]
    judge = ScriptedJudge(lambda question: next(answers))
    limits = Limits(max_in_flight=1)
    frame = evaluate(cases, [metric], model=judge, limits=limits, show=False).to_pandas()
    assert list(frame["retried"]) == [1, 0]
    assert list(frame["score"]) == [1.0, 1.0]
    assert list(frame["input"]) == ["a", "b"]
