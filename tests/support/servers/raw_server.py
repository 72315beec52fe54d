"""A server that sends any bytes as its response, in pieces, and may never end."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Self

Chunks = Callable[[], Iterable[bytes]]


def response(
    body: bytes = b"", *headers: str, status: str = "200 OK", length: bool = True
) -> bytes:
    """A whole HTTP response, after which the server closes, and says so.

    A client that was not told would race the close with its next request.
    """
    close, content = "Connection: close", "Content-Type: application/json"
    lines = [f"HTTP/1.1 {status}", close, content, *headers]
    if length:
        lines.append(f"Content-Length: {len(body)}")
    return "\r\n".join([*lines, "", ""]).encode() + body


def chunk(data: bytes) -> bytes:
    """A piece of a body of unknown length."""
    return b"%x\r\n%b\r\n" % (len(data), data)


class RawServer:
    """Reads each request and sends `chunks`, at `base_url` inside a `with` block.

    `sent` counts the bytes that the connections took; `half` closes only its own direction.
    """

    def __init__(self, chunks: Chunks, *, half: bool = False) -> None:
        self.base_url, self.sent = "", 0
        self._chunks, self._half = chunks, half
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._open: list[socket.socket] = []

    def __enter__(self) -> Self:
        self.base_url = f"http://127.0.0.1:{self._listener.getsockname()[1]}/v1"
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        for one in (self._listener, *self._open):
            with suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
            one.close()

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            self._open.append(connection)
            threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        try:
            while self._read(connection):
                for data in self._chunks():
                    connection.sendall(data)
                    self.sent += len(data)
                connection.shutdown(socket.SHUT_WR)
                if not self._half:
                    connection.close()
        except OSError:
            return

    def _read(self, connection: socket.socket) -> bool:
        """Whether a whole request has come."""
        data = b""
        while b"\r\n\r\n" not in data:
            more = connection.recv(1 << 16)
            if not more:
                return False
            data += more
        head, _, body = data.partition(b"\r\n\r\n")
        sizes = [line for line in head.lower().split(b"\r\n") if line.startswith(b"content-length")]
        left = int(sizes[0].partition(b":")[2]) - len(body) if sizes else 0
        while left > 0:
            left -= len(connection.recv(1 << 16)) or left
        return True
