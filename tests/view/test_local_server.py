"""The server of pages and of spans: what it leaves at its end."""

from __future__ import annotations

import gc
import socket
import threading
import warnings
from typing import Any

import pytest

pytest.importorskip("uvicorn")

from dagengine.system.local_server import listening, server_of

LONG = b"x" * 50_000_000


async def endless(scope: Any, receive: Any, send: Any) -> None:
    """An application whose answers are longer than a client that does not read has room for."""
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": LONG})


def test_a_client_that_does_not_read_keeps_no_socket_open() -> None:
    with listening(0) as (listener, (host, _)), warnings.catch_warnings():
        warnings.simplefilter("error")
        server = server_of(endless)
        running = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
        running.start()
        with socket.create_connection(("127.0.0.1", int(host.partition(":")[2]))) as client:
            client.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
            assert client.recv(12) == b"HTTP/1.1 200"
            server.should_exit = True
            running.join()
            assert not server.server_state.connections
            gc.collect()  # where a socket is left open, this warns
