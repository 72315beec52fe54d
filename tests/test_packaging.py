"""The package: its folders, its public names, and that importing it does nothing."""

from __future__ import annotations

import subprocess
import sys
import tomllib

import pytest
from places import ROOT

import dagengine
import dagengine.judges
import dagengine.metrics

SETTINGS = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))


def test_the_packages_listed_by_hand_are_the_folders_with_python_files() -> None:
    if not (ROOT / "dagengine").is_dir():
        pytest.skip("the sources are not beside the tests: an installed copy is tested")
    listed = SETTINGS["tool"]["setuptools"]["packages"]
    homes = SETTINGS["tool"]["setuptools"]["package-dir"]
    assert set(listed) == set(homes)
    found = {
        folder.relative_to(ROOT).as_posix()
        for top in ("dagengine", "metrics", "judges")
        for folder in [ROOT / top, *(p for p in (ROOT / top).rglob("*") if p.is_dir())]
        if not folder.is_symlink() and any(folder.glob("*.py"))
    }
    assert found == set(homes.values())


@pytest.mark.parametrize("package", [dagengine, dagengine.judges, dagengine.metrics])
def test_every_public_name_can_be_loaded(package: object) -> None:
    names: list[str] = package.__all__  # type: ignore[attr-defined]
    assert names == sorted(names)
    for name in names:
        assert getattr(package, name) is not None
    assert set(names) <= set(dir(package))


def test_an_unknown_name_is_an_attribute_error() -> None:
    for package in (dagengine, dagengine.judges):
        with pytest.raises(AttributeError, match="nonsense"):
            package.nonsense  # noqa: B018


def test_importing_the_package_loads_no_heavy_library() -> None:
    code = (
        "import sys, dagengine; "
        "heavy = {'networkx', 'openai', 'instructor', 'pydantic', 'anyio'} & set(sys.modules); "
        "assert not heavy, heavy"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_the_help_of_the_command_line_loads_no_heavy_library() -> None:
    code = (
        "import sys\n"
        "from typer.testing import CliRunner\n"
        "from dagengine.cli.commands import app\n"
        "assert CliRunner().invoke(app, ['--help']).exit_code == 0\n"
        "heavy = {'networkx', 'openai', 'instructor', 'pydantic'} & set(sys.modules)\n"
        "assert not heavy, heavy\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
