"""Completes a golden with the caller's app, whatever the app does."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Any

import anyio
from pydantic import ValidationError

from dagengine.data.golden import CASE_OF, ConversationalGolden, Golden
from dagengine.errors import InputError
from dagengine.results import Failure, OutcomeKind
from dagengine.system.threads import in_daemon_thread, is_cancelled
from dagengine.test_case import CASE_TYPES, TestCase


async def complete_golden(
    app: App | None, golden: Golden | ConversationalGolden
) -> TestCase | Failure:
    """Complete a golden by the app, or return its failure. The one place that isolates it."""
    if app is None:
        message = "a golden needs an app that produces its output: give app=…"
        return Failure(OutcomeKind.INVALID_CASE, "data set", message)
    try:
        return await app.complete(golden)
    except anyio.get_cancelled_exc_class():
        if is_cancelled():
            raise
        message = "it was cancelled from within"
    except (InputError, ValidationError) as error:
        message = f"its output is invalid: {error}"
    except (Exception, SystemExit) as error:  # noqa: BLE001 - user code may raise anything
        return Failure.of_code(error, f"app {app.name}")
    return Failure(OutcomeKind.CODE_ERROR, f"app {app.name}", message)


class App:
    """The application under test, as a run calls it.

    `function` gets a golden's `input` as text. It gets the golden itself if its first parameter is
    called `golden` or annotated with a golden's type, and always for a conversation. It returns the
    output as text (for a conversation: the turns), a mapping of test case fields
    (`{"actual_output": …, "retrieval_context": […]}`), or a whole test case. It may be a coroutine
    function; a plain one runs in threads, up to `max_in_flight` calls at a time.
    """

    def __init__(self, function: Callable[[Any], Any], max_in_flight: int = 16) -> None:
        """Raises InputError unless `function` can be called with one argument."""
        if not callable(function):
            raise InputError(f"an app is a function of one input, got {function!r:.80}")
        if max_in_flight < 1:
            raise InputError(f"max_in_flight must be at least 1, got {max_in_flight!r}")
        self.function = function
        self.name = getattr(function, "__name__", type(function).__name__)
        self.max_in_flight = max_in_flight
        self._whole = _wants_golden(function, self.name)

    async def complete(self, golden: Golden | ConversationalGolden) -> TestCase:
        """Call the app; raises what it raises, and InputError for an unusable output."""
        argument = golden.input if isinstance(golden, Golden) and not self._whole else golden
        if inspect.iscoroutinefunction(self.function) or inspect.iscoroutinefunction(
            getattr(self.function, "__call__", None)  # noqa: B004 - objects with an async call
        ):
            output = await self.function(argument)
        else:
            output = await in_daemon_thread(partial(self.function, argument))
            if isinstance(output, Awaitable):  # a plain function that hands on a coroutine
                output = await output
        return _test_case(golden, output)


def _wants_golden(function: Callable[[Any], Any], name: str) -> bool:
    try:
        parameters = list(inspect.signature(function).parameters.values())
    except ValueError:  # built-in functions may have no signature
        return False
    if not parameters:
        raise InputError(
            f"the app {name!r} takes no argument; it must take the input as its argument"
        )
    return parameters[0].name == "golden" or "Golden" in str(parameters[0].annotation)


def as_app(app: App | Callable[[Any], Any] | None) -> App | None:
    """Resolve `app=` to a callable."""
    return app if app is None or isinstance(app, App) else App(app)


def _test_case(golden: Golden | ConversationalGolden, output: Any) -> TestCase:
    """The test case that a golden and the app's output make."""
    if isinstance(output, CASE_TYPES):
        return output  # type: ignore[return-value]
    if isinstance(golden, Golden) and isinstance(output, str):
        output = {"actual_output": output}
    elif isinstance(golden, ConversationalGolden) and isinstance(output, list):
        output = {"turns": output}
    if not isinstance(output, Mapping):
        wanted = "text" if isinstance(golden, Golden) else "a list of turns"
        raise InputError(
            f"it returned {type(output).__name__}; return {wanted}, a mapping of test case "
            "fields, or a test case"
        )
    fields = {key: value for key, value in golden if key != "source_file" and value is not None}
    return CASE_OF[type(golden)].model_validate({**fields, **output})
