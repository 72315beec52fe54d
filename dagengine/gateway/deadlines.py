"""One answer of a judge, maybe of the caller's code: within its deadline, or a JudgeError."""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from traceback import format_exception
from typing import Any, TypeVar

import anyio
from pydantic import BaseModel

from dagengine.errors import (
    JudgeCodeError,
    JudgeError,
    JudgeTimeoutError,
    ProviderError,
    TooLongError,
    UnparseableError,
)
from dagengine.graph.current_node import node_at_work
from dagengine.prompts.lengths.context_overflow import overflow_in
from dagengine.question import Answer, Judge
from dagengine.redaction import clip_text, hidden_in, public_text, quotable, secrets_of_environment
from dagengine.results import Failure
from dagengine.system.threads import is_cancelled

R = TypeVar("R")
T = TypeVar("T", bound=BaseModel)


async def await_answer(
    make: Callable[[], Awaitable[R]], limit: float | None, clock: Callable[[], float]
) -> R:
    """Await `make` within `limit` seconds by `clock` (None: whenever); raises JudgeError."""
    try:
        # What a judge's own code measures joins no run: it would wait for its own place.
        outer = node_at_work.set(None)
        try:
            with anyio.CancelScope(deadline=math.inf if limit is None else clock() + limit):
                return await make()
        finally:
            node_at_work.reset(outer)
        raise JudgeTimeoutError(f"no answer within {limit} s: timeout of the call")
    except anyio.get_cancelled_exc_class():
        if is_cancelled():
            raise
        own = ProviderError("the judge's own work was cancelled", transient=False)
        raise own from None
    except JudgeError:
        raise
    except Exception as error:  # a judge may be the caller's code
        printed = "".join(format_exception(error))  # all that its traceback prints
        if public_text(printed, secrets_of_environment()) == printed:
            raise _foreign(error) from error
        raise _foreign(error) from None


def secrets_of(judge: Judge) -> tuple[str, ...]:
    """Secrets that no answer of a judge may hand on: its own keys, and those in the environment."""
    own: Sequence[str] = getattr(judge, "secrets", ())
    return quotable([*own, *secrets_of_environment()])


def without_secrets(answer: Answer[T], secrets: Sequence[str]) -> Answer[T]:
    """An answer as it may be written down, in rows and stores: a key that it quotes is hidden."""
    if not secrets:
        return answer
    raw = answer.raw or repr(answer.value)
    if not any(secret in raw for secret in secrets):
        return answer
    data: Any = hidden_in(answer.value.model_dump(), secrets)
    try:
        value = type(answer.value).model_validate(data)
    except ValueError:
        problem = "the answer quotes a key, and does not fit without it"
        tokens = (answer.usage.input_tokens, answer.usage.output_tokens)
        raise UnparseableError(problem, hidden_in(answer.raw, secrets), tokens) from None
    return replace(answer, value=value, raw=hidden_in(answer.raw, secrets), tokens=None)


def hide_secrets(error: JudgeError, secrets: Sequence[str]) -> None:
    """Take the keys that a judge quotes out of the error that says how it failed."""
    error.args = tuple(hidden_in(part, secrets) for part in error.args)
    if isinstance(error, UnparseableError):
        error.raw = hidden_in(error.raw, secrets)


def _foreign(error: Exception) -> JudgeError:
    """An exception of a caller's judge as a JudgeError, worth a retry where it may pass.

    Client libraries of all kinds carry the HTTP status in `status_code`.
    """
    secrets = secrets_of_environment()
    text = clip_text(public_text(f"{type(error).__name__}: {error}", secrets).rstrip(": "))
    if isinstance(error, TimeoutError):
        return JudgeTimeoutError(text)
    code = getattr(error, "status_code", None)
    status = code if isinstance(code, int) else None
    # Python itself complains about the judge's code. Exceptions of libraries, of the network and of
    # the machine (a RuntimeError, when a graphics card has no memory left) tell of the provider.
    outside = isinstance(error, OSError | MemoryError) or type(error) is RuntimeError
    if status is None and type(error).__module__ == "builtins" and not outside:
        return JudgeCodeError(clip_text(public_text(Failure.of_code(error, "").message, secrets)))
    overflow = overflow_in(text, getattr(error, "body", None)) if status else None
    if overflow is not None:
        return TooLongError(text, **overflow._asdict())
    passing = status is not None and (status in (408, 425, 429) or status >= 500)
    transient = passing or isinstance(error, ConnectionError)
    return ProviderError(text, transient=transient, status=status)
