"""The store: asked once, the same bytes ever after, nothing lost, and errors that speak."""

from __future__ import annotations

import json
import logging
import os
import signal
import sqlite3
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import anyio
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from programs.commands import start_program
from servers.openai_server import OpenAIServer

from dagengine import Store, a_evaluate, evaluate
from dagengine.errors import InputError, ProviderError, RecordingMissError, RefusedError
from dagengine.gateway import Gateway, Limits
from dagengine.judges import CustomJudge, LexicalJudge, OpenAIJudge, ProviderJudge, ScriptedJudge
from dagengine.metrics import BaseMetric, DAGMetric
from dagengine.metrics.dag import DAG, BinaryJudgementNode, TaskNode
from dagengine.prompts import Evidence, messages_for
from dagengine.prompts.answer_types import judgement_type
from dagengine.question import (
    Answer,
    Judge,
    Options,
    Question,
    TokenChoice,
    Usage,
    durable_identity,
)
from dagengine.results import Attempt, EvaluationResult, OutcomeKind
from dagengine.results.usage_totals import cost_line
from dagengine.store.answer_journal import Journal
from dagengine.store.database import connect, entry_of, find, insert, key_of
from dagengine.store.maintenance import AnswerSelection, count, open_to_look
from dagengine.test_case import LLMTestCase
from dagengine.voting import voted

SHAPE = judgement_type(None)
RAW = '{"reason": "r", "verdict": true}'


def ask_about(text: str, wording: str = "ok?", **options: Any) -> Question[Any]:
    messages = messages_for(wording, [Evidence("text", text)])
    return Question(messages, SHAPE, Options(**options), name="node")


def yes() -> Answer[Any]:
    return Answer(SHAPE.model_validate_json(RAW), RAW, usage=Usage(3, 4), mode="json_schema")


async def nobody() -> Answer[Any]:
    raise AssertionError("the judge was asked")


def tree(facts: str = "List the facts", second: str = "Is it kind?") -> DAGMetric:
    """Three judgements; the second and the third read what a task makes of the case."""
    listed = TaskNode(facts, "facts", evaluation_params=["actual_output"], name="facts")
    third = BinaryJudgementNode("Short?", inputs=[listed], then={True: 10, False: 4}, name="third")
    then = {True: third, False: 2}
    kind = BinaryJudgementNode(second, inputs=[listed], then=then, name="second")
    first = BinaryJudgementNode(
        "Polite?", evaluation_params=["actual_output"], then={True: kind, False: 0}, name="first"
    )
    return DAGMetric("Manners", DAG(first))


class Counting:
    """A script that counts what is asked; a task's output shows its wording."""

    def __init__(self) -> None:
        self.asked: Counter[str] = Counter()

    def judge(self, name: str | None = "counting") -> ScriptedJudge:
        return ScriptedJudge(self._answer, name=name)

    def _answer(self, question: Question[Any]) -> Any:
        self.asked[question.name] += 1
        evidence = question.messages[-1]["content"]
        if question.name == "facts":
            return f"{question.messages[0]['content']} {evidence}"
        return {"reason": f"looked at {len(evidence)}", "verdict": "rude" not in evidence}


CASES = [LLMTestCase(input="a", actual_output=text) for text in ("fine", "rude", "good", "fine")]


def run(
    store: Any, judge: Judge, metric: BaseMetric | None = None, **more: Any
) -> EvaluationResult:
    return evaluate(CASES, [metric or tree()], model=judge, store=store, show=False, **more)


def rows_of(result: EvaluationResult) -> str:
    return json.dumps([row.as_dict() for row in result.rows])


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "answers.db"


# A run with a store.


@pytest.mark.anyio
async def test_a_warm_run_asks_nobody_and_gives_the_same_bytes(path: Path) -> None:
    script = Counting()

    async def again(store: Any) -> EvaluationResult:
        judge = script.judge()
        return await a_evaluate(CASES, [tree()], model=judge, store=store, show=False)

    plain = await again(None)
    script.asked.clear()
    cold = await again(path)
    calls = script.asked.total()
    warm, replayed = await again(str(path)), await again(Store(path, replay=True))
    assert script.asked.total() == calls == cold.totals.calls == 9
    assert rows_of(plain) == rows_of(cold) == rows_of(warm) == rows_of(replayed)
    assert (warm.totals.calls, warm.totals.cached, cold.totals.cached) == (0, 9, 0)
    assert "0 judge calls, 9 from the store (69%)" in cost_line(warm.totals)


def test_the_ledger_says_who_answered_and_counts_no_tokens_twice(path: Path) -> None:
    def origins(store: Any) -> Counter[str]:
        ledger: list[Attempt] = []
        done = run(store, judge, on_attempt=ledger.append)
        assert done.totals.usage == Usage()
        return Counter(attempt.origin for attempt in ledger)

    judge = Counting().judge()
    run(path, judge)
    assert origins(path) == {"cached": 9}
    assert origins(Store(path, replay=True)) == {"replayed": 9}


@pytest.mark.parametrize(
    ("edited", "asked"),
    [
        (tree(second="Is it friendly?"), {"second": 2}),
        (tree(facts="Name the facts"), {"facts": 2, "second": 2, "third": 2}),
    ],
)
def test_an_edited_node_and_what_depends_on_it_are_asked_again(
    path: Path, edited: DAGMetric, asked: dict[str, int]
) -> None:
    script = Counting()
    run(path, script.judge())
    script.asked.clear()
    run(path, script.judge(), edited)
    assert script.asked == asked


def test_an_answer_after_a_reask_is_found_without_asking_again(path: Path) -> None:
    def answer(question: Question[Any]) -> Any:
        asked_again = len(question.messages) > 2
        return "so it is" if question.name == "facts" else asked_again or "what?"

    first = run(path, ScriptedJudge(answer, name="slow"))
    second = run(path, ScriptedJudge(answer, name="slow"))
    assert first.totals.failed > 0
    assert second.totals.calls == 0
    assert rows_of(first) == rows_of(second)


def test_failures_are_asked_again_by_the_next_run(path: Path) -> None:
    broken: list[Any] = [RefusedError("no"), ProviderError("down", transient=False)]
    script = Counting()
    whole = script.judge()

    async def answer(question: Question[Any]) -> Any:
        if question.name == "first" and broken:
            return broken.pop()
        return (await whole.answer(question)).value.model_dump()

    judge = ScriptedJudge(answer, name="counting")
    first = run(path, judge)
    failed = [row for row in first.rows if row.metrics[0].failure]
    kinds = {m.outcome for row in failed for m in row.metrics}
    assert kinds == {OutcomeKind.JUDGE_REFUSED, OutcomeKind.PROVIDER_ERROR}
    second = run(path, judge)
    assert second.totals.calls > 0
    assert rows_of(second) == rows_of(run(None, whole))


@pytest.mark.parametrize("kind", [OutcomeKind.JUDGE_REFUSED, OutcomeKind.UNPARSEABLE])
def test_a_replay_fails_as_the_judge_failed_the_last_time(path: Path, kind: OutcomeKind) -> None:
    whole, words = Counting().judge(), ["rude words", "second try", ""]

    async def answer(question: Question[Any]) -> Any:
        said = words[0]
        rude = any("rude" in message["content"] for message in question.messages[1:2])
        if question.name != "first" or not rude or not said:
            return (await whole.answer(question)).value.model_dump()
        if kind == OutcomeKind.JUDGE_REFUSED:
            raise RefusedError(said, (3, 4))
        return f"no verdict: {said}"

    judge = ScriptedJudge(answer, name="counting")
    for _ in words[:2]:
        failed = run(path, judge)
        assert failed.rows[1].metrics[0].outcome == kind
        assert failed.rows[1].metrics[0].failure is not None
        assert words[0] in str(failed.rows[1].metrics[0].failure.as_dict())
        replayed = run(Store(path, replay=True), judge)
        assert rows_of(replayed) == rows_of(failed)
        words.pop(0)
    healed = run(path, judge)
    assert healed.totals.calls == 1
    assert rows_of(healed) == rows_of(run(Store(path, replay=True), judge))
    assert rows_of(healed) == rows_of(run(None, whole))


def test_a_vote_that_cannot_be_read_is_replayed_as_one(path: Path) -> None:
    whole = Counting().judge()

    async def answer(question: Question[Any]) -> Any:
        if question.name == "first" and question.options.sample == 1:
            return "I would rather not say"
        return (await whole.answer(question)).value.model_dump()

    judge, metric = ScriptedJudge(answer, name="counting"), voted(tree(), 3, ["first"])
    first = run(path, judge, metric)
    votes = first.rows[0].metrics[0].steps[0].votes
    assert None in votes
    assert rows_of(run(Store(path, replay=True), judge, metric)) == rows_of(first)


def test_a_judge_without_a_durable_identity_is_asked_every_time_and_said_so_once(
    path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    script = Counting()
    judge = script.judge(None)
    with caplog.at_level(logging.WARNING, "dagengine"):
        run(path, judge)
    assert [record.getMessage().split(",")[0] for record in caplog.records] == [
        f"answers of the judge {judge.identity!r} are not stored"
    ]
    assert run(path, judge).totals.cached == 0
    assert count(path, AnswerSelection()) == 0


# What a question is found by.


ASKED: list[tuple[Judge, Question[Any]]] = [
    (OpenAIJudge("m", base_url="http://localhost:1/v1"), ask_about("a")),
    (OpenAIJudge("n", base_url="http://localhost:1/v1"), ask_about("a")),
    (OpenAIJudge("m", base_url="http://localhost:2/v1"), ask_about("a")),
    (OpenAIJudge("m"), ask_about("a")),
    (OpenAIJudge("m", parameters={"top_p": 0.5}), ask_about("a")),
    (OpenAIJudge("m"), ask_about("a", temperature=0.5)),
    (OpenAIJudge("m"), ask_about("a", sample=1)),
    (OpenAIJudge("m"), ask_about("a", seed=1)),
    (OpenAIJudge("m"), ask_about("a", wording="fine?")),
    (OpenAIJudge("m"), ask_about("b")),
    (
        OpenAIJudge("m"),
        Question(ask_about("a").messages, judgement_type(("yes", "no")), name="node"),
    ),
]


@pytest.mark.anyio
async def test_model_endpoint_parameters_sample_prompt_and_schema_are_all_part_of_the_key(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("OPENAI_BASE_URL", raising=False)
    asked = 0

    async def ask() -> Answer[Any]:
        nonlocal asked
        asked += 1
        value = question.answer_type.model_validate(
            {"reason": str(asked), "verdict": "yes" if "yes" in str(question.canonical) else True}
        )
        return Answer(value, value.model_dump_json())

    async with Store(path).open() as answers:
        for judge, question in ASKED:
            assert (await answers.get(judge, question, ask)).origin == "live"
        for place, (judge, question) in enumerate(ASKED, 1):
            found = await answers.get(judge, question, nobody)
            assert (found.origin, found.value.reason) == ("cached", str(place))
    assert asked == len(ASKED)


def test_the_endpoint_of_the_environment_is_part_of_the_identity(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("OPENAI_BASE_URL", raising=False)
    usual = OpenAIJudge("m").durable_identity
    assert usual == OpenAIJudge("m", base_url="https://api.openai.com/v1/").durable_identity
    monkeypatch.setenv("OPENAI_BASE_URL", "http://localhost:1/v1")
    assert OpenAIJudge("m").durable_identity != usual


class Model:
    def __init__(self, name: str) -> None:
        self.name = name

    def get_model_name(self) -> str:
        return self.name

    def generate(self, prompt: str) -> str:
        return RAW


class Unnamed:
    def generate(self, prompt: str) -> str:
        return RAW


def test_judges_are_told_apart_in_every_process_or_not_stored() -> None:
    code = (
        "from dagengine.judges import *\n"
        "print(LexicalJudge().durable_identity)\n"
        "print(OpenAIJudge('m', base_url='http://u:SECRET@h/v1').durable_identity)\n"
        "print(ProviderJudge('a/m', api_key='SECRET', aws_secret='SECRET').durable_identity)\n"
        "print(ScriptedJudge({}, name='x').durable_identity)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "SECRET" not in done.stdout
    judges: list[Judge] = [
        LexicalJudge(),
        OpenAIJudge("m", base_url="http://h/v1", api_key="any"),
        ProviderJudge("a/m"),
        ScriptedJudge({"a": 1}, name="x"),
    ]
    assert done.stdout.splitlines() == [durable_identity(judge) for judge in judges]
    one, equal, other = (CustomJudge(Model(name)).durable_identity for name in "mmn")
    assert one == equal != other
    nameless: list[Judge] = [
        CustomJudge(Unnamed()),
        ScriptedJudge({}),
        ProviderJudge("a/m", http_client=object()),
    ]
    assert [durable_identity(judge) for judge in nameless] == [None] * 3


# What comes back.


TEXT = st.text(st.characters(codec=None, exclude_categories=()), max_size=60)
WEIRD = (
    TEXT
    | TEXT.map(lambda text: text * 4000)
    | st.sampled_from(["", "\0", "a\0b", "\ud800", "\ud83d\ude00", "😀", "\u2028\r\n", "\x85"])
)


class Whole:
    """A parser that takes the text as it is."""

    def __repr__(self) -> str:
        return "Whole()"

    def __call__(self, text: str) -> dict[str, Any]:
        return {"reason": text, "verdict": True}


@settings(max_examples=40, deadline=None)
@given(
    prompt=WEIRD, raw=WEIRD, token=WEIRD, name=TEXT,
    logprob=st.floats(allow_nan=False), used=st.integers(0, 2**70),
)  # fmt: skip
def test_any_text_comes_back_as_it_was(
    tmp_path_factory: pytest.TempPathFactory,
    prompt: str, raw: str, token: str, name: str, logprob: float, used: int,
) -> None:  # fmt: skip
    path = tmp_path_factory.mktemp("weird") / "answers.db"
    messages: Any = ({"role": "user", "content": prompt},)
    question = Question(messages, SHAPE, parser=Whole(), name=name)
    value = SHAPE.model_validate({"reason": raw, "verdict": True})
    tokens = (TokenChoice(token, ((token, logprob), ("b", -1.5))), TokenChoice("", ()))
    given = Answer(value, raw, tokens, Usage(used, 0), token)
    judge = ScriptedJudge({}, name=name + "x")

    async def live() -> Answer[Any]:
        return given

    async def main() -> list[Answer[Any]]:
        found: list[Answer[Any]] = []
        for ask in (live, nobody):
            async with Store(path).open() as answers:
                found.append(await answers.get(judge, question, ask))
        return found

    first, second = anyio.run(main)
    assert first == second == given
    assert (first.origin, second.origin) == ("live", "cached")


@pytest.mark.anyio
async def test_a_value_that_its_text_does_not_bring_back_is_stored_itself(path: Path) -> None:
    judge, question = ScriptedJudge({}, name="x"), ask_about("a")
    odd = Answer(SHAPE.model_validate({"reason": "\ud800", "verdict": False}), "no JSON")

    async def ask() -> Answer[Any]:
        return odd

    async with Store(path).open() as answers:
        await answers.get(judge, question, ask)
        assert await answers.get(judge, question, nobody) == odd


@pytest.mark.anyio
async def test_an_answer_that_nothing_brings_back_is_handed_on_and_not_stored(
    path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    judge, question = ScriptedJudge({}, name="x"), ask_about("a")
    odd: Answer[Any] = Answer(SHAPE.model_construct(reason=object(), verdict=True), "no JSON")

    async def ask() -> Answer[Any]:
        return odd

    async with Store(path).open() as answers:
        assert await answers.get(judge, question, ask) is odd
    assert count(path, AnswerSelection()) == 0
    assert "cannot be stored" in caplog.text


@pytest.mark.anyio
async def test_a_stored_answer_that_does_not_fit_any_more_gives_way(path: Path) -> None:
    class Changing(Whole):
        field = "verdict"

        def __call__(self, text: str) -> dict[str, Any]:
            return {"reason": text, self.field: True}

    judge, parser = ScriptedJudge({}, name="x"), Changing()
    question = Question(ask_about("a").messages, SHAPE, parser=parser)

    async def ask() -> Answer[Any]:
        return Answer(SHAPE.model_validate({"reason": "new", "verdict": True}), "new")

    async with Store(path).open() as answers:
        await answers.get(judge, question, ask)
        parser.field = "other"
        with pytest.raises(RecordingMissError, match="no longer fits the question"):
            async with Store(path, replay=True).open() as replay:
                await replay.get(judge, question, nobody)
        live = await answers.get(judge, question, ask)
        assert live.origin == "live"
        assert (await answers.get(judge, question, nobody)).value == live.value


# Replay.


def test_a_replay_needs_no_key_and_no_server(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "any")
    with OpenAIServer() as server:
        monkeypatch.setenv("OPENAI_BASE_URL", server.base_url)
        live = run(path, OpenAIJudge("m"))
        asked = len(server.requests)
    monkeypatch.delenv("OPENAI_API_KEY")
    replayed = run(Store(path, replay=True), OpenAIJudge("m"))
    assert asked == live.totals.calls == replayed.totals.cached > 0
    assert replayed.totals.calls == 0
    assert rows_of(live) == rows_of(replayed)


MISSES: list[tuple[Judge, Question[Any], str]] = [
    (ScriptedJudge({}, name="new"), ask_about("a"), "answered by 'scripted x', but not by"),
    (ScriptedJudge({}, name="new"), ask_about("c"), "nothing of the judge 'scripted new' is st"),
    (ScriptedJudge({}), ask_about("c"), "nothing of the judge 'scripted "),
    (ScriptedJudge({}, name="x"), ask_about("c"), "its evidence (the case, or the output"),
    (ScriptedJudge({}, name="x"), ask_about("a", "fine?"), "its instructions differ"),
    (ScriptedJudge({}, name="x"), ask_about("a", temperature=0.5), "asked with Options(tempera"),
    (ScriptedJudge({}, name="x"), ask_about("a", sample=7), "sample=7"),
    (
        ScriptedJudge({}, name="x"),
        Question(ask_about("a").messages, judgement_type(("yes", "no")), name="node"),
        "its answer form",
    ),
    (
        ScriptedJudge({}, name="x"),
        Question(ask_about("c").messages, SHAPE, name="other"),
        "nothing is stored for this node, only for 'node'",
    ),
    (
        ScriptedJudge({}, name="x"),
        Question(({"role": "user", "content": "?"},), SHAPE, name="node"),
        "its prompt differs",
    ),
]


@pytest.mark.anyio
@pytest.mark.parametrize(("judge", "question", "why"), MISSES)
async def test_a_replay_says_what_is_missing_and_how_it_differs(
    path: Path, judge: Judge, question: Question[Any], why: str
) -> None:
    async def ask() -> Answer[Any]:
        return yes()

    async with Store(path).open() as answers:
        for text in ("a", "b"):
            await answers.get(ScriptedJudge({}, name="x"), ask_about(text), ask)
    async with Store(path, replay=True).open() as answers:
        with pytest.raises(RecordingMissError) as caught:
            await answers.get(judge, question, nobody)
    assert f"no answer for the node {question.name!r}" in str(caught.value)
    assert why in str(caught.value)


def test_a_miss_in_a_replay_is_a_failure_of_its_case_only(path: Path) -> None:
    script = Counting()
    run(path, script.judge())
    script.asked.clear()
    cases = [CASES[0], LLMTestCase(input="a", actual_output="new"), CASES[1]]
    store = Store(path, replay=True)
    done = evaluate(cases, [tree()], model=script.judge(), store=store, show=False)
    first, missing, last = (row.metrics[0] for row in done.rows)
    assert (first.score, last.score, script.asked.total()) == (1.0, 0.0, 0)
    assert missing.failure is not None
    assert (missing.failure.node, missing.failure.kind) == ("first", OutcomeKind.PROVIDER_ERROR)
    assert "its evidence" in missing.failure.message


# Writing.


@pytest.mark.anyio
async def test_answers_that_come_together_are_committed_together(path: Path) -> None:
    statements: list[str] = []
    with closing(connect(path, 1.0)) as db:
        db.set_trace_callback(statements.append)
        journal = Journal(db)

        async def add(number: int) -> None:
            question = ask_about(str(number))
            entry = entry_of(key_of("x", question), "x", question, yes())
            assert entry is not None
            assert await journal.add(entry)
            assert find(db, entry.key) is not None

        async with anyio.create_task_group() as group:
            for number in range(200):
                group.start_soon(add, number)
    commits = [text for text in statements if text.startswith("BEGIN")]
    assert len(commits) <= 2  # the first answer, and all that came while it was written


@pytest.mark.anyio
async def test_an_answer_is_stored_although_nobody_waits_for_it_any_more(path: Path) -> None:
    judge, answered = ScriptedJudge({}, name="x"), anyio.Event()

    async def ask() -> Answer[Any]:
        answered.set()
        return yes()

    async def get(scope: anyio.CancelScope) -> None:
        with scope:
            await answers.get(judge, ask_about("a"), ask)

    scope = anyio.CancelScope()
    async with Store(path).open() as answers, anyio.create_task_group() as group:
        with closing(sqlite3.connect(path, isolation_level=None)) as other:
            other.execute("BEGIN IMMEDIATE")
            group.start_soon(get, scope)
            await answered.wait()
            scope.cancel()
            other.execute("ROLLBACK")
    assert scope.cancel_called
    assert count(path, AnswerSelection()) == 1


@pytest.mark.anyio
async def test_the_answer_of_a_faster_process_is_the_one_that_counts(path: Path) -> None:
    judge, question = ScriptedJudge({}, name="x"), ask_about("a")

    async def faster() -> Answer[Any]:
        return yes()

    async def slower() -> Answer[Any]:
        async with Store(path).open() as other:
            await other.get(judge, question, faster)
        return Answer(SHAPE.model_validate({"reason": "late", "verdict": False}), "late")

    async with Store(path).open() as answers:
        assert await answers.get(judge, question, slower) == yes()


CHILD = """
import os, sys
import anyio
from dagengine import evaluate
from dagengine.judges import ScriptedJudge
from dagengine.metrics import BaseMetric, DAGMetric
from dagengine.metrics.dag import DAG, BinaryJudgementNode, TaskNode
from dagengine.test_case import LLMTestCase
import json

async def answer(question):
    await anyio.lowlevel.checkpoint()
    if question.name == "words":
        return os.urandom(8).hex()
    return {"reason": os.urandom(8).hex(), "verdict": os.urandom(1) < b"\\x80"}

path, first, last = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
words = TaskNode("List the words", "words", evaluation_params=["input"], name="words")
kind = BinaryJudgementNode("Kind?", inputs=[words], then={True: 10, False: 4}, name="kind")
metric = DAGMetric("Random", DAG(kind))
cases = (LLMTestCase(name=str(n), input=f"case {n}") for n in range(first, last))
evaluate(
    cases, [metric], model=ScriptedJudge(answer, name="random"), store=path, show=False,
    on_row=lambda row: print(json.dumps(row.as_dict()), flush=True),
)
"""


def replayed(path: Path, total: int) -> list[str]:
    """The first rows of a child, from the store alone."""
    words = TaskNode("List the words", "words", evaluation_params=["input"], name="words")
    kind = BinaryJudgementNode("Kind?", inputs=[words], then={True: 10, False: 4}, name="kind")
    cases = [LLMTestCase(name=str(number), input=f"case {number}") for number in range(total)]
    judge, store = ScriptedJudge({}, name="random"), Store(path, replay=True)
    metric = DAGMetric("Random", DAG(kind))
    done = evaluate(cases, [metric], model=judge, store=store, show=False)
    return [json.dumps(row.as_dict()) for row in done.rows]


@pytest.mark.skipif(os.name == "nt", reason="there is no SIGKILL")
@pytest.mark.parametrize("rows", [1, 300])
def test_nothing_that_was_in_a_row_is_lost_when_the_process_is_killed(
    path: Path, rows: int
) -> None:
    process = start_program(CHILD, str(path), "0", "100_000_000")
    process.line(rows - 1)
    process.kill()
    killed = process.ended()
    assert killed.returncode == -signal.SIGKILL
    seen = [line.strip() for line in killed.stdout.splitlines(keepends=True) if line.endswith("\n")]
    assert replayed(path, len(seen)) == seen


def test_processes_that_share_a_file_agree_on_every_answer(path: Path) -> None:
    processes = [start_program(CHILD, str(path), "0", "200") for _ in range(2)]
    first, second = (process.ended() for process in processes)
    assert (first.returncode, second.returncode) == (0, 0)
    assert first.stdout == second.stdout
    assert first.stdout.splitlines() == replayed(path, 200)
    assert count(path, AnswerSelection()) == 400


# Files that cannot be used.


def no_database(path: Path) -> None:
    path.write_text("question,answer\n" * 100)


def other_database(path: Path) -> None:
    with closing(sqlite3.connect(path)) as db:
        db.execute("CREATE TABLE answers (id INTEGER)")


def later_version(path: Path) -> None:
    connect(path, 1.0).close()
    with closing(sqlite3.connect(path)) as db:
        db.execute("PRAGMA user_version = 99")


def damaged(path: Path) -> None:
    run(path, Counting().judge())
    data = path.read_bytes()
    path.write_bytes(data[:100] + b"\xff" * (len(data) - 100))


def folder(path: Path) -> None:
    path.mkdir()


BAD: list[tuple[Callable[[Path], None], str]] = [
    (no_database, "this is not a store and not an sqlite file"),
    (other_database, "is an sqlite file, but not a store of answers"),
    (later_version, "has format 99, this version of dagengine has format 1"),
    (damaged, "it is damaged; restore a copy"),
]


@pytest.mark.parametrize("replay", [False, True])
@pytest.mark.parametrize(("spoil", "message"), BAD)
def test_a_file_that_cannot_be_used_is_an_input_error_and_left_alone(
    path: Path, spoil: Callable[[Path], None], message: str, replay: bool
) -> None:
    spoil(path)
    before, script = path.read_bytes(), Counting()
    with pytest.raises(InputError) as caught:
        run(Store(path, replay=replay), script.judge())
    assert message in str(caught.value)
    assert str(path) in str(caught.value)
    assert script.asked.total() == 0
    assert path.read_bytes() == before


def test_a_place_where_no_file_can_be_is_an_input_error(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "folder").mkdir()
    judge = Counting().judge()
    with pytest.raises(InputError, match=r"file.answers\.db: Not a directory|File exists"):
        run(tmp_path / "file" / "answers.db", judge)
    for folder in (tmp_path / "folder", ".", "/"):
        with pytest.raises(InputError, match="is a folder"):
            run(folder, judge)
    with pytest.raises(InputError, match="there is no store"):
        run(Store(tmp_path / "none.db", replay=True), judge)
    with pytest.raises(InputError, match="store must be a path or a Store, got 7"):
        run(7, judge)


def test_a_file_that_another_process_keeps_locked_ends_the_run(path: Path) -> None:
    connect(path, 1.0).close()

    def answer(question: Question[Any]) -> Any:
        if not lock.in_transaction:
            lock.execute("BEGIN IMMEDIATE")
        return True

    with closing(sqlite3.connect(path, isolation_level=None)) as lock:
        lock.execute("BEGIN IMMEDIATE")
        with pytest.raises(InputError, match="another process has locked it"):
            run(Store(path, patience=0.01), Counting().judge())
        lock.execute("ROLLBACK")
        with pytest.raises(InputError, match="another process has locked it"):
            run(Store(path, patience=0.01), ScriptedJudge(answer, name="locks"))


FULL = """
import resource, runpy, sys
resource.setrlimit(resource.RLIMIT_FSIZE, (1_000_000, 1_000_000))
sys.argv = ["child", sys.argv[1], "0", "100000"]
exec(sys.stdin.read())
"""


@pytest.mark.skipif(os.name == "nt", reason="there are no limits to set")
def test_a_full_disk_ends_the_run_and_keeps_what_was_stored(path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", FULL, str(path)],
        input=CHILD,
        capture_output=True,
        text=True,
        check=False,
    )
    assert "InputError" in done.stderr.splitlines()[-1], done.stderr
    assert str(path) in done.stderr.splitlines()[-1]
    seen = done.stdout.splitlines()
    # At the end of a run rows come out that waited for earlier ones.
    numbers = [json.loads(row)["index"] for row in seen]
    assert numbers
    again = replayed(path, numbers[-1] + 1)
    assert [again[number] for number in numbers] == seen


def test_reading_a_store_writes_no_answer_and_leaves_no_other_file(path: Path) -> None:
    run(path, Counting().judge())
    run(Store(path, replay=True), Counting().judge())
    before = path.read_bytes()
    with (
        open_to_look(path) as db,
        pytest.raises(sqlite3.OperationalError, match="readonly"),
    ):
        db.execute("DELETE FROM answers")
    assert path.read_bytes() == before
    assert os.listdir(path.parent) == [path.name]


@pytest.mark.skipif(getattr(os, "geteuid", int)() == 0, reason="root may write anywhere")
def test_a_store_that_cannot_be_written_can_be_replayed(path: Path) -> None:
    live = run(path, Counting().judge())
    path.chmod(0o444)
    path.parent.chmod(0o555)
    try:
        replayed = run(Store(path, replay=True), Counting().judge())
        with pytest.raises(InputError, match="it cannot be written"):
            run(path, Counting().judge())
    finally:
        path.parent.chmod(0o755)
    assert rows_of(live) == rows_of(replayed)


def test_a_new_entry_never_changes_one_that_is_there(path: Path) -> None:
    question = ask_about("a")
    entry = entry_of(key_of("x", question), "x", question, yes())
    assert entry is not None
    with closing(connect(path, 1.0)) as db:
        assert insert(db, [entry, entry]) == 1
        other = entry.answer.replace("json_schema", "tools")
        assert insert(db, [entry._replace(answer=other)]) == 0
        assert find(db, entry.key) == json.loads(entry.answer)
        assert insert(db, [entry._replace(answer=other, over=True)]) == 1
        assert find(db, entry.key) == json.loads(other)


@pytest.mark.anyio
async def test_no_more_answers_wait_for_the_file_than_calls_may_be_under_way(path: Path) -> None:
    """What a killed process has to ask again is what waits here."""
    called = Counter[str]()

    def answer(question: Question[Any]) -> dict[str, Any]:
        called[question.key] += 1
        return {"reason": "r", "verdict": True}

    judge = ScriptedJudge(answer, name="x")
    async with Store(path).open() as answers:
        gateway = Gateway(Limits(max_in_flight=4), stored=answers)
        with closing(sqlite3.connect(path)) as other:
            async with anyio.create_task_group() as tasks:
                other.execute("BEGIN IMMEDIATE")  # nobody else can write now
                for number in range(40):
                    tasks.start_soon(gateway.ask, judge, ask_about(f"text {number}"))
                await anyio.wait_all_tasks_blocked()
                assert called.total() == gateway.totals.in_flight == 4
                other.rollback()
    assert called.total() == gateway.totals.calls == count(path, AnswerSelection()) == 40
    assert gateway.totals.in_flight == 0
