"""Batch APIs: few batches, every answer to its own question, failures of one line alone."""

import json
import time
from inspect import getsource
from pathlib import Path
from typing import Any

import anyio
import pytest
from graphs.trees import food_metric
from programs.commands import Started, start_program
from servers.batch_server import BatchServer, MessageBatchServer
from servers.openai_server import Reply

from dagengine import evaluate
from dagengine.cli.run import RunOptions
from dagengine.errors import InputError, JudgeSetupError
from dagengine.gateway import Limits
from dagengine.judges import AnthropicBatchJudge, OpenAIBatchJudge, ProviderJudge
from dagengine.judges.batches.batch_jobs import BatchJournal
from dagengine.judges.wire.completions import message_usage
from dagengine.loading import load_batch_judge
from dagengine.metrics import DAGMetric
from dagengine.metrics.dag import DAG, BinaryJudgementNode
from dagengine.prompts.answer_types import output_type
from dagengine.question import Question, Usage
from dagengine.test_case import LLMTestCase

LIMITS = Limits(max_in_flight=1000, call_timeout=None, backoff=0.0)


def by_topic(body: dict[str, Any]) -> Reply:
    """The topic is the case's number; even numbers are about food."""
    text = body["messages"][-1]["content"]
    number = int(text.split("case ")[1].split()[0])
    if "Is it about food?" in text:
        return Reply(json.dumps({"reason": "seen", "verdict": number % 2 == 0}))
    return Reply(json.dumps({"output": f"case {number} "}))


Judge = OpenAIBatchJudge | AnthropicBatchJudge


def batch_judge(server: BatchServer, **more: Any) -> Judge:
    """A judge whose batches leave when they have `size` questions, else after a short silence."""
    given = {"quiet": 600 if "size" in more else 0.05, "poll": 0.01, **more}
    if isinstance(server, MessageBatchServer):
        return AnthropicBatchJudge("m", base_url=server.address, api_key="key", **given)
    return OpenAIBatchJudge("m", base_url=server.base_url, **given)


def sizes_of(server: BatchServer) -> list[int]:
    """How many questions stand in each batch."""
    return [len(lines) for lines in files_of(server)]


def files_of(server: BatchServer) -> list[list[str]]:
    """The questions of each batch as they were sent."""
    if isinstance(server, MessageBatchServer):
        return [[json.dumps(one) for one in batch["requests"]] for batch in server.batches]
    return [server.files[batch["input_file_id"]].splitlines() for batch in server.batches]


both = pytest.mark.parametrize("kind", [BatchServer, MessageBatchServer])


def cases(count: int) -> list[LLMTestCase]:
    return [LLMTestCase(input=f"case {number} here") for number in range(count)]


@both
def test_every_layer_of_questions_is_one_batch_and_answers_find_them(
    kind: type[BatchServer],
) -> None:
    with kind(by_topic) as server:
        judge = batch_judge(server, size=40)
        done = evaluate(cases(40), [food_metric()], model=judge, limits=LIMITS, show=False)
        sizes = sizes_of(server)
    assert done.scores("food") == [float(number % 2 == 0) for number in range(40)]
    assert sizes == [40, 40]


@both
def test_a_full_batch_leaves_at_once_and_the_rest_follows(kind: type[BatchServer]) -> None:
    with kind(by_topic) as server:
        judge = batch_judge(server, size=16, quiet=0.05)
        done = evaluate(cases(40), [food_metric()], model=judge, limits=LIMITS, show=False)
        sizes = sizes_of(server)
    assert all(result is not None for result in done.scores("food"))
    assert max(sizes) == 16
    assert sum(sizes) == 80


@both
def test_lines_that_expired_are_asked_again_in_another_batch(kind: type[BatchServer]) -> None:
    with kind(by_topic, lose=lambda batch, line: batch == 0 and line % 2 == 0) as server:
        judge = batch_judge(server, size=10, quiet=0.5)
        done = evaluate(cases(10), [food_metric()], model=judge, limits=LIMITS, show=False)
    assert done.scores("food") == [float(number % 2 == 0) for number in range(10)]
    assert done.totals.retried == 5


@both
def test_files_stay_within_the_limit_of_bytes(kind: type[BatchServer]) -> None:
    with kind(by_topic) as server:
        judge = batch_judge(server, file_bytes=8_000)
        done = evaluate(cases(40), [food_metric()], model=judge, limits=LIMITS, show=False)
        files = files_of(server)
    assert done.scores("food") == [float(number % 2 == 0) for number in range(40)]
    assert max(sum(len(line) + 1 for line in file) for file in files) <= 8_000
    assert sum(map(len, files)) == 80
    assert len(files) > 4


@both
def test_an_expired_batch_and_damaged_lines_lose_nothing(
    kind: type[BatchServer],
) -> None:
    server = kind(
        by_topic,
        expire=lambda batch: batch == 1,
        damage=lambda batch, line: batch == 0 and line in (2, 5, 7),
    )
    with server:
        judge = batch_judge(server, size=20, quiet=0.5)
        done = evaluate(cases(40), [food_metric()], model=judge, limits=LIMITS, show=False)
    assert done.scores("food") == [float(number % 2 == 0) for number in range(40)]
    assert done.totals.retried == 23
    assert done.totals.calls == 80 + 23


@both
def test_a_bad_line_fails_its_own_case_only(kind: type[BatchServer]) -> None:
    def some_fail(body: dict[str, Any]) -> Reply:
        if "case 3 " in body["messages"][-1]["content"]:
            return Reply("not with me", status=400)
        return by_topic(body)

    with kind(some_fail) as server:
        done = evaluate(
            cases(6), [food_metric()], model=batch_judge(server), limits=LIMITS, show=False
        )
        assert len(files_of(server)) == 2  # words that nobody knows are not tried out by batches
    scores = done.scores("food")
    assert scores[3] is None
    assert scores[:3] + scores[4:] == [1.0, 0.0, 1.0, 1.0, 0.0]
    failure = done.rows[3].metrics[0].failure
    assert failure is not None
    assert failure.kind == "provider_error"
    assert "not with me" in failure.message


@both
def test_a_batch_that_is_not_accepted_says_why(kind: type[BatchServer]) -> None:
    with kind(refuse="line 1 has no model") as server:
        done = evaluate(
            cases(2), [food_metric()], model=batch_judge(server), limits=LIMITS, show=False
        )
    failures = [row.metrics[0].failure for row in done.rows]
    assert all(f is not None and "line 1 has no model" in f.message for f in failures)


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


def test_the_query_of_an_address_of_anthropic_goes_with_every_request() -> None:
    queries: list[str] = []

    class Asked(MessageBatchServer):
        async def _create_messages(self, request: Any) -> Any:
            queries.append(request.query_string)
            return await super()._create_messages(request)

        async def _retrieve_messages(self, request: Any) -> Any:
            queries.append(request.query_string)
            return await super()._retrieve_messages(request)

    with Asked(by_topic) as server:
        address = f"{server.address}/v1?route=a%20b&api_key=hush-0123456789"
        judge = AnthropicBatchJudge("m", base_url=address, api_key="key", quiet=0.05, poll=0.01)
        done = evaluate(cases(2), [food_metric()], model=judge, show=False)
    assert done.scores("food") == [1.0, 0.0]
    assert set(queries) == {"route=a b&api_key=hush-0123456789"}
    other = AnthropicBatchJudge("m", base_url=address.replace("a%20b", "c"), api_key="key")
    assert judge.durable_identity != other.durable_identity
    assert "hush" not in f"{judge.identity}{judge.durable_identity}"
    with pytest.raises(JudgeSetupError, match="does not begin with http"):
        AnthropicBatchJudge("m", base_url="api.example.com")


def test_the_size_of_a_batch_is_checked() -> None:
    with pytest.raises(InputError, match="size must be at least 1"):
        OpenAIBatchJudge(size=0)


RUNS = f"""
import sys
from dagengine import evaluate
from dagengine.gateway import Limits
from dagengine.judges import AnthropicBatchJudge, OpenAIBatchJudge
from dagengine.metrics import DAGMetric
from dagengine.metrics.dag import DAG, BinaryJudgementNode, TaskNode
from dagengine.test_case import LLMTestCase

{getsource(food_metric)}
{getsource(cases)}
kind, address, journal = sys.argv[1:]
more = {{"size": 40, "quiet": 600, "poll": 0.01, "journal": journal}}
if kind == "MessageBatchServer":
    judge = AnthropicBatchJudge("m", base_url=address, api_key="key", **more)
else:
    judge = OpenAIBatchJudge("m", base_url=address, **more)
limits = Limits(max_in_flight=1000, call_timeout=None, backoff=0.0)
print(evaluate(cases(40), [food_metric()], model=judge, limits=limits, show=False).scores("food"))
"""


def started(server: BatchServer, journal: Path) -> Started:
    """A run in another process."""
    address = server.address if isinstance(server, MessageBatchServer) else server.base_url
    return start_program(RUNS, type(server).__name__, address, str(journal))


def wait_for(found: Any, process: Started) -> None:
    while not found():
        assert process.poll() is None
        time.sleep(0.01)


@both
@pytest.mark.parametrize("told", [True, False], ids=["with the id", "before it had the id"])
def test_a_killed_run_takes_its_batches_up_again_and_pays_nothing_twice(
    kind: type[BatchServer], told: bool, tmp_path: Path
) -> None:
    journal = tmp_path / "run" / "batches"
    # The first batch does not end before the run is killed; the second kill is in the second.
    looks = 10**9
    with kind(by_topic, looks=looks, mute=lambda batch: not told and batch == 0) as server:
        first = started(server, journal)
        wait_for(lambda: server.batches and (not told or "id" in journal.read_text()), first)
        first.kill()
        first.ended()
        server.looks = 2
        second = started(server, journal)
        wait_for(lambda: len(server.batches) == 2, second)
        second.kill()
        second.ended()
        said = started(server, journal).ended().stdout
        sizes = sizes_of(server)
    assert json.loads(said) == [float(number % 2 == 0) for number in range(40)]
    assert sizes == [40, 40]
    assert not journal.exists()


@both
def test_a_batch_of_an_earlier_run_that_is_lost_is_asked_again(
    kind: type[BatchServer], tmp_path: Path
) -> None:
    """Written down, but unknown to the provider: it was deleted there."""
    journal = tmp_path / "batches"
    with kind(by_topic) as server:
        first = started(server, journal)
        wait_for(lambda: "id" in journal.read_text() if journal.exists() else False, first)
        first.kill()
        first.ended()
        text = journal.read_text()
        name = json.loads(text.splitlines()[1])["id"]
        journal.write_text(text.replace(name, name[:-1] + "9999"))
        judge = batch_judge(server, journal=journal)
        done = evaluate(cases(40), [food_metric()], model=judge, limits=LIMITS, show=False)
    assert done.scores("food") == [float(number % 2 == 0) for number in range(40)]
    assert done.totals.retried == 40
    assert not journal.exists()


def test_a_journal_holds_the_batches_of_each_judge_apart_and_survives_half_a_line(
    tmp_path: Path,
) -> None:
    path = tmp_path / "batches"
    mine, theirs = BatchJournal(path, "mine"), BatchJournal(path, "theirs")
    begun = mine.begin(["a-0", "b-0"])
    other = theirs.begin(["c-0"])
    with path.open("a") as file:
        file.write('{"batch": "cut o')
    mine.note_id(begun, "batch-7")
    found = mine.in_progress()
    assert [(one.id, list(one.questions)) for one in found] == [("batch-7", ["a-0", "b-0"])]
    mine.end(found)
    assert mine.in_progress() == []
    assert [one.token for one in theirs.in_progress()] == [other.token]
    theirs.end([other])
    assert not path.exists()


def test_the_command_line_writes_batches_beside_the_store_or_into_the_folder_of_the_run(
    tmp_path: Path,
) -> None:
    given: Any = {"metrics": "m.py", "data": "c.jsonl", "out": tmp_path}
    assert RunOptions(**given).journal is None
    assert RunOptions(**given, batch=True).journal == tmp_path / "results-batches"
    stored = RunOptions(**given, batch=True, store=tmp_path / "answers.db")
    assert stored.journal == tmp_path / "answers.db-batches"


def test_a_name_of_anthropic_asks_its_batches_and_other_providers_have_none(
    tmp_path: Path,
) -> None:
    judge = load_batch_judge("anthropic/claude-sonnet-4-5", None, tmp_path / "batches")
    assert isinstance(judge, AnthropicBatchJudge)
    assert judge.durable_identity == ProviderJudge("anthropic/claude-sonnet-4-5").durable_identity
    assert judge.journal == tmp_path / "batches"
    with pytest.raises(InputError, match="OpenAI's or Anthropic's batch API"):
        load_batch_judge("cohere/command", None)


def content_of(body: dict[str, Any]) -> Any:
    return body["messages"][-1]["content"]


def test_anthropic_is_told_where_the_material_ends_that_questions_begin_with() -> None:
    fields = (["actual_output"], ["actual_output", "input"])
    nodes = [
        BinaryJudgementNode(f"{number}?", evaluation_params=read, then={True: 10, False: 0})
        for number, read in enumerate(fields)
    ]
    long, short = (LLMTestCase(input="i", actual_output="A word. " * n) for n in (600, 10))
    with MessageBatchServer(lambda body: Reply('{"reason": "r", "verdict": true}')) as server:
        judge, metric = batch_judge(server), DAGMetric("m", DAG(root_nodes=nodes))
        done = evaluate([long], [metric], model=judge, limits=LIMITS, show=False)
        contents = [content_of(body) for body in server.requests]
        evaluate([short], [metric], model=judge, limits=LIMITS, show=False)
        unmarked = [content_of(body) for body in server.requests[2:]]
    assert done.scores("m") == [1.0]
    assert [len(parts) for parts in contents] == [2, 2]
    marked, rest = zip(*contents, strict=True)
    assert marked[0] == marked[1]
    assert marked[0]["cache_control"] == {"type": "ephemeral"}
    assert marked[0]["text"].endswith("<<<END actual_output>>>")
    assert all("cache_control" not in part for part in rest)
    assert [type(content) for content in unmarked] == [str, str]


def test_anthropic_counts_what_it_keeps_apart() -> None:
    counts: dict[str, Any] = {
        "input_tokens": 7, "output_tokens": 3, "cache_read_input_tokens": 90
    }  # fmt: skip
    assert message_usage(counts) == Usage(97, 3, 90)
    counts = {**counts, "cache_creation_input_tokens": 10, "cache_read_input_tokens": None}
    assert message_usage(counts) == Usage(17, 3, 0)


@pytest.mark.anyio
async def test_a_question_in_text_is_answered_in_text_by_anthropic() -> None:
    def parser(text: str) -> dict[str, Any]:
        return {"output": text.upper()}

    asked = Question(
        ({"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hello"}),
        output_type(str), parser=parser,
    )  # fmt: skip
    with MessageBatchServer(lambda body: Reply("hi")) as server:
        judge = batch_judge(server)
        async with judge.session():
            found = await judge.answer(asked)
    assert found.value.model_dump() == {"output": "HI"}
    assert "tools" not in server.requests[0]
    assert server.requests[0]["system"] == [{"type": "text", "text": "Be brief."}]
    assert found.usage.input_tokens == 7
