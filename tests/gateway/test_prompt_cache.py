"""Prompts that begin alike: the first goes ahead, the others follow together."""

import anyio
import pytest
from openai_server import Json, OpenAIServer, Reply

from dagengine import evaluate
from dagengine.gateway.packs.prompt_cache import PREFIX_CHARACTERS, PromptCacheOrder, prefix_of
from dagengine.gateway.urgency import Urgency
from dagengine.judges import OpenAIJudge
from dagengine.metrics import DAGMetric
from dagengine.metrics.dag import DAG, BinaryJudgementNode
from dagengine.question import Message
from dagengine.test_case import LLMTestCase

LONG = "x" * PREFIX_CHARACTERS


def prompt(user: str, system: str = LONG) -> tuple[Message, ...]:
    return ({"role": "system", "content": system}, {"role": "user", "content": user})


def beginning(user: str, system: str = LONG) -> bytes:
    prefix = prefix_of(prompt(user, system))
    assert prefix is not None
    return prefix


def test_prompts_share_a_prefix_when_they_begin_alike_for_long_enough() -> None:
    assert prefix_of(prompt("a")) == prefix_of(prompt("b"))
    assert prefix_of(prompt("a")) != prefix_of(prompt("a", "y" + LONG))
    assert prefix_of(prompt("a", LONG[1:])) != prefix_of(prompt("b", LONG[1:]))
    assert prefix_of(prompt("a", "short")) is None
    assert prefix_of(prompt("\ud800", LONG[1:])) is not None


def test_where_one_message_ends_and_the_next_begins_matters() -> None:
    half = "x" * (PREFIX_CHARACTERS // 2)
    assert prefix_of(prompt(half + half, half)) != prefix_of(prompt(half, half + half))


class Calls:
    """Calls that wait until they are let go; counts those under way."""

    def __init__(self, prefixes: PromptCacheOrder) -> None:
        self.prefixes = prefixes
        self.under_way: list[str] = []
        self.go = {name: anyio.Event() for name in "abcd"}

    async def make(self, name: str, *, fails: bool = False, system: str = LONG) -> None:
        async with self.prefixes.turn("judge", beginning(name, system), Urgency()):
            self.under_way.append(name)
            await self.go[name].wait()
            if fails:
                raise ConnectionError


@pytest.mark.anyio
async def test_followers_wait_for_the_first_and_then_go_together() -> None:
    calls = Calls(PromptCacheOrder())
    async with anyio.create_task_group() as group:
        for name in "abc":
            group.start_soon(calls.make, name)
        await anyio.wait_all_tasks_blocked()
        assert len(calls.under_way) == 1
        calls.go[calls.under_way[0]].set()
        await anyio.wait_all_tasks_blocked()
        assert sorted(calls.under_way) == ["a", "b", "c"]
        for event in calls.go.values():
            event.set()


@pytest.mark.anyio
async def test_other_beginnings_do_not_wait() -> None:
    calls = Calls(PromptCacheOrder())
    async with anyio.create_task_group() as group:
        group.start_soon(calls.make, "a")
        await anyio.wait_all_tasks_blocked()
        other = "y" * PREFIX_CHARACTERS
        group.start_soon(lambda: calls.make("b", system=other))
        await anyio.wait_all_tasks_blocked()
        assert sorted(calls.under_way) == ["a", "b"]
        for event in calls.go.values():
            event.set()


@pytest.mark.anyio
async def test_when_the_first_fails_the_next_goes_ahead_alone() -> None:
    calls = Calls(PromptCacheOrder())
    async with anyio.create_task_group() as group:

        async def failing() -> None:
            with pytest.raises(ConnectionError):
                await calls.make("a", fails=True)

        group.start_soon(failing)
        await anyio.wait_all_tasks_blocked()
        group.start_soon(calls.make, "b")
        group.start_soon(calls.make, "c")
        calls.go["a"].set()
        await anyio.wait_all_tasks_blocked()
        assert len(calls.under_way) == 2
        for event in calls.go.values():
            event.set()


@pytest.mark.anyio
async def test_when_the_first_is_cancelled_nobody_waits_for_ever() -> None:
    calls = Calls(PromptCacheOrder())
    with anyio.fail_after(60):
        async with anyio.create_task_group() as group:
            scope = anyio.CancelScope()

            async def cancelled() -> None:
                with scope:
                    await calls.make("a")

            group.start_soon(cancelled)
            await anyio.wait_all_tasks_blocked()
            group.start_soon(calls.make, "b")
            scope.cancel()
            calls.go["b"].set()
    assert calls.under_way == ["a", "b"]


@pytest.mark.anyio
async def test_a_prefix_cools_down_when_nobody_uses_it(monkeypatch: pytest.MonkeyPatch) -> None:
    prefixes = PromptCacheOrder()
    async with prefixes.turn("judge", beginning("a"), Urgency()):
        pass
    calls = Calls(prefixes)
    monkeypatch.setattr("dagengine.gateway.packs.prompt_cache.WARM_SECONDS", 0.0)
    async with anyio.create_task_group() as group:
        group.start_soon(calls.make, "b")
        group.start_soon(calls.make, "c")
        await anyio.wait_all_tasks_blocked()
        assert len(calls.under_way) == 1
        for event in calls.go.values():
            event.set()


def metric_with_long_criterion() -> DAGMetric:
    asked = BinaryJudgementNode(
        f"Is it polite? {LONG}", evaluation_params=["input"], then={True: 10, False: 0}
    )
    return DAGMetric(name="polite", dag=DAG(root_nodes=[asked]))


def test_one_call_warms_the_cache_that_serves_all_others() -> None:
    """The server caches a beginning once its first call is through, as providers do."""
    warm: set[str] = set()
    hits: list[bool] = []

    def respond(body: Json) -> Reply:
        if body.get("max_tokens") == 1:  # only asks how many tokens a prompt has
            return Reply("")
        beginning = body["messages"][0]["content"]
        hits.append(beginning in warm)
        # What is under way together has begun before any of it was through.
        if server.in_flight == 1:
            warm.add(beginning)
        return Reply('{"reason": "", "verdict": true}', delay=0.02)

    server = OpenAIServer(respond)
    cases = [LLMTestCase(input=f"case {number}") for number in range(30)]
    with server:
        judge = OpenAIJudge("m", base_url=server.base_url)
        done = evaluate(cases, [metric_with_long_criterion()], model=judge, show=False)
    assert done.scores("polite") == [1.0] * 30
    assert hits == [False] + [True] * 29
    assert server.in_flight_max > 1
