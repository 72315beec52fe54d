"""Completing a golden with somebody's app, whatever that does."""

from __future__ import annotations

import anyio
from pydantic import ValidationError

from dagengine.data.golden import App, ConversationalGolden, Golden
from dagengine.errors import InputError
from dagengine.gateway.gateway import is_cancelled
from dagengine.results import Failure, OutcomeKind
from dagengine.test_case import TestCase


async def completed(app: App | None, golden: Golden | ConversationalGolden) -> TestCase | Failure:
    """What the app made of a golden, or how it failed. The one place that isolates it."""
    if app is None:
        message = "a golden is completed by an app, and there is none: give app=…"
        return Failure(OutcomeKind.INVALID_CASE, "data set", message)
    try:
        return await app.complete(golden)
    except anyio.get_cancelled_exc_class():
        if is_cancelled():
            raise
        message = "it was cancelled from within"
    except (InputError, ValidationError) as error:
        message = f"its output cannot be used: {error}"
    except (Exception, SystemExit) as error:  # noqa: BLE001 - user code may raise anything
        return Failure.of_code(error, f"app {app.name}")
    return Failure(OutcomeKind.CODE_ERROR, f"app {app.name}", message)
