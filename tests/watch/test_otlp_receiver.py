"""OTLP over HTTP: what is taken is in a file before it is answered, the rest is refused."""

from __future__ import annotations

import gzip
import importlib.util
import json
import socket
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import httpx2
import pytest
from folders.spans import export, trace_id

from dagengine.errors import InputError
from dagengine.watch import Folder
from dagengine.watch.otlp_receiver import receive

JSON = {"content-type": "application/json"}
PROTOBUF = {"content-type": "application/x-protobuf"}
with_protobuf = importlib.util.find_spec("google") is not None and (
    importlib.util.find_spec("opentelemetry.proto") is not None
)


@pytest.fixture
def place(tmp_path: Path) -> Iterator[tuple[str, Path]]:
    with receive(tmp_path / "received", 0) as at:
        yield at


def post(address: str, body: Any, *, kind: str = "traces", **headers: str) -> tuple[int, str]:
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    names = {name.replace("_", "-"): value for name, value in headers.items()}
    response = httpx2.post(f"{address}/v1/{kind}", content=data, headers=names or JSON)
    return response.status_code, response.text


def test_what_is_taken_is_in_a_file_of_each_process(place: tuple[str, Path]) -> None:
    address, folder = place
    assert post(address, export(1)) == (200, "{}")
    packed = gzip.compress(json.dumps(export(2)).encode())
    assert post(address, packed, **{**JSON, "content_encoding": "gzip"})[0] == 200
    assert post(address, {"resourceLogs": []}, kind="logs") == (200, "{}")
    with receive(folder, 0) as (second, _):
        assert post(second, export(3))[0] == 200
    assert [path.name for path in sorted(folder.iterdir())] == ["000001.jsonl", "000002.jsonl"]
    assert [record.trace_id for record in Folder(folder).poll()] == [trace_id(n) for n in (1, 2, 3)]


def test_gzip_of_several_members_is_read(place: tuple[str, Path]) -> None:
    address, folder = place
    data = json.dumps(export(1)).encode()
    packed = gzip.compress(data[:50]) + gzip.compress(data[50:])
    assert post(address, packed, **{**JSON, "content_encoding": "gzip"}) == (200, "{}")
    assert [record.trace_id for record in Folder(folder).poll()] == [trace_id(1)]


def test_a_damaged_span_is_rejected_and_the_others_are_taken(place: tuple[str, Path]) -> None:
    address, folder = place
    value = export(1)
    value["resourceSpans"][0]["scopeSpans"][0]["spans"].append({"traceId": "x"})
    code, text = post(address, value)
    answer = json.loads(text)["partialSuccess"]
    assert (code, answer["rejectedSpans"]) == (200, 1)
    assert "'x' is not an id" in answer["errorMessage"]
    assert [record.trace_id for record in Folder(folder).poll()] == [trace_id(1)]
    code, text = post(address, {"resourceSpans": [{"spans": [{"traceId": "x"}]}]})
    answer = json.loads(text)["partialSuccess"]
    assert (answer["rejectedSpans"], code) == (1, 200)
    assert answer["errorMessage"] == "spans stands where scopeSpans must be"


def begun(address: str, size: int) -> socket.socket:
    """A connection whose request has not come to its end."""
    host, _, port = address.removeprefix("http://").partition(":")
    head = f"host: {host}:{port}\r\ncontent-type: application/json\r\ncontent-length: {size + 1}"
    connection = socket.create_connection((host, int(port)))
    connection.sendall(f"POST /v1/traces HTTP/1.1\r\n{head}\r\n\r\n".encode() + b" " * size)
    return connection


def test_requests_in_progress_have_a_bound_together(
    place: tuple[str, Path], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("dagengine.watch.otlp_receiver._ROOM", 1000)
    with receive(tmp_path / "narrow", 0) as (address, _):
        with begun(address, 900):
            while post(address, export(1))[0] != 503:  # the other request has not come yet
                pass
        while post(address, export(1))[0] != 200:  # nobody has heard yet that it is gone
            pass


def test_a_request_in_progress_ends_with_the_server_and_says_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    with receive(tmp_path / "received", 0) as (address, _), begun(address, 10):
        assert post(address, export(1))[0] == 200
        with begun(address, 10):
            pass  # its client goes at once
    assert not caplog.records
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize(
    ("body", "more", "status", "why"),
    [
        (b"{", {}, 400, "not JSON"),
        ({"a": 1}, {}, 400, "neither resourceSpans nor resourceLogs"),
        ([], {}, 400, "neither resourceSpans nor resourceLogs"),
        ({}, {"kind": "metrics"}, 404, "only /v1/traces and /v1/logs"),
        ({}, {"content_type": "text/plain"}, 415, "application/json or application/x-protobuf"),
        ({}, {**JSON, "content_encoding": "zstd"}, 415, "use gzip or none"),
        (b"no", {**JSON, "content_encoding": "gzip"}, 400, "not gzip"),
        (gzip.compress(bytes(65 << 20)), {**JSON, "content_encoding": "gzip"}, 413, "64 MB"),
        ({}, {**JSON, "host": "evil.example"}, 403, "programs on this machine"),
    ],
)
def test_the_rest_is_refused_in_words(
    place: tuple[str, Path], body: Any, more: dict[str, str], status: int, why: str
) -> None:
    address, folder = place
    code, text = post(address, body, **more)
    assert (code, why in text) == (status, True), text
    assert list(folder.iterdir()) == []


@pytest.mark.skipif(with_protobuf, reason="opentelemetry-proto is installed")
def test_protobuf_without_its_package_is_refused_in_words(place: tuple[str, Path]) -> None:
    code, text = post(place[0], b"", **PROTOBUF)
    assert code == 415
    assert "OTEL_EXPORTER_OTLP_PROTOCOL=http/json" in text


@pytest.mark.skipif(not with_protobuf, reason="needs opentelemetry-proto")
def test_protobuf_is_taken_as_exporters_write_it(place: tuple[str, Path]) -> None:
    service = import_module("opentelemetry.proto.collector.trace.v1.trace_service_pb2")
    message = service.ExportTraceServiceRequest()
    span = {"traceId": "AAAAAAAAAAAAAAAAAAAAAQ==", "spanId": "AAAAAAAAAAE=", "name": "ask"}
    value = {"resourceSpans": [{"scopeSpans": [{"spans": [span]}]}]}
    import_module("google.protobuf.json_format").ParseDict(value, message)
    address, folder = place
    assert post(address, message.SerializeToString(), **PROTOBUF) == (200, "")
    assert [record.trace_id for record in Folder(folder).poll()] == [trace_id(1)]
    assert post(address, b"no message", **PROTOBUF)[0] == 400


def test_a_port_that_is_taken_is_an_error(place: tuple[str, Path], tmp_path: Path) -> None:
    port = int(place[0].rpartition(":")[2])
    with pytest.raises(InputError, match=f"cannot listen on port {port}"):  # noqa: SIM117
        with receive(tmp_path / "more", port):
            raise AssertionError("it listens twice")
