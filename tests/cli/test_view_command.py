"""What `dagengine view` says when it cannot start."""

from __future__ import annotations

import socket
import sys
from pathlib import Path

import pytest
from runs import record
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
    assert "pip install 'dagengine[view]'" in str(found.exception)


def test_a_folder_without_a_run_is_refused(tmp_path: Path) -> None:
    found = CliRunner().invoke(app, ["view", str(tmp_path)])
    assert isinstance(found.exception, InputError)
    assert "is not the folder of a run: it has no run.json" in str(found.exception)


def test_a_port_that_is_taken_is_named(tmp_path: Path) -> None:
    folder = record(tmp_path / "run")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        found = CliRunner().invoke(app, ["view", str(folder), "--port", str(port)])
    assert isinstance(found.exception, InputError)
    assert f"cannot listen on port {port}" in str(found.exception)
