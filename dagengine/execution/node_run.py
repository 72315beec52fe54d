"""Running one node, whatever its code does: a value or a failure, never an exception."""

from __future__ import annotations

import itertools
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

import anyio
from pydantic import BaseModel

from dagengine.compiler.execution_plan import Unit
from dagengine.errors import (
    JudgeError,
    MetricFailedError,
    MissingFieldError,
    NotApplicableError,
    UnparseableError,
)
from dagengine.gateway.gateway import Asks
from dagengine.gateway.inner_metrics import Host
from dagengine.gateway.packs.packing import Participant
from dagengine.gateway.request import Request
from dagengine.graph.first_questions import first_step
from dagengine.graph.node_values import Ballot, Given, NodeValue, Poll
from dagengine.prompts.decisions import address_question
from dagengine.question import NO_USAGE, Answer, Judge, Question, Usage
from dagengine.results import Failure, JudgeCall, OutcomeKind
from dagengine.semantics.scheduler import CaseState
from dagengine.system.threads import is_cancelled
from dagengine.test_case import TestCase, read_field

T = TypeVar("T", bound=BaseModel)
X = TypeVar("X")
R = TypeVar("R")
Calls = list[tuple[JudgeCall, ...]]
"""The calls of each question of a node for which one call was not enough."""


def run_unit(
    gateway: Asks,
    judges: Sequence[Judge],
    rank: int,
    unit: Unit,
    read: Callable[[], Given],
    participant: Participant | None = None,
    calls: Calls | None = None,
) -> Coroutine[Any, Any, NodeValue | Failure]:
    """The outcome of one run of a node, or of all votes that its panel wants (see `GatewayAsk`)."""
    asker, panel = (unit.metric, unit.name), unit.node.panel
    if panel is None:
        judge = judges[unit.judges[0]]
        ask = GatewayAsk(gateway, judge, asker, rank, participant, unit.shares, calls)
        return _run_isolated(unit, ask, read)

    async def vote(_: int, ballot: Ballot) -> NodeValue | Failure:
        judge = judges[unit.judges[ballot.judge]]
        ask = GatewayAsk(gateway, judge, asker, rank, participant, unit.shares, calls, ballot)
        return await _run_isolated(unit, ask, read)

    async def poll_panel(poll: Poll) -> NodeValue | Failure:
        # The poll yields the ballots of a round, is sent their outcomes, and returns the result.
        ballots = next(poll)
        while True:
            outcomes = await together(vote, ballots, participant=participant)
            try:
                ballots = poll.send(outcomes)
            except StopIteration as end:
                result: NodeValue | Failure = end.value
                return result

    return poll_panel(panel.poll())


def read_inputs(unit: Unit, case: TestCase, state: CaseState) -> Given:
    """Inputs of a unit, all of whose sources are settled; raises MissingFieldError."""
    fields = [(path, read_field(case, path)) for path in unit.reads]
    absent = [path for path, value in fields if value is None]
    if absent:
        raise MissingFieldError(Failure.missing_field(absent, unit.name, case).message)
    # What is the same for all cases is not shown any case.
    return Given(tuple(fields), state.inputs_of(unit), None if unit.constant else case)


def questions_of(
    unit: Unit, judge: Judge, case: TestCase, state: CaseState, most: int
) -> list[Question[Any]]:
    """The questions with which a unit begins, if they go to this judge and not to its writer.

    They are at most `most` + 1: the last only shows that there are more. The list is empty, too, if
    only a run of the node can tell its questions.
    """
    try:
        reads = read_inputs(unit, case, state)
    except MissingFieldError:
        return []
    first = first_step(unit.node, reads, decides=judge.capabilities.decides, most=most + 1)
    if not isinstance(first, list):
        return []
    asker = unit.metric, unit.name
    addressed = (address_question(judge, question.with_notes(asker=asker)) for question in first)
    return [question for answerer, question in addressed if answerer is judge]


async def _run_isolated(
    unit: Unit, ask: GatewayAsk, read: Callable[[], Given]
) -> NodeValue | Failure:
    """Run a unit, and return its value or failure. The one place that isolates a node."""
    try:
        if not unit.foreign:
            value = await unit.node.work(read(), ask)
        else:  # code of users may measure other metrics, which reach the gateway through a host
            with ask.host() as host:
                value = await unit.node.work(read(), ask)
            if host.usage is not NO_USAGE:
                ask.usage += host.usage
        if not ask.answers and ask.usage is NO_USAGE:
            return value
        return value.with_questions(ask.usage, tuple(ask.answers), tuple(ask.asked))
    except anyio.get_cancelled_exc_class():
        if is_cancelled():  # the run, and not only something in the node
            raise
        message = "its own code was cancelled from within"
        return Failure(OutcomeKind.CODE_ERROR, unit.name, message)
    except (Exception, SystemExit) as error:  # noqa: BLE001 - user code may raise anything
        failure = _failure(sole_error(error), unit.name)
        return replace(failure, asked=tuple(ask.asked)) if ask.asked else failure


def _failure(error: BaseException, node: str) -> Failure:
    """Failure of a node that raised an error."""
    # A judge failed, or a metric that the node's own code measured.
    if isinstance(error, JudgeError | MetricFailedError):
        raw = error.raw if isinstance(error, UnparseableError) else None
        kind = next((kind for kind in OutcomeKind if kind == error.kind), OutcomeKind.CODE_ERROR)
        lasting = isinstance(error, JudgeError) and error.lasting
        return Failure(kind, node, str(error), raw, lasting=lasting)
    if isinstance(error, MissingFieldError):
        return Failure(OutcomeKind.MISSING_FIELD, node, str(error))
    if isinstance(error, NotApplicableError):
        return Failure(OutcomeKind.SKIPPED, node, str(error))
    return Failure.of_code(error, node)


def sole_error(error: BaseException) -> BaseException:
    """The first exception in nested groups if all are of one class, else the group itself."""
    while isinstance(error, BaseExceptionGroup) and len(set(map(type, error.exceptions))) == 1:
        error = error.exceptions[0]
    return error


@dataclass(slots=True, eq=False, repr=False)
class GatewayAsk:
    """The way of one running node to its judge, an `Ask` of `graph.node_values`: by the gateway.

    Questions are counted for `asker`, a metric and one of its nodes. Those of a case with a smaller
    `rank` go first. With a `ballot`, each is one vote of several; with a `participant`, decisions
    share requests with others of the case. `shares` are the fields that other questions of the plan
    begin with, too. `calls` collects the calls of each question that needed more than one.

    In the end `usage` is that of all questions, `answers` are the raw texts of their answers, and
    `asked` the keys under which a store has them.
    """

    _gateway: Asks
    _judge: Judge
    _asker: tuple[str, str]
    _rank: int
    _participant: Participant | None = None
    _shares: tuple[str, ...] = ()
    _calls: Calls | None = None
    _ballot: Ballot | None = None
    usage: Usage = NO_USAGE
    answers: list[str] = field(default_factory=list[str])
    asked: list[str] = field(default_factory=list[str])

    @property
    def decides(self) -> bool:
        """Whether the judge takes one decision at a time, and gives no text."""
        return self._judge.capabilities.decides

    async def __call__(self, question: Question[T]) -> Answer[T]:
        request = self._request(question)
        try:
            answer = await self._gateway.answer(request)
        finally:
            self._note_request(request)
        return self._note_answer(answer)

    async def each(self, questions: Iterable[Question[T]]) -> list[Answer[T]]:
        requests: dict[int, Request] = {}

        async def ask(index: int, question: Question[T]) -> Answer[T] | JudgeError:
            try:
                request = requests[index] = self._request(question, index)
                return await self._gateway.answer(request)
            except JudgeError as error:  # the rest is asked all the same
                return error

        answers = await together(
            ask, questions, self._gateway.run.limits.max_in_flight, participant=self._participant
        )
        # Noted in the order of the questions, not in that of the answers.
        for index in sorted(requests):
            self._note_request(requests[index])
        for answer in answers:
            if isinstance(answer, JudgeError):
                raise answer
        return [self._note_answer(answer) for answer in answers if isinstance(answer, Answer)]

    def host(self) -> Host:
        """Host of the node's own code: the same gateway, the same kind of vote."""
        return Host(self._gateway, self._judge, self._own_question, self._rank, self._participant)

    def _request(self, question: Question[Any], item: int | None = None) -> Request:
        """The question with its context; raises UnsupportedError where nobody can answer it."""
        judge, question = self._judge, self._own_question(question, item)
        if judge.capabilities.decides:
            judge, question = address_question(judge, question)
        # Questions of a judge that takes one at a time, as a writer does, always go alone.
        participant = None if judge.capabilities.packs is None else self._participant
        return Request(judge, question, self._rank, participant)

    def _own_question(self, question: Question[T], item: int | None = None) -> Question[T]:
        """The question as this node puts it, whoever wrote it."""
        if self._ballot is not None:
            question = self._ballot.question(question, item)
        return question.with_notes(asker=self._asker, shares=self._shares)

    def _note_request(self, request: Request) -> None:
        """Note the key of the question, as the gateway put it in the end, and its calls."""
        key = self._gateway.run.store_key(request.judge, request.question)
        if key is not None:
            self.asked.append(key)
        if self._calls is not None and len(request.calls) > 1:
            self._calls.append(tuple(request.calls))

    def _note_answer(self, answer: Answer[Any]) -> Answer[Any]:
        self.usage += answer.usage
        self.answers.append(answer.raw)
        return answer


async def together(
    work: Callable[[int, X], Awaitable[R]],
    items: Iterable[X],
    most: int | None = None,
    participant: Participant | None = None,
) -> list[R]:
    """Results of `work` on every (index, item), in the order of the items.

    At most `most` strands (None: one for each item) work at the same time. Each takes its next item
    when it is done with one. So an item is made only when there is room for its work.

    The `participant` counts the strands still at work. It counts the caller as one already.
    """
    results: dict[int, R] = {}
    queue = enumerate(items)
    starts = list(itertools.islice(queue, most))
    strands = len(starts)

    async def run_strand(start: tuple[int, X]) -> None:
        nonlocal strands
        for index, item in itertools.chain([start], queue):
            results[index] = await work(index, item)
        # The strand that ends last is still counted: the caller goes on in its place.
        if participant is not None and strands > 1:
            strands -= 1
            participant.split(-1)

    if strands < 2:  # a group of tasks costs more than most nodes
        for start in starts:
            await run_strand(start)
        return list(results.values())
    try:
        async with anyio.create_task_group() as group:
            for start in starts[1:]:
                group.start_soon(run_strand, start)
            if participant is not None:
                participant.split(strands - 1)
            await run_strand(starts[0])
    finally:
        if participant is not None and strands > 1:  # an error stopped all but the caller
            participant.split(1 - strands)
    return [results[index] for index in range(len(results))]
