"""A judge that is given up is tried again: by engines and streams, one question at a time."""

from __future__ import annotations

import itertools
from collections.abc import AsyncIterator
from typing import Any

import anyio
import pytest
from graphs.trees import yes_no_metric
from trio.testing import MockClock

from dagengine import Engine, Limits, a_evaluate, stream
from dagengine.errors import JudgeError, JudgeTimeoutError, ProviderError
from dagengine.question import Answer, Capabilities, Question, Usage
from dagengine.results import CaseResult
from dagengine.test_case import LLMTestCase

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.parametrize(
        "anyio_backend",
        [("trio", {"clock": MockClock(autojump_threshold=0)})],
        ids=["a clock that jumps"],
    ),
]
METRIC = yes_no_metric()


def case(name: object) -> LLMTestCase:
    return LLMTestCase(input=f"case {name}.")


def provider(status: int | None, *, transient: bool = False, **more: Any) -> ProviderError:
    return ProviderError(f"HTTP {status}: no", transient=transient, status=status, **more)


FOR_GOOD = {
    "key": provider(401),
    "account": provider(402),
    "model": provider(400, lasting=True),
    "quota of the day": provider(429, lasting=True),
    "permission": provider(403),
}
FOR_NOW = {
    "503": provider(503, transient=True),
    "500": provider(500, transient=True),
    "lost": provider(None, transient=True),
    "overload": provider(429, transient=True),
    "timeout": JudgeTimeoutError("no answer in time"),
}


class Judge:
    """A judge that fails while `error` is set."""

    capabilities = Capabilities()
    identity = "judge"

    def __init__(self, error: JudgeError | None = None) -> None:
        self.error, self.asked, self.at_once, self.most = error, list[float](), 0, 0

    async def answer(self, question: Question[Any]) -> Any:
        self.asked.append(anyio.current_time())
        self.at_once += 1
        self.most = max(self.most, self.at_once)
        await anyio.sleep(0.01)
        self.at_once -= 1
        if self.error is not None:
            raise self.error
        if question.parser is not None:
            return Answer(question.answer_type.model_validate({"output": "Yes."}), "Yes.")
        value = question.answer_type.model_validate({"verdict": True})
        return Answer(value, '{"verdict": true}', usage=Usage(5, 2))


def is_away(row: CaseResult) -> bool:
    failure = row.metrics[0].failure
    return failure is not None and str(failure.kind) in ("provider_error", "timeout")


async def many(engine: Engine, count: int, first: int = 0) -> list[CaseResult]:
    return await engine.judge_all([case(first + number) for number in range(count)])


@pytest.mark.parametrize("error", FOR_NOW.values(), ids=FOR_NOW)
@pytest.mark.parametrize("before", [0, 3])
async def test_after_an_outage_longer_than_the_patience_the_next_cases_have_scores(
    error: JudgeError, before: int
) -> None:
    judge = Judge()
    async with Engine(METRIC, model=judge, limits=Limits(patience=30)) as engine:
        assert not any(map(is_away, await many(engine, before)))
        judge.error = error
        assert all(map(is_away, await many(engine, 80, 100)))
        (status,) = engine.judges.values()
        assert "given up" in status
        began, calls = anyio.current_time(), len(judge.asked)
        assert all(map(is_away, await many(engine, 50, 200)))
        assert anyio.current_time() == began  # at once
        assert len(judge.asked) == calls
        judge.error = None
        await anyio.sleep(5)
        rows = await many(engine, 50, 300)
        assert not any(map(is_away, rows))
        assert list(engine.judges.values()) == ["in order"]


async def test_tries_of_a_judge_that_stays_away_are_single_and_seldom() -> None:
    judge = Judge(FOR_NOW["503"])
    async with Engine(METRIC, model=judge, limits=Limits(patience=10)) as engine:
        await many(engine, 20)
        began, before = anyio.current_time(), len(judge.asked)
        judge.most = 0
        for number in range(600):  # ten minutes, ten cases a second
            await many(engine, 10, 1_000 + 10 * number)
            await anyio.sleep(1)
        tries = [time - began for time in judge.asked[before:]]
        assert judge.most == 1
        assert 10 <= len(tries) <= 16
        assert 5 <= tries[0] <= 7
        gaps = [later - earlier for earlier, later in itertools.pairwise(tries)]
        assert gaps == sorted(gaps) or max(gaps) <= 62
        judge.error = None
        await anyio.sleep(60)
        assert not is_away((await many(engine, 1, 9_000))[0])


@pytest.mark.parametrize("error", FOR_GOOD.values(), ids=FOR_GOOD)
async def test_what_holds_for_good_is_tried_again_after_a_minute_when_a_case_comes(
    error: ProviderError,
) -> None:
    judge = Judge(error)
    async with Engine(METRIC, model=judge) as engine:
        assert all(map(is_away, await many(engine, 20)))
        calls, began = len(judge.asked), anyio.current_time()
        for number in range(11):
            assert is_away((await many(engine, 1, 100 + number))[0])
            await anyio.sleep(5)
        assert len(judge.asked) == calls
        await anyio.sleep(10)
        assert len(judge.asked) == calls  # nobody came
        assert is_away((await many(engine, 1, 200))[0])
        assert len(judge.asked) in (calls + 1, calls + 2)
        judge.error = None
        await anyio.sleep(61)
        assert not any(map(is_away, await many(engine, 1, 300)))
        assert not any(map(is_away, await many(engine, 30, 400)))
        assert anyio.current_time() - began < 200


async def test_a_long_wait_that_every_question_meets_is_kept_to() -> None:
    judge = Judge(provider(429, transient=True, retry_after=1_000.0))
    async with Engine(METRIC, model=judge, limits=Limits(patience=60)) as engine:
        assert all(map(is_away, await many(engine, 10)))
        calls, judge.error = len(judge.asked), None
        for number in range(9):
            await anyio.sleep(100)
            assert is_away((await many(engine, 1, 100 + number))[0])
        assert len(judge.asked) == calls
        await anyio.sleep(120)
        assert not any(map(is_away, await many(engine, 5, 200)))


async def test_a_stream_over_a_slow_source_goes_on_after_an_outage_and_a_list_ends_as_ever() -> (
    None
):
    judge, began = Judge(), anyio.current_time()

    async def cases() -> AsyncIterator[LLMTestCase]:
        for number in range(40):
            judge.error = FOR_NOW["503"] if 5 <= number < 15 else None
            yield case(number)
            await anyio.sleep(20)

    rows = [row async for row in stream(cases(), [METRIC], model=judge, limits=Limits(patience=20))]
    away = [row.index for row in rows if is_away(row)]
    assert away
    assert set(away) <= set(range(5, 18))
    assert anyio.current_time() - began < 1_200
    judge = Judge(FOR_NOW["503"])
    limits = Limits(patience=20)
    done = await a_evaluate([case(1)] * 3, [METRIC], model=judge, limits=limits, show=False)
    assert all("and run again" in str(row.metrics[0].failure) for row in done.rows)


async def test_an_engine_that_was_idle_for_an_hour_judges_the_next_case() -> None:
    judge = Judge()
    async with Engine(METRIC, model=judge) as engine:
        for number in range(3):
            assert not is_away((await many(engine, 1, number))[0])
            await anyio.sleep(3_600)
        assert len(judge.asked) == 3


async def test_a_deadline_holds_while_the_judge_is_away() -> None:
    judge = Judge(FOR_NOW["503"])
    async with Engine(METRIC, model=judge) as engine:
        began = anyio.current_time()
        row = await engine.judge(case(1), deadline=2.5)
        assert anyio.current_time() - began <= 2.7
        assert "no result within 2.5 s" in str(row.metrics[0].failure)
        judge.error = None
        assert not is_away(await engine.judge(case(2), deadline=30))
