"""Running one node, whatever its code does: a value or a failure, never an exception."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import anyio

from dagengine.asking import Ask
from dagengine.completing import described
from dagengine.errors import JudgeError, MissingFieldError, NotApplicableError, UnparseableError
from dagengine.gateway import is_cancelled
from dagengine.node import Given, NodeValue
from dagengine.plan import Unit
from dagengine.question import NO_USAGE
from dagengine.results import Failure, OutcomeKind


async def isolated(unit: Unit, ask: Ask, given: Callable[[], Given]) -> NodeValue | Failure:
    """What a unit gave, or how it failed. The one place that isolates a node."""
    try:
        value = await unit.node.run(given(), ask)
        return value if ask.usage == NO_USAGE else replace(value, usage=ask.usage)
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
        return Failure(OutcomeKind.CODE_ERROR, unit.name, described(error))
