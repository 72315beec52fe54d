"""A checkup: about 40 short questions that tell whether a judge can be used, and how."""

from __future__ import annotations

import importlib.metadata
import json
import math
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any, Final
from urllib.parse import urlsplit

import anyio
from pydantic import BaseModel, ValidationError

from dagengine.checkup import probes, questions
from dagengine.checkup.checkup_report import (
    Advice,
    Checkup,
    Connection,
    EasyQuestions,
    NotMeasured,
    Probabilities,
    Reading,
    Speed,
    Thinking,
)
from dagengine.checkup.probes import Examiner, OutOfTimeError
from dagengine.errors import (
    InputError,
    JudgeError,
    JudgeSetupError,
    ProviderError,
    UnparseableError,
    UnsupportedError,
)
from dagengine.judges.default import Tuning
from dagengine.judges.embedding import EmbeddingJudge
from dagengine.judges.resolve import open_judges
from dagengine.judges.wire.client import EndpointJudge
from dagengine.prompts.decisions import writer_of
from dagengine.prompts.lengths.context_overflow import window_option
from dagengine.prompts.probabilities.options import LEAST_MASS
from dagengine.question import Judge, display_name, durable_identity, facts_of, judge_name
from dagengine.record.judge_standing import WORDING
from dagengine.record.run_json_types import Standing
from dagengine.redaction import public_text

SECONDS: Final = 60.0
"""How long a checkup takes, from the first answer on, where the server is quick enough."""
_MOST = 360.0  # seconds where it is not
_EASY = 2 / 3  # of them, for the easy questions
_FIRST = 120.0  # seconds for the first answer: a server may have to load its model
_PAUSE = 1.0  # seconds before a server that is not ready is asked again
_PATIENCE = 10.0  # seconds for a server to say which models it has
_PORTS: Final = {
    11434: "Ollama: start it with `ollama serve`",
    1234: "LM Studio: start its server (Developer, Status: Running)",
    8000: "vLLM: start it with `vllm serve MODEL`",
    8080: "llama.cpp: start it with `llama-server -m FILE.gguf`",
}
"""The ports of well-known servers, and how to start them."""

_GAIN = 1.25  # times the throughput, for more calls at a time to be worth it
_ANSWER = 400  # tokens of a long answer to a node: a list of claims
_PROMPT = 1_000  # tokens of a usual prompt, and of what metrics write around a long text
_MARGIN = 2  # times the expected duration of a call
_USUAL_TIMEOUT, _STEP = 120.0, 30
_BLOCK = 1_024


async def check_judge(
    judge: Judge,
    *,
    text: str = "",
    seconds: float | None = None,
    began: Callable[[str], None] = lambda part: None,
) -> Checkup:
    """Ask a judge short questions for at most so many `seconds`, and say what they tell.

    Without `seconds` it takes a minute, and as long as a slow server needs, up to six. `text` is
    the longest text that it will have to read. What the time does not allow is not measured. A
    server may take two more minutes until its first answer. `began` is called with the name of
    each part. Raises InputError for judges that give only vectors, or answer in batches.
    """
    if isinstance(judge, EmbeddingJudge):
        raise InputError(f"{judge_name(judge.identity)} gives vectors: it cannot judge")
    if judge.capabilities.batched:
        raise InputError("a batch takes hours: check the same model without the batch API")
    writer = writer_of(judge)
    begin = anyio.current_time()
    examiner = Examiner(judge, began)
    try:
        async with open_judges([judge] if writer is None else [judge, writer]):
            connection, answer = await _connect(examiner)
            measured: dict[str, Any] = {}
            if connection.problem is None:
                measured = await _measure(examiner, answer, text, seconds)
    except JudgeSetupError as error:
        connection, measured = Connection(None, str(error)), {}
    checkup = Checkup(
        judge_name(judge.identity), connection, calls=examiner.calls, usage=examiner.usage,
        seconds=anyio.current_time() - begin, **measured,
    )  # fmt: skip
    own_server = not isinstance(judge, EndpointJudge) or judge.base_url is not None
    hosted = judge.capabilities.elastic or not own_server
    return replace(
        checkup,
        advice=advice_of(checkup, hosted=hosted),
        standing=standing_of(checkup, examiner.judge),
        problems=tuple(problems_of(checkup)),
    )


async def _connect(examiner: Examiner) -> tuple[Connection, Any]:
    """The connection to the judge, and its first answer (None of a judge that writes none)."""
    connection = await _connection_of(examiner.judge)
    if connection.problem is not None:
        return connection, None
    examiner.begin(_FIRST)
    examiner.began("first answer")
    try:
        answer = await _first_answer(examiner)
    except JudgeError as error:
        return _not_answered(connection, error), None
    except OutOfTimeError:
        return _not_answered(connection, JudgeError(f"no answer within {_FIRST:.0f} s")), None
    return replace(connection, seconds=examiner.spent), answer


async def _measure(
    examiner: Examiner, answer: Any, text: str, seconds: float | None
) -> dict[str, Any]:
    """Every section of a checkup in turn; each may tell the next ones something."""
    facts, part = await facts_of(examiner.judge), examiner.part
    examiner.begin(_EASY * _MOST if seconds is None else seconds)
    thinking: Thinking | NotMeasured = NotMeasured("the judge writes no text")
    if answer is not None:
        thinking = await part("thinking", probes.thinking_of(examiner, answer))
    at_a_time = facts.slots or probes.USUAL
    easy = await part("easy questions", probes.easy_questions_of(examiner, at_a_time))
    slow = False
    if seconds is None:  # what is left to measure takes about as long as the easy questions
        spent = examiner.spent
        slow = spent > SECONDS * 2 / 3
        examiner.seconds = min(2 * spent, _MOST) if slow else SECONDS
    forced = await part("schema", probes.off_schema_of(examiner))
    off_schema = None if isinstance(forced, NotMeasured) else forced
    structure = await part("schema", probes.structure_of(examiner, off_schema))
    probabilities = await part("probability", probes.probabilities_of(examiner, off_schema))
    if isinstance(easy, EasyQuestions) and easy.mass is not None:
        # Of twenty verdicts it says more than of one word.
        if isinstance(probabilities, NotMeasured):
            probabilities = Probabilities(None)
        probabilities = replace(probabilities, mass=easy.mass)
    speed = await part("speed", probes.speed_of(examiner, facts.slots))
    latency = getattr(speed, "latency", 0.0)
    reading = await part("reading", probes.reading_of(examiner, text, latency, facts.window))
    return {
        "facts": facts, "structure": structure, "thinking": thinking, "speed": speed,
        "probabilities": probabilities, "easy": easy, "reading": reading, "slow": slow,
    }  # fmt: skip


async def _first_answer(examiner: Examiner) -> Any:
    """The first answer, asked for until the server is ready; None of a judge that writes none."""
    while True:
        try:
            return await examiner.ask(questions.one_word())
        except UnsupportedError:
            question, _ = next(questions.easy_questions())
            await examiner.ask(question)
            return None
        except UnparseableError:
            return None
        except ProviderError as error:
            if not error.transient:
                raise
        await anyio.sleep(_PAUSE)


async def _connection_of(judge: Judge) -> Connection:
    """Check the connection to a judge before it is asked: a problem, and the models."""
    if not isinstance(judge, EndpointJudge):
        return Connection(None)
    try:
        with anyio.move_on_after(_PATIENCE) as patience:
            await judge.require_reachable()
    except JudgeSetupError as error:
        port = urlsplit(judge.base_url or "").port
        start = f" ({_PORTS[port]})" if port in _PORTS else ""
        return Connection(None, f"{error}{start}", judge.model)
    if patience.cancelled_caught:
        return Connection(None, f"{judge.base_url} did not connect within 10 s", judge.model)
    return Connection(None, None, judge.model, await _models_of(judge))


def _not_answered(connection: Connection, error: JudgeError) -> Connection:
    """A connection whose first question failed, with what to do about it."""
    status = getattr(error, "status", None)
    problem = str(error)
    if connection.is_listed is False and status in (400, 404):
        problem = f"{problem}. {connection.other_models}"
    elif status == 404:
        problem = f"{problem}. Most servers want an address that ends in /v1"
    return replace(connection, problem=problem)


class _Model(BaseModel):
    id: str


class _Models(BaseModel):
    data: list[_Model]


async def _models_of(judge: EndpointJudge) -> tuple[str, ...] | None:
    """The models that the server of a judge names; None if it names none."""
    import httpx2
    import openai

    with anyio.move_on_after(_PATIENCE):
        try:
            async with judge.session() as client:
                response = await client.api.get("/models", cast_to=httpx2.Response)
            models = _Models.model_validate_json(response.content)
        except (openai.OpenAIError, JudgeError, ValidationError, OSError):
            return None
        return tuple(model.id for model in models.data) or None
    return None


def advice_of(checkup: Checkup, *, hosted: bool) -> Advice:
    """The settings for a judge; a `hosted` one finds out by itself how many calls it takes."""
    in_flight = None if hosted else _in_flight(checkup)
    mass = getattr(checkup.probabilities, "mass", None)
    # A judge that guesses gives odds as well, but they say nothing; one word is too few to tell.
    knows = isinstance(checkup.easy, EasyQuestions) and not checkup.easy.guesses
    return Advice(
        max_in_flight=in_flight,
        call_timeout=None if in_flight is None else _call_timeout(checkup, in_flight),
        window=_window(checkup),
        parameters=getattr(checkup.thinking, "off", None),
        odds=mass is not None and mass >= LEAST_MASS and knows,
    )


def tuning_of(checkup: Checkup) -> Tuning:
    """The settings of a checkup that are worth saving beside its judge."""
    advice = checkup.advice
    return Tuning(
        max_in_flight=advice.max_in_flight,
        call_timeout=advice.call_timeout,
        read_speed=_round(getattr(checkup.reading, "tokens_per_second", None)),
        write_speed=_round(getattr(checkup.speed, "together", None)),
        parameters=advice.parameters,
    )


def standing_of(checkup: Checkup, judge: Judge) -> Standing | None:
    """Return what runs will say of the judge that was asked, without thinking if that is possible.

    None if too few easy questions were asked, or nothing tells the judge apart in another process.
    """
    easy, identity = checkup.easy, durable_identity(judge)
    if isinstance(easy, NotMeasured) or not easy.enough or identity is None:
        return None
    few, model = easy.answered * 2 < easy.asked, getattr(judge, "answered_as", None)
    says = f"got {easy.right} of {easy.answered} easy questions right"
    says += ", no better than guessing" * easy.guesses
    if few:
        says = f"gave a valid answer to {easy.answered} of {easy.asked} easy questions"
    return Standing(
        source="judge check",
        identity=public_text(identity),
        name=display_name(judge),
        model=public_text(model) if isinstance(model, str) else None,
        date=datetime.now(UTC).date(),
        dagengine=importlib.metadata.version("dagengine"),
        wording=WORDING,
        says=says,
        weak=few or easy.guesses,
        repeats=getattr(checkup.speed, "same_again", None),
        **{name: getattr(easy, name) for name in ("asked", "answered", "right")},
    )


def recommendations(checkup: Checkup) -> list[str]:
    """Settings that are recommended, in words; of a judge that cannot be used only its window."""
    advice = checkup.advice
    texts: list[str] = []
    if checkup.usable:
        options = ""
        if advice.max_in_flight is not None:
            options += f" --max-in-flight {advice.max_in_flight}"
        if advice.call_timeout is not None:
            options += f" --call-timeout {advice.call_timeout:g}"
        texts.append(f"Recommended:{options or ' the defaults'}.")
    if advice.window is not None:
        option = window_option(checkup.facts, advice.window)
        texts.append(
            f"A window of {advice.window:,} tokens for the longest test case: "
            f"{option or 'set it where the model is served'}."
        )
    if not checkup.usable:
        return texts
    if advice.parameters is not None:
        texts.append(f"In every request: {json.dumps(dict(advice.parameters))}.")
    if isinstance(checkup.probabilities, Probabilities):
        texts.append(f"Probabilities of verdicts {('cannot', 'can')[advice.odds]} be used.")
    return texts


def _round(speed: float | None) -> float | None:
    """A speed with three figures: more was not measured."""
    return None if speed is None else float(f"{speed:.3g}")


def problems_of(checkup: Checkup) -> Iterator[str]:
    """Why a judge cannot be used, as it is set now."""
    if checkup.connection.problem is not None:
        yield checkup.connection.problem
        return
    easy, reading = checkup.easy, checkup.reading
    if isinstance(easy, NotMeasured):
        yield f"no easy question was answered: {easy.not_measured}"
    elif not easy.enough:
        asked = f"{easy.asked} of {len(questions.EASY)} easy questions"
        yield f"it is too slow for this checkup: {asked} in its time; give it more with --seconds"
    elif easy.answered * 2 < easy.asked:
        answered = f"{easy.answered} of {easy.asked} easy questions"
        yield f"only {answered} got a valid answer: {easy.failure}"
    elif easy.guesses:
        yield f"{easy.right} of {easy.answered} easy questions right: no better than guessing"
    if isinstance(reading, Reading) and reading.of_data:
        if reading.refused is not None:
            yield f"it refuses the longest test case: {reading.refused}"
        elif reading.cut:
            yield (
                f"the server cuts the longest test case: it read {reading.reported:,} of about "
                f"{reading.expected:,} tokens"
            )


def _in_flight(checkup: Checkup) -> int | None:
    """Number of parallel calls that pays off; None if unknown."""
    speed = checkup.speed
    if checkup.facts.slots is not None:
        return checkup.facts.slots
    if not isinstance(speed, Speed) or speed.alone is None or not speed.loads:
        return None
    best, throughput = 1, speed.alone
    for load in speed.loads:
        if load.tokens_per_second >= _GAIN * throughput and not load.failed:
            best, throughput = load.calls, load.tokens_per_second
    return max(best, 2)  # while one answer is read, the server works on the next one


def _call_timeout(checkup: Checkup, in_flight: int) -> float | None:
    """Seconds for a long call when all places are taken; None if the default is enough."""
    speed, reading = checkup.speed, checkup.reading
    if not isinstance(speed, Speed) or speed.together is None:
        return None
    seconds = _ANSWER / speed.together
    if isinstance(reading, Reading) and reading.tokens_per_second:
        seconds += max(reading.reported or 0, _PROMPT) / reading.tokens_per_second
    timeout = _MARGIN * in_flight * seconds
    return None if timeout <= _USUAL_TIMEOUT else float(math.ceil(timeout / _STEP) * _STEP)


def _window(checkup: Checkup) -> int | None:
    """Tokens of a window for the longest case with a prompt and an answer; None if it fits."""
    reading, window = checkup.reading, checkup.facts.window
    if not isinstance(reading, Reading) or not reading.of_data or reading.expected is None:
        return None
    tokens = reading.expected + _PROMPT + _ANSWER
    fits = not (reading.cut or reading.refused) if window is None else tokens <= window
    return None if fits else math.ceil(tokens / _BLOCK) * _BLOCK
