"""Folders of runs that are damaged, or made to do damage: told in a sentence, by every reader."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import quote

import anyio
import pytest
from folders.runs import record
from typer.testing import CliRunner

from dagengine.cli import app
from dagengine.errors import DagengineError, InputError
from dagengine.record import load_run
from dagengine.record.label_file import LABELS
from dagengine.report.page.run_page import write_page
from dagengine.view.server import application, open_runs

METRIC = "Support quality"
Change = Callable[[Any], None]


def deep(value: Any, depth: int) -> Any:
    for _ in range(depth):
        value = [value]
    return value


def nested(record_of: Any, depth: int) -> None:
    metric = record_of["metrics"][0]
    inner = copy.deepcopy(metric)
    for number in range(depth):
        outer = copy.deepcopy(metric)
        outer["nodes"] = [
            {"name": f"inside {number}", "kind": "metric", "grades": True, "metric": inner}
        ]
        outer["edges"] = []
        inner = outer
    record_of["metrics"] = [inner]


def many(record_of: Any) -> None:
    metric = record_of["metrics"][0]
    metric["nodes"] += [{"name": f"node {n}", "kind": "code"} for n in range(20_000)]


def edit(record_of: Any, *path: Any, to: Any) -> None:
    *before, last = path
    for step in before:
        record_of = record_of[step]
    record_of[last] = to


MANIFESTS: dict[str, Change] = {
    "a time without a zone": lambda one: edit(one, "started", to="2026-01-01T00:00:00"),
    "an edge to no node": lambda one: edit(one, "metrics", 0, "edges", 0, "to", to="nobody"),
    "an edge from no node": lambda one: edit(one, "metrics", 0, "edges", 0, "from", to="nobody"),
    "a judge that is not there": lambda one: edit(one, "metrics", 0, "nodes", 1, "judges", to=[99]),
    "a judge before the first": lambda one: edit(one, "metrics", 0, "nodes", 1, "judges", to=[-1]),
    "a user of no judge": lambda one: edit(one, "usage", 0, "judge", to=99),
    "a node that reads no node": lambda one: edit(
        one, "metrics", 0, "nodes", 1, "inputs", to=["nobody"]
    ),
    "a threshold that is no number": lambda one: edit(
        one, "metrics", 0, "threshold", to=float("nan")
    ),
    "a price without end": lambda one: edit(one, "judges", 0, "price", to=[float("inf"), 0, None]),
    "metrics nested too deep": lambda one: nested(one, 90),
    "too many nodes": many,
    "a setting that is too deep": lambda one: edit(one, "settings", to={"x": deep(1, 600)}),
}


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    folder = record(tmp_path_factory.mktemp("whole") / "run", over=3)
    return {path.name: path.read_bytes() for path in folder.iterdir()}


@pytest.fixture
def folder(whole: dict[str, bytes], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    folder = tmp_path / "run"
    folder.mkdir()
    for name, data in whole.items():
        (folder / name).write_bytes(data)
    return folder


@pytest.mark.parametrize("what", MANIFESTS)
def test_a_record_that_does_not_fit_together_is_refused(folder: Path, what: str) -> None:
    path = folder / "run.json"
    found = json.loads(path.read_bytes())
    MANIFESTS[what](found)
    path.write_text(_dumped(found))
    with pytest.raises(InputError, match=r"run\.json is not the record of a run"):
        load_run(folder)


def _dumped(value: Any) -> str:
    """JSON of any depth."""
    if isinstance(value, dict) and isinstance(value.get("settings", {}).get("x"), list):
        rest = json.dumps({**value, "settings": {"x": "deep"}})
        return rest.replace('"deep"', "[" * 600 + "]" * 600)
    return json.dumps(value)


def row(change: Change) -> Callable[[bytes], bytes]:
    """The lines of a file whose second has changed."""

    def changed(data: bytes) -> bytes:
        first, second, *others = data.splitlines(keepends=True)
        found = json.loads(second)
        change(found)
        return b"".join([first, json.dumps(found).encode() + b"\n", *others])

    return changed


def line(text: bytes) -> Callable[[bytes], bytes]:
    """The lines of a file with another one in the second place."""

    def changed(data: bytes) -> bytes:
        first, _, *others = data.splitlines(keepends=True)
        return b"".join([first, text + b"\n", *others])

    return changed


STEP = ("metrics", 0, "steps", 1)
LINES: dict[str, tuple[str, Callable[[bytes], bytes]]] = {
    "a score that is NaN": (
        "results.jsonl", row(lambda one: edit(one, "metrics", 0, "score", to=float("nan")))
    ),
    "a score of 10^308": (
        "results.jsonl", row(lambda one: edit(one, "metrics", 0, "score", to=1e308))
    ),
    "tokens without end": (
        "results.jsonl",
        row(lambda one: edit(one, *STEP, "usage", to={"input_tokens": 1e400, "output_tokens": 0})),
    ),
    "an index of 2^70": ("results.jsonl", row(lambda one: edit(one, "index", to=2**70))),
    "a row that is a list": ("results.jsonl", line(b"[]")),
    "a row that is not UTF-8": ("results.jsonl", line(b'{"index": "\xff"}')),
    "a row that is deep": ("results.jsonl", line(b"[" * 100_000)),
    "a case that is a number": ("cases.jsonl", line(b"7")),
    "a case without an index": ("cases.jsonl", line(b'{"input": "x"}')),
    "tags that are objects": ("cases.jsonl", row(lambda one: edit(one, "tags", to=[{}]))),
    "a case that is deep": ("cases.jsonl", line(b"[" * 100_000)),
    "a label that is deep": (LABELS, lambda data: b"[" * 100_000 + b"}\n"),
}  # fmt: skip
HARMLESS: dict[str, tuple[str, Callable[[bytes], bytes]]] = {
    "an output that is NaN": (
        "results.jsonl", row(lambda one: edit(one, *STEP, "output", to=float("nan")))
    ),
    "a surrogate in a verdict": (
        "results.jsonl", row(lambda one: edit(one, *STEP, "verdict", to="\ud800"))
    ),
    "a node that nobody knows": (
        "results.jsonl", row(lambda one: edit(one, *STEP, "node", to="nobody"))
    ),
    "a surrogate in a case": ("cases.jsonl", row(lambda one: edit(one, "input", to="\udfff"))),
    "times that are texts": ("times.jsonl", row(lambda one: edit(one, "seconds", to="\ud800"))),
    "times of 10^308": ("times.jsonl", row(lambda one: edit(one, "seconds", to=1e308))),
    "times in a list": ("times.jsonl", row(lambda one: edit(one, "steps", to=[1]))),
}  # fmt: skip


def damaged(folder: Path, what: str) -> None:
    name, change = {**LINES, **HARMLESS}[what]
    path = folder / name
    path.write_bytes(change(path.read_bytes() if path.exists() else b""))


PATHS = (
    "", "run/0/api/status", "api/runs", "api/changes?old=0&new=0",
    f"api/walks?old=0&new=0&metric={METRIC}&old_index=1&new_index=1",
    "run/0/api/prompts?index=1", f"run/0/api/label/position?who=A&metric={METRIC}&place=1",
    f"run/0/api/label/queue?metric={METRIC}&kind=failed&count=9&seed=s",
)  # fmt: skip


def asked_of(app: Any, path: str, body: Any = None) -> tuple[int, Any]:
    """What a server answers, without a socket: the status, and the JSON of a refusal."""
    place, _, query = path.partition("?")
    data = b"" if body is None else json.dumps(body).encode()
    headers = [(b"host", b"testserver"), (b"origin", b"http://testserver")]
    scope: dict[str, Any] = {
        "type": "http", "asgi": {"version": "3.0"}, "http_version": "1.1", "scheme": "http",
        "method": "GET" if body is None else "POST", "path": f"/t/{place}", "root_path": "",
        "query_string": quote(query, safe="=&").encode(), "headers": headers,
    }  # fmt: skip
    sent: list[Any] = []

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": data, "more_body": False}

    async def send(message: Any) -> None:
        sent.append(message)

    anyio.run(app, scope, receive, send)
    status = sent[0]["status"]
    text = b"".join(message.get("body", b"") for message in sent[1:])
    return status, json.loads(text) if status == 400 else None


def replies(folder: Path, rows: int) -> list[int]:
    """What the server answers to all that it may be asked; 400 too if it cannot begin."""
    try:
        served = open_runs([folder], "Ana", rows=rows)
    except InputError:
        return [400]
    try:
        server = application(served, "t", ["testserver"])
        found = [asked_of(server, path) for path in PATHS]
        if rows == 1:
            found += [
                asked_of(server, f"run/0/api/{what}", {"places": [0, 1, 2]})
                for what in ("texts", "fields")
            ]
            found.append(asked_of(server, "run/0/api/search?text=answer"))
        refusals = [reply["error"] for status, reply in found if status == 400]
        assert not any("holds what cannot be shown" in text for text in refusals)
        return [200 if status == 307 else status for status, _ in found]
    finally:
        served.close()


@pytest.mark.parametrize("rows", [1, 1000])
@pytest.mark.parametrize("what", [*LINES, *HARMLESS])
def test_a_server_tells_what_is_damaged(folder: Path, what: str, rows: int) -> None:
    damaged(folder, what)
    found = replies(folder, rows)
    assert set(found) <= {200, 400}
    assert (400 in found) == (what in LINES)


@pytest.mark.parametrize("what", [*LINES, *HARMLESS])
@pytest.mark.parametrize("command", ["show {0}", "show {0} --case 1", "diff {0} {0}"])
def test_a_command_tells_what_is_damaged(folder: Path, what: str, command: str) -> None:
    damaged(folder, what)
    done = CliRunner().invoke(app, command.format(folder).split())
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        assert isinstance(done.exception, DagengineError), done.exc_info
        assert what in LINES


@pytest.mark.parametrize("what", HARMLESS)
def test_a_page_is_made_all_the_same(folder: Path, what: str) -> None:
    damaged(folder, what)
    assert write_page(load_run(folder), folder / "page.html").exists()
