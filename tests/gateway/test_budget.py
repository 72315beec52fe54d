"""Money and calls: prices, estimates, reservations, and a pace."""

from __future__ import annotations

from datetime import datetime, tzinfo
from typing import Any

import anyio
import pytest
from graphs.questions import ask_about, yes
from graphs.trees import yes_no_metric
from hypothesis import given
from hypothesis import strategies as st

from dagengine import a_evaluate
from dagengine.errors import InputError, OverBudgetError
from dagengine.gateway import Gateway, Limits
from dagengine.gateway.budget import Estimates
from dagengine.gateway.rate_limiter import RateLimit
from dagengine.question import Capabilities, Question, Usage
from dagengine.results import OutcomeKind, prices
from dagengine.results.prices import Price, find_price
from dagengine.results.usage_totals import cost_line
from dagengine.test_case import LLMTestCase


class Paid:
    """A judge with a model's name that uses the same tokens for every answer."""

    capabilities = Capabilities()

    def __init__(self, model: str | None = "m", usage: Usage = Usage(1000, 100)) -> None:  # noqa: B008
        self.identity = f"paid {model}"
        self.model = model
        self.usage = usage
        self.calls = self.inside = 0

    async def answer(self, question: Question[Any]) -> Any:
        self.calls += 1
        await anyio.lowlevel.checkpoint()
        return yes(self.usage)


def cases(count: int) -> list[LLMTestCase]:
    return [LLMTestCase(input=f"case {number}") for number in range(count)]


# As https://developers.openai.com/api/docs/pricing and https://anthropic.com/pricing had them.
@pytest.mark.parametrize(
    ("model", "price"),
    [
        ("gpt-4o", (2.5, 10.0, 1.25)),
        ("openai/gpt-4o-mini", (0.15, 0.6, 0.075)),
        ("gpt-4o-2024-11-20", (2.5, 10.0, 1.25)),
        ("gpt-4o-2024-05-13", (5.0, 15.0, 5.0)),
        ("anthropic/claude-sonnet-4-5-20250929", (3.0, 15.0, 0.3)),
        ("claude-3-5-haiku-latest", (0.8, 4.0, 0.08)),
        ("somebody/gpt-4o", (2.5, 10.0, 1.25)),
    ],
)
def test_a_model_is_found_with_its_provider_and_its_release(
    model: str, price: tuple[float, float, float]
) -> None:
    assert find_price(model, {}) == Price(*price)


def test_prices_of_ones_own_go_first_and_unknown_models_have_none() -> None:
    assert find_price("gpt-4o", {"gpt-4o": (1.0, 2.0)}) == Price(1.0, 2.0)
    assert find_price("llama-of-my-own", {"*": (0.0, 0.0)}) == Price(0.0, 0.0)
    assert find_price("openai/gpt-9", {}) is None
    assert find_price("openai/", {}) is None
    assert find_price("gpt-9", {}) is None
    assert find_price(None, {}) is None


def test_cached_input_has_its_own_price() -> None:
    price = Price(2.0, 8.0, 0.5)
    assert price.of(Usage(1_000_000, 0, 400_000)) == pytest.approx(0.6 * 2 + 0.4 * 0.5)
    assert Price(2.0, 8.0).of(Usage(1_000_000, 500_000, 400_000)) == pytest.approx(6.0)


def test_estimates_come_to_what_the_server_counts() -> None:
    estimates, question = Estimates(), ask_about("x" * 4000)
    for _ in range(60):
        estimates.learn(question, Usage(2000, 40))
    found = estimates.of(question)
    assert found.input_tokens == pytest.approx(2000, rel=0.02)
    assert found.output_tokens == pytest.approx(40, abs=2)
    assert estimates.of(ask_about("x" * 8000)).input_tokens > 1.8 * found.input_tokens
    assert estimates.of(ask_about("x", max_tokens=5)).output_tokens == 5


@given(
    st.floats(1, 100_000),
    st.lists(st.tuples(st.floats(0.1, 5000), st.floats(0, 3)), min_size=1, max_size=60),
)
def test_no_minute_sees_more_than_its_rate_and_one_burst(
    rate: float, asked: list[tuple[float, float]]
) -> None:
    pace, now, started = RateLimit(rate), 0.0, list[tuple[float, float]]()
    for amount, pause in asked:
        now = max(now + pause, pace.opens_at())
        pace.take(amount, now)
        started.append((now, amount))
    largest = max(amount for _, amount in started)
    for first, (start, _) in enumerate(started):
        total = sum(amount for time, amount in started[first:] if time <= start + 60)
        assert total <= rate + rate / 60 + largest + 1e-6 * rate


def test_a_pace_moves_with_what_was_really_used() -> None:
    pace = RateLimit(60.0)
    pace.take(10, 0.0)
    assert pace.opens_at() == 9.0
    pace.correct(-5)
    assert pace.opens_at() == 4.0


@pytest.mark.anyio
async def test_calls_beyond_the_number_allowed_are_not_made_and_their_cases_say_so() -> None:
    judge = Paid()
    limits = Limits(max_calls=7)
    done = await a_evaluate(cases(20), [yes_no_metric()], model=judge, limits=limits, show=False)
    assert judge.calls == done.totals.calls == 7
    kinds = [row.metrics[0].outcome for row in done.rows]
    assert kinds.count(OutcomeKind.OK) == 7
    assert kinds.count(OutcomeKind.OVER_BUDGET) == 13
    failure = next(row.metrics[0].failure for row in done.rows if row.metrics[0].failure)
    assert "Limits.max_calls" in failure.message


@pytest.mark.anyio
async def test_repeated_calls_count_towards_the_number_allowed() -> None:
    class Failing(Paid):
        async def answer(self, question: Question[Any]) -> Any:
            self.calls += 1
            raise ConnectionError("gone")

    judge = Failing()
    limits = Limits(max_calls=3, backoff=0.0, max_backoff=0.0)
    with pytest.raises(OverBudgetError, match="3 calls"):
        await Gateway(limits).ask(judge, ask_about("a"))
    assert judge.calls == 3


@pytest.mark.anyio
async def test_a_budget_is_kept_and_the_rest_is_not_asked() -> None:
    judge = Paid()  # a call costs 0.0012 dollars
    limits = Limits(budget=0.05, prices={"m": (1.0, 2.0)}, max_in_flight=8)
    done = await a_evaluate(cases(100), [yes_no_metric()], model=judge, limits=limits, show=False)
    assert done.totals.cost is not None
    assert 0.04 < done.totals.cost <= 0.05
    assert done.totals.cost == pytest.approx(0.0012 * judge.calls)
    failed = [row.metrics[0].failure for row in done.rows if row.metrics[0].failure]
    assert len(failed) == 100 - judge.calls
    assert {failure.kind for failure in failed} == {OutcomeKind.OVER_BUDGET}
    assert "Limits.budget" in failed[0].message


@pytest.mark.anyio
@pytest.mark.parametrize("model", ["nobody-knows", None])
async def test_a_budget_without_a_price_is_an_error_before_the_first_call(
    model: str | None,
) -> None:
    judge = Paid(model)
    with pytest.raises(InputError, match=r"Limits\(prices="):
        await a_evaluate(
            cases(2), [yes_no_metric()], model=judge, limits=Limits(budget=1.0), show=False
        )
    assert judge.calls == 0


@pytest.mark.anyio
async def test_what_a_run_cost_is_told_where_prices_are_known() -> None:
    known, unknown = Paid("gpt-4o"), Paid("nobody-knows")
    done = await a_evaluate(cases(2), [yes_no_metric()], model=known, show=False)
    assert done.totals.cost == pytest.approx(2 * (1000 * 2.5 + 100 * 10) / 1e6)
    done = await a_evaluate(cases(2), [yes_no_metric()], model=unknown, show=False)
    assert done.totals.cost is None


@pytest.mark.anyio
async def test_the_summary_says_which_share_came_from_caches_and_what_it_saved() -> None:
    paid = Paid("gpt-4o", Usage(10_000, 100, 6_000))  # 2.5 dollars a million, and 1.25 from caches
    done = await a_evaluate(cases(3), [yes_no_metric()], model=paid, show=False)
    assert done.totals.saved == pytest.approx(3 * 6_000 * (2.5 - 1.25) / 1e6)
    assert "60% of prompt tokens came from caches, $0.02 saved" in cost_line(done.totals)
    free = Paid("nobody-knows", Usage(10_000, 100, 6_000))
    done = await a_evaluate(cases(3), [yes_no_metric()], model=free, show=False)
    assert done.totals.saved == 0
    assert "60% of prompt tokens came from caches" in cost_line(done.totals)
    assert "saved" not in cost_line(done.totals)
    done = await a_evaluate(cases(3), [yes_no_metric()], model=Paid("gpt-4o"), show=False)
    assert "caches" not in cost_line(done.totals)


def test_prices_are_the_highest_of_the_day_at_every_hour(monkeypatch: pytest.MonkeyPatch) -> None:
    found = set()
    for hour in range(24):

        class Clock(datetime):
            @classmethod
            def now(cls, tz: tzinfo | None = None) -> Clock:
                return cls(2025, 3, 1, hour, 30, tzinfo=tz)  # noqa: B023 - used at once

        monkeypatch.setattr(prices, "datetime", Clock)
        prices._public_price.cache_clear()
        found.add(find_price("deepseek-chat", {}))
    prices._public_price.cache_clear()
    (price,) = found
    assert price is not None
    assert price.input > 0
