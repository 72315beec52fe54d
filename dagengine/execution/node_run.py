"""Running one node, whatever its code does: a value or a failure, never an exception."""

from __future__ import annotations

import itertools
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Sequence
from dataclasses import replace
from typing import Any, TypeVar

import anyio
from pydantic import BaseModel

from dagengine.compiler.plan import ALWAYS, Unit
from dagengine.errors import (
    JudgeError,
    MetricFailedError,
    MissingFieldError,
    NotApplicableError,
    UnparseableError,
    UnsupportedError,
)
from dagengine.execution.scheduler import CaseState
from dagengine.gateway.answering import is_cancelled
from dagengine.gateway.host import Asks, Host
from dagengine.gateway.packs.packing import Hold
from dagengine.graph.first_step import first_step
from dagengine.graph.panel import Ballot, Poll
from dagengine.graph.values import Given, NodeValue
from dagengine.prompts.decisions import Shows, worded, writer_of
from dagengine.question import NO_USAGE, Answer, Judge, Question
from dagengine.results import Failure, OutcomeKind
from dagengine.test_case import TestCase, read_field

T = TypeVar("T", bound=BaseModel)
X = TypeVar("X")
R = TypeVar("R")


def given_of(unit: Unit, case: TestCase, state: CaseState) -> Given:
    """What a unit reads, all of whose sources are settled; raises MissingFieldError."""
    fields = [(path, read_field(case, path)) for path in unit.reads]
    absent = [path for path, value in fields if value is None]
    if absent:
        raise MissingFieldError(Failure.missing_field(absent, unit.name).message)
    inputs = [
        (label, state.output(source).value)
        for label, source, slot in unit.sources
        if slot == ALWAYS or state.is_live(slot)
    ]
    # What is the same for all cases is not shown any case.
    return Given(tuple(fields), tuple(inputs), None if unit.constant else case)


def questions_of(
    unit: Unit, judge: Judge, case: TestCase, state: CaseState, most: int
) -> list[Question[Any]]:
    """What a unit of this library would ask a judge first; its first `most` and one more.

    Nothing where it cannot be told, or where it asks somebody else.
    """
    try:
        reads = given_of(unit, case, state)
    except MissingFieldError:
        return []
    first = first_step(unit.node, reads, decides=judge.capabilities.decides, most=most + 1)
    if not isinstance(first, list):
        return []
    asked = [addressed(judge, question.asked_for(asker_of(unit))) for question in first]
    return [question for answerer, question in asked if answerer is judge]


def judged(
    unit: Unit,
    gateway: Asks,
    judges: Sequence[Judge],
    given: Callable[[], Given],
    place: int,
    hold: Hold | None = None,
) -> Coroutine[Any, Any, NodeValue | Failure]:
    """The outcome of one run of a node, or of all that its panel wants.

    Its questions go before those of a greater `place`; with a `hold` they travel with others.
    """
    if unit.node.panel is None:
        ask = GatewayAsk(gateway, judges[unit.judges[0]], asker_of(unit), place, None, hold)
        return _isolated(unit, ask, given)

    async def cast(_: int, ballot: Ballot) -> NodeValue | Failure:
        judge = judges[unit.judges[ballot.judge]]
        ask = GatewayAsk(gateway, judge, asker_of(unit), place, ballot, hold)
        return await _isolated(unit, ask, given)

    return _polled(unit.node.panel.poll(), cast, hold)


def asker_of(unit: Unit) -> tuple[str, str]:
    """Who asks the questions of a unit: a metric and one of its nodes."""
    return unit.metric, unit.name


async def _polled(
    poll: Poll, cast: Callable[[int, Ballot], Awaitable[Any]], hold: Hold | None
) -> NodeValue | Failure:
    """What a panel comes to."""
    ballots = next(poll)
    while True:
        outcomes = await together(cast, ballots, hold=hold)
        try:
            ballots = poll.send(outcomes)
        except StopIteration as end:
            result: NodeValue | Failure = end.value
            return result


async def _isolated(unit: Unit, ask: GatewayAsk, read: Callable[[], Given]) -> NodeValue | Failure:
    """What a unit gave, or how it failed. The one place that isolates a node."""
    try:
        if not unit.foreign:  # nothing here measures other metrics
            value = await unit.node.work(read(), ask)
        else:
            with ask.host() as host:
                value = await unit.node.work(read(), ask)
            if host.usage is not NO_USAGE:
                ask.usage += host.usage
        if not ask.answers and ask.usage is NO_USAGE:
            return value
        return value.asked_for(ask.usage, tuple(ask.answers), tuple(ask.asked))
    except anyio.get_cancelled_exc_class():
        if is_cancelled():
            raise
        message = "its own code was cancelled from within"
        return Failure(OutcomeKind.CODE_ERROR, unit.name, message)
    except (Exception, SystemExit) as error:  # noqa: BLE001 - user code may raise anything
        failure = _failure(only(error), unit.name)
        return replace(failure, asked=tuple(ask.asked)) if ask.asked else failure


def _failure(error: BaseException, node: str) -> Failure:
    """How a node failed that raised an error."""
    if isinstance(error, JudgeError | MetricFailedError):  # or a metric that its code measured
        kinds = [kind for kind in OutcomeKind if kind == error.kind]
        raw = error.raw if isinstance(error, UnparseableError) else None
        return Failure(kinds[0] if kinds else OutcomeKind.CODE_ERROR, node, str(error), raw)
    if isinstance(error, MissingFieldError):
        return Failure(OutcomeKind.MISSING_FIELD, node, str(error))
    if isinstance(error, NotApplicableError):
        return Failure(OutcomeKind.SKIPPED, node, str(error))
    return Failure.of_code(error, node)


def only(error: BaseException) -> BaseException:
    """The exception inside nested groups, if all are of one kind, or the group itself."""
    while isinstance(error, BaseExceptionGroup) and len(set(map(type, error.exceptions))) == 1:
        error = error.exceptions[0]
    return error


class GatewayAsk:
    """What one running node asks with: a judge of its unit, through the gateway.

    Questions are counted for `asker`, a metric and one of its nodes. `place` is that of the
    node's case. With a `ballot` every question is one vote of several, with a `hold` decisions
    travel with others of the case.
    """

    __slots__ = (
        "_asker", "_ballot", "_gateway", "_hold", "_judge", "_place", "answers", "asked", "usage",
    )  # fmt: skip

    def __init__(
        self,
        gateway: Asks,
        judge: Judge,
        asker: tuple[str, str],
        place: int = 0,
        ballot: Ballot | None = None,
        hold: Hold | None = None,
    ) -> None:
        self._hold = hold
        self._gateway = gateway
        self._judge = judge
        self._asker = asker
        self._place = place
        self._ballot = ballot
        self.usage = NO_USAGE
        self.answers: list[str] = []
        self.asked: list[str] = []

    def host(self) -> Host:
        """What the node's own code asks through: the same gateway, the same kind of vote."""
        return Host(self._gateway, self._judge, self._own, self._place, self._hold)

    async def __call__(self, question: Question[T]) -> Answer[T]:
        judge, own = addressed(self._judge, self._own(question))
        self._note_asked(self._gateway.stored_as(judge, own))
        return self._noted(await self._gateway.ask(judge, own, self._place, self._held(judge)))

    def _held(self, judge: Judge) -> Hold | None:
        """With whom questions to a judge travel: those of a writer always go alone."""
        return None if judge.capabilities.packs is None else self._hold

    def _note_asked(self, key: str | None) -> None:
        if key is not None:
            self.asked.append(key)

    @property
    def decides(self) -> bool:
        """Whether the judge takes one decision at a time, and gives no text."""
        return self._judge.capabilities.decides

    def _own(self, question: Question[T], place: int | None = None) -> Question[T]:
        """The question as this node puts it, whoever wrote it."""
        if self._ballot is not None:
            question = self._ballot.question(question, place)
        return question.asked_for(self._asker)

    def _noted(self, answer: Answer[T]) -> Answer[T]:
        self.usage += answer.usage
        self.answers.append(answer.raw)
        return answer

    async def each(self, questions: Iterable[Question[T]]) -> list[Answer[T]]:
        keys: dict[int, str | None] = {}

        async def one(place: int, question: Question[T]) -> Answer[T] | JudgeError:
            keys[place] = None
            try:
                judge, own = addressed(self._judge, self._own(question, place))
                keys[place] = self._gateway.stored_as(judge, own)
                return await self._gateway.ask(judge, own, self._place, self._held(judge))
            except JudgeError as error:
                return error

        answers = await together(
            one, questions, self._gateway.limits.max_in_flight, hold=self._hold
        )
        for place in range(len(keys)):
            self._note_asked(keys[place])
        for answer in answers:
            if isinstance(answer, JudgeError):
                raise answer
        # Noted in the order of the questions, not in that of the answers.
        return [self._noted(answer) for answer in answers if isinstance(answer, Answer)]


def addressed(judge: Judge, question: Question[T]) -> tuple[Judge, Question[T]]:
    """Who answers a question that is put to `judge`, and the words in which it is asked.

    A judge that only decides gets decisions in its own form; what is none goes to its writer.
    Raises UnsupportedError if there is no writer.
    """
    if not judge.capabilities.decides:
        return judge, question
    if question.decision is not None:
        shows: Shows = getattr(judge, "shows", "case")
        return judge, worded(question, question.decision, shows)
    writer = writer_of(judge)
    if writer is None:
        raise UnsupportedError(
            f"{question.name!r} wants a text, which {judge.identity} cannot give: give the judge "
            "a writer, for instance DecisionJudge(…, writer='gpt-4o')"
        )
    return writer, question


async def together(
    work: Callable[[int, X], Awaitable[R]],
    things: Iterable[X],
    most: int | None = None,
    hold: Hold | None = None,
) -> list[R]:
    """What `work` makes of every (place, thing), at most so many at once.

    A thing is only made when its work begins. Each of those at once is its own strand for
    the `hold`; the last to end is that which continues.
    """
    results: dict[int, R] = {}
    coming = enumerate(things)
    strands = 0

    async def one(place: int, thing: X) -> None:
        nonlocal strands
        results[place] = await work(place, thing)
        for place, thing in coming:
            results[place] = await work(place, thing)
        if hold is not None and strands > 1:
            strands -= 1
            hold.split(-1)

    try:
        async with anyio.create_task_group() as group:
            for place, thing in itertools.islice(coming, most):
                group.start_soon(one, place, thing)
                strands += 1
            if hold is not None and strands > 1:
                hold.split(strands - 1)
    finally:
        if hold is not None and strands > 1:  # some were stopped
            hold.split(1 - strands)
    return [results[place] for place in range(len(results))]
