"""Judges made of people's own models, scripts and recordings."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import anyio
import anyio.lowlevel
import anyio.to_thread
import pytest
from pydantic import BaseModel

from dagengine import a_evaluate
from dagengine.errors import (
    InputError,
    JudgeCodeError,
    JudgeError,
    JudgeSetupError,
    ProviderError,
    RecordingMissError,
    RefusedError,
    UnparseableError,
)
from dagengine.gateway import DEFAULT_LIMITS, Gateway, Limits
from dagengine.judges import (
    BaseLLM,
    CustomJudge,
    OpenAIJudge,
    ProviderJudge,
    RecordedJudge,
    Recording,
    ScriptedJudge,
    as_judge,
)
from dagengine.metrics import CriteriaMetric
from dagengine.metrics.dag import DAG, BinaryJudgementNode, DAGMetric, NonBinaryJudgementNode
from dagengine.prompts import Evidence, messages_for, read_answer
from dagengine.prompts.answer_types import judgement_type, output_type, rating_type
from dagengine.prompts.json_in_text import DEEPEST, require_shallow
from dagengine.question import (
    NO_USAGE,
    Capabilities,
    EveryMatch,
    FirstMatch,
    Judge,
    Options,
    Question,
    TokenChoice,
    Usage,
)
from dagengine.results import OutcomeKind
from dagengine.test_case import LLMTestCase

LIMIT = 120.0  # only when something waits for ever
SHAPE = judgement_type(("Yes", "No"))
ANSWER = '{"reason": "because", "verdict": "Yes"}'


def question(text: str = "t", **more: Any) -> Question[Any]:
    return Question(messages_for("ok?", [Evidence("text", text)]), SHAPE, name="q", **more)


class AsSeeds:
    """The seeds' shape: not derived from anything, both ways of generating."""

    def __init__(self, model: Any = ANSWER) -> None:
        self.model = model
        self.prompts: list[str] = []

    def load_model(self) -> Any:
        return self.model

    def generate(self, prompt: str) -> str:
        self.prompts.append(prompt)
        return str(self.load_model())

    async def a_generate(self, prompt: str) -> str:
        await anyio.lowlevel.checkpoint()
        return self.generate(prompt)

    def get_model_name(self) -> str:
        return "Custom Azure OpenAI Model"


class SyncOnly:
    def generate(self, prompt: str) -> str:
        return ANSWER


class SyncWithSchema:
    def generate(self, prompt: str, schema: type[BaseModel]) -> BaseModel:
        return schema.model_validate_json(ANSWER)


class SyncWithKeywords:
    def generate(self, prompt: str, **options: Any) -> str:
        return ANSWER


class AsyncOnly:
    async def a_generate(self, prompt: str) -> str:
        return ANSWER


class AsyncWithSchema:
    def generate(self, prompt: str, schema: type[BaseModel]) -> BaseModel:
        raise AssertionError("there is an asynchronous way")

    async def a_generate(self, prompt: str, schema: type[BaseModel]) -> BaseModel:
        return schema.model_validate_json(ANSWER)


class ReturnsTuple:
    def generate(self, prompt: str) -> tuple[str, float]:
        return ANSWER, 0.002


class ReturnsTupleOfInstance:
    async def a_generate(self, prompt: str, schema: Any = None) -> tuple[BaseModel, float]:
        return schema.model_validate_json(ANSWER), 0.002


class ReturnsDict:
    async def a_generate(self, prompt: str) -> dict[str, str]:
        return {"reason": "because", "verdict": "Yes"}


class ReturnsFencedText:
    def generate(self, prompt: str) -> str:
        return f"<think>No?</think>Here you are:\n```json\n{ANSWER}\n```"


class Derived(BaseLLM):
    def load_model(self, *args: Any, **kwargs: Any) -> Any:
        return ANSWER

    def generate(self, prompt: str) -> str:
        return str(self.model)

    def get_model_name(self) -> str:
        return "derived"


class DerivedWithSchema(BaseLLM):
    """`generate` as `BaseLLM` documents it: the schema is an argument."""

    def generate(self, prompt: str, schema: type[BaseModel]) -> BaseModel:
        return schema.model_validate_json(ANSWER)

    def get_model_name(self) -> str:
        return "derived with schema"


class DerivedAsync(Derived):
    async def a_generate(self, prompt: str, schema: type[BaseModel]) -> BaseModel:
        return schema.model_validate_json(ANSWER)


SHAPES: list[Callable[[], Any]] = [
    AsSeeds,
    SyncOnly,
    SyncWithSchema,
    SyncWithKeywords,
    AsyncOnly,
    AsyncWithSchema,
    ReturnsTuple,
    ReturnsTupleOfInstance,
    ReturnsDict,
    ReturnsFencedText,
    Derived,
    DerivedWithSchema,
    DerivedAsync,
]


@pytest.mark.anyio
@pytest.mark.parametrize("shape", SHAPES)
async def test_any_model_of_the_known_shapes_answers(shape: Callable[[], Any]) -> None:
    answer = await CustomJudge(shape()).answer(question())
    assert answer.value == SHAPE.model_validate_json(ANSWER)


@pytest.mark.anyio
@pytest.mark.parametrize(
    "around",
    [
        "```json\n{}\n```",
        "Certainly!\n{}\nAnything else?",
        '<think>perhaps {{"reason": "x", "verdict": "No"}}</think>{}',
        '<think>the answer is {{"reason": "unfinished</think>\n{}',
        "<thinking>[1] of the set {{yes, no</thinking>\n```\n{}\n```",
        "of the set {{yes, no\n</think>\n\n{}",  # the opening tag may be in the chat template
    ],
)
async def test_what_plain_text_models_write_around_the_answer_is_left_aside(around: str) -> None:
    class Model:
        async def a_generate(self, prompt: str) -> str:
            return around.format(ANSWER)

    answer = await CustomJudge(Model()).answer(question())
    assert answer.value == SHAPE.model_validate_json(ANSWER)
    assert answer.raw == around.format(ANSWER)


@pytest.mark.anyio
@pytest.mark.parametrize(
    "text",
    [
        "<think>perhaps {}",  # it stopped while it thought
        "<think>{}",
        "perhaps {}\n</think>\nI cannot say.",
        "<think>{}</think>",
    ],
)
async def test_a_draft_among_the_thoughts_is_no_answer(text: str) -> None:
    class Model:
        async def a_generate(self, prompt: str) -> str:
            return text.format(ANSWER)

    with pytest.raises(UnparseableError):
        await CustomJudge(Model()).answer(question())


@pytest.mark.anyio
async def test_the_answer_after_the_thoughts_counts_and_not_the_draft_in_them() -> None:
    class Model:
        async def a_generate(self, prompt: str) -> str:
            return f'perhaps {{"reason": "x", "verdict": "No"}}\n</think>\n{ANSWER}'

    answer = await CustomJudge(Model()).answer(question())
    assert answer.value == SHAPE.model_validate_json(ANSWER)


@pytest.mark.anyio
async def test_a_model_of_ones_own_judges_a_whole_tree() -> None:
    tree = DAG(
        NonBinaryJudgementNode("ok?", evaluation_params=["input"], then={"Yes": 10, "No": 0})
    )
    metric = DAGMetric("m", tree, model=AsSeeds())
    result = await a_evaluate([LLMTestCase(input="i")], [metric], show=False)
    assert result.scores("m") == [1.0]


@pytest.mark.anyio
async def test_the_prompt_of_a_model_without_schema_says_what_is_asked_and_in_which_form() -> None:
    model = AsSeeds()
    await CustomJudge(model).answer(question("the text"))
    (prompt,) = model.prompts
    assert "ok?" in prompt
    assert "the text" in prompt
    schema = json.loads(prompt[prompt.index("schema:") + len("schema:") :])
    assert list(schema["properties"]) == ["reason", "verdict"]
    assert schema["properties"]["verdict"]["enum"] == ["Yes", "No"]


@pytest.mark.anyio
async def test_the_prompt_of_a_model_that_takes_a_schema_does_not_repeat_it() -> None:
    prompts: list[str] = []

    class Model:
        async def a_generate(self, prompt: str, schema: Any) -> str:
            prompts.append(prompt)
            assert schema is SHAPE
            return ANSWER

    await CustomJudge(Model()).answer(question())
    assert '"properties"' not in prompts[0]


@pytest.mark.anyio
async def test_a_question_with_a_parser_is_put_as_plain_text() -> None:
    seen: list[tuple[str, Any]] = []

    class Model:
        async def a_generate(self, prompt: str, schema: Any = None) -> str:
            seen.append((prompt, schema))
            return "I say: No."

    parser = FirstMatch(((r"say: (\w+)", None),))
    answer: Any = await CustomJudge(Model()).answer(question(parser=parser))
    assert answer.value.verdict == "No"
    assert seen[0][1] is None
    assert '"properties"' not in seen[0][0]


async def ask_all(judge: CustomJudge, count: int, limits: Limits = DEFAULT_LIMITS) -> Gateway:
    """Ask `count` different questions at once."""
    gateway = Gateway(limits)
    with anyio.fail_after(LIMIT):
        async with anyio.create_task_group() as group:
            for number in range(count):
                group.start_soon(gateway.ask, judge, question(str(number)))
    return gateway


class Meeting:
    """Answers only when `count` calls are there at once; a lone call fails."""

    def __init__(self, count: int) -> None:
        self.barrier = threading.Barrier(count, timeout=LIMIT / 3)
        self.threads: set[int] = set()

    def generate(self, prompt: str) -> str:
        self.threads.add(threading.get_ident())
        self.barrier.wait()
        return ANSWER


@pytest.mark.anyio
async def test_blocking_calls_overlap_in_threads_other_than_the_loops() -> None:
    model = Meeting(4)  # as many as a run begins with
    gateway = await ask_all(CustomJudge(model), 4)
    assert gateway.totals.failed == 0
    assert threading.get_ident() not in model.threads
    assert len(model.threads) == 4


@pytest.mark.anyio
async def test_as_many_blocking_calls_overlap_as_the_run_allows() -> None:
    """More than the forty threads that anyio has by default."""

    class Ready(CustomJudge):
        capabilities = Capabilities(elastic=True)  # no careful start

    limits = Limits(attempts=1)
    gateway = await ask_all(Ready(Meeting(limits.max_in_flight)), 64, limits)
    assert gateway.totals.failed == 0


@pytest.mark.anyio
async def test_a_blocking_call_does_not_block_the_event_loop() -> None:
    release = threading.Event()

    class Model:
        def generate(self, prompt: str) -> str:
            assert release.wait(LIMIT), "the event loop never came to set it"
            return ANSWER

    async with anyio.create_task_group() as group:
        group.start_soon(Gateway().ask, CustomJudge(Model()), question())
        await anyio.wait_all_tasks_blocked()
        release.set()


@pytest.mark.anyio
async def test_the_default_a_generate_overlaps_too() -> None:
    class Model(Meeting, BaseLLM):
        def get_model_name(self) -> str:
            return "meeting"

    gateway = await ask_all(CustomJudge(Model(4)), 4)
    assert gateway.totals.failed == 0


@pytest.mark.anyio
async def test_a_blocking_call_over_its_deadline_does_not_hold_up_the_run() -> None:
    release = threading.Event()

    class Stuck:
        def generate(self, prompt: str) -> str:
            release.wait(LIMIT)  # then it answers after all, and this is no timeout
            return ANSWER

    tree = DAG(
        NonBinaryJudgementNode("ok?", evaluation_params=["input"], then={"Yes": 10, "No": 0})
    )
    limits = Limits(call_timeout=0.01, attempts=1)
    try:
        metric = DAGMetric("m", tree, model=Stuck())
        result = await a_evaluate([LLMTestCase(input="i")], [metric], limits=limits, show=False)
    finally:
        release.set()
    assert result.rows[0].metrics[0].outcome is OutcomeKind.TIMEOUT


@pytest.mark.anyio
@pytest.mark.parametrize("asynchronous", [False, True])
async def test_a_type_error_inside_the_model_is_neither_swallowed_nor_retried(
    asynchronous: bool,
) -> None:
    calls = 0

    class Model:
        def generate(self, prompt: str, schema: Any = None) -> str:
            nonlocal calls
            calls += 1
            raise TypeError("generate() got an unexpected keyword argument 'schema'")

    class AsyncModel(Model):
        async def a_generate(self, prompt: str, schema: Any = None) -> str:
            return self.generate(prompt, schema)

    model = AsyncModel() if asynchronous else Model()
    with pytest.raises(JudgeCodeError, match="TypeError: generate") as caught:
        await Gateway().ask(CustomJudge(model), question())
    assert isinstance(caught.value.__cause__, TypeError)
    assert calls == 1


@pytest.mark.anyio
async def test_a_model_that_raises_is_a_provider_error_of_its_case_only() -> None:
    class Model:
        def generate(self, prompt: str) -> str:
            if "bad" in prompt:
                raise RuntimeError("CUDA out of memory")
            return ANSWER

    tree = DAG(
        NonBinaryJudgementNode("ok?", evaluation_params=["input"], then={"Yes": 10, "No": 0})
    )
    cases = [LLMTestCase(input=text) for text in ("good", "bad", "good again")]
    result = await a_evaluate(cases, [DAGMetric("m", tree, model=Model())], show=False)
    assert result.scores("m") == [1.0, None, 1.0]
    failure = result.rows[1].metrics[0].failure
    assert failure is not None
    assert failure.kind is OutcomeKind.PROVIDER_ERROR
    assert "RuntimeError: CUDA out of memory" in failure.message


@pytest.mark.anyio
@pytest.mark.parametrize("mistake", [TypeError("no"), KeyError("no"), AttributeError("no")])
async def test_a_mistake_in_the_code_of_a_model_is_a_code_error(mistake: Exception) -> None:
    class Model:
        def generate(self, prompt: str) -> str:
            raise mistake

    tree = DAG(
        NonBinaryJudgementNode("ok?", evaluation_params=["input"], then={"Yes": 10, "No": 0})
    )
    metric = DAGMetric("m", tree, model=Model())
    result = await a_evaluate([LLMTestCase(input="x")], [metric], show=False)
    failure = result.rows[0].metrics[0].failure
    assert failure is not None
    assert failure.kind is OutcomeKind.CODE_ERROR
    assert type(mistake).__name__ in failure.message
    assert "test_judges.py line" in failure.message
    assert result.totals.calls == 1


@pytest.mark.anyio
@pytest.mark.parametrize("given", [None, 3, b"Yes", ["Yes"], object(), (ANSWER, 1, 2)])
async def test_what_is_neither_text_nor_fields_does_not_fit(given: Any) -> None:
    class Model:
        async def a_generate(self, prompt: str) -> Any:
            return given

    with pytest.raises(UnparseableError, match=f"returned {type(given).__name__}"):
        await CustomJudge(Model()).answer(question())


@pytest.mark.anyio
async def test_an_answer_of_another_models_class_is_checked_like_any_other() -> None:
    class Other(BaseModel):
        reason: str = "r"
        verdict: str = "Maybe"

    class Model:
        async def a_generate(self, prompt: str, schema: Any) -> Any:
            return Other() if "cannot be used" not in prompt else Other(verdict="no")

    answer: Any = await Gateway().ask(CustomJudge(Model()), question())
    assert answer.value.verdict == "No"


@pytest.mark.anyio
async def test_a_plain_function_that_returns_an_awaitable_is_awaited() -> None:
    """What many decorators for retries and tracing make of a coroutine function."""

    class Model:
        def a_generate(self, prompt: str) -> Any:
            return anyio.to_thread.run_sync(lambda: ANSWER)

    answer = await CustomJudge(Model()).answer(question())
    assert answer.value == SHAPE.model_validate_json(ANSWER)


def test_models_of_different_names_never_share_answers_and_unnamed_ones_neither() -> None:
    one, two = SyncOnly(), SyncOnly()
    judges = [CustomJudge(AsSeeds()), CustomJudge(Derived()), CustomJudge(one), CustomJudge(two)]
    assert len({judge.identity for judge in judges}) == 4
    assert CustomJudge(one).identity == CustomJudge(one).identity


@pytest.mark.anyio
async def test_a_script_answers_by_name_or_by_function() -> None:
    async def coroutine(asked: Question[Any]) -> str:
        return "No"

    by_name = ScriptedJudge({"q": "Yes"})
    by_function = ScriptedJudge(
        lambda asked: "Yes" if "t" in asked.messages[1]["content"] else "No"
    )
    fields = ScriptedJudge({"q": {"reason": "why", "verdict": "Yes"}})
    found = [
        (await judge.answer(question())).value.model_dump()
        for judge in (by_name, by_function, fields, ScriptedJudge(coroutine))
    ]
    assert [answer["verdict"] for answer in found] == ["Yes", "Yes", "Yes", "No"]
    assert found[2]["reason"] == "why"


@pytest.mark.anyio
async def test_a_script_answers_every_kind_of_question() -> None:
    judge = ScriptedJudge({"q": 4})
    rating = Question(question().messages, rating_type(1, 5), name="q")
    assert (await judge.answer(rating)).value.model_dump()["score"] == 4
    listed = Question(question().messages, output_type(list[str]), name="q")
    made: Any = await ScriptedJudge({"q": ["a", "b"]}).answer(listed)
    assert made.value.output == ["a", "b"]


class Facts(BaseModel):
    """An answer with one field of its own."""

    facts: list[str]


@pytest.mark.anyio
async def test_a_script_answers_with_the_only_field_of_an_answer() -> None:
    asked = Question(question().messages, Facts, name="q")
    for script in (["a"], {"facts": ["a"]}):
        assert (await ScriptedJudge({"q": script}).answer(asked)).value.facts == ["a"]
    with pytest.raises(UnparseableError, match="facts: "):
        await ScriptedJudge({"q": True}).answer(asked)
    text = question(parser=FirstMatch(((r"(\w+)\.$", None),)))
    parsed: Any = await ScriptedJudge({"q": "It is No."}).answer(text)
    assert parsed.value.verdict == "No"


@pytest.mark.anyio
async def test_a_script_is_held_to_the_question_like_a_model() -> None:
    with pytest.raises(UnparseableError, match="verdict") as caught:
        await ScriptedJudge({"q": "Perhaps"}).answer(question())
    assert "Perhaps" in caught.value.raw


@pytest.mark.anyio
async def test_a_script_may_return_or_raise_an_error() -> None:
    def raising(asked: Question[Any]) -> Any:
        raise RefusedError("no")

    for judge in (ScriptedJudge({"q": RefusedError("no")}), ScriptedJudge(raising)):
        with pytest.raises(RefusedError):
            await judge.answer(question())


@pytest.mark.anyio
async def test_an_error_of_a_judge_takes_any_arguments_and_none_are_tokens() -> None:
    class StatusError(JudgeError):
        def __init__(self, status: int) -> None:
            self.status = status

    for error in (StatusError(500), JudgeError("status", 500, None)):
        judge = ScriptedJudge(dict.fromkeys(["conciseness"], error))
        result = await a_evaluate(
            [LLMTestCase(input="a", actual_output="b")],
            [CriteriaMetric("conciseness")],
            model=judge,
            show=False,
        )
        failure = result.rows[0].metrics[0].failure
        assert failure is not None
        assert failure.kind == OutcomeKind.PROVIDER_ERROR
        assert str(error) in failure.message


@pytest.mark.anyio
async def test_a_script_that_has_nothing_to_say_names_what_it_knows() -> None:
    with pytest.raises(RecordingMissError, match=r"'q'.*'other'"):
        await ScriptedJudge({"other": 1}).answer(question())


@pytest.mark.anyio
async def test_a_recording_is_replayed() -> None:
    judge = RecordedJudge({question().key: f"```json\n{ANSWER}\n```"})
    answer = await judge.answer(question())
    assert answer.value == SHAPE.model_validate_json(ANSWER)
    assert answer.mode == "recorded"


@pytest.mark.anyio
async def test_a_question_that_was_not_recorded_is_a_loud_miss_and_asked_once() -> None:
    judge, gateway = RecordedJudge({question("one").key: ANSWER}), Gateway()
    with pytest.raises(RecordingMissError, match=question("two").key[:16]):
        await gateway.ask(judge, question("two"))
    assert gateway.totals.calls == 1


@pytest.mark.anyio
async def test_a_recording_that_does_not_fit_is_not_asked_for_again() -> None:
    judge, gateway = RecordedJudge({question().key: "no idea"}), Gateway()
    with pytest.raises(UnparseableError) as caught:
        await gateway.ask(judge, question())
    assert caught.value.raw == "no idea"
    assert gateway.totals.calls == 1


@pytest.mark.anyio
async def test_a_recording_may_have_keys_of_its_own() -> None:
    judge = RecordedJudge({"q": ANSWER}, key=lambda asked: asked.name)
    assert (await judge.answer(question())).raw == ANSWER


@pytest.mark.anyio
async def test_a_miss_costs_its_case_the_score_and_no_other() -> None:
    tree = DAG(BinaryJudgementNode("ok?", evaluation_params=["input"], then={True: 10, False: 0}))
    keys: list[str] = []

    def note(asked: Question[Any]) -> bool:
        keys.append(asked.key)
        return True

    cases = [LLMTestCase(input="one"), LLMTestCase(input="two")]
    await a_evaluate(cases[:1], [DAGMetric("m", tree)], model=ScriptedJudge(note), show=False)
    judge = RecordedJudge({keys[0]: '{"reason": "r", "verdict": true}'})
    result = await a_evaluate(cases, [DAGMetric("m", tree)], model=judge, show=False)
    assert result.scores("m") == [1.0, None]
    assert result.rows[1].metrics[0].outcome is OutcomeKind.PROVIDER_ERROR


def test_no_model_and_a_name_are_openai_models() -> None:
    for model, name in ((None, "gpt-4o"), ("", "gpt-4o"), ("gpt-4.1", "gpt-4.1")):
        judge = as_judge(model)
        assert isinstance(judge, OpenAIJudge)
        assert (judge.model, judge.base_url) == (name, None)


def test_a_name_with_a_slash_is_a_provider_only_when_it_is_known_and_no_url_is_given() -> None:
    found = as_judge("anthropic/claude-sonnet-4-5")
    assert isinstance(found, ProviderJudge)
    assert "anthropic/claude-sonnet-4-5" in found.identity
    own = as_judge("openai/gpt-4.1")
    assert isinstance(own, OpenAIJudge)
    assert own.model == "gpt-4.1"
    for name, url in (("Qwen/Qwen3-8B", None), ("openai/gpt-oss-20b", "http://127.0.0.1:1/v1")):
        judge = as_judge(name, base_url=url)
        assert isinstance(judge, OpenAIJudge)
        assert (judge.model, judge.base_url) == (name, url)


def test_a_judge_is_taken_as_it_is_and_a_model_gets_a_judge() -> None:
    scripted = ScriptedJudge({})
    assert as_judge(scripted) is scripted
    assert isinstance(as_judge(SyncOnly()), CustomJudge)
    assert isinstance(as_judge(AsyncOnly()), CustomJudge)


class NotCallable:
    answer = "42"
    generate = "42"
    identity = "x"


@pytest.mark.parametrize(
    "garbage", [42, 0, False, b"gpt-4o", [], {}, object(), NotCallable(), lambda prompt: ANSWER]
)
def test_what_is_no_judge_is_refused_by_name(garbage: Any) -> None:
    with pytest.raises(InputError, match="not a judge"):
        as_judge(garbage)


class OnlyAnswers:
    async def answer(self, question: Question[Any]) -> str:
        return "yes"


class OfTheProtocol(Judge):
    async def answer(self, question: Question[Any]) -> Any:
        return "yes"


@pytest.mark.parametrize("kind", [OnlyAnswers, OfTheProtocol])
def test_a_judge_without_what_a_judge_needs_is_told_all_of_it(kind: Any) -> None:
    message = r"no judge without `identity` \(a str\) and `capabilities` \(a Capabilities\)"
    with pytest.raises(InputError, match=message):
        as_judge(kind())
    with pytest.raises(ImportError, match=r"a class with `generate\(prompt\)`"):
        exec("from dagengine.judges import Judge")


def test_a_function_and_several_models_are_told_what_makes_judges_of_them() -> None:
    with pytest.raises(InputError, match=r"ScriptedJudge\(function\).*as `generate`"):
        as_judge(lambda prompt: ANSWER)
    with pytest.raises(InputError, match=r"judged_by\(metric, \[judge, …\]\)"):
        as_judge(["gpt-4o", "gpt-4.1"])


@pytest.mark.parametrize("kind", [SyncOnly, AsSeeds, OpenAIJudge, Derived])
def test_a_class_in_place_of_an_object_is_refused(kind: type[Any]) -> None:
    with pytest.raises(InputError, match="not a judge"):
        as_judge(kind)


def test_two_endpoints_or_parameters_are_two_judges() -> None:
    judges: list[Judge] = [
        OpenAIJudge("m"),
        OpenAIJudge("n"),
        OpenAIJudge("m", base_url="http://127.0.0.1:1/v1"),
        OpenAIJudge("m", parameters={"top_p": 0.5}),
        ProviderJudge("anthropic/m"),
        ProviderJudge("anthropic/m", max_tokens=5),
    ]
    assert len({judge.identity for judge in judges}) == len(judges)


def test_no_key_is_ever_part_of_an_identity() -> None:
    judges = [
        as_judge("gpt-4o", api_key="SECRET"),
        as_judge("m", base_url="http://127.0.0.1:1/v1", api_key="SECRET"),
        as_judge("anthropic/m", api_key="SECRET"),
    ]
    assert [judge.identity for judge in judges if "SECRET" in judge.identity] == []


def in_new_process(code: str, folder: Path) -> str:
    """What `code` prints in a process that has nothing imported, started in `folder`."""
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", code],
        cwd=folder,
        env={**os.environ, "HOME": str(folder)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


_COMPILE = """
from dagengine import compile_metrics
from dagengine.judges import OpenAIJudge, ProviderJudge, as_judge
from dagengine.metrics.dag import DAG, DAGMetric, BinaryJudgementNode
tree = DAG(BinaryJudgementNode("ok?", evaluation_params=["input"], then={True: 1, False: 0}))
compile_metrics([DAGMetric("m", tree, model=as_judge()), DAGMetric("n", tree, model="anthropic/x")])
as_judge("anthropic/x")
"""


def test_compiling_a_graph_imports_no_provider(tmp_path: Path) -> None:
    heavy = "{'openai', 'instructor', 'aiohttp', 'httpx2'}"
    code = f"{_COMPILE}\nimport sys\nprint(sorted({heavy} & set(sys.modules)))"
    assert in_new_process(code, tmp_path) == "[]"


_WATCH = """
import os, sys
read, original = [], type(os.environ).__getitem__

def watched(environ, key):
    caller = sys._getframe(1)
    while caller.f_globals["__name__"] in ("os", "collections.abc"):
        caller = caller.f_back
    if caller.f_globals["__name__"].partition(".")[0] == "dagengine":
        read.append(key)
    return original(environ, key)

type(os.environ).__getitem__ = watched
for way in ("os.getenv('A')", "os.environ.get('B')", "'C' in os.environ"):
    eval(way, {"os": os, "__name__": "dagengine.somewhere"})
import dagengine, dagengine.judges
for package in (dagengine, dagengine.judges):
    for name in package.__all__:
        getattr(package, name)
print(read)
"""


def test_importing_makes_no_files_and_reads_no_environment(tmp_path: Path) -> None:
    """Libraries below may look at variables of their own; dagengine itself must not."""
    assert in_new_process(_WATCH, tmp_path) == "['A', 'B', 'C']"  # those of the check itself
    assert os.listdir(tmp_path) == []


LISTED = output_type(list[str])


def listed(text: str, shape: Any = LISTED) -> Any:
    """What a model's text holds where a list is asked for."""
    asked: Question[Any] = Question(question().messages, shape, name="q")
    return read_answer(asked, text).output


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ('["a", "b"]', ["a", "b"]),
        ("[]", []),
        ('{"output": ["a"]}', ["a"]),
        ('As in [1]: {"output": ["a"]} [2]', ["a"]),
        ('So:\n["a [1]", "\\u00e9 {x}"] - that is all.', ["a [1]", "é {x}"]),
        ('Sure: {"output": ["a"], "notes": ["b"]}', ["a"]),
        ('See [1, 2]. The list: ["a"]', ["a"]),
        ('<think>\n["draft"]\n</think>\n```json\n[\n  "a"\n]\n```', ["a"]),
        ('["a"]\nAgain:\n["a"]', ["a"]),
        ('["a \\"b\\""\n"c"]', ['a "b"', "c"]),
        ("Here:\n['a', 'b',]\nDone.", ["a", "b"]),
    ],
)
def test_a_list_is_read_with_or_without_what_stands_around_it(text: str, found: list[str]) -> None:
    assert listed(text) == found


@pytest.mark.parametrize(
    "text",
    [
        '["a", "b", "cut o',
        '["a", "b"',
        '["a [1]", "cut o',
        '["a"]\n["b"]',
        "I cannot do that [as you see].",
        "[1, 2]",
        '{"verdict": "a"}',
        "",
    ],
)
def test_what_is_no_list_or_not_all_of_one_is_unparseable(text: str) -> None:
    with pytest.raises(UnparseableError) as caught:
        listed(text)
    assert caught.value.raw == text


def test_a_list_of_objects_may_stand_alone_too() -> None:
    text = 'These:\n[{"a": 1}, {"a": 2}]'
    assert listed(text, output_type(list[dict[str, int]])) == [{"a": 1}, {"a": 2}]


def test_no_list_is_taken_for_another_answer() -> None:
    with pytest.raises(UnparseableError):
        read_answer(question(), '["because", "Yes"]')


@pytest.mark.anyio
async def test_a_recording_gives_its_tokens_to_those_who_ask_for_them() -> None:
    tokens = (TokenChoice(ANSWER, ((ANSWER, 0.0),)),)
    judge = RecordedJudge({"q": Recording(ANSWER, tokens)}, key=lambda asked: asked.name)
    with_tokens = await judge.answer(question(options=Options(top_logprobs=5)))
    without = await judge.answer(question())
    assert (with_tokens.tokens, without.tokens) == (tokens, None)
    assert (with_tokens.raw, with_tokens.mode) == (ANSWER, "recorded")
    assert judge.capabilities.logprobs
    assert not judge.capabilities.repeatable


@pytest.mark.parametrize("pattern", [r"- (\w+)", r"(?<=- )\w+"])
def test_every_match_is_an_item(pattern: str) -> None:
    assert EveryMatch(pattern)("- a\n- b") == {"output": ["a", "b"]}
    with pytest.raises(UnparseableError, match="none of the patterns") as caught:
        EveryMatch(pattern)("nothing")
    assert caught.value.raw == "nothing"


@pytest.mark.parametrize("depth", [501, 5_000, 100_000])
def test_an_answer_that_is_nested_too_deeply_is_unparseable(depth: int) -> None:
    text = '{"a":' * depth + "1" + "}" * depth
    with pytest.raises(UnparseableError):
        read_answer(question(), text)


@pytest.mark.parametrize(("opens", "closes"), [("[", "]"), ('{"a":', "}")])
def test_how_deep_json_may_be_nested_does_not_depend_on_the_python(opens: str, closes: str) -> None:
    for depth in (DEEPEST, DEEPEST + 1):
        text = f"{opens * depth}1{closes * depth}"
        with pytest.raises(RecursionError) if depth > DEEPEST else nullcontext():
            require_shallow(text, json.loads(text))


class Causal:
    """A causal model as `transformers` has it: what it returns begins with the prompt."""

    def __init__(self) -> None:
        self.calls = 0

    def generate(self, prompt: str) -> str:
        self.calls += 1
        return f"<s> {prompt}\n{ANSWER}</s>"

    def get_model_name(self) -> str:
        return "causal"


@pytest.mark.anyio
async def test_a_model_that_repeats_the_prompt_is_asked_once() -> None:
    model = Causal()
    answer = await Gateway().ask(CustomJudge(model), question())
    assert (answer.raw, model.calls) == (f"\n{ANSWER}</s>", 1)


class Fields:
    """A model that returns the fields of its answer."""

    def __init__(self, fields: dict[str, Any]) -> None:
        self._fields = fields

    def generate(self, prompt: str) -> dict[str, Any]:
        return self._fields


@pytest.mark.anyio
@pytest.mark.parametrize(
    "verdict",
    [10**5_000, {("a", "b"): 1}, "x" * 2_000_000],
    ids=["a long number", "a strange key", "a long text"],
)
async def test_fields_without_a_json_form_do_not_fit(verdict: Any) -> None:
    with pytest.raises(UnparseableError):
        await CustomJudge(Fields({"reason": "r", "verdict": verdict})).answer(question())


def test_recordings_are_stored_under_a_name_only() -> None:
    one, other = RecordedJudge({}, name="may"), RecordedJudge({}, name="may")
    assert one.durable_identity == other.durable_identity == "recorded may"
    assert one.identity != other.identity
    assert RecordedJudge({}).durable_identity is None


class NoCredentialsError(Exception):
    """What the client of a cloud raises, as the cloud's library names it."""


class Lost(Exception):
    """A failure of the network."""


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("model", "variable"),
    [("bedrock/m", "AWS_ACCESS_KEY_ID"), ("nowhere/m", "NOWHERE_API_KEY")],
)
async def test_a_provider_without_credentials_fails_at_once_and_names_the_variable(
    model: str, variable: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    import instructor
    from instructor.core.exceptions import InstructorRetryException

    asked: list[str] = []

    class Client:
        def __init__(self, error: Exception) -> None:
            self._error = error

        async def create(self, **_: Any) -> Any:
            asked.append(model)
            raise InstructorRetryException(
                str(self._error), n_attempts=1, total_usage=0
            ) from self._error

    lacking = NoCredentialsError("Unable to locate credentials")
    monkeypatch.setattr(instructor, "from_provider", lambda *_, **__: Client(lacking))
    limits = Limits(attempts=3, backoff=0.0, max_backoff=0.0)
    with pytest.raises(JudgeSetupError, match=f"NoCredentialsError: Unable.*{variable}"):
        await Gateway(limits).ask(ProviderJudge(model), question())
    assert len(asked) == 1
    monkeypatch.setattr(instructor, "from_provider", lambda *_, **__: Client(Lost("connection")))
    with pytest.raises(ProviderError, match="Lost: connection"):
        await Gateway(limits).ask(ProviderJudge(model), question())
    assert len(asked) == 4


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("model", "marks", "usage"),
    [("anthropic/m", [1, 1], Usage(120, 5, 100)), ("mistral/m", [0, 0], NO_USAGE)],
)
async def test_anthropic_is_told_what_to_keep_and_the_first_question_goes_ahead(
    model: str, marks: list[int], usage: Usage, monkeypatch: pytest.MonkeyPatch
) -> None:
    import instructor

    sent: list[Any] = []
    inside = most = 0

    class Completion:
        usage = {"input_tokens": 20, "cache_read_input_tokens": 100, "output_tokens": 5}

    class Client:
        async def create(self, *, response_model: Any, messages: Any, **_: Any) -> Any:
            nonlocal inside, most
            sent.append(messages[1]["content"])
            inside += 1
            most = max(most, inside)
            await anyio.wait_all_tasks_blocked()
            inside -= 1
            value = response_model.model_validate({"reason": "r", "verdict": "Yes"})
            value._raw_response = Completion
            return value

    monkeypatch.setattr(instructor, "from_provider", lambda *_, **__: Client())
    judge, gateway = ProviderJudge(model), Gateway(Limits())
    answers: list[Any] = []

    async def ask(step: str) -> None:
        evidence = [Evidence("actual_output", "A word. " * 600)]
        asked = Question(messages_for(step, evidence), SHAPE, name=step, shares=("actual_output",))
        answers.append(await gateway.ask(judge, asked))

    async with anyio.create_task_group() as group:
        group.start_soon(ask, "Good?")
        group.start_soon(ask, "Kind?")
    contents = [content if isinstance(content, list) else [content] for content in sent]
    assert [sum("cache_control" in part for part in parts) for parts in contents] == marks
    assert most == (1 if any(marks) else 2)
    assert [answer.usage for answer in answers] == [usage] * 2
    assert all("_raw_response" not in vars(answer.value) for answer in answers)


@pytest.mark.anyio
async def test_a_provider_whose_client_cannot_be_made_is_a_setup_error(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    import instructor

    def refuse(*_: Any, **__: Any) -> Any:
        raise NoCredentialsError("no key")

    monkeypatch.setattr(instructor, "from_provider", refuse)
    with pytest.raises(JudgeSetupError, match="set MISTRAL_API_KEY or pass api_key="):
        await ProviderJudge("mistral/m").answer(question())
