"""What of a judge reaches other processes: its name in a store, and itself without its keys."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from contextlib import AbstractAsyncContextManager
from typing import Any, Generic, Self, TypeVar

import anyio
import anyio.lowlevel

from dagengine.errors import JudgeError, UnparseableError
from dagengine.prompts.parsing import LONGEST
from dagengine.redaction import (
    clip_text,
    lasting_pairs,
    public_text,
    public_value,
    queries_in,
    quotable,
    secrets_of_environment,
)

C = TypeVar("C")


def durable_name(name: str, options: Mapping[str, Any]) -> str | None:
    """A name with the options that change answers; None when one of them has no JSON form.

    Such an option is an object, which shows only where it is in this process.
    """
    try:
        return f"{name} with {json.dumps(public_value(options), sort_keys=True)}"
    except TypeError:
        return None


def digest_mark(
    options: Any,
    beside: tuple[Mapping[str, Any], Mapping[str, Any]] = ({}, {}),
    key: str | None = None,
) -> str:
    """The part of an identity for headers and queries that may change answers; "" for none.

    It is a digest of the headers and the query `beside`, and of the queries of addresses in
    `options`, without what is secret by its name or form, the `key`, and the environment's.
    """
    headers, query = beside
    lower = {name.lower(): value for name, value in headers.items()}
    secrets = quotable((key or "", *secrets_of_environment()))
    every = [lasting_pairs(pairs, secrets) for pairs in (lower, {**queries_in(options), **query})]
    if not any(every):
        return ""
    text = json.dumps(every, sort_keys=True)
    return f" (digest {hashlib.sha256(text.encode()).hexdigest()[:16]})"


class _Session(AbstractAsyncContextManager[C]):
    """One use of a judge's connections. Every call has one, so that this is no generator."""

    __slots__ = ("_judge", "_loop")

    def __init__(self, judge: SharedJudge[C]) -> None:
        # A connection belongs to the event loop that opened it.
        self._judge, self._loop = judge, anyio.lowlevel.current_token().native_token

    async def __aenter__(self) -> C:
        clients = self._judge._clients
        client, users = clients.get(self._loop) or (self._judge._connect(), 0)
        clients[self._loop] = client, users + 1
        if not users:
            try:
                await self._judge._begin(client)
            except BaseException as error:
                await self.__aexit__(type(error), error, None)
                raise
        return client

    async def __aexit__(self, kind: type[BaseException] | None, *_: object) -> None:
        clients = self._judge._clients
        client, users = clients[self._loop]
        if users > 1:
            clients[self._loop] = client, users - 1
            return
        del clients[self._loop]
        # Also where the run was cancelled: what stays open would warn at the end.
        with anyio.CancelScope(shield=True):
            await self._judge._close(client, whole=kind is None)


class SharedJudge(Generic[C]):
    """A judge that is one thing in its process: a copy would know nothing of its connections.

    Another process gets one without keys and connections. `_clients` has, by event loop, what
    `_connect` made and how many sessions use it.
    """

    _clients: dict[Any, tuple[C, int]]

    def session(self) -> AbstractAsyncContextManager[C]:
        """Keep connections open while inside; one client per event loop, shared.

        Raises JudgeSetupError where no question can be asked, for instance without a key.
        """
        return _Session(self)

    def _connect(self) -> C:
        raise NotImplementedError

    async def _begin(self, client: C) -> None:
        """Prepare a client for the event loop that runs."""

    async def _close(self, client: C, *, whole: bool) -> None:
        """Close a client; `whole` says that its last session ended without an error."""
        raise NotImplementedError

    def __copy__(self) -> Self:
        return self

    def __deepcopy__(self, memo: object) -> Self:
        return self

    def __getstate__(self) -> dict[str, Any]:
        """Everything but keys, passwords and connections, for another process.

        Raises TypeError if what stays here changes answers: a query may be a key.
        """
        state = {**vars(self), "_clients": {}, **self._public_state()}
        if digest_mark(state) != digest_mark(vars(self)):
            hint = "set it in the environment of all (OPENAI_BASE_URL), or leave out its query"
            raise TypeError(f"the query of an address may be a key, and is not pickled: {hint}")
        return state

    def _hidden(self, error: JudgeError) -> JudgeError:
        """An error without secrets of this judge, and without what it was found in.

        Errors stay in results; their tracebacks and causes would keep whole responses there.
        """
        secrets = self.secrets
        error.complaint = error.__cause__ = error.__context__ = error.__traceback__ = None
        error.args = tuple(clip_text(public_text(str(part), secrets)) for part in error.args)
        if isinstance(error, UnparseableError):
            error.raw = public_text(error.raw[:LONGEST], secrets)
        return error

    @property
    def secrets(self) -> list[str]:
        """Texts that nothing may hold after a run: keys, passwords, and parts of addresses."""
        raise NotImplementedError

    def _public_state(self) -> dict[str, Any]:
        """Values that replace keys and passwords, by attribute."""
        raise NotImplementedError
