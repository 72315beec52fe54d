"""A checkup: about 40 short questions that tell whether a judge can be used, and how."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any, Final, TypeVar

import anyio

from dagengine.checkup import questions
from dagengine.checkup.advice import advice_of, problems_of, standing_of
from dagengine.checkup.examiner import Examiner, OutOfTimeError
from dagengine.checkup.findings import (
    Checkup,
    Connection,
    EasyQuestions,
    NotMeasured,
    Probabilities,
    Thinking,
)
from dagengine.checkup.long_text import reading_of
from dagengine.checkup.reachability import connection_of, not_answered
from dagengine.checkup.sections import (
    easy_questions_of,
    off_schema_of,
    probabilities_of,
    structure_of,
    thinking_of,
)
from dagengine.checkup.speed import USUAL, speed_of
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

R = TypeVar("R")
SECONDS: Final = 60.0
"""How long a checkup takes, from the first answer on, where the server is quick enough."""
_MOST = 360.0  # seconds where it is not
_EASY = 2 / 3  # of them, for the easy questions
_FIRST = 120.0  # seconds for the first answer: a server may have to load its model
_PAUSE = 1.0  # seconds before a server that is not ready is asked again


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
    examiner = Examiner(judge)
    checkup = Checkup(judge_name(judge.identity), Connection(None))
    try:
        async with open_judges([judge, *([] if writer is None else [writer])]):
            checkup = await _run_sections(examiner, checkup, text, seconds, began)
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


async def _run_sections(
    examiner: Examiner,
    checkup: Checkup,
    text: str,
    seconds: float | None,
    began: Callable[[str], None],
) -> Checkup:
    """Every section in turn; each may tell the next ones something."""
    judge = examiner.judge
    connection = await connection_of(judge)
    if connection.problem is not None:
        return replace(checkup, connection=connection)
    begin = anyio.current_time()
    began("first answer")
    try:
        answer = await _first_answer(examiner)
    except JudgeError as error:
        return replace(checkup, connection=not_answered(connection, error))
    except OutOfTimeError:
        late = JudgeError(f"no answer within {_FIRST:.0f} s")
        return replace(checkup, connection=not_answered(connection, late))
    connection = replace(connection, seconds=anyio.current_time() - begin)
    facts = await facts_of(judge)
    begin = anyio.current_time()
    time = _EASY * _MOST if seconds is None else seconds
    examiner.begin(time)

    async def part(name: str, measure: Awaitable[R]) -> R | NotMeasured:
        began(name)
        try:
            return await measure
        except OutOfTimeError:
            return NotMeasured(f"no time left after {time:.3g} s (--seconds gives more)")
        except JudgeError as error:
            return NotMeasured(str(error))

    thinking: Thinking | NotMeasured = NotMeasured("the judge writes no text")
    if answer is not None:
        thinking = await part("thinking", thinking_of(examiner, answer))
    easy = await part("easy questions", easy_questions_of(examiner, facts.slots or USUAL))
    slow = False
    if seconds is None:  # what is left to measure takes about as long as the easy questions
        spent = anyio.current_time() - begin
        slow = spent > SECONDS * 2 / 3
        time = min(2 * spent, _MOST) if slow else SECONDS
        examiner.begin(time - spent)
    forced = await part("schema", off_schema_of(examiner))
    off_schema = None if isinstance(forced, NotMeasured) else forced
    structure = await part("schema", structure_of(examiner, off_schema))
    probabilities = await part("probability", probabilities_of(examiner, off_schema))
    if isinstance(easy, EasyQuestions) and easy.mass is not None:
        # Of twenty verdicts it says more than of one word.
        if isinstance(probabilities, NotMeasured):
            probabilities = Probabilities(None)
        probabilities = replace(probabilities, mass=easy.mass)
    speed = await part("speed", speed_of(examiner, facts.slots))
    latency = getattr(speed, "latency", 0.0)
    reading = await part("reading", reading_of(examiner, text, latency, facts.window))
    return replace(
        checkup,
        connection=connection,
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
    examiner.begin(_FIRST)
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
