"""The gateway: one call for equal questions, limits that hold, a ledger that is complete."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import anyio
import pytest
from graphs.questions import ask_about, yes
from trio.testing import MockClock

from dagengine.errors import (
    InputError,
    JudgeCodeError,
    JudgeError,
    JudgeSetupError,
    JudgeTimeoutError,
    ProviderError,
    RecordingMissError,
    RefusedError,
    UnparseableError,
    UnsupportedError,
)
from dagengine.gateway import Gateway, Limits
from dagengine.judges import RecordedJudge, ScriptedJudge
from dagengine.question import Answer, Capabilities, Question, TokenChoice, Usage
from dagengine.results import Attempt, OutcomeKind
from dagengine.store import Store

# Far more than any test takes: a lost wake-up fails instead of hanging.
LIMIT = 120.0  # only when something waits for ever
NO_WAIT: dict[str, Any] = {"backoff": 0.0, "max_backoff": 0.0}


class Steps:
    """A judge that takes one step of its list per call: an answer, or an error to raise."""

    capabilities = Capabilities()

    def __init__(self, *steps: Any, identity: str = "steps") -> None:
        self.identity = identity
        self.steps = list(steps)
        self.asked: list[Question[Any]] = []

    async def answer(self, question: Question[Any]) -> Any:
        self.asked.append(question)
        await anyio.lowlevel.checkpoint()
        step = self.steps.pop(0) if self.steps else yes()
        if isinstance(step, BaseException):
            raise step
        return step


class Gated:
    """A judge whose calls wait for `gate`; it counts them, and how many there are at once."""

    capabilities = Capabilities()

    def __init__(self, identity: str = "gated") -> None:
        self.identity = identity
        self.gate = anyio.Event()
        self.calls = self.inside = self.most = 0

    async def answer(self, question: Question[Any]) -> Any:
        self.calls += 1
        self.inside += 1
        self.most = max(self.most, self.inside)
        try:
            await self.gate.wait()
        finally:
            self.inside -= 1
        return yes()


async def at_once(
    *asks: Callable[[], Awaitable[Any]], gate: anyio.Event | None = None
) -> list[Any]:
    """Results or judge errors of several asks; `gate` opens when all of them wait."""
    found: list[Any] = [None] * len(asks)

    async def one(place: int, ask: Callable[[], Awaitable[Any]]) -> None:
        try:
            found[place] = await ask()
        except JudgeError as error:
            found[place] = error

    with anyio.fail_after(LIMIT):
        async with anyio.create_task_group() as group:
            for place, ask in enumerate(asks):
                group.start_soon(one, place, ask)
            if gate is not None:
                await anyio.wait_all_tasks_blocked()
                gate.set()
    return found


def transient(**more: Any) -> ProviderError:
    return ProviderError("overloaded", transient=True, status=503, **more)


@pytest.mark.anyio
async def test_equal_questions_in_flight_are_one_call() -> None:
    judge, gateway = Gated(), Gateway()
    answers = await at_once(
        *[lambda: gateway.ask(judge, ask_about("a"))] * 5, gate=judge.gate
    )  # fmt: skip
    assert judge.calls == 1
    assert all(answer is answers[0] for answer in answers)
    assert (gateway.totals.asked, gateway.totals.shared, gateway.totals.calls) == (5, 4, 1)


@pytest.mark.anyio
async def test_an_equal_question_later_in_the_run_is_answered_from_memory() -> None:
    judge, gateway = Steps(yes(Usage(3, 4))), Gateway()
    first = await gateway.ask(judge, ask_about("a"))
    assert await gateway.ask(judge, ask_about("a")) is first
    assert len(judge.asked) == 1
    assert gateway.totals.usage == Usage(3, 4)


@pytest.mark.anyio
async def test_judges_that_differ_in_identity_never_share_an_answer() -> None:
    one, other, gateway = Gated("one"), Gated("other"), Gateway()
    other.gate = one.gate
    await at_once(
        lambda: gateway.ask(one, ask_about("a")),
        lambda: gateway.ask(other, ask_about("a")),
        gate=one.gate,
    )
    assert (one.calls, other.calls, gateway.totals.shared) == (1, 1, 0)


@pytest.mark.anyio
async def test_judges_of_one_identity_share_answers() -> None:
    one, twin, gateway = Gated(), Gated(), Gateway()
    twin.gate = one.gate
    await at_once(
        lambda: gateway.ask(one, ask_about("a")),
        lambda: gateway.ask(twin, ask_about("a")),
        gate=one.gate,
    )
    assert (one.calls + twin.calls, gateway.totals.shared) == (1, 1)


@pytest.mark.anyio
async def test_samples_of_one_question_never_share_an_answer() -> None:
    judge, gateway = Gated(), Gateway()
    await at_once(
        *[
            lambda sample=sample: gateway.ask(judge, ask_about("a", sample=sample))
            for sample in range(5)
        ],
        gate=judge.gate,
    )
    assert (judge.calls, gateway.totals.shared) == (5, 0)


@pytest.mark.anyio
async def test_a_failure_is_shared_by_those_who_wait_and_then_forgotten() -> None:
    gate = anyio.Event()
    calls = 0

    async def script(question: Question[Any]) -> Any:
        nonlocal calls
        calls += 1
        await gate.wait()
        return RefusedError("no") if calls == 1 else True

    judge, gateway = ScriptedJudge(script), Gateway()
    failed = await at_once(*[lambda: gateway.ask(judge, ask_about("a"))] * 3, gate=gate)
    assert [type(error) for error in failed] == [RefusedError] * 3
    assert calls == 1
    answer: Any = await gateway.ask(judge, ask_about("a"))
    assert answer.value.verdict is True
    assert (calls, gateway.totals.failed, gateway.totals.shared) == (2, 1, 2)


@pytest.mark.anyio
async def test_one_who_waits_takes_over_when_the_one_who_asks_is_cancelled() -> None:
    started: list[anyio.Event] = [anyio.Event(), anyio.Event()]
    calls = 0

    async def script(question: Question[Any]) -> bool:
        nonlocal calls
        calls += 1
        started[calls - 1].set()
        if calls == 1:
            await anyio.sleep_forever()
        return True

    judge, gateway = ScriptedJudge(script), Gateway()
    leader = anyio.CancelScope()
    answers: list[Answer[Any]] = []

    async def lead() -> None:
        with leader:
            await gateway.ask(judge, ask_about("a"))

    async def follow() -> None:
        answers.append(await gateway.ask(judge, ask_about("a")))

    with anyio.fail_after(LIMIT):
        async with anyio.create_task_group() as group:
            group.start_soon(lead)
            await started[0].wait()
            for _ in range(3):
                group.start_soon(follow)
            await anyio.wait_all_tasks_blocked()
            leader.cancel()
    assert leader.cancelled_caught
    assert (len(answers), calls) == (3, 2)


@pytest.mark.anyio
async def test_a_question_whose_askers_were_all_cancelled_can_be_asked_again() -> None:
    judge, gateway = Gated(), Gateway(Limits(max_in_flight=1))
    with anyio.fail_after(LIMIT):
        async with anyio.create_task_group() as group:
            for _ in range(3):
                group.start_soon(gateway.ask, judge, ask_about("a"))
            await anyio.wait_all_tasks_blocked()
            group.cancel_scope.cancel()
        judge.gate.set()
        await gateway.ask(judge, ask_about("a"))
    assert judge.calls == 2


@pytest.mark.anyio
async def test_no_more_calls_are_under_way_than_the_limit_allows() -> None:
    width, waves = 4, 3
    judge, gateway = Gated(), Gateway(Limits(max_in_flight=width))
    asks = [lambda n=n: gateway.ask(judge, ask_about(str(n))) for n in range(width * waves)]
    await at_once(*asks, gate=judge.gate)
    assert (judge.most, judge.calls) == (width, width * waves)


@pytest.mark.anyio
@pytest.mark.parametrize(
    "error", [RefusedError("no"), UnparseableError("bad", "raw"), ValueError("bug"), TimeoutError()]
)
async def test_a_slot_is_given_back_whatever_a_call_raises(error: Exception) -> None:
    judge = Steps(error)
    gateway = Gateway(Limits(max_in_flight=1, reasks=0, attempts=1))
    with anyio.fail_after(LIMIT):
        with pytest.raises(JudgeError):
            await gateway.ask(judge, ask_about("a"))
        await gateway.ask(judge, ask_about("b"))
    assert len(judge.asked) == 2


@pytest.mark.anyio
async def test_a_slot_is_given_back_when_a_call_is_cancelled() -> None:
    judge, gateway = Gated(), Gateway(Limits(max_in_flight=1))
    with anyio.fail_after(LIMIT):
        async with anyio.create_task_group() as group:
            group.start_soon(gateway.ask, judge, ask_about("a"))
            await anyio.wait_all_tasks_blocked()
            group.cancel_scope.cancel()
        judge.gate.set()
        await gateway.ask(judge, ask_about("b"))
    assert judge.calls == 2


@pytest.mark.anyio
async def test_a_call_over_its_deadline_is_ended_typed_and_repeated_once_with_more_time() -> None:
    judge = Gated()
    ledger: list[Attempt] = []
    gateway = Gateway(Limits(call_timeout=0.01, **NO_WAIT), ledger.append)
    with (
        anyio.fail_after(LIMIT),
        pytest.raises(JudgeTimeoutError, match=r"no answer within 0.02 s"),
    ):
        await gateway.ask(judge, ask_about("a"))
    assert [attempt.message for attempt in ledger] == [
        f"no answer within {seconds} s: timeout of the call" for seconds in (0.01, 0.02)
    ]
    assert (judge.calls, judge.inside) == (2, 0)


@pytest.mark.anyio
@pytest.mark.parametrize(
    "anyio_backend", [("trio", {"clock": MockClock(autojump_threshold=0)})], ids=["trio, no clock"]
)
async def test_a_call_over_its_deadline_is_made_again() -> None:
    gate = anyio.Event()
    calls = 0

    async def script(question: Question[Any]) -> bool:
        nonlocal calls
        calls += 1
        if calls == 1:
            await gate.wait()
        return True

    gateway = Gateway(Limits(call_timeout=5, **NO_WAIT))
    with anyio.fail_after(LIMIT):
        await gateway.ask(ScriptedJudge(script), ask_about("a"))
    assert (calls, gateway.totals.retried, gateway.totals.failed) == (2, 1, 1)


@pytest.mark.anyio
@pytest.mark.parametrize(
    "anyio_backend", [("trio", {"clock": MockClock(autojump_threshold=0)})], ids=["trio, no clock"]
)
async def test_the_deadline_of_a_call_does_not_run_while_it_waits_for_its_turn() -> None:
    async def script(question: Question[Any]) -> bool:
        await anyio.sleep(60)
        return True

    gateway = Gateway(Limits(max_in_flight=1, call_timeout=100, attempts=1))
    judge = ScriptedJudge(script)
    async with anyio.create_task_group() as group:
        for text in "abc":
            group.start_soon(gateway.ask, judge, ask_about(text))
    assert gateway.totals.failed == 0


@pytest.mark.anyio
async def test_a_timeout_of_the_models_own_is_not_blamed_on_the_deadline() -> None:
    judge = Steps(TimeoutError("the socket gave up"))
    gateway = Gateway(Limits(call_timeout=None, attempts=1))
    with pytest.raises(JudgeError, match="the socket gave up") as caught:
        await gateway.ask(judge, ask_about("a"))
    assert "None" not in str(caught.value)


@pytest.mark.anyio
async def test_transient_failures_are_tried_again_and_all_of_them_are_in_the_ledger() -> None:
    ledger: list[Attempt] = []
    judge = Steps(transient(), transient(), yes(Usage(5, 2)))
    gateway = Gateway(Limits(**NO_WAIT), ledger.append)
    await gateway.ask(judge, ask_about("a"))
    assert [attempt.outcome for attempt in ledger] == ["provider_error", "provider_error", "ok"]
    assert {attempt.key for attempt in ledger} == {ask_about("a").key}
    assert {(attempt.node, attempt.judge) for attempt in ledger} == {("a", "steps")}
    assert [attempt.message for attempt in ledger] == ["overloaded", "overloaded", None]
    totals = gateway.totals
    assert (totals.calls, totals.retried, totals.failed) == (3, 2, 2)
    assert totals.usage == Usage(5, 2)


@pytest.mark.anyio
async def test_the_attempts_of_one_question_are_numbered_in_order() -> None:
    ledger: list[Attempt] = []
    gateway = Gateway(Limits(attempts=4, **NO_WAIT), ledger.append)
    await gateway.ask(Steps(transient(), transient(), transient()), ask_about("a"))
    assert [attempt.number for attempt in ledger] == [0, 1, 2, 3]


@pytest.mark.anyio
async def test_transient_failures_are_tried_as_often_as_allowed_and_then_raised() -> None:
    for attempts in (1, 2, 5):
        judge = Steps(*[transient() for _ in range(9)])
        gateway = Gateway(Limits(attempts=attempts, patience=0, **NO_WAIT))
        with pytest.raises(ProviderError, match="overloaded"):
            await gateway.ask(judge, ask_about("a"))
        own = [question.name for question in judge.asked].count("a")
        assert (own, gateway.totals.failed) == (attempts, len(judge.asked))


@pytest.mark.anyio
@pytest.mark.parametrize(
    "error",
    [
        ProviderError("bad request", transient=False, status=400),
        RefusedError("no"),
        JudgeSetupError("no key"),
        UnsupportedError("no text"),
        RecordingMissError("not recorded"),
    ],
)
async def test_final_failures_are_not_tried_again(error: JudgeError) -> None:
    judge = Steps(error)
    gateway = Gateway(Limits(**NO_WAIT))
    with pytest.raises(type(error)) as caught:
        await gateway.ask(judge, ask_about("a"))
    assert caught.value is error
    assert (len(judge.asked), gateway.totals.failed) == (1, 1)


@pytest.mark.anyio
async def test_a_failure_after_a_transient_one_ends_the_attempts() -> None:
    judge = Steps(transient(), RefusedError("no"))
    with pytest.raises(RefusedError):
        await Gateway(Limits(**NO_WAIT)).ask(judge, ask_about("a"))
    assert len(judge.asked) == 2


@pytest.mark.anyio
async def test_a_mistake_in_a_judges_code_is_final_and_has_its_cause() -> None:
    bug = TypeError("generate() got an unexpected keyword argument 'schema'")
    judge = Steps(bug)
    with pytest.raises(JudgeCodeError, match=r"TypeError: generate.*line \d+") as caught:
        await Gateway().ask(judge, ask_about("a"))
    assert caught.value.__cause__ is bug
    assert caught.value.kind == "code_error"
    assert len(judge.asked) == 1


@pytest.mark.anyio
async def test_an_answer_that_does_not_fit_is_asked_for_again_with_what_was_wrong() -> None:
    ledger: list[Attempt] = []
    judge = Steps(
        UnparseableError("verdict: Input should be true", "RAW", (7, 3)), yes(Usage(9, 1))
    )
    gateway = Gateway(sink=ledger.append)
    await gateway.ask(judge, ask_about("a"))
    first, second = judge.asked
    assert second.messages[: len(first.messages)] == first.messages
    reply, complaint = second.messages[len(first.messages) :]
    assert (reply["role"], reply["content"]) == ("assistant", "RAW")
    assert complaint["role"] == "user"
    assert "verdict: Input should be true" in complaint["content"]
    assert [attempt.outcome for attempt in ledger] == ["unparseable", "ok"]
    assert [attempt.usage for attempt in ledger] == [Usage(7, 3), Usage(9, 1)]
    assert gateway.totals.usage == Usage(16, 4)


@pytest.mark.anyio
@pytest.mark.parametrize("reasks", [0, 1, 3])
async def test_answers_that_never_fit_end_with_the_last_raw_text(reasks: int) -> None:
    judge = Steps(*[UnparseableError("bad", f"raw {n}") for n in range(9)])
    with pytest.raises(UnparseableError) as caught:
        await Gateway(Limits(reasks=reasks)).ask(judge, ask_about("a"))
    assert caught.value.raw == f"raw {reasks}"
    assert len(judge.asked) == reasks + 1
    # Each complaint is about the latest answer, and the conversation does not grow.
    assert all(len(question.messages) == 4 for question in judge.asked[1:])


@pytest.mark.anyio
async def test_a_judge_that_would_only_repeat_itself_is_not_asked_again() -> None:
    judge = RecordedJudge({ask_about("a").key: "gibberish"})
    gateway = Gateway()
    with pytest.raises(UnparseableError):
        await gateway.ask(judge, ask_about("a"))
    assert gateway.totals.calls == 1


@pytest.mark.anyio
async def test_a_transient_failure_of_a_second_question_keeps_its_complaint() -> None:
    judge = Steps(UnparseableError("bad", "raw"), transient(), yes())
    await Gateway(Limits(**NO_WAIT)).ask(judge, ask_about("a"))
    assert judge.asked[1].messages == judge.asked[2].messages
    assert len(judge.asked[2].messages) == 4


@pytest.mark.anyio
async def test_an_answer_that_fits_the_second_time_answers_the_first_question() -> None:
    judge, gateway = Steps(UnparseableError("bad", "raw"), yes()), Gateway()
    first = await gateway.ask(judge, ask_about("a"))
    assert await gateway.ask(judge, ask_about("a")) is first
    assert len(judge.asked) == 2


@pytest.mark.anyio
async def test_a_call_that_is_cancelled_is_in_the_ledger_like_any_other() -> None:
    ledger: list[Attempt] = []
    judge, gateway = Gated(), Gateway(sink=ledger.append)
    async with anyio.create_task_group() as group:
        group.start_soon(gateway.ask, judge, ask_about("a"))
        await anyio.wait_all_tasks_blocked()
        group.cancel_scope.cancel()
    assert gateway.totals.calls == len(ledger) == 1
    assert ledger[0].outcome is not OutcomeKind.OK


@pytest.mark.anyio
async def test_a_question_cancelled_before_its_turn_costs_no_call() -> None:
    ledger: list[Attempt] = []
    judge, gateway = Gated(), Gateway(Limits(max_in_flight=1), ledger.append)
    scope = anyio.CancelScope()

    async def impatient() -> None:
        with scope:
            await gateway.ask(judge, ask_about("b"))

    with anyio.fail_after(LIMIT):
        async with anyio.create_task_group() as group:
            group.start_soon(gateway.ask, judge, ask_about("a"))
            await anyio.wait_all_tasks_blocked()
            group.start_soon(impatient)
            await anyio.wait_all_tasks_blocked()
            scope.cancel()
            await anyio.wait_all_tasks_blocked()
            judge.gate.set()
    assert (judge.calls, gateway.totals.calls, len(ledger)) == (1, 1, 1)


class Sleeps:
    """Stands in for `anyio.sleep`: remembers how long, and runs `meanwhile` instead."""

    def __init__(self) -> None:
        self.seconds: list[float] = []
        self.meanwhile: Callable[[], Awaitable[Any]] = anyio.lowlevel.checkpoint

    async def __call__(self, seconds: float) -> None:
        self.seconds.append(seconds)
        await self.meanwhile()


@pytest.fixture
def sleeps(monkeypatch: pytest.MonkeyPatch) -> Sleeps:
    record = Sleeps()
    monkeypatch.setattr("dagengine.gateway.gateway.anyio.sleep", record)
    return record


@pytest.mark.anyio
async def test_waits_grow_up_to_the_limit_and_differ(sleeps: Sleeps) -> None:
    judge = Steps(*[transient() for _ in range(4)])
    await Gateway(Limits(attempts=5, backoff=1.0, max_backoff=4.0)).ask(judge, ask_about("a"))
    bounds = [min(4.0, 2.0**n) for n in range(4)]
    assert all(0 <= wait <= bound for wait, bound in zip(sleeps.seconds, bounds, strict=True))
    assert len(set(sleeps.seconds)) == 4  # jitter


@pytest.mark.anyio
async def test_no_slot_is_held_while_waiting_for_the_next_attempt(sleeps: Sleeps) -> None:
    judge = Steps(transient(), yes(), yes())
    gateway = Gateway(Limits(max_in_flight=1))
    sleeps.meanwhile = lambda: gateway.ask(judge, ask_about("b"))
    with anyio.fail_after(LIMIT):
        await gateway.ask(judge, ask_about("a"))
    assert [question.name for question in judge.asked] == ["a", "b", "a"]
    assert len(sleeps.seconds) == 1


@pytest.mark.anyio
async def test_no_wait_follows_the_last_attempt_or_a_final_failure(sleeps: Sleeps) -> None:
    gateway = Gateway(Limits(attempts=2))
    with pytest.raises(ProviderError):
        await gateway.ask(Steps(transient(), transient()), ask_about("a"))
    assert len(sleeps.seconds) == 1
    with pytest.raises(RefusedError):
        await gateway.ask(Steps(RefusedError("no")), ask_about("b"))
    assert len(sleeps.seconds) == 1


@pytest.mark.anyio
async def test_the_answer_that_was_used_least_recently_is_forgotten_first() -> None:
    judge, gateway = Steps(), Gateway(Limits(remembered=2))
    for text in "abacab":
        await gateway.ask(judge, ask_about(text))
    assert [question.name for question in judge.asked] == ["a", "b", "c", "b"]


@pytest.mark.anyio
@pytest.mark.parametrize(("remembered", "calls"), [(0, "aababa"), (1, "ababa")])
async def test_few_remembered_answers_mean_more_calls(remembered: int, calls: str) -> None:
    judge, gateway = Steps(), Gateway(Limits(remembered=remembered))
    for text in "aababa":
        await gateway.ask(judge, ask_about(text))
    assert "".join(question.name for question in judge.asked) == calls
    assert gateway.totals.shared == 6 - len(calls)


@pytest.mark.parametrize(
    "wrong",
    [
        {"max_in_flight": 0},
        {"attempts": 0},
        {"call_timeout": 0},
        {"call_timeout": -1.0},
        {"case_timeout": 0.0},
        {"requests_per_minute": 0},
        {"tokens_per_minute": -1},
        {"patience": -1.0},
        {"max_calls": -1},
        {"max_calls": 1.5},
        {"budget": float("nan")},
        {"prices": {"m": (1.0,)}},
        {"prices": {"m": (1.0, -1.0)}},
    ],
)
def test_limits_that_make_no_sense_are_refused_by_name(wrong: dict[str, Any]) -> None:
    with pytest.raises(InputError, match=next(iter(wrong))):
        Limits(**wrong)


def weighty(raw: str = "{}", tokens: int = 0) -> Answer[Any]:
    """An answer with a text, and token probabilities of 20 alternatives each."""
    choice = TokenChoice("a", tuple((f"t{number}", -1.0) for number in range(20)))
    return Answer(yes().value, raw, (choice,) * tokens)


@pytest.mark.anyio
@pytest.mark.parametrize("heavy", [weighty("x" * 30_000), weighty(tokens=10)])
async def test_answers_are_remembered_by_what_they_take_in_memory(heavy: Answer[Any]) -> None:
    judge, gateway = Steps(yes(), heavy, heavy, heavy), Gateway(Limits(remembered=75))
    for name in "abcdb":  # the light one and two heavy ones fit, three heavy ones do not
        await gateway.ask(judge, ask_about(name))
    assert [question.name for question in judge.asked] == list("abcdb")
    for name in "bd":
        await gateway.ask(judge, ask_about(name))
    assert (len(judge.asked), gateway.totals.shared) == (5, 2)


@pytest.mark.anyio
async def test_an_answer_too_heavy_to_be_remembered_displaces_no_other() -> None:
    judge, gateway = Steps(yes(), weighty(tokens=100)), Gateway(Limits(remembered=75))
    for name in "abab":
        await gateway.ask(judge, ask_about(name))
    assert [question.name for question in judge.asked] == list("abb")


@pytest.mark.anyio
async def test_a_store_takes_the_place_of_memory_for_judges_that_it_knows(tmp_path: Path) -> None:
    first, judge, unknown = ask_about("a"), Steps(weighty(tokens=10)), Steps(identity="unknown")
    judge.durable_identity = "steps"  # type: ignore[attr-defined]
    many = [weighty("x" * 500_000) for _ in range(4)]
    judge.steps += many
    async with Store(tmp_path / "answers.db").open() as stored:
        gateway = Gateway(stored=stored)
        for asked in (first, *map(ask_about, "bcde"), first):
            for one in (judge, unknown):
                await gateway.ask(one, asked)
    assert (len(judge.asked), len(unknown.asked)) == (5, 5)
    assert (gateway.totals.cached, gateway.totals.shared) == (1, 1)
