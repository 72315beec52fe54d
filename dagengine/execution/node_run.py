"""Running one node, whatever its code does: a value or a failure, never an exception."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine, Sequence
from dataclasses import replace
from typing import Any

import anyio

from dagengine.compiler.plan import Unit
from dagengine.errors import JudgeError, MissingFieldError, NotApplicableError, UnparseableError
from dagengine.execution.reasons import Ask, together
from dagengine.gateway.gateway import Gateway, is_cancelled
from dagengine.graph.node import Given, NodeValue, Poll
from dagengine.graph.panel import Ballot
from dagengine.question import Judge
from dagengine.results import Failure, OutcomeKind


def judged(
    unit: Unit, gateway: Gateway, judges: Sequence[Judge], given: Callable[[], Given]
) -> Coroutine[Any, Any, NodeValue | Failure]:
    """The outcome of one run of a node, or of all that its panel wants."""
    if unit.node.panel is None:
        return _isolated(unit, Ask(gateway, judges[unit.judges[0]]), given)

    async def cast(_: int, ballot: Ballot) -> NodeValue | Failure:
        ask = Ask(gateway, judges[unit.judges[ballot.judge]], ballot)
        return await _isolated(unit, ask, given)

    return _polled(unit.node.panel.poll(), cast)


async def _polled(poll: Poll, cast: Callable[[int, Ballot], Awaitable[Any]]) -> NodeValue | Failure:
    """What a panel comes to."""
    ballots = next(poll)
    while True:
        outcomes = await together(cast, ballots)
        try:
            ballots = poll.send(outcomes)
        except StopIteration as end:
            result: NodeValue | Failure = end.value
            return result


async def _isolated(unit: Unit, ask: Ask, given: Callable[[], Given]) -> NodeValue | Failure:
    """What a unit gave, or how it failed. The one place that isolates a node."""
    try:
        value = await unit.node.work(given(), ask)
        if not ask.answers:
            return value
        return replace(value, usage=ask.usage, answers=tuple(ask.answers))
    except JudgeError as error:
        raw = error.raw if isinstance(error, UnparseableError) else None
        return Failure(OutcomeKind(error.kind), unit.name, str(error), raw)
    except MissingFieldError as error:
        return Failure(OutcomeKind.MISSING_FIELD, unit.name, str(error))
    except NotApplicableError as error:
        return Failure(OutcomeKind.SKIPPED, unit.name, str(error))
    except anyio.get_cancelled_exc_class():
        if is_cancelled():
            raise
        message = "its own code was cancelled from within"
        return Failure(OutcomeKind.CODE_ERROR, unit.name, message)
    except (Exception, SystemExit) as error:  # noqa: BLE001 - user code may raise anything
        return Failure.of_code(error, unit.name)
