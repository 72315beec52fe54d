"""What a checkup finds out about judges, against servers with one vice each."""

from __future__ import annotations

import json
import math
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import anyio
import pytest
import trio
from servers.checked_model import CheckedModel
from servers.local_servers import LLAMA, TellingServer
from servers.openai_server import OpenAIServer, Reply
from trio.testing import MockClock

from dagengine.checkup import Checkup, check_judge
from dagengine.checkup.checkup_report import (
    EasyQuestions,
    NotMeasured,
    Probabilities,
    Reading,
    Speed,
    Structure,
    Thinking,
)
from dagengine.checkup.probes import chance_of
from dagengine.checkup.questions import EASY, PLANTED, plant_words, prose
from dagengine.errors import InputError
from dagengine.judges import EmbeddingJudge, LabelJudge, OpenAIJudge, ScriptedJudge
from dagengine.prompts.parsing import read_answer
from dagengine.question import Answer, Capabilities, Question, ServerFacts, Usage

TRUTH = {output: right for _, output, right in EASY}


async def checked(model: Any, name: str = "test-model", **settings: Any) -> Checkup:
    with OpenAIServer(model) as server:
        return await check_judge(OpenAIJudge(name, base_url=server.base_url), **settings)


@pytest.mark.anyio
async def test_a_good_judge_can_be_used() -> None:
    checkup = await checked(CheckedModel())
    assert checkup.usable
    assert checkup.problems == ()
    assert checkup.connection.is_listed
    assert checkup.structure == Structure("json_schema", True, True, True, True, 6)
    assert checkup.thinking == Thinking(thinks=False, tokens=1)
    assert isinstance(checkup.easy, EasyQuestions)
    assert (checkup.easy.right, checkup.easy.answered, checkup.easy.yes) == (20, 20, 10)
    assert isinstance(checkup.reading, Reading)
    assert checkup.reading.found == ((0.05, True), (0.5, True), (0.95, True))
    assert checkup.reading.cut is False
    assert isinstance(checkup.speed, Speed)
    assert checkup.speed.same_again
    assert checkup.speed.same_beside
    assert checkup.advice.odds
    assert 35 <= checkup.calls <= 60


def test_half_of_the_easy_questions_have_the_answer_yes() -> None:
    assert len(EASY) == 20
    assert sum(right for *_, right in EASY) == 10
    assert len({text for text, *_ in EASY}) == 20


@pytest.mark.anyio
@pytest.mark.parametrize("verdict", [True, False])
async def test_a_judge_that_always_says_the_same_is_called_a_coin(verdict: bool) -> None:
    checkup = await checked(CheckedModel(always=verdict))
    assert isinstance(checkup.easy, EasyQuestions)
    assert (checkup.easy.right, checkup.easy.yes) == (10, 20 * verdict)
    assert checkup.problems == ("10 of 20 easy questions right: no better than guessing",)


@pytest.mark.parametrize(("right", "answered"), [(15, 20), (14, 20), (10, 10), (0, 5)])
def test_the_chance_of_a_guess_is_that_of_the_binomial_distribution(
    right: int, answered: int
) -> None:
    scipy = pytest.importorskip("scipy.stats")
    expected = scipy.binomtest(right, answered, alternative="greater").pvalue
    assert math.isclose(chance_of(right, answered), expected)


@pytest.mark.anyio
async def test_a_server_that_cuts_the_longest_case_cannot_be_used_for_it() -> None:
    checkup = await checked(CheckedModel(cut=700), text=prose(20_000))
    assert isinstance(checkup.reading, Reading)
    assert checkup.reading.cut
    assert checkup.reading.found == ((0.05, False), (0.5, False), (0.95, True))
    assert "cuts the longest test case" in checkup.problems[0]
    needed = checkup.advice.window
    assert needed is not None
    assert needed > 3_000


@pytest.mark.anyio
async def test_a_case_that_is_refused_is_said_with_the_words_of_the_server() -> None:
    checkup = await checked(CheckedModel(refuse=1_000), text=prose(20_000))
    assert isinstance(checkup.reading, Reading)
    assert checkup.reading.found == ()
    assert "the window 1000" in (checkup.reading.refused or "")
    assert "refuses the longest test case" in checkup.problems[0]


@pytest.mark.anyio
async def test_a_server_that_ignores_schemas_gives_no_valid_answer() -> None:
    checkup = await checked(CheckedModel(schema=False))
    assert isinstance(checkup.structure, Structure)
    assert not checkup.structure.valid
    assert not checkup.structure.enforced
    assert checkup.problems[0].startswith("only 0 of 20 easy questions got a valid answer")


@pytest.mark.anyio
async def test_bounds_that_are_not_honoured_are_seen() -> None:
    checkup = await checked(CheckedModel(bounds=False))
    assert isinstance(checkup.structure, Structure)
    assert (checkup.structure.max_length, checkup.structure.max_items) == (False, False)
    assert checkup.usable


@pytest.mark.anyio
@pytest.mark.parametrize(("mass", "usable"), [(0.9, True), (0.1, False)])
async def test_odds_need_half_of_the_probability_on_the_options(mass: float, usable: bool) -> None:
    checkup = await checked(CheckedModel(mass=mass))
    assert isinstance(checkup.probabilities, Probabilities)
    assert math.isclose(checkup.probabilities.mass or 0, mass)
    assert checkup.probabilities.before_schema is not usable
    assert checkup.probabilities.ten == 2
    assert checkup.advice.odds is usable


@pytest.mark.anyio
async def test_a_server_without_probabilities_is_fine() -> None:
    checkup = await checked(CheckedModel(mass=None))
    assert checkup.probabilities == Probabilities(None)
    assert not checkup.advice.odds
    assert checkup.usable


@pytest.mark.anyio
@pytest.mark.parametrize("quiet", ["reasoning_effort", "chat_template_kwargs"])
async def test_thinking_is_switched_off_where_the_server_can(quiet: str) -> None:
    checkup = await checked(CheckedModel(thinks=True, quiet=quiet))
    assert isinstance(checkup.thinking, Thinking)
    assert checkup.thinking.thinks
    assert checkup.advice.parameters == checkup.thinking.off
    assert list(checkup.advice.parameters or {}) == [quiet]
    assert checkup.usable


@pytest.mark.anyio
async def test_thoughts_that_cannot_be_switched_off_get_their_room() -> None:
    checkup = await checked(CheckedModel(thinks=True, quiet="no such word"))
    assert isinstance(checkup.thinking, Thinking)
    assert checkup.thinking.thinks
    assert checkup.thinking.off is None
    assert checkup.thinking.tokens > 96
    assert checkup.usable


@pytest.mark.anyio
async def test_a_server_that_says_what_it_is_gives_its_window_and_places() -> None:
    with TellingServer(LLAMA, CheckedModel()) as server:
        checkup = await check_judge(OpenAIJudge("m", base_url=server.base_url))
    assert (checkup.facts.server, checkup.facts.window, checkup.facts.slots) == (
        "llama.cpp", 4096, 4
    )  # fmt: skip
    assert checkup.advice.max_in_flight == 4
    assert isinstance(checkup.speed, Speed)
    assert [load.calls for load in checkup.speed.loads] == [4]


@pytest.mark.anyio
async def test_a_longest_case_beyond_the_window_is_advice_before_it_is_a_problem() -> None:
    """The server took it, but with the words of a metric around it, it will not."""
    with TellingServer(LLAMA, CheckedModel()) as server:
        judge = OpenAIJudge("m", base_url=server.base_url)
        checkup = await check_judge(judge, text="word " * 2_300)
    assert checkup.usable
    assert checkup.advice.window == 5_120


@pytest.mark.anyio
async def test_nothing_at_the_address_is_said_with_what_to_do() -> None:
    checkup = await check_judge(OpenAIJudge("m", base_url="http://127.0.0.1:9/v1"))
    assert not checkup.usable
    assert "nothing answers at http://127.0.0.1:9/v1" in checkup.problems[0]
    assert checkup.calls == 0


@pytest.mark.anyio
async def test_a_model_that_the_server_does_not_have_is_told_apart_and_named() -> None:
    checkup = await checked(
        lambda body: Reply("model 'test-modle' not found", status=404), "test-modle"
    )
    assert "did you mean 'test-model'?" in checkup.problems[0]
    assert checkup.calls == 1


@pytest.mark.anyio
async def test_a_server_that_is_not_ready_is_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dagengine.checkup.checkup._PAUSE", 0.001)
    answers = iter([Reply("Loading model", status=503)] * 3)
    model = CheckedModel()
    checkup = await checked(lambda body: next(answers, None) or model(body))
    assert checkup.usable


@pytest.mark.anyio
async def test_a_key_that_is_missing_is_a_problem_and_no_call_is_made(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    checkup = await check_judge(OpenAIJudge("gpt-4o"))
    assert "OPENAI_API_KEY" in checkup.problems[0]
    assert checkup.calls == 0


@pytest.mark.anyio
async def test_a_judge_in_plain_python_is_asked_what_it_can_answer() -> None:
    def script(question: Any) -> Any:
        if question.name.startswith("easy"):
            shown = question.messages[1]["content"]
            return next(right for output, right in TRUTH.items() if f"\n{output}\n" in shown)
        return {"one word": "Paris", "yes or no": "yes"}.get(question.name, "pelican")

    checkup = await check_judge(ScriptedJudge(script))
    assert checkup.usable
    assert isinstance(checkup.speed, Speed)
    assert checkup.speed.alone is None
    assert checkup.advice.max_in_flight is None


@pytest.mark.anyio
async def test_a_judge_of_length_zero_is_opened_and_asked() -> None:
    class Counting(ScriptedJudge):
        opened = False

        def __len__(self) -> int:
            return 0

        @asynccontextmanager
        async def session(self) -> AsyncIterator[None]:
            self.opened = True
            yield

    class Deciding(ScriptedJudge):
        capabilities = Capabilities(decides=True)
        writer = Counting(lambda question: True)

    judge = Counting(lambda question: True)
    await check_judge(judge)
    assert judge.opened
    await check_judge(Deciding(lambda question: True))
    assert Deciding.writer.opened


@pytest.mark.anyio
async def test_mistakes_of_a_judge_of_ones_own_are_told_and_not_raised() -> None:
    def script(question: Any) -> Any:
        raise KeyError("mine")

    checkup = await check_judge(ScriptedJudge(script))
    assert "KeyError" in checkup.problems[0]


@pytest.mark.anyio
async def test_a_judge_of_labels_is_asked_in_its_own_form() -> None:
    def chat(body: dict[str, Any]) -> Reply:
        prompt = "".join(message["content"] for message in body["messages"])
        if "Answer with the letter" not in prompt:
            return CheckedModel()(body)
        right = next(right for output, right in TRUTH.items() if f'"{output}"' in prompt)
        label = "A" if right else "B"
        entry = {"token": label, "logprob": math.log(0.8)}
        return Reply(label, logprobs=[{**entry, "top_logprobs": [entry]}])

    with OpenAIServer(chat) as server:
        checkup = await check_judge(LabelJudge("test-model", base_url=server.base_url))
    assert isinstance(checkup.easy, EasyQuestions)
    assert checkup.easy.right == 20
    assert isinstance(checkup.probabilities, Probabilities)
    assert math.isclose(checkup.probabilities.mass or 0, 0.8)
    assert checkup.usable


@pytest.mark.anyio
async def test_a_judge_of_vectors_is_refused() -> None:
    with pytest.raises(InputError, match="it cannot judge"):
        await check_judge(EmbeddingJudge("e5", base_url="http://127.0.0.1:9/v1"))


@pytest.mark.anyio
async def test_what_the_time_does_not_allow_is_not_measured() -> None:
    async def script(question: Any) -> Any:
        if question.name != "one word":
            await anyio.sleep_forever()
        return "Paris"

    checkup = await check_judge(ScriptedJudge(script), seconds=0.05)
    assert checkup.easy == NotMeasured("no time left after 0.05 s (--seconds gives more)")
    assert not checkup.usable


def test_words_are_planted_where_they_are_said_to_be() -> None:
    text = plant_words("lorem " * 1_000)
    for share, _, word in PLANTED:
        assert abs(text.index(word) / len(text) - share) < 0.03
    assert all(word in plant_words("") for *_, word in PLANTED)
    assert text.count("lorem") == 1_000


class PacedJudge:
    """A good judge whose server reads and writes so many tokens per second, one call at a time."""

    capabilities = Capabilities()
    identity = "paced"

    def __init__(self, reading: float, writing: float) -> None:
        self._reading, self._writing = reading, writing
        self._machine = anyio.Lock()

    async def facts(self) -> ServerFacts:
        return ServerFacts("llama.cpp", 4096, 4)

    async def answer(self, question: Question[Any]) -> Answer[Any]:
        shape = question.answer_type.model_json_schema()
        schema = {"json_schema": {"schema": shape}, "type": "json_schema"}
        asked = {} if question.parser else {"response_format": schema}
        limit = question.options.max_tokens
        reply = CheckedModel()({"messages": question.messages, "max_tokens": limit, **asked})
        completion = json.loads(reply.body or "")
        raw: str = completion["choices"][0]["message"]["content"]
        # A word has about one and a half tokens, and JSON more.
        sent = round(1.5 * completion["usage"]["prompt_tokens"]) + 20
        written = min(round(len(raw) / 3) + 2, limit or 1_000)
        async with self._machine:
            await anyio.sleep(sent / self._reading + written / self._writing)
        return Answer(read_answer(question, raw), raw, usage=Usage(sent, written), mode="text")


def in_virtual_time(judge: PacedJudge, **settings: Any) -> Checkup:
    async def check() -> Checkup:
        return await check_judge(judge, **settings)

    return trio.run(check, clock=MockClock(autojump_threshold=0))


def test_a_checkup_at_30_tokens_per_second_measures_everything_in_a_minute() -> None:
    checkup = in_virtual_time(PacedJudge(reading=300, writing=30))
    assert checkup.seconds < 60
    sections = (checkup.structure, checkup.thinking, checkup.probabilities, checkup.speed,
                checkup.easy, checkup.reading)  # fmt: skip
    assert not [section for section in sections if isinstance(section, NotMeasured)]
    assert isinstance(checkup.speed, Speed)
    assert isinstance(checkup.reading, Reading)
    assert checkup.speed.alone == pytest.approx(30, rel=0.05)
    assert checkup.speed.together == pytest.approx(30, rel=0.2)
    assert checkup.reading.tokens_per_second == pytest.approx(300, rel=0.1)
    assert checkup.usable


@pytest.mark.parametrize(("speed", "limit"), [(10, 62), (5, 63), (3, 65)])
def test_a_slow_judge_is_asked_no_longer_than_its_time_and_the_rest_is_said_to_be_unknown(
    speed: int, limit: float
) -> None:
    judge = PacedJudge(reading=10 * speed, writing=speed)
    checkup = in_virtual_time(judge, text=prose(10_000), seconds=60)
    assert checkup.seconds < limit
    assert not checkup.slow
    assert isinstance(checkup.reading, NotMeasured)
    assert isinstance(checkup.easy, EasyQuestions)
    assert checkup.easy.right == checkup.easy.answered


@pytest.mark.parametrize("text", ["", prose(3_000)])
@pytest.mark.parametrize("speed", [20, 10, 5])
def test_a_slow_judge_gets_the_time_it_needs_if_nobody_limits_it(speed: int, text: str) -> None:
    checkup = in_virtual_time(PacedJudge(reading=10 * speed, writing=speed), text=text)
    assert 60 < checkup.seconds < 365
    assert checkup.slow
    assert isinstance(checkup.reading, Reading)
    assert isinstance(checkup.speed, Speed)
    assert checkup.usable


def test_a_judge_that_is_much_too_slow_is_asked_for_six_minutes_at_most() -> None:
    checkup = in_virtual_time(PacedJudge(reading=10, writing=1))
    assert checkup.seconds < 400
    assert checkup.slow
    assert not checkup.usable


@pytest.mark.parametrize("speed", [30, 10, 5])
def test_what_a_judge_knows_is_asked_first_and_is_the_same_with_and_without_data(
    speed: int,
) -> None:
    parts: list[str] = []
    judge = PacedJudge(reading=10 * speed, writing=speed)
    with_data = in_virtual_time(judge, text=prose(30_000), began=parts.append)
    without = in_virtual_time(judge)
    assert parts[:3] == ["first answer", "thinking", "easy questions"]
    assert with_data.easy == without.easy
    assert with_data.advice.odds == without.advice.odds
    assert with_data.usable == without.usable
