"""A checkup: about 40 short questions that tell whether a judge can be used, and how."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, Final
from urllib.parse import urlsplit

import anyio
from pydantic import BaseModel, ValidationError

from dagengine.checkup import questions, sections
from dagengine.checkup.advice import advice_of, problems_of, standing_of
from dagengine.checkup.findings import (
    Checkup,
    Connection,
    EasyQuestions,
    NotMeasured,
    Probabilities,
    Thinking,
)
from dagengine.checkup.sections import Examiner, OutOfTimeError
from dagengine.errors import (
    InputError,
    JudgeError,
    JudgeSetupError,
    ProviderError,
    UnparseableError,
    UnsupportedError,
)
from dagengine.judges.embedding import EmbeddingJudge
from dagengine.judges.resolve import open_judges
from dagengine.judges.wire.client import EndpointJudge
from dagengine.prompts.decisions import writer_of
from dagengine.question import Judge, facts_of, judge_name

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
    checkup = Checkup(judge_name(judge.identity), Connection(None))
    try:
        async with open_judges([judge, *filter(None, [writer])]):
            connection, answer = await _connect(examiner)
            checkup = replace(checkup, connection=connection)
            if connection.problem is None:
                checkup = await _measure(examiner, checkup, answer, text, seconds)
    except JudgeSetupError as error:
        checkup = replace(checkup, connection=Connection(None, str(error)))
    hosted = judge.capabilities.elastic or (
        isinstance(judge, EndpointJudge) and judge.base_url is None
    )
    checkup = replace(
        checkup,
        calls=examiner.calls,
        usage=examiner.usage,
        seconds=anyio.current_time() - begin,
        advice=advice_of(checkup, hosted=hosted),
        standing=standing_of(checkup, examiner.judge),
    )
    return replace(checkup, problems=tuple(problems_of(checkup)))


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
    examiner: Examiner, checkup: Checkup, answer: Any, text: str, seconds: float | None
) -> Checkup:
    """Every section in turn; each may tell the next ones something."""
    facts, part = await facts_of(examiner.judge), examiner.part
    examiner.begin(_EASY * _MOST if seconds is None else seconds)
    thinking: Thinking | NotMeasured = NotMeasured("the judge writes no text")
    if answer is not None:
        thinking = await part("thinking", sections.thinking_of(examiner, answer))
    at_a_time = facts.slots or sections.USUAL
    easy = await part("easy questions", sections.easy_questions_of(examiner, at_a_time))
    slow = False
    if seconds is None:  # what is left to measure takes about as long as the easy questions
        spent = examiner.spent
        slow = spent > SECONDS * 2 / 3
        examiner.seconds = min(2 * spent, _MOST) if slow else SECONDS
    forced = await part("schema", sections.off_schema_of(examiner))
    off_schema = None if isinstance(forced, NotMeasured) else forced
    structure = await part("schema", sections.structure_of(examiner, off_schema))
    probabilities = await part("probability", sections.probabilities_of(examiner, off_schema))
    if isinstance(easy, EasyQuestions) and easy.mass is not None:
        # Of twenty verdicts it says more than of one word.
        if isinstance(probabilities, NotMeasured):
            probabilities = Probabilities(None)
        probabilities = replace(probabilities, mass=easy.mass)
    speed = await part("speed", sections.speed_of(examiner, facts.slots))
    latency = getattr(speed, "latency", 0.0)
    reading = await part("reading", sections.reading_of(examiner, text, latency, facts.window))
    return replace(
        checkup,
        facts=facts,
        structure=structure,
        thinking=thinking,
        probabilities=probabilities,
        speed=speed,
        easy=easy,
        reading=reading,
        slow=slow,
    )


async def _first_answer(examiner: Examiner) -> Any:
    """The first answer, which is a plain one; None of a judge that writes none.

    A server that is not ready is asked again.
    """
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
