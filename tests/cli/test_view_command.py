"""What `dagengine view` says when it cannot start."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import sys
from pathlib import Path

import pytest
from folders.runs import record
from programs.commands import start_command
from typer.testing import CliRunner

from dagengine.cli import app
from dagengine.errors import InputError, MissingExtraError


def test_without_the_extra_it_names_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in [name for name in sys.modules if name.startswith("dagengine.view")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "starlette.applications", None)
    found = CliRunner().invoke(app, ["view", str(tmp_path)])
    assert isinstance(found.exception, MissingExtraError)
    assert 'pip install "dagengine[view]"' in str(found.exception)


def test_a_folder_without_a_run_is_refused(tmp_path: Path) -> None:
    found = CliRunner().invoke(app, ["view", str(tmp_path)])
    assert isinstance(found.exception, InputError)
    assert "is not the folder of a run: it has no run.json" in str(found.exception)


def test_a_file_beside_the_rows_is_answered_with_its_folder(tmp_path: Path) -> None:
    folder = record(tmp_path / "run")
    failure = CliRunner().invoke(app, ["view", str(folder / "cases.jsonl")]).exception
    assert isinstance(failure, InputError)
    assert f"it is not a folder; write {folder}" in str(failure)


def test_a_port_that_is_taken_is_named(tmp_path: Path) -> None:
    folder = record(tmp_path / "run")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        found = CliRunner().invoke(app, ["view", str(folder), "--port", str(port)])
    assert isinstance(found.exception, InputError)
    assert f"cannot listen on port {port}" in str(found.exception)


BROWSER = """#!{python}
import json, sys
from pathlib import Path
from urllib.parse import urlsplit
page = Path(urlsplit(sys.argv[1]).path)
mode = page.parent.stat().st_mode & 0o777
print(json.dumps([sys.argv[1:], page.read_text(), mode]), flush=True)
"""


@pytest.mark.skipif(os.name == "nt", reason="there a browser is no program with arguments")
def test_the_token_is_in_no_argument_of_the_browser(tmp_path: Path) -> None:
    folder, browser = record(tmp_path / "run"), tmp_path / "browser"
    browser.write_text(BROWSER.format(python=sys.executable))
    browser.chmod(0o700)
    environment = {**os.environ, "BROWSER": str(browser), "XDG_CACHE_HOME": str(tmp_path / "cache")}
    process = start_command(tmp_path, "view", str(folder), "--open", environment=environment)
    found = re.search(r"http://\S+", process.line())
    assert found is not None
    arguments, page, mode = json.loads(process.line(1))
    token = found[0].rstrip("/").rpartition("/")[2]
    assert (token in str(arguments), token in page, mode) == (False, True, 0o700)
    process.send_signal(signal.SIGINT)
    done = process.ended()
    assert (done.returncode, done.stderr) == (0, "")
    assert list((tmp_path / "cache" / "dagengine").iterdir()) == []
