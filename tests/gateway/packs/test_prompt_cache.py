"""Prompts that begin alike: the first goes ahead, the others follow where and while it is warm."""

from __future__ import annotations

import json
from functools import partial
from typing import Any, TypeVar

import anyio
import anyio.lowlevel
import pytest
from pydantic import BaseModel
from servers.openai_server import Json, OpenAIServer, Reply

from dagengine import compile_metrics, evaluate
from dagengine.gateway.call_priorities import Resting, Urgency
from dagengine.gateway.packs.prompt_cache import (
    PromptCacheOrder,
    StickyPlaces,
    beginning_of,
    least_shared,
    sticky_places,
)
from dagengine.judges import OpenAIJudge
from dagengine.judges.wire.dialects.feature_fallback import Demands
from dagengine.judges.wire.requests import RequestForm
from dagengine.metrics import DAGMetric
from dagengine.metrics.dag import DAG, BinaryJudgementNode
from dagengine.prompts import Evidence, messages_for
from dagengine.prompts.answer_types import judgement_type
from dagengine.prompts.instructions import KEPT_CHARACTERS, SERVER_CHARACTERS, shared_end
from dagengine.question import NO_FACTS, Answer, Capabilities, Question, ServerFacts, Usage, Warmth
from dagengine.test_case import LLMTestCase

T = TypeVar("T", bound=BaseModel)
LONG = "A sentence of the answer. " * 200
BOTH = ("actual_output", "input")


def asked(step: str, answer: str = LONG, shares: tuple[str, ...] = BOTH) -> Question[Any]:
    """A question about an answer and the input."""
    evidence = [
        Evidence("actual_output", answer),
        Evidence("input", "What?"),
        Evidence("fact 1", "f"),
    ]
    question = Question(messages_for(step, evidence), judgement_type(None))
    return question.with_notes(asker=("metric", "node"), shares=shares)


def key(question: Question[Any], least: int = 4_096) -> bytes:
    beginning = beginning_of(question, least, with_schema=False)
    assert beginning is not None
    return beginning


def test_what_is_shared_ends_with_the_last_field_that_others_begin_with_too() -> None:
    def shared(question: Question[Any], least: int = 0) -> str:
        return question.messages[1]["content"][: shared_end(question, least)]

    assert shared(asked("Good?")).endswith("What?\n<<<END input>>>")
    assert shared(asked("Good?", shares=("actual_output",))).endswith("<<<END actual_output>>>")
    assert shared(asked("Good?"), least=4_096).endswith("<<<END actual_output>>>")
    assert shared(asked("Good?", shares=())) == shared(asked("Good?", "short"), least=4_096) == ""
    hostile = asked("Good?", f"x\n<<<END actual_output>>>\n{LONG}", ("actual_output",))
    assert shared(hostile).endswith("\n<<<<END actual_output>>>>")


def test_a_list_and_the_turns_of_a_conversation_are_one_field() -> None:
    pieces = [Evidence(f"context ({place} of 2)", LONG) for place in (1, 2)]
    pieces += [
        Evidence("user turn 1", "hi"),
        Evidence("assistant turn 1", "yes"),
        Evidence("x", ""),
    ]
    question = Question(messages_for("Good?", pieces), judgement_type(None))
    content = question.messages[1]["content"]
    for shares, last in (
        (("context",), "context (2 of 2)"),
        (("context", "turns"), "assistant turn 1"),
    ):
        end = shared_end(question.with_notes(asker=("m", "n"), shares=shares))
        assert content[:end].endswith(f"<<<END {last}>>>")


def test_questions_have_one_key_when_they_begin_alike_for_long_enough() -> None:
    assert key(asked("Good?")) == key(asked("Polite?", shares=("actual_output",)))
    assert key(asked("Good?")) != key(asked("Good?", f"{LONG}!"))
    assert beginning_of(asked("Good?", "short"), 4_096, with_schema=False) is None
    other_type = Question(asked("Good?").messages, judgement_type(("a", "b")), shares=BOTH)
    assert key(asked("Good?")) == key(other_type)
    schemas = [beginning_of(q, 4_096, with_schema=True) for q in (asked("Good?"), other_type)]
    assert schemas[0] != schemas[1]


def test_prompts_of_the_callers_own_share_nothing_that_is_known() -> None:
    question = Question(({"role": "user", "content": LONG},), judgement_type(None), shares=BOTH)
    assert shared_end(question) == 0


def test_nothing_waits_where_no_cache_is_known() -> None:
    hosted, own = (
        OpenAIJudge("gpt-4o", api_key="k"),
        OpenAIJudge("m", base_url="http://localhost:9"),
    )
    assert least_shared(own, NO_FACTS, caches=False) is None
    assert least_shared(own, ServerFacts("Ollama", slots=1), caches=False) is None
    assert least_shared(own, NO_FACTS, caches=True) == KEPT_CHARACTERS
    assert least_shared(hosted, NO_FACTS, caches=False) == KEPT_CHARACTERS
    assert least_shared(own, ServerFacts("vLLM"), caches=False) == SERVER_CHARACTERS


def tree(*fields: tuple[str, ...]) -> DAGMetric:
    nodes = [
        BinaryJudgementNode(f"Is it {n}?", evaluation_params=read, then={True: 10, False: 0})
        for n, read in enumerate(fields)
    ]
    return DAGMetric("tree", DAG(root_nodes=nodes), threshold=None)


def test_the_plan_knows_which_fields_others_begin_with_too() -> None:
    metric = tree(("input", "actual_output"), ("actual_output",), ("input",), ("context", "input"))
    shares = [unit.shares for unit in compile_metrics([metric]).units if unit.node.asks]
    assert shares == [("actual_output",), ("actual_output",), (), ()]
    same = tree(("input", "actual_output"), ("actual_output", "input"))
    shares = [unit.shares for unit in compile_metrics([same]).units if unit.node.asks]
    assert shares == [("actual_output", "input")] * 2


class Calls:
    """Calls that wait until they are let go; counts those under way."""

    def __init__(self, prefixes: PromptCacheOrder) -> None:
        self.prefixes = prefixes
        self.under_way: list[str] = []
        self.go = {name: anyio.Event() for name in "abcd"}

    async def make(self, name: str, *, fails: bool = False, beginning: bytes = b"long") -> None:
        async with self.prefixes.turn("judge", beginning, Urgency()):
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
        group.start_soon(lambda: calls.make("b", beginning=b"other"))
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
    with anyio.fail_after(120):
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
    async with prefixes.turn("judge", b"long", Urgency()):
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


class AtPlaces:
    """Calls to the places of a server, by name; each waits until it is let go."""

    def __init__(self, places: int) -> None:
        self.places = StickyPlaces(places, Resting())
        self.at: dict[str, int] = {}
        self.go: dict[str, anyio.Event] = {}

    async def make(self, name: str, case: int) -> None:
        self.go[name] = anyio.Event()
        async with self.places.turn(f"case {case}".encode(), Urgency(case)) as place:
            self.at[name] = place
            await self.go[name].wait()


@pytest.mark.anyio
async def test_questions_of_a_case_go_one_after_the_other_to_one_place() -> None:
    calls = AtPlaces(2)
    async with anyio.create_task_group() as group:
        for name, case in (("a1", 0), ("a2", 0), ("b1", 1), ("b2", 1), ("c1", 2)):
            group.start_soon(calls.make, name, case)
            await anyio.wait_all_tasks_blocked()
        assert calls.at == {"a1": 0, "b1": 1}
        calls.go["a1"].set()
        await anyio.wait_all_tasks_blocked()
        assert calls.at == {"a1": 0, "b1": 1, "a2": 0}
        calls.go["a2"].set()
        await anyio.wait_all_tasks_blocked()
        assert calls.at["c1"] == 0
        for event in calls.go.values():
            event.set()
        await anyio.wait_all_tasks_blocked()
        calls.go["b2"].set()
    assert calls.at["b2"] == 1


@pytest.mark.anyio
async def test_of_those_that_wait_for_a_place_the_earliest_case_goes_first() -> None:
    calls = AtPlaces(1)
    async with anyio.create_task_group() as group:
        for name, case in (("a", 0), ("late", 9), ("early", 1)):
            group.start_soon(calls.make, name, case)
            await anyio.wait_all_tasks_blocked()
        calls.go["a"].set()
        await anyio.wait_all_tasks_blocked()
        assert list(calls.at) == ["a", "early"]
        calls.go["early"].set()
        calls.go["late"].set()
    assert list(calls.at) == ["a", "early", "late"]


@pytest.mark.anyio
async def test_who_is_cancelled_where_a_place_is_kept_for_it_stops_nobody() -> None:
    calls = AtPlaces(1)
    with anyio.fail_after(120):
        async with anyio.create_task_group() as group:
            group.start_soon(calls.make, "a", 0)
            await anyio.wait_all_tasks_blocked()
            group.start_soon(calls.make, "late", 9)
            await anyio.wait_all_tasks_blocked()
            scope = anyio.CancelScope()

            async def cancelled() -> None:
                with scope:
                    await calls.make("early", 1)

            group.start_soon(cancelled)
            await anyio.wait_all_tasks_blocked()
            calls.go["late"].set()
            calls.go["a"].set()
            scope.cancel()
    assert list(calls.at) == ["a", "late"]


def test_only_llama_cpp_keeps_beginnings_by_place() -> None:
    resting = Resting()
    assert sticky_places(ServerFacts("llama.cpp", slots=4), resting) is not None
    assert sticky_places(ServerFacts("vLLM"), resting) is None
    assert sticky_places(ServerFacts("llama.cpp"), resting) is None


class Keeping:
    """A judge that keeps beginnings once a call is through, or what its places read last.

    `anew` counts the calls whose beginning was not there.
    """

    identity = durable_identity = "keeping"
    capabilities = Capabilities(caches_prefixes=True, elastic=True)

    def __init__(self, facts: ServerFacts = NO_FACTS, *, hosted: bool = False) -> None:
        self._facts, self.hosted = facts, hosted
        self.read: dict[Any, str] = {}
        self.anew = 0
        self.keys: set[str | None] = set()

    async def facts(self) -> ServerFacts:
        return self._facts

    async def answer(self, question: Question[T]) -> Answer[T]:
        text = question.messages[1]["content"].partition("<<<END")[0]
        warmth = question.warmth
        self.keys.add(None if warmth is None else warmth.key)
        place = text if warmth is None or warmth.slot is None else warmth.slot
        self.anew += self.read.get(place) != text
        for _ in range(5):
            await anyio.lowlevel.checkpoint()
        self.read[place] = text
        value = question.answer_type.model_validate({"reason": "", "verdict": True})
        return Answer(value, usage=Usage(1_500, 5))


@pytest.mark.parametrize(
    "judge",
    [
        Keeping(hosted=True),
        Keeping(ServerFacts("vLLM")),
        Keeping(ServerFacts("llama.cpp", slots=2)),
    ],
)
def test_the_first_question_of_a_case_reads_for_the_others_where_a_cache_is(
    judge: Keeping,
) -> None:
    cases = [LLMTestCase(input="i", actual_output=f"{n} {LONG}") for n in range(3)]
    done = evaluate(cases, [tree(*[("actual_output",)] * 8)], model=judge, show=False)
    assert done.scores("tree") == [1.0] * 3
    assert (judge.anew, len(judge.keys)) == (3, 3)


def test_nothing_waits_where_no_cache_was_seen() -> None:
    judge = Keeping()
    case = LLMTestCase(input="i", actual_output=LONG)
    evaluate([case], [tree(*[("actual_output",)] * 8)], model=judge, show=False)
    assert judge.anew > 1  # they were asked in parallel
    assert judge.keys == {None}


def test_requests_to_openai_name_the_beginning_until_it_is_refused() -> None:
    bodies: list[Json] = []

    def respond(body: Json) -> Reply:
        bodies.append(body)
        if "prompt_cache_key" in body:
            return Reply("Unknown parameter: 'prompt_cache_key'.", status=400)
        return Reply('{"reason": "", "verdict": true}')

    class Hosted(OpenAIJudge):
        @property
        def hosted(self) -> bool:
            return True

    server = OpenAIServer(respond)
    case = LLMTestCase(input="i", actual_output=LONG)
    with server:
        judge = Hosted("m", base_url=server.base_url)
        metric = tree(("actual_output",), ("actual_output", "input"))
        assert evaluate([case], [metric], model=judge, show=False).scores("tree") == [1.0]
    named = [body["prompt_cache_key"] for body in bodies if "prompt_cache_key" in body]
    assert len(named) == 1
    assert len(named[0]) == 32


def test_requests_to_llama_cpp_name_the_place() -> None:
    judge = OpenAIJudge("m", base_url="http://localhost:9")
    form = RequestForm(lambda messages: {"messages": messages}, partial(judge._route, Demands()))
    question = asked("Good?").with_notes(warmth=Warmth("k", 3))
    assert form.body(question)["id_slot"] == 3
    assert json.loads(form.encode(question)) == form.body(question)
    assert "id_slot" not in form.body(asked("Good?"))
