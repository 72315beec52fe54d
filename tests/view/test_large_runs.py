"""The page of a large run reads what it shows, and looks as one that is handed out whole."""

from __future__ import annotations

import json
import os
import shutil
import sqlite3
import tempfile
from array import array
from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from folders.days import days
from folders.runs import but, cases, judge_of, record, support_metric
from playwright.sync_api import TimeoutError
from programs.browser import chromium, needs_chromium
from programs.viewing import Viewing, viewing

from dagengine import Limits, evaluate
from dagengine.errors import InputError
from dagengine.metrics import DAGMetric
from dagengine.metrics.dag import DAG, RatingNode
from dagengine.record import load_run
from dagengine.record.label_file import LABELS, Label, LabelFile
from dagengine.view import large_runs
from dagengine.view.large_runs import LargeRun, open_index

SAID = but(("Kind", "question 1", "other"), ("Tone", "answer 1", "rude"), ("Tone", "answer 7", 5),
           ("Next step", "answer 3", False), ("Kind", "question 8", "?"))  # fmt: skip


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    base = tmp_path_factory.mktemp("runs")
    tone = DAGMetric(
        "Warmth", DAG(RatingNode("How warm?", evaluation_params=["actual_output"], name="Empathy"))
    )
    one, many = record(base / "one", SAID, over=14), base / "many"
    evaluate(
        cases(12), [support_metric(), tone], model=judge_of(SAID), out=many, show=False,
        store=base / "answers.db", limits=Limits(prices={"*": (1, 2)}),
    )  # fmt: skip
    row = next(iter(load_run(many).rows()))
    said: dict[str, Any] = {
        "who": "Ana",
        "when": "2026-11-22T04:00:00+00:00",
        "name": row.case,
        "definition": None,
    }
    LabelFile(many / LABELS).add(
        [
            Label(
                id="1", case=row.hash or "", index=0, metric="Warmth", node="", answer=None,
                outcome="fail", **said,
            )
        ]
    )  # fmt: skip
    return [one, many, days(base / "days")]  # as they were started, which is how they are numbered


@pytest.fixture(scope="module")
def servers(folders: list[Path]) -> Iterator[tuple[Viewing, Viewing]]:
    with viewing(*folders) as whole, viewing(*folders, rows=1, chunk=5) as indexed:
        yield whole, indexed


@pytest.fixture(scope="module")
def tab(servers: object) -> Iterator[Any]:
    with chromium() as opened:
        page = opened.new_page(viewport={"width": 1280, "height": 1400})
        page.set_default_timeout(120_000)
        yield page


@needs_chromium
@pytest.mark.parametrize(
    ("run", "fragment"),
    [
        (0, ""), (0, "e=Tone:rude"), (0, "not=Kind:help&state=all&sort=-score"),
        (0, "end=Next step → False"), (0, "q=answer&e=Kind:other"), (0, "case=ticket 8&v=case"),
        (0, "state=all&sort=case&columns=path,tokens,questions"),
        (2, ""), (2, "day=2026-11-06&stratum=rest"), (2, "not-day=2026-11-03"),
        (1, "state=any"), (1, "state=passed&sort=score1"), (1, "set=Support quality"),
        (1, "m=Warmth&b=0.8"), (1, "case=ticket 3&v=case"), (1, "m=Warmth&case=ticket 0&v=case"),
        (1, "m=Warmth&state=all&sort=-cost&columns=cost,label"),
        (1, "state=all&sort=-time&columns=time"),
    ],
)  # fmt: skip
def test_every_figure_is_the_same(
    tab: Any, servers: tuple[Viewing, Viewing], run: int, fragment: str
) -> None:
    whole, indexed = (f"{server.address}run/{run}/#{fragment}" for server in servers)
    text = shown(tab, whole)
    assert len(text) > 100
    tab.goto("about:blank")
    tab.goto(indexed)
    try:
        tab.wait_for_function("text => document.querySelector('main')?.innerText === text",
                              arg=text, timeout=60_000)  # fmt: skip
    except TimeoutError:
        assert tab.locator("main").inner_text() == text


@needs_chromium
def test_a_search_by_words_says_so_where_it_is_typed_and_where_it_finds_nothing(
    tab: Any, servers: tuple[Viewing, Viewing]
) -> None:
    names = []
    for server in servers:
        tab.goto("about:blank")
        tab.goto(f"{server.address}run/0/#q=nsw")  # stands inside of `answer`
        tab.wait_for_selector("main h1")
        names.append((tab.get_attribute("input[type=search]", "aria-label"), tab.inner_text("h1")))
    said = tab.inner_text("main")
    (whole, found), (words, missed) = names
    assert (whole, words) == ("Search texts and reasons", "Search words in texts")
    assert found.startswith("14 of 14")
    assert missed == "No case matches"
    assert "whole words and beginnings of words" in said


def test_prompts_of_a_case_are_read_when_they_are_asked_for(
    servers: tuple[Viewing, Viewing],
) -> None:
    for server in servers:
        page = server.ask("run/1/").text
        assert "prompts-0" not in page
        tree, ((prompt,),) = server.ask("run/1/api/prompts?index=3").json
        assert [message["role"] for message in prompt] == ["system", "user"]
        assert "answer 3" in prompt[-1]["content"]
        assert [len(prompts) for prompts in tree] == [0, 1, 1, 1]  # the first step is code
        assert server.ask("run/0/api/prompts?index=3").json is None
        assert "no row of case 99" in server.ask("run/1/api/prompts?index=99").json["error"]


def shown(tab: Any, address: str) -> str:
    """The text of a page that is handed out whole, once it stays the same."""
    tab.goto("about:blank")
    tab.goto(address)
    tab.wait_for_selector("main h1")
    text = ""
    while text != (now := tab.locator("main").inner_text()):
        text = now
        tab.evaluate("() => new Promise(done => setTimeout(done, 60))")
    return text


def test_queues_come_from_the_index(servers: tuple[Viewing, Viewing]) -> None:
    query = "run/0/api/label/queue?metric=Support+quality&kind=failed&count=50&seed=s"
    whole, indexed = (server.ask(query).json["places"] for server in servers)
    assert whole == indexed
    assert len(whole) > 2


def test_an_index_is_made_anew_when_the_run_is_another(
    folders: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    folder = tmp_path / "run"
    shutil.copytree(folders[0], folder)
    made: list[int] = []
    for _ in range(2):
        open_index(load_run(folder), made.append).close()
    assert made == [14]
    (index,) = (tmp_path / "cache" / "dagengine").iterdir()
    index.write_bytes(b"no index")
    open_index(load_run(folder), made.append).close()
    rows, times = folder / "results.jsonl", (folder / "results.jsonl").stat()
    rows.write_bytes((folders[0] / "results.jsonl").read_bytes())
    os.utime(rows, ns=(times.st_atime_ns, times.st_mtime_ns))  # somebody hides the change
    with closing(open_index(load_run(folder), made.append)) as db:
        assert made == [14, 14, 14]
        with pytest.raises(sqlite3.OperationalError):
            db.execute("DELETE FROM chunks")
    assert {path.name for path in folder.iterdir()} == {path.name for path in folders[0].iterdir()}


def test_an_index_is_where_nobody_else_can_put_one(
    folders: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache = tmp_path / "cache"
    monkeypatch.setenv("XDG_CACHE_HOME", str(cache))
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    (cache / "dagengine").mkdir(parents=True)
    (cache / "dagengine").chmod(0o777)  # anybody could have put an index there
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / f"dagengine-{os.getuid()}").symlink_to(tmp_path / "elsewhere")
    open_index(load_run(folders[0])).close()
    assert not any((cache / "dagengine").iterdir())
    assert not any((tmp_path / "elsewhere").iterdir())
    (made,) = tmp_path.glob("dagengine-*/view-*.sqlite")
    assert made.parent.stat().st_mode & 0o777 == 0o700


def test_indexes_of_runs_that_are_gone_are_removed(
    folders: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    for name in ("first", "second"):
        shutil.copytree(folders[0], tmp_path / name)
        open_index(load_run(tmp_path / name)).close()
        shutil.rmtree(tmp_path / name)
    assert len(list((tmp_path / "cache" / "dagengine").iterdir())) == 1


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("column?name=score.0&part=9", None),
        ("column?name=score.9&part=0", None),
        ("column?name=%ED%A0%80&part=0", None),
        ("column?name=score.0&part=-1", None),
        ("texts", {"places": [12]}),
        ("texts", {"places": [-1]}),
        ("fields", {"places": [2**70]}),
        ("fields", {"places": ["x"]}),
        ("fields", {"places": [0] * 1001}),
        ("search?text=" + "+".join("abcdefghij" * 4), None),
        ("search?text=" + "x" * 1001, None),
    ],
)
def test_nothing_is_read_that_is_not_there(
    servers: tuple[Viewing, Viewing], path: str, body: Any
) -> None:
    reply = servers[1].ask(f"run/1/api/{path}", body)
    assert (reply.status, bool(reply.json["error"])) == (400, True)


@pytest.mark.parametrize(
    ("text", "places"),
    [
        ("\0", range(12)), ('"', range(12)), ("answer\0", range(12)), ("answer 7", [7]),
        ("a\0b", []), ("\ud800", []), ("answer OR 7", []),
    ],
)  # fmt: skip
def test_a_search_gives_the_places_of_rows(
    folders: list[Path], monkeypatch: pytest.MonkeyPatch, text: str, places: Sequence[int]
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(folders[0].parent / "cache"))
    with closing(LargeRun(folders[1])) as run, run.reading() as indexed:
        found = array("I", indexed.search(text))
    assert sorted(found) == list(places)


def test_parts_of_a_column_are_the_column(
    folders: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read = []
    for size, parts in ((5, 3), (99, 1)):
        monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / str(size)))
        monkeypatch.setattr(large_runs, "CHUNK", size)
        with closing(LargeRun(folders[1])) as run, run.reading() as indexed:
            names = ("kind.0", "score.1", "number", "group", "tokens.0", "seconds.1")
            read.append(
                [b"".join(indexed.chunk(name, part) for part in range(parts)) for name in names]
            )
            with pytest.raises(InputError, match="no column"):
                indexed.chunk("kind.0", parts)
    assert read[0] == read[1]
    assert array("d", read[0][2]).tolist() == list(range(12))


@pytest.mark.parametrize("rows", [1, 6])
def test_the_index_takes_in_what_a_run_that_goes_on_adds(
    folders: list[Path], tmp_path: Path, rows: int
) -> None:
    """A page asks for the status now and then, and loads anew when that says something else.

    The run is large from the beginning, or grows so large while it is served.
    """
    folder = tmp_path / "run"
    shutil.copytree(folders[0], folder, ignore=shutil.ignore_patterns("report.html"))
    files = {path: path.read_bytes() for path in (folder / "results.jsonl", folder / "cases.jsonl")}
    manifest = json.loads((folder / "run.json").read_text())
    (folder / "run.json").write_text(json.dumps({**manifest, "ended": None}))

    def so_far(count: int) -> None:
        for path, whole in files.items():
            path.write_bytes(b"".join(whole.splitlines(keepends=True)[:count]))

    so_far(5)
    with viewing(folder, rows=rows) as server:
        assert server.ask("run/0/api/status").json == {"rows": 5, "finished": False}
        so_far(9)
        assert server.ask("run/0/api/status").json == {"rows": 9, "finished": False}
        assert '"cases": 9' in server.ask("run/0/").text
        ((_, results, *_), _), _ = server.ask("run/0/api/texts", {"places": [8, 0]}).json
        assert len(results) == 1
        assert "the run has 9" in server.ask("run/0/api/texts", {"places": [9]}).json["error"]
        so_far(14)
        (folder / "run.json").write_text(json.dumps(manifest))
        assert '"cases": 14' in server.ask("run/0/").text
        assert server.ask("run/0/api/status").json == {"rows": 14, "finished": True}
        query = "run/0/api/label/queue?metric=Support+quality&kind=failed&count=50&seed=s"
        assert max(server.ask(query).json["places"]) > 9


def test_an_index_without_rows_is_shown_all_the_same(folders: list[Path], tmp_path: Path) -> None:
    folder = tmp_path / "run"
    shutil.copytree(folders[0], folder, ignore=shutil.ignore_patterns("report.html"))
    for name in ("results.jsonl", "cases.jsonl"):
        (folder / name).write_bytes(b"")
    with viewing(folder, rows=-1) as server:
        assert '"asks": true' in server.ask("run/0/").text
