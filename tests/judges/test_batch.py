"""The batch API: few batches, every answer to its own question, failures of one line alone."""

import json
from typing import Any

import anyio
import pytest
from batch_server import BatchServer
from openai_server import Reply

from dagengine import evaluate
from dagengine.errors import InputError
from dagengine.gateway import Limits
from dagengine.judges import OpenAIBatchJudge
from dagengine.metrics import DAGMetric
from dagengine.metrics.dag import DAG, BinaryJudgementNode, TaskNode
from dagengine.prompts.answer_types import output_type
from dagengine.question import Question
from dagengine.test_case import LLMTestCase

LIMITS = Limits(max_in_flight=1000, call_timeout=None, backoff=0.0)


def tree() -> DAGMetric:
    topic = TaskNode("Name the topic.", "topic", evaluation_params=["input"])
    asked = BinaryJudgementNode("Is it about food?", inputs=[topic], then={True: 10, False: 0})
    return DAGMetric(name="food", dag=DAG(root_nodes=[topic, asked]))


def by_topic(body: dict[str, Any]) -> Reply:
    """The topic is the case's number; even numbers are about food."""
    text = body["messages"][-1]["content"]
    number = int(text.split("case ")[1].split()[0])
    if "Is it about food?" in body["messages"][0]["content"]:
        return Reply(json.dumps({"reason": "seen", "verdict": number % 2 == 0}))
    return Reply(json.dumps({"output": f"case {number} "}))


def batch_judge(server: BatchServer, **more: Any) -> OpenAIBatchJudge:
    return OpenAIBatchJudge("m", base_url=server.base_url, quiet=0.05, poll=0.01, **more)


def cases(count: int) -> list[LLMTestCase]:
    return [LLMTestCase(input=f"case {number} here") for number in range(count)]


def test_every_layer_of_questions_is_one_batch_and_answers_reach_their_questions() -> None:
    with BatchServer(by_topic) as server:
        done = evaluate(cases(40), [tree()], model=batch_judge(server), limits=LIMITS, show=False)
        sizes = [len(server.files[batch["input_file_id"]].splitlines()) for batch in server.batches]
    assert done.scores("food") == [float(number % 2 == 0) for number in range(40)]
    assert sizes == [40, 40]


def test_a_full_batch_leaves_at_once_and_the_rest_follows() -> None:
    with BatchServer(by_topic) as server:
        judge = batch_judge(server, size=16)
        done = evaluate(cases(40), [tree()], model=judge, limits=LIMITS, show=False)
        sizes = [len(server.files[batch["input_file_id"]].splitlines()) for batch in server.batches]
    assert all(result is not None for result in done.scores("food"))
    assert max(sizes) == 16
    assert sum(sizes) == 80


def test_lines_that_expired_are_asked_again_in_another_batch() -> None:
    with BatchServer(by_topic, lose=lambda batch, line: batch == 0 and line % 2 == 0) as server:
        done = evaluate(cases(10), [tree()], model=batch_judge(server), limits=LIMITS, show=False)
    assert done.scores("food") == [float(number % 2 == 0) for number in range(10)]
    assert done.totals.retried == 5


def test_files_stay_within_the_limit_of_bytes() -> None:
    with BatchServer(by_topic) as server:
        judge = batch_judge(server, file_bytes=8_000)
        done = evaluate(cases(40), [tree()], model=judge, limits=LIMITS, show=False)
        files = [server.files[batch["input_file_id"]] for batch in server.batches]
    assert done.scores("food") == [float(number % 2 == 0) for number in range(40)]
    assert max(len(file.encode()) for file in files) <= 8_000
    assert sum(len(file.splitlines()) for file in files) == 80
    assert len(files) > 4


def test_a_batch_that_expired_as_a_whole_and_damaged_lines_lose_nothing() -> None:
    server = BatchServer(
        by_topic,
        expire=lambda batch: batch == 1,
        damage=lambda batch, line: batch == 0 and line in (2, 5, 7),
    )
    with server:
        judge = batch_judge(server, size=20)
        done = evaluate(cases(40), [tree()], model=judge, limits=LIMITS, show=False)
    assert done.scores("food") == [float(number % 2 == 0) for number in range(40)]
    assert done.totals.retried == 23
    assert done.totals.calls == 80 + 23


def test_a_bad_line_fails_its_own_case_only() -> None:
    def some_fail(body: dict[str, Any]) -> Reply:
        if "case 3 " in body["messages"][-1]["content"]:
            return Reply("not with me", status=400)
        return by_topic(body)

    with BatchServer(some_fail) as server:
        done = evaluate(cases(6), [tree()], model=batch_judge(server), limits=LIMITS, show=False)
    scores = done.scores("food")
    assert scores[3] is None
    assert scores[:3] + scores[4:] == [1.0, 0.0, 1.0, 1.0, 0.0]
    failure = done.rows[3].metrics[0].failure
    assert failure is not None
    assert failure.kind == "provider_error"
    assert "HTTP 400: not with me" in failure.message


def test_a_batch_that_is_not_accepted_says_why() -> None:
    with BatchServer(refuse="line 1 has no model") as server:
        done = evaluate(cases(2), [tree()], model=batch_judge(server), limits=LIMITS, show=False)
    failures = [row.metrics[0].failure for row in done.rows]
    assert all(f is not None and "failed: line 1 has no model" in f.message for f in failures)


@pytest.mark.anyio
async def test_another_one_goes_on_where_the_one_who_worked_was_cancelled() -> None:
    asked = Question(({"role": "user", "content": "case 2 here"},), output_type(str))
    with BatchServer(by_topic, looks=3) as server:
        judge = batch_judge(server)
        answers: list[str] = []
        async with judge.session(), anyio.create_task_group() as group:
            scope = anyio.CancelScope()

            async def first() -> None:
                with scope:
                    await judge.answer(asked)

            async def second() -> None:
                answer: Any = await judge.answer(asked)
                answers.append(answer.value.output)

            group.start_soon(first)
            await anyio.wait_all_tasks_blocked()
            group.start_soon(second)
            while not server.batches:
                await anyio.sleep(0.005)
            scope.cancel()
    assert answers == ["case 2 "]
    assert len(server.batches) == 1


def test_the_size_of_a_batch_is_checked() -> None:
    with pytest.raises(InputError, match="size must be at least 1"):
        OpenAIBatchJudge(size=0)
