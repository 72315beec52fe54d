"""A server that only this machine can reach."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from dagengine.errors import InputError

if TYPE_CHECKING:
    import uvicorn

_HOST = "127.0.0.1"
_MOMENT = 1  # seconds


@contextmanager
def listening(port: int) -> Iterator[tuple[socket.socket, tuple[str, str]]]:
    """A socket at 127.0.0.1, and the two names (with its port) that requests may call it by.

    Another name that leads here is an attack by DNS. Port 0 is any free one. Raises InputError when
    the port is taken.
    """
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind((_HOST, port))
        except OSError as error:
            raise InputError(f"cannot listen on port {port}: {error.strerror}") from error
        listener.listen()
        port = listener.getsockname()[1]
        yield listener, (f"{_HOST}:{port}", f"localhost:{port}")


def server_of(app: Any) -> uvicorn.Server:
    """A quiet server of an application; run it with the sockets to serve.

    At its end requests in progress have a second. Then all connections are closed, so that the
    application hears that its client is gone.
    """
    import uvicorn

    class Server(uvicorn.Server):
        async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
            asyncio.get_running_loop().call_later(_MOMENT, self.close_connections)
            await super().shutdown(sockets)
            self.close_connections()
            await asyncio.sleep(0)  # their sockets are closed by the loop

        def close_connections(self) -> None:
            for connection in [*self.server_state.connections]:
                connection.transport.abort()

    config = uvicorn.Config(
        app, log_level="warning", access_log=False, lifespan="off",
        timeout_graceful_shutdown=2 * _MOMENT,  # who does not hear it does not hold up the end
    )  # fmt: skip
    return Server(config)
