"""What is said while a run goes on."""

from __future__ import annotations

import io
import re
import sys
import threading
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

import pytest
from rich.console import Console

from dagengine import compile_metrics
from dagengine.compiler.execution_plan import Plan
from dagengine.metrics import DAGMetric
from dagengine.metrics.dag import DAG, BinaryJudgementNode, TaskNode
from dagengine.question import Usage
from dagengine.report import progress_bar
from dagengine.report.progress import Progress, Remaining, bar, duration, likely_questions, news
from dagengine.results import CaseResult, Failure, MetricResult, OutcomeKind, Step, Totals, Waiting

TOTALS = Totals(asked=200, calls=100, cached=50, retried=3, in_flight=7, cost=1.234)
REJECTED = Waiting("429", 12, 3.2)


def row(index: int, failure: Failure | None = None, questions: int = 1) -> CaseResult:
    score = None if failure else 1.0
    steps = (Step("n", "judgement", OutcomeKind.OK, answers=("yes",) * questions),)
    result = MetricResult("m", score, True, "", failure=failure, steps=steps)
    return CaseResult(index, "c", (result,))


def plan() -> Plan:
    """A question for every case, another for half of them, and one more for a quarter."""
    last = BinaryJudgementNode("C?", evaluation_params=["input"], then={True: 10, False: 0})
    middle = BinaryJudgementNode("B?", evaluation_params=["input"], then={True: last, False: 0})
    first = BinaryJudgementNode("A?", evaluation_params=["input"], then={True: middle, False: 0})
    return compile_metrics([DAGMetric("m", DAG(first))])


class Run:
    """A run that stands still."""

    def __init__(self, totals: Totals = TOTALS, waiting: Sequence[Waiting] = ()) -> None:
        self.plan = plan()
        self.totals = totals
        self.waiting = waiting
        self.looked = threading.Event()


class Looked(Run):
    """A run that is told when it was looked at."""

    @property
    def totals(self) -> Totals:
        self.looked.set()
        return TOTALS

    @totals.setter
    def totals(self, totals: Totals) -> None:
        pass


def test_the_news_has_calls_rate_cached_share_retries_cost_waits_and_failures() -> None:
    failures = Counter({"timeout": 1, "refused": 4})
    assert news(TOTALS, 10.0, failures, [REJECTED, Waiting("timeout", 1, 0.0)]) == (
        "100 calls, 10/s, 7 at a time, 25% from the store, 3 retried, $1.23, "
        "12 wait (429, next in 3 s), 1 waits (timeout, next now), 4 refused, 1 timeout"
    )


def test_the_news_leaves_out_what_there_is_none_of() -> None:
    assert news(Totals(asked=1, calls=1), 2.0, Counter()) == "1 call, 0.5/s, 0 at a time"


@pytest.mark.parametrize(
    ("seconds", "said"),
    [
        (0.04, "0.0 s"), (0.97, "1 s"), (59.4, "59 s"), (60, "1 min"), (200, "3 min 20 s"),
        (3599, "59 min"), (7500, "2 h 05 min"),
    ],
)  # fmt: skip
def test_lengths_of_time_are_told_as_people_say_them(seconds: float, said: str) -> None:
    assert duration(seconds) == said


@pytest.fixture
def able_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    """A terminal that can draw, whatever the tests run in (`TERM=dumb` draws no bar)."""
    monkeypatch.setenv("TERM", "xterm")


@pytest.mark.usefixtures("able_terminal")
def test_a_bar_shows_finished_cases_and_what_is_asked_meanwhile() -> None:
    console = Console(file=io.StringIO(), force_terminal=True, width=160)
    failure = Failure(OutcomeKind.TIMEOUT, "n", "late")
    progress = Progress(Run(waiting=[REJECTED]), 1000)
    with bar(progress, console):
        for index in (7, 3):  # finished, whoever came earlier
            progress.add(row(index, failure))
    assert isinstance(console.file, io.StringIO)
    shown = console.file.getvalue()
    assert "0/1,000 cases" in shown  # it is drawn before there is a row,
    assert "100 calls" in shown
    assert "2/1,000 cases" in shown  # and at the end
    assert "12 wait (429, next in 3 s)" in shown
    assert "2 timeout" in shown


@pytest.mark.usefixtures("able_terminal")
def test_on_a_narrow_terminal_nothing_is_lost_below_the_bar() -> None:
    console = Console(file=io.StringIO(), force_terminal=True, width=60)
    with bar(Progress(Run(waiting=[REJECTED]), 1000), console):
        pass
    assert isinstance(console.file, io.StringIO)
    shown = re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", console.file.getvalue())
    assert "next in 3 s" in re.sub(r"\s+", " ", shown)


def test_a_log_gets_a_line_only_now_and_then(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    with progress_bar(Run(), 2, True) as finished:  # over long before the first minute
        finished(row(0))
    assert capsys.readouterr().err == ""
    monkeypatch.setattr("dagengine.report.progress._LOGGED", 0.001)
    run = Looked()
    with progress_bar(run, 2, True) as finished:
        finished(row(0))
        assert run.looked.wait(60)
        run.looked.clear()
        assert run.looked.wait(60)  # the first line is whole
    line = capsys.readouterr().err.splitlines()[0]
    assert re.fullmatch(
        r"dagengine: [01]/2 cases, 0\.\d s; 100 calls, \S+/s, 7 at a time, .*", line
    )


class Kernel:
    """What tells that code runs in a notebook."""

    class IPKernelApp:
        @staticmethod
        def initialized() -> bool:
            return True


def test_in_a_notebook_one_line_is_written_over_and_over(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "ipykernel.kernelapp", Kernel)
    monkeypatch.setattr("dagengine.report.progress._SHOWN", 0.001)
    run = Looked()
    with progress_bar(run, 2, True) as finished:
        finished(row(0))
        assert run.looked.wait(60)
        run.looked.clear()
        assert run.looked.wait(60)
    written = capsys.readouterr().err
    assert "\n" not in written
    assert re.match(r"\r[01]/2 cases, ", written)
    assert written.endswith("\r\x1b[K")


def test_nothing_is_said_where_nobody_wants_it() -> None:
    run = Looked()
    with progress_bar(run, 2, False) as finished:
        finished(row(0))
    assert not run.looked.is_set()


def test_the_plan_says_how_many_questions_a_case_asks() -> None:
    assert likely_questions(plan()) == pytest.approx(1.75)
    judged = BinaryJudgementNode("A?", evaluation_params=["input"], then={True: 10, False: 0})
    after_task = DAGMetric("task", DAG(TaskNode("Extract", "facts", [judged], ["input"])))
    assert likely_questions(compile_metrics([after_task])) == pytest.approx(2.0)


def test_the_time_left_comes_from_the_plan_and_then_from_what_rows_asked() -> None:
    remaining = Remaining(100, 2.0)
    asked = Totals(asked=60, calls=60, in_flight=20)
    assert remaining.at(0.0, Totals()) is None
    assert remaining.at(10.0, asked) == pytest.approx((200 - 40) / 4)
    for index in range(9):
        remaining.add(row(index, questions=4))
    assert remaining.at(10.0, asked) == pytest.approx((38 / 10 * 100 - 40) / 4)


def test_the_time_left_goes_by_the_speed_of_the_last_half_minute() -> None:
    remaining = Remaining(1000, 1.0)
    for second in range(200):
        calls = 10 * min(second, 100)  # nothing comes any more after 100 s
        left = remaining.at(float(second), Totals(calls=calls))
        assert (left is None) == (second == 0 or second >= 130), second
    assert Remaining(None, 1.0).at(10.0, replace(TOTALS, calls=1000)) is None


def test_the_time_left_of_a_slow_judge_goes_by_its_last_answers_and_not_by_half_a_minute() -> None:
    remaining, left = Remaining(40, 1.0), list[float | None]()
    for second in range(301):
        answers = 4 * (second // 100)  # four of them every hundred seconds
        left.append(remaining.at(float(second), Totals(calls=answers)))
    assert left[:100] == [None] * 100
    assert left[100] == left[199] == pytest.approx(36 * 100 / 4)
    assert left[300] == pytest.approx(28 * 100 / 4)


def test_tokens_per_second_are_said_where_the_server_counts_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    run = Run(Totals())
    progress = Progress(run, 100)
    monkeypatch.setattr(Progress, "seconds", 10.0)  # whatever the machine does meanwhile
    progress._remaining.see(0.0, run.totals)
    run.totals = Totals(asked=8, calls=8, in_flight=4, usage=Usage(500, 310))
    progress.counts()
    assert progress.news() == "8 calls, 0.8/s, 4 at a time, 31 tokens/s"
    run.totals = replace(run.totals, usage=Usage())
    assert "tokens/s" not in Progress(run, 100).news()


def test_what_a_silent_judge_keeps_a_run_waiting_for_comes_last() -> None:
    silent = Waiting("node 'Headings'; the server has not answered yet", 4, 0.0, 62.0)
    assert news(Totals(in_flight=4), 62.0, Counter(), [silent]) == (
        "0 calls, 0/s, 4 at a time, "
        "waiting for 4 answers since 1 min 02 s (node 'Headings'; the server has not answered yet)"
    )


def test_a_run_takes_no_less_time_than_its_questions_wait() -> None:
    run = Run(Totals(asked=60, calls=60), [Waiting("timeout", 2, 1.0), Waiting("429", 1, 4_000.0)])
    progress = Progress(run, 61)
    progress._remaining.at(-10.0, Totals())
    assert "about 1 h 06 min left" in progress.counts()
