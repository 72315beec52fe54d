"""Of many cases an estimate looks at a sample, and says so."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import pytest

from dagengine import compile_metrics
from dagengine.estimate import Estimate, estimate
from dagengine.estimate.estimate_report import Assumptions, as_dict
from dagengine.estimate.estimate_types import Bounds
from dagengine.estimate.estimator import MOST_CASES, Spread, draw_sample
from dagengine.metrics import FaithfulnessMetric, GEval
from dagengine.test_case import LLMTestCase

BUDGET = Assumptions({}, 1.0, 64, 10)


def cases(count: int, every: int = 0) -> Iterator[LLMTestCase]:
    """Cases, of which every so many has nothing to judge."""
    for number in range(count):
        empty = bool(every) and number % every == 0
        context = None if empty else [f"fact {number}"]
        yield LLMTestCase(input="?", actual_output=f"text {number}", retrieval_context=context)


def planned(count: int, every: int = 0) -> Estimate:
    metrics = [
        FaithfulnessMetric(),
        GEval("g", criteria="is it so?", evaluation_params=["actual_output"]),
    ]
    return estimate(compile_metrics(metrics), cases(count, every))


def test_up_to_some_thousands_every_case_is_looked_at() -> None:
    found = planned(MOST_CASES)
    assert (found.cases, found.looked_at, found.margin) == (MOST_CASES, MOST_CASES, 0.0)
    assert not found.sampled
    assert found.asked.most == 4 * MOST_CASES + 1  # the steps of G-Eval are asked for once


def test_of_more_cases_those_drawn_stand_for_all() -> None:
    count = 5 * MOST_CASES
    found = planned(count)
    assert (found.cases, found.looked_at) == (count, MOST_CASES)
    assert found.asked.most == 4 * count + 1
    assert found.asked.likely == pytest.approx(4 * count + 1)
    assert [metric.cases for metric in found.metrics] == [count, count]
    assert found.judges[0].calls == pytest.approx(found.calls.likely)
    assert found.margin == pytest.approx(3 / MOST_CASES)
    once = [node for metric in found.metrics for node in metric.nodes if node.constant]
    assert [node.asked.most for node in once] == [1]


def test_cases_that_differ_are_within_the_margin_that_is_stated() -> None:
    count = 4 * MOST_CASES
    found, truth = planned(count, every=4), count + 1 + 3 * (count - count // 4)
    assert found.margin > 3 / MOST_CASES
    assert abs(found.asked.likely - truth) <= found.margin * truth
    # A sample has no bounds of the whole, but what it needs the whole needs as well.
    assert found.calls.least <= truth


def test_the_reader_is_told() -> None:
    few, many = planned(10), planned(2 * MOST_CASES)
    assert as_dict(few, BUDGET)["sampled"] is False
    assert "Least and most assume" in as_dict(few, BUDGET)["assumptions"][0]
    told = as_dict(many, BUDGET)
    assert told["sampled"] is True
    assert told["assumptions"][0].startswith(
        "Estimated from a random sample of 2,000 of 4,000 cases"
    )
    assert not any("Least and most assume" in line for line in told["assumptions"])


def test_every_thing_is_as_likely_to_be_drawn_as_any_other() -> None:
    assert draw_sample(range(7), 10)[0] == list(range(7))
    sample, total = draw_sample(range(100_000), 1_000)
    assert (sample, total) == draw_sample(range(100_000), 1_000)
    assert (len(set(sample)), total) == (1_000, 100_000)
    tenths = Counter(number // 10_000 for number in sample)
    assert all(60 <= tenths[tenth] <= 140 for tenth in range(10))


def test_a_margin_is_none_where_nothing_is_left_out() -> None:
    spread = Spread()
    for value in (1.0, 5.0):
        spread.add(value)
    assert spread.margin(2) == 0.0
    assert spread.margin(4) > 0.0
    assert Spread().margin(0) == 0.0


def test_bounds_of_a_sample_hold_the_likely_number_of_the_whole() -> None:
    for count in range(1, 40):
        whole = Bounds(count, float(count), count).times(2.5)
        assert whole.most is not None
        assert whole.least <= whole.likely <= whole.most
