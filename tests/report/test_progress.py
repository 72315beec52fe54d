"""What the terminal says while a run goes on."""

import io
from collections import Counter

from rich.console import Console

from dagengine.report import progress_bar
from dagengine.report.progress import bar, news
from dagengine.results import CaseResult, Failure, MetricResult, OutcomeKind, Totals

TOTALS = Totals(asked=200, calls=100, cached=50, retried=3, in_flight=7, cost=1.234)


def row(index: int, failure: Failure | None = None) -> CaseResult:
    score = None if failure else 1.0
    return CaseResult(index, "c", (MetricResult("m", score, True, "", failure=failure),))


def test_the_news_has_rate_calls_under_way_cached_share_retries_cost_and_failures() -> None:
    failures = Counter({"timeout": 1, "refused": 4})
    assert news(TOTALS, 10.0, failures) == (
        "10 calls/s, 7 in flight, 25% from the store, 3 repeated, $1.23, 4 refused, 1 timeout"
    )


def test_the_news_leaves_out_what_there_is_none_of() -> None:
    assert news(Totals(asked=1, calls=1), 2.0, Counter()) == "0.5 calls/s, 0 in flight"


def test_the_bar_counts_rows_and_failures_by_kind() -> None:
    console = Console(file=io.StringIO(), force_terminal=True, width=160)
    failure = Failure(OutcomeKind.TIMEOUT, "n", "late")
    with bar(3, lambda: TOTALS, console, every=0.0) as advance:
        advance(row(0))
        advance(row(1, failure))
        advance(row(2, failure))
    assert isinstance(console.file, io.StringIO)
    shown = console.file.getvalue()
    assert "3/3" in shown
    assert "2 timeout" in shown
    assert "25% from the store" in shown


def test_nothing_is_drawn_where_nobody_looks() -> None:
    """Standard error is no terminal here, so that reading the totals would fail the test."""

    def unread() -> Totals:
        raise AssertionError

    with progress_bar(2, True, unread) as advance:
        advance(row(0))
