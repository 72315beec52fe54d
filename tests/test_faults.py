"""Runs against a real server that misbehaves: every case has a result or a typed outcome."""

from __future__ import annotations

import math
import random
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
from servers.openai_server import Json, OpenAIServer, Reply, valid_reply

from dagengine import a_evaluate
from dagengine.gateway import Limits
from dagengine.judges import OpenAIJudge
from dagengine.metrics import DAGMetric
from dagengine.metrics.dag import DAG, BinaryJudgementNode
from dagengine.results import EvaluationResult, OutcomeKind
from dagengine.test_case import LLMTestCase

pytestmark = pytest.mark.anyio

COUNT = 100
TYPED = {OutcomeKind.OK, OutcomeKind.PROVIDER_ERROR, OutcomeKind.TIMEOUT, OutcomeKind.UNPARSEABLE}
QUICK: dict[str, Any] = {"backoff": 0.01, "max_backoff": 0.05}


def slowly(body: Json) -> Reply:
    return Reply(valid_reply(body).content, delay=0.01)


async def judged(
    respond: Callable[[Json], Reply],
    count: int = COUNT,
    capacity: float = math.inf,
    **limits: Any,
) -> tuple[EvaluationResult, OpenAIServer]:
    node = BinaryJudgementNode("Good?", evaluation_params=["input"], then={True: 10, False: 0})
    cases = [LLMTestCase(input=f"case {number}") for number in range(count)]
    with OpenAIServer(respond, capacity) as server:
        done = await a_evaluate(
            cases,
            [DAGMetric("tree", DAG(root_node=node))],
            model=OpenAIJudge("m", base_url=server.base_url),
            limits=Limits(**{**QUICK, **limits}),
            show=False,
        )
    assert [row.index for row in done.rows] == list(range(count))
    return done, server


def outcomes(done: EvaluationResult) -> Counter[OutcomeKind]:
    return Counter(row.metrics[0].outcome for row in done.rows)


async def test_a_server_that_fails_in_every_way_now_and_then_costs_no_case_its_outcome() -> None:
    dice = random.Random(11)

    def respond(body: Json) -> Reply:
        fates = [
            (0.10, Reply("slow down", status=429, headers={"retry-after-ms": "20"})),
            (0.05, Reply("oops", status=500)),
            (0.02, Reply(drop=True)),
            (0.03, Reply('{"verdict": "perhaps')),
            (0.80, valid_reply(body)),
        ]
        return dice.choices([reply for _, reply in fates], [share for share, _ in fates])[0]

    done, server = await judged(respond)
    found = outcomes(done)
    assert set(found) <= TYPED
    assert found[OutcomeKind.OK] >= COUNT - 3
    assert done.totals.calls == len(server.requests) > COUNT


async def test_a_hidden_capacity_costs_no_case() -> None:
    done, server = await judged(slowly, 200, capacity=8, attempts=20)
    assert outcomes(done) == {OutcomeKind.OK: 200}
    assert server.rejected == done.totals.failed > 0


async def test_calls_that_hang_end_as_timeouts_and_the_others_go_on() -> None:
    def respond(body: Json) -> Reply:
        hangs = "case 7\n" in body["messages"][-1]["content"]
        return Reply(valid_reply(body).content, delay=60.0 if hangs else 0.0)

    # Few at the same time: none of the others waits for a busy processor as long as that.
    done, _ = await judged(respond, 40, call_timeout=2.0, attempts=1, max_in_flight=4)
    assert outcomes(done) == {OutcomeKind.OK: 39, OutcomeKind.TIMEOUT: 1}
    assert done.rows[7].metrics[0].outcome is OutcomeKind.TIMEOUT


async def test_a_server_that_dies_half_way_and_comes_back_costs_no_case() -> None:
    requests = 0

    def respond(body: Json) -> Reply:
        nonlocal requests
        requests += 1
        return Reply(drop=True) if 60 < requests <= 69 else valid_reply(body)

    done, _ = await judged(respond, attempts=2, max_in_flight=8)
    assert outcomes(done) == {OutcomeKind.OK: COUNT}


async def test_a_server_that_dies_for_good_ends_the_run_and_says_so() -> None:
    requests = 0

    def respond(body: Json) -> Reply:
        nonlocal requests
        requests += 1
        return Reply("down for good", status=503) if requests > 60 else valid_reply(body)

    done, server = await judged(respond, 400, patience=0.5)
    found = outcomes(done)
    assert found[OutcomeKind.OK] == 60
    assert found[OutcomeKind.PROVIDER_ERROR] == 340
    assert len(server.requests) < 200
    failure = done.rows[-1].metrics[0].failure
    assert failure is not None
    assert "HTTP 503: down for good" in failure.message
    assert "patience of 0.5 s is used up" in failure.message
    assert "Limits" not in failure.message


@pytest.mark.parametrize("status", [401, 402, 403, 404])
async def test_a_server_that_refuses_everything_is_asked_a_handful_of_calls(status: int) -> None:
    done, server = await judged(lambda body: Reply("no such thing", status=status), 200)
    assert outcomes(done) == {OutcomeKind.PROVIDER_ERROR: 200}
    assert done.totals.calls <= 5
    assert len(server.requests) <= 20  # a 404 might also be about what a request demands
    failure = done.rows[-1].metrics[0].failure
    assert failure is not None
    assert "given up" in failure.message
    assert "no such thing" in failure.message


@pytest.mark.parametrize("status", [401, 403])
async def test_three_questions_that_are_refused_cost_their_cases_only(status: int) -> None:
    def respond(body: Json) -> Reply:
        refused = any(f"case {n}\n" in body["messages"][-1]["content"] for n in (0, 1, 2))
        return Reply("not for you", status=status) if refused else valid_reply(body)

    done, server = await judged(respond, 60)
    assert outcomes(done) == {OutcomeKind.OK: 57, OutcomeKind.PROVIDER_ERROR: 3}
    # The harmless question is asked only if nothing was answered before the first refusal.
    assert len(server.requests) == done.totals.calls
    assert 60 <= done.totals.calls <= 61


async def test_a_key_that_ends_half_way_ends_the_run_after_a_few_calls() -> None:
    requests = 0

    def respond(body: Json) -> Reply:
        nonlocal requests
        requests += 1
        return Reply("key revoked", status=401) if requests > 60 else valid_reply(body)

    done, server = await judged(respond, 400)
    assert outcomes(done) == {OutcomeKind.OK: 60, OutcomeKind.PROVIDER_ERROR: 340}
    assert len(server.requests) <= 260
