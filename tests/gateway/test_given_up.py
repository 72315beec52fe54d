"""What is about a judge and what about one question: whom failures end, after how many calls."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import anyio
import pytest
from graphs.packing_judge import PackingJudge
from graphs.questions import ask_about, yes
from graphs.trees import yes_no
from trio.testing import MockClock

from dagengine import a_evaluate
from dagengine.errors import (
    JudgeError,
    JudgeTimeoutError,
    OverBudgetError,
    ProviderError,
    RefusedError,
)
from dagengine.gateway import Gateway, Limits
from dagengine.judges import ScriptedJudge
from dagengine.metrics import DAGMetric
from dagengine.metrics.dag import DAG
from dagengine.prompts.decisions import read_wording, state_text
from dagengine.question import Answer, Capabilities, Question, Usage
from dagengine.results import Attempt
from dagengine.store import Store
from dagengine.test_case import LLMTestCase

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.parametrize(
        "anyio_backend",
        [("trio", {"clock": MockClock(autojump_threshold=0)})],
        ids=["a clock that jumps"],
    ),
]

YES = yes(Usage(5, 2))
HARMLESS = "harmless"
Fate = Callable[[Question[Any], int], JudgeError | None]


def provider(status: int | None, *, transient: bool = False, **more: Any) -> ProviderError:
    return ProviderError(f"HTTP {status}: no", transient=transient, status=status, **more)


FOR_GOOD = {
    "key": provider(401),
    "account": provider(402),
    "permission": provider(403),
    "address": provider(404),
    "model": provider(400, lasting=True),
    "quota of the day": provider(429, lasting=True),
    "no status": ProviderError("no such deployment", transient=False, lasting=True),
}
OF_ONE = FOR_GOOD | {
    "500": provider(500, transient=True),
    "504": provider(504, transient=True),
    "429": provider(429, transient=True),
    "lost": provider(None, transient=True),
    "timeout": JudgeTimeoutError("no answer in time"),
    "refusal": RefusedError("the input was flagged"),
}


class Judge:
    """A judge whose `fate` is asked for an error, given the question and the number of the call."""

    capabilities = Capabilities()
    identity = "judge"

    def __init__(self, fate: Fate, seconds: float = 0.05) -> None:
        self.fate, self.seconds = fate, seconds
        self.asked: list[tuple[str, float]] = []
        self.questions: list[Question[Any]] = []

    async def answer(self, question: Question[Any]) -> Any:
        self.asked.append((question.name, anyio.current_time()))
        self.questions.append(question)
        error = self.fate(question, len(self.asked))
        await anyio.sleep(self.seconds if error is None else self.seconds / 10)
        if error is not None:
            raise error
        return YES

    def calls_of(self, name: object) -> list[float]:
        """When a question was asked."""
        return [time for asked, time in self.asked if asked == str(name)]


async def ask_all(
    gateway: Gateway, judge: Any, count: int, at_once: int = 300
) -> dict[int, JudgeError]:
    """Ask so many questions; the errors by their numbers."""
    numbers, errors = iter(range(count)), dict[int, JudgeError]()

    async def work() -> None:
        for number in numbers:
            try:
                await gateway.ask(judge, ask_about(number))
            except JudgeError as error:
                errors[number] = error

    async with anyio.create_task_group() as group:
        for _ in range(min(at_once, count)):
            group.start_soon(work)
    return errors


@pytest.mark.parametrize("error", FOR_GOOD.values(), ids=FOR_GOOD)
@pytest.mark.parametrize(("count", "in_flight"), [(20, 1), (20, 64), (1_000, 512)])
async def test_a_judge_that_refuses_everything_is_given_up_after_the_calls_in_progress_and_one_more(
    error: ProviderError, count: int, in_flight: int
) -> None:
    judge, began = Judge(lambda question, number: error), anyio.current_time()
    gateway = Gateway(Limits(max_in_flight=in_flight))
    errors = await ask_all(gateway, judge, count)
    assert len(errors) == count
    assert len(judge.asked) <= min(4, in_flight) + 1
    assert len(judge.calls_of(HARMLESS)) == 1
    assert gateway.totals.calls == gateway.totals.failed == len(judge.asked)
    assert anyio.current_time() - began < 1
    assert "whatever it is asked" in str(errors[count - 1])
    assert str(error) in str(errors[count - 1])


@pytest.mark.sampled
@pytest.mark.parametrize("error", OF_ONE.values(), ids=OF_ONE)
@pytest.mark.parametrize("in_flight", [1, 64])
@pytest.mark.parametrize("bad", [(0, 1, 2), (57, 58, 59), (0, 30, 59), (7,)])
async def test_what_some_questions_meet_ends_these_and_no_other(
    error: JudgeError, in_flight: int, bad: tuple[int, ...]
) -> None:
    names = {str(number) for number in bad}
    judge = Judge(lambda question, number: error if question.name in names else None)
    began = anyio.current_time()
    errors = await ask_all(Gateway(Limits(max_in_flight=in_flight)), judge, 60)
    assert set(errors) == set(bad)
    assert all(str(error) in str(end) and "given up" not in str(end) for end in errors.values())
    assert len(judge.calls_of(HARMLESS)) <= 2
    assert anyio.current_time() - began < 120


@pytest.mark.parametrize(
    ("name", "flagged"),
    [("permission", 0), *((name, f) for name in ("key", "account", "model") for f in (0, 3))],
)
async def test_a_judge_that_refuses_everything_from_some_call_on_is_given_up(
    name: str, flagged: int
) -> None:
    error = FOR_GOOD[name]

    def fate(question: Question[Any], number: int) -> JudgeError | None:
        if question.name in map(str, range(flagged)):
            return FOR_GOOD["permission"]
        return error if number > 500 else None

    judge = Judge(fate)
    errors = await ask_all(Gateway(), judge, 1_500)
    assert len(errors) >= 900
    assert len(judge.asked) <= 500 + 5 * 64
    assert "given up" in str(errors[1_499])


async def test_many_flagged_questions_do_not_slow_a_run_down() -> None:
    flagged = FOR_GOOD["permission"]
    judge = Judge(lambda question, number: flagged if "7" in question.name else None)
    began = anyio.current_time()
    errors = await ask_all(Gateway(Limits(max_in_flight=4)), judge, 1_000)
    assert len(errors) == sum("7" in str(number) for number in range(1_000))
    assert anyio.current_time() - began <= 1.1 * (729 * 0.05 + 271 * 0.005) / 4 + 1
    assert len(judge.calls_of(HARMLESS)) == 1


@pytest.mark.parametrize("seconds", [400.0, 2_000.0, 7_200.0])
async def test_a_long_wait_of_one_question_delays_or_ends_that_one_only(seconds: float) -> None:
    def fate(question: Question[Any], number: int) -> JudgeError | None:
        first = question.name == "0" and len(judge.calls_of(0)) == 1
        return provider(429, transient=True, retry_after=seconds) if first else None

    judge, began = Judge(fate), anyio.current_time()
    errors = await ask_all(Gateway(), judge, 60)
    assert max(time for name, time in judge.asked if name != "0") <= began + 5
    if seconds > 3_000:  # ten times the patience
        assert list(errors) == [0]
        assert "asks to wait 7200 s" in str(errors[0])
    else:
        assert not errors
        first, again = judge.calls_of(0)
        assert again >= first + seconds


@pytest.mark.parametrize("count", [1, 2, 60])
async def test_a_long_wait_that_every_question_meets_is_said_at_once(count: int) -> None:
    wait = provider(429, transient=True, retry_after=7_200.0)
    judge, began = Judge(lambda question, number: wait), anyio.current_time()
    errors = await ask_all(Gateway(), judge, count)
    assert len(errors) == count
    assert anyio.current_time() - began < 1
    assert len(judge.asked) <= min(4, count) + 1
    assert all("it asks to wait 7200 s" in str(error) for error in errors.values())


async def test_who_waits_for_long_hears_at_once_that_the_judge_is_given_up() -> None:
    def fate(question: Question[Any], number: int) -> JudgeError | None:
        wait = provider(429, transient=True, retry_after=2_000.0)
        return wait if question.name == "40" or number > 100 else None

    judge, began = Judge(fate), anyio.current_time()
    errors = await ask_all(Gateway(), judge, 300, at_once=64)
    assert len(errors) >= 200
    assert anyio.current_time() - began < 10
    assert "given up" in str(errors[40])


async def test_a_long_wait_beyond_the_deadline_of_its_case_ends_that_case_only() -> None:
    wait = provider(429, transient=True, retry_after=7_200.0)
    judge, errors = Judge(lambda question, number: wait if question.name == "0" else None), []
    gateway = Gateway()

    async def ask(number: int) -> None:
        try:
            with anyio.fail_after(30):
                await gateway.ask(judge, ask_about(number))
        except JudgeError as error:
            errors.append(str(error))

    async with anyio.create_task_group() as group:
        for number in range(20):
            group.start_soon(ask, number)
    (message,) = errors
    assert re.search(r"it asks to wait 7200 s, and (29\.9|30\.0) s are left for the case", message)


async def test_a_wait_of_hours_without_a_deadline_says_how_long_a_case_waits() -> None:
    wait = provider(429, transient=True, retry_after=7_200.0)
    judge = Judge(lambda question, number: wait if question.name == "0" else None)
    errors = await ask_all(Gateway(), judge, 20)
    message = str(errors[0])
    assert "asks to wait 7200 s, and no case waits longer than 3000 s: run again later" in message
    assert "left for the case" not in message


@pytest.mark.parametrize("kind", ["500", "504", "429", "timeout"])
async def test_a_question_that_always_fails_does_not_keep_a_judge_away_that_is_back(
    kind: str,
) -> None:
    began = anyio.current_time()

    def fate(question: Question[Any], number: int) -> JudgeError | None:
        if 1.0 < anyio.current_time() - began < 11.0:
            return provider(503, transient=True)
        return OF_ONE[kind] if question.name in ("0", "1") else None

    judge = Judge(fate)
    errors = await ask_all(Gateway(Limits(max_in_flight=8)), judge, 600)
    assert set(errors) <= {0, 1}
    assert anyio.current_time() - began < 100


@pytest.mark.parametrize("patience", [0.0, 5.0, None])
async def test_a_judge_is_never_given_up_before_it_failed_the_harmless_question(
    patience: float | None,
) -> None:
    away = provider(500, transient=True)
    for works in (False, True):

        def fate(question: Question[Any], number: int, works: bool = works) -> JudgeError | None:
            return None if works and question.name == HARMLESS else away

        judge = Judge(fate)
        errors = await ask_all(Gateway(Limits(patience=patience)), judge, 20)
        assert len(errors) == 20
        assert judge.calls_of(HARMLESS)
        assert any("given up" in str(error) for error in errors.values()) == (not works)


async def test_the_harmless_question_is_counted_and_neither_stored_nor_recorded(
    tmp_path: Path,
) -> None:
    attempts = list[Attempt]()
    flagged = FOR_GOOD["permission"]
    judge = Judge(lambda question, number: flagged if question.name == "0" else None)
    judge.durable_identity = "judge"  # type: ignore[attr-defined]
    async with Store(tmp_path / "answers.db").open() as answers:
        gateway = Gateway(sink=attempts.append, stored=answers)
        await ask_all(gateway, judge, 10, at_once=1)
        totals = gateway.totals
        stored = await ask_all(Gateway(stored=answers), Judge(lambda q, n: flagged), 0)
    assert not stored
    assert [name for name, _ in judge.asked][:3] == ["0", HARMLESS, "1"]
    assert (totals.asked, totals.calls, totals.failed) == (10, 11, 1)
    assert totals.usage == Usage(50, 20)
    assert HARMLESS not in {attempt.node for attempt in attempts}
    assert len(attempts) == 10
    assert HARMLESS not in {spent.node for spent in gateway.spent}
    assert HARMLESS.encode() not in (tmp_path / "answers.db").read_bytes()


async def test_where_the_budget_has_no_call_left_there_is_no_harmless_question() -> None:
    flagged = FOR_GOOD["permission"]
    judge = Judge(lambda question, number: flagged if question.name == "0" else None)
    errors = await ask_all(Gateway(Limits(max_calls=1)), judge, 3, at_once=1)
    assert [name for name, _ in judge.asked] == ["0"]
    assert [type(errors[number]) for number in (1, 2)] == [OverBudgetError] * 2


@pytest.mark.parametrize(
    "able", [Capabilities(), Capabilities(text=False), Capabilities(text=False, decides=True)]
)
async def test_the_harmless_question_has_the_simplest_form_that_a_judge_answers(
    able: Capabilities,
) -> None:
    judge = Judge(lambda question, number: FOR_GOOD["key"])
    judge.capabilities = able
    await ask_all(Gateway(), judge, 20)
    (question,) = [question for question in judge.questions if question.name == HARMLESS]
    assert (question.parser is not None) == able.text
    if able.decides:
        assert (read_wording(question).type, state_text(question)) == ("predicate", '"ice"')
    if able.text:
        assert question.parser is not None
        assert dict(question.parser("Yes."))["output"] == "Yes."


async def test_a_judge_that_cannot_answer_the_harmless_question_is_not_given_up_for_it() -> None:
    script = {str(number): FOR_GOOD["permission"] if number < 3 else True for number in range(60)}
    errors = await ask_all(Gateway(), ScriptedJudge(script), 60)
    assert set(errors) == {0, 1, 2}


async def test_a_judge_of_batches_gets_no_harmless_question() -> None:
    judge = Judge(lambda question, number: FOR_GOOD["key"])
    judge.capabilities = Capabilities(elastic=True, batched=True)
    errors = await ask_all(Gateway(Limits(max_in_flight=64)), judge, 1_000)
    assert len(errors) == 1_000
    assert len(judge.asked) <= 128
    assert not judge.calls_of(HARMLESS)


async def test_a_pack_is_not_sent_to_a_judge_that_fails_the_harmless_question() -> None:
    class Refusing(PackingJudge):
        async def answer_all(self, questions: Any, **more: Any) -> Any:
            names.append(len(questions))
            raise FOR_GOOD["permission"]

        async def answer(self, question: Question[Any]) -> Answer[Any]:
            names.append(question.name)
            raise FOR_GOOD["permission"]

    names = list[int | str]()
    metrics = [DAGMetric(f"m{number}", DAG(yes_no(f"n{number}"))) for number in range(3)]
    cases = [LLMTestCase(input=str(number), actual_output="a") for number in range(20)]
    done = await a_evaluate(
        cases, metrics, model=Refusing(), show=False, limits=Limits(max_in_flight=3)
    )
    assert names == [3, HARMLESS]
    messages = [result.failure for row in done.rows for result in row.metrics]
    assert len(messages) == 60
    assert all(messages)
