"""`dagengine view` over HTTP: whom it answers, what it refuses, what survives its end."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from folders.runs import but, cases, record
from graphs.hostile import TEXTS
from programs.viewing import Viewing, viewing
from typer.testing import CliRunner

from dagengine.cli import app

SCRIPT = "<script>document.title='ran'</script>"
MARKUP = [SCRIPT, f"</script>{SCRIPT}", "<img src=x onerror=alert(1)>", "<!--", "[x](javascript:1)"]
HOSTILE = [*MARKUP, *TEXTS.values()]
AT = {"who": "Ana", "metric": "Support quality", "place": 1}


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    base = tmp_path_factory.mktemp("runs")
    hostile = [
        one.model_copy(update={"actual_output": text})
        for one, text in zip(cases(len(HOSTILE)), HOSTILE, strict=True)
    ]
    return [
        record(base / "old", over=[*cases(4), *hostile]),
        record(base / "new", but(("Tone", "answer 1", "rude")), over=[*cases(4), *hostile]),
    ]


@pytest.fixture(scope="module")
def server(folders: list[Path]) -> Iterator[Viewing]:
    with viewing(*folders) as found:
        yield found


def test_the_address_leads_to_the_newest_run(server: Viewing) -> None:
    first = server.ask("")
    assert first.status == 307
    page = server.ask("run/1/")
    assert (page.status, page.headers["content-type"]) == (200, "text/html; charset=utf-8")
    assert "connect-src 'self'" in page.text
    assert first.headers["location"].endswith("run/1/#v=runs")  # several begin with their list
    runs = server.ask("api/runs").json
    assert [run["name"] for run in runs["runs"]] == ["old", "new"]
    assert [run["comparable"] for run in runs["runs"]] == [[1], [0]]
    assert runs["broken"] == []


@pytest.mark.parametrize(
    ("headers", "said"),
    [
        ({"Host": "evil.example"}, "127.0.0.1 only"),
        ({"Host": "127.0.0.1"}, "127.0.0.1 only"),
        ({"Origin": "http://evil.example"}, "other sites"),
        ({"Origin": "null"}, "other sites"),
        ({"Sec_Fetch_Site": "cross-site"}, "other sites"),
        ({"Sec_Fetch_Site": "same-site"}, "other sites"),
    ],
)
def test_requests_from_elsewhere_are_refused(
    server: Viewing, headers: dict[str, str], said: str
) -> None:
    reply = server.ask("api/runs", **headers)
    assert reply.status == 403
    assert said in reply.text
    assert not any(name.lower().startswith("access-control") for name in reply.headers)


def test_a_browser_may_be_led_here_by_who_knows_the_token(server: Viewing) -> None:
    led = {"Sec_Fetch_Site": "cross-site", "Sec_Fetch_Mode": "navigate"}
    assert server.ask("run/1/", **led, Sec_Fetch_Dest="document").status == 200
    assert server.ask("run/1/", **led, Sec_Fetch_Dest="iframe").status == 403
    assert server.ask("run/1/", root="/wrong/", **led, Sec_Fetch_Dest="document").status == 403
    writing = server.ask("run/1/api/label/undo", AT, **led, Sec_Fetch_Dest="document")
    assert writing.status == 403


def test_without_the_token_nothing_is_answered(server: Viewing) -> None:
    for root in ("/", "/wrong/", server.root[:-2] + "/", "/docs/../"):
        reply = server.ask("api/runs", root=root)
        assert reply.status == 403
        assert "contains a token" in reply.text
    assert server.ask("api/label/answer", AT, Origin="").status == 403


def test_replies_cannot_be_framed_kept_or_sent_on(server: Viewing) -> None:
    headers = {name.lower(): value for name, value in server.ask("run/0/").headers.items()}
    assert headers["referrer-policy"] == "no-referrer"
    assert headers["cache-control"] == "no-store"
    assert headers["x-frame-options"] == "DENY"
    assert headers["content-security-policy"] == "frame-ancestors 'none'"


@pytest.mark.parametrize(
    ("path", "body", "said"),
    [
        ("api/changes?old=0&new=7", None, "there is no run 7"),
        ("api/changes?old=-1&new=0", None, "`old` is a whole number"),
        ("run/9/api/status", None, "there is no run 9"),
        ("run/1/api/label/queue?metric=No&kind=random&count=1", None, "no metric 'No'"),
        ("run/1/api/label/position?metric=Support+quality&place=99", None, "there is no case 99"),
        ("run/1/api/label/answer", {**AT, "node": "Kind", "choice": 9}, "has no answer 9"),
        ("run/1/api/label/answer", {**AT, "node": "Kind"}, "needs `node` and `choice`"),
        ("run/1/api/label/answer", {**AT, "extra": 1}, "extra"),
        ("run/1/api/label/answer", {**AT, "who": ""}, "who"),
        ("run/1/api/label/answer", b"{" * 70_000, "at most 64,000 bytes"),
        ("run/1/api/label/answer", b"[" * 60_000, "not JSON"),
        ("run/1/api/label/answer", b"{", "not JSON"),
        ("run/1/api/label/answer", b"\xff", "not JSON"),
        ("run/1/api/label/answer", b'{"place": ' + b"9" * 5000 + b"}", "not JSON"),
        ("run/1/api/label/answer", {**AT, "node": "Kind", "choice": 2**70}, "choice"),
        ("run/1/api/label/answer", {**AT, "node": "Kind", "choice": -1}, "choice"),
        ("run/1/api/label/undo", {**AT, "place": 2**70}, "place"),
        (
            "run/1/api/label/queue?metric=Support+quality&kind=one&count=1&seed=" + "9" * 5000,
            None,
            "a queue is one of",
        ),
        (f"run/{'9' * 5000}/api/status", None, "`run` is a whole number"),
        ("run/%00/api/status", None, "`run` is a whole number"),
        ("run/%ED%A0%80/", None, "`run` is a whole number"),
        ("api/walks?old=0&new=1&old_index=999999999999&new_index=0", None, "no row of case"),
        ("api/walks?old=0&new=1&metric=%ED%A0%80%00&old_index=0&new_index=0", None, "no result"),
    ],
)
def test_what_makes_no_sense_is_refused_in_words(
    server: Viewing, path: str, body: Any, said: str
) -> None:
    reply = server.ask(path, body)
    assert reply.status == 400
    assert said in reply.json["error"]


def test_judged_texts_stand_in_the_page_as_inert_data_only(server: Viewing) -> None:
    page = server.ask("run/1/").text
    assert not any(text in page for text in HOSTILE if "<" in text and text != "<!--")


def test_changes_and_walks_are_those_of_the_command_line(
    server: Viewing, folders: list[Path]
) -> None:
    printed = CliRunner().invoke(app, ["diff", *map(str, folders), "--format", "json"]).stdout
    told = server.ask("api/changes?old=0&new=1").json
    firsts = [change.pop("first") for metric in told["metrics"] for change in metric["changes"]]
    assert firsts  # besides, the page gets the line that tells a case apart
    assert all(first.startswith("question ") for first in firsts)
    assert told == json.loads(printed)
    query = "api/walks?old=0&new=1&metric=Support+quality&old_index=1&new_index=1"
    old, new = server.ask(query).json
    assert (old["score"], new["score"], new["fields"]["actual_output"]) == (1.0, 0.0, "answer 1")
    assert server.ask("api/changes?old=1&new=1").json["agrees"]


def test_a_label_survives_the_kill_of_the_server_and_touches_nothing_else(
    folders: list[Path],
) -> None:
    folder = folders[0]
    before = {path: path.read_bytes() for path in folder.iterdir()}
    with viewing(folder) as server:
        reply = server.ask("run/0/api/label/answer", {**AT, "node": "Kind", "choice": 1})
        assert reply.json["asked"]["node"] == "Next step"
        other = server.ask("run/0/api/label/answer", {**AT, "node": "Kind", "choice": 2})
        assert (other.status, "another tab" in other.json["error"]) == (409, True)
        server.process.kill()
    with viewing(folder) as server:
        query = "run/0/api/label/position?who=Ana&metric=Support+quality&place=1"
        assert server.ask(query).json["steps"][-1] == {
            "node": "Kind", "answer": "help", "by": "person"
        }  # fmt: skip
        undone = server.ask("run/0/api/label/undo", AT)
        assert undone.json["asked"]["node"] == "Kind"
    assert {path: path.read_bytes() for path in before} == before
