"""What short questions tell of a judge: schemas, thinking, probabilities, knowledge."""

from __future__ import annotations

import math
from collections.abc import Iterable
from contextlib import suppress
from statistics import median
from typing import Any, Final

import anyio

from dagengine.checkup import questions
from dagengine.checkup.examiner import Examiner, OutOfTimeError, Timed
from dagengine.checkup.findings import (
    EasyQuestions,
    NotMeasured,
    Probabilities,
    Structure,
    Thinking,
)
from dagengine.errors import JudgeError, UnparseableError
from dagengine.judges.wire.client import EndpointJudge
from dagengine.prompts.probabilities.logprobs import stated_probability
from dagengine.prompts.probabilities.masses import LEAST_MASS
from dagengine.prompts.probabilities.tokens import token_over, tokens_from, value_span
from dagengine.question import Answer, Judge, TokenChoice

WITHOUT_THINKING: Final[tuple[dict[str, Any], ...]] = (
    {"reasoning_effort": "none"},
    {"chat_template_kwargs": {"enable_thinking": False}},
)
"""Parameters of requests by which servers let a model answer without thinking."""
_FEW = 16  # tokens that any answer may take beside its text: a template, an end


async def thinking_of(examiner: Examiner, first: Timed[questions.Output]) -> Thinking | NotMeasured:
    """Return whether the model thought before its `head` answer, and what switches that off.

    From then on the examiner asks without thinking, if that is possible.
    """
    tokens = first.answer.usage.output_tokens
    if not tokens and not first.answer.raw:
        return NotMeasured("the judge gave no text and counts no tokens")
    if not _thinks(first.answer):
        return Thinking(thinks=False, tokens=tokens)
    judge = examiner.judge
    if not isinstance(judge, EndpointJudge):
        return Thinking(thinks=True, tokens=tokens)
    for parameters in WITHOUT_THINKING:
        quiet: Judge = judge.with_parameters(parameters)
        with suppress(JudgeError):
            plain = await examiner.ask(questions.one_word(), quiet)
            if not _thinks(plain.answer) and plain.answer.raw:
                examiner.judge = quiet
                return Thinking(thinks=True, tokens=tokens, off=parameters)
    return Thinking(thinks=True, tokens=tokens)


def _thinks(answer: Answer[Any]) -> bool:
    """Return whether an answer shows thoughts, or took more tokens than its text can have."""
    return "<think" in answer.raw or answer.usage.output_tokens > _FEW + len(answer.raw) / 2


async def off_schema_of(examiner: Examiner) -> Timed[questions.Colour] | None:
    """The answer to a question whose schema forbids what the model would say; None: invalid."""
    with suppress(UnparseableError):
        return await examiner.ask(questions.off_schema())
    return None


async def structure_of(examiner: Examiner, forced: Timed[Any] | None) -> Structure:
    """Measure whether the judge keeps to schemas; `forced` is its answer off its schema."""
    mode, tokens = "none", 0
    try:
        judged = await examiner.ask(questions.judgement())
        valid, mode, tokens = True, judged.answer.mode, judged.answer.usage.output_tokens
    except UnparseableError:
        valid = False
    if forced is not None:
        mode = forced.answer.mode
    lengths: tuple[bool | None, bool | None] = False, False
    with suppress(UnparseableError):  # cut off at the limit of tokens, or in some other form
        items = (await examiner.ask(questions.beyond_bounds())).answer.value.output
        long = any(len(item) > questions.ITEM for item in items)
        lengths = None if not items else not long, len(items) <= questions.ITEMS
    return Structure(mode, valid, forced is not None, *lengths, tokens)


async def probabilities_of(examiner: Examiner, forced: Timed[Any] | None) -> Probabilities:
    """Measure token probabilities; `forced` is an answer that its schema alone allows."""
    reply = await examiner.ask(questions.yes_or_no())
    tokens = reply.answer.tokens
    if not tokens or not tokens[0].alternatives:
        return Probabilities(None)
    mass = _mass(tokens[0], ("yes", "no"))
    return Probabilities(mass, _before_schema(forced), await _tokens_of_ten(examiner))


def _mass(choice: TokenChoice, options: Iterable[str]) -> float:
    """The probability of all tokens that begin one of the options."""
    chances = []
    for token, logprob in choice.alternatives:
        start = token.strip().strip('"').casefold()
        if start and any(option.startswith(start) for option in options):
            chances.append(math.exp(logprob))
    return min(math.fsum(chances), 1.0)


def _before_schema(forced: Timed[Any] | None) -> bool | None:
    """Return whether words that the schema forbids had a probability; None where it cannot be seen.

    A schema that is in the prompt (mode `json`) changes the probabilities by its words.
    """
    if forced is None or not forced.answer.tokens or forced.answer.mode == "json":
        return None
    span = value_span(forced.answer.raw, "verdict")
    choice = token_over(span[0], forced.answer.raw, forced.answer.tokens) if span else None
    if choice is None or not choice.alternatives:
        return None
    return _mass(choice, ("purple", "orange")) < LEAST_MASS


async def _tokens_of_ten(examiner: Examiner) -> int | None:
    """The number of tokens in which the number 10 is written; None where that cannot be seen."""
    try:
        answer = (await examiner.ask(questions.ten())).answer
    except UnparseableError:
        return None
    span = value_span(answer.raw, "score") if answer.tokens else None
    if span is None or answer.tokens is None:
        return None
    head = tokens_from(span[0], answer.raw, answer.tokens)
    tail = tokens_from(span[1] - 1, answer.raw, answer.tokens)
    return len(head) - len(tail) + 1 if tail else None


async def easy_questions_of(examiner: Examiner, at_a_time: int) -> EasyQuestions:
    """Count the easy questions that the judge gets right."""
    answers: list[tuple[bool, bool]] = []
    masses: list[float] = []
    failures: list[JudgeError] = []
    slots = anyio.CapacityLimiter(at_a_time)

    async def ask(question: Any, verdict: bool) -> None:
        async with slots:
            with suppress(OutOfTimeError):
                try:
                    answer = (await examiner.ask(question)).answer
                except JudgeError as error:
                    failures.append(error)
                else:
                    answers.append((answer.value.verdict, verdict))
                    # The share of all probability on true and false where the verdict is
                    if answer.chances is None:
                        verdicts = (True, False)
                        _, mass = stated_probability(answer, answer.value.verdict, verdicts)
                    else:  # of a judge that decides
                        mass = 1.0 if answer.mass is None else answer.mass
                    if mass is not None:
                        masses.append(mass)

    async with anyio.create_task_group() as group:
        for question, verdict in questions.easy_questions():
            group.start_soon(ask, question, verdict)
    count = len(answers) + len(failures)
    if not count:
        raise OutOfTimeError
    right = sum(answer == verdict for answer, verdict in answers)
    yes = sum(answer for answer, _ in answers)
    failure = str(failures[0]) if failures else None
    chance = chance_of(right, len(answers))
    mass = median(masses) if masses else None
    return EasyQuestions(count, len(answers), right, yes, chance, failure, mass)


def chance_of(right: int, answered: int) -> float:
    """The probability that guessing gets at least so many right (exact binomial test)."""
    ways: int = sum(math.comb(answered, count) for count in range(right, answered + 1))
    return ways / float(2**answered)
