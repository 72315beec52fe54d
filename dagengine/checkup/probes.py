"""The sections of a checkup: short questions to a judge, and what their answers tell."""

from __future__ import annotations

import math
import random
from collections.abc import Awaitable, Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, replace
from statistics import median
from typing import Any, Final, Generic, TypeVar

import anyio
from pydantic import BaseModel

from dagengine.checkup import questions
from dagengine.checkup.checkup_report import (
    EasyQuestions,
    Load,
    NotMeasured,
    Probabilities,
    Reading,
    Speed,
    Structure,
    Thinking,
)
from dagengine.errors import JudgeError, JudgeTimeoutError, ProviderError, UnparseableError
from dagengine.gateway.deadlines import await_answer
from dagengine.judges.wire.client import EndpointJudge
from dagengine.prompts.decisions import address_question, decision_state
from dagengine.prompts.evidence import as_text
from dagengine.prompts.probabilities.answer_tokens import token_over, tokens_from, value_span
from dagengine.prompts.probabilities.options import LEAST_MASS
from dagengine.prompts.probabilities.weighted_scores import stated_probability
from dagengine.question import NO_USAGE, Answer, Judge, Question, TokenChoice, Usage
from dagengine.test_case import TestCase

R = TypeVar("R")
T = TypeVar("T", bound=BaseModel)
WITHOUT_THINKING: Final[tuple[dict[str, Any], ...]] = (
    {"reasoning_effort": "none"},
    {"chat_template_kwargs": {"enable_thinking": False}},
)
"""Parameters of requests by which servers let a model answer without thinking."""
_FEW = 16  # tokens that any answer may take beside its text: a template, an end

USUAL, MANY = 4, 16
"""Calls at a time where the server does not say how many it works on, and the next load."""
_GROWTH = 2.0  # times the throughput, for a larger load to be tried
_LOAD_SHARE = 0.25  # of the time that is left, for one load
_LEAST = 8  # tokens; shorter texts measure little

_PIECE = 1_500  # characters that are sent first, to learn tokens per character and the speed
_USUAL_TEXT = 4_500  # tokens of a text of our own where the window is not known, or is larger
_TEXT_SHARE = 0.8  # of the time that is left, for a text of our own
_AROUND = 300  # tokens of a window for the question, the answer and the template
_REFUSED: Final = frozenset({400, 413, 422})


class OutOfTimeError(Exception):
    """The time of the checkup is over."""


@dataclass(frozen=True, slots=True)
class Timed(Generic[T]):
    """An answer, and the seconds that it took."""

    answer: Answer[T]
    seconds: float


class Examiner:
    """Asks one judge, each question once within its time, and counts its calls and tokens."""

    def __init__(self, judge: Judge, began: Callable[[str], None]) -> None:
        self.judge, self.began = judge, began
        self.calls = 0
        self.usage: Usage = NO_USAGE
        self.begin(math.inf)

    def begin(self, seconds: float) -> None:
        """Ask for so many seconds from now on; set `seconds` to change that."""
        self._begin, self.seconds = anyio.current_time(), seconds

    @property
    def spent(self) -> float:
        """The seconds since the begin."""
        return anyio.current_time() - self._begin

    @property
    def left(self) -> float:
        """The seconds that are left."""
        return self.seconds - self.spent

    async def part(self, name: str, section: Awaitable[R]) -> R | NotMeasured:
        """Measure a section, or say why that was not possible."""
        self.began(name)
        try:
            return await section
        except OutOfTimeError:
            words = f"no time left after {self.seconds:.3g} s (--seconds gives more)"
            return NotMeasured(words)
        except JudgeError as error:
            return NotMeasured(str(error))

    async def ask(self, question: Question[T], judge: Judge | None = None) -> Timed[T]:
        """The answer of the judge, or of another one; raises JudgeError and OutOfTimeError."""
        # A judge that only decides is asked in its own form, and its writer everything else.
        target, own = address_question(judge or self.judge, question)
        seconds = self.left
        if seconds <= 0:
            raise OutOfTimeError
        self.calls += 1
        begin = anyio.current_time()
        try:
            answer = await await_answer(lambda: target.answer(own), seconds, anyio.current_time)
        except JudgeTimeoutError:
            if self.left <= 0:
                raise OutOfTimeError from None
            raise
        except JudgeError as error:
            self.usage += Usage(*error.tokens)
            raise
        self.usage += answer.usage
        return Timed(answer, anyio.current_time() - begin)


async def thinking_of(examiner: Examiner, first: Timed[questions.Output]) -> Thinking | NotMeasured:
    """Return whether the model thought before its `first` answer, and what switches that off."""
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
                examiner.judge = quiet  # the rest is asked without thinking
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
        long = any(len(item) > questions.ITEM_LENGTH for item in items)
        lengths = None if not items else not long, len(items) <= questions.LIST_LENGTH
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
    """Return whether words that the schema forbids had a probability; None where it is not seen."""
    # A schema that is in the prompt (mode `json`) changes the probabilities by its words.
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
        try:
            async with slots:
                answer = (await examiner.ask(question)).answer
        except OutOfTimeError:
            return
        except JudgeError as error:
            failures.append(error)
            return
        answers.append((answer.value.verdict, verdict))
        # The share of all probability on true and false where the verdict is
        _, mass = stated_probability(answer, answer.value.verdict, (True, False))
        if answer.chances is not None:  # of a judge that decides
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
    failure = next(map(str, failures), None)
    chance = chance_of(right, len(answers))
    mass = median(masses) if masses else None
    return EasyQuestions(count, len(answers), right, yes, chance, failure, mass)


def chance_of(right: int, answered: int) -> float:
    """The probability that guessing gets at least so many right (exact binomial test)."""
    ways: int = sum(math.comb(answered, count) for count in range(right, answered + 1))
    return ways / float(2**answered)


async def speed_of(examiner: Examiner, places: int | None) -> Speed:
    """The speed of writing; `places` is how many calls the server works on at the same time."""
    latency = (await examiner.ask(questions.yes_or_no())).seconds
    story = questions.story(0)
    opener = await examiner.ask(story)
    second = await examiner.ask(replace(story, options=replace(story.options, sample=1)))
    raw, count = opener.answer.raw, opener.answer.usage.output_tokens
    is_same = raw == second.answer.raw if raw else None
    if not count:
        return Speed(latency, None, same_again=is_same)
    # The first token took as long as a whole answer of one token.
    seconds = opener.seconds - latency
    alone = (count - 1) / seconds if count > 1 and seconds > 0 else count / opener.seconds
    # The loads that the time allows; a larger one only where it may pay.
    best, loads = alone, list[Load]()
    same_beside: bool | None = None
    for calls in [min(places, MANY)] if places else [USUAL, MANY]:
        if calls < 2:
            break
        tokens = min(questions.STORY_TOKENS, int(_LOAD_SHARE * examiner.left * best / calls))
        if tokens < _LEAST:
            break
        load, text = await _load(examiner, calls, tokens)
        loads.append(load)
        if text and raw and same_beside is None:
            same_beside = raw.startswith(text) or text.startswith(raw)
        if load.failed or load.tokens_per_second < _GROWTH * best:
            break
        best = load.tokens_per_second
    return Speed(latency, alone, tuple(loads), is_same, same_beside)


async def _load(examiner: Examiner, calls: int, tokens: int) -> tuple[Load, str]:
    """So many texts at the same time, and the first of them."""
    lengths: list[int] = []
    texts: dict[int, str] = {}

    async def ask(number: int) -> None:
        try:
            answer = (await examiner.ask(questions.story(number, tokens))).answer
        except (JudgeError, OutOfTimeError):
            return
        lengths.append(answer.usage.output_tokens)
        texts[number] = answer.raw

    begin = anyio.current_time()
    async with anyio.create_task_group() as group:
        for number in range(calls):
            group.start_soon(ask, number)
    seconds = anyio.current_time() - begin
    speed = sum(lengths) / seconds if seconds > 0 else 0.0
    return Load(calls, speed, seconds, calls - len(lengths)), texts.get(0, "")


def longest_text(cases: Iterable[TestCase]) -> str:
    """The texts of the case that has most of them."""
    longest = ""
    for state in map(decision_state, cases):
        text = "\n\n".join(f"{name}: {as_text(value)}" for name, value in state.items())
        longest = max(longest, text, key=len)
    return longest


async def reading_of(
    examiner: Examiner, text: str, latency: float, window: int | None
) -> Reading | NotMeasured:
    """Measure how much a judge reads of `text`, or of one that nearly fills the `window`."""
    of_data = bool(text)
    piece = _unread(questions.plant_words((text or questions.prose(_PIECE))[:_PIECE]))
    pilot = await examiner.ask(questions.password(piece, questions.PLANTED[1][1]))
    characters, tokens_counted = len(_prompt(piece)), pilot.answer.usage.input_tokens
    seconds = max(pilot.seconds - latency, 0.0)
    if not text:
        per_token = characters / tokens_counted if tokens_counted else 4.0
        tokens = min(_USUAL_TEXT, (window or _USUAL_TEXT + _AROUND) - _AROUND)
        if seconds > 0:  # the server may have to read it for every word again
            time = _TEXT_SHARE * examiner.left
            tokens = min(tokens, int(time * characters / per_token / seconds / 3))
        text = questions.prose(max(_PIECE, int(tokens * per_token) - (characters - len(piece))))
    whole = _unread(questions.plant_words(text))
    share = len(_prompt(whole)) / characters
    expected = round(tokens_counted * share) if tokens_counted else None
    time_needed = seconds * share + 3 * latency
    if time_needed > examiner.left:
        return NotMeasured(
            f"reading {len(text):,} characters takes about {time_needed:.0f} s, and "
            f"{max(0.0, examiner.left):.0f} s are left"
        )
    reading = Reading(len(text), expected=expected, of_data=of_data)
    return await _read(examiner, reading, whole, latency)


async def _read(examiner: Examiner, reading: Reading, text: str, latency: float) -> Reading:
    """Ask for every word; the server reads the text for the first, and may keep it for others."""
    answers: list[tuple[float, bool]] = []
    reported: int | None = None
    speed: float | None = None
    for share, door, word in questions.PLANTED:
        try:
            reply = await examiner.ask(questions.password(text, door))
        except UnparseableError:
            answers.append((share, False))
            continue
        except OutOfTimeError:
            if not answers:
                raise
            break  # what the first words tell holds without the others
        except JudgeError as error:
            # A server may refuse a prompt for what it is, or for what it cannot do just now; only
            # the first says something of its window.
            if answers or not (
                error.kind in ("too_long", "truncated")
                or (isinstance(error, ProviderError) and error.status in _REFUSED)
            ):
                raise
            return replace(reading, refused=str(error))
        answers.append((share, word in reply.answer.raw.casefold()))
        if reported is None and reply.answer.usage.input_tokens:
            usage, seconds = reply.answer.usage, reply.seconds - latency
            reported = usage.input_tokens
            speed = (reported - usage.cached_tokens) / seconds if seconds > 0 else None
    return replace(reading, found=tuple(answers), reported=reported, tokens_per_second=speed)


def _unread(text: str) -> str:
    """A text that no server has in its cache: what it need not read says nothing of its speed."""
    return f"Page {random.randrange(10**9)}\n\n{text}"


def _prompt(text: str) -> str:
    """All words of the question for a password in a text."""
    question = questions.password(text, questions.PLANTED[0][1])
    return "".join(message["content"] for message in question.messages)
